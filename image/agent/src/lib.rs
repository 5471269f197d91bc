//! Our agent: the same protocol as the Ironic Python Agent.
//!
//! Two halves. [`brain`] decides and is pure: time, answers and requests come in,
//! acts, replies and work go out, so the simulated rack runs thousands of it in
//! virtual time. [`shell`] does: sockets, the disk, the clock. What the brain says
//! about a disk is true only when the shell has synced it.

pub mod shell;
pub mod state_machine;

/// What heartbeats and `GET /v1/status` give as our version. The number is that of
/// the stock agent whose protocol this one speaks.
pub const AGENT_VERSION: &str = "13.0.0-trivet";
