//! Refuses orders that no record can hold before they reach the rack: rolling a batch
//! back disturbs every node, and no client may cause that with a large request.

use serde_json::Value;
use trivet_model::node::JsonObject;
use trivet_model::secret::{is_sealed_key, without_url_credentials};
use trivet_model::{OrderRefusal, RackOrder, RefusalKind};

/// The bytes that encrypting a value adds to its record, in addition to the path of the
/// value.
const SEAL_BYTES: usize = 40;

/// The refusal of an order that contains more than `most` bytes.
pub(super) fn too_large(order: &RackOrder, most: usize) -> Option<OrderRefusal> {
    let bytes: usize = match order {
        RackOrder::CreateNode(node) | RackOrder::ReplaceNode { node, .. } => [
            &node.driver_info,
            &node.properties,
            &node.instance_info,
            &node.extra,
            &node.driver_internal_info,
            &node.attributes.to_object(),
        ]
        .into_iter()
        .map(|one| object_bytes(one, 0))
        .sum(),
        RackOrder::CreatePort(port) | RackOrder::ReplacePort { port, .. } => {
            object_bytes(&port.extra, 0) + object_bytes(&port.attributes.to_object(), 0)
        }
        RackOrder::CreateResource(resource) | RackOrder::ReplaceResource { resource, .. } => {
            object_bytes(&resource.fields, 0)
        }
        RackOrder::Provision { args, .. } => {
            let steps: usize = args
                .steps
                .iter()
                .map(|step| encoded_bytes(&step.args, 0))
                .sum();
            steps
                + args
                    .configdrive
                    .as_ref()
                    .map_or(0, |one| encoded_bytes(one, 0))
        }
        _ => 0,
    };
    (bytes > most).then(|| {
        let sentence = format!("A record of {bytes} bytes is over the limit of {most}.");
        OrderRefusal::new(RefusalKind::Invalid, sentence)
    })
}

/// Approximate size of a value as text under a path of this many bytes. The API bounds
/// the nesting.
fn encoded_bytes(value: &Value, path: usize) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 4,
        Value::String(text) if without_url_credentials(text).is_some() => {
            text.len() + 2 + SEAL_BYTES + path
        }
        Value::String(text) => text.len() + 2,
        Value::Array(items) => {
            let items = items.iter().map(|item| encoded_bytes(item, path + 6) + 1);
            items.sum()
        }
        Value::Object(inner) => object_bytes(inner, path),
    }
}

fn object_bytes(object: &JsonObject, path: usize) -> usize {
    object
        .iter()
        .map(|(key, value)| {
            let path = path + key.len() + 1;
            let seal = if is_sealed_key(key) {
                SEAL_BYTES + path
            } else {
                0
            };
            key.len() + 4 + encoded_bytes(value, path) + seal
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use trivet_model::{Node, UnixMs};

    /// Each secret is small, but each adds its path and the bytes of its encryption.
    #[test]
    fn many_small_secrets_count_with_the_bytes_of_their_seals() {
        let id = "01234567-89ab-4def-8123-456789abcdef".parse().unwrap();
        let order = |word: &str| {
            let mut node = Node::new(id, "ipmi", UnixMs(1));
            let many = (0..1000).map(|number| (format!("{word}{number:03}"), 1.into()));
            node.extra = many.collect();
            RackOrder::CreateNode(Box::new(node))
        };
        assert!(too_large(&order("other"), 20_000).is_none());
        let refusal = too_large(&order("token"), 50_000).unwrap();
        assert!(refusal.sentence.contains("over the limit"));
    }
}
