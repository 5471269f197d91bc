//! The collector `pci-devices`.

use serde_json::{Value, json};

use crate::SystemRoot;

/// Most devices that are listed. Ours.
const DEVICES_MAX: usize = 8192;

/// All PCI devices, by address. Numbers are hexadecimal digits without a prefix.
pub(crate) fn document(root: &SystemRoot) -> Value {
    let addresses = root.names("sys/bus/pci/devices");
    let devices = addresses.iter().take(DEVICES_MAX);
    devices
        .filter_map(|address| device(root, address))
        .collect()
}

fn device(root: &SystemRoot, address: &str) -> Option<Value> {
    let home = format!("sys/bus/pci/devices/{address}");
    let digits = |name: &str| {
        let text = root.text(&format!("{home}/{name}"))?;
        Some(text.strip_prefix("0x")?.to_owned())
    };
    Some(json!({
        "vendor_id": digits("vendor")?,
        "product_id": digits("device")?,
        "class": digits("class")?,
        "revision": digits("revision"),
        "bus": address,
        "numa_node_id": root.text(&format!("{home}/numa_node")),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::SystemTree;

    #[test]
    fn devices_are_listed_without_prefixes_and_incomplete_ones_left_out() {
        let tree = SystemTree::new();
        let home = "sys/bus/pci/devices/0000:00:01.0";
        for (name, text) in [
            ("vendor", "0x1af4\n"),
            ("device", "0x1045\n"),
            ("class", "0xffff00\n"),
            ("revision", "0x01\n"),
            ("numa_node", "-1\n"),
        ] {
            tree.file(&format!("{home}/{name}"), text);
        }
        tree.file("sys/bus/pci/devices/0000:00:02.0/vendor", "0x1af4\n");
        let want = json!([{"vendor_id": "1af4", "product_id": "1045", "class": "ffff00",
            "revision": "01", "bus": "0000:00:01.0", "numa_node_id": "-1"}]);
        assert_eq!(document(&tree.root()), want);
        assert_eq!(document(&SystemTree::new().root()), json!([]));
    }
}
