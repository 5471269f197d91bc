//! Agents whose heartbeats stop while they work.

use super::*;

const SILENT: u64 = 300;

/// A manual cleaning whose agent runs the second of these steps.
fn at_second(first: &str, second: &str) -> NodeTestRig {
    let mut rig = NodeTestRig::new(Manageable);
    let steps = [offered(first, 0), offered(second, 0)];
    rig.apply_verb(Verb::Clean, steps.to_vec()).boots();
    rig.handle(NodeEvent::Heartbeat).agent(steps_are(&steps));
    rig.agent(Ok(AgentEvent::Accepted))
        .handle(NodeEvent::Heartbeat);
    rig.agent(done(first)).agent(Ok(AgentEvent::Accepted));
    rig.is(CleanWait);
    rig
}

fn falls_silent(rig: &mut NodeTestRig) -> &mut NodeTestRig {
    rig.handle(NodeEvent::TimerExpired);
    rig.wants(&NodeAction::Note(NoteKind::AgentTimedOut {
        seconds: SILENT,
    }))
    .wants(&NodeAction::Power(PowerOrder::Status));
    rig
}

#[test]
fn a_running_step_is_waited_for_as_long_as_its_agent_beats() {
    let mut rig = at_second("erase_pstore", "erase_devices");
    for _ in 0..20 {
        rig.handle(NodeEvent::Heartbeat);
        rig.wants(&NodeAction::WakeAfter(rig.limits.heartbeat_timeout_ms));
        rig.agent(Ok(AgentEvent::StepRunning)).is(CleanWait);
    }
}

#[test]
fn the_power_is_read_the_machine_booted_once_and_the_step_repeated() {
    let mut rig = at_second("erase_pstore", "erase_devices");
    falls_silent(&mut rig).power(PowerOrder::Status, ON);
    rig.boots_again().handle(NodeEvent::Heartbeat);
    let AgentOrder::Execute { step, .. } = rig.agent_order() else {
        panic!("{:?}", rig.actions);
    };
    assert_eq!(step.step, "erase_devices", "what is done stays done");
}

#[test]
fn a_second_silence_ends_the_job_with_a_sentence() {
    let mut rig = at_second("erase_pstore", "erase_devices");
    falls_silent(&mut rig).power(PowerOrder::Status, ON);
    rig.boots_again().handle(NodeEvent::Heartbeat);
    rig.agent(Ok(AgentEvent::Accepted));
    falls_silent(&mut rig).power(PowerOrder::Status, OFF);
    rig.is(CleanFail);
    let why = rig.node.last_error.clone().unwrap();
    for part in [
        "erase_devices",
        "300 s",
        "machine is off",
        "after a reboot",
        "console",
    ] {
        assert!(why.contains(part), "{part}: {why}");
    }
    assert!(rig.node.maintenance, "the state of the disks is unknown");
}

#[test]
fn a_bmc_that_does_not_answer_does_not_keep_the_machine_from_its_reboot() {
    let mut rig = at_second("erase_pstore", "erase_devices");
    let silent = Err(PowerError::NoResponse { waited_ms: 1 });
    falls_silent(&mut rig).power(PowerOrder::Status, silent);
    rig.wants(&NodeAction::Power(SET_PXE));
}

#[test]
fn a_step_of_unknown_kind_is_not_done_twice() {
    let mut rig = at_second("erase_pstore", "update_firmware");
    falls_silent(&mut rig).power(PowerOrder::Status, ON);
    rig.is(CleanFail);
    let why = rig.node.last_error.clone().unwrap();
    assert!(
        why.contains("update_firmware was done is not known"),
        "{why}"
    );
}

#[test]
fn nor_is_it_where_its_agent_cannot_be_called_or_lost_our_token() {
    let mut rig = at_second("erase_pstore", "update_firmware");
    rig.handle(NodeEvent::Heartbeat)
        .agent(Err(AgentError::TokenRefused));
    rig.is(CleanFail);
    let mut rig = at_second("erase_pstore", "update_firmware");
    for _ in 0..rig.limits.tries_max {
        rig.handle(NodeEvent::Heartbeat).agent(unreachable());
    }
    rig.is(CleanFail);
    let why = rig.node.last_error.clone().unwrap();
    for part in ["cannot be called", "http://x", "; whether update_firmware"] {
        assert!(why.contains(part), "{why}");
    }
}

#[test]
fn a_step_that_was_refused_for_its_token_was_not_taken_and_is_done_after_a_boot() {
    let mut rig = NodeTestRig::new(Manageable);
    let steps = [offered("update_firmware", 0)];
    rig.apply_verb(Verb::Clean, steps.to_vec()).boots();
    rig.handle(NodeEvent::Heartbeat).agent(steps_are(&steps));
    rig.agent(Err(AgentError::TokenRefused));
    rig.wants(&NodeAction::Power(SET_PXE));
}

#[test]
fn an_agent_with_a_heartbeat_while_its_bmc_is_read_continues() {
    let mut rig = at_second("erase_pstore", "update_firmware");
    falls_silent(&mut rig)
        .handle(NodeEvent::Heartbeat)
        .is(CleanWait);
    rig.wants(&NodeAction::WakeAfter(rig.limits.heartbeat_timeout_ms));
    // The BMC's reply comes late and is ignored.
    rig.handle(NodeEvent::Power(PowerOrder::Status, ON))
        .is(CleanWait);
    rig.handle(NodeEvent::Heartbeat)
        .agent(done("update_firmware"));
    rig.wants(&NodeAction::Power(PowerOrder::Off));
}

#[test]
fn a_box_that_restarts_meanwhile_reads_the_power_again() {
    let mut rig = at_second("erase_pstore", "erase_devices");
    falls_silent(&mut rig).handle(NodeEvent::Restarted);
    rig.power(PowerOrder::Status, OFF);
    rig.wants(&NodeAction::Power(SET_PXE));
}

#[test]
fn an_earlier_step_of_the_same_name_is_not_taken_for_the_present_one() {
    let mut rig = at_second("erase_devices", "erase_devices");
    // The order was lost, and the agent's last step is the first one.
    let first = |at| {
        Ok(AgentEvent::StepDone {
            step: "erase_devices".into(),
            interface: "deploy".into(),
            at: Some(at),
            reboot_requested: false,
            result: Value::Null,
            image_was_on_disk: false,
        })
    };
    rig.handle(NodeEvent::Heartbeat).agent(first(0));
    let AgentOrder::Execute { at, .. } = rig.agent_order() else {
        panic!("{:?}", rig.actions);
    };
    assert_eq!(at, 1);
    rig.agent(Ok(AgentEvent::Accepted))
        .handle(NodeEvent::Heartbeat);
    rig.agent(first(1))
        .wants(&NodeAction::Power(PowerOrder::Off));
}

#[test]
fn other_hardware_managers_restart_an_automated_cleaning_but_not_a_manual_one() {
    let steps = [
        offered("erase_pstore", 9),
        offered("erase_devices_metadata", 8),
    ];
    let mut rig = NodeTestRig::new(Manageable);
    rig.apply_verb(Verb::Provide, vec![]).boots();
    rig.handle(NodeEvent::Heartbeat).agent(steps_are(&steps));
    rig.agent(Ok(AgentEvent::Accepted))
        .handle(NodeEvent::Heartbeat);
    rig.agent(done("erase_pstore"));
    rig.agent(Ok(AgentEvent::VersionMismatch));
    rig.agent(steps_are(&steps));
    assert_eq!(rig.node.job.as_ref().unwrap().at, 0);

    let mut rig = at_second("erase_pstore", "erase_devices");
    rig.handle(NodeEvent::Heartbeat)
        .agent(Ok(AgentEvent::VersionMismatch));
    rig.agent(steps_are(&[
        offered("erase_devices", 0),
        offered("erase_pstore", 0),
    ]));
    assert_eq!(rig.node.job.as_ref().unwrap().at, 1);
}

/// A deployment whose image is written and whose agent is known, about to be powered off.
fn at_last_power_off() -> NodeTestRig {
    let mut rig = deploying();
    rig.node.agent = Some(trivet_model::AgentSession {
        url: Some("http://192.0.2.9:9999".into()),
        ..trivet_model::AgentSession::legacy()
    });
    rig.handle(NodeEvent::Heartbeat)
        .agent(steps_are(&[offered("write_image", 80)]));
    rig.agent(Ok(AgentEvent::Accepted))
        .handle(NodeEvent::Heartbeat);
    rig.agent(done("write_image"))
        .agent(Ok(AgentEvent::Finished));
    rig
}

/// Checks that the rack receives the contradiction and ends the job.
#[track_caller]
fn contradicts(rig: &mut NodeTestRig) -> &mut NodeTestRig {
    let mut actions = rig.actions.iter();
    let why = actions.find_map(|action| match action {
        NodeAction::AgentContradictsBmc { why } => Some(why.clone()),
        _ => None,
    });
    let why = why.unwrap_or_else(|| panic!("no contradiction: {:?}", rig.actions));
    rig.handle(NodeEvent::WrongMachine { why })
}

#[test]
fn an_agent_that_answers_after_the_last_power_off_keeps_the_node_from_active() {
    let mut rig = at_last_power_off();
    rig.power(PowerOrder::Off, OFF).is(Deploying);
    assert_eq!(rig.agent_order(), AgentOrder::ListCommands);
    // The BMC may have reported "off" a moment too early: the agent is called twice.
    rig.agent(Ok(AgentEvent::Idle)).is(Deploying);
    rig.handle(NodeEvent::TimerExpired);
    assert_eq!(rig.agent_order(), AgentOrder::ListCommands);
    rig.agent(Ok(AgentEvent::Idle));
    contradicts(&mut rig).is(DeployFail);
    // That BMC switches another machine.
    assert!(!rig.actions.contains(&NodeAction::SwitchOffFailed));
    let why = rig.node.last_error.clone().unwrap();
    for part in ["still answers", "192.0.2.9", "BMC of another machine"] {
        assert!(why.contains(part), "{why}");
    }
    // A late reply counts as well.
    let mut rig = at_last_power_off();
    rig.power(PowerOrder::Off, OFF)
        .handle(NodeEvent::TimerExpired);
    rig.power(SET_DISK, TAKEN);
    rig.handle(NodeEvent::Agent(
        AgentOrder::ListCommands,
        Ok(AgentEvent::Idle),
    ));
    contradicts(&mut rig).is(DeployFail);
}

#[test]
fn an_agent_that_answers_once_while_its_machine_switches_off_lets_the_node_become_active() {
    let mut rig = at_last_power_off();
    rig.power(PowerOrder::Off, OFF);
    rig.agent(Ok(AgentEvent::Idle))
        .handle(NodeEvent::TimerExpired);
    rig.agent(unreachable());
    rig.power(SET_DISK, TAKEN)
        .power(PowerOrder::On, ON)
        .is(Active);
}

#[test]
fn an_agent_that_is_gone_after_the_last_power_off_lets_the_node_become_active() {
    for answered in [true, false] {
        let mut rig = at_last_power_off();
        rig.power(PowerOrder::Off, OFF);
        if answered {
            rig.agent(unreachable());
        } else {
            rig.handle(NodeEvent::TimerExpired);
        }
        rig.power(SET_DISK, TAKEN)
            .power(PowerOrder::On, ON)
            .is(Active);
    }
}
