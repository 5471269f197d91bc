//! All BMCs of a rack, for every protocol, without input or output of their own.
//!
//! [`Bmcs`] decides what is sent to BMCs and what their answers mean: power changes with polls,
//! repetitions and the restart of a BMC, the periodic reading of power states, how well each BMC
//! answers, nodes that name the same BMC, and replies that callers wait for. A request is stored
//! with its origin ([`BmcRequestOrigin`]), and its answer is routed there. How a BMC is reached is
//! the matter of a protocol: a crate that implements [`BmcProtocol`]. The records of nodes are not
//! changed here; [`BmcOutcome`] says what follows for them.

mod bmcs;
mod conflicts;
mod context;
mod deferred_replies;
mod fake;
mod health;
pub mod http;
mod measurements;
mod message;
mod outcome;
mod power_change;
mod power_changes;
mod power_sync;
mod protocol;
pub mod ssh_host;
mod vendor;

#[cfg(test)]
mod tests;

pub use bmcs::Bmcs;
pub use context::{BmcContext, BmcLimits, BmcNodeRecords};
pub use deferred_replies::{
    BMC_REPLY_MS_MAX, DEFERRED_REPLIES_MAX, DEFERRED_REPLY_MS_MAX, DeferredReplies, DeferredReply,
    no_reply_in_time, node_deleted,
};
pub use fake::{FakeProtocol, ManualProtocol};
pub use message::{BmcHttpCall, BmcMessage, BmcSshRun, BmcTransmit};
pub use outcome::{BmcOrderOwner, BmcOutcome, BmcRequestOrigin, MailboxUse};
pub use power_change::{PowerChangeRules, PowerChangeStart};
pub use protocol::{
    BmcInterface, BmcOrderStep, BmcProtocol, BmcProtocolContext, BmcProtocolEvent, BmcReach,
    BmcTarget, driver_info_changed,
};
