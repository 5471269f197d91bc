//! A simulated rack: machines and their BMCs, built on the product's own
//! message crates.
//!
//! Everything here is pure: a drive gives it datagrams, answers and time, and
//! carries out what it wants. There are two drives: `trivet demo` over real
//! sockets on loopback, and `tests/sim` in virtual time with faults from a seed.

mod case;
mod firmware;
mod hardware;
mod script;

pub use case::Case;
pub use firmware::{Do, Ended, Firmware, Place};
pub use hardware::{BMC_PASSWORD, BMC_USER, Hardware};
pub use script::KernelLine;
