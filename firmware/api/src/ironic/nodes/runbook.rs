//! Runbooks: steps that an administrator defined, run by name on the nodes that a trait approves
//! for them.

use serde_json::Value;
use trivet_model::view::NodeView;
use trivet_model::{JobStep, Resource, ResourceKind, Verb};

use super::{provision, traits};
use crate::table::call::ApiCall;
use crate::table::error::ApiFault;

/// The steps of a runbook, and whether they run without the ramdisk.
pub(crate) struct RunbookSteps {
    pub(crate) steps: Vec<JobStep>,
    pub(crate) disable_ramdisk: bool,
}

/// The steps of a runbook for this verb on this node, or the error.
pub(crate) fn read(
    call: &ApiCall<'_>,
    view: &NodeView,
    verb: Verb,
    ident: &str,
) -> Result<RunbookSteps, ApiFault> {
    let found = call.view.resource(ResourceKind::Runbook, ident);
    let runbook = found.ok_or_else(|| {
        let ident = ident.escape_debug();
        ApiFault::not_found(format!("Runbook {ident} could not be found."))
    })?;
    check_approved(call, view, runbook)?;
    if !matches!(verb, Verb::Clean | Verb::Service) {
        return Err(ApiFault::bad(
            "\"runbooks\" is only valid when setting target provision state to any of ['clean', \
             'service']",
        ));
    }
    let mut steps: Vec<Value> = match runbook.fields.get("steps") {
        Some(Value::Array(steps)) => steps.clone(),
        _ => Vec::new(),
    };
    steps.sort_by_key(|step| step.get("order").and_then(Value::as_i64).unwrap_or(0));
    for step in &mut steps {
        if let Value::Object(step) = step {
            step.remove("order");
        }
    }
    let name = if verb == Verb::Clean {
        "clean_steps"
    } else {
        "service_steps"
    };
    Ok(RunbookSteps {
        steps: provision::steps(name, &Value::Array(steps), false)?,
        disable_ramdisk: runbook.fields.get("disable_ramdisk") == Some(&Value::Bool(true)),
    })
}

/// Up to 1.111 the runbook's name must be a trait of the node, from then on one of the runbook's
/// traits.
fn check_approved(call: &ApiCall<'_>, view: &NodeView, runbook: &Resource) -> Result<(), ApiFault> {
    let (node, present) = (view.node.id, traits::present(&view.node));
    if !call.has(112) {
        let name = runbook.name.as_deref().unwrap_or("");
        if present.iter().any(|present| present == name) {
            return Ok(());
        }
        return Err(ApiFault::bad(format!(
            "This runbook has not been approved for use on this node {node}. Please ask an \
             administrator to add it to your node traits."
        )));
    }
    let mut wanted: Vec<&str> = match runbook.fields.get("traits") {
        Some(Value::Array(wanted)) => wanted.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    wanted.sort_unstable();
    if wanted.is_empty() {
        return Err(ApiFault::bad(format!(
            "Runbook {} has no traits configured. Please ask an administrator to add traits to \
             the runbook.",
            runbook.id
        )));
    }
    if wanted.iter().any(|name| present.iter().any(|p| p == name)) {
        return Ok(());
    }
    let wanted: Vec<String> = wanted.iter().map(|name| format!("'{name}'")).collect();
    Err(ApiFault::bad(format!(
        "This runbook has not been approved for use on this node {node}. The node does not have \
         any of the runbook's traits [{}]. Please ask an administrator to add a matching trait to \
         your node.",
        wanted.join(", ")
    )))
}
