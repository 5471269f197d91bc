//! Which free-form values are secrets, and how they are displayed.

use core::fmt;

use serde_json::{Map, Value};

/// Replaces a secret wherever it is displayed.
pub const MASK: &str = "******";

/// A secret in memory: printing it shows the mask.
#[derive(Clone, Eq, PartialEq)]
pub struct SecretText(Box<str>);

impl SecretText {
    /// Wraps a text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into().into_boxed_str())
    }

    /// The text, for the code that must use it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(MASK)
    }
}

/// Whether a key of a free-form object names a secret, by the same rules as Ironic.
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

/// The key of an image's URL, which contains credentials in its query often enough that Ironic
/// masks it.
pub const IMAGE_URL: &str = "image_url";

/// Whether the value under this key is encrypted wherever it is stored: all that is masked
/// anywhere.
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
        Value::String(text) => match without_url_credentials(text) {
            Some(masked) => masked.into(),
            None => value.clone(),
        },
        other => other.clone(),
    }
}

/// The text with the credentials of every URL in it masked: user and password before the
/// host (RFC 3986, section 3.2.1), and parameters of the query that sign or authenticate
/// it. None where there are no credentials.
pub fn without_url_credentials(text: &str) -> Option<String> {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    let mut found = false;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + "://".len());
        shown.push_str(before);
        // Commas and quotes may be part of a password, but end a URL within a sentence.
        let ends = |one: char| one.is_whitespace() || "\"<>/?#".contains(one);
        let (whole, _) = after.split_at(after.find(ends).unwrap_or(after.len()));
        let host_from = whole.rfind('@').map_or(0, |at| at + 1);
        let host_ends = |one: char| "',".contains(one);
        let host = &whole[host_from..];
        let host_to = host_from + host.find(host_ends).unwrap_or(host.len());
        let (authority, rest_of_url) = after.split_at(host_to);
        let ends = |one: char| one.is_whitespace() || "\"'<>,".contains(one);
        let (path, tail) =
            rest_of_url.split_at(rest_of_url.find(ends).unwrap_or(rest_of_url.len()));
        match authority.rsplit_once('@') {
            Some((_, host)) => {
                found = true;
                shown.push_str(MASK);
                shown.push('@');
                shown.push_str(host);
            }
            None => shown.push_str(authority),
        }
        found |= push_query(path, &mut shown);
        rest = tail;
    }
    shown.push_str(rest);
    found.then_some(shown)
}

/// Appends path and query with its secret parameters masked; returns whether there was one.
fn push_query(path: &str, shown: &mut String) -> bool {
    let Some((path, query)) = path.split_once('?') else {
        shown.push_str(path);
        return false;
    };
    shown.push_str(path);
    let mut found = false;
    for (number, part) in query.split('&').enumerate() {
        shown.push(if number == 0 { '?' } else { '&' });
        match part.split_once('=') {
            Some((name, value)) if is_secret_parameter(name) && !value.is_empty() => {
                found = true;
                shown.push_str(name);
                shown.push('=');
                shown.push_str(MASK);
            }
            _ => shown.push_str(part),
        }
    }
    found
}

/// Parameters of presigned URLs of object stores, and names that are secret everywhere.
fn is_secret_parameter(name: &str) -> bool {
    const PARTS: [&str; 4] = ["sig", "credential", "apikey", "api_key"];
    let name = name.to_ascii_lowercase();
    is_secret_key(&name) || PARTS.iter().any(|part| name.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_in_a_url_may_have_commas_and_quotes() {
        let shown = without_url_credentials("from http://a:p,s's@x/i.raw, which fails").unwrap();
        assert_eq!(shown, format!("from http://{MASK}@x/i.raw, which fails"));
        assert_eq!(
            without_url_credentials("see http://x, or http://y/a@b"),
            None
        );
    }

    #[test]
    fn a_hidden_text_is_not_printed() {
        let hidden = SecretText::new("hunter2");
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
    fn credentials_of_urls_are_masked_wherever_they_occur() {
        for (text, want) in [
            ("http://ann:hunter2@x/disk.raw", "http://******@x/disk.raw"),
            ("https://ann@x", "https://******@x"),
            (
                "https://x/d?X-Amz-Signature=abc&part=1",
                "https://x/d?X-Amz-Signature=******&part=1",
            ),
            ("https://x/d?sv=1&sig=abc%3D", "https://x/d?sv=1&sig=******"),
            (
                "https://x/d?temp_url_sig=abc",
                "https://x/d?temp_url_sig=******",
            ),
            (
                "no answer of http://a:p@x/d, nor of \"https://b:q@y/\": 404",
                "no answer of http://******@x/d, nor of \"https://******@y/\": 404",
            ),
            ("http://a:p@ss@x/", "http://******@x/"),
        ] {
            assert_eq!(
                without_url_credentials(text).as_deref(),
                Some(want),
                "{text}"
            );
        }
        for text in [
            "",
            "disk.raw",
            "http://x/disk.raw",
            "http://x/a@b",
            "http://x/?part=1&sig=",
            "mail to ann@example.com, or http://x/",
            "://",
        ] {
            assert_eq!(without_url_credentials(text), None, "{text}");
        }
        let info = json!({"image_source": "http://ann:hunter2@x/", "urls": ["ftp://a:p@x"]});
        let shown = Value::Object(masked(info.as_object().unwrap())).to_string();
        assert!(
            !shown.contains("hunter2") && !shown.contains("a:p"),
            "{shown}"
        );
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
