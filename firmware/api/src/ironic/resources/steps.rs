//! Steps in deploy templates and runbooks: their format, and secrets in them.

use serde_json::{Value, json};
use trivet_model::node::JsonObject;
use trivet_model::secret::masked;
use trivet_model::{Resource, ResourceKind};

use crate::ironic::nodes::secrets;
use crate::table::call::ApiCall;
use crate::table::error::ApiFault;
use crate::table::field::{quoted, quoted_words};

/// Most steps of one template or runbook. Ours.
pub(crate) const STEPS_MAX: usize = 256;

/// Interfaces that have steps, as in Ironic.
const INTERFACES: [&str; 7] = [
    "vendor",
    "power",
    "management",
    "firmware",
    "deploy",
    "bios",
    "raid",
];

/// The steps with their secrets masked.
pub(crate) fn shown(resource: &Resource, _: &ApiCall<'_>, name: &'static str) -> Value {
    let mut steps = resource.fields.get(name).cloned().unwrap_or(json!([]));
    for step in steps.as_array_mut().into_iter().flatten() {
        if let Some(Value::Object(args)) = step.get_mut("args") {
            *args = masked(args);
        }
    }
    steps
}

/// Replaces masks by stored secrets, step by step: a step is identified by its interface and name,
/// independent of its position.
pub(crate) fn restore(new: &mut Value, old: &Value) {
    let known = |step: &Value| (step["interface"].clone(), step["step"].clone());
    for step in new.as_array_mut().into_iter().flatten() {
        let same = old.as_array().into_iter().flatten();
        if let Some(old) = same.into_iter().find(|old| known(old) == known(step)) {
            secrets::restore(step, old);
        }
    }
}

/// Refuses invalid steps; converts numbers that are text.
pub(crate) fn check(resource: &mut Resource) -> Result<(), ApiFault> {
    // A template's steps have a priority, a runbook's steps an order.
    let (rank, args_required) = match resource.kind {
        ResourceKind::DeployTemplate => ("priority", true),
        _ => ("order", false),
    };
    let noun = resource.kind.noun();
    let steps = resource.fields.get_mut("steps");
    let Some(steps) = steps.and_then(Value::as_array_mut) else {
        return Err(ApiFault::bad("steps must be a list."));
    };
    if steps.is_empty() {
        return Err(ApiFault::bad(format!(
            "Schema error for {noun}: [] should be non-empty: steps must have at least one step."
        )));
    }
    if steps.len() > STEPS_MAX {
        return Err(ApiFault::bad(format!(
            "steps must have at most {STEPS_MAX} steps."
        )));
    }
    let mut seen: Vec<(String, String)> = Vec::new();
    for step in steps {
        let step = step
            .as_object_mut()
            .ok_or_else(|| ApiFault::bad("A step is not of type 'object'."))?;
        let key = check_step(step, rank, args_required)?;
        if seen.contains(&key) {
            let mut noun = noun.to_owned();
            noun[..1].make_ascii_uppercase();
            return Err(ApiFault::bad(format!(
                "{noun} invalid: Duplicate deploy steps. A template cannot have multiple deploy \
                 steps with the same interface and step. Duplicates: interface: {}, step: {}.",
                key.0,
                key.1.escape_debug()
            )));
        }
        seen.push(key);
    }
    Ok(())
}

fn check_step(
    step: &mut JsonObject,
    rank: &str,
    args_required: bool,
) -> Result<(String, String), ApiFault> {
    for name in step.keys() {
        if !["args", "interface", "step", rank].contains(&name.as_str()) {
            let name = name.escape_debug();
            return Err(ApiFault::bad(format!(
                "Additional properties are not allowed ('{name}' was unexpected)"
            )));
        }
    }
    if !args_required {
        step.entry("args").or_insert_with(|| json!({}));
    }
    for name in ["interface", "step", "args", rank] {
        if !step.contains_key(name) {
            return Err(ApiFault::bad(format!("'{name}' is a required property")));
        }
    }
    let interface = step["interface"].as_str().unwrap_or_default().to_owned();
    if !INTERFACES.contains(&interface.as_str()) {
        return Err(ApiFault::bad(format!(
            "Schema error: {} is not one of {}",
            quoted(&step["interface"]),
            quoted_words(&INTERFACES)
        )));
    }
    let name = step["step"].as_str().unwrap_or_default().to_owned();
    if name.is_empty() {
        return Err(ApiFault::bad(match &step["step"] {
            Value::String(_) => "Schema error: '' should be non-empty: step must be a name.".into(),
            other => format!(
                "Schema error: {} is not of type 'string': step must be a name.",
                quoted(other)
            ),
        }));
    }
    if !step["args"].is_object() {
        return Err(ApiFault::bad(format!(
            "Schema error: {} is not of type 'object': args must be an object.",
            quoted(&step["args"])
        )));
    }
    let number = match &step[rank] {
        Value::Number(number) => number.as_u64(),
        Value::String(text) if text.bytes().all(|byte| byte.is_ascii_digit()) => text.parse().ok(),
        _ => None,
    };
    let number = number.ok_or_else(|| {
        let shown = quoted(&step[rank]);
        let why = match step[rank].as_i64() {
            Some(..0) => format!("{shown} is less than the minimum of 0"),
            _ if step[rank].is_string() => format!("{shown} does not match '^[0-9]+$'"),
            _ => format!(
                "{shown} is not valid under any of the given schemas. Possible root cause: \
                 {shown} is not of type 'integer'"
            ),
        };
        ApiFault::bad(format!(
            "Schema error: {why}: {rank} must be a whole number, zero or above."
        ))
    })?;
    step.insert(rank.to_owned(), json!(number));
    Ok((interface, name))
}
