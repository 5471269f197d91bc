//! Event subscriptions.

use serde_json::{Value, json};
use trivet_model::bmc_request::EventSubscription;
use trivet_model::secret::SecretText;
use trivet_model::{BmcFailureCause, PowerError};

use super::rig::{RedfishTestRig, body, cause, deliver, json_answer, lost};
use crate::service::RedfishSimulatorSetup;
use crate::{BmcHttpMethod, BmcHttpResponse, RedfishOperation, RedfishReply};

const DONE: Result<RedfishReply, PowerError> = Ok(RedfishReply::Done);

/// The collection of subscriptions of the simulated service.
const SUBSCRIPTIONS: &str = "/redfish/v1/EventService/Subscriptions";

fn subscribe(more: impl FnOnce(&mut EventSubscription)) -> RedfishOperation {
    let mut wanted = EventSubscription {
        destination: SecretText::new("https://192.0.2.1/events"),
        protocol: "Redfish".to_owned(),
        context: SecretText::new("rack 1"),
        event_types: Vec::new(),
        http_headers: Vec::new(),
    };
    more(&mut wanted);
    RedfishOperation::Subscribe(Box::new(wanted))
}

/// A BMC with an event service, whose collection of subscriptions answers so.
fn answering(answer: impl Fn() -> BmcHttpResponse + 'static) -> RedfishTestRig {
    RedfishTestRig::against(move |request| match request.path.as_str() {
        "/redfish/v1" => json_answer(200, &json!({"EventService": {"@odata.id": "/e"}})),
        "/e" => json_answer(200, &json!({"Subscriptions": {"@odata.id": "/e/s/"}})),
        "/e/s/9" => json_answer(200, &json!({"Id": "9", "Destination": "https://h"})),
        _ => answer(),
    })
}

fn end(id: &str) -> RedfishOperation {
    RedfishOperation::Unsubscribe { id: id.to_owned() }
}

#[test]
fn events_are_subscribed_to_and_a_subscription_ends_by_its_id() {
    let mut rig = RedfishTestRig::new(RedfishSimulatorSetup::default());
    let wanted = subscribe(|wanted| {
        let header = ("X-Auth".to_owned(), SecretText::new("s3cret"));
        wanted.http_headers.push(header);
    });
    assert!(!format!("{wanted:?}").contains("s3cret"));
    let Ok(RedfishReply::Subscription(found)) = rig.operation(wanted) else {
        panic!("no subscription");
    };
    assert_eq!(found.destination, "https://192.0.2.1/events");
    assert_eq!(
        (found.context.as_str(), &found.event_types[..]),
        ("rack 1", &["Alert".to_owned()][..])
    );
    let sent = rig.requests.iter().find(|request| {
        request.method == BmcHttpMethod::Post && request.path.ends_with("/Subscriptions")
    });
    assert_eq!(
        body(sent.unwrap())["HttpHeaders"],
        json!([{"X-Auth": "s3cret"}])
    );
    assert_eq!(rig.service.subscriptions().len(), 1);
    assert_eq!(rig.operation(end(&found.id)), DONE);
    assert!(rig.service.subscriptions().is_empty());
    let gone = rig.operation(end(&found.id));
    assert_eq!(cause(gone), BmcFailureCause::Missing);
    let path = rig.operation(end("../SessionService"));
    assert!(matches!(path, Err(PowerError::Unsupported { .. })));
}

#[test]
fn a_subscription_is_created_once_and_its_secrets_are_not_quoted() {
    let mut rig = RedfishTestRig::new(RedfishSimulatorSetup::default());
    rig.wire(|now, request, service, entropy| {
        let answer = deliver(now, request, service, entropy);
        let creates = request.path.ends_with("/Subscriptions");
        if creates && request.method == BmcHttpMethod::Post {
            Err(lost())
        } else {
            answer
        }
    });
    assert_eq!(
        cause(rig.operation(subscribe(|_| {}))),
        BmcFailureCause::Unreachable
    );
    assert_eq!(rig.service.subscriptions().len(), 1, "it is not sent again");
    let text = json!({"error": {"message": "bad header t0ken"}});
    let mut rig = answering(move || json_answer(400, &text));
    let refused = rig.operation(subscribe(|wanted| {
        let header = ("X-Auth".to_owned(), SecretText::new("t0ken"));
        wanted.http_headers.push(header);
    }));
    let text = refused.unwrap_err().to_string();
    assert!(
        text.contains("bad header") && !text.contains("t0ken"),
        "{text}"
    );
}

#[test]
fn a_bmc_without_events_and_a_type_that_it_lacks_are_refused() {
    let mut rig = RedfishTestRig::against(|_| json_answer(200, &json!({})));
    let none = rig.operation(subscribe(|_| {}));
    assert!(
        matches!(none, Err(PowerError::Unsupported { message }) if message.contains("EventService"))
    );
    let mut rig = RedfishTestRig::new(RedfishSimulatorSetup::default());
    let kinds = |kinds: &[&str]| {
        let kinds = kinds.iter().map(|kind| (*kind).to_owned()).collect();
        subscribe(|wanted| wanted.event_types = kinds)
    };
    assert!(rig.operation(kinds(&["Alert", "StatusChange"])).is_ok());
    let odd = rig.operation(kinds(&["Alert", "Dance"]));
    assert!(
        matches!(odd, Err(PowerError::Unsupported { message }) if message.contains("EventTypes"))
    );
}

#[test]
fn a_new_subscription_is_read_where_its_location_is() {
    let created = || BmcHttpResponse {
        location: Some("https://192.0.2.7/e/s/9".to_owned()),
        ..json_answer(201, &Value::Null)
    };
    let mut rig = answering(created);
    let Ok(RedfishReply::Subscription(found)) = rig.operation(subscribe(|_| {})) else {
        panic!("no subscription");
    };
    assert_eq!(
        (found.id.as_str(), found.destination.as_str()),
        ("9", "https://h")
    );
    assert_eq!(rig.take_requests().last().unwrap(), "GET /e/s/9");
}

#[test]
fn a_subscription_in_the_response_is_not_read_again() {
    let mut rig = answering(|| json_answer(201, &json!({"Id": "3", "Protocol": "Redfish"})));
    assert!(rig.operation(subscribe(|_| {})).is_ok());
    assert_eq!(rig.take_requests().last().unwrap(), "POST /e/s");
}

#[test]
fn a_subscription_that_cannot_be_found_again_is_an_invalid_response() {
    let elsewhere = || BmcHttpResponse {
        location: Some("https://192.0.2.99/e/s/9".to_owned()),
        ..json_answer(201, &Value::Null)
    };
    let odd = || json_answer(201, &json!({"Id": "../9"}));
    let nameless = || json_answer(201, &Value::Null);
    let answers: [fn() -> BmcHttpResponse; 3] = [elsewhere, odd, nameless];
    for answer in answers {
        let result = answering(answer).operation(subscribe(|_| {}));
        assert_eq!(cause(result), BmcFailureCause::InvalidResponse);
    }
}

#[test]
fn a_refused_subscription_has_the_reason_of_the_bmc() {
    for (status, want) in [
        (403, BmcFailureCause::Privilege),
        (400, BmcFailureCause::Refused),
        (503, BmcFailureCause::Busy),
    ] {
        let mut rig = answering(move || json_answer(status, &Value::Null));
        assert_eq!(cause(rig.operation(subscribe(|_| {}))), want, "{status}");
        let posts = rig.take_requests().into_iter();
        let posts = posts.filter(|line| line.starts_with("POST"));
        assert_eq!(posts.count(), 1, "it is not repeated");
    }
}

#[test]
fn an_end_that_is_not_answered_is_unknown_and_a_busy_bmc_is_asked_again() {
    let mut rig = RedfishTestRig::new(RedfishSimulatorSetup::default());
    assert!(rig.operation(subscribe(|_| {})).is_ok());
    let id = rig.service.subscriptions()[0]["Id"]
        .as_str()
        .unwrap()
        .to_owned();
    rig.service.faults.busy = (1, 2);
    assert_eq!(rig.operation(end(&id)), DONE);
    let mut rig = answering(|| json_answer(204, &Value::Null));
    assert_eq!(rig.operation(end("9x")), DONE);
    let mut rig = RedfishTestRig::new(RedfishSimulatorSetup::default());
    rig.wire(|now, request, service, entropy| match request.method {
        BmcHttpMethod::Delete => Err(lost()),
        _ => deliver(now, request, service, entropy),
    });
    assert_eq!(cause(rig.operation(end("1"))), BmcFailureCause::Unreachable);
}

#[test]
fn a_bmc_has_room_for_few_subscriptions_and_forgets_none() {
    let mut rig = RedfishTestRig::new(RedfishSimulatorSetup::default());
    let mut ids = Vec::new();
    while let Ok(RedfishReply::Subscription(found)) = rig.operation(subscribe(|_| {})) {
        ids.push(found.id.clone());
    }
    assert_eq!(ids.len(), 8);
    let listed = rig.service.subscriptions();
    let of = |listed: &Value| listed["Id"].as_str().unwrap().to_owned();
    assert_eq!(listed.iter().map(of).collect::<Vec<_>>(), ids);
    assert!(listed.iter().all(|one| one["HttpHeaders"].is_null()));
    assert!(
        rig.take_requests()
            .contains(&format!("POST {SUBSCRIPTIONS}"))
    );
}

#[test]
fn a_name_that_the_bmc_does_not_know_is_a_cause_of_its_own() {
    let mut rig = RedfishTestRig::new(RedfishSimulatorSetup::default());
    let refused = rig.operation(end("9")).unwrap_err();
    assert!(refused.to_string().contains("no subscription 9"));
    assert_eq!(cause::<()>(Err(refused)), BmcFailureCause::Missing);
}
