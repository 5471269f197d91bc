use trivet_model::MacAddr;

use super::*;
use crate::COMMON_MODEL;

/// A job with its notes numbered from 1, and the time in seconds.
struct RecordedJob {
    story: JobStory,
    at: u64,
    notes: u32,
}

fn usual(stage: Stage) -> Option<u64> {
    (stage == Stage::Post).then_some(71_000)
}

impl RecordedJob {
    fn new(kind: JobKind) -> Self {
        Self {
            story: new_job(1, kind, UnixMs(0), COMMON_MODEL.to_owned()),
            at: 0,
            notes: 0,
        }
    }

    fn recorder(&mut self) -> JobRecorder<'_> {
        JobRecorder {
            at: UnixMs(self.at * 1000),
            story: &mut self.story,
            usual: &usual,
        }
    }

    fn phase(&mut self, at: u64, phase: JobPhase) -> &mut Self {
        self.at = at;
        self.recorder().observe_phase(phase, None);
        self
    }

    fn note(&mut self, at: u64, kind: NoteKind) -> &mut Self {
        self.at = at;
        self.notes += 1;
        let number = self.notes;
        self.recorder().observe_note(number, &kind);
        self
    }

    fn file(
        &mut self,
        at: u64,
        path: &str,
        (sent, requested): (u64, u64),
        took_s: u64,
    ) -> &mut Self {
        self.note(
            at,
            NoteKind::FileSent {
                by: "HTTP",
                path: path.to_owned(),
                sent,
                requested,
                took_ms: took_s * 1000,
            },
        )
    }

    fn dhcp(&mut self, at: u64, reply: &'static str, firmware: &'static str) -> &mut Self {
        let request = if reply == "ACK" {
            "REQUEST"
        } else {
            "DISCOVER"
        };
        self.note(
            at,
            NoteKind::Dhcp {
                mac: MacAddr([2; 6]),
                request,
                reply: Some(reply),
                address: None,
                firmware,
                boot: None,
                why: None,
            },
        )
    }

    /// From the power-on to the loader's request.
    fn boots(&mut self, at: u64) -> &mut Self {
        self.phase(at, JobPhase::BootFromNet)
            .phase(at + 1, JobPhase::PowerOn)
            .phase(at + 2, JobPhase::AwaitAgent)
            .dhcp(at + 76, "OFFER", "UEFI x64 PXE")
            .dhcp(at + 77, "ACK", "UEFI x64 PXE")
    }

    /// From the loader to the agent's first heartbeat.
    fn loads(&mut self, at: u64) -> &mut Self {
        self.file(at, "snponly.efi", (262_144, 262_144), 1)
            .dhcp(at + 1, "ACK", "iPXE")
            .file(at + 2, "/boot/52:54:00:00:00:01/script", (400, 400), 0)
            .file(at + 4, "/boot/kernel", (9_000_000, 9_000_000), 2)
            .file(at + 13, "/boot/ramdisk", (88_000_000, 88_000_000), 9)
            .note(
                at + 50,
                NoteKind::AgentReady {
                    version: "9".to_owned(),
                },
            )
    }

    fn step(&mut self, at: u64, step: &str) -> &mut Self {
        let step = step.to_owned();
        self.note(at, NoteKind::StepStarted { step })
    }

    fn finish(&mut self, at: u64, outcome: JobOutcome) -> &JobStory {
        self.at = at;
        self.recorder().finish(outcome);
        &self.story
    }

    /// State, tries and seconds of each stage.
    fn shown(&self) -> Vec<(Stage, StageState, u32, u64)> {
        let stages = self.story.stages.iter();
        stages
            .map(|stage| {
                (
                    stage.stage,
                    stage.state,
                    stage.tries,
                    stage.duration_ms / 1000,
                )
            })
            .collect()
    }
}

use StageState::{Done, Failed, Late, Running};

#[test]
fn a_deployment_passes_all_stages_in_order() {
    let mut job = RecordedJob::new(JobKind::Deploy);
    job.boots(0).loads(80).step(131, "write_image");
    job.file(200, "/nodes/1-2/***/debian.raw", (2_000_000, 2_000_000), 60)
        .note(
            201,
            NoteKind::StepDone {
                step: "write_image".to_owned(),
            },
        )
        .phase(201, JobPhase::Sync)
        .phase(203, JobPhase::FinalOff)
        .phase(205, JobPhase::BootFromDisk)
        .phase(206, JobPhase::StartInstance);
    let story = job.finish(210, JobOutcome::Done);
    assert_eq!(
        (story.outcome, story.end),
        (JobOutcome::Done, Some(UnixMs(210_000)))
    );
    assert_eq!(story.boots(), 1);
    assert_eq!(
        job.shown(),
        [
            (Stage::Power, Done, 1, 2),
            (Stage::Post, Done, 1, 74),
            (Stage::Address, Done, 1, 1),
            (Stage::Loader, Done, 1, 3),
            (Stage::Script, Done, 1, 2),
            (Stage::Kernel, Done, 1, 2),
            (Stage::Ramdisk, Done, 1, 9),
            (Stage::Agent, Done, 1, 37),
            (Stage::Steps, Done, 1, 1),
            (Stage::Image, Done, 1, 70),
            (Stage::BootLoader, Done, 1, 5),
            (Stage::DiskBoot, Done, 1, 4),
        ]
    );
    let ramdisk = &job.story.stages[6];
    assert_eq!(
        (ramdisk.bytes, ramdisk.rate()),
        (88_000_000, Some(9_777_777))
    );
    assert_eq!(job.story.stages[1].usual_ms, Some(71_000));
    assert_eq!(job.story.stages[0].usual_ms, None);
}

#[test]
fn the_frames_of_the_former_system_do_not_begin_a_stage() {
    let mut job = RecordedJob::new(JobKind::Clean);
    job.phase(0, JobPhase::PowerOff).dhcp(1, "ACK", "none");
    job.file(2, "snponly.efi", (5, 9), 1);
    assert_eq!(job.story.current().unwrap().stage, Stage::Loader);
    let mut job = RecordedJob::new(JobKind::Clean);
    job.phase(0, JobPhase::PowerOff).dhcp(1, "ACK", "none");
    assert_eq!(job.shown(), [(Stage::Power, Running, 1, 0)]);
}

#[test]
fn a_machine_that_never_asks_for_its_loader_is_late_there_and_keeps_that_over_its_boots() {
    let mut job = RecordedJob::new(JobKind::Deploy);
    job.boots(0);
    assert_eq!(job.story.current().unwrap().stage, Stage::Loader);
    job.at = 140;
    job.recorder().set_late();
    job.note(
        400,
        NoteKind::Retrying {
            why: "no sign of the agent".to_owned(),
        },
    );
    job.phase(401, JobPhase::PowerOff);
    let loader = |job: &RecordedJob| {
        let stage = job
            .story
            .stages
            .iter()
            .find(|stage| stage.stage == Stage::Loader);
        stage.unwrap().clone()
    };
    assert_eq!(loader(&job).state, Late);
    assert_eq!(
        loader(&job).evidence.as_deref(),
        Some("trying again: no sign of the agent")
    );
    assert_eq!(job.story.current().unwrap().tries, 2, "of the power stage");
    job.boots(402);
    assert_eq!((loader(&job).state, loader(&job).tries), (Late, 2));
    job.note(
        900,
        NoteKind::Failed {
            why: "no sign of the agent in time after 2 boots".to_owned(),
        },
    );
    let story = job.finish(900, JobOutcome::Failed);
    assert_eq!(story.deviation().unwrap().stage, Stage::Loader);
    assert_eq!(
        story.last_error.as_deref(),
        Some("no sign of the agent in time after 2 boots")
    );
    assert_eq!(loader(&job).state, Failed);
    assert_eq!(loader(&job).duration_ms, 421_000, "of the last try");
    let numbers = (loader(&job).first_note, loader(&job).last_note);
    assert_eq!(numbers, (2, 6));
}

#[test]
fn a_chunk_list_that_is_not_there_is_no_evidence() {
    let mut job = RecordedJob::new(JobKind::Deploy);
    job.boots(0);
    for path in ["/files/wrong.raw.chunks", "/nodes/1-2/***/wrong.raw.chunks"] {
        let refused = |path: &str| NoteKind::FileRefused {
            by: "HTTP",
            path: path.to_owned(),
            answer: "404 Not Found",
            why: "there is no such file on this box".to_owned(),
        };
        job.note(200, refused(path));
        assert_eq!(job.story.current().unwrap().evidence, None, "{path}");
        let mut boot = crate::JobEvidence::default();
        boot.observe(UnixMs(1), &refused(path));
        assert_eq!(boot.boot.refused, None, "{path}");
        boot.observe(UnixMs(1), &refused("/boot/kernel"));
        assert!(boot.boot.refused.is_some());
    }
}

#[test]
fn a_diagnosis_goes_when_the_stage_comes_to_a_good_end() {
    let mut job = RecordedJob::new(JobKind::Clean);
    job.boots(0);
    job.recorder().set_late();
    job.story.diagnosis = Some(trivet_model::story::StoryDiagnosis {
        rule: "r".to_owned(),
        sentence: String::new(),
        cause: String::new(),
        next_action: String::new(),
        action: None,
        command: None,
    });
    job.boots(300);
    assert!(
        job.story.diagnosis.is_some(),
        "the second boot is not further"
    );
    job.loads(400);
    assert_eq!(job.story.diagnosis, None);
}

#[test]
fn a_transfer_that_is_cut_is_evidence_and_the_stage_goes_on() {
    let mut job = RecordedJob::new(JobKind::Clean);
    job.boots(0).file(90, "snponly.efi", (112_000, 262_144), 5);
    let loader = job.story.current().unwrap();
    assert_eq!(loader.stage, Stage::Loader);
    let evidence = "snponly.efi stopped at 112000 of 262144 bytes";
    assert_eq!(loader.evidence.as_deref(), Some(evidence));
    assert_eq!(loader.bytes, 112_000);
}

#[test]
fn a_job_that_continues_with_a_running_agent_begins_with_its_steps() {
    let mut job = RecordedJob::new(JobKind::Deploy);
    job.note(1, NoteKind::AgentReused);
    assert_eq!(job.shown(), [(Stage::Steps, Running, 1, 0)]);
    assert_eq!(job.story.boots(), 0);
}

#[test]
fn steps_after_the_image_continue_the_stage_of_the_steps() {
    let mut job = RecordedJob::new(JobKind::Deploy);
    job.note(0, NoteKind::AgentReused).step(5, "write_image");
    job.note(
        65,
        NoteKind::StepDone {
            step: "write_image".to_owned(),
        },
    );
    job.step(65, "own_step").phase(75, JobPhase::Sync);
    let shown = job.shown();
    assert_eq!(shown[0], (Stage::Steps, Done, 1, 15));
    assert_eq!(shown[1], (Stage::Image, Done, 1, 60));
}

#[test]
fn a_reboot_that_a_step_asked_for_is_no_failure() {
    let mut job = RecordedJob::new(JobKind::Clean);
    job.boots(0).loads(80).step(140, "update_firmware");
    job.phase(200, JobPhase::PowerOff);
    assert_eq!(job.story.deviation(), None);
    assert_eq!(job.story.boots(), 2);
}

#[test]
fn a_refused_file_names_its_stage() {
    let mut job = RecordedJob::new(JobKind::Clean);
    job.boots(0);
    job.note(
        80,
        NoteKind::FileRefused {
            by: "HTTP",
            path: "/boot/kernel".to_owned(),
            answer: "404 Not Found",
            why: "this box has none".to_owned(),
        },
    );
    let kernel = job.story.current().unwrap();
    assert_eq!(kernel.stage, Stage::Kernel);
    let evidence = "/boot/kernel refused with 404 Not Found";
    assert_eq!(kernel.evidence.as_deref(), Some(evidence));
}

#[test]
fn hostile_texts_are_cut() {
    let mut job = RecordedJob::new(JobKind::Clean);
    job.boots(0);
    let why = "\u{1f600}".repeat(4000);
    job.note(80, NoteKind::Warning { why: why.clone() });
    job.note(81, NoteKind::Failed { why });
    let story = job.finish(82, JobOutcome::Failed);
    assert!(story.last_error.as_ref().unwrap().len() <= LAST_ERROR_BYTES_MAX);
    let evidence = story.deviation().unwrap().evidence.as_ref().unwrap();
    assert!(evidence.len() <= EVIDENCE_BYTES_MAX);
}

#[test]
fn a_transfer_whose_end_is_reported_late_counts_for_its_stage() {
    let mut job = RecordedJob::new(JobKind::Deploy);
    job.boots(0)
        .dhcp(80, "ACK", "iPXE")
        .file(81, "snponly.efi", (262_144, 262_144), 1);
    let loader = job
        .story
        .stages
        .iter()
        .find(|one| one.stage == Stage::Loader);
    let loader = loader.expect("the loader was requested");
    assert_eq!((loader.bytes, loader.transfer_ms), (262_144, 1000));
    assert_eq!(job.story.current().unwrap().stage, Stage::Script);
}
