//! Refusals and failures: the message for the operator, the exit code for scripts.

use serde_json::Value;

use crate::exit::Exit;
use crate::request::CliResponse;
use crate::table::harmless;

/// Longest message that is printed.
const SENTENCE_CHARS_MAX: usize = 2000;

/// A message and the exit code of the command.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct CliFault {
    pub(crate) exit: Exit,
    pub(crate) sentence: String,
}

impl CliFault {
    pub(crate) fn new(exit: Exit, sentence: impl Into<String>) -> Self {
        Self {
            exit,
            sentence: sentence.into(),
        }
    }

    pub(crate) fn usage(sentence: impl Into<String>) -> Self {
        Self::new(Exit::Usage, sentence)
    }

    /// The fault for a status of 400 and above. `subject` names the object of the
    /// request.
    pub(crate) fn of(answer: &CliResponse, subject: &str) -> Self {
        let reply = error_message(&answer.body);
        let status = answer.status;
        match status {
            401 => Self::new(
                Exit::Unauthorised,
                format!(
                    "not authorised: {reply} Give --user and --password-file, or --token-file, or \
                     set TRIVET_USER and TRIVET_PASSWORD, or TRIVET_TOKEN."
                ),
            ),
            404 => Self::new(
                Exit::NotFound,
                format!("{subject}: {reply}{}", hint(subject)),
            ),
            // A 502 of the box, not of a proxy: the box is reachable, and the BMC is
            // not.
            502 if answer.body["error_message"].is_string() => {
                Self::new(Exit::Failed, format!("{subject}: failed: {reply}"))
            }
            500.. => Self::new(
                Exit::Unreachable,
                format!("{subject}: the box answered {status}: {reply} See its log."),
            ),
            400.. => Self::new(
                Exit::Refused,
                format!("{subject}: refused ({status}): {reply}"),
            ),
            _ => Self::new(
                Exit::Unreachable,
                format!(
                    "{subject}: unexpected status {status}: is there a Trivet or \
                     Ironic API at this address?"
                ),
            ),
        }
    }
}

/// What an operator can do about an object that does not exist.
fn hint(subject: &str) -> &'static str {
    match subject.split(' ').next() {
        Some("node") => " `trivet node list` lists all nodes.",
        Some("port") => " `trivet port list` lists all ports.",
        _ => "",
    }
}

/// Whether the same request may succeed a little later.
pub(crate) fn is_passing(answer: &CliResponse) -> bool {
    // 409 is also the status of requests that never succeed, such as a duplicate name.
    match answer.status {
        409 => error_message(&answer.body).contains("is locked"),
        503 => true,
        _ => false,
    }
}

/// For a response of something else than the API, such as the web page or a proxy.
const NO_REASON: &str = "the response has no message; is this the address of the API (port 6385)?";

/// The message in an error, in any of the forms that are in use.
pub(crate) fn error_message(body: &Value) -> String {
    let inner = match &body["error_message"] {
        Value::String(text) => serde_json::from_str(text).unwrap_or(Value::Null),
        other => other.clone(),
    };
    let texts = [
        &inner["faultstring"],
        &inner["description"],
        &body["error_message"],
        &body["error"]["message"],
        &body["message"],
    ];
    let text = texts.into_iter().find_map(Value::as_str);
    let mut text: String = harmless(text.unwrap_or(NO_REASON))
        .chars()
        .take(SENTENCE_CHARS_MAX)
        .collect();
    if !text.ends_with(['.', '!', '?']) {
        text.push('.');
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answer(status: u16, sentence: &str) -> CliResponse {
        let inner = json!({"faultcode": "Client", "faultstring": sentence}).to_string();
        CliResponse {
            status,
            body: json!({"error_message": inner}),
            version_max: None,
        }
    }

    #[test]
    fn the_sentence_is_found_in_every_form() {
        assert_eq!(error_message(&answer(400, "Bad verb").body), "Bad verb.");
        let layer = json!({"error_message": "{\"code\": 404, \"description\": \"No path.\"}"});
        assert_eq!(error_message(&layer), "No path.");
        let basic = json!({"error": {"message": "Authorization required", "code": 401}});
        assert_eq!(error_message(&basic), "Authorization required.");
        assert_eq!(error_message(&json!({"error_message": "plain"})), "plain.");
        assert_eq!(
            error_message(&json!({"error_message": {"faultstring": "a"}})),
            "a."
        );
        assert_eq!(
            error_message(&Value::Null),
            "the response has no message; is this the address of the API (port 6385)?"
        );
        assert_eq!(
            error_message(&json!([1])),
            "the response has no message; is this the address of the API (port 6385)?"
        );
        assert_eq!(
            error_message(&json!({"message": "a\u{1b}[2J\nb"})),
            "a [2J b."
        );
        let long = json!({"message": "x".repeat(9999)});
        assert_eq!(error_message(&long).len(), SENTENCE_CHARS_MAX + 1);
    }

    #[test]
    fn every_kind_of_refusal_has_its_code() {
        let cases = [
            (400, Exit::Refused),
            (401, Exit::Unauthorised),
            (403, Exit::Refused),
            (404, Exit::NotFound),
            (406, Exit::Refused),
            (409, Exit::Refused),
            (500, Exit::Unreachable),
            (502, Exit::Failed),
            (503, Exit::Unreachable),
            (302, Exit::Unreachable),
        ];
        for (status, exit) in cases {
            let fault = CliFault::of(&answer(status, "Because."), "node n1");
            assert_eq!(fault.exit, exit, "{status}");
        }
        let fault = CliFault::of(&answer(404, "Node n1 could not be found."), "node n1");
        assert!(fault.sentence.contains("could not be found."));
        assert!(fault.sentence.contains("trivet node list"));
    }

    #[test]
    fn only_locks_and_busy_boxes_are_retried() {
        let locked = "Node n1 is locked by host box, please retry";
        assert!(is_passing(&answer(409, locked)));
        assert!(is_passing(&answer(503, "busy")));
        assert!(!is_passing(&answer(
            409,
            "A node with name n1 already exists."
        )));
        assert!(!is_passing(&answer(400, locked)));
    }
}
