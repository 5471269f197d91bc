//! Whoever holds an address: a running system, or a stranger on the wire.

use std::net::Ipv4Addr;

use trivet_dhcp::client::Client;
use trivet_model::{MacAddr, Tick};

/// A client that found no server asks again after this long.
const AGAIN_MS: u64 = 10_000;

/// A DHCP client that keeps its address.
pub(crate) struct Lodger {
    client: Client,
    /// The address and when the lease ends, as the client believes.
    holds: Option<(Ipv4Addr, Tick)>,
    renews: Option<Tick>,
    renewing: bool,
    again: Option<Tick>,
}

impl Lodger {
    pub(crate) fn start(now: Tick, mac: MacAddr, uuid: Option<[u8; 16]>, relay: Ipv4Addr) -> Self {
        let mut client = Client::new(mac, None, false, uuid, Some(relay));
        client.start(now);
        Self {
            client,
            holds: None,
            renews: None,
            renewing: false,
            again: None,
        }
    }

    /// The address it believes to hold now.
    pub(crate) fn holds(&self, now: Tick) -> Option<Ipv4Addr> {
        self.holds
            .filter(|(_, until)| now < *until)
            .map(|(address, _)| address)
    }

    pub(crate) fn transmit(&mut self) -> Option<Vec<u8>> {
        self.client.transmit()
    }

    pub(crate) fn deadline(&self) -> Option<Tick> {
        let own = self.client.deadline();
        let ends = self.holds.map(|(_, until)| until);
        own.into_iter()
            .chain(self.renews)
            .chain(self.again)
            .chain(ends)
            .min()
    }

    pub(crate) fn datagram(&mut self, now: Tick, bytes: &[u8]) {
        self.client.datagram(now, bytes);
        let settled = self.client.deadline().is_none();
        match self.client.bound() {
            Some(bound) if settled && (self.renewing || self.holds.is_none()) => {
                let lease_ms = u64::from(bound.lease_s) * 1000;
                self.renewing = false;
                self.holds = Some((bound.address, now.after_ms(lease_ms)));
                self.renews = Some(now.after_ms(lease_ms / 2));
            }
            Some(_) => {}
            None => self.has_none(),
        }
    }

    pub(crate) fn tick(&mut self, now: Tick) {
        self.client.tick(now);
        if self.client.has_given_up() {
            self.again.get_or_insert(now.after_ms(AGAIN_MS));
        }
        let again = self.again.take_if(|at| *at <= now).is_some();
        let over = self.holds.is_some_and(|(_, until)| until <= now);
        if again || over {
            self.has_none();
            self.client.start(now);
        } else if self.renews.take_if(|at| *at <= now).is_some() {
            self.renewing = true;
            self.client.renew(now);
        } else if self.renewing && self.client.deadline().is_none() {
            // Nobody answered; the lease still runs.
            self.renewing = false;
            self.renews = Some(now.after_ms(AGAIN_MS));
        }
    }

    fn has_none(&mut self) {
        (self.holds, self.renews, self.renewing) = (None, None, false);
    }
}
