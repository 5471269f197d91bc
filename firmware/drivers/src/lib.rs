//! Hardware types: which interfaces each has, what it wants in `driver_info`, and
//! what it can do.
//!
//! Pure tables and the questions asked of them. A node says its hardware type and
//! may choose an interface of each kind; [`interface`] is the one it has. Everything
//! that differs between machines is decided by interface, never by hardware type, so
//! that a rehearsal may mix (`power_interface` `fake`, `deploy_interface` `direct`).
//! Names are Ironic's. Only what is really done, or kept without harm, is listed.

mod check;
mod kind;
mod misspelt;
mod payload;
mod steps;
mod table;

pub use check::{SSH_PORT, check, fast_track, number};
pub use kind::InterfaceKind;
pub use misspelt::suggested_key;
pub use payload::{
    BOOT_TEXT_BYTES_MAX, BootFileSource, NetbootPayload, agent_args, agent_credentials,
    agent_files, boot_file_digest, payload,
};
pub use steps::{ReservedStep, cannot_run, fake_steps, has_invalid_wait, reserved};
pub use table::{ALL, HardwareTypeSpec};

use serde_json::Value;
use trivet_model::node::JsonObject;
use trivet_model::{BootDevice, Node};

/// Interfaces by kind.
type InterfaceChoices = &'static [(InterfaceKind, &'static str)];

/// Names of the seed era: what each means today, and the interfaces it chose.
const ALIASES: [(&str, &str, InterfaceChoices); 4] = [
    ("agent_ipmitool", "ipmi", &[]),
    ("agent_pyghmi", "ipmi", &[]),
    ("agent_ssh", "ssh", &[]),
    (
        "fake_agent",
        "fake-hardware",
        &[
            (InterfaceKind::Boot, "ipxe"),
            (InterfaceKind::Deploy, "direct"),
            (InterfaceKind::Inspect, "agent"),
            (InterfaceKind::Rescue, "agent"),
        ],
    ),
];

/// The hardware type of this name, or that an older name stands for.
pub fn named(name: &str) -> Option<&'static HardwareTypeSpec> {
    let name = ALIASES
        .iter()
        .find(|(alias, _, _)| *alias == name)
        .map_or(name, |(_, today, _)| *today);
    ALL.iter().find(|hardware| hardware.name == name)
}

/// Puts today's name in place of an older one, with the interfaces that it chose,
/// where the operator did not choose. The older name is not kept.
pub fn adopt_alias(node: &mut Node) {
    let alias = ALIASES.iter().find(|(alias, _, _)| *alias == node.driver);
    let Some((_, today, interfaces)) = alias else {
        return;
    };
    (*today).clone_into(&mut node.driver);
    for (kind, name) in *interfaces {
        let field = kind.field().to_owned();
        node.kept.entry(field).or_insert_with(|| Value::from(*name));
    }
}

/// The interface of this kind that a node has: the chosen one, else its hardware
/// type's default. Empty for a hardware type that nobody knows.
pub fn interface(node: &Node, kind: InterfaceKind) -> &'static str {
    let enabled = named(&node.driver).map_or(&[][..], |hardware| hardware.interfaces(kind));
    let chosen = node.kept.get(kind.field()).and_then(Value::as_str);
    let chosen = chosen.and_then(|chosen| enabled.iter().find(|name| **name == chosen));
    chosen.or(enabled.first()).copied().unwrap_or_default()
}

/// What a node may be able to do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum HardwareCapability {
    /// Shut its system down softly.
    SoftPower,
    /// Take a non-maskable interrupt.
    Nmi,
    /// Keep a RAID configuration.
    Raid,
    /// Show a console.
    Console,
    /// Take virtual media.
    VirtualMedia,
    /// Switch between UEFI and BIOS.
    BootMode,
    /// Switch secure boot.
    SecureBoot,
    /// Keep BIOS settings.
    Bios,
    /// Light its lights.
    Indicators,
}

/// Whether a node can do this, by its interfaces.
pub fn can(node: &Node, ability: HardwareCapability) -> bool {
    let has = |kind, names: &[&str]| names.contains(&interface(node, kind));
    match ability {
        HardwareCapability::SoftPower => has(
            InterfaceKind::Power,
            &["ipmitool", "redfish", "fake", "ssh"],
        ),
        HardwareCapability::Raid => has(InterfaceKind::Raid, &["fake", "agent"]),
        HardwareCapability::Console => has(InterfaceKind::Console, &["fake"]),
        HardwareCapability::Bios => has(InterfaceKind::Bios, &["fake"]),
        HardwareCapability::Nmi => has(InterfaceKind::Management, &["ipmitool", "redfish"]),
        HardwareCapability::BootMode
        | HardwareCapability::SecureBoot
        | HardwareCapability::VirtualMedia => has(InterfaceKind::Management, &["fake", "redfish"]),
        HardwareCapability::Indicators => {
            has(InterfaceKind::Management, &["fake", "ipmitool", "redfish"])
        }
    }
}

/// Whether what manages a node is pretended: its record is all there is.
pub fn is_fake(node: &Node) -> bool {
    interface(node, InterfaceKind::Management) == "fake"
}

/// The boot devices a node can be told, by its management interface.
pub fn boot_devices(node: &Node) -> &'static [BootDevice] {
    match interface(node, InterfaceKind::Management) {
        "ipmitool" => BootDevice::ALL,
        "redfish" => &[
            BootDevice::Pxe,
            BootDevice::Disk,
            BootDevice::Cdrom,
            BootDevice::Bios,
        ],
        "fake" => &[BootDevice::Pxe],
        _ => &[],
    }
}

/// A person is this node's service processor: power orders are taken at once, and
/// somebody must be told what to do.
pub fn is_manual(node: &Node) -> bool {
    named(&node.driver).is_some_and(|hardware| hardware.manual)
}

/// The deploy interface that writes no disk: the machine boots what the operator named
/// from the network, each time.
pub const RAMDISK: &str = "ramdisk";

/// Whether a node's instance boots from the network instead of its disk.
pub fn netboots_instance(node: &Node) -> bool {
    interface(node, InterfaceKind::Deploy) == RAMDISK
}

/// How the machine starts, `uefi` or `bios`, if anybody said: what the instance wants, else
/// what stands in the node's capabilities, else what its BMC was asked for last.
pub fn boot_mode(node: &Node) -> Option<&'static str> {
    let known = |word: &str| ["uefi", "bios"].into_iter().find(|mode| *mode == word);
    boot_modes(node).find_map(known)
}

/// All that is said of it, what counts most first.
fn boot_modes(node: &Node) -> impl Iterator<Item = &str> {
    let told = [
        capability(&node.instance_info, "boot_mode"),
        text(&node.instance_info, "deploy_boot_mode"),
        capability(&node.properties, "boot_mode"),
        text(&node.kept, "boot_mode"),
    ];
    told.into_iter().flatten()
}

fn text<'a>(object: &'a JsonObject, key: &str) -> Option<&'a str> {
    object.get(key)?.as_str()
}

/// One of `capabilities`, which are `key:value,key:value` or an object.
fn capability<'a>(object: &'a JsonObject, key: &str) -> Option<&'a str> {
    match object.get("capabilities")? {
        Value::String(pairs) => pairs.split(',').find_map(|pair| {
            let (name, value) = pair.trim().split_once(':')?;
            (name == key).then_some(value)
        }),
        Value::Object(object) => text(object, key),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
