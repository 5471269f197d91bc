//! What is written, and when.

use trivet_store::StoreChange;

use super::*;

#[test]
fn a_thousand_beats_that_change_nothing_write_nothing() {
    let (mut bench, node) = RackBench::inspecting();
    let token = bench.lookup().unwrap().agent_token;
    let order = RackOrder::Heartbeat {
        node,
        heartbeat: heartbeat_with(&token),
    };
    bench.order(order.clone()).unwrap();
    let before = bench.store.flash().counts();
    for _ in 0..1000 {
        bench.now.wall.0 += 10_000;
        bench.now.tick = bench.now.tick.after_ms(10);
        bench.order(order.clone()).unwrap();
    }
    assert_eq!(bench.store.flash().counts(), before);
    let view = bench.rack.view();
    let live = &view.nodes.get(&node).unwrap().live;
    assert_eq!(live.heartbeat_at, Some(bench.now.wall));
}

#[test]
fn what_was_acknowledged_is_there_after_a_restart() {
    let mut bench = RackBench::new();
    let id = bench.with_node(1);
    let before = bench.node(id);
    let bench = bench.restarted();
    assert_eq!(bench.node(id), before);
    assert_eq!(bench.rack.view().ports.len(), 1);
    assert_eq!(bench.rack.view().node("node-1").unwrap().node.id, id);
}

#[test]
fn a_batch_that_is_too_large_goes_in_parts() {
    let mut store = Store::open_with(SimFlash::new(64 * 65_536), box_key(), 65_536).unwrap();
    let changes: Vec<_> = (0..200_u8)
        .map(|number| {
            let mut node = node(number);
            node.extra
                .insert("text".into(), "x".repeat(2000 + usize::from(number)).into());
            StoreChange::PutNode(std::sync::Arc::new(node))
        })
        .collect();
    assert!(store.commit(&changes).is_err());
    make_durable(&mut store, &changes).unwrap();
    assert_eq!(store.records().unwrap().nodes.len(), 200);
}

#[test]
fn a_refused_order_writes_nothing_but_one_entry_of_the_audit() {
    let mut bench = RackBench::new();
    let id = bench.with_node(1);
    let records = bench.store.records().unwrap();
    bench.verb(id, Verb::Provide).unwrap_err();
    bench.refused(
        RackOrder::CreateNode(Box::new(node(1))),
        RefusalKind::Conflict,
    );
    let mut after = bench.store.records().unwrap();
    assert_eq!(after.audit.len(), records.audit.len() + 2);
    after.audit = records.audit.clone();
    assert_eq!(after, records);
    let before = bench.store.flash().counts();
    bench.verb(id, Verb::Provide).unwrap_err();
    bench.refused(
        RackOrder::CreateNode(Box::new(node(1))),
        RefusalKind::Conflict,
    );
    assert_eq!(bench.store.flash().counts(), before);
}
