//! Logging in, by the way that the target asks for. A login knows what to say
//! and what to believe; when to say it again is the session's business.

mod old;
mod plus;

use trivet_model::{Entropy, PowerError};

use crate::channel::Line;
use crate::suite::Suite;
use crate::wire::packet::Packet;

use super::Target;

/// What one datagram did to a login.
pub(super) enum Heard {
    /// It was not the awaited answer.
    Nothing,
    /// The next message is to be sent.
    Next,
    /// The session stands.
    Done(Line),
    /// The BMC will not do this suite.
    Algorithms,
    /// The BMC refused, or its proof is wrong; perhaps a last word to it.
    Refused {
        error: PowerError,
        parting: Option<Vec<u8>>,
    },
}

/// What it means when the last try of a message went unanswered.
pub(super) enum Silence {
    /// Nobody has answered anything yet.
    Nobody,
    /// Some BMCs keep silent where they should refuse a suite.
    Algorithms,
    /// It is known what such silence is about.
    Means(PowerError),
    /// Somebody was there a moment ago.
    Midway,
}

/// One attempt to log in.
pub(super) enum Login {
    /// To IPMI 2.0.
    Plus(Box<plus::Login>),
    /// To IPMI 1.5.
    Old(Box<old::Login>),
}

impl Login {
    /// A login that starts by asking whether anybody is there.
    pub(super) fn new(target: &Target, suite: Suite, entropy: &mut dyn Entropy) -> Self {
        if target.old {
            Self::Old(Box::new(old::Login::new(entropy)))
        } else {
            Self::Plus(Box::new(plus::Login::new(target, suite, entropy)))
        }
    }

    /// The same with another suite, when it is known that somebody is.
    pub(super) fn open(target: &Target, suite: Suite, entropy: &mut dyn Entropy) -> Self {
        Self::Plus(Box::new(plus::Login::open(target, suite, entropy)))
    }

    /// The message whose answer is awaited. Sent again, it is the same to the
    /// last byte, so that a BMC can tell a repetition from a new attempt.
    pub(super) fn message(&self, target: &Target) -> Vec<u8> {
        match self {
            Self::Plus(login) => login.message(target),
            Self::Old(login) => login.message(target),
        }
    }

    pub(super) fn hear(&mut self, target: &Target, packet: &Packet<'_>) -> Heard {
        match self {
            Self::Plus(login) => login.hear(target, packet),
            Self::Old(login) => login.hear(target, packet),
        }
    }

    /// A doubtful refusal that nobody contradicted.
    pub(super) fn believe_refusal(&mut self) -> Option<Heard> {
        match self {
            Self::Plus(login) => login.believe_refusal(),
            Self::Old(login) => login.believe_refusal(),
        }
    }

    pub(super) fn silence(&self) -> Silence {
        match self {
            Self::Plus(login) => login.silence(),
            Self::Old(login) => login.silence(),
        }
    }
}
