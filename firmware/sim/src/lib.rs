//! A simulated rack: machines and their BMCs, built on the product's own
//! message crates.
//!
//! Everything here is pure: a drive gives it datagrams, answers and time, and
//! carries out what it wants. There are two drives: `trivet demo` over real
//! sockets on loopback, and `tests/sim` in virtual time with faults from a seed.

mod chassis;
mod firmware;
mod hardware;
mod script;

pub use chassis::SimChassis;
pub use firmware::{SimBootNetwork, SimFirmware, SimFirmwareAction, SimFirmwareHandover};
pub use hardware::{BMC_PASSWORD, BMC_USER, SimHardware};
pub use script::AgentKernelArguments;
