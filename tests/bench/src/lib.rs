//! Benchmarks beside their peers.
//!
//! Each benchmark measures ours and a peer in the same run and prints one line per
//! figure: name, ours, peer, ratio, spread. What they share is here. Where the peer
//! is too large to run beside us, its figures are constants with their source; where there is
//! none, a goal of ours stands in its place.

pub mod api;
pub mod bmcs;
pub mod claim;
pub mod deploy;
pub mod dhcp;
pub mod dhcp_load;
pub mod disk;
pub mod figure;
pub mod http_load;
pub mod images;
pub mod peers;
pub mod power;
pub mod process;
pub mod rack;
pub mod server;
pub mod tftp;
pub mod tftp_load;
