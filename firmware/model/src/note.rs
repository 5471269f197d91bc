//! What happened, as values: the timeline, the log line and the diagnosis are
//! renderings of these.

use core::fmt;
use core::net::Ipv4Addr;
use std::sync::Arc;

use crate::{Caller, MacAddr, NodeId, PowerState, ProvisionState, UnixMs};

/// Something that happened.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Note {
    /// When, by the wall clock.
    pub at: UnixMs,
    /// To which node, if it is one we know.
    pub node: Option<NodeId>,
    /// What.
    pub kind: NoteKind,
}

/// What happened.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum NoteKind {
    /// The node went on in its life.
    StateChanged {
        /// From here.
        from: ProvisionState,
        /// To here.
        to: ProvisionState,
    },
    /// The BMC said this.
    PowerIs(PowerState),
    /// Somebody must do by hand what a BMC would do.
    ByHand {
        /// What, such as `switch node-3 on now`.
        what: String,
    },
    /// The BMC failed an order.
    PowerFailed {
        /// The whole sentence.
        said: String,
    },
    /// An operator said something to the BMC or the agent by a vendor method.
    VendorCalled {
        /// Which, and what of it is no secret.
        method: String,
        /// What came of it.
        outcome: String,
    },
    /// An address was given.
    LeaseGranted {
        /// To whom.
        mac: MacAddr,
        /// Which.
        address: Ipv4Addr,
    },
    /// A machine that is no port of any node asked for an address.
    StrangerSeen {
        /// Its hardware address.
        mac: MacAddr,
    },
    /// A file went out, whole or short.
    FileSent {
        /// By TFTP or HTTP.
        by: &'static str,
        /// Which.
        path: String,
        /// How many bytes left.
        sent: u64,
        /// How many there were.
        size: u64,
    },
    /// An agent found its node.
    AgentLookedUp,
    /// An agent's first heartbeat of this boot.
    AgentReady {
        /// Its version.
        version: String,
    },
    /// A caller did not prove itself.
    CallerRefused {
        /// Why, without the secret.
        why: &'static str,
    },
    /// Somebody asked for a change.
    Asked {
        /// Who, from where, and by which request.
        caller: Arc<Caller>,
        /// For what, in a word or two.
        order: &'static str,
        /// Why it was not carried out, if it was not.
        refused: Option<String>,
    },
    /// Inspection data arrived.
    Inspected,
    /// A step began.
    StepStarted {
        /// Its name.
        step: String,
    },
    /// A step is done.
    StepDone {
        /// Its name.
        step: String,
    },
    /// A try failed and will be repeated.
    Retrying {
        /// What failed.
        why: String,
    },
    /// The job failed.
    Failed {
        /// The sentence that stands in `last_error`.
        why: String,
    },
}

impl fmt::Display for NoteKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StateChanged { from, to } => write!(out, "{from} -> {to}"),
            Self::PowerIs(state) => write!(out, "BMC says {state}"),
            Self::ByHand { what } => write!(out, "by hand: {what}"),
            Self::PowerFailed { said } => write!(out, "power order failed: {said}"),
            Self::VendorCalled { method, outcome } => write!(out, "{method}: {outcome}"),
            Self::LeaseGranted { mac, address } => write!(out, "{mac} has {address}"),
            Self::StrangerSeen { mac } => write!(out, "unknown machine {mac} asked for an address"),
            Self::FileSent {
                by,
                path,
                sent,
                size,
            } if sent == size => {
                write!(out, "{by} sent {path}, {size} bytes")
            }
            Self::FileSent {
                by,
                path,
                sent,
                size,
            } => {
                write!(out, "{by} sent {path} short: {sent} of {size} bytes")
            }
            Self::AgentLookedUp => write!(out, "agent found its node"),
            Self::AgentReady { version } => write!(out, "agent {version} is ready"),
            Self::CallerRefused { why } => write!(out, "caller refused: {why}"),
            Self::Asked {
                caller,
                order,
                refused: None,
            } => write!(out, "{order}, asked by {caller}"),
            Self::Asked {
                caller,
                order,
                refused: Some(why),
            } => write!(out, "{order} refused, asked by {caller}: {why}"),
            Self::Inspected => write!(out, "inventory arrived"),
            Self::StepStarted { step } => write!(out, "step {step} started"),
            Self::StepDone { step } => write!(out, "step {step} done"),
            Self::Retrying { why } => write!(out, "trying again: {why}"),
            Self::Failed { why } => write!(out, "failed: {why}"),
        }
    }
}
