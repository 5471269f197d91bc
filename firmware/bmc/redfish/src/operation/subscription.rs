//! Event subscriptions (DSP0266, section 12.5): the BMC sends its events to a URL.

use serde_json::{Value, json};
use trivet_model::PowerError;
use trivet_model::bmc_request::{
    BmcSubscription, EventSubscription, SUBSCRIPTION_LIST_MAX, SUBSCRIPTION_TEXT_BYTES_MAX,
};
use trivet_model::secret::MASK;

use crate::fault;
use crate::operation::RedfishReply;
use crate::script::{
    RedfishResource, RedfishScriptContext, RedfishScriptResult, RedfishScriptStop,
};

/// The types of events where the caller names none. Ironic's.
const EVENT_TYPES: [&str; 1] = ["Alert"];

/// Longest name of a subscription, in bytes. Ours.
const ID_BYTES_MAX: usize = 128;

/// A name that is one segment of a path.
pub(super) fn check_id(id: &str) -> Result<(), PowerError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:@".contains(&byte);
    let valid = !matches!(id, "" | "." | "..") && id.bytes().all(plain);
    if valid && id.len() <= ID_BYTES_MAX {
        return Ok(());
    }
    Err(fault::unsupported(
        "the id of a subscription is the Id that the BMC gave it: at most 128 letters, digits \
         and -._~:@",
    ))
}

/// The path of the collection of subscriptions, and the service that has it.
fn subscriptions<'a>(
    context: &mut RedfishScriptContext<'a>,
) -> RedfishScriptResult<(String, RedfishResource<'a>)> {
    let lacks = || fault::unsupported("the BMC sends no events: its Redfish has no EventService");
    let root = context.get("/redfish/v1")?;
    let service = context
        .linked(root.at(&["EventService"]))?
        .ok_or_else(lacks)?;
    let service = context.get(&service)?;
    let path = context.linked(service.at(&["Subscriptions"]))?;
    let path = path.ok_or_else(lacks)?;
    Ok((path.trim_end_matches('/').to_owned(), service))
}

pub(super) fn create(
    context: &mut RedfishScriptContext<'_>,
    wanted: &EventSubscription,
) -> RedfishScriptResult<BmcSubscription> {
    let (path, service) = subscriptions(context)?;
    let offered = service.at(&["EventTypesForSubscription"]);
    if let Some(offered) = offered.and_then(Value::as_array) {
        let unknown = |kind: &&String| !offered.iter().any(|one| one == kind.as_str());
        if wanted.event_types.iter().any(|kind| unknown(&kind)) {
            let message = "EventTypes has a type that the BMC does not offer in its EventService";
            return Err(fault::unsupported(message).into());
        }
    }
    let created = context.create(&path, body(wanted));
    let created = created.map_err(|stop| without_secrets(stop, wanted))?;
    let described = created.body.as_ref().filter(|body| body["Id"].is_string());
    let described = match (described, created.location.as_deref()) {
        (Some(body), _) => body,
        (None, Some(location)) => {
            let location = context.path(location)?;
            context.get(&location)?.body
        }
        (None, None) => {
            return Err(fault::invalid_response("a subscription without a name").into());
        }
    };
    subscription(described).map_err(RedfishScriptStop::from)
}

fn body(wanted: &EventSubscription) -> Value {
    let mut types: Vec<&str> = wanted.event_types.iter().map(String::as_str).collect();
    if types.is_empty() {
        types = EVENT_TYPES.to_vec();
    }
    let mut body = json!({
        "Destination": wanted.destination.reveal(),
        "Protocol": wanted.protocol,
        "Context": wanted.context.reveal(),
        "EventTypes": types,
    });
    let headers = wanted.http_headers.iter();
    let headers: Vec<Value> = headers
        .map(|(name, value)| json!({ (name.as_str()): value.reveal() }))
        .collect();
    if !headers.is_empty() {
        body["HttpHeaders"] = headers.into();
    }
    body
}

fn subscription(described: &Value) -> Result<BmcSubscription, PowerError> {
    let text = |key: &str| {
        let text = described[key].as_str().unwrap_or_default();
        let plain = text.chars().filter(|character| !character.is_control());
        plain.take(SUBSCRIPTION_TEXT_BYTES_MAX).collect::<String>()
    };
    let types = described["EventTypes"].as_array().into_iter().flatten();
    let types = types.filter_map(Value::as_str).take(SUBSCRIPTION_LIST_MAX);
    let found = BmcSubscription {
        id: text("Id"),
        context: text("Context"),
        destination: text("Destination"),
        event_types: types.map(fault::clean).collect(),
        protocol: text("Protocol"),
    };
    check_id(&found.id)
        .map(|()| found)
        .map_err(|_| fault::invalid_response("a subscription whose Id is not a name"))
}

/// A BMC may quote the request in its refusal.
fn without_secrets(stop: RedfishScriptStop, wanted: &EventSubscription) -> RedfishScriptStop {
    let RedfishScriptStop::Fail(PowerError::Bmc { cause, mut message }) = stop else {
        return stop;
    };
    let values = wanted.http_headers.iter().map(|(_, value)| value);
    for secret in values.chain([&wanted.context, &wanted.destination]) {
        if !secret.reveal().is_empty() {
            message = message.replace(secret.reveal(), MASK);
        }
    }
    RedfishScriptStop::Fail(PowerError::Bmc { cause, message })
}

pub(super) fn delete(
    context: &mut RedfishScriptContext<'_>,
    id: &str,
) -> RedfishScriptResult<RedfishReply> {
    let (path, _) = subscriptions(context)?;
    if context.delete(&format!("{path}/{id}"))? {
        return Ok(RedfishReply::Done);
    }
    Err(fault::missing(format!(
        "the BMC has no subscription {id}; it may have ended when the BMC was reset"
    ))
    .into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_one_segment_of_a_path() {
        for good in ["1", "6b6f2ee6-1", "a:b@c~d_e.f"] {
            assert_eq!(check_id(good), Ok(()), "{good}");
        }
        let long = "x".repeat(ID_BYTES_MAX + 1);
        for bad in [
            "", ".", "..", "a/b", "a?b", "a#b", "a b", "\u{e9}", "%2e", &long,
        ] {
            assert!(check_id(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_the_bmc_says_is_bounded() {
        let message = json!({"Id": "7", "Context": "\u{1b}[2J".to_owned() + &"x".repeat(9000),
                          "EventTypes": vec!["Alert"; 99], "Destination": 5});
        let found = subscription(&message).unwrap();
        assert_eq!(found.context.chars().count(), SUBSCRIPTION_TEXT_BYTES_MAX);
        assert_eq!(found.event_types.len(), SUBSCRIPTION_LIST_MAX);
        assert_eq!((found.id.as_str(), found.destination.as_str()), ("7", ""));
        for odd in [json!({}), json!({"Id": 5}), json!({"Id": "a/../b"})] {
            assert!(subscription(&odd).is_err(), "{odd}");
        }
    }
}
