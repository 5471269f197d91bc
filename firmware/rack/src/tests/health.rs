//! Which of two nodes may use a BMC that both name.

use trivet_model::PowerState;
use trivet_model::order::PowerWanted;

use super::*;

fn wants_on(node: NodeId) -> RackOrder {
    RackOrder::Power {
        node,
        want: PowerWanted::State(PowerState::On),
        timeout_s: None,
    }
}

fn faults(bench: &RackBench) -> Vec<String> {
    let view = bench.rack.view();
    view.faults.keys().map(ToString::to_string).collect()
}

#[test]
fn of_two_nodes_with_one_bmc_the_older_has_it_also_after_a_restart() {
    let mut bench = RackBench::new();
    let (one, two) = (bench.with_node(1), bench.with_node(2));
    let info = bench.node(one).driver_info;
    bench.force(two, |node| node.driver_info.clone_from(&info));
    let shared = faults(&bench);
    assert_eq!(shared.len(), 1, "{shared:?}");
    assert!(shared[0].starts_with("node node-2: its BMC"), "{shared:?}");
    assert!(shared[0].contains("is node node-1's"), "{shared:?}");
    let mut bench = bench.restarted();
    assert_eq!(faults(&bench), shared);
    // The younger node sends the first request and is still refused.
    bench.order(wants_on(two)).unwrap();
    let message = bench.node(two).last_error.unwrap();
    assert!(message.contains("another node has the same"), "{message}");
    bench.order(wants_on(one)).unwrap();
    let spoken = bench.outputs.iter();
    assert!(
        spoken
            .clone()
            .any(|output| matches!(output, RackOutput::Bmc(_)))
    );
}

#[test]
fn the_fault_goes_when_a_record_is_corrected_or_deleted() {
    let mut bench = RackBench::new();
    let (one, two) = (bench.with_node(1), bench.with_node(2));
    let (first, second) = (bench.node(one).driver_info, bench.node(two).driver_info);
    bench.force(two, |node| node.driver_info.clone_from(&first));
    assert_eq!(faults(&bench).len(), 1);
    bench.force(two, |node| node.name = Some("renamed".into()));
    assert!(faults(&bench)[0].starts_with("node renamed:"));
    bench.force(two, |node| node.driver_info.clone_from(&second));
    assert_eq!(faults(&bench), [""; 0]);
    bench.force(two, |node| node.driver_info.clone_from(&first));
    bench.order(RackOrder::DeleteNode(one)).unwrap();
    assert_eq!(faults(&bench), [""; 0]);
    bench.order(wants_on(two)).unwrap();
    assert_eq!(bench.node(two).last_error, None);
}

#[test]
fn a_node_that_moves_to_the_bmc_of_an_older_one_closes_its_session() {
    let mut bench = RackBench::new();
    let (one, two) = (bench.with_node(1), bench.with_node(2));
    let second = bench.node(two).driver_info;
    bench.order(wants_on(two)).unwrap();
    // Now the older node's record names this BMC.
    bench.force(one, |node| node.driver_info.clone_from(&second));
    assert!(faults(&bench)[0].starts_with("node node-2:"));
    bench.order(wants_on(one)).unwrap();
    assert_eq!(bench.node(one).last_error, None);
    // A node with another kind of power control is not in conflict.
    bench.force(two, |node| node.driver = "manual-management".into());
    assert_eq!(faults(&bench), [""; 0]);
}
