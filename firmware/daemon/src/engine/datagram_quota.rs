//! How much of the engine's queue datagrams may take.
//!
//! Any machine on a network can send DHCP frames at line rate. They get a limited share
//! of the queue, so that there is always space for orders, heartbeats and replies.
//! Machines that match no port of a node get a separate share, so that a flood from
//! invented addresses does not displace the datagrams of nodes. A datagram without a
//! permit is dropped, as on a full network link.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use trivet_model::MacAddr;

/// Limit of queued datagrams from known machines.
const KNOWN_MAX: usize = 2048;

/// Limit of queued datagrams from all other machines.
const UNKNOWN_MAX: usize = 1024;

const _: () = assert!(KNOWN_MAX + UNKNOWN_MAX < super::INPUTS_WAITING_MAX);

/// Offset of the client's hardware address in a DHCP frame (RFC 2131 section 2).
const CHADDR_OFFSET: usize = 28;

/// The client address in a DHCP frame. It only selects the quota, so it is not
/// verified.
pub(super) fn sender(frame: &[u8]) -> Option<MacAddr> {
    frame
        .get(CHADDR_OFFSET..)?
        .first_chunk()
        .copied()
        .map(MacAddr)
}

/// The quotas for known and for unknown machines.
#[derive(Clone, Debug, Default)]
pub(super) struct DatagramQuotas {
    known: Arc<AtomicUsize>,
    unknown: Arc<AtomicUsize>,
}

impl DatagramQuotas {
    /// A permit, if the quota is not used up.
    pub(super) fn acquire(&self, known: bool) -> Option<DatagramPermit> {
        let (taken, most) = if known {
            (&self.known, KNOWN_MAX)
        } else {
            (&self.unknown, UNKNOWN_MAX)
        };
        // Dropping the permit decrements the count, also where it exceeds the limit.
        let place = DatagramPermit(Arc::clone(taken));
        (taken.fetch_add(1, Ordering::Relaxed) < most).then_some(place)
    }
}

/// One queued datagram; dropping it releases its share of the quota.
#[derive(Debug)]
pub(super) struct DatagramPermit(Arc<AtomicUsize>);

impl Drop for DatagramPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_machines_get_no_permit_when_their_quota_is_used_and_nodes_still_do() {
        let shares = DatagramQuotas::default();
        let all: Vec<_> = (0..UNKNOWN_MAX + 5)
            .filter_map(|_| shares.acquire(false))
            .collect();
        assert_eq!(all.len(), UNKNOWN_MAX);
        let nodes: Vec<_> = (0..KNOWN_MAX + 5)
            .filter_map(|_| shares.acquire(true))
            .collect();
        assert_eq!(nodes.len(), KNOWN_MAX);
    }

    #[test]
    fn a_permit_is_released_when_its_datagram_was_handled() {
        let shares = DatagramQuotas::default();
        let mut all: Vec<_> = (0..UNKNOWN_MAX)
            .filter_map(|_| shares.acquire(false))
            .collect();
        assert!(shares.acquire(false).is_none());
        all.pop();
        assert!(shares.acquire(false).is_some());
        assert!(shares.acquire(false).is_some(), "given back at once");
    }

    #[test]
    fn a_sender_is_read_where_it_stands() {
        let mut frame = [0; 300];
        frame[28..34].copy_from_slice(&[2, 0, 0, 0, 0, 7]);
        assert_eq!(sender(&frame), Some(MacAddr([2, 0, 0, 0, 0, 7])));
        assert_eq!(sender(&frame[..33]), None);
    }
}
