//! What hangs below a node: its portgroups, its volumes, its allocation.

use serde_json::{Value, json};
use trivet_model::{Order, Resource, ResourceKind};

use super::{LIST_ASKS, Route, Spec, allocation, page, portgroup, volume};
use crate::call::{Call, empty, order, reply};
use crate::error::Fault;
use crate::list::FIELDS_ASK;
use crate::{Outcome, field, list};

pub(crate) const ROUTES: &[Route] = &[
    Route::get(
        &["v1", "nodes", "{node}", "portgroups"],
        24,
        "List its portgroups",
        |call| of_this(call, &portgroup::SPEC, false),
    )
    .asks(&[LIST_ASKS]),
    Route::get(
        &["v1", "nodes", "{node}", "portgroups", "detail"],
        24,
        "The same with every field",
        |call| of_this(call, &portgroup::SPEC, true),
    )
    .asks(&[LIST_ASKS]),
    Route::get(
        &["v1", "nodes", "{node}", "volume"],
        32,
        "Where its volumes are",
        |call| {
            let base = format!("nodes/{}/volume", call.this()?.node.id);
            reply(&json!({
                "links": call.links(&format!("{base}/")),
                "connectors": call.links(&format!("{base}/connectors")),
                "targets": call.links(&format!("{base}/targets")),
            }))
        },
    ),
    Route::get(
        &["v1", "nodes", "{node}", "volume", "connectors"],
        32,
        "List its volume connectors",
        |call| of_this(call, &volume::CONNECTOR, false),
    )
    .asks(&[LIST_ASKS]),
    Route::get(
        &["v1", "nodes", "{node}", "volume", "targets"],
        32,
        "List its volume targets",
        |call| of_this(call, &volume::TARGET, false),
    )
    .asks(&[LIST_ASKS]),
    Route::get(
        &["v1", "nodes", "{node}", "allocation"],
        52,
        "Show what it is allocated to",
        |call| {
            let resource = allocated(call)?;
            let table = allocation::SPEC.list.table;
            let fields = match list::asked(table, call)? {
                Some(fields) => fields,
                None => field::every(table, call),
            };
            reply(&Value::Object(field::render(&fields, resource, call)))
        },
    )
    .asks(&[FIELDS_ASK]),
    Route::new(
        "DELETE",
        &["v1", "nodes", "{node}", "allocation"],
        52,
        "Free it",
        |call| {
            let id = allocated(call)?.id;
            let kind = ResourceKind::Allocation;
            order(Order::DeleteResource(kind, id), empty(204, None))
        },
    ),
];

fn of_this(call: &Call<'_>, spec: &Spec, detailed: bool) -> Result<Outcome, Fault> {
    let node = call.this()?.node.id;
    page(call, spec, |_, one| Ok(one.node == Some(node)), detailed)
}

/// The node's allocation.
fn allocated<'a>(call: &Call<'a>) -> Result<&'a Resource, Fault> {
    let view = call.this()?;
    let mut own = view.resources.iter();
    let key = own.find(|(kind, _)| *kind == ResourceKind::Allocation);
    let found = key.and_then(|key| call.view.resources.get(key));
    found.map(AsRef::as_ref).ok_or_else(|| {
        let ident = call.word(2).escape_debug();
        Fault::not_found(format!("Allocation for node {ident} was not found"))
    })
}
