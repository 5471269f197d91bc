//! The present action of a node, and what to do after a failure, as sentences.

use trivet_model::view::NodeView;
use trivet_model::{Job, JobKind, JobPhase, NoteKind, ProvisionState, RackView, UnixMs};

use crate::files::{files, share};

/// The number of the present boot attempt of a job, and the most there can be. `None` if the job
/// boots nothing.
pub fn attempt(view: &RackView, node: &NodeView) -> Option<(u32, u32)> {
    let boots = node.node.job.as_ref()?.boots?.get();
    Some((boots, view.boots_max.max(boots)))
}

/// When the present action began: for a job, the node's last transition out of a stable state, as
/// far back as its timeline reaches; for a power change, the last request to the BMC. `None` for an
/// idle node.
pub fn working_since(node: &NodeView) -> Option<UnixMs> {
    let record = &node.node;
    let has_job = record.job.is_some();
    if !has_job && record.target_power_state.is_none() {
        return None;
    }
    let begins = |kind: &NoteKind| match kind {
        NoteKind::StateChanged { from, .. } => has_job && from.is_resting(),
        NoteKind::PowerOrdered { .. } => !has_job,
        _ => false,
    };
    let mut notes = node.timeline.iter().rev();
    let begun = notes.find(|note| begins(&note.kind)).map(|note| note.at);
    begun.or(record.provision_updated_at.filter(|_| has_job))
}

/// The present action of the node.
pub fn doing(view: &RackView, node: &NodeView) -> String {
    let record = &node.node;
    if let Some(job) = &record.job {
        let what = match job.kind {
            JobKind::Verify => "Verifying the BMC",
            JobKind::Inspect => "Inspecting",
            JobKind::Clean => "Cleaning",
            JobKind::Deploy => "Deploying",
            JobKind::TearDown => "Removing the instance",
            JobKind::Adopt => "Taking over",
            JobKind::Rescue => "Rescuing",
            JobKind::Unrescue => "Returning from rescue",
            JobKind::Service => "Servicing",
        };
        let now = boot_queue_position(view, node).unwrap_or_else(|| phase(node, job));
        return format!("{what}: {now}");
    }
    if let Some(wanted) = record.target_power_state {
        let now =
            boot_queue_position(view, node).unwrap_or_else(|| format!("waiting for {wanted}"));
        return format!("Changing power: {now}");
    }
    resting(record.provision_state, record.last_error.is_some()).to_owned()
}

/// The node's position in the boot queue, if it waits there.
fn boot_queue_position(view: &RackView, node: &NodeView) -> Option<String> {
    Some(match view.ahead(node)? {
        0 => "waiting for its turn to boot, next in line".to_owned(),
        ahead => format!("waiting for its turn to boot, {ahead} ahead"),
    })
}

fn phase(node: &NodeView, job: &Job) -> String {
    match job.phase {
        JobPhase::ReadPower => "reading the power state".to_owned(),
        JobPhase::PowerOff => "powering off before the agent boots".to_owned(),
        JobPhase::BootFromNet => "choosing the network as boot device".to_owned(),
        JobPhase::SendToken => "writing the one-time token into the BMC".to_owned(),
        JobPhase::PowerOn => "powering on".to_owned(),
        JobPhase::AwaitAgent => booting(node),
        JobPhase::GetSteps => "requesting the agent's steps".to_owned(),
        JobPhase::StartStep => format!("starting {}", step(job)),
        JobPhase::AwaitStep => match fetching(node) {
            Some(file) => format!("{}, {file}", step(job)),
            None => step(job),
        },
        JobPhase::CheckPower => "no heartbeat from the agent: reading the power state".to_owned(),
        JobPhase::Bootloader => "requesting the agent's result of the write".to_owned(),
        JobPhase::AwaitBootloader => "installing the boot loader".to_owned(),
        JobPhase::PowerStep => format!("changing the power state for {}", step(job)),
        JobPhase::Pause => format!("{}, waiting", step(job)),
        JobPhase::Hold => "on hold until \"unhold\"".to_owned(),
        JobPhase::FinishRescue => "setting the rescue password".to_owned(),
        JobPhase::Sync => "writing buffers to disk".to_owned(),
        JobPhase::FinalOff => "powering off".to_owned(),
        JobPhase::BootFromDisk => "choosing the disk as boot device".to_owned(),
        JobPhase::StartInstance => "starting the instance".to_owned(),
    }
}

fn booting(node: &NodeView) -> String {
    if let Some(file) = fetching(node) {
        return file;
    }
    match files(node).done {
        0 => "waiting for the machine to boot from the network".to_owned(),
        _ => "waiting for the agent to report".to_owned(),
    }
}

/// The file that is being sent, such as `loading initrd, 43 %`.
fn fetching(node: &NodeView) -> Option<String> {
    let (sent, size) = node.live.transfer?;
    let path = node.live.transfer_path.as_deref().unwrap_or("a file");
    let name = path
        .rsplit('/')
        .find(|part| !part.is_empty())
        .unwrap_or(path);
    let percent = share(sent.min(size), size, 100).min(100);
    Some(format!("loading {name}, {percent} %"))
}

fn step(job: &Job) -> String {
    let count = job.steps.len();
    match job.steps.get(job.at as usize) {
        Some(step) => format!(
            "step {} ({} of {count})",
            step.step,
            job.at.saturating_add(1)
        ),
        None => "the next step".to_owned(),
    }
}

/// The text for a state without a job.
fn resting(state: ProvisionState, failed: bool) -> &'static str {
    use ProvisionState as S;
    match state {
        S::Enroll if failed => "BMC verification failed",
        S::Enroll => "Enrolled, BMC not yet verified",
        S::Verifying => "Verifying the BMC",
        S::Manageable => "Manageable, not yet available",
        S::Available => "Ready for a deployment",
        S::Active => "Running its instance",
        S::Deploying | S::DeployWait => "Deploying",
        S::DeployFail => "Deployment failed",
        S::DeployHold => "Deployment on hold",
        S::Deleting => "Removing the instance",
        S::Error => "Removal of the instance failed",
        S::Cleaning | S::CleanWait => "Cleaning",
        S::CleanFail => "Cleaning failed",
        S::CleanHold => "Cleaning on hold",
        S::Inspecting | S::InspectWait => "Inspecting",
        S::InspectFail => "Inspection failed",
        S::Adopting => "Taking over",
        S::AdoptFail => "Adoption failed",
        S::Rescuing | S::RescueWait => "Booting the rescue system",
        S::Rescue => "Running the rescue system",
        S::RescueFail => "Rescue failed",
        S::Unrescuing => "Returning from rescue",
        S::UnrescueFail => "Return from rescue failed",
        S::Servicing | S::ServiceWait => "In service",
        S::ServiceFail => "Service failed",
        S::ServiceHold => "Service on hold",
    }
}

/// After a failure: what to do next. `None` if nothing failed.
pub fn advice(node: &NodeView) -> Option<String> {
    use ProvisionState as S;
    let record = &node.node;
    let error = record.last_error.as_deref();
    if error.is_none() && !record.provision_state.is_failure() {
        return None;
    }
    let error = error.unwrap_or("").to_ascii_lowercase();
    let is_login = error.contains("refused the login") || error.contains("password");
    let next = match record.provision_state {
        S::Enroll => "correct driver_info, then \"manage\" again",
        S::DeployFail => "correct the cause, then \"active\" again, or \"deleted\" to give up",
        S::CleanFail if record.maintenance => {
            "correct the cause, end maintenance, then \"manage\" and \"provide\""
        }
        S::CleanFail => "correct the cause, then \"manage\" and \"provide\"",
        S::InspectFail => "\"inspect\" again, or \"manage\" to continue without",
        S::AdoptFail => "correct instance_info, then \"adopt\" again, or \"manage\"",
        S::Error => "\"deleted\" again, or \"rebuild\" to keep the instance",
        S::RescueFail | S::UnrescueFail => "\"rescue\" or \"unrescue\" again, or \"deleted\"",
        S::ServiceFail => "\"service\" again, or \"abort\" to return to active",
        _ if record.fault.as_deref() == Some("power failure") => {
            "repair the BMC; maintenance ends automatically when it replies"
        }
        _ if error.contains("aborted") => "repeat the request if it is still wanted",
        _ if is_login && record.driver == "redfish" => {
            "correct redfish_password in driver_info, then repeat the request"
        }
        _ if is_login && record.driver == "ipmi" => {
            "correct ipmi_password in driver_info, then repeat the request"
        }
        _ => "correct the cause, then repeat the request",
    };
    let first = if error.contains("check ") {
        // The error itself names what to check.
        ""
    } else if error.contains("aborted") {
        "The operator aborted it. "
    } else if is_login {
        "Check the BMC's user and password. "
    } else if error.contains("bmc") {
        "Check the BMC's address, its cable and that IPMI over LAN is on. "
    } else if error.contains("digest") || error.contains("checksum") {
        "Compare the image with the digest in instance_info. "
    } else if error.contains("timed out") || error.contains("timeout") {
        "Look at the machine's console: did it boot from the network? "
    } else {
        ""
    };
    Some(format!("{first}Next: {next}."))
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use crate::testing::{NodeViewCase, sent};
    use trivet_model::PowerState;

    fn doing(node: &NodeView) -> String {
        super::doing(&RackView::default(), node)
    }

    fn deploying(phase: JobPhase) -> NodeViewCase {
        NodeViewCase::new(ProvisionState::DeployWait).job(JobKind::Deploy, phase, 0, 2)
    }

    #[test]
    fn every_state_and_phase_has_a_text() {
        for &state in ProvisionState::ALL {
            assert!(!doing(&NodeViewCase::new(state).view()).is_empty());
            for &phase in JobPhase::ALL {
                let text = doing(
                    &NodeViewCase::new(state)
                        .job(JobKind::Clean, phase, 9, 1)
                        .view(),
                );
                assert!(text.starts_with("Cleaning: "), "{text}");
            }
        }
    }

    #[test]
    fn a_boot_is_shown_file_by_file() {
        let waits = deploying(JobPhase::AwaitAgent);
        assert_eq!(
            doing(&waits.view()),
            "Deploying: waiting for the machine to boot from the network"
        );
        let loads = deploying(JobPhase::AwaitAgent).transfer("/boot/initrd", 43, 100);
        assert_eq!(doing(&loads.view()), "Deploying: loading initrd, 43 %");
        let booted = deploying(JobPhase::AwaitAgent).note(sent("initrd", 9, 9));
        assert_eq!(
            doing(&booted.view()),
            "Deploying: waiting for the agent to report"
        );
    }

    #[test]
    fn the_boot_queue_position_is_shown() {
        let mut view = RackView::default();
        view.boot_queue.served = 30;
        let mut node = deploying(JobPhase::PowerOn).view();
        node.live.queue_number = Some(42);
        let message = super::doing(&view, &node);
        assert_eq!(message, "Deploying: waiting for its turn to boot, 12 ahead");
        view.boot_queue.served = 42;
        let message = super::doing(&view, &node);
        assert_eq!(
            message,
            "Deploying: waiting for its turn to boot, next in line"
        );
        let mut node = NodeViewCase::new(ProvisionState::Active)
            .change(|node| node.target_power_state = Some(PowerState::On))
            .view();
        node.live.queue_number = Some(43);
        let message = super::doing(&view, &node);
        assert_eq!(
            message,
            "Changing power: waiting for its turn to boot, 1 ahead"
        );
    }

    #[test]
    fn a_job_is_timed_from_the_stable_state_that_it_left() {
        use ProvisionState as S;
        let changed = |from, to| NoteKind::StateChanged { from, to };
        let node = deploying(JobPhase::AwaitAgent)
            .note(changed(S::CleanWait, S::Available))
            .note(changed(S::Available, S::Deploying))
            .note(changed(S::Deploying, S::DeployWait))
            .note(sent("initrd", 9, 9))
            .view();
        assert_eq!(working_since(&node), Some(node.timeline[1].at));
        assert_eq!(working_since(&NodeViewCase::new(S::Active).view()), None);
        let old = deploying(JobPhase::AwaitAgent)
            .change(|node| node.provision_updated_at = Some(UnixMs(7)))
            .view();
        assert_eq!(
            working_since(&old),
            Some(UnixMs(7)),
            "the timeline is too short"
        );
        let power = NodeViewCase::new(S::Active)
            .change(|node| node.target_power_state = Some(PowerState::On))
            .note(NoteKind::PowerOrdered { order: "power on" })
            .view();
        assert_eq!(working_since(&power), Some(power.timeline[0].at));
    }

    #[test]
    fn a_boot_is_try_n_of_m() {
        let view = RackView {
            boots_max: 4,
            ..RackView::default()
        };
        let second = deploying(JobPhase::AwaitAgent).change(|node| {
            if let Some(job) = &mut node.job {
                job.boots = NonZeroU32::new(2);
            }
        });
        assert_eq!(attempt(&view, &second.view()), Some((2, 4)));
        let rests = NodeViewCase::new(ProvisionState::Active).view();
        assert_eq!(attempt(&view, &rests), None);
        let verify = NodeViewCase::new(ProvisionState::Verifying)
            .job(JobKind::Verify, JobPhase::ReadPower, 0, 0)
            .change(|node| {
                if let Some(job) = &mut node.job {
                    job.boots = None;
                }
            });
        assert_eq!(attempt(&view, &verify.view()), None, "it needs no agent");
    }

    #[test]
    fn a_step_has_a_name_and_a_place() {
        let step = deploying(JobPhase::AwaitStep).transfer("disk.img", 1, 2);
        assert_eq!(
            doing(&step.view()),
            "Deploying: step step-0 (1 of 2), loading disk.img, 50 %"
        );
    }

    #[test]
    fn a_change_of_power_is_shown() {
        let case = NodeViewCase::new(ProvisionState::Active)
            .change(|node| node.target_power_state = Some(PowerState::Off));
        assert_eq!(doing(&case.view()), "Changing power: waiting for power off");
    }

    #[test]
    fn an_error_in_a_stable_state_has_advice_by_its_kind() {
        let advice_of = |driver: &str, error: &str| {
            let case = NodeViewCase::new(ProvisionState::Available).change(|node| {
                node.driver = driver.into();
                node.last_error = Some(error.into());
            });
            advice(&case.view()).unwrap()
        };
        let login = "the BMC refused the login (x); check ipmi_username and ipmi_password";
        assert_eq!(
            advice_of("ipmi", login),
            "Next: correct ipmi_password in driver_info, then repeat the request."
        );
        let redfish = advice_of("redfish", "the BMC refused the login");
        assert!(redfish.contains("redfish_password"), "{redfish}");
        assert_eq!(
            advice_of("ipmi", "the image is damaged"),
            "Next: correct the cause, then repeat the request."
        );
        assert_eq!(
            advice_of("ipmi", "inspection aborted"),
            "The operator aborted it. Next: repeat the request if it is still wanted."
        );
    }

    #[test]
    fn every_failure_has_advice() {
        for &state in ProvisionState::ALL {
            let message = advice(&NodeViewCase::new(state).view());
            assert_eq!(message.is_some(), state.is_failure(), "{state}");
        }
        let case = NodeViewCase::new(ProvisionState::Enroll).change(|node| {
            node.last_error = Some("the BMC refused the login".into());
        });
        let message = advice(&case.view()).unwrap();
        assert_eq!(
            message,
            "Check the BMC's user and password. Next: correct driver_info, then \"manage\" again."
        );
    }
}
