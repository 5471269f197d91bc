//! Leases.

use core::net::Ipv4Addr;

use serde::{Deserialize, Serialize};
use trivet_model::{Lease, MacAddr};

pub(super) const VERSION: u16 = 1;

/// Version 1, frozen.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LeaseV1 {
    mac: [u8; 6],
    address: [u8; 4],
}

impl LeaseV1 {
    pub(super) fn from_model(lease: &Lease) -> Self {
        let Lease { mac, address } = lease;
        Self {
            mac: mac.0,
            address: address.octets(),
        }
    }

    pub(super) fn into_model(self) -> Lease {
        let Self { mac, address } = self;
        Lease {
            mac: MacAddr(mac),
            address: Ipv4Addr::from(address),
        }
    }
}
