//! A power order or an operation, with one interface for both, so that the session handles them
//! alike.

use trivet_model::{BmcFailureCause, PowerAnswer, PowerError, PowerOrder};

use super::power_script::{self, IpmiPowerScript};
use crate::command::{IpmiRequest, completion};
use crate::completion_code;
use crate::operation::{self, IpmiOperationScript, IpmiReply};

/// The next action after a response.
pub(super) enum IpmiJobNext {
    Send(IpmiRequest),
    SendLater { request: IpmiRequest, wait_ms: u64 },
    Done(Result<IpmiJobAnswer, PowerError>),
}

/// The result of a successful script.
pub(super) enum IpmiJobAnswer {
    Power(PowerAnswer),
    Operation(IpmiReply),
}

/// One order or operation, queued or in progress.
pub(super) enum IpmiJobScript {
    Power(IpmiPowerScript),
    Operation {
        script: Box<IpmiOperationScript>,
        at_most_once: bool,
    },
}

impl IpmiJobScript {
    pub(super) fn order(order: PowerOrder) -> (Self, IpmiRequest) {
        let (script, request) = IpmiPowerScript::start(order);
        (Self::Power(script), request)
    }

    pub(super) fn operation(
        operation: operation::IpmiOperation,
    ) -> Result<(Self, IpmiRequest), PowerError> {
        let counts = operation.at_most_once();
        let (dialogue, request) = IpmiOperationScript::start(operation)?;
        let dialogue = Box::new(dialogue);
        Ok((
            Self::Operation {
                script: dialogue,
                at_most_once: counts,
            },
            request,
        ))
    }

    pub(super) fn is_operation(&self) -> bool {
        matches!(self, Self::Operation { .. })
    }

    /// Whether it must not be repeated if the BMC may have received it.
    pub(super) fn at_most_once(&self) -> bool {
        match self {
            Self::Power(script) => script.at_most_once(),
            Self::Operation {
                at_most_once: counts,
                ..
            } => *counts,
        }
    }

    /// Whether it changes the machine's power.
    pub(super) fn changes_power(&self) -> bool {
        matches!(self, Self::Power(script) if script.changes_power())
    }

    /// Whether the session is unusable after it.
    pub(super) fn ends_session(&self) -> bool {
        match self {
            Self::Power(script) => script.ends_session(),
            Self::Operation { .. } => false,
        }
    }

    /// The result if it was sent and got no response.
    pub(super) fn answer_without_response(&self) -> Option<IpmiJobAnswer> {
        match self {
            Self::Power(script) => script.answer_without_response().map(IpmiJobAnswer::Power),
            Self::Operation { .. } => None,
        }
    }

    /// Processes the response to the last request.
    pub(super) fn handle_response(&mut self, code: u8, data: &[u8]) -> IpmiJobNext {
        match self {
            Self::Power(script) => match script.handle_response(code, data) {
                power_script::IpmiPowerNext::Send(request) => IpmiJobNext::Send(request),
                power_script::IpmiPowerNext::Done(result) => {
                    IpmiJobNext::Done(result.map(IpmiJobAnswer::Power))
                }
            },
            Self::Operation {
                script: dialogue, ..
            } => match dialogue.handle_response(code, data) {
                operation::IpmiOperationNext::Send(request) => IpmiJobNext::Send(request),
                operation::IpmiOperationNext::SendLater { request, wait_ms } => {
                    IpmiJobNext::SendLater { request, wait_ms }
                }
                operation::IpmiOperationNext::Done(result) => {
                    IpmiJobNext::Done(result.map(IpmiJobAnswer::Operation))
                }
            },
        }
    }
}

/// The error that leaves the client: completion codes that have the same meaning for every command
/// have an error of their own, and the others a text.
pub(super) fn classify_completion_code(error: PowerError) -> PowerError {
    match error {
        PowerError::Refused {
            code: completion::NO_PRIVILEGE,
        } => PowerError::Privilege,
        PowerError::Refused {
            code: completion::NODE_BUSY,
        } => PowerError::BmcBusy,
        PowerError::Refused { code } => PowerError::Bmc {
            cause: BmcFailureCause::Refused,
            message: completion_code::refusal(code),
        },
        other => other,
    }
}
