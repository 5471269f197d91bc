//! One file per listener: each converts a protocol's bytes to inputs and back.

mod accept;
pub(crate) mod agents;
pub(crate) mod api;
pub(crate) mod bmc;
pub(crate) mod boot;
pub(crate) mod browser;
pub(crate) mod dhcp;
pub(crate) mod http;
pub(crate) mod inspector;
pub(crate) mod peer_limit;
pub(crate) mod redfish;
pub(crate) mod ssh;
mod stall_timeout;
pub(crate) mod tftp;
pub(crate) mod web;
