//! The agent's logs: how they are requested, and which parts may be stored.
//!
//! The agent logs the URL of every call, which contains the token; the journal is part of the
//! bundle. Secrets are redacted here byte by byte, so that no length in the archive changes. An
//! archive within the archive is not opened.

use std::io::{Read as _, Write as _};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde_json::{Map, Value};
use trivet_agent_wire::CommandResult;
use trivet_model::AgentSession;

use crate::agent_text::sanitized;
use crate::answer::{ANSWER_BYTES_MAX, refusal};
use crate::call::{AgentHttpRequest, post};

/// Larger logs of an agent, unpacked, are not stored. Ours.
pub const LOGS_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The agent's command that returns its logs.
pub const COLLECT_LOGS: &str = "log.collect_system_logs";

/// Names that precede a secret, in URLs, settings and JSON.
const BEFORE_SECRETS: [&[u8]; 4] = [
    b"agent_token",
    b"agent-token",
    b"rescue_password",
    b"image_server_password",
];

/// The request for the logs of an agent whose callback URL is known.
pub fn logs_call(agent: &AgentSession) -> AgentHttpRequest {
    post(agent, COLLECT_LOGS.to_owned(), Map::new(), true)
}

/// The archive (tar, gzipped) that may be stored, or why there is none.
pub fn logs_bundle(status: u16, mut body: Vec<u8>, token: &str) -> Result<Vec<u8>, String> {
    redact_token(&mut body, token);
    let body = body.as_slice();
    if body.len() > ANSWER_BYTES_MAX {
        return Err("they exceed the size limit".to_owned());
    }
    if status != 200 {
        return Err(match refusal(status, body) {
            Err(error) => error.to_string(),
            Ok(_) => "the agent works on a command; retry when that is done".to_owned(),
        });
    }
    let result: CommandResult =
        serde_json::from_slice(body).map_err(|error| sanitized(&error.to_string()))?;
    let packed = result.command_result.get("system_logs");
    let Some(packed) = packed.and_then(Value::as_str) else {
        let why = result.command_error.as_ref();
        return Err(sanitized(
            why.map_or("the answer has none", |error| error.description()),
        ));
    };
    let packed = STANDARD
        .decode(packed.trim_ascii())
        .map_err(|_| "they are not base64".to_owned())?;
    let mut plain = Vec::new();
    GzDecoder::new(packed.as_slice())
        .take(LOGS_BYTES_MAX as u64 + 1)
        .read_to_end(&mut plain)
        .map_err(|_| "they are not gzipped".to_owned())?;
    if plain.len() > LOGS_BYTES_MAX {
        return Err(format!("they have more than {LOGS_BYTES_MAX} bytes"));
    }
    redact(&mut plain, token);
    let mut out = GzEncoder::new(Vec::new(), Compression::default());
    out.write_all(&plain)
        .and_then(|()| out.finish())
        .map_err(|error| error.to_string())
}

/// Replaces the token by stars, wherever it occurs in a text of an agent.
pub fn redact_token(text: &mut [u8], token: &str) {
    if !token.is_empty() {
        for at in occurrences(text, token.as_bytes()) {
            text[at..at + token.len()].fill(b'*');
        }
    }
}

/// Replaces the token, and the values after the names of secrets, by stars.
fn redact(text: &mut [u8], token: &str) {
    redact_token(text, token);
    for before in BEFORE_SECRETS {
        for at in occurrences(text, before) {
            let rest = &mut text[at + before.len()..];
            let glue = rest.iter().take(GLUE_BYTES_MAX);
            let glue = glue.take_while(|byte| b"=:'\" \\".contains(byte)).count();
            let is_secret =
                |byte: &&mut u8| byte.is_ascii_alphanumeric() || b"-_.~%+/*$".contains(*byte);
            let secret = rest.iter_mut().skip(glue).take_while(is_secret);
            // A word that only follows is not a secret: a separator must join the two.
            if glue > 0 {
                secret.for_each(|byte| *byte = b'*');
            }
        }
    }
}

/// The most bytes between a name and its secret, such as `": "`. Ours.
const GLUE_BYTES_MAX: usize = 8;

/// The positions of `wanted` in the text.
fn occurrences(text: &[u8], wanted: &[u8]) -> Vec<usize> {
    let mut places = Vec::new();
    let mut at = 0;
    // The first byte is searched alone: logs are long and contain few secrets.
    while let Some(next) = text[at..].iter().position(|byte| *byte == wanted[0]) {
        at += next;
        if text[at..].starts_with(wanted) {
            places.push(at);
            at += wanted.len();
        } else {
            at += 1;
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const TOKEN: &str = "0123456789-_abcdefghijklmnopqrstuvwxyzABCDEF";

    fn packed(text: &[u8]) -> String {
        let mut out = GzEncoder::new(Vec::new(), Compression::fast());
        out.write_all(text).unwrap();
        STANDARD.encode(out.finish().unwrap())
    }

    fn answer(logs: &Value) -> Vec<u8> {
        let result = json!({ "system_logs": logs });
        let body = json!({"id": "x", "command_name": "collect_system_logs",
                          "command_status": "SUCCEEDED", "command_result": result});
        body.to_string().into_bytes()
    }

    fn redacted_text(text: &str) -> String {
        let bundle = logs_bundle(200, answer(&json!(packed(text.as_bytes()))), TOKEN).unwrap();
        let mut out = String::new();
        GzDecoder::new(bundle.as_slice())
            .read_to_string(&mut out)
            .unwrap();
        assert_eq!(out.len(), text.len(), "no length in the archive changes");
        out
    }

    #[test]
    fn logs_are_requested_with_the_token_of_that_agent() {
        let agent = AgentSession {
            token: TOKEN.to_owned(),
            ..AgentSession::legacy()
        };
        let call = logs_call(&agent);
        assert!(call.path_and_query.ends_with(TOKEN));
        let other = AgentSession {
            token: "other".to_owned(),
            ..AgentSession::legacy()
        };
        assert!(logs_call(&other).path_and_query.ends_with("other"));
        let body: Value = serde_json::from_slice(&call.body.unwrap()).unwrap();
        assert_eq!(
            body,
            json!({"name": "log.collect_system_logs", "params": {}})
        );
    }

    #[test]
    fn tokens_are_redacted_wherever_they_occur() {
        for text in [
            format!("GET /v1/commands/?wait=true&agent_token={TOKEN} - 200"),
            format!("{{\"agent_token\": \"{TOKEN}\"}}"),
            format!("the bare {TOKEN} in a line"),
            "ipa-agent-token=another-one-of-an-earlier-boot BOOTIF=01".to_owned(),
            "'rescue_password': '$6$salt$hash/of.it', 'hashed': True".to_owned(),
        ] {
            let stored = redacted_text(&text);
            for secret in [TOKEN, "another-one", "$6$salt", "hash/of"] {
                assert!(!stored.contains(secret), "{stored}");
            }
            assert!(stored.contains("***"), "{stored}");
        }
        assert!(redacted_text(&format!("?agent_token={TOKEN}&wait=true")).ends_with("&wait=true"));
    }

    #[test]
    fn other_words_stay() {
        for text in [
            "agent_tokenizer started",
            "no agent_token",
            "agent_token\nnext line",
            "",
        ] {
            assert_eq!(redacted_text(text), text);
        }
    }

    #[test]
    fn an_invalid_bundle_is_refused_with_a_reason() {
        let message_of =
            |status, body: &[u8]| logs_bundle(status, body.to_vec(), TOKEN).unwrap_err();
        let quoted = format!("{{\"faultstring\": \"boom {TOKEN}\"}}");
        assert!(message_of(500, quoted.as_bytes()).contains("boom ***"));
        assert!(message_of(409, b"{}").contains("works on a command"));
        assert!(message_of(401, b"{}").contains("token"));
        assert!(message_of(200, &answer(&Value::Null)).contains("none"));
        assert!(message_of(200, &answer(&json!("!!"))).contains("base64"));
        assert!(message_of(200, &answer(&json!(STANDARD.encode("plain")))).contains("gzipped"));
        let long = packed(&vec![0; LOGS_BYTES_MAX + 1]);
        assert!(message_of(200, &answer(&json!(long))).contains("more than"));
    }
}
