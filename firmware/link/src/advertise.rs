//! Router advertisements: when one is due, and to which machine.
//!
//! iPXE 1.0.0+git-20190125 sends router solicitations in parallel with DHCP and waits for a
//! reply: its script ran 19.7 s after power-on without one and 6.6 s after it with an empty
//! advertisement. So ours announces that there is no router, and a running system learns
//! nothing from it: no default route, no prefix, no address. Timing follows RFC 4861 section
//! 6.2, with one choice of ours: a soliciting machine gets a unicast reply at once, which the
//! RFC allows and which spares the others. Above a rate limit, one multicast reply is sent
//! instead.

use alloc::vec::Vec;
use core::net::Ipv6Addr;

use trivet_model::{MacAddr, Tick};

use crate::send::advertisement;

/// All routers of a link (RFC 4291 section 2.7.1), the destination of solicitations.
pub const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);

/// The same group as an Ethernet address (RFC 2464 section 7).
pub const ALL_ROUTERS_MAC: MacAddr = MacAddr([0x33, 0x33, 0, 0, 0, 2]);

/// All machines of a link (RFC 4291 section 2.7.1), and the same group as an Ethernet address.
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ALL_NODES_MAC: MacAddr = MacAddr([0x33, 0x33, 0, 0, 0, 1]);

/// Least time between two multicast advertisements: `MIN_DELAY_BETWEEN_RAS`, RFC 4861 section
/// 10.
const GAP_MS_MIN: u64 = 3_000;

/// Interval of unsolicited advertisements. Ours, within the bounds of RFC 4861 section 6.2.1: a
/// switch that filters multicast may drop solicitations, and a waiting machine then gets the
/// next of these.
const PERIOD_MS: u64 = 10_000;

/// Unicast replies within one second. Ours: a rack that is switched on at once stays below it,
/// a flood does not.
pub const ANSWERS_PER_S_MAX: u32 = 256;

const SECOND_MS: u64 = 1_000;

/// Decides when to advertise on one interface.
#[derive(Clone, Debug)]
pub struct RouterAdvertiser {
    own: MacAddr,
    /// When the next multicast advertisement is due, and when the last was sent.
    next: Tick,
    last: Option<Tick>,
    /// The present second and the number of unicast replies in it.
    second: Tick,
    answers: u32,
}

impl RouterAdvertiser {
    /// The first advertisement is due at once.
    pub fn new(now: Tick, own: MacAddr) -> Self {
        Self {
            own,
            next: now,
            last: None,
            second: now,
            answers: 0,
        }
    }

    /// Handles a solicitation. Returns the frame to send at once, if there is one; otherwise a
    /// multicast advertisement is sent at [`RouterAdvertiser::deadline`].
    pub fn solicited(
        &mut self,
        now: Tick,
        from: MacAddr,
        source: Option<Ipv6Addr>,
    ) -> Option<Vec<u8>> {
        if now.since_ms(self.second) >= SECOND_MS {
            self.second = now;
            self.answers = 0;
        }
        match source {
            Some(source) if self.answers < ANSWERS_PER_S_MAX => {
                self.answers += 1;
                Some(advertisement(self.own, from, source))
            }
            _ => {
                let soonest = self.last.map_or(now, |last| last.after_ms(GAP_MS_MIN));
                self.next = self.next.min(soonest.max(now));
                None
            }
        }
    }

    /// When to call [`RouterAdvertiser::due`].
    pub fn deadline(&self) -> Tick {
        self.next
    }

    /// The multicast advertisement, if it is due.
    pub fn due(&mut self, now: Tick) -> Option<Vec<u8>> {
        if now < self.next {
            return None;
        }
        self.last = Some(now);
        self.next = now.after_ms(PERIOD_MS);
        Some(advertisement(self.own, ALL_NODES_MAC, ALL_NODES))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{NODE, OWN, sent};

    const CLIENT: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 7);

    #[test]
    fn the_first_is_due_at_once_and_then_by_period() {
        let mut advertiser = RouterAdvertiser::new(Tick(5), OWN);
        assert_eq!(advertiser.deadline(), Tick(5));
        let first = sent(&advertiser.due(Tick(5)).unwrap());
        assert_eq!((first.mac, first.address), (ALL_NODES_MAC, ALL_NODES));
        assert_eq!(advertiser.due(Tick(5)), None);
        assert_eq!(advertiser.deadline(), Tick(5 + PERIOD_MS));
        assert_eq!(advertiser.due(Tick(4 + PERIOD_MS)), None);
        assert!(advertiser.due(Tick(5 + PERIOD_MS)).is_some());
    }

    #[test]
    fn a_solicitation_with_an_address_gets_a_unicast_reply_at_once() {
        let mut advertiser = RouterAdvertiser::new(Tick(0), OWN);
        advertiser.due(Tick(0));
        let answer = advertiser.solicited(Tick(1), NODE, Some(CLIENT)).unwrap();
        let answer = sent(&answer);
        assert_eq!((answer.mac, answer.address), (NODE, CLIENT));
        assert_eq!(
            advertiser.deadline(),
            Tick(PERIOD_MS),
            "no multicast is sent"
        );
    }

    #[test]
    fn a_solicitation_without_an_address_gets_a_multicast_reply_not_too_often() {
        let mut advertiser = RouterAdvertiser::new(Tick(0), OWN);
        advertiser.due(Tick(0));
        assert_eq!(advertiser.solicited(Tick(100), NODE, None), None);
        assert_eq!(advertiser.deadline(), Tick(GAP_MS_MIN));
        assert!(advertiser.due(Tick(GAP_MS_MIN)).is_some());
        assert_eq!(advertiser.solicited(Tick(9_000), NODE, None), None);
        assert_eq!(advertiser.deadline(), Tick(9_000), "the last was long ago");
    }

    #[test]
    fn a_flood_of_solicitations_gets_one_multicast_reply() {
        let mut advertiser = RouterAdvertiser::new(Tick(0), OWN);
        advertiser.due(Tick(0));
        let mut answers = 0;
        for at in 0..10_000_u64 {
            let now = Tick(at / 20);
            answers += u32::from(advertiser.solicited(now, NODE, Some(CLIENT)).is_some());
            answers += u32::from(advertiser.due(now).is_some());
        }
        assert_eq!(answers, ANSWERS_PER_S_MAX, "within half a second");
        assert_eq!(
            advertiser.deadline(),
            Tick(GAP_MS_MIN),
            "one reply for the rest"
        );
        let later = advertiser.solicited(Tick(SECOND_MS), NODE, Some(CLIENT));
        assert!(later.is_some(), "the next second is a new one");
    }

    #[test]
    fn a_solicitation_never_delays_what_is_due() {
        let mut advertiser = RouterAdvertiser::new(Tick(0), OWN);
        advertiser.due(Tick(0));
        advertiser.solicited(Tick(PERIOD_MS - 1), NODE, None);
        assert!(advertiser.deadline() <= Tick(PERIOD_MS));
        advertiser.solicited(Tick(PERIOD_MS + 50), NODE, None);
        assert!(advertiser.deadline() <= Tick(PERIOD_MS));
    }
}
