//! Records which machine has which address, and until when.
//!
//! An address is held by an offer (short, in memory only), by a lease, or by a quarantine
//! because a machine reported it as in use. Each address has at most one of these, and each
//! machine at most one lease and one offer over all subnets. Only the monotonic clock decides
//! when one ends.
//!
//! Unknown machines cannot exhaust the addresses of known machines: a share of each range and
//! some offer slots are reserved for known machines, and when no address is free, the oldest
//! offer to an unknown machine is withdrawn and offered to the known machine.

use core::net::Ipv4Addr;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use trivet_model::{Lease, MacAddr, Tick};

use crate::host_directory::HostDirectory;
use crate::message::Reason;
use crate::pool::AddressPool;
use crate::settings::{DhcpServerSettings, SUBNETS_MAX};

/// Leases at the same time. Ours.
pub const LEASES_MAX: usize = 65_536;

/// Offers at the same time. Ours: it bounds a flood of DISCOVERs from invented hardware
/// addresses.
pub const OFFERS_MAX: usize = 4096;

/// Offers to unknown machines at the same time. Ours.
pub const UNKNOWN_OFFERS_MAX: usize = OFFERS_MAX - OFFERS_MAX / 8;

/// How many offers to unknown machines are examined for one that may be withdrawn. Ours.
const UNKNOWN_OFFERS_TRIED_MAX: usize = 64;

/// Addresses in quarantine at the same time; one more releases the oldest. Ours.
pub const QUARANTINED_MAX: usize = 256;

/// Former addresses remembered, so that a machine gets its previous one. Ours.
pub const FORMER_ADDRESSES_MAX: usize = 4096;

/// How long an offer is held. Ours: iPXE may request it some seconds later.
pub const OFFER_HOLD_MS: u64 = 60_000;

/// How long a declined address is not given. Ours.
pub const QUARANTINE_MS: u64 = 600_000;

/// How long a lease is kept past its end. Ours: the client counts from the arrival of our
/// reply, which is later than our start by the time of commit and transmission.
pub const GRACE_MS: u64 = 30_000;

/// A change that must be durable before the reply that came with it is sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LeaseChange {
    /// The machine has the address from now on.
    Granted(Lease),
    /// The lease has ended.
    Released(Lease),
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum AddressHoldKind {
    Offer,
    Lease,
    Quarantine,
}

#[derive(Clone, Copy, Debug)]
struct AddressHold {
    kind: AddressHoldKind,
    mac: MacAddr,
    until: Tick,
    /// The subnet of an offer to an unknown machine.
    unknown_in_subnet: Option<usize>,
}

#[derive(Clone, Copy, Debug, Default)]
struct ClientAddresses {
    lease: Option<Ipv4Addr>,
    offer: Option<Ipv4Addr>,
}

/// The address of an offer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct OfferedAddress {
    pub(crate) address: Ipv4Addr,
    /// The machine did not have the address before.
    pub(crate) fresh: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct LeaseTable {
    lease_ms: Vec<u64>,
    pools: Vec<AddressPool>,
    held: BTreeMap<Ipv4Addr, AddressHold>,
    ends: BTreeSet<(Tick, Ipv4Addr)>,
    machines: BTreeMap<MacAddr, ClientAddresses>,
    former_addresses: BTreeMap<MacAddr, Ipv4Addr>,
    quarantined: VecDeque<Ipv4Addr>,
    leases: usize,
    offers: usize,
    /// Offers to unknown machines, by subnet and end.
    unknown_offers: BTreeSet<(usize, Tick, Ipv4Addr)>,
}

impl LeaseTable {
    pub(crate) fn new(settings: &DhcpServerSettings) -> Self {
        let subnets = || settings.subnets.iter().take(SUBNETS_MAX);
        Self {
            lease_ms: subnets()
                .map(|subnet| u64::from(subnet.lease_s) * 1000)
                .collect(),
            pools: subnets().map(AddressPool::new).collect(),
            held: BTreeMap::new(),
            ends: BTreeSet::new(),
            machines: BTreeMap::new(),
            former_addresses: BTreeMap::new(),
            quarantined: VecDeque::new(),
            leases: 0,
            offers: 0,
            unknown_offers: BTreeSet::new(),
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

    /// Whether `mac` may have `address` of this subnet: the address is free, or already belongs
    /// to this machine. An unknown machine cannot take the share reserved for known machines.
    pub(crate) fn may_have(
        &self,
        subnet: usize,
        mac: MacAddr,
        address: Ipv4Addr,
        machines: &impl HostDirectory,
    ) -> bool {
        let has = self.held.contains_key(&address);
        self.is_its_own_or_free(subnet, mac, address, machines)
            && (has || machines.known(mac) || self.has_space_for_unknown(subnet))
    }

    fn has_space_for_unknown(&self, subnet: usize) -> bool {
        let pool = self.pools.get(subnet);
        pool.is_some_and(|pool| !pool.is_reserved_for_known())
    }

    fn is_its_own_or_free(
        &self,
        subnet: usize,
        mac: MacAddr,
        address: Ipv4Addr,
        machines: &impl HostDirectory,
    ) -> bool {
        let Some(pool) = self.pools.get(subnet) else {
            return false;
        };
        let ours = match machines.owner(address) {
            Some(owner) => owner == mac && pool.could_hold(address),
            None => pool.covers(address),
        };
        let held = self.held.get(&address);
        ours && held.is_none_or(|held| held.mac == mac && held.kind != AddressHoldKind::Quarantine)
    }

    /// Whether this server may give the address of this subnet to some machine, now or later.
    pub(crate) fn covers(&self, subnet: usize, address: Ipv4Addr) -> bool {
        let pool = self.pools.get(subnet);
        pool.is_some_and(|pool| pool.covers(address))
    }

    /// Whether a machine of any of our networks may have the address.
    pub(crate) fn could_hold(&self, address: Ipv4Addr) -> bool {
        self.pools.iter().any(|pool| pool.could_hold(address))
    }

    /// The subnets whose last request found no free address, and to which none was returned
    /// since.
    pub(crate) fn exhausted(&self) -> impl Iterator<Item = usize> {
        let pools = self.pools.iter().enumerate();
        pools.filter_map(|(at, pool)| pool.is_exhausted().then_some(at))
    }

    /// Finds an address to offer: the reserved one, then the present lease, the present offer,
    /// the requested address (option 50), the former address, and otherwise the next free one
    /// (RFC 2131 section 4.3.1).
    pub(crate) fn offer(
        &mut self,
        now: Tick,
        subnet: usize,
        mac: MacAddr,
        wanted: Option<Ipv4Addr>,
        machines: &impl HostDirectory,
        changes: &mut Vec<LeaseChange>,
    ) -> Result<OfferedAddress, Reason> {
        let reserved = machines.reserved(mac);
        if let Some(address) = reserved {
            self.clear_offer_to_others(mac, address);
        }
        let past = self.former_addresses.get(&mac).copied();
        let candidates = [
            reserved,
            self.lease_of(mac),
            self.offer_of(mac),
            wanted,
            past,
        ];
        let found = candidates
            .into_iter()
            .flatten()
            .find(|&address| self.may_have(subnet, mac, address, machines));
        let until = now.after_ms(OFFER_HOLD_MS);
        if let Some(address) = found.filter(|own| self.held.contains_key(own)) {
            self.hold_until(address, until);
            return Ok(OfferedAddress {
                address,
                fresh: false,
            });
        }
        self.withdraw_offer(mac);
        let known = machines.known(mac);
        self.ensure_offer_slot(now, known, changes)?;
        let address = match found {
            Some(address) => address,
            None => self.next(now, subnet, mac, known, machines, changes)?,
        };
        let holding = AddressHold {
            kind: AddressHoldKind::Offer,
            mac,
            until,
            unknown_in_subnet: (!known).then_some(subnet),
        };
        self.hold(address, holding);
        Ok(OfferedAddress {
            address,
            fresh: past != Some(address),
        })
    }

    /// Withdraws the offer of an address reserved for `mac` to another machine.
    fn clear_offer_to_others(&mut self, mac: MacAddr, address: Ipv4Addr) {
        let held = self.held.get(&address);
        if held.is_some_and(|held| held.kind == AddressHoldKind::Offer && held.mac != mac) {
            self.free(address);
        }
    }

    /// Makes sure that one more offer fits in the table.
    fn ensure_offer_slot(
        &mut self,
        now: Tick,
        known: bool,
        changes: &mut Vec<LeaseChange>,
    ) -> Result<(), Reason> {
        let is_full = |table: &Self| {
            table.offers >= OFFERS_MAX || !known && table.unknown_offers.len() >= UNKNOWN_OFFERS_MAX
        };
        if !is_full(self) {
            return Ok(());
        }
        changes.extend(self.expire(now));
        if known && is_full(self) {
            let oldest = (0..self.pools.len()).filter_map(|at| self.unknown_offers_of(at).next());
            if let Some((_, address)) = oldest.min() {
                self.free(address);
            }
        }
        if is_full(self) {
            return Err(Reason::TooManyOffers);
        }
        Ok(())
    }

    /// Offers to unknown machines in a subnet, the oldest first.
    fn unknown_offers_of(&self, subnet: usize) -> impl Iterator<Item = (Tick, Ipv4Addr)> {
        let first = (subnet, Tick(0), Ipv4Addr::UNSPECIFIED);
        let of_subnet = self.unknown_offers.range(first..);
        of_subnet
            .take_while(move |(at, ..)| *at == subnet)
            .map(|&(_, until, address)| (until, address))
    }

    fn next(
        &mut self,
        now: Tick,
        subnet: usize,
        mac: MacAddr,
        known: bool,
        machines: &impl HostDirectory,
        changes: &mut Vec<LeaseChange>,
    ) -> Result<Ipv4Addr, Reason> {
        let is_reserved = |address| machines.owner(address).is_some();
        if !known && !self.has_space_for_unknown(subnet) {
            changes.extend(self.expire(now));
            if !self.has_space_for_unknown(subnet) {
                return Err(Reason::OnlyForKnown);
            }
        }
        let pick = |table: &mut Self| table.pools.get_mut(subnet)?.next(is_reserved);
        if let Some(address) = pick(self) {
            return Ok(address);
        }
        changes.extend(self.expire(now));
        if let Some(address) = pick(self) {
            return Ok(address);
        }
        let may_have = |address| machines.owner(address).is_none_or(|owner| owner == mac);
        let oldest = self
            .unknown_offers_of(subnet)
            .take(UNKNOWN_OFFERS_TRIED_MAX)
            .find(|&(_, address)| known && may_have(address));
        let (_, address) = oldest.ok_or(Reason::PoolExhausted)?;
        self.free(address);
        Ok(address)
    }

    /// Grants `address`, which [`LeaseTable::may_have`] has allowed.
    pub(crate) fn grant(
        &mut self,
        now: Tick,
        subnet: usize,
        mac: MacAddr,
        address: Ipv4Addr,
        changes: &mut Vec<LeaseChange>,
    ) -> Result<(), Reason> {
        let lease_ms = self.lease_ms.get(subnet).copied().unwrap_or_default();
        let until = now.after_ms(lease_ms).after_ms(GRACE_MS);
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
        self.withdraw_offer(mac);
        let holding = AddressHold {
            kind: AddressHoldKind::Lease,
            mac,
            until,
            unknown_in_subnet: None,
        };
        self.hold(address, holding);
        changes.push(LeaseChange::Granted(Lease { mac, address }));
        Ok(())
    }

    /// Restores a durable lease at startup. False if the address is no longer in our ranges or
    /// is already held.
    pub(crate) fn restore(
        &mut self,
        now: Tick,
        lease: Lease,
        machines: &impl HostDirectory,
    ) -> bool {
        let Lease { mac, address } = lease;
        let mut subnets = 0..self.pools.len();
        let subnet = subnets.find(|&at| self.is_its_own_or_free(at, mac, address, machines));
        let Some(subnet) = subnet else { return false };
        if self.lease_of(mac).is_some() || self.held.contains_key(&address) {
            return false;
        }
        self.grant(now, subnet, mac, address, &mut Vec::new())
            .is_ok()
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

    /// Puts an address that its holder found in use into quarantine.
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
        self.former_addresses.remove(&mac);
        self.quarantine(now, mac, address);
        Ok(leased.then_some(LeaseChange::Released(Lease { mac, address })))
    }

    /// `mac` claims by ARP that it uses the address. True if it was offered to another machine,
    /// which will not get it, or leased to another machine, which keeps it.
    pub(crate) fn claimed(&mut self, now: Tick, address: Ipv4Addr, mac: MacAddr) -> bool {
        match self.held.get(&address) {
            Some(held) if held.kind == AddressHoldKind::Lease => held.mac != mac,
            Some(held) if held.kind == AddressHoldKind::Offer && held.mac != mac => {
                self.free(address);
                self.quarantine(now, mac, address);
                true
            }
            _ => false,
        }
    }

    fn quarantine(&mut self, now: Tick, mac: MacAddr, address: Ipv4Addr) {
        if self.quarantined.len() >= QUARANTINED_MAX
            && let Some(&oldest) = self.quarantined.front()
        {
            self.free(oldest);
        }
        let holding = AddressHold {
            kind: AddressHoldKind::Quarantine,
            mac,
            until: now.after_ms(QUARANTINE_MS),
            unknown_in_subnet: None,
        };
        self.hold(address, holding);
    }

    /// Ends expired offers, leases and quarantines.
    pub(crate) fn expire(&mut self, now: Tick) -> Vec<LeaseChange> {
        let mut changes = Vec::new();
        while let Some(&(until, address)) = self.ends.first() {
            if until > now {
                break;
            }
            if let Some(AddressHold {
                kind: AddressHoldKind::Lease,
                mac,
                ..
            }) = self.free(address)
            {
                changes.push(LeaseChange::Released(Lease { mac, address }));
            }
        }
        changes
    }

    /// When the next offer, lease or quarantine ends.
    pub(crate) fn deadline(&self) -> Option<Tick> {
        self.ends.first().map(|&(until, _)| until)
    }

    fn hold(&mut self, address: Ipv4Addr, holding: AddressHold) {
        // The settings reject overlapping pools; removing the address from all of them keeps it
        // unique even if they overlap.
        for pool in &mut self.pools {
            pool.take(address);
        }
        let AddressHold {
            kind,
            mac,
            until,
            unknown_in_subnet: unknown,
        } = holding;
        self.held.insert(address, holding);
        self.ends.insert((until, address));
        if let Some(subnet) = unknown {
            self.unknown_offers.insert((subnet, until, address));
        }
        match kind {
            AddressHoldKind::Offer => {
                self.offers += 1;
                self.machines.entry(mac).or_default().offer = Some(address);
            }
            AddressHoldKind::Lease => {
                self.leases += 1;
                self.former_addresses.remove(&mac);
                self.machines.entry(mac).or_default().lease = Some(address);
            }
            AddressHoldKind::Quarantine => self.quarantined.push_back(address),
        }
    }

    /// Extends the holding at least until then.
    fn hold_until(&mut self, address: Ipv4Addr, until: Tick) {
        if let Some(holding) = self.held.get_mut(&address)
            && holding.until < until
        {
            self.ends.remove(&(holding.until, address));
            self.ends.insert((until, address));
            if let Some(subnet) = holding.unknown_in_subnet {
                self.unknown_offers
                    .remove(&(subnet, holding.until, address));
                self.unknown_offers.insert((subnet, until, address));
            }
            holding.until = until;
        }
    }

    fn free(&mut self, address: Ipv4Addr) -> Option<AddressHold> {
        let holding = self.held.remove(&address)?;
        self.ends.remove(&(holding.until, address));
        for pool in &mut self.pools {
            pool.release(address);
        }
        if holding.kind == AddressHoldKind::Quarantine {
            self.quarantined.retain(|&other| other != address);
            return Some(holding);
        }
        if let Some(subnet) = holding.unknown_in_subnet {
            self.unknown_offers
                .remove(&(subnet, holding.until, address));
        }
        if let Some(places) = self.machines.get_mut(&holding.mac) {
            if holding.kind == AddressHoldKind::Lease {
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
        if holding.kind == AddressHoldKind::Lease {
            if self.former_addresses.len() >= FORMER_ADDRESSES_MAX {
                self.former_addresses.pop_first();
            }
            self.former_addresses.insert(holding.mac, address);
        }
        Some(holding)
    }
}

#[cfg(test)]
mod tests;
