//! `/v1/nodes/<ident>/bios` and `/firmware`: what the hardware said of itself.
//!
//! Both stand among the node's own fields, `bios_settings` as an object of names
//! and values, `firmware_components` as a list of objects.

use serde_json::{Value, json};
use trivet_model::node::Object;
use trivet_model::view::NodeView;

use crate::Outcome;
use crate::call::{Call, reply};
use crate::error::Fault;
use crate::field::{self, Column, Field, Shape, Write, field};
use crate::list;
use crate::route::{Gives, Route, arg};

use Shape::{Flag, Links, List, Number, Text};
use Write::Never;

pub(crate) const ROUTES: &[Route] = &[
    Route::get(
        &["v1", "nodes", "{node}", "bios"],
        40,
        "List BIOS settings",
        |call| settings(call, call.this()?),
    )
    .asks(&[&[arg("detail", 74, Flag), arg("fields", 74, Text)]])
    .gives(Gives::List("bios", setting_columns)),
    Route::get(
        &["v1", "nodes", "{node}", "bios", "{setting}"],
        40,
        "Show one",
        |call| setting(call, call.this()?, call.last()),
    ),
    Route::get(
        &["v1", "nodes", "{node}", "firmware"],
        86,
        "List firmware",
        |call| components(call, call.this()?),
    )
    .asks(&[&[arg("fields", 86, Text)]])
    .gives(Gives::List("firmware", component_columns)),
];

/// One BIOS setting of a node.
struct Setting {
    node: String,
    name: String,
    value: Value,
}

const SETTING_FIELDS: &[Field<Setting>] = &[
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
    // Clients want a text, whatever the hardware calls it.
    field("value", 40, Text, Never, |setting, _, _| {
        match &setting.value {
            Value::Null => Value::Null,
            Value::String(text) => json!(text),
            other => json!(other.to_string()),
        }
    }),
];

fn unknown(_: &Setting, _: &Call<'_>, _: &'static str) -> Value {
    Value::Null
}

fn setting_columns() -> Vec<Column> {
    field::columns(SETTING_FIELDS)
}

fn kept(view: &NodeView) -> impl Iterator<Item = Setting> {
    let kept = view.node.driver_internal_info.get("bios_settings");
    let node = view.node.id.to_string();
    let pairs = kept.and_then(Value::as_object).into_iter().flatten();
    pairs.map(move |(name, value)| Setting {
        node: node.clone(),
        name: name.clone(),
        value: value.clone(),
    })
}

fn settings(call: &Call<'_>, view: &NodeView) -> Result<Outcome, Fault> {
    let detail = call.query.flag("detail")?.unwrap_or(false);
    let fields = match list::asked(SETTING_FIELDS, call)? {
        Some(_) if detail => {
            return Err(Fault::bad(
                "Can not specify ?detail=True and fields in the same request.",
            ));
        }
        Some(fields) => fields,
        None if detail => field::every(SETTING_FIELDS, call),
        None => SETTING_FIELDS
            .iter()
            .filter(|field| field.since == 40)
            .collect(),
    };
    let shown: Vec<Object> = kept(view)
        .map(|setting| field::render(&fields, &setting, call))
        .collect();
    reply(&json!({ "bios": shown }))
}

fn setting(call: &Call<'_>, view: &NodeView, name: &str) -> Result<Outcome, Fault> {
    let found = kept(view).find(|setting| setting.name == name);
    let found = found.ok_or_else(|| {
        let name = name.escape_debug();
        Fault::not_found(format!(
            "Node {} doesn't have a BIOS setting '{name}'",
            view.node.id
        ))
    })?;
    let shown = field::render(&field::every(SETTING_FIELDS, call), &found, call);
    reply(&json!({ name: shown }))
}

const COMPONENT_FIELDS: &[Field<Object>] = &[
    field("component", 86, Text, Never, said),
    field("created_at", 86, Text, Never, said),
    field("current_version", 86, Text, Never, said),
    field("initial_version", 86, Text, Never, said),
    field("last_version_flashed", 86, Text, Never, said),
    field("model", 114, Text, Never, said),
    field("serial_number", 114, Text, Never, said),
    field("updated_at", 86, Text, Never, said),
    field("vendor", 114, Text, Never, said),
];

fn said(component: &Object, _: &Call<'_>, name: &'static str) -> Value {
    component.get(name).cloned().unwrap_or(Value::Null)
}

fn component_columns() -> Vec<Column> {
    field::columns(COMPONENT_FIELDS)
}

fn components(call: &Call<'_>, view: &NodeView) -> Result<Outcome, Fault> {
    let fields = match call.query.last("fields") {
        None => field::every(COMPONENT_FIELDS, call),
        Some(names) => names
            .split(',')
            .map(|name| field::named(COMPONENT_FIELDS, name.trim(), call))
            .collect::<Result<_, _>>()?,
    };
    let kept = view.node.driver_internal_info.get("firmware_components");
    let kept = kept.and_then(Value::as_array).into_iter().flatten();
    let shown: Vec<Object> = kept
        .filter_map(Value::as_object)
        .map(|component| field::render(&fields, component, call))
        .collect();
    reply(&json!({ "firmware": shown }))
}
