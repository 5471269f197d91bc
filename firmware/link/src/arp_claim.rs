//! Selects the ARP claims that are worth reporting.
//!
//! Every ARP message claims its sender's address, and a busy network has hundreds of them per
//! second. Only addresses in our ranges and addresses that were probed matter, and the same
//! claim of the same machine is reported once per interval.

use alloc::collections::{BTreeMap, BTreeSet};
use core::net::Ipv4Addr;

use trivet_model::{MacAddr, Tick};

/// How many addresses are remembered. Ours: when there are more, all are dropped and reported
/// again, which costs only time.
pub const CLAIMS_MAX: usize = 4096;

/// How many probed addresses are remembered. Ours: as above.
const PROBED_MAX: usize = 256;

/// How long the same claim is not reported again. Ours.
const REPEAT_MS_MIN: u64 = 10_000;

/// The claims of one interface.
#[derive(Clone, Debug, Default)]
pub struct ArpClaims {
    /// First and last address to give, if the box gives any.
    range: Option<(Ipv4Addr, Ipv4Addr)>,
    /// Probed addresses outside our range, for example that of another server.
    probed: BTreeSet<Ipv4Addr>,
    reported: BTreeMap<Ipv4Addr, (MacAddr, Tick)>,
}

impl ArpClaims {
    /// Claims within a range are reported; without a range, only claims of probed addresses.
    pub fn new(range: Option<(Ipv4Addr, Ipv4Addr)>) -> Self {
        Self {
            range,
            ..Self::default()
        }
    }

    /// An address is being probed: the next claim of it is reported.
    pub fn record_probe(&mut self, address: Ipv4Addr) {
        self.reported.remove(&address);
        if !self.is_ours(address) {
            if self.probed.len() >= PROBED_MAX {
                self.probed.clear();
            }
            self.probed.insert(address);
        }
    }

    fn is_ours(&self, address: Ipv4Addr) -> bool {
        let range = self.range;
        range.is_some_and(|(first, last)| (first..=last).contains(&address))
    }

    /// Records a claim; true if it must be reported.
    pub fn record_claim(&mut self, now: Tick, address: Ipv4Addr, mac: MacAddr) -> bool {
        let matters = self.is_ours(address) || self.probed.contains(&address);
        let reported = self
            .reported
            .get(&address)
            .is_some_and(|(who, at)| *who == mac && now.since_ms(*at) < REPEAT_MS_MIN);
        if !matters || reported {
            return false;
        }
        if self.reported.len() >= CLAIMS_MAX && !self.reported.contains_key(&address) {
            self.reported.clear();
        }
        self.reported.insert(address, (mac, now));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{NODE, OWN};

    const FIRST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 100);
    const LAST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 200);

    #[test]
    fn only_addresses_in_our_range_matter() {
        let mut claims = ArpClaims::new(Some((FIRST, LAST)));
        assert!(claims.record_claim(Tick(0), FIRST, NODE));
        assert!(claims.record_claim(Tick(0), LAST, NODE));
        for other in [[10, 0, 0, 99], [10, 0, 0, 201], [192, 0, 2, 1]] {
            assert!(!claims.record_claim(Tick(0), other.into(), NODE));
        }
        let mut none = ArpClaims::new(None);
        assert!(!none.record_claim(Tick(0), FIRST, NODE));
    }

    #[test]
    fn the_same_claim_is_reported_once_per_interval() {
        let mut claims = ArpClaims::new(Some((FIRST, LAST)));
        assert!(claims.record_claim(Tick(0), FIRST, NODE));
        assert!(!claims.record_claim(Tick(REPEAT_MS_MIN - 1), FIRST, NODE));
        assert!(claims.record_claim(Tick(REPEAT_MS_MIN), FIRST, NODE));
    }

    #[test]
    fn another_machine_and_an_answer_to_a_probe_always_count() {
        let mut claims = ArpClaims::new(Some((FIRST, LAST)));
        assert!(claims.record_claim(Tick(0), FIRST, NODE));
        assert!(
            claims.record_claim(Tick(0), FIRST, OWN),
            "two machines claim it"
        );
        assert!(!claims.record_claim(Tick(0), FIRST, OWN));
        claims.record_probe(FIRST);
        assert!(claims.record_claim(Tick(1), FIRST, OWN));
    }

    #[test]
    fn a_probed_address_matters_even_outside_the_range() {
        let mut claims = ArpClaims::new(None);
        let server = Ipv4Addr::new(10, 0, 0, 1);
        claims.record_probe(server);
        assert!(claims.record_claim(Tick(0), server, NODE));
        assert!(
            !claims.record_claim(Tick(1), server, NODE),
            "once per interval"
        );
        for at in 0..3 * PROBED_MAX as u32 {
            claims.record_probe(Ipv4Addr::from_bits(at));
            assert!(claims.probed.len() <= PROBED_MAX);
        }
    }

    #[test]
    fn the_memory_is_bounded() {
        let wide = (Ipv4Addr::new(10, 0, 0, 0), Ipv4Addr::new(10, 255, 255, 255));
        let mut claims = ArpClaims::new(Some(wide));
        for at in 0..3 * CLAIMS_MAX as u32 {
            let address = Ipv4Addr::from_bits(wide.0.to_bits() + at);
            assert!(claims.record_claim(Tick(0), address, NODE));
            assert!(claims.reported.len() <= CLAIMS_MAX);
        }
    }
}
