//! Resources have unique names, and those in use are not deleted.

use super::*;
use trivet_model::{Resource, ResourceId, ResourceKind};

fn fresh(number: u64, kind: ResourceKind) -> Resource {
    let id = ResourceId::random(&mut SeededRandom::new(700 + number));
    Resource::new(id, kind, UnixMs(1))
}

fn create(resource: &Resource) -> RackOrder {
    RackOrder::CreateResource(Box::new(resource.clone()))
}

#[test]
fn names_and_identities_are_unique() {
    let mut bench = RackBench::new();
    let mut one = fresh(1, ResourceKind::Runbook);
    one.name = Some("CUSTOM_A".into());
    bench.order(create(&one)).unwrap();
    let message = bench.refused(create(&one), RefusalKind::Conflict);
    assert_eq!(
        message,
        format!("A runbook with UUID {} already exists.", one.id)
    );
    let mut two = fresh(2, ResourceKind::Runbook);
    two.name.clone_from(&one.name);
    let message = bench.refused(create(&two), RefusalKind::Conflict);
    assert_eq!(message, "A runbook with name CUSTOM_A already exists.");
    // Another kind may have the same name, but not the same UUID.
    two.kind = ResourceKind::DeployTemplate;
    bench.order(create(&two)).unwrap();
    one.kind = ResourceKind::Chassis;
    bench.refused(create(&one), RefusalKind::Conflict);
}

#[test]
fn a_change_based_on_an_older_record_is_stale() {
    let mut bench = RackBench::new();
    let kind = ResourceKind::Chassis;
    let chassis = fresh(1, kind);
    bench.order(create(&chassis)).unwrap();
    let view = bench.rack.view();
    let read = Resource::clone(&view.resources[&(kind, chassis.id)]);
    let mut changed = read.clone();
    changed.fields.insert("description".into(), json!("left"));
    let order = RackOrder::ReplaceResource {
        resource: Box::new(changed),
        based_on: read.revision,
    };
    bench.order(order.clone()).unwrap();
    bench.refused(order, RefusalKind::Stale);
    let bench = bench.restarted();
    let stored = &bench.rack.view().resources[&(kind, chassis.id)];
    assert_eq!(stored.text("description"), Some("left"));
}

#[test]
fn what_holds_something_stays() {
    let mut bench = RackBench::new();
    let id = bench.with_node(1);
    let chassis = fresh(1, ResourceKind::Chassis);
    let mut group = fresh(2, ResourceKind::PortGroup);
    group.node = Some(id);
    for resource in [&chassis, &group] {
        bench.order(create(resource)).unwrap();
    }
    let held = chassis.id.to_string();
    bench.force(id, |node| {
        node.attributes
            .set("chassis_uuid", Some(json!(held)))
            .unwrap();
    });
    let mut member = port(2, id);
    let held = group.id.to_string();
    member
        .attributes
        .set("portgroup_uuid", Some(json!(held)))
        .unwrap();
    bench
        .order(RackOrder::CreatePort(Box::new(member)))
        .unwrap();
    for (resource, message) in [(&chassis, "contains nodes."), (&group, "contains ports.")] {
        let order = RackOrder::DeleteResource(resource.kind, resource.id);
        let sentence = bench.refused(order, RefusalKind::Invalid);
        assert!(sentence.ends_with(message), "{sentence}");
    }
    bench.refused(
        RackOrder::DeleteResources(ResourceKind::Chassis),
        RefusalKind::Invalid,
    );
    // The node's own resources are deleted with it; the chassis is then empty.
    bench.order(RackOrder::DeleteNode(id)).unwrap();
    bench
        .order(RackOrder::DeleteResource(chassis.kind, chassis.id))
        .unwrap();
    assert!(bench.restarted().rack.view().resources.is_empty());
}

#[test]
fn all_of_a_kind_go_at_once() {
    let mut bench = RackBench::new();
    for number in 0..3 {
        let rule = fresh(number, ResourceKind::InspectionRule);
        bench.order(create(&rule)).unwrap();
    }
    let other = fresh(9, ResourceKind::Chassis);
    bench.order(create(&other)).unwrap();
    bench
        .order(RackOrder::DeleteResources(ResourceKind::InspectionRule))
        .unwrap();
    let view = bench.restarted().rack.view();
    assert_eq!(view.resources.len(), 1);
    assert!(view.resources.contains_key(&(other.kind, other.id)));
}

#[test]
fn what_belongs_to_no_node_is_refused() {
    let mut bench = RackBench::new();
    let mut target = fresh(1, ResourceKind::VolumeTarget);
    target.node = Some(NodeId::random(&mut SeededRandom::new(77)));
    bench.refused(create(&target), RefusalKind::Invalid);
    let id = bench.with_node(1);
    target.node = Some(id);
    target.fields.insert("boot_index".into(), json!(0));
    bench.order(create(&target)).unwrap();
    target.id = fresh(2, target.kind).id;
    let message = bench.refused(create(&target), RefusalKind::Conflict);
    assert!(
        message.contains("boot index '0' for the same node already"),
        "{message}"
    );
}

#[test]
fn a_portgroup_and_its_ports_are_in_one_physical_network() {
    let mut bench = RackBench::new();
    let id = bench.with_node(1);
    let mut group = fresh(2, ResourceKind::PortGroup);
    group.node = Some(id);
    bench.order(create(&group)).unwrap();
    let mut member = port(2, id);
    for (name, value) in [
        ("portgroup_uuid", json!(group.id.to_string())),
        ("physical_network", json!("net1")),
    ] {
        member.attributes.set(name, Some(value)).unwrap();
    }
    let made = RackOrder::CreatePort(Box::new(member.clone()));
    bench.order(made).unwrap();
    let key = (ResourceKind::PortGroup, group.id);
    let stored = |bench: &RackBench| Resource::clone(&bench.rack.view().resources[&key]);
    assert_eq!(stored(&bench).text("physical_network"), Some("net1"));
    // A change of the group is one of its ports too, and a restart keeps both.
    for network in [Some(json!("net2")), None] {
        let mut changed = stored(&bench);
        let based_on = changed.revision;
        match &network {
            Some(name) => drop(
                changed
                    .fields
                    .insert("physical_network".into(), name.clone()),
            ),
            None => drop(changed.fields.remove("physical_network")),
        }
        let resource = Box::new(changed);
        bench
            .order(RackOrder::ReplaceResource { resource, based_on })
            .unwrap();
        bench = bench.restarted();
        let fields = &bench.rack.view().ports[&member.id].attributes.extra_fields;
        assert_eq!(fields.get("physical_network"), network.as_ref());
        let group = stored(&bench);
        assert_eq!(group.fields.get("physical_network"), network.as_ref());
    }
}
