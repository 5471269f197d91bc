//! Which node an allocation gets, what frees the node, and that no node is allocated twice.

use super::*;
use trivet_model::{PowerState, Resource, ResourceId, ResourceKind};

const KIND: ResourceKind = ResourceKind::Allocation;

/// A defect of a node, and the change that causes it.
type NodeDefect = (&'static str, fn(&mut Node));

/// An allocation of class `big`.
fn wants(number: u64) -> Resource {
    let id = ResourceId::random(&mut SeededRandom::new(500 + number));
    let mut allocation = Resource::new(id, KIND, UnixMs(1));
    let class = json!("big");
    allocation.fields.insert("resource_class".into(), class);
    allocation
}

impl RackBench {
    /// An available node of class `big`.
    fn with_free(&mut self, number: u8) -> NodeId {
        let id = self.with_node(number);
        self.force(id, |node| {
            node.provision_state = ProvisionState::Available;
            node.power_state = Some(PowerState::Off);
            node.resource_class = Some("big".into());
        });
        id
    }

    fn allocates(&mut self, allocation: Resource) -> Resource {
        let id = allocation.id;
        self.order(RackOrder::CreateResource(Box::new(allocation)))
            .unwrap();
        self.allocation(id).unwrap()
    }

    fn allocation(&self, id: ResourceId) -> Option<Resource> {
        let view = self.rack.view();
        view.resources.get(&(KIND, id)).map(|one| (**one).clone())
    }

    fn frees(&mut self, id: ResourceId) -> Result<OrderOutcome, OrderRefusal> {
        self.order(RackOrder::DeleteResource(KIND, id))
    }

    /// Checks that nodes and allocations name each other, one to one.
    #[track_caller]
    fn agrees(&self) {
        let view = self.rack.view();
        for allocation in view.resources_of(KIND) {
            let active = allocation.text("state") == Some("active");
            assert_eq!(active, allocation.node.is_some(), "{allocation:?}");
            let Some(node) = allocation.node else {
                assert!(allocation.text("last_error").is_some());
                continue;
            };
            let node = &view.nodes[&node].node;
            let id = allocation.id.to_string();
            assert_eq!(node.instance_uuid.as_deref(), Some(id.as_str()));
            assert_eq!(node.attributes.allocation_uuid, Some(allocation.id));
        }
        for node in view.nodes.values() {
            let Some(id) = node.node.attributes.allocation_uuid else {
                continue;
            };
            assert_eq!(view.resources[&(KIND, id)].node, Some(node.node.id));
            assert!(node.resources.contains(&(KIND, id)));
        }
    }
}

#[test]
fn the_oldest_node_that_fits_is_given_and_stays_given_over_a_restart() {
    let mut bench = RackBench::new();
    let (one, two) = (bench.with_free(1), bench.with_free(2));
    let first = bench.allocates(wants(1));
    assert_eq!(first.node, Some(one));
    assert_eq!(first.text("state"), Some("active"));
    assert_eq!(bench.node(one).instance_info["traits"], json!([]));
    assert_eq!(bench.allocates(wants(2)).node, Some(two));
    bench.agrees();
    let bench = bench.restarted();
    bench.agrees();
    assert_eq!(bench.allocation(first.id), Some(first));
}

#[test]
fn a_namesake_comes_before_older_nodes() {
    let mut bench = RackBench::new();
    bench.with_free(1);
    let two = bench.with_free(2);
    let mut allocation = wants(1);
    allocation.name = Some("node-2".into());
    assert_eq!(bench.allocates(allocation).node, Some(two));
}

#[test]
fn an_unsuitable_node_is_not_allocated() {
    let spoils: [NodeDefect; 8] = [
        ("state", |node| {
            node.provision_state = ProvisionState::Manageable;
        }),
        ("maintenance", |node| node.maintenance = true),
        ("instance", |node| node.instance_uuid = Some("x".into())),
        ("class", |node| node.resource_class = None),
        ("power", |node| node.power_state = None),
        ("retired", |node| {
            node.attributes.retired = true;
        }),
        ("protected", |node| {
            node.attributes.protected = true;
        }),
        ("owner", |_| {}),
    ];
    for (what, spoil) in spoils {
        let mut bench = RackBench::new();
        let id = bench.with_free(1);
        bench.force(id, spoil);
        let mut allocation = wants(1);
        if what == "owner" {
            allocation.fields.insert("owner".into(), json!("somebody"));
        }
        let allocation = bench.allocates(allocation);
        let why = format!(
            "Failed to process allocation {}: no available nodes match the resource class big.",
            allocation.id
        );
        assert_eq!(allocation.text("state"), Some("error"), "{what}");
        assert_eq!(allocation.text("last_error"), Some(why.as_str()), "{what}");
        assert_eq!(bench.node(id).attributes.allocation_uuid, None);
        bench.agrees();
        // It may be deleted, and the node is not changed.
        let before = bench.node(id);
        bench.frees(allocation.id).unwrap();
        assert_eq!(bench.node(id), before);
    }
}

#[test]
fn traits_candidates_and_owners_narrow_the_choice() {
    let mut bench = RackBench::new();
    let (_, two, three) = (bench.with_free(1), bench.with_free(2), bench.with_free(3));
    bench.force(three, |node| {
        node.attributes
            .set("traits", Some(json!(["CUSTOM_GPU", "X"])))
            .unwrap();
        node.attributes
            .set("lessee", Some(json!("somebody")))
            .unwrap();
    });
    let mut gpu = wants(1);
    gpu.fields.insert("traits".into(), json!(["CUSTOM_GPU"]));
    let mut named = wants(2);
    let candidates = json!([two.to_string(), three.to_string()]);
    named.fields.insert("candidate_nodes".into(), candidates);
    let mut allocation = wants(3);
    allocation.fields.insert("owner".into(), json!("somebody"));
    let allocation = bench.allocates(allocation);
    assert_eq!(allocation.node, Some(three));
    bench.frees(allocation.id).unwrap();
    assert_eq!(bench.allocates(named.clone()).node, Some(two));
    let gpu = bench.allocates(gpu);
    assert_eq!(gpu.node, Some(three));
    assert_eq!(
        bench.node(three).instance_info["traits"],
        json!(["CUSTOM_GPU"])
    );
    named.id = wants(4).id;
    let why = bench.allocates(named);
    let why = why.text("last_error").unwrap();
    assert!(
        why.contains("none of the requested nodes are available"),
        "{why}"
    );
    let mut strange = wants(5);
    strange.fields.insert("traits".into(), json!(["CUSTOM_X"]));
    let why = bench.allocates(strange);
    let why = why.text("last_error").unwrap();
    assert!(why.contains("requested traits CUSTOM_X"), "{why}");
    bench.agrees();
}

#[test]
fn a_node_in_use_is_not_freed_unless_in_maintenance() {
    let mut bench = RackBench::new();
    let id = bench.with_free(1);
    let allocation = bench.allocates(wants(1)).id;
    for (state, target) in [
        (ProvisionState::Active, None),
        (ProvisionState::Deploying, Some(ProvisionState::Active)),
    ] {
        bench.force(id, |node| {
            node.provision_state = state;
            node.target_provision_state = target;
        });
        let refusal = bench.frees(allocation).unwrap_err();
        assert_eq!(refusal.kind, RefusalKind::Conflict);
        assert!(
            refusal.sentence.contains("maintenance mode is off"),
            "{refusal}"
        );
        bench.agrees();
    }
    bench.force(id, |node| node.maintenance = true);
    bench.frees(allocation).unwrap();
    assert_eq!(bench.node(id).instance_uuid, None);
    assert_eq!(bench.allocation(allocation), None);
    bench.agrees();
    assert!(bench.restarted().rack.view().resources.is_empty());
}

#[test]
fn the_end_of_the_instance_or_of_the_node_is_the_end_of_the_allocation() {
    let ends: [fn(&mut RackBench, NodeId); 3] = [
        |bench, id| {
            // As after tearing down.
            bench.force(id, |node| node.instance_uuid = None);
        },
        |bench, id| {
            let mut node = bench.node(id);
            let based_on = node.revision;
            node.instance_uuid = None;
            let node = Box::new(node);
            bench
                .order(RackOrder::ReplaceNode { node, based_on })
                .unwrap();
        },
        |bench, id| {
            bench.force(id, |node| node.maintenance = true);
            bench.order(RackOrder::DeleteNode(id)).unwrap();
        },
    ];
    for end in ends {
        let mut bench = RackBench::new();
        let id = bench.with_free(1);
        let allocation = bench.allocates(wants(1)).id;
        end(&mut bench, id);
        assert_eq!(bench.allocation(allocation), None);
        bench.agrees();
        let bench = bench.restarted();
        assert_eq!(bench.allocation(allocation), None);
        bench.agrees();
    }
}

#[test]
fn a_patch_does_not_free_a_node_in_use() {
    let mut bench = RackBench::new();
    let id = bench.with_free(1);
    bench.allocates(wants(1));
    bench.force(id, |node| node.provision_state = ProvisionState::Active);
    let mut node = bench.node(id);
    let based_on = node.revision;
    node.instance_uuid = None;
    let node = Box::new(node);
    let message = bench.refused(
        RackOrder::ReplaceNode { node, based_on },
        RefusalKind::Conflict,
    );
    assert!(message.contains("with an allocation"), "{message}");
    bench.agrees();
}

#[test]
fn backfilling_records_the_existing_instance() {
    let mut bench = RackBench::new();
    let id = bench.with_free(1);
    let mut allocation = wants(1);
    allocation.node = Some(id);
    let order = RackOrder::CreateResource(Box::new(allocation.clone()));
    let message = bench.refused(order.clone(), RefusalKind::Invalid);
    assert!(
        message.contains("must be in the \"active\" state"),
        "{message}"
    );
    bench.force(id, |node| {
        node.provision_state = ProvisionState::Active;
        node.instance_uuid = Some("somebody".into());
    });
    bench.refused(order.clone(), RefusalKind::Conflict);
    assert_eq!(bench.allocation(allocation.id), None);
    let instance = allocation.id.to_string();
    bench.force(id, |node| node.instance_uuid = Some(instance));
    bench.order(order).unwrap();
    assert_eq!(bench.allocation(allocation.id).unwrap().node, Some(id));
    bench.agrees();
    let mut again = wants(2);
    again.node = Some(id);
    bench.refused(
        RackOrder::CreateResource(Box::new(again)),
        RefusalKind::Conflict,
    );
}

/// Orders in one batch compete for few nodes, with deletions between; for every seed, nodes and
/// allocations agree after every batch and after a restart.
#[test]
fn no_node_is_allocated_twice() {
    for seed in 0..60 {
        let mut chance = SeededRandom::new(seed);
        let mut bench = RackBench::new();
        let nodes = 1 + chance.below(4);
        for number in 0..nodes {
            bench.with_free(1 + number as u8);
        }
        let mut made: Vec<ResourceId> = Vec::new();
        for round in 0..12 {
            let mut outbox = Outbox::default();
            for at in 0..=chance.below(4) {
                let order = if chance.chance(350) && !made.is_empty() {
                    let at = chance.below(made.len() as u64) as usize;
                    RackOrder::DeleteResource(KIND, made.swap_remove(at))
                } else {
                    let allocation = wants(seed * 10_000 + round * 100 + at);
                    made.push(allocation.id);
                    RackOrder::CreateResource(Box::new(allocation))
                };
                let input = RackInput::Order {
                    ticket: at,
                    caller: caller(),
                    order,
                };
                bench.rack.handle(bench.now, input, &mut outbox);
            }
            bench.rack.take_changes(&mut outbox);
            make_durable(&mut bench.store, &outbox.changes).unwrap();
            bench.agrees();
            if chance.chance(200) {
                bench = bench.restarted();
                bench.agrees();
            }
        }
        let view = bench.rack.view();
        let given = view.resources_of(KIND).filter(|one| one.node.is_some());
        assert!(given.count() as u64 <= nodes, "seed {seed}");
    }
}
