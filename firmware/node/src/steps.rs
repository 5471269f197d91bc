//! The order in which steps run.

use trivet_drivers::reserved;
use trivet_model::{Job, JobStep, StepKind};

use crate::EraseScope;

/// Ironic's order of interfaces among steps of one priority, first to last.
const INTERFACES: [&str; 7] = [
    "vendor",
    "power",
    "management",
    "firmware",
    "deploy",
    "bios",
    "raid",
];

/// The most steps a job may have. Ours: an agent that lists more is faulty.
pub(crate) const STEPS_MAX: usize = 64;

/// The steps of an agent that erase whole disks, and the one that erases only their metadata.
const ERASE_DISKS: [&str; 2] = ["erase_devices", "erase_devices_express"];
const ERASE_METADATA: &str = "erase_devices_metadata";

/// The steps that an agent offers for automatic runs, without those that must not erase. Steps
/// that an operator requests by name are not filtered.
pub(crate) fn allowed(job: &Job, offered: &[JobStep], erase: EraseScope) -> Vec<JobStep> {
    let unwanted = |step: &JobStep| {
        let disks = ERASE_DISKS.contains(&step.step.as_str());
        match erase {
            EraseScope::Full => false,
            EraseScope::Metadata => disks,
            EraseScope::None => disks || step.step == ERASE_METADATA,
        }
    };
    let mut offered = offered.to_vec();
    if job.step_kind == Some(StepKind::Clean) {
        for step in offered.iter_mut().filter(|step| unwanted(step)) {
            step.priority = 0;
        }
    }
    offered
}

/// Combines the steps an agent offers with those of a job: those it runs automatically
/// (priority above zero) are added to the job's own, in Ironic's order. The order of an
/// operator's steps is kept. Refuses a wanted step that `who` does not have.
pub(crate) fn plan(job: &Job, offered: &[JobStep], who: &str) -> Result<Vec<JobStep>, String> {
    let same =
        |one: &JobStep, other: &JobStep| one.step == other.step && one.interface == other.interface;
    for wanted in &job.steps {
        if reserved(wanted).is_none() && !offered.iter().any(|step| same(step, wanted)) {
            let kind = job.step_kind.map_or("", |kind| kind.as_str());
            return Err(format!(
                "{who} has no step {} of interface {} among its {kind} steps; leave it out, or \
                 use a ramdisk and interfaces that have it",
                wanted.step, wanted.interface
            ));
        }
    }
    let mut steps = job.steps.clone();
    // A requested step has no information about whether it can be aborted or what must follow
    // it.
    for step in &mut steps {
        if let Some(known) = offered.iter().find(|known| same(known, step)) {
            step.abortable = known.abortable;
            step.reboot_requested |= known.reboot_requested;
        }
    }
    if job.manual {
        return Ok(steps);
    }
    let own = offered.iter().filter(|step| step.priority > 0);
    for step in own {
        if !steps.iter().any(|known| same(known, step)) {
            steps.push(step.clone());
        }
    }
    steps.sort_by_key(|step| (-step.priority, rank(&step.interface)));
    if steps.len() > STEPS_MAX {
        return Err(format!(
            "the agent lists {} steps, more than {STEPS_MAX}",
            steps.len()
        ));
    }
    Ok(steps)
}

/// Steps with the same result however often they are started: those of the stock agent's own
/// hardware manager. For others, such as one that writes firmware, this is not known.
const MAY_REPEAT: [&str; 12] = [
    ERASE_METADATA,
    "erase_devices",
    "erase_devices_express",
    "erase_pstore",
    "clean_uefi_nvram",
    "write_image",
    "inject_files",
    "burnin_cpu",
    "burnin_gpu",
    "burnin_disk",
    "burnin_memory",
    "burnin_network",
];

/// Whether a step that may have been under way can be started again. The built-in steps of the
/// box can.
pub(crate) fn may_repeat(step: &JobStep) -> bool {
    reserved(step).is_some() || MAY_REPEAT.contains(&step.step.as_str())
}

/// The index at which a job continues that has read its steps again: finished steps are kept if
/// the new list starts like the old one. Automated cleaning starts again from the first step,
/// as in Ironic, because other hardware managers may clean other things. Other jobs start again
/// only where all finished steps may run twice.
pub(crate) fn resume_index(job: &Job, steps: &[JobStep]) -> Result<u32, String> {
    let done = job.steps.get(..job.at as usize).unwrap_or_default();
    let same = |(one, other): (&JobStep, &JobStep)| {
        one.step == other.step && one.interface == other.interface
    };
    let begins = steps.len() >= done.len() && done.iter().zip(steps).all(same);
    let repeats_all = job.step_kind == Some(StepKind::Clean) && !job.manual;
    let once = done.iter().find(|step| !may_repeat(step));
    match once {
        _ if begins && !repeats_all => Ok(job.at),
        Some(step) if !repeats_all => Err(format!(
            "the agent's hardware managers, and with them its steps, changed after {} was done, \
             and it is not done twice: look at the machine, then run what is missing",
            step.step
        )),
        _ => Ok(0),
    }
}

fn rank(interface: &str) -> usize {
    INTERFACES
        .iter()
        .position(|name| *name == interface)
        .unwrap_or(INTERFACES.len())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::num::NonZeroU32;

    use serde_json::json;
    use trivet_model::{JobKind, JobPhase};

    use super::*;

    fn step(name: &str, interface: &str, priority: i64) -> JobStep {
        JobStep {
            step: name.into(),
            interface: interface.into(),
            priority,
            args: json!({}),
            reboot_requested: false,
            abortable: true,
        }
    }

    fn job(steps: Vec<JobStep>, manual: bool) -> Job {
        Job {
            kind: JobKind::Clean,
            phase: JobPhase::GetSteps,
            step_kind: Some(StepKind::Clean),
            manual,
            steps,
            at: 0,
            versions: BTreeMap::new(),
            tries: 0,
            boots: Some(NonZeroU32::MIN),
            heartbeat_lost_at: None,
            abort_after: None,
            deployment: None,
            has_inspection_data: false,
            awaits_source: false,
            agent_query: None,
        }
    }

    #[track_caller]
    fn check(job: &Job, offered: &[JobStep], want: &[&str]) {
        let steps = plan(job, offered, "x").unwrap();
        assert_eq!(
            steps
                .iter()
                .map(|step| step.step.as_str())
                .collect::<Vec<_>>(),
            want
        );
    }

    #[test]
    fn automated_cleaning_erases_what_the_settings_select() {
        let offered = [
            step("erase_devices", "deploy", 10),
            step("erase_devices_metadata", "deploy", 99),
            step("burnin_cpu", "deploy", 5),
        ];
        for (erase, want) in [
            (
                EraseScope::Full,
                &["erase_devices_metadata", "erase_devices", "burnin_cpu"][..],
            ),
            (
                EraseScope::Metadata,
                &["erase_devices_metadata", "burnin_cpu"],
            ),
            (EraseScope::None, &["burnin_cpu"]),
        ] {
            let job = job(vec![], false);
            check(&job, &allowed(&job, &offered, erase), want);
        }
        // A step that is requested by name runs.
        let job = job(vec![step("erase_devices", "deploy", 0)], true);
        check(
            &job,
            &allowed(&job, &offered, EraseScope::None),
            &["erase_devices"],
        );
    }

    #[test]
    fn runs_the_higher_priority_first_and_zero_never() {
        let offered = [
            step("low", "deploy", 10),
            step("never", "deploy", 0),
            step("high", "deploy", 99),
        ];
        check(&job(vec![], false), &offered, &["high", "low"]);
    }

    #[test]
    fn breaks_ties_by_interface() {
        let offered = [
            step("r", "raid", 5),
            step("v", "vendor", 5),
            step("d", "deploy", 5),
        ];
        check(&job(vec![], false), &offered, &["v", "d", "r"]);
    }

    #[test]
    fn keeps_an_operators_order_and_adds_nothing() {
        let offered = [step("a", "deploy", 99), step("b", "deploy", 0)];
        check(&job(vec![step("b", "deploy", 0)], true), &offered, &["b"]);
    }

    #[test]
    fn a_brought_step_shadows_the_agents_own_and_is_not_added_twice() {
        let given_job = job(vec![step("write", "deploy", 80)], false);
        let offered = [step("write", "deploy", 3), step("wipe", "deploy", 90)];
        check(&given_job, &offered, &["wipe", "write"]);
        let again = job(plan(&given_job, &offered, "x").unwrap(), false);
        check(&again, &offered, &["wipe", "write"]);
    }

    #[test]
    fn refuses_a_wanted_step_the_agent_does_not_have() {
        let message = plan(&job(vec![step("dance", "deploy", 1)], true), &[], "x").unwrap_err();
        assert!(
            message.contains("no step dance of interface deploy"),
            "{message}"
        );
    }

    #[test]
    fn refuses_an_agent_with_too_many_steps() {
        let offered: Vec<_> = (0..=STEPS_MAX)
            .map(|n| step(&n.to_string(), "deploy", 1))
            .collect();
        assert!(
            plan(&job(vec![], false), &offered, "x")
                .unwrap_err()
                .contains("more than")
        );
    }
}
