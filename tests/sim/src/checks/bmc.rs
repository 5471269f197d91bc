//! Checks the traffic to BMCs: no second request before the first got a reply or timed out, not
//! more than a slow BMC can handle, and no power change without a request.

use std::collections::{BTreeMap, VecDeque};

use trivet_model::{Node, PowerOrder, Tick};

/// A request without a reply may be repeated, or another sent, after this long. The pace of the
/// box itself (`box_under_test.rs`).
const RETRY_MS_MIN: u64 = 250;

/// Most datagrams to one BMC within a second: commands of four requests each, with pauses
/// between them, and a login.
const PER_SECOND_MAX: usize = 64;

/// How long after it was last wanted a power change may still happen: the request of an aborted
/// job is in flight, or is repeated, for as long as one command takes.
const LATE_MS_MAX: u64 = 10_000;

/// The traffic to each BMC.
#[derive(Debug, Default)]
pub(crate) struct BmcTrafficChecks(BTreeMap<usize, BmcTrafficRecord>);

#[derive(Debug, Default)]
struct BmcTrafficRecord {
    /// The start of the box, the session id and the time of the last request.
    last: Option<(u64, u32, Tick)>,
    answered: bool,
    /// A request that was too early, unless it closed the session.
    early: Option<String>,
    recent: VecDeque<Tick>,
    wanted: Option<Tick>,
}

impl BmcTrafficChecks {
    /// The box sends a datagram to a machine's BMC; returns a violation if it must not.
    pub(crate) fn sent(
        &mut self,
        now: Tick,
        life: u64,
        machine: usize,
        bytes: &[u8],
    ) -> Option<String> {
        let seen = self.0.entry(machine).or_default();
        while seen
            .recent
            .front()
            .is_some_and(|at| now.since_ms(*at) >= 1000)
        {
            seen.recent.pop_front();
        }
        seen.recent.push_back(now);
        if seen.recent.len() > PER_SECOND_MAX {
            return Some(format!(
                "BMC {machine} got {} datagrams in a second",
                seen.recent.len()
            ));
        }
        let session = session(bytes)?;
        let last = seen.last.replace((life, session, now));
        let answered = std::mem::take(&mut seen.answered);
        match last {
            Some((earlier, same, at)) if (earlier, same) == (life, session) => {
                let (after_ms, earlier) = (now.since_ms(at), seen.early.take());
                let early = !answered && after_ms < RETRY_MS_MIN;
                seen.early =
                    early.then(|| format!("BMC {machine} got another request after {after_ms} ms"));
                earlier
            }
            _ => {
                seen.early = None;
                None
            }
        }
    }

    /// A datagram of a machine's BMC reaches the box.
    pub(crate) fn response_received(&mut self, machine: usize) {
        self.0.entry(machine).or_default().answered = true;
    }

    /// The present record of a machine's node.
    pub(crate) fn power_change_wanted(&mut self, now: Tick, machine: usize, node: Option<&Node>) {
        if node.is_some_and(|node| node.job.is_some() || node.target_power_state.is_some()) {
            self.0.entry(machine).or_default().wanted = Some(now);
        }
    }

    /// A BMC executes a power order; returns a violation if it was not wanted.
    pub(crate) fn check_power_order(
        &self,
        now: Tick,
        machine: usize,
        order: PowerOrder,
    ) -> Option<String> {
        let wanted = self.0.get(&machine).and_then(|seen| seen.wanted);
        let wanted = wanted.is_some_and(|at| now.since_ms(at) <= LATE_MS_MAX);
        (!wanted).then(|| format!("BMC {machine} did {order:?}, which was not wanted"))
    }
}

/// The session id of a datagram, if it has one.
fn session(bytes: &[u8]) -> Option<u32> {
    let number = bytes.get(6..10)?.try_into().ok().map(u32::from_le_bytes)?;
    let plus = bytes.get(3..5) == Some(&[7, 6]);
    Some(number).filter(|number| plus && *number != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datagram(session: u32) -> Vec<u8> {
        let mut bytes = vec![6, 0, 0xff, 7, 6, 0xc0];
        bytes.extend(session.to_le_bytes());
        bytes
    }

    #[test]
    fn a_second_request_needs_a_reply_or_a_timeout() {
        let mut bmcs = BmcTrafficChecks::default();
        assert_eq!(bmcs.sent(Tick(0), 1, 0, &datagram(5)), None);
        assert_eq!(
            bmcs.sent(Tick(100), 1, 0, &datagram(5)),
            None,
            "a last word?"
        );
        assert!(
            bmcs.sent(Tick(400), 1, 0, &datagram(5)).is_some(),
            "it was not"
        );
        bmcs.response_received(0);
        assert_eq!(bmcs.sent(Tick(401), 1, 0, &datagram(5)), None);
        // Another session, another start and a login are not a second request.
        assert_eq!(bmcs.sent(Tick(402), 1, 0, &datagram(6)), None);
        assert_eq!(bmcs.sent(Tick(403), 2, 0, &datagram(6)), None);
        assert_eq!(bmcs.sent(Tick(404), 2, 0, &datagram(0)), None);
    }

    #[test]
    fn a_flood_is_detected() {
        let mut bmcs = BmcTrafficChecks::default();
        let mut sent = |ms| bmcs.sent(Tick(ms), 1, 0, &datagram(0)).is_some();
        assert!(!(0..PER_SECOND_MAX as u64).any(&mut sent));
        assert!(sent(500));
        assert!(!sent(2000));
    }

    #[test]
    fn an_unwanted_power_change_is_detected() {
        let bmcs = BmcTrafficChecks::default();
        assert!(
            bmcs.check_power_order(Tick(5), 0, PowerOrder::Off)
                .is_some()
        );
    }
}
