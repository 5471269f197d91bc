//! The agent's HTTP API, with exactly the replies of the real one.

use std::time::Duration;

use serde_json::{Map, Value, json};
use trivet_model::Tick;

use super::commands::{self, SimIpaCommandOutcome};
use super::{SimIpa, VERSION, messages};

/// A reply to a request.
#[derive(Clone, Debug, PartialEq)]
pub struct SimIpaReply {
    /// HTTP status.
    pub status: u16,
    /// Media type of the body.
    pub content_type: &'static str,
    /// `Location` of a redirect.
    pub location: Option<String>,
    /// `Allow` of a 405.
    pub allow: Option<&'static str>,
    /// JSON, or HTML of a redirect.
    pub body: Vec<u8>,
    /// The caller waits until this command has ended and then gets its result.
    pub awaits: Option<String>,
}

impl SimIpaReply {
    pub(super) fn json(status: u16, body: &Value) -> Self {
        Self {
            status,
            content_type: "application/json",
            location: None,
            allow: None,
            body: body.to_string().into_bytes(),
            awaits: None,
        }
    }

    pub(super) fn fault(status: u16, words: impl AsRef<str>) -> Self {
        let code = if status >= 500 { "Server" } else { "Client" };
        let body = json!({"faultcode": code, "faultstring": words.as_ref()});
        Self::json(status, &body)
    }
}

/// The error message for an error that is not JSON serializable.
const UNSERIALIZABLE_ERROR: &str = "Object of type TypeError is not JSON serializable";

impl SimIpa {
    /// Replies to a request of the box. The caller checks that the agent serves.
    pub fn request(&mut self, now: Tick, method: &str, target: &str, body: &[u8]) -> SimIpaReply {
        let mut reply = self.route(now, method, target, body);
        if method == "HEAD" {
            reply.body.clear();
        }
        reply
    }

    fn route(&mut self, now: Tick, method: &str, target: &str, body: &[u8]) -> SimIpaReply {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let inner = path.strip_prefix("/v1").unwrap_or(path);
        let reads = matches!(method, "GET" | "HEAD");
        match inner {
            _ if path == "/" && reads => SimIpaReply::json(200, &self.root()),
            "/" if path == "/v1/" && reads => SimIpaReply::json(200, &self.v1()),
            "" if path == "/v1" && reads => self.redirect("/v1/", query),
            "/status" if reads => {
                let started_at = Duration::from_millis(self.started.0).as_secs_f64();
                SimIpaReply::json(200, &json!({"started_at": started_at, "version": VERSION}))
            }
            "/commands" if reads || method == "POST" => self.redirect(&format!("{path}/"), query),
            "/commands/" if reads || method == "POST" => {
                if !self.has_valid_token(query) {
                    return SimIpaReply::fault(401, messages::UNAUTHORIZED);
                }
                if reads {
                    self.list()
                } else {
                    self.post(now, query, body)
                }
            }
            "/" | "/status" | "/commands" | "/commands/" => not_allowed(inner),
            _ => match inner.strip_prefix("/commands/") {
                Some(id) if reads && !id.contains('/') => {
                    if !self.has_valid_token(query) {
                        return SimIpaReply::fault(401, messages::UNAUTHORIZED);
                    }
                    self.single(id, has_wait(query))
                }
                Some(id) if !id.contains('/') => not_allowed("/status"),
                _ => SimIpaReply::fault(404, messages::NOT_FOUND),
            },
        }
    }

    /// The result of a command.
    pub fn result(&self, id: &str) -> SimIpaReply {
        match self.commands.iter().find(|command| command.id == id) {
            Some(command) if command.unserializable => {
                SimIpaReply::fault(500, UNSERIALIZABLE_ERROR)
            }
            Some(command) => SimIpaReply::json(200, &command.to_json()),
            None => {
                let words = format!("Not found: Command Result with id {id} not found.");
                SimIpaReply::fault(404, words)
            }
        }
    }

    /// Whether a command has ended, or is unknown.
    pub fn has_ended(&self, id: &str) -> bool {
        let found = self.commands.iter().find(|command| command.id == id);
        found.is_none_or(|command| command.status != commands::RUNNING)
    }

    fn has_valid_token(&self, query: &str) -> bool {
        let guess = parameter(query, "agent_token");
        self.token.is_some() && guess == self.token
    }

    fn redirect(&self, path: &str, query: &str) -> SimIpaReply {
        let mark = if query.is_empty() { "" } else { "?" };
        let location = format!("{}{path}{mark}{query}", self.callback_url());
        let mut reply = SimIpaReply::json(308, &Value::Null);
        reply.content_type = "text/html; charset=utf-8";
        reply.body = messages::redirect_page(&location).into_bytes();
        reply.location = Some(location);
        reply
    }

    fn list(&self) -> SimIpaReply {
        if self.commands.iter().any(|command| command.unserializable) {
            return SimIpaReply::fault(500, UNSERIALIZABLE_ERROR);
        }
        let all: Vec<_> = self
            .commands
            .iter()
            .map(commands::SimIpaCommand::to_json)
            .collect();
        SimIpaReply::json(200, &json!({ "commands": all }))
    }

    fn single(&self, id: &str, wait: bool) -> SimIpaReply {
        let mut reply = self.result(id);
        if wait && !self.has_ended(id) {
            reply.awaits = Some(id.to_owned());
        }
        reply
    }

    fn post(&mut self, now: Tick, query: &str, body: &[u8]) -> SimIpaReply {
        let Ok(request) = serde_json::from_slice::<Value>(body) else {
            return SimIpaReply::fault(400, messages::bad_json(body));
        };
        let params = request.get("params").and_then(Value::as_object);
        let (Some(name), Some(params)) = (request.get("name"), params) else {
            return SimIpaReply::fault(400, messages::NAME_OR_PARAMS);
        };
        let name = name.as_str().unwrap_or_default();
        let Some((extension, command)) = name.split_once('.') else {
            return SimIpaReply::fault(400, messages::NO_DOT);
        };
        if let Some(last) = self.commands.last()
            && last.status == commands::RUNNING
        {
            let words = format!("Agent is busy: executing command {}", last.name);
            return SimIpaReply::fault(409, words);
        }
        self.execute(now, (extension, command), params, has_wait(query))
    }

    fn execute(
        &mut self,
        now: Tick,
        (extension, name): (&str, &str),
        params: &Map<String, Value>,
        wait: bool,
    ) -> SimIpaReply {
        if !commands::EXTENSIONS.contains(&extension) {
            let words = format!("Not found: Extension with id {extension} not found.");
            return SimIpaReply::fault(404, words);
        }
        let Some(known) = commands::find(extension, name) else {
            let words = format!("Invalid command: Unknown command: {name}");
            return SimIpaReply::fault(400, words);
        };
        let ran = match known.parameter_error(params) {
            Some(commands::SimIpaParameterError::Unserializable) => {
                SimIpaCommandOutcome::Unserializable
            }
            Some(commands::SimIpaParameterError::Fails(details)) => {
                SimIpaCommandOutcome::Failed(messages::error("CommandExecutionError", &details))
            }
            None => match self.run(known, params) {
                Ok(ran) => ran,
                Err(words) => return SimIpaReply::fault(400, words),
            },
        };
        let id = self.record(now, known, extension, ran);
        self.single(&id, wait)
    }

    fn root(&self) -> Value {
        let version = self.version_document();
        json!({
            "name": messages::API_NAME,
            "description": messages::API_DESCRIPTION,
            "versions": [version],
            "default_version": version,
        })
    }

    fn version_document(&self) -> Value {
        let own = format!("{}/v1", self.callback_url());
        json!({"id": "v1", "links": [
            {"href": own, "rel": "self"},
            {"href": format!("{}/", messages::DOCS_URL), "rel": "describedby", "type": "text/html"},
        ]})
    }

    fn v1(&self) -> Value {
        let url = self.callback_url();
        let links = |what: &str| {
            json!([
                {"href": format!("{url}/v1/{what}"), "rel": "self"},
                {"href": format!("{url}/{what}"), "rel": "bookmark"},
            ])
        };
        let mut document = self.version_document();
        document["commands"] = links("commands");
        document["status"] = links("status");
        document["media_types"] = json!([{
            "base": "application/json",
            "type": "application/vnd.openstack.ironic-python-agent.v1+json",
        }]);
        document
    }
}

fn not_allowed(inner: &str) -> SimIpaReply {
    let mut reply = SimIpaReply::fault(405, messages::NOT_ALLOWED);
    let commands = inner.starts_with("/commands");
    reply.allow = Some(if commands {
        "GET, POST, HEAD"
    } else {
        "GET, HEAD"
    });
    reply
}

fn has_wait(query: &str) -> bool {
    parameter(query, "wait").is_some_and(|word| word.eq_ignore_ascii_case("true"))
}

/// The first value of a query parameter, decoded.
fn parameter(query: &str, name: &str) -> Option<String> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let (_, value) = pairs.find(|(key, _)| *key == name)?;
    trivet_net::percent::decode(value)
}
