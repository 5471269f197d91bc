//! IPMI 2.0 over RMCP+, both ends, without input or output of their own.
//!
//! [`Session`] is the appliance's end: it logs in to one BMC, keeps the session
//! and carries out one order at a time. [`bmc::Bmc`] is the other end, a
//! simulated BMC for the rehearsal and the tests. Both share one codec and the
//! cipher suites 3 and 17. Datagrams, time and randomness come in as arguments
//! and datagrams go out as values; neither end knows a socket or a clock. The
//! text followed is the IPMI v2.0 specification, revision 1.1; sections are
//! named where a constant comes from one.

pub mod bmc;
mod boot;
mod channel;
mod client;
mod command;
mod conversion;
pub mod fru;
pub mod operation;
mod privilege;
pub mod sdr;
pub mod sel;
mod suite;
mod wire;

#[cfg(test)]
mod tests;

pub use boot::BootFlags;
pub use client::{IpmiSession, IpmiTarget, IpmiTiming, ORDERS_WAITING_MAX};
pub use conversion::{to_bmc_reply, to_operation};
pub use privilege::IpmiPrivilege;
pub use suite::IpmiCipherSuite;
pub use wire::PACKET_BYTES_MAX;
