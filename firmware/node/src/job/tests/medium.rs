//! Boots from virtual media and from URLs.

use super::*;

const SET_CD: PowerOrder = PowerOrder::SetBoot {
    device: BootDevice::Cdrom,
    persistent: false,
    efi: false,
};

fn rig(state: ProvisionState, interface: BootInterface) -> NodeTestRig {
    let mut rig = NodeTestRig::new(state);
    rig.node.driver = "redfish".into();
    rig.node.attributes.interfaces.boot = Some(interface);
    rig
}

/// An inspection up to the request for its medium.
fn inspecting(interface: BootInterface) -> NodeTestRig {
    let mut rig = rig(Manageable, interface);
    rig.apply_verb(Verb::Inspect, vec![]);
    rig.power(PowerOrder::Off, OFF);
    rig.wants(&NodeAction::InsertMedium);
    rig
}

fn refused() -> NodeEvent {
    NodeEvent::MediumReady(Err(PowerError::Unsupported {
        message: "the BMC has no virtual media",
    }))
}

#[test]
fn a_virtual_cd_is_inserted_before_the_boot_device_is_set() {
    let mut rig = inspecting(BootInterface::RedfishVirtualMedia);
    rig.handle(NodeEvent::MediumReady(Ok(())));
    rig.power(SET_CD, TAKEN).power(PowerOrder::On, TAKEN);
    assert!(boots_agent(&rig.node));
    assert!(!rig.actions.contains(&NodeAction::EjectMedium));
}

#[test]
fn a_boot_url_needs_no_boot_device_and_no_eject() {
    let mut rig = inspecting(BootInterface::RedfishHttps);
    rig.handle(NodeEvent::MediumReady(Ok(())));
    rig.power(PowerOrder::On, TAKEN);
    rig.handle(NodeEvent::NotInspected { why: "x".into() });
    assert!(!rig.actions.contains(&NodeAction::EjectMedium));
}

#[test]
fn without_its_medium_the_machine_boots_from_the_network_and_a_note_says_why() {
    for interface in [
        BootInterface::RedfishVirtualMedia,
        BootInterface::RedfishHttps,
    ] {
        let mut rig = inspecting(interface);
        rig.handle(refused());
        let noted = rig.actions.iter().any(|action| {
            matches!(action, NodeAction::Note(NoteKind::Warning { why })
                if why.contains("no virtual media") && why.contains("from the network"))
        });
        assert!(noted, "{:?}", rig.actions);
        rig.power(SET_PXE, TAKEN).power(PowerOrder::On, TAKEN);
        assert!(boots_agent(&rig.node));
    }
}

#[test]
fn a_bmc_that_cannot_boot_from_its_cd_leads_to_the_network() {
    let mut rig = inspecting(BootInterface::RedfishVirtualMedia);
    rig.handle(NodeEvent::MediumReady(Ok(())));
    let error = PowerError::Unsupported { message: "no Cd" };
    rig.power(SET_CD, Err(error));
    rig.power(SET_PXE, TAKEN)
        .wants(&NodeAction::Power(PowerOrder::On));
}

#[test]
fn a_machine_that_did_not_come_up_with_its_medium_boots_from_the_network() {
    let mut rig = inspecting(BootInterface::RedfishVirtualMedia);
    rig.handle(NodeEvent::MediumReady(Ok(())));
    rig.power(SET_CD, TAKEN).power(PowerOrder::On, TAKEN);
    rig.handle(NodeEvent::TimerExpired);
    rig.wants(&NodeAction::Power(SET_PXE));
}

#[test]
fn the_medium_is_ejected_when_the_job_ends_or_fails() {
    let mut rig = inspecting(BootInterface::RedfishVirtualMedia);
    rig.handle(NodeEvent::MediumReady(Ok(())));
    rig.power(SET_CD, TAKEN).power(PowerOrder::On, TAKEN);
    rig.handle(NodeEvent::NotInspected { why: "x".into() });
    rig.wants(&NodeAction::EjectMedium);
}

#[test]
fn the_medium_is_ejected_before_the_disk_boots_and_only_once() {
    let mut rig = rig(Available, BootInterface::RedfishVirtualMedia);
    rig.apply_verb(Verb::Active, vec![offered("write_image", 0)]);
    rig.power(PowerOrder::Off, OFF);
    rig.handle(NodeEvent::MediumReady(Ok(())));
    rig.power(SET_CD, TAKEN).power(PowerOrder::On, TAKEN);
    rig.handle(NodeEvent::Heartbeat)
        .agent(steps_are(&[offered("write_image", 0)]))
        .agent(Ok(AgentEvent::Accepted));
    rig.handle(NodeEvent::Heartbeat).agent(done("write_image"));
    rig.agent(Ok(AgentEvent::Finished));
    rig.power(PowerOrder::Off, OFF);
    rig.wants(&NodeAction::EjectMedium);
    rig.power(SET_DISK, TAKEN)
        .power(PowerOrder::On, TAKEN)
        .is(Active);
    assert!(!rig.actions.contains(&NodeAction::EjectMedium));
}

#[test]
fn an_instance_on_a_medium_boots_from_it_each_time_and_keeps_it() {
    let mut rig = rig(Available, BootInterface::RedfishVirtualMedia);
    rig.node.attributes.interfaces.deploy = Some(DeployInterface::Ramdisk);
    rig.apply_verb(Verb::Active, vec![]);
    rig.power(PowerOrder::Off, OFF);
    rig.wants(&NodeAction::InsertMedium);
    rig.handle(NodeEvent::MediumReady(Ok(())));
    let order = PowerOrder::SetBoot {
        device: BootDevice::Cdrom,
        persistent: true,
        efi: false,
    };
    rig.power(order, TAKEN)
        .power(PowerOrder::On, TAKEN)
        .is(Active);
    assert!(!rig.actions.contains(&NodeAction::EjectMedium));
}

#[test]
fn a_restart_of_the_box_asks_for_the_medium_again() {
    let mut rig = inspecting(BootInterface::RedfishVirtualMedia);
    rig.handle(NodeEvent::Restarted);
    rig.wants(&NodeAction::InsertMedium);
    rig.handle(NodeEvent::MediumReady(Ok(())));
    rig.wants(&NodeAction::Power(SET_CD));
    // A late answer changes nothing.
    rig.power(SET_CD, TAKEN);
    rig.handle(refused());
    assert_eq!(rig.actions, []);
}

/// A node whose instance on a medium is removed, when its machine is off.
fn removed(clean: Option<bool>) -> NodeTestRig {
    let mut rig = rig(Active, BootInterface::RedfishVirtualMedia);
    rig.node.attributes.interfaces.deploy = Some(DeployInterface::Ramdisk);
    rig.node.automated_clean = clean;
    rig.apply_verb(Verb::Deleted, vec![]);
    rig.power(PowerOrder::Off, OFF);
    rig
}

#[test]
fn the_medium_of_an_instance_does_not_outlive_it() {
    let rig = removed(Some(false));
    rig.wants(&NodeAction::EjectMedium).is(Available);
    // The BMC replaces it by that of the agent, which is ejected at the end.
    let mut rig = removed(None);
    rig.wants(&NodeAction::InsertMedium).is(Cleaning);
    rig.handle(NodeEvent::MediumReady(Ok(())));
    rig.power(SET_CD, TAKEN).power(PowerOrder::On, TAKEN);
    rig.handle(NodeEvent::Heartbeat).agent(steps_are(&[]));
    rig.power(PowerOrder::Off, OFF).is(Available);
    rig.wants(&NodeAction::EjectMedium);
}
