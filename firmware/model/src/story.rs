//! The stories of nodes as values: the jobs of a node with their stages, its failures, and the
//! requests of callers. `firmware/story` makes them from notes, `firmware/store` keeps them.

use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::{Diagnosis, JobKind, NodeId, ProvisionState, SuggestedAction, UnixMs, words};

/// How many finished jobs of a node are kept, beside the last one that ended well.
pub const FINISHED_JOBS_MAX: usize = 10;

/// How many notes of the running job are kept.
pub const JOB_NOTES_MAX: usize = 200;

/// How many notes of a failed job are kept after its end.
pub const FAILED_JOB_NOTES_MAX: usize = 50;

/// How many failures of a node are kept.
pub const FAILURES_MAX: usize = 10;

/// How many requests of callers are kept.
pub const AUDIT_ENTRIES_MAX: usize = 1000;

/// Longest stored text of a note, in bytes.
pub const NOTE_TEXT_BYTES_MAX: usize = 240;

/// Longest stored text of a failure, in bytes.
pub const FAILURE_TEXT_BYTES_MAX: usize = 1024;

words! {
    /// A stage of a job, in the order in which a machine passes them.
    Stage {
        /// The BMC switches the machine.
        Power = "power",
        /// The firmware tests the machine, until its first packet.
        Post = "POST",
        /// The firmware gets its address.
        Address = "address",
        /// The loader is transferred.
        Loader = "loader",
        /// The loader reads its script.
        Script = "script",
        /// The kernel is transferred.
        Kernel = "kernel",
        /// The ramdisk is transferred.
        Ramdisk = "ramdisk",
        /// The agent starts and calls.
        Agent = "agent",
        /// The steps of the job run.
        Steps = "steps",
        /// The image is written.
        Image = "image",
        /// The boot loader is installed or the boot device is set.
        BootLoader = "boot loader",
        /// The machine boots from its disk.
        DiskBoot = "disk boot",
    }
}

impl Stage {
    /// Its name, as people and programs read it.
    pub const fn name(self) -> &'static str {
        self.as_str()
    }
}

words! {
    /// The state of a stage.
    StageState {
        /// It is complete.
        Done = "done",
        /// It runs.
        Running = "running",
        /// It runs for much longer than usual.
        Late = "late",
        /// It failed.
        Failed = "failed",
        /// The job did not need it.
        Skipped = "skipped",
    }
}

words! {
    /// How a job ended.
    JobOutcome {
        /// It runs.
        Running = "running",
        /// It reached its target.
        Done = "done",
        /// It failed.
        Failed = "failed",
    }
}

/// One stage of a job that has begun.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StageStory {
    /// The stage.
    pub stage: Stage,
    /// Its state.
    pub state: StageState,
    /// When its last try began.
    pub begin: UnixMs,
    /// Since when it runs, if it does.
    pub since: Option<UnixMs>,
    /// How long its last try has run, in ms, without the time since `since`.
    pub duration_ms: u64,
    /// How long it usually takes for this model at this site, in ms.
    pub usual_ms: Option<u64>,
    /// How often it was tried.
    pub tries: u32,
    /// Bytes that were transferred.
    pub bytes: u64,
    /// How long the transfers took, in ms.
    pub transfer_ms: u64,
    /// Number of the first note about it.
    pub first_note: u32,
    /// Number of the last note about it.
    pub last_note: u32,
    /// What a note says about the problem in it.
    pub evidence: Option<String>,
}

impl StageStory {
    /// Bytes per second of its transfers.
    pub fn rate(&self) -> Option<u64> {
        let ms = u128::from(self.transfer_ms.max(1));
        let rate = u128::from(self.bytes) * 1000 / ms;
        (self.bytes > 0).then(|| u64::try_from(rate).unwrap_or(u64::MAX))
    }

    /// How long its last try has run at this time, in ms.
    pub fn lasted_ms(&self, now: UnixMs) -> u64 {
        let open = self.since.map_or(0, |since| now.0.saturating_sub(since.0));
        self.duration_ms.saturating_add(open)
    }
}

/// Why a job does not go on, as it is stored. A [`Diagnosis`] is bounded when it is made, so
/// that it is the same before and after a restart.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StoryDiagnosis {
    /// The name of the rule. Programs compare it.
    pub rule: String,
    /// What happened, in one sentence.
    pub sentence: String,
    /// The likely cause.
    pub cause: String,
    /// What to do next.
    pub next_action: String,
    /// The kind of action that the box suggests to programs.
    pub action: Option<String>,
    /// The command of this action.
    pub command: Option<String>,
}

impl From<&Diagnosis> for StoryDiagnosis {
    fn from(diagnosis: &Diagnosis) -> Self {
        let action = diagnosis.action.as_ref();
        Self {
            rule: diagnosis.rule.clone(),
            sentence: diagnosis.sentence.clone(),
            cause: diagnosis.cause.clone(),
            next_action: diagnosis.next_action.clone(),
            action: action.map(|action| action.kind.clone()),
            command: action.map(|action| action.command.clone()),
        }
    }
}

impl From<&StoryDiagnosis> for Diagnosis {
    fn from(stored: &StoryDiagnosis) -> Self {
        let action = stored.action.as_ref().zip(stored.command.as_ref());
        Self {
            rule: stored.rule.clone(),
            sentence: stored.sentence.clone(),
            cause: stored.cause.clone(),
            next_action: stored.next_action.clone(),
            action: action.map(|(kind, command)| SuggestedAction {
                kind: kind.clone(),
                command: command.clone(),
            }),
        }
    }
}

/// The story of one job.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct JobStory {
    /// Its number among the jobs of its node; the first is 1.
    pub number: u32,
    /// Its kind.
    pub kind: JobKind,
    /// When it began.
    pub begin: UnixMs,
    /// When it ended.
    pub end: Option<UnixMs>,
    /// How it ended.
    pub outcome: JobOutcome,
    /// Vendor and product of the node, as far as they were known.
    pub model: String,
    /// Its stages that have begun, in order.
    pub stages: Vec<StageStory>,
    /// Its last error.
    pub last_error: Option<String>,
    /// The diagnosis of the stage that is late or failed.
    pub diagnosis: Option<StoryDiagnosis>,
}

impl JobStory {
    /// The stage that runs.
    pub fn current(&self) -> Option<&StageStory> {
        self.stages.iter().find(|stage| stage.since.is_some())
    }

    /// The first stage that is late or failed.
    pub fn deviation(&self) -> Option<&StageStory> {
        self.stages
            .iter()
            .find(|stage| matches!(stage.state, StageState::Late | StageState::Failed))
    }

    /// How often the machine was booted for it.
    pub fn boots(&self) -> u32 {
        let power = self.stages.first();
        power.map_or(0, |power| match power.stage {
            Stage::Power => power.tries,
            _ => 0,
        })
    }
}

/// A note of a job as it is stored.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StoredNote {
    /// When it was taken.
    pub at: UnixMs,
    /// Its kind, such as `state_changed`.
    pub kind: String,
    /// Its text, see [`shortened`].
    pub text: String,
    /// What later decisions and pages read of it, by name.
    pub fields: Vec<String>,
}

/// The job of a node that runs, or failed last, with its notes.
#[derive(Clone, Debug, PartialEq)]
pub struct RunningJobStory {
    /// The node.
    pub node: NodeId,
    /// Its story so far. A failed job is also among the finished ones.
    pub story: JobStory,
    /// What its notes show, for the diagnosis.
    pub evidence: Value,
    /// How many older notes were dropped.
    pub dropped: u32,
    /// Its notes, oldest first.
    pub notes: Vec<StoredNote>,
}

/// A failure of a node.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NodeFailure {
    /// When it failed.
    pub at: UnixMs,
    /// The text of `last_error` at that time.
    pub why: String,
    /// The user of the last request before it.
    pub user: Option<String>,
    /// The provision state after it.
    pub state: Option<ProvisionState>,
}

/// The finished jobs and the failures of a node.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NodeStories {
    /// The node.
    pub node: NodeId,
    /// How many jobs it has had.
    pub jobs_count: u32,
    /// Its last finished jobs, oldest first. Before them the last one that ended well, if all
    /// of them failed.
    pub jobs: Vec<JobStory>,
    /// Its last failures, oldest first.
    pub failures: Vec<NodeFailure>,
    /// What is wrong with it while it has no job.
    pub diagnosis: Option<StoryDiagnosis>,
}

impl NodeStories {
    /// The stories of a node without any.
    pub const fn new(node: NodeId) -> Self {
        Self {
            node,
            jobs_count: 0,
            jobs: Vec::new(),
            failures: Vec::new(),
            diagnosis: None,
        }
    }

    /// The last job that ended well.
    pub fn last_good(&self) -> Option<&JobStory> {
        let mut jobs = self.jobs.iter().rev();
        jobs.find(|job| job.outcome == JobOutcome::Done)
    }

    /// Adds a finished job. The oldest leaves when there are too many.
    pub fn add(&mut self, job: JobStory) {
        self.jobs.push(job);
        while self.jobs.len() > FINISHED_JOBS_MAX {
            let is_last_good = self.jobs[0].outcome == JobOutcome::Done
                && self.jobs[1..]
                    .iter()
                    .all(|job| job.outcome != JobOutcome::Done);
            match is_last_good {
                true if self.jobs.len() == FINISHED_JOBS_MAX + 1 => break,
                true => self.jobs.remove(1),
                false => self.jobs.remove(0),
            };
        }
    }

    /// Adds a failure. The oldest leaves when there are too many.
    pub fn add_failure(&mut self, failure: NodeFailure) {
        self.failures.push(failure);
        let surplus = self.failures.len().saturating_sub(FAILURES_MAX);
        self.failures.drain(..surplus);
    }
}

/// The stories of a node, as readers see them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeStoryView {
    /// Its finished jobs and failures.
    pub finished: Option<std::sync::Arc<NodeStories>>,
    /// The job that runs, or failed last.
    pub running: Option<std::sync::Arc<RunningJobStory>>,
}

impl NodeStoryView {
    /// The present job; without one, the last that ended.
    pub fn latest(&self) -> Option<&JobStory> {
        let running = self.running.as_ref().map(|running| &running.story);
        let finished = self.finished.as_ref().and_then(|all| all.jobs.last());
        running.filter(|job| job.end.is_none()).or(finished)
    }
}

/// A request of a caller.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AuditEntry {
    /// Its number; the first is 1.
    pub number: u64,
    /// When it came.
    pub at: UnixMs,
    /// The caller, such as `token ci`.
    pub caller: String,
    /// The name of the user or token, if the caller has one.
    pub user: Option<String>,
    /// The address that it came from.
    pub from: String,
    /// Method and path.
    pub request_line: String,
    /// The identifier of the request.
    pub request: String,
    /// A short name of the order.
    pub order: String,
    /// The node that it concerns.
    pub node: Option<NodeId>,
    /// The name of that node, or its UUID where it has none.
    pub node_name: Option<String>,
    /// Why it was refused, if it was.
    pub refused: Option<String>,
}

/// The text with at most this many bytes, with "..." at its end if it was longer.
pub fn shortened(text: &str, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text.to_owned();
    }
    let mut end = bytes_max.saturating_sub(3);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}...", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SeededRandom;

    fn job(number: u32, outcome: JobOutcome) -> JobStory {
        JobStory {
            number,
            kind: JobKind::Deploy,
            begin: UnixMs(1),
            end: Some(UnixMs(2)),
            outcome,
            model: String::new(),
            stages: Vec::new(),
            last_error: None,
            diagnosis: None,
        }
    }

    #[test]
    fn the_last_good_job_stays_however_many_fail_after_it() {
        let mut stories = NodeStories::new(NodeId::random(&mut SeededRandom::new(1)));
        assert_eq!(stories.last_good(), None);
        stories.add(job(1, JobOutcome::Done));
        stories.add(job(2, JobOutcome::Done));
        for number in 3..40 {
            stories.add(job(number, JobOutcome::Failed));
            assert_eq!(stories.last_good().map(|job| job.number), Some(2));
            assert!(stories.jobs.len() <= FINISHED_JOBS_MAX + 1);
        }
        assert_eq!(stories.jobs[1].number, 30, "and the last ten");
        stories.add(job(40, JobOutcome::Done));
        assert_eq!(stories.last_good().map(|job| job.number), Some(40));
        assert_eq!(stories.jobs.len(), FINISHED_JOBS_MAX);
    }

    #[test]
    fn failures_are_bounded() {
        let mut stories = NodeStories::new(NodeId::random(&mut SeededRandom::new(1)));
        for at in 0..50 {
            stories.add_failure(NodeFailure {
                at: UnixMs(at),
                why: String::new(),
                user: None,
                state: None,
            });
        }
        assert_eq!(stories.failures.len(), FAILURES_MAX);
        assert_eq!(stories.failures[FAILURES_MAX - 1].at, UnixMs(49));
    }

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!(shortened("abcdef", 6), "abcdef");
        assert_eq!(shortened("abcdefg", 6), "abc...");
        assert_eq!(shortened("a\u{e4}\u{e4}\u{e4}\u{e4}", 7), "a\u{e4}...");
        assert_eq!(shortened("\u{1f600}\u{1f600}", 5), "...");
    }
}
