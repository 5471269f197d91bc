//! Facts of this machine.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

/// Whether the kernel has found a disk.
pub(super) fn has_disk() -> bool {
    let entries = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    entries
        .into_iter()
        .any(|entry| entry.path().join("device").exists())
}

/// The inventory.
pub(super) fn inventory(boot_interface: Option<&str>) -> Value {
    let mode = if Path::new("/sys/firmware/efi").exists() {
        "uefi"
    } else {
        "bios"
    };
    let interfaces = trivet_board_linux::interfaces().unwrap_or_default();
    let interfaces: Vec<Value> = interfaces
        .iter()
        .map(|link| {
            let mac = trivet_model::MacAddr(link.mac).to_string();
            let address = link.addresses.first().map(ToString::to_string);
            json!({"name": link.name, "mac_address": mac, "ipv4_address": address,
                   "has_carrier": true, "lldp": null})
        })
        .collect();
    json!({
        "interfaces": interfaces,
        "disks": [],
        "cpu": {"count": 1, "architecture": std::env::consts::ARCH},
        "memory": {},
        "boot": {"current_boot_mode": mode, "pxe_interface": boot_interface},
    })
}
