//! Which protocol carries an order, and where its answer goes.

use super::*;

const BOOT: PowerOrder = PowerOrder::SetBoot {
    device: trivet_model::BootDevice::Pxe,
    persistent: false,
    efi: false,
};

#[test]
fn a_reading_and_a_poll_of_the_same_node_do_not_take_each_others_answer() {
    let mut bench = BmcBench::with_sync();
    let id = bench.with_node(1);
    bench.advance(60_000);
    let (reading, order) = bench.given_one();
    assert_eq!(order, PowerOrder::Status);
    // An operator's order begins while the reading is under way.
    bench.for_operator(id, PowerOrder::On);
    bench.node(id).target_power_state = Some(PowerState::On);
    let (on, _) = bench.given_one();
    bench.answer(on, Ok(PowerAnswer::Accepted));
    bench.events();
    bench.advance(100);
    let (poll, order) = bench.given_one();
    assert_eq!(order, PowerOrder::Status);
    // The later request is answered first: it belongs to the change.
    bench.answer_power(poll, PowerState::On);
    let completes = (BmcOrderOwner::Operator, PowerOrder::On, true);
    assert_eq!(completed(&bench.events()), [completes]);
    // The reading fails, which says nothing about the change.
    bench.answer(reading, Err(silent()));
    assert_eq!(completed(&bench.events()), []);
}

#[test]
fn an_answer_to_a_change_that_was_replaced_does_not_end_the_new_one() {
    let mut bench = BmcBench::new();
    let id = bench.with_node(1);
    bench.for_operator(id, PowerOrder::Off);
    let (first, _) = bench.given_one();
    bench.for_operator(id, PowerOrder::Off);
    let (second, _) = bench.given_one();
    assert_ne!(first, second);
    bench.answer_power(first, PowerState::Off);
    assert_eq!(completed(&bench.events()), []);
    bench.answer_power(second, PowerState::Off);
    assert_eq!(completed(&bench.events()).len(), 1);
    // Nothing is awaited under these numbers any more.
    bench.answer_power(first, PowerState::Off);
    bench.answer_power(second, PowerState::Off);
    assert_eq!(bench.events(), []);
}

#[test]
fn a_caller_and_a_job_that_restart_the_bmc_each_get_their_answer() {
    const RESET: PowerOrder = PowerOrder::BmcReset { warm: false };
    let mut bench = BmcBench::new();
    let id = bench.with_node(1);
    bench.with(|bmcs, context| bmcs.vendor_order(context, id, 7, RESET));
    bench.start_job(id);
    bench.for_job(id, RESET);
    let [(vendor, _), (job, _)] = bench.given()[..] else {
        panic!("both are sent");
    };
    bench.answer(job, Err(silent()));
    let (notes, events) = bench.notes_and_events();
    assert!(notes[0].starts_with("bmc_reset cold"), "{notes:?}");
    assert_eq!(
        completed(&events),
        [(BmcOrderOwner::Job, RESET, false)],
        "{events:?}"
    );
    assert!(bench.bmcs.awaits_reply(id));
    bench.answer(vendor, Ok(PowerAnswer::Accepted));
    let (_, events) = bench.notes_and_events();
    let result = Ok(json!({"accepted": true}));
    let reply = BmcOutcome::ReplyReady { ticket: 7, result };
    assert!(events.contains(&reply), "{events:?}");
    assert!(!bench.bmcs.awaits_reply(id));
}

#[test]
fn a_boot_device_is_set_once_for_an_operator_and_for_a_job() {
    let mut bench = BmcBench::new();
    let id = bench.with_node(1);
    bench.for_operator(id, BOOT);
    let (number, order) = bench.given_one();
    assert_eq!(order, BOOT);
    bench.answer(number, Ok(PowerAnswer::Accepted));
    let done = completed(&bench.events());
    assert_eq!(done, [(BmcOrderOwner::Operator, BOOT, true)]);
    bench.for_operator(id, BOOT);
    bench.answer(bench.given_one().0, Err(silent()));
    let (notes, events) = bench.notes_and_events();
    assert!(notes[0].contains("did not answer"), "{notes:?}");
    assert_eq!(completed(&events), [(BmcOrderOwner::Operator, BOOT, false)]);
    bench.start_job(id);
    bench.for_job(id, BOOT);
    bench.answer(bench.given_one().0, Ok(PowerAnswer::Accepted));
    let done = completed(&bench.events());
    assert_eq!(done, [(BmcOrderOwner::Job, BOOT, true)]);
}

#[test]
fn an_order_that_no_protocol_takes_is_answered_with_the_reason() {
    for (driver, vendor, order, want) in [
        ("strange", None, PowerOrder::On, "hardware type"),
        (
            "ipmi",
            Some(VendorInterface::NoVendor),
            PowerOrder::BmcReset { warm: true },
            "vendor",
        ),
        ("redfish", None, PowerOrder::Off, "no protocol"),
    ] {
        let mut bench = BmcBench::new();
        let id = bench.with_node(1);
        driver.clone_into(&mut bench.node(id).driver);
        bench.node(id).attributes.interfaces.vendor = vendor;
        bench.for_operator(id, order);
        let (notes, events) = bench.notes_and_events();
        assert!(notes.iter().any(|note| note.contains(want)), "{notes:?}");
        assert_eq!(
            completed(&events),
            [(BmcOrderOwner::Operator, order, false)]
        );
        let sent = notes.iter().any(|note| note.contains("ordered"));
        assert!(!sent, "{notes:?}");
    }
}

#[test]
fn a_protocol_may_forward_an_order_to_another_one() {
    let mut bench = BmcBench::new();
    let id = bench.with_node(1);
    bench.node(id).driver = "manual-management".into();
    bench.node(id).attributes.interfaces.power = Some(PowerInterface::WakeOnLan);
    bench.one_way.lock().unwrap().forwards = Some(PowerInterface::Ssh);
    bench.for_operator(id, PowerOrder::Off);
    let sent = bench.host.lock().unwrap().orders.clone();
    let [(number, _, PowerOrder::Off)] = sent[..] else {
        panic!("{sent:?}");
    };
    let answer = Ok(PowerAnswer::Power(PowerState::Off));
    let event = BmcProtocolEvent::OrderAnswered { number, answer };
    bench.host.lock().unwrap().events.push_back(event);
    let (notes, events) = bench.notes_and_events();
    assert_eq!(notes, ["power off ordered"]);
    assert_eq!(
        completed(&events),
        [(BmcOrderOwner::Operator, PowerOrder::Off, true)]
    );
    // Two protocols that forward to each other do not hang.
    bench.host.lock().unwrap().forwards = Some(PowerInterface::WakeOnLan);
    bench.for_operator(id, PowerOrder::Off);
    let (_, events) = bench.notes_and_events();
    assert!(!completed(&events)[0].2);
}

#[test]
fn only_replies_of_bmcs_are_measured() {
    let mut bench = BmcBench::new();
    let id = bench.with_node(1);
    bench.for_operator(id, BOOT);
    bench.now = Tick(40);
    bench.answer(bench.given_one().0, Ok(PowerAnswer::Accepted));
    let events = bench.events();
    let measured = events.iter().find_map(|event| match event {
        BmcOutcome::HealthChanged { health, .. } => Some(health.median_ms),
        _ => None,
    });
    assert_eq!(measured, Some(Some(40)));
    bench.wire().refuses = Some(PowerError::QueueFull);
    bench.for_operator(id, BOOT);
    bench.node(id).driver = "fake-hardware".into();
    bench.for_operator(id, PowerOrder::Status);
    let events = bench.events();
    let measures = |event: &BmcOutcome| matches!(event, BmcOutcome::HealthChanged { .. });
    assert!(!events.iter().any(measures), "{events:?}");
}

#[test]
fn a_message_reaches_the_protocol_that_it_belongs_to() {
    let mut bench = BmcBench::new();
    let from = |port| SocketAddr::from(([192, 0, 2, 1], port));
    for port in [623, 9] {
        let message = BmcMessage::Datagram {
            from: from(port),
            bytes: vec![6],
        };
        bench.with(|bmcs, context| bmcs.receive(context, message));
    }
    assert_eq!(bench.wire().received, 1);
    let to = from(623);
    let bytes = vec![7];
    let datagram = BmcTransmit::Datagram { to, bytes };
    bench.wire().transmits.push_back(datagram);
    let sent = bench.bmcs.next_transmit(Tick(0));
    assert!(matches!(sent, Some(BmcTransmit::Datagram { to: there, .. }) if there == to));
    assert!(bench.bmcs.next_transmit(Tick(0)).is_none());
}

#[test]
fn a_node_that_is_deleted_gets_no_answers() {
    let mut bench = BmcBench::new();
    let id = bench.with_node(1);
    bench.for_operator(id, PowerOrder::Off);
    bench.with(|bmcs, context| bmcs.vendor_request(context, id, 7, BmcRequest::Sensors));
    let (number, _) = bench.given_one();
    bench.events();
    bench.nodes.0.remove(&id);
    bench.with(|bmcs, context| bmcs.remove(context, id));
    assert_eq!(bench.wire().removed, [id]);
    let events = bench.events();
    assert!(
        matches!(
            &events[..],
            [BmcOutcome::ReplyReady { ticket: 7, result: Err(refusal) }]
                if refusal.sentence.contains("deleted")
        ),
        "{events:?}"
    );
    bench.answer_power(number, PowerState::Off);
    assert_eq!(bench.events(), []);
    assert_eq!(
        (bench.bmcs.deadline(), bench.bmcs.replies_awaited()),
        (None, 0)
    );
    // Orders for it are not sent.
    bench.for_job(id, PowerOrder::On);
    assert_eq!((bench.given(), bench.events()), (Vec::new(), Vec::new()));
}
