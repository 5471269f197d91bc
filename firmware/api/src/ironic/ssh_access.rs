//! The role that a change of `ssh_*` in `driver_info` needs.

use serde_json::Value;
#[cfg(test)]
use serde_json::json;
use trivet_model::node::JsonObject;
use trivet_model::{RackOrder, RackView};

use crate::table::access::Access;

/// The role that a change needs in addition to that of its path. Only an admin can set command
/// lines that this box runs on another host, and files of this box that it logs in with.
pub fn access_of(order: &RackOrder, view: &RackView) -> Access {
    let (RackOrder::CreateNode(node) | RackOrder::ReplaceNode { node, .. }) = order else {
        return Access::Operator;
    };
    let old = view.nodes.get(&node.id);
    let old = old.map(|old| &old.node.driver_info);
    let new = &node.driver_info;
    let runs = new.get("ssh_virt_type").and_then(Value::as_str) == Some("commands");
    let reads = new
        .get("ssh_key_filename")
        .is_some_and(|file| !file.is_null());
    let changes = |key: &str| old.and_then(|old| old.get(key)) != new.get(key);
    let keys = new.keys().chain(old.into_iter().flat_map(JsonObject::keys));
    let mut ssh = keys.filter(|key| key.starts_with("ssh_"));
    if (runs || reads) && ssh.any(|key| changes(key)) {
        return Access::Admin;
    }
    Access::Operator
}

#[cfg(test)]
mod tests {
    use super::*;
    use trivet_model::{Node, NodeId, SeededRandom, UnixMs};

    #[test]
    fn command_lines_and_key_files_for_ssh_are_chosen_by_admins() {
        let id = NodeId::random(&mut SeededRandom::new(1));
        let node = |info: Value| {
            let mut node = Node::new(id, "ssh", UnixMs(1));
            node.driver_info = info.as_object().unwrap().clone();
            node
        };
        let mut view = RackView::default();
        let create = |info| RackOrder::CreateNode(Box::new(node(info)));
        let commands = json!({"ssh_virt_type": "commands", "ssh_power_on": "rm -rf /"});
        let file = json!({"ssh_key_filename": "/etc/shadow"});
        let harmless = json!({"ssh_virt_type": "virsh", "ssh_key_contents": "x"});
        assert_eq!(access_of(&create(commands.clone()), &view), Access::Admin);
        assert_eq!(access_of(&create(file.clone()), &view), Access::Admin);
        assert_eq!(access_of(&create(harmless), &view), Access::Operator);
        // Values that an admin set can stay while others change the rest of the node.
        for info in [commands, file] {
            let stored = trivet_model::view::NodeView {
                node: std::sync::Arc::new(node(info.clone())),
                ports: Vec::new(),
                resources: Vec::new(),
                live: trivet_model::view::NodeLiveState::default(),
                timeline: trivet_model::view::Timeline::new(),
                story: trivet_model::story::NodeStoryView::default(),
            };
            view.nodes.insert(id, std::sync::Arc::new(stored));
            let replace = |info: Value| RackOrder::ReplaceNode {
                node: Box::new(node(info)),
                based_on: 1,
            };
            let mut same = info.clone();
            same["ipmi_port"] = json!(7);
            assert_eq!(access_of(&replace(same), &view), Access::Operator);
            let mut other = info.clone();
            other["ssh_address"] = json!("192.0.2.9");
            assert_eq!(access_of(&replace(other), &view), Access::Admin);
        }
    }
}
