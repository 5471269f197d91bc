//! Instances that boot from the network each time.

use super::*;

const SET_NET: PowerOrder = PowerOrder::SetBoot {
    device: BootDevice::Pxe,
    persistent: true,
    efi: false,
};

fn rig(state: ProvisionState) -> NodeTestRig {
    let mut rig = NodeTestRig::new(state);
    rig.node.attributes.interfaces.deploy = Some(DeployInterface::Ramdisk);
    rig
}

#[test]
fn a_deployment_without_a_disk_sets_the_network_powers_on_and_is_active() {
    let mut rig = rig(Available);
    rig.apply_verb(Verb::Active, vec![]).is(Deploying);
    rig.power(PowerOrder::Off, OFF).is(Deploying);
    assert!(!boots_agent(&rig.node), "no agent is meant to boot");
    rig.power(SET_NET, TAKEN);
    assert!(!boots_agent(&rig.node));
    rig.power(PowerOrder::On, TAKEN).is(Active);
    assert_eq!(rig.node.job, None);
}

#[test]
fn its_steps_cannot_be_those_of_an_agent() {
    let mut rig = rig(Available);
    rig.apply_verb(Verb::Active, vec![offered("erase_devices", 10)]);
    rig.power(PowerOrder::Off, OFF).is(DeployFail);
    let why = rig.node.last_error.clone().unwrap_or_default();
    assert!(why.contains("erase_devices"), "{why}");
}

#[test]
fn after_service_it_boots_from_the_network_again() {
    let mut rig = rig(Active);
    rig.apply_verb(Verb::Service, vec![offered("burn_in", 0)])
        .boots();
    assert!(boots_agent(&rig.node), "service is the agent's");
    rig.handle(NodeEvent::Heartbeat)
        .agent(steps_are(&[offered("burn_in", 0)]))
        .agent(Ok(AgentEvent::Accepted));
    rig.handle(NodeEvent::Heartbeat).agent(done("burn_in"));
    rig.agent(Ok(AgentEvent::Finished));
    rig.power(PowerOrder::Off, OFF);
    assert!(!boots_agent(&rig.node));
    rig.power(SET_NET, TAKEN)
        .power(PowerOrder::On, TAKEN)
        .is(Active);
}

#[test]
fn unrescued_it_boots_from_the_network_again() {
    let mut rig = rig(Rescue);
    rig.apply_verb(Verb::Unrescue, vec![]);
    rig.power(PowerOrder::Off, OFF);
    rig.power(SET_NET, TAKEN)
        .power(PowerOrder::On, TAKEN)
        .is(Active);
}

#[test]
fn its_removal_cleans_with_the_agent_as_any_other() {
    let mut rig = rig(Active);
    rig.apply_verb(Verb::Deleted, vec![]);
    rig.power(PowerOrder::Off, OFF).is(Cleaning);
    rig.power(SET_PXE, TAKEN);
    assert!(boots_agent(&rig.node));
    rig.power(PowerOrder::On, TAKEN).is(CleanWait);
}
