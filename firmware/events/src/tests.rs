use std::sync::Arc;

use serde_json::Value;
use trivet_model::{BoxFault, EventTopic, NodeId, Note, NoteKind, ProvisionState, Tick, UnixMs};
use uuid::Uuid;

use super::*;

const EPOCH: u64 = 0xfeed;

fn note(kind: NoteKind) -> Note {
    Note {
        at: UnixMs(1_000),
        node: Some(NodeId(Uuid::from_u128(7))),
        kind,
    }
}

fn ring(events: u64) -> EventRing {
    let mut ring = EventRing::new(EPOCH);
    for _ in 0..events {
        ring.push(&note(NoteKind::Inspected), Some("n1"));
    }
    ring
}

fn numbers(events: &[Arc<BoxEvent>]) -> Vec<u64> {
    events.iter().map(|event| event.sequence).collect()
}

#[test]
fn an_event_has_its_facts_as_fields() {
    let mut ring = EventRing::new(EPOCH);
    let (from, to) = (ProvisionState::Deploying, ProvisionState::Active);
    ring.push(&note(NoteKind::StateChanged { from, to }), Some("n1"));
    let event = ring.read(0, 9).unwrap().remove(0);
    let json: Value = serde_json::from_str(&event.json).unwrap();
    assert_eq!(json["id"], "000000000000feed-1");
    assert_eq!(json["topic"], "state");
    assert_eq!(json["kind"], "state_changed");
    assert_eq!(
        (&json["from"], &json["to"]),
        (&"deploying".into(), &"active".into())
    );
    assert_eq!(json["node"], "00000000-0000-0000-0000-000000000007");
    assert_eq!(json["node_name"], "n1");
    assert_eq!(json["message"], "deploying -> active");
    assert!(event.is_of_node("n1") && !event.is_of_node("n2"));
    let frame = event.frame();
    assert!(frame.starts_with("id: 000000000000feed-1\nevent: state\ndata: {"));
    assert!(frame.ends_with("}\n\n"));
}

#[test]
fn text_of_others_cannot_end_a_frame_and_is_cut() {
    let mut ring = EventRing::new(EPOCH);
    let why = format!("a\n\ndata: {{}}\r\n{}", "x".repeat(9000));
    ring.push(&note(NoteKind::Failed { why }), None);
    let event = ring.read(0, 9).unwrap().remove(0);
    assert_eq!(event.frame().matches('\n').count(), 4);
    assert!(!event.frame().contains('\r'));
    assert!(event.json.len() < MESSAGE_CHARS_MAX + 400);
}

#[test]
fn faults_and_images_have_topics_of_their_own() {
    let mut ring = EventRing::new(EPOCH);
    ring.push(&note(NoteKind::FaultRaised(BoxFault::AgentMissing)), None);
    let image = "a".to_owned();
    ring.push(&note(NoteKind::ImageEvicted { image }), None);
    let events = ring.read(0, 9).unwrap();
    assert_eq!(events[0].topic, EventTopic::Fault);
    assert!(events[0].json.contains("\"fault\":\"agent_missing\""));
    assert_eq!(events[1].topic, EventTopic::Image);
    assert!(events[1].json.contains("\"image\":\"a\""));
}

#[test]
fn events_of_images_written_ahead_name_the_image() {
    let mut ring = EventRing::new(EPOCH);
    let image = || "a".to_owned();
    for kind in [
        NoteKind::ImageAheadStarted { image: image() },
        NoteKind::ImageWasOnDisk { image: image() },
    ] {
        ring.push(&note(kind), None);
    }
    for event in ring.read(0, 9).unwrap() {
        assert_eq!(event.topic, EventTopic::Image);
        assert!(event.json.contains("\"image\":\"a\""));
    }
}

#[test]
fn a_client_continues_after_its_last_event() {
    let ring = ring(10);
    let start = ring.resume(&ring.id(7));
    assert_eq!(
        start,
        StreamStart {
            after: 7,
            reset: None
        }
    );
    assert_eq!(numbers(&ring.read(7, 9).unwrap()), [8, 9, 10]);
    assert_eq!(numbers(&ring.read(7, 2).unwrap()), [8, 9]);
    assert!(ring.read(10, 9).unwrap().is_empty());
}

#[test]
fn a_client_of_before_a_restart_is_told_so() {
    let ring = ring(3);
    let restarted = StreamStart {
        after: 3,
        reset: Some(StreamReset::Restarted),
    };
    for last in [
        "000000000000beef-2",
        "000000000000feed-4",
        "feed-1",
        "-",
        "",
        "000000000000feed-x",
        "000000000000feed-99999999999999999999999",
    ] {
        assert_eq!(ring.resume(last), restarted, "{last}");
    }
}

#[test]
fn a_client_that_is_slower_than_the_ring_loses_its_position() {
    let many = EVENTS_MAX as u64 + 5;
    let ring = ring(many);
    assert_eq!(ring.read(4, 1), Err(EventOvertaken { lost: 1 }));
    assert_eq!(numbers(&ring.read(5, 1).unwrap()), [6]);
    let too_old = StreamStart {
        after: many,
        reset: Some(StreamReset::TooOld),
    };
    assert_eq!(ring.resume(&ring.id(4)), too_old);
    assert_eq!(ring.resume(&ring.id(5)).reset, None);
    assert_eq!(ring.start(true).after, 5);
    assert_eq!(ring.start(false).after, many);
}

#[test]
fn the_bytes_of_the_ring_have_a_bound() {
    let mut ring = EventRing::new(EPOCH);
    for _ in 0..EVENTS_MAX {
        let why = "x".repeat(MESSAGE_CHARS_MAX);
        ring.push(&note(NoteKind::Failed { why }), None);
    }
    let stored = ring.read(ring.start(true).after, usize::MAX).unwrap();
    let bytes: usize = stored.iter().map(|event| event.json.len()).sum();
    assert!(
        bytes <= EVENTS_BYTES_MAX && stored.len() > 1000,
        "{}",
        stored.len()
    );
}

fn queue(events: u64) -> WebhookQueue {
    let mut queue = WebhookQueue::default();
    let ring = ring(events);
    for event in ring.read(0, usize::MAX).unwrap() {
        assert!(queue.push(event));
    }
    queue
}

#[track_caller]
fn sent(queue: &mut WebhookQueue, now: u64) -> (String, Value) {
    match queue.next_step(Tick(now), "box") {
        WebhookStep::Send { id, body } => (id, serde_json::from_str(&body).unwrap()),
        WebhookStep::Wait(until) => panic!("waits until {until:?}"),
    }
}

#[test]
fn events_are_sent_one_after_the_other_in_order() {
    let mut queue = queue(2);
    let (id, body) = sent(&mut queue, 0);
    assert_eq!(id, "000000000000feed-1");
    assert_eq!((&body["box"], &body["missed"]), (&"box".into(), &0.into()));
    assert_eq!(body["event"]["id"], id);
    assert_eq!(
        queue.next_step(Tick(0), "box"),
        WebhookStep::Wait(None),
        "one at a time"
    );
    let fine = WebhookNews {
        is_failing: None,
        is_dropped: false,
    };
    assert_eq!(queue.ended(Tick(5), true), fine);
    assert_eq!(sent(&mut queue, 5).0, "000000000000feed-2");
    queue.ended(Tick(6), true);
    assert!(queue.is_empty());
    assert_eq!(queue.next_step(Tick(6), "box"), WebhookStep::Wait(None));
}

#[test]
fn a_failure_is_repeated_after_growing_pauses_and_becomes_a_fault() {
    let mut queue = queue(2);
    let mut now = 0;
    let mut pauses = Vec::new();
    let mut news = Vec::new();
    for _ in 0..4 {
        assert_eq!(sent(&mut queue, now).0, "000000000000feed-1");
        news.push(queue.ended(Tick(now), false).is_failing);
        let WebhookStep::Wait(Some(Tick(until))) = queue.next_step(Tick(now), "box") else {
            panic!("no pause");
        };
        pauses.push(until - now);
        now = until;
    }
    assert_eq!(pauses, [1000, 2000, 4000, 8000]);
    assert_eq!(news, [None, None, Some(true), None]);
    sent(&mut queue, now);
    assert_eq!(queue.ended(Tick(now), true).is_failing, Some(false));
    assert_eq!(sent(&mut queue, now).0, "000000000000feed-2", "at once");
}

#[test]
fn an_event_that_is_never_accepted_does_not_block_the_others_for_ever() {
    let mut queue = queue(2);
    let mut now = 0;
    for attempt in 1..=WEBHOOK_TRIES_MAX {
        assert_eq!(sent(&mut queue, now).0, "000000000000feed-1");
        let news = queue.ended(Tick(now), false);
        assert_eq!(news.is_dropped, attempt == WEBHOOK_TRIES_MAX);
        now += 300_000;
    }
    let (id, body) = sent(&mut queue, now);
    assert_eq!(id, "000000000000feed-2");
    assert_eq!(body["missed"], 1);
}

#[test]
fn a_full_queue_drops_the_oldest_event_but_not_the_one_that_is_being_sent() {
    let mut queue = queue(WEBHOOK_WAITING_MAX as u64);
    let ring = ring(WEBHOOK_WAITING_MAX as u64 + 1);
    assert_eq!(sent(&mut queue, 0).0, "000000000000feed-1");
    let last = ring.read(WEBHOOK_WAITING_MAX as u64, 1).unwrap().remove(0);
    assert!(!queue.push(last));
    assert_eq!(queue.len(), WEBHOOK_WAITING_MAX);
    queue.ended(Tick(0), true);
    assert_eq!(sent(&mut queue, 0).0, "000000000000feed-3");
}

/// RFC 4231, test case 2.
#[test]
fn a_body_is_signed_with_hmac_sha256() {
    let want = "sha256=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
    assert_eq!(signature(b"Jefe", b"what do ya want for nothing?"), want);
}
