//! Machines and BMCs that carry out their orders, or do not.

use super::*;

#[test]
fn verify_ends_manageable_when_the_bmc_answers() {
    let mut rig = NodeTestRig::new(Enroll);
    rig.apply_verb(Verb::Manage, vec![])
        .power(PowerOrder::Status, ON)
        .is(Manageable);
    assert_eq!(rig.node.power_state, Some(PowerState::On));
    assert_eq!(rig.node.job, None);
}

#[test]
fn verify_returns_to_enroll_with_the_reason_when_the_password_is_wrong() {
    let mut rig = NodeTestRig::new(Enroll);
    let wrong = Err(PowerError::Login {
        message: "unauthorized name",
    });
    rig.apply_verb(Verb::Manage, vec![])
        .power(PowerOrder::Status, wrong)
        .is(Enroll);
    assert!(
        rig.node
            .last_error
            .as_ref()
            .unwrap()
            .contains("ipmi_password")
    );
    assert_eq!(rig.node.target_provision_state, None);
}

#[test]
fn a_machine_that_is_never_seen_is_booted_again_and_then_given_up() {
    let mut rig = NodeTestRig::new(Available);
    rig.apply_verb(Verb::Active, vec![offered("write_image", 80)]);
    rig.boots().handle(NodeEvent::TimerExpired).is(Deploying);
    for _ in 2..rig.limits.boots_max {
        rig.boots_again()
            .handle(NodeEvent::TimerExpired)
            .is(Deploying);
    }
    rig.boots_again()
        .handle(NodeEvent::TimerExpired)
        .is(DeployFail);
    assert!(rig.node.last_error.as_ref().unwrap().contains("4 boots"));
    assert_eq!(rig.node.target_provision_state, Some(Active));
}

#[test]
fn a_machine_that_was_off_after_all_is_switched_on_instead_of_reset() {
    let mut rig = deploying();
    rig.handle(NodeEvent::TimerExpired).power(SET_PXE, TAKEN);
    let off = PowerError::Refused { code: 0xd5 };
    rig.power(PowerOrder::Reset, Err(off))
        .power(PowerOrder::On, TAKEN)
        .handle(NodeEvent::MachineSeen)
        .is(DeployWait);
}

#[test]
fn a_wake_up_of_an_earlier_phase_sends_only_the_order_of_the_phase() {
    let mut rig = NodeTestRig::new(Manageable);
    rig.apply_verb(Verb::Inspect, vec![]);
    rig.handle(NodeEvent::TimerExpired);
    assert_eq!(rig.actions, [NodeAction::Power(PowerOrder::Off)]);
}

#[test]
fn a_machine_that_will_not_go_off_fails_the_job_with_the_durations() {
    let mut rig = NodeTestRig::new(Available);
    rig.apply_verb(Verb::Active, vec![offered("write_image", 80)]);
    let error = PowerError::NoEffect {
        what: "power off",
        requests: 2,
        waited_s: 180,
        bmc_restarted: false,
    };
    rig.power(PowerOrder::Off, Err(error)).is(DeployFail);
    let why = rig.node.last_error.as_ref().unwrap();
    assert!(why.contains("2 requests to power off"), "{why}");
    assert!(why.contains("after 180 s"), "{why}");
}

#[test]
fn the_error_of_a_bmc_that_is_lost_at_the_end_names_what_is_done_and_what_is_not() {
    let unanswered = || PowerError::Unanswered {
        waited_s: 240,
        last: Box::new(PowerError::NoResponse { waited_ms: 20_000 }),
    };
    let at_the_end = || {
        let mut rig = deploying();
        rig.handle(NodeEvent::Heartbeat)
            .agent(steps_are(&[offered("write_image", 80)]));
        rig.agent(Ok(AgentEvent::Accepted))
            .handle(NodeEvent::Heartbeat);
        rig.agent(done("write_image"));
        rig.agent(Ok(AgentEvent::Finished));
        rig
    };
    let message_of = |rig: &NodeTestRig| rig.node.last_error.clone().unwrap();
    let mut rig = at_the_end();
    rig.power(PowerOrder::Off, Err(unanswered())).is(DeployFail);
    let why = message_of(&rig);
    for part in ["for 240 s", "the image is written", "was not powered off"] {
        assert!(why.contains(part), "{why}");
    }
    let mut rig = at_the_end();
    rig.power(PowerOrder::Off, OFF)
        .power(SET_DISK, TAKEN)
        .power(PowerOrder::On, Err(unanswered()))
        .is(DeployFail);
    let why = message_of(&rig);
    assert!(why.contains("was not powered on"), "{why}");
}

#[test]
fn a_machine_whose_deployment_failed_is_switched_off_unless_the_settings_forbid_it() {
    for switches in [true, false] {
        let mut rig = deploying();
        rig.limits.power_off_after_deploy_failure = switches;
        rig.handle(NodeEvent::Heartbeat)
            .agent(steps_are(&[offered("write_image", 80)]));
        rig.agent(Ok(AgentEvent::StepFailed {
            step: None,
            message: "no disk".to_owned(),
        }));
        rig.is(DeployFail);
        assert_eq!(rig.actions.contains(&NodeAction::SwitchOffFailed), switches);
        let target = switches.then_some(PowerState::Off);
        assert_eq!(rig.node.target_power_state, target);
        assert!(rig.node.last_error.as_ref().unwrap().contains("no disk"));
    }
    // Failed cleaning leaves the machine unchanged, so that the operator can examine it.
    let mut rig = NodeTestRig::new(Manageable);
    rig.apply_verb(Verb::Provide, vec![]).boots();
    rig.handle(NodeEvent::Heartbeat)
        .agent(broken())
        .is(CleanFail);
    assert!(!rig.actions.contains(&NodeAction::SwitchOffFailed));
}

#[test]
fn a_sync_that_fails_is_a_warning_and_the_deployment_continues() {
    let mut rig = deploying();
    rig.handle(NodeEvent::Heartbeat)
        .agent(steps_are(&[offered("write_image", 80)]));
    rig.agent(Ok(AgentEvent::Accepted))
        .handle(NodeEvent::Heartbeat);
    rig.agent(done("write_image"));
    assert_eq!(rig.agent_order(), AgentOrder::Sync);
    rig.agent(Err(AgentError::Refused {
        message: "sync: command not found".to_owned(),
    }));
    let warned = rig.actions.iter().any(|action| {
        let NodeAction::Note(note) = action else {
            return false;
        };
        let text = note.to_string();
        text.starts_with("warning: ") && text.contains("sync: command not found")
    });
    assert!(warned, "{:?}", rig.actions);
    rig.power(PowerOrder::Off, OFF)
        .power(SET_DISK, TAKEN)
        .power(PowerOrder::On, ON)
        .is(Active);
    assert_eq!(rig.node.last_error, None);
}

#[test]
fn a_uefi_machine_is_set_to_boot_in_uefi_mode() {
    for capabilities in [
        json!("cpu_vt:true,boot_mode:uefi"),
        json!({"boot_mode": "uefi"}),
    ] {
        let mut rig = NodeTestRig::new(Available);
        rig.node
            .properties
            .insert("capabilities".into(), capabilities);
        rig.apply_verb(Verb::Active, vec![offered("write_image", 80)]);
        rig.power(PowerOrder::Off, OFF);
        let efi = PowerOrder::SetBoot {
            device: BootDevice::Pxe,
            persistent: false,
            efi: true,
        };
        rig.wants(&NodeAction::Power(efi));
    }
}

#[test]
fn a_deployment_that_starts_the_machine_of_another_node_does_not_switch_that_machine_off() {
    let mut rig = deploying();
    let why = "this BMC starts the machine of node n2".to_owned();
    rig.handle(NodeEvent::WrongMachine { why }).is(DeployFail);
    assert!(!rig.actions.contains(&NodeAction::SwitchOffFailed));
    assert_eq!(rig.node.target_power_state, None);
}

#[test]
fn a_deployment_that_fails_while_power_on_is_under_way_switches_the_machine_off() {
    let mut rig = deploying();
    let job = rig.node.job.as_mut().unwrap();
    job.phase = JobPhase::PowerOn;
    job.steps = vec![offered("write_image", 80)];
    job.at = 0;
    rig.node.power_state = Some(PowerState::Off);
    let why = "image a.raw is not what it should be".to_owned();
    rig.handle(NodeEvent::ImageUnusable { why }).is(DeployFail);
    assert!(rig.actions.contains(&NodeAction::SwitchOffFailed));
}

#[test]
fn a_held_deployment_is_not_ended_by_its_image() {
    let mut rig = deploying();
    let job = rig.node.job.as_mut().unwrap();
    job.phase = JobPhase::Hold;
    job.steps = vec![offered("write_image", 80)];
    rig.node.provision_state = DeployHold;
    let why = "image a.raw is not what it should be".to_owned();
    rig.handle(NodeEvent::ImageUnusable { why }).is(DeployHold);
    assert!(rig.node.job.is_some());
}

/// The machine still runs the instance: there is no reason to switch it off.
#[test]
fn a_rebuild_that_fails_before_its_power_off_leaves_the_instance_running() {
    let mut rig = NodeTestRig::new(Active);
    rig.node.power_state = Some(PowerState::On);
    rig.apply_verb(Verb::Rebuild, vec![offered("write_image", 80)]);
    assert!(rig.node.job.as_ref().unwrap().awaits_source);
    let why = "the source is away".to_owned();
    rig.handle(NodeEvent::ImageUnusable { why }).is(DeployFail);
    assert!(!rig.actions.contains(&NodeAction::SwitchOffFailed));
    assert_eq!(rig.node.target_power_state, None);
    // A first deployment has nothing that could keep running.
    let mut rig = NodeTestRig::new(Available);
    rig.apply_verb(Verb::Active, vec![offered("write_image", 80)]);
    assert!(!rig.node.job.as_ref().unwrap().awaits_source);
}
