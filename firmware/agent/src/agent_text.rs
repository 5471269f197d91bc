//! Texts from the agent, sanitized for storage and display.
//!
//! They become part of `last_error` and of the web page. The agent often quotes the URL it was
//! called with, and the token is in that URL, so tokens are masked here.

use trivet_agent_wire::{TOKEN_MASK, TOKEN_PARAMETER};

/// Longer texts of the agent are truncated. Ours: a text has to fit a record.
pub const AGENT_TEXT_CHARS_MAX: usize = 1000;

/// The text without tokens and control characters, truncated.
pub(crate) fn sanitized(words: &str) -> String {
    // Masking can lengthen a text, so the input is bounded first and the output last.
    let bounded: String = words.chars().take(AGENT_TEXT_CHARS_MAX * 4).collect();
    let plain: String = mask(&bounded)
        .chars()
        .map(|character| if is_shown(character) { character } else { ' ' })
        .collect();
    let trimmed = plain.trim();
    if trimmed.is_empty() {
        return "no reason given".to_owned();
    }
    let mut short: String = trimmed.chars().take(AGENT_TEXT_CHARS_MAX).collect();
    if trimmed.chars().count() > AGENT_TEXT_CHARS_MAX {
        short.push_str(" ...");
    }
    short
}

/// Whether a character is visible at its position: not a control character, and not one that
/// changes the direction of text or has no width (Unicode, Bidi_Control and general category
/// Cf).
fn is_shown(character: char) -> bool {
    let unseen = matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{61c}' | '\u{feff}');
    !character.is_control() && !unseen
}

/// An error text of the connection to the agent without its token, whatever it quotes.
pub fn without_token(words: String, token: &str) -> String {
    match token {
        "" => words,
        token => words.replace(token, TOKEN_MASK),
    }
}

/// Masks the value after each `agent_token`, in a query or in JSON.
fn mask(words: &str) -> String {
    let mut out = String::with_capacity(words.len());
    let mut rest = words;
    while let Some(at) = rest.find(TOKEN_PARAMETER) {
        let after = at + TOKEN_PARAMETER.len();
        out.push_str(&rest[..after]);
        rest = &rest[after..];
        let glue = |character: char| "=:'\" \\".contains(character);
        let value = rest.trim_start_matches(glue);
        out.push_str(&rest[..rest.len() - value.len()]);
        let is_token =
            |character: char| character.is_ascii_alphanumeric() || "-_.~%+/*".contains(character);
        rest = value.trim_start_matches(is_token);
        if rest.len() < value.len() {
            out.push_str(TOKEN_MASK);
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_tokens_in_urls_and_json() {
        let token = "A-_".repeat(20);
        for text in [
            format!("see https://h/v1/commands/?agent_token={token}&wait=true"),
            format!("{{\"agent_token\": \"{token}\"}}"),
            format!("{{'agent_token': '{token}'}} and agent_token={token}"),
            format!("\\\"agent_token\\\":\\\"{token}\\\""),
        ] {
            let shown = sanitized(&text);
            assert!(!shown.contains(&token), "{shown}");
            assert!(shown.contains(TOKEN_MASK), "{shown}");
        }
        assert_eq!(
            sanitized("?agent_token=abc&wait=true"),
            "?agent_token=******&wait=true"
        );
    }

    #[test]
    fn a_bare_token_is_not_quoted() {
        let token = "A-_".repeat(20);
        let reported = format!("boom {token} here");
        assert_eq!(without_token(reported.clone(), &token), "boom ****** here");
        assert_eq!(without_token(reported.clone(), ""), reported);
    }

    #[test]
    fn leaves_other_words_alone() {
        assert_eq!(sanitized("Token invalid."), "Token invalid.");
        assert_eq!(sanitized("agent_token"), "agent_token");
    }

    #[test]
    fn cuts_long_words_and_drops_control_characters() {
        let long = sanitized(&"x".repeat(AGENT_TEXT_CHARS_MAX + 1));
        assert_eq!(long.len(), AGENT_TEXT_CHARS_MAX + 4);
        assert!(long.ends_with(" ..."));
        assert_eq!(
            sanitized(&"x".repeat(AGENT_TEXT_CHARS_MAX)).len(),
            AGENT_TEXT_CHARS_MAX
        );
        assert_eq!(sanitized("a\nb\u{1b}c"), "a b c");
        assert_eq!(sanitized("a\u{202e}b\u{200b}c\u{2066}d"), "a b c d");
        assert_eq!(sanitized("gr\u{f6}\u{df}er"), "gr\u{f6}\u{df}er");
        assert_eq!(sanitized(" \n "), "no reason given");
    }
}
