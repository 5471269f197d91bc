//! A simulated rack: machines and their BMCs, built on the product's own message crates.
//!
//! Sans-IO: a driver passes in datagrams, replies and time, and executes the requested actions.
//! There are two drivers: `trivet demo` over real sockets on loopback, and `tests/sim` in
//! virtual time with faults from a seed.

mod chassis;
mod firmware;
mod hardware;
mod script;

pub use chassis::SimChassis;
pub use firmware::{SimBootNetwork, SimFirmware, SimFirmwareAction, SimFirmwareHandover};
pub use hardware::{BMC_PASSWORD, BMC_USER, SimHardware};
pub use script::AgentKernelArguments;
