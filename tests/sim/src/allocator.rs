//! The clerk: makes and deletes the smaller resources now and then, beside the
//! operator. What was not answered may have happened or not; the clerk deletes it
//! in either case some day.

use serde_json::{Value, json};
use trivet_model::{NodeId, ResourceId, SeededRandom};

use crate::machine::SimHttpRequest;
use crate::network::{HTTP_TIMEOUT_MS, SimHttpResult};
use crate::operator::CLASS;

/// The version the clerk speaks.
const VERSION: &str = "1.110";

/// What the clerk does in one seed, at most.
const ACTS_MAX: u64 = 40;

/// Somebody with a box of forms.
pub(crate) struct ResourceAllocator {
    /// A stream of its own, so that nothing else in the world depends on it.
    chance: SeededRandom,
    nodes: Vec<NodeId>,
    acts: u64,
    /// Where things are that may be there.
    created: Vec<String>,
    pending: Option<String>,
}

impl ResourceAllocator {
    /// There is a clerk in every third seed.
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

    /// How long until the next act; none when all are done.
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

    /// Hears an answer.
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
        timeout_ms: HTTP_TIMEOUT_MS,
    }
}
