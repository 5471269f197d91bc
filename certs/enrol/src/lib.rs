//! Tokens for agents.
//!
//! A token names no node: the record that stores it binds it to one, and it is valid for one
//! boot. Tokens are made and compared only here, so that both are right: enough randomness, and
//! a comparison in constant time.
//!
//! There are two kinds. The agent token of Ironic's protocol ([`mint`], [`matches()`]) is sent in
//! clear text once. The one-time token of an enrolment ([`EnrolmentToken`]) travels through the
//! BMC and is never sent over the network of the machines: its owner proves a signing request
//! with it ([`prove`], [`redeem`]). `certs/README.md` says what that means for trust.

mod attempts;
mod mailbox;
mod proof;
mod token;

pub use crate::attempts::{ADDRESSES_MAX, FAILURES_MAX, FailedProofs, WINDOW_MS};
pub use crate::mailbox::{
    ENTERPRISE_NUMBER, LAYOUT_VERSION, MAILBOX_BYTES, MailboxContent, MailboxError,
};
pub use crate::proof::{CSR_BYTES_MAX, PROOF_BYTES, RedeemRefusal, prove, redeem};
pub use crate::token::{EnrolmentToken, TOKEN_BYTES};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use subtle::ConstantTimeEq as _;
use trivet_model::Entropy;
use trivet_model::secret::MASK;

/// Random bytes in an agent token, the same as in Ironic.
const AGENT_TOKEN_BYTES: usize = 32;

/// Characters in an agent token: its bytes in base64 without padding. The agent ignores a token
/// below 32 characters.
pub const TOKEN_CHARS: usize = 43;

/// Longer guesses are rejected without a comparison. Ours: the stock agent accepts any length
/// from 32 up, and tokens given out of band may be longer than ours.
pub const GUESS_CHARS_MAX: usize = 256;

/// A new agent token. `entropy` must be the operating system's, except in a simulation.
pub fn mint(entropy: &mut dyn Entropy) -> String {
    let mut bytes = [0; AGENT_TOKEN_BYTES];
    entropy.fill(&mut bytes);
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Whether a caller's guess is the token. The duration reveals only the lengths. A missing
/// guess, an empty token and the mask never match.
pub fn matches(token: &str, guess: Option<&str>) -> bool {
    let Some(guess) = guess else {
        return false;
    };
    if guess.len() > GUESS_CHARS_MAX || token.is_empty() || token == MASK {
        return false;
    }
    token.as_bytes().ct_eq(guess.as_bytes()).into()
}

/// The text that is shown instead of a token.
pub const fn mask(_token: &str) -> &'static str {
    MASK
}

#[cfg(test)]
mod tests {
    use super::*;
    use trivet_model::SeededRandom;

    #[test]
    fn a_token_is_43_characters_that_need_no_encoding() {
        let token = mint(&mut SeededRandom::new(1));
        assert_eq!(token.len(), TOKEN_CHARS);
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        assert!(token.bytes().all(plain), "{token}");
    }

    #[test]
    fn two_tokens_differ_and_a_seed_repeats() {
        let mut entropy = SeededRandom::new(1);
        let (one, two) = (mint(&mut entropy), mint(&mut entropy));
        assert_ne!(one, two);
        assert_eq!(mint(&mut SeededRandom::new(1)), one);
    }

    #[test]
    fn every_byte_of_the_entropy_counts() {
        struct Fixed([u8; AGENT_TOKEN_BYTES]);
        impl Entropy for Fixed {
            fn fill(&mut self, out: &mut [u8]) {
                out.copy_from_slice(&self.0);
            }
        }
        let base = mint(&mut Fixed([0; AGENT_TOKEN_BYTES]));
        for at in 0..AGENT_TOKEN_BYTES {
            let mut bytes = [0; AGENT_TOKEN_BYTES];
            bytes[at] = 1;
            assert_ne!(mint(&mut Fixed(bytes)), base, "byte {at}");
        }
    }

    #[test]
    fn only_the_token_itself_matches() {
        let token = mint(&mut SeededRandom::new(2));
        assert!(matches(&token, Some(&token)));
        let mut wrong = token.clone();
        wrong.pop();
        for guess in ["", "******", wrong.as_str(), &format!("{token}A")] {
            assert!(!matches(&token, Some(guess)), "{guess}");
        }
        assert!(!matches(&token, None));
    }

    #[test]
    fn nothing_matches_an_empty_token() {
        assert!(!matches("", Some("")));
        assert!(!matches(MASK, Some(MASK)));
    }

    #[test]
    fn a_guess_may_be_as_long_as_allowed_and_not_longer() {
        let long = "A".repeat(GUESS_CHARS_MAX);
        assert!(matches(&long, Some(&long)));
        let longer = "A".repeat(GUESS_CHARS_MAX + 1);
        assert!(!matches(&longer, Some(&longer)));
    }

    #[test]
    fn the_mask_reveals_nothing_of_the_token() {
        assert_eq!(mask("secret"), mask("other secret"));
    }
}
