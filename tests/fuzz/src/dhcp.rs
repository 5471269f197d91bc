//! DHCP: frames, the server's whole way from a frame to its answer, and the client that
//! simulated machines speak with.

pub(crate) mod client;
pub(crate) mod frame;
pub(crate) mod server;
mod wire;
