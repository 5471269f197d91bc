//! DHCP: leases, pools, boot answers.
//!
//! Sans-IO: frames, time and the list of known machines come in as arguments;
//! replies and lease changes go out as values. It decides who gets which
//! address and which loader. It refuses to know sockets, nodes and the store: a
//! caller that gets lease changes makes them durable before it sends the reply
//! that came with them. Follows RFC 2131 and 2132, with 1542 and 3046 (relays),
//! 3396 (long options), 4578 (PXE), 6842 (client identifiers) and 8357 (relay
//! ports). The wire format is dhcproto's, behind a guard of our own.

mod boot;
pub mod client;
mod frame;
mod pool;
mod reply;
mod server;
mod settings;
mod table;

pub use frame::{FRAME_BYTES_MAX, Reason};
pub use server::{Arrival, Destination, Outcome, Reply, Server};
pub use settings::{
    BOOT_TEXT_BYTES_MAX, BootServer, DNS_MAX, LEASE_S_MIN, Link, Loaders, Mistake, SUBNETS_MAX,
    Settings, Subnet,
};
pub use table::{
    GRACE_MS, LEASES_MAX, LeaseChange, OFFER_HOLD_MS, OFFERS_MAX, PAST_MAX, SET_ASIDE_MAX,
    SET_ASIDE_MS,
};
