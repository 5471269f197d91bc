//! Benchmarks compared with peers.
//!
//! Each benchmark measures our program and a peer in the same run and prints one line per
//! figure: name, ours, peer, ratio, spread. The shared code is here. If the peer is too large
//! to run here, its figures are constants with their source; if there is none, the comparison
//! is with a goal of ours.

pub mod agent;
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
pub mod metrics;
pub mod peers;
pub mod power;
pub mod process;
pub mod rack;
pub mod server;
pub mod tftp;
pub mod tftp_load;
