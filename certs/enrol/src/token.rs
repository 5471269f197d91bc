//! The one-time token with which a machine proves that it read its own BMC.

use core::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use trivet_model::Entropy;
use trivet_model::secret::MASK;

/// Random bytes in a token.
pub const TOKEN_BYTES: usize = 24;

/// A one-time token. It names no node: the record that stores it binds it to one. It is never
/// sent over the network of the machines, and there is no comparison of two of them except by a
/// proof.
#[derive(Clone, Eq, PartialEq)]
pub struct EnrolmentToken([u8; TOKEN_BYTES]);

impl EnrolmentToken {
    /// A new token. `entropy` must be the operating system's, except in a simulation.
    pub fn mint(entropy: &mut dyn Entropy) -> Self {
        let mut bytes = [0; TOKEN_BYTES];
        entropy.fill(&mut bytes);
        Self(bytes)
    }

    /// The token in the form that a record stores.
    pub fn to_text(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.0)
    }

    /// The token of a record.
    pub fn from_text(text: &str) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        Some(Self(bytes.try_into().ok()?))
    }

    pub(crate) fn reveal(&self) -> &[u8; TOKEN_BYTES] {
        &self.0
    }
}

impl From<[u8; TOKEN_BYTES]> for EnrolmentToken {
    fn from(bytes: [u8; TOKEN_BYTES]) -> Self {
        Self(bytes)
    }
}

impl fmt::Debug for EnrolmentToken {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A token must not be in logs.
        write!(out, "EnrolmentToken({MASK})")
    }
}

#[cfg(test)]
mod tests {
    use trivet_model::SeededRandom;

    use super::*;

    #[test]
    fn a_token_survives_its_record_and_is_in_no_debug_output() {
        let token = EnrolmentToken::mint(&mut SeededRandom::new(1));
        let text = token.to_text();
        assert_eq!(EnrolmentToken::from_text(&text), Some(token.clone()));
        assert_eq!(format!("{token:?}"), "EnrolmentToken(******)");
        assert_eq!(text.len(), 32);
    }

    #[test]
    fn each_token_is_different_and_a_seed_repeats() {
        let mut entropy = SeededRandom::new(2);
        let first = EnrolmentToken::mint(&mut entropy);
        assert_ne!(first, EnrolmentToken::mint(&mut entropy));
        assert_eq!(first, EnrolmentToken::mint(&mut SeededRandom::new(2)));
    }

    #[test]
    fn texts_of_another_length_or_alphabet_are_no_token() {
        let text = EnrolmentToken::mint(&mut SeededRandom::new(3)).to_text();
        for wrong in [
            "",
            MASK,
            &text[..31],
            &format!("{text}AAAA"),
            &text.replace(&text[..1], "+"),
        ] {
            assert_eq!(EnrolmentToken::from_text(wrong), None, "{wrong}");
        }
    }
}
