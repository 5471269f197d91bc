//! User and password of a registry, or a secret that was issued in place of both.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use trivet_model::secret::SecretText;

/// User and password for a registry; printing them shows the user only.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RegistryCredentials {
    /// The user; empty for a secret without one.
    pub user: String,
    /// The password or secret.
    pub password: SecretText,
}

impl RegistryCredentials {
    /// From `image_pull_secret`: `user:password`; or what the `auth` field of a Docker
    /// `config.json` has, which is base64 of the same; or a secret without a user, as Ironic
    /// sends it. None for an empty text.
    pub fn of_pull_secret(text: &str) -> Option<Self> {
        let text = text.trim();
        if text.is_empty() {
            return None;
        }
        if let Some(pair) = Self::of_pair(text) {
            return Some(pair);
        }
        let decoded = STANDARD.decode(text).ok();
        let decoded = decoded.and_then(|bytes| String::from_utf8(bytes).ok());
        let is_text = |text: &String| !text.contains(char::is_control);
        let pair = decoded
            .filter(is_text)
            .and_then(|text| Self::of_pair(&text));
        Some(pair.unwrap_or_else(|| Self {
            user: String::new(),
            password: SecretText::new(text),
        }))
    }

    fn of_pair(text: &str) -> Option<Self> {
        let (user, password) = text.split_once(':')?;
        Some(Self {
            user: user.to_owned(),
            password: SecretText::new(password),
        })
    }

    /// The value of an `Authorization` header (RFC 7617).
    pub fn basic_header(&self) -> SecretText {
        let pair = format!("{}:{}", self.user, self.password.reveal());
        SecretText::new(format!("Basic {}", STANDARD.encode(pair)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(text: &str) -> (String, String) {
        let found = RegistryCredentials::of_pull_secret(text).unwrap();
        (found.user.clone(), found.password.reveal().to_owned())
    }

    #[test]
    fn a_pull_secret_has_three_forms() {
        let both = ("ann".to_owned(), "pa:ss".to_owned());
        assert_eq!(pair("ann:pa:ss"), both);
        assert_eq!(pair(&STANDARD.encode("ann:pa:ss")), both);
        assert_eq!(pair(" ann:pa:ss\n"), both);
        let token = |text: &str| (String::new(), text.to_owned());
        assert_eq!(pair("sEcReT-token"), token("sEcReT-token"));
        // Base64 of something else is a secret of its own.
        let opaque = STANDARD.encode("nothing");
        assert_eq!(pair(&opaque), token(&opaque));
        let binary = STANDARD.encode([0xff, b':', 1]);
        assert_eq!(pair(&binary), token(&binary));
        assert_eq!(RegistryCredentials::of_pull_secret(" "), None);
    }

    #[test]
    fn the_header_is_basic_and_the_password_is_not_printed() {
        let found = RegistryCredentials::of_pull_secret("ann:hunter2").unwrap();
        assert_eq!(found.basic_header().reveal(), "Basic YW5uOmh1bnRlcjI=");
        let printed = format!("{found:?} {:?}", found.basic_header());
        assert!(
            !printed.contains("hunter2") && !printed.contains("YW5u"),
            "{printed}"
        );
    }
}
