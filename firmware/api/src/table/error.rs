//! Error responses, in the two formats that Ironic's clients read.
//!
//! The body has one key whose value is JSON *inside a string*; the command-line client calls a JSON
//! parser on it.

use serde_json::{Value, json};

use crate::Response;
use crate::table::version::Version;

/// Why a request is refused, and the HTTP status.
#[derive(Debug)]
pub(crate) struct ApiFault {
    status: u16,
    sentence: String,
    /// Set when the HTTP layer refuses: unknown path, method or version.
    title: Option<&'static str>,
}

impl ApiFault {
    fn new(status: u16, sentence: impl Into<String>) -> Self {
        Self {
            status,
            sentence: sentence.into(),
            title: None,
        }
    }

    /// The same fault, and what to do next.
    pub(crate) fn with_advice(mut self, advice: &str) -> Self {
        self.sentence.push(' ');
        self.sentence.push_str(advice);
        self
    }

    pub(crate) fn bad(sentence: impl Into<String>) -> Self {
        Self::new(400, sentence)
    }

    pub(crate) fn forbidden(sentence: impl Into<String>) -> Self {
        Self::new(403, sentence)
    }

    pub(crate) fn not_found(sentence: impl Into<String>) -> Self {
        Self::new(404, sentence)
    }

    pub(crate) fn not_acceptable(sentence: impl Into<String>) -> Self {
        Self::new(406, sentence)
    }

    /// A method that the version of the request does not have for this resource.
    pub(crate) fn of_method(sentence: impl Into<String>) -> Self {
        Self::new(405, sentence)
    }

    pub(crate) fn conflict(sentence: impl Into<String>) -> Self {
        Self::new(409, sentence)
    }

    pub(crate) fn server(sentence: impl Into<String>) -> Self {
        Self::new(500, sentence)
    }

    /// A function of Ironic that this box does not have yet.
    pub(crate) fn not_implemented(sentence: impl Into<String>) -> Self {
        Self::new(501, sentence)
    }

    pub(crate) fn unavailable(sentence: impl Into<String>) -> Self {
        Self::new(503, sentence)
    }

    /// A refusal by the HTTP layer.
    pub(crate) fn layer(status: u16, title: &'static str, description: impl Into<String>) -> Self {
        Self {
            title: Some(title),
            ..Self::new(status, description)
        }
    }

    /// A refusal by the daemon before a request is handled.
    pub(crate) fn of_shell(status: u16, sentence: &str) -> Self {
        let title = match status {
            400 => "Bad Request",
            408 => "Request Timeout",
            413 => "Content Too Large",
            429 => "Too Many Requests",
            _ => return Self::new(status, sentence),
        };
        Self::layer(status, title, sentence)
    }

    pub(crate) fn no_path() -> Self {
        Self::layer(
            404,
            "Not Found",
            "The server could not find the requested resource.",
        )
    }

    pub(crate) fn no_method(method: &str) -> Self {
        let method = method.escape_debug();
        Self::layer(
            405,
            "Method Not Allowed",
            format!("The method {method} is not allowed for the requested URL."),
        )
    }

    pub(crate) fn no_node(ident: &str) -> Self {
        Self::not_found(format!("Node {} could not be found.", ident.escape_debug()))
    }

    pub(crate) fn no_port(ident: &str) -> Self {
        Self::not_found(format!("Port {} could not be found.", ident.escape_debug()))
    }

    /// The same with these words before it, if it is a bad request.
    pub(crate) fn after_if_bad(mut self, words: &str) -> Self {
        if self.status == 400 {
            self.sentence.insert_str(0, words);
        }
        self
    }

    /// A field, argument or verb of a later version.
    pub(crate) fn too_new(what: &str, since: u16) -> Self {
        Self::not_acceptable(format!(
            "Request not acceptable: {what} needs API version {} or newer.",
            Version(since)
        ))
    }

    /// The driver does not have the function.
    pub(crate) fn unsupported(driver: &str, what: &str) -> Self {
        Self::bad(format!(
            "Driver {driver} does not support {what} (disabled or not implemented)."
        ))
    }
}

impl ApiFault {
    /// The error in the format of the inspector's clients.
    pub(crate) fn for_inspector(self) -> Response {
        Response::json(
            self.status,
            &json!({ "error": { "message": self.sentence } }),
        )
    }
}

impl From<ApiFault> for Response {
    fn from(fault: ApiFault) -> Self {
        let inner = match fault.title {
            Some(title) => json!({
                "code": fault.status, "title": title, "description": fault.sentence,
            }),
            None => json!({
                "faultcode": if fault.status < 500 { "Client" } else { "Server" },
                "faultstring": fault.sentence,
                "debuginfo": null,
            }),
        };
        Response::json(
            fault.status,
            &json!({ "error_message": Value::from(inner.to_string()) }),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_is_json_inside_a_string() {
        let response = Response::from(ApiFault::bad("no \"such\" thing"));
        assert_eq!(response.status, 400);
        let outer: Value = serde_json::from_slice(&response.body).unwrap();
        assert_eq!(outer.as_object().unwrap().len(), 1);
        let inner: Value = serde_json::from_str(outer["error_message"].as_str().unwrap()).unwrap();
        assert_eq!(
            inner,
            json!({"faultcode": "Client", "faultstring": "no \"such\" thing", "debuginfo": null})
        );
    }

    #[test]
    fn our_own_failures_are_the_servers() {
        let response = Response::from(ApiFault::unavailable("later"));
        let text = String::from_utf8(response.body).unwrap();
        assert!(text.contains(r#"\"faultcode\":\"Server\""#), "{text}");
    }

    #[test]
    fn errors_of_the_http_layer_have_code_title_and_description() {
        let response = Response::from(ApiFault::no_method("HEAD\n"));
        assert_eq!(response.fault()["code"], 405);
        assert_eq!(response.fault()["title"], "Method Not Allowed");
    }
}
