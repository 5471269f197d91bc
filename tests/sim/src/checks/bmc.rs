//! What BMCs see: never a second question before the first was answered or given time,
//! never more than a cheap one can stand, and no order that nobody wants.

use std::collections::{BTreeMap, VecDeque};

use trivet_model::{Node, PowerOrder, Tick};

/// A question that went unanswered may be put again, or another one, after this long.
/// The box's own pace (`boxed.rs`).
const RETRY_MS_MIN: u64 = 250;

/// The most datagrams to one BMC within a second: orders of four requests each, with rests
/// between them, and a login.
const PER_SECOND_MAX: usize = 64;

/// How long after it was last wanted an order may still come true: that of a job which was
/// aborted meanwhile is on the wire, or is said again, for as long as one order takes.
const LATE_MS_MAX: u64 = 10_000;

/// What each BMC saw.
#[derive(Debug, Default)]
pub(crate) struct BmcTrafficChecks(BTreeMap<usize, BmcTrafficRecord>);

#[derive(Debug, Default)]
struct BmcTrafficRecord {
    /// The life of the box that spoke, the session's number and when it last spoke there.
    last: Option<(u64, u32, Tick)>,
    answered: bool,
    /// Asked too early: unless that was the last word of the session.
    early: Option<String>,
    recent: VecDeque<Tick>,
    wanted: Option<Tick>,
}

impl BmcTrafficChecks {
    /// The box sends a datagram to a machine's BMC; a sentence if it must not.
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
                    early.then(|| format!("BMC {machine} was asked again after {after_ms} ms"));
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

    /// The record of a machine's node, now and then.
    pub(crate) fn power_change_wanted(&mut self, now: Tick, machine: usize, node: Option<&Node>) {
        if node.is_some_and(|node| node.job.is_some() || node.target_power_state.is_some()) {
            self.0.entry(machine).or_default().wanted = Some(now);
        }
    }

    /// A BMC carries an order out; a sentence if nobody wanted it.
    pub(crate) fn check_power_order(
        &self,
        now: Tick,
        machine: usize,
        order: PowerOrder,
    ) -> Option<String> {
        let wanted = self.0.get(&machine).and_then(|seen| seen.wanted);
        let wanted = wanted.is_some_and(|at| now.since_ms(at) <= LATE_MS_MAX);
        (!wanted).then(|| format!("BMC {machine} did {order:?}, which nobody wanted"))
    }
}

/// The number of the session that a datagram belongs to, if it is in one.
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
    fn a_second_question_needs_an_answer_or_time() {
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
        // Another session, another life and a login are no second question.
        assert_eq!(bmcs.sent(Tick(402), 1, 0, &datagram(6)), None);
        assert_eq!(bmcs.sent(Tick(403), 2, 0, &datagram(6)), None);
        assert_eq!(bmcs.sent(Tick(404), 2, 0, &datagram(0)), None);
    }

    #[test]
    fn a_flood_is_seen() {
        let mut bmcs = BmcTrafficChecks::default();
        let mut sent = |ms| bmcs.sent(Tick(ms), 1, 0, &datagram(0)).is_some();
        assert!(!(0..PER_SECOND_MAX as u64).any(&mut sent));
        assert!(sent(500));
        assert!(!sent(2000));
    }

    #[test]
    fn an_order_that_nobody_wants_is_seen() {
        let bmcs = BmcTrafficChecks::default();
        assert!(
            bmcs.check_power_order(Tick(5), 0, PowerOrder::Off)
                .is_some()
        );
    }
}
