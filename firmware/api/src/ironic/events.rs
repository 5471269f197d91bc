//! External events, which Neutron sends. There is no Neutron, but the request is accepted.

use serde_json::Value;

use crate::table::body;
use crate::table::call::ApiCall;
use crate::table::error::ApiFault;
use crate::table::field::ValueShape;
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

fn events(call: &ApiCall<'_>) -> Result<ApiOutcome, ApiFault> {
    let object = body::object(call)?;
    body::only(&object, &["events"])?;
    match object.get("events") {
        Some(Value::Array(_)) => Ok(ApiOutcome::Reply(Response::empty(204))),
        _ => Err(ApiFault::bad("events must be a list.")),
    }
}
