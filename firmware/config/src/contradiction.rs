//! Values that are valid alone and invalid together, across sections.
//!
//! Two services on one address, two ranges with the same addresses, and a directory of
//! secrets that would be served to the network.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::{Component, Path};

use crate::mistake::SettingsMistakes;
use crate::reader::SettingsSection;

/// The port space of an address: TCP or UDP.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ListenTransport {
    Tcp,
    Udp,
}

struct ListenerClaim {
    key: String,
    /// Other claims of the same kind may have the same address.
    shared: bool,
    transport: ListenTransport,
    address: SocketAddr,
    at: usize,
}

struct AddressRangeClaim {
    key: String,
    first: Ipv4Addr,
    last: Ipv4Addr,
    at: usize,
}

struct InterfaceClaim {
    key: String,
    name: String,
    at: usize,
}

/// What the sections claim for exclusive use; each claim must be unique.
#[derive(Default)]
pub(crate) struct SettingsClaims {
    listeners: Vec<ListenerClaim>,
    ranges: Vec<AddressRangeClaim>,
    interfaces: Vec<InterfaceClaim>,
}

impl SettingsClaims {
    pub(crate) fn listener(
        &mut self,
        key: String,
        transport: ListenTransport,
        address: SocketAddr,
        at: usize,
    ) {
        self.listeners.push(ListenerClaim {
            key,
            shared: false,
            transport,
            address,
            at,
        });
    }

    /// An address that receives DHCP: all networks behind relays may send to the same
    /// address, also to that of an interface.
    pub(crate) fn dhcp(&mut self, key: String, address: SocketAddrV4, at: usize) {
        self.listeners.push(ListenerClaim {
            key,
            shared: true,
            transport: ListenTransport::Udp,
            address: address.into(),
            at,
        });
    }

    pub(crate) fn range(&mut self, key: String, first: Ipv4Addr, last: Ipv4Addr, at: usize) {
        self.ranges.push(AddressRangeClaim {
            key,
            first,
            last,
            at,
        });
    }

    pub(crate) fn interface(&mut self, key: String, name: String, at: usize) {
        self.interfaces.push(InterfaceClaim { key, name, at });
    }

    /// Names every claim that an earlier one has already made.
    pub(crate) fn check(&self, mistakes: &mut SettingsMistakes) {
        for (index, later) in self.listeners.iter().enumerate() {
            let clash = self.listeners[..index].iter().find(|earlier| {
                let together = earlier.shared && later.shared && earlier.address == later.address;
                earlier.transport == later.transport
                    && overlap(earlier.address, later.address)
                    && !together
            });
            if let Some(earlier) = clash {
                let way = if earlier.shared && later.shared {
                    "write the same address in both"
                } else {
                    "choose another port"
                };
                let sentence = format!(
                    "{} is already used by {} ({}): {way}",
                    later.address, earlier.key, earlier.address
                );
                mistakes.add(later.at, &later.key, sentence);
            }
        }
        for (index, later) in self.ranges.iter().enumerate() {
            let clash = self.ranges[..index]
                .iter()
                .find(|earlier| earlier.first <= later.last && later.first <= earlier.last);
            if let Some(earlier) = clash {
                let sentence = format!(
                    "the range {} to {} overlaps {} to {} of another section",
                    later.first, later.last, earlier.first, earlier.last
                );
                mistakes.add(later.at, &later.key, sentence);
            }
        }
        for (index, later) in self.interfaces.iter().enumerate() {
            if self.interfaces[..index]
                .iter()
                .any(|earlier| earlier.name == later.name)
            {
                let sentence = format!("`{}` has another section already", later.name);
                mistakes.add(later.at, &later.key, sentence);
            }
        }
    }
}

/// Whether the second bind would fail: same port, and same address or one of them is
/// the wildcard. On Linux `[::]` also takes the IPv4 addresses.
fn overlap(left: SocketAddr, right: SocketAddr) -> bool {
    if left.port() != right.port() {
        return false;
    }
    let all = |one: SocketAddr, other: SocketAddr| {
        one.ip().is_unspecified() && (one.is_ipv6() || other.is_ipv4())
    };
    left.ip() == right.ip() || all(left, right) || all(right, left)
}

/// The data directory holds the store and the box's keys; `boot.files` and
/// `boot.loaders` are served to every machine. Neither may be inside the other.
/// Compares only the text of the paths: the daemon checks symbolic links.
pub(crate) fn check_data_is_not_served(
    root: &SettingsSection<'_>,
    mistakes: &mut SettingsMistakes,
) {
    // The sections were read before, so their mistakes are already in the list.
    let mut ignored = SettingsMistakes::of("");
    let Some(data) = text_of(root, "box", "data", &mut ignored) else {
        return;
    };
    let data = plain(Path::new(data.value));
    for key in ["files", "loaders"] {
        let Some(found) = text_of(root, "boot", key, &mut ignored) else {
            continue;
        };
        let served = plain(Path::new(found.value));
        if data.starts_with(&served) || served.starts_with(&data) {
            let sentence = "is served to every machine and must not share a tree with box.data, \
                            which holds the store and the keys";
            mistakes.add(found.at, &format!("boot.{key}"), sentence);
        }
    }
}

fn text_of<'doc>(
    root: &SettingsSection<'doc>,
    section: &str,
    key: &str,
    ignored: &mut SettingsMistakes,
) -> Option<crate::reader::LocatedValue<&'doc str>> {
    root.section(section, ignored)?.text(key, ignored)
}

/// The components of the path, with `.` dropped and `..` applied.
fn plain(path: &Path) -> Vec<Component<'_>> {
    let mut words: Vec<Component<'_>> = Vec::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir if matches!(words.last(), Some(Component::Normal(_))) => {
                words.pop();
            }
            Component::ParentDir if matches!(words.last(), Some(Component::RootDir)) => {}
            other => words.push(other),
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn clash(left: &str, right: &str, want: bool) {
        let (left, right) = (left.parse().unwrap(), right.parse().unwrap());
        assert_eq!(overlap(left, right), want, "{left} {right}");
        assert_eq!(overlap(right, left), want, "{right} {left}");
    }

    #[test]
    fn detects_binds_that_exclude_each_other() {
        clash("127.0.0.1:80", "127.0.0.1:80", true);
        clash("127.0.0.1:80", "127.0.0.1:81", false);
        clash("127.0.0.1:80", "127.0.0.2:80", false);
        clash("0.0.0.0:80", "127.0.0.2:80", true);
        clash("0.0.0.0:80", "[::1]:80", false);
        clash("[::]:80", "[::1]:80", true);
        clash("[::]:80", "10.0.0.1:80", true);
        clash("[::]:80", "0.0.0.0:80", true);
    }

    #[test]
    fn compares_paths_by_their_components() {
        assert_eq!(plain(Path::new("/a/./b/../c/")), plain(Path::new("/a/c")));
        assert_eq!(plain(Path::new("/../a")), plain(Path::new("/a")));
        assert_ne!(plain(Path::new("../a")), plain(Path::new("a")));
        assert!(!plain(Path::new("/ab")).starts_with(&plain(Path::new("/a"))));
    }
}
