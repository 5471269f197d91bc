//! Limits the number of concurrent transfers.
//!
//! The protocol has no limit, and there is no fixed one here: a transfer costs memory
//! and open files, and there may be as many as fit into a share of both. Further
//! requests get no reply. TFTP clients repeat a request without a reply, but boot ROMs
//! give up at an ERROR, so no reply is the way to say "later".

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::content::AHEAD_BYTES;
use super::transfer::UNREAD_BYTES_MAX;
use crate::listeners::peer_limit::{PeerLimit, PeerPermit};
use tracing::warn;

/// The most memory that one transfer needs: the bytes read ahead and being fetched, a
/// waiting burst, unread bytes (the kernel counts them twice), and its records here and
/// in the kernel.
const TRANSFER_BYTES_MAX: u64 = 3 * AHEAD_BYTES as u64 + 2 * UNREAD_BYTES_MAX as u64 + 8 * 1024;

/// Transfers may use one byte in this many of the memory that is free at the start.
const MEMORY_SHARE: u64 = 4;

/// Each transfer has a socket and a file open.
const FILES_EACH: u64 = 2;

/// Open files that are not for transfers or connections: the store, listening sockets,
/// calls to BMCs and agents.
const OTHER_FILES: u64 = 256;

/// Assumed free memory where the system reports none: that of a small box.
const FREE_BYTES_DEFAULT: u64 = 256 << 20;

/// At most one line about unanswered requests is logged in this time.
const LOG_GAP_US: u64 = 10_000_000;

/// How many transfers fit, or fewer if the settings say so.
pub(crate) fn transfers_max(requested: Option<u32>, connections_max: usize) -> usize {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let free = free_bytes(&text).unwrap_or(FREE_BYTES_DEFAULT);
    let files = trivet_board_linux::raise_open_files();
    let fit = fit(free, files, connections_max as u64);
    let requested = requested.map_or(u64::MAX, u64::from);
    usize::try_from(fit.min(requested)).unwrap_or(usize::MAX)
}

fn fit(free_bytes: u64, files: u64, connections_max: u64) -> u64 {
    let by_memory = free_bytes / MEMORY_SHARE / TRANSFER_BYTES_MAX;
    // A connection has a socket and may have a file.
    let others = OTHER_FILES + connections_max * 2;
    let by_files = files.saturating_sub(others) / FILES_EACH;
    by_memory.min(by_files).max(1)
}

/// `MemAvailable` of proc_meminfo(5).
fn free_bytes(text: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The limit of concurrent transfers, and a share for each peer.
#[derive(Clone)]
pub(crate) struct TftpTransferLimit {
    transfers_max: usize,
    pub(super) taken: Arc<AtomicUsize>,
    peers: Arc<PeerLimit>,
    rejected: u64,
    logged_at_us: Option<u64>,
}

/// A permit for one transfer; dropping it releases it.
pub(super) struct TftpTransferPermit {
    taken: Arc<AtomicUsize>,
    _peer_permit: PeerPermit,
}

impl Drop for TftpTransferPermit {
    fn drop(&mut self) {
        self.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

impl TftpTransferLimit {
    pub(crate) fn new(transfers_max: usize) -> Self {
        Self {
            transfers_max,
            taken: Arc::default(),
            peers: PeerLimit::new(transfers_max),
            rejected: 0,
            logged_at_us: None,
        }
    }

    /// A permit for this peer. Without one the peer gets no reply, and a line is
    /// logged.
    pub(super) fn acquire(&mut self, peer: IpAddr, now_us: u64) -> Option<TftpTransferPermit> {
        let place = self.try_acquire(peer);
        if place.is_none() {
            self.rejected += 1;
            let since = |at_us: u64| now_us.saturating_sub(at_us);
            if self.logged_at_us.is_none_or(|at| since(at) >= LOG_GAP_US) {
                self.logged_at_us = Some(now_us);
                warn!(%peer, "{}", self.rejection_message(peer));
                self.rejected = 0;
            }
        }
        place
    }

    fn rejection_message(&self, peer: IpAddr) -> String {
        format!(
            "TFTP: no reply to {peer}: {} transfers of at most {} are under way, or it has its \
             share of them; {} requests were left unanswered, and clients repeat them. If that \
             goes on, give the box more memory or raise limits.transfers_max",
            self.taken.load(Ordering::Relaxed),
            self.transfers_max,
            self.rejected
        )
    }

    fn try_acquire(&self, peer: IpAddr) -> Option<TftpTransferPermit> {
        if self.taken.load(Ordering::Relaxed) >= self.transfers_max {
            return None;
        }
        let permit = self.peers.permit(peer)?;
        self.taken.fetch_add(1, Ordering::Relaxed);
        Some(TftpTransferPermit {
            taken: Arc::clone(&self.taken),
            _peer_permit: permit,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_a_share_of_memory_and_of_open_files() {
        let gib = 1 << 30;
        let many = fit(4 * gib, 1 << 20, 1024);
        assert!((3000..8000).contains(&many), "{many}");
        assert!(many * TRANSFER_BYTES_MAX <= gib);
        assert_eq!(fit(4 * gib, 4096, 1024), (4096 - 256 - 2048) / 2);
        assert_eq!(fit(0, 0, 1024), 1, "never none");
    }

    #[test]
    fn the_operator_may_ask_for_less_than_fits_and_not_for_more() {
        assert_eq!(transfers_max(Some(1), 16), 1);
        assert_eq!(transfers_max(Some(u32::MAX), 16), transfers_max(None, 16));
    }

    #[test]
    fn free_memory_is_read_from_the_kernels_account() {
        let text = "MemTotal: 8 kB\nMemFree: 2 kB\nMemAvailable:    4096 kB\n";
        assert_eq!(free_bytes(text), Some(4 << 20));
        assert_eq!(free_bytes("MemAvailable: many"), None);
    }

    #[test]
    fn rejected_requests_are_counted_and_logged_at_most_once_per_gap() {
        let mut limit = TftpTransferLimit::new(1);
        let peer = IpAddr::from([192, 0, 2, 1]);
        let place = limit.acquire(peer, 0).unwrap();
        for now_us in 5..8 {
            assert!(limit.acquire(peer, now_us).is_none());
        }
        assert_eq!((limit.logged_at_us, limit.rejected), (Some(5), 2));
        let message = limit.rejection_message(peer);
        assert!(
            message.contains("192.0.2.1: 1 transfers of at most 1"),
            "{message}"
        );
        drop(place);
        assert!(limit.acquire(peer, 9).is_some());
        assert_eq!(limit.taken.load(Ordering::Relaxed), 0);
    }
}
