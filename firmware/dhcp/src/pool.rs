//! Free addresses of one range.
//!
//! Stored as ranges of free addresses, so that taking, returning and finding one cost the
//! logarithm of the number of ranges, however large the pool is. Addresses are given in turn: a
//! returned address is given last.

use core::net::Ipv4Addr;
use std::collections::BTreeMap;

use crate::settings::Subnet;

/// How many reserved addresses in a row one search skips. Ours: the next search continues where
/// this one ended.
const PASSED_OVER_MAX: u32 = 1024;

/// One address in this many, rounded up, is given to known machines only. Ours.
const KNOWN_SHARE: u64 = 4;

#[derive(Clone, Debug)]
pub(crate) struct AddressPool {
    first: u32,
    last: u32,
    /// First and last address of the whole network.
    network: (u32, u32),
    /// Addresses of the network that no machine can have: network, broadcast, server and
    /// router.
    excluded: Vec<u32>,
    /// First to last of each free range; ranges never touch.
    free: BTreeMap<u32, u32>,
    /// How many are free.
    free_count: u64,
    /// How many of them unknown machines cannot take.
    reserve_for_known: u64,
    /// Where the next search starts.
    cursor: u32,
    /// How many were free (all of them reserved) when a search found none.
    exhausted_at: Option<u64>,
}

impl AddressPool {
    /// The pool of a subnet, without the network, broadcast, server and router addresses.
    pub(crate) fn new(subnet: &Subnet) -> Self {
        let own = [subnet.network, subnet.broadcast(), subnet.server];
        let excluded: Vec<u32> = own
            .into_iter()
            .chain(subnet.router)
            .map(Ipv4Addr::to_bits)
            .collect();
        let first = subnet.first.max(subnet.network).to_bits();
        let last = subnet.last.min(subnet.broadcast()).to_bits();
        let free: BTreeMap<u32, u32> = (first <= last)
            .then_some((first, last))
            .into_iter()
            .collect();
        let counts = free.iter().map(|(&start, &end)| u64::from(end - start) + 1);
        let mut pool = Self {
            first,
            last,
            network: (subnet.network.to_bits(), subnet.broadcast().to_bits()),
            excluded: Vec::new(),
            free_count: counts.sum(),
            free,
            reserve_for_known: 0,
            cursor: first,
            exhausted_at: None,
        };
        for &address in &excluded {
            pool.take(Ipv4Addr::from_bits(address));
        }
        pool.excluded = excluded;
        // Two addresses or fewer are not divided.
        if pool.free_count > 2 {
            pool.reserve_for_known = pool.free_count.div_ceil(KNOWN_SHARE);
        }
        pool
    }

    /// Whether a machine of this network may have the address, at least by reservation.
    pub(crate) fn could_hold(&self, address: Ipv4Addr) -> bool {
        let bits = address.to_bits();
        (self.network.0..=self.network.1).contains(&bits) && !self.excluded.contains(&bits)
    }

    /// Whether this pool may give the address.
    pub(crate) fn covers(&self, address: Ipv4Addr) -> bool {
        let bits = address.to_bits();
        (self.first..=self.last).contains(&bits) && !self.excluded.contains(&bits)
    }

    pub(crate) fn is_free(&self, address: Ipv4Addr) -> bool {
        self.range_of(address.to_bits()).is_some()
    }

    /// Removes the address from the free ones. False if it was not free.
    pub(crate) fn take(&mut self, address: Ipv4Addr) -> bool {
        let bits = address.to_bits();
        let Some((start, end)) = self.range_of(bits) else {
            return false;
        };
        self.free.remove(&start);
        if start < bits {
            self.free.insert(start, bits - 1);
        }
        if bits < end {
            self.free.insert(bits + 1, end);
        }
        self.free_count -= 1;
        true
    }

    /// Returns the address, if it belongs to this pool.
    pub(crate) fn release(&mut self, address: Ipv4Addr) {
        if !self.covers(address) || self.is_free(address) {
            return;
        }
        let (mut start, mut end) = (address.to_bits(), address.to_bits());
        if let Some((&before, &before_end)) = self.free.range(..start).next_back()
            && before_end.checked_add(1) == Some(start)
        {
            self.free.remove(&before);
            start = before;
        }
        if let Some(after) = end.checked_add(1)
            && let Some(after_end) = self.free.remove(&after)
        {
            end = after_end;
        }
        self.free.insert(start, end);
        self.free_count += 1;
    }

    /// Takes the next free address that is not reserved.
    pub(crate) fn next(&mut self, is_reserved: impl Fn(Ipv4Addr) -> bool) -> Option<Ipv4Addr> {
        let mut tries = self.free_count.min(u64::from(PASSED_OVER_MAX) + 1);
        while tries > 0 {
            tries -= 1;
            let bits = if self.range_of(self.cursor).is_some() {
                self.cursor
            } else {
                let after = self.free.range(self.cursor..).next();
                *after.or_else(|| self.free.first_key_value())?.0
            };
            self.cursor = bits.checked_add(1).unwrap_or(self.first);
            let address = Ipv4Addr::from_bits(bits);
            if !is_reserved(address) {
                self.take(address);
                return Some(address);
            }
        }
        self.exhausted_at = Some(self.free_count);
        None
    }

    /// Whether all free addresses are reserved for known machines.
    pub(crate) fn is_reserved_for_known(&self) -> bool {
        self.free_count > 0 && self.free_count <= self.reserve_for_known
    }

    /// Whether the last search found no address and none was returned since.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.exhausted_at
            .is_some_and(|then| self.free_count <= then)
    }

    fn range_of(&self, bits: u32) -> Option<(u32, u32)> {
        let (&start, &end) = self.free.range(..=bits).next_back()?;
        (bits <= end).then_some((start, end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::tests::subnet;
    use std::collections::BTreeSet;
    use trivet_model::SeededRandom;

    fn address(last: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 0, 0, last)
    }

    fn nobodys(_: Ipv4Addr) -> bool {
        false
    }

    #[test]
    fn skips_reserved_addresses() {
        let mut pool = AddressPool::new(&subnet(0));
        let is_reserved = |address: Ipv4Addr| address.octets()[3] < 108;
        assert_eq!(pool.next(is_reserved), Some(address(108)));
        assert_eq!(pool.next(is_reserved), Some(address(109)));
        assert!(!pool.is_exhausted());
        assert_eq!(pool.next(is_reserved), None);
        assert!(pool.is_exhausted());
        assert!(pool.is_free(address(100)), "its owner can still have it");
        pool.release(address(108));
        assert!(!pool.is_exhausted());
    }

    #[test]
    fn a_search_among_very_many_reserved_addresses_is_bounded_and_continues() {
        let mut subnet = subnet(0);
        subnet.network = Ipv4Addr::new(10, 0, 0, 0);
        subnet.prefix = 8;
        subnet.first = Ipv4Addr::new(10, 1, 0, 0);
        subnet.last = Ipv4Addr::new(10, 1, 255, 255);
        let mut pool = AddressPool::new(&subnet);
        let free = Ipv4Addr::new(10, 1, 200, 0);
        let searches = (1..100).find(|_| pool.next(|address| address != free) == Some(free));
        assert_eq!(searches, Some(1 + 200 * 256 / 1025));
    }

    #[test]
    fn gives_every_address_once_and_then_none() {
        let mut pool = AddressPool::new(&subnet(0));
        for last in 100..=109 {
            assert_eq!(pool.next(nobodys), Some(address(last)));
        }
        assert_eq!(pool.next(nobodys), None);
    }

    #[test]
    fn gives_a_returned_address_last() {
        let mut pool = AddressPool::new(&subnet(0));
        pool.next(nobodys);
        pool.release(address(100));
        assert_eq!(pool.next(nobodys), Some(address(101)));
    }

    #[test]
    fn never_gives_the_servers_own_nor_the_networks_addresses() {
        let mut subnet = subnet(0);
        subnet.first = address(0);
        subnet.last = address(255);
        let mut pool = AddressPool::new(&subnet);
        let given: BTreeSet<_> = std::iter::from_fn(|| pool.next(nobodys)).collect();
        assert_eq!(given.len(), 253);
        for reserved in [0, 1, 255] {
            assert!(!given.contains(&address(reserved)));
            pool.release(address(reserved));
            assert!(!pool.is_free(address(reserved)));
        }
    }

    #[test]
    fn an_empty_range_gives_nothing() {
        let mut subnet = subnet(0);
        subnet.last = address(9);
        assert_eq!(AddressPool::new(&subnet).next(nobodys), None);
    }

    #[test]
    fn the_whole_of_ipv4_does_not_overflow() {
        let mut subnet = subnet(0);
        subnet.network = Ipv4Addr::UNSPECIFIED;
        subnet.prefix = 0;
        subnet.first = Ipv4Addr::UNSPECIFIED;
        subnet.last = Ipv4Addr::BROADCAST;
        let mut pool = AddressPool::new(&subnet);
        pool.cursor = u32::MAX;
        assert_eq!(pool.next(nobodys), Some(Ipv4Addr::from_bits(1)));
        pool.release(Ipv4Addr::BROADCAST);
        assert!(!pool.is_free(Ipv4Addr::BROADCAST));
    }

    #[test]
    fn agrees_with_a_plain_set_over_random_steps() {
        let mut random = SeededRandom::new(1);
        let mut pool = AddressPool::new(&subnet(0));
        let mut free: BTreeSet<Ipv4Addr> = (100..=109).map(address).collect();
        for _ in 0..20_000 {
            let some = address(95 + random.below(20) as u8);
            match random.below(3) {
                0 => assert_eq!(pool.take(some), free.remove(&some)),
                1 => {
                    pool.release(some);
                    if pool.covers(some) {
                        free.insert(some);
                    }
                }
                _ => match pool.next(nobodys) {
                    Some(given) => assert!(free.remove(&given)),
                    None => assert!(free.is_empty()),
                },
            }
            assert_eq!(pool.is_free(some), free.contains(&some));
            let counted: u32 = pool.free.iter().map(|(start, end)| end - start + 1).sum();
            assert_eq!(counted as usize, free.len());
            assert_eq!(pool.free_count as usize, free.len());
        }
    }
}
