//! Turns the notes and the phases of a job into its stages.
//!
//! A stage begins when a note or a phase shows that the machine has come to it; the stage before
//! it is done then. When the machine is booted again, the job returns to the first stage, and
//! the tries of each stage are counted.

use trivet_model::story::{JobOutcome, JobStory, Stage, StageState, StageStory, shortened};
use trivet_model::{EvidenceNote, JobKind, JobPhase, NoteKind, UnixMs};

use crate::boot_path::{is_optional, stage_of_path};

/// Longest evidence of a stage, in bytes.
const EVIDENCE_BYTES_MAX: usize = 100;

/// Longest last error of a job, in bytes. The failures of the node have the whole error.
const LAST_ERROR_BYTES_MAX: usize = 160;

/// The step that writes the image.
const WRITE_IMAGE: &str = "write_image";

/// Says how long a stage usually takes, in ms.
pub type UsualLookup<'a> = &'a dyn Fn(Stage) -> Option<u64>;

/// The story of a job that begins.
pub fn new_job(number: u32, kind: JobKind, begin: UnixMs, model: String) -> JobStory {
    JobStory {
        number,
        kind,
        begin,
        end: None,
        outcome: JobOutcome::Running,
        model,
        stages: Vec::new(),
        last_error: None,
        diagnosis: None,
    }
}

/// A stage that begins.
pub(crate) fn new_stage(stage: Stage, begin: UnixMs, usual_ms: Option<u64>) -> StageStory {
    StageStory {
        stage,
        state: StageState::Running,
        begin,
        since: Some(begin),
        duration_ms: 0,
        usual_ms,
        tries: 1,
        bytes: 0,
        transfer_ms: 0,
        first_note: 0,
        last_note: 0,
        evidence: None,
    }
}

/// Records what happens in one job.
pub struct JobRecorder<'a> {
    /// The story of the job.
    pub story: &'a mut JobStory,
    /// The present time.
    pub at: UnixMs,
    /// How long stages usually take.
    pub usual: UsualLookup<'a>,
}

impl JobRecorder<'_> {
    /// The job is in this phase.
    pub fn observe_phase(&mut self, phase: JobPhase, step: Option<&str>) {
        let stage = match phase {
            JobPhase::ReadPower
            | JobPhase::PowerOff
            | JobPhase::BootFromNet
            | JobPhase::SendToken
            | JobPhase::PowerOn => Stage::Power,
            JobPhase::AwaitAgent => {
                if self
                    .current_stage()
                    .is_none_or(|stage| stage == Stage::Power)
                {
                    self.enter(Stage::Post);
                }
                return;
            }
            JobPhase::StartStep | JobPhase::AwaitStep if step == Some(WRITE_IMAGE) => Stage::Image,
            JobPhase::GetSteps
            | JobPhase::StartStep
            | JobPhase::AwaitStep
            | JobPhase::PowerStep
            | JobPhase::Pause
            | JobPhase::Hold
            | JobPhase::FinishRescue => Stage::Steps,
            JobPhase::CheckPower => return,
            JobPhase::Bootloader
            | JobPhase::AwaitBootloader
            | JobPhase::Sync
            | JobPhase::BootFromDisk => Stage::BootLoader,
            JobPhase::FinalOff => match self.story.kind {
                JobKind::Deploy | JobKind::Unrescue => Stage::BootLoader,
                _ if self.story.stages.is_empty() => Stage::Power,
                _ => return,
            },
            JobPhase::StartInstance => Stage::DiskBoot,
        };
        self.enter(stage);
    }

    /// A note of the job's node, with its number. It belongs to the stage that it ends and to
    /// the one that it begins.
    pub fn observe_note(&mut self, number: u32, kind: &NoteKind) {
        self.count_note(number);
        self.observe_kind(kind);
        self.count_note(number);
    }

    fn count_note(&mut self, number: u32) {
        if let Some(stage) = self.current_mut() {
            if stage.first_note == 0 {
                stage.first_note = number;
            }
            stage.last_note = number;
        }
    }

    fn observe_kind(&mut self, kind: &NoteKind) {
        match kind {
            NoteKind::Dhcp {
                reply, firmware, ..
            } => self.observe_dhcp(*reply, firmware),
            NoteKind::FileSent {
                path,
                sent,
                requested,
                took_ms,
                ..
            } => self.observe_file(path, (*sent, *requested), *took_ms),
            // The agent does without the chunk list of an image.
            NoteKind::FileRefused { path, .. } if is_optional(path) => {}
            NoteKind::FileRefused { path, answer, .. } => {
                let evidence = format!("{path} refused with {answer}");
                if let Some(stage) = stage_of_path(path) {
                    self.advance(stage);
                }
                self.add_evidence(&evidence);
            }
            NoteKind::AgentLookedUp { .. } => self.advance(Stage::Agent),
            NoteKind::AgentReady { .. } | NoteKind::AgentReused => self.advance(Stage::Steps),
            NoteKind::StepStarted { step } if step == WRITE_IMAGE => self.enter(Stage::Image),
            NoteKind::StepStarted { .. } if self.current_stage() < Some(Stage::Image) => {
                self.enter(Stage::Steps);
            }
            NoteKind::StepDone { step } if step == WRITE_IMAGE => self.close(StageState::Done),
            NoteKind::AwaitingImage { .. } => {
                self.advance(Stage::Image);
                self.add_evidence(&kind.to_string());
            }
            NoteKind::PowerFailed { .. }
            | NoteKind::Retrying { .. }
            | NoteKind::Evidence(EvidenceNote::BmcRequestRepeated { .. })
            | NoteKind::Warning { .. }
            | NoteKind::ImageRejected { .. }
            | NoteKind::ImageFailed { .. }
            | NoteKind::AgentTimedOut { .. } => self.add_evidence(&kind.to_string()),
            NoteKind::Failed { why } => {
                self.story.last_error = Some(shortened(why, LAST_ERROR_BYTES_MAX));
                self.close(StageState::Failed);
            }
            _ => {}
        }
    }

    fn observe_dhcp(&mut self, reply: Option<&str>, firmware: &str) {
        // Before the power-on the former system of the machine may still send.
        if self.current_stage() == Some(Stage::Post) {
            self.enter(Stage::Address);
        }
        match self.current_stage() {
            Some(Stage::Address) if reply == Some("ACK") => self.enter(Stage::Loader),
            Some(Stage::Loader) if firmware.contains("iPXE") => self.enter(Stage::Script),
            _ => {}
        }
    }

    fn observe_file(&mut self, path: &str, (sent, requested): (u64, u64), took_ms: u64) {
        let Some(stage) = stage_of_path(path) else {
            return;
        };
        // The transfer began before its note. With a power-on between, it is of the former boot.
        let begin = UnixMs(self.at.0.saturating_sub(took_ms));
        if self.current_stage() < Some(stage) {
            let end = std::mem::replace(&mut self.at, begin);
            self.advance(stage);
            self.at = end;
        }
        if self.current_stage() != Some(stage) {
            self.add_bytes_to_done(stage, sent, took_ms);
            return;
        }
        if let Some(present) = self.current_mut() {
            present.bytes = present.bytes.saturating_add(sent);
            present.transfer_ms = present.transfer_ms.saturating_add(took_ms);
        }
        if sent < requested {
            self.add_evidence(&format!("{path} stopped at {sent} of {requested} bytes"));
            return;
        }
        match stage {
            Stage::Loader => self.enter(Stage::Script),
            Stage::Script => self.enter(Stage::Kernel),
            Stage::Kernel => self.enter(Stage::Ramdisk),
            Stage::Ramdisk => self.enter(Stage::Agent),
            _ => {}
        }
    }

    /// The end of a transfer was reported when the machine had already gone on.
    fn add_bytes_to_done(&mut self, stage: Stage, sent: u64, took_ms: u64) {
        let mut stages = self.story.stages.iter_mut();
        let done = stages.find(|one| one.stage == stage && one.state == StageState::Done);
        if let Some(done) = done {
            done.bytes = done.bytes.saturating_add(sent);
            done.transfer_ms = done.transfer_ms.saturating_add(took_ms);
        }
    }

    /// The stage that runs is late.
    pub fn set_late(&mut self) {
        if let Some(stage) = self.current_mut() {
            stage.state = StageState::Late;
        }
    }

    /// The job has ended.
    pub fn finish(&mut self, outcome: JobOutcome) {
        self.close(match outcome {
            JobOutcome::Failed => StageState::Failed,
            JobOutcome::Running | JobOutcome::Done => StageState::Done,
        });
        self.story.end = Some(self.at);
        self.story.outcome = outcome;
        // A finished job has a bounded size: the evidence of the first problem stays.
        let first = self.story.deviation().map(|stage| stage.stage);
        for stage in &mut self.story.stages {
            if Some(stage.stage) != first {
                stage.evidence = None;
            }
        }
        if outcome == JobOutcome::Done {
            // What was late came to a good end.
            self.story.diagnosis = None;
        }
    }

    fn current_stage(&self) -> Option<Stage> {
        self.story.current().map(|stage| stage.stage)
    }

    fn current_mut(&mut self) -> Option<&mut StageStory> {
        let mut stages = self.story.stages.iter_mut();
        stages.find(|stage| stage.since.is_some())
    }

    fn add_evidence(&mut self, text: &str) {
        if let Some(stage) = self.current_mut() {
            stage.evidence = Some(shortened(text, EVIDENCE_BYTES_MAX));
        }
    }

    /// Goes on to a stage, never back.
    fn advance(&mut self, stage: Stage) {
        let furthest = self.current_stage();
        if furthest < Some(stage) {
            self.enter(stage);
        }
    }

    /// Goes to a stage. A stage before the present one is a new boot of the machine, except that
    /// steps may follow the image.
    fn enter(&mut self, stage: Stage) {
        let present = self.current_stage();
        if present == Some(stage) {
            return;
        }
        let is_new_try = stage <= Stage::Agent;
        let is_cut = present.is_some_and(|present| {
            present > stage && (Stage::Post..=Stage::Agent).contains(&present)
        });
        // A stage of the boot did not get to its end.
        self.close(if is_cut {
            self.unfinished()
        } else {
            StageState::Done
        });
        let usual = (self.usual)(stage);
        let at = self.at;
        let stages = &mut self.story.stages;
        let place = stages.partition_point(|other| other.stage < stage);
        match stages.get_mut(place).filter(|known| known.stage == stage) {
            Some(known) => {
                // A stage that was late in a former boot stays late until it is done.
                if known.state != StageState::Late {
                    known.state = StageState::Running;
                }
                known.since = Some(at);
                if is_new_try {
                    known.begin = at;
                    known.duration_ms = 0;
                    known.tries = known.tries.saturating_add(1);
                    known.usual_ms = usual;
                }
            }
            None => stages.insert(place, new_stage(stage, at, usual)),
        }
    }

    /// The state of the present stage if the machine is booted again: late, if it was late.
    fn unfinished(&self) -> StageState {
        match self.story.current().map(|stage| stage.state) {
            Some(StageState::Late) => StageState::Late,
            _ => StageState::Failed,
        }
    }

    /// Ends the present stage. The diagnosis stays as long as a stage is late or failed.
    fn close(&mut self, state: StageState) {
        let at = self.at;
        if let Some(stage) = self.current_mut() {
            stage.duration_ms = stage.lasted_ms(at);
            stage.since = None;
            stage.state = state;
            if self.story.deviation().is_none() {
                self.story.diagnosis = None;
            }
        }
    }
}

#[cfg(test)]
mod tests;
