//! Which free-form values are secrets, and how they are shown.

use core::fmt;

use serde_json::{Map, Value};

/// What stands in place of a secret.
pub const MASK: &str = "******";

/// A secret on its way through the machine: printing it shows the mask.
#[derive(Clone, Eq, PartialEq)]
pub struct Hidden(Box<str>);

impl Hidden {
    /// Hides a text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into().into_boxed_str())
    }

    /// The text, for whoever must use it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Hidden {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(MASK)
    }
}

/// Whether a key of a free-form object names a secret, as Ironic decides it.
pub fn is_secret_key(key: &str) -> bool {
    const PARTS: [&str; 10] = [
        "password",
        "admin_pass",
        "new_pass",
        "secret",
        "token",
        "private_key",
        "encrypted_key",
        "passphrase",
        "sslkey",
        "configdrive",
    ];
    const WHOLE: [&str; 4] = [
        "snmp_auth_key",
        "snmp_priv_key",
        "ipmi_hex_kg_key",
        "ssh_key_contents",
    ];
    let key = key.to_ascii_lowercase();
    WHOLE.contains(&key.as_str()) || PARTS.iter().any(|part| key.contains(part))
}

/// The key of an image's address, which holds credentials in its query part often
/// enough that Ironic masks it.
pub const IMAGE_URL: &str = "image_url";

/// Whether the value under this key is sealed wherever it is kept: all that is
/// masked anywhere.
pub fn is_sealed_key(key: &str) -> bool {
    key == IMAGE_URL || is_secret_key(key)
}

/// A copy of the object with every secret masked, at every depth.
pub fn masked(object: &Map<String, Value>) -> Map<String, Value> {
    object
        .iter()
        .map(|(key, value)| {
            let shown = if is_secret_key(key) && !value.is_null() {
                Value::from(MASK)
            } else {
                masked_value(value)
            };
            (key.clone(), shown)
        })
        .collect()
}

fn masked_value(value: &Value) -> Value {
    match value {
        Value::Object(object) => Value::Object(masked(object)),
        Value::Array(items) => Value::Array(items.iter().map(masked_value).collect()),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hidden_text_is_not_printed() {
        let hidden = Hidden::new("hunter2");
        assert_eq!(format!("{hidden:?}"), MASK);
        assert_eq!(hidden.reveal(), "hunter2");
    }
    use serde_json::json;

    #[test]
    fn what_is_masked_is_sealed() {
        for key in ["ipmi_password", "configdrive", "IPMI_Hex_Kg_Key", IMAGE_URL] {
            assert!(is_sealed_key(key), "{key}");
        }
        for key in ["ipmi_username", "image_source", "image_urls", ""] {
            assert!(!is_sealed_key(key), "{key}");
        }
    }

    #[test]
    fn masks_secrets_at_every_depth_and_nothing_else() {
        let Value::Object(object) = json!({
            "ipmi_password": "hunter2", "ipmi_username": "admin", "ipmi_Password": null,
            "nested": [{"agent_secret_token": "x", "plain": 1}],
        }) else {
            unreachable!()
        };
        assert_eq!(
            Value::Object(masked(&object)),
            json!({
                "ipmi_password": MASK, "ipmi_username": "admin", "ipmi_Password": null,
                "nested": [{"agent_secret_token": MASK, "plain": 1}],
            })
        );
    }
}
