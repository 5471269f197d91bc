//! Our agent, which implements the protocol of the Ironic Python Agent.
//!
//! Two parts. [`state_machine`] decides, without I/O: time, responses and requests come in,
//! requests, replies and work go out, so the simulated rack runs thousands of them in virtual
//! time. [`shell`] does the I/O: sockets, the disk, the clock. The state machine reports work
//! on a disk as done only when the shell has synced it.

pub mod hardware_manager;
pub mod parameters;
pub mod program;
pub mod ramdisk;
pub mod shell;
pub mod state_machine;

/// The version in heartbeats and `GET /v1/status`. The number is that of the stock agent whose
/// protocol this agent implements.
pub const AGENT_VERSION: &str = "13.0.0-trivet";

#[cfg(test)]
mod tests {
    use trivet_agent_wire::image::OWN_AGENT;

    #[test]
    fn the_version_says_that_it_is_our_own_agent() {
        assert!(super::AGENT_VERSION.ends_with(OWN_AGENT));
    }
}
