//! Orders that no record can hold, refused before the rack hears of them: taking a
//! batch back disturbs every node, and nobody shall do that by a large request.

use serde_json::Value;
use trivet_model::node::Object;
use trivet_model::{Order, Refusal, RefusalKind};

/// The refusal of an order that brings more than `most` bytes of its own.
pub(super) fn too_large(order: &Order, most: usize) -> Option<Refusal> {
    let bytes: usize = match order {
        Order::CreateNode(node) | Order::ReplaceNode { node, .. } => [
            &node.driver_info,
            &node.properties,
            &node.instance_info,
            &node.extra,
            &node.driver_internal_info,
            &node.kept,
        ]
        .into_iter()
        .map(object)
        .sum(),
        Order::CreatePort(port) | Order::ReplacePort { port, .. } => {
            object(&port.extra) + object(&port.kept)
        }
        Order::Provision { args, .. } => {
            let steps: usize = args.steps.iter().map(|step| weight(&step.args)).sum();
            steps + args.configdrive.as_ref().map_or(0, weight)
        }
        _ => 0,
    };
    (bytes > most).then(|| {
        let sentence = format!("A record of {bytes} bytes is over the limit of {most}.");
        Refusal::new(RefusalKind::Invalid, sentence)
    })
}

/// About the bytes of a value as text. Nesting is bounded by the API.
fn weight(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 4,
        Value::String(text) => text.len() + 2,
        Value::Array(items) => items.iter().map(|item| weight(item) + 1).sum(),
        Value::Object(inner) => object(inner),
    }
}

fn object(object: &Object) -> usize {
    object
        .iter()
        .map(|(key, value)| key.len() + 4 + weight(value))
        .sum()
}
