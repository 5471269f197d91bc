//! BMC requests other than power.

use trivet_bmc_ipmi::bmc::IpmiSimulator;
use trivet_bmc_ipmi::sel::SelEvent;
use trivet_model::bmc_request::{BmcIndicatorCommand, BootMode, HiddenBytes};
use trivet_model::order::VendorMethod;
use trivet_model::{BmcReply, BmcRequest, PowerOrder, PowerState};

use super::power::{RackTestChassis, bmc, exchange_until_reply, power_order};
use super::*;

fn bmc_request(node: NodeId, bmc_request: BmcRequest) -> RackOrder {
    let method = VendorMethod::BmcRequest(bmc_request);
    RackOrder::Vendor { node, method }
}

/// Sends the order with this ticket; its reply is deferred.
#[track_caller]
fn submit_order(bench: &mut RackBench, ticket: u64, order: RackOrder) {
    let caller = caller();
    bench.handle(RackInput::Order {
        ticket,
        caller,
        order,
    });
    assert_eq!(reply(bench, ticket), None);
}

fn reply(bench: &RackBench, wanted: u64) -> Option<Result<OrderOutcome, OrderRefusal>> {
    bench.outputs.iter().find_map(|output| match output {
        RackOutput::Reply { ticket, result } if *ticket == wanted => Some(result.clone()),
        _ => None,
    })
}

#[track_caller]
fn reply_value(
    bench: &mut RackBench,
    bmc: &mut IpmiSimulator,
    id: NodeId,
    requested: BmcRequest,
) -> Value {
    // BMCs have a pause between two orders.
    bench.advance(1_000);
    submit_order(bench, 7, bmc_request(id, requested));
    let (ticket, result) = exchange_until_reply(bench, bmc, &mut RackTestChassis::new(true));
    assert_eq!(ticket, 7);
    match result {
        Ok(OrderOutcome::Reply(reply)) => reply,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_bmc_request_is_answered_and_noted() {
    let mut bench = RackBench::new();
    let id = bench.with_node(1);
    let mut bmc = bmc();
    let identity = reply_value(&mut bench, &mut bmc, id, BmcRequest::Identity);
    assert_eq!(identity["protocol"], "ipmi");
    assert_eq!(identity["firmware_version"], "1.00");
    assert_eq!(
        bench.notes(),
        [""; 0],
        "the caller is on the timeline already"
    );
    assert_eq!(bench.replies_awaited(), 0);
    let timeline = bench.rack.view().nodes.get(&id).unwrap().timeline.clone();
    let requests = timeline.iter().map(|note| note.kind.to_string());
    let requests: Vec<_> = requests.filter(|note| note.contains("ann")).collect();
    assert!(
        requests.last().unwrap().contains("read identity"),
        "{requests:?}"
    );
}

#[test]
fn the_indicator_is_switched_and_read() {
    let mut bench = RackBench::new();
    let id = bench.with_node(1);
    let mut bmc = bmc();
    for (light, state) in [
        (BmcIndicatorCommand::On, "on"),
        (BmcIndicatorCommand::For { seconds: 9 }, "blinking"),
        (BmcIndicatorCommand::Off, "off"),
    ] {
        let done = reply_value(&mut bench, &mut bmc, id, BmcRequest::SetIndicator(light));
        assert_eq!(done, json!({"done": true}));
        let notes = bench.notes();
        assert!(notes[0].starts_with("light o"), "{notes:?}");
        let now = reply_value(&mut bench, &mut bmc, id, BmcRequest::Indicator);
        assert_eq!(now, json!({"state": state}));
    }
}

#[test]
fn a_log_is_read_and_cleared() {
    let mut bench = RackBench::new();
    let id = bench.with_node(1);
    let mut bmc = bmc();
    let event = SelEvent {
        generator: 0x20,
        sensor_type: 1,
        sensor: 1,
        asserted: true,
        kind: 1,
        data: [0x57, 1, 2],
    };
    bmc.add_event(1_700_000_000, event);
    let log = reply_value(&mut bench, &mut bmc, id, BmcRequest::Events);
    assert_eq!(log["events"][0]["severity"], "warning");
    reply_value(&mut bench, &mut bmc, id, BmcRequest::ClearEvents);
    assert!(bmc.events().is_empty());
    let log = reply_value(&mut bench, &mut bmc, id, BmcRequest::Events);
    assert_eq!(log["events"], json!([]));
}

#[test]
fn the_content_of_a_mailbox_is_never_noted() {
    let mut bench = RackBench::new();
    let id = bench.with_node(1);
    let mut bmc = bmc();
    let write = BmcRequest::WriteMailbox(HiddenBytes::new("hunter2"));
    reply_value(&mut bench, &mut bmc, id, write);
    assert_eq!(&bmc.mailbox(0).unwrap()[..7], b"hunter2");
    let read = reply_value(&mut bench, &mut bmc, id, BmcRequest::Mailbox);
    assert!(read["data"].as_str().unwrap().starts_with("aHVudGVyMg"));
    let timeline = format!("{:?}", bench.rack.view().nodes.get(&id).unwrap().timeline);
    assert!(!timeline.contains("hunter2") && !timeline.contains("aHVudGVyMg"));
}

#[test]
fn what_cannot_be_done_is_refused_with_a_sentence() {
    let mut bench = RackBench::new();
    let id = bench.with_node(1);
    let reply = bench.refused(bmc_request(id, BmcRequest::Media), RefusalKind::Invalid);
    assert!(reply.contains("IPMI has no virtual media"), "{reply}");
    for (driver, want) in [
        ("ssh", "no management by a BMC"),
        ("fake-hardware", "fake hardware without a BMC"),
        ("manual-management", "no management by a BMC"),
        ("strange", "hardware type"),
    ] {
        bench.force(id, |node| driver.clone_into(&mut node.driver));
        let reply = bench.refused(bmc_request(id, BmcRequest::Sensors), RefusalKind::Invalid);
        assert!(reply.contains(want), "{driver}: {reply}");
    }
    assert_eq!(bench.replies_awaited(), 0);
}

#[test]
fn the_boot_mode_is_stored_in_the_record() {
    let mut bench = RackBench::new();
    let id = bench.with_node(1);
    let now = bench.now;
    let mode = BmcReply::BootMode(Some(BootMode::Bios));
    bench
        .rack
        .store_boot_modes(now, id, &BmcRequest::BootMode, &mode);
    assert_eq!(bench.node(id).attributes.boot_mode, Some(BootMode::Bios));
    let uefi = BmcRequest::SetBootMode(BootMode::Uefi);
    bench.rack.store_boot_modes(now, id, &uefi, &BmcReply::Done);
    assert_eq!(bench.node(id).attributes.boot_mode, Some(BootMode::Uefi));
    let on = BmcRequest::SetSecureBoot(true);
    bench.rack.store_boot_modes(now, id, &on, &BmcReply::Done);
    assert_eq!(bench.node(id).attributes.secure_boot, Some(true));
    let before = bench.node(id);
    let unknown = BmcReply::SecureBoot(None);
    bench
        .rack
        .store_boot_modes(now, id, &BmcRequest::SecureBoot, &unknown);
    assert_eq!(bench.node(id), before);
}

#[test]
fn one_at_a_time_and_not_during_a_job() {
    let mut bench = RackBench::new();
    let id = bench.with_node(1);
    submit_order(&mut bench, 7, bmc_request(id, BmcRequest::Sensors));
    bench.refused(bmc_request(id, BmcRequest::Events), RefusalKind::Conflict);
    let reset = VendorMethod::Bmc(PowerOrder::BmcReset { warm: true });
    let reset = RackOrder::Vendor {
        node: id,
        method: reset,
    };
    bench.refused(reset, RefusalKind::Conflict);
    let (mut bench, id) = RackBench::inspecting();
    bench.force(id, |node| node.provision_state = ProvisionState::Inspecting);
    let reply = bench.refused(bmc_request(id, BmcRequest::Events), RefusalKind::Conflict);
    assert!(reply.contains("inspecting"), "{reply}");
}

#[test]
fn a_pending_request_ends_when_driver_info_changes() {
    let mut bench = RackBench::new();
    let id = bench.with_node(1);
    submit_order(&mut bench, 7, bmc_request(id, BmcRequest::Sensors));
    bench.force(id, |node| {
        let info = &mut node.driver_info;
        info.insert("ipmi_password".into(), json!("other"));
    });
    bench.order(power_order(id, PowerState::On)).unwrap();
    let refusal = reply(&bench, 7).unwrap().unwrap_err();
    assert!(
        refusal.sentence.contains("driver_info changed"),
        "{refusal}"
    );
}
