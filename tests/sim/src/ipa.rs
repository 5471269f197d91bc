//! The stock Ironic Python Agent 13.0.0, as a box sees it.
//!
//! Independent of our own agent, on purpose: it shares no code and no message types with the
//! product, and its replies are compared with recorded ones of the real agent
//! (`tests/recorded.rs`). It also has the states without exit of the real one. Sans-IO:
//! [`SimIpa::next`] returns what is due, responses are passed to [`SimIpa::handle_response`]
//! and [`SimIpa::handle_image_response`], and [`SimIpa::request`] replies to the box.

mod api;
mod commands;
mod messages;
mod steps;
mod thread;

use std::collections::BTreeMap;

use serde_json::{Value, json};
use trivet_model::{MacAddr, SeededRandom, Tick};

pub use api::SimIpaReply;
pub use thread::SimAgentEffect;

/// The version that the agent reports.
pub const VERSION: &str = "13.0.0";

/// Its listening port.
pub const PORT: u16 = 9999;

/// How long after its end systemd starts the process again (the stock unit).
pub const RESTART_MS: u64 = 30_000;

/// `http_request_timeout`.
pub const REQUEST_TIMEOUT_MS: u64 = 30_000;

/// `image_download_connection_timeout`.
pub const FETCH_TIMEOUT_MS: u64 = 60_000;

/// `lookup_timeout`, and the bounds of its random exponential backoff.
const LOOKUP_TIMEOUT_MS: u64 = 600_000;
const LOOKUP_MS: u64 = 1000;
const LOOKUP_MS_MAX: u64 = 60_000;

/// Additional delay when the node is locked, longer each time.
const LOCKED_MS: [u64; 3] = [5_000, 10_000, 30_000];

/// How many times inspection data is posted, and the delay between.
const INSPECTION_TRIES_MAX: u32 = 5;
const INSPECTION_MS: u64 = 5_000;
const INSPECTION_MS_MAX: u64 = 30_000;

/// The least time between two heartbeats, and how often it checks whether one was forced.
const HEARTBEAT_MS: u64 = 5_000;

/// A shorter token is ignored.
const TOKEN_CHARS_MIN: usize = 32;

/// The mask that a box sends instead of a token that it gave before.
const MASK: &str = "******";

/// The microversions that change the behaviour, and the newest ones it sends.
const AGENT_VERSION_MICROVERSION: u32 = 36;
const AGENT_TOKEN_MICROVERSION: u32 = 62;
const AGENT_TLS_MICROVERSION: u32 = 68;
/// The version it assumes if the box does not report one.
const VERSION_FALLBACK: u32 = 31;

/// The settings of a process.
#[derive(Clone, Debug)]
pub struct SimIpaSetup {
    /// Hardware addresses of its interfaces.
    pub macs: Vec<MacAddr>,
    /// The data of `poll.get_hardware_info` and of an inspection.
    pub inventory: Value,
    /// `ipa-inspection-callback-url` was given.
    pub inspects: bool,
    /// A token that was given out of band.
    pub token: Option<String>,
    /// Its address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Seed of its random numbers and of its certificate.
    pub seed: u64,
}

/// The state of the process.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SimIpaState {
    /// It posts inspection data.
    Inspecting,
    /// It requests the API versions.
    Discovering,
    /// It looks up its node.
    LookingUp,
    /// It finds its own address on the way to the box.
    Probing,
    /// It serves and sends heartbeats.
    Heartbeating,
    /// It neither serves nor sends heartbeats nor ends: it got the mask and has no token.
    Stuck,
    /// It neither serves nor sends heartbeats because it hangs.
    Hung,
    /// A rescue password is set: the agent has ended for the operator.
    Rescued,
    /// It has ended; systemd starts another.
    Exited,
}

/// The purpose of a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SimIpaRequestKind {
    /// Inspection data.
    Inspection,
    /// The root document with the versions.
    Discovery,
    /// The lookup of the node.
    Lookup,
    /// A connection test.
    Probe,
    /// A heartbeat.
    Heartbeat,
    /// A lookup for the root device hint.
    Refresh,
}

/// A request to the API.
#[derive(Clone, Debug)]
pub struct SimIpaRequest {
    /// Its purpose.
    pub kind: SimIpaRequestKind,
    /// `GET` or `POST`.
    pub method: &'static str,
    /// Path below the API's URL.
    pub path_and_query: String,
    /// The microversion, if one is sent.
    pub version: Option<String>,
    /// JSON.
    pub body: Vec<u8>,
}

/// An output of the process.
#[derive(Clone, Debug)]
pub enum SimIpaOutput {
    /// A request to the API.
    Request(SimIpaRequest),
    /// A plain GET of an image.
    Fetch {
        /// The id of the command.
        command: String,
        /// The URL of the image.
        url: String,
    },
    /// A change to the machine.
    Effect(SimAgentEffect),
}

/// One process of the agent.
#[derive(Debug)]
pub struct SimIpa {
    setup: SimIpaSetup,
    chance: SeededRandom,
    state: SimIpaState,
    started: Tick,
    due: Tick,
    in_flight: bool,
    tries: u32,
    locked: usize,
    since: Tick,
    /// The minor part of the box's newest version.
    version: u32,
    token: Option<String>,
    certificate: Option<String>,
    heartbeat_timeout_ms: u64,
    heartbeat_at: Tick,
    forced: bool,
    inspected: Option<String>,
    /// The node of the last lookup.
    node: Value,
    commands: Vec<commands::SimIpaCommand>,
    serial: u64,
    /// The value of `hardware_manager_version`.
    managers: BTreeMap<String, String>,
    thread: Option<thread::SimIpaThread>,
    cached_image: Option<String>,
    uuids: Value,
    leaks_token: bool,
    outputs: Vec<SimIpaOutput>,
}

impl SimIpa {
    /// A process that starts now.
    pub fn new(now: Tick, setup: SimIpaSetup) -> Self {
        let state = if setup.inspects {
            SimIpaState::Inspecting
        } else {
            SimIpaState::Discovering
        };
        Self {
            chance: SeededRandom::new(setup.seed),
            state,
            started: now,
            due: now,
            in_flight: false,
            tries: 0,
            locked: 0,
            since: now,
            version: VERSION_FALLBACK,
            token: setup.token.clone(),
            certificate: None,
            heartbeat_timeout_ms: 0,
            heartbeat_at: now,
            forced: false,
            inspected: None,
            node: Value::Null,
            commands: Vec::new(),
            serial: 0,
            managers: BTreeMap::from([("generic_hardware_manager".into(), "1.2".into())]),
            thread: None,
            cached_image: None,
            uuids: json!({}),
            leaks_token: false,
            outputs: Vec::new(),
            setup,
        }
    }

    /// The present state.
    pub fn state(&self) -> SimIpaState {
        self.state
    }

    /// Its certificate, once it serves; `None` with plain HTTP.
    pub fn certificate(&self) -> Option<&str> {
        self.certificate.as_deref()
    }

    /// Its token.
    pub fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// Whether it replies to requests.
    pub fn serves(&self) -> bool {
        self.state == SimIpaState::Heartbeating
    }

    /// The URL that it reports for itself.
    pub fn callback_url(&self) -> String {
        let scheme = if self.version >= AGENT_TLS_MICROVERSION {
            "https"
        } else {
            "http"
        };
        format!("{scheme}://{}:{}", self.setup.host, self.setup.port)
    }

    /// The process hangs: it neither serves nor sends heartbeats, and is not restarted.
    pub fn hang(&mut self) {
        self.state = SimIpaState::Hung;
        self.thread = None;
    }

    /// Its next step fails with an error message that contains its token: the agent's log lines
    /// contain it, and errors often quote logs.
    pub fn leak_token(&mut self) {
        self.leaks_token = true;
    }

    /// Changes the version of its hardware managers.
    pub fn change_managers(&mut self, version: &str) {
        let name = "generic_hardware_manager".to_owned();
        self.managers.insert(name, version.to_owned());
    }

    /// When [`Self::next`] has something.
    pub fn wake_at(&self) -> Option<Tick> {
        let is_requested = matches!(
            self.state,
            SimIpaState::Inspecting
                | SimIpaState::Discovering
                | SimIpaState::LookingUp
                | SimIpaState::Probing
                | SimIpaState::Heartbeating
        );
        let own = (is_requested && !self.in_flight).then_some(self.due);
        let work = self.thread.as_ref().and_then(thread::SimIpaThread::wake_at);
        own.into_iter().chain(work).min()
    }

    /// What is due now. Each request is returned once, then its response is expected.
    pub fn next(&mut self, now: Tick) -> Vec<SimIpaOutput> {
        self.advance_thread(now);
        if !self.in_flight && self.due <= now {
            let request = match self.state {
                SimIpaState::Inspecting => Some(self.inspection()),
                SimIpaState::Discovering => Some(get(SimIpaRequestKind::Discovery, "/", None)),
                SimIpaState::LookingUp => {
                    Some(self.lookup(SimIpaRequestKind::Lookup, self.inspected.as_deref()))
                }
                SimIpaState::Probing => Some(get(SimIpaRequestKind::Probe, "/", None)),
                SimIpaState::Heartbeating => Some(self.heartbeat()),
                _ => None,
            };
            self.in_flight = request.is_some();
            self.outputs.extend(request.map(SimIpaOutput::Request));
        }
        std::mem::take(&mut self.outputs)
    }

    /// Handles a response of the API, or a timeout.
    pub fn handle_response(
        &mut self,
        now: Tick,
        what: SimIpaRequestKind,
        answer: Option<(u16, &[u8])>,
    ) {
        if what == SimIpaRequestKind::Refresh {
            return self.handle_refresh_response(now, answer);
        }
        self.in_flight = false;
        match (self.state, what) {
            (SimIpaState::Inspecting, SimIpaRequestKind::Inspection) => {
                self.handle_inspection_response(now, answer);
            }
            (SimIpaState::Discovering, SimIpaRequestKind::Discovery) => {
                self.version = read_version(answer).unwrap_or(VERSION_FALLBACK);
                (self.state, self.since, self.tries) = (SimIpaState::LookingUp, now, 0);
                self.due = now;
            }
            (SimIpaState::LookingUp, SimIpaRequestKind::Lookup) => {
                self.handle_lookup_response(now, answer);
            }
            (SimIpaState::Probing, SimIpaRequestKind::Probe) => {
                // Any response shows a route; without one it tries 6 times, 10 s apart.
                self.tries += 1;
                self.due = now;
                if answer.is_some() {
                    self.start_serving(now);
                } else if self.tries < 6 {
                    self.due = now.after_ms(10_000);
                } else {
                    self.state = SimIpaState::Exited;
                }
            }
            (SimIpaState::Heartbeating, SimIpaRequestKind::Heartbeat) => {
                self.handle_heartbeat_response(now, answer);
            }
            _ => {}
        }
    }

    fn start_serving(&mut self, now: Tick) {
        self.state = SimIpaState::Heartbeating;
        self.due = now;
        if self.version >= AGENT_TLS_MICROVERSION {
            let body = format!("{:016x}{}", self.setup.seed, self.setup.host);
            self.certificate = Some(format!(
                "-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n"
            ));
        }
    }

    fn handle_inspection_response(&mut self, now: Tick, answer: Option<(u16, &[u8])>) {
        self.tries += 1;
        self.due = now;
        let status = answer.map(|(status, _)| status);
        let again = status.is_none_or(|status| status == 409 || status >= 500);
        if again && self.tries < INSPECTION_TRIES_MAX {
            let most = INSPECTION_MS << self.tries.min(8);
            self.due = now.after_ms(most.clamp(INSPECTION_MS, INSPECTION_MS_MAX));
            return;
        }
        let good = answer.filter(|(status, _)| *status < 400);
        let read = good.and_then(|(_, body)| serde_json::from_slice::<Value>(body).ok());
        self.inspected = read.and_then(|read| Some(read["uuid"].as_str()?.to_owned()));
        (self.state, self.tries) = (SimIpaState::Discovering, 0);
    }

    fn handle_lookup_response(&mut self, now: Tick, answer: Option<(u16, &[u8])>) {
        self.due = now;
        if let Some(content) = lookup_content(answer) {
            return self.adopt_node(now, &content);
        }
        let pause_ms = self.lookup_pause(answer);
        if now.since_ms(self.since) >= LOOKUP_TIMEOUT_MS {
            self.state = SimIpaState::Exited;
        } else {
            self.due = now.after_ms(pause_ms);
        }
    }

    /// Random with a doubling upper bound; longer while the node is locked.
    fn lookup_pause(&mut self, answer: Option<(u16, &[u8])>) -> u64 {
        let most = (LOOKUP_MS << self.tries.min(16)).min(LOOKUP_MS_MAX);
        self.tries += 1;
        let locked = answer.is_some_and(|(status, _)| status == 409);
        let sleeps_ms = if locked {
            self.locked += 1;
            LOCKED_MS[(self.locked - 1).min(2)]
        } else {
            0
        };
        sleeps_ms + LOOKUP_MS + self.chance.below(most - LOOKUP_MS + 1)
    }

    /// Stores node, configuration and token.
    fn adopt_node(&mut self, now: Tick, content: &Value) {
        self.node = content["node"].clone();
        let timeout_s = content["config"]["heartbeat_timeout"].as_u64();
        self.heartbeat_timeout_ms = timeout_s.unwrap_or(300) * 1000;
        match content["config"]["agent_token"].as_str() {
            Some(token) if token.len() >= TOKEN_CHARS_MIN => self.token = Some(token.to_owned()),
            Some(MASK) if self.token.is_none() => {
                self.state = SimIpaState::Stuck;
                return;
            }
            _ => {}
        }
        (self.state, self.tries, self.due) = (SimIpaState::Probing, 0, now);
    }

    fn handle_heartbeat_response(&mut self, now: Tick, answer: Option<(u16, &[u8])>) {
        let accepted = answer.is_some_and(|(status, _)| status == 202);
        let wait_ms = if accepted {
            // A command that ended meanwhile forced a heartbeat; that is lost here, as in the
            // real agent.
            self.forced = false;
            let tenth = self.heartbeat_timeout_ms / 10;
            3 * tenth + self.chance.below(3 * tenth + 1)
        } else {
            HEARTBEAT_MS + self.chance.below(HEARTBEAT_MS + 1)
        };
        self.heartbeat_at = now;
        self.due = now.after_ms(wait_ms);
        if self.forced {
            self.force_heartbeat(now);
        }
    }

    /// An asynchronous command has ended: the next heartbeat is early.
    fn force_heartbeat(&mut self, now: Tick) {
        self.forced = true;
        if self.state == SimIpaState::Heartbeating && !self.in_flight {
            let looks = now.after_ms(self.chance.below(HEARTBEAT_MS));
            let earliest = self.heartbeat_at.after_ms(HEARTBEAT_MS + 1).max(looks);
            self.due = self.due.min(earliest);
        }
    }

    fn inspection(&self) -> SimIpaRequest {
        let inventory = &self.setup.inventory;
        let managers = self.managers.iter();
        let managers: Vec<_> = managers
            .map(|(name, version)| json!({"name": name, "version": version}))
            .collect();
        let mut body = json!({
            "inventory": inventory,
            "boot_interface": inventory["boot"]["pxe_interface"],
            "configuration": {"collectors": ["default", "logs"], "managers": managers},
            "logs": messages::LOGS,
            "error": null,
        });
        if let Some(disk) = inventory["disks"].get(0) {
            body["root_disk"] = disk.clone();
        }
        SimIpaRequest {
            kind: SimIpaRequestKind::Inspection,
            method: "POST",
            path_and_query: "/v1/continue_inspection".to_owned(),
            version: None,
            body: body.to_string().into_bytes(),
        }
    }

    fn lookup(&self, what: SimIpaRequestKind, node: Option<&str>) -> SimIpaRequest {
        let macs: Vec<_> = self.setup.macs.iter().map(MacAddr::to_string).collect();
        let macs = macs.join("%2C").replace(':', "%3A");
        let node = node.map_or(String::new(), |node| format!("&node_uuid={node}"));
        let version = self.version.min(AGENT_TOKEN_MICROVERSION);
        let path = format!("/v1/lookup?addresses={macs}{node}");
        get(what, &path, Some(version))
    }

    fn heartbeat(&self) -> SimIpaRequest {
        let mut body = json!({ "callback_url": self.callback_url() });
        if self.version >= AGENT_TOKEN_MICROVERSION {
            body["agent_token"] = json!(self.token);
        }
        if self.version >= AGENT_VERSION_MICROVERSION {
            body["agent_version"] = VERSION.into();
        }
        if let Some(certificate) = &self.certificate {
            body["agent_verify_ca"] = certificate.as_str().into();
        }
        let node = self.node["uuid"].as_str().unwrap_or_default();
        let path = format!("/v1/heartbeat/{node}");
        let mut request = get(
            SimIpaRequestKind::Heartbeat,
            &path,
            Some(self.version.min(AGENT_TLS_MICROVERSION)),
        );
        (request.method, request.body) = ("POST", body.to_string().into_bytes());
        request
    }
}

fn get(what: SimIpaRequestKind, path: &str, version: Option<u32>) -> SimIpaRequest {
    SimIpaRequest {
        kind: what,
        method: "GET",
        path_and_query: path.to_owned(),
        version: version.map(|minor| format!("1.{minor}")),
        body: Vec::new(),
    }
}

/// The minor part of the newest version in a root document.
fn read_version(answer: Option<(u16, &[u8])>) -> Option<u32> {
    let (_, body) = answer.filter(|(status, _)| *status == 200)?;
    let document: Value = serde_json::from_slice(body).ok()?;
    let version = document["default_version"]["version"].as_str()?;
    version.strip_prefix("1.")?.parse().ok()
}

/// The content of a valid lookup response.
fn lookup_content(answer: Option<(u16, &[u8])>) -> Option<Value> {
    let (_, body) = answer.filter(|(status, _)| *status == 200)?;
    let mut content: Value = serde_json::from_slice(body).ok()?;
    content["node"]["uuid"].as_str()?;
    if content["config"].is_null() {
        let old = content["heartbeat_timeout"].as_u64()?;
        content["config"] = json!({ "heartbeat_timeout": old });
    }
    Some(content)
}

#[cfg(test)]
mod tests;
