//! Deploy templates: steps that join a deployment because the instance asks for a
//! trait of their name.

use std::collections::BTreeSet;

use serde_json::Value;
use trivet_model::{Node, Refusal, RefusalKind, ResourceKind, Step, View};

fn invalid(sentence: String) -> Refusal {
    Refusal::new(RefusalKind::Invalid, sentence)
}

/// Adds the steps of the templates whose names are among the instance's traits, which
/// must all be the node's. A step the operator gave counts before a template's.
pub(crate) fn join(view: &View, node: &Node, steps: &mut Vec<Step>) -> Result<(), Refusal> {
    let wanted = instance_traits(node)?;
    let present: BTreeSet<&str> = match node.kept.get("traits") {
        Some(Value::Array(present)) => present.iter().filter_map(Value::as_str).collect(),
        _ => BTreeSet::new(),
    };
    let missing: Vec<&str> = wanted
        .iter()
        .copied()
        .filter(|name| !present.contains(name))
        .collect();
    if !missing.is_empty() {
        return Err(invalid(format!(
            "Cannot specify instance traits that are not also set on the node. Node {} is missing \
             traits {}",
            node.id,
            missing.join(", ")
        )));
    }
    let given = steps.len();
    for name in wanted {
        let Some(template) = view.resource(ResourceKind::DeployTemplate, name) else {
            continue;
        };
        let Some(Value::Array(list)) = template.fields.get("steps") else {
            continue;
        };
        for value in list {
            let step = step(value)
                .ok_or_else(|| invalid(format!("A step of deploy template {name} is broken.")))?;
            let twin = steps
                .iter()
                .position(|known| known.step == step.step && known.interface == step.interface);
            match twin {
                Some(at) if at < given => {}
                Some(_) => {
                    return Err(invalid(format!(
                        "Deploy steps from all deploy templates matching this node's instance \
                         traits cannot have the same interface and step: {}.{} comes twice.",
                        step.interface, step.step
                    )));
                }
                None => steps.push(step),
            }
        }
    }
    Ok(())
}

fn instance_traits(node: &Node) -> Result<Vec<&str>, Refusal> {
    let broken = || {
        invalid(format!(
            "Error parsing traits from Node {} instance_info field. A list of strings is \
             expected.",
            node.id
        ))
    };
    match node.instance_info.get("traits") {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(names)) => {
            let names: Option<BTreeSet<&str>> = names.iter().map(Value::as_str).collect();
            Ok(names.ok_or_else(broken)?.into_iter().collect())
        }
        Some(_) => Err(broken()),
    }
}

fn step(value: &Value) -> Option<Step> {
    let text = |key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    let priority = match value.get("priority")? {
        Value::String(text) => text.parse().ok()?,
        other => other.as_i64()?,
    };
    Some(Step {
        step: text("step")?,
        interface: text("interface")?,
        priority,
        args: value.get("args").cloned().unwrap_or_default(),
        reboot_requested: false,
        abortable: false,
    })
}
