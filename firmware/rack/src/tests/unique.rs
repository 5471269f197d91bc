//! Values that only one record may have, and their indexes.

use super::*;

const INSTANCE: &str = "00000000-0000-4000-8000-0000000000aa";

fn replaced(
    bench: &mut RackBench,
    id: NodeId,
    change: impl FnOnce(&mut Node),
) -> Result<OrderOutcome, OrderRefusal> {
    let mut node = bench.node(id);
    let based_on = node.revision;
    change(&mut node);
    let node = Box::new(node);
    bench.order(RackOrder::ReplaceNode { node, based_on })
}

#[test]
fn one_instance_is_on_one_node_and_moves_when_it_is_free() {
    let mut bench = RackBench::new();
    let one = bench.with_node(1);
    bench
        .order(RackOrder::CreateNode(Box::new(node(2))))
        .unwrap();
    let two = node(2).id;
    let takes = |node: &mut Node| node.instance_uuid = Some(INSTANCE.into());
    replaced(&mut bench, one, takes).unwrap();
    let refusal = replaced(&mut bench, two, takes).unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::Conflict);
    assert!(refusal.sentence.contains(INSTANCE), "{refusal}");
    let mut third = node(3);
    third.instance_uuid = Some(INSTANCE.into());
    bench.refused(
        RackOrder::CreateNode(Box::new(third)),
        RefusalKind::Conflict,
    );
    replaced(&mut bench, one, |node| node.instance_uuid = None).unwrap();
    replaced(&mut bench, two, takes).unwrap();
    let bench = bench.restarted();
    assert_eq!(bench.rack.view().instances.get(INSTANCE), Some(&two));
}

#[test]
fn a_change_does_not_take_the_bmc_of_a_younger_node_and_two_can_be_swapped() {
    let mut bench = RackBench::new();
    let (one, two) = (bench.with_node(1), bench.with_node(2));
    let (first, second) = (bench.node(one).driver_info, bench.node(two).driver_info);
    let names_second = |node: &mut Node| node.driver_info.clone_from(&second);
    let refusal = replaced(&mut bench, one, names_second).unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::Conflict);
    assert!(
        refusal
            .sentence
            .contains("another node has the same ipmi_address")
    );
    assert!(refusal.sentence.contains("node-2"), "{refusal}");
    assert_eq!(bench.node(one).driver_info, first);
    // Other changes of either record are accepted.
    replaced(&mut bench, one, |node| node.name = Some("renamed".into())).unwrap();
    // The younger node may name the BMC of the older one, and has a fault meanwhile.
    replaced(&mut bench, two, |node| node.driver_info.clone_from(&first)).unwrap();
    assert_eq!(bench.rack.view().faults.len(), 1);
    replaced(&mut bench, one, names_second).unwrap();
    assert!(bench.rack.view().faults.is_empty());
}

#[test]
fn an_instance_is_free_when_its_node_is_gone() {
    let mut bench = RackBench::new();
    let id = bench.with_node(1);
    bench.force(id, |node| {
        node.instance_uuid = Some(INSTANCE.into());
        node.maintenance = true;
    });
    bench.order(RackOrder::DeleteNode(id)).unwrap();
    assert!(bench.rack.view().instances.is_empty());
}

#[test]
fn names_of_ports_are_unique_and_follow_a_change() {
    let mut bench = RackBench::new();
    let id = bench.with_node(1);
    let mut named = port(1, id);
    named.attributes.set("name", Some(json!("left"))).unwrap();
    let based_on = bench.rack.view().ports[&named.id].revision;
    let order = |port: Port, based_on| RackOrder::ReplacePort {
        port: Box::new(port),
        based_on,
    };
    named.revision = based_on;
    bench.order(order(named.clone(), based_on)).unwrap();
    let mut other = port(2, id);
    other.attributes.set("name", Some(json!("left"))).unwrap();
    bench.refused(
        RackOrder::CreatePort(Box::new(other)),
        RefusalKind::Conflict,
    );
    assert!(bench.rack.view().port("left").is_some());
    let mut renamed = Port::clone(&bench.rack.view().ports[&named.id]);
    renamed
        .attributes
        .set("name", Some(json!("right")))
        .unwrap();
    let based_on = renamed.revision;
    bench.order(order(renamed, based_on)).unwrap();
    let view = bench.rack.view();
    assert!(view.port("left").is_none() && view.port("right").is_some());
}

#[test]
fn a_chassis_and_a_portgroup_that_are_not_there_are_refused() {
    let mut bench = RackBench::new();
    let id = bench.with_node(1);
    let message = replaced(&mut bench, id, |node| {
        node.attributes
            .set("chassis_uuid", Some(json!(INSTANCE)))
            .unwrap();
    });
    assert_eq!(message.unwrap_err().kind, RefusalKind::Invalid);
    let mut bonded = port(2, id);
    bonded
        .attributes
        .set("portgroup_uuid", Some(json!(INSTANCE)))
        .unwrap();
    bench.refused(
        RackOrder::CreatePort(Box::new(bonded)),
        RefusalKind::Invalid,
    );
}
