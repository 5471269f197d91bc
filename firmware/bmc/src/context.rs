//! What [`crate::Bmcs`] uses from outside: records, limits, time and randomness.

use trivet_model::{Entropy, MacAddr, Node, NodeId, Tick};

use crate::protocol::BmcProtocolContext;

/// The records of nodes, as far as they matter here.
pub trait BmcNodeRecords {
    /// The record of a node.
    fn node(&self, id: NodeId) -> Option<&Node>;

    /// The addresses of a node's ports, in order of creation.
    fn macs(&self, id: NodeId) -> Vec<MacAddr>;

    /// Whether the machine of this node is to boot the agent from the network.
    fn boots_agent(&self, node: &Node) -> bool;
}

/// Waiting times and numbers of retries. Each is a setting.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BmcLimits {
    /// The longest pause between two polls of a power state that should change.
    pub power_poll_ms: u64,
    /// How long a power change may take before its request is repeated, once.
    pub power_timeout_ms: u64,
    /// How long a job waits for a BMC that does not answer.
    pub bmc_wait_ms: u64,
    /// A BMC that answers but does nothing may be restarted.
    pub bmc_reset: bool,
    /// Pause between two tries of an order that failed.
    pub retry_ms: u64,
    /// After this many failed readings of the power state in a row a node is put in
    /// maintenance; 0 is never.
    pub power_sync_retries_max: u32,
    /// How often the power states of idle nodes are read, in ms; none is never.
    pub power_sync_interval_ms: Option<u64>,
}

/// What one call uses from outside.
pub struct BmcContext<'a> {
    /// The present time.
    pub now: Tick,
    /// The records of nodes.
    pub nodes: &'a dyn BmcNodeRecords,
    /// The settings.
    pub limits: BmcLimits,
    /// Randomness.
    pub entropy: &'a mut dyn Entropy,
}

impl BmcContext<'_> {
    /// The part of it that protocols use.
    pub(crate) fn of_protocol(&mut self) -> BmcProtocolContext<'_> {
        BmcProtocolContext {
            now: self.now,
            entropy: &mut *self.entropy,
        }
    }
}
