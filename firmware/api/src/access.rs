//! The role that a request needs.
//!
//! Reads need a reader, changes an operator. Raw commands to BMCs and agents, and resources that
//! run steps on many nodes later (templates, runbooks, rules), need an admin. Requests of agents
//! need no credentials: the agent's token and the state of its node protect them.

use core::fmt;

use serde_json::Value;
#[cfg(test)]
use serde_json::json;
use trivet_model::node::JsonObject;
use trivet_model::{RackOrder, RackView};

use crate::{percent, route};

/// The role that a request needs, lowest first.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Access {
    /// None: the documents by which clients discover the API.
    Public,
    /// None: requests of agents.
    Agent,
    /// The role of a reader.
    Reader,
    /// The role of an operator.
    Operator,
    /// The role of an admin.
    Admin,
}

impl fmt::Display for Access {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Public => "public",
            Self::Agent => "agent",
            Self::Reader => "reader",
            Self::Operator => "operator",
            Self::Admin => "admin",
        })
    }
}

/// The role that a request needs, from its row of the route table. A path that does not exist needs
/// the same role as other paths, so that unauthenticated clients cannot find out which paths exist.
pub fn access(method: &str, path: &str) -> Access {
    let segments = percent::segments(path).ok();
    let row = segments.and_then(|segments| route::find(method, &segments));
    match (row, method) {
        (Some(row), _) => row.access,
        (None, "GET" | "HEAD" | "OPTIONS") => Access::Reader,
        (None, _) => Access::Operator,
    }
}

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

    #[track_caller]
    fn needs(want: Access, requests: &[(&str, &str)]) {
        for (method, path) in requests {
            assert_eq!(access(method, path), want, "{method} {path}");
        }
    }

    #[test]
    fn only_discovery_and_the_agents_paths_need_no_credentials() {
        needs(
            Access::Public,
            &[("GET", "/"), ("GET", "/v1"), ("GET", "/v1/")],
        );
        needs(
            Access::Agent,
            &[
                ("GET", "/v1/lookup"),
                ("POST", "/v1/heartbeat/node-1"),
                ("POST", "/v1/continue_inspection"),
            ],
        );
    }

    #[test]
    fn reads_need_a_reader() {
        needs(
            Access::Reader,
            &[
                ("GET", "/v1/nodes"),
                ("HEAD", "/v1/nodes/x"),
                ("OPTIONS", "/v1/nodes"),
                ("GET", "/v1/runbooks"),
                ("GET", "/v1/lookup/../nodes"),
                ("GET", "/v1//nodes"),
                ("GET", "/v1/heartbeat/node-1"),
                ("GET", "/v1/nodes/x/vendor_passthru/methods"),
                ("GET", "/%zz"),
                ("GET", "/v1/%6eodes"),
            ],
        );
    }

    #[test]
    fn changes_need_an_operator() {
        needs(
            Access::Operator,
            &[
                ("POST", "/v1/nodes"),
                ("DELETE", "/v1/nodes/x"),
                ("PATCH", "/v1/nodes/x"),
                ("PUT", "/v1/nodes/x/states/provision"),
                ("POST", "/v1"),
                ("POST", "/v1/heartbeat/a/b"),
                ("POST", "/v1/lookup"),
                ("BREW", "/v1/nodes"),
                ("POST", "/%zz"),
            ],
        );
    }

    #[test]
    fn raw_commands_and_what_runs_later_need_an_admin() {
        needs(
            Access::Admin,
            &[
                ("POST", "/v1/nodes/x/vendor_passthru"),
                ("POST", "/v1/nodes/x/vendor_passthru/send_raw"),
                ("GET", "/v1/nodes/x/vendor_passthru/read"),
                ("GET", "/v1/nodes/x/vendor_passthru/heartbeat"),
                ("POST", "/v1/nodes/x/%76endor_passthru"),
                ("PUT", "/v1/drivers/ipmi/vendor_passthru/anything"),
            ],
        );
    }
}
