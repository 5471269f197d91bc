//! Lost or useless replies: no job runs for ever, and nothing that must not be repeated runs
//! twice.

use super::*;

/// A manual cleaning at its first step, which the agent accepted.
fn at_step(name: &str) -> NodeTestRig {
    let mut rig = NodeTestRig::new(Manageable);
    let steps = [offered(name, 0)];
    rig.apply_verb(Verb::Clean, steps.to_vec()).boots();
    rig.handle(NodeEvent::Heartbeat).agent(steps_are(&steps));
    rig.agent(Ok(AgentEvent::Accepted)).is(CleanWait);
    rig
}

#[test]
fn hardware_managers_that_change_from_look_to_look_end_the_job() {
    let mut rig = deploying();
    rig.handle(NodeEvent::Heartbeat);
    let mut lists = 0;
    while rig.node.job.is_some() {
        lists += 1;
        rig.agent(steps_are(&[offered("write_image", 0)]));
        rig.agent(Ok(AgentEvent::VersionMismatch));
    }
    assert_eq!(lists, rig.limits.tries_max);
    let why = rig.is(DeployFail).node.last_error.clone().unwrap();
    assert!(why.contains("change at each reading"), "{why}");
}

#[test]
fn a_step_that_never_arrives_ends_the_job_though_its_agent_beats() {
    let mut rig = deploying();
    rig.handle(NodeEvent::Heartbeat)
        .agent(steps_are(&[offered("write_image", 0)]));
    let mut tries = 0;
    while rig.node.job.is_some() {
        tries += 1;
        rig.agent(unreachable()).handle(NodeEvent::Heartbeat);
        rig.agent(Ok(AgentEvent::Idle));
    }
    assert_eq!(tries, rig.limits.tries_max);
    rig.is(DeployFail);
}

#[test]
fn a_list_of_commands_that_cannot_be_read_costs_a_boot_and_no_step_twice() {
    let mut rig = at_step("erase_devices");
    rig.handle(NodeEvent::Heartbeat).agent(broken());
    rig.boots_again().handle(NodeEvent::Heartbeat);
    rig.agent(steps_are(&[offered("erase_devices", 0)]));
    assert_eq!(rig.executes(), "erase_devices");
    let mut rig = at_step("flash_firmware");
    rig.handle(NodeEvent::Heartbeat)
        .agent(broken())
        .is(CleanFail);
    let why = rig.node.last_error.clone().unwrap();
    assert!(why.contains("not done twice"), "{why}");
}

#[test]
fn an_agent_without_a_token_may_have_restarted() {
    for (step, state) in [("erase_devices", Cleaning), ("flash_firmware", CleanFail)] {
        let mut rig = at_step(step);
        rig.node.agent = Some(trivet_model::AgentSession::legacy());
        rig.handle(NodeEvent::Heartbeat)
            .agent(Ok(AgentEvent::Idle))
            .is(state);
    }
}

#[test]
fn other_managers_do_not_lead_back_over_what_is_done_once() {
    let replan = |first: &str| {
        let mut rig = NodeTestRig::new(Available);
        rig.apply_verb(
            Verb::Active,
            vec![offered("write_image", 80), offered(first, 90)],
        );
        rig.boots().handle(NodeEvent::Heartbeat);
        let steps = [offered("write_image", 0), offered(first, 0)];
        rig.agent(steps_are(&steps)).agent(Ok(AgentEvent::Accepted));
        rig.handle(NodeEvent::Heartbeat).agent(done(first));
        rig.agent(Ok(AgentEvent::VersionMismatch));
        let newer = offered("newer", 95);
        let steps = [newer, offered("write_image", 0), offered(first, 0)];
        rig.agent(steps_are(&steps));
        rig
    };
    assert_eq!(replan("inject_files").executes(), "newer");
    let rig = replan("apply_configuration");
    let why = rig.is(DeployFail).node.last_error.clone().unwrap();
    assert!(why.contains("apply_configuration was done"), "{why}");
}

#[test]
fn a_first_silence_is_a_first_one_whatever_the_boot_took() {
    let mut rig = NodeTestRig::new(Manageable);
    let steps = [offered("erase_devices", 0)];
    rig.apply_verb(Verb::Clean, steps.to_vec()).boots();
    rig.handle(NodeEvent::TimerExpired).boots_again();
    rig.handle(NodeEvent::Heartbeat).agent(steps_are(&steps));
    for silences in 1..=2 {
        rig.agent(Ok(AgentEvent::Accepted)).is(CleanWait);
        rig.handle(NodeEvent::TimerExpired)
            .power(PowerOrder::Status, ON);
        if silences == 1 {
            rig.boots_again().handle(NodeEvent::Heartbeat);
            rig.agent(steps_are(&steps));
        }
    }
    rig.is(CleanFail);
    // The next job starts without this state.
    rig.node.maintenance = false;
    rig.apply_verb(Verb::Manage, vec![]);
    rig.apply_verb(Verb::Clean, steps.to_vec());
    let job = rig.node.job.as_ref().unwrap();
    assert_eq!(job.heartbeat_lost_at, None);
}

#[test]
fn a_record_that_would_be_too_large_ends_the_job_and_frees_space() {
    let mut rig = at_step("erase_devices");
    assert!(
        rig.node
            .driver_internal_info
            .contains_key("agent_cached_clean_steps")
    );
    rig.handle(NodeEvent::RecordTooLarge).is(CleanFail);
    assert!(
        !rig.node
            .driver_internal_info
            .contains_key("agent_cached_clean_steps")
    );
    let why = rig.node.last_error.clone().unwrap();
    assert!(why.contains("does not fit"), "{why}");
}

#[test]
fn a_deployment_that_ends_with_the_power_off_needs_no_agent_more() {
    let mut rig = deploying();
    rig.handle(NodeEvent::Heartbeat)
        .agent(steps_are(&[offered("write_image", 0)]));
    let off = JobStep {
        interface: "power".into(),
        ..offered("power_off", 0)
    };
    rig.node.job.as_mut().unwrap().steps.push(off);
    rig.agent(Ok(AgentEvent::Accepted))
        .handle(NodeEvent::Heartbeat);
    rig.agent(done("write_image"));
    rig.power(PowerOrder::Off, OFF);
    rig.wants(&NodeAction::Power(PowerOrder::SetBoot {
        device: BootDevice::Disk,
        persistent: true,
        efi: false,
    }));
}

#[test]
fn a_running_machine_is_ignored_until_it_is_reset() {
    let mut rig = NodeTestRig::new(Manageable);
    rig.apply_verb(Verb::Provide, vec![]).boots();
    assert!(!awaits_reset(&rig.node));
    rig.handle(NodeEvent::TimerExpired);
    assert!(awaits_reset(&rig.node) && boots_agent(&rig.node));
    rig.power(SET_PXE, TAKEN);
    assert!(awaits_reset(&rig.node));
    rig.power(PowerOrder::Reset, TAKEN);
    assert!(!awaits_reset(&rig.node));
}

#[test]
fn an_abort_waits_for_a_step_that_must_not_be_stopped() {
    let firmware = JobStep {
        abortable: false,
        ..offered("flash_firmware", 0)
    };
    let mut rig = NodeTestRig::new(Manageable);
    rig.apply_verb(
        Verb::Clean,
        vec![firmware.clone(), offered("erase_devices", 0)],
    );
    rig.boots().handle(NodeEvent::Heartbeat);
    rig.agent(steps_are(&[firmware, offered("erase_devices", 0)]));
    rig.agent(Ok(AgentEvent::Accepted));
    rig.apply_verb(Verb::Abort, vec![]).is(CleanWait);
    let why = rig.node.last_error.clone().unwrap();
    assert!(why.contains("flash_firmware must not be stopped"), "{why}");
    rig.handle(NodeEvent::Heartbeat)
        .agent(Ok(AgentEvent::StepRunning));
    rig.handle(NodeEvent::Heartbeat)
        .agent(done("flash_firmware"));
    rig.is(CleanFail);
    assert_eq!(rig.node.job, None);
    let why = rig.node.last_error.clone().unwrap();
    assert!(why.contains("aborted by the operator"), "{why}");
}

#[test]
fn what_was_not_begun_is_not_begun_after_an_abort() {
    let firmware = JobStep {
        abortable: false,
        ..offered("flash_firmware", 0)
    };
    let aborted = || {
        let mut rig = NodeTestRig::new(Manageable);
        rig.apply_verb(Verb::Clean, vec![firmware.clone()]).boots();
        rig.handle(NodeEvent::Heartbeat)
            .agent(steps_are(std::slice::from_ref(&firmware)));
        rig.agent(unreachable()).apply_verb(Verb::Abort, vec![]);
        rig.is(CleanWait);
        rig
    };
    for event in [AgentEvent::Idle, AgentEvent::VersionMismatch] {
        aborted()
            .handle(NodeEvent::Heartbeat)
            .agent(Ok(event))
            .is(CleanFail);
    }
    // A second abort is intended.
    aborted().apply_verb(Verb::Abort, vec![]).is(CleanFail);
}

#[test]
fn what_may_be_stopped_is_stopped_at_once() {
    let mut rig = at_step("erase_devices");
    rig.apply_verb(Verb::Abort, vec![]).is(CleanFail);
    let stoppable = JobStep {
        abortable: true,
        ..offered("check_fans", 0)
    };
    let mut rig = NodeTestRig::new(Manageable);
    rig.apply_verb(Verb::Clean, vec![stoppable.clone()]).boots();
    rig.handle(NodeEvent::Heartbeat)
        .agent(steps_are(&[stoppable]));
    rig.agent(Ok(AgentEvent::Accepted));
    rig.apply_verb(Verb::Abort, vec![]).is(CleanFail);
}

#[test]
fn each_failed_boot_is_reported_and_the_last_one_with_the_number_of_boots() {
    let mut rig = NodeTestRig::new(Manageable);
    rig.limits.boots_max = 2;
    rig.apply_verb(Verb::Inspect, vec![]).boots();
    let reported = |rig: &NodeTestRig| {
        rig.actions.iter().find_map(|action| match action {
            NodeAction::BootFailed { why, last_of } => Some((why.clone(), *last_of)),
            _ => None,
        })
    };
    let why = "no sign of the agent in time".to_owned();
    rig.handle(NodeEvent::TimerExpired);
    assert_eq!(reported(&rig), Some((why.clone(), None)));
    rig.boots_again().handle(NodeEvent::TimerExpired);
    assert_eq!(reported(&rig), Some((why, Some(2))));
    rig.is(InspectFail);
}

#[test]
fn a_failed_inspection_names_what_is_missing() {
    let last = |change: &dyn Fn(&mut NodeTestRig)| {
        let mut rig = NodeTestRig::new(Manageable);
        rig.limits.boots_max = 1;
        rig.apply_verb(Verb::Inspect, vec![]).boots();
        change(&mut rig);
        rig.is(InspectFail).node.last_error.clone().unwrap()
    };
    let has_callback = last(&|rig| {
        rig.node.agent = Some(trivet_model::AgentSession {
            url: Some("http://x".into()),
            ..trivet_model::AgentSession::legacy()
        });
        rig.handle(NodeEvent::TimerExpired);
    });
    assert!(
        has_callback.contains("sent no inspection data"),
        "{has_callback}"
    );
    let silent = last(&|rig| {
        rig.handle(NodeEvent::TimerExpired);
    });
    assert!(silent.contains("no sign of the agent"), "{silent}");
    let why = "it is too long".to_owned();
    let refused = last(&|rig| {
        rig.handle(NodeEvent::NotInspected { why: why.clone() });
    });
    assert!(refused.contains(&why), "{refused}");
}

#[test]
fn an_agent_that_does_not_answer_leaves_the_reason() {
    let mut rig = deploying();
    rig.handle(NodeEvent::Heartbeat).agent(unreachable());
    let why = unreachable().unwrap_err().to_string();
    rig.wants(&NodeAction::Note(NoteKind::Retrying { why }));
}
