//! How often a caller may fail to prove a token.

use std::collections::BTreeMap;
use std::net::IpAddr;

use trivet_model::Tick;

/// Wrong proofs of one address within [`WINDOW_MS`]. Ours: an agent has no reason to fail.
pub const FAILURES_MAX: u32 = 5;

/// For this long a failure counts.
pub const WINDOW_MS: u64 = 60_000;

/// Most addresses whose failures are counted. Ours.
pub const ADDRESSES_MAX: usize = 1024;

/// The failures of each address. A caller at another address does not keep a machine from
/// enrolling.
#[derive(Debug, Default)]
pub struct FailedProofs {
    /// When the first failure of the present window was, and how many there are.
    by_address: BTreeMap<IpAddr, (Tick, u32)>,
}

impl FailedProofs {
    /// Whether a proof of this address is looked at now.
    pub fn allows(&self, now: Tick, from: IpAddr) -> bool {
        self.by_address
            .get(&from.to_canonical())
            .is_none_or(|(since, count)| now.since_ms(*since) >= WINDOW_MS || *count < FAILURES_MAX)
    }

    /// A proof of this address was wrong.
    pub fn failed(&mut self, now: Tick, from: IpAddr) {
        let from = from.to_canonical();
        if self.by_address.len() >= ADDRESSES_MAX && !self.by_address.contains_key(&from) {
            self.by_address
                .retain(|_, (since, _)| now.since_ms(*since) < WINDOW_MS);
            if self.by_address.len() >= ADDRESSES_MAX {
                let oldest = self.by_address.iter().min_by_key(|(_, (since, _))| *since);
                if let Some(oldest) = oldest.map(|(address, _)| *address) {
                    self.by_address.remove(&oldest);
                }
            }
        }
        let (since, count) = self.by_address.entry(from).or_insert((now, 0));
        if now.since_ms(*since) >= WINDOW_MS {
            (*since, *count) = (now, 0);
        }
        *count = count.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn address(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(0x0a00_0000 + number).into()
    }

    #[test]
    fn five_failures_end_the_attempts_of_a_minute() {
        let mut failed = FailedProofs::default();
        for at in 0..5 {
            assert!(failed.allows(Tick(at), address(1)));
            failed.failed(Tick(at), address(1));
        }
        assert!(!failed.allows(Tick(5), address(1)));
        assert!(!failed.allows(Tick(WINDOW_MS - 1), address(1)));
        assert!(failed.allows(Tick(WINDOW_MS), address(1)));
        assert!(failed.allows(Tick(5), address(2)), "another machine");
    }

    #[test]
    fn a_new_window_begins_with_the_first_failure_in_it() {
        let mut failed = FailedProofs::default();
        failed.failed(Tick(0), address(1));
        for at in 0..5 {
            assert!(failed.allows(Tick(WINDOW_MS + at), address(1)));
            failed.failed(Tick(WINDOW_MS + at), address(1));
        }
        assert!(!failed.allows(Tick(2 * WINDOW_MS - 1), address(1)));
        assert!(failed.allows(Tick(2 * WINDOW_MS), address(1)));
    }

    #[test]
    fn both_forms_of_an_address_count_together() {
        let mut failed = FailedProofs::default();
        let mapped = IpAddr::from([0, 0, 0, 0, 0, 0xffff, 0x0a00, 1]);
        for _ in 0..FAILURES_MAX {
            failed.failed(Tick(0), mapped);
        }
        assert!(!failed.allows(Tick(1), address(1)));
    }

    #[test]
    fn the_table_is_bounded_and_the_oldest_address_makes_space() {
        let mut failed = FailedProofs::default();
        for number in 0..5000 {
            failed.failed(Tick(u64::from(number)), address(number));
            assert!(failed.by_address.len() <= ADDRESSES_MAX);
        }
        assert!(!failed.by_address.contains_key(&address(0)));
        assert!(failed.by_address.contains_key(&address(4999)));
        // Old failures are removed before those that still count.
        failed.failed(Tick(10 * WINDOW_MS), address(9999));
        assert_eq!(failed.by_address.len(), 1);
    }
}
