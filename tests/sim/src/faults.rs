//! The faults of a seed, and when they happen.
//!
//! Rates apply to the whole run; incidents happen once, at a time drawn from the seed. Every
//! eighth seed has no faults: there every node must become active.

use trivet_model::{SeededRandom, Tick};

use crate::fault_points::FaultPoint;
use crate::image_faults::ImageFault;
use crate::machine::InjectedAgentFault;

/// Incidents happen within this time after the start.
const INCIDENTS_MS: u64 = 200_000;

/// The most incidents of one seed.
const INCIDENTS_MAX: u64 = 8;

/// Most fault points of one seed.
const FAULT_POINTS_MAX: u64 = 3;

/// Misbehaviour of a BMC.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum InjectedBmcFault {
    /// It accepts power orders and does nothing; the reported power state is true.
    IgnoresOrders,
    /// It accepts power orders, does nothing and reports success.
    ClaimsSuccess,
    /// It switches power but forgets boot devices.
    ForgetsBootDevice,
}

/// A fault that happens once.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Incident {
    /// The box loses power between two writes, for a while.
    BoxCut { off_ms: u64 },
    /// The box loses power inside its next commit, after so many operations.
    BoxCutInCommit { operations: u64, off_ms: u64 },
    /// The box's wall clock steps.
    ClockStep { by_ms: i64 },
    /// A BMC does not reply; without an end, for ever.
    BmcHangs { machine: usize, for_ms: Option<u64> },
    /// A BMC misbehaves for a while.
    BmcMisbehaves {
        machine: usize,
        fault: InjectedBmcFault,
        for_ms: u64,
    },
    /// A fault of an agent; its machine stays on.
    Agent {
        machine: usize,
        fault: InjectedAgentFault,
    },
    /// Heartbeats of a machine's agent are lost for a while.
    HeartbeatsLost { machine: usize, for_ms: u64 },
    /// A client that knows a machine's address calls the API in its agent's name.
    Impostor { machine: usize },
    /// A fault of the image's source, or of the disk of the cache.
    Image(ImageFault),
    /// The machine loses power, and stays off or comes back by itself.
    PowerLoss { machine: usize, back: bool },
}

/// The faults of one seed.
#[derive(Clone, Debug, Default)]
pub(crate) struct SeedFaults {
    /// Per mille of datagrams that are lost.
    pub(crate) lost: u64,
    /// Per mille that are duplicated.
    pub(crate) doubled: u64,
    /// Per mille that are delayed and reordered.
    pub(crate) late: u64,
    /// Per mille of HTTP requests, and of responses, that are lost.
    pub(crate) http_lost: u64,
    /// Per mille that are delayed.
    pub(crate) http_late: u64,
    /// Per mille of images that are corrupted in transit.
    pub(crate) corrupt: u64,
    /// Per mille of images whose agent dies during the write.
    pub(crate) dies_writing: u64,
    /// Per mille of images whose machine loses power during the write.
    pub(crate) cut_writing: u64,
    /// Per mille of agents' replies that are duplicated.
    pub(crate) answered_twice: u64,
    /// Incidents, in order of time.
    pub(crate) incidents: Vec<(Tick, Incident)>,
    /// The content of the image, in place of the usual one.
    pub(crate) image: Option<Vec<u8>>,
    /// Faults that happen at a point of a node's job.
    pub(crate) fault_points: Vec<FaultPoint>,
}

impl SeedFaults {
    /// Whether there are no faults.
    pub(crate) fn are_none(&self) -> bool {
        self.fault_points.is_empty() && self.are_quiet()
    }

    /// Whether there are no random faults; there may be fault points.
    pub(crate) fn are_quiet(&self) -> bool {
        self.incidents.is_empty() && self.rates().iter().all(|rate| *rate == 0)
    }

    fn rates(&self) -> [u64; 9] {
        [
            self.lost,
            self.doubled,
            self.late,
            self.http_lost,
            self.http_late,
            self.corrupt,
            self.dies_writing,
            self.cut_writing,
            self.answered_twice,
        ]
    }

    /// The faults of a seed, in a rack of so many machines.
    pub(crate) fn for_seed(seed: u64, machines: usize, chance: &mut SeededRandom) -> Self {
        if seed.is_multiple_of(8) {
            return Self::default();
        }
        let mut rate = |most: u64| {
            if chance.chance(500) {
                chance.below(most)
            } else {
                0
            }
        };
        let mut faults = Self {
            lost: rate(150),
            doubled: rate(150),
            late: rate(200),
            http_lost: rate(80),
            http_late: rate(100),
            corrupt: rate(300),
            dies_writing: rate(300),
            cut_writing: rate(300),
            answered_twice: rate(200),
            incidents: Vec::new(),
            image: None,
            fault_points: Vec::new(),
        };
        for _ in 0..chance.below(INCIDENTS_MAX + 1) {
            let at = Tick(1000 + chance.below(INCIDENTS_MS));
            faults.incidents.push((at, incident(machines, chance)));
        }
        faults.incidents.sort_by_key(|(at, _)| *at);
        faults
    }

    /// Adds fault points: from a random stream of their own, so that everything else is as
    /// without them.
    pub(crate) fn add_fault_points(&mut self, seed: u64, machines: usize) {
        let mut chance = SeededRandom::new(seed.rotate_left(17) ^ 0x0a3b_05be);
        if !seed.is_multiple_of(8) {
            let count = chance.below(FAULT_POINTS_MAX + 1);
            self.fault_points = (0..count)
                .map(|_| FaultPoint::random(machines, &mut chance))
                .collect();
        }
    }
}

impl SeedFaults {
    /// Adds faults of the image. Every sixteenth seed has no others.
    pub(crate) fn add_image_faults(&mut self, seed: u64) {
        if !seed.is_multiple_of(16) {
            self.incidents
                .extend(crate::image_faults::image_faults(seed));
            self.incidents.sort_by_key(|(at, _)| *at);
        }
    }

    /// Whether nothing but the image has faults.
    pub(crate) fn are_of_image_only(&self) -> bool {
        let is_image = |(_, incident): &(Tick, Incident)| matches!(incident, Incident::Image(_));
        self.fault_points.is_empty()
            && self.rates().iter().all(|rate| *rate == 0)
            && self.incidents.iter().all(is_image)
    }
}

fn incident(machines: usize, chance: &mut SeededRandom) -> Incident {
    let machine = chance.below(machines as u64) as usize;
    let for_ms = 1000 + chance.below(60_000);
    let off_ms = 500 + chance.below(20_000);
    match chance.below(13) {
        0 | 1 => Incident::BoxCut { off_ms },
        2..=5 => Incident::BoxCutInCommit {
            operations: chance.below(4),
            off_ms,
        },
        6 => Incident::ClockStep {
            by_ms: i64::try_from(chance.below(20_000_000)).unwrap_or(0) - 10_000_000,
        },
        7 => Incident::BmcHangs {
            machine,
            for_ms: (!chance.chance(100)).then_some(for_ms),
        },
        8 | 9 => Incident::BmcMisbehaves {
            machine,
            fault: [
                InjectedBmcFault::IgnoresOrders,
                InjectedBmcFault::ClaimsSuccess,
                InjectedBmcFault::ForgetsBootDevice,
            ][chance.below(3) as usize],
            for_ms,
        },
        10 => Incident::Agent {
            machine,
            fault: InjectedAgentFault::Dies,
        },
        11 => Incident::Impostor { machine },
        _ => Incident::PowerLoss {
            machine,
            back: chance.chance(500),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_eighth_seed_has_no_faults_and_most_others_have() {
        let faults = |seed| SeedFaults::for_seed(seed, 3, &mut SeededRandom::new(seed));
        assert!((0..20).all(|n| faults(n * 8).are_none()));
        let loud = (0..400).filter(|seed| !faults(*seed).are_none()).count();
        assert!(loud > 300, "{loud}");
    }

    #[test]
    fn incidents_are_in_order_and_of_every_kind() {
        let mut kinds = std::collections::BTreeSet::new();
        for seed in 0..400 {
            let faults = SeedFaults::for_seed(seed, 3, &mut SeededRandom::new(seed));
            assert!(faults.incidents.is_sorted_by_key(|(at, _)| *at));
            for (_, incident) in faults.incidents {
                let text = format!("{incident:?}");
                kinds.insert(text.split(' ').next().unwrap_or_default().to_owned());
            }
        }
        assert_eq!(kinds.len(), 8, "{kinds:?}");
    }
}
