use super::*;
use trivet_agent_wire::InspectionDocument;
use trivet_model::SeededRandom;

const NODE: &str = "11111111-2222-4333-8444-555555555555";
const CALLBACK: &str = "http://192.0.2.10:9999";

fn token() -> String {
    "A".repeat(43)
}

fn agent(inspect: bool, sends_heartbeats: bool) -> AgentState {
    let identity = AgentMachineIdentity {
        macs: vec![
            "52:54:00:aa:bb:01".parse().unwrap(),
            "52:54:00:aa:bb:02".parse().unwrap(),
        ],
        inventory: json!({"interfaces": [{"mac_address": "52:54:00:aa:bb:01"}],
                          "disks": [{"name": "/dev/vda", "size": 1}]}),
        node: None,
        token: None,
        inspection: None,
        managers: Vec::new(),
    };
    let plan = AgentPlan {
        callback_url: CALLBACK.to_owned(),
        inspect,
        sends_heartbeats,
        intervals: AgentIntervals::STOCK,
        api_minor: 68,
        certificate: None,
    };
    AgentState::new(identity, plan)
}

fn lookup_answer(token: &str) -> Vec<u8> {
    json!({"node": {"uuid": NODE, "properties": {}, "instance_info": {},
                    "driver_internal_info": {}},
           "config": {"heartbeat_timeout": 300, "agent_token": token}})
    .to_string()
    .into_bytes()
}

/// An agent whose lookup at time zero returned this token.
fn looked_up(token: &str) -> AgentState {
    let mut state = agent(false, true);
    assert_eq!(state.due_requests(Tick(0)).len(), 1);
    state.handle_lookup_response(
        Tick(0),
        200,
        &lookup_answer(token),
        &mut SeededRandom::new(1),
    );
    state
}

#[track_caller]
fn send_heartbeat(state: &mut AgentState, now: Tick) -> Value {
    let acts = state.due_requests(now);
    let [AgentDueRequest::Heartbeat { path, body, .. }] = acts.as_slice() else {
        panic!("{acts:?}")
    };
    assert_eq!(*path, format!("/v1/heartbeat/{NODE}"));
    serde_json::from_slice(body).unwrap()
}

/// Starts a long command.
fn start(state: &mut AgentState, now: Tick) -> String {
    let target = format!("/v1/commands/?agent_token={}", token());
    let body = br#"{"name":"standby.power_off","params":{}}"#;
    let reply = state.handle_request(now, "POST", &target, body);
    reply.work.expect("work").0
}

#[test]
fn looks_up_at_once_with_all_its_addresses() {
    let mut state = agent(false, true);
    assert_eq!(state.wake_at(), Some(Tick(0)));
    let path_and_query =
        "/v1/lookup?addresses=52%3A54%3A00%3Aaa%3Abb%3A01%2C52%3A54%3A00%3Aaa%3Abb%3A02".to_owned();
    assert_eq!(
        state.due_requests(Tick(7)),
        [AgentDueRequest::Lookup { path_and_query }]
    );
}

#[test]
fn requests_once_and_waits_for_the_response() {
    let mut state = agent(false, true);
    assert_eq!(state.due_requests(Tick(0)).len(), 1);
    assert_eq!(state.wake_at(), None);
    assert!(state.due_requests(Tick(1_000_000)).is_empty());
}

#[test]
fn beats_at_once_after_the_lookup_with_the_token_it_was_given() {
    let mut state = looked_up(&token());
    assert_eq!(state.phase(), AgentPhase::Beating);
    assert_eq!(state.node().unwrap().to_string(), NODE);
    assert_eq!(
        send_heartbeat(&mut state, Tick(0)),
        json!({"callback_url": CALLBACK, "agent_token": token(), "agent_version": AGENT_VERSION})
    );
}

#[test]
fn beats_after_three_to_six_tenths_of_the_timeout() {
    for seed in 0..200 {
        let mut state = looked_up(&token());
        send_heartbeat(&mut state, Tick(0));
        state.handle_heartbeat_response(Tick(10), 202, &mut SeededRandom::new(seed));
        let due = state.wake_at().unwrap().0;
        assert!((90_010..=180_010).contains(&due), "{due}");
        assert!(state.due_requests(Tick(due - 1)).is_empty());
        send_heartbeat(&mut state, Tick(due));
    }
}

#[test]
fn a_refused_heartbeat_is_repeated_in_five_to_ten_seconds_for_ever() {
    let mut state = looked_up(&token());
    let mut now = Tick(0);
    for status in [409, 500, 200, 404, NO_ANSWER] {
        send_heartbeat(&mut state, now);
        state.handle_heartbeat_response(now, status, &mut SeededRandom::new(u64::from(status)));
        let wait_ms = state.wake_at().unwrap().since_ms(now);
        assert!((5_000..=10_000).contains(&wait_ms), "{status}: {wait_ms}");
        now = now.after_ms(wait_ms);
    }
    assert_eq!(state.phase(), AgentPhase::Beating);
}

#[test]
fn finished_work_makes_it_beat_early_but_not_before_the_gap() {
    for (done_at, want) in [(1_000, 5_000), (8_600, 8_600)] {
        let mut state = looked_up(&token());
        send_heartbeat(&mut state, Tick(0));
        state.handle_heartbeat_response(Tick(10), 202, &mut SeededRandom::new(1));
        let id = start(&mut state, Tick(20));
        state.work_done(Tick(done_at), &id, Ok(AgentWorkOutcome::Leaving));
        assert_eq!(state.wake_at(), Some(Tick(want)));
    }
}

#[test]
fn work_that_ends_during_a_heartbeat_makes_another_one_due() {
    let mut state = looked_up(&token());
    let id = start(&mut state, Tick(0));
    send_heartbeat(&mut state, Tick(0));
    state.work_done(Tick(5), &id, Ok(AgentWorkOutcome::Leaving));
    assert_eq!(state.wake_at(), None);
    state.handle_heartbeat_response(Tick(10), 202, &mut SeededRandom::new(1));
    assert_eq!(state.wake_at(), Some(Tick(5_000)));
    send_heartbeat(&mut state, Tick(5_000));
    state.handle_heartbeat_response(Tick(5_010), 202, &mut SeededRandom::new(1));
    assert!(state.wake_at().unwrap() > Tick(90_000));
}

#[test]
fn the_mask_without_a_token_of_its_own_leaves_it_stuck() {
    let mut state = looked_up(TOKEN_MASK);
    assert_eq!(state.phase(), AgentPhase::Stuck);
    assert_eq!(state.wake_at(), None);
    assert!(state.due_requests(Tick(u64::MAX)).is_empty());
}

#[test]
fn the_mask_keeps_a_token_given_out_of_band_and_a_real_one_replaces_it() {
    for (reported, want) in [(TOKEN_MASK.to_owned(), "B".repeat(40)), (token(), token())] {
        let mut state = agent(false, true);
        state.identity.token = Some("B".repeat(40));
        state.due_requests(Tick(0));
        state.handle_lookup_response(
            Tick(0),
            200,
            &lookup_answer(&reported),
            &mut SeededRandom::new(1),
        );
        assert_eq!(send_heartbeat(&mut state, Tick(0))["agent_token"], want);
    }
}

#[test]
fn a_short_token_is_ignored() {
    let mut state = looked_up("short");
    assert_eq!(
        send_heartbeat(&mut state, Tick(0))["agent_token"],
        Value::Null
    );
}

#[test]
fn a_failed_lookup_is_repeated_with_growing_waits() {
    let mut state = agent(false, true);
    let mut entropy = SeededRandom::new(3);
    let mut now = Tick(0);
    for most_ms in [2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000] {
        assert_eq!(state.due_requests(now).len(), 1);
        state.handle_lookup_response(now, 404, b"", &mut entropy);
        let wait_ms = state.wake_at().unwrap().since_ms(now);
        assert!(
            (1_000..=most_ms).contains(&wait_ms),
            "{wait_ms} of {most_ms}"
        );
        now = now.after_ms(wait_ms);
    }
}

#[test]
fn a_locked_node_is_given_more_time() {
    let mut state = agent(false, true);
    let mut now = Tick(0);
    for least_ms in [6_000, 11_000, 31_000, 31_000] {
        state.due_requests(now);
        state.handle_lookup_response(now, 409, b"", &mut SeededRandom::new(4));
        let wait_ms = state.wake_at().unwrap().since_ms(now);
        assert!(wait_ms >= least_ms, "{wait_ms}");
        now = now.after_ms(wait_ms);
    }
}

#[test]
fn gives_up_after_lookups_fail_for_too_long() {
    let mut state = agent(false, true);
    let mut now = Tick(0);
    while let Some(due) = state.wake_at() {
        now = due;
        state.due_requests(now);
        state.handle_lookup_response(now, NO_ANSWER, b"", &mut SeededRandom::new(5));
    }
    assert_eq!(state.phase(), AgentPhase::GaveUp);
    assert!((600_000..=720_000).contains(&now.0), "{now:?}");
}

#[test]
fn an_invalid_response_counts_as_failed() {
    for body in [
        "",
        "{}",
        r#"{"node":{"uuid":"x"},"config":{"heartbeat_timeout":1}}"#,
        &format!(r#"{{"node":{{"uuid":"{NODE}"}}}}"#),
    ] {
        let mut state = agent(false, true);
        state.due_requests(Tick(0));
        state.handle_lookup_response(Tick(0), 200, body.as_bytes(), &mut SeededRandom::new(1));
        assert_eq!(state.phase(), AgentPhase::LookingUp, "{body}");
    }
}

#[test]
fn inspects_first_and_looks_up_by_the_uuid_in_the_response() {
    let mut state = agent(true, true);
    let acts = state.due_requests(Tick(0));
    let [AgentDueRequest::PostInspection { body }] = acts.as_slice() else {
        panic!("{acts:?}")
    };
    let document: InspectionDocument = serde_json::from_slice(body).unwrap();
    assert_eq!(document.inventory.unwrap().interfaces.len(), 1);
    assert_eq!(
        document.root_disk.unwrap().name.as_deref(),
        Some("/dev/vda")
    );
    let answer = format!(r#"{{"uuid":"{NODE}"}}"#);
    state.handle_inspection_response(Tick(5), 202, answer.as_bytes(), &mut SeededRandom::new(1));
    let acts = state.due_requests(Tick(5));
    let [AgentDueRequest::Lookup { path_and_query }] = acts.as_slice() else {
        panic!("{acts:?}")
    };
    assert!(path_and_query.ends_with(&format!("&node_uuid={NODE}")));
}

#[test]
fn inspection_is_repeated_five_times_at_most_and_never_fatal() {
    let mut state = agent(true, true);
    let mut posts = 0;
    while state.phase() == AgentPhase::Inspecting {
        let now = state.wake_at().unwrap();
        posts += state.due_requests(now).len();
        state.handle_inspection_response(now, 409, b"", &mut SeededRandom::new(2));
    }
    assert_eq!(posts, INSPECTION_TRIES_MAX as usize);
    assert_eq!(state.phase(), AgentPhase::LookingUp);
}

#[test]
fn refused_inspection_data_is_not_posted_again() {
    let mut state = agent(true, false);
    state.due_requests(Tick(0));
    state.handle_inspection_response(Tick(0), 404, b"", &mut SeededRandom::new(2));
    assert_eq!(state.phase(), AgentPhase::Serving);
    assert_eq!(state.wake_at(), None);
}

#[test]
fn unexpected_responses_change_nothing() {
    let mut state = looked_up(&token());
    let mut entropy = SeededRandom::new(1);
    state.handle_lookup_response(Tick(9), 200, &lookup_answer(TOKEN_MASK), &mut entropy);
    state.handle_inspection_response(Tick(9), 500, b"", &mut entropy);
    assert_eq!(state.phase(), AgentPhase::Beating);
    assert_eq!(send_heartbeat(&mut state, Tick(9))["agent_token"], token());
}

#[test]
fn collected_inspection_data_are_posted_as_they_are() {
    let mut state = agent(true, true);
    let collected = json!({"inventory": {}, "lldp_raw": {"eth0": []}, "error": null});
    state.identity.inspection = Some(collected.clone());
    let acts = state.due_requests(Tick(0));
    let [AgentDueRequest::PostInspection { body }] = acts.as_slice() else {
        panic!("{acts:?}")
    };
    assert_eq!(serde_json::from_slice::<Value>(body).unwrap(), collected);
}

#[test]
fn a_heartbeat_has_only_fields_of_the_microversion() {
    for (minor, fields) in [
        (31, &["callback_url"][..]),
        (36, &["agent_version", "callback_url"]),
        (62, &["agent_token", "agent_version", "callback_url"]),
        (
            68,
            &[
                "agent_token",
                "agent_verify_ca",
                "agent_version",
                "callback_url",
            ],
        ),
    ] {
        let mut state = looked_up(&token());
        state.plan.api_minor = minor;
        state.plan.certificate = Some("PEM".to_owned());
        let heartbeat = send_heartbeat(&mut state, Tick(0));
        let heartbeat = heartbeat.as_object().unwrap();
        let present = heartbeat.iter().filter(|(_, value)| !value.is_null());
        let names: Vec<&str> = present.map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, fields, "1.{minor}");
    }
}
