//! `/v1/nodes/<ident>/bios` and `/firmware`: settings and versions that the hardware reported.
//!
//! Both are stored in the node's record, `bios_settings` as an object of names and values,
//! `firmware_components` as a list of objects.

use serde_json::{Value, json};
use trivet_model::node::JsonObject;
use trivet_model::view::NodeView;

use crate::ApiOutcome;
use crate::table::call::{ApiCall, reply};
use crate::table::error::ApiFault;
use crate::table::field::{self, Column, Field, FieldWrite, ValueShape, field};
use crate::table::list;
use crate::table::route::{ApiRoute, ResponseSchema, arg};

use FieldWrite::Never;
use ValueShape::{Flag, Links, List, Number, Text};

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get(
        &["v1", "nodes", "{node}", "bios"],
        40,
        "List BIOS settings",
        |call| settings(call, call.this()?),
    )
    .query_args(&[&[arg("detail", 74, Flag), arg("fields", 74, Text)]])
    .response(ResponseSchema::List("bios", setting_columns)),
    ApiRoute::get(
        &["v1", "nodes", "{node}", "bios", "{setting}"],
        40,
        "Show one",
        |call| setting(call, call.this()?, call.last()),
    ),
    ApiRoute::get(
        &["v1", "nodes", "{node}", "firmware"],
        86,
        "List firmware",
        |call| components(call, call.this()?),
    )
    .query_args(&[&[arg("fields", 86, Text)]])
    .response(ResponseSchema::List("firmware", component_columns)),
];

/// One BIOS setting of a node.
struct BiosSetting {
    node: String,
    name: String,
    value: Value,
}

const SETTING_FIELDS: &[Field<BiosSetting>] = &[
    field("allowable_values", 74, List, Never, unknown),
    field("attribute_type", 74, Text, Never, unknown),
    field("created_at", 40, Text, Never, unknown),
    field("links", 40, Links, Never, |setting, call, _| {
        call.links(&format!("nodes/{}/bios/{}", setting.node, setting.name))
    }),
    field("lower_bound", 74, Number, Never, unknown),
    field("max_length", 74, Number, Never, unknown),
    field("min_length", 74, Number, Never, unknown),
    field("name", 40, Text, Never, |setting, _, _| json!(setting.name)),
    field("read_only", 74, Flag, Never, unknown),
    field("reset_required", 74, Flag, Never, unknown),
    field("unique", 74, Flag, Never, unknown),
    field("updated_at", 40, Text, Never, unknown),
    field("upper_bound", 74, Number, Never, unknown),
    // Clients expect a text, whatever type the hardware reports.
    field("value", 40, Text, Never, |setting, _, _| {
        match &setting.value {
            Value::Null => Value::Null,
            Value::String(text) => json!(text),
            other => json!(other.to_string()),
        }
    }),
];

fn unknown(_: &BiosSetting, _: &ApiCall<'_>, _: &'static str) -> Value {
    Value::Null
}

fn setting_columns() -> Vec<Column> {
    field::columns(SETTING_FIELDS)
}

fn bios_settings(view: &NodeView) -> impl Iterator<Item = BiosSetting> {
    let stored = view.node.driver_internal_info.get("bios_settings");
    let node = view.node.id.to_string();
    let pairs = stored.and_then(Value::as_object).into_iter().flatten();
    pairs.map(move |(name, value)| BiosSetting {
        node: node.clone(),
        name: name.clone(),
        value: value.clone(),
    })
}

fn settings(call: &ApiCall<'_>, view: &NodeView) -> Result<ApiOutcome, ApiFault> {
    let detail = call.query.flag("detail")?.unwrap_or(false);
    let fields = match list::requested_fields(SETTING_FIELDS, call)? {
        Some(_) if detail => {
            return Err(ApiFault::bad(
                "Can not specify ?detail=True and fields in the same request.",
            ));
        }
        Some(fields) => fields,
        None if detail => field::available_fields(SETTING_FIELDS, call),
        None => SETTING_FIELDS
            .iter()
            .filter(|field| field.since == 40)
            .collect(),
    };
    let shown: Vec<JsonObject> = bios_settings(view)
        .map(|setting| field::render(&fields, &setting, call))
        .collect();
    reply(&json!({ "bios": shown }))
}

fn setting(call: &ApiCall<'_>, view: &NodeView, name: &str) -> Result<ApiOutcome, ApiFault> {
    let found = bios_settings(view).find(|setting| setting.name == name);
    let found = found.ok_or_else(|| {
        let name = name.escape_debug();
        ApiFault::not_found(format!(
            "Node {} doesn't have a BIOS setting '{name}'",
            view.node.id
        ))
    })?;
    let shown = field::render(&field::available_fields(SETTING_FIELDS, call), &found, call);
    reply(&json!({ name: shown }))
}

const COMPONENT_FIELDS: &[Field<JsonObject>] = &[
    field("component", 86, Text, Never, component_field),
    field("created_at", 86, Text, Never, component_field),
    field("current_version", 86, Text, Never, component_field),
    field("initial_version", 86, Text, Never, component_field),
    field("last_version_flashed", 86, Text, Never, component_field),
    field("model", 114, Text, Never, component_field),
    field("serial_number", 114, Text, Never, component_field),
    field("updated_at", 86, Text, Never, component_field),
    field("vendor", 114, Text, Never, component_field),
];

fn component_field(component: &JsonObject, _: &ApiCall<'_>, name: &'static str) -> Value {
    component.get(name).cloned().unwrap_or(Value::Null)
}

fn component_columns() -> Vec<Column> {
    field::columns(COMPONENT_FIELDS)
}

fn components(call: &ApiCall<'_>, view: &NodeView) -> Result<ApiOutcome, ApiFault> {
    let fields = match call.query.last("fields") {
        None => field::available_fields(COMPONENT_FIELDS, call),
        Some(names) => names
            .split(',')
            .map(|name| field::named(COMPONENT_FIELDS, name.trim(), call))
            .collect::<Result<_, _>>()?,
    };
    let stored = view.node.driver_internal_info.get("firmware_components");
    let stored = stored.and_then(Value::as_array).into_iter().flatten();
    let shown: Vec<JsonObject> = stored
        .filter_map(Value::as_object)
        .map(|component| field::render(&fields, component, call))
        .collect();
    reply(&json!({ "firmware": shown }))
}
