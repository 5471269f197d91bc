//! Leases: the table of their fields, and the reader of version 1.

use core::net::Ipv4Addr;

use serde::Deserialize;
use trivet_model::{Lease, MacAddr};

use super::codec::{Ipv4, Mac};
use super::tagged::tagged_fields;

/// The version of lease records with tagged fields. Further fields do not raise it.
pub(super) const VERSION: u16 = 2;

tagged_fields! {
    /// Fields of a lease.
    LeaseFields: Lease {
        1 "mac" mac: Mac;
        2 "address" address: Ipv4;
    }
}

/// Version 1, frozen.
#[derive(Debug, Deserialize)]
pub(super) struct LeaseV1 {
    mac: [u8; 6],
    address: [u8; 4],
}

impl LeaseV1 {
    pub(super) fn into_model(self) -> Lease {
        let Self { mac, address } = self;
        Lease {
            mac: MacAddr(mac),
            address: Ipv4Addr::from(address),
        }
    }
}
