//! Who holds which address until when.
//!
//! Three kinds of holding: an offer (short, in memory only), a lease, and an
//! address set aside because somebody said it is in use. Each address has at
//! most one holding and each machine at most one lease and one offer, whatever
//! the subnets. When a holding ends is decided by the monotonic clock alone.

use core::net::Ipv4Addr;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use trivet_model::{Lease, MacAddr, Tick};

use crate::frame::Reason;
use crate::pool::Pool;
use crate::settings::{SUBNETS_MAX, Settings};

/// Leases at the same time. Ours.
pub const LEASES_MAX: usize = 65_536;

/// Offers at the same time. Ours: a flood of invented machines ends here.
pub const OFFERS_MAX: usize = 4096;

/// Addresses set aside at the same time; one more gives the oldest back. Ours.
pub const SET_ASIDE_MAX: usize = 256;

/// Former addresses remembered, so that a machine gets its old one. Ours.
pub const PAST_MAX: usize = 4096;

/// How long an offer is held. Ours: iPXE may ask for it seconds later.
pub const OFFER_HOLD_MS: u64 = 60_000;

/// How long a refused address is not given. Ours.
pub const SET_ASIDE_MS: u64 = 600_000;

/// How long past its end a lease is still kept. Ours: the client's clock starts
/// when our reply arrives, which is after ours by the time of commit and wire.
pub const GRACE_MS: u64 = 30_000;

/// What must be durable before the reply that came with it may leave.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LeaseChange {
    /// The machine has the address from now on.
    Granted(Lease),
    /// It has it no longer.
    Released(Lease),
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Offer,
    Lease,
    SetAside,
}

#[derive(Clone, Copy, Debug)]
struct Holding {
    kind: Kind,
    mac: MacAddr,
    until: Tick,
}

#[derive(Clone, Copy, Debug, Default)]
struct Places {
    lease: Option<Ipv4Addr>,
    offer: Option<Ipv4Addr>,
}

#[derive(Clone, Debug)]
pub(crate) struct Table {
    lease_ms: u64,
    pools: Vec<Pool>,
    held: BTreeMap<Ipv4Addr, Holding>,
    ends: BTreeSet<(Tick, Ipv4Addr)>,
    machines: BTreeMap<MacAddr, Places>,
    past: BTreeMap<MacAddr, Ipv4Addr>,
    set_aside: VecDeque<Ipv4Addr>,
    leases: usize,
    offers: usize,
}

impl Table {
    pub(crate) fn new(settings: &Settings) -> Self {
        let subnets = settings.subnets.iter().take(SUBNETS_MAX);
        Self {
            lease_ms: u64::from(settings.lease_s) * 1000,
            pools: subnets.map(Pool::new).collect(),
            held: BTreeMap::new(),
            ends: BTreeSet::new(),
            machines: BTreeMap::new(),
            past: BTreeMap::new(),
            set_aside: VecDeque::new(),
            leases: 0,
            offers: 0,
        }
    }

    pub(crate) fn lease_of(&self, mac: MacAddr) -> Option<Ipv4Addr> {
        self.machines.get(&mac)?.lease
    }

    pub(crate) fn offer_of(&self, mac: MacAddr) -> Option<Ipv4Addr> {
        self.machines.get(&mac)?.offer
    }

    pub(crate) fn leases(&self) -> impl Iterator<Item = Lease> {
        self.machines.iter().filter_map(|(&mac, places)| {
            let address = places.lease?;
            Some(Lease { mac, address })
        })
    }

    /// Could `mac` have `address` of this subnet: is it its own, or nobody's?
    pub(crate) fn may_have(&self, subnet: usize, mac: MacAddr, address: Ipv4Addr) -> bool {
        let Some(pool) = self.pools.get(subnet) else {
            return false;
        };
        match self.held.get(&address) {
            Some(holding) => {
                holding.mac == mac && holding.kind != Kind::SetAside && pool.covers(address)
            }
            None => pool.is_free(address),
        }
    }

    /// Is the address of this subnet ours to give, now or later?
    pub(crate) fn covers(&self, subnet: usize, address: Ipv4Addr) -> bool {
        self.pools
            .get(subnet)
            .is_some_and(|pool| pool.covers(address))
    }

    /// Finds an address to offer: the one the machine has, was offered, wishes
    /// or had, and else the next in turn (RFC 2131 section 4.3.1).
    pub(crate) fn offer(
        &mut self,
        now: Tick,
        subnet: usize,
        mac: MacAddr,
        wish: Option<Ipv4Addr>,
        changes: &mut Vec<LeaseChange>,
    ) -> Result<Ipv4Addr, Reason> {
        let until = now.after_ms(OFFER_HOLD_MS);
        let own = [self.lease_of(mac), self.offer_of(mac)];
        if let Some(address) = own
            .into_iter()
            .flatten()
            .find(|&own| self.covers(subnet, own))
        {
            self.hold_until(address, until);
            return Ok(address);
        }
        if let Some(elsewhere) = self.offer_of(mac) {
            self.free(elsewhere);
        }
        if self.offers >= OFFERS_MAX {
            changes.extend(self.expire(now));
        }
        if self.offers >= OFFERS_MAX {
            return Err(Reason::TooManyOffers);
        }
        let past = self.past.get(&mac).copied();
        let wished = [wish, past].into_iter().flatten();
        let wished = wished.into_iter().find(|&address| {
            self.pools
                .get(subnet)
                .is_some_and(|pool| pool.is_free(address))
        });
        let found = wished.or_else(|| self.next(subnet));
        let address = if let Some(address) = found {
            address
        } else {
            changes.extend(self.expire(now));
            self.next(subnet).ok_or(Reason::PoolExhausted)?
        };
        self.hold(address, Kind::Offer, mac, until);
        Ok(address)
    }

    /// Gives `address`, which [`Table::may_have`] has allowed.
    pub(crate) fn grant(
        &mut self,
        now: Tick,
        mac: MacAddr,
        address: Ipv4Addr,
        changes: &mut Vec<LeaseChange>,
    ) -> Result<(), Reason> {
        let until = now.after_ms(self.lease_ms).after_ms(GRACE_MS);
        let before = self.lease_of(mac);
        if before == Some(address) {
            self.hold_until(address, until);
            return Ok(());
        }
        if before.is_none() && self.leases >= LEASES_MAX {
            changes.extend(self.expire(now));
            if self.leases >= LEASES_MAX {
                return Err(Reason::TooManyLeases);
            }
        }
        if let Some(address) = before {
            self.free(address);
            changes.push(LeaseChange::Released(Lease { mac, address }));
        }
        if let Some(offered) = self.offer_of(mac) {
            self.free(offered);
        }
        self.hold(address, Kind::Lease, mac, until);
        changes.push(LeaseChange::Granted(Lease { mac, address }));
        Ok(())
    }

    /// Takes a durable lease back at the start. False if the address is not
    /// ours to give any more, or is held already.
    pub(crate) fn restore(&mut self, now: Tick, lease: Lease) -> bool {
        let Lease { mac, address } = lease;
        let ours = self.pools.iter().any(|pool| pool.is_free(address));
        if !ours || self.lease_of(mac).is_some() || self.held.contains_key(&address) {
            return false;
        }
        self.grant(now, mac, address, &mut Vec::new()).is_ok()
    }

    /// Ends the lease and the offer of a machine.
    pub(crate) fn forget(&mut self, mac: MacAddr) -> Option<LeaseChange> {
        self.withdraw_offer(mac);
        let address = self.lease_of(mac)?;
        self.free(address);
        Some(LeaseChange::Released(Lease { mac, address }))
    }

    pub(crate) fn withdraw_offer(&mut self, mac: MacAddr) {
        if let Some(address) = self.offer_of(mac) {
            self.free(address);
        }
    }

    /// Sets an address aside that its holder found in use.
    pub(crate) fn decline(
        &mut self,
        now: Tick,
        mac: MacAddr,
        address: Ipv4Addr,
    ) -> Result<Option<LeaseChange>, Reason> {
        let leased = self.lease_of(mac) == Some(address);
        if !leased && self.offer_of(mac) != Some(address) {
            return Err(Reason::NoRecord);
        }
        self.free(address);
        self.past.remove(&mac);
        if self.set_aside.len() >= SET_ASIDE_MAX
            && let Some(&oldest) = self.set_aside.front()
        {
            self.free(oldest);
        }
        self.hold(address, Kind::SetAside, mac, now.after_ms(SET_ASIDE_MS));
        Ok(leased.then_some(LeaseChange::Released(Lease { mac, address })))
    }

    /// Ends what is over.
    pub(crate) fn expire(&mut self, now: Tick) -> Vec<LeaseChange> {
        let mut changes = Vec::new();
        while let Some(&(until, address)) = self.ends.first() {
            if until > now {
                break;
            }
            if let Some(Holding {
                kind: Kind::Lease,
                mac,
                ..
            }) = self.free(address)
            {
                changes.push(LeaseChange::Released(Lease { mac, address }));
            }
        }
        changes
    }

    /// When something ends next.
    pub(crate) fn deadline(&self) -> Option<Tick> {
        self.ends.first().map(|&(until, _)| until)
    }

    fn next(&mut self, subnet: usize) -> Option<Ipv4Addr> {
        self.pools.get_mut(subnet)?.next()
    }

    fn hold(&mut self, address: Ipv4Addr, kind: Kind, mac: MacAddr, until: Tick) {
        // Pools never overlap by settings; taking from all of them keeps an
        // address single even if they do.
        for pool in &mut self.pools {
            pool.take(address);
        }
        self.held.insert(address, Holding { kind, mac, until });
        self.ends.insert((until, address));
        match kind {
            Kind::Offer => {
                self.offers += 1;
                self.machines.entry(mac).or_default().offer = Some(address);
            }
            Kind::Lease => {
                self.leases += 1;
                self.past.remove(&mac);
                self.machines.entry(mac).or_default().lease = Some(address);
            }
            Kind::SetAside => self.set_aside.push_back(address),
        }
    }

    /// Holds on at least until then.
    fn hold_until(&mut self, address: Ipv4Addr, until: Tick) {
        if let Some(holding) = self.held.get_mut(&address)
            && holding.until < until
        {
            self.ends.remove(&(holding.until, address));
            holding.until = until;
            self.ends.insert((until, address));
        }
    }

    fn free(&mut self, address: Ipv4Addr) -> Option<Holding> {
        let holding = self.held.remove(&address)?;
        self.ends.remove(&(holding.until, address));
        for pool in &mut self.pools {
            pool.put(address);
        }
        if holding.kind == Kind::SetAside {
            self.set_aside.retain(|&other| other != address);
            return Some(holding);
        }
        if let Some(places) = self.machines.get_mut(&holding.mac) {
            if holding.kind == Kind::Lease {
                places.lease = None;
                self.leases -= 1;
            } else {
                places.offer = None;
                self.offers -= 1;
            }
            if places.lease.is_none() && places.offer.is_none() {
                self.machines.remove(&holding.mac);
            }
        }
        if holding.kind == Kind::Lease {
            if self.past.len() >= PAST_MAX {
                self.past.pop_first();
            }
            self.past.insert(holding.mac, address);
        }
        Some(holding)
    }
}

#[cfg(test)]
mod tests;
