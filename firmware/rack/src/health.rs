//! How well each BMC answers: a small measure of its last answers, in memory only.
//!
//! It says at a glance which BMC of a rack is about to give trouble, and one that answers
//! badly is asked less often by those who need not ask (see `freshness`).

use std::collections::{BTreeMap, VecDeque};

use trivet_model::view::BmcHealth;
use trivet_model::{Cause, NodeId, Now, PowerError, Tick};

use crate::Rack;

/// How many answers are remembered of each BMC. Ours: a quarter of an hour of readings.
const RECENT_MAX: usize = 16;

/// With fewer answers than this nobody is asked less often for a bad score.
const RECENT_MIN: usize = 8;

/// A median beyond this costs points. Ours: sound BMCs take a tenth of it.
const SLOW_MS: u64 = 5_000;
const SLOW_POINTS: u8 = 20;

/// Below these scores a BMC is asked half and a quarter as often.
const SCORE_FAIR: u8 = 75;
const SCORE_BAD: u8 = 50;

/// What is remembered of all BMCs.
#[derive(Default)]
pub(crate) struct Health {
    of: BTreeMap<NodeId, Recent>,
}

#[derive(Default)]
struct Recent {
    /// How each one ended, newest last.
    ends: VecDeque<End>,
    last_error: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum End {
    /// Answered, after so long where that says something.
    Answered(Option<u64>),
    Failed,
}

impl Recent {
    fn keep(&mut self, end: End) {
        if self.ends.len() >= RECENT_MAX {
            self.ends.pop_front();
        }
        self.ends.push_back(end);
    }

    fn told(&self) -> BmcHealth {
        let asked = self.ends.len();
        let answers = self.ends.iter().filter(|end| **end != End::Failed);
        let answered = answers.count();
        let mut times: Vec<u64> = self.ends.iter().filter_map(|end| end.took_ms()).collect();
        times.sort_unstable();
        let median_ms = times.get(times.len() / 2).copied();
        let share = u8::try_from(answered * 100 / asked.max(1)).unwrap_or(100);
        let slow = median_ms.is_some_and(|ms| ms > SLOW_MS);
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        BmcHealth {
            asked: count(asked),
            answered: count(answered),
            median_ms,
            last_error: self.last_error,
            score: share.saturating_sub(if slow { SLOW_POINTS } else { 0 }),
        }
    }
}

impl End {
    fn took_ms(self) -> Option<u64> {
        match self {
            Self::Answered(took_ms) => took_ms,
            Self::Failed => None,
        }
    }
}

impl Health {
    pub(crate) fn forget(&mut self, id: NodeId) {
        self.of.remove(&id);
    }

    /// How often the pause between two readings of a BMC is doubled for its score.
    pub(crate) fn doublings(&self, id: NodeId) -> u32 {
        let recent = self.of.get(&id);
        let recent = recent.filter(|recent| recent.ends.len() >= RECENT_MIN);
        match recent.map(|recent| recent.told().score) {
            Some(score) if score < SCORE_BAD => 2,
            Some(score) if score < SCORE_FAIR => 1,
            _ => 0,
        }
    }
}

impl Rack {
    /// A BMC answered, or did not. `asked` is when, where the time it took says something
    /// of the BMC.
    pub(crate) fn bmc_heard(
        &mut self,
        now: Now,
        id: NodeId,
        asked: Option<Tick>,
        error: Option<&PowerError>,
    ) {
        let end = match error {
            // It was not asked.
            Some(
                PowerError::NotConfigured { .. }
                | PowerError::SharedBmc { .. }
                | PowerError::Unsupported { .. }
                | PowerError::Busy,
            ) => return,
            // It answered, though not as it was wished.
            None
            | Some(
                PowerError::Refused { .. }
                | PowerError::Bmc {
                    cause: Cause::Refused,
                    ..
                },
            ) => End::Answered(asked.map(|asked| now.tick.since_ms(asked))),
            Some(_) => End::Failed,
        };
        if self.book.node(id).is_none() {
            return;
        }
        let recent = self.health.of.entry(id).or_default();
        recent.keep(end);
        if let Some(error) = error {
            recent.last_error = Some(error.kind());
        }
        let told = recent.told();
        let shown = self.book.view.nodes.get(&id);
        let shown = shown.and_then(|view| view.live.bmc);
        if shown.is_none_or(|shown| differs(&shown, &told)) {
            self.book.change_view(id, |view| view.live.bmc = Some(told));
        }
    }
}

/// Whether readers should see it anew. A median that trembles is no news: the snapshot
/// of an idle rack stays as it is.
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
