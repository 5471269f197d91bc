//! The stock Ironic Python Agent 13.0.0, as a box meets it.
//!
//! Another implementation than our own agent, on purpose: it shares no code and no
//! message types with the product, and its answers are compared with recorded ones of
//! the real agent (`tests/recorded.rs`). It has the real one's dead ends too. Sans-IO:
//! [`Ipa::next`] gives what is due, answers come back through [`Ipa::answered`] and
//! [`Ipa::fetched`], and [`Ipa::request`] answers the box.

mod api;
mod commands;
mod steps;
mod words;
mod work;

use std::collections::BTreeMap;

use serde_json::{Value, json};
use trivet_model::{MacAddr, Seeded, Tick};

pub use api::Reply;
pub use work::Did;

/// What the agent calls itself.
pub const VERSION: &str = "13.0.0";

/// Where it listens.
pub const PORT: u16 = 9999;

/// How long after its end systemd starts the process again (the stock unit).
pub const RESTART_MS: u64 = 30_000;

/// `http_request_timeout`.
pub const REQUEST_TIMEOUT_MS: u64 = 30_000;

/// `image_download_connection_timeout`.
pub const FETCH_TIMEOUT_MS: u64 = 60_000;

/// `lookup_timeout`, and the ends of its random exponential back-off.
const LOOKUP_TIMEOUT_MS: u64 = 600_000;
const LOOKUP_MS: u64 = 1000;
const LOOKUP_MS_MAX: u64 = 60_000;

/// What it sleeps beside that when the node is locked, each time longer.
const LOCKED_MS: [u64; 3] = [5_000, 10_000, 30_000];

/// Inspection data are posted so often, and so far apart.
const INSPECTION_TRIES_MAX: u32 = 5;
const INSPECTION_MS: u64 = 5_000;
const INSPECTION_MS_MAX: u64 = 30_000;

/// The least time between two beats, and how often it looks whether one was forced.
const BEAT_MS: u64 = 5_000;

/// A shorter token is ignored.
const TOKEN_CHARS_MIN: usize = 32;

/// What a box says instead of a token that it gave before.
const MASK: &str = "******";

/// The microversions that switch something, and the newest ones it sends.
const TELLS_VERSION: u32 = 36;
const TELLS_TOKEN: u32 = 62;
const HAS_TLS: u32 = 68;
/// What it takes for granted where nobody tells.
const VERSION_FALLBACK: u32 = 31;

/// How a process is started.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Its interfaces.
    pub macs: Vec<MacAddr>,
    /// What `poll.get_hardware_info` and inspection tell.
    pub inventory: Value,
    /// `ipa-inspection-callback-url` was given.
    pub inspects: bool,
    /// A token that was given out of band.
    pub token: Option<String>,
    /// Its address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Chance, and what its certificate is made of.
    pub seed: u64,
}

/// What the process does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum State {
    /// It posts what it found.
    Inspecting,
    /// It asks which versions there are.
    Discovering,
    /// It asks who it is.
    LookingUp,
    /// It finds out from which address the box is reached.
    Probing,
    /// It serves and beats.
    Beating,
    /// It neither serves nor beats nor ends: the mask was all it got for a token.
    Stuck,
    /// It neither serves nor beats because something in it hangs.
    Hung,
    /// A rescue password is set: the machine is its user's.
    Rescued,
    /// It has ended; systemd starts another.
    Exited,
}

/// What a request is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum What {
    /// Inspection data.
    Inspection,
    /// The root document.
    Discovery,
    /// Who am I?
    Lookup,
    /// Does anybody answer?
    Probe,
    /// I live.
    Heartbeat,
    /// Have I a root device hint by now?
    Refresh,
}

/// A request to the API.
#[derive(Clone, Debug)]
pub struct Ask {
    /// What for.
    pub what: What,
    /// `GET` or `POST`.
    pub method: &'static str,
    /// What follows the API's address.
    pub path_and_query: String,
    /// The microversion, where one is sent.
    pub version: Option<String>,
    /// JSON.
    pub body: Vec<u8>,
}

/// What the process wants of the world.
#[derive(Clone, Debug)]
pub enum Out {
    /// A request to the API.
    Ask(Ask),
    /// A plain GET of an image.
    Fetch {
        /// For which command.
        command: String,
        /// Where.
        url: String,
    },
    /// Something was done to the machine.
    Did(Did),
}

/// One process.
#[derive(Debug)]
pub struct Ipa {
    setup: Setup,
    chance: Seeded,
    state: State,
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
    beat_at: Tick,
    forced: bool,
    inspected: Option<String>,
    /// The node as it was told last.
    node: Value,
    commands: Vec<commands::Command>,
    serial: u64,
    /// What `hardware_manager_version` says.
    managers: BTreeMap<String, String>,
    work: Option<work::Work>,
    cached_image: Option<String>,
    uuids: Value,
    babbles: bool,
    outs: Vec<Out>,
}

impl Ipa {
    /// A process that starts now.
    pub fn new(now: Tick, setup: Setup) -> Self {
        let state = if setup.inspects {
            State::Inspecting
        } else {
            State::Discovering
        };
        Self {
            chance: Seeded::new(setup.seed),
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
            beat_at: now,
            forced: false,
            inspected: None,
            node: Value::Null,
            commands: Vec::new(),
            serial: 0,
            managers: BTreeMap::from([("generic_hardware_manager".into(), "1.2".into())]),
            work: None,
            cached_image: None,
            uuids: json!({}),
            babbles: false,
            outs: Vec::new(),
            setup,
        }
    }

    /// What it does.
    pub fn state(&self) -> State {
        self.state
    }

    /// Its certificate, once it serves; none where it speaks plain HTTP.
    pub fn certificate(&self) -> Option<&str> {
        self.certificate.as_deref()
    }

    /// Its token.
    pub fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// Whether anybody gets an answer of it.
    pub fn serves(&self) -> bool {
        self.state == State::Beating
    }

    /// Where it says that it listens.
    pub fn callback_url(&self) -> String {
        let scheme = if self.version >= HAS_TLS {
            "https"
        } else {
            "http"
        };
        format!("{scheme}://{}:{}", self.setup.host, self.setup.port)
    }

    /// The process hangs: it neither serves nor beats, and nobody restarts it.
    pub fn hang(&mut self) {
        self.state = State::Hung;
        self.work = None;
    }

    /// Its next step fails with words that hold its token: the agent's own log lines do,
    /// and failures like to quote logs.
    pub fn babble(&mut self) {
        self.babbles = true;
    }

    /// Its hardware managers are others from now on.
    pub fn managers_change(&mut self, version: &str) {
        let name = "generic_hardware_manager".to_owned();
        self.managers.insert(name, version.to_owned());
    }

    /// When [`Self::next`] has something to give.
    pub fn wake_at(&self) -> Option<Tick> {
        let asks = matches!(
            self.state,
            State::Inspecting
                | State::Discovering
                | State::LookingUp
                | State::Probing
                | State::Beating
        );
        let own = (asks && !self.in_flight).then_some(self.due);
        let work = self.work.as_ref().and_then(work::Work::wake_at);
        own.into_iter().chain(work).min()
    }

    /// What is due now. Each request is given once and awaits its answer.
    pub fn next(&mut self, now: Tick) -> Vec<Out> {
        self.work_goes_on(now);
        if !self.in_flight && self.due <= now {
            let ask = match self.state {
                State::Inspecting => Some(self.inspection()),
                State::Discovering => Some(get(What::Discovery, "/", None)),
                State::LookingUp => Some(self.lookup(What::Lookup, self.inspected.as_deref())),
                State::Probing => Some(get(What::Probe, "/", None)),
                State::Beating => Some(self.heartbeat()),
                _ => None,
            };
            self.in_flight = ask.is_some();
            self.outs.extend(ask.map(Out::Ask));
        }
        std::mem::take(&mut self.outs)
    }

    /// An answer of the API, or none within the time.
    pub fn answered(&mut self, now: Tick, what: What, answer: Option<(u16, &[u8])>) {
        if what == What::Refresh {
            return self.refreshed(now, answer);
        }
        self.in_flight = false;
        match (self.state, what) {
            (State::Inspecting, What::Inspection) => self.inspection_answered(now, answer),
            (State::Discovering, What::Discovery) => {
                self.version = read_version(answer).unwrap_or(VERSION_FALLBACK);
                (self.state, self.since, self.tries) = (State::LookingUp, now, 0);
                self.due = now;
            }
            (State::LookingUp, What::Lookup) => self.lookup_answered(now, answer),
            (State::Probing, What::Probe) => {
                // Any answer shows a way; without one it tries 6 times, 10 s apart.
                self.tries += 1;
                self.due = now;
                if answer.is_some() {
                    self.serves_from_now(now);
                } else if self.tries < 6 {
                    self.due = now.after_ms(10_000);
                } else {
                    self.state = State::Exited;
                }
            }
            (State::Beating, What::Heartbeat) => self.heartbeat_answered(now, answer),
            _ => {}
        }
    }

    fn serves_from_now(&mut self, now: Tick) {
        self.state = State::Beating;
        self.due = now;
        if self.version >= HAS_TLS {
            let body = format!("{:016x}{}", self.setup.seed, self.setup.host);
            self.certificate = Some(format!(
                "-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n"
            ));
        }
    }

    fn inspection_answered(&mut self, now: Tick, answer: Option<(u16, &[u8])>) {
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
        (self.state, self.tries) = (State::Discovering, 0);
    }

    fn lookup_answered(&mut self, now: Tick, answer: Option<(u16, &[u8])>) {
        self.due = now;
        if let Some(content) = lookup_content(answer) {
            return self.adopts(now, &content);
        }
        let pause_ms = self.lookup_pause(answer);
        if now.since_ms(self.since) >= LOOKUP_TIMEOUT_MS {
            self.state = State::Exited;
        } else {
            self.due = now.after_ms(pause_ms);
        }
    }

    /// Random, its upper end doubling; more while the node is locked.
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

    /// Takes node, config and token.
    fn adopts(&mut self, now: Tick, content: &Value) {
        self.node = content["node"].clone();
        let timeout_s = content["config"]["heartbeat_timeout"].as_u64();
        self.heartbeat_timeout_ms = timeout_s.unwrap_or(300) * 1000;
        match content["config"]["agent_token"].as_str() {
            Some(token) if token.len() >= TOKEN_CHARS_MIN => self.token = Some(token.to_owned()),
            Some(MASK) if self.token.is_none() => {
                self.state = State::Stuck;
                return;
            }
            _ => {}
        }
        (self.state, self.tries, self.due) = (State::Probing, 0, now);
    }

    fn heartbeat_answered(&mut self, now: Tick, answer: Option<(u16, &[u8])>) {
        let accepted = answer.is_some_and(|(status, _)| status == 202);
        let wait_ms = if accepted {
            // A command that ended meanwhile forced a beat; that word is lost here.
            self.forced = false;
            let tenth = self.heartbeat_timeout_ms / 10;
            3 * tenth + self.chance.below(3 * tenth + 1)
        } else {
            BEAT_MS + self.chance.below(BEAT_MS + 1)
        };
        self.beat_at = now;
        self.due = now.after_ms(wait_ms);
        if self.forced {
            self.force_beat(now);
        }
    }

    /// An asynchronous command has ended: a beat comes early.
    fn force_beat(&mut self, now: Tick) {
        self.forced = true;
        if self.state == State::Beating && !self.in_flight {
            let looks = now.after_ms(self.chance.below(BEAT_MS));
            let earliest = self.beat_at.after_ms(BEAT_MS + 1).max(looks);
            self.due = self.due.min(earliest);
        }
    }

    fn inspection(&self) -> Ask {
        let inventory = &self.setup.inventory;
        let managers = self.managers.iter();
        let managers: Vec<_> = managers
            .map(|(name, version)| json!({"name": name, "version": version}))
            .collect();
        let mut body = json!({
            "inventory": inventory,
            "boot_interface": inventory["boot"]["pxe_interface"],
            "configuration": {"collectors": ["default", "logs"], "managers": managers},
            "logs": words::LOGS,
            "error": null,
        });
        if let Some(disk) = inventory["disks"].get(0) {
            body["root_disk"] = disk.clone();
        }
        Ask {
            what: What::Inspection,
            method: "POST",
            path_and_query: "/v1/continue_inspection".to_owned(),
            version: None,
            body: body.to_string().into_bytes(),
        }
    }

    fn lookup(&self, what: What, node: Option<&str>) -> Ask {
        let macs: Vec<_> = self.setup.macs.iter().map(MacAddr::to_string).collect();
        let macs = macs.join("%2C").replace(':', "%3A");
        let node = node.map_or(String::new(), |node| format!("&node_uuid={node}"));
        let version = self.version.min(TELLS_TOKEN);
        let path = format!("/v1/lookup?addresses={macs}{node}");
        get(what, &path, Some(version))
    }

    fn heartbeat(&self) -> Ask {
        let mut body = json!({ "callback_url": self.callback_url() });
        if self.version >= TELLS_TOKEN {
            body["agent_token"] = json!(self.token);
        }
        if self.version >= TELLS_VERSION {
            body["agent_version"] = VERSION.into();
        }
        if let Some(certificate) = &self.certificate {
            body["agent_verify_ca"] = certificate.as_str().into();
        }
        let node = self.node["uuid"].as_str().unwrap_or_default();
        let path = format!("/v1/heartbeat/{node}");
        let mut ask = get(What::Heartbeat, &path, Some(self.version.min(HAS_TLS)));
        (ask.method, ask.body) = ("POST", body.to_string().into_bytes());
        ask
    }
}

fn get(what: What, path: &str, version: Option<u32>) -> Ask {
    Ask {
        what,
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

/// A lookup answer that the agent can use.
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
