//! News of others: Neutron's. There is no Neutron, but telling is allowed.

use serde_json::Value;

use crate::call::Call;
use crate::error::Fault;
use crate::field::Shape;
use crate::route::{Route, Takes, required};
use crate::{Outcome, Response, body};

pub(crate) const ROUTES: &[Route] = &[Route::new(
    "POST",
    &["v1", "events"],
    54,
    "Tell of something that happened elsewhere",
    events,
)
.takes(Takes::Args(&[required("events", 54, Shape::List)]))];

fn events(call: &Call<'_>) -> Result<Outcome, Fault> {
    let object = body::object(call)?;
    body::only(&object, &["events"])?;
    match object.get("events") {
        Some(Value::Array(_)) => Ok(Outcome::Reply(Response::empty(204))),
        _ => Err(Fault::bad("events must be a list.")),
    }
}
