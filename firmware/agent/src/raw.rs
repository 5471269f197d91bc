//! Commands that an operator sends to an agent directly, with unchanged replies.

use serde_json::{Map, Value};
use trivet_model::{AgentError, AgentEvent, Node};

use crate::agent_text::sanitized;
use crate::answer::{ANSWER_BYTES_MAX, nonsense, refusal};
use crate::call::{AgentCallError, AgentHttpRequest, post, session_with_url};

/// An agent's reply to a raw command.
#[derive(Clone, Debug, PartialEq)]
pub enum RawAgentReply {
    /// It works on another command.
    Busy,
    /// The command has a result.
    Completed {
        /// The agent's name for the command's state, such as `SUCCEEDED`.
        status: String,
        /// The whole result.
        document: Value,
    },
}

/// The request for a command as the operator wrote it. It contains the token, which is masked
/// when the request is printed.
pub fn raw_call(
    node: &Node,
    command: &str,
    params: Map<String, Value>,
    wait: bool,
) -> Result<AgentHttpRequest, AgentCallError> {
    Ok(post(
        session_with_url(node)?,
        command.to_owned(),
        params,
        wait,
    ))
}

/// The reply, unchanged; only its status is parsed.
pub fn raw_answer(status: u16, body: &[u8]) -> Result<RawAgentReply, AgentError> {
    if body.len() > ANSWER_BYTES_MAX {
        return Err(nonsense("an answer that exceeds the size limit"));
    }
    if status != 200 {
        return match refusal(status, body)? {
            AgentEvent::Busy => Ok(RawAgentReply::Busy),
            _ => Err(nonsense(format!("status {status}"))),
        };
    }
    let document: Value =
        serde_json::from_slice(body).map_err(|error| nonsense(error.to_string()))?;
    let word = document.get("command_status").and_then(Value::as_str);
    let status = sanitized(word.ok_or_else(|| nonsense("a result without a command_status"))?);
    Ok(RawAgentReply::Completed { status, document })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use trivet_model::{AgentSession, NodeId, SeededRandom, UnixMs};

    fn node() -> Node {
        let mut node = Node::new(NodeId::random(&mut SeededRandom::new(1)), "ipmi", UnixMs(1));
        node.agent = Some(AgentSession {
            token: "s3cret".to_owned(),
            url: Some("http://192.0.2.10:9999".to_owned()),
            ..AgentSession::legacy()
        });
        node
    }

    #[test]
    fn a_command_goes_out_as_it_was_written() {
        let params = json!({"a": [1]}).as_object().unwrap().clone();
        let call = raw_call(&node(), "log.collect_system_logs", params, true).unwrap();
        let body: Value = serde_json::from_slice(&call.body.clone().unwrap()).unwrap();
        assert_eq!(
            body,
            json!({"name": "log.collect_system_logs", "params": {"a": [1]}})
        );
        assert_eq!(
            call.path_and_query,
            "/v1/commands/?wait=true&agent_token=s3cret"
        );
        assert!(!format!("{call:?}").contains("s3cret"));
    }

    #[test]
    fn an_agent_without_a_token_is_called_without_one() {
        let mut node = node();
        node.agent.as_mut().unwrap().token = String::new();
        let path = |wait| {
            let call = raw_call(&node, "standby.sync", Map::new(), wait).unwrap();
            call.path_and_query
        };
        assert_eq!(path(false), "/v1/commands/");
        assert_eq!(path(true), "/v1/commands/?wait=true");
    }

    #[test]
    fn without_an_agent_there_is_no_call() {
        let mut node = node();
        let call = |node: &Node| raw_call(node, "standby.sync", Map::new(), false);
        node.agent.as_mut().unwrap().url = None;
        assert_eq!(call(&node), Err(AgentCallError::NoHeartbeat));
        node.agent = None;
        assert_eq!(call(&node), Err(AgentCallError::NoAgent));
    }

    #[test]
    fn answers_come_back_whole() {
        let document = json!({"command_status": "FAILED", "command_error": {"code": 500}});
        let want = RawAgentReply::Completed {
            status: "FAILED".to_owned(),
            document: document.clone(),
        };
        let read = |status, body: &str| raw_answer(status, body.as_bytes());
        assert_eq!(read(200, &document.to_string()), Ok(want));
        assert_eq!(read(409, "{}"), Ok(RawAgentReply::Busy));
        assert_eq!(read(401, "{}"), Err(AgentError::TokenRefused));
        for body in ["", "[]", "{}", "{\"command_status\": 7}"] {
            let error = read(200, body).unwrap_err();
            assert!(matches!(error, AgentError::Nonsense { .. }), "{body}");
        }
        let refused = read(404, "{\"faultstring\": \"Not found: Extension\"}");
        assert!(matches!(refused, Err(AgentError::Refused { .. })));
    }
}
