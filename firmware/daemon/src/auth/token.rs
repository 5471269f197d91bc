//! `trivet token`: creates tokens for programs. The box stores only their digests.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use trivet_model::Entropy;

use super::Role;

/// Random bytes in a token.
const TOKEN_BYTES: usize = 32;

/// Longest name of a token.
const NAME_BYTES_MAX: usize = 64;

/// What to do with tokens.
#[derive(clap::Subcommand)]
pub(crate) enum TokenCommand {
    /// Create a token: the first line is the secret, shown once; the second is for
    /// api.tokens
    New {
        /// What the holder may do
        #[arg(long, value_enum)]
        role: Role,
        /// The name of the holder in notes and logs
        #[arg(long, value_parser = name)]
        name: String,
    },
}

impl TokenCommand {
    /// The text to print.
    pub(crate) fn run(self, entropy: &mut dyn Entropy) -> String {
        let Self::New { role, name } = self;
        let (token, line) = new(role, &name, entropy);
        format!("{token}\n{line}\n")
    }
}

/// A new token and its line for the file.
fn new(role: Role, name: &str, entropy: &mut dyn Entropy) -> (String, String) {
    let mut bytes = [0; TOKEN_BYTES];
    entropy.fill(&mut bytes);
    let token = URL_SAFE_NO_PAD.encode(bytes);
    let digest = digest(&SHA256, token.as_bytes());
    let mut line = format!("{name}:{role}:");
    for byte in digest.as_ref() {
        let _ = write!(line, "{byte:02x}");
    }
    (token, line)
}

fn name(text: &str) -> Result<String, String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-@".contains(&byte);
    if text.is_empty() || text.len() > NAME_BYTES_MAX || !text.bytes().all(plain) {
        return Err(format!(
            "a name has 1 to {NAME_BYTES_MAX} letters, digits, dots, hyphens, underscores or @"
        ));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::files;
    use trivet_model::SeededRandom;

    #[test]
    fn a_token_fits_its_line_and_no_other() {
        let mut entropy = SeededRandom::new(1);
        let (token, line) = new(Role::Operator, "ci", &mut entropy);
        let (other, _) = new(Role::Operator, "ci", &mut entropy);
        assert_ne!(token, other);
        assert_eq!(token.len(), 43);
        assert!(!line.contains(&token));
        let tokens = files::tokens(&line);
        let of = |token: &str| {
            let mut sha256 = [0; 32];
            sha256.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
            files::find(&tokens, &sha256).map(|token| (token.name.clone(), token.role))
        };
        assert_eq!(of(&token), Some(("ci".to_owned(), Role::Operator)));
        assert_eq!(of(&other), None);
    }

    #[test]
    fn a_name_cannot_break_the_line() {
        assert!(name("ci@rack-1.example").is_ok());
        for text in ["", "a:b", "a\nb", "a b", "#x", &"x".repeat(65)] {
            assert!(name(text).is_err(), "{text}");
        }
    }
}
