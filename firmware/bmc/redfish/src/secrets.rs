//! Redaction of secrets: a BMC may repeat the password or token in its error messages, which are
//! shown to people.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use trivet_model::PowerError;
use trivet_model::secret::{MASK, SecretText};

use crate::RedfishTarget;

/// Deepest level of a response that is redacted. Ours: no deeper text is quoted.
const DEPTH_MAX: usize = 16;

/// The password, the token, and user with password in the form of a header.
pub(crate) struct RedfishSecrets(Vec<SecretText>);

impl RedfishSecrets {
    pub(crate) fn of(target: &RedfishTarget, token: Option<&SecretText>) -> Self {
        let mut secrets: Vec<SecretText> = token.cloned().into_iter().collect();
        if let Some(login) = &target.login {
            let pair = format!("{}:{}", login.username, login.password.reveal());
            secrets.push(SecretText::new(STANDARD.encode(pair)));
            secrets.push(login.password.clone());
        }
        secrets.retain(|secret| !secret.reveal().is_empty());
        Self(secrets)
    }

    fn redact(&self, text: &mut String) {
        for secret in &self.0 {
            if text.contains(secret.reveal()) {
                *text = text.replace(secret.reveal(), MASK);
            }
        }
    }

    /// Redacts every text of a response.
    pub(crate) fn redact_all(&self, value: &mut Value) {
        self.redact_below(value, 0);
    }

    fn redact_below(&self, value: &mut Value, depth: usize) {
        match value {
            Value::String(text) => self.redact(text),
            _ if depth >= DEPTH_MAX => *value = Value::Null,
            Value::Array(items) => {
                for item in items {
                    self.redact_below(item, depth + 1);
                }
            }
            Value::Object(fields) => {
                for (_, field) in fields.iter_mut() {
                    self.redact_below(field, depth + 1);
                }
            }
            _ => {}
        }
    }

    /// The same error with its text redacted.
    pub(crate) fn redact_error(&self, error: PowerError) -> PowerError {
        match error {
            PowerError::Bmc { cause, mut message } => {
                self.redact(&mut message);
                PowerError::Bmc { cause, message }
            }
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn target() -> RedfishTarget {
        let info = json!({
            "redfish_address": "http://127.0.0.1",
            "redfish_username": "root",
            "redfish_password": "calvin",
        });
        let Value::Object(info) = info else {
            unreachable!()
        };
        RedfishTarget::of(&info.into_iter().collect()).unwrap()
    }

    #[test]
    fn every_form_of_a_secret_is_redacted() {
        let secrets = RedfishSecrets::of(&target(), Some(&SecretText::new("t0ken")));
        let mut body = json!({"error": {"message": "'calvin' is wrong", "more":
            [{"Message": "cm9vdDpjYWx2aW4= and t0ken, t0ken"}, 7, null]}});
        secrets.redact_all(&mut body);
        let text = body.to_string();
        assert!(!text.contains("calvin") && !text.contains("cm9v") && !text.contains("t0ken"));
        assert!(text.contains("is wrong"));
    }

    #[test]
    fn what_is_deeper_than_anybody_reads_is_dropped() {
        let mut deep = json!("calvin");
        for _ in 0..40 {
            deep = json!([deep]);
        }
        RedfishSecrets::of(&target(), None).redact_all(&mut deep);
        assert!(!deep.to_string().contains("calvin"));
    }

    #[test]
    fn without_a_password_nothing_is_hidden() {
        let mut open = target();
        open.login = None;
        let mut body = json!("calvin");
        RedfishSecrets::of(&open, None).redact_all(&mut body);
        assert_eq!(body, "calvin");
    }
}
