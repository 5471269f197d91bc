//! Decides the next requests of the agent, and replies to requests.
//!
//! Sans-IO. [`AgentState::due_requests`] returns the due requests; their responses are passed
//! to `handle_*_response`. [`AgentState::handle_request`] replies to the appliance; long work
//! goes out as an [`AgentWork`] and its result comes back through [`AgentState::work_done`].
//! Intervals, retries and states without exit are those of the stock agent: an appliance that
//! copes with them copes with the stock agent.

mod bootloader;
mod command_table;
mod erase;
mod image;
mod partitions;
mod request;
mod steps;
mod work;

use std::collections::VecDeque;

use serde_json::{Value, json};
use trivet_agent_wire::{
    CommandResult, HEARTBEAT_PATH, HeartbeatBody, LOOKUP_PATH, LookupAnswer, LookupNode,
    TOKEN_CHARS_MIN, TOKEN_MASK,
};
use trivet_model::{Entropy, MacAddr, NodeId, Tick};

use crate::AGENT_VERSION;
use crate::hardware_manager::ManagerFacts;
pub use bootloader::BootloaderOrder;
pub use erase::AgentEraseOrder;
pub use image::ImageOrder;
pub use partitions::PartitionOrder;
pub use request::{AgentApiReply, REQUEST_BYTES_MAX};
pub use steps::own_manager;
pub use work::{
    AgentWork, AgentWorkError, AgentWorkOutcome, ManagerRequest, WrittenDisk, WrittenPartitions,
};

/// How many commands are remembered. Ours: the stock agent remembers all.
pub const COMMANDS_MAX: usize = 256;

/// How many times inspection data is posted before the agent continues without. The stock
/// agent's number.
pub const INSPECTION_TRIES_MAX: u32 = 5;

/// The status that means "no response".
pub const NO_ANSWER: u16 = 0;

/// Identity of this machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AgentMachineIdentity {
    /// Its hardware addresses.
    pub macs: Vec<MacAddr>,
    /// Its hardware, as `inventory` in the protocol.
    pub inventory: Value,
    /// Its node, if it was given out of band.
    pub node: Option<NodeId>,
    /// Its token, if it was given out of band.
    pub token: Option<String>,
    /// The inspection data, if they were collected; otherwise they are the inventory alone.
    pub inspection: Option<Value>,
    /// Hardware managers that support this machine, beside our own.
    pub managers: Vec<ManagerFacts>,
}

/// The tasks of the agent.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AgentPlan {
    /// The URL where the appliance reaches it, without a slash at the end.
    pub callback_url: String,
    /// Whether inspection data is posted first.
    pub inspect: bool,
    /// Whether it looks up its node and sends heartbeats; otherwise it only serves.
    pub sends_heartbeats: bool,
    /// Intervals of the requests.
    pub intervals: AgentIntervals,
    /// The newest microversion of the appliance's API: 68 for 1.68. It decides which fields a
    /// heartbeat has.
    pub api_minor: u32,
    /// The certificate of the agent's own API, PEM, if it serves TLS.
    pub certificate: Option<String>,
}

/// The microversion that brought `agent_version` into heartbeats.
const AGENT_VERSION_MINOR: u32 = 36;
/// The microversion that brought `agent_token`.
const AGENT_TOKEN_MINOR: u32 = 62;
/// The microversion that brought `agent_verify_ca`. The stock agent serves TLS from here on.
pub const AGENT_VERIFY_CA_MINOR: u32 = 68;

/// Times between requests, in milliseconds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct AgentIntervals {
    /// The least time between two heartbeats, even for an early one.
    pub gap_ms: u64,
    /// After a rejected heartbeat: between once and twice this.
    pub retry_ms: u64,
    /// After the first failed lookup.
    pub lookup_ms: u64,
    /// The longest delay between lookups.
    pub lookup_ms_max: u64,
    /// The agent gives up the lookup after this.
    pub lookup_timeout_ms: u64,
}

impl AgentIntervals {
    /// The intervals of the stock agent.
    pub const STOCK: Self = Self {
        gap_ms: 5_000,
        retry_ms: 5_000,
        lookup_ms: 1_000,
        lookup_ms_max: 60_000,
        lookup_timeout_ms: 600_000,
    };

    /// Intervals for a simulation: the same sequence within seconds.
    pub const FAST: Self = Self {
        gap_ms: 100,
        retry_ms: 200,
        lookup_ms: 50,
        lookup_ms_max: 2_000,
        lookup_timeout_ms: 600_000,
    };
}

/// A request that is due. The shell knows the URLs.
#[derive(Clone, Debug, PartialEq)]
pub enum AgentDueRequest {
    /// Post this to the inspection URL.
    PostInspection {
        /// JSON.
        body: Vec<u8>,
    },
    /// Look up the node, with microversion [`trivet_agent_wire::LOOKUP_VERSION`].
    Lookup {
        /// Path below the API's URL.
        path_and_query: String,
    },
    /// Send a heartbeat, with microversion [`trivet_agent_wire::HEARTBEAT_VERSION`].
    Heartbeat {
        /// The node.
        node: NodeId,
        /// Path below the API's URL.
        path: String,
        /// JSON.
        body: Vec<u8>,
    },
}

/// The phase of the agent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AgentPhase {
    /// It posts inspection data.
    Inspecting,
    /// It looks up its node.
    LookingUp,
    /// It sends heartbeats and accepts commands.
    Beating,
    /// It was started only to inspect; it replies but sends no requests.
    Serving,
    /// The lookup returned the mask and it has no token: it does nothing until a power cycle,
    /// as the stock agent does.
    Stuck,
    /// No lookup succeeded for too long: the process ends.
    GaveUp,
    /// It set the rescue password and ended for the rescue.
    Rescued,
}

/// The state of the agent.
#[derive(Clone, Debug)]
pub struct AgentState {
    identity: AgentMachineIdentity,
    plan: AgentPlan,
    phase: AgentPhase,
    /// When the agent was started, in seconds since 1970.
    started_at_s: i64,
    due: Tick,
    in_flight: bool,
    tries: u32,
    conflicts: u32,
    lookup_since: Option<Tick>,
    heartbeat_at: Option<Tick>,
    heartbeat_wanted: bool,
    heartbeat_timeout_ms: u64,
    node: Option<(NodeId, LookupNode)>,
    commands: VecDeque<CommandResult>,
    command_serial: u64,
    running: Option<work::RunningAgentCommand>,
    /// The disk that an image was written to.
    written: Option<WrittenDisk>,
    /// A deployment has begun to write: nothing is written ahead until the disks are erased, not
    /// even by an order that was on its way for long.
    is_deployed: bool,
    /// The command that writes an image ahead; it does not keep the agent from other commands.
    ahead: Option<String>,
}

impl AgentState {
    /// An agent that has just started. Its first request is due at once.
    pub fn new(identity: AgentMachineIdentity, plan: AgentPlan) -> Self {
        let state = match (plan.inspect, plan.sends_heartbeats) {
            (true, _) => AgentPhase::Inspecting,
            (false, true) => AgentPhase::LookingUp,
            (false, false) => AgentPhase::Serving,
        };
        Self {
            identity,
            plan,
            phase: state,
            started_at_s: 0,
            due: Tick(0),
            in_flight: false,
            tries: 0,
            conflicts: 0,
            lookup_since: None,
            heartbeat_at: None,
            heartbeat_wanted: false,
            heartbeat_timeout_ms: 0,
            node: None,
            commands: VecDeque::new(),
            command_serial: 0,
            running: None,
            ahead: None,
            is_deployed: false,
            written: None,
        }
    }

    /// Sets the time of its start, in seconds since 1970. Without it that is zero.
    pub fn set_start_time(&mut self, started_at_s: i64) {
        self.started_at_s = started_at_s;
    }

    /// The present phase.
    pub fn phase(&self) -> AgentPhase {
        self.phase
    }

    /// Its node, once known.
    pub fn node(&self) -> Option<NodeId> {
        self.node.as_ref().map(|(id, _)| *id)
    }

    /// When [`Self::due_requests`] has something again; `None` while a response is pending or
    /// nothing is left to do.
    pub fn wake_at(&self) -> Option<Tick> {
        let is_requested = matches!(
            self.phase,
            AgentPhase::Inspecting | AgentPhase::LookingUp | AgentPhase::Beating
        );
        (is_requested && !self.in_flight).then_some(self.due)
    }

    /// The requests that are due. Each is returned once, then its response is expected.
    pub fn due_requests(&mut self, now: Tick) -> Vec<AgentDueRequest> {
        if self.wake_at().is_none_or(|due| due > now) {
            return Vec::new();
        }
        let act = match self.phase {
            AgentPhase::Inspecting => AgentDueRequest::PostInspection {
                body: self.inspection().to_string().into_bytes(),
            },
            AgentPhase::LookingUp => {
                self.lookup_since.get_or_insert(now);
                AgentDueRequest::Lookup {
                    path_and_query: self.lookup_path(),
                }
            }
            AgentPhase::Beating => {
                let Some(node) = self.node() else {
                    return Vec::new();
                };
                self.heartbeat_at = Some(now);
                AgentDueRequest::Heartbeat {
                    node,
                    path: format!("{HEARTBEAT_PATH}{node}"),
                    body: self.heartbeat().to_string().into_bytes(),
                }
            }
            AgentPhase::Serving | AgentPhase::Stuck | AgentPhase::GaveUp | AgentPhase::Rescued => {
                return Vec::new();
            }
        };
        self.in_flight = true;
        vec![act]
    }

    /// Handles the response to inspection data. Any success with JSON counts, and names the
    /// node for the lookup.
    pub fn handle_inspection_response(
        &mut self,
        now: Tick,
        status: u16,
        body: &[u8],
        entropy: &mut dyn Entropy,
    ) {
        if self.phase != AgentPhase::Inspecting {
            return;
        }
        self.in_flight = false;
        self.tries += 1;
        let again = status == NO_ANSWER || status == 409 || status >= 500;
        if again && self.tries < INSPECTION_TRIES_MAX {
            let wait_ms = self.plan.intervals.retry_ms;
            self.due = now.after_ms(self.backoff_ms(wait_ms, wait_ms * 6, entropy));
            return;
        }
        if !again && status < 400 {
            let answer: Value = serde_json::from_slice(body).unwrap_or_default();
            let uuid = answer.get("uuid").and_then(Value::as_str);
            let node = uuid.and_then(|uuid| uuid.parse().ok());
            self.identity.node = node.or(self.identity.node);
        }
        self.tries = 0;
        self.due = now;
        self.phase = if self.plan.sends_heartbeats {
            AgentPhase::LookingUp
        } else {
            AgentPhase::Serving
        };
    }

    /// Handles the response to a lookup.
    pub fn handle_lookup_response(
        &mut self,
        now: Tick,
        status: u16,
        body: &[u8],
        entropy: &mut dyn Entropy,
    ) {
        if self.phase != AgentPhase::LookingUp {
            return;
        }
        self.in_flight = false;
        if status == 200 && self.accept_lookup(body) {
            self.due = now;
            return;
        }
        let since = self.lookup_since.unwrap_or(now);
        if now.since_ms(since) >= self.plan.intervals.lookup_timeout_ms {
            self.phase = AgentPhase::GaveUp;
            return;
        }
        self.tries += 1;
        let intervals = self.plan.intervals;
        let mut wait_ms = self.backoff_ms(intervals.lookup_ms, intervals.lookup_ms_max, entropy);
        if status == 409 {
            // The stock agent adds 5, then 10, then 30 s while the node is locked.
            let factor = [1, 2, 6][usize::try_from(self.conflicts.min(2)).unwrap_or(2)];
            wait_ms += intervals.retry_ms * factor;
            self.conflicts += 1;
        }
        self.due = now.after_ms(wait_ms);
    }

    /// Handles the response to a heartbeat. Only 202 is a success; no failure is fatal.
    pub fn handle_heartbeat_response(&mut self, now: Tick, status: u16, entropy: &mut dyn Entropy) {
        if self.phase != AgentPhase::Beating {
            return;
        }
        self.in_flight = false;
        let wait_ms = if status == 202 {
            let timeout_ms = self.heartbeat_timeout_ms;
            between(timeout_ms / 10 * 3, timeout_ms / 10 * 6, entropy)
        } else {
            let retry_ms = self.plan.intervals.retry_ms;
            between(retry_ms, retry_ms * 2, entropy)
        };
        self.due = now.after_ms(wait_ms);
        if core::mem::take(&mut self.heartbeat_wanted) {
            self.heartbeat_soon(now);
        }
    }

    /// Makes the next heartbeat due as soon as the minimum gap allows.
    fn heartbeat_soon(&mut self, now: Tick) {
        if self.in_flight {
            self.heartbeat_wanted = true;
            return;
        }
        let earliest = self
            .heartbeat_at
            .map_or(now, |at| at.after_ms(self.plan.intervals.gap_ms));
        self.due = self.due.min(earliest.max(now));
    }

    /// Takes the node and the token from a lookup response; false if it is invalid.
    fn accept_lookup(&mut self, body: &[u8]) -> bool {
        let Ok(answer) = serde_json::from_slice::<LookupAnswer>(body) else {
            return false;
        };
        let (Ok(node), Some(timeout_s)) = (answer.node.uuid.parse(), answer.heartbeat_timeout_s())
        else {
            return false;
        };
        let reported = answer.config.agent_token.as_deref();
        let reported =
            reported.filter(|token| token.len() >= TOKEN_CHARS_MIN || *token == TOKEN_MASK);
        self.phase = match reported {
            Some(TOKEN_MASK) if self.identity.token.is_none() => AgentPhase::Stuck,
            Some(TOKEN_MASK) | None => AgentPhase::Beating,
            Some(token) => {
                self.identity.token = Some(token.to_owned());
                AgentPhase::Beating
            }
        };
        self.heartbeat_timeout_ms = timeout_s.saturating_mul(1000);
        self.node = Some((node, answer.node));
        true
    }

    /// The node as the lookup returned it.
    fn cached_node(&self) -> Value {
        let node = self.node.as_ref().map(|(_, node)| json!(node));
        node.unwrap_or_default()
    }

    fn inspection(&self) -> Value {
        if let Some(collected) = &self.identity.inspection {
            return collected.clone();
        }
        let inventory = &self.identity.inventory;
        let root_disk = inventory.get("disks").and_then(|disks| disks.get(0));
        let boot = inventory
            .get("boot")
            .and_then(|boot| boot.get("pxe_interface"));
        json!({
            "inventory": inventory,
            "root_disk": root_disk,
            "boot_interface": boot,
            "configuration": {
                "collectors": ["default"],
                "managers": [{
                    "name": steps::MANAGER,
                    "version": steps::MANAGER_VERSION,
                }],
            },
            "error": null,
        })
    }

    fn lookup_path(&self) -> String {
        let macs: Vec<String> = self.identity.macs.iter().map(MacAddr::to_string).collect();
        let macs = macs.join(",").replace(':', "%3A").replace(',', "%2C");
        match self.identity.node {
            Some(node) => format!("{LOOKUP_PATH}?addresses={macs}&node_uuid={node}"),
            None => format!("{LOOKUP_PATH}?addresses={macs}"),
        }
    }

    fn heartbeat(&self) -> Value {
        let since = |minor: u32| self.plan.api_minor >= minor;
        let certificate = self.plan.certificate.clone();
        let mut heartbeat = json!(HeartbeatBody {
            callback_url: self.plan.callback_url.clone(),
            agent_token: self.identity.token.clone(),
            agent_version: Some(AGENT_VERSION.to_owned()),
            agent_verify_ca: certificate.filter(|_| since(AGENT_VERIFY_CA_MINOR)),
            ..HeartbeatBody::default()
        });
        // An older appliance refuses fields that it does not know, also null ones.
        if let Some(fields) = heartbeat.as_object_mut() {
            fields.retain(|name, _| match name.as_str() {
                "agent_token" => since(AGENT_TOKEN_MINOR),
                "agent_version" => since(AGENT_VERSION_MINOR),
                _ => true,
            });
        }
        heartbeat
    }

    /// A random delay whose upper bound doubles with each attempt.
    fn backoff_ms(&self, least_ms: u64, most_ms: u64, entropy: &mut dyn Entropy) -> u64 {
        let doubled = least_ms.saturating_mul(1 << self.tries.min(32));
        between(least_ms, doubled.min(most_ms), entropy)
    }
}

fn between(least: u64, most: u64, entropy: &mut dyn Entropy) -> u64 {
    let width = most.saturating_sub(least).saturating_add(1);
    least.saturating_add(entropy.number() % width)
}

#[cfg(test)]
mod tests;
