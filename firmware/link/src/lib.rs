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
mod arp_claim;
mod receive;
mod send;
#[cfg(test)]
mod testing;

pub use advertise::{ALL_ROUTERS, ALL_ROUTERS_MAC, ANSWERS_PER_S_MAX, RouterAdvertiser};
pub use arp_claim::{ArpClaims, CLAIMS_MAX};
pub use receive::{
    BOOT_PORT, CLIENT_PORT, ChecksumStatus, FrameError, ReceivedPacket, SERVER_PORT, parse_frame,
};
pub use send::{DhcpReplyTarget, PAYLOAD_BYTES_MAX, arp_probe_frame, dhcp_reply_frame};
