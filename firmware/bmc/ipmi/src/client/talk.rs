//! What a session can be busy with: an order about power, or an errand. One
//! face for both, so that the session need not know which it is.

use trivet_model::{PowerAnswer, PowerError, PowerOrder};

use super::script::{self, Script};
use crate::command::{Request, completion};
use crate::errand::{self, Dialogue, Report};

/// What comes after an answer.
pub(super) enum Next {
    Ask(Request),
    Later { request: Request, wait_ms: u64 },
    Done(Result<Answer, PowerError>),
}

/// How a talk ended well.
pub(super) enum Answer {
    Power(PowerAnswer),
    Errand(Report),
}

/// One order or errand, waiting or under way.
pub(super) enum Talk {
    Power(Script),
    Errand {
        dialogue: Box<Dialogue>,
        counts: bool,
    },
}

impl Talk {
    pub(super) fn order(order: PowerOrder) -> (Self, Request) {
        let (script, request) = Script::start(order);
        (Self::Power(script), request)
    }

    pub(super) fn errand(errand: errand::Errand) -> Result<(Self, Request), PowerError> {
        let counts = errand.counts();
        let (dialogue, request) = Dialogue::start(errand)?;
        let dialogue = Box::new(dialogue);
        Ok((Self::Errand { dialogue, counts }, request))
    }

    pub(super) fn is_errand(&self) -> bool {
        matches!(self, Self::Errand { .. })
    }

    /// Whether it must not be said again where it may have been heard.
    pub(super) fn counts(&self) -> bool {
        match self {
            Self::Power(script) => script.counts(),
            Self::Errand { counts, .. } => *counts,
        }
    }

    /// Whether it changes the machine's power.
    pub(super) fn switches(&self) -> bool {
        matches!(self, Self::Power(script) if script.switches())
    }

    /// Whether the session is no good after it.
    pub(super) fn ends_session(&self) -> bool {
        match self {
            Self::Power(script) => script.ends_session(),
            Self::Errand { .. } => false,
        }
    }

    /// What it means when it was said and nothing came back.
    pub(super) fn meant_by_silence(&self) -> Option<Answer> {
        match self {
            Self::Power(script) => script.meant_by_silence().map(Answer::Power),
            Self::Errand { .. } => None,
        }
    }

    /// Takes the answer to the last request.
    pub(super) fn hear(&mut self, code: u8, data: &[u8]) -> Next {
        match self {
            Self::Power(script) => match script.hear(code, data) {
                script::Next::Ask(request) => Next::Ask(request),
                script::Next::Done(result) => Next::Done(result.map(Answer::Power)),
            },
            Self::Errand { dialogue, .. } => match dialogue.hear(code, data) {
                errand::Next::Ask(request) => Next::Ask(request),
                errand::Next::Later { request, wait_ms } => Next::Later { request, wait_ms },
                errand::Next::Done(result) => Next::Done(result.map(Answer::Errand)),
            },
        }
    }
}

/// Completion codes that mean the same whatever was asked.
pub(super) fn told_apart(error: PowerError) -> PowerError {
    match error {
        PowerError::Refused {
            code: completion::NO_PRIVILEGE,
        } => PowerError::Privilege,
        PowerError::Refused {
            code: completion::NODE_BUSY,
        } => PowerError::Occupied,
        other => other,
    }
}
