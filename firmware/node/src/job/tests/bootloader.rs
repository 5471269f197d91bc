//! The written image is made bootable.

use trivet_model::BootPartitions;

use super::*;

fn parts() -> BootPartitions {
    BootPartitions {
        root: Some("0x1a2b3c4d".to_owned()),
        efi: Some("aaaa-bbbb".to_owned()),
        prep: None,
    }
}

/// A deployment whose image is written, before the order that follows.
fn written(change: impl FnOnce(&mut Node)) -> NodeTestRig {
    let mut rig = NodeTestRig::new(Available);
    change(&mut rig.node);
    rig.apply_verb(Verb::Active, vec![offered("write_image", 80)]);
    rig.node.job.as_mut().unwrap().phase = JobPhase::AwaitAgent;
    rig.node.provision_state = DeployWait;
    rig.handle(NodeEvent::Heartbeat)
        .agent(steps_are(&[offered("write_image", 0)]));
    rig.agent(Ok(AgentEvent::Accepted))
        .handle(NodeEvent::Heartbeat);
    rig.agent(done("write_image"));
    rig
}

fn uefi() -> NodeTestRig {
    written(|node| {
        node.properties
            .insert("capabilities".into(), "boot_mode:uefi".into());
    })
}

fn installing(rig: &mut NodeTestRig) -> &mut NodeTestRig {
    assert_eq!(rig.agent_order(), AgentOrder::FindPartitions);
    rig.agent(Ok(AgentEvent::PartitionsFound(parts())));
    let AgentOrder::InstallBootloader {
        partitions: reported,
        ..
    } = rig.agent_order()
    else {
        panic!("{:?}", rig.actions);
    };
    assert_eq!(reported, parts());
    rig
}

#[test]
fn a_whole_disk_on_a_bios_machine_starts_as_it_is() {
    assert_eq!(written(|_| {}).agent_order(), AgentOrder::Sync);
}

#[test]
fn uefi_partitions_and_raids_get_a_loader() {
    let mode = |mut rig: NodeTestRig| {
        rig.agent(Ok(AgentEvent::PartitionsFound(parts())));
        match rig.agent_order() {
            AgentOrder::InstallBootloader { boot_mode, .. } => boot_mode,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(mode(uefi()), "uefi");
    let partition = written(|node| {
        node.instance_info
            .insert("image_type".into(), "partition".into());
    });
    assert_eq!(mode(partition), "bios");
    let raid = written(|node| {
        let disks = json!({"logical_disks": [{"controller": "software", "raid_level": "1"}]});
        node.attributes.set("raid_config", Some(disks)).unwrap();
    });
    assert_eq!(mode(raid), "bios");
}

#[test]
fn it_is_waited_for_and_then_the_machine_starts_its_disk() {
    let mut rig = uefi();
    installing(&mut rig).agent(Ok(AgentEvent::Accepted));
    rig.is(DeployWait);
    rig.handle(NodeEvent::Heartbeat)
        .agent(Ok(AgentEvent::StepRunning));
    rig.handle(NodeEvent::Heartbeat)
        .agent(Ok(AgentEvent::BootloaderDone(Ok(()))))
        .is(Deploying);
    assert_eq!(rig.agent_order(), AgentOrder::Sync);
}

#[test]
fn an_agent_that_does_it_at_once_is_not_waited_for() {
    let mut rig = uefi();
    installing(&mut rig).agent(Ok(AgentEvent::Finished));
    assert_eq!(rig.agent_order(), AgentOrder::Sync);
}

#[test]
fn a_loader_that_cannot_be_installed_fails_the_deployment_in_the_agents_words() {
    let mut rig = uefi();
    installing(&mut rig).agent(Ok(AgentEvent::Accepted));
    let message = Err("No EFI partition".to_owned());
    rig.handle(NodeEvent::Heartbeat)
        .agent(Ok(AgentEvent::BootloaderDone(message)))
        .is(DeployFail);
    let why = rig.node.last_error.clone().unwrap();
    assert!(
        why.contains("No EFI partition") && why.contains("boot mode"),
        "{why}"
    );
}

#[test]
fn an_order_whose_answer_was_lost_is_looked_for_before_it_is_repeated() {
    let mut rig = uefi();
    installing(&mut rig).agent(unreachable()).is(DeployWait);
    // It never arrived: the last command that the agent knows is the write.
    rig.handle(NodeEvent::Heartbeat).agent(done("write_image"));
    installing(&mut rig).agent(unreachable());
    // It arrived.
    rig.handle(NodeEvent::Heartbeat)
        .agent(Ok(AgentEvent::BootloaderDone(Ok(()))));
    assert_eq!(rig.agent_order(), AgentOrder::Sync);
}

#[test]
fn a_box_that_restarts_in_between_finds_the_agent_busy_and_waits() {
    let mut rig = uefi();
    installing(&mut rig).handle(NodeEvent::Restarted);
    rig.agent(Ok(AgentEvent::Busy)).is(DeployWait);
    rig.handle(NodeEvent::Heartbeat)
        .agent(Ok(AgentEvent::BootloaderDone(Ok(()))));
    assert_eq!(rig.agent_order(), AgentOrder::Sync);
}

#[test]
fn an_agent_that_never_takes_it_is_given_up() {
    let mut rig = uefi();
    for _ in 1..rig.limits.tries_max {
        installing(&mut rig).agent(unreachable());
        rig.handle(NodeEvent::Heartbeat).agent(Ok(AgentEvent::Idle));
    }
    installing(&mut rig).agent(unreachable());
    rig.handle(NodeEvent::Heartbeat)
        .agent(Ok(AgentEvent::Idle))
        .is(DeployFail);
}

#[test]
fn silence_meanwhile_boots_once_and_writes_again_what_was_not_synced() {
    let mut rig = uefi();
    installing(&mut rig).agent(Ok(AgentEvent::Accepted));
    rig.handle(NodeEvent::TimerExpired)
        .power(PowerOrder::Status, ON);
    rig.node.job.as_mut().unwrap().phase = JobPhase::AwaitAgent;
    rig.node.provision_state = DeployWait;
    rig.handle(NodeEvent::Heartbeat);
    rig.agent(steps_are(&[offered("write_image", 0)]));
    assert_eq!(rig.executes(), "write_image");
}

#[test]
fn a_list_that_cannot_be_read_meanwhile_costs_a_boot() {
    let mut rig = uefi();
    installing(&mut rig).agent(Ok(AgentEvent::Accepted));
    rig.handle(NodeEvent::Heartbeat)
        .agent(broken())
        .is(Deploying);
    assert_eq!(rig.node.job.as_ref().unwrap().phase, JobPhase::BootFromNet);
}

#[test]
fn what_followed_the_write_and_must_not_be_done_twice_is_not() {
    let mut rig = uefi();
    let job = rig.node.job.as_mut().unwrap();
    job.steps.push(offered("flash_firmware", 10));
    job.at = 2;
    installing(&mut rig).agent(Ok(AgentEvent::Accepted));
    rig.handle(NodeEvent::TimerExpired)
        .power(PowerOrder::Status, ON);
    assert_eq!(rig.node.job.as_ref().unwrap().at, 2);
}

#[test]
fn an_agent_that_did_not_write_the_partition_cannot_make_it_start() {
    let mut rig = written(|node| {
        node.instance_info
            .insert("image_type".into(), "partition".into());
    });
    assert_eq!(rig.agent_order(), AgentOrder::FindPartitions);
    rig.agent(Ok(AgentEvent::PartitionsFound(BootPartitions::default())));
    let why = rig.is(DeployFail).node.last_error.clone().unwrap();
    assert!(why.contains("no step after write_image"), "{why}");
}
