//! DHCP server: leases, address pools, boot files.
//!
//! Sans-IO: frames, time and the list of known machines come in as arguments; replies and lease
//! changes go out as values. It decides which machine gets which address and which loader. It
//! does not know sockets, nodes or the store: a caller that gets lease changes makes them
//! durable before it sends the reply that came with them. Follows RFC 2131 and 2132, with 1542
//! and 3046 (relays), 3396 (long options), 4578 (PXE), 6842 (client identifiers) and 8357
//! (relay ports), and PXE 2.1 where another server gives the addresses.

mod boot;
pub mod client;
mod exchange;
mod foreign;
mod host_directory;
mod lease_table;
mod message;
mod pool;
mod reason;
mod reply;
mod server;
mod settings;
mod writer;

pub use foreign::DhcpForeignServer;
pub use host_directory::HostDirectory;
pub use lease_table::{
    FORMER_ADDRESSES_MAX, GRACE_MS, LEASES_MAX, LeaseChange, OFFER_HOLD_MS, OFFERS_MAX,
    QUARANTINE_MS, QUARANTINED_MAX, UNKNOWN_OFFERS_MAX,
};
pub use message::MESSAGE_BYTES_MAX;
pub use reason::Reason;
pub use server::{DhcpArrival, DhcpDestination, DhcpOutcome, DhcpReply, DhcpServer};
pub use settings::{
    BOOT_TEXT_BYTES_MAX, BootServer, DNS_MAX, DhcpLinkSettings, DhcpServerSettings,
    DhcpSettingsError, LEASE_S_MIN, LINKS_MAX, LoaderFileNames, SUBNETS_MAX, Subnet,
};
