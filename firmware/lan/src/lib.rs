//! Ethernet frames around DHCP.
//!
//! A machine without an address can only be reached by a frame that is written whole,
//! and what others say on a wire is heard best the same way. This room turns frames
//! into what they mean ([`hear`]) and answers into frames ([`answer`], [`probe`],
//! [`Advertiser`]). The wire formats are smoltcp's. It never looks into a DHCP message
//! and never opens a socket.

#![cfg_attr(not(test), no_std)]

extern crate alloc;

mod advertise;
mod claims;
mod hear;
mod say;
#[cfg(test)]
mod testing;

pub use advertise::{ANSWERS_PER_S_MAX, Advertiser, SOLICITED_GROUP, SOLICITED_MAC};
pub use claims::{CLAIMS_MAX, Claims};
pub use hear::{BOOT_PORT, CLIENT_PORT, Checksums, Heard, SERVER_PORT, Unheard, hear};
pub use say::{PAYLOAD_BYTES_MAX, Target, answer, probe};
