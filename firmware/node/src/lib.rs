//! One node's life: the state table, the verbs, and the jobs behind them.
//!
//! Everything here is a function from a node's record and an event to the next
//! record and the orders that follow. It does not know how a BMC or an agent is
//! reached, nor that there are other nodes. The record names in its job what it
//! waits for, so that [`Event::Restarted`] can give the order again: there is no
//! other recovery path.

mod job;
mod steps;
pub mod table;
mod verb;

pub use job::{awaits_reset, boots_agent, step, will_boot_agent};
pub use verb::apply_verb;

use serde_json::Value;
use trivet_model::node::JsonObject;
use trivet_model::{
    AgentError, AgentEvent, AgentOrder, AgentSession, Node, NoteKind, PowerAnswer, PowerError,
    PowerOrder,
};

/// Where the hashed rescue password stands in `instance_info`, until it is handed over.
pub const RESCUE_HASH: &str = "hashed_rescue_password";

/// The interface that only pretends.
const FAKE: &str = "fake";

/// Something that happened to a node.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeEvent {
    /// The BMC did what it was asked, or finally failed. A change of power counts as done once
    /// the power state was seen to be as wanted; repeating requests and waiting for a BMC that
    /// does not answer is not the job's concern.
    Power(PowerOrder, Result<PowerAnswer, PowerError>),
    /// The agent answered an order, or did not.
    Agent(AgentOrder, Result<AgentEvent, AgentError>),
    /// The machine was heard on the wire.
    MachineSeen,
    /// The agent of this boot has proven itself and is alive.
    Heartbeat,
    /// The agent sent what it found.
    Inspected {
        /// Properties to merge into the node's.
        properties: JsonObject,
        /// The document to keep.
        inventory: Value,
        /// What the agent could not find out, in its words.
        complaint: Option<String>,
    },
    /// What the agent sent could not be used.
    NotInspected {
        /// Why.
        why: String,
    },
    /// The image that the node is to be written with cannot be used.
    ImageUnusable {
        /// The whole sentence, with what to do.
        why: String,
    },
    /// A file that the machine is to boot cannot be fetched or is not what it should be.
    BootFileUnusable {
        /// The whole sentence, with what to do.
        why: String,
    },
    /// The node's BMC switches another machine.
    WrongMachine {
        /// Which, and what to compare.
        why: String,
    },
    /// The present step failed for a reason that is gone: it is done again.
    StepAgain {
        /// What was the matter.
        why: String,
    },
    /// What followed from the last word about the node is too large for a record: that word is
    /// lost.
    RecordTooLarge,
    /// Two callers claim to be the agent of this boot.
    AgentContested {
        /// Both addresses, and what to do.
        why: String,
    },
    /// The time asked for by [`Action::WakeAfter`] has passed.
    TimerExpired,
    /// The box has restarted: nothing that was under way is known to be.
    Restarted,
}

/// What must follow.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeAction {
    /// Give this order to the BMC.
    Power(PowerOrder),
    /// Give this order to the agent.
    Agent(AgentOrder),
    /// Send [`Event::Woke`] after so many milliseconds, instead of any earlier
    /// wake-up of this node.
    WakeAfter(u64),
    /// Collect the logs of this agent, which is not the node's any more.
    CollectLogs(Box<AgentSession>),
    /// Switch the machine off, once its agent's logs are collected: its deployment failed.
    SwitchOffFailed,
    /// The agent answers although the BMC has switched its machine off. Send
    /// [`Event::WrongMachine`] with this sentence, and with the nodes that may have the other
    /// BMC.
    AgentContradictsBmc {
        /// The sentence about this node.
        why: String,
    },
    /// File this on the node's timeline.
    Note(NoteKind),
}

/// How long and how often. Each is a setting.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NodeLimits {
    /// How long a machine that was heard may take to its agent's first heartbeat.
    pub agent_wait_ms: u64,
    /// How long an agent at work may be silent: the heartbeat timeout it was told.
    pub heartbeat_timeout_ms: u64,
    /// How long a machine may take from power-on to its first sign of life.
    pub boot_ms: u64,
    /// The longest pause between two polls of a power state that should change.
    pub power_poll_ms: u64,
    /// How long a change of power may take before its request is repeated, once.
    pub power_timeout_ms: u64,
    /// How long a system that was asked to shut down may take.
    pub soft_off_ms: u64,
    /// How long a job waits for a BMC that does not answer.
    pub bmc_wait_ms: u64,
    /// A BMC that answers and does nothing may be restarted.
    pub bmc_reset: bool,
    /// A machine whose deployment failed is switched off.
    pub power_off_after_deploy_failure: bool,
    /// After so many failed readings of the power state in a row a node is in maintenance; 0 is
    /// never.
    pub power_sync_retries_max: u32,
    /// Between two tries of an order that failed.
    pub retry_ms: u64,
    /// How often one phase is tried.
    pub tries_max: u32,
    /// How often a machine is booted for one job.
    pub boots_max: u32,
    /// What automated cleaning erases.
    pub erase: EraseScope,
    /// Agents stay between two jobs.
    pub fast_track: bool,
}

/// What automated cleaning erases, of what the agent offers to.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum EraseScope {
    /// What tells how disks are divided.
    #[default]
    Metadata,
    /// All that the agent would.
    Full,
    /// Nothing.
    None,
}

impl Default for NodeLimits {
    /// Ironic's waiting times; the bounds are ours.
    fn default() -> Self {
        Self {
            agent_wait_ms: 1_800_000,
            heartbeat_timeout_ms: 300_000,
            boot_ms: 600_000,
            power_poll_ms: 3000,
            power_timeout_ms: 60_000,
            soft_off_ms: 600_000,
            bmc_wait_ms: 240_000,
            bmc_reset: true,
            power_off_after_deploy_failure: true,
            power_sync_retries_max: 3,
            retry_ms: 5000,
            tries_max: 10,
            boots_max: 4,
            erase: EraseScope::default(),
            fast_track: false,
        }
    }
}

/// A node on its way through one event: the record so far and what must follow.
struct NodeTransition<'a> {
    now: trivet_model::Now,
    limits: &'a NodeLimits,
    node: Node,
    actions: Vec<NodeAction>,
}
