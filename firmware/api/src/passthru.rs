//! Vendor methods, of hardware types and of nodes.

use serde_json::json;

use crate::Outcome;
use crate::access::Access;
use crate::call::{Call, reply};
use crate::error::Fault;
use crate::field::Shape;
use crate::route::{Arg, Gives, Route, Takes, arg};

const METHOD: &[Arg] = &[arg("method", 1, Shape::Text)];

const DRIVER: &[&str] = &["v1", "drivers", "{driver}", "vendor_passthru"];
const DRIVER_METHOD: &[&str] = &["v1", "drivers", "{driver}", "vendor_passthru", "{method}"];
const NODE: &[&str] = &["v1", "nodes", "{node}", "vendor_passthru"];
const NODE_METHOD: &[&str] = &["v1", "nodes", "{node}", "vendor_passthru", "{method}"];

const fn row(method: &'static str, path: &'static [&'static str]) -> Route {
    Route::new(method, path, 1, "Call a vendor's method", answer)
        .asks(&[METHOD])
        .takes(Takes::Any)
        .gives(Gives::Any(200))
        .for_(Access::Admin)
}

pub(crate) const ROUTES: &[Route] = &[
    Route::get(
        &["v1", "nodes", "{node}", "vendor_passthru", "methods"],
        1,
        "List its vendor's methods",
        |call| {
            call.this()?;
            reply(&json!({}))
        },
    ),
    row("GET", NODE),
    row("POST", NODE),
    row("PUT", NODE),
    row("PATCH", NODE),
    row("DELETE", NODE),
    row("GET", NODE_METHOD),
    row("POST", NODE_METHOD),
    row("PUT", NODE_METHOD),
    row("PATCH", NODE_METHOD),
    row("DELETE", NODE_METHOD),
    row("GET", DRIVER),
    row("POST", DRIVER),
    row("PUT", DRIVER),
    row("DELETE", DRIVER),
    row("GET", DRIVER_METHOD),
    row("POST", DRIVER_METHOD),
    row("PUT", DRIVER_METHOD),
    row("DELETE", DRIVER_METHOD),
];

fn answer(call: &Call<'_>) -> Result<Outcome, Fault> {
    let method = match call.segments.get(4) {
        Some(method) => method.as_str(),
        None => call.query.last("method").unwrap_or(""),
    };
    Err(Fault::bad(format!(
        "No handler for method {}",
        method.escape_debug()
    )))
}
