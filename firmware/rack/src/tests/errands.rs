//! Errands: what is asked of a BMC beside power.

use trivet_bmc_ipmi::bmc::Bmc;
use trivet_bmc_ipmi::sel::Event;
use trivet_model::errand::{BootMode, HiddenBytes, Light};
use trivet_model::order::VendorMethod;
use trivet_model::{Errand, Findings, PowerOrder};

use super::power::{Case, bmc, talk_until_reply};
use super::*;

fn errand(node: NodeId, errand: Errand) -> Order {
    let method = VendorMethod::Errand(errand);
    Order::Vendor { node, method }
}

/// Gives the order with this ticket; its answer is owed.
#[track_caller]
fn ask(bench: &mut Bench, ticket: u64, order: Order) {
    let caller = caller();
    bench.tell(Input::Order {
        ticket,
        caller,
        order,
    });
    assert_eq!(reply(bench, ticket), None);
}

fn reply(bench: &Bench, wanted: u64) -> Option<Result<Done, Refusal>> {
    bench.outputs.iter().find_map(|output| match output {
        Output::Reply { ticket, result } if *ticket == wanted => Some(result.clone()),
        _ => None,
    })
}

#[track_caller]
fn said(bench: &mut Bench, bmc: &mut Bmc, id: NodeId, asked: Errand) -> Value {
    // BMCs rest between two orders.
    bench.later(1_000);
    ask(bench, 7, errand(id, asked));
    let (ticket, result) = talk_until_reply(bench, bmc, &mut Case::new(true));
    assert_eq!(ticket, 7);
    match result {
        Ok(Done::Said(said)) => said,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_a_bmc_is_asked_is_answered_and_noted() {
    let mut bench = Bench::new();
    let id = bench.with_node(1);
    let mut bmc = bmc();
    let identity = said(&mut bench, &mut bmc, id, Errand::Identity);
    assert_eq!(identity["protocol"], "ipmi");
    assert_eq!(identity["firmware_version"], "1.00");
    assert_eq!(
        bench.notes(),
        [""; 0],
        "who asked stands on the timeline already"
    );
    assert!(bench.rack.promises.is_empty());
    let timeline = bench.rack.view().nodes.get(&id).unwrap().timeline.clone();
    let asked = timeline.iter().map(|note| note.kind.to_string());
    let asked: Vec<_> = asked.filter(|note| note.contains("ann")).collect();
    assert!(asked.last().unwrap().contains("read identity"), "{asked:?}");
}

#[test]
fn the_light_is_switched_and_read() {
    let mut bench = Bench::new();
    let id = bench.with_node(1);
    let mut bmc = bmc();
    for (light, state) in [
        (Light::On, "on"),
        (Light::For { seconds: 9 }, "blinking"),
        (Light::Off, "off"),
    ] {
        let done = said(&mut bench, &mut bmc, id, Errand::SetLight(light));
        assert_eq!(done, json!({"done": true}));
        let notes = bench.notes();
        assert!(notes[0].starts_with("light o"), "{notes:?}");
        let now = said(&mut bench, &mut bmc, id, Errand::Light);
        assert_eq!(now, json!({"state": state}));
    }
}

#[test]
fn a_log_is_read_and_cleared() {
    let mut bench = Bench::new();
    let id = bench.with_node(1);
    let mut bmc = bmc();
    let event = Event {
        generator: 0x20,
        sensor_type: 1,
        sensor: 1,
        asserted: true,
        kind: 1,
        data: [0x57, 1, 2],
    };
    bmc.add_event(1_700_000_000, event);
    let log = said(&mut bench, &mut bmc, id, Errand::Events);
    assert_eq!(log["events"][0]["severity"], "warning");
    said(&mut bench, &mut bmc, id, Errand::ClearEvents);
    assert!(bmc.events().is_empty());
    let log = said(&mut bench, &mut bmc, id, Errand::Events);
    assert_eq!(log["events"], json!([]));
}

#[test]
fn what_is_in_a_mailbox_is_noted_nowhere() {
    let mut bench = Bench::new();
    let id = bench.with_node(1);
    let mut bmc = bmc();
    let write = Errand::WriteMailbox(HiddenBytes::new("hunter2"));
    said(&mut bench, &mut bmc, id, write);
    assert_eq!(&bmc.mailbox(0).unwrap()[..7], b"hunter2");
    let read = said(&mut bench, &mut bmc, id, Errand::Mailbox);
    assert!(read["data"].as_str().unwrap().starts_with("aHVudGVyMg"));
    let timeline = format!("{:?}", bench.rack.view().nodes.get(&id).unwrap().timeline);
    assert!(!timeline.contains("hunter2") && !timeline.contains("aHVudGVyMg"));
}

#[test]
fn what_cannot_be_done_is_refused_with_a_sentence() {
    let mut bench = Bench::new();
    let id = bench.with_node(1);
    let said = bench.refused(errand(id, Errand::Media), RefusalKind::Invalid);
    assert!(said.contains("IPMI has no virtual media"), "{said}");
    for (driver, want) in [
        ("ssh", "nobody manages"),
        ("fake-hardware", "pretended"),
        ("manual-management", "nobody manages"),
        ("strange", "hardware type"),
    ] {
        bench.force(id, |node| driver.clone_into(&mut node.driver));
        let said = bench.refused(errand(id, Errand::Sensors), RefusalKind::Invalid);
        assert!(said.contains(want), "{driver}: {said}");
    }
    assert!(bench.rack.promises.is_empty());
}

#[test]
fn how_the_firmware_boots_stands_in_the_record() {
    let mut bench = Bench::new();
    let id = bench.with_node(1);
    let now = bench.now;
    let mode = Findings::BootMode(Some(BootMode::Bios));
    bench.rack.keep_modes(now, id, &Errand::BootMode, &mode);
    assert_eq!(bench.node(id).kept["boot_mode"], "bios");
    let uefi = Errand::SetBootMode(BootMode::Uefi);
    bench.rack.keep_modes(now, id, &uefi, &Findings::Done);
    assert_eq!(bench.node(id).kept["boot_mode"], "uefi");
    let on = Errand::SetSecureBoot(true);
    bench.rack.keep_modes(now, id, &on, &Findings::Done);
    assert_eq!(bench.node(id).kept["secure_boot"], true);
    let before = bench.node(id);
    let unknown = Findings::SecureBoot(None);
    bench
        .rack
        .keep_modes(now, id, &Errand::SecureBoot, &unknown);
    assert_eq!(bench.node(id), before);
}

#[test]
fn one_at_a_time_and_not_beside_a_job() {
    let mut bench = Bench::new();
    let id = bench.with_node(1);
    ask(&mut bench, 7, errand(id, Errand::Sensors));
    bench.refused(errand(id, Errand::Events), RefusalKind::Conflict);
    let reset = VendorMethod::Bmc(PowerOrder::BmcReset { warm: true });
    let reset = Order::Vendor {
        node: id,
        method: reset,
    };
    bench.refused(reset, RefusalKind::Conflict);
    let (mut bench, id) = Bench::inspecting();
    bench.force(id, |node| node.provision_state = ProvisionState::Inspecting);
    let said = bench.refused(errand(id, Errand::Events), RefusalKind::Conflict);
    assert!(said.contains("inspecting"), "{said}");
}

#[test]
fn who_waits_is_told_when_driver_info_changes() {
    let mut bench = Bench::new();
    let id = bench.with_node(1);
    ask(&mut bench, 7, errand(id, Errand::Sensors));
    bench.force(id, |node| {
        let info = &mut node.driver_info;
        info.insert("ipmi_password".into(), json!("other"));
    });
    bench.rack.give_power(bench.now, id, PowerOrder::Status);
    bench.tell(Input::Tick);
    let refusal = reply(&bench, 7).unwrap().unwrap_err();
    assert!(
        refusal.sentence.contains("driver_info changed"),
        "{refusal}"
    );
}

#[test]
fn an_errand_may_take_minutes_but_not_for_ever() {
    let mut bench = Bench::new();
    let id = bench.with_node(1);
    ask(&mut bench, 7, errand(id, Errand::Events));
    // A line that forgets the errand without a word: the bound ends the wait.
    let owed_ms = crate::errands::OWED_MS_MAX;
    bench.rack.lines = crate::power::Lines::new(Pace::default());
    bench.later(owed_ms - 1);
    assert_eq!(reply(&bench, 7), None);
    bench.later(1);
    let refusal = reply(&bench, 7).unwrap().unwrap_err();
    assert!(refusal.sentence.contains("in time"), "{refusal}");
    // Its answer is nobody's now.
    let findings = Ok(Findings::Done);
    bench.rack.errand_answered(bench.now, id, 1, findings);
    assert!(bench.rack.promises.is_empty());
}
