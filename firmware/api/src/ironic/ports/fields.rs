//! The port's fields: one row each, with its version.

use serde_json::{Value, json};
use trivet_model::Port;

use crate::table::call::ApiCall;
use crate::table::field::{Field, FieldWrite, ValueShape, field, timestamp};

use FieldWrite::{Always, AtCreation, Never};
use ValueShape::{Boolean, Flag, Links, Object, Text, Uuid};

/// Every field of a port, by name.
pub(crate) const FIELDS: &[Field<Port>] = &[
    field("address", 1, Text, Always, |port, _, _| json!(port.address)),
    field(
        "available_for_dynamic_portgroup",
        111,
        Boolean,
        Always,
        |port, _, name| json!(port.attributes.get(name) != Some(Value::Bool(false))),
    ),
    field("category", 101, Text, Always, extra_field),
    field("created_at", 1, Text, Never, |port, _, _| {
        timestamp(Some(port.created_at))
    }),
    field("description", 97, Text, Always, extra_field),
    field("extra", 1, Object, Always, |port, _, _| json!(port.extra)),
    field("internal_info", 18, Object, Never, |_, _, _| json!({})),
    field("is_smartnic", 53, Flag, Always, |port, _, name| {
        json!(port.attributes.get(name) == Some(Value::Bool(true)))
    }),
    field("links", 1, Links, Never, |port, _, _| {
        Value::String(format!("ports/{}", port.id))
    }),
    field(
        "local_link_connection",
        19,
        Object,
        Always,
        |port, _, name| port.attributes.get(name).unwrap_or_else(|| json!({})),
    ),
    field("name", 88, Text, Always, extra_field),
    field("node_uuid", 1, Uuid, Always, |port, _, _| {
        json!(port.node.to_string())
    }),
    field("physical_network", 34, Text, Always, extra_field),
    field("portgroup_uuid", 24, Uuid, Always, extra_field),
    field("pxe_enabled", 19, Flag, Always, |port, _, _| {
        json!(port.pxe_enabled)
    }),
    field("updated_at", 1, Text, Never, |port, _, _| {
        timestamp(port.updated_at)
    }),
    field("uuid", 1, Uuid, AtCreation, |port, _, _| {
        json!(port.id.to_string())
    }),
    field("vendor", 100, Text, Always, extra_field),
];

fn extra_field(port: &Port, _: &ApiCall<'_>, name: &'static str) -> Value {
    port.attributes.get(name).unwrap_or(Value::Null)
}
