//! The agent's HTTP API: which request gets which answer, to the letter.

use std::time::Duration;

use serde_json::{Map, Value, json};
use trivet_model::Tick;

use super::commands::{self, Ran};
use super::{Ipa, VERSION, words};

/// An answer to a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// HTTP status.
    pub status: u16,
    /// What it holds.
    pub content_type: &'static str,
    /// `Location`, of a redirect.
    pub location: Option<String>,
    /// `Allow`, of a method that is not.
    pub allow: Option<&'static str>,
    /// JSON, or HTML of a redirect.
    pub body: Vec<u8>,
    /// The caller waits until this command has ended and gets its result then.
    pub awaits: Option<String>,
}

impl Reply {
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

/// The words of the last resort: what cannot be put into JSON.
const POISON: &str = "Object of type TypeError is not JSON serializable";

impl Ipa {
    /// Answers a request of the box. The caller sees to it that the agent serves.
    pub fn request(&mut self, now: Tick, method: &str, target: &str, body: &[u8]) -> Reply {
        let mut reply = self.routed(now, method, target, body);
        if method == "HEAD" {
            reply.body.clear();
        }
        reply
    }

    fn routed(&mut self, now: Tick, method: &str, target: &str, body: &[u8]) -> Reply {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let inner = path.strip_prefix("/v1").unwrap_or(path);
        let reads = matches!(method, "GET" | "HEAD");
        match inner {
            _ if path == "/" && reads => Reply::json(200, &self.root()),
            "/" if path == "/v1/" && reads => Reply::json(200, &self.v1()),
            "" if path == "/v1" && reads => self.redirected("/v1/", query),
            "/status" if reads => {
                let started_at = Duration::from_millis(self.started.0).as_secs_f64();
                Reply::json(200, &json!({"started_at": started_at, "version": VERSION}))
            }
            "/commands" if reads || method == "POST" => self.redirected(&format!("{path}/"), query),
            "/commands/" if reads || method == "POST" => {
                if !self.knows(query) {
                    return Reply::fault(401, words::UNAUTHORIZED);
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
                    if !self.knows(query) {
                        return Reply::fault(401, words::UNAUTHORIZED);
                    }
                    self.single(id, waits(query))
                }
                Some(id) if !id.contains('/') => not_allowed("/status"),
                _ => Reply::fault(404, words::NOT_FOUND),
            },
        }
    }

    /// What became of a command.
    pub fn result(&self, id: &str) -> Reply {
        match self.commands.iter().find(|command| command.id == id) {
            Some(command) if command.poisoned => Reply::fault(500, POISON),
            Some(command) => Reply::json(200, &command.shown()),
            None => {
                let words = format!("Not found: Command Result with id {id} not found.");
                Reply::fault(404, words)
            }
        }
    }

    /// Whether a command has ended, or is not known.
    pub fn has_ended(&self, id: &str) -> bool {
        let found = self.commands.iter().find(|command| command.id == id);
        found.is_none_or(|command| command.status != commands::RUNNING)
    }

    fn knows(&self, query: &str) -> bool {
        let guess = parameter(query, "agent_token");
        self.token.is_some() && guess == self.token
    }

    fn redirected(&self, path: &str, query: &str) -> Reply {
        let mark = if query.is_empty() { "" } else { "?" };
        let location = format!("{}{path}{mark}{query}", self.callback_url());
        let mut reply = Reply::json(308, &Value::Null);
        reply.content_type = "text/html; charset=utf-8";
        reply.body = words::redirect_page(&location).into_bytes();
        reply.location = Some(location);
        reply
    }

    fn list(&self) -> Reply {
        if self.commands.iter().any(|command| command.poisoned) {
            return Reply::fault(500, POISON);
        }
        let all: Vec<_> = self.commands.iter().map(commands::Command::shown).collect();
        Reply::json(200, &json!({ "commands": all }))
    }

    fn single(&self, id: &str, wait: bool) -> Reply {
        let mut reply = self.result(id);
        if wait && !self.has_ended(id) {
            reply.awaits = Some(id.to_owned());
        }
        reply
    }

    fn post(&mut self, now: Tick, query: &str, body: &[u8]) -> Reply {
        let Ok(request) = serde_json::from_slice::<Value>(body) else {
            return Reply::fault(400, words::bad_json(body));
        };
        let params = request.get("params").and_then(Value::as_object);
        let (Some(name), Some(params)) = (request.get("name"), params) else {
            return Reply::fault(400, words::NAME_OR_PARAMS);
        };
        let name = name.as_str().unwrap_or_default();
        let Some((extension, command)) = name.split_once('.') else {
            return Reply::fault(400, words::NO_DOT);
        };
        if let Some(last) = self.commands.last()
            && last.status == commands::RUNNING
        {
            let words = format!("Agent is busy: executing command {}", last.name);
            return Reply::fault(409, words);
        }
        self.execute(now, (extension, command), params, waits(query))
    }

    fn execute(
        &mut self,
        now: Tick,
        (extension, name): (&str, &str),
        params: &Map<String, Value>,
        wait: bool,
    ) -> Reply {
        if !commands::EXTENSIONS.contains(&extension) {
            let words = format!("Not found: Extension with id {extension} not found.");
            return Reply::fault(404, words);
        }
        let Some(known) = commands::find(extension, name) else {
            let words = format!("Invalid command: Unknown command: {name}");
            return Reply::fault(400, words);
        };
        let ran = match known.misfit(params) {
            Some(commands::Misfit::Poison) => Ran::Poison,
            Some(commands::Misfit::Fails(details)) => {
                Ran::Failed(words::error("CommandExecutionError", &details))
            }
            None => match self.run(known, params) {
                Ok(ran) => ran,
                Err(words) => return Reply::fault(400, words),
            },
        };
        let id = self.remember(now, known, extension, ran);
        self.single(&id, wait)
    }

    fn root(&self) -> Value {
        let version = self.version_document();
        json!({
            "name": words::API_NAME,
            "description": words::API_DESCRIPTION,
            "versions": [version],
            "default_version": version,
        })
    }

    fn version_document(&self) -> Value {
        let own = format!("{}/v1", self.callback_url());
        json!({"id": "v1", "links": [
            {"href": own, "rel": "self"},
            {"href": format!("{}/", words::DOCS_URL), "rel": "describedby", "type": "text/html"},
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

fn not_allowed(inner: &str) -> Reply {
    let mut reply = Reply::fault(405, words::NOT_ALLOWED);
    let commands = inner.starts_with("/commands");
    reply.allow = Some(if commands {
        "GET, POST, HEAD"
    } else {
        "GET, HEAD"
    });
    reply
}

fn waits(query: &str) -> bool {
    parameter(query, "wait").is_some_and(|word| word.eq_ignore_ascii_case("true"))
}

/// The first value of a query parameter, decoded.
fn parameter(query: &str, name: &str) -> Option<String> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let (_, value) = pairs.find(|(key, _)| *key == name)?;
    let mut bytes = Vec::with_capacity(value.len());
    let mut parts = value.split('%');
    bytes.extend(parts.next().unwrap_or_default().bytes());
    for part in parts {
        let code = part.get(..2)?;
        bytes.push(u8::from_str_radix(code, 16).ok()?);
        bytes.extend(part[2..].bytes());
    }
    String::from_utf8(bytes).ok()
}
