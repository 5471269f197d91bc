//! Stores agents' logs as files: `logs/NODE/WHEN.tar.gz` in the box's data directory.
//! The number per node and the bytes in all are limited; the oldest are removed first.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Semaphore;
use trivet_model::secret::SecretText;
use trivet_model::view::LogBundle;
use trivet_model::{NodeId, UnixMs};
use trivet_rack::{AgentHttpRequest, RackInput};

use crate::listeners::agents;
use crate::tls_identity::AgentCallIdentity;

/// Bundles kept for one node. Ours.
const BUNDLES_MAX: usize = 5;

/// Bytes kept for all nodes together. Ours.
const TOTAL_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// Log collections that run at once: a bad image fails a whole rack in one minute, and
/// a response may be as long as 16 MiB. Ours.
const COLLECTIONS_MAX: usize = 4;

const END: &str = ".tar.gz";

/// The directory of all logs. Changing files there requires the lock.
#[derive(Clone)]
pub(crate) struct AgentLogStore {
    root: Arc<PathBuf>,
    changing: Arc<Mutex<()>>,
    collecting: Arc<Semaphore>,
    /// Unpacked logs are longer still: one bundle is packed at a time.
    packing: Arc<Semaphore>,
}

/// Where an agent listens, whom it is, and what is shown to it.
pub(crate) struct AgentToCall {
    pub(crate) url: String,
    /// Its certificate, the only one to trust.
    pub(crate) verify_ca: Option<String>,
    pub(crate) shown: Option<AgentCallIdentity>,
}

impl AgentLogStore {
    pub(crate) fn at(root: PathBuf) -> Self {
        Self {
            root: Arc::new(root),
            changing: Arc::default(),
            collecting: Arc::new(Semaphore::new(COLLECTIONS_MAX)),
            packing: Arc::new(Semaphore::new(1)),
        }
    }

    /// The stored bundles of every node, reported to the rack after a start.
    pub(crate) fn stored_bundles(&self) -> Vec<RackInput> {
        let nodes = nodes(&self.root);
        let news = nodes.into_iter().map(|node| RackInput::Logs {
            node,
            bundles: self.bundles(node),
            collected: None,
        });
        news.collect()
    }

    /// Collects the logs of an agent, redacts them and stores them.
    pub(crate) async fn collect(
        self,
        node: NodeId,
        agent: AgentToCall,
        request_with_token: (AgentHttpRequest, SecretText),
        now: UnixMs,
    ) -> RackInput {
        let (request, token) = request_with_token;
        // The semaphore is never closed, so this always succeeds.
        let _turn = Arc::clone(&self.collecting).acquire_owned().await;
        let (pin, shown) = (agent.verify_ca.as_deref(), agent.shown.as_ref());
        let answer = agents::call(&agent.url, pin, shown, &request).await;
        // Unpacking and packing is done on a separate thread.
        let _turn_to_pack = Arc::clone(&self.packing).acquire_owned().await;
        let keeping = tokio::task::spawn_blocking(move || {
            let collected = answer.and_then(|(status, body)| {
                let bundle = trivet_rack::logs_bundle(status, body, token.reveal())?;
                let name = name(now);
                let stored = self.store(node, &name, &bundle);
                stored.map(|()| name).map_err(|error| {
                    format!("this box cannot write {}: {error}", self.root.display())
                })
            });
            (self.bundles(node), collected)
        });
        let (stored, collected) = keeping.await.unwrap_or_else(|_| {
            let why = "they could not be read".to_owned();
            (Vec::new(), Err(why))
        });
        RackInput::Logs {
            node,
            bundles: stored,
            collected: Some(collected),
        }
    }

    /// Reads a bundle, if it exists.
    pub(crate) fn read(&self, node: NodeId, name: &str) -> io::Result<Vec<u8>> {
        fs::read(self.directory(node).join(name))
    }

    /// Removes the logs of a node that was deleted.
    pub(crate) fn remove(&self, node: NodeId) {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        // Most nodes have no logs.
        let _ = fs::remove_dir_all(self.directory(node));
    }

    fn directory(&self, node: NodeId) -> PathBuf {
        self.root.join(node.to_string())
    }

    /// Oldest first: names are times.
    fn bundles(&self, node: NodeId) -> Vec<LogBundle> {
        let mut remaining: Vec<LogBundle> = files(&self.directory(node)).collect();
        remaining.sort_by(|one, other| one.name.cmp(&other.name));
        remaining
    }

    fn store(&self, node: NodeId, name: &str, bundle: &[u8]) -> io::Result<()> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let directory = self.directory(node);
        // Other users of this machine must not read the logs of agents.
        crate::private::own_directory(&self.root)?;
        crate::private::own_directory(&directory)?;
        self.evict(node, bundle.len() as u64);
        // A file without the usual suffix is never listed.
        let partly = directory.join("partly");
        let mut file = fs::File::create(&partly)?;
        file.write_all(bundle)?;
        fs::rename(partly, directory.join(name))
    }

    fn evict(&self, node: NodeId, bytes: u64) {
        let own = self.bundles(node);
        let many = (own.len() + 1).saturating_sub(BUNDLES_MAX);
        for bundle in own.iter().take(many) {
            let _ = fs::remove_file(self.directory(node).join(&bundle.name));
        }
        let mut all: Vec<(LogBundle, NodeId)> = nodes(&self.root)
            .into_iter()
            .flat_map(|node| self.bundles(node).into_iter().map(move |one| (one, node)))
            .collect();
        all.sort_by(|(one, _), (other, _)| one.name.cmp(&other.name));
        let mut total = bytes + all.iter().map(|(bundle, _)| bundle.bytes).sum::<u64>();
        for (bundle, node) in all {
            if total <= TOTAL_BYTES_MAX {
                break;
            }
            let _ = fs::remove_file(self.directory(node).join(&bundle.name));
            total = total.saturating_sub(bundle.bytes);
        }
    }
}

/// The time as a file name.
fn name(now: UnixMs) -> String {
    let when: String = now.to_string().chars().take(23).collect();
    format!("{}{END}", when.replace([':', '.'], "-"))
}

fn nodes(root: &Path) -> Vec<NodeId> {
    let entries = fs::read_dir(root).into_iter().flatten().flatten();
    let mut nodes: Vec<NodeId> = entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    nodes.sort();
    nodes
}

fn files(directory: &Path) -> impl Iterator<Item = LogBundle> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let bytes = entry.metadata().ok()?.len();
        name.ends_with(END).then_some(LogBundle { name, bytes })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testbed::TestbedDirectory;
    use trivet_model::SeededRandom;

    fn logs() -> (TestbedDirectory, AgentLogStore, NodeId) {
        let directory = TestbedDirectory::new();
        let logs = AgentLogStore::at(directory.0.join("logs"));
        (directory, logs, NodeId::random(&mut SeededRandom::new(1)))
    }

    #[test]
    fn names_are_times_that_can_be_files_and_sort_as_they_came() {
        let first = name(UnixMs(1_794_796_610_746));
        assert_eq!(first, "2026-11-16T02-36-50-746.tar.gz");
        assert!(first < name(UnixMs(1_794_796_610_747)));
    }

    #[test]
    fn each_node_keeps_a_limited_number_and_the_oldest_are_removed() {
        let (_directory, logs, node) = logs();
        for at in 0..=BUNDLES_MAX {
            logs.store(node, &format!("{at}{END}"), b"x").unwrap();
        }
        let stored: Vec<_> = logs.bundles(node).into_iter().map(|one| one.name).collect();
        assert_eq!(stored.len(), BUNDLES_MAX);
        assert_eq!(stored[0], format!("1{END}"));
        assert_eq!(logs.read(node, &stored[0]).unwrap(), b"x");
        assert_eq!(logs.stored_bundles().len(), 1, "a restart finds them");
        logs.remove(node);
        assert!(logs.bundles(node).is_empty() && logs.stored_bundles().is_empty());
    }

    #[test]
    fn what_was_not_written_whole_is_not_shown() {
        let (_directory, logs, node) = logs();
        fs::create_dir_all(logs.directory(node)).unwrap();
        fs::write(logs.directory(node).join("partly"), b"x").unwrap();
        assert!(logs.bundles(node).is_empty());
    }

    #[test]
    fn the_oldest_bundles_of_all_nodes_are_evicted_first() {
        let (_directory, logs, node) = logs();
        let other = NodeId::random(&mut SeededRandom::new(2));
        let large = |node, name: &str| {
            logs.store(node, name, b"").unwrap();
            let file = fs::File::create(logs.directory(node).join(name)).unwrap();
            file.set_len(TOTAL_BYTES_MAX / 2).unwrap();
        };
        large(other, "1.tar.gz");
        large(other, "2.tar.gz");
        logs.store(node, "3.tar.gz", b"x").unwrap();
        assert_eq!(logs.bundles(other).len(), 1);
        assert_eq!(logs.bundles(other)[0].name, "2.tar.gz");
        assert_eq!(logs.bundles(node).len(), 1);
    }
}
