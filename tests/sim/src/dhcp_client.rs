//! A DHCP client that keeps its address: a running system, or an unknown machine.

use std::net::Ipv4Addr;

use trivet_dhcp::client::DhcpClient;
use trivet_model::{MacAddr, Tick};

/// A client that found no server retries after this long.
const RETRY_MS: u64 = 10_000;

/// A DHCP client that keeps its address.
pub(crate) struct RenewingDhcpClient {
    client: DhcpClient,
    /// The address and when the lease ends, by the client's clock.
    lease: Option<(Ipv4Addr, Tick)>,
    renew_at: Option<Tick>,
    renewing: bool,
    retry_at: Option<Tick>,
}

impl RenewingDhcpClient {
    pub(crate) fn start(now: Tick, mac: MacAddr, uuid: Option<[u8; 16]>, relay: Ipv4Addr) -> Self {
        let mut client = DhcpClient::new(mac, None, false, uuid, Some(relay));
        client.start(now);
        Self {
            client,
            lease: None,
            renew_at: None,
            renewing: false,
            retry_at: None,
        }
    }

    /// The address it uses now.
    pub(crate) fn address(&self, now: Tick) -> Option<Ipv4Addr> {
        self.lease
            .filter(|(_, until)| now < *until)
            .map(|(address, _)| address)
    }

    pub(crate) fn transmit(&mut self) -> Option<Vec<u8>> {
        self.client.transmit()
    }

    pub(crate) fn deadline(&self) -> Option<Tick> {
        let own = self.client.deadline();
        let ends = self.lease.map(|(_, until)| until);
        own.into_iter()
            .chain(self.renew_at)
            .chain(self.retry_at)
            .chain(ends)
            .min()
    }

    pub(crate) fn datagram(&mut self, now: Tick, bytes: &[u8]) {
        self.client.datagram(now, bytes);
        let settled = self.client.deadline().is_none();
        match self.client.bound() {
            Some(bound) if settled && (self.renewing || self.lease.is_none()) => {
                let lease_ms = u64::from(bound.lease_s) * 1000;
                self.renewing = false;
                self.lease = Some((bound.address, now.after_ms(lease_ms)));
                self.renew_at = Some(now.after_ms(lease_ms / 2));
            }
            Some(_) => {}
            None => self.clear_lease(),
        }
    }

    pub(crate) fn tick(&mut self, now: Tick) {
        self.client.tick(now);
        if self.client.has_given_up() {
            self.retry_at.get_or_insert(now.after_ms(RETRY_MS));
        }
        let again = self.retry_at.take_if(|at| *at <= now).is_some();
        let over = self.lease.is_some_and(|(_, until)| until <= now);
        if again || over {
            self.clear_lease();
            self.client.start(now);
        } else if self.renew_at.take_if(|at| *at <= now).is_some() {
            self.renewing = true;
            self.client.renew(now);
        } else if self.renewing && self.client.deadline().is_none() {
            // No server replied; the lease is still valid.
            self.renewing = false;
            self.renew_at = Some(now.after_ms(RETRY_MS));
        }
    }

    fn clear_lease(&mut self) {
        (self.lease, self.renew_at, self.renewing) = (None, None, false);
    }
}
