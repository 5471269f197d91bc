//! Machines that must never be switched off: jobs reboot them, as Ironic does.

use super::*;

fn always_on(state: ProvisionState, power: Option<PowerState>) -> NodeTestRig {
    let mut rig = NodeTestRig::new(state);
    rig.node.attributes.disable_power_off = true;
    rig.node.power_state = power;
    rig
}

/// From the verb to the agent's first heartbeat.
fn resets(rig: &mut NodeTestRig) -> &mut NodeTestRig {
    rig.power(SET_PXE, TAKEN).power(PowerOrder::Reset, ON);
    rig.handle(NodeEvent::MachineSeen)
        .handle(NodeEvent::Heartbeat)
}

const IMAGE: &str = "write_image";

#[test]
fn a_deployment_reboots_a_machine_that_must_stay_on_and_never_powers_it_off() {
    for power in [Some(PowerState::On), None] {
        let mut rig = always_on(Available, power);
        rig.apply_verb(Verb::Active, vec![offered(IMAGE, 80)]);
        resets(&mut rig).agent(steps_are(&[offered(IMAGE, 80)]));
        rig.agent(Ok(AgentEvent::Accepted))
            .handle(NodeEvent::Heartbeat);
        rig.agent(done(IMAGE)).agent(Ok(AgentEvent::Finished));
        rig.power(SET_DISK, TAKEN)
            .power(PowerOrder::Reset, ON)
            .is(Active);
    }
}

#[test]
fn a_machine_that_must_stay_on_and_is_off_is_switched_on() {
    let mut rig = always_on(Available, Some(PowerState::Off));
    rig.apply_verb(Verb::Active, vec![offered(IMAGE, 80)]);
    rig.power(SET_PXE, TAKEN).power(PowerOrder::On, ON);
    assert_eq!(rig.node.job.as_ref().unwrap().phase, JobPhase::AwaitAgent);
}

#[test]
fn cleaning_and_removal_end_with_a_reboot_where_the_machine_must_stay_on() {
    let mut rig = always_on(Active, Some(PowerState::On));
    rig.apply_verb(Verb::Deleted, vec![]);
    resets(&mut rig).agent(steps_are(&[]));
    rig.power(PowerOrder::Reset, ON).is(Available);

    let mut rig = always_on(Active, Some(PowerState::On));
    rig.node.automated_clean = Some(false);
    rig.apply_verb(Verb::Deleted, vec![])
        .power(PowerOrder::Reset, ON)
        .is(Available);
}

#[test]
fn the_bmc_of_a_machine_that_must_stay_on_is_never_restarted() {
    let mut rig = always_on(Available, Some(PowerState::On));
    rig.apply_verb(Verb::Active, vec![offered(IMAGE, 80)]);
    for _ in 1..=rig.limits.boots_max {
        rig.power(SET_PXE, TAKEN).power(PowerOrder::Reset, ON);
        rig.handle(NodeEvent::TimerExpired);
    }
    rig.is(DeployFail);
    // Nor is it switched off after the failure.
    assert_eq!(rig.node.target_power_state, None);
    assert!(!rig.actions.contains(&NodeAction::SwitchOffFailed));
}

#[test]
fn a_step_that_switches_off_is_refused_where_the_machine_must_stay_on() {
    let mut rig = always_on(Manageable, Some(PowerState::On));
    let mut off = offered("power_off", 0);
    off.interface = "power".to_owned();
    let args = VerbArgs {
        steps: vec![off],
        ..VerbArgs::default()
    };
    let refused = apply_verb(NOW, &rig.limits, &rig.node, Verb::Clean, args.clone()).unwrap_err();
    let sentence = refused.sentence;
    assert!(sentence.contains("disable_power_off"), "{sentence}");
    rig.node.attributes.disable_power_off = false;
    assert!(apply_verb(NOW, &rig.limits, &rig.node, Verb::Clean, args).is_ok());
}

/// A deployment whose image is written, with an agent that is known.
fn written() -> NodeTestRig {
    let mut rig = always_on(Available, Some(PowerState::On));
    rig.apply_verb(Verb::Active, vec![offered(IMAGE, 80)]);
    resets(&mut rig).agent(steps_are(&[offered(IMAGE, 80)]));
    rig.node.agent = Some(trivet_model::AgentSession {
        url: Some("http://192.0.2.9:9999".into()),
        ..trivet_model::AgentSession::legacy()
    });
    rig.agent(Ok(AgentEvent::Accepted))
        .handle(NodeEvent::Heartbeat);
    rig.agent(done(IMAGE)).agent(Ok(AgentEvent::Finished));
    rig
}

#[test]
fn the_agent_of_a_machine_that_must_stay_on_is_locked_down_before_the_last_restart() {
    let mut rig = written();
    assert_eq!(rig.agent_order(), AgentOrder::Lockdown);
    rig.agent(Ok(AgentEvent::Finished));
    assert_eq!(rig.node.agent, None);
    rig.power(SET_DISK, TAKEN)
        .power(PowerOrder::Reset, ON)
        .is(Active);
    // A machine that is switched off needs no lockdown.
    let mut rig = written();
    rig.node.attributes.disable_power_off = false;
    rig.node.job.as_mut().unwrap().phase = JobPhase::Sync;
    let synced = Ok(AgentEvent::Finished);
    rig.handle(NodeEvent::Agent(AgentOrder::Sync, synced));
    rig.wants(&NodeAction::Power(PowerOrder::Off));
}

#[test]
fn an_agent_that_cannot_be_locked_down_is_a_warning_and_the_deployment_continues() {
    for answer in [
        Err(AgentError::Refused {
            message: "Extension system is not found".to_owned(),
        }),
        Err(AgentError::TokenRefused),
        unreachable(),
        Ok(AgentEvent::Busy),
    ] {
        let mut rig = written();
        rig.agent(answer);
        let warned = |action: &NodeAction| match action {
            NodeAction::Note(NoteKind::Warning { why }) => why.contains("not locked down"),
            _ => false,
        };
        assert!(rig.actions.iter().any(warned), "{:?}", rig.actions);
        rig.wants(&NodeAction::Power(SET_DISK));
    }
}

/// A deployment whose agent could not be locked down and whose reset the BMC has accepted.
fn restarted_with_agent() -> NodeTestRig {
    let mut rig = written();
    rig.agent(unreachable());
    rig.power(SET_DISK, TAKEN)
        .power(PowerOrder::Reset, ON)
        .is(Deploying);
    rig
}

#[test]
fn an_agent_that_still_runs_after_an_ignored_restart_keeps_the_node_from_active() {
    let answers = |rig: &mut NodeTestRig| {
        rig.agent(Ok(AgentEvent::Idle));
    };
    let sends_heartbeat = |rig: &mut NodeTestRig| {
        rig.handle(NodeEvent::Heartbeat);
    };
    for shows in [&answers as &dyn Fn(&mut NodeTestRig), &sends_heartbeat] {
        let mut rig = restarted_with_agent();
        // A heartbeat that was on its way proves nothing.
        rig.handle(NodeEvent::Heartbeat).is(Deploying);
        rig.handle(NodeEvent::TimerExpired);
        assert_eq!(rig.agent_order(), AgentOrder::ListCommands);
        shows(&mut rig);
        let why = rig.is(DeployFail).node.last_error.clone().unwrap();
        assert!(why.contains("the machine was not restarted"), "{why}");
        assert!(why.contains("192.0.2.9"), "{why}");
    }
}

#[test]
fn a_machine_whose_agent_is_gone_after_the_restart_is_active() {
    let mut rig = restarted_with_agent();
    rig.handle(NodeEvent::TimerExpired);
    rig.agent(unreachable()).is(Active);
    let mut rig = restarted_with_agent();
    rig.handle(NodeEvent::TimerExpired)
        .handle(NodeEvent::TimerExpired)
        .is(Active);
}

#[test]
fn a_box_that_restarts_during_the_lockdown_continues_without_another_one() {
    let mut rig = written();
    rig.handle(NodeEvent::Restarted);
    rig.wants(&NodeAction::Power(SET_DISK));
}
