use super::*;
use crate::view::{NodeLiveState, Timeline};
use crate::{ProvisionState, ResourceId, SeededRandom, UnixMs};

fn view_of(node: Node) -> Arc<NodeView> {
    Arc::new(NodeView {
        node: Arc::new(node),
        ports: Vec::new(),
        resources: Vec::new(),
        live: NodeLiveState::default(),
        timeline: Timeline::new(),
        story: crate::story::NodeStoryView::default(),
    })
}

fn id(number: u64) -> NodeId {
    NodeId(Uuid::from_u128(u128::from(number)))
}

/// A node with random fields, many of them equal to those of others.
fn random(number: u64, seeded: &mut SeededRandom) -> Node {
    let mut node = Node::new(id(number), "ipmi", UnixMs(0));
    node.serial = seeded.below(8);
    node.name = seeded.chance(700).then(|| format!("node-{number}"));
    node.maintenance = seeded.chance(300);
    let states = ProvisionState::ALL;
    node.provision_state = states[seeded.below(3) as usize];
    if seeded.chance(500) {
        node.driver = "redfish".to_owned();
    }
    node.resource_class = seeded
        .chance(500)
        .then(|| format!("class-{}", seeded.below(3)));
    node.instance_uuid = seeded.chance(300).then(|| id(number + 1000).to_string());
    node.fault = seeded.chance(100).then(|| "power failure".to_owned());
    let mut text = |key: &str| {
        let set = seeded.chance(200);
        set.then(|| format!("{key}-{}", seeded.below(2)))
    };
    let attributes = &mut node.attributes;
    attributes.owner = text("owner");
    attributes.lessee = text("lessee");
    attributes.shard = text("shard");
    if seeded.chance(200) {
        attributes.chassis_uuid = Some(ResourceId(id(seeded.below(2)).0));
    }
    if seeded.chance(200) {
        attributes.parent_node = Some(id(seeded.below(2)));
    }
    attributes.retired = seeded.chance(200);
    node
}

fn entries(index: &FieldIndex) -> Vec<IndexEntry> {
    index.entries.iter().cloned().collect()
}

#[test]
fn nodes_restored_at_once_have_the_indexes_of_nodes_inserted_one_by_one() {
    let mut seeded = SeededRandom::new(37);
    for count in [0, 1, 2, 63, 64, 65, 1000] {
        let all: Vec<Node> = (0..count).map(|one| random(one, &mut seeded)).collect();
        let mut inserted = NodeIndex::default();
        for node in &all {
            inserted.insert(node.id, view_of(node.clone()));
        }
        let views = all.iter().rev();
        let views = views.map(|node| Arc::unwrap_or_clone(view_of(node.clone())));
        let mut restored = NodeIndex::restored(views);
        for step in 0..2 {
            assert!(restored.keys().eq(inserted.keys()), "{count} nodes");
            for (key, index) in NodeKey::ALL.iter().zip(&restored.indexes) {
                let want = &inserted.indexes[*key as usize];
                assert_eq!(
                    entries(index),
                    entries(want),
                    "{key:?}, {count} nodes, {step}"
                );
            }
            // And they accept changes as the others do.
            let node = random(count / 2, &mut seeded);
            inserted.insert(node.id, view_of(node.clone()));
            restored.insert(node.id, view_of(node));
            inserted.remove(&id(0));
            restored.remove(&id(0));
        }
    }
}

#[test]
fn equal_values_of_restored_nodes_are_in_memory_once() {
    let mut seeded = SeededRandom::new(38);
    let views = (0..100).map(|one| Arc::unwrap_or_clone(view_of(random(one, &mut seeded))));
    let restored = NodeIndex::restored(views);
    for entries in [NodeKey::Driver, NodeKey::ProvisionState, NodeKey::Owner]
        .map(|key| entries(&restored.indexes[key as usize]))
    {
        for pair in entries
            .windows(2)
            .filter(|pair| pair[0].value == pair[1].value)
        {
            if let (Some(one), Some(other)) = (&pair[0].value, &pair[1].value) {
                assert!(Arc::ptr_eq(one, other), "{one}");
            }
        }
    }
}

#[test]
fn after_any_changes_the_indexes_are_those_of_the_nodes_computed_afresh() {
    let mut seeded = SeededRandom::new(36);
    let mut nodes = NodeIndex::default();
    for step in 0..2000 {
        let number = seeded.below(60);
        match seeded.below(3) {
            0 => drop(nodes.remove(&id(number))),
            1 => nodes.change(id(number), |view| {
                let serial = view.node.serial;
                view.node = Arc::new(Node {
                    serial,
                    ..random(number, &mut seeded)
                });
            }),
            _ => drop(nodes.insert(id(number), view_of(random(number, &mut seeded)))),
        }
        if step % 50 != 0 {
            continue;
        }
        for (key, index) in NodeKey::ALL.iter().zip(&nodes.indexes) {
            let placed = nodes.values().filter_map(|view| {
                let place = key.position(&view.node)?;
                Some(place.entry(view.node.id.0))
            });
            let mut fresh: Vec<IndexEntry> = placed.collect();
            fresh.sort();
            assert_eq!(entries(index), fresh, "{key} after {step} steps");
        }
    }
}

#[test]
fn a_walk_is_the_sorted_list_from_behind_its_start_in_both_directions() {
    let mut seeded = SeededRandom::new(3);
    let mut nodes = NodeIndex::default();
    for number in 0..200 {
        nodes.insert(id(number), view_of(random(number, &mut seeded)));
    }
    for key in NodeKey::ALL.iter().filter(|key| key.sorts()) {
        let place = |node: &Node| (key.value(node).map(Cow::into_owned), node.serial, node.id);
        let mut sorted: Vec<_> = nodes.values().map(|view| place(&view.node)).collect();
        sorted.sort();
        for descending in [false, true] {
            if descending {
                sorted.reverse();
            }
            let start = nodes
                .walk(*key, IndexRange::All, None, descending)
                .nth(49)
                .unwrap();
            let start = &*start.node;
            let walk = nodes.walk(*key, IndexRange::All, Some(start), descending);
            let walked: Vec<_> = walk.map(|view| place(&view.node)).collect();
            assert_eq!(walked, sorted[50..], "{key}");
        }
    }
}

#[test]
fn a_walk_along_one_value_has_the_nodes_with_it_in_order_of_creation() {
    let mut seeded = SeededRandom::new(4);
    let mut nodes = NodeIndex::default();
    for number in 0..100 {
        nodes.insert(id(number), view_of(random(number, &mut seeded)));
    }
    for class in [None, Some("class-1"), Some("class-9")] {
        let of_class = |view: &&Arc<NodeView>| view.node.resource_class.as_deref() == class;
        let mut want: Vec<_> = nodes.values().filter(of_class).collect();
        want.sort_by_key(|view| (view.node.serial, view.node.id));
        let want: Vec<NodeId> = want.into_iter().map(|view| view.node.id).collect();
        let walk = nodes.walk(
            NodeKey::ResourceClass,
            IndexRange::Value(class),
            None,
            false,
        );
        let walked: Vec<NodeId> = walk.map(|view| view.node.id).collect();
        assert_eq!(walked, want, "{class:?}");
    }
    let given = nodes.walk(NodeKey::InstanceUuid, IndexRange::WithValue, None, false);
    let with = nodes
        .values()
        .filter(|view| view.node.instance_uuid.is_some());
    assert_eq!(given.count(), with.count());
}

#[test]
fn equal_values_are_in_memory_once() {
    let mut nodes = NodeIndex::default();
    for number in 0..3 {
        nodes.insert(
            id(number),
            view_of(Node::new(id(number), "ipmi", UnixMs(0))),
        );
    }
    let drivers = entries(&nodes.indexes[NodeKey::Driver as usize]);
    let [one, two, three] = &drivers[..] else {
        panic!("{drivers:?}");
    };
    let text = |entry: &IndexEntry| entry.value.clone().unwrap();
    assert!(Arc::ptr_eq(&text(one), &text(two)));
    assert!(Arc::ptr_eq(&text(two), &text(three)));
}
