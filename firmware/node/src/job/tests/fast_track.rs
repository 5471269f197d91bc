//! Agents that stay between two jobs.

use trivet_model::AgentSession;

use super::*;

fn session() -> Option<AgentSession> {
    Some(AgentSession {
        url: Some("https://192.0.2.9:9999".to_owned()),
        ..AgentSession::legacy()
    })
}

fn rig(state: ProvisionState) -> NodeTestRig {
    let mut rig = NodeTestRig::new(state);
    rig.limits.fast_track = true;
    rig
}

/// A node that was cleaned and whose agent stayed.
fn available() -> NodeTestRig {
    let mut rig = rig(Manageable);
    rig.apply_verb(Verb::Provide, vec![]).boots();
    rig.node.agent = session();
    rig.handle(NodeEvent::Heartbeat)
        .agent(steps_are(&[offered("erase_devices_metadata", 9)]));
    rig.agent(Ok(AgentEvent::Accepted))
        .handle(NodeEvent::Heartbeat);
    rig.agent(done("erase_devices_metadata")).is(Available);
    rig
}

fn powers(rig: &NodeTestRig) -> usize {
    let power = |action: &&NodeAction| matches!(action, NodeAction::Power(_));
    rig.actions.iter().filter(power).count()
}

#[test]
fn a_cleaned_machine_is_not_switched_off_and_its_agent_is_kept() {
    let rig = available();
    let clean = session().map(|agent| AgentSession {
        is_clean: true,
        ..agent
    });
    assert_eq!((powers(&rig), &rig.node.agent), (0, &clean));
    rig.wants(&NodeAction::Note(NoteKind::AgentKeepsRunning))
        .wants(&NodeAction::WakeAfter(rig.limits.heartbeat_timeout_ms));
}

#[test]
fn a_deployment_begins_with_the_agent_that_stayed() {
    let mut rig = available();
    rig.apply_verb(Verb::Active, vec![offered("write_image", 80)])
        .is(Deploying);
    rig.wants(&NodeAction::Note(NoteKind::AgentReused));
    assert_eq!(powers(&rig), 0);
    assert_eq!(rig.agent_order(), AgentOrder::GetSteps(StepKind::Deploy));
    assert!(boots_agent(&rig.node), "it may look itself up again");
}

#[test]
fn a_partition_image_needs_a_new_boot_of_the_agent() {
    let mut rig = available();
    rig.node
        .instance_info
        .insert("image_type".into(), "partition".into());
    rig.apply_verb(Verb::Active, vec![offered("write_image", 80)]);
    rig.wants(&NodeAction::Power(PowerOrder::Off));
    assert_eq!(rig.node.agent, None);
}

#[test]
fn without_fast_track_every_job_boots() {
    let mut rig = available();
    rig.limits.fast_track = false;
    rig.apply_verb(Verb::Active, vec![offered("write_image", 80)]);
    rig.wants(&NodeAction::Power(PowerOrder::Off));
    assert_eq!(rig.node.agent, None);
}

#[test]
fn driver_info_decides_whether_the_agent_stays() {
    for (word, stays) in [
        (json!(true), true),
        (json!("True"), true),
        (json!(false), false),
        (json!("no"), false),
    ] {
        let mut rig = NodeTestRig::new(Manageable);
        rig.limits.fast_track = !stays;
        rig.node.driver_info.insert("fast_track".into(), word);
        assert_eq!(
            crate::job::fast_track::keeps_agent(&rig.node, &rig.limits),
            stays
        );
    }
}

#[test]
fn an_agent_that_beats_stays_and_one_that_is_silent_is_forgotten() {
    let mut rig = available();
    rig.handle(NodeEvent::Heartbeat);
    rig.wants(&NodeAction::WakeAfter(rig.limits.heartbeat_timeout_ms));
    rig.handle(NodeEvent::Restarted);
    rig.wants(&NodeAction::WakeAfter(rig.limits.heartbeat_timeout_ms));
    rig.handle(NodeEvent::TimerExpired).is(Available);
    rig.wants(&NodeAction::Note(NoteKind::AgentExpired { seconds: 300 }));
    assert_eq!(rig.node.agent, None);
    rig.apply_verb(Verb::Active, vec![offered("write_image", 80)]);
    rig.wants(&NodeAction::Power(PowerOrder::Off));
}

#[test]
fn a_machine_that_is_off_has_no_agent() {
    let mut rig = available();
    rig.handle(NodeEvent::Power(PowerOrder::Status, OFF));
    assert_eq!(rig.node.agent, None);
}

#[test]
fn an_agent_that_does_not_answer_after_all_is_booted() {
    let mut rig = available();
    rig.apply_verb(Verb::Active, vec![offered("write_image", 80)]);
    for _ in 1..rig.limits.tries_max {
        rig.agent(unreachable()).handle(NodeEvent::TimerExpired);
    }
    rig.agent(unreachable());
    rig.wants(&NodeAction::Power(SET_PXE));
}

#[test]
fn an_inspected_agent_is_waited_for_and_stays() {
    let mut rig = rig(Manageable);
    rig.apply_verb(Verb::Inspect, vec![]).boots();
    let found = NodeEvent::Inspected {
        properties: JsonObject::new(),
        inventory: json!({}),
        complaint: None,
    };
    rig.handle(found).is(InspectWait);
    assert_eq!(powers(&rig), 0);
    rig.node.agent = session();
    rig.handle(NodeEvent::Heartbeat).is(Manageable);
    assert_eq!(rig.node.agent, session());
    rig.apply_verb(Verb::Provide, vec![]);
    assert_eq!(rig.agent_order(), AgentOrder::GetSteps(StepKind::Clean));
}

#[test]
fn an_inspected_agent_that_never_beats_is_switched_off_and_nothing_is_lost() {
    let mut rig = rig(Manageable);
    rig.apply_verb(Verb::Inspect, vec![]).boots();
    let inventory = json!({"cpu": {}});
    let found = NodeEvent::Inspected {
        properties: JsonObject::new(),
        inventory: inventory.clone(),
        complaint: None,
    };
    rig.handle(found).handle(NodeEvent::TimerExpired);
    rig.power(PowerOrder::Off, OFF).is(Manageable);
    assert_eq!(rig.node.inventory, Some(inventory));
}
