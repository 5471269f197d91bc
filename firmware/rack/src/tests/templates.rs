//! Deploy templates join the deployments of instances that ask for them.

use super::*;
use trivet_model::{Resource, ResourceId, ResourceKind, Step};

fn template(number: u64, name: &str, step: &str) -> Order {
    let id = ResourceId::random(&mut Seeded::new(number));
    let mut template = Resource::new(id, ResourceKind::DeployTemplate, UnixMs(0));
    template.name = Some(name.into());
    let step = json!({"interface": "deploy", "step": step, "args": {"n": number}, "priority": 90});
    template.fields.insert("steps".into(), json!([step]));
    Order::CreateResource(Box::new(template))
}

fn available(bench: &mut Bench, traits: &Value) -> NodeId {
    let id = bench.with_node(1);
    bench.force(id, |node| {
        node.provision_state = ProvisionState::Available;
        node.kept
            .insert("traits".into(), json!(["CUSTOM_A", "CUSTOM_B"]));
        let info = &mut node.instance_info;
        info.insert("image_source".into(), json!("disk.raw"));
        info.insert("traits".into(), traits.clone());
    });
    id
}

fn steps(bench: &Bench, id: NodeId) -> Vec<(String, Value)> {
    let job = bench.node(id).job.unwrap();
    let named = job
        .steps
        .into_iter()
        .map(|step| (step.step, step.args["n"].clone()));
    named.filter(|(name, _)| name != "write_image").collect()
}

#[test]
fn a_template_of_an_instance_trait_brings_its_steps() {
    let mut bench = Bench::new();
    bench.order(template(1, "CUSTOM_A", "one")).unwrap();
    bench.order(template(2, "CUSTOM_B", "two")).unwrap();
    let id = available(&mut bench, &json!(["CUSTOM_B"]));
    bench.verb(id, Verb::Active).unwrap();
    assert_eq!(steps(&bench, id), [("two".to_owned(), json!(2))]);
}

#[test]
fn a_step_the_operator_gave_counts_before_the_templates() {
    let mut bench = Bench::new();
    bench.order(template(1, "CUSTOM_A", "one")).unwrap();
    let id = available(&mut bench, &json!(["CUSTOM_A"]));
    let own = Step {
        step: "one".into(),
        interface: "deploy".into(),
        priority: 10,
        args: json!({"n": "mine"}),
        reboot_requested: false,
        abortable: false,
    };
    let order = Order::Provision {
        node: id,
        verb: Verb::Active,
        args: VerbArgs {
            steps: vec![own],
            ..VerbArgs::default()
        },
        based_on: None,
    };
    bench.order(order).unwrap();
    assert_eq!(steps(&bench, id), [("one".to_owned(), json!("mine"))]);
}

#[test]
fn traits_the_node_lacks_and_steps_that_come_twice_are_refused() {
    for (traits, says) in [
        (json!(["CUSTOM_C"]), "missing traits CUSTOM_C"),
        (json!("CUSTOM_A"), "list of strings"),
        (json!([7]), "list of strings"),
        (json!(["CUSTOM_A", "CUSTOM_B"]), "comes twice"),
    ] {
        let mut bench = Bench::new();
        bench.order(template(1, "CUSTOM_A", "one")).unwrap();
        bench.order(template(2, "CUSTOM_B", "one")).unwrap();
        let id = available(&mut bench, &traits);
        let before = bench.node(id);
        let refusal = bench.verb(id, Verb::Active).unwrap_err();
        assert_eq!(refusal.kind, RefusalKind::Invalid);
        assert!(refusal.sentence.contains(says), "{refusal}");
        assert_eq!(bench.node(id), before);
    }
}
