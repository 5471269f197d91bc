//! Places for clients: so many at once, and of one peer never more than a share.
//!
//! A place that is free costs a client nothing; one that is taken goes back when
//! its guard is dropped.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// One peer gets at most one place in this many. Ours: a peer is a node, or a
/// whole site behind one address, and neither may shut the others out.
const PEER_SHARE: usize = 4;

/// Counts the places that each peer has taken.
pub(crate) struct Peers {
    each_max: usize,
    taken: Mutex<BTreeMap<IpAddr, usize>>,
}

/// A place that is taken.
pub(crate) struct Seat {
    peers: Arc<Peers>,
    peer: IpAddr,
}

impl Peers {
    /// Shares of this many places.
    pub(crate) fn sharing(places: usize) -> Arc<Self> {
        Arc::new(Self {
            each_max: (places / PEER_SHARE).max(1),
            taken: Mutex::default(),
        })
    }

    /// A place for this peer; none when it has its share.
    pub(crate) fn seat(self: &Arc<Self>, peer: IpAddr) -> Option<Seat> {
        // The same machine, whether it came to an IPv4 or an IPv6 socket.
        let peer = peer.to_canonical();
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let count = taken.entry(peer).or_default();
        if *count >= self.each_max {
            return None;
        }
        *count += 1;
        let peers = Arc::clone(self);
        Some(Seat { peers, peer })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self
            .peers
            .taken
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = taken.get_mut(&self.peer) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.peer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_gets_its_share_and_the_others_theirs() {
        let peers = Peers::sharing(9);
        let (one, two) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        let seats = [peers.seat(one).unwrap(), peers.seat(one).unwrap()];
        assert!(peers.seat(one).is_none());
        assert!(peers.seat("::ffff:192.0.2.1".parse().unwrap()).is_none());
        assert!(peers.seat(two).is_some());
        drop(seats);
        assert!(peers.seat(one).is_some());
        assert!(peers.taken.lock().unwrap().is_empty());
    }

    #[test]
    fn everybody_gets_one_however_few_there_are() {
        assert!(
            Peers::sharing(1)
                .seat(IpAddr::from([192, 0, 2, 1]))
                .is_some()
        );
    }
}
