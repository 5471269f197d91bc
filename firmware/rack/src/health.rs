//! How well each BMC answers: a small measure of its last replies, in memory only.
//!
//! It shows which BMC of a rack is about to fail, and a BMC that answers badly is read less
//! often by the power sync (see `power_sync`).

use std::collections::{BTreeMap, VecDeque};

use trivet_model::view::BmcHealth;
use trivet_model::{BmcFailureCause, NodeId, Now, PowerError, Tick};

use crate::Rack;

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
        let asked = self.outcomes.len();
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
        let share = u8::try_from(answered * 100 / asked.max(1)).unwrap_or(100);
        let slow = median_ms.is_some_and(|ms| ms > SLOW_MS);
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        BmcHealth {
            requests: count(asked),
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
}

impl Rack {
    /// A BMC replied, or did not. `asked` is the time of the request, where the duration
    /// measures the BMC.
    pub(crate) fn record_bmc_reply(
        &mut self,
        now: Now,
        id: NodeId,
        asked: Option<Tick>,
        error: Option<&PowerError>,
    ) {
        let end = match error {
            // No request was sent.
            Some(
                PowerError::NotConfigured { .. }
                | PowerError::SharedBmc { .. }
                | PowerError::Unsupported { .. }
                | PowerError::QueueFull,
            ) => return,
            // It replied, if only with an error.
            None
            | Some(
                PowerError::Refused { .. }
                | PowerError::Bmc {
                    cause: BmcFailureCause::Refused,
                    ..
                },
            ) => BmcReplyOutcome::Answered(asked.map(|asked| now.tick.since_ms(asked))),
            Some(_) => BmcReplyOutcome::Failed,
        };
        if self.records.node(id).is_none() {
            return;
        }
        let recent = self.health.by_node.entry(id).or_default();
        recent.record(end);
        if let Some(error) = error {
            recent.last_error = Some(error.kind());
        }
        let told = recent.summary();
        let shown = self.records.view.nodes.get(&id);
        let shown = shown.and_then(|view| view.live.bmc);
        if shown.is_none_or(|shown| differs(&shown, &told)) {
            self.records
                .change_view(id, |view| view.live.bmc = Some(told));
        }
    }
}

/// Whether readers need the new values. Small changes of the median are ignored, so that the
/// snapshot of an idle rack does not change.
fn differs(shown: &BmcHealth, told: &BmcHealth) -> bool {
    let far = match (shown.median_ms, told.median_ms) {
        (Some(shown), Some(told)) => shown.abs_diff(told) > shown / 4 + 10,
        (shown, told) => shown != told,
    };
    let still = BmcHealth {
        median_ms: shown.median_ms,
        ..*told
    };
    far || still != *shown
}
