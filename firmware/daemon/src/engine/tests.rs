//! Tests of the engine with a store in a real file.

use super::*;
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU32;
use std::sync::Mutex;

use serde_json::json;
use trivet_model::order::{AgentHeartbeat, VendorMethod};
use trivet_model::{MacAddr, Node, NodeId, Port, PortId, PowerOrder, UnixMs};
use trivet_rack::FileServerProtocol;

use crate::testbed::{self, TestbedDirectory, node, node_with_agent};

const TOKEN: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// An engine thread that the test steps itself, with a store of 256 KiB.
fn thread(scratch: &TestbedDirectory) -> (EngineThread, Engine) {
    let store = testbed::store(&scratch.0, 256, 16 << 10);
    let settings = testbed::settings(&scratch.0);
    let (mut thread, engine) =
        EngineThread::new(DaemonClock::start(), settings, store, Box::new(|_| {})).unwrap();
    thread.begin().unwrap();
    (thread, engine)
}

type OrderReplyReceiver = oneshot::Receiver<Result<OrderOutcome, OrderRefusal>>;

fn order_message(order: RackOrder) -> (EngineMessage, OrderReplyReceiver) {
    let (reply, answer) = oneshot::channel();
    let pending = PendingOrder {
        caller: testbed::caller(),
        order,
        reply,
    };
    (EngineMessage::Order(pending), answer)
}

fn create(node: &Node) -> (EngineMessage, OrderReplyReceiver) {
    order_message(RackOrder::CreateNode(Box::new(node.clone())))
}

fn run(thread: &mut EngineThread, batch: Vec<EngineMessage>) {
    if let Some(refused) = thread.attempt(batch).unwrap() {
        thread.retry_separately(refused).unwrap();
    }
}

fn kind(answer: &mut OrderReplyReceiver) -> RefusalKind {
    answer.try_recv().unwrap().unwrap_err().kind
}

/// A node whose record has about this many bytes.
fn node_of_size(bytes: usize) -> Node {
    let mut node = node();
    node.extra
        .insert("filler".to_owned(), "x".repeat(bytes).into());
    node
}

fn on_flash(thread: &EngineThread, id: NodeId) -> bool {
    thread.store.records().unwrap().nodes.contains_key(&id)
}

#[test]
fn an_answer_comes_after_the_commit_and_one_flush_serves_a_batch() {
    let scratch = TestbedDirectory::new();
    let (mut thread, engine) = thread(&scratch);
    let before = thread.store.flash().counts();
    let nodes: Vec<_> = (0..10).map(|_| node()).collect();
    let (batch, answers): (Vec<_>, Vec<_>) = nodes.iter().map(create).unzip();
    run(&mut thread, batch);
    assert_eq!(thread.store.flash().counts().flushes, before.flushes + 1);
    for (node, mut answer) in nodes.iter().zip(answers) {
        assert_eq!(answer.try_recv().unwrap(), Ok(OrderOutcome::Stored));
        assert!(on_flash(&thread, node.id));
        assert!(engine.view().nodes.contains_key(&node.id));
    }
}

#[test]
fn heartbeats_that_change_nothing_write_nothing() {
    let scratch = TestbedDirectory::new();
    let (mut thread, engine) = thread(&scratch);
    let node = node_with_agent(TOKEN);
    let (message, _answer) = create(&node);
    run(&mut thread, vec![message]);
    let heartbeat = || {
        order_message(RackOrder::Heartbeat {
            node: node.id,
            heartbeat: AgentHeartbeat {
                callback_url: "http://192.0.2.9:9999".to_owned(),
                agent_token: Some(TOKEN.to_owned()),
                agent_version: Some("1".to_owned()),
                agent_verify_ca: None,
                callback_refused: None,
            },
        })
    };
    // The first heartbeat of a boot changes the record.
    let before = thread.store.flash().counts();
    let (message, _answer) = heartbeat();
    run(&mut thread, vec![message]);
    let first = thread.store.flash().counts();
    assert_eq!(first.flushes, before.flushes + 1);
    for _ in 0..500 {
        let (message, mut answer) = heartbeat();
        run(&mut thread, vec![message]);
        assert_eq!(answer.try_recv().unwrap(), Ok(OrderOutcome::Stored));
    }
    assert_eq!(thread.store.flash().counts(), first);
    let view = engine.view();
    assert!(view.nodes[&node.id].live.heartbeat_at.is_some());
}

fn datagram(number: usize) -> RackInput {
    let source = std::net::SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 68);
    let mut bytes = vec![0; 300];
    bytes[28..36].copy_from_slice(&number.to_be_bytes());
    RackInput::Dhcp {
        arrival: trivet_rack::dhcp::DhcpArrival::datagram(Ipv4Addr::LOCALHOST, source),
        bytes,
    }
}

#[test]
fn a_flood_of_datagrams_leaves_queue_space_for_orders_and_for_nodes() {
    let scratch = TestbedDirectory::new();
    let (mut thread, engine) = thread(&scratch);
    let node = node();
    let mac = MacAddr([0x52, 0x54, 0, 0, 0, 1]);
    let port = Port {
        id: PortId::random(&mut trivet_model::SeededRandom::new(3)),
        revision: 0,
        serial: 0,
        node: node.id,
        address: mac,
        pxe_enabled: true,
        extra: serde_json::Map::new(),
        attributes: trivet_model::attributes::PortAttributes::default(),
        created_at: UnixMs(0),
        updated_at: None,
    };
    let (one, _answer) = create(&node);
    let (two, _answer) = order_message(RackOrder::CreatePort(Box::new(port)));
    run(&mut thread, vec![one, two]);
    let taken = (0..2 * INPUTS_WAITING_MAX)
        .filter(|number| engine.try_send(datagram(*number)))
        .count();
    assert!(taken < INPUTS_WAITING_MAX / 2, "{taken} of the queue");
    let mut known = datagram(0);
    if let RackInput::Dhcp { bytes, .. } = &mut known {
        bytes[28..34].copy_from_slice(&mac.0);
    }
    assert!(engine.try_send(known), "a message of the node arrives");
    assert!(
        engine.try_send(RackInput::Tick),
        "and so is everything else"
    );
    // A handled datagram has released its permit.
    for _ in 0..=taken.div_ceil(BATCH_INPUTS_MAX) {
        let batch = thread.next_batch();
        run(&mut thread, batch);
    }
    let again = (0..taken).filter(|number| engine.try_send(datagram(*number)));
    assert_eq!(again.count(), taken);
}

/// Such an order may already have caused a BMC request.
#[test]
fn an_order_whose_reply_is_deferred_is_not_given_twice() {
    let scratch = TestbedDirectory::new();
    let (mut thread, _engine) = thread(&scratch);
    let mut node = node();
    node.driver_info
        .insert("ipmi_address".to_owned(), json!("192.0.2.9"));
    let (message, _answer) = create(&node);
    run(&mut thread, vec![message]);
    let method = VendorMethod::Bmc(PowerOrder::Nmi);
    let (message, mut pending) = order_message(RackOrder::Vendor {
        node: node.id,
        method,
    });
    run(&mut thread, vec![message]);
    assert!(pending.try_recv().is_err(), "there is no answer yet");
    assert_eq!((thread.orders.len(), thread.deferred.len()), (0, 1));
    let most = thread.store.layout().record_bytes_max();
    let (message, mut refused) = create(&node_of_size(most - 40));
    run(&mut thread, vec![message]);
    assert!(refused.try_recv().unwrap().is_err());
    assert_eq!(kind(&mut pending), RefusalKind::Failed);
    assert!(thread.deferred.is_empty() && thread.rack.deadline().is_none());
}

#[test]
fn a_refused_order_leaves_the_others_of_its_batch_alone() {
    let scratch = TestbedDirectory::new();
    let (mut thread, engine) = thread(&scratch);
    let most = thread.store.layout().record_bytes_max();
    // Small enough to pass the size check, but too large together with the rest of its
    // record.
    let (good, bad) = (node(), node_of_size(most - 40));
    let (one, mut good_answer) = create(&good);
    let (two, mut bad_answer) = create(&bad);
    let (reply, mut file) = oneshot::channel();
    let wanted = PendingFileRequest {
        listener: FileServerProtocol::Http,
        peer: IpAddr::V4(Ipv4Addr::LOCALHOST),
        certificate: None,
        path: "/boot/52:54:00:00:00:01/script".to_owned(),
        reply,
    };
    run(&mut thread, vec![one, two, EngineMessage::File(wanted)]);
    assert_eq!(good_answer.try_recv().unwrap(), Ok(OrderOutcome::Stored));
    assert_eq!(kind(&mut bad_answer), RefusalKind::Invalid);
    assert!(matches!(file.try_recv(), Ok(Some(FileGrant::Bytes(_)))));
    assert!(on_flash(&thread, good.id) && !on_flash(&thread, bad.id));
    let view = engine.view();
    assert!(view.nodes.contains_key(&good.id) && !view.nodes.contains_key(&bad.id));
}

#[test]
fn a_record_that_is_far_too_large_never_reaches_the_rack() {
    let scratch = TestbedDirectory::new();
    let (mut thread, _engine) = thread(&scratch);
    let most = thread.store.layout().record_bytes_max();
    let node = node_of_size(most + 1);
    let (message, mut answer) = create(&node);
    assert!(thread.attempt(vec![message]).unwrap().is_none());
    assert_eq!(kind(&mut answer), RefusalKind::Invalid);
    let drive = RackOrder::Provision {
        node: node.id,
        verb: trivet_model::Verb::Active,
        args: trivet_model::order::VerbArgs {
            configdrive: Some(json!({"user_data": ["y".repeat(most), null, 7]})),
            ..trivet_model::order::VerbArgs::default()
        },
        based_on: None,
    };
    assert!(size_check::too_large(&drive, most).is_some());
}

#[test]
fn a_full_store_refuses_and_takes_again_after_a_deletion() {
    let scratch = TestbedDirectory::new();
    let (mut thread, engine) = thread(&scratch);
    let mut stored = Vec::new();
    let refused = loop {
        let node = node_of_size(3000);
        let (message, mut answer) = create(&node);
        run(&mut thread, vec![message]);
        match answer.try_recv().unwrap() {
            Ok(_) => stored.push(node.id),
            Err(refusal) => break refusal,
        }
        assert!(stored.len() < 100, "a store of 256 KiB is full by now");
    };
    assert_eq!(refused.kind, RefusalKind::Unavailable);
    assert!(refused.sentence.contains("full"), "{}", refused.sentence);
    assert_eq!(engine.view().nodes.len(), stored.len());
    let (message, mut answer) = order_message(RackOrder::DeleteNode(stored[0]));
    run(&mut thread, vec![message]);
    assert_eq!(answer.try_recv().unwrap(), Ok(OrderOutcome::Stored));
    let (message, mut answer) = create(&node_of_size(1000));
    run(&mut thread, vec![message]);
    assert_eq!(answer.try_recv().unwrap(), Ok(OrderOutcome::Stored));
}

#[tokio::test]
async fn a_full_queue_answers_later_and_still_can_be_stopped() {
    let scratch = TestbedDirectory::new();
    let (mut thread, engine) = thread(&scratch);
    for _ in 0..INPUTS_WAITING_MAX {
        assert!(engine.try_send(RackInput::Tick));
    }
    assert!(!engine.try_send(RackInput::Tick));
    assert!(engine.offer(RackInput::Tick).is_err());
    let refusal = engine
        .order(testbed::caller(), RackOrder::DeleteNode(node().id))
        .await;
    assert_eq!(refusal.unwrap_err().kind, RefusalKind::Unavailable);
    let path = "/boot/kernel".to_owned();
    let peer = IpAddr::V4(Ipv4Addr::LOCALHOST);
    assert!(
        engine
            .file(FileServerProtocol::Http, (peer, None), path)
            .await
            .is_err()
    );
    let running = tokio::task::spawn_blocking(move || {
        thread.run().unwrap();
        let _ = thread.stopping.take().unwrap().send(());
    });
    engine.stop().await;
    running.await.unwrap();
}

#[tokio::test]
async fn a_stopped_engine_refuses_every_call() {
    let scratch = TestbedDirectory::new();
    let (engine, _why) = testbed::engine(testbed::settings(&scratch.0), &scratch.0);
    engine.stop().await;
    let refusal = engine
        .order(testbed::caller(), RackOrder::DeleteNode(node().id))
        .await
        .unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::Unavailable);
    // Stopping twice waits for nothing.
    engine.stop().await;
}

#[tokio::test]
async fn a_restart_finds_all_that_was_acknowledged() {
    let scratch = TestbedDirectory::new();
    let first = node();
    for round in 0..2 {
        let (engine, _why) = testbed::engine(testbed::settings(&scratch.0), &scratch.0);
        if round == 0 {
            let order = RackOrder::CreateNode(Box::new(first.clone()));
            assert_eq!(
                engine.order(testbed::caller(), order).await,
                Ok(OrderOutcome::Stored)
            );
        } else {
            assert!(engine.view().nodes.contains_key(&first.id));
        }
        engine.stop().await;
        // The thread releases the file's lock shortly after its reply.
        drop(engine);
        while std::fs::File::open(scratch.0.join("store"))
            .is_ok_and(|file| file.try_lock().is_err())
        {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn an_engine_that_breaks_is_noticed() {
    let scratch = TestbedDirectory::new();
    let panics = Arc::new(Mutex::new(0));
    let seen = Arc::clone(&panics);
    let settings = testbed::settings(&scratch.0);
    let (engine, why) = testbed::engine_with_sink(settings, &scratch.0, move |_| {
        *seen.lock().unwrap() += 1;
        panic!("a carrier that breaks, on purpose");
    });
    // The caller is recorded in a note, and the note goes to the output sink.
    let order = RackOrder::CreateNode(Box::new(node()));
    let _ = engine.order(testbed::caller(), order).await;
    assert!(why.await.is_err(), "no word, as after a panic");
    assert_eq!(*panics.lock().unwrap(), 1);
}

fn cleaning(phase: trivet_model::JobPhase) -> trivet_model::Job {
    trivet_model::Job {
        kind: trivet_model::JobKind::Clean,
        phase,
        step_kind: Some(trivet_model::StepKind::Clean),
        manual: false,
        steps: Vec::new(),
        at: 0,
        versions: std::collections::BTreeMap::new(),
        tries: 0,
        boots: Some(NonZeroU32::MIN),
        heartbeat_lost_at: None,
        abort_after: None,
        deployment: None,
        has_inspection_data: false,
        awaits_source: false,
        agent_query: None,
    }
}

#[test]
fn a_heartbeat_that_no_record_holds_ends_the_job_it_would_disturb_for_ever() {
    let scratch = TestbedDirectory::new();
    let (mut thread, engine) = thread(&scratch);
    let most = thread.store.layout().record_bytes_max();
    let mut node = node_with_agent(TOKEN);
    let filler = "x".repeat(most - 1500);
    node.extra.insert("filler".to_owned(), filler.into());
    node.provision_state = trivet_model::ProvisionState::CleanWait;
    node.job = Some(cleaning(trivet_model::JobPhase::AwaitAgent));
    let (message, _answer) = create(&node);
    run(&mut thread, vec![message]);
    let certificate = "-----BEGIN CERTIFICATE-----".repeat(60);
    let (message, mut heartbeat) = order_message(RackOrder::Heartbeat {
        node: node.id,
        heartbeat: AgentHeartbeat {
            callback_url: "https://192.0.2.9:9999".to_owned(),
            agent_token: Some(TOKEN.to_owned()),
            agent_version: Some("1".to_owned()),
            agent_verify_ca: Some(certificate),
            callback_refused: None,
        },
    });
    run(&mut thread, vec![message]);
    assert_eq!(kind(&mut heartbeat), RefusalKind::Invalid);
    let node = &engine.view().nodes[&node.id].node;
    assert_eq!(node.job, None);
    assert!(node.last_error.as_ref().unwrap().contains("does not fit"));
}

#[test]
fn an_agents_reply_that_no_record_holds_ends_its_job_and_nothing_else() {
    let scratch = TestbedDirectory::new();
    let store = testbed::store(&scratch.0, 256, 16 << 10);
    let settings = testbed::settings(&scratch.0);
    let out = Arc::new(Mutex::new(Vec::new()));
    let received = Arc::clone(&out);
    let carrier = Box::new(move |output| received.lock().unwrap().push(output));
    let (mut thread, engine) =
        EngineThread::new(DaemonClock::start(), settings, store, carrier).unwrap();
    thread.begin().unwrap();
    let most = thread.store.layout().record_bytes_max();
    let mut node = node_with_agent(TOKEN);
    let filler = "x".repeat(most - 3000);
    node.extra.insert("filler".to_owned(), filler.into());
    node.agent.as_mut().unwrap().url = Some("http://192.0.2.9:9999".to_owned());
    node.provision_state = trivet_model::ProvisionState::Cleaning;
    node.job = Some(cleaning(trivet_model::JobPhase::GetSteps));
    let (message, _answer) = create(&node);
    run(&mut thread, vec![message]);
    let bundle = trivet_model::view::LogBundle {
        name: "1.tar.gz".to_owned(),
        bytes: 1,
    };
    let logs = RackInput::Logs {
        node: node.id,
        bundles: vec![bundle],
        collected: None,
    };
    run(&mut thread, vec![EngineMessage::Input(logs)]);
    thread.rebuild_rack().unwrap();
    let call = out.lock().unwrap().iter().rev().find_map(|it| match it {
        RackOutput::CallAgent { call, .. } => Some(*call),
        _ => None,
    });
    let steps = json!({"clean_steps": {"M": [{"step": "y".repeat(4000)}]}});
    let body = json!({"id": "x", "command_name": "get_clean_steps",
                      "command_status": "SUCCEEDED", "command_result": steps});
    let word = RackInput::AgentAnswered {
        node: node.id,
        call: call.unwrap(),
        result: Ok((200, body.to_string().into_bytes())),
    };
    let (message, mut innocent) = create(&self::node());
    run(&mut thread, vec![EngineMessage::Input(word), message]);
    assert_eq!(innocent.try_recv().unwrap(), Ok(OrderOutcome::Stored));
    let view = engine.view();
    let view = &view.nodes[&node.id];
    assert_eq!(view.node.job, None);
    let why = view.node.last_error.clone().unwrap();
    assert!(why.contains("does not fit"), "{why}");
    assert_eq!(view.live.logs.len(), 1, "files outlive what was taken back");
}
