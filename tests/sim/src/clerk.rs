//! The clerk: makes and deletes the smaller resources now and then, beside the
//! operator. What was not answered may have happened or not; the clerk deletes it
//! in either case some day.

use serde_json::{Value, json};
use trivet_model::{NodeId, ResourceId, Seeded};

use crate::machine::Asks;
use crate::operator::CLASS;
use crate::wires::{Answer, HTTP_TIMEOUT_MS};

/// The version the clerk speaks.
const VERSION: &str = "1.110";

/// What the clerk does in one seed, at most.
const ACTS_MAX: u64 = 40;

/// Somebody with a box of forms.
pub(crate) struct Clerk {
    /// A stream of its own, so that nothing else in the world depends on it.
    chance: Seeded,
    nodes: Vec<NodeId>,
    acts: u64,
    /// Where things are that may be there.
    made: Vec<String>,
    asked: Option<String>,
}

impl Clerk {
    /// There is a clerk in every third seed.
    pub(crate) fn of(seed: u64, nodes: Vec<NodeId>) -> Option<Self> {
        let mut chance = Seeded::new(!seed);
        (seed % 3 == 1).then(|| Self {
            acts: 5 + chance.below(ACTS_MAX - 5),
            chance,
            nodes,
            made: Vec::new(),
            asked: None,
        })
    }

    /// How long until the next act; none when all are done.
    pub(crate) fn pauses(&mut self) -> Option<u64> {
        self.acts = self.acts.checked_sub(1)?;
        Some(200 + self.chance.below(12_000))
    }

    /// The next request.
    pub(crate) fn asks(&mut self) -> Asks {
        if self.chance.chance(400) && !self.made.is_empty() {
            let at = self.chance.below(self.made.len() as u64) as usize;
            let path = self.made.swap_remove(at);
            return asks("DELETE", path, &Value::Null);
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
        self.asked = Some(format!("{path}/{id}"));
        asks("POST", path.to_owned(), &body)
    }

    /// Hears an answer.
    pub(crate) fn hears(&mut self, answer: &Answer) {
        let Some(path) = self.asked.take() else {
            return;
        };
        match answer {
            None | Some((201 | 503, _)) => self.made.push(path),
            Some(_) => {}
        }
    }
}

fn asks(method: &'static str, path: String, body: &Value) -> Asks {
    let body = match body {
        Value::Null => Vec::new(),
        body => body.to_string().into_bytes(),
    };
    Asks {
        method,
        path,
        query: String::new(),
        version: Some(VERSION.to_owned()),
        body,
        timeout_ms: HTTP_TIMEOUT_MS,
    }
}
