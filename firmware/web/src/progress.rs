//! Progress of a node from enrolment to a running instance, as one number.
//!
//! The jobs are verify, inspect, clean and deploy, in this order. Each job has a range of percent;
//! within a job the number follows the phases, and within a phase the bytes sent. The number never
//! decreases while a node passes through the jobs without a failure.

use trivet_model::view::NodeView;
use trivet_model::{Job, JobKind, JobPhase, ProvisionState};

use crate::files::{FetchedFiles, files, share};

/// Range of verification, in percent.
const VERIFY: (u8, u8) = (2, 5);
/// Range of inspection, in percent.
const INSPECT: (u8, u8) = (5, 25);
/// Range of cleaning, in percent.
const CLEAN: (u8, u8) = (25, 50);
/// Range of deployment, in percent.
const DEPLOY: (u8, u8) = (50, 99);

/// The progress of a node, from 0 (just enrolled) to 100 (running its instance).
pub fn progress(node: &NodeView) -> u8 {
    use ProvisionState as S;
    let record = &node.node;
    match record.provision_state {
        S::Enroll => 0,
        S::Verifying => within(node, VERIFY),
        S::Manageable if record.inspection_finished_at.is_some() => INSPECT.1,
        S::Manageable => VERIFY.1,
        S::Inspecting | S::InspectWait | S::InspectFail => within(node, INSPECT),
        S::Cleaning | S::CleanWait | S::CleanFail | S::CleanHold | S::Deleting | S::Error => {
            within(node, CLEAN)
        }
        S::Available => CLEAN.1,
        S::Deploying
        | S::DeployWait
        | S::DeployFail
        | S::DeployHold
        | S::Adopting
        | S::AdoptFail => within(node, DEPLOY),
        S::Active
        | S::Rescuing
        | S::Rescue
        | S::RescueWait
        | S::RescueFail
        | S::Unrescuing
        | S::UnrescueFail
        | S::Servicing
        | S::ServiceWait
        | S::ServiceFail
        | S::ServiceHold => 100,
    }
}

fn within(node: &NodeView, (from, to): (u8, u8)) -> u8 {
    let permille = match &node.node.job {
        Some(job) => job_permille(job, files(node)),
        None => 0,
    };
    from + (u64::from(to - from) * permille.min(1000) / 1000) as u8
}

/// The range of the steps within a job, in thousandths.
const STEPS: (u64, u64) = (450, 850);

fn job_permille(job: &Job, files: FetchedFiles) -> u64 {
    let phase = match job.phase {
        JobPhase::ReadPower if job.kind == JobKind::Verify => 500,
        JobPhase::ReadPower => 10,
        JobPhase::PowerOff => 30,
        JobPhase::BootFromNet => 70,
        JobPhase::SendToken => 90,
        JobPhase::PowerOn => 110,
        JobPhase::AwaitAgent => 150 + booting(files) * 250 / 1000,
        JobPhase::GetSteps => 420,
        JobPhase::StartStep
        | JobPhase::CheckPower
        | JobPhase::PowerStep
        | JobPhase::Pause
        | JobPhase::Hold => STEPS.0,
        JobPhase::FinishRescue => STEPS.1,
        JobPhase::AwaitStep => STEPS.0 + step(job, files),
        JobPhase::Bootloader => 855,
        JobPhase::AwaitBootloader => 860,
        JobPhase::Sync => 870,
        JobPhase::FinalOff => 900,
        JobPhase::BootFromDisk => 940,
        JobPhase::StartInstance => 970,
    };
    // A reboot between steps does not undo the steps before it.
    phase.max(if job.at > 0 {
        STEPS.0 + steps_done(job)
    } else {
        0
    })
}

/// A boot fetches an unknown number of files: each one increases the progress.
fn booting(files: FetchedFiles) -> u64 {
    let fetched = files.done.min(1000) * 1000 + files.permille;
    share(fetched, fetched + 1500, 1000)
}

fn steps_done(job: &Job) -> u64 {
    let count = (job.steps.len() as u64).max(1);
    share(u64::from(job.at).min(count), count, STEPS.1 - STEPS.0)
}

/// The share of the present step, filled by the file that it fetches, if any.
fn step(job: &Job, files: FetchedFiles) -> u64 {
    let count = (job.steps.len() as u64).max(1);
    let filled = if files.done > 0 {
        950
    } else {
        50 + files.permille * 850 / 1000
    };
    let one = (STEPS.1 - STEPS.0) / count;
    (steps_done(job) + one * filled / 1000).min(STEPS.1 - STEPS.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{NodeViewCase, sent};
    use trivet_model::{NoteKind, UnixMs};

    #[test]
    fn progress_never_falls_in_a_deployment_without_failures() {
        use ProvisionState as S;
        let boot = [
            JobPhase::PowerOff,
            JobPhase::BootFromNet,
            JobPhase::SendToken,
            JobPhase::PowerOn,
            JobPhase::AwaitAgent,
            JobPhase::GetSteps,
            JobPhase::StartStep,
            JobPhase::AwaitStep,
            JobPhase::Bootloader,
            JobPhase::AwaitBootloader,
            JobPhase::Sync,
            JobPhase::FinalOff,
            JobPhase::BootFromDisk,
            JobPhase::StartInstance,
        ];
        let mut story = vec![
            NodeViewCase::new(S::Enroll),
            NodeViewCase::new(S::Verifying).job(JobKind::Verify, JobPhase::ReadPower, 0, 0),
            NodeViewCase::new(S::Manageable),
        ];
        for phase in boot {
            story.push(NodeViewCase::new(S::InspectWait).job(JobKind::Inspect, phase, 0, 0));
        }
        story.push(NodeViewCase::new(S::Manageable).change(|node| {
            node.inspection_finished_at = Some(UnixMs(1));
        }));
        for (state, kind) in [
            (S::CleanWait, JobKind::Clean),
            (S::DeployWait, JobKind::Deploy),
        ] {
            for phase in boot {
                story.push(NodeViewCase::new(state).job(kind, phase, 0, 3));
                for at in 0..3 {
                    if phase == JobPhase::AwaitStep {
                        story.push(NodeViewCase::new(state).job(kind, phase, at, 3));
                    }
                }
            }
            if state == S::CleanWait {
                story.push(NodeViewCase::new(S::Available));
            }
        }
        story.push(NodeViewCase::new(S::Active));
        let numbers: Vec<u8> = story
            .into_iter()
            .map(|case| progress(&case.view()))
            .collect();
        assert!(numbers.is_sorted(), "{numbers:?}");
        assert_eq!((numbers[0], numbers[numbers.len() - 1]), (0, 100));
    }

    #[test]
    fn every_state_and_phase_has_a_number_up_to_a_hundred() {
        for &state in ProvisionState::ALL {
            for &phase in JobPhase::ALL {
                for &kind in JobKind::ALL {
                    let case = NodeViewCase::new(state).job(kind, phase, u32::MAX, 2);
                    assert!(progress(&case.transfer("x", 9, 3).view()) <= 100);
                }
            }
        }
    }

    #[test]
    fn bytes_move_the_bar_and_the_end_of_a_file_does_not_move_it_back() {
        for phase in [JobPhase::AwaitAgent, JobPhase::AwaitStep] {
            let case = || {
                NodeViewCase::new(ProvisionState::DeployWait)
                    .job(JobKind::Deploy, phase, 0, 1)
                    .note(NoteKind::StepStarted {
                        step: "write_image".into(),
                    })
            };
            let story = [
                case(),
                case().transfer("image", 30, 100),
                case().transfer("image", 90, 100),
                case().transfer("image", 100, 100),
                case().note(sent("image", 100, 100)),
                case()
                    .note(sent("image", 100, 100))
                    .transfer("next", 50, 100),
            ];
            let numbers: Vec<u8> = story
                .into_iter()
                .map(|case| progress(&case.view()))
                .collect();
            assert!(numbers.is_sorted(), "{phase}: {numbers:?}");
            assert!(numbers[0] < numbers[2], "{phase}: {numbers:?}");
        }
    }

    #[test]
    fn a_reboot_between_steps_does_not_undo_them() {
        let state = ProvisionState::CleanWait;
        let before = NodeViewCase::new(state).job(JobKind::Clean, JobPhase::StartStep, 2, 4);
        let after = NodeViewCase::new(state).job(JobKind::Clean, JobPhase::PowerOff, 2, 4);
        assert_eq!(progress(&before.view()), progress(&after.view()));
    }
}
