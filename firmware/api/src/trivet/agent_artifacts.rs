//! Data from agents that the box stores: the steps that they reported, and their logs. In Ironic
//! the steps are internal data and the logs are not in the API, so these paths are outside `/v1`.

use serde_json::{Value, json};
use trivet_model::{RackOrder, StepKind};

use crate::ApiOutcome;
use crate::table::access::Access;
use crate::table::call::{ApiCall, empty, order, reply};
use crate::table::error::ApiFault;
use crate::table::route::{ApiRoute, ResponseSchema};

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get(
        &["trivet", "nodes", "{node}", "steps"],
        1,
        "List the steps that its agent last reported, with their arguments",
        steps,
    ),
    ApiRoute::get(
        &["trivet", "nodes", "{node}", "logs"],
        1,
        "List its stored agent logs, oldest first",
        logs,
    ),
    ApiRoute::new(
        "POST",
        &["trivet", "nodes", "{node}", "logs"],
        1,
        "Collect the logs of its agent",
        |call| {
            order(
                RackOrder::CollectLogs(call.this()?.node.id),
                empty(202, None),
            )
        },
    )
    .response(ResponseSchema::Empty(202)),
    ApiRoute::get(
        &["trivet", "nodes", "{node}", "logs", "{bundle}"],
        1,
        "Download logs: tar, gzipped",
        download,
    )
    .for_(Access::Operator),
];

fn steps(call: &ApiCall<'_>) -> Result<ApiOutcome, ApiFault> {
    let info = &call.this()?.node.driver_internal_info;
    let mut steps = Vec::new();
    for kind in StepKind::ALL {
        let listed = info.get(&format!("agent_cached_{kind}_steps"));
        let by_interface = listed.and_then(Value::as_object).into_iter().flatten();
        let found = by_interface.filter_map(|(_, steps)| steps.as_array());
        steps.extend(found.flatten().map(|step| {
            let mut step = step.clone();
            step["kind"] = json!(kind);
            step
        }));
    }
    let managers = info.get("hardware_manager_version");
    reply(&json!({ "steps": steps, "hardware_managers": managers }))
}

fn logs(call: &ApiCall<'_>) -> Result<ApiOutcome, ApiFault> {
    let stored = call.this()?.live.logs.iter();
    let shown = stored.map(|bundle| json!({ "name": bundle.name, "size": bundle.bytes }));
    reply(&json!({ "logs": shown.collect::<Vec<_>>() }))
}

/// Only listed logs can be downloaded, because the name is that of a file.
fn download(call: &ApiCall<'_>) -> Result<ApiOutcome, ApiFault> {
    let (view, name) = (call.this()?, call.last());
    let node = view.node.id;
    match view.live.logs.iter().find(|bundle| bundle.name == name) {
        Some(bundle) => Ok(ApiOutcome::Logs {
            node,
            name: bundle.name.clone(),
        }),
        None => Err(ApiFault::not_found(format!(
            "Node {node} has no logs of this name; GET /trivet/nodes/{node}/logs lists them."
        ))),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use trivet_model::ProvisionState;
    use trivet_model::view::{LogBundle, NodeView};

    use super::*;
    use crate::testing::{ApiBench, get, node_id, send};

    #[test]
    fn steps_of_all_kinds_are_one_list() {
        let mut bench = ApiBench::with(ProvisionState::Manageable);
        bench.change(|node| {
            let step = json!([{"step": "burnin_cpu", "priority": 0}]);
            let info = &mut node.driver_internal_info;
            let listed = json!({"deploy": step, "raid": "?"});
            info.insert("agent_cached_clean_steps".to_owned(), listed);
            info.insert("hardware_manager_version".to_owned(), json!({"m": "1"}));
        });
        let shown = bench.reply(&get("/trivet/nodes/node-1/steps")).value();
        assert_eq!(shown["steps"].as_array().unwrap().len(), 1);
        assert_eq!(shown["steps"][0]["kind"], "clean");
        assert_eq!(shown["hardware_managers"]["m"], "1");
    }

    #[test]
    fn logs_are_listed_and_only_those_can_be_had() {
        let mut bench = ApiBench::with(ProvisionState::CleanFail);
        let id = node_id(1);
        let mut view = NodeView::clone(&bench.view.nodes[&id]);
        view.live.logs.push(LogBundle {
            name: "a.tar.gz".to_owned(),
            bytes: 7,
        });
        bench.view.nodes.insert(id, Arc::new(view));
        let shown = bench.reply(&get("/trivet/nodes/node-1/logs")).value();
        assert_eq!(shown["logs"], json!([{"name": "a.tar.gz", "size": 7}]));
        let outcome = bench.outcome(&get("/trivet/nodes/node-1/logs/a.tar.gz"));
        assert!(matches!(outcome, ApiOutcome::Logs { name, .. } if name == "a.tar.gz"));
        bench.refuses(&get("/trivet/nodes/node-1/logs/..%2Fstore"), 404);
        let (order, _) = bench.order(&send("POST", "/trivet/nodes/node-1/logs", ""));
        assert_eq!(order, RackOrder::CollectLogs(id));
    }
}
