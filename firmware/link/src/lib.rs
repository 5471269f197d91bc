//! Ethernet frames around DHCP.
//!
//! A machine without an IP address can only be reached by a complete Ethernet frame, and
//! traffic of other machines can only be received as frames. This crate decodes received frames
//! ([`parse_frame`]) and encodes replies ([`dhcp_reply_frame`], [`arp_probe_frame`],
//! [`RouterAdvertiser`]). The wire formats are implemented by smoltcp. It never decodes a DHCP
//! message and never opens a socket.

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
