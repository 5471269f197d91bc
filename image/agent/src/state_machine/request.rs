//! The agent's own API: the requests of the appliance and their replies.
//!
//! Status codes and messages are the stock agent's, with one exception: a parameter that a
//! command does not know leaves the stock agent unusable, and we reject it with 400.

use serde_json::{Map, Value, json};
use subtle::ConstantTimeEq as _;
use trivet_agent_wire::{COMMANDS_PATH, CommandResult, CommandStatus, TOKEN_PARAMETER};
use trivet_model::Tick;

use super::command_table::{self, AgentCommandOutcome, UnknownAgentCommand};
use super::work::{AgentWork, RunningAgentCommand};
use super::{AgentState, COMMANDS_MAX};
use crate::AGENT_VERSION;

/// Longest accepted request. Ours: a config drive of some megabytes fits.
pub const REQUEST_BYTES_MAX: usize = 16 * 1024 * 1024;

/// A reply to the appliance.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentApiReply {
    /// HTTP status.
    pub status: u16,
    /// Body.
    pub body: Vec<u8>,
    /// Media type of the body.
    pub content_type: &'static str,
    /// `Location`, with 308.
    pub location: Option<String>,
    /// `Allow`, with 405.
    pub allow: Option<&'static str>,
    /// Work to start now, and the id of its command.
    pub work: Option<(String, AgentWork)>,
    /// The caller wants to wait for this command: hold the reply until
    /// [`AgentState::is_finished`], then reply with [`AgentState::command`].
    pub awaits: Option<String>,
}

impl AgentApiReply {
    fn json(status: u16, body: &Value) -> Self {
        Self {
            status,
            body: body.to_string().into_bytes(),
            content_type: "application/json",
            location: None,
            allow: None,
            work: None,
            awaits: None,
        }
    }

    fn fault(status: u16, words: impl AsRef<str>) -> Self {
        let code = if status >= 500 { "Server" } else { "Client" };
        Self::json(
            status,
            &json!({"faultcode": code, "faultstring": words.as_ref()}),
        )
    }
}

impl AgentState {
    /// Handles a request to our API.
    pub fn handle_request(
        &mut self,
        now: Tick,
        method: &str,
        target: &str,
        body: &[u8],
    ) -> AgentApiReply {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let inner = path.strip_prefix("/v1").unwrap_or(path);
        match (method, path, inner) {
            ("GET" | "HEAD", "/", _) => AgentApiReply::json(200, &self.root_document()),
            ("GET" | "HEAD", "/v1" | "/v1/", _) => AgentApiReply::json(200, &self.v1_document()),
            ("GET" | "HEAD", _, "/status") => {
                let started_at = self.started_at_s;
                let status = json!({"started_at": started_at, "version": AGENT_VERSION});
                AgentApiReply::json(200, &status)
            }
            ("GET" | "HEAD" | "POST", _, "/commands") => self.redirect(query),
            ("GET" | "HEAD", _, "/commands/") => self.with_token(query, Self::list),
            ("POST", _, "/commands/") => {
                self.with_token(query, |state| state.post_command(now, query, body))
            }
            ("GET" | "HEAD", _, inner) if inner.starts_with("/commands/") => {
                let id = inner.trim_start_matches("/commands/").to_owned();
                self.with_token(query, |state| state.command_status(&id, query))
            }
            (_, "/" | "/v1" | "/v1/", _) | (_, _, "/status" | "/commands" | "/commands/") => {
                let words = "405 Method Not Allowed: The method is not allowed for this URL.";
                let mut reply = AgentApiReply::fault(405, words);
                let commands = inner.starts_with("/commands");
                reply.allow = Some(if commands {
                    "GET, POST, HEAD"
                } else {
                    "GET, HEAD"
                });
                reply
            }
            _ => AgentApiReply::fault(404, "404 Not Found: The requested URL was not found."),
        }
    }

    /// The result of a command, in the format of the API.
    pub fn command(&self, id: &str) -> AgentApiReply {
        let found = self.commands.iter().find(|command| command.id == id);
        if let Some(command) = found {
            return AgentApiReply::json(200, &json!(command));
        }
        let id: String = id.chars().take(64).collect();
        let words = format!("Not found: Command Result with id {id} not found.");
        AgentApiReply::fault(404, words)
    }

    fn with_token(
        &mut self,
        query: &str,
        answer: impl FnOnce(&mut Self) -> AgentApiReply,
    ) -> AgentApiReply {
        let guess = parameter(query, TOKEN_PARAMETER).unwrap_or_default();
        let token = self.identity.token.as_deref().unwrap_or_default();
        if !token.is_empty() && bool::from(token.as_bytes().ct_eq(guess.as_bytes())) {
            answer(self)
        } else {
            AgentApiReply::fault(401, "401 Unauthorized: Token invalid.")
        }
    }

    fn redirect(&self, query: &str) -> AgentApiReply {
        let mut reply = AgentApiReply::json(308, &Value::Null);
        reply.body = b"<!doctype html><title>Redirecting...</title>".to_vec();
        reply.content_type = "text/html; charset=utf-8";
        reply.location = Some(format!("{}{COMMANDS_PATH}?{query}", self.plan.callback_url));
        reply
    }

    fn list(&mut self) -> AgentApiReply {
        AgentApiReply::json(200, &json!({ "commands": self.commands }))
    }

    fn command_status(&self, id: &str, query: &str) -> AgentApiReply {
        let mut reply = self.command(id);
        if wants_to_wait(query) && !self.is_finished(id) {
            reply.awaits = Some(id.to_owned());
        }
        reply
    }

    /// Handles a command, with the checks in the stock agent's order.
    fn post_command(&mut self, now: Tick, query: &str, body: &[u8]) -> AgentApiReply {
        if body.len() > REQUEST_BYTES_MAX {
            return AgentApiReply::fault(413, "413 Request Entity Too Large");
        }
        let request: Value = match serde_json::from_slice(body) {
            Ok(request) => request,
            Err(error) => {
                let words = format!("400 Bad Request: Failed to decode JSON object: {error}");
                return AgentApiReply::fault(400, words);
            }
        };
        let name = request.get("name").and_then(Value::as_str);
        let params = request.get("params").and_then(Value::as_object);
        let (Some(name), Some(params)) = (name, params) else {
            return AgentApiReply::fault(400, "400 Bad Request: Missing or invalid name or params");
        };
        let mut parts = name.split('.');
        let (Some(extension), Some(name), None) = (parts.next(), parts.next(), parts.next()) else {
            let words = "Invalid command: Command name must be of the form <extension>.<name>";
            return AgentApiReply::fault(400, words);
        };
        if let Some(last) = self.commands.back()
            && last.command_status == CommandStatus::Running
            && self.ahead.as_ref() != Some(&last.id)
        {
            let words = format!("Agent is busy: executing command {}", last.command_name);
            return AgentApiReply::fault(409, words);
        }
        self.run(now, (extension, name), params, wants_to_wait(query))
    }

    fn run(
        &mut self,
        now: Tick,
        (extension, name): (&str, &str),
        params: &Map<String, Value>,
        wait: bool,
    ) -> AgentApiReply {
        let command = match command_table::find(extension, name) {
            Ok(command) => command,
            Err(UnknownAgentCommand::Extension) => {
                let words = format!("Not found: Extension with id {extension} not found.");
                return AgentApiReply::fault(404, words);
            }
            Err(UnknownAgentCommand::Command) => {
                let words = format!("Invalid command: Unknown command: {name}");
                return AgentApiReply::fault(400, words);
            }
        };
        let unknown = params
            .keys()
            .find(|key| !command.params.contains(&key.as_str()));
        if let Some(unknown) = unknown {
            let words = format!("Invalid command parameters: {name} does not take {unknown}.");
            return AgentApiReply::fault(400, words);
        }
        let ran = match (command.run)(self, params) {
            Ok(ran) => ran,
            Err(words) => {
                return AgentApiReply::fault(400, format!("Invalid command parameters: {words}"));
            }
        };
        let (id, work) = self.remember(name, ran);
        let mut reply = self.command(&id);
        if work.is_some() {
            // A command that is not asynchronous is replied to when it has ended.
            reply.awaits = (wait || !command.asynchronous).then(|| id.clone());
        } else if command.asynchronous {
            self.heartbeat_soon(now);
        }
        reply.work = work.map(|work| (id, work));
        reply
    }

    /// Adds a command to the list. The oldest is dropped when the list is full: it cannot be
    /// one whose result is needed, because only the last one and a write ahead run.
    fn remember(&mut self, name: &str, ran: AgentCommandOutcome) -> (String, Option<AgentWork>) {
        self.command_serial += 1;
        // Unique until the agent restarts, which is all that the protocol needs.
        let id = format!("00000000-0000-4000-8000-{:012x}", self.command_serial);
        let mut result = CommandResult {
            id: id.clone(),
            command_name: name.to_owned(),
            command_status: CommandStatus::Succeeded,
            command_error: None,
            command_result: Value::Null,
        };
        let mut started = None;
        match ran {
            AgentCommandOutcome::Done(value) => result.command_result = value,
            AgentCommandOutcome::Failed(error) => {
                result.command_status = CommandStatus::Failed;
                result.command_error = Some(error);
            }
            AgentCommandOutcome::Mismatch(error) => {
                result.command_status = CommandStatus::VersionMismatch;
                result.command_error = Some(error);
            }
            AgentCommandOutcome::Started(work, step) => {
                result.command_status = CommandStatus::Running;
                if work.changes_disks() {
                    self.stop_write_ahead(name);
                }
                self.work_begins(&work);
                if work.is_ahead() {
                    self.ahead = Some(id.clone());
                } else {
                    let id = id.clone();
                    self.running = Some(RunningAgentCommand { id, step });
                }
                started = Some(work);
            }
        }
        if self.commands.len() >= COMMANDS_MAX {
            self.commands.pop_front();
        }
        self.commands.push_back(result);
        (id, started)
    }

    fn root_document(&self) -> Value {
        let links = [json!({"href": format!("{}/v1", self.plan.callback_url), "rel": "self"})];
        let version = json!({"id": "v1", "links": links});
        json!({
            "name": "Trivet agent",
            "description": "Implements the protocol of the Ironic Python Agent.",
            "versions": [version],
            "default_version": version,
        })
    }

    fn v1_document(&self) -> Value {
        let link = |path: &str| {
            let href = format!("{}/v1/{path}", self.plan.callback_url);
            json!([{"href": href, "rel": "self"}])
        };
        json!({
            "id": "v1",
            "links": link(""),
            "commands": link("commands"),
            "status": link("status"),
            "media_types": [{
                "base": "application/json",
                "type": "application/vnd.openstack.ironic-python-agent.v1+json",
            }],
        })
    }
}

fn wants_to_wait(query: &str) -> bool {
    parameter(query, "wait").is_some_and(|word| word.eq_ignore_ascii_case("true"))
}

/// The first value of a query parameter, decoded.
fn parameter(query: &str, name: &str) -> Option<String> {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let value = pairs
        .into_iter()
        .find_map(|(key, value)| (key == name).then_some(value))?;
    String::from_utf8(trivet_net::percent::decode_lenient(value)).ok()
}

#[cfg(test)]
mod tests;
