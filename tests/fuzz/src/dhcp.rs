//! DHCP: frames, the server from a frame to its reply, and the client of simulated machines.

pub(crate) mod client;
pub(crate) mod frame;
pub(crate) mod server;
mod wire;
