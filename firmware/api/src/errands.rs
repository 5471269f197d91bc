//! What is asked of a node's BMC beside power, for what Ironic has no path: outside `/v1`.
//!
//! The box asks the BMC while the caller waits, so an answer may take minutes; one thing
//! is asked of a BMC at a time, and another caller gets 409 meanwhile. The keys are those
//! of [`trivet_model::errand`], whatever protocol the BMC speaks.

#[cfg(test)]
mod tests;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use trivet_model::errand::{HiddenBytes, INVENTORY_BYTES_MAX, Light, MAILBOX_BYTES_MAX};
use trivet_model::node::Object;
use trivet_model::order::VendorMethod;
use trivet_model::view::NodeView;
use trivet_model::{Errand, Order};

use crate::access::Access;
use crate::call::{Call, empty, order, reply};
use crate::error::Fault;
use crate::field::{Column, Shape, Write};
use crate::route::{Arg, Gives, Route, Takes, arg, required};
use crate::{Outcome, Then, body};

use Shape::{Any, Flag, List, Number, Text, Word};

/// The path of one question.
macro_rules! path {
    ($word:literal) => {
        &["trivet", "nodes", "{node}", "bmc", $word]
    };
}

/// A row that asks and shows what came.
macro_rules! asks {
    ($word:literal, $says:literal, $errand:expr) => {
        Route::get(path!($word), 1, $says, |call| {
            errand(call.this()?, $errand, Then::Said)
        })
    };
}

pub(crate) const ROUTES: &[Route] = &[
    Route::get(
        &["trivet", "bmcs"],
        1,
        "How well BMCs answer, the worst first",
        all_health,
    )
    .gives(Gives::List("bmcs", health_columns)),
    Route::get(
        &["trivet", "nodes", "{node}", "bmc"],
        1,
        "How well its BMC answers",
        |call| reply(&health(call.this()?)),
    )
    .gives(Gives::Record(200, health_columns)),
    asks!("sensors", "Read its sensors", Errand::Sensors).gives(Gives::List("sensors", sensors)),
    asks!("events", "Read its event log, oldest first", Errand::Events)
        .gives(Gives::List("events", events)),
    Route::new(
        "DELETE",
        path!("events"),
        1,
        "Clear its event log",
        |call| errand(call.this()?, Errand::ClearEvents, empty(204, None)),
    ),
    asks!(
        "inventory",
        "Read what its makers wrote into it",
        Errand::Inventory
    )
    .gives(Gives::Record(200, inventory)),
    Route::new(
        "PUT",
        path!("inventory"),
        1,
        "Write into its inventory, byte by byte",
        write_inventory,
    )
    .takes(Takes::Args(INVENTORY))
    .for_(Access::Admin),
    asks!("identity", "Who the BMC is", Errand::Identity).gives(Gives::Record(200, identity)),
    asks!("network", "Where the BMC is", Errand::Network)
        .gives(Gives::List("interfaces", interfaces)),
    asks!("users", "List the BMC's users", Errand::Users)
        .gives(Gives::List("users", users))
        .for_(Access::Operator),
    asks!("light", "What the light that marks it does", Errand::Light)
        .gives(Gives::Record(200, light)),
    Route::new("PUT", path!("light"), 1, "Switch that light", set_light).takes(Takes::Args(LIGHT)),
    asks!("mailbox", "Read its boot mailbox", Errand::Mailbox)
        .gives(Gives::Record(200, mailbox))
        .for_(Access::Admin),
    Route::new(
        "PUT",
        path!("mailbox"),
        1,
        "Write its boot mailbox",
        write_mailbox,
    )
    .takes(Takes::Args(MAILBOX))
    .for_(Access::Admin),
    asks!("boot_mode", "Read its boot mode", Errand::BootMode).gives(Gives::Record(200, boot_mode)),
    asks!(
        "secure_boot",
        "Read whether Secure Boot is on",
        Errand::SecureBoot
    )
    .gives(Gives::Record(200, secure_boot)),
    asks!("media", "List its virtual drives", Errand::Media).gives(Gives::List("media", media)),
    asks!("system", "Read what it is made of", Errand::System).gives(Gives::Record(200, system)),
];

const INVENTORY: &[Arg] = &[
    arg("device", 1, Number),
    arg("offset", 1, Number),
    required("data", 1, Shape::LongText),
];

const LIGHT: &[Arg] = &[
    required("state", 1, Word(&["on", "off"])),
    arg("seconds", 1, Number),
];

const MAILBOX: &[Arg] = &[required("data", 1, Shape::LongText)];

/// What the box has seen of a node's BMC lately; nulls where it was not asked.
fn health(view: &NodeView) -> Value {
    let health = view.live.bmc;
    json!({
        "node": view.node.label(),
        "uuid": view.node.id,
        "score": health.map(|health| health.score),
        "asked": health.map_or(0, |health| health.asked),
        "answered": health.map_or(0, |health| health.answered),
        "median_ms": health.and_then(|health| health.median_ms),
        "last_error": health.and_then(|health| health.last_error),
    })
}

fn all_health(call: &Call<'_>) -> Result<Outcome, Fault> {
    let nodes = call.view.nodes.values();
    let mut asked: Vec<_> = nodes.filter(|view| view.live.bmc.is_some()).collect();
    asked.sort_by_key(|view| (view.live.bmc.map(|health| health.score), view.node.serial));
    let shown: Vec<Value> = asked.into_iter().map(|view| health(view)).collect();
    reply(&json!({ "bmcs": shown }))
}

fn health_columns() -> Vec<Column> {
    columns(&[
        ("node", Text),
        ("uuid", Shape::Uuid),
        ("score", Number),
        ("asked", Number),
        ("answered", Number),
        ("median_ms", Number),
        ("last_error", Text),
    ])
}

/// Asks the node's BMC.
pub(crate) fn errand(view: &NodeView, asked: Errand, then: Then) -> Result<Outcome, Fault> {
    let node = view.node.id;
    let method = VendorMethod::Errand(asked);
    order(Order::Vendor { node, method }, then)
}

fn set_light(call: &Call<'_>) -> Result<Outcome, Fault> {
    let view = call.this()?;
    let object = body::args(call, LIGHT)?;
    let on = body::text(&object, "state")? == Some("on");
    let light = match object.get("seconds") {
        None | Some(Value::Null) if on => Light::On,
        None | Some(Value::Null) => Light::Off,
        Some(seconds) => {
            let seconds = seconds.as_u64().and_then(|seconds| seconds.try_into().ok());
            let seconds = seconds.filter(|seconds: &u8| on && *seconds > 0);
            let seconds =
                seconds.ok_or_else(|| Fault::bad("seconds must be 1 to 255, with state on."))?;
            Light::For { seconds }
        }
    };
    errand(view, Errand::SetLight(light), empty(204, None))
}

/// The bytes of `data`, which is base64.
fn bytes(object: &Object, bytes_max: usize) -> Result<Vec<u8>, Fault> {
    let text = body::text(object, "data")?.unwrap_or_default();
    let bytes = STANDARD.decode(text).ok();
    let bytes = bytes.filter(|bytes| (1..=bytes_max).contains(&bytes.len()));
    bytes.ok_or_else(|| Fault::bad(format!("data must be 1 to {bytes_max} bytes in base64.")))
}

fn write_mailbox(call: &Call<'_>) -> Result<Outcome, Fault> {
    let view = call.this()?;
    let object = body::args(call, MAILBOX)?;
    let bytes = HiddenBytes::new(bytes(&object, MAILBOX_BYTES_MAX)?);
    errand(view, Errand::WriteMailbox(bytes), empty(204, None))
}

fn write_inventory(call: &Call<'_>) -> Result<Outcome, Fault> {
    let view = call.this()?;
    let object = body::args(call, INVENTORY)?;
    let number = |key: &str| match object.get(key) {
        None | Some(Value::Null) => Some(0),
        Some(value) => value.as_u64(),
    };
    let device = number("device").and_then(|number| number.try_into().ok());
    let device = device.ok_or_else(|| Fault::bad("device must be 0 to 255."))?;
    let offset = number("offset").and_then(|number| number.try_into().ok());
    let offset = offset.ok_or_else(|| Fault::bad("offset must be 0 to 65535."))?;
    let write = Errand::WriteInventory {
        device,
        offset,
        bytes: bytes(&object, INVENTORY_BYTES_MAX)?,
    };
    errand(view, write, empty(204, None))
}

fn columns(columns: &[(&'static str, Shape)]) -> Vec<Column> {
    let column = |(name, shape): &(&'static str, Shape)| Column {
        name,
        since: 1,
        shape: *shape,
        write: Write::Never,
    };
    columns.iter().map(column).collect()
}

fn sensors() -> Vec<Column> {
    columns(&[
        ("name", Text),
        ("kind", Text),
        ("value", Any),
        ("unit", Text),
        ("state", Text),
        ("states", List),
        ("thresholds", Shape::Object),
    ])
}

fn events() -> Vec<Column> {
    columns(&[
        ("id", Text),
        ("time", Text),
        ("severity", Text),
        ("sensor", Text),
        ("kind", Text),
        ("asserted", Flag),
        ("message", Text),
        ("raw", Text),
    ])
}

fn inventory() -> Vec<Column> {
    columns(&[
        ("chassis", Shape::Object),
        ("board", Shape::Object),
        ("product", Shape::Object),
        ("problem", Text),
        ("data", Text),
    ])
}

fn identity() -> Vec<Column> {
    columns(&[
        ("protocol", Text),
        ("protocol_version", Text),
        ("firmware_version", Text),
        ("manufacturer", Text),
        ("manufacturer_id", Number),
        ("model", Text),
        ("product_id", Number),
        ("device_id", Number),
        ("device_revision", Number),
        ("bmc_uuid", Text),
        ("system_uuid", Text),
    ])
}

fn interfaces() -> Vec<Column> {
    columns(&[
        ("name", Text),
        ("mac_address", Text),
        ("ipv4_address", Text),
        ("ipv4_mask", Text),
        ("ipv4_gateway", Text),
        ("ipv4_source", Text),
        ("ipv6_addresses", List),
    ])
}

fn users() -> Vec<Column> {
    columns(&[
        ("id", Text),
        ("name", Text),
        ("role", Text),
        ("enabled", Flag),
    ])
}

fn light() -> Vec<Column> {
    columns(&[("state", Text)])
}

fn mailbox() -> Vec<Column> {
    columns(&[("data", Text)])
}

fn boot_mode() -> Vec<Column> {
    columns(&[("boot_mode", Text)])
}

fn secure_boot() -> Vec<Column> {
    columns(&[("secure_boot", Flag)])
}

fn media() -> Vec<Column> {
    columns(&[
        ("id", Text),
        ("devices", List),
        ("image", Text),
        ("inserted", Flag),
    ])
}

fn system() -> Vec<Column> {
    columns(&[
        ("manufacturer", Text),
        ("model", Text),
        ("sku", Text),
        ("serial_number", Text),
        ("asset_tag", Text),
        ("uuid", Text),
        ("bios_version", Text),
        ("memory_mb", Number),
        ("processors", List),
        ("mac_addresses", List),
        ("health", Text),
    ])
}
