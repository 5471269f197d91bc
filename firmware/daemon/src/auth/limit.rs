//! Limits log-in attempts after failures. Pure: time is an argument.
//!
//! Failures are counted per source (an IPv4 address, or the /64 of an IPv6 one) and per
//! user name. Both tables are bounded; a full one evicts the entry that was not used
//! for longest, so a flood of addresses neither uses memory nor locks users out.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

use ring::digest::{SHA256, digest};
use trivet_model::Tick;

/// Failures without a wait.
pub(crate) const FAILURES_MAX: u32 = 5;

/// Limit of remembered sources, and of names.
pub(crate) const ENTRIES_MAX: usize = 1024;

/// The first wait. Every further failure doubles it.
const WAIT_MS_FIRST: u64 = 5_000;

/// The longest wait.
const WAIT_MS_MAX: u64 = 60_000;

/// While a name must wait, this many callers from sources without failures are admitted
/// per [`WAIT_MS_MAX`]: guessing from other addresses does not lock the user out.
const NEW_SOURCES_MAX: u32 = 10;

/// A failure is removed after this time without another one.
const FAILURE_EXPIRY_MS: u64 = 15 * 60_000;

/// The source address of a caller.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct LoginSource(IpAddr);

impl LoginSource {
    /// A client with one address of an IPv6 /64 can use all of them.
    pub(crate) fn of(peer: IpAddr) -> Self {
        Self(match peer.to_canonical() {
            IpAddr::V4(address) => IpAddr::V4(address),
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
            }
        })
    }

    /// The address in bytes.
    pub(crate) fn bytes(self) -> Vec<u8> {
        match self.0 {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        }
    }
}

/// A user name that was tried, as a digest of fixed length.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct LoginNameDigest([u8; 32]);

impl LoginNameDigest {
    pub(crate) fn of(user: &str) -> Self {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest(&SHA256, user.as_bytes()).as_ref());
        Self(bytes)
    }
}

#[derive(Clone, Copy)]
struct LoginFailures {
    count: u32,
    last: Tick,
    /// Callers that were admitted while the name had to wait, and since when.
    new_sources: u32,
    new_sources_since: Tick,
}

impl LoginFailures {
    /// When the next attempt is admitted, if not at once.
    fn until(self) -> Option<Tick> {
        let beyond = self.count.checked_sub(FAILURES_MAX)?;
        let wait_ms = WAIT_MS_FIRST.saturating_mul(1 << beyond.min(16));
        Some(self.last.after_ms(wait_ms.min(WAIT_MS_MAX)))
    }
}

struct LoginFailureTable<K>(BTreeMap<K, LoginFailures>);

impl<K: Copy + Ord> LoginFailureTable<K> {
    /// Seconds to wait, rounded up.
    fn wait_s(&self, now: Tick, key: K) -> Option<u64> {
        let until = self.0.get(&key)?.until()?;
        let ms = until.since_ms(now);
        (ms > 0).then(|| ms.div_ceil(1000))
    }

    fn fail(&mut self, now: Tick, key: K) {
        if !self.0.contains_key(&key) && self.0.len() >= ENTRIES_MAX {
            let oldest = self.0.iter().min_by_key(|(_, strikes)| strikes.last);
            if let Some(oldest) = oldest.map(|(key, _)| *key) {
                self.0.remove(&oldest);
            }
        }
        let strikes = self.0.entry(key).or_insert(LoginFailures {
            count: 0,
            last: now,
            new_sources: 0,
            new_sources_since: now,
        });
        if now.since_ms(strikes.last) > FAILURE_EXPIRY_MS {
            strikes.count = 0;
        }
        strikes.count = strikes.count.saturating_add(1);
        strikes.last = now;
    }
}

/// The remembered failures.
pub(crate) struct LoginLimiter {
    sources: LoginFailureTable<LoginSource>,
    names: LoginFailureTable<LoginNameDigest>,
}

impl Default for LoginLimiter {
    fn default() -> Self {
        Self {
            sources: LoginFailureTable(BTreeMap::new()),
            names: LoginFailureTable(BTreeMap::new()),
        }
    }
}

impl LoginLimiter {
    /// How many seconds callers from this source must wait, if they must.
    pub(crate) fn source_wait_s(&self, now: Tick, place: LoginSource) -> Option<u64> {
        self.sources.wait_s(now, place)
    }

    /// How many seconds this user must wait, unless it was verified from its source.
    pub(crate) fn name_wait_s(&self, now: Tick, name: LoginNameDigest) -> Option<u64> {
        self.names.wait_s(now, name)
    }

    /// Whether a caller without failures may try a name that must wait.
    pub(crate) fn admits_new_source(
        &mut self,
        now: Tick,
        place: LoginSource,
        name: LoginNameDigest,
    ) -> bool {
        let failed = self.sources.0.get(&place);
        if failed.is_some_and(|failed| now.since_ms(failed.last) <= FAILURE_EXPIRY_MS) {
            return false;
        }
        let Some(strikes) = self.names.0.get_mut(&name) else {
            return true;
        };
        if now.since_ms(strikes.new_sources_since) > WAIT_MS_MAX {
            (strikes.new_sources, strikes.new_sources_since) = (0, now);
        }
        strikes.new_sources = strikes.new_sources.saturating_add(1);
        strikes.new_sources <= NEW_SOURCES_MAX
    }

    /// Counts a failure; returns the wait that starts with it, if any.
    pub(crate) fn fail(
        &mut self,
        now: Tick,
        place: LoginSource,
        name: Option<LoginNameDigest>,
    ) -> Option<u64> {
        self.sources.fail(now, place);
        if let Some(name) = name {
            self.names.fail(now, name);
        }
        self.source_wait_s(now, place)
    }

    /// A caller from this source has logged in.
    pub(crate) fn clear_source(&mut self, place: LoginSource) {
        self.sources.0.remove(&place);
    }

    /// The user has logged in.
    pub(crate) fn clear_name(&mut self, name: LoginNameDigest) {
        self.names.0.remove(&name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login_source(number: u32) -> LoginSource {
        LoginSource::of(IpAddr::V4(number.into()))
    }

    #[test]
    fn the_wait_begins_after_five_failures_and_grows_to_a_minute() {
        let mut limiter = LoginLimiter::default();
        let mut now = Tick(0);
        let mut waits = Vec::new();
        for _ in 0..12 {
            let wait = limiter.fail(now, login_source(1), None);
            assert_eq!(limiter.source_wait_s(now, login_source(1)), wait);
            waits.push(wait.unwrap_or(0));
            now = now.after_ms(wait.unwrap_or(0) * 1000);
            assert_eq!(
                limiter.source_wait_s(now, login_source(1)),
                None,
                "over by now"
            );
        }
        assert_eq!(waits, [0, 0, 0, 0, 5, 10, 20, 40, 60, 60, 60, 60]);
        assert_eq!(limiter.source_wait_s(now, login_source(2)), None);
    }

    #[test]
    fn a_success_or_a_long_pause_clears_the_failures() {
        let mut limiter = LoginLimiter::default();
        let (ann, now) = (LoginNameDigest::of("ann"), Tick(7));
        for _ in 0..FAILURES_MAX {
            limiter.fail(now, login_source(1), Some(ann));
        }
        assert_eq!(limiter.name_wait_s(now, ann), Some(5));
        limiter.clear_source(login_source(1));
        assert_eq!(limiter.source_wait_s(now, login_source(1)), None);
        assert_eq!(limiter.name_wait_s(now, ann), Some(5));
        limiter.clear_name(ann);
        assert_eq!(limiter.name_wait_s(now, ann), None);
        for _ in 1..FAILURES_MAX {
            limiter.fail(now, login_source(1), Some(ann));
        }
        let later = now.after_ms(FAILURE_EXPIRY_MS + 1);
        assert_eq!(limiter.fail(later, login_source(1), Some(ann)), None);
    }

    /// A flood from many addresses neither grows the tables nor locks others out, and
    /// the attacked name stays locked during the flood.
    #[test]
    fn a_flood_of_addresses_is_bounded() {
        let mut limiter = LoginLimiter::default();
        let ann = LoginNameDigest::of("ann");
        for number in 0..10 * ENTRIES_MAX as u32 {
            limiter.fail(Tick(number.into()), login_source(number), Some(ann));
        }
        assert_eq!(limiter.sources.0.len(), ENTRIES_MAX);
        let now = Tick(10 * ENTRIES_MAX as u64);
        assert_eq!(limiter.source_wait_s(now, login_source(u32::MAX)), None);
        assert_eq!(limiter.name_wait_s(now, ann), Some(60));
        for number in 0..2 * ENTRIES_MAX {
            limiter.fail(
                now,
                login_source(1),
                Some(LoginNameDigest::of(&number.to_string())),
            );
        }
        assert_eq!(limiter.names.0.len(), ENTRIES_MAX);
    }

    #[test]
    fn addresses_in_one_ipv6_network_are_one_source() {
        let of = |text: &str| LoginSource::of(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }

    #[test]
    fn a_name_that_waits_may_be_tried_from_sources_without_failures_within_bounds() {
        let mut limiter = LoginLimiter::default();
        let (ann, now) = (LoginNameDigest::of("ann"), Tick(7));
        for _ in 0..FAILURES_MAX {
            limiter.fail(now, login_source(1), Some(ann));
        }
        assert!(!limiter.admits_new_source(now, login_source(1), ann));
        let many = |limiter: &mut LoginLimiter, now| {
            let all = 100..200;
            let through =
                all.filter(|number| limiter.admits_new_source(now, login_source(*number), ann));
            through.count()
        };
        assert_eq!(many(&mut limiter, now), NEW_SOURCES_MAX as usize);
        let later = now.after_ms(WAIT_MS_MAX + 1);
        assert_eq!(many(&mut limiter, later), NEW_SOURCES_MAX as usize);
    }

    #[test]
    fn endless_failures_do_not_overflow() {
        let strikes = LoginFailures {
            count: u32::MAX,
            last: Tick(u64::MAX),
            new_sources: 0,
            new_sources_since: Tick(0),
        };
        assert_eq!(strikes.until(), Some(Tick(u64::MAX)));
    }
}
