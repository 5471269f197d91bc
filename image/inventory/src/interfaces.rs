//! Network interfaces: cards, bonds and VLANs.

use trivet_agent_wire::inventory::IpaInterface;
use trivet_board_linux::InterfaceAddress;
use trivet_model::MacAddr;

use crate::{SystemCalls, SystemRoot};

/// Most interfaces that are listed. Ours.
const INTERFACES_MAX: usize = 1024;

/// The stock agent ignores addresses that begin with this byte: they are assigned by software.
const IGNORED_FIRST_OCTET: u8 = 0xfa;

/// The bits `SUPPORTED_*` of `linux/ethtool.h` that have a speed, in Mbit/s. `lshw` knows the
/// first seven; the others are those of faster cards.
const LINK_MODES: [(u32, u64); 23] = [
    (0, 10),
    (1, 10),
    (2, 100),
    (3, 100),
    (4, 1000),
    (5, 1000),
    (12, 10_000),
    (15, 2500),
    (17, 1000),
    (18, 10_000),
    (19, 10_000),
    (20, 10_000),
    (21, 20_000),
    (22, 20_000),
    (23, 40_000),
    (24, 40_000),
    (25, 40_000),
    (26, 40_000),
    (27, 56_000),
    (28, 56_000),
    (29, 56_000),
    (30, 56_000),
    (31, 25_000),
];

/// The names of the interfaces that are listed.
pub(crate) fn names(root: &SystemRoot) -> Vec<String> {
    let is_listed = |name: &String| {
        let home = format!("sys/class/net/{name}");
        is_vlan(name)
            || root.exists(&format!("{home}/device"))
            || root.exists(&format!("{home}/bonding"))
    };
    let names = root.names("sys/class/net").into_iter();
    names.filter(is_listed).take(INTERFACES_MAX).collect()
}

/// A VLAN is recognized by its name, such as `eth0.5`.
fn is_vlan(name: &str) -> bool {
    let number = name.split_once('.').map_or("", |(_, number)| number);
    !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
}

/// The interfaces of a machine.
pub(crate) fn read(root: &SystemRoot, calls: &dyn SystemCalls) -> Vec<IpaInterface> {
    let addresses = calls.addresses();
    names(root)
        .iter()
        .filter_map(|name| interface(root, calls, &addresses, name))
        .collect()
}

fn interface(
    root: &SystemRoot,
    calls: &dyn SystemCalls,
    addresses: &[InterfaceAddress],
    name: &str,
) -> Option<IpaInterface> {
    let home = format!("sys/class/net/{name}");
    let text = |path: &str| root.text(&format!("{home}/{path}"));
    let permanent = calls.permanent_address(name);
    let permanent = permanent.and_then(|bytes| Some(MacAddr(bytes.try_into().ok()?)));
    let mac = permanent.or_else(|| text("address")?.parse().ok())?;
    if mac.0[0] == IGNORED_FIRST_OCTET {
        return None;
    }
    let own = || addresses.iter().filter(|one| one.interface == name);
    let ipv6 = own().find(|one| one.address.is_ipv6());
    let ipv6 = ipv6.map(|one| {
        if one.is_link_local {
            format!("{}%{name}", one.address)
        } else {
            one.address.to_string()
        }
    });
    let modes = calls.link_modes(name).unwrap_or(0);
    let speeds = LINK_MODES
        .iter()
        .filter(|(bit, _)| modes & 1_u32 << bit != 0);
    Some(IpaInterface {
        name: Some(name.to_owned()),
        mac_address: Some(mac),
        ipv4_address: own()
            .find(|one| one.address.is_ipv4())
            .map(|one| one.address.to_string()),
        ipv6_address: ipv6,
        has_carrier: Some(text("carrier").as_deref() == Some("1")),
        vendor: text("device/vendor"),
        product: text("device/device"),
        // The fastest mode, not the speed of now: `capacity` of `lshw`.
        speed_mbps: speeds.map(|(_, speed)| *speed).max(),
        pci_address: root.link_name(&format!("{home}/device")),
        driver: root.link_name(&format!("{home}/device/driver")),
        ..IpaInterface::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{FakeCalls, SystemTree};

    fn card(tree: &SystemTree, name: &str, mac: &str, bus: &str) {
        let device = format!("sys/devices/pci0000:00/{bus}");
        let home = format!("{device}/net/{name}");
        tree.file(&format!("{home}/address"), mac);
        tree.file(&format!("{home}/carrier"), "1\n");
        tree.link(&format!("{home}/device"), &format!("../../../{bus}"));
        tree.file(&format!("{device}/vendor"), "0x8086\n");
        tree.file(&format!("{device}/device"), "0x100e\n");
        tree.link(
            &format!("{device}/driver"),
            "../../../bus/pci/drivers/e1000",
        );
        tree.link(
            &format!("sys/class/net/{name}"),
            &format!("../../../{home}"),
        );
    }

    fn address(interface: &str, address: &str) -> InterfaceAddress {
        InterfaceAddress {
            interface: interface.to_owned(),
            address: address.parse().unwrap(),
            is_link_local: address.starts_with("fe80"),
        }
    }

    #[test]
    fn a_card_has_all_fields() {
        let tree = SystemTree::new();
        card(&tree, "eth0", "52:54:00:aa:bb:01\n", "0000:00:03.0");
        let mut calls = FakeCalls {
            addresses: vec![
                address("lo", "127.0.0.1"),
                address("eth0", "192.0.2.10"),
                address("eth0", "192.0.2.11"),
                address("eth0", "fe80::1"),
                address("eth0", "2001:db8::1"),
            ],
            ..FakeCalls::default()
        };
        calls.link_modes.insert("eth0".to_owned(), 0x2ff);
        let found = read(&tree.root(), &calls);
        assert_eq!(found.len(), 1);
        let card = &found[0];
        assert_eq!(card.name.as_deref(), Some("eth0"));
        assert_eq!(card.mac_address.unwrap().to_string(), "52:54:00:aa:bb:01");
        assert_eq!(card.ipv4_address.as_deref(), Some("192.0.2.10"));
        assert_eq!(card.ipv6_address.as_deref(), Some("fe80::1%eth0"));
        assert_eq!(card.has_carrier, Some(true));
        assert_eq!(card.vendor.as_deref(), Some("0x8086"));
        assert_eq!(card.product.as_deref(), Some("0x100e"));
        assert_eq!(card.speed_mbps, Some(1000));
        assert_eq!(card.pci_address.as_deref(), Some("0000:00:03.0"));
        assert_eq!(card.driver.as_deref(), Some("e1000"));
        assert!(card.lldp.is_null() && card.biosdevname.is_none());
    }

    #[test]
    fn the_permanent_address_comes_first() {
        let tree = SystemTree::new();
        card(&tree, "eth0", "52:54:00:aa:bb:01\n", "0000:00:03.0");
        let mut calls = FakeCalls::default();
        calls
            .permanent
            .insert("eth0".to_owned(), vec![2, 0, 0, 0, 0, 9]);
        let found = read(&tree.root(), &calls);
        assert_eq!(
            found[0].mac_address.unwrap().to_string(),
            "02:00:00:00:00:09"
        );
        assert_eq!(found[0].speed_mbps, None);
    }

    #[test]
    fn addresses_of_software_are_left_out_as_in_the_stock_agent() {
        let tree = SystemTree::new();
        card(&tree, "eth0", "fa:16:3e:00:00:01\n", "0000:00:03.0");
        assert!(read(&tree.root(), &FakeCalls::default()).is_empty());
    }

    #[test]
    fn bonds_and_vlans_are_listed_and_other_virtual_interfaces_are_not() {
        let tree = SystemTree::new();
        for (name, extra) in [
            ("lo", ""),
            ("veth0", ""),
            ("eth0.5", ""),
            ("bond0", "/bonding"),
        ] {
            let home = format!("sys/class/net/{name}");
            tree.file(&format!("{home}/address"), "52:54:00:00:00:02\n");
            tree.directory(&format!("{home}{extra}"));
        }
        let found = read(&tree.root(), &FakeCalls::default());
        let names: Vec<_> = found.iter().filter_map(|one| one.name.as_deref()).collect();
        assert_eq!(names, ["bond0", "eth0.5"]);
        assert_eq!(found[0].has_carrier, Some(false));
        assert!(is_vlan("a.1") && !is_vlan("a.") && !is_vlan("a.x") && !is_vlan("a"));
    }
}
