//! The diagnosis of a job: when readers see it, and what is in `last_error`.

use trivet_model::{Diagnosis, NoteKind, PowerState};
use trivet_node::NodeEvent;
use trivet_story::Stage;

use super::*;

fn shown(bench: &RackBench, id: NodeId) -> Option<Diagnosis> {
    let view = bench.rack.view();
    let diagnosis = view.nodes.get(&id)?.live.diagnosis.clone()?;
    Some(Diagnosis::clone(&diagnosis))
}

fn note(bench: &mut RackBench, id: NodeId, kind: NoteKind) {
    bench.rack.records.note(bench.now, Some(id), kind);
}

/// A node whose machine was switched on and is not seen.
fn switched_on(boots_max: u32) -> (RackBench, NodeId) {
    let mut settings = settings();
    settings.limits.boots_max = boots_max;
    let (mut bench, id) = RackBench::inspecting_with(settings);
    note(&mut bench, id, NoteKind::PowerOrdered { order: "power on" });
    bench.now.wall.0 += 242_000;
    (bench, id)
}

fn time_out(bench: &mut RackBench, id: NodeId) {
    let event = (id, NodeEvent::TimerExpired);
    bench.rack.events.push_back(event);
    bench.handle(RackInput::Tick);
}

#[test]
fn a_job_that_ends_because_nothing_came_up_has_the_diagnosis_as_its_error() {
    let (mut bench, id) = switched_on(1);
    assert_eq!(shown(&bench, id), None);
    time_out(&mut bench, id);
    let node = bench.node(id);
    assert_eq!(node.provision_state, ProvisionState::InspectFail);
    let error = node.last_error.unwrap();
    let sentence = "No packet arrived from 52:54:00:00:00:01 within 4 min 2 s after the power-on.";
    assert!(error.starts_with(sentence), "{error}");
    assert!(
        error.ends_with("(no sign of the agent in time after 1 boots)"),
        "{error}"
    );
    let notes = bench.notes();
    assert!(notes.contains(&format!("failed: {error}")), "{notes:#?}");
    let diagnosis = shown(&bench, id).unwrap();
    assert_eq!(
        (diagnosis.rule.as_str(), diagnosis.sentence.as_str()),
        ("no-packet", sentence)
    );
    // The next job begins without it.
    bench.verb(id, Verb::Inspect).unwrap();
    assert_eq!(shown(&bench, id), None);
}

#[test]
fn a_machine_that_no_bmc_switches_on_and_that_is_not_seen_has_the_same_diagnosis() {
    for driver in ["fake_agent", "manual-management"] {
        let mut settings = settings();
        settings.limits.boots_max = 2;
        let mut bench = RackBench::with(settings);
        let id = bench.with_node(1);
        bench.force(id, |node| {
            node.driver = driver.to_owned();
            trivet_drivers::adopt_alias(node);
            node.provision_state = ProvisionState::Manageable;
        });
        bench.verb(id, Verb::Inspect).unwrap();
        for boot in 1..=2 {
            assert!(bench.node(id).job.is_some(), "{driver} {boot}");
            bench.now.wall.0 += 15_000;
            time_out(&mut bench, id);
        }
        let node = bench.node(id);
        assert_eq!(
            node.provision_state,
            ProvisionState::InspectFail,
            "{driver}"
        );
        let error = node.last_error.unwrap();
        let sentence = "No packet arrived from 52:54:00:00:00:01 within 15 s after the power-on \
                        (boot 2).";
        assert!(error.starts_with(sentence), "{driver}: {error}");
        assert_eq!(shown(&bench, id).unwrap().rule, "no-packet", "{driver}");
    }
}

#[test]
fn readers_see_why_the_first_of_several_boots_failed() {
    let (mut bench, id) = switched_on(4);
    time_out(&mut bench, id);
    assert!(bench.node(id).job.is_some());
    assert_eq!(bench.node(id).last_error, None);
    assert_eq!(shown(&bench, id).unwrap().rule, "no-packet");
}

#[test]
fn a_late_stage_is_explained_before_it_fails() {
    let (bench, id) = switched_on(4);
    let late = Some((Stage::Post, Some(71_000)));
    let diagnosis = bench.rack.diagnosis_of(bench.now, id, late).unwrap();
    assert!(
        diagnosis.sentence.contains("usual: 1 min 11 s"),
        "{diagnosis:?}"
    );
    assert_eq!(bench.rack.diagnosis_of(bench.now, id, None), None);
}

#[test]
fn a_bmc_that_refuses_the_login_is_shown_until_it_accepts_an_order() {
    let (mut bench, id) = switched_on(4);
    let message = "the BMC refused the login".to_owned();
    let kind = "login";
    note(&mut bench, id, NoteKind::PowerFailed { kind, message });
    bench.handle(RackInput::Tick);
    let diagnosis = shown(&bench, id).unwrap();
    assert_eq!(
        diagnosis.sentence,
        "The BMC at 192.0.2.1 refused the login of user a."
    );
    note(&mut bench, id, NoteKind::PowerIs(PowerState::On));
    bench.handle(RackInput::Tick);
    assert_eq!(shown(&bench, id), None);
}

#[test]
fn an_order_that_is_refused_because_the_box_has_no_agent_is_explained() {
    let mut without_agent = settings();
    without_agent.files.kernel = None;
    let mut bench = RackBench::with(without_agent);
    let id = bench.with_node(1);
    bench.force(id, |node| node.provision_state = ProvisionState::Manageable);
    bench.verb(id, Verb::Inspect).unwrap_err();
    assert_eq!(shown(&bench, id).unwrap().rule, "agent-missing");
    bench.order(RackOrder::DeleteNode(id)).unwrap();
    assert!(bench.rack.records.evidence_of(id).is_none());
}

#[test]
fn what_is_wrong_with_a_node_without_a_job_is_there_after_a_restart() {
    let mut without_agent = settings();
    without_agent.files.kernel = None;
    let mut bench = RackBench::with(without_agent);
    let id = bench.with_node(1);
    bench.force(id, |node| node.provision_state = ProvisionState::Manageable);
    bench.verb(id, Verb::Inspect).unwrap_err();
    let before = shown(&bench, id);
    assert!(before.is_some());
    let mut bench = bench.restarted();
    assert_eq!(shown(&bench, id), before);
    // The operator does what it says, and starts the box again.
    bench.settings.files.kernel = settings().files.kernel;
    let bench = bench.restarted();
    assert_eq!(shown(&bench, id), None);
    assert_eq!(shown(&bench.restarted(), id), None, "also on flash");
}

#[test]
fn an_address_of_the_api_is_compared_with_the_network_of_the_machine() {
    let facts = |url: &str, address: Option<&str>| {
        let mut settings = settings();
        settings.api_url = url.into();
        let (bench, id) = RackBench::inspecting_with(settings);
        let mut evidence = trivet_story::JobEvidence::default();
        evidence.boot.address = address.map(str::to_owned);
        let node = bench.node(id);
        bench.rack.site_facts(&node, &evidence).api_outside_of
    };
    assert_eq!(facts("http://10.0.0.1:6385", Some("10.0.0.100")), None);
    let outside = facts("http://192.0.2.1:6385", Some("10.0.0.100"));
    assert_eq!(outside.as_deref(), Some("10.0.0.0/24"));
    assert_eq!(facts("http://192.0.2.1:6385", Some("192.0.2.9")), None);
    assert_eq!(facts("http://box.example:6385", Some("10.0.0.100")), None);
}

#[test]
fn facts_of_the_box_are_those_of_its_settings_and_records() {
    let mut settings = settings();
    settings.api_url = "http://127.0.0.1:6385".into();
    let (mut bench, id) = RackBench::inspecting_with(settings);
    bench.force(id, |node| {
        node.properties
            .insert("memory_mb".to_owned(), "2048".into());
    });
    let node = bench.node(id);
    let evidence = trivet_story::JobEvidence::default();
    let facts = bench.rack.site_facts(&node, &evidence);
    assert!(facts.has_agent && facts.api_is_loopback);
    assert_eq!(facts.own_address.as_deref(), Some("10.0.0.1"));
    assert_eq!((facts.bmc_keys, facts.memory_mib), ("ipmi", Some(2048)));
    assert_eq!(facts.port_macs, ["52:54:00:00:00:01"]);
    assert_eq!(
        (facts.neighbour_image_rate, facts.neighbour_loader_rate),
        (None, None)
    );
}
