//! Records are created, replaced and deleted; verbs change the state of nodes.

use super::*;

#[test]
fn names_addresses_and_identities_are_unique() {
    let mut bench = RackBench::new();
    let id = bench.with_node(1);
    bench.refused(
        RackOrder::CreateNode(Box::new(node(1))),
        RefusalKind::Conflict,
    );
    let mut duplicate = node(2);
    duplicate.name = Some("node-1".into());
    let message = bench.refused(
        RackOrder::CreateNode(Box::new(duplicate)),
        RefusalKind::Conflict,
    );
    assert!(message.contains("node-1"), "{message}");
    let mut other = port(2, id);
    other.address = MAC;
    let message = bench.refused(
        RackOrder::CreatePort(Box::new(other)),
        RefusalKind::Conflict,
    );
    let owner = format!("It belongs to node node-1 ({id}).");
    assert!(message.ends_with(&owner), "{message}");
    let orphan = port(3, NodeId::random(&mut SeededRandom::new(9)));
    bench.refused(
        RackOrder::CreatePort(Box::new(orphan)),
        RefusalKind::Invalid,
    );
}

#[test]
fn a_hardware_type_that_is_off_is_refused_by_name() {
    let mut bench = RackBench::new();
    let mut strange = node(1);
    strange.driver = "redfish".into();
    let message = bench.refused(
        RackOrder::CreateNode(Box::new(strange)),
        RefusalKind::Invalid,
    );
    assert!(
        message.contains("redfish") && message.contains("ipmi"),
        "{message}"
    );
}

#[test]
fn a_change_based_on_an_older_record_is_stale() {
    let mut bench = RackBench::new();
    let id = bench.with_node(1);
    let read = bench.node(id);
    let mut changed = read.clone();
    changed.extra.insert("rack".into(), json!(7));
    let order = RackOrder::ReplaceNode {
        node: Box::new(changed),
        based_on: read.revision,
    };
    bench.order(order.clone()).unwrap();
    assert_eq!(bench.node(id).revision, read.revision + 1);
    bench.refused(order, RefusalKind::Stale);
}

#[test]
fn a_renamed_node_leaves_its_old_name_free() {
    let mut bench = RackBench::new();
    let id = bench.with_node(1);
    let mut renamed = bench.node(id);
    renamed.name = Some("new".into());
    let based_on = renamed.revision;
    let order = RackOrder::ReplaceNode {
        node: Box::new(renamed),
        based_on,
    };
    bench.order(order).unwrap();
    let view = bench.rack.view();
    assert!(view.node("node-1").is_none() && view.node("new").is_some());
}

#[test]
fn a_node_goes_with_its_ports_unless_it_is_in_use() {
    let mut bench = RackBench::new();
    let id = bench.with_node(1);
    bench.force(id, |node| node.provision_state = ProvisionState::Active);
    let message = bench.refused(RackOrder::DeleteNode(id), RefusalKind::Conflict);
    assert!(message.contains("maintenance"), "{message}");
    bench.force(id, |node| node.provision_state = ProvisionState::Enroll);
    bench.order(RackOrder::DeleteNode(id)).unwrap();
    let bench = bench.restarted();
    let view = bench.rack.view();
    assert!(view.nodes.is_empty() && view.ports.is_empty() && view.macs.is_empty());
}

#[test]
fn a_port_of_a_busy_node_stays() {
    let (mut bench, id) = RackBench::inspecting();
    bench.refused(RackOrder::DeletePort(port(1, id).id), RefusalKind::Conflict);
    bench.verb(id, Verb::Abort).unwrap();
    bench.order(RackOrder::DeletePort(port(1, id).id)).unwrap();
    bench.refused(RackOrder::DeletePort(port(1, id).id), RefusalKind::NotFound);
}

#[test]
fn a_verb_that_the_table_forbids_changes_nothing() {
    let mut bench = RackBench::new();
    let id = bench.with_node(1);
    let before = bench.node(id);
    let refusal = bench.verb(id, Verb::Active).unwrap_err();
    assert!(refusal.sentence.contains("enroll"), "{refusal}");
    assert_eq!(bench.node(id), before);
}

#[test]
fn an_image_of_the_catalogue_brings_its_own_digest() {
    let mut bench = RackBench::new();
    let id = bench.with_node(1);
    bench.force(id, |node| {
        node.provision_state = ProvisionState::Available;
        node.instance_info
            .insert("image_source".into(), json!("disk.raw"));
    });
    bench.verb(id, Verb::Active).unwrap();
    let node = bench.node(id);
    let job = node.job.unwrap();
    assert_eq!(job.steps[0].step, "write_image");
    assert_eq!(
        job.steps[0].args,
        json!({}),
        "they are written when it is sent"
    );
    let image = &bench.write_args(id)["image_info"];
    assert_eq!(image["urls"][0], "http://10.0.0.1:8080/images/disk.raw");
    assert_eq!(image["os_hash_value"], "07".repeat(32));
}

#[test]
fn an_image_from_elsewhere_without_digest_is_refused() {
    let mut bench = RackBench::new();
    let id = bench.with_node(1);
    bench.force(id, |node| {
        node.provision_state = ProvisionState::Available;
        node.instance_info
            .insert("image_source".into(), json!("http://x/disk.raw"));
    });
    let before = bench.node(id);
    let refusal = bench.verb(id, Verb::Active).unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::Invalid);
    assert_eq!(bench.node(id), before);
}

/// `trivet node rebuild --image X` on an active node, refused and accepted.
#[test]
fn a_refused_verb_does_not_change_instance_info() {
    let mut bench = RackBench::new();
    let id = bench.with_node(1);
    bench.force(id, |node| {
        node.provision_state = ProvisionState::Active;
        node.instance_info
            .insert("image_source".into(), json!("disk.raw"));
    });
    let before = bench.node(id);
    let rebuild = |image: &str, verb: Verb| {
        let mut info = before.instance_info.clone();
        info.insert("image_source".to_owned(), json!(image));
        RackOrder::Provision {
            node: id,
            verb,
            args: VerbArgs {
                instance_info: Some(info),
                ..VerbArgs::default()
            },
            based_on: Some(before.revision),
        }
    };
    // An image without a digest, and a verb that the state does not allow.
    let unknown = rebuild("http://x/disk.raw", Verb::Rebuild);
    bench.refused(unknown, RefusalKind::Invalid);
    bench.order(rebuild("other.raw", Verb::Deploy)).unwrap_err();
    assert_eq!(bench.node(id), before);
    let mut known = before.instance_info.clone();
    known.insert("display_name".to_owned(), json!("web"));
    let order = RackOrder::Provision {
        node: id,
        verb: Verb::Rebuild,
        args: VerbArgs {
            instance_info: Some(known),
            ..VerbArgs::default()
        },
        based_on: Some(before.revision),
    };
    bench.order(order).unwrap();
    assert_eq!(bench.node(id).instance_info["display_name"], "web");
}

#[test]
fn maintenance_ends_with_its_fault() {
    let mut bench = RackBench::new();
    let node = bench.with_node(1);
    bench.force(node, |node| node.fault = Some("clean failure".into()));
    for on in [true, false] {
        let reason = on.then(|| "fan".to_owned());
        let order = RackOrder::Maintenance { node, on, reason };
        bench.order(order).unwrap();
        let found = bench.node(node);
        assert_eq!((found.maintenance, found.fault.is_some()), (on, on));
    }
    let nobody = NodeId::random(&mut SeededRandom::new(77));
    bench.refused(RackOrder::DeleteNode(nobody), RefusalKind::NotFound);
}

#[test]
fn a_full_box_refuses_new_records() {
    let mut bench = RackBench::new();
    bench.with_node(1);
    let known = bench.node(node(1).id);
    for number in 0..crate::NODES_MAX as u64 {
        let mut node = known.clone();
        node.id = NodeId::random(&mut SeededRandom::new(1000 + number));
        node.name = None;
        bench.rack.records.put_node(bench.now, node);
    }
    let order = RackOrder::CreateNode(Box::new(node(2)));
    let mut outbox = Outbox::default();
    let input = RackInput::Order {
        ticket: 1,
        caller: caller(),
        order,
    };
    bench.rack.handle(bench.now, input, &mut outbox);
    let refused = outbox.outputs.iter().any(|output| {
        matches!(output, RackOutput::Reply { result: Err(no), .. }
            if no.kind == RefusalKind::Unavailable)
    });
    assert!(refused);
}

fn timeline(bench: &RackBench, id: NodeId) -> Vec<String> {
    let view = bench.rack.view();
    let notes = &view.nodes.get(&id).unwrap().timeline;
    notes.iter().map(|note| note.kind.to_string()).collect()
}

/// The timeline has the caller's order before its results, and the log line names a node that
/// is deleted by then.
#[test]
fn the_order_is_noted_before_its_results() {
    let mut bench = RackBench::new();
    let id = bench.with_node(1);
    bench.verb(id, Verb::Manage).unwrap();
    let notes = timeline(&bench, id);
    let by = "requested by ann at 127.0.0.1 (PUT /v1/x, req-1)";
    assert_eq!(notes[0], format!("create node, {by}"));
    assert_eq!(notes[1], format!("create port, {by}"));
    assert_eq!(notes[2], format!("manage, {by}"));
    assert_eq!(notes[3], "enroll -> verifying");
    assert_eq!(bench.notes()[0], notes[2], "the log has the same order");

    bench.force(id, |node| {
        node.provision_state = ProvisionState::Manageable;
        node.job = None;
    });
    bench.order(RackOrder::DeleteNode(id)).unwrap();
    let Some(RackOutput::Note { note, label }) = bench.outputs.first() else {
        panic!("{:?}", bench.outputs)
    };
    assert_eq!(note.kind.to_string(), format!("delete node, {by}"));
    assert_eq!(label.as_deref(), Some("node-1"));
}

#[test]
fn what_is_refused_is_noted_with_its_reason_and_what_is_stale_is_not() {
    let mut bench = RackBench::new();
    let id = bench.with_node(1);
    let before = timeline(&bench, id).len();
    bench.verb(id, Verb::Provide).unwrap_err();
    let notes = timeline(&bench, id);
    assert_eq!(notes.len(), before + 1);
    assert!(notes[before].starts_with("provide refused, requested by ann at"));
    assert!(notes[before].contains("enroll"), "{}", notes[before]);
    bench.refused(
        RackOrder::ReplaceNode {
            node: Box::new(bench.node(id)),
            based_on: 99,
        },
        RefusalKind::Stale,
    );
    assert_eq!(timeline(&bench, id), notes);
    let unknown = NodeId::random(&mut SeededRandom::new(77));
    bench.refused(RackOrder::DeleteNode(unknown), RefusalKind::NotFound);
    assert!(bench.notes()[0].starts_with("delete node refused"));
}

#[test]
fn a_heartbeat_is_not_noted_as_an_order_and_the_timeline_has_its_bound() {
    let (mut bench, id) = RackBench::inspecting();
    let found = bench.lookup().unwrap();
    let heartbeat = AgentHeartbeat {
        callback_url: "http://10.0.0.100:9999".into(),
        agent_token: Some(found.agent_token),
        ..AgentHeartbeat::default()
    };
    bench
        .order(RackOrder::Heartbeat {
            node: id,
            heartbeat,
        })
        .unwrap();
    assert!(
        !bench
            .notes()
            .iter()
            .any(|note| note.contains("requested by"))
    );
    for number in 0..2 * trivet_model::view::TIMELINE_NOTES_MAX {
        let order = RackOrder::Maintenance {
            node: id,
            on: number % 2 == 0,
            reason: None,
        };
        bench.order(order).unwrap();
    }
    let notes = timeline(&bench, id);
    assert_eq!(notes.len(), trivet_model::view::TIMELINE_NOTES_MAX);
    assert!(notes.iter().all(|note| note.starts_with("maintenance o")));
}

#[test]
fn a_port_that_goes_is_noted_with_its_node() {
    let mut bench = RackBench::new();
    let id = bench.with_node(1);
    bench.order(RackOrder::DeletePort(port(1, id).id)).unwrap();
    let last = timeline(&bench, id).pop().unwrap();
    assert!(last.starts_with("delete port, requested by ann"), "{last}");
}
