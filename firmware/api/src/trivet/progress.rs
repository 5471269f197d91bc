//! Progress of nodes, with the texts and numbers of the web page: phase, percent, attempt n of m
//! and elapsed time. Ironic does not have this, so the paths are outside `/v1`.

use serde_json::{Value, json};
use trivet_model::view::NodeView;

use crate::ApiOutcome;
use crate::table::call::{ApiCall, reply};
use crate::table::error::ApiFault;
use crate::table::field::timestamp;
use crate::table::route::ApiRoute;

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get(
        &["trivet", "progress"],
        1,
        "List the progress of nodes with work in progress, oldest node first",
        list,
    ),
    ApiRoute::get(
        &["trivet", "nodes", "{node}", "progress"],
        1,
        "Show the progress of a node",
        |call| reply(&shown(call, call.this()?)),
    ),
];

fn list(call: &ApiCall<'_>) -> Result<ApiOutcome, ApiFault> {
    let nodes = call.view.nodes_by_age().into_iter();
    let working =
        nodes.filter(|view| view.node.job.is_some() || view.node.target_power_state.is_some());
    let shown: Vec<Value> = working.map(|view| shown(call, view)).collect();
    reply(&json!({ "progress": shown }))
}

fn shown(call: &ApiCall<'_>, view: &NodeView) -> Value {
    let node = &view.node;
    let since = trivet_web::working_since(view);
    let attempt = trivet_web::attempt(call.view, view);
    json!({
        "uuid": node.id.to_string(),
        "name": node.name,
        "doing": trivet_web::doing(call.view, view),
        "percent": trivet_web::progress(view),
        "try": attempt.map(|(number, _)| number),
        "tries_max": attempt.map(|(_, most)| most),
        "since": timestamp(since),
        "elapsed_ms": since.map(|since| call.now.0.saturating_sub(since.0)),
        "advice": trivet_web::advice(view),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::num::NonZeroU32;

    use trivet_model::{Job, JobKind, JobPhase, ProvisionState, UnixMs};

    use super::*;
    use crate::testing::{ApiBench, NOW, get, node, node_id};

    fn bench() -> ApiBench {
        let mut bench = ApiBench::with(ProvisionState::DeployWait);
        bench.view.boots_max = 4;
        bench.add(node(2));
        bench.change(|node| {
            node.provision_updated_at = Some(UnixMs(NOW.0 - 125_000));
            node.job = Some(Job {
                kind: JobKind::Deploy,
                phase: JobPhase::AwaitAgent,
                step_kind: None,
                manual: false,
                steps: Vec::new(),
                at: 0,
                versions: BTreeMap::new(),
                tries: 0,
                boots: NonZeroU32::new(2),
                heartbeat_lost_at: None,
                abort_after: None,
                deployment: None,
                has_inspection_data: false,
                awaits_source: false,
                agent_query: None,
            });
        });
        bench
    }

    #[test]
    fn progress_is_the_same_as_on_the_page() {
        let bench = bench();
        let shown = bench.reply(&get("/trivet/nodes/node-1/progress")).value();
        assert_eq!(shown["uuid"], node_id(1).to_string());
        let doing = "Deploying: waiting for the machine to boot from the network";
        assert_eq!(shown["doing"], doing);
        let percent = trivet_web::progress(&bench.view.nodes[&node_id(1)]);
        assert_eq!(shown["percent"], percent);
        assert_eq!((&shown["try"], &shown["tries_max"]), (&json!(2), &json!(4)));
        assert_eq!(shown["elapsed_ms"], 125_000);
    }

    #[test]
    fn the_list_has_only_nodes_with_work() {
        let bench = bench();
        let listed = bench.reply(&get("/trivet/progress")).value();
        assert_eq!(listed["progress"].as_array().unwrap().len(), 1);
        assert_eq!(listed["progress"][0]["name"], "node-1");
        let rests = bench.reply(&get("/trivet/nodes/node-2/progress")).value();
        assert_eq!(rests["doing"], "Enrolled, BMC not yet verified");
        assert_eq!(
            (&rests["try"], &rests["since"]),
            (&Value::Null, &Value::Null)
        );
        bench.refuses(&get("/trivet/nodes/nobody/progress"), 404);
    }
}
