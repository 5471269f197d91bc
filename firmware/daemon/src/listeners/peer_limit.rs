//! Limits how many permits one peer may hold at once.
//!
//! Dropping a permit releases it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// One peer gets at most one permit in this many. Ours: a peer is a node, or a whole
/// site behind one address, and neither may block the others.
const PEER_SHARE: usize = 4;

/// Counts the permits that each peer holds.
pub(crate) struct PeerLimit {
    each_max: usize,
    taken: Mutex<BTreeMap<IpAddr, usize>>,
}

/// A permit of one peer; dropping it releases it.
pub(crate) struct PeerPermit {
    limit: Arc<PeerLimit>,
    peer: IpAddr,
}

impl PeerLimit {
    /// Divides this many permits.
    pub(crate) fn new(places: usize) -> Arc<Self> {
        Self::of_each((places / PEER_SHARE).max(1))
    }

    /// Gives each peer this many permits.
    pub(crate) fn of_each(each_max: usize) -> Arc<Self> {
        Arc::new(Self {
            each_max,
            taken: Mutex::default(),
        })
    }

    /// How many permits each peer may hold.
    pub(crate) fn each_max(&self) -> usize {
        self.each_max
    }

    /// A permit for this peer; none when it has its share.
    pub(crate) fn permit(self: &Arc<Self>, peer: IpAddr) -> Option<PeerPermit> {
        // One machine has one address, whether it connects to an IPv4 or an IPv6
        // socket.
        let peer = peer.to_canonical();
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let count = taken.entry(peer).or_default();
        if *count >= self.each_max {
            return None;
        }
        *count += 1;
        let peers = Arc::clone(self);
        Some(PeerPermit { limit: peers, peer })
    }
}

impl Drop for PeerPermit {
    fn drop(&mut self) {
        let mut taken = self
            .limit
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
        let peers = PeerLimit::new(9);
        let (one, two) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        let limits = [peers.permit(one).unwrap(), peers.permit(one).unwrap()];
        assert!(peers.permit(one).is_none());
        assert!(peers.permit("::ffff:192.0.2.1".parse().unwrap()).is_none());
        assert!(peers.permit(two).is_some());
        drop(limits);
        assert!(peers.permit(one).is_some());
        assert!(peers.taken.lock().unwrap().is_empty());
    }

    #[test]
    fn every_peer_gets_one_permit_however_few_there_are() {
        assert!(
            PeerLimit::new(1)
                .permit(IpAddr::from([192, 0, 2, 1]))
                .is_some()
        );
    }
}
