//! The state machine of one node: the state table, the verbs, and the jobs that they start.
//!
//! Everything here is a function from a node's record and an event to the next record and the
//! orders that follow. This crate does not know how a BMC or an agent is reached, nor that
//! there are other nodes. The job in the record contains what it waits for, so that
//! [`NodeEvent::Restarted`] can send the order again: there is no other recovery path.

mod job;
mod steps;
pub mod table;
mod verb;

pub use job::{awaits_reset, boots_agent, may_write_ahead, step, will_boot_agent};
pub use verb::{apply_verb, check_state};

use serde_json::Value;
use trivet_model::node::JsonObject;
use trivet_model::{
    AgentError, AgentEvent, AgentOrder, AgentSession, ImageAhead, Node, NoteKind, PowerAnswer,
    PowerError, PowerOrder,
};

/// The key of the hashed rescue password in `instance_info`, until the agent has received it.
pub const RESCUE_HASH: &str = "hashed_rescue_password";

/// An event of one node.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeEvent {
    /// The BMC carried out an order, or finally failed. A power change counts as done once the
    /// power state was seen to be as wanted. Repeating requests and waiting for a BMC that does
    /// not answer are not the job's concern.
    Power(PowerOrder, Result<PowerAnswer, PowerError>),
    /// The agent replied to an order, or did not.
    Agent(AgentOrder, Result<AgentEvent, AgentError>),
    /// The BMC has the medium that the machine is to boot from, or could not get it.
    MediumReady(Result<(), PowerError>),
    /// The BMC has the one-time token of the coming boot, or cannot have it. A machine without a
    /// token boots all the same: what its agent may do then is decided when it calls.
    TokenSent,
    /// The machine was seen on the network.
    MachineSeen,
    /// The agent of this boot was authenticated and sent a heartbeat.
    Heartbeat,
    /// The agent sent its inspection data.
    Inspected {
        /// Properties to merge into the node's.
        properties: JsonObject,
        /// The document to store.
        inventory: Value,
        /// What the agent could not find out, in its own text.
        complaint: Option<String>,
    },
    /// The inspection data could not be used.
    NotInspected {
        /// The reason.
        why: String,
    },
    /// The image that is to be written to the node cannot be used.
    ImageUnusable {
        /// The whole error message, with what to do next.
        why: String,
    },
    /// A file that the machine is to boot cannot be fetched or is not what it should be.
    BootFileUnusable {
        /// The whole error message, with what to do next.
        why: String,
    },
    /// The node's BMC switches another machine.
    WrongMachine {
        /// The other machine, and what to compare.
        why: String,
    },
    /// The present step failed for a reason that has ended: it is retried.
    StepAgain {
        /// That reason.
        why: String,
    },
    /// The record that followed from the last event is too large for the store: that event is
    /// lost.
    RecordTooLarge,
    /// Two callers claim to be the agent of this boot.
    AgentContested {
        /// Both addresses, and what to do next.
        why: String,
    },
    /// The rack has chosen this image to be written ahead.
    ImageAheadDue(Box<ImageAhead>),
    /// The time of [`NodeAction::WakeAfter`] has passed.
    TimerExpired,
    /// The box has restarted: the state of everything that was under way is unknown.
    Restarted,
}

/// An action that must follow.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeAction {
    /// Send this order to the BMC.
    Power(PowerOrder),
    /// Have the BMC insert the medium that the machine is to boot from. The result is
    /// [`NodeEvent::MediumReady`].
    InsertMedium,
    /// Have the BMC remove that medium. It is not awaited: a medium that stays does not harm.
    EjectMedium,
    /// Make a one-time token for the coming boot, store it and write it into the boot mailbox.
    /// The result is [`NodeEvent::TokenSent`].
    SendToken,
    /// Clear the boot mailbox. It is not awaited: the token in it is no longer valid.
    ClearMailbox,
    /// Send this order to the agent.
    Agent(AgentOrder),
    /// Send [`NodeEvent::TimerExpired`] after this many milliseconds. It replaces any earlier
    /// timer of this node.
    WakeAfter(u64),
    /// Collect the logs of this agent, whose session has ended.
    CollectLogs(Box<AgentSession>),
    /// Switch the machine off, once its agent's logs are collected: its deployment failed.
    SwitchOffFailed,
    /// The agent answers although the BMC has switched its machine off. Send
    /// [`NodeEvent::WrongMachine`] with this sentence, and with the nodes that may have the
    /// other BMC.
    AgentContradictsBmc {
        /// The sentence about this node.
        why: String,
    },
    /// The machine did not come up, or lost its agent, in this boot. It is booted again, unless
    /// this was the last boot: then the job has failed.
    BootFailed {
        /// What was missing.
        why: String,
        /// The number of boots, if this was the last one.
        last_of: Option<u32>,
    },
    /// Add this note to the node's timeline.
    Note(NoteKind),
}

/// Time-outs and numbers of retries. Each is a setting.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a setting")]
pub struct NodeLimits {
    /// Time from when a machine was first seen to its agent's first heartbeat.
    pub agent_wait_ms: u64,
    /// How long an agent at work may be silent: the heartbeat timeout that was sent to it.
    pub heartbeat_timeout_ms: u64,
    /// How long a machine may take from power-on until it is first seen on the network.
    pub boot_ms: u64,
    /// The longest pause between two polls of a power state that should change.
    pub power_poll_ms: u64,
    /// How long a power change may take before its request is repeated, once.
    pub power_timeout_ms: u64,
    /// How long a system may take to shut down after a soft request.
    pub soft_off_ms: u64,
    /// How long a job waits for a BMC that does not answer.
    pub bmc_wait_ms: u64,
    /// A BMC that answers but does nothing may be restarted.
    pub bmc_reset: bool,
    /// A machine whose deployment failed is switched off.
    pub power_off_after_deploy_failure: bool,
    /// After this many failed readings of the power state in a row a node is put in
    /// maintenance; 0 is never.
    pub power_sync_retries_max: u32,
    /// Pause between two tries of an order that failed.
    pub retry_ms: u64,
    /// How often one phase is tried.
    pub tries_max: u32,
    /// How often a machine is booted for one job.
    pub boots_max: u32,
    /// What automated cleaning erases.
    pub erase: EraseScope,
    /// Agents keep running between two jobs.
    pub fast_track: bool,
    /// Before each boot of the agent a one-time token is written into the BMC.
    pub sends_tokens: bool,
}

/// Which of the agent's erase steps automated cleaning runs.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum EraseScope {
    /// Only the metadata of disks (partition tables).
    #[default]
    Metadata,
    /// All erase steps that the agent offers.
    Full,
    /// No erase steps.
    None,
}

impl Default for NodeLimits {
    /// Ironic's waiting times; the numbers of tries are ours.
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
            sends_tokens: false,
        }
    }
}

/// A node during one event: the record so far and the actions that follow.
struct NodeTransition<'a> {
    now: trivet_model::Now,
    limits: &'a NodeLimits,
    node: Node,
    actions: Vec<NodeAction>,
}
