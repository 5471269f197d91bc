//! Deploy templates are added to the deployments of instances that request them.

use super::*;
use trivet_model::interface::RaidInterface;
use trivet_model::node::JsonObject;
use trivet_model::{JobStep, Resource, ResourceId, ResourceKind};

fn template(number: u64, name: &str, step: &str) -> RackOrder {
    let id = ResourceId::random(&mut SeededRandom::new(number));
    let mut template = Resource::new(id, ResourceKind::DeployTemplate, UnixMs(0));
    template.name = Some(name.into());
    let step = json!({"interface": "deploy", "step": step, "args": {"n": number}, "priority": 90});
    template.fields.insert("steps".into(), json!([step]));
    RackOrder::CreateResource(Box::new(template))
}

fn available(bench: &mut RackBench, traits: &Value) -> NodeId {
    let id = bench.with_node(1);
    bench.force(id, |node| {
        node.provision_state = ProvisionState::Available;
        node.attributes
            .set("traits", Some(json!(["CUSTOM_A", "CUSTOM_B"])))
            .unwrap();
        let info = &mut node.instance_info;
        info.insert("image_source".into(), json!("disk.raw"));
        info.insert("traits".into(), traits.clone());
    });
    id
}

fn steps(bench: &RackBench, id: NodeId) -> Vec<(String, Value)> {
    let job = bench.node(id).job.unwrap();
    let named = job
        .steps
        .into_iter()
        .map(|step| (step.step, step.args["n"].clone()));
    named.filter(|(name, _)| name != "write_image").collect()
}

#[test]
fn a_template_of_an_instance_trait_brings_its_steps() {
    let mut bench = RackBench::new();
    bench.order(template(1, "CUSTOM_A", "one")).unwrap();
    bench.order(template(2, "CUSTOM_B", "two")).unwrap();
    let id = available(&mut bench, &json!(["CUSTOM_B"]));
    bench.verb(id, Verb::Active).unwrap();
    assert_eq!(steps(&bench, id), [("two".to_owned(), json!(2))]);
}

#[test]
fn a_step_the_operator_gave_counts_before_the_templates() {
    let mut bench = RackBench::new();
    bench.order(template(1, "CUSTOM_A", "one")).unwrap();
    let id = available(&mut bench, &json!(["CUSTOM_A"]));
    let own = JobStep {
        step: "one".into(),
        interface: "deploy".into(),
        priority: 10,
        args: json!({"n": "mine"}),
        reboot_requested: false,
        abortable: false,
    };
    let order = RackOrder::Provision {
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
        let mut bench = RackBench::new();
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

/// The node's interfaces differ from those at the time when the template was written.
#[test]
fn a_template_with_a_step_by_redfish_is_refused_before_the_machine_boots() {
    let mut settings = settings();
    settings.hardware.push("redfish".into());
    let mut bench = RackBench::with(settings);
    let RackOrder::CreateResource(mut raid) = template(1, "CUSTOM_A", "apply_configuration") else {
        unreachable!()
    };
    let step = json!({"interface": "raid", "step": "apply_configuration", "args": {},
                      "priority": 90});
    raid.fields.insert("steps".into(), json!([step]));
    bench.order(RackOrder::CreateResource(raid)).unwrap();
    let id = available(&mut bench, &json!(["CUSTOM_A"]));
    bench.force(id, |node| {
        node.driver = "redfish".into();
        node.attributes.interfaces.raid = Some(RaidInterface::Redfish);
    });
    let before = bench.node(id);
    let refusal = bench.verb(id, Verb::Active).unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::Invalid);
    let why = "Step raid.apply_configuration cannot be run";
    assert!(refusal.sentence.contains(why), "{refusal}");
    assert_eq!(bench.node(id), before);
    let OrderOutcome::Checked(Some(lacks)) = bench.order(RackOrder::CheckDeploy(id)).unwrap()
    else {
        panic!("validation reports it before");
    };
    assert!(lacks.contains(why), "{lacks}");
    bench.force(id, |node| {
        node.attributes.interfaces.raid = Some(RaidInterface::Agent);
    });
    bench.verb(id, Verb::Active).unwrap();
}

fn with_drive(number: u64, name: &str, user_data: &str) -> RackOrder {
    let RackOrder::CreateResource(mut template) = self::template(number, name, "one") else {
        unreachable!()
    };
    let drive = json!({ "configdrive": { "user_data": user_data } });
    template.fields.insert("extra".into(), drive);
    RackOrder::CreateResource(template)
}

#[test]
fn a_template_brings_a_config_drive_with_the_nodes_own_facts() {
    let mut bench = RackBench::new();
    let words = "rack {{ node.extra.rack }}, {{ ds.of_cloud_init }}";
    bench.order(with_drive(1, "CUSTOM_A", words)).unwrap();
    let id = available(&mut bench, &json!(["CUSTOM_A"]));
    let message = bench.verb(id, Verb::Active).unwrap_err().sentence;
    assert!(message.contains("node.extra.rack"), "{message}");
    bench.force(id, |node| {
        node.extra.insert("rack".into(), json!("b7"));
    });
    bench.verb(id, Verb::Active).unwrap();
    let node = bench.node(id);
    let made = node.instance_info["configdrive"].as_str().unwrap();
    let parts = json!({"user_data": "rack b7, {{ ds.of_cloud_init }}"});
    let facts = json!({"uuid": id.to_string(), "name": node.name, "hostname": node.name});
    let facts = facts.as_object().unwrap().clone();
    let facts = facts.into_iter().filter(|(_, fact)| !fact.is_null());
    let want = trivet_configdrive::encoded_drive(parts.as_object().unwrap(), &facts.collect());
    assert_eq!(made, want.unwrap());
}

#[test]
fn a_drive_that_was_given_counts_before_the_templates_and_two_are_too_many() {
    let mut bench = RackBench::new();
    bench.order(with_drive(1, "CUSTOM_A", "a")).unwrap();
    let mut two = with_drive(2, "CUSTOM_B", "b");
    if let RackOrder::CreateResource(template) = &mut two {
        template.fields.insert("steps".into(), json!([]));
    }
    bench.order(two).unwrap();
    let id = available(&mut bench, &json!(["CUSTOM_A", "CUSTOM_B"]));
    let message = bench.verb(id, Verb::Active).unwrap_err().sentence;
    assert!(message.contains("both have a config drive"), "{message}");
    bench.force(id, |node| {
        node.instance_info
            .insert("configdrive".into(), json!("H4sI"));
    });
    bench.verb(id, Verb::Active).unwrap();
    assert_eq!(bench.node(id).instance_info["configdrive"], "H4sI");
}

#[test]
fn a_templates_drive_is_built_again_for_each_deployment() {
    let mut bench = RackBench::new();
    let drive = |bench: &RackBench, id| bench.node(id).instance_info["configdrive"].clone();
    bench
        .order(with_drive(1, "CUSTOM_A", "a {{ node.name }}"))
        .unwrap();
    let id = available(&mut bench, &json!(["CUSTOM_A"]));
    let again = |bench: &mut RackBench, name: &str| {
        bench.force(id, |node| {
            node.provision_state = ProvisionState::Available;
            node.job = None;
            node.name = Some(name.to_owned());
        });
        bench.verb(id, Verb::Active).unwrap();
    };
    again(&mut bench, "one");
    let one = drive(&bench, id);
    again(&mut bench, "two");
    assert_ne!(drive(&bench, id), one);
    // A drive that the operator stores there stays.
    bench.force(id, |node| {
        node.instance_info
            .insert("configdrive".into(), json!("H4sI"));
    });
    again(&mut bench, "three");
    assert_eq!(drive(&bench, id), "H4sI");
}

#[test]
fn a_drive_that_is_not_an_object_is_refused_and_fails_validation() {
    let mut bench = RackBench::new();
    let RackOrder::CreateResource(mut template) = template(1, "CUSTOM_A", "one") else {
        unreachable!()
    };
    let drive = json!({ "configdrive": "H4sI" });
    template.fields.insert("extra".into(), drive);
    bench.order(RackOrder::CreateResource(template)).unwrap();
    let id = available(&mut bench, &json!(["CUSTOM_A"]));
    let before = bench.node(id);
    let message = bench.verb(id, Verb::Active).unwrap_err().sentence;
    assert!(message.contains("must be an object"), "{message}");
    let checked = bench.order(RackOrder::CheckDeploy(id)).unwrap();
    assert_eq!(checked, OrderOutcome::Checked(Some(message)));
    assert_eq!(bench.node(id), before);
}

#[test]
fn a_check_finds_what_the_deployment_would_and_changes_nothing() {
    let mut bench = RackBench::new();
    let id = available(&mut bench, &json!([]));
    let mut check = |change: &dyn Fn(&mut JsonObject)| {
        bench.force(id, |node| change(&mut node.instance_info));
        let before = bench.node(id);
        let checked = bench.order(RackOrder::CheckDeploy(id)).unwrap();
        assert_eq!(bench.node(id), before);
        checked
    };
    assert_eq!(check(&|_| {}), OrderOutcome::Checked(None));
    let lacks = check(&|info| drop(info.insert("image_type".into(), json!("partition"))));
    assert!(matches!(lacks, OrderOutcome::Checked(Some(message)) if message.contains("root_gb")));
    let fits = check(&|info| drop(info.insert("root_gb".into(), json!("1"))));
    assert_eq!(fits, OrderOutcome::Checked(None));
}

#[test]
fn a_template_sees_neither_a_secret_nor_its_mask() {
    let mut bench = RackBench::new();
    let words = "pw={{ node.extra.db.admin_password }}";
    bench.order(with_drive(1, "CUSTOM_A", words)).unwrap();
    let id = available(&mut bench, &json!(["CUSTOM_A"]));
    bench.force(id, |node| {
        let db = json!({"admin_password": "s3cret", "host": "h"});
        node.extra.insert("db".into(), db);
    });
    let message = bench.verb(id, Verb::Active).unwrap_err().sentence;
    assert!(
        message.contains("is secret") && !message.contains("s3cret"),
        "{message}"
    );
}
