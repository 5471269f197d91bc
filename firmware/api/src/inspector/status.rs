//! The status of a node's introspection.

use serde_json::{Value, json};
use trivet_model::view::NodeView;
use trivet_model::{JobPhase, NoteKind, ProvisionState, UnixMs};

use super::link;
use crate::ApiOutcome;
use crate::table::call::{ApiCall, reply};
use crate::table::error::ApiFault;
use crate::table::field::timestamp;
use crate::table::list::PAGE_RECORDS_MAX;

/// All states of an introspection; some of them do not occur here.
const STATES: [&str; 8] = [
    "starting",
    "waiting",
    "processing",
    "finished",
    "error",
    "reapplying",
    "enrolling",
    "aborting",
];

struct IntrospectionStatus {
    state: &'static str,
    error: Option<String>,
    started_at: Option<UnixMs>,
    finished_at: Option<UnixMs>,
}

/// `None` if the node was never inspected, or so long ago that no data is left.
fn read(view: &NodeView) -> Option<IntrospectionStatus> {
    let node = &view.node;
    let early = |phase| {
        matches!(
            phase,
            JobPhase::PowerOff
                | JobPhase::BootFromNet
                | JobPhase::SendToken
                | JobPhase::PowerOn
                | JobPhase::AwaitAgent
        )
    };
    let (state, error, finished_at) = match node.provision_state {
        ProvisionState::Inspecting if node.job.as_ref().is_some_and(|job| early(job.phase)) => {
            ("starting", None, None)
        }
        ProvisionState::Inspecting => ("processing", None, None),
        ProvisionState::InspectWait => ("waiting", None, None),
        ProvisionState::InspectFail => {
            let error = node.last_error.clone();
            let error = error.unwrap_or_else(|| "the inspection failed".to_owned());
            ("error", Some(error), node.provision_updated_at)
        }
        _ => ("finished", None, Some(node.inspection_finished_at?)),
    };
    Some(IntrospectionStatus {
        state,
        error,
        started_at: node
            .inspection_started_at
            .or_else(|| inspection_started_at(view)),
        finished_at,
    })
}

/// When the last inspection began, as far as the timeline reaches: the record clears it at the end,
/// as in Ironic.
fn inspection_started_at(view: &NodeView) -> Option<UnixMs> {
    let start = view.timeline.iter().rev().find(|note| {
        matches!(note.kind, NoteKind::StateChanged { from, to }
            if to == ProvisionState::Inspecting && from != ProvisionState::InspectWait)
    });
    start.map(|note| note.at)
}

fn shown(call: &ApiCall<'_>, view: &NodeView, status: &IntrospectionStatus) -> Value {
    let uuid = view.node.id.to_string();
    json!({
        "uuid": uuid,
        "finished": status.finished_at.is_some(),
        "state": status.state,
        "started_at": timestamp(status.started_at),
        "finished_at": timestamp(status.finished_at),
        "error": status.error,
        "links": [link(call, &format!("v1/introspection/{uuid}"))],
    })
}

/// The status of one node.
pub(super) fn of(call: &ApiCall<'_>, view: &NodeView) -> Result<Value, ApiFault> {
    let status = read(view).ok_or_else(|| {
        let id = view.node.id;
        ApiFault::not_found(format!("Could not find introspection of node {id}"))
    })?;
    Ok(shown(call, view, &status))
}

/// All statuses, newest first, one page at a time.
pub(super) fn list(call: &ApiCall<'_>) -> Result<ApiOutcome, ApiFault> {
    let limit = limit(call)?;
    let wanted = states(call)?;
    let mut all: Vec<_> = call
        .view
        .nodes
        .values()
        .filter_map(|view| Some((read(view)?, view)))
        .collect();
    all.sort_by_key(|(status, view)| std::cmp::Reverse((status.started_at, view.node.serial)));
    if let Some(marker) = call
        .query
        .last("marker")
        .filter(|marker| !marker.is_empty())
    {
        let id: trivet_model::NodeId = marker
            .parse()
            .map_err(|_| ApiFault::bad("Bad request: Marker not UUID-like"))?;
        let at = all.iter().position(|(_, view)| view.node.id == id);
        let at = at.ok_or_else(|| ApiFault::not_found(format!("Could not find node {id}")))?;
        all.drain(..=at);
    }
    let page: Vec<Value> = all
        .iter()
        .filter(|(status, _)| wanted.is_empty() || wanted.contains(&status.state))
        .take(limit)
        .map(|(status, view)| shown(call, view, status))
        .collect();
    reply(&json!({ "introspection": page }))
}

fn limit(call: &ApiCall<'_>) -> Result<usize, ApiFault> {
    let Some(text) = call.query.last("limit").filter(|text| !text.is_empty()) else {
        return Ok(PAGE_RECORDS_MAX);
    };
    match text.parse::<i64>() {
        Ok(0) => Ok(PAGE_RECORDS_MAX),
        Ok(limit) if limit < 0 => Err(ApiFault::bad("Bad request: Limit cannot be negative")),
        Ok(limit) => match usize::try_from(limit) {
            Ok(limit) if limit <= PAGE_RECORDS_MAX => Ok(limit),
            _ => Err(ApiFault::bad(format!(
                "Bad request: Limit over {PAGE_RECORDS_MAX}"
            ))),
        },
        Err(_) => Err(ApiFault::bad("Bad request: limit must be a number")),
    }
}

fn states<'c>(call: &'c ApiCall<'_>) -> Result<Vec<&'c str>, ApiFault> {
    let Some(text) = call.query.last("state") else {
        return Ok(Vec::new());
    };
    let wanted: Vec<&str> = text.split(',').collect();
    let strange: Vec<&str> = wanted
        .iter()
        .filter(|state| !STATES.contains(state))
        .copied()
        .collect();
    if strange.is_empty() {
        return Ok(wanted);
    }
    let strange = strange.join(", ");
    Err(ApiFault::bad(format!(
        "Bad request: State(s) \"{}\" are not valid",
        strange.escape_debug()
    )))
}
