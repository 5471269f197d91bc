use trivet_agent_wire::CommandStatus;
use trivet_model::Tick;

use super::*;
use crate::hardware_manager::ManagerError;
use crate::state_machine::{
    AgentIntervals, AgentMachineIdentity, AgentPlan, AgentWorkError, AgentWorkOutcome,
};

const NOW: Tick = Tick(7);

/// An agent with these managers beside its own.
fn agent(managers: &[(&str, u8)]) -> AgentState {
    let managers = managers.iter().map(|(name, support)| ManagerFacts {
        name: (*name).to_owned(),
        version: "1".to_owned(),
        support: *support,
    });
    let identity = AgentMachineIdentity {
        managers: managers.collect(),
        token: Some("t".repeat(40)),
        ..AgentMachineIdentity::default()
    };
    let plan = AgentPlan {
        callback_url: String::new(),
        inspect: false,
        sends_heartbeats: false,
        intervals: AgentIntervals::STOCK,
        api_minor: 68,
        certificate: None,
    };
    AgentState::new(identity, plan)
}

fn step(name: &str, priority: i64) -> IpaStep {
    serde_json::from_value(json!({"step": name, "priority": priority})).unwrap()
}

/// Starts a command; its id and its work.
fn post(state: &mut AgentState, name: &str, params: &Value) -> (String, AgentWork) {
    let target = format!("/v1/commands/?agent_token={}", "t".repeat(40));
    let body = json!({"name": name, "params": params}).to_string();
    let reply = state.handle_request(NOW, "POST", &target, body.as_bytes());
    let text = String::from_utf8_lossy(&reply.body).into_owned();
    reply.work.unwrap_or_else(|| panic!("no work: {text}"))
}

fn manager_of(work: &AgentWork) -> &str {
    match work {
        AgentWork::Manager(ManagerRequest::Execute { manager, .. }) => manager,
        AgentWork::Erase { .. } => MANAGER,
        other => panic!("{other:?}"),
    }
}

fn incompatible() -> Result<AgentWorkOutcome, AgentWorkError> {
    Err(AgentWorkError::Manager(ManagerError::Incompatible))
}

fn execute(name: &str) -> Value {
    json!({"step": {"step": name}, "node": {"uuid": "u"}, "ports": []})
}

#[test]
fn managers_are_asked_in_the_order_of_support_and_name() {
    let mut state = agent(&[("low", 0), ("b", 3), ("a", 3), ("same", 1), ("top", 9)]);
    let params = execute("erase_devices");
    let (id, work) = post(&mut state, "clean.execute_clean_step", &params);
    let mut order = vec![manager_of(&work).to_owned()];
    while let Some(work) = state.work_done(NOW, &id, incompatible()) {
        order.push(manager_of(&work).to_owned());
    }
    assert_eq!(order, ["top", "a", "b", "same", MANAGER, "low"]);
    let reply: Value = serde_json::from_slice(&state.command(&id).body).unwrap();
    assert_eq!(reply["command_status"], "FAILED");
    let error = &reply["command_error"];
    assert_eq!(error["type"], "HardwareManagerMethodNotFound");
    assert_eq!(error["details"], "Could not find method: erase_devices");
    assert!(state.is_finished(&id));
}

#[test]
fn the_first_result_or_failure_ends_the_dispatch() {
    let mut state = agent(&[("a", 3), ("b", 2)]);
    let (id, _) = post(&mut state, "deploy.execute_deploy_step", &execute("burn"));
    let work = state.work_done(NOW, &id, incompatible()).unwrap();
    assert_eq!(manager_of(&work), "b");
    let done = Ok(AgentWorkOutcome::Value(json!({"heat": 9})));
    assert_eq!(state.work_done(NOW, &id, done), None);
    let reply: Value = serde_json::from_slice(&state.command(&id).body).unwrap();
    assert_eq!(reply["command_status"], "SUCCEEDED");
    assert_eq!(
        reply["command_result"],
        json!({"deploy_result": {"heat": 9}, "deploy_step": {"step": "burn"}})
    );
    let (id, _) = post(&mut state, "clean.execute_clean_step", &execute("burn"));
    let failure = AgentWorkError::Manager(ManagerError::failed("too hot"));
    assert_eq!(state.work_done(NOW, &id, Err(failure)), None);
    let reply: Value = serde_json::from_slice(&state.command(&id).body).unwrap();
    assert_eq!(reply["command_error"]["details"], "too hot");
    assert_eq!(reply["command_error"]["type"], "HardwareManagerError");
}

#[test]
fn the_program_of_a_manager_gets_step_node_and_ports() {
    let mut state = agent(&[("a", 3)]);
    let params = json!({"step": {"step": "s", "args": {"x": 1}}, "node": {"uuid": "u"},
                        "ports": [{"address": "m"}]});
    let (_, work) = post(&mut state, "service.execute_service_step", &params);
    let want = ManagerRequest::Execute {
        manager: "a".to_owned(),
        kind: StepKind::Service,
        step: params["step"].clone(),
        node: params["node"].clone(),
        ports: params["ports"].clone(),
    };
    assert_eq!(work, AgentWork::Manager(want));
}

#[test]
fn of_two_steps_of_one_name_the_better_support_wins_and_then_the_priority() {
    let state = agent(&[("a", 2), ("b", 2), ("c", 3)]);
    let added = StepsByManager::from([
        (
            "a".to_owned(),
            vec![
                step("both", 10),
                step("tie", 4),
                step("low", 1),
                step("high", 2),
            ],
        ),
        ("b".to_owned(), vec![step("both", 20), step("tie", 4)]),
        ("c".to_owned(), vec![step("erase_devices", 0)]),
        ("unknown".to_owned(), vec![step("never", 1)]),
    ]);
    let list = state.step_list(StepKind::Clean, &added);
    let names = |manager: &str| -> Vec<(&str, i64)> {
        let steps = list["clean_steps"][manager].as_array().unwrap();
        let steps = steps.iter();
        steps
            .map(|step| {
                (
                    step["step"].as_str().unwrap(),
                    step["priority"].as_i64().unwrap(),
                )
            })
            .collect()
    };
    assert_eq!(names("a"), [("tie", 4), ("high", 2), ("low", 1)]);
    assert_eq!(names("b"), [("both", 20)]);
    assert_eq!(names("c"), [("erase_devices", 0)]);
    assert_eq!(names(MANAGER_CLASS), [("erase_devices_metadata", 99)]);
    assert_eq!(list["clean_steps"].get("unknown"), None);
    assert_eq!(
        list["hardware_manager_version"],
        json!({"a": "1", "b": "1", "c": "1", MANAGER: MANAGER_VERSION})
    );
}

#[test]
fn a_changed_version_of_any_manager_is_a_mismatch() {
    let mut state = agent(&[("a", 3)]);
    let mut params = execute("burn");
    params["clean_version"] = json!({"a": "0", MANAGER: MANAGER_VERSION});
    let target = format!("/v1/commands/?agent_token={}", "t".repeat(40));
    let body = json!({"name": "clean.execute_clean_step", "params": params}).to_string();
    let reply = state.handle_request(NOW, "POST", &target, body.as_bytes());
    let reply: Value = serde_json::from_slice(&reply.body).unwrap();
    let status = CommandStatus::VersionMismatch;
    assert_eq!(reply["command_status"], status.as_str());
    params["clean_version"] = json!({"a": "1", MANAGER: MANAGER_VERSION});
    post(&mut state, "clean.execute_clean_step", &params);
}

#[test]
fn a_list_of_steps_waits_for_the_managers() {
    let mut state = agent(&[("a", 3)]);
    let params = json!({"node": {"uuid": "u"}, "ports": []});
    let (id, work) = post(&mut state, "clean.get_clean_steps", &params);
    let want = ManagerRequest::ListSteps {
        kind: StepKind::Clean,
        node: params["node"].clone(),
        ports: params["ports"].clone(),
    };
    assert_eq!(work, AgentWork::Manager(want));
    let steps = StepsByManager::from([("a".to_owned(), vec![step("one", 1)])]);
    state.work_done(
        NOW,
        &id,
        Ok(AgentWorkOutcome::Steps(StepKind::Clean, steps)),
    );
    let reply: Value = serde_json::from_slice(&state.command(&id).body).unwrap();
    assert_eq!(
        reply["command_result"]["clean_steps"]["a"][0]["step"],
        "one"
    );
}
