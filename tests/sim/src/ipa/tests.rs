use super::*;

const NODE: &str = "11111111-2222-4333-8444-555555555555";

fn setup() -> SimIpaSetup {
    SimIpaSetup {
        macs: vec![MacAddr([0x52, 0x54, 0, 0xaa, 0xbb, 1])],
        inventory: json!({"disks": [{"name": "/dev/vda"}]}),
        inspects: false,
        token: None,
        host: "192.0.2.10".to_owned(),
        port: PORT,
        seed: 7,
    }
}

/// The one request that is due.
#[track_caller]
fn next_request(ipa: &mut SimIpa, now: Tick) -> SimIpaRequest {
    match &ipa.next(now)[..] {
        [SimIpaOutput::Request(request)] => request.clone(),
        other => panic!("{other:?}"),
    }
}

fn lookup(token: &str) -> Vec<u8> {
    let node = json!({"uuid": NODE, "properties": {}, "instance_info": {},
                      "driver_internal_info": {}});
    let config = json!({"heartbeat_timeout": 30, "agent_token": token});
    json!({"node": node, "config": config})
        .to_string()
        .into_bytes()
}

const ROOT: &[u8] = br#"{"default_version":{"version":"1.109"}}"#;

/// An agent after its start, with its first heartbeat.
fn heartbeating_agent(token: &str) -> SimIpa {
    let mut ipa = SimIpa::new(Tick(0), setup());
    let request = next_request(&mut ipa, Tick(0));
    assert_eq!(
        (request.kind, request.version),
        (SimIpaRequestKind::Discovery, None)
    );
    ipa.handle_response(Tick(0), SimIpaRequestKind::Discovery, Some((200, ROOT)));
    let request = next_request(&mut ipa, Tick(0));
    assert_eq!(
        request.path_and_query,
        "/v1/lookup?addresses=52%3A54%3A00%3Aaa%3Abb%3A01"
    );
    assert_eq!(request.version.as_deref(), Some("1.62"));
    ipa.handle_response(
        Tick(0),
        SimIpaRequestKind::Lookup,
        Some((200, &lookup(token))),
    );
    if ipa.state() == SimIpaState::Probing {
        assert_eq!(
            next_request(&mut ipa, Tick(0)).kind,
            SimIpaRequestKind::Probe
        );
        ipa.handle_response(Tick(0), SimIpaRequestKind::Probe, Some((403, b"")));
    }
    ipa
}

#[test]
fn starts_in_the_recorded_order_and_sends_a_heartbeat_at_once() {
    let token = "A".repeat(40);
    let mut ipa = heartbeating_agent(&token);
    let heartbeat = next_request(&mut ipa, Tick(0));
    assert_eq!(heartbeat.path_and_query, format!("/v1/heartbeat/{NODE}"));
    assert_eq!(heartbeat.version.as_deref(), Some("1.68"));
    let body: Value = serde_json::from_slice(&heartbeat.body).unwrap();
    assert_eq!(body["callback_url"], "https://192.0.2.10:9999");
    assert_eq!(body["agent_token"], token);
    assert_eq!(body["agent_version"], VERSION);
    assert!(
        body["agent_verify_ca"]
            .as_str()
            .unwrap()
            .starts_with("-----BEGIN")
    );
}

#[test]
fn an_old_box_gets_the_address_only() {
    let mut ipa = SimIpa::new(Tick(0), setup());
    ipa.next(Tick(0));
    ipa.handle_response(Tick(0), SimIpaRequestKind::Discovery, None);
    let request = next_request(&mut ipa, Tick(0));
    assert_eq!(request.version.as_deref(), Some("1.31"));
    ipa.handle_response(
        Tick(0),
        SimIpaRequestKind::Lookup,
        Some((200, &lookup("short"))),
    );
    ipa.next(Tick(0));
    ipa.handle_response(Tick(0), SimIpaRequestKind::Probe, Some((200, b"")));
    let heartbeat: Value = serde_json::from_slice(&next_request(&mut ipa, Tick(0)).body).unwrap();
    assert_eq!(heartbeat, json!({"callback_url": "http://192.0.2.10:9999"}));
}

#[test]
fn a_mask_without_a_token_leaves_it_stuck_and_a_short_token_is_ignored() {
    let mut stuck = heartbeating_agent(MASK);
    assert_eq!(stuck.state(), SimIpaState::Stuck);
    assert!(stuck.next(Tick(1_000_000)).is_empty());
    assert_eq!(stuck.wake_at(), None);
    assert!(!stuck.serves());
    let mut short = heartbeating_agent("short");
    let heartbeat: Value = serde_json::from_slice(&next_request(&mut short, Tick(0)).body).unwrap();
    assert_eq!(heartbeat["agent_token"], Value::Null);
    let reply = short.request(Tick(0), "GET", "/v1/commands/?agent_token=short", b"");
    assert_eq!(reply.status, 401);
}

#[test]
fn a_mask_keeps_a_token_given_out_of_band() {
    let own = "B".repeat(43);
    let mut setup = setup();
    setup.token = Some(own.clone());
    let mut ipa = SimIpa::new(Tick(0), setup);
    ipa.next(Tick(0));
    ipa.handle_response(Tick(0), SimIpaRequestKind::Discovery, Some((200, ROOT)));
    ipa.next(Tick(0));
    ipa.handle_response(
        Tick(0),
        SimIpaRequestKind::Lookup,
        Some((200, &lookup(MASK))),
    );
    assert_eq!(
        (ipa.state(), ipa.token()),
        (SimIpaState::Probing, Some(&*own))
    );
}

#[test]
fn lookups_back_off_and_sleep_while_the_node_is_locked() {
    let mut ipa = SimIpa::new(Tick(0), setup());
    ipa.next(Tick(0));
    ipa.handle_response(Tick(0), SimIpaRequestKind::Discovery, Some((200, ROOT)));
    let mut now = Tick(0);
    for (status, least, most) in [
        (404, 1000, 1000),
        (409, 6000, 7000),
        (409, 11_000, 14_000),
        (409, 31_000, 38_000),
        (409, 31_000, 46_000),
        (400, 1000, 32_000),
        (503, 1000, 60_000),
        (503, 1000, 60_000),
    ] {
        assert_eq!(next_request(&mut ipa, now).kind, SimIpaRequestKind::Lookup);
        ipa.handle_response(now, SimIpaRequestKind::Lookup, Some((status, b"{}")));
        let wait_ms = ipa.wake_at().unwrap().since_ms(now);
        assert!((least..=most).contains(&wait_ms), "{status}: {wait_ms}");
        now = ipa.wake_at().unwrap();
    }
    now = Tick(601_000);
    ipa.next(now);
    ipa.handle_response(now, SimIpaRequestKind::Lookup, None);
    assert_eq!(ipa.state(), SimIpaState::Exited);
}

#[test]
fn heartbeats_are_within_their_bounds() {
    let mut ipa = heartbeating_agent(&"A".repeat(40));
    let mut now = Tick(0);
    for (status, least, most) in [
        (202, 9_000, 18_000),
        (409, 5_000, 10_000),
        (200, 5_000, 10_000),
    ] {
        for _ in 0..50 {
            assert_eq!(
                next_request(&mut ipa, now).kind,
                SimIpaRequestKind::Heartbeat
            );
            ipa.handle_response(now, SimIpaRequestKind::Heartbeat, Some((status, b"")));
            let wait_ms = ipa.wake_at().unwrap().since_ms(now);
            assert!((least..=most).contains(&wait_ms), "{status}: {wait_ms}");
            now = ipa.wake_at().unwrap();
        }
    }
}

fn post(ipa: &mut SimIpa, now: Tick, name: &str, params: &Value, wait: bool) -> SimIpaReply {
    let token = "A".repeat(40);
    let wait = if wait { "wait=true&" } else { "" };
    let body = json!({"name": name, "params": params}).to_string();
    let target = format!("/v1/commands/?{wait}agent_token={token}");
    ipa.request(now, "POST", &target, body.as_bytes())
}

fn list(ipa: &mut SimIpa) -> SimIpaReply {
    let target = format!("/v1/commands/?agent_token={}", "A".repeat(40));
    ipa.request(Tick(0), "GET", &target, b"")
}

fn node() -> Value {
    json!({"uuid": NODE, "properties": {}, "instance_info": {}, "driver_internal_info": {}})
}

#[test]
fn a_finished_command_forces_a_heartbeat_five_seconds_after_the_last() {
    let mut ipa = heartbeating_agent(&"A".repeat(40));
    ipa.next(Tick(0));
    ipa.handle_response(Tick(0), SimIpaRequestKind::Heartbeat, Some((202, b"")));
    let step = json!({"step": {"step": "erase_devices_metadata", "interface": "deploy"},
                      "node": node(), "ports": [], "clean_version": null});
    let reply = post(
        &mut ipa,
        Tick(100),
        "clean.execute_clean_step",
        &step,
        false,
    );
    let reported: Value = serde_json::from_slice(&reply.body).unwrap();
    assert_eq!(reported["command_status"], "RUNNING");
    let busy = post(&mut ipa, Tick(100), "standby.sync", &json!({}), true);
    let words = "Agent is busy: executing command execute_clean_step";
    assert_eq!(busy, SimIpaReply::fault(409, words));
    let ended = ipa.wake_at().unwrap();
    assert!(
        ipa.next(ended)
            .iter()
            .any(|out| matches!(out, SimIpaOutput::Effect(SimAgentEffect::DiskErased)))
    );
    let reported: Value = serde_json::from_slice(&list(&mut ipa).body).unwrap();
    assert_eq!(reported["commands"][0]["command_status"], "SUCCEEDED");
    let wait_ms = ipa.wake_at().unwrap().0;
    assert!((5_001..=6_100).contains(&wait_ms), "{wait_ms}");
}

#[test]
fn an_unknown_parameter_spoils_the_list_for_good() {
    let mut ipa = heartbeating_agent(&"A".repeat(40));
    let params = json!({"node": node(), "ports": [], "bogus": 1});
    let reply = post(&mut ipa, Tick(0), "clean.get_clean_steps", &params, true);
    assert_eq!(reply.status, 500);
    assert_eq!(
        post(&mut ipa, Tick(0), "standby.sync", &json!({}), true).status,
        200
    );
    assert_eq!(list(&mut ipa).status, 500);
}

#[test]
fn a_step_of_other_managers_is_refused_as_a_mismatch() {
    let mut ipa = heartbeating_agent(&"A".repeat(40));
    ipa.change_managers("1.3");
    let step = json!({"step": {"step": "erase_devices", "interface": "deploy"},
                      "node": node(), "ports": [],
                      "clean_version": {"generic_hardware_manager": "1.2"}});
    let reply = post(&mut ipa, Tick(0), "clean.execute_clean_step", &step, true);
    let id = reply.awaits.unwrap();
    ipa.next(ipa.wake_at().unwrap());
    ipa.next(ipa.wake_at().unwrap());
    let reported: Value = serde_json::from_slice(&ipa.result(&id).body).unwrap();
    assert_eq!(reported["command_status"], "CLEAN_VERSION_MISMATCH");
    let details = reported["command_error"]["details"].as_str().unwrap();
    assert!(
        details.contains("{'generic_hardware_manager': '1.3'}"),
        "{details}"
    );
}

/// Runs a write; each answer is the response to a fetch. Returns the result and the time in
/// milliseconds.
fn write(answers: &[Option<u16>]) -> (Value, u64) {
    let mut ipa = heartbeating_agent(&"A".repeat(40));
    ipa.next(Tick(0));
    let image = b"image".to_vec();
    let sum = work_hex(&image);
    let info = json!({"id": "i", "urls": ["http://h/i"], "os_hash_algo": "sha256",
                      "os_hash_value": sum, "disk_format": "raw", "stream_raw_images": true});
    let step = json!({"step": {"step": "write_image", "interface": "deploy",
                               "args": {"image_info": info}},
                      "node": node(), "ports": [], "deploy_version": null});
    let reply = post(
        &mut ipa,
        Tick(0),
        "deploy.execute_deploy_step",
        &step,
        false,
    );
    let id = serde_json::from_slice::<Value>(&reply.body).unwrap()["id"].clone();
    let (mut answers, mut now, mut refreshed) = (answers.iter(), Tick(0), false);
    for _ in 0..500 {
        let Some(at) = ipa.wake_at() else { break };
        now = at.max(now);
        for out in ipa.next(now) {
            match out {
                SimIpaOutput::Request(request) if request.kind == SimIpaRequestKind::Refresh => {
                    assert!(
                        request
                            .path_and_query
                            .ends_with(&format!("&node_uuid={NODE}"))
                    );
                    ipa.handle_response(
                        now,
                        SimIpaRequestKind::Refresh,
                        Some((200, &lookup(MASK))),
                    );
                    refreshed = true;
                }
                SimIpaOutput::Request(request) => {
                    ipa.handle_response(now, request.kind, Some((202, b"")));
                }
                SimIpaOutput::Fetch { command, .. } => {
                    let answer = answers.next().copied().unwrap_or(Some(200));
                    let body = |status| {
                        (
                            status,
                            if status == 299 {
                                vec![1]
                            } else {
                                image.clone()
                            },
                        )
                    };
                    // 299 means a 200 with other bytes.
                    let answer = answer
                        .map(body)
                        .map(|(status, bytes)| (if status == 299 { 200 } else { status }, bytes));
                    ipa.handle_image_response(now, &command, answer);
                }
                SimIpaOutput::Effect(_) => {}
            }
        }
        if !ipa.is_working() {
            break;
        }
    }
    assert!(refreshed);
    let reported = ipa.result(id.as_str().unwrap());
    (serde_json::from_slice(&reported.body).unwrap(), now.0)
}

fn work_hex(bytes: &[u8]) -> String {
    use sha2::{Digest as _, Sha256};
    thread::hex(&Sha256::digest(bytes))
}

#[test]
fn a_write_looks_up_hints_tries_ten_times_and_verifies_the_image() {
    let (reported, _) = write(&[]);
    assert_eq!(reported["command_status"], "SUCCEEDED");
    let result = reported["command_result"]["deploy_result"]["result"]
        .as_str()
        .unwrap();
    assert!(result.starts_with("prepare_image: image (i) written to device /dev/vda root_uuid="));
    let (reported, took_ms) = write(&[Some(404); 9]);
    assert_eq!(reported["command_status"], "SUCCEEDED");
    assert!((90_000..120_000).contains(&took_ms), "{took_ms}");
    let (reported, _) = write(&[Some(404); 10]);
    assert_eq!(reported["command_error"]["type"], "ImageDownloadFatalError");
    let (reported, took_ms) = write(&[Some(206)]);
    assert_eq!(reported["command_error"]["type"], "ImageDownloadFatalError");
    assert!(took_ms < 10_000, "{took_ms}");
    let (reported, _) = write(&[None; 10]);
    assert_eq!(reported["command_error"]["type"], "CommandExecutionError");
    let (reported, _) = write(&[Some(299); 9]);
    assert_eq!(reported["command_status"], "SUCCEEDED");
    let (reported, _) = write(&[Some(299); 10]);
    assert_eq!(reported["command_error"]["type"], "ImageChecksumError");
    let (reported, _) = write(&[Some(503); 100]);
    assert_eq!(reported["command_error"]["type"], "ImageDownloadError");
}

#[test]
fn a_rescue_ends_the_service() {
    let mut ipa = heartbeating_agent(&"A".repeat(40));
    let params = json!({"rescue_password": "$6$x", "hashed": true});
    let reply = post(&mut ipa, Tick(0), "rescue.finalize_rescue", &params, true);
    assert_eq!(reply.status, 200);
    assert!(!ipa.serves());
    let outputs = ipa.next(Tick(0));
    let [SimIpaOutput::Effect(SimAgentEffect::RescueEnabled(hash))] = &outputs[..] else {
        panic!("{outputs:?}")
    };
    assert_eq!(hash, "$6$x");
}
