//! `create_subscription` and `delete_subscription` of Ironic's vendor interface `redfish`: the BMC
//! sends its events to a URL. Argument names and error messages are Ironic's.

use serde_json::Value;
use trivet_model::BmcRequest;
use trivet_model::bmc_request::{
    EventSubscription, SUBSCRIPTION_LIST_MAX, SUBSCRIPTION_TEXT_BYTES_MAX,
};
use trivet_model::node::JsonObject;
use trivet_model::order::VendorMethod;
use trivet_model::secret::SecretText;
use trivet_model::view::NodeView;

use crate::table::body;
use crate::table::call::ApiCall;
use crate::table::error::ApiFault;
use crate::{ApiOutcome, ResponsePlan};

/// The protocol where the caller names none. Ironic's.
const PROTOCOL: &str = "Redfish";

pub(super) fn create(call: &ApiCall<'_>, view: &NodeView) -> Result<ApiOutcome, ApiFault> {
    let object = body::object_or_empty(call)?;
    let known = [
        "Destination",
        "EventTypes",
        "HttpHeaders",
        "Context",
        "Protocol",
    ];
    body::only(&object, &known)?;
    let wanted = EventSubscription {
        destination: SecretText::new(destination(&object)?),
        protocol: text(&object, "Protocol")?.unwrap_or(PROTOCOL).to_owned(),
        context: SecretText::new(text(&object, "Context")?.unwrap_or_default()),
        event_types: event_types(&object)?,
        http_headers: http_headers(&object)?,
    };
    let request = BmcRequest::Subscribe(Box::new(wanted));
    super::vendor(
        view,
        VendorMethod::BmcRequest(request),
        ResponsePlan::CommandReply,
    )
}

pub(super) fn delete(call: &ApiCall<'_>, view: &NodeView) -> Result<ApiOutcome, ApiFault> {
    let object = body::object_or_empty(call)?;
    body::only(&object, &["id"])?;
    let id = text(&object, "id")?.filter(|id| !id.is_empty());
    let id = id.ok_or_else(|| {
        ApiFault::bad("id can't be None: give the Id that create_subscription returned.")
    })?;
    let request = BmcRequest::Unsubscribe { id: id.to_owned() };
    super::vendor(
        view,
        VendorMethod::BmcRequest(request),
        ResponsePlan::CommandReply,
    )
}

fn text<'o>(object: &'o JsonObject, key: &str) -> Result<Option<&'o str>, ApiFault> {
    match object.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if is_short(text) => Ok(Some(text)),
        Some(Value::String(_)) => Err(too_long(key)),
        Some(_) => Err(ApiFault::bad(format!("{key} is not a valid string."))),
    }
}

fn is_short(text: &str) -> bool {
    text.len() <= SUBSCRIPTION_TEXT_BYTES_MAX
}

fn too_long(key: &str) -> ApiFault {
    ApiFault::bad(format!(
        "{key} is longer than {SUBSCRIPTION_TEXT_BYTES_MAX} bytes."
    ))
}

/// The URL that receives the events: any scheme, because the protocol may be SNMP or Syslog.
fn destination(object: &JsonObject) -> Result<String, ApiFault> {
    let invalid = || {
        ApiFault::bad(
            "Destination is not a valid URI: give a scheme and a host, as in https://h/e.",
        )
    };
    let url = text(object, "Destination")?.ok_or_else(invalid)?;
    let (scheme, rest) = url.split_once("://").ok_or_else(invalid)?;
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    let is_scheme = scheme.starts_with(|first: char| first.is_ascii_alphabetic());
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let plain = url.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_scheme || !scheme.bytes().all(is_allowed) || host.is_empty() || !plain {
        return Err(invalid());
    }
    Ok(url.to_owned())
}

fn event_types(object: &JsonObject) -> Result<Vec<String>, ApiFault> {
    let invalid = || ApiFault::bad("EventTypes is not a valid value: give a list of strings.");
    let list = match object.get("EventTypes") {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(list)) => list,
        Some(_) => return Err(invalid()),
    };
    bounded("EventTypes", list.len())?;
    let kind = |kind: &Value| {
        let kind = kind.as_str().filter(|kind| is_short(kind));
        kind.map(str::to_owned).ok_or_else(invalid)
    };
    list.iter().map(kind).collect()
}

/// A list of objects, each of which has names and values of headers.
fn http_headers(object: &JsonObject) -> Result<Vec<(String, SecretText)>, ApiFault> {
    let invalid = || {
        ApiFault::bad(
            "HttpHeaders is not a list of headers: give objects such as {\"X-Token\": \"t\"}.",
        )
    };
    let list = match object.get("HttpHeaders") {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(list)) => list,
        Some(_) => return Err(invalid()),
    };
    let mut headers = Vec::new();
    for entry in list {
        for (name, value) in entry.as_object().ok_or_else(invalid)? {
            let value = value.as_str().ok_or_else(invalid)?;
            // A line end would add a header, or end them all.
            let printable = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
            let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic());
            if !is_name || !value.bytes().all(printable) {
                return Err(invalid());
            }
            if !is_short(name) || !is_short(value) {
                return Err(too_long("HttpHeaders"));
            }
            headers.push((name.clone(), SecretText::new(value)));
            bounded("HttpHeaders", headers.len())?;
        }
    }
    Ok(headers)
}

fn bounded(key: &str, count: usize) -> Result<(), ApiFault> {
    if count <= SUBSCRIPTION_LIST_MAX {
        return Ok(());
    }
    Err(ApiFault::bad(format!(
        "{key} has more than {SUBSCRIPTION_LIST_MAX} entries."
    )))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use trivet_model::{ProvisionState, RackOrder};

    use crate::testing::{ApiBench, LATEST, get, node_id, send};

    use super::*;

    const CREATE: &str = "/v1/nodes/node-1/vendor_passthru?method=create_subscription";
    const DELETE: &str = "/v1/nodes/node-1/vendor_passthru?method=delete_subscription";

    fn bench() -> ApiBench {
        let mut bench = ApiBench::with(ProvisionState::Manageable);
        bench.change(|node| {
            node.driver = "redfish".into();
            let redfish = Some(json!("redfish"));
            node.attributes.set("vendor_interface", redfish).unwrap();
        });
        bench
    }

    #[track_caller]
    fn request(method: &'static str, path: &str, body: &Value) -> BmcRequest {
        let body = body.to_string();
        let (order, then) = bench().order(&send(method, path, &body).at(LATEST));
        assert_eq!(then, ResponsePlan::CommandReply);
        match order {
            RackOrder::Vendor {
                node,
                method: VendorMethod::BmcRequest(request),
            } if node == node_id(1) => request,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_subscription_becomes_a_request_to_the_bmc() {
        let body = json!({"Destination": "https://192.0.2.1/events"});
        let BmcRequest::Subscribe(wanted) = request("POST", CREATE, &body) else {
            panic!("another request");
        };
        assert_eq!(wanted.destination.reveal(), "https://192.0.2.1/events");
        assert_eq!(
            (wanted.protocol.as_str(), wanted.context.reveal()),
            ("Redfish", "")
        );
        assert!(wanted.event_types.is_empty() && wanted.http_headers.is_empty());
        let body = json!({"Destination": "syslog://h", "Context": "c", "Protocol": "SyslogTLS",
            "EventTypes": ["Alert"], "HttpHeaders": [{"X-Token": "s3cret"}, {"A": "b", "C": "d"}]});
        let requested = request("POST", CREATE, &body);
        assert!(!format!("{requested:?}").contains("s3cret"));
        let BmcRequest::Subscribe(wanted) = requested else {
            panic!("another request");
        };
        assert_eq!(wanted.http_headers.len(), 3);
        assert_eq!(wanted.event_types, ["Alert"]);
    }

    #[test]
    fn what_is_no_subscription_is_refused() {
        let bench = bench();
        let long = "x".repeat(SUBSCRIPTION_TEXT_BYTES_MAX + 1);
        for (body, part) in [
            (json!({}), "Destination"),
            (json!({"Destination": "events"}), "Destination"),
            (json!({"Destination": "://h"}), "Destination"),
            (json!({"Destination": "https:///x"}), "Destination"),
            (json!({"Destination": "https://h/a b"}), "Destination"),
            (json!({"Destination": 5}), "Destination"),
            (json!({"Destination": "https://h", "Context": 5}), "Context"),
            (
                json!({"Destination": "https://h", "Context": long}),
                "Context",
            ),
            (
                json!({"Destination": "https://h", "Protocol": []}),
                "Protocol",
            ),
            (
                json!({"Destination": "https://h", "EventTypes": "Alert"}),
                "EventTypes",
            ),
            (
                json!({"Destination": "https://h", "EventTypes": [5]}),
                "EventTypes",
            ),
            (
                json!({"Destination": "https://h", "EventTypes": vec!["A"; 99]}),
                "EventTypes",
            ),
            (
                json!({"Destination": "https://h", "HttpHeaders": {}}),
                "HttpHeaders",
            ),
            (
                json!({"Destination": "https://h", "HttpHeaders": ["a: b"]}),
                "HttpHeaders",
            ),
            (
                json!({"Destination": "https://h", "HttpHeaders": [{"a": "b\r\nc: d"}]}),
                "HttpHeaders",
            ),
            (
                json!({"Destination": "https://h", "HttpHeaders": vec![json!({"a": "b"}); 99]}),
                "HttpHeaders",
            ),
            (json!({"Destination": "https://h", "Dance": 1}), "Dance"),
        ] {
            let text = body.to_string();
            let message = bench.refuses(&send("POST", CREATE, &text).at(LATEST), 400);
            assert!(message.contains(part), "{message} for {body}");
        }
        let message = bench.refuses(&send("PUT", CREATE, "{}").at(LATEST), 400);
        assert_eq!(
            message,
            "The method create_subscription does not support HTTP PUT"
        );
    }

    #[test]
    fn a_subscription_ends_by_its_id() {
        let requested = request("DELETE", DELETE, &json!({"id": "7"}));
        assert_eq!(requested, BmcRequest::Unsubscribe { id: "7".to_owned() });
        for body in ["", "{}", "{\"id\": null}", "{\"id\": \"\"}", "{\"id\": 7}"] {
            bench().refuses(&send("DELETE", DELETE, body).at(LATEST), 400);
        }
        let message = bench().refuses(&send("POST", DELETE, "{\"id\": \"7\"}").at(LATEST), 400);
        assert_eq!(
            message,
            "The method delete_subscription does not support HTTP POST"
        );
    }

    #[test]
    fn only_redfish_has_these_methods() {
        let path = "/v1/nodes/node-1/vendor_passthru/methods";
        let listed = bench().reply(&get(path).at(LATEST)).value();
        assert_eq!(
            listed["create_subscription"]["http_methods"],
            json!(["POST"])
        );
        assert_eq!(
            listed["delete_subscription"]["http_methods"],
            json!(["DELETE"])
        );
        let ipmi = ApiBench::with(ProvisionState::Manageable);
        let message = ipmi.refuses(&send("POST", CREATE, "{}").at(LATEST), 400);
        assert_eq!(message, "No handler for method create_subscription");
    }
}
