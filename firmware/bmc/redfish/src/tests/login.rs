use serde_json::json;
use trivet_model::secret::SecretText;
use trivet_model::{BmcFailureCause, PowerAnswer, PowerError, PowerOrder, PowerState};

use super::rig::{RedfishTestRig, body, cause, deliver, json_answer, lost, unreachable};
use crate::service::{RedfishSimulatorSetup, SESSIONS_MAX};
use crate::{BmcHttpCredentials, BmcHttpError, BmcHttpMethod, BmcHttpResponse};

const OFF: Result<PowerAnswer, PowerError> = Ok(PowerAnswer::Power(PowerState::Off));

fn kinds(rig: &RedfishTestRig) -> Vec<&'static str> {
    let kind = |request: &crate::BmcHttpRequest| match &request.credentials {
        Some(BmcHttpCredentials::Token(_)) => "token",
        Some(BmcHttpCredentials::Basic(_)) => "basic",
        None => "none",
    };
    rig.requests.iter().map(kind).collect()
}

#[test]
fn logs_in_once_and_keeps_the_session() {
    let mut rig = RedfishTestRig::new(RedfishSimulatorSetup::default());
    for _ in 0..3 {
        assert_eq!(rig.order(PowerOrder::Status), OFF);
    }
    assert_eq!(kinds(&rig), ["none", "token", "token", "token", "token"]);
    let want = json!({"UserName": "root", "Password": "calvin"});
    assert_eq!(body(&rig.requests[0]), want);
    assert_eq!(rig.service.sessions(), 1);
}

#[test]
fn ends_the_session_when_it_is_closed() {
    let mut rig = RedfishTestRig::new(RedfishSimulatorSetup::default());
    rig.order(PowerOrder::Status).unwrap();
    rig.session.close();
    rig.step();
    assert_eq!(rig.service.sessions(), 0);
    assert_eq!(rig.session.deadline(), None);
    assert!(rig.session.transmit(rig.now).is_none());
    // A later order logs in again.
    assert_eq!(rig.order(PowerOrder::Status), OFF);
    assert_eq!(rig.service.sessions(), 1);
}

#[test]
fn a_dropped_session_can_be_ended() {
    let mut rig = RedfishTestRig::new(RedfishSimulatorSetup::default());
    assert!(rig.session.logout_request().is_none());
    rig.order(PowerOrder::Status).unwrap();
    let request = rig.session.logout_request().unwrap();
    assert_eq!(request.method, BmcHttpMethod::Delete);
    assert_eq!(request.path, "/redfish/v1/SessionService/Sessions/1");
    assert!(rig.session.logout_request().is_none());
}

#[test]
fn a_session_that_is_gone_is_replaced_once() {
    let mut rig = RedfishTestRig::new(RedfishSimulatorSetup::default());
    rig.order(PowerOrder::Status).unwrap();
    rig.service.drop_sessions();
    rig.take_requests();
    assert_eq!(rig.order(PowerOrder::On), Ok(PowerAnswer::Accepted));
    assert_eq!(kinds(&rig)[..3], ["token", "none", "token"]);
    assert_eq!(rig.service.take_actions().len(), 1);
    // A BMC that drops each session immediately is not retried forever.
    rig.wire(|now, request, service, entropy| {
        service.drop_sessions();
        deliver(now, request, service, entropy)
    });
    rig.take_requests();
    assert_eq!(cause(rig.order(PowerOrder::Status)), BmcFailureCause::Login);
    assert!(rig.requests.len() <= 4);
}

#[test]
fn the_password_is_in_each_request_without_sessions() {
    let mut rig = RedfishTestRig::new(RedfishSimulatorSetup {
        sessions: false,
        ..RedfishSimulatorSetup::default()
    });
    assert_eq!(rig.order(PowerOrder::Status), OFF);
    assert_eq!(rig.order(PowerOrder::Status), OFF);
    assert_eq!(kinds(&rig), ["none", "basic", "basic", "basic"]);
}

#[test]
fn the_operator_chooses_how_to_log_in() {
    let basic = json!({"redfish_auth_type": "basic"});
    let mut rig = RedfishTestRig::with(RedfishSimulatorSetup::default(), basic);
    assert_eq!(rig.order(PowerOrder::Status), OFF);
    assert_eq!(kinds(&rig), ["basic", "basic"]);
    let without = RedfishSimulatorSetup {
        sessions: false,
        ..RedfishSimulatorSetup::default()
    };
    let mut rig = RedfishTestRig::with(without, json!({"redfish_auth_type": "session"}));
    let text = rig.order(PowerOrder::Status).unwrap_err().to_string();
    assert!(text.contains("redfish_auth_type"), "{text}");
    assert_eq!(kinds(&rig), ["none"]);
}

#[test]
fn no_login_without_a_user() {
    let open = RedfishSimulatorSetup {
        user: None,
        ..RedfishSimulatorSetup::default()
    };
    let nobody = json!({"redfish_username": null});
    let mut rig = RedfishTestRig::with(open, nobody.clone());
    assert_eq!(rig.order(PowerOrder::Status), OFF);
    assert_eq!(kinds(&rig), ["none", "none"]);
    let mut rig = RedfishTestRig::with(RedfishSimulatorSetup::default(), nobody);
    assert_eq!(cause(rig.order(PowerOrder::Status)), BmcFailureCause::Login);
}

#[test]
fn a_wrong_password_is_sent_once_and_reported() {
    for auth in ["auto", "session", "basic"] {
        let more = json!({"redfish_password": "wrong", "redfish_auth_type": auth});
        let mut rig = RedfishTestRig::with(RedfishSimulatorSetup::default(), more);
        let answer = rig.order(PowerOrder::Status);
        let text = answer.as_ref().unwrap_err().to_string();
        assert!(
            text.contains("redfish_password") && !text.contains("wrong"),
            "{text}"
        );
        assert_eq!(cause(answer), BmcFailureCause::Login);
        // More attempts could lock the account.
        assert_eq!(rig.requests.len(), 1, "{auth}");
    }
}

/// iLO responds with 400 to a wrong password.
#[test]
fn a_wrong_password_by_another_status_is_known_too() {
    let mut rig = RedfishTestRig::new(RedfishSimulatorSetup::default());
    rig.wire(|_, _, _, _| {
        let id = "iLO.2.15.UnauthorizedLoginAttempt";
        let error = json!({"error": {"@Message.ExtendedInfo": [{"MessageId": id}]}});
        Ok(json_answer(400, &error))
    });
    assert_eq!(cause(rig.order(PowerOrder::Status)), BmcFailureCause::Login);
    assert_eq!(rig.requests.len(), 1);
}

#[test]
fn a_user_with_read_access_only_is_reported() {
    let mut rig = RedfishTestRig::new(RedfishSimulatorSetup {
        read_only: true,
        ..RedfishSimulatorSetup::default()
    });
    assert_eq!(rig.order(PowerOrder::Status), OFF);
    let answer = rig.order(PowerOrder::On);
    assert!(answer.as_ref().unwrap_err().is_lasting());
    assert_eq!(cause(answer), BmcFailureCause::Privilege);
}

#[test]
fn a_bmc_without_a_free_session_is_waited_for() {
    let session = json!({"redfish_auth_type": "session"});
    let mut rig = RedfishTestRig::with(RedfishSimulatorSetup::default(), session);
    let mut others: Vec<_> = (0..SESSIONS_MAX)
        .map(|_| RedfishTestRig::new(RedfishSimulatorSetup::default()).session)
        .collect();
    // Other clients use all of its sessions.
    let mut entropy = trivet_model::SeededRandom::new(1);
    for other in &mut others {
        other.order(rig.now, 1, PowerOrder::Status).unwrap();
        let login = other.transmit(rig.now).unwrap();
        let answer = rig.service.handle(rig.now, &login, &mut entropy);
        assert_eq!(answer.unwrap().status, 201);
    }
    assert_eq!(cause(rig.order(PowerOrder::Status)), BmcFailureCause::Busy);
    assert_eq!(rig.requests.len(), 3);
    rig.service.drop_sessions();
    assert_eq!(rig.order(PowerOrder::Status), OFF);
}

#[test]
fn a_full_session_table_by_another_status_has_its_own_message() {
    let answer = || {
        let id = "Base.1.8.SessionLimitExceeded";
        json_answer(
            400,
            &json!({"error": {"@Message.ExtendedInfo": [{"MessageId": id}]}}),
        )
    };
    let session = json!({"redfish_auth_type": "session"});
    let mut rig = RedfishTestRig::with(RedfishSimulatorSetup::default(), session);
    rig.wire(move |_, _, _, _| Ok(answer()));
    assert_eq!(
        rig.order(PowerOrder::Status),
        Err(PowerError::NoFreeSession)
    );
}

#[test]
fn a_login_that_gets_lost_is_tried_again_within_bounds() {
    for error in [unreachable(), lost()] {
        let mut rig = RedfishTestRig::new(RedfishSimulatorSetup::default());
        let mut left = 2;
        let message = error.clone();
        rig.wire(move |now, request, service, entropy| {
            if left > 0 {
                left -= 1;
                return Err(message.clone());
            }
            deliver(now, request, service, entropy)
        });
        assert_eq!(rig.order(PowerOrder::Status), OFF);
        let mut rig = RedfishTestRig::new(RedfishSimulatorSetup::default());
        rig.wire(move |_, _, _, _| Err(error.clone()));
        assert_eq!(
            cause(rig.order(PowerOrder::Status)),
            BmcFailureCause::Unreachable
        );
        assert_eq!(rig.requests.len(), 3);
    }
}

#[test]
fn a_certificate_that_is_not_trusted_ends_it_at_once() {
    let mut rig = RedfishTestRig::new(RedfishSimulatorSetup::default());
    rig.wire(|_, _, _, _| {
        Err(BmcHttpError::Untrusted {
            fingerprint: Some("ab".repeat(32)),
            message: "self-signed".to_owned(),
        })
    });
    let answer = rig.order(PowerOrder::Status);
    let text = answer.as_ref().unwrap_err().to_string();
    assert!(
        text.contains(&"ab".repeat(32)) && text.contains("redfish_pin"),
        "{text}"
    );
    assert!(answer.as_ref().unwrap_err().is_lasting());
    assert_eq!(cause(answer), BmcFailureCause::Untrusted);
    assert_eq!(rig.requests.len(), 1);
}

#[test]
fn a_session_needs_a_token_that_fits_a_header() {
    for token in [
        None,
        Some(""),
        Some("a b"),
        Some("a\r\nb"),
        Some(&"x".repeat(5000) as &str),
    ] {
        let answer = BmcHttpResponse {
            token: token.map(SecretText::new),
            ..json_answer(201, &json!({}))
        };
        let session = json!({"redfish_auth_type": "session"});
        let mut rig = RedfishTestRig::with(RedfishSimulatorSetup::default(), session);
        rig.wire(move |_, _, _, _| Ok(answer.clone()));
        assert_eq!(
            cause(rig.order(PowerOrder::Status)),
            BmcFailureCause::InvalidResponse
        );
    }
}

/// A session on another host is used, and never ended there.
#[test]
fn the_place_of_a_session_is_on_the_bmc_or_nowhere() {
    for (place, ends) in [
        (
            "https://192.0.2.7/redfish/v1/SessionService/Sessions/9",
            true,
        ),
        (
            "https://evil.example/redfish/v1/SessionService/Sessions/9",
            false,
        ),
    ] {
        let mut rig = RedfishTestRig::new(RedfishSimulatorSetup::default());
        rig.wire(move |now, request, service, entropy| {
            let mut answer = deliver(now, request, service, entropy)?;
            if answer.token.is_some() {
                answer.location = Some(place.to_owned());
            }
            Ok(answer)
        });
        assert_eq!(rig.order(PowerOrder::Status), OFF);
        assert_eq!(rig.session.logout_request().is_some(), ends, "{place}");
    }
}

#[test]
fn a_response_without_a_request_changes_nothing() {
    let mut rig = RedfishTestRig::new(RedfishSimulatorSetup::default());
    rig.session
        .handle_response(rig.now, Ok(json_answer(200, &json!({"PowerState": "On"}))));
    rig.session.handle_response(rig.now, Err(lost()));
    assert_eq!(rig.order(PowerOrder::Status), OFF);
    rig.session
        .handle_response(rig.now, Ok(json_answer(401, &json!({}))));
    assert_eq!(rig.order(PowerOrder::Status), OFF);
    assert_eq!(rig.service.sessions(), 1);
}
