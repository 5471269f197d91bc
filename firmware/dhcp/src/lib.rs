//! DHCP: leases, pools, boot answers.
//!
//! Sans-IO: frames, time and the list of known machines come in as arguments;
//! replies and lease changes go out as values. It decides who gets which
//! address and which loader. It refuses to know sockets, nodes and the store: a
//! caller that gets lease changes makes them durable before it sends the reply
//! that came with them. Follows RFC 2131 and 2132, with 1542 and 3046 (relays),
//! 3396 (long options), 4578 (PXE), 6842 (client identifiers) and 8357 (relay
//! ports), and PXE 2.1 where another server gives the addresses.

mod boot;
pub mod client;
mod foreign;
mod frame;
mod machines;
mod pool;
mod reason;
mod reply;
mod server;
mod settings;
mod table;
mod turn;
mod writer;

pub use foreign::Foreign;
pub use frame::FRAME_BYTES_MAX;
pub use machines::Machines;
pub use reason::Reason;
pub use server::{Arrival, Destination, Outcome, Reply, Server};
pub use settings::{
    BOOT_TEXT_BYTES_MAX, BootServer, DNS_MAX, LEASE_S_MIN, LINKS_MAX, Link, Loaders, Mistake,
    SUBNETS_MAX, Settings, Subnet,
};
pub use table::{
    GRACE_MS, LEASES_MAX, LeaseChange, OFFER_HOLD_MS, OFFERS_MAX, PAST_MAX, SET_ASIDE_MAX,
    SET_ASIDE_MS, STRANGERS_OFFERS_MAX,
};
