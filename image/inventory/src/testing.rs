//! Trees of files and system calls for tests.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use trivet_board_linux::InterfaceAddress;

use crate::{SystemCalls, SystemRoot};

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A directory in place of `/`, which is removed at the end.
pub(crate) struct SystemTree {
    root: PathBuf,
}

impl SystemTree {
    pub(crate) fn new() -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("trivet-inventory-{}-{number}", std::process::id());
        let root = std::env::temp_dir().join(name);
        fs::create_dir_all(&root).unwrap();
        Self { root }
    }

    pub(crate) fn root(&self) -> SystemRoot {
        SystemRoot::new(&self.root)
    }

    pub(crate) fn bytes(&self, path: &str, bytes: &[u8]) {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    pub(crate) fn file(&self, path: &str, text: &str) {
        self.bytes(path, text.as_bytes());
    }

    pub(crate) fn directory(&self, path: &str) {
        fs::create_dir_all(self.root.join(path)).unwrap();
    }

    pub(crate) fn link(&self, path: &str, target: &str) {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
    }
}

impl Drop for SystemTree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

/// System calls with made-up results.
#[derive(Default)]
pub(crate) struct FakeCalls {
    pub(crate) permanent: BTreeMap<String, Vec<u8>>,
    pub(crate) link_modes: BTreeMap<String, u32>,
    pub(crate) addresses: Vec<InterfaceAddress>,
    pub(crate) lldp: BTreeMap<String, Vec<u8>>,
    /// Replies of the BMC by request; no replies means no BMC.
    pub(crate) bmc: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The requests that it got.
    pub(crate) requests: usize,
}

impl SystemCalls for FakeCalls {
    fn permanent_address(&self, interface: &str) -> Option<Vec<u8>> {
        self.permanent.get(interface).cloned()
    }

    fn link_modes(&self, interface: &str) -> Option<u32> {
        self.link_modes.get(interface).copied()
    }

    fn addresses(&self) -> Vec<InterfaceAddress> {
        self.addresses.clone()
    }

    fn lldp_frames(&self, interfaces: &[String], _timeout: Duration) -> Vec<Option<Vec<u8>>> {
        let frame = |name: &String| self.lldp.get(name).cloned();
        interfaces.iter().map(frame).collect()
    }

    fn has_bmc(&self) -> bool {
        !self.bmc.is_empty()
    }

    fn bmc_request(&mut self, function: u8, command: u8, data: &[u8]) -> io::Result<Vec<u8>> {
        self.requests += 1;
        let request = [&[function, command], data].concat();
        let reply = self.bmc.get(&request).cloned();
        // Completion code CCh: invalid data field.
        Ok(reply.unwrap_or_else(|| vec![0xcc]))
    }
}
