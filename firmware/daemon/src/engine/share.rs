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
const STRANGERS_MAX: usize = 1024;

const _: () = assert!(KNOWN_MAX + STRANGERS_MAX < super::INPUTS_WAITING_MAX);

/// Where a DHCP frame has the hardware address of its client (RFC 2131 section 2).
const CLIENT_AT: usize = 28;

/// Who a DHCP frame says it is from. Only to choose a share: nothing here is checked.
pub(super) fn sender(frame: &[u8]) -> Option<MacAddr> {
    frame.get(CLIENT_AT..)?.first_chunk().copied().map(MacAddr)
}

/// Both shares.
#[derive(Clone, Debug, Default)]
pub(super) struct Shares {
    known: Arc<AtomicUsize>,
    strangers: Arc<AtomicUsize>,
}

impl Shares {
    /// A place in the queue, if there is one.
    pub(super) fn place(&self, known: bool) -> Option<Place> {
        let (taken, most) = if known {
            (&self.known, KNOWN_MAX)
        } else {
            (&self.strangers, STRANGERS_MAX)
        };
        // Counted back by the place's end, also where it is one too many.
        let place = Place(Arc::clone(taken));
        (taken.fetch_add(1, Ordering::Relaxed) < most).then_some(place)
    }
}

/// One datagram's place, given back when it ends.
#[derive(Debug)]
pub(super) struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_find_no_place_when_their_share_is_taken_and_nodes_still_do() {
        let shares = Shares::default();
        let all: Vec<_> = (0..STRANGERS_MAX + 5)
            .filter_map(|_| shares.place(false))
            .collect();
        assert_eq!(all.len(), STRANGERS_MAX);
        let nodes: Vec<_> = (0..KNOWN_MAX + 5)
            .filter_map(|_| shares.place(true))
            .collect();
        assert_eq!(nodes.len(), KNOWN_MAX);
    }

    #[test]
    fn a_place_comes_back_when_its_datagram_was_handled() {
        let shares = Shares::default();
        let mut all: Vec<_> = (0..STRANGERS_MAX)
            .filter_map(|_| shares.place(false))
            .collect();
        assert!(shares.place(false).is_none());
        all.pop();
        assert!(shares.place(false).is_some());
        assert!(shares.place(false).is_some(), "given back at once");
    }

    #[test]
    fn a_sender_is_read_where_it_stands() {
        let mut frame = [0; 300];
        frame[28..34].copy_from_slice(&[2, 0, 0, 0, 0, 7]);
        assert_eq!(sender(&frame), Some(MacAddr([2, 0, 0, 0, 0, 7])));
        assert_eq!(sender(&frame[..33]), None);
    }
}
