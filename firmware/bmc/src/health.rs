//! How well each BMC answers: a small measure of its last replies, in memory only.
//!
//! It shows which BMC of a rack is about to fail, and a BMC that answers badly is read less
//! often by the power sync (see `power_sync`).

use std::collections::{BTreeMap, VecDeque};

use trivet_model::view::BmcHealth;
use trivet_model::{BmcFailureCause, NodeId, PowerError};

/// How many replies are remembered for each BMC. Ours: a quarter of an hour of readings.
const RECENT_MAX: usize = 16;

/// With fewer replies than this no BMC is read less often for a bad score.
const RECENT_MIN: usize = 8;

/// A median above this lowers the score. Ours: healthy BMCs take a tenth of it.
const SLOW_MS: u64 = 5_000;
const SLOW_POINTS: u8 = 20;

/// Below these scores a BMC is read half and a quarter as often.
const SCORE_FAIR: u8 = 75;
const SCORE_BAD: u8 = 50;

/// What is remembered of all BMCs.
#[derive(Default)]
pub(crate) struct BmcHealthTracker {
    by_node: BTreeMap<NodeId, RecentBmcReplies>,
}

#[derive(Default)]
struct RecentBmcReplies {
    /// The outcome of each request, newest last.
    outcomes: VecDeque<BmcReplyOutcome>,
    last_error: Option<&'static str>,
    /// The values that readers have.
    shown: Option<BmcHealth>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum BmcReplyOutcome {
    /// Answered; the time in ms where it measures the BMC.
    Answered(Option<u64>),
    Failed,
}

impl RecentBmcReplies {
    fn record(&mut self, end: BmcReplyOutcome) {
        if self.outcomes.len() >= RECENT_MAX {
            self.outcomes.pop_front();
        }
        self.outcomes.push_back(end);
    }

    fn summary(&self) -> BmcHealth {
        let requested = self.outcomes.len();
        let answers = self
            .outcomes
            .iter()
            .filter(|end| **end != BmcReplyOutcome::Failed);
        let answered = answers.count();
        let mut times: Vec<u64> = self
            .outcomes
            .iter()
            .filter_map(|end| end.took_ms())
            .collect();
        times.sort_unstable();
        let median_ms = times.get(times.len() / 2).copied();
        let share = u8::try_from(answered * 100 / requested.max(1)).unwrap_or(100);
        let slow = median_ms.is_some_and(|ms| ms > SLOW_MS);
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        BmcHealth {
            requests: count(requested),
            replies: count(answered),
            median_ms,
            last_error: self.last_error,
            score: share.saturating_sub(if slow { SLOW_POINTS } else { 0 }),
        }
    }
}

impl BmcReplyOutcome {
    fn took_ms(self) -> Option<u64> {
        match self {
            Self::Answered(took_ms) => took_ms,
            Self::Failed => None,
        }
    }
}

impl BmcHealthTracker {
    pub(crate) fn remove(&mut self, id: NodeId) {
        self.by_node.remove(&id);
    }

    /// How many times the pause between two readings of a BMC is doubled for its score.
    pub(crate) fn doublings(&self, id: NodeId) -> u32 {
        let recent = self.by_node.get(&id);
        let recent = recent.filter(|recent| recent.outcomes.len() >= RECENT_MIN);
        match recent.map(|recent| recent.summary().score) {
            Some(score) if score < SCORE_BAD => 2,
            Some(score) if score < SCORE_FAIR => 1,
            _ => 0,
        }
    }

    /// A BMC replied, or did not. `took_ms` is the time from the request, where it measures the
    /// BMC. Returns the new values if readers need them.
    pub(crate) fn record(
        &mut self,
        id: NodeId,
        took_ms: Option<u64>,
        error: Option<&PowerError>,
    ) -> Option<BmcHealth> {
        let outcome = match error {
            // No request was sent.
            Some(
                PowerError::NotConfigured { .. }
                | PowerError::SharedBmc { .. }
                | PowerError::Unsupported { .. }
                | PowerError::QueueFull,
            ) => return None,
            // It replied, if only with an error.
            None
            | Some(
                PowerError::Refused { .. }
                | PowerError::Bmc {
                    cause: BmcFailureCause::Refused,
                    ..
                },
            ) => BmcReplyOutcome::Answered(took_ms),
            Some(_) => BmcReplyOutcome::Failed,
        };
        let recent = self.by_node.entry(id).or_default();
        recent.record(outcome);
        if let Some(error) = error {
            recent.last_error = Some(error.kind());
        }
        let now = recent.summary();
        if recent.shown.is_some_and(|shown| !differs(&shown, &now)) {
            return None;
        }
        recent.shown = Some(now);
        Some(now)
    }
}

/// Whether readers need the new values. Small changes of the median are ignored, so that the
/// snapshot of an idle rack does not change.
fn differs(shown: &BmcHealth, reported: &BmcHealth) -> bool {
    let far = match (shown.median_ms, reported.median_ms) {
        (Some(shown), Some(reported)) => shown.abs_diff(reported) > shown / 4 + 10,
        (shown, reported) => shown != reported,
    };
    let still = BmcHealth {
        median_ms: shown.median_ms,
        ..*reported
    };
    far || still != *shown
}

#[cfg(test)]
mod tests {
    use trivet_model::SeededRandom;

    use super::*;

    fn id() -> NodeId {
        NodeId::random(&mut SeededRandom::new(1))
    }

    fn silent() -> PowerError {
        PowerError::NoResponse { waited_ms: 1 }
    }

    /// Records this many replies after `took_ms`, or failures. Returns what readers see then.
    fn record(
        health: &mut BmcHealthTracker,
        count: usize,
        took_ms: u64,
        error: Option<&PowerError>,
    ) -> Option<BmcHealth> {
        for _ in 0..count {
            health.record(id(), Some(took_ms), error);
        }
        health.by_node.get(&id()).and_then(|recent| recent.shown)
    }

    #[test]
    fn a_bmc_is_measured_by_its_last_answers() {
        let mut health = BmcHealthTracker::default();
        assert_eq!(
            record(&mut health, 0, 0, None),
            None,
            "it never got a request"
        );
        record(&mut health, 3, 40, None);
        let want = BmcHealth {
            requests: 4,
            replies: 3,
            median_ms: Some(40),
            last_error: Some("unreachable"),
            score: 75,
        };
        assert_eq!(record(&mut health, 1, 40, Some(&silent())), Some(want));
        let last = record(&mut health, 16, 40, None).unwrap();
        assert_eq!((last.requests, last.score), (16, 100), "the old are gone");
        assert_eq!(last.last_error, Some("unreachable"), "but not the error");
    }

    #[test]
    fn being_slow_costs_points_and_a_refusal_is_an_answer() {
        let mut health = BmcHealthTracker::default();
        let slow = record(&mut health, 4, 6_000, None).unwrap();
        assert_eq!(slow.score, 80);
        let refused = PowerError::Refused { code: 0xd5 };
        let last = record(&mut health, 16, 30, Some(&refused)).unwrap();
        assert_eq!((last.score, last.last_error), (100, Some("refused")));
    }

    #[test]
    fn a_request_that_was_not_sent_does_not_count() {
        let mut health = BmcHealthTracker::default();
        for error in [
            PowerError::QueueFull,
            PowerError::NotConfigured { missing: "x" },
            PowerError::SharedBmc { other: "x".into() },
            PowerError::Unsupported { message: "x" },
        ] {
            assert_eq!(health.record(id(), Some(1), Some(&error)), None);
        }
        assert!(health.by_node.is_empty());
        assert_eq!(health.doublings(id()), 0);
    }

    #[test]
    fn a_bmc_request_counts_without_its_time() {
        let mut health = BmcHealthTracker::default();
        let shown = health.record(id(), None, None).unwrap();
        assert_eq!((shown.replies, shown.median_ms), (1, None));
    }

    #[test]
    fn a_bad_score_makes_readings_rarer() {
        let mut health = BmcHealthTracker::default();
        record(&mut health, 7, 1, Some(&silent()));
        assert_eq!(health.doublings(id()), 0, "too few to judge");
        record(&mut health, 1, 1, Some(&silent()));
        assert_eq!(health.doublings(id()), 2);
        record(&mut health, 12, 1, None);
        // Four of sixteen failed.
        assert_eq!(health.doublings(id()), 0);
        record(&mut health, 9, 1, None);
        record(&mut health, 5, 1, Some(&silent()));
        assert_eq!(health.doublings(id()), 1);
        health.remove(id());
        assert_eq!(health.doublings(id()), 0);
    }

    #[test]
    fn a_small_change_of_the_median_is_not_shown() {
        let mut health = BmcHealthTracker::default();
        record(&mut health, 16, 40, None);
        let shown = record(&mut health, 16, 45, None).unwrap();
        assert_eq!(shown.median_ms, Some(40));
        let shown = record(&mut health, 16, 90, None).unwrap();
        assert!(shown.median_ms > Some(60));
    }
}
