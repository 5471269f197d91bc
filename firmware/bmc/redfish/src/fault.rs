//! Error messages: what failed, the likely cause, and which key of `driver_info` to check. Messages
//! from a BMC are quoted after cleaning and truncation.

use serde_json::Value;
use trivet_model::{BmcFailureCause, PowerError, UndeliveredReason};

use crate::script::RedfishParsedResponse;
use trivet_bmc::http::{BmcHttpError, HTTP_REQUEST_TIMEOUT_MS};

/// Most characters of a BMC's own message that are shown. Ours.
const MESSAGE_CHARS_MAX: usize = 200;

/// Most messages of one response that are read. Ours.
const MESSAGES_MAX: usize = 8;

fn bmc(cause: BmcFailureCause, message: impl Into<String>) -> PowerError {
    PowerError::Bmc {
        cause,
        message: message.into(),
    }
}

pub(crate) fn invalid_response(message: &str) -> PowerError {
    bmc(
        BmcFailureCause::InvalidResponse,
        format!("the BMC sent an invalid response: {message}"),
    )
}

pub(crate) fn not_applied(message: &str) -> PowerError {
    bmc(
        BmcFailureCause::NotApplied,
        format!("the BMC reported success, but {message}"),
    )
}

pub(crate) fn busy(message: &str) -> PowerError {
    bmc(
        BmcFailureCause::Busy,
        format!("the BMC is busy ({message}); try again in a minute"),
    )
}

/// The error for a name that the BMC does not know.
pub(crate) fn missing(message: String) -> PowerError {
    bmc(BmcFailureCause::Missing, message)
}

/// The error for a function that this BMC does not have, independent of the user.
pub(crate) fn unsupported(message: &'static str) -> PowerError {
    PowerError::Unsupported { message }
}

/// The error for a connection that returned no response.
pub(crate) fn transport(error: &BmcHttpError) -> PowerError {
    match error {
        BmcHttpError::Unreachable { reason, message } => bmc(
            match reason {
                Some(UndeliveredReason::NoHost) => BmcFailureCause::NoHost,
                Some(UndeliveredReason::PortClosed) => BmcFailureCause::PortClosed,
                None => BmcFailureCause::Unreachable,
            },
            format!(
                "the BMC cannot be reached ({}); check redfish_address, its cable and that \
                 Redfish is on",
                clean(message)
            ),
        ),
        BmcHttpError::Silent => bmc(
            BmcFailureCause::Unreachable,
            format!(
                "the BMC accepted the connection and did not answer within {} s; it may be \
                 restarting or overloaded: if that lasts, restart it",
                HTTP_REQUEST_TIMEOUT_MS / 1000
            ),
        ),
        BmcHttpError::Lost { message } => bmc(
            BmcFailureCause::Unreachable,
            format!(
                "the BMC did not answer ({}); it may be restarting or overloaded",
                clean(message)
            ),
        ),
        BmcHttpError::Untrusted {
            fingerprint: Some(digits),
            message,
        } => bmc(
            BmcFailureCause::Untrusted,
            format!(
                "the BMC's certificate is not trusted ({}); its SHA-256 is {}: compare it at the \
                 BMC, then set redfish_pin to it, or give the authority that signed it as \
                 redfish_verify_ca",
                clean(message),
                clean(digits)
            ),
        ),
        BmcHttpError::Untrusted { message, .. } => bmc(
            BmcFailureCause::Untrusted,
            format!(
                "TLS with the BMC failed ({}); check redfish_address, redfish_verify_ca and \
                 redfish_pin",
                clean(message)
            ),
        ),
        BmcHttpError::TooLong => invalid_response("the response is too long"),
    }
}

/// The error for a response that is a refusal.
pub(crate) fn refused(reply: &RedfishParsedResponse) -> PowerError {
    let own = extended_message(reply);
    let status = reply.status;
    let and = |text: &str| match &own {
        Some(own) => format!("{text} ({own})"),
        None => text.to_owned(),
    };
    match status {
        401 => login(&and("HTTP status 401")),
        403 => bmc(
            BmcFailureCause::Privilege,
            format!(
                "the BMC does not allow this user to do this ({}); set redfish_username to a user \
                 with more privilege",
                and("HTTP status 403")
            ),
        ),
        429 | 503 => busy(&and(&format!("HTTP status {status}"))),
        300..=399 => invalid_response(
            "it redirects to another address; if that is right, set redfish_address to it",
        ),
        404 => bmc(
            BmcFailureCause::Refused,
            format!(
                "the BMC has no such resource ({}); check redfish_system_id",
                and("HTTP status 404")
            ),
        ),
        _ => bmc(
            BmcFailureCause::Refused,
            format!(
                "the BMC refused with HTTP status {}",
                and(&status.to_string())
            ),
        ),
    }
}

pub(crate) fn login(message: &str) -> PowerError {
    bmc(
        BmcFailureCause::Login,
        format!(
            "the BMC refused the login ({message}); check redfish_username and redfish_password"
        ),
    )
}

/// The error for a service without sessions, if the operator requires a session.
pub(crate) fn no_sessions(status: u16) -> PowerError {
    bmc(
        BmcFailureCause::Refused,
        format!(
            "the BMC has no sessions (HTTP status {status}); set redfish_auth_type to auto or basic"
        ),
    )
}

/// The BMC's own message about a failure: `@Message.ExtendedInfo` of DSP0266, section 8.6.
fn extended_message(reply: &RedfishParsedResponse) -> Option<String> {
    let error = reply.body.as_ref()?.get("error")?;
    let messages = error.get("@Message.ExtendedInfo").and_then(Value::as_array);
    let text = messages
        .into_iter()
        .flatten()
        .take(MESSAGES_MAX)
        .find_map(|message| message.get("Message").and_then(Value::as_str))
        .or_else(|| error.get("message").and_then(Value::as_str))?;
    Some(clean(text)).filter(|text| !text.is_empty())
}

/// Whether one of the messages of a failure has this text in its identifier.
pub(crate) fn has_message(reply: &RedfishParsedResponse, name: &str) -> bool {
    let error = reply.body.as_ref().and_then(|body| body.get("error"));
    let messages = error.and_then(|error| error.get("@Message.ExtendedInfo")?.as_array());
    let ids = messages.into_iter().flatten().take(MESSAGES_MAX);
    let ids = ids.filter_map(|message| message.get("MessageId")?.as_str());
    let code = error.and_then(|error| error.get("code")?.as_str());
    ids.chain(code).any(|id| id.contains(name))
}

/// Reduces a text to one line of printable characters, truncated.
pub(crate) fn clean(text: &str) -> String {
    let printable = |character: char| {
        if character.is_control() {
            ' '
        } else {
            character
        }
    };
    let words: String = text
        .chars()
        .take(MESSAGE_CHARS_MAX)
        .map(printable)
        .collect();
    words.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn reply(status: u16, body: Value) -> RedfishParsedResponse {
        RedfishParsedResponse {
            status,
            body: Some(body),
            ..RedfishParsedResponse::default()
        }
    }

    #[track_caller]
    fn is(error: PowerError, cause: BmcFailureCause, parts: &[&str]) {
        let PowerError::Bmc {
            cause: found,
            message,
        } = error
        else {
            panic!("{error:?}");
        };
        assert_eq!(found, cause, "{message}");
        for part in parts {
            assert!(message.contains(part), "{message}");
        }
        assert!(!message.contains("ipmi"), "{message}");
    }

    #[test]
    fn statuses_are_distinguished() {
        for (status, cause, part) in [
            (401, BmcFailureCause::Login, "redfish_password"),
            (403, BmcFailureCause::Privilege, "redfish_username"),
            (404, BmcFailureCause::Refused, "redfish_system_id"),
            (409, BmcFailureCause::Refused, "409"),
            (429, BmcFailureCause::Busy, "429"),
            (500, BmcFailureCause::Refused, "500"),
            (503, BmcFailureCause::Busy, "503"),
            (307, BmcFailureCause::InvalidResponse, "redfish_address"),
        ] {
            is(refused(&reply(status, Value::Null)), cause, &[part]);
        }
    }

    #[test]
    fn connection_errors_are_distinguished() {
        let message = "no route".to_owned();
        for (reason, cause) in [
            (None, BmcFailureCause::Unreachable),
            (Some(UndeliveredReason::NoHost), BmcFailureCause::NoHost),
            (
                Some(UndeliveredReason::PortClosed),
                BmcFailureCause::PortClosed,
            ),
        ] {
            let unreachable = BmcHttpError::Unreachable {
                reason,
                message: message.clone(),
            };
            is(
                transport(&unreachable),
                cause,
                &["no route", "redfish_address"],
            );
        }
        let lost = BmcHttpError::Lost {
            message: message.clone(),
        };
        is(
            transport(&lost),
            BmcFailureCause::Unreachable,
            &["no route"],
        );
        let untrusted = BmcHttpError::Untrusted {
            fingerprint: Some("abcd".to_owned()),
            message: message.clone(),
        };
        is(
            transport(&untrusted),
            BmcFailureCause::Untrusted,
            &["abcd", "redfish_pin"],
        );
        let tls = BmcHttpError::Untrusted {
            fingerprint: None,
            message,
        };
        is(
            transport(&tls),
            BmcFailureCause::Untrusted,
            &["redfish_verify_ca"],
        );
        is(
            transport(&BmcHttpError::TooLong),
            BmcFailureCause::InvalidResponse,
            &["too long"],
        );
    }

    #[test]
    fn messages_of_a_bmc_are_quoted_clean_and_short() {
        let body = json!({"error": {"message": "general", "@Message.ExtendedInfo": [
            7, {"MessageId": "Base.1.8.PropertyUnknown"},
            {"Message": format!("no\u{1b}[31m\nsuch {}", "x".repeat(9999))},
        ]}});
        let text = refused(&reply(400, body.clone())).to_string();
        assert!(text.contains("no [31m such x"), "{text}");
        assert!(text.len() < 400 && !text.contains('\u{1b}'), "{text}");
        assert!(has_message(&reply(400, body.clone()), "PropertyUnknown"));
        assert!(!has_message(&reply(400, body), "SessionLimit"));
        let plain = json!({"error": {"code": "Base.1.0.GeneralError", "message": "general"}});
        is(
            refused(&reply(400, plain.clone())),
            BmcFailureCause::Refused,
            &["(general)"],
        );
        assert!(has_message(&reply(400, plain), "GeneralError"));
    }

    #[test]
    fn bodies_of_any_shape_are_no_harm() {
        for body in [
            json!(null),
            json!([]),
            json!({"error": 7}),
            json!({"error": {"@Message.ExtendedInfo": {}}}),
            json!({"error": {"@Message.ExtendedInfo": [[]], "message": []}}),
        ] {
            assert!(!has_message(&reply(400, body.clone()), "x"));
            is(
                refused(&reply(400, body)),
                BmcFailureCause::Refused,
                &["400"],
            );
        }
    }
}
