//! External events, which Neutron sends. There is no Neutron, but the request is accepted.

use serde_json::Value;

use crate::table::body;
use crate::table::call::ApiCall;
use crate::table::error::ApiFault;
use crate::table::field::{ValueShape, quoted};
use crate::table::route::{ApiRoute, BodySchema, required};
use crate::{ApiOutcome, Response};

pub(crate) const ROUTES: &[ApiRoute] = &[ApiRoute::new(
    "POST",
    &["v1", "events"],
    54,
    "Receive external events",
    events,
)
.body(BodySchema::Args(&[required(
    "events",
    54,
    ValueShape::List,
)]))];

/// The events that Ironic knows, and what each of them must say.
const EVENTS: [&str; 3] = [
    "network.bind_port",
    "network.unbind_port",
    "network.delete_port",
];
const REQUIRED: [&str; 3] = ["port_id", "mac_address", "status"];

fn events(call: &ApiCall<'_>) -> Result<ApiOutcome, ApiFault> {
    let object = body::object(call)?;
    body::only(&object, &["events"])?;
    let events = match object.get("events") {
        Some(Value::Array(events)) => events,
        Some(other) => {
            return Err(refused(&format!(
                "{} is not of type 'array'",
                quoted(other)
            )));
        }
        None => return Err(refused("'events' is a required property")),
    };
    if events.is_empty() {
        return Err(refused("[] should be non-empty"));
    }
    for event in events {
        let Some(name) = event.get("event") else {
            return Err(refused("'event' is a required property"));
        };
        if !EVENTS.iter().any(|known| name == known) {
            return Err(refused(&format!(
                "{} is not one of {EVENTS:?}",
                quoted(name)
            )));
        }
        if let Some(missing) = REQUIRED.iter().find(|key| event.get(**key).is_none()) {
            return Err(refused(&format!("'{missing}' is a required property")));
        }
    }
    Ok(ApiOutcome::Reply(Response::empty(204)))
}

fn refused(why: &str) -> ApiFault {
    ApiFault::bad(format!("Schema error: {why}"))
}

#[cfg(test)]
mod tests {
    use crate::testing::{ApiBench, send};

    #[test]
    fn only_events_that_ironic_knows_are_accepted() {
        let bench = ApiBench::new();
        let status = |body: &str| {
            let request = send("POST", "/v1/events", body).at("1.54");
            bench.reply(&request).status
        };
        for body in [
            "{}",
            r#"{"events": []}"#,
            r#"{"events": [{}]}"#,
            r#"{"events": [{"event": "odd"}]}"#,
            r#"{"events": [{"event": "network.bind_port"}]}"#,
        ] {
            assert_eq!(status(body), 400, "{body}");
        }
        let event = r#"{"event": "network.bind_port", "port_id": "x", "mac_address": "y",
            "status": "ACTIVE"}"#;
        assert_eq!(status(&format!("{{\"events\": [{event}]}}")), 204);
    }
}
