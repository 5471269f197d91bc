use super::*;
use crate::state_machine::{
    AgentIntervals, AgentMachineIdentity, AgentPhase, AgentPlan, AgentWorkError, AgentWorkOutcome,
    WrittenDisk,
};
use trivet_model::SeededRandom;

const NOW: Tick = Tick(1_000);

fn token() -> String {
    "A".repeat(43)
}

/// An agent after its lookup.
fn agent_state() -> AgentState {
    let identity = AgentMachineIdentity {
        inventory: json!({"hostname": "ipa-test"}),
        ..AgentMachineIdentity::default()
    };
    let plan = AgentPlan {
        callback_url: "http://127.0.0.1:9999".to_owned(),
        inspect: false,
        sends_heartbeats: true,
        intervals: AgentIntervals::STOCK,
        api_minor: 68,
        certificate: None,
    };
    let mut state = AgentState::new(identity, plan);
    state.due_requests(Tick(0));
    let answer = json!({"node": {"uuid": "11111111-2222-4333-8444-555555555555"},
                        "config": {"heartbeat_timeout": 300, "agent_token": token()}});
    state.handle_lookup_response(
        Tick(0),
        200,
        answer.to_string().as_bytes(),
        &mut SeededRandom::new(1),
    );
    state
}

fn value(reply: &AgentApiReply) -> Value {
    serde_json::from_slice(&reply.body).unwrap()
}

fn get(state: &mut AgentState, path: &str) -> AgentApiReply {
    state.handle_request(NOW, "GET", &format!("{path}?agent_token={}", token()), b"")
}

fn post_raw(state: &mut AgentState, body: &[u8]) -> AgentApiReply {
    let target = format!("/v1/commands/?wait=true&agent_token={}", token());
    state.handle_request(NOW, "POST", &target, body)
}

fn post(state: &mut AgentState, name: &str, params: &Value) -> AgentApiReply {
    let body = json!({"name": name, "params": params}).to_string();
    post_raw(state, body.as_bytes())
}

#[track_caller]
fn fault(reply: &AgentApiReply, status: u16, words: &str) {
    let body = value(reply);
    assert_eq!(reply.status, status, "{body}");
    let message = body["faultstring"].as_str().unwrap();
    assert!(message.starts_with(words), "{message}");
}

fn write_image() -> Value {
    json!({"step": {"interface": "deploy", "step": "write_image", "args": {"image_info": {
               "id": "a.raw", "urls": ["http://h/a.raw"], "os_hash_algo": "sha256",
               "os_hash_value": "ab".repeat(32), "disk_format": "raw"}}},
           "node": {}, "ports": [], "deploy_version": {"trivet_hardware_manager": "1.0"}})
}

fn clean(step: &str, version: &Value) -> Value {
    json!({"step": {"interface": "deploy", "step": step}, "node": {}, "ports": [],
           "clean_version": version})
}

#[test]
fn describes_itself_without_a_token() {
    let mut state = agent_state();
    for path in ["/", "/v1/", "/v1/status", "/status"] {
        assert_eq!(
            state.handle_request(NOW, "GET", path, b"").status,
            200,
            "{path}"
        );
    }
    state.set_start_time(1_700_000_000);
    let status = value(&state.handle_request(NOW, "GET", "/v1/status", b""));
    assert_eq!(status["started_at"], 1_700_000_000);
    assert_eq!(status["version"], AGENT_VERSION);
    let root = value(&state.handle_request(NOW, "GET", "/", b""));
    assert_eq!(
        root["default_version"]["links"][0]["href"],
        "http://127.0.0.1:9999/v1"
    );
}

#[test]
fn commands_need_the_token() {
    let mut state = agent_state();
    let post_body = br#"{"name":"standby.sync","params":{}}"#;
    for query in [
        "",
        "?agent_token=",
        "?agent_token=wrong",
        "?agent_token=%ZZ",
    ] {
        for path in ["/v1/commands/", "/commands/", "/v1/commands/deadbeef"] {
            let reply = state.handle_request(NOW, "GET", &format!("{path}{query}"), b"");
            fault(&reply, 401, "401 Unauthorized: Token invalid.");
        }
        let reply = state.handle_request(NOW, "POST", &format!("/v1/commands/{query}"), post_body);
        fault(&reply, 401, "401 Unauthorized: Token invalid.");
    }
}

#[test]
fn without_a_token_of_its_own_no_token_matches() {
    let identity = AgentMachineIdentity::default();
    let plan = agent_state().plan;
    let mut state = AgentState::new(identity, plan);
    let reply = state.handle_request(NOW, "GET", "/v1/commands/?agent_token=", b"");
    fault(&reply, 401, "401");
}

#[test]
fn the_token_may_be_percent_encoded() {
    let mut state = agent_state();
    let target = format!("/v1/commands/?agent_token=%41{}", "A".repeat(42));
    assert_eq!(state.handle_request(NOW, "GET", &target, b"").status, 200);
}

#[test]
fn without_the_last_slash_it_redirects() {
    let mut state = agent_state();
    let reply = get(&mut state, "/v1/commands");
    assert_eq!(reply.status, 308);
    assert!(
        reply
            .location
            .unwrap()
            .starts_with("http://127.0.0.1:9999/v1/commands/?agent")
    );
}

#[test]
fn a_new_agent_has_no_commands() {
    assert_eq!(
        value(&get(&mut agent_state(), "/v1/commands/")),
        json!({"commands": []})
    );
}

#[test]
fn refuses_with_the_stock_agents_messages() {
    let mut state = agent_state();
    for (name, status, words) in [
        (
            "clean.no_such",
            400,
            "Invalid command: Unknown command: no_such",
        ),
        (
            "iscsi.start",
            404,
            "Not found: Extension with id iscsi not found.",
        ),
        (
            "standby.cache_image",
            400,
            "Invalid command: Unknown command: cache_image",
        ),
        (
            "nodot",
            400,
            "Invalid command: Command name must be of the form",
        ),
        (
            "a.b.c",
            400,
            "Invalid command: Command name must be of the form",
        ),
    ] {
        fault(&post(&mut state, name, &json!({})), status, words);
    }
    let missing = "400 Bad Request: Missing or invalid name or params";
    fault(&post(&mut state, "standby.sync", &json!([])), 400, missing);
    fault(
        &post_raw(&mut state, br#"{"name":"standby.sync"}"#),
        400,
        missing,
    );
    fault(&post_raw(&mut state, b"7"), 400, missing);
    let bad = "400 Bad Request: Failed to decode JSON object";
    fault(&post_raw(&mut state, b"{bad"), 400, bad);
    let id = "Invalid command parameters: Image is missing 'id' field.";
    let params = json!({"image_info": {}, "configdrive": null});
    fault(&post(&mut state, "standby.prepare_image", &params), 400, id);
    fault(
        &get(&mut state, "/v1/commands/deadbeef"),
        404,
        "Not found: Command Result with id",
    );
    fault(&get(&mut state, "/nowhere"), 404, "404 Not Found");
    assert_eq!(
        value(&get(&mut state, "/v1/commands/")),
        json!({"commands": []})
    );
}

#[test]
fn other_methods_are_not_allowed() {
    let mut state = agent_state();
    let reply = state.handle_request(NOW, "PUT", "/v1/commands/", b"");
    fault(&reply, 405, "405");
    assert_eq!(reply.allow, Some("GET, POST, HEAD"));
    assert_eq!(
        state.handle_request(NOW, "POST", "/v1/status", b"").allow,
        Some("GET, HEAD")
    );
}

#[test]
fn an_unknown_parameter_is_refused_and_does_no_lasting_harm() {
    let mut state = agent_state();
    let reply = post(&mut state, "clean.get_clean_steps", &json!({"bogus": 1}));
    fault(
        &reply,
        400,
        "Invalid command parameters: get_clean_steps does not take bogus",
    );
    assert_eq!(get(&mut state, "/v1/commands/").status, 200);
}

#[test]
fn a_request_may_be_as_long_as_allowed_and_not_longer() {
    let mut state = agent_state();
    let mut body = br#"{"name":"standby.sync","params":{}}"#.to_vec();
    body.resize(REQUEST_BYTES_MAX, b' ');
    assert_eq!(post_raw(&mut state, &body).status, 200);
    body.push(b' ');
    fault(&post_raw(&mut state, &body), 413, "413");
}

#[test]
fn lists_its_steps_with_versions() {
    let mut state = agent_state();
    let params = json!({"node": {}, "ports": []});
    let clean = value(&post(&mut state, "clean.get_clean_steps", &params));
    assert_eq!(clean["command_name"], "get_clean_steps");
    assert_eq!(clean["command_status"], "SUCCEEDED");
    let steps = &clean["command_result"]["clean_steps"]["TrivetHardwareManager"];
    assert_eq!(steps[0]["step"], "erase_devices_metadata");
    let deploy = value(&post(&mut state, "deploy.get_deploy_steps", &params));
    let steps = &deploy["command_result"]["deploy_steps"]["TrivetHardwareManager"];
    assert_eq!(steps[1]["step"], "write_image");
    assert_eq!(steps[1].get("abortable"), None);
    let versions = &deploy["command_result"]["hardware_manager_version"];
    assert_eq!(*versions, json!({"trivet_hardware_manager": "1.0"}));
}

#[test]
fn writing_an_image_is_work_and_ends_in_a_step_that_is_named() {
    let mut state = agent_state();
    let reply = post(&mut state, "deploy.execute_deploy_step", &write_image());
    assert_eq!(value(&reply)["command_status"], "RUNNING");
    let (id, work) = reply.work.unwrap();
    assert_eq!(reply.awaits.as_ref(), Some(&id));
    assert!(matches!(work, AgentWork::WriteImage(order) if order.urls == ["http://h/a.raw"]));

    let disk = WrittenDisk {
        device: Some("/dev/sdb".into()),
        root_uuid: Some("0x1a2b3c4d".to_owned()),
        partitions: None,
    };
    let wrote = AgentWorkOutcome::Wrote {
        bytes: 9,
        disk,
        was_on_disk: false,
    };
    state.work_done(NOW, &id, Ok(wrote));
    let done = value(&state.command(&id));
    assert_eq!(done["command_status"], "SUCCEEDED");
    assert_eq!(done["command_result"]["deploy_step"]["step"], "write_image");
    assert!(
        done["command_result"]["deploy_result"]
            .as_str()
            .unwrap()
            .contains("9 bytes")
    );
    let uuids = value(&post(&mut state, "standby.get_partition_uuids", &json!({})));
    assert_eq!(uuids["command_result"], json!({"root uuid": "0x1a2b3c4d"}));

    let params = json!({"root_uuid": "0x1a2b3c4d", "efi_system_part_uuid": null,
                        "prep_boot_part_uuid": null, "target_boot_mode": "uefi"});
    let reply = post(&mut state, "image.install_bootloader", &params);
    assert_eq!(value(&reply)["command_status"], "RUNNING");
    let (id, work) = reply.work.unwrap();
    let AgentWork::InstallBootloader(order) = work else {
        panic!("{work:?}");
    };
    let device = order.disk.and_then(|disk| disk.device);
    assert_eq!(device, Some("/dev/sdb".into()));
    let nothing = AgentWorkOutcome::Value(Value::Null);
    state.work_done(NOW, &id, Ok(nothing));
    let done = value(&state.command(&id));
    assert_eq!(done["command_status"], "SUCCEEDED");
    assert_eq!(done["command_result"], Value::Null);
}

#[test]
fn an_image_that_fails_its_digest_fails_the_command() {
    let mut state = agent_state();
    let reply = post(&mut state, "deploy.execute_deploy_step", &write_image());
    let (id, _) = reply.work.unwrap();
    let (want, got) = ("ab".repeat(32), "cd".repeat(32));
    state.work_done(NOW, &id, Err(AgentWorkError::Checksum { want, got }));
    let failed = value(&state.command(&id));
    assert_eq!(failed["command_status"], "FAILED");
    assert_eq!(failed["command_error"]["type"], "ImageChecksumError");
}

#[test]
fn a_running_command_makes_it_busy_until_it_ends() {
    let mut state = agent_state();
    let reply = post(
        &mut state,
        "clean.execute_clean_step",
        &clean("erase_devices", &Value::Null),
    );
    let (id, work) = reply.work.unwrap();
    assert!(
        matches!(&work, AgentWork::Erase(order) if order.whole),
        "{work:?}"
    );
    let busy = post(&mut state, "standby.sync", &json!({}));
    fault(
        &busy,
        409,
        "Agent is busy: executing command execute_clean_step",
    );
    state.work_done(NOW, "another", Ok(AgentWorkOutcome::Erased));
    assert_eq!(post(&mut state, "standby.sync", &json!({})).status, 409);
    state.work_done(NOW, &id, Ok(AgentWorkOutcome::Erased));
    assert_eq!(post(&mut state, "standby.sync", &json!({})).status, 200);
}

#[test]
fn disks_to_skip_that_cannot_be_read_fail_the_step_before_anything_is_erased() {
    let mut state = agent_state();
    let mut params = clean("erase_devices", &Value::Null);
    params["node"] = json!({"properties": {"skip_block_devices": [{"colour": "red"}]}});
    let reply = post(&mut state, "clean.execute_clean_step", &params);
    assert!(reply.work.is_none());
    let error = &value(&reply)["command_error"];
    assert_eq!(error["type"], "BlockDeviceEraseError", "{error}");
}

#[test]
fn waiting_for_a_command_is_passed_to_the_shell() {
    let mut state = agent_state();
    let (id, _) = post(&mut state, "standby.run_image", &json!({}))
        .work
        .unwrap();
    let target = format!("/v1/commands/{id}?wait=true&agent_token={}", token());
    assert_eq!(
        state.handle_request(NOW, "GET", &target, b"").awaits,
        Some(id.clone())
    );
    assert_eq!(get(&mut state, &format!("/v1/commands/{id}")).awaits, None);
    state.work_done(NOW, &id, Ok(AgentWorkOutcome::Leaving));
    assert_eq!(state.handle_request(NOW, "GET", &target, b"").awaits, None);
}

#[test]
fn other_hardware_managers_are_a_mismatch() {
    let version = json!({"generic_hardware_manager": "0.0"});
    let params = clean("erase_devices", &version);
    let reply = post(&mut agent_state(), "clean.execute_clean_step", &params);
    assert_eq!(value(&reply)["command_status"], "CLEAN_VERSION_MISMATCH");
    assert_eq!(value(&reply)["command_error"]["code"], 409);
    assert_eq!(reply.work, None);
}

#[test]
fn unknown_steps_and_invalid_images_fail_at_once_and_cause_a_heartbeat() {
    let mut state = agent_state();
    state.due_requests(Tick(0));
    state.handle_heartbeat_response(Tick(0), 202, &mut SeededRandom::new(1));
    let reply = post(
        &mut state,
        "clean.execute_clean_step",
        &clean("dance", &Value::Null),
    );
    let failed = value(&reply);
    assert_eq!(failed["command_status"], "FAILED");
    assert_eq!(
        failed["command_error"]["details"],
        "Could not find method: dance"
    );
    assert_eq!(state.wake_at(), Some(Tick(5_000)));
    let mut params = write_image();
    params["step"]["args"]["image_info"]["disk_format"] = json!("qcow2");
    let reply = post(&mut state, "deploy.execute_deploy_step", &params);
    assert_eq!(value(&reply)["command_error"]["type"], "DeploymentError");
    let reply = post(&mut state, "clean.execute_clean_step", &json!({"step": 7}));
    fault(&reply, 400, "Invalid command parameters");
}

#[test]
fn quick_commands_reply_finished() {
    let mut state = agent_state();
    for (name, want) in [
        ("standby.sync", Value::Null),
        ("standby.get_partition_uuids", json!({})),
        ("poll.get_hardware_info", json!({"hostname": "ipa-test"})),
    ] {
        let reply = value(&post(&mut state, name, &json!({})));
        assert_eq!(reply["command_status"], "SUCCEEDED", "{name}");
        assert_eq!(reply["command_result"], want, "{name}");
    }
    // Its reply is held until the logs are collected.
    let reply = post(&mut state, "log.collect_system_logs", &json!({}));
    let (id, work) = reply.work.unwrap();
    assert_eq!(
        (reply.awaits, work),
        (Some(id.clone()), AgentWork::CollectLogs)
    );
    let logs = AgentWorkOutcome::Logs("H4sI".to_owned());
    assert_eq!(state.work_done(NOW, &id, Ok(logs)), None);
    let logs = value(&state.command(&id));
    assert_eq!(logs["command_result"], json!({"system_logs": "H4sI"}));
}

#[test]
fn forgets_the_oldest_commands_when_the_list_is_full() {
    let mut state = agent_state();
    let first = value(&post(&mut state, "standby.sync", &json!({})));
    for _ in 0..COMMANDS_MAX {
        post(&mut state, "standby.sync", &json!({}));
    }
    let list = value(&get(&mut state, "/v1/commands/"));
    assert_eq!(list["commands"].as_array().unwrap().len(), COMMANDS_MAX);
    assert_eq!(state.command(first["id"].as_str().unwrap()).status, 404);
}

#[test]
fn invalid_requests_get_a_reply_and_are_never_fatal() {
    let mut state = agent_state();
    for target in [
        "",
        "?",
        "//",
        "/v1",
        "/v1/commands/%",
        "/v1v1/status",
        "\u{e9}",
        "/commands/?a",
    ] {
        for method in ["GET", "POST", "", "BREW"] {
            let reply = state.handle_request(NOW, method, target, b"\xff");
            assert!((200..500).contains(&reply.status), "{method} {target}");
        }
    }
}

#[test]
fn a_rescue_accepts_a_hash_hides_it_and_ends_the_agents_work() {
    let mut state = agent_state();
    for wrong in [
        json!({"rescue_password": "plain", "hashed": true}),
        json!({"rescue_password": "$6$x", "hashed": false}),
        json!({"rescue_password": "$6$x:0:0\nroot", "hashed": true}),
        json!({}),
    ] {
        let reply = post(&mut state, "rescue.finalize_rescue", &wrong);
        fault(&reply, 400, "Invalid command parameters");
    }
    let right = json!({"rescue_password": "$6$salt$hash", "hashed": true});
    let reply = post(&mut state, "rescue.finalize_rescue", &right);
    let (id, work) = reply.work.unwrap();
    assert!(!format!("{work:?}").contains("hash$"), "{work:?}");
    assert!(matches!(work, AgentWork::Rescue { hash } if hash.reveal() == "$6$salt$hash"));
    state.work_done(NOW, &id, Ok(AgentWorkOutcome::Rescued));
    assert_eq!(value(&state.command(&id))["command_status"], "SUCCEEDED");
    assert_eq!(state.phase(), AgentPhase::Rescued);
    assert_eq!(state.wake_at(), None, "no more heartbeats");
}

#[test]
fn service_steps_are_listed_and_run() {
    let mut state = agent_state();
    let params = json!({"node": {}, "ports": []});
    let reported = value(&post(&mut state, "service.get_service_steps", &params));
    let steps = &reported["command_result"]["service_steps"]["TrivetHardwareManager"];
    assert_eq!(steps[0]["step"], "write_image");
    let mut params = write_image();
    params.as_object_mut().unwrap().remove("deploy_version");
    let reply = post(&mut state, "service.execute_service_step", &params);
    let (id, work) = reply.work.unwrap();
    assert!(matches!(work, AgentWork::WriteImage(_)));
    let disk = WrittenDisk::default();
    let wrote = AgentWorkOutcome::Wrote {
        bytes: 9,
        disk,
        was_on_disk: false,
    };
    state.work_done(NOW, &id, Ok(wrote));
    let done = value(&state.command(&id));
    let step = &done["command_result"]["service_step"]["step"];
    assert_eq!(*step, "write_image");
}

fn wrote_ahead() -> AgentWorkOutcome {
    let digest = trivet_model::Digest::Sha256([0xab; 32]);
    AgentWorkOutcome::WroteAhead { bytes: 7, digest }
}

fn ahead_params() -> Value {
    json!({"image_info": write_image()["step"]["args"]["image_info"],
           "node": {"instance_info": {"root_device": {"serial": "A"}}}})
}

#[test]
fn an_image_that_is_written_ahead_keeps_the_agent_from_no_command() {
    let mut state = agent_state();
    let name = "standby.write_image_ahead";
    let reply = post(&mut state, name, &ahead_params());
    let (first, work) = reply.work.unwrap();
    let AgentWork::WriteImage(order) = &work else {
        panic!("{work:?}");
    };
    assert_eq!(order.root_device, json!({"serial": "A"}));
    assert!(work.is_ahead() && work.changes_disks());
    // Its own wait does not end, and neither a list nor the logs stop it.
    assert!(!state.is_finished(&first));
    let lists = json!({"node": {}, "ports": []});
    let reply = post(&mut state, "deploy.get_deploy_steps", &lists);
    assert_eq!(value(&reply)["command_status"], "SUCCEEDED");
    let outcome = wrote_ahead();
    assert_eq!(state.work_done(NOW, &first, Ok(outcome)), None);
    let list = value(&get(&mut state, "/v1/commands/"));
    assert_eq!(list["commands"][0]["command_result"]["image_bytes"], 7);
    let digest = &list["commands"][0]["command_result"]["os_hash_value"];
    assert_eq!(digest, &json!("ab".repeat(32)));
    // A second result is ignored.
    let failure = AgentWorkError::Write("late".to_owned());
    state.work_done(NOW, &first, Err(failure));
    let list = value(&get(&mut state, "/v1/commands/"));
    assert_eq!(list["commands"][0]["command_status"], "SUCCEEDED");
}

#[test]
fn work_on_a_disk_stops_what_is_written_ahead() {
    for (name, params) in [
        ("deploy.execute_deploy_step", write_image()),
        (
            "clean.execute_clean_step",
            clean("erase_devices", &Value::Null),
        ),
        ("standby.write_image_ahead", ahead_params()),
        ("standby.power_off", json!({})),
    ] {
        let mut state = agent_state();
        let reply = post(&mut state, "standby.write_image_ahead", &ahead_params());
        let (first, _) = reply.work.unwrap();
        let reply = post(&mut state, name, &params);
        assert!(reply.work.is_some(), "{name}");
        assert!(state.is_finished(&first));
        let list = value(&get(&mut state, "/v1/commands/"));
        assert_eq!(list["commands"][0]["command_status"], "FAILED");
        // Its result is from before.
        let outcome = wrote_ahead();
        state.work_done(NOW, &first, Ok(outcome));
        let list = value(&get(&mut state, "/v1/commands/"));
        assert_eq!(list["commands"][0]["command_status"], "FAILED");
    }
}

#[test]
fn a_step_says_whether_its_image_was_on_the_disk() {
    for was_on_disk in [true, false] {
        let mut state = agent_state();
        let reply = post(&mut state, "deploy.execute_deploy_step", &write_image());
        let (id, _) = reply.work.unwrap();
        let outcome = AgentWorkOutcome::Wrote {
            bytes: 7,
            disk: WrittenDisk::default(),
            was_on_disk,
        };
        state.work_done(NOW, &id, Ok(outcome));
        let list = value(&get(&mut state, "/v1/commands/"));
        let result = &list["commands"][0]["command_result"];
        let reported = result.get("image_was_on_disk").and_then(Value::as_bool);
        assert_eq!(reported, was_on_disk.then_some(true));
    }
}

/// An order that was on its way for long would erase the start of a deployed disk.
#[test]
fn nothing_is_written_ahead_after_a_deployment_until_the_disks_are_erased() {
    let mut state = agent_state();
    let name = "standby.write_image_ahead";
    let reply = post(&mut state, "deploy.execute_deploy_step", &write_image());
    let (id, _) = reply.work.unwrap();
    let failure = AgentWorkError::Write("x".to_owned());
    state.work_done(NOW, &id, Err(failure));
    let reply = post(&mut state, name, &ahead_params());
    assert!(reply.work.is_none());
    assert_eq!(value(&reply)["command_status"], "FAILED");
    let erase = clean("erase_devices_metadata", &Value::Null);
    let reply = post(&mut state, "clean.execute_clean_step", &erase);
    let (id, _) = reply.work.unwrap();
    state.work_done(NOW, &id, Ok(AgentWorkOutcome::Erased));
    assert!(post(&mut state, name, &ahead_params()).work.is_some());
}

#[test]
fn a_partition_image_is_not_written_ahead() {
    let mut state = agent_state();
    let mut params = ahead_params();
    let info = &mut params["image_info"];
    info["image_type"] = json!("partition");
    for (name, mib) in [("root_mb", 8), ("swap_mb", 2), ("ephemeral_mb", 0)] {
        info[name] = json!(mib);
    }
    info["ephemeral_format"] = Value::Null;
    info["preserve_ephemeral"] = json!(false);
    let reply = post(&mut state, "standby.write_image_ahead", &params);
    assert!(reply.work.is_none());
    let words = value(&reply).to_string();
    assert!(words.contains("image of a whole disk"), "{words}");
}
