//! Which claims of addresses are worth passing on.
//!
//! Every ARP message claims its sender's address, and a busy network has hundreds a
//! second of them. Only addresses that are ours to give matter, and those that were asked
//! about, and the same word of the same machine matters once in a while.

use alloc::collections::{BTreeMap, BTreeSet};
use core::net::Ipv4Addr;

use trivet_model::{MacAddr, Tick};

/// How many addresses are remembered. Ours: when there are more, all are forgotten and
/// told again, which costs time and nothing else.
pub const CLAIMS_MAX: usize = 4096;

/// How many addresses that were asked about are remembered. Ours: as above.
const PROBED_MAX: usize = 256;

/// How long the same claim is not repeated. Ours.
const REPEAT_MS_MIN: u64 = 10_000;

/// The claims of one interface.
#[derive(Clone, Debug, Default)]
pub struct ArpClaims {
    /// First and last address to give, if any are given.
    range: Option<(Ipv4Addr, Ipv4Addr)>,
    /// Asked about although they are not ours to give: another server's own, say.
    probed: BTreeSet<Ipv4Addr>,
    reported: BTreeMap<Ipv4Addr, (MacAddr, Tick)>,
}

impl ArpClaims {
    /// Claims within a range matter; none do by themselves where no addresses are given.
    pub fn new(range: Option<(Ipv4Addr, Ipv4Addr)>) -> Self {
        Self {
            range,
            ..Self::default()
        }
    }

    /// Somebody is asked about an address: the next answer counts.
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

    /// Whether a claim is worth passing on.
    pub fn record_claim(&mut self, now: Tick, address: Ipv4Addr, mac: MacAddr) -> bool {
        let matters = self.is_ours(address) || self.probed.contains(&address);
        let told = self
            .reported
            .get(&address)
            .is_some_and(|(who, at)| *who == mac && now.since_ms(*at) < REPEAT_MS_MIN);
        if !matters || told {
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
    fn only_addresses_that_are_ours_to_give_matter() {
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
    fn the_same_word_is_passed_on_once_in_a_while() {
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
            "two say it is theirs"
        );
        assert!(!claims.record_claim(Tick(0), FIRST, OWN));
        claims.record_probe(FIRST);
        assert!(claims.record_claim(Tick(1), FIRST, OWN));
    }

    #[test]
    fn an_address_that_was_asked_about_matters_wherever_it_is() {
        let mut claims = ArpClaims::new(None);
        let server = Ipv4Addr::new(10, 0, 0, 1);
        claims.record_probe(server);
        assert!(claims.record_claim(Tick(0), server, NODE));
        assert!(
            !claims.record_claim(Tick(1), server, NODE),
            "once in a while"
        );
        for at in 0..3 * PROBED_MAX as u32 {
            claims.record_probe(Ipv4Addr::from_bits(at));
            assert!(claims.probed.len() <= PROBED_MAX);
        }
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let wide = (Ipv4Addr::new(10, 0, 0, 0), Ipv4Addr::new(10, 255, 255, 255));
        let mut claims = ArpClaims::new(Some(wide));
        for at in 0..3 * CLAIMS_MAX as u32 {
            let address = Ipv4Addr::from_bits(wide.0.to_bits() + at);
            assert!(claims.record_claim(Tick(0), address, NODE));
            assert!(claims.reported.len() <= CLAIMS_MAX);
        }
    }
}
