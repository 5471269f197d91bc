//! Lists all nodes once for all scenarios, as an operator of a large rack does instead
//! of requesting each node.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::watch;
use trivet_model::Tick;

use super::rest_client;
use crate::clock::DaemonClock;

/// Milliseconds between two polls, and between two attempts to reach the box.
pub(crate) const POLL_MS: u64 = 150;

/// How long the box may be unreachable.
pub(crate) const UNREACHABLE_MS_MAX: u64 = 120_000;

/// The most nodes of one response, which is also Ironic's maximum.
const PAGE_NODES_MAX: usize = 1000;

/// The state of a node.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct PolledNode {
    pub(crate) state: String,
    /// Whether it is not changing to another state.
    pub(crate) is_stable: bool,
    pub(crate) last_error: Option<String>,
}

/// The result of one poll.
#[derive(Debug, Default)]
struct NodePollSnapshot {
    /// Its number; before the first poll it is zero.
    number: u64,
    nodes: BTreeMap<String, PolledNode>,
    /// Why polling has ended.
    ended: Option<String>,
}

/// Polls the box and publishes the states of all nodes.
#[derive(Debug)]
pub(crate) struct NodePoller {
    /// How many polls were started.
    polls_begun: AtomicU64,
    snapshots: watch::Sender<Arc<NodePollSnapshot>>,
}

impl NodePoller {
    pub(crate) fn new() -> Self {
        Self {
            polls_begun: AtomicU64::new(0),
            snapshots: watch::Sender::new(Arc::default()),
        }
    }

    /// Polls in an endless loop. If the box is unreachable for too long, every watch
    /// ends.
    pub(crate) async fn run(&self, api_url: &str) -> Infallible {
        let clock = DaemonClock::start();
        let mut reached = clock.now().tick;
        loop {
            let number = self.polls_begun.fetch_add(1, Ordering::Relaxed) + 1;
            let seen = match list_nodes(api_url).await {
                Ok(nodes) => {
                    reached = clock.now().tick;
                    NodePollSnapshot {
                        number,
                        nodes,
                        ended: None,
                    }
                }
                Err(error) if is_overdue(&clock, reached) => NodePollSnapshot {
                    number,
                    nodes: BTreeMap::new(),
                    ended: Some(format!("the box at {api_url} is unreachable: {error:#}")),
                },
                Err(_) => {
                    tokio::time::sleep(Duration::from_millis(POLL_MS)).await;
                    continue;
                }
            };
            let last = seen.ended.is_some();
            self.snapshots.send_replace(Arc::new(seen));
            if last {
                return std::future::pending().await;
            }
            tokio::time::sleep(Duration::from_millis(POLL_MS)).await;
        }
    }

    /// Watches one node, and ignores polls that were started before now.
    pub(crate) fn watch(&self, uuid: String) -> NodeWatch {
        NodeWatch {
            uuid,
            after: self.polls_begun.load(Ordering::Relaxed),
            snapshots: self.snapshots.subscribe(),
        }
    }
}

fn is_overdue(clock: &DaemonClock, reached: Tick) -> bool {
    clock.now().tick.since_ms(reached) > UNREACHABLE_MS_MAX
}

/// A watch of one node.
#[derive(Debug)]
pub(crate) struct NodeWatch {
    uuid: String,
    /// Polls up to this number may have started too early.
    after: u64,
    snapshots: watch::Receiver<Arc<NodePollSnapshot>>,
}

impl NodeWatch {
    /// The state of the node at the next poll.
    pub(crate) async fn next(&mut self) -> anyhow::Result<PolledNode> {
        let after = self.after;
        let seen = Arc::clone(&*self.snapshots.wait_for(|seen| seen.number > after).await?);
        self.after = seen.number;
        if let Some(why) = &seen.ended {
            anyhow::bail!("{why}");
        }
        let standing = seen.nodes.get(&self.uuid).cloned();
        standing.ok_or_else(|| anyhow::anyhow!("the box no longer lists this node"))
    }
}

/// All nodes of the box, page by page.
async fn list_nodes(api_url: &str) -> anyhow::Result<BTreeMap<String, PolledNode>> {
    let fields = "uuid,provision_state,target_provision_state,last_error";
    let first = format!("{api_url}/v1/nodes?fields={fields}&limit={PAGE_NODES_MAX}");
    let mut nodes = BTreeMap::new();
    let mut marker = String::new();
    loop {
        let (status, body) =
            rest_client::exchange(None, "GET", &format!("{first}{marker}"), None).await?;
        anyhow::ensure!(status == 200, "the list of nodes is answered with {status}");
        let mut page: Value = serde_json::from_slice(&body)?;
        let more = page["next"].is_string();
        let Value::Array(listed) = page["nodes"].take() else {
            anyhow::bail!("the list of nodes is missing");
        };
        let last = listed
            .last()
            .and_then(|node| node["uuid"].as_str())
            .map(|uuid| format!("&marker={uuid}"));
        nodes.extend(listed.iter().filter_map(parse_node));
        match last {
            Some(last) if more => marker = last,
            _ => return Ok(nodes),
        }
    }
}

fn parse_node(node: &Value) -> Option<(String, PolledNode)> {
    let standing = PolledNode {
        state: node["provision_state"].as_str()?.to_owned(),
        is_stable: node["target_provision_state"].is_null(),
        last_error: node["last_error"].as_str().map(str::to_owned),
    };
    Some((node["uuid"].as_str()?.to_owned(), standing))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn publish(poller: &NodePoller, number: u64, state: &str) {
        let standing = PolledNode {
            state: state.to_owned(),
            is_stable: true,
            last_error: None,
        };
        poller.polls_begun.store(number, Ordering::Relaxed);
        poller.snapshots.send_replace(Arc::new(NodePollSnapshot {
            number,
            nodes: BTreeMap::from([("one".to_owned(), standing)]),
            ended: None,
        }));
    }

    /// An order that was accepted while a list was being sent is not in that list.
    #[tokio::test]
    async fn a_poll_that_began_before_the_watch_is_ignored() {
        let poller = NodePoller::new();
        publish(&poller, 1, "manageable");
        poller.polls_begun.store(2, Ordering::Relaxed);
        let mut watch = poller.watch("one".to_owned());
        publish(&poller, 2, "manageable");
        publish(&poller, 3, "inspecting");
        assert_eq!(watch.next().await.unwrap().state, "inspecting");
    }

    #[tokio::test]
    async fn a_node_that_is_not_listed_is_an_error() {
        let poller = NodePoller::new();
        let mut watch = poller.watch("two".to_owned());
        publish(&poller, 1, "active");
        watch.next().await.unwrap_err();
    }

    #[tokio::test]
    async fn an_unreachable_box_ends_the_watch() {
        let poller = NodePoller::new();
        let mut watch = poller.watch("one".to_owned());
        poller.snapshots.send_replace(Arc::new(NodePollSnapshot {
            number: 1,
            nodes: BTreeMap::new(),
            ended: Some("away".to_owned()),
        }));
        assert_eq!(watch.next().await.unwrap_err().to_string(), "away");
    }
}
