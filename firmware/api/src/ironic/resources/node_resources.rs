//! Sub-resources of a node: its portgroups, its volumes, its allocation.

use serde_json::{Value, json};
use trivet_model::{RackOrder, Resource, ResourceKind};

use super::{ApiRoute, LIST_QUERY_ARGS, ResourceSpec, allocation, page, portgroup, volume};
use crate::ApiOutcome;
use crate::table::call::{ApiCall, empty, order, reply};
use crate::table::error::ApiFault;
use crate::table::list::FIELDS_QUERY_ARGS;
use crate::table::{field, list};

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get(
        &["v1", "nodes", "{node}", "portgroups"],
        24,
        "List its portgroups",
        |call| list_node_resources(call, &portgroup::SPEC, false),
    )
    .query_args(&[LIST_QUERY_ARGS]),
    ApiRoute::get(
        &["v1", "nodes", "{node}", "portgroups", "detail"],
        24,
        "List its portgroups with every field",
        |call| list_node_resources(call, &portgroup::SPEC, true),
    )
    .query_args(&[LIST_QUERY_ARGS]),
    ApiRoute::get(
        &["v1", "nodes", "{node}", "volume"],
        32,
        "Show the links to its volume resources",
        |call| {
            let base = format!("nodes/{}/volume", call.this()?.node.id);
            reply(&json!({
                "links": call.links(&format!("{base}/")),
                "connectors": call.links(&format!("{base}/connectors")),
                "targets": call.links(&format!("{base}/targets")),
            }))
        },
    ),
    ApiRoute::get(
        &["v1", "nodes", "{node}", "volume", "connectors"],
        32,
        "List its volume connectors",
        |call| list_node_resources(call, &volume::CONNECTOR, false),
    )
    .query_args(&[LIST_QUERY_ARGS]),
    ApiRoute::get(
        &["v1", "nodes", "{node}", "volume", "targets"],
        32,
        "List its volume targets",
        |call| list_node_resources(call, &volume::TARGET, false),
    )
    .query_args(&[LIST_QUERY_ARGS]),
    ApiRoute::get(
        &["v1", "nodes", "{node}", "allocation"],
        52,
        "Show its allocation",
        |call| {
            let resource = allocated(call)?;
            let table = allocation::SPEC.list.table;
            let fields = match list::requested_fields(table, call)? {
                Some(fields) => fields,
                None => field::available_fields(table, call),
            };
            reply(&Value::Object(field::render(&fields, resource, call)))
        },
    )
    .query_args(&[FIELDS_QUERY_ARGS]),
    ApiRoute::new(
        "DELETE",
        &["v1", "nodes", "{node}", "allocation"],
        52,
        "Delete its allocation",
        |call| {
            let id = allocated(call)?.id;
            let kind = ResourceKind::Allocation;
            order(RackOrder::DeleteResource(kind, id), empty(204, None))
        },
    ),
];

fn list_node_resources(
    call: &ApiCall<'_>,
    spec: &ResourceSpec,
    detailed: bool,
) -> Result<ApiOutcome, ApiFault> {
    let node = call.this()?.node.id;
    page(call, spec, |_, one| Ok(one.node == Some(node)), detailed)
}

/// The node's allocation.
fn allocated<'a>(call: &ApiCall<'a>) -> Result<&'a Resource, ApiFault> {
    let view = call.this()?;
    let mut own = view.resources.iter();
    let key = own.find(|(kind, _)| *kind == ResourceKind::Allocation);
    let found = key.and_then(|key| call.view.resources.get(key));
    found.map(AsRef::as_ref).ok_or_else(|| {
        let ident = call.word(2).escape_debug();
        ApiFault::not_found(format!("Allocation for node {ident} was not found"))
    })
}
