//! The origin of a BMC request, and its outcome.

use serde_json::Value;
use trivet_model::power::HardwareHealth;
use trivet_model::view::BmcHealth;
use trivet_model::{
    BmcReply, BmcRequest, BoxFault, NodeId, NoteKind, OrderRefusal, PowerAnswer, PowerError,
    PowerOrder,
};

/// For whom an order is carried out.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BmcOrderOwner {
    /// For the node's job.
    Job,
    /// For an operator, or for the box itself after a job.
    Operator,
}

/// What a job writes into the boot mailbox.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MailboxUse {
    /// The one-time token of the coming boot.
    Token,
    /// Zeros, at the end of a boot.
    Clearing,
}

/// The origin of one request to a BMC. It is stored with the request, and its answer goes there.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BmcRequestOrigin {
    /// A single order.
    Order(BmcOrderOwner),
    /// The power change that is under way: a request, a poll, or the restart of the BMC.
    PowerChange,
    /// A reading of the power sync.
    PowerSync,
    /// A request of a job about the medium that its machine boots from.
    Medium {
        /// It removes the medium.
        ejects: bool,
    },
    /// A request of a job to write the boot mailbox.
    Mailbox(MailboxUse),
    /// A vendor method or a BMC request; the caller's reply has this ticket.
    Vendor {
        /// The ticket of the reply.
        ticket: u64,
    },
}

/// What follows from requests and answers, for the records and their readers.
#[derive(Debug, PartialEq)]
pub enum BmcOutcome {
    /// A note for the timeline of a node.
    Note {
        /// The node.
        node: NodeId,
        /// The note.
        kind: NoteKind,
    },
    /// A fault that stays until it is cleared. It may be raised already.
    FaultRaised(BoxFault),
    /// A fault has ended.
    FaultCleared(BoxFault),
    /// How well a BMC answers has changed.
    HealthChanged {
        /// The node.
        node: NodeId,
        /// The new values.
        health: BmcHealth,
    },
    /// What a BMC reports about the hardware of its machine has changed.
    HardwareHealth {
        /// The node.
        node: NodeId,
        /// The new value; none if the BMC reports none.
        health: Option<HardwareHealth>,
    },
    /// A request to switch on or to restart is sent now.
    SwitchOnSent {
        /// The node.
        node: NodeId,
        /// The request.
        order: PowerOrder,
    },
    /// An order has ended, after polls and repetitions.
    OrderCompleted {
        /// The node.
        node: NodeId,
        /// For whom it was carried out.
        owner: BmcOrderOwner,
        /// The order.
        order: PowerOrder,
        /// The result.
        result: Result<PowerAnswer, PowerError>,
    },
    /// A request about the medium that a machine boots from has ended.
    MediumAnswered {
        /// The node.
        node: NodeId,
        /// It removes the medium.
        ejects: bool,
        /// The result.
        result: Result<(), PowerError>,
    },
    /// A request of a job to write the boot mailbox has ended.
    MailboxWritten {
        /// The node.
        node: NodeId,
        /// What was written.
        of: MailboxUse,
        /// The result.
        result: Result<(), PowerError>,
    },
    /// The power sync has read the power state of an idle node.
    PowerRead {
        /// The node.
        node: NodeId,
        /// The answer.
        answer: PowerAnswer,
    },
    /// The power sync could not read the power state so often that the node is put in
    /// maintenance.
    PowerUnreadable {
        /// The node.
        node: NodeId,
        /// The last error.
        error: PowerError,
    },
    /// A BMC request of a caller has succeeded; the reply follows.
    RequestCompleted {
        /// The node.
        node: NodeId,
        /// The request.
        request: BmcRequest,
        /// The BMC's reply.
        reply: BmcReply,
    },
    /// The deferred reply to a caller.
    ReplyReady {
        /// The ticket of the reply.
        ticket: u64,
        /// The reply, or an error.
        result: Result<Value, OrderRefusal>,
    },
}

/// The note of an order that failed.
pub(crate) fn power_failed(error: &PowerError) -> NoteKind {
    NoteKind::PowerFailed {
        kind: error.root().kind(),
        message: error.to_string(),
    }
}
