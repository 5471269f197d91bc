//! The vendor of a network card, by the first three bytes of its address.
//!
//! `vendors.txt` lists vendors of servers, of their cards and of virtual machines, from IEEE's
//! public register: enough for a rack, at a hundredth of the register's size.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use crate::MacAddr;

static VENDORS: LazyLock<BTreeMap<[u8; 3], &'static str>> =
    LazyLock::new(|| parse(include_str!("vendors.txt")));

/// The bit of locally administered addresses, which are not registered (IEEE 802, section
/// 8.2.2).
const LOCALLY_ADMINISTERED: u8 = 2;

/// The vendor, if the list has it.
pub fn vendor(mac: MacAddr) -> Option<&'static str> {
    let [first, second, third, ..] = mac.0;
    let known = VENDORS.get(&[first, second, third]).copied();
    known.or((first & LOCALLY_ADMINISTERED != 0).then_some("made-up address"))
}

/// Lines of `NAME: PREFIX PREFIX ...`.
fn parse(text: &'static str) -> BTreeMap<[u8; 3], &'static str> {
    let lines = text.lines().filter_map(|line| line.split_once(": "));
    let pairs = lines.flat_map(|(name, prefixes)| {
        prefixes
            .split(' ')
            .filter_map(move |prefix| Some((bytes(prefix)?, name)))
    });
    pairs.collect()
}

fn bytes(prefix: &str) -> Option<[u8; 3]> {
    let number = u32::from_str_radix(prefix, 16).ok()?;
    let [0, first, second, third] = number.to_be_bytes() else {
        return None;
    };
    (prefix.len() == 6).then_some([first, second, third])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn makers_of_servers_are_known() {
        let of = |text: &str| vendor(text.parse().unwrap());
        assert_eq!(of("ac:1f:6b:00:00:01"), Some("Supermicro"));
        assert_eq!(of("00:14:22:aa:bb:cc"), Some("Dell"));
        assert_eq!(of("52:54:00:12:34:56"), Some("QEMU or KVM (made up)"));
        assert_eq!(of("02:00:00:00:00:01"), Some("made-up address"));
        assert_eq!(of("00:00:00:00:00:01"), None);
    }

    #[test]
    fn every_entry_of_the_list_is_read_and_none_occurs_twice() {
        let text = include_str!("vendors.txt");
        let words: usize = text
            .lines()
            .map(|line| {
                let (name, prefixes) = line.split_once(": ").unwrap();
                assert!(!name.is_empty(), "{line}");
                prefixes.split(' ').count()
            })
            .sum();
        assert_eq!(VENDORS.len(), words);
        assert!(words > 1000);
    }
}
