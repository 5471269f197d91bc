//! Every fault at every point: one machine with the stock agent, and no other faults. The node
//! must become active within a bounded time.
//!
//! `TRIVET_FAULT_POINT='AgentHangs@GetSteps'` prints one such run line by line.

use trivet_tests_sim::{
    AGENT_JOB_POINTS, INJECTED_FAULTS, InjectedFault, JOB_POINTS, SeedReport, run_with_fault,
};

/// No single fault delays a node longer than this: six attempts of a command, each with its
/// timeout, and a boot.
const TOOK_MS_MAX: u64 = 600_000;

#[track_caller]
fn check(fault: InjectedFault, place: &'static str) -> SeedReport {
    let story = run_with_fault(place, fault, false);
    assert!(
        story.violations.is_empty(),
        "{fault:?} @ {place}: {:?}",
        story.violations
    );
    assert_eq!(story.active, 1, "{fault:?} @ {place}");
    assert!(
        story.took_ms < TOOK_MS_MAX,
        "{fault:?} @ {place}: {}",
        story.took_ms
    );
    story
}

/// The fault is observed at its point, or, if it shows only later, anywhere.
#[track_caller]
fn observes(fault: InjectedFault, what: &str, places: &[&'static str], there: bool) {
    for place in places {
        let story = check(fault, place);
        let key = format!("{what} @ {}", if there { place } else { "" });
        let met = story.observed.keys().any(|met| met.starts_with(&key));
        assert!(met, "{fault:?} @ {place}: {:?}", story.observed);
    }
}

/// The points at which the box knows the agent's address.
const AGENT_ADDRESS_KNOWN: &[&str] = &[
    "GetSteps",
    "StartStep erase_devices_metadata",
    "AwaitStep erase_devices_metadata",
    "StartStep write_image",
    "AwaitStep write_image",
    "Bootloader",
    "AwaitBootloader",
    "Sync",
    "FinishRescue",
];

/// The points at which a command is about to be sent.
const ORDERS: &[&str] = &[
    "GetSteps",
    "StartStep erase_devices_metadata",
    "StartStep write_image",
    "Bootloader",
    "Sync",
    "FinishRescue",
];

#[test]
fn every_fault_at_every_job_point_ends_active() {
    for fault in INJECTED_FAULTS {
        for place in JOB_POINTS {
            check(fault, place);
        }
    }
}

#[test]
fn the_box_loses_power_in_each_phase() {
    observes(InjectedFault::BoxCut, "box cut", &JOB_POINTS, true);
    observes(InjectedFault::BoxCutLater, "box cut", &JOB_POINTS, false);
}

#[test]
fn the_agent_falls_silent_in_each_phase() {
    observes(
        InjectedFault::AgentHangs,
        "agent hung",
        &AGENT_JOB_POINTS,
        true,
    );
    // At the end heartbeats are no longer expected, and none is lost.
    let heartbeat_points = &JOB_POINTS[..JOB_POINTS.len() - 5];
    observes(
        InjectedFault::HeartbeatsLost,
        "beat lost",
        heartbeat_points,
        false,
    );
}

#[test]
fn the_agent_dies_in_each_phase_and_comes_back_without_its_token() {
    observes(
        InjectedFault::AgentDies,
        "agent died",
        &AGENT_JOB_POINTS,
        true,
    );
    let steps = [
        "AwaitStep erase_devices_metadata",
        "AwaitStep write_image",
        "AwaitBootloader",
    ];
    observes(InjectedFault::AgentDies, "died mid-command", &steps, true);
    observes(InjectedFault::AgentDies, "masked token", &steps, true);
    let looked_up = ["AwaitAgent looked up"];
    observes(InjectedFault::AgentDies, "masked token", &looked_up, true);
}

#[test]
fn the_agent_comes_back_with_another_certificate_or_address() {
    observes(
        InjectedFault::NewCertificate,
        "certificate changed",
        AGENT_ADDRESS_KNOWN,
        false,
    );
    observes(
        InjectedFault::NewAddress,
        "address changed",
        AGENT_ADDRESS_KNOWN,
        false,
    );
}

#[test]
fn hardware_managers_change_between_the_list_and_the_step() {
    let starts = ["StartStep erase_devices_metadata", "StartStep write_image"];
    observes(
        InjectedFault::NewManagers,
        "version mismatch",
        &starts,
        false,
    );
}

#[test]
fn the_agent_is_busy_with_something_else() {
    observes(InjectedFault::AgentBusy, "busy", ORDERS, true);
}

/// No checker finds the token in public text.
#[test]
fn the_agent_leaks_its_token_in_a_failure() {
    let starts = ["StartStep erase_devices_metadata", "StartStep write_image"];
    observes(InjectedFault::TokenLeaked, "token leaked", &starts, false);
}

/// The command is accepted and its reply lost: it must not be executed twice.
#[test]
fn the_agent_accepts_a_command_and_its_reply_is_lost() {
    observes(InjectedFault::AnswerLost, "answer lost", ORDERS, true);
}

#[test]
fn one_fault_point() {
    let Ok(name) = std::env::var("TRIVET_FAULT_POINT") else {
        return;
    };
    let (fault, place) = name.split_once('@').unwrap();
    let mut troubles = INJECTED_FAULTS.into_iter();
    let fault = troubles.find(|it| format!("{it:?}") == fault).unwrap();
    let place = JOB_POINTS.into_iter().find(|it| *it == place).unwrap();
    let story = run_with_fault(place, fault, true);
    println!("{}", story.trace.text().unwrap_or_default());
    println!("{:#?}\n{:?}", story.observed, story.violations);
}
