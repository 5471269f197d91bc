//! Lookup, heartbeats, inspection data.

use trivet_model::secret::MASK;

use super::*;

fn heartbeat(node: NodeId, token: &str) -> RackOrder {
    RackOrder::Heartbeat {
        node,
        heartbeat: heartbeat_with(token),
    }
}

#[test]
fn a_token_is_sent_once_per_boot() {
    let (mut bench, id) = RackBench::inspecting();
    let first = bench.lookup().unwrap();
    assert_eq!(first.node, id);
    assert_ne!(first.agent_token, MASK);
    assert_eq!(bench.lookup().unwrap().agent_token, MASK);
    assert_eq!(
        bench.order(heartbeat(id, &first.agent_token)),
        Ok(OrderOutcome::Stored)
    );
    let mut bench = bench.restarted();
    assert_eq!(bench.lookup().unwrap().agent_token, MASK);
}

/// A box that loses power right after the commit of a token does not know whether the reply
/// arrived. An agent that did not receive it repeats its lookup and hangs for ever on the mask;
/// one that did receive it sends heartbeats with it and no further lookup.
#[test]
fn a_token_that_may_be_lost_with_the_box_is_followed_by_another_and_either_counts_once() {
    for arrived in [true, false] {
        let (mut bench, id) = RackBench::inspecting();
        let first = bench.lookup().unwrap().agent_token;
        let mut bench = bench.restarted();
        let second = bench.lookup().unwrap().agent_token;
        assert!(second != MASK && second != first);
        assert_eq!(bench.lookup().unwrap().agent_token, MASK);
        let (used, unused) = if arrived {
            (first, second)
        } else {
            (second, first)
        };
        assert_eq!(bench.order(heartbeat(id, &used)), Ok(OrderOutcome::Stored));
        assert!(bench.order(heartbeat(id, &unused)).is_err());
        assert_eq!(bench.order(heartbeat(id, &used)), Ok(OrderOutcome::Stored));
    }
}

#[test]
fn a_lookup_finds_nothing_unless_an_agent_is_awaited() {
    let mut bench = RackBench::new();
    bench.with_node(1);
    let unknown = bench.lookup().unwrap_err();
    let order = RackOrder::Lookup {
        addresses: vec![MacAddr([9; 6])],
        node: None,
    };
    assert_eq!(bench.order(order).unwrap_err(), unknown);
}

#[test]
fn a_lookup_with_addresses_of_two_nodes_finds_neither() {
    let (mut bench, _) = RackBench::inspecting();
    bench.with_node(2);
    let order = RackOrder::Lookup {
        addresses: vec![MAC, MacAddr([0x52, 0x54, 0, 0, 0, 2])],
        node: None,
    };
    bench.refused(order.clone(), RefusalKind::NotFound);
    // Both nodes' timelines have the note, at most once per interval.
    let reported = |bench: &RackBench| {
        let notes = bench.notes().into_iter();
        notes.filter(|note| note.contains("another one")).count()
    };
    assert_eq!(reported(&bench), 2);
    bench.refused(order, RefusalKind::NotFound);
    assert_eq!(reported(&bench), 0);
}

#[test]
fn beats_without_the_token_or_from_elsewhere_are_refused() {
    let (mut bench, node) = RackBench::inspecting();
    let early = RackOrder::Heartbeat {
        node,
        heartbeat: heartbeat_with("x"),
    };
    bench.refused(early, RefusalKind::Invalid);
    let token = bench.lookup().unwrap().agent_token;
    let good = heartbeat_with(&token);
    let taken = RackOrder::Heartbeat {
        node,
        heartbeat: good.clone(),
    };
    bench.order(taken).unwrap();
    let mut wrong = vec![good.clone(), good.clone(), good.clone(), good];
    wrong[0].agent_token = None;
    wrong[1].agent_token = Some(token[1..].to_owned());
    wrong[2].callback_url = "http://10.9.9.9:9999".into();
    wrong[3].agent_verify_ca = Some("another".into());
    for heartbeat in wrong {
        let before = bench.node(node);
        bench.refused(
            RackOrder::Heartbeat { node, heartbeat },
            RefusalKind::Invalid,
        );
        assert_eq!(bench.node(node), before);
        assert!(bench.notes()[0].starts_with("caller refused"));
        bench.now.tick = bench.now.tick.after_ms(60_000);
    }
    // Repeated refusals do not fill the timeline.
    for many in 0..3 {
        let heartbeat = heartbeat_with("x");
        bench.refused(
            RackOrder::Heartbeat { node, heartbeat },
            RefusalKind::Invalid,
        );
        assert_eq!(bench.notes().len(), usize::from(many == 0));
    }
}

#[test]
fn inspection_data_is_taken_once_and_only_when_awaited() {
    let (mut bench, id) = RackBench::inspecting();
    let document = json!({"inventory": {
        "interfaces": [{"name": "eth0", "mac_address": MAC.to_string()}],
        "cpu": {"count": 4, "architecture": "x86_64"},
        "memory": {"physical_mb": 2048}, "disks": [],
    }});
    let order = RackOrder::Inventory { document };
    assert_eq!(bench.order(order.clone()), Ok(OrderOutcome::Inspected(id)));
    let node = bench.node(id);
    assert_eq!(node.provision_state, ProvisionState::Inspecting);
    assert!(node.inventory.is_some());
    bench.refused(order, RefusalKind::NotFound);
}

#[test]
fn an_agent_of_before_the_reset_is_not_given_the_token_of_the_next_boot() {
    let (mut bench, id) = RackBench::inspecting();
    bench.force(id, |node| {
        node.power_state = Some(trivet_model::PowerState::On);
        node.job.as_mut().unwrap().phase = trivet_model::JobPhase::PowerOn;
    });
    assert!(bench.lookup().is_err());
    bench.force(id, |node| {
        node.job.as_mut().unwrap().phase = trivet_model::JobPhase::AwaitAgent;
    });
    assert_ne!(bench.lookup().unwrap().agent_token, "******");
}

#[test]
fn logs_are_collected_once_at_a_time() {
    let (mut bench, id) = RackBench::inspecting();
    let none = bench.order(RackOrder::CollectLogs(id)).unwrap_err();
    assert!(none.sentence.contains("no agent"), "{none}");
    let token = bench.lookup().unwrap().agent_token;
    bench.order(heartbeat(id, &token)).unwrap();
    bench.order(RackOrder::CollectLogs(id)).unwrap();
    let twice = bench.order(RackOrder::CollectLogs(id)).unwrap_err();
    assert!(twice.sentence.contains("already"), "{twice}");
    bench.handle(RackInput::Logs {
        node: id,
        bundles: Vec::new(),
        collected: Some(Err("it did not answer".to_owned())),
    });
    bench.order(RackOrder::CollectLogs(id)).unwrap();
}

#[test]
fn findings_that_cannot_be_kept_end_the_inspection_with_the_reason() {
    let (mut bench, id) = RackBench::inspecting();
    let many = vec![json!({"mac_address": MAC.to_string()}); 300];
    let document = json!({"inventory": {"interfaces": many}});
    bench.refused(RackOrder::Inventory { document }, RefusalKind::Invalid);
    let node = bench.node(id);
    assert_eq!(node.provision_state, ProvisionState::InspectFail);
    let why = node.last_error.unwrap();
    assert!(why.contains("more than 256 interfaces"), "{why}");
}

#[test]
fn an_agent_that_listens_by_tls_must_send_its_certificate() {
    let (mut bench, id) = RackBench::inspecting();
    let token = bench.lookup().unwrap().agent_token;
    for certificate in [None, Some("garbage".to_owned())] {
        let RackOrder::Heartbeat {
            node,
            heartbeat: mut agent_heartbeat,
        } = heartbeat(id, &token)
        else {
            unreachable!()
        };
        agent_heartbeat.callback_url = "https://192.0.2.10:9999".into();
        agent_heartbeat.agent_verify_ca = certificate;
        let order = RackOrder::Heartbeat {
            node,
            heartbeat: agent_heartbeat,
        };
        bench.refused(order, RefusalKind::Invalid);
    }
}
