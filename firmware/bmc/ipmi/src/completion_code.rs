//! Texts of completion codes (table 5-2), for the errors that operators read.

use ipmi_rs_core::connection::CompletionErrorCode as Code;

/// The error message for a command that was refused with this code.
pub(crate) fn refusal(code: u8) -> String {
    let text = text(code);
    format!("the BMC refused the command with completion code 0x{code:02x}: {text}")
}

/// The meaning of a completion code. It is not that of the command, so codes whose meaning depends
/// on the command are only called that.
fn text(code: u8) -> &'static str {
    // The only code that is not an error is zero.
    let Ok(code) = Code::try_from(code) else {
        return "completed normally";
    };
    match code {
        Code::NodeBusy => "the BMC is busy",
        Code::InvalidCommand => "the BMC does not have this command",
        Code::InvalidCommandForLun => "the BMC does not have this command for this unit",
        Code::ProcessingTimeout => "the BMC ran out of time",
        Code::OutOfSpace => "the BMC is out of space",
        Code::ReservationCancelledOrInvalidId => "the reservation was cancelled, or is invalid",
        Code::RequestDataTruncated => "the request was truncated",
        Code::RequestDataLenInvalid => "the request has a wrong length",
        Code::RequestDataLengthLimitExceeded => "the request is too long",
        Code::ParameterOutOfRange => "a parameter is out of range",
        Code::CannotReturnNumOfRequestedBytes => "the BMC cannot return that many bytes",
        Code::RequestedDatapointNotPresent => "the requested sensor, data or record is not present",
        Code::InvalidDataFieldInRequest => "a field of the request is invalid",
        Code::CommandIllegalForSensorOrRecord => "not possible for this sensor or record",
        // The reason is of a type that the crate does not export.
        Code::ResponseUnavailable { .. } => {
            "no response now; the BMC may be starting, or updating its firmware or sensor records"
        }
        Code::CannotExecuteDuplicateRequest => "a duplicate of an earlier request",
        Code::DestinationUnavailable => "the destination of the request is unavailable",
        Code::InsufficientPrivilege => "the user's privilege level does not suffice",
        Code::CannotExecuteCommandInCurrentState => {
            "not possible in the current state of the machine"
        }
        Code::SubFunctionDisabled => "this function of the BMC is disabled or unavailable",
        Code::Unspecified => "an unspecified error",
        Code::Oem(_) => "an error that the manufacturer defined",
        Code::CommandSpecific(_) => "an error of this command",
        Code::Reserved(_) => "a reserved code",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_refusal_has_the_code_and_its_meaning() {
        let want = "the BMC refused the command with completion code 0xd5: not possible in the \
                    current state of the machine";
        assert_eq!(refusal(0xd5), want);
    }

    #[test]
    fn each_code_has_a_text() {
        for (code, want) in [
            (0x00, "completed normally"),
            (0x01, "an error that the manufacturer defined"),
            (0x80, "an error of this command"),
            (0xc1, "the BMC does not have this command"),
            (0xcb, "the requested sensor, data or record is not present"),
            (0xd4, "the user's privilege level does not suffice"),
            (0xd7, "a reserved code"),
            (0xff, "an unspecified error"),
        ] {
            assert_eq!(text(code), want, "{code:02x}");
        }
        for code in [0xce, 0xd0, 0xd1, 0xd2] {
            assert!(text(code).starts_with("no response now"), "{code:02x}");
        }
        assert!((0..=u8::MAX).all(|code| !text(code).is_empty()));
    }
}
