//! Images that are written ahead, to nodes whose agent stays.

use trivet_model::deployment::{ImageChecksum, ImageLocation};
use trivet_model::{
    AgentSession, Digest, ImageAhead, ImageAheadPhase, ImageAheadReport, ImageDeployment,
};

use super::*;

const DIGEST: Digest = Digest::Sha256([7; 32]);

fn deployment() -> ImageDeployment {
    ImageDeployment {
        file_name: "debian".to_owned(),
        image: ImageLocation::Url("http://h/debian".to_owned()),
        checksum: ImageChecksum::Digest(DIGEST),
        format: None,
        is_streamed: true,
        partitions: None,
        drive: None,
    }
}

fn ahead() -> ImageAhead {
    ImageAhead {
        name: "debian".to_owned(),
        deployment: deployment(),
        digest: DIGEST,
        root_device: Value::Null,
        phase: ImageAheadPhase::Writing,
        tries: 1,
        started_at: UnixMs(0),
    }
}

/// A node that was cleaned and whose agent stayed.
fn cleaned() -> NodeTestRig {
    let mut rig = NodeTestRig::new(Manageable);
    rig.limits.fast_track = true;
    rig.apply_verb(Verb::Provide, vec![]).boots();
    rig.node.agent = Some(AgentSession {
        url: Some("https://192.0.2.9:9999".to_owned()),
        ..AgentSession::legacy()
    });
    rig.handle(NodeEvent::Heartbeat)
        .agent(steps_are(&[offered("erase_devices_metadata", 9)]));
    rig.agent(Ok(AgentEvent::Accepted))
        .handle(NodeEvent::Heartbeat);
    rig.agent(done("erase_devices_metadata")).is(Available);
    rig
}

fn writing() -> NodeTestRig {
    let mut rig = cleaned();
    rig.handle(NodeEvent::ImageAheadDue(Box::new(ahead())));
    rig
}

fn phase(rig: &NodeTestRig) -> Option<ImageAheadPhase> {
    Some(rig.node.agent.as_ref()?.ahead.as_ref()?.phase)
}

fn reported(rig: &mut NodeTestRig, report: ImageAheadReport) {
    rig.handle(NodeEvent::Heartbeat);
    rig.wants(&NodeAction::WakeAfter(rig.limits.heartbeat_timeout_ms));
    assert_eq!(rig.agent_order(), AgentOrder::ReadImageAhead);
    rig.agent(Ok(AgentEvent::ImageAhead(report)));
}

#[track_caller]
fn failed(rig: &NodeTestRig, why: &str) {
    assert_eq!(phase(rig), Some(ImageAheadPhase::Failed));
    let (image, why) = ("debian".to_owned(), why.to_owned());
    rig.wants(&NodeAction::Note(NoteKind::ImageAheadFailed { image, why }));
    rig.is(Available);
    assert_eq!(rig.node.last_error, None);
}

#[test]
fn an_image_counts_as_written_when_the_agent_has_confirmed_it() {
    let mut rig = writing();
    // The record says so before the agent gets the order.
    assert_eq!(phase(&rig), Some(ImageAheadPhase::Writing));
    let image = "debian".to_owned();
    rig.wants(&NodeAction::Note(NoteKind::ImageAheadStarted { image }));
    let order = rig.agent_order();
    assert!(matches!(order, AgentOrder::WriteImageAhead { .. }));
    rig.agent(Ok(AgentEvent::Accepted)).is(Available);
    reported(&mut rig, ImageAheadReport::Running);
    assert_eq!(phase(&rig), Some(ImageAheadPhase::Writing));
    // A restart of the box changes nothing.
    rig.handle(NodeEvent::Restarted);
    assert_eq!(phase(&rig), Some(ImageAheadPhase::Writing));
    let (digest, bytes) = (DIGEST, 9);
    reported(&mut rig, ImageAheadReport::Written { digest, bytes });
    assert_eq!(phase(&rig), Some(ImageAheadPhase::Written));
    let (image, took_ms) = ("debian".to_owned(), 1000);
    rig.wants(&NodeAction::Note(NoteKind::ImageAheadWritten {
        image,
        bytes,
        took_ms,
    }));
    // Nothing is read any more.
    rig.handle(NodeEvent::Heartbeat);
    let requests = |action: &NodeAction| matches!(action, NodeAction::Agent(_));
    assert!(!rig.actions.iter().any(requests));
    rig.is(Available);
}

#[test]
fn a_failure_is_a_note_and_the_node_stays_available() {
    let mut rig = writing();
    rig.agent(Ok(AgentEvent::Busy));
    failed(&rig, "the agent works on another command");
    let mut rig = writing();
    let message = "no chunk list".to_owned();
    rig.agent(Err(AgentError::Refused { message }));
    failed(&rig, "the agent refused the command: no chunk list");
    let mut rig = writing();
    rig.agent(Ok(AgentEvent::Accepted));
    let message = "disk full".to_owned();
    reported(&mut rig, ImageAheadReport::Failed { message });
    failed(&rig, "disk full");
}

#[test]
fn an_order_that_may_be_lost_is_read_at_the_next_heartbeat() {
    let digest = Digest::Sha256([8; 32]);
    let earlier = ImageAheadReport::Written { digest, bytes: 1 };
    for report in [ImageAheadReport::Unknown, earlier] {
        let mut rig = writing();
        rig.agent(unreachable());
        assert_eq!(phase(&rig), Some(ImageAheadPhase::Writing));
        reported(&mut rig, report);
        failed(&rig, "the agent did not receive the order");
    }
}

#[test]
fn any_verb_goes_first_and_drops_the_record() {
    for verb in [Verb::Active, Verb::Manage] {
        let mut rig = writing();
        rig.apply_verb(verb, vec![]);
        assert_eq!(phase(&rig), None, "{verb}");
        let clean = rig.node.agent.as_ref().is_some_and(|agent| agent.is_clean);
        assert!(!clean);
        // The choice was made before, or the reply comes late.
        rig.handle(NodeEvent::ImageAheadDue(Box::new(ahead())));
        let args = Value::Null;
        let order = AgentOrder::WriteImageAhead { args };
        rig.handle(NodeEvent::Agent(order, Ok(AgentEvent::Accepted)));
        assert_eq!(phase(&rig), None);
    }
    // It ends with the session of its agent.
    let mut rig = writing();
    rig.handle(NodeEvent::TimerExpired);
    assert_eq!(rig.node.agent, None);
    let mut rig = writing();
    rig.handle(NodeEvent::Power(PowerOrder::Status, OFF));
    assert_eq!(rig.node.agent, None);
}

#[test]
fn a_deployment_says_that_its_image_was_on_the_disk() {
    for image_was_on_disk in [true, false] {
        let mut rig = writing();
        rig.apply_verb(Verb::Active, vec![offered("write_image", 80)]);
        rig.node.job.as_mut().unwrap().deployment = Some(deployment());
        rig.agent(steps_are(&[offered("write_image", 0)]));
        rig.agent(Ok(AgentEvent::Accepted))
            .handle(NodeEvent::Heartbeat);
        rig.agent(Ok(AgentEvent::StepDone {
            step: "write_image".to_owned(),
            interface: "deploy".to_owned(),
            at: None,
            reboot_requested: false,
            result: Value::Null,
            image_was_on_disk,
        }));
        let image = "debian".to_owned();
        let note = NodeAction::Note(NoteKind::ImageWasOnDisk { image });
        assert_eq!(rig.actions.contains(&note), image_was_on_disk);
    }
}

#[test]
fn only_a_clean_idle_node_with_its_agent_is_written() {
    let rig = cleaned();
    let may = |change: &dyn Fn(&mut Node)| {
        let mut node = rig.node.clone();
        change(&mut node);
        let may = may_write_ahead(&node, &rig.limits);
        let due = NodeEvent::ImageAheadDue(Box::new(ahead()));
        let (_, actions) = step(NOW, &rig.limits, node, due);
        assert_eq!(may, !actions.is_empty());
        may
    };
    assert!(may(&|_| ()));
    assert!(!may(&|node| node.maintenance = true));
    assert!(!may(&|node| node.attributes.retired = true));
    assert!(!may(&|node| node.attributes.protected = true));
    assert!(!may(&|node| node.provision_state = Manageable));
    assert!(!may(&|node| node.instance_uuid = Some("i".to_owned())));
    assert!(!may(&|node| node.power_state = Some(PowerState::Off)));
    assert!(!may(&|node| node.target_power_state = Some(PowerState::On)));
    assert!(!may(&|node| node.agent = None));
    assert!(!may(&|node| node.agent.as_mut().unwrap().is_clean = false));
    let off = json!(false);
    assert!(!may(&|node| {
        node.driver_info.insert("fast_track".into(), off.clone());
    }));
    assert!(!may(&|node| {
        node.attributes.interfaces.deploy = Some(DeployInterface::Ramdisk);
    }));
    assert!(!may(&|node| {
        let partition = json!("partition");
        node.instance_info.insert("image_type".into(), partition);
    }));
}

/// Without automated cleaning a node becomes available with what was on its disk.
#[test]
fn an_agent_that_has_not_cleaned_the_node_writes_nothing_ahead() {
    let mut rig = NodeTestRig::new(Manageable);
    rig.limits.fast_track = true;
    rig.apply_verb(Verb::Inspect, vec![]).boots();
    let found = NodeEvent::Inspected {
        properties: JsonObject::new(),
        inventory: json!({}),
        complaint: None,
    };
    rig.handle(found);
    rig.node.agent = Some(AgentSession {
        url: Some("https://192.0.2.9:9999".to_owned()),
        ..AgentSession::legacy()
    });
    rig.handle(NodeEvent::Heartbeat).is(Manageable);
    rig.node.automated_clean = Some(false);
    rig.apply_verb(Verb::Provide, vec![]).is(Available);
    assert!(rig.node.agent.is_some());
    assert!(!may_write_ahead(&rig.node, &rig.limits));
}
