//! Power orders without effect, and machines that are seen on the network whatever BMCs report.

use super::boot::lease;
use super::power::{RackTestChassis, bmc, exchange_datagrams, notes_of, power_order};
use super::*;
use trivet_bmc_ipmi::bmc::IpmiSimulator;
use trivet_model::order::PowerWanted;
use trivet_model::{PowerOrder, PowerState};

/// A box that reads power states, with one idle node that is off.
fn bench() -> (RackBench, NodeId) {
    let mut bench = RackBench::with(Settings {
        power_sync_interval_ms: Some(60_000),
        ..settings()
    });
    let id = bench.with_node(1);
    bench.force(id, |node| {
        node.provision_state = ProvisionState::Manageable;
        node.power_state = Some(PowerState::Off);
    });
    (bench, id)
}

fn broken(on: bool) -> RackTestChassis {
    RackTestChassis {
        works: false,
        ..RackTestChassis::new(on)
    }
}

/// Advances one second at a time, and returns when each request came.
fn run_seconds(
    bench: &mut RackBench,
    bmc: &mut IpmiSimulator,
    case: &mut RackTestChassis,
    seconds: u64,
) -> Vec<u64> {
    let mut times = Vec::new();
    for second in 0..seconds {
        let before = case.orders.len();
        exchange_datagrams(bench, bmc, case);
        times.extend(vec![second; case.orders.len() - before]);
        bench.advance(1000);
    }
    times
}

#[test]
fn a_request_without_effect_is_repeated_once_and_the_bmc_restarted_after_minutes() {
    let (mut bench, id) = bench();
    let (mut bmc, mut case) = (bmc(), broken(false));
    bench.order(power_order(id, PowerState::On)).unwrap();
    let times = run_seconds(&mut bench, &mut bmc, &mut case, 400);
    // The third is after the restart of the BMC.
    assert_eq!(case.orders, [PowerOrder::On; 3]);
    assert!((60..=65).contains(&times[1]), "{times:?}");
    assert!(times[2] >= 180, "{times:?}");
    let notes = notes_of(&bench, id);
    let restarts = notes.iter().filter(|note| note.contains("bmc_reset cold"));
    assert_eq!(restarts.count(), 1, "{notes:#?}");
    let node = bench.node(id);
    assert_eq!(node.target_power_state, None);
    let message = node.last_error.unwrap();
    assert!(message.contains("3 requests to power on"), "{message}");
    assert!(message.contains("after a restart of the BMC"), "{message}");
}

#[test]
fn a_bmc_is_never_restarted_where_the_settings_forbid_it() {
    let (mut bench, id) = bench();
    bench.rack.settings.limits.bmc_reset = false;
    let (mut bmc, mut case) = (bmc(), broken(false));
    bench.order(power_order(id, PowerState::On)).unwrap();
    run_seconds(&mut bench, &mut bmc, &mut case, 400);
    assert_eq!(case.orders, [PowerOrder::On; 2]);
    let notes = notes_of(&bench, id);
    assert!(!notes.iter().any(|note| note.contains("bmc_reset")));
    let message = bench.node(id).last_error.unwrap();
    assert!(message.contains("2 requests to power on"), "{message}");
    assert!(message.contains("after 18"), "{message}");
}

#[test]
fn a_machine_that_takes_its_time_gets_one_request_and_a_slower_one_two() {
    for (after_s, requests) in [(0, 1), (5, 1), (55, 1), (100, 2), (120, 2)] {
        let (mut bench, id) = bench();
        let (mut bmc, mut case) = (bmc(), broken(true));
        bench.force(id, |node| node.power_state = Some(PowerState::On));
        bench.order(power_order(id, PowerState::Off)).unwrap();
        run_seconds(&mut bench, &mut bmc, &mut case, after_s);
        exchange_datagrams(&mut bench, &mut bmc, &mut case);
        case.on = false;
        run_seconds(&mut bench, &mut bmc, &mut case, 10);
        let node = bench.node(id);
        assert_eq!(node.power_state, Some(PowerState::Off), "{after_s} s");
        assert_eq!((node.target_power_state, node.last_error), (None, None));
        assert_eq!(case.orders.len(), requests, "{after_s} s");
    }
}

#[test]
fn a_change_that_is_done_at_once_is_confirmed_within_200_ms() {
    let (mut bench, id) = bench();
    let (mut bmc, mut case) = (bmc(), RackTestChassis::new(false));
    bench.order(power_order(id, PowerState::On)).unwrap();
    let begun = bench.now.tick;
    exchange_datagrams(&mut bench, &mut bmc, &mut case);
    while bench.node(id).target_power_state.is_some() {
        let due = bench.rack.deadline().expect("it polls");
        let wait_ms = due.since_ms(bench.now.tick).max(1);
        bench.advance(wait_ms);
        exchange_datagrams(&mut bench, &mut bmc, &mut case);
    }
    let took_ms = bench.now.tick.since_ms(begun);
    assert!(took_ms <= 200, "{took_ms} ms");
}

#[test]
fn a_job_sends_one_power_off_and_polls_until_the_machine_is_off() {
    let (mut bench, id) = bench();
    let (mut bmc, mut case) = (bmc(), broken(true));
    bench.verb(id, trivet_model::Verb::Inspect).unwrap();
    run_seconds(&mut bench, &mut bmc, &mut case, 50);
    assert_eq!(case.orders, [PowerOrder::Off]);
    assert_eq!(bench.node(id).last_error, None, "it is under way");
    (case.on, case.works) = (false, true);
    // Once seen off, it boots.
    run_seconds(&mut bench, &mut bmc, &mut case, 10);
    assert_eq!(case.orders, [PowerOrder::Off, PowerOrder::On]);
    let notes = notes_of(&bench, id);
    assert!(!notes.iter().any(|note| note.contains("bmc_reset")));
}

#[test]
fn a_job_sees_the_machine_on_before_it_waits_for_the_agent() {
    let (mut bench, id) = bench();
    let (mut bmc, mut case) = (bmc(), broken(false));
    bench.verb(id, trivet_model::Verb::Inspect).unwrap();
    run_seconds(&mut bench, &mut bmc, &mut case, 90);
    let phase = |bench: &RackBench| bench.node(id).job.unwrap().phase;
    assert_eq!(phase(&bench), trivet_model::JobPhase::PowerOn);
    let requested = [PowerOrder::Off, PowerOrder::On, PowerOrder::On];
    assert_eq!(case.orders, requested);
    case.on = true;
    run_seconds(&mut bench, &mut bmc, &mut case, 10);
    assert_eq!(phase(&bench), trivet_model::JobPhase::AwaitAgent);
    assert_eq!(case.orders, requested);
}

#[test]
fn a_job_waits_for_a_bmc_that_restarts() {
    let (mut bench, id) = bench();
    let (mut bmc, mut case) = (bmc(), RackTestChassis::new(true));
    bench.verb(id, trivet_model::Verb::Inspect).unwrap();
    for _ in 0..200 {
        bench.advance(1000);
        assert_eq!(bench.node(id).last_error, None, "it is still tried");
    }
    run_seconds(&mut bench, &mut bmc, &mut case, 120);
    let node = bench.node(id);
    assert_eq!(node.last_error, None);
    assert_eq!(node.job.unwrap().phase, trivet_model::JobPhase::AwaitAgent);
    assert_eq!(case.orders, [PowerOrder::Off, PowerOrder::On]);
}

#[test]
fn a_bmc_that_never_answers_fails_the_job_with_the_time_that_passed() {
    let (mut bench, id) = bench();
    bench.verb(id, trivet_model::Verb::Inspect).unwrap();
    let begun = bench.now.tick;
    while bench.node(id).job.is_some() {
        bench.advance(1000);
        let waited_ms = bench.now.tick.since_ms(begun);
        assert!(waited_ms < 300_000, "it does not end");
    }
    assert!(bench.now.tick.since_ms(begun) >= 240_000);
    let message = bench.node(id).last_error.unwrap();
    assert!(
        message.contains("did not answer as wanted for 2"),
        "{message}"
    );
}

#[test]
fn after_a_restart_of_the_box_a_job_reads_the_power_before_it_requests_any() {
    let (mut bench, id) = bench();
    bench.verb(id, trivet_model::Verb::Inspect).unwrap();
    let mut bench = bench.restarted();
    let (mut bmc, mut case) = (bmc(), RackTestChassis::new(false));
    run_seconds(&mut bench, &mut bmc, &mut case, 5);
    // It was off already.
    assert_eq!(case.orders, [PowerOrder::On]);
    assert!(bench.node(id).job.is_some());
}

#[test]
fn a_failed_deployment_ends_with_the_machine_off_after_its_logs_came() {
    let (mut bench, id) = bench();
    let (mut bmc, mut case) = (bmc(), RackTestChassis::new(true));
    bench.force(id, |node| {
        node.provision_state = ProvisionState::DeployFail;
        node.power_state = Some(PowerState::On);
        node.target_power_state = Some(PowerState::Off);
        node.last_error = Some("no disk".to_owned());
    });
    let now = bench.now;
    bench.rack.agents.begin_logs(id);
    bench.rack.switch_off_failed(now, id);
    run_seconds(&mut bench, &mut bmc, &mut case, 5);
    assert_eq!(case.orders, [], "its logs are still to come");
    bench.handle(RackInput::Logs {
        node: id,
        bundles: Vec::new(),
        collected: Some(Err("gone".to_owned())),
    });
    run_seconds(&mut bench, &mut bmc, &mut case, 5);
    assert_eq!(case.orders, [PowerOrder::Off]);
    let node = bench.node(id);
    assert_eq!(node.power_state, Some(PowerState::Off));
    assert_eq!(node.target_power_state, None);
    assert_eq!(node.last_error.as_deref(), Some("no disk"));
}

#[test]
fn a_failed_deployment_is_switched_off_also_after_a_restart_of_the_box() {
    let (mut bench, id) = bench();
    bench.force(id, |node| {
        node.provision_state = ProvisionState::DeployFail;
        node.power_state = Some(PowerState::On);
        node.target_power_state = Some(PowerState::Off);
    });
    let mut bench = bench.restarted();
    let (mut bmc, mut case) = (bmc(), RackTestChassis::new(true));
    run_seconds(&mut bench, &mut bmc, &mut case, 5);
    assert_eq!(case.orders, [PowerOrder::Off]);
}

#[test]
fn a_machine_that_must_stay_on_is_reset_by_an_operator_and_not_shut_down() {
    let (mut bench, id) = bench();
    let (mut bmc, mut case) = (bmc(), RackTestChassis::new(true));
    bench.force(id, |node| {
        node.power_state = Some(PowerState::On);
        node.attributes.disable_power_off = true;
    });
    let order = |want| RackOrder::Power {
        node: id,
        want,
        timeout_s: None,
    };
    bench.refused(order(PowerWanted::SoftReboot), RefusalKind::Conflict);
    bench.order(order(PowerWanted::Reboot)).unwrap();
    run_seconds(&mut bench, &mut bmc, &mut case, 5);
    assert_eq!(case.orders, [PowerOrder::Reset]);
}

#[test]
fn a_change_that_succeeds_after_the_restart_of_the_bmc_ends_well() {
    let (mut bench, id) = bench();
    let (mut bmc, mut case) = (bmc(), broken(true));
    bench.force(id, |node| node.power_state = Some(PowerState::On));
    bench.order(power_order(id, PowerState::Off)).unwrap();
    for _ in 0..400 {
        exchange_datagrams(&mut bench, &mut bmc, &mut case);
        bench.advance(1000);
        if notes_of(&bench, id)
            .iter()
            .any(|note| note.contains("bmc_reset"))
            && !case.works
        {
            // After its restart it has carried out the request.
            (case.works, case.on) = (true, false);
        }
    }
    let node = bench.node(id);
    assert_eq!(node.power_state, Some(PowerState::Off));
    assert_eq!((node.target_power_state, node.last_error), (None, None));
    // Power-off is never reached by switching on.
    assert!(case.orders.iter().all(|order| *order == PowerOrder::Off));
}

#[test]
fn a_soft_order_is_not_repeated_and_restarts_no_bmc() {
    let (mut bench, id) = bench();
    let (mut bmc, mut case) = (bmc(), broken(true));
    bench.force(id, |node| node.power_state = Some(PowerState::On));
    bench
        .order(RackOrder::Power {
            node: id,
            want: trivet_model::order::PowerWanted::SoftOff,
            timeout_s: Some(60),
        })
        .unwrap();
    for _ in 0..100 {
        exchange_datagrams(&mut bench, &mut bmc, &mut case);
        bench.advance(1000);
    }
    assert_eq!(case.orders, [PowerOrder::SoftOff]);
    assert!(
        bench
            .node(id)
            .last_error
            .unwrap()
            .contains("did not go down")
    );
}

#[test]
fn a_machine_seen_on_the_network_is_on_whatever_its_bmc_reports() {
    let (mut bench, id) = bench();
    let (mut bmc, mut case) = (bmc(), broken(false));
    bench.order(power_order(id, PowerState::On)).unwrap();
    exchange_datagrams(&mut bench, &mut bmc, &mut case);
    bench.advance(1000);
    exchange_datagrams(&mut bench, &mut bmc, &mut case);
    assert_eq!(bench.node(id).target_power_state, Some(PowerState::On));
    lease(&mut bench, MacAddr([0x52, 0x54, 0, 0, 0, 1]));
    let node = bench.node(id);
    assert_eq!(node.power_state, Some(PowerState::On));
    assert_eq!((node.target_power_state, node.last_error), (None, None));
}

#[test]
fn a_machine_that_is_off_and_is_seen_has_its_power_read_at_once() {
    let (mut bench, id) = bench();
    let (mut bmc, mut case) = (bmc(), RackTestChassis::new(true));
    bench.advance(1);
    lease(&mut bench, MacAddr([0x52, 0x54, 0, 0, 0, 1]));
    bench.advance(1);
    for _ in 0..3 {
        exchange_datagrams(&mut bench, &mut bmc, &mut case);
        bench.advance(100);
    }
    assert_eq!(bench.node(id).power_state, Some(PowerState::On));
}

#[test]
fn an_order_whose_session_was_closed_is_not_lost() {
    let (mut bench, id) = bench();
    let (mut bmc, mut case) = (bmc(), RackTestChassis::new(false));
    // A reading is pending when the record changes and an order arrives.
    bench.advance(60_000);
    bench.force(id, |node| {
        node.driver_info
            .insert("ipmi_priv_level".to_owned(), "OPERATOR".into());
    });
    bench.order(power_order(id, PowerState::On)).unwrap();
    for _ in 0..5 {
        exchange_datagrams(&mut bench, &mut bmc, &mut case);
        bench.advance(1000);
    }
    let node = bench.node(id);
    assert_eq!(node.power_state, Some(PowerState::On));
    assert_eq!(node.target_power_state, None);
    // And it is read again at the usual interval.
    case.on = false;
    for _ in 0..70 {
        bench.advance(1000);
        exchange_datagrams(&mut bench, &mut bmc, &mut case);
    }
    assert_eq!(bench.node(id).power_state, Some(PowerState::Off));
}

#[test]
fn a_bmc_receives_a_logout_when_its_node_is_deleted() {
    let (mut bench, id) = bench();
    let (mut bmc, mut case) = (bmc(), RackTestChassis::new(true));
    bench.advance(60_000);
    exchange_datagrams(&mut bench, &mut bmc, &mut case);
    assert_eq!(bmc.sessions(), 1);
    bench.order(RackOrder::DeleteNode(id)).unwrap();
    exchange_datagrams(&mut bench, &mut bmc, &mut case);
    assert_eq!(bmc.sessions(), 0);
}

#[test]
fn after_a_restart_an_unknown_power_state_is_not_claimed() {
    let (mut bench, id) = bench();
    bench.force(id, |node| node.power_state = Some(PowerState::On));
    bench.order(power_order(id, PowerState::Off)).unwrap();
    let mut bench = bench.restarted();
    let (mut bmc, mut case) = (bmc(), RackTestChassis::new(true));
    for _ in 0..100 {
        exchange_datagrams(&mut bench, &mut bmc, &mut case);
        bench.advance(1000);
    }
    let node = bench.node(id);
    assert_eq!(node.target_power_state, None);
    let message = node.last_error.unwrap();
    assert!(message.contains("the box restarted"), "{message}");
}

#[test]
fn two_power_ons_that_start_the_machine_of_another_node_stop_the_job_and_name_both() {
    let (mut bench, id) = bench();
    let other = bench.with_node(2);
    bench.force(other, |node| node.provision_state = ProvisionState::Active);
    let (mut bmc, mut case) = (bmc(), RackTestChassis::new(false));
    let mac = MacAddr([0x52, 0x54, 0, 0, 0, 2]);
    bench.verb(id, Verb::Inspect).unwrap();
    run_seconds(&mut bench, &mut bmc, &mut case, 20);
    lease(&mut bench, mac);
    run_seconds(&mut bench, &mut bmc, &mut case, 5);
    lease(&mut bench, mac);
    assert!(bench.node(id).job.is_some(), "once is chance");
    // It is not seen, is booted again, and the other machine starts again.
    run_seconds(&mut bench, &mut bmc, &mut case, 620);
    assert!(bench.node(id).job.is_some());
    lease(&mut bench, mac);
    let node = bench.node(id);
    assert_eq!(node.job, None);
    assert_eq!(node.provision_state, ProvisionState::InspectFail);
    let why = node.last_error.unwrap();
    for part in ["node-1", "node-2", "52:54:00:00:00:02", "swapped"] {
        assert!(why.contains(part), "{why}");
    }
}

#[test]
fn a_machine_that_was_switched_on_does_not_indicate_swapped_bmcs() {
    let (mut bench, id) = bench();
    let other = bench.with_node(2);
    let (mut bmc, mut case) = (bmc(), RackTestChassis::new(false));
    bench.verb(id, Verb::Inspect).unwrap();
    for _ in 0..2 {
        bench.rack.switched_on(bench.now, other);
        run_seconds(&mut bench, &mut bmc, &mut case, 20);
        lease(&mut bench, MacAddr([0x52, 0x54, 0, 0, 0, 2]));
        run_seconds(&mut bench, &mut bmc, &mut case, 600);
    }
    let node = bench.node(id);
    assert!(node.job.is_some(), "{:?}", node.last_error);
}

/// The BMC accepts a reset at once, and the machine restarts late: until then the agent of the
/// previous boot still runs, and if its process restarts it sends a lookup.
#[test]
fn after_a_reset_request_an_agent_of_the_boot_before_is_refused_until_the_machine_restarts() {
    let (mut bench, id) = bench();
    let (mut bmc, mut case) = (bmc(), RackTestChassis::new(false));
    bench.verb(id, Verb::Inspect).unwrap();
    run_seconds(&mut bench, &mut bmc, &mut case, 20);
    lease(&mut bench, MAC);
    let old = bench.lookup().unwrap().agent_token;
    let heartbeat = |token: &str| RackOrder::Heartbeat {
        node: id,
        heartbeat: heartbeat_with(token),
    };
    bench.order(heartbeat(&old)).unwrap();
    bench
        .rack
        .events
        .push_back((id, trivet_node::NodeEvent::TimerExpired));
    bench.handle(RackInput::Tick);
    run_seconds(&mut bench, &mut bmc, &mut case, 5);
    assert_eq!(case.orders.last(), Some(&PowerOrder::Reset));
    let phase = bench.node(id).job.map(|job| job.phase);
    assert_eq!(phase, Some(trivet_model::JobPhase::AwaitAgent));

    assert!(bench.order(heartbeat(&old)).is_err());
    assert!(bench.lookup().is_err());
    assert!(bench.node(id).agent.is_none());
    let notes = notes_of(&bench, id);
    let refused = notes
        .iter()
        .any(|note| note.contains("not seen to restart"));
    assert!(refused, "{notes:#?}");
    lease(&mut bench, MAC);
    let new = bench.lookup().unwrap().agent_token;
    assert!(new != old && new != trivet_model::secret::MASK);
    bench.order(heartbeat(&new)).unwrap();
    assert!(bench.order(heartbeat(&old)).is_err());
}

#[test]
fn an_agent_whose_boot_this_box_does_not_see_is_accepted_after_a_reset_request() {
    let (mut bench, id) = bench();
    bench.force(id, |node| node.power_state = Some(PowerState::On));
    bench.verb(id, Verb::Inspect).unwrap();
    bench.force(id, |node| {
        node.provision_state = ProvisionState::InspectWait;
        node.job.as_mut().unwrap().phase = trivet_model::JobPhase::AwaitAgent;
    });
    bench.lookup().unwrap();
    let reset = |bench: &mut RackBench| {
        bench.force(id, |node| node.agent = None);
        let now = bench.now;
        let agents = &mut bench.rack.agents;
        agents.restart_requested(now.tick, id, PowerOrder::Reset);
    };
    reset(&mut bench);
    assert!(
        bench.lookup().is_ok(),
        "another server gives it its address"
    );
    lease(&mut bench, MAC);
    reset(&mut bench);
    assert!(bench.lookup().is_err());
    bench.now.tick = bench.now.tick.after_ms(180_000);
    assert!(bench.lookup().is_ok(), "nothing is refused for ever");
}
