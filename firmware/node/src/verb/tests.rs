use trivet_model::interface::{BiosInterface, FirmwareInterface, RaidInterface};
use trivet_model::secret::SecretText;
use trivet_model::{NodeId, PowerOrder, ProvisionState::*, SeededRandom, Tick, UnixMs};

use super::*;

const NOW: Now = Now {
    tick: Tick(5),
    wall: UnixMs(1000),
};

fn node(state: ProvisionState) -> Node {
    let mut node = Node::new(NodeId::random(&mut SeededRandom::new(1)), "ipmi", UnixMs(1));
    node.provision_state = state;
    node
}

fn with_step() -> VerbArgs {
    let step = trivet_model::JobStep {
        step: "write_image".into(),
        interface: "deploy".into(),
        priority: 80,
        args: serde_json::json!({}),
        reboot_requested: false,
        abortable: false,
    };
    VerbArgs {
        steps: vec![step],
        ..VerbArgs::default()
    }
}

fn with_password() -> VerbArgs {
    VerbArgs {
        rescue_password: Some(SecretText::new("$6$salt$hash")),
        ..with_step()
    }
}

#[track_caller]
fn refused(node: &Node, verb: Verb, args: VerbArgs, part: &str) {
    let refusal = apply_verb(NOW, &NodeLimits::default(), node, verb, args).unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::Invalid);
    assert!(refusal.sentence.contains(part), "{}", refusal.sentence);
}

#[test]
fn manage_reads_the_power_state_first() {
    let (node, actions) = apply_verb(
        NOW,
        &NodeLimits::default(),
        &node(Enroll),
        Verb::Manage,
        VerbArgs::default(),
    )
    .unwrap();
    assert_eq!(node.provision_state, Verifying);
    assert_eq!(node.target_provision_state, Some(Manageable));
    assert!(actions.contains(&NodeAction::Power(PowerOrder::Status)));
}

#[test]
fn a_new_action_clears_the_last_error() {
    let mut failed = node(DeployFail);
    failed.last_error = Some("disk on fire".into());
    let (node, _) = apply_verb(
        NOW,
        &NodeLimits::default(),
        &failed,
        Verb::Active,
        with_step(),
    )
    .unwrap();
    assert_eq!(node.last_error, None);
    assert_eq!(node.provision_state, Deploying);
    assert_eq!(node.target_provision_state, Some(Active));
}

#[test]
fn a_verb_the_state_does_not_know_is_refused_with_what_is_possible() {
    refused(
        &node(Enroll),
        Verb::Provide,
        VerbArgs::default(),
        "Possible now: manage",
    );
    refused(
        &node(Verifying),
        Verb::Provide,
        VerbArgs::default(),
        "Wait until it is done",
    );
}

#[test]
fn refuses_a_rescue_without_password_or_interface() {
    let mut running = node(Active);
    refused(
        &running,
        Verb::Rescue,
        VerbArgs::default(),
        "rescue_password",
    );
    running.attributes.interfaces.rescue = Some(RescueInterface::NoRescue);
    refused(&running, Verb::Rescue, with_password(), "rescue_interface");
    running.maintenance = true;
    refused(&running, Verb::Rescue, with_password(), "in maintenance");
}

#[test]
fn refuses_to_leave_the_ramdisk_out_where_a_step_needs_it() {
    let args = VerbArgs {
        disable_ramdisk: true,
        ..with_step()
    };
    refused(&node(Manageable), Verb::Clean, args.clone(), "write_image");
    let mut fake = node(Manageable);
    fake.driver = "fake-hardware".into();
    assert!(apply_verb(NOW, &NodeLimits::default(), &fake, Verb::Clean, args).is_ok());
}

#[test]
fn refuses_to_deploy_in_maintenance() {
    let mut resting = node(Available);
    resting.maintenance = true;
    refused(&resting, Verb::Active, with_step(), "in maintenance");
}

#[test]
fn refuses_to_clean_without_steps_or_with_too_many() {
    refused(
        &node(Manageable),
        Verb::Clean,
        VerbArgs::default(),
        "needs clean_steps",
    );
    let mut args = with_step();
    args.steps = vec![args.steps[0].clone(); STEPS_MAX + 1];
    refused(&node(Manageable), Verb::Clean, args, "more than");
}

#[test]
fn a_retired_node_is_cleaned_and_not_offered() {
    let mut retired = node(Manageable);
    retired.automated_clean = Some(false);
    retired.attributes.retired = true;
    let args = VerbArgs::default();
    let (node, _) = apply_verb(NOW, &NodeLimits::default(), &retired, Verb::Provide, args).unwrap();
    assert_eq!(node.provision_state, Manageable);
    assert_eq!(node.target_provision_state, None);
}

#[test]
fn provide_without_cleaning_offers_at_once() {
    let mut plain = node(Manageable);
    plain.automated_clean = Some(false);
    let (node, actions) = apply_verb(
        NOW,
        &NodeLimits::default(),
        &plain,
        Verb::Provide,
        VerbArgs::default(),
    )
    .unwrap();
    assert_eq!(node.provision_state, Available);
    assert_eq!(node.target_provision_state, None);
    assert!(
        !actions
            .iter()
            .any(|action| matches!(action, NodeAction::Power(_)))
    );
}

#[test]
fn an_abort_is_named_in_the_error_and_keeps_the_target() {
    for (from, to) in [
        (CleanWait, CleanFail),
        (InspectWait, InspectFail),
        (DeployWait, DeployFail),
        (CleanHold, CleanFail),
        (RescueWait, RescueFail),
        (ServiceWait, ServiceFail),
    ] {
        let mut waiting = node(from);
        waiting.target_provision_state = Some(Available);
        let (node, _) = apply_verb(
            NOW,
            &NodeLimits::default(),
            &waiting,
            Verb::Abort,
            VerbArgs::default(),
        )
        .unwrap();
        assert_eq!(node.provision_state, to);
        assert!(node.last_error.unwrap().contains("aborted"));
        assert_eq!(node.target_provision_state, Some(Available));
        assert_eq!(node.job, None);
    }
}

#[test]
fn manage_after_a_failure_needs_no_work() {
    let (node, actions) = apply_verb(
        NOW,
        &NodeLimits::default(),
        &node(CleanFail),
        Verb::Manage,
        VerbArgs::default(),
    )
    .unwrap();
    assert_eq!(node.provision_state, Manageable);
    assert_eq!(node.job, None);
    assert!(
        actions
            .iter()
            .all(|action| matches!(action, NodeAction::Note(_)))
    );
}

#[test]
fn a_config_drive_is_kept_with_the_instance() {
    let mut args = with_step();
    args.configdrive = Some("H4sI".into());
    let (node, _) = apply_verb(
        NOW,
        &NodeLimits::default(),
        &node(Available),
        Verb::Deploy,
        args,
    )
    .unwrap();
    assert_eq!(node.instance_info["configdrive"], "H4sI");
}

#[test]
fn every_verb_the_table_allows_is_carried_out() {
    for row in table::TABLE {
        let TransitionTrigger::Verb(verb) = row.trigger else {
            continue;
        };
        let requested = node(row.from);
        let (node, _) = apply_verb(
            NOW,
            &NodeLimits::default(),
            &requested,
            verb,
            with_password(),
        )
        .unwrap();
        let resting = node.provision_state.is_resting();
        assert!(resting || node.job.is_some(), "{} {verb}", row.from);
    }
}

/// Metal3 always chooses these interfaces; their steps are not implemented, so no machine is
/// booted for them.
#[test]
fn refuses_bios_firmware_and_raid_steps_by_redfish_before_any_boot() {
    for (verb, state) in [
        (Verb::Clean, Manageable),
        (Verb::Service, Active),
        (Verb::Active, Available),
        (Verb::Rebuild, Active),
    ] {
        for kind in [
            InterfaceKind::Bios,
            InterfaceKind::Firmware,
            InterfaceKind::Raid,
        ] {
            let mut args = with_step();
            let step = trivet_model::JobStep {
                step: "apply_configuration".into(),
                interface: kind.as_str().into(),
                ..args.steps[0].clone()
            };
            args.steps.push(step);
            let mut redfish = node(state);
            redfish.driver = "redfish".into();
            let text = format!("Step {}.apply_configuration cannot be run", kind.as_str());
            refused(&redfish, verb, args.clone(), &text);
            assert!(
                apply_verb(NOW, &NodeLimits::default(), &redfish, verb, with_step()).is_ok(),
                "other steps run"
            );
            let chosen = &mut redfish.attributes.interfaces;
            match kind {
                InterfaceKind::Bios => chosen.bios = Some(BiosInterface::NoBios),
                InterfaceKind::Firmware => chosen.firmware = Some(FirmwareInterface::NoFirmware),
                _ => chosen.raid = Some(RaidInterface::Agent),
            }
            assert!(
                apply_verb(NOW, &NodeLimits::default(), &redfish, verb, args).is_ok(),
                "another interface is chosen"
            );
        }
    }
}
