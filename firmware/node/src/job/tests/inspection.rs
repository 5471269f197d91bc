//! Inspection by the agent.

use super::*;

#[test]
fn inspection_boots_the_agent_keeps_its_data_and_powers_off() {
    let mut rig = NodeTestRig::new(Manageable);
    rig.apply_verb(Verb::Inspect, vec![]).is(Inspecting);
    rig.boots().is(InspectWait);
    assert!(boots_agent(&rig.node));
    let Value::Object(properties) = json!({"cpus": 4}) else {
        unreachable!()
    };
    rig.handle(NodeEvent::Inspected {
        properties,
        inventory: json!({"cpu": {}}),
        complaint: None,
    })
    .is(Inspecting);
    rig.power(PowerOrder::Off, OFF).is(Manageable);
    assert_eq!(rig.node.properties["cpus"], 4);
    assert_eq!(rig.node.inspection_finished_at, Some(NOW.wall));
    assert_eq!(rig.node.inspection_started_at, None);
    assert!(!boots_agent(&rig.node));
}

#[test]
fn what_an_agent_could_not_find_out_fails_the_inspection_and_keeps_the_rest() {
    let mut rig = NodeTestRig::new(Manageable);
    rig.apply_verb(Verb::Inspect, vec![]).boots();
    rig.handle(NodeEvent::Inspected {
        properties: JsonObject::new(),
        inventory: json!({"cpu": {}}),
        complaint: Some("lldp: no socket".to_owned()),
    })
    .is(InspectFail);
    assert!(rig.node.inventory.is_some());
    let why = rig.node.last_error.clone().unwrap();
    assert!(why.contains("lldp: no socket"), "{why}");
}

#[test]
fn unexpected_inspection_data_change_nothing() {
    let mut rig = deploying();
    let before = rig.node.clone();
    rig.handle(NodeEvent::Inspected {
        properties: JsonObject::new(),
        inventory: json!({}),
        complaint: None,
    });
    assert_eq!(rig.node, before);
}

#[test]
fn an_inspected_agent_that_beats_but_sent_nothing_gets_no_more_time() {
    let mut rig = NodeTestRig::new(Manageable);
    rig.apply_verb(Verb::Inspect, vec![]).boots();
    rig.handle(NodeEvent::Heartbeat);
    assert_eq!(rig.actions, []);
    rig.is(InspectWait);
}

fn unusable() -> NodeEvent {
    NodeEvent::BootFileUnusable {
        why: "http://h/ramdisk cannot be reached".into(),
    }
}

#[test]
fn a_boot_file_that_cannot_be_fetched_ends_the_job_before_the_machine_boots() {
    let mut rig = NodeTestRig::new(Manageable);
    rig.apply_verb(Verb::Inspect, vec![]);
    rig.handle(unusable()).is(InspectFail);
    let why = rig.node.last_error.clone().unwrap_or_default();
    assert!(why.contains("http://h/ramdisk cannot be reached"), "{why}");
    assert_eq!(rig.node.job, None);
}

#[test]
fn a_boot_file_that_cannot_be_fetched_ends_the_job_that_waits_for_the_agent() {
    let mut rig = NodeTestRig::new(Manageable);
    rig.apply_verb(Verb::Inspect, vec![]).boots();
    rig.handle(unusable()).is(InspectFail);
}

#[test]
fn an_instance_that_is_torn_down_is_powered_off_before_its_job_may_end() {
    let mut rig = NodeTestRig::new(Active);
    rig.apply_verb(Verb::Deleted, vec![]);
    rig.handle(unusable());
    assert!(rig.node.job.is_some(), "{:?}", rig.node.last_error);
}
