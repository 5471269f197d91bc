//! Vendor methods: deferred replies, and agents from before tokens.

use trivet_model::order::VendorMethod;
use trivet_model::power::RawBytes;
use trivet_model::{AgentSession, JobPhase, PowerOrder, PowerState};

use super::power::{RackTestChassis, bmc, exchange_until_reply, power_order};
use super::*;
use trivet_bmc::DEFERRED_REPLIES_MAX;

const RAW: PowerOrder = PowerOrder::BmcReset { warm: true };

fn vendor(node: NodeId, order: PowerOrder) -> RackOrder {
    let method = VendorMethod::Bmc(order);
    RackOrder::Vendor { node, method }
}

fn status() -> PowerOrder {
    PowerOrder::Raw {
        netfn: 0,
        command: 1,
        data: RawBytes::new(&[]).unwrap(),
    }
}

fn agent(node: NodeId) -> RackOrder {
    RackOrder::Vendor {
        node,
        method: VendorMethod::Agent {
            command: "standby.sync".into(),
            params: serde_json::Map::new(),
            wait: true,
        },
    }
}

/// Sends the order with this ticket; returns the reply, if there is one at once.
fn submit_order(
    bench: &mut RackBench,
    ticket: u64,
    order: RackOrder,
) -> Option<Result<OrderOutcome, OrderRefusal>> {
    let caller = caller();
    bench.handle(RackInput::Order {
        ticket,
        caller,
        order,
    });
    reply(bench, ticket)
}

fn reply(bench: &mut RackBench, wanted: u64) -> Option<Result<OrderOutcome, OrderRefusal>> {
    bench.outputs.iter().find_map(|output| match output {
        RackOutput::Reply { ticket, result } if *ticket == wanted => Some(result.clone()),
        _ => None,
    })
}

#[test]
fn the_answer_comes_when_the_bmc_has_answered() {
    let mut bench = RackBench::new();
    let id = bench.with_node(1);
    let (mut bmc, mut case) = (bmc(), RackTestChassis::new(true));
    assert_eq!(submit_order(&mut bench, 7, vendor(id, status())), None);
    let (ticket, result) = exchange_until_reply(&mut bench, &mut bmc, &mut case);
    assert_eq!(ticket, 7);
    let reply = json!({"completion_code": "0x00", "data": "0x01 0x00 0x40"});
    assert_eq!(result, Ok(OrderOutcome::Reply(reply)));
    let notes = bench.notes();
    assert!(notes[0].starts_with("send_raw 0x00 0x01"), "{notes:?}");
    assert_eq!(bench.replies_awaited(), 0);
    assert_eq!(bench.node(id).target_power_state, None);
}

#[test]
fn an_interrupt_and_a_reset_are_accepted() {
    for order in [PowerOrder::Nmi, RAW] {
        let mut bench = RackBench::new();
        let id = bench.with_node(1);
        assert_eq!(submit_order(&mut bench, 7, vendor(id, order)), None);
        let (_, result) =
            exchange_until_reply(&mut bench, &mut bmc(), &mut RackTestChassis::new(true));
        assert_eq!(result, Ok(OrderOutcome::Reply(json!({"accepted": true}))));
    }
}

#[test]
fn one_at_a_time_and_not_during_a_job() {
    let mut bench = RackBench::new();
    let id = bench.with_node(1);
    assert_eq!(submit_order(&mut bench, 7, vendor(id, status())), None);
    bench.refused(vendor(id, RAW), RefusalKind::Conflict);
    let nobody = NodeId::random(&mut SeededRandom::new(99));
    bench.refused(vendor(nobody, RAW), RefusalKind::NotFound);
    let (mut bench, id) = RackBench::inspecting();
    bench.force(id, |node| node.provision_state = ProvisionState::Inspecting);
    let message = bench.refused(vendor(id, RAW), RefusalKind::Conflict);
    assert!(message.contains("inspecting"), "{message}");
}

#[test]
fn an_invalid_node_is_refused_at_once() {
    let mut bench = RackBench::new();
    let id = bench.with_node(1);
    bench.force(id, |node| drop(node.driver_info.remove("ipmi_address")));
    let message = bench.refused(vendor(id, RAW), RefusalKind::Invalid);
    assert!(message.contains("ipmi_address"), "{message}");
    assert_eq!(bench.replies_awaited(), 0);
}

#[test]
fn a_silent_bmc_and_a_bound_end_the_wait() {
    let mut bench = RackBench::new();
    let id = bench.with_node(1);
    assert_eq!(submit_order(&mut bench, 7, vendor(id, status())), None);
    let mut answer = None;
    for _ in 0..30 {
        bench.advance(1000);
        answer = answer.or_else(|| reply(&mut bench, 7));
    }
    let refusal = answer.unwrap().unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::Failed);
    assert!(refusal.sentence.contains("did not answer"), "{refusal}");
    // A session that is replaced ends the pending requests with an error.
    assert_eq!(submit_order(&mut bench, 8, vendor(id, status())), None);
    bench.force(id, |node| {
        let info = &mut node.driver_info;
        info.insert("ipmi_password".into(), json!("other"));
    });
    bench.order(power_order(id, PowerState::On)).unwrap();
    let refusal = reply(&mut bench, 8).unwrap().unwrap_err();
    assert!(
        refusal.sentence.contains("driver_info changed"),
        "{refusal}"
    );
    assert_eq!(bench.replies_awaited(), 0);
}

#[test]
fn pending_requests_have_a_bound_and_end_with_their_node() {
    let mut bench = RackBench::new();
    let mut last = bench.with_node(1);
    for number in 0..DEFERRED_REPLIES_MAX {
        let mut one = node(1);
        one.id = NodeId::random(&mut SeededRandom::new(1000 + number as u64));
        one.name = None;
        let [high, low] = (number as u16).to_be_bytes();
        let address = format!("198.51.{high}.{low}");
        one.driver_info
            .insert("ipmi_address".into(), json!(address));
        last = one.id;
        bench.order(RackOrder::CreateNode(Box::new(one))).unwrap();
        assert_eq!(
            submit_order(&mut bench, 100 + number as u64, vendor(last, status())),
            None
        );
    }
    let first = node(1).id;
    bench.refused(vendor(first, RAW), RefusalKind::Unavailable);
    bench.order(RackOrder::DeleteNode(last)).unwrap();
    let ticket = 99 + DEFERRED_REPLIES_MAX as u64;
    let refusal = reply(&mut bench, ticket).unwrap().unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::NotFound);
    assert_eq!(
        submit_order(&mut bench, 5, vendor(first, RAW)),
        None,
        "below the bound again"
    );
}

/// A node in `inspect wait` whose agent has sent its callback URL.
fn with_agent() -> (RackBench, NodeId) {
    let (mut bench, id) = RackBench::inspecting();
    bench.force(id, |node| {
        node.agent = Some(AgentSession {
            token: "s3cret".into(),
            url: Some("http://10.0.0.100:9999".into()),
            ..AgentSession::legacy()
        });
    });
    (bench, id)
}

fn called(bench: &RackBench) -> Option<u64> {
    bench.outputs.iter().find_map(|output| match output {
        RackOutput::CallAgent { call, .. } => Some(*call),
        _ => None,
    })
}

#[test]
fn an_agents_answer_comes_back_whole_and_its_status_is_noted() {
    let (mut bench, id) = with_agent();
    assert_eq!(submit_order(&mut bench, 7, agent(id)), None);
    let call = called(&bench).unwrap();
    let document = json!({"command_status": "SUCCEEDED", "command_result": {"a": 1}});
    let answered = |call, result| RackInput::AgentAnswered {
        node: id,
        call,
        result,
    };
    let body = document.to_string().into_bytes();
    bench.handle(answered(call + 1, Ok((200, body.clone()))));
    assert_eq!(reply(&mut bench, 7), None, "that was another call");
    bench.handle(answered(call, Ok((200, body))));
    assert_eq!(
        reply(&mut bench, 7),
        Some(Ok(OrderOutcome::Reply(document)))
    );
    assert_eq!(bench.notes(), ["agent_command standby.sync: SUCCEEDED"]);
    for (result, kind) in [
        (Err("connection refused".to_owned()), RefusalKind::Failed),
        (Ok((409, b"{}".to_vec())), RefusalKind::Conflict),
        (Ok((200, b"junk".to_vec())), RefusalKind::Failed),
    ] {
        assert_eq!(submit_order(&mut bench, 8, agent(id)), None);
        let call = called(&bench).unwrap();
        bench.handle(answered(call, result));
        let refusal = reply(&mut bench, 8).unwrap().unwrap_err();
        assert_eq!(refusal.kind, kind, "{refusal}");
        assert!(!format!("{:?}", bench.notes()).contains("s3cret"));
    }
}

#[test]
fn an_agent_that_is_not_there_or_at_work_gets_no_command() {
    let (mut bench, id) = RackBench::inspecting();
    let message = bench.refused(agent(id), RefusalKind::Invalid);
    assert!(message.contains("no agent"), "{message}");
    let (mut bench, id) = with_agent();
    for phase in [JobPhase::AwaitStep, JobPhase::GetSteps, JobPhase::Sync] {
        bench.force(id, |node| node.job.as_mut().unwrap().phase = phase);
        bench.refused(agent(id), RefusalKind::Conflict);
    }
    bench.force(id, |node| node.provision_state = ProvisionState::CleanHold);
    assert_eq!(
        submit_order(&mut bench, 7, agent(id)),
        None,
        "on hold it rests"
    );
}

fn legacy_lookup() -> RackOrder {
    RackOrder::LegacyLookup {
        addresses: vec![MAC],
        node: None,
    }
}

fn legacy_heartbeat(node: NodeId, url: &str) -> RackOrder {
    let url = url.to_owned();
    RackOrder::LegacyHeartbeat { node, url }
}

#[test]
fn agents_from_before_tokens_are_accepted_only_where_it_is_allowed() {
    const URL: &str = "http://10.0.0.100:9999";
    let (mut bench, id) = RackBench::inspecting();
    let unknown = bench.order(legacy_lookup()).unwrap_err();
    assert_eq!(unknown.kind, RefusalKind::NotFound);
    bench.force(id, |node| {
        drop(
            node.driver_info
                .insert("agent_legacy_api".into(), json!(true)),
        );
    });
    bench.refused(legacy_heartbeat(id, URL), RefusalKind::Invalid);
    for _ in 0..2 {
        let Ok(OrderOutcome::Found(found)) = bench.order(legacy_lookup()) else {
            panic!("not found");
        };
        assert_eq!((found.node, found.heartbeat_timeout_s), (id, 300));
    }
    bench.order(legacy_heartbeat(id, URL)).unwrap();
    bench.order(legacy_heartbeat(id, URL)).unwrap();
    bench.refused(
        legacy_heartbeat(id, "http://10.0.0.7:9999"),
        RefusalKind::Invalid,
    );
    // No value is accepted as the token of an agent that has none.
    for token in ["", "x"] {
        let heartbeat = heartbeat_with(token);
        bench.refused(
            RackOrder::Heartbeat {
                node: id,
                heartbeat,
            },
            RefusalKind::Invalid,
        );
    }
    bench.force(id, |node| drop(node.driver_info.remove("agent_legacy_api")));
    bench.refused(legacy_heartbeat(id, URL), RefusalKind::Invalid);
}

#[test]
fn a_refused_heartbeat_from_before_tokens_has_the_same_error_for_every_node() {
    const URL: &str = "http://10.0.0.100:9999";
    let (mut bench, id) = RackBench::inspecting();
    let unknown = NodeId::random(&mut SeededRandom::new(77));
    let want = bench.order(legacy_heartbeat(unknown, URL)).unwrap_err();
    let refused =
        |bench: &mut RackBench, url: &str| bench.order(legacy_heartbeat(id, url)).unwrap_err();
    assert_eq!(refused(&mut bench, URL), want, "not allowed");
    bench.force(id, |node| {
        drop(
            node.driver_info
                .insert("agent_legacy_api".into(), json!(true)),
        );
    });
    assert_eq!(refused(&mut bench, URL), want, "not looked up");
    bench.order(legacy_lookup()).unwrap();
    bench.order(legacy_heartbeat(id, URL)).unwrap();
    let other = refused(&mut bench, "http://10.0.0.7:9999");
    assert_eq!(other, want, "another address");
}

#[test]
fn an_agent_with_a_token_is_not_replaced_by_one_without() {
    let (mut bench, id) = RackBench::inspecting();
    bench.force(id, |node| {
        drop(
            node.driver_info
                .insert("agent_legacy_api".into(), json!(true)),
        );
    });
    let token = bench.lookup().unwrap().agent_token;
    assert_eq!(
        bench.order(legacy_lookup()).unwrap_err().kind,
        RefusalKind::NotFound
    );
    bench.refused(
        legacy_heartbeat(id, "http://10.0.0.100:9999"),
        RefusalKind::Invalid,
    );
    let heartbeat = heartbeat_with(&token);
    bench
        .order(RackOrder::Heartbeat {
            node: id,
            heartbeat,
        })
        .unwrap();
    // And not when no agent is expected.
    let mut bench = RackBench::new();
    let id = bench.with_node(1);
    bench.force(id, |node| {
        drop(
            node.driver_info
                .insert("agent_legacy_api".into(), json!(true)),
        );
    });
    assert_eq!(
        bench.order(legacy_lookup()).unwrap_err(),
        bench.lookup().unwrap_err()
    );
    assert_eq!(bench.node(id).power_state, None::<PowerState>);
}
