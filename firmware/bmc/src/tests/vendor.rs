//! Replies that callers wait for.

use trivet_model::interface::VendorInterface;
use trivet_model::power::HardwareHealth;

use super::*;

fn send(bench: &mut BmcBench, id: NodeId, ticket: u64, request: BmcRequest) -> Option<u64> {
    bench.with(|bmcs, context| bmcs.vendor_request(context, id, ticket, request));
    let sent = std::mem::take(&mut bench.wire().requests);
    sent.first().map(|(number, ..)| *number)
}

fn replies(events: Vec<BmcOutcome>) -> Vec<(u64, Result<serde_json::Value, String>)> {
    let replies = events.into_iter().filter_map(|event| match event {
        BmcOutcome::ReplyReady { ticket, result } => {
            Some((ticket, result.map_err(|refusal| refusal.sentence)))
        }
        _ => None,
    });
    replies.collect()
}

fn answer(bench: &BmcBench, number: u64, reply: Result<BmcReply, PowerError>) {
    let event = BmcProtocolEvent::RequestAnswered { number, reply };
    bench.wire().events.push_back(event);
}

#[test]
fn the_reply_goes_to_the_ticket_of_its_request() {
    let mut bench = BmcBench::new();
    let (one, two) = (bench.with_node(1), bench.with_node(2));
    let first = send(&mut bench, one, 7, BmcRequest::ClearEvents).unwrap();
    let second = send(&mut bench, two, 8, BmcRequest::Identity).unwrap();
    assert_eq!(bench.bmcs.replies_awaited(), 2);
    answer(&bench, second, Err(silent()));
    answer(&bench, first, Ok(BmcReply::Done));
    let (notes, events) = bench.notes_and_events();
    assert!(notes[0].contains("did not answer"), "{notes:?}");
    assert!(notes[1].starts_with("clear event log: done"), "{notes:?}");
    let completes = BmcOutcome::RequestCompleted {
        node: one,
        request: BmcRequest::ClearEvents,
        reply: BmcReply::Done,
    };
    assert!(events.contains(&completes), "{events:?}");
    let replies = replies(events);
    assert!(matches!(&replies[0], (8, Err(message)) if message.contains("did not answer")));
    assert_eq!(replies[1], (7, Ok(json!({"done": true}))));
}

#[test]
fn a_reading_is_not_noted() {
    let mut bench = BmcBench::new();
    let id = bench.with_node(1);
    let number = send(&mut bench, id, 7, BmcRequest::Mailbox).unwrap();
    answer(&bench, number, Ok(BmcReply::Mailbox(String::new())));
    let (notes, events) = bench.notes_and_events();
    assert_eq!(notes, [""; 0]);
    assert_eq!(replies(events), [(7, Ok(json!({"data": ""})))]);
}

#[test]
fn a_bmc_request_may_take_minutes_but_not_for_ever() {
    let mut bench = BmcBench::new();
    let id = bench.with_node(1);
    // A protocol that never answers: the time limit ends the wait.
    let number = send(&mut bench, id, 7, BmcRequest::Events).unwrap();
    assert_eq!(bench.bmcs.deadline(), Some(Tick(BMC_REPLY_MS_MAX)));
    bench.advance(BMC_REPLY_MS_MAX - 1);
    assert_eq!(bench.events(), []);
    bench.advance(1);
    let (notes, events) = bench.notes_and_events();
    assert_eq!(notes, ["read event log: no answer in time"]);
    let ended = replies(events);
    assert!(matches!(&ended[..], [(7, Err(message))] if message.contains("in time")));
    // A reply after that belongs to no caller, not even to one with the same request.
    send(&mut bench, id, 8, BmcRequest::Events).unwrap();
    answer(&bench, number, Ok(BmcReply::Done));
    assert_eq!(replies(bench.events()), []);
    assert!(bench.bmcs.awaits_reply(id));
}

#[test]
fn an_order_has_a_shorter_limit_and_its_data_are_not_noted() {
    let mut bench = BmcBench::new();
    let id = bench.with_node(1);
    let secret = trivet_model::power::RawBytes::new(b"hunter2").unwrap();
    let raw = PowerOrder::Raw {
        netfn: 6,
        command: 0x47,
        data: secret,
    };
    bench.with(|bmcs, context| bmcs.vendor_order(context, id, 7, raw));
    let (number, order) = bench.given_one();
    assert_eq!(order, raw);
    bench.advance(DEFERRED_REPLY_MS_MAX);
    let (notes, events) = bench.notes_and_events();
    assert_eq!(notes, ["send_raw 0x06 0x47 and 7 bytes: no answer in time"]);
    assert_eq!(replies(events).len(), 1);
    // The late answer is noted, because the command was carried out.
    let data = trivet_model::power::RawBytes::new(&[]).unwrap();
    bench.answer(number, Ok(PowerAnswer::Raw { code: 0xc1, data }));
    let (notes, events) = bench.notes_and_events();
    assert_eq!(
        notes,
        ["send_raw 0x06 0x47 and 7 bytes: completion code 0xc1"]
    );
    assert_eq!(replies(events), []);
}

#[test]
fn errors_tell_the_caller_whether_a_repetition_helps() {
    use trivet_model::{BmcFailureCause, RefusalKind};
    for (error, kind) in [
        (
            PowerError::Unsupported { message: "x" },
            RefusalKind::Invalid,
        ),
        (
            PowerError::NotConfigured { missing: "x" },
            RefusalKind::Invalid,
        ),
        (PowerError::QueueFull, RefusalKind::Conflict),
        (
            PowerError::Bmc {
                cause: BmcFailureCause::Missing,
                message: "x".to_owned(),
            },
            RefusalKind::NotFound,
        ),
        (silent(), RefusalKind::Failed),
    ] {
        let mut bench = BmcBench::new();
        let id = bench.with_node(1);
        bench.wire().refuses = Some(error);
        assert_eq!(send(&mut bench, id, 7, BmcRequest::Sensors), None);
        let refused = bench.events().into_iter().find_map(|event| match event {
            BmcOutcome::ReplyReady { result, .. } => result.err(),
            _ => None,
        });
        assert_eq!(refused.map(|refusal| refusal.kind), Some(kind));
        assert!(!bench.bmcs.awaits_reply(id));
    }
}

#[test]
fn a_subscription_needs_a_vendor_interface_and_other_requests_do_not() {
    let mut bench = BmcBench::new();
    let id = bench.with_node(1);
    let subscription = || BmcRequest::Unsubscribe { id: "7".to_owned() };
    let number = send(&mut bench, id, 7, subscription()).unwrap();
    answer(&bench, number, Ok(BmcReply::Done));
    let (notes, events) = bench.notes_and_events();
    assert!(
        notes[0].starts_with("delete subscription: done"),
        "{notes:?}"
    );
    assert_eq!(replies(events), [(7, Ok(json!({"done": true})))]);
    bench.node(id).attributes.interfaces.vendor = Some(VendorInterface::NoVendor);
    assert_eq!(send(&mut bench, id, 8, subscription()), None);
    let refused = replies(bench.events());
    assert!(
        matches!(&refused[..], [(8, Err(message))] if message.contains("vendor")),
        "{refused:?}"
    );
    assert!(send(&mut bench, id, 9, BmcRequest::Sensors).is_some());
}

#[test]
fn the_health_that_a_protocol_reports_is_an_outcome() {
    let mut bench = BmcBench::new();
    let node = bench.with_node(1);
    for health in [Some(HardwareHealth::Critical), None] {
        let event = BmcProtocolEvent::HardwareHealth { node, health };
        bench.wire().events.push_back(event);
        let want = BmcOutcome::HardwareHealth { node, health };
        assert_eq!(bench.events(), [want]);
    }
}
