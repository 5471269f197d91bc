//! BMC requests other than power for which Ironic has no path: outside `/v1`.
//!
//! They run synchronously, so a response can take minutes; a BMC processes one request at a time,
//! and other callers get 409 meanwhile. The keys are those of [`trivet_model::bmc_request`], for
//! every BMC protocol.

#[cfg(test)]
mod tests;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use trivet_drivers::InterfaceKind;
use trivet_model::bmc_request::{
    BmcIndicatorCommand, HiddenBytes, INVENTORY_BYTES_MAX, MAILBOX_BYTES_MAX,
};
use trivet_model::node::JsonObject;
use trivet_model::order::VendorMethod;
use trivet_model::view::NodeView;
use trivet_model::{BmcRequest, RackOrder};

use crate::ironic::nodes::capability;
use crate::table::access::Access;
use crate::table::body;
use crate::table::call::{ApiCall, empty, order, reply};
use crate::table::error::ApiFault;
use crate::table::field::{Column, FieldWrite, ValueShape};
use crate::table::route::{ApiArg, ApiRoute, BodySchema, ResponseSchema, arg, required};
use crate::{ApiOutcome, ResponsePlan};

use ValueShape::{Any, Flag, List, Number, Text, Word};

/// The path of one BMC request.
macro_rules! path {
    ($word:literal) => {
        &["trivet", "nodes", "{node}", "bmc", $word]
    };
}

/// A row that sends a BMC request and returns the reply.
macro_rules! read_route {
    ($word:literal, $summary:literal, $request:expr) => {
        ApiRoute::get(path!($word), 1, $summary, |call| {
            bmc_request(call.this()?, $request, ResponsePlan::CommandReply)
        })
    };
}

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get(
        &["trivet", "bmcs"],
        1,
        "List BMC response statistics, worst first",
        all_health,
    )
    .response(ResponseSchema::List("bmcs", health_columns)),
    ApiRoute::get(
        &["trivet", "nodes", "{node}", "bmc"],
        1,
        "Show the response statistics of its BMC",
        |call| reply(&health(call.this()?)),
    )
    .response(ResponseSchema::Record(200, health_columns)),
    read_route!("sensors", "Read its sensors", BmcRequest::Sensors)
        .response(ResponseSchema::List("sensors", sensors)),
    read_route!(
        "events",
        "Read its event log, oldest first",
        BmcRequest::Events
    )
    .response(ResponseSchema::List("events", events)),
    ApiRoute::new(
        "DELETE",
        path!("events"),
        1,
        "Clear its event log",
        |call| bmc_request(call.this()?, BmcRequest::ClearEvents, empty(204, None)),
    ),
    read_route!("inventory", "Read its FRU inventory", BmcRequest::Inventory)
        .response(ResponseSchema::Record(200, inventory)),
    ApiRoute::new(
        "PUT",
        path!("inventory"),
        1,
        "Write bytes to its FRU inventory",
        write_inventory,
    )
    .body(BodySchema::Args(INVENTORY))
    .for_(Access::Admin),
    read_route!("identity", "Read the BMC's identity", BmcRequest::Identity)
        .response(ResponseSchema::Record(200, identity)),
    read_route!(
        "network",
        "Read the BMC's network configuration",
        BmcRequest::Network
    )
    .response(ResponseSchema::List("interfaces", interfaces)),
    read_route!("users", "List the BMC's users", BmcRequest::Users)
        .response(ResponseSchema::List("users", users))
        .for_(Access::Operator),
    read_route!("light", "Read its identify LED", BmcRequest::Indicator)
        .response(ResponseSchema::Record(200, light)),
    ApiRoute::new(
        "PUT",
        path!("light"),
        1,
        "Switch its identify LED",
        set_light,
    )
    .body(BodySchema::Args(LIGHT)),
    read_route!("mailbox", "Read its boot mailbox", BmcRequest::Mailbox)
        .response(ResponseSchema::Record(200, mailbox))
        .for_(Access::Admin),
    ApiRoute::new(
        "PUT",
        path!("mailbox"),
        1,
        "Write its boot mailbox",
        write_mailbox,
    )
    .body(BodySchema::Args(MAILBOX))
    .for_(Access::Admin),
    read_route!("boot_mode", "Read its boot mode", BmcRequest::BootMode)
        .response(ResponseSchema::Record(200, boot_mode)),
    read_route!(
        "secure_boot",
        "Read whether Secure Boot is on",
        BmcRequest::SecureBoot
    )
    .response(ResponseSchema::Record(200, secure_boot)),
    read_route!("media", "List its virtual drives", BmcRequest::Media)
        .response(ResponseSchema::List("media", media)),
    read_route!("system", "Read its system inventory", BmcRequest::System)
        .response(ResponseSchema::Record(200, system)),
];

const INVENTORY: &[ApiArg] = &[
    arg("device", 1, Number),
    arg("offset", 1, Number),
    required("data", 1, ValueShape::LongText),
];

const LIGHT: &[ApiArg] = &[
    required("state", 1, Word(&["on", "off"])),
    arg("seconds", 1, Number),
];

const MAILBOX: &[ApiArg] = &[required("data", 1, ValueShape::LongText)];

/// The recent response statistics of a node's BMC; nulls if no request was sent to it.
fn health(view: &NodeView) -> Value {
    let health = view.live.bmc;
    json!({
        "node": view.node.label(),
        "uuid": view.node.id,
        "score": health.map(|health| health.score),
        "asked": health.map_or(0, |health| health.requests),
        "answered": health.map_or(0, |health| health.replies),
        "median_ms": health.and_then(|health| health.median_ms),
        "last_error": health.and_then(|health| health.last_error),
    })
}

fn all_health(call: &ApiCall<'_>) -> Result<ApiOutcome, ApiFault> {
    let nodes = call.view.nodes.values();
    let mut requests: Vec<_> = nodes.filter(|view| view.live.bmc.is_some()).collect();
    requests.sort_by_key(|view| (view.live.bmc.map(|health| health.score), view.node.serial));
    let shown: Vec<Value> = requests.into_iter().map(|view| health(view)).collect();
    reply(&json!({ "bmcs": shown }))
}

fn health_columns() -> Vec<Column> {
    columns(&[
        ("node", Text),
        ("uuid", ValueShape::Uuid),
        ("score", Number),
        ("asked", Number),
        ("answered", Number),
        ("median_ms", Number),
        ("last_error", Text),
    ])
}

/// Sends a request to the node's BMC.
pub(crate) fn bmc_request(
    view: &NodeView,
    requested: BmcRequest,
    then: ResponsePlan,
) -> Result<ApiOutcome, ApiFault> {
    capability::require_settings(view, InterfaceKind::Management)?;
    let node = view.node.id;
    let method = VendorMethod::BmcRequest(requested);
    order(RackOrder::Vendor { node, method }, then)
}

fn set_light(call: &ApiCall<'_>) -> Result<ApiOutcome, ApiFault> {
    let view = call.this()?;
    let object = body::args(call, LIGHT)?;
    let on = body::text(&object, "state")? == Some("on");
    let light = match object.get("seconds") {
        None | Some(Value::Null) if on => BmcIndicatorCommand::On,
        None | Some(Value::Null) => BmcIndicatorCommand::Off,
        Some(seconds) => {
            let seconds = seconds.as_u64().and_then(|seconds| seconds.try_into().ok());
            let seconds = seconds.filter(|seconds: &u8| on && *seconds > 0);
            let seconds =
                seconds.ok_or_else(|| ApiFault::bad("seconds must be 1 to 255, with state on."))?;
            BmcIndicatorCommand::For { seconds }
        }
    };
    bmc_request(view, BmcRequest::SetIndicator(light), empty(204, None))
}

/// Decodes `data`, which is base64.
fn bytes(object: &JsonObject, bytes_max: usize) -> Result<Vec<u8>, ApiFault> {
    let text = body::text(object, "data")?.unwrap_or_default();
    let bytes = STANDARD.decode(text).ok();
    let bytes = bytes.filter(|bytes| (1..=bytes_max).contains(&bytes.len()));
    bytes.ok_or_else(|| ApiFault::bad(format!("data must be 1 to {bytes_max} bytes in base64.")))
}

fn write_mailbox(call: &ApiCall<'_>) -> Result<ApiOutcome, ApiFault> {
    let view = call.this()?;
    let object = body::args(call, MAILBOX)?;
    let bytes = HiddenBytes::new(bytes(&object, MAILBOX_BYTES_MAX)?);
    bmc_request(view, BmcRequest::WriteMailbox(bytes), empty(204, None))
}

fn write_inventory(call: &ApiCall<'_>) -> Result<ApiOutcome, ApiFault> {
    let view = call.this()?;
    let object = body::args(call, INVENTORY)?;
    let number = |key: &str| match object.get(key) {
        None | Some(Value::Null) => Some(0),
        Some(value) => value.as_u64(),
    };
    let device = number("device").and_then(|number| number.try_into().ok());
    let device = device.ok_or_else(|| ApiFault::bad("device must be 0 to 255."))?;
    let offset = number("offset").and_then(|number| number.try_into().ok());
    let offset = offset.ok_or_else(|| ApiFault::bad("offset must be 0 to 65535."))?;
    let write = BmcRequest::WriteInventory {
        device,
        offset,
        bytes: bytes(&object, INVENTORY_BYTES_MAX)?,
    };
    bmc_request(view, write, empty(204, None))
}

fn columns(columns: &[(&'static str, ValueShape)]) -> Vec<Column> {
    let column = |(name, shape): &(&'static str, ValueShape)| Column {
        name,
        since: 1,
        shape: *shape,
        write: FieldWrite::Never,
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
        ("thresholds", ValueShape::Object),
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
        ("chassis", ValueShape::Object),
        ("board", ValueShape::Object),
        ("product", ValueShape::Object),
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
