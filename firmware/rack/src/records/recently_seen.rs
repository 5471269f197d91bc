//! Machines by when they were seen last.

use std::collections::BTreeMap;

use trivet_model::MacAddr;

/// Machines in the order in which they were last seen. To add one, to remove one and to find
/// the oldest has logarithmic cost.
#[derive(Default)]
pub(crate) struct RecentlySeenMacs {
    positions: BTreeMap<MacAddr, u64>,
    order: BTreeMap<u64, MacAddr>,
    next: u64,
}

impl RecentlySeenMacs {
    /// Moves a machine to the end; true if it was not in the list.
    pub(crate) fn touch(&mut self, mac: MacAddr) -> bool {
        self.next += 1;
        let before = self.positions.insert(mac, self.next);
        if let Some(before) = before {
            self.order.remove(&before);
        }
        self.order.insert(self.next, mac);
        before.is_none()
    }

    pub(crate) fn remove(&mut self, mac: MacAddr) {
        if let Some(place) = self.positions.remove(&mac) {
            self.order.remove(&place);
        }
    }

    pub(crate) fn oldest(&self) -> Option<MacAddr> {
        self.order.first_key_value().map(|(_, mac)| *mac)
    }

    pub(crate) fn len(&self) -> usize {
        self.positions.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mac(number: u8) -> MacAddr {
        MacAddr([2, 0, 0, 0, 0, number])
    }

    #[test]
    fn the_oldest_is_who_was_not_seen_for_longest() {
        let mut recent = RecentlySeenMacs::default();
        for number in 1..=3 {
            assert!(recent.touch(mac(number)));
        }
        assert!(!recent.touch(mac(1)));
        assert_eq!(recent.oldest(), Some(mac(2)));
        recent.remove(mac(2));
        recent.remove(mac(9));
        assert_eq!(recent.oldest(), Some(mac(3)));
        assert_eq!((recent.len(), recent.order.len()), (2, 2));
    }
}
