//! How much of the engine's queue datagrams may take.
//!
//! Anybody on a wire can send DHCP frames, as many as the wire carries. They get a part of
//! the queue and no more, so that orders, heartbeats and answers always find room; and
//! machines that no port of ours names get a part of their own, so that a flood of invented
//! ones keeps no node from being heard. What finds no place is dropped, as a full wire would.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use trivet_model::MacAddr;

/// Datagrams of machines we know that wait.
const KNOWN_MAX: usize = 2048;

/// Datagrams of all others.
const UNKNOWN_MAX: usize = 1024;

const _: () = assert!(KNOWN_MAX + UNKNOWN_MAX < super::INPUTS_WAITING_MAX);

/// Where a DHCP frame has the hardware address of its client (RFC 2131 section 2).
const CHADDR_OFFSET: usize = 28;

/// Who a DHCP frame says it is from. Only to choose a share: nothing here is checked.
pub(super) fn sender(frame: &[u8]) -> Option<MacAddr> {
    frame
        .get(CHADDR_OFFSET..)?
        .first_chunk()
        .copied()
        .map(MacAddr)
}

/// Both shares.
#[derive(Clone, Debug, Default)]
pub(super) struct DatagramQuotas {
    known: Arc<AtomicUsize>,
    unknown: Arc<AtomicUsize>,
}

impl DatagramQuotas {
    /// A place in the queue, if there is one.
    pub(super) fn acquire(&self, known: bool) -> Option<DatagramPermit> {
        let (taken, most) = if known {
            (&self.known, KNOWN_MAX)
        } else {
            (&self.unknown, UNKNOWN_MAX)
        };
        // Counted back by the place's end, also where it is one too many.
        let place = DatagramPermit(Arc::clone(taken));
        (taken.fetch_add(1, Ordering::Relaxed) < most).then_some(place)
    }
}

/// One datagram's place, given back when it ends.
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
