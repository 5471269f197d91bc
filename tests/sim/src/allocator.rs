//! The allocator: creates and deletes allocations and other small resources at random, in
//! addition to the operator. A request without a response may have succeeded or not; the
//! allocator deletes the resource later in either case.

use serde_json::{Value, json};
use trivet_model::{NodeId, ResourceId, SeededRandom};

use crate::machine::SimHttpRequest;
use crate::network::{HTTP_TIMEOUT_MS, SimHttpResult};
use crate::operator::CLASS;

/// The API version it uses.
const VERSION: &str = "1.110";

/// Most requests in one seed.
const ACTS_MAX: u64 = 40;

/// A client that creates and deletes resources.
pub(crate) struct ResourceAllocator {
    /// A random stream of its own, so that the rest of the simulation does not depend on it.
    chance: SeededRandom,
    nodes: Vec<NodeId>,
    acts: u64,
    /// Paths of resources that may exist.
    created: Vec<String>,
    pending: Option<String>,
}

impl ResourceAllocator {
    /// Every third seed has an allocator.
    pub(crate) fn for_seed(seed: u64, nodes: Vec<NodeId>) -> Option<Self> {
        let mut chance = SeededRandom::new(!seed);
        (seed % 3 == 1).then(|| Self {
            acts: 5 + chance.below(ACTS_MAX - 5),
            chance,
            nodes,
            created: Vec::new(),
            pending: None,
        })
    }

    /// Delay until the next request; `None` after the last.
    pub(crate) fn next_delay_ms(&mut self) -> Option<u64> {
        self.acts = self.acts.checked_sub(1)?;
        Some(200 + self.chance.below(12_000))
    }

    /// The next request.
    pub(crate) fn next_request(&mut self) -> SimHttpRequest {
        if self.chance.chance(400) && !self.created.is_empty() {
            let at = self.chance.below(self.created.len() as u64) as usize;
            let path = self.created.swap_remove(at);
            return api_request("DELETE", path, &Value::Null);
        }
        let id = ResourceId::random(&mut self.chance).to_string();
        let at = self.chance.below(self.nodes.len() as u64) as usize;
        let node = self.nodes[at].to_string();
        let step = json!([{"interface": "deploy", "step": "x", "args": {}, "priority": 1}]);
        let (path, body) = match self.chance.below(6) {
            0 => ("/v1/chassis", json!({ "uuid": id })),
            1 => ("/v1/portgroups", json!({"uuid": id, "node_uuid": node})),
            2 => {
                let name = format!("CUSTOM_{}", self.chance.below(3));
                let body = json!({"uuid": id, "name": name, "steps": step});
                ("/v1/deploy_templates", body)
            }
            3 => {
                let candidates = json!([node]);
                let body = json!({
                    "uuid": id, "resource_class": CLASS, "candidate_nodes": candidates,
                });
                ("/v1/allocations", body)
            }
            _ => {
                let body = json!({ "uuid": id, "resource_class": CLASS });
                ("/v1/allocations", body)
            }
        };
        self.pending = Some(format!("{path}/{id}"));
        api_request("POST", path.to_owned(), &body)
    }

    /// Handles a response.
    pub(crate) fn handle_response(&mut self, answer: &SimHttpResult) {
        let Some(path) = self.pending.take() else {
            return;
        };
        match answer {
            None | Some((201 | 503, _)) => self.created.push(path),
            Some(_) => {}
        }
    }
}

fn api_request(method: &'static str, path: String, body: &Value) -> SimHttpRequest {
    let body = match body {
        Value::Null => Vec::new(),
        body => body.to_string().into_bytes(),
    };
    SimHttpRequest {
        method,
        path,
        query: String::new(),
        version: Some(VERSION.to_owned()),
        body,
        certificate: None,
        timeout_ms: HTTP_TIMEOUT_MS,
    }
}
