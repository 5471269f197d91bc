//! Images that are written ahead: which orders leave, what may be fetched, and what remains after
//! a restart.

use super::image_deployment::{news, stored_image};
use super::*;
use trivet_model::image::ImageState;
use trivet_model::node::JsonObject;
use trivet_model::{AgentSession, ImageAheadPhase};

use crate::{AHEAD_WRITES_MAX, FileGrant, FileServerProtocol, ImageAheadAmount, ImageAheadRule};

fn ahead_settings(nodes: u32) -> Settings {
    let mut settings = settings();
    settings.limits.fast_track = true;
    settings.images_ahead = vec![ImageAheadRule {
        image: "far".to_owned(),
        amount: ImageAheadAmount::Nodes(nodes),
        resource_class: None,
    }];
    settings
}

/// An available node that our own agent has cleaned.
fn idle(bench: &mut RackBench, number: u8) -> NodeId {
    let id = bench.with_node(number);
    bench.force(id, |node| {
        node.provision_state = ProvisionState::Available;
        node.agent = Some(AgentSession {
            token: "t".repeat(40),
            url: Some("http://10.0.0.100:9999".into()),
            version: Some("13.0.0-trivet".to_owned()),
            is_clean: true,
            ..AgentSession::legacy()
        });
    });
    id
}

fn beat(bench: &mut RackBench, node: NodeId) {
    let heartbeat = heartbeat_with(&"t".repeat(40));
    bench
        .order(RackOrder::Heartbeat { node, heartbeat })
        .unwrap();
}

/// With the image in the catalogue and complete in the cache.
fn bench_with(nodes: u32) -> RackBench {
    let mut bench = RackBench::with(ahead_settings(nodes));
    stored_image(&mut bench, 9, "far", "http://far/a.raw");
    complete(&mut bench);
    bench
}

fn complete(bench: &mut RackBench) {
    bench.image_is(news(&"0a".repeat(32), ImageState::Complete, None));
}

/// The command in the last batch, and the number of its call.
fn command(bench: &RackBench) -> Option<(Value, u64)> {
    bench.outputs.iter().find_map(|output| match output {
        RackOutput::CallAgent { request, call, .. } => {
            let body = request.body.as_ref();
            let body = body.map(|body| serde_json::from_slice(body).unwrap());
            Some((body.unwrap_or(Value::Null), *call))
        }
        _ => None,
    })
}

fn phase(bench: &RackBench, id: NodeId) -> Option<ImageAheadPhase> {
    Some(bench.node(id).agent?.ahead?.phase)
}

fn answer(bench: &mut RackBench, node: NodeId, call: u64, body: &Value) {
    let result = Ok((200, body.to_string().into_bytes()));
    bench.handle(RackInput::AgentAnswered { node, call, result });
}

fn ahead_result(status: &str, result: &Value) -> Value {
    json!({"id": "1", "command_name": "write_image_ahead", "command_status": status,
           "command_error": null, "command_result": result})
}

fn written(bench: &mut RackBench, id: NodeId, call: u64) {
    answer(bench, id, call, &ahead_result("RUNNING", &Value::Null));
    beat(bench, id);
    let (body, call) = command(bench).expect("the list is read");
    assert_eq!(body, Value::Null);
    let facts = json!({"image_bytes": 100, "os_hash_value": "0a".repeat(32)});
    let list = json!({"commands": [ahead_result("SUCCEEDED", &facts)]});
    answer(bench, id, call, &list);
}

/// Whether the agent of the node may fetch the image and its chunk list.
fn may_fetch(bench: &mut RackBench, url: &str) -> [bool; 2] {
    let path = url.strip_prefix("http://10.0.0.1:8080").unwrap().to_owned();
    [path.clone(), format!("{path}.chunks")].map(|path| {
        bench.handle(RackInput::FileRequested {
            ticket: 1,
            protocol: FileServerProtocol::Http,
            peer: Ipv4Addr::new(10, 0, 0, 100).into(),
            path,
            certificate: None,
        });
        let granted = |output: &RackOutput| {
            matches!(
                output,
                RackOutput::File {
                    grant: Some(FileGrant::Image(_) | FileGrant::ChunkList(_)),
                    ..
                }
            )
        };
        bench.outputs.iter().any(granted)
    })
}

#[test]
fn an_idle_node_gets_the_image_and_its_record_says_when_it_has_it() {
    let mut bench = bench_with(1);
    let id = idle(&mut bench, 1);
    beat(&mut bench, id);
    let (body, call) = command(&bench).expect("the agent gets an order");
    assert_eq!(body["name"], "standby.write_image_ahead");
    let info = body["params"]["image_info"].clone();
    assert_eq!(info["os_hash_value"], "0a".repeat(32));
    assert_eq!(info["disk_format"], "raw");
    // The record was stored with the order, before it left.
    assert_eq!(phase(&bench, id), Some(ImageAheadPhase::Writing));
    let url = info["urls"][0].as_str().unwrap().to_owned();
    assert!(may_fetch(&mut bench, &url)[0]);
    let wrong = format!("{}x/far", url.strip_suffix("/far").unwrap());
    assert_eq!(may_fetch(&mut bench, &wrong), [false; 2]);
    written(&mut bench, id, call);
    assert_eq!(phase(&bench, id), Some(ImageAheadPhase::Written));
    let node = bench.node(id);
    assert_eq!(node.provision_state, ProvisionState::Available);
    let shown = &node.shown_internal_info()["image_ahead"];
    assert_eq!(*shown, json!({"image": "far", "state": "written"}));
    let notes = bench.notes().join("\n");
    assert!(
        notes.contains("image far written ahead, 100 bytes"),
        "{notes}"
    );
    // Its URL has served its purpose, and there is nothing left to do.
    assert_eq!(may_fetch(&mut bench, &url), [false; 2]);
    beat(&mut bench, id);
    assert_eq!(command(&bench), None);
}

#[test]
fn a_restart_of_the_box_reads_what_became_of_the_order() {
    let mut bench = bench_with(1);
    let id = idle(&mut bench, 1);
    beat(&mut bench, id);
    let mut bench = bench.restarted();
    complete(&mut bench);
    assert_eq!(phase(&bench, id), Some(ImageAheadPhase::Writing));
    beat(&mut bench, id);
    let (body, call) = command(&bench).expect("the list is read");
    assert_eq!(body, Value::Null, "no second order");
    // The agent never got the first one.
    answer(&mut bench, id, call, &json!({"commands": []}));
    assert_eq!(phase(&bench, id), Some(ImageAheadPhase::Failed));
    beat(&mut bench, id);
    let (body, call) = command(&bench).expect("it is tried again");
    assert_eq!(body["name"], "standby.write_image_ahead");
    written(&mut bench, id, call);
    let bench = bench.restarted();
    assert_eq!(phase(&bench, id), Some(ImageAheadPhase::Written));
    assert_eq!(bench.node(id).agent.unwrap().ahead.unwrap().tries, 2);
}

#[test]
fn tries_are_bounded_and_the_node_is_not_failed() {
    let mut bench = bench_with(1);
    let id = idle(&mut bench, 1);
    for _ in 0..crate::AHEAD_TRIES_MAX {
        beat(&mut bench, id);
        let (node, call) = (id, command(&bench).expect("a try").1);
        let body = br#"{"faultcode": "Client", "faultstring": "no disk"}"#.to_vec();
        let result = Ok((400, body));
        bench.handle(RackInput::AgentAnswered { node, call, result });
        assert_eq!(phase(&bench, id), Some(ImageAheadPhase::Failed));
    }
    beat(&mut bench, id);
    assert_eq!(command(&bench), None);
    let node = bench.node(id);
    assert_eq!(node.provision_state, ProvisionState::Available);
    assert_eq!(node.last_error, None);
}

#[test]
fn the_image_is_fetched_into_the_cache_first() {
    let mut bench = RackBench::with(ahead_settings(1));
    stored_image(&mut bench, 9, "far", "http://far/a.raw");
    let id = idle(&mut bench, 1);
    beat(&mut bench, id);
    assert_eq!(command(&bench), None);
    assert_eq!(bench.fills().len(), 1);
    complete(&mut bench);
    beat(&mut bench, id);
    assert!(command(&bench).is_some());
}

#[test]
fn few_nodes_are_written_at_the_same_time() {
    let mut bench = bench_with(99);
    let most = u8::try_from(AHEAD_WRITES_MAX).unwrap();
    let ids: Vec<NodeId> = (1..=most + 1)
        .map(|number| idle(&mut bench, number))
        .collect();
    let mut calls = Vec::new();
    for id in &ids {
        beat(&mut bench, *id);
        calls.extend(command(&bench).map(|(_, call)| (*id, call)));
    }
    assert_eq!(calls.len(), AHEAD_WRITES_MAX);
    let (first, call) = calls[0];
    written(&mut bench, first, call);
    beat(&mut bench, ids[AHEAD_WRITES_MAX]);
    assert!(command(&bench).is_some(), "one has ended");
}

#[test]
fn nodes_that_are_not_clean_idle_or_of_our_own_agent_are_left_alone() {
    let changes: [fn(&mut Node); 5] = [
        |node| node.agent.as_mut().unwrap().is_clean = false,
        |node| node.agent.as_mut().unwrap().version = Some("13.0.0".to_owned()),
        |node| node.maintenance = true,
        |node| node.provision_state = ProvisionState::Manageable,
        |node| {
            node.driver_info.insert("fast_track".into(), false.into());
        },
    ];
    for change in changes {
        let mut bench = bench_with(1);
        let id = idle(&mut bench, 1);
        bench.force(id, change);
        beat(&mut bench, id);
        assert_eq!(command(&bench), None);
    }
    let mut bench = bench_with(1);
    bench.rack.settings.images_ahead.clear();
    let id = idle(&mut bench, 1);
    beat(&mut bench, id);
    assert_eq!(command(&bench), None);
}

#[test]
fn a_deployment_goes_first_and_the_late_reply_changes_nothing() {
    let mut bench = bench_with(1);
    let id = idle(&mut bench, 1);
    beat(&mut bench, id);
    let (_, call) = command(&bench).unwrap();
    bench.force(id, |node| {
        node.instance_info
            .insert("image_source".into(), "far".into());
    });
    bench.verb(id, Verb::Active).unwrap();
    let (body, _) = command(&bench).expect("the running agent is used");
    assert_eq!(body["name"], "deploy.get_deploy_steps");
    assert_eq!(phase(&bench, id), None);
    answer(&mut bench, id, call, &ahead_result("RUNNING", &Value::Null));
    assert_eq!(bench.node(id).last_error, None);
    assert!(bench.node(id).job.is_some());
}

#[test]
fn a_command_of_a_caller_ends_what_is_known_of_the_disk() {
    let mut bench = bench_with(1);
    let id = idle(&mut bench, 1);
    beat(&mut bench, id);
    let (_, call) = command(&bench).unwrap();
    written(&mut bench, id, call);
    let node = bench.node(id);
    let command = ("standby.run".to_owned(), JsonObject::new(), false);
    bench
        .rack
        .vendor_command(bench.now, 7, &node, command)
        .unwrap();
    let session = bench.node(id).agent.unwrap();
    assert_eq!((session.is_clean, session.ahead), (false, None));
}
