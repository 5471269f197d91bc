//! Tests of the simulated service itself: it behaves like a correct BMC.

use serde_json::{Value, json};
use trivet_model::secret::SecretText;
use trivet_model::{PowerState, SeededRandom, Tick};

use crate::service::{
    RedfishSimulator, RedfishSimulatorAction, RedfishSimulatorSetup, SESSIONS_MAX,
};
use crate::{BmcHttpCredentials, BmcHttpMethod, BmcHttpRequest, BmcHttpResponse};

fn open() -> RedfishSimulator {
    RedfishSimulator::new(RedfishSimulatorSetup {
        user: None,
        ..RedfishSimulatorSetup::default()
    })
}

fn request(method: BmcHttpMethod, path: &str, body: Option<Value>) -> BmcHttpRequest {
    BmcHttpRequest {
        method,
        path: format!("/redfish/v1{path}"),
        credentials: None,
        if_match: None,
        body: body.map(|body| SecretText::new(body.to_string())),
    }
}

fn call_service(
    service: &mut RedfishSimulator,
    now: Tick,
    request: &BmcHttpRequest,
) -> BmcHttpResponse {
    service
        .handle(now, request, &mut SeededRandom::new(3))
        .unwrap()
}

fn get(service: &mut RedfishSimulator, path: &str) -> (u16, Value) {
    let answer = call_service(
        service,
        Tick::default(),
        &request(BmcHttpMethod::Get, path, None),
    );
    (answer.status, serde_json::from_slice(&answer.body).unwrap())
}

/// Every link in a resource can be read.
#[test]
fn all_links_lead_to_resources() {
    for (sensors, media_below_manager) in [(true, false), (false, true)] {
        let mut service = RedfishSimulator::new(RedfishSimulatorSetup {
            user: None,
            sensors,
            media_below_manager,
            machines: 2,
            ..RedfishSimulatorSetup::default()
        });
        let mut open = vec![String::new()];
        let mut seen = Vec::new();
        while let Some(path) = open.pop() {
            if seen.contains(&path) {
                continue;
            }
            let (status, body) = get(&mut service, &path);
            assert_eq!(status, 200, "{path}");
            let text = body.to_string();
            for part in text.split("\"@odata.id\":\"/redfish/v1").skip(1) {
                open.push(part.split('"').next().unwrap().to_owned());
            }
            seen.push(path);
        }
        assert!(seen.len() > 12, "{seen:?}");
    }
}

#[test]
fn unauthenticated_clients_see_only_the_root() {
    let mut service = RedfishSimulator::new(RedfishSimulatorSetup::default());
    assert_eq!(get(&mut service, "").0, 200);
    assert_eq!(get(&mut service, "/Systems").0, 401);
    let mut wrong = request(BmcHttpMethod::Get, "/Systems", None);
    for credentials in [
        BmcHttpCredentials::Token(SecretText::new("x")),
        BmcHttpCredentials::Basic(SecretText::new("root:wrong")),
    ] {
        wrong.credentials = Some(credentials);
        assert_eq!(
            call_service(&mut service, Tick::default(), &wrong).status,
            401
        );
    }
    wrong.credentials = Some(BmcHttpCredentials::Basic(SecretText::new("root:calvin")));
    assert_eq!(
        call_service(&mut service, Tick::default(), &wrong).status,
        200
    );
}

#[test]
fn sessions_are_made_used_ended_and_bounded() {
    let mut service = RedfishSimulator::new(RedfishSimulatorSetup::default());
    let body = json!({"UserName": "root", "Password": "calvin"});
    let login = request(BmcHttpMethod::Post, "/SessionService/Sessions", Some(body));
    let mut entropy = SeededRandom::new(3);
    let mut log_in = |service: &mut RedfishSimulator| {
        let answer = service.handle(Tick::default(), &login, &mut entropy);
        answer.unwrap()
    };
    let first = log_in(&mut service);
    for _ in 1..SESSIONS_MAX {
        assert_eq!(log_in(&mut service).status, 201);
    }
    assert_eq!(log_in(&mut service).status, 503);
    let mut end = request(BmcHttpMethod::Delete, "/SessionService/Sessions/1", None);
    end.credentials = Some(BmcHttpCredentials::Token(first.token.unwrap()));
    assert_eq!(
        call_service(&mut service, Tick::default(), &end).status,
        204
    );
    assert_eq!(service.sessions(), SESSIONS_MAX - 1);
    // Its token is no longer valid.
    assert_eq!(
        call_service(&mut service, Tick::default(), &end).status,
        401
    );
}

#[test]
fn power_follows_after_its_lag() {
    let mut service = RedfishSimulator::new(RedfishSimulatorSetup {
        user: None,
        lag_ms: 500,
        ..RedfishSimulatorSetup::default()
    });
    let path = "/Systems/1/Actions/ComputerSystem.Reset";
    let on = request(BmcHttpMethod::Post, path, Some(json!({"ResetType": "On"})));
    let now = Tick::default();
    assert_eq!(call_service(&mut service, now, &on).status, 204);
    assert_eq!(service.machine(0).unwrap().power, PowerState::Off);
    let look = request(BmcHttpMethod::Get, "/Systems/1", None);
    call_service(&mut service, now.after_ms(500), &look);
    assert_eq!(service.machine(0).unwrap().power, PowerState::On);
    assert_eq!(
        service.take_actions(),
        [RedfishSimulatorAction::Reset(0, "On".to_owned())]
    );
    assert!(service.take_actions().is_empty());
}

#[test]
fn marks_change_with_the_resource() {
    let mut service = open();
    let look = request(BmcHttpMethod::Get, "/Systems/1", None);
    let etag = call_service(&mut service, Tick::default(), &look).etag;
    let light = json!({"LocationIndicatorActive": true});
    let mut change = request(BmcHttpMethod::Patch, "/Systems/1", Some(light));
    change.if_match.clone_from(&etag);
    assert_eq!(
        call_service(&mut service, Tick::default(), &change).status,
        204
    );
    assert_eq!(
        call_service(&mut service, Tick::default(), &change).status,
        412
    );
    assert_ne!(
        call_service(&mut service, Tick::default(), &look).etag,
        etag
    );
}

#[test]
fn nonsense_is_refused() {
    let mut service = open();
    let reset = "/Systems/1/Actions/ComputerSystem.Reset";
    for (method, path, body, status) in [
        (BmcHttpMethod::Get, "/Nothing", Value::Null, 404),
        (BmcHttpMethod::Get, "/Systems/0", Value::Null, 404),
        (BmcHttpMethod::Get, "/Systems/2", Value::Null, 404),
        (BmcHttpMethod::Get, "/Systems/x", Value::Null, 404),
        (
            BmcHttpMethod::Get,
            "/TaskService/TaskMonitors/9",
            Value::Null,
            404,
        ),
        (
            BmcHttpMethod::Post,
            reset,
            json!({"ResetType": "Explode"}),
            400,
        ),
        (BmcHttpMethod::Post, reset, Value::Null, 400),
        (BmcHttpMethod::Post, "/Systems", json!({}), 404),
        (BmcHttpMethod::Patch, "/Chassis/1", json!({}), 404),
        (
            BmcHttpMethod::Patch,
            "/Systems/1/SecureBoot",
            json!({}),
            404,
        ),
        (BmcHttpMethod::Delete, "/Systems/1", Value::Null, 404),
    ] {
        let answer = call_service(
            &mut service,
            Tick::default(),
            &request(method, path, Some(body)),
        );
        assert_eq!(answer.status, status, "{path}");
    }
    let mut elsewhere = request(BmcHttpMethod::Get, "", None);
    elsewhere.path = "/".to_owned();
    assert_eq!(
        call_service(&mut service, Tick::default(), &elsewhere).status,
        404
    );
}

#[test]
fn it_is_away_while_it_restarts() {
    let mut service = open();
    let path = "/Managers/BMC/Actions/Manager.Reset";
    let reset = request(
        BmcHttpMethod::Post,
        path,
        Some(json!({"ResetType": "ForceRestart"})),
    );
    let now = Tick::default();
    assert_eq!(call_service(&mut service, now, &reset).status, 204);
    let look = request(BmcHttpMethod::Get, "", None);
    let mut at = |ms| service.handle(now.after_ms(ms), &look, &mut SeededRandom::new(1));
    assert!(at(10_000).is_none());
    assert!(at(20_000).is_some());
}
