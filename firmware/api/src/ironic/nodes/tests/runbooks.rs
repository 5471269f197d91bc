//! Runbooks provide steps for nodes that a trait approves.

use crate::testing::{ApiBench, LATEST, NOW, send};
use serde_json::json;
use trivet_model::{ProvisionState, RackOrder, Resource, ResourceKind};

const ID: &str = "00000000-0000-4000-a000-000000000007";

fn bench(state: ProvisionState) -> ApiBench {
    let mut bench = ApiBench::with(state);
    bench.change(|node| {
        node.driver = "fake-hardware".into();
        node.attributes
            .set("traits", Some(json!(["CUSTOM_BOOK", "HW_CPU"])))
            .unwrap();
    });
    let mut runbook = Resource::new(ID.parse().unwrap(), ResourceKind::Runbook, NOW);
    runbook.name = Some("CUSTOM_BOOK".into());
    let steps = json!([
        {"interface": "deploy", "step": "second", "args": {}, "order": 2},
        {"interface": "bios", "step": "first", "args": {"a": 1}, "order": 1},
    ]);
    runbook.fields.insert("steps".into(), steps);
    runbook.fields.insert("traits".into(), json!(["HW_CPU"]));
    bench.add_resource(runbook);
    bench
}

fn change(bench: &mut ApiBench, name: &str, value: serde_json::Value) {
    let key = (ResourceKind::Runbook, ID.parse().unwrap());
    let mut runbook = Resource::clone(&bench.view.resources[&key]);
    runbook.fields.insert(name.into(), value);
    bench.add_resource(runbook);
}

const PATH: &str = "/v1/nodes/node-1/states/provision";

#[test]
fn its_steps_run_in_their_order() {
    for (verb, ident, state) in [
        ("clean", ID, ProvisionState::Manageable),
        ("service", "CUSTOM_BOOK", ProvisionState::Active),
    ] {
        let bench = bench(state);
        let body = json!({"target": verb, "runbook": ident}).to_string();
        for version in ["1.108", LATEST] {
            let (order, _) = bench.order(&send("PUT", PATH, &body).at(version));
            let RackOrder::Provision { args, .. } = order else {
                panic!("not a verb");
            };
            let names: Vec<&str> = args.steps.iter().map(|step| step.step.as_str()).collect();
            assert_eq!(names, ["first", "second"]);
            assert_eq!(args.steps[0].args, json!({"a": 1}));
        }
    }
}

#[test]
fn a_node_without_the_trait_is_not_approved() {
    let mut bench = bench(ProvisionState::Manageable);
    let body = json!({"target": "clean", "runbook": ID}).to_string();
    bench.change(|node| {
        node.attributes
            .set("traits", Some(json!(["CUSTOM_BOOK"])))
            .unwrap();
    });
    let message = bench.refuses(&send("PUT", PATH, &body).at(LATEST), 400);
    assert!(message.contains("['HW_CPU']"), "{message}");
    bench.order(&send("PUT", PATH, &body).at("1.111"));
    bench.change(|node| node.attributes.traits.clear());
    let message = bench.refuses(&send("PUT", PATH, &body).at("1.111"), 400);
    assert!(message.contains("not been approved"), "{message}");
    change(&mut bench, "traits", json!([]));
    let message = bench.refuses(&send("PUT", PATH, &body).at(LATEST), 400);
    assert!(message.contains("no traits configured"), "{message}");
}

#[test]
fn it_goes_with_steps_of_its_own_and_two_verbs_only() {
    let bench = bench(ProvisionState::Manageable);
    let step = json!([{"interface": "deploy", "step": "x"}]);
    for (body, status) in [
        (
            json!({"target": "clean", "runbook": ID, "clean_steps": step}),
            400,
        ),
        (json!({"target": "provide", "runbook": ID}), 400),
        (json!({"target": "clean", "runbook": "none"}), 404),
        (json!({"target": "provide", "disable_ramdisk": true}), 400),
    ] {
        bench.refuses(&send("PUT", PATH, &body.to_string()).at(LATEST), status);
    }
    let body = json!({"target": "clean", "runbook": ID}).to_string();
    bench.refuses(&send("PUT", PATH, &body).at("1.91"), 406);
}

#[test]
fn a_runbook_may_leave_the_ramdisk_out() {
    let mut bench = bench(ProvisionState::Manageable);
    change(&mut bench, "disable_ramdisk", json!(true));
    let body = json!({"target": "clean", "runbook": ID}).to_string();
    let RackOrder::Provision { args, .. } = bench.order(&send("PUT", PATH, &body).at(LATEST)).0
    else {
        panic!("not a verb");
    };
    assert!(args.disable_ramdisk);
}

#[test]
fn a_retired_node_is_not_provided() {
    let mut bench = bench(ProvisionState::Manageable);
    let body = json!({"target": "provide"}).to_string();
    bench.order(&send("PUT", PATH, &body).at(LATEST));
    bench.change(|node| node.attributes.retired = true);
    let message = bench.refuses(&send("PUT", PATH, &body).at(LATEST), 400);
    assert!(message.contains("because it is retired"), "{message}");
}
