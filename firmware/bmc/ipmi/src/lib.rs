//! IPMI 2.0 over RMCP+, client and simulated BMC, without input or output of their own.
//!
//! [`IpmiSession`] is the client: it logs in to one BMC, keeps the session and executes one order
//! at a time. [`bmc::IpmiSimulator`] is a simulated BMC for the simulation and the tests. Both
//! share one codec and the cipher suites 3 and 17. Datagrams, time and randomness are arguments and
//! datagrams to send are return values; this crate uses no socket and no clock. It follows the IPMI
//! v2.0 specification, revision 1.1; a constant from it names its section.

pub mod bmc;
mod boot;
mod channel;
mod client;
mod command;
mod completion_code;
mod conversion;
mod driver_info;
pub mod fru;
pub mod operation;
mod privilege;
mod protocol;
pub mod sdr;
pub mod sel;
mod suite;
mod wire;

#[cfg(test)]
mod tests;

pub use boot::BootFlags;
pub use client::{IpmiSession, IpmiTarget, IpmiTiming, ORDERS_WAITING_MAX};
pub use conversion::{to_bmc_reply, to_operation};
pub use driver_info::{ipmi_address, ipmi_target};
pub use privilege::IpmiPrivilege;
pub use protocol::IpmiProtocol;
pub use suite::IpmiCipherSuite;
pub use wire::PACKET_BYTES_MAX;
