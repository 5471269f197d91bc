//! Nodes that name the same BMC.

use super::*;

/// Lets the record of this node name this BMC.
fn name_bmc(bench: &mut BmcBench, id: NodeId, address: &str) {
    let info = &mut bench.node(id).driver_info;
    info.insert("ipmi_address".into(), address.into());
    bench.with(|bmcs, context| bmcs.records_changed(context, [id]));
}

#[test]
fn the_younger_node_sends_nothing_and_has_a_fault_until_it_is_corrected() {
    let mut bench = BmcBench::with_sync();
    let (one, two) = (bench.with_node(1), bench.with_node(2));
    assert_eq!(bench.events(), []);
    name_bmc(&mut bench, two, "192.0.2.1");
    let events = bench.events();
    let [BmcOutcome::FaultRaised(raised)] = &events[..] else {
        panic!("{events:?}");
    };
    let raised = raised.clone();
    let text = raised.to_string();
    assert!(matches!(raised, BoxFault::BmcShared { .. }), "{text}");
    assert!(text.contains("node-2") && text.contains("node-1"), "{text}");
    assert_eq!(bench.wire().removed, [two], "its session ends");
    bench.for_operator(two, PowerOrder::On);
    let (notes, events) = bench.notes_and_events();
    assert!(notes.last().unwrap().contains("node-1"), "{notes:?}");
    assert!(!completed(&events)[0].2);
    bench.with(|bmcs, context| bmcs.vendor_request(context, two, 7, BmcRequest::Sensors));
    let refused = bench.events().into_iter().any(|event| {
        matches!(event, BmcOutcome::ReplyReady { result: Err(refusal), .. }
            if refusal.sentence.contains("another node has the same"))
    });
    assert!(refused);
    // It is not read either; the older one is.
    bench.advance(60_000);
    let read: Vec<_> = std::mem::take(&mut bench.wire().orders);
    let read: Vec<_> = read.into_iter().map(|(_, id, _)| id).collect();
    assert_eq!(read, [one]);
    name_bmc(&mut bench, two, "192.0.2.2");
    assert_eq!(bench.events(), [BmcOutcome::FaultCleared(raised)]);
    bench.for_operator(two, PowerOrder::On);
    assert_eq!(bench.given_one().1, PowerOrder::On);
}

#[test]
fn the_fault_follows_the_names_of_the_nodes() {
    let mut bench = BmcBench::new();
    let (_, two) = (bench.with_node(1), bench.with_node(2));
    name_bmc(&mut bench, two, "192.0.2.1");
    bench.events();
    bench.node(two).name = Some("renamed".to_owned());
    bench.with(|bmcs, context| bmcs.records_changed(context, [two]));
    let events = bench.events();
    let [BmcOutcome::FaultCleared(old), BmcOutcome::FaultRaised(new)] = &events[..] else {
        panic!("{events:?}");
    };
    assert!(old.to_string().contains("node-2"), "{old}");
    assert!(new.to_string().contains("renamed"), "{new}");
}

#[test]
fn addresses_of_bmcs_are_known() {
    let mut bench = BmcBench::new();
    let id = bench.with_node(1);
    assert!(bench.bmcs.is_bmc([192, 0, 2, 1].into()));
    assert!(!bench.bmcs.is_bmc([192, 0, 2, 2].into()));
    // A node with another kind of power control names no BMC.
    bench.node(id).driver = "manual-management".into();
    bench.with(|bmcs, context| bmcs.records_changed(context, [id]));
    assert!(!bench.bmcs.is_bmc([192, 0, 2, 1].into()));
}
