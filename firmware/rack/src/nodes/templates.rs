//! Deploy templates: steps, and a config drive, that are added to a deployment because the
//! instance requests a trait of their name.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use trivet_model::node::JsonObject;
use trivet_model::secret::{MASK, masked};
use trivet_model::{JobStep, Node, OrderRefusal, RackView, RefusalKind, ResourceKind};

fn invalid(sentence: String) -> OrderRefusal {
    OrderRefusal::new(RefusalKind::Invalid, sentence)
}

/// Adds the steps of the templates whose names are among the instance's traits, which must all
/// be traits of the node. A step of the operator replaces the same step of a template.
pub(crate) fn add_template_steps(
    view: &RackView,
    node: &Node,
    steps: &mut Vec<JobStep>,
) -> Result<(), OrderRefusal> {
    let wanted = instance_traits(node)?;
    let present = &node.attributes.traits;
    let missing: Vec<&str> = wanted
        .iter()
        .copied()
        .filter(|name| !present.iter().any(|one| one == name))
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
            let other = steps
                .iter()
                .position(|known| known.step == step.step && known.interface == step.interface);
            match other {
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

/// The config drive in `extra` of the template that the instance requests, with the fields of
/// the node inserted.
pub(crate) fn config_drive(view: &RackView, node: &Node) -> Result<Option<Value>, OrderRefusal> {
    let wanted = instance_traits(node)?.into_iter();
    let mut drives = wanted.filter_map(|name| {
        let template = view.resource(ResourceKind::DeployTemplate, name)?;
        let drive = template.fields.get("extra")?.get("configdrive")?;
        Some((name, drive)).filter(|_| !drive.is_null())
    });
    let Some((first, drive)) = drives.next() else {
        return Ok(None);
    };
    if let Some((second, _)) = drives.next() {
        return Err(invalid(format!(
            "Deploy templates {first} and {second} both have a config drive; request one of \
             them, or send a config drive."
        )));
    }
    let parts = drive.as_object().ok_or_else(|| {
        invalid(format!(
            "extra.configdrive of deploy template {first} must be an object with meta_data, \
             user_data, network_data or vendor_data."
        ))
    })?;
    let filled = trivet_configdrive::render_template(parts, &facts(view, node));
    let filled = filled.map_err(|problem| invalid(format!("{problem}.")))?;
    Ok(Some(Value::Object(filled)))
}

/// The fields of a node that a template may reference. Secret fields are not among them.
fn facts(view: &RackView, node: &Node) -> Value {
    let ports = view.nodes.get(&node.id).map(|view| view.ports.as_slice());
    let ports = ports.unwrap_or_default().iter();
    let macs = ports.filter_map(|id| Some(view.ports.get(id)?.address.to_string()));
    json!({
        "uuid": node.id.to_string(),
        "name": node.name,
        "resource_class": node.resource_class,
        "properties": node.properties,
        "extra": without_secrets(&node.extra),
        "instance_info": without_secrets(&node.instance_info),
        "mac": macs.clone().next(),
        "macs": macs.collect::<Vec<_>>(),
    })
}

/// The fields that are not secret. A mask in place of a secret would be used as its value.
fn without_secrets(object: &JsonObject) -> Value {
    // The whole value is masked, or the credentials of a URL in it.
    fn is_masked(value: &Value) -> bool {
        value.as_str().is_some_and(|text| text.contains(MASK))
    }
    fn without_masks(value: Value) -> Value {
        match value {
            Value::Object(object) => {
                let open = object.into_iter().filter(|(_, value)| !is_masked(value));
                let open = open.map(|(key, value)| (key, without_masks(value)));
                Value::Object(open.collect())
            }
            Value::Array(list) => {
                let open = list.into_iter().filter(|value| !is_masked(value));
                open.map(without_masks).collect()
            }
            other => other,
        }
    }
    without_masks(Value::Object(masked(object)))
}

fn instance_traits(node: &Node) -> Result<Vec<&str>, OrderRefusal> {
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

fn step(value: &Value) -> Option<JobStep> {
    let text = |key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    let priority = match value.get("priority")? {
        Value::String(text) => text.parse().ok()?,
        other => other.as_i64()?,
    };
    Some(JobStep {
        step: text("step")?,
        interface: text("interface")?,
        priority,
        args: value.get("args").cloned().unwrap_or_default(),
        reboot_requested: false,
        abortable: false,
    })
}
