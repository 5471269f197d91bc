//! How long a stage usually takes, and when it is late.

use std::collections::{BTreeMap, VecDeque};

use trivet_model::story::{JobOutcome, JobStory, Stage, StageState};
use trivet_model::{JobKind, Node};

/// A stage is late at this multiple of its usual duration.
const LATE_FACTOR: u64 = 3;

/// No stage is late before this time, in ms: short stages vary.
const LATE_MS_MIN: u64 = 10_000;

/// The same for switching power, in ms: a machine that is off already takes no time, and one that
/// is on may take a minute.
const LATE_POWER_MS_MIN: u64 = 60_000;

/// How many durations of one stage of one model are kept.
const SAMPLES_MAX: usize = 15;

/// How many models are kept. The durations of further models count for the common key.
const MODELS_MAX: usize = 256;

/// The key of all nodes whose model is not known.
pub const COMMON_MODEL: &str = "unknown model";

/// Longest name of a model, in bytes.
const MODEL_BYTES_MAX: usize = 64;

/// After which time a stage is late where its usual duration is not known, in ms. Ours: longer
/// than such stages take on slow servers, and much shorter than the time-out of the job.
const fn default_late_ms(stage: Stage) -> u64 {
    let seconds = match stage {
        Stage::Address | Stage::Script => 30,
        Stage::Loader | Stage::Kernel => 60,
        Stage::Power => 120,
        Stage::Ramdisk | Stage::Agent | Stage::BootLoader | Stage::DiskBoot => 300,
        Stage::Post => 420,
        Stage::Image => 1800,
        Stage::Steps => 3600,
    };
    seconds * 1000
}

/// After which time a stage is late, in ms.
pub fn late_after_ms(stage: Stage, usual_ms: Option<u64>) -> u64 {
    match usual_ms {
        Some(usual) => {
            let least = match stage {
                Stage::Power => LATE_POWER_MS_MIN,
                _ => LATE_MS_MIN,
            };
            usual.saturating_mul(LATE_FACTOR).max(least)
        }
        None => default_late_ms(stage),
    }
}

/// The model of a node: vendor and product of its inventory, or the common key.
pub fn model_of(node: &Node) -> String {
    let vendor = node.inventory.as_ref().map(|inventory| {
        let nested = &inventory["inventory"]["system_vendor"];
        if nested.is_object() {
            nested
        } else {
            &inventory["system_vendor"]
        }
    });
    let word = |key: &str| {
        let word = vendor.and_then(|vendor| vendor[key].as_str());
        word.map(str::trim).filter(|word| !word.is_empty())
    };
    let words: Vec<&str> = [word("manufacturer"), word("product_name")]
        .into_iter()
        .flatten()
        .collect();
    if words.is_empty() {
        return COMMON_MODEL.to_owned();
    }
    trivet_model::story::shortened(&words.join(" "), MODEL_BYTES_MAX)
}

/// The steps of different kinds of jobs have nothing in common, and a verification only reads the
/// power state, where other jobs switch it. The other stages are the same in all jobs.
fn kind_of(stage: Stage, kind: JobKind) -> Option<JobKind> {
    let differs = match stage {
        Stage::Steps => true,
        Stage::Power => kind == JobKind::Verify,
        _ => false,
    };
    differs.then_some(kind)
}

/// The durations of good stages at this site, by model.
#[derive(Clone, Debug, Default)]
pub struct UsualDurations {
    models: BTreeMap<String, ModelDurations>,
}

type ModelDurations = BTreeMap<(Stage, Option<JobKind>), VecDeque<u64>>;

impl UsualDurations {
    /// Takes a finished job into account: the stages that went well at the first try, of a job
    /// that went well.
    pub fn add(&mut self, job: &JobStory) {
        if job.outcome != JobOutcome::Done {
            return;
        }
        let is_known = self.models.contains_key(&job.model) || self.models.len() < MODELS_MAX;
        let model = if is_known { &job.model } else { COMMON_MODEL };
        let durations = self.models.entry(model.to_owned()).or_default();
        let good = |stage: &&_| {
            let stage: &trivet_model::story::StageStory = stage;
            stage.state == StageState::Done && stage.tries == 1
        };
        for stage in job.stages.iter().filter(good) {
            let key = (stage.stage, kind_of(stage.stage, job.kind));
            let samples = durations.entry(key).or_default();
            samples.push_back(stage.duration_ms);
            if samples.len() > SAMPLES_MAX {
                samples.pop_front();
            }
        }
    }

    /// The median duration of a stage of this model, in ms.
    pub fn usual_ms(&self, model: &str, kind: JobKind, stage: Stage) -> Option<u64> {
        let samples = self
            .models
            .get(model)?
            .get(&(stage, kind_of(stage, kind)))?;
        let mut sorted: Vec<u64> = samples.iter().copied().collect();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).copied()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use trivet_model::story::StageStory;
    use trivet_model::{NodeId, SeededRandom, UnixMs};

    use super::*;

    fn job(
        outcome: JobOutcome,
        kind: JobKind,
        stages: &[(Stage, StageState, u32, u64)],
    ) -> JobStory {
        let stages = stages.iter().map(|&(stage, state, tries, ms)| StageStory {
            state,
            duration_ms: ms,
            tries,
            ..crate::recorder::new_stage(stage, UnixMs(0), None)
        });
        JobStory {
            outcome,
            stages: stages.collect(),
            ..crate::recorder::new_job(1, kind, UnixMs(0), "Acme R1".to_owned())
        }
    }

    #[test]
    fn usual_is_the_median_of_good_stages_of_good_jobs() {
        let mut usual = UsualDurations::default();
        let post = |state, tries, ms| (Stage::Post, state, tries, ms);
        for ms in [70_000, 90_000, 71_000] {
            let stages = [post(StageState::Done, 1, ms)];
            usual.add(&job(JobOutcome::Done, JobKind::Clean, &stages));
        }
        for (outcome, stage) in [
            (JobOutcome::Failed, post(StageState::Done, 1, 5)),
            (JobOutcome::Done, post(StageState::Done, 2, 5)),
            (JobOutcome::Done, post(StageState::Failed, 1, 5)),
        ] {
            usual.add(&job(outcome, JobKind::Clean, &[stage]));
        }
        let of = |model: &str, kind, stage| usual.usual_ms(model, kind, stage);
        assert_eq!(of("Acme R1", JobKind::Clean, Stage::Post), Some(71_000));
        assert_eq!(of("Acme R1", JobKind::Deploy, Stage::Post), Some(71_000));
        assert_eq!(of("Acme R2", JobKind::Clean, Stage::Post), None);
        assert_eq!(of("Acme R1", JobKind::Clean, Stage::Agent), None);
    }

    #[test]
    fn steps_of_different_kinds_of_jobs_are_counted_apart_and_old_durations_leave() {
        let mut usual = UsualDurations::default();
        for ms in 0..100 {
            let stages = [(Stage::Steps, StageState::Done, 1, ms)];
            usual.add(&job(JobOutcome::Done, JobKind::Clean, &stages));
        }
        let of = |kind| usual.usual_ms("Acme R1", kind, Stage::Steps);
        assert_eq!((of(JobKind::Clean), of(JobKind::Deploy)), (Some(92), None));
    }

    #[test]
    fn a_verification_says_nothing_about_switching_power() {
        let mut usual = UsualDurations::default();
        let stages = [(Stage::Power, StageState::Done, 1, 200)];
        usual.add(&job(JobOutcome::Done, JobKind::Verify, &stages));
        let of = |kind| usual.usual_ms("Acme R1", kind, Stage::Power);
        assert_eq!(
            (of(JobKind::Verify), of(JobKind::Deploy)),
            (Some(200), None)
        );
    }

    #[test]
    fn the_number_of_models_is_bounded() {
        let mut usual = UsualDurations::default();
        for number in 0..2 * MODELS_MAX {
            let mut job = job(
                JobOutcome::Done,
                JobKind::Clean,
                &[(Stage::Power, StageState::Done, 1, 9)],
            );
            job.model = format!("model {number}");
            usual.add(&job);
        }
        assert_eq!(usual.models.len(), MODELS_MAX + 1);
        let common = usual.usual_ms(COMMON_MODEL, JobKind::Clean, Stage::Power);
        assert_eq!(common, Some(9));
    }

    #[test]
    fn a_stage_is_late_at_three_times_the_usual_and_long_before_a_time_out() {
        assert_eq!(late_after_ms(Stage::Post, Some(71_000)), 213_000);
        assert_eq!(late_after_ms(Stage::Loader, Some(200)), LATE_MS_MIN);
        assert_eq!(late_after_ms(Stage::Power, Some(200)), LATE_POWER_MS_MIN);
        assert_eq!(late_after_ms(Stage::Power, Some(30_000)), 90_000);
        for stage in Stage::ALL {
            assert!(late_after_ms(*stage, None) >= 30_000);
        }
    }

    #[test]
    fn the_model_is_vendor_and_product_of_the_inventory() {
        let mut node = Node::new(NodeId::random(&mut SeededRandom::new(1)), "ipmi", UnixMs(0));
        assert_eq!(model_of(&node), COMMON_MODEL);
        let vendor = json!({"manufacturer": "Acme ", "product_name": "R1", "serial_number": "7"});
        node.inventory = Some(json!({"inventory": {"system_vendor": vendor}}));
        assert_eq!(model_of(&node), "Acme R1");
        node.inventory = Some(json!({"system_vendor": {"manufacturer": "", "product_name": 7}}));
        assert_eq!(model_of(&node), COMMON_MODEL);
        node.inventory = Some(json!({"system_vendor": {"product_name": "x".repeat(500)}}));
        assert_eq!(model_of(&node).len(), MODEL_BYTES_MAX);
    }
}
