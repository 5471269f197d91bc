//! Hardware types: which interfaces each has, what it needs in `driver_info`, and what it can do.
//!
//! Only tables and functions on them. A node's record names its hardware type and may select an
//! interface of each kind; [`interface`] returns the one in effect. Everything that differs between
//! machines is decided by interface, never by hardware type, so that a simulation can mix them
//! (`power_interface` `fake`, `deploy_interface` `direct`). Names are Ironic's. An interface is
//! listed only if it is implemented, or if storing its settings does no harm.

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

/// Driver names of Ironic's first releases: the present hardware type of each, and the interfaces
/// that it selects.
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

/// The hardware type with this name, or with this older name.
pub fn named(name: &str) -> Option<&'static HardwareTypeSpec> {
    let name = ALIASES
        .iter()
        .find(|(alias, _, _)| *alias == name)
        .map_or(name, |(_, today, _)| *today);
    ALL.iter().find(|hardware| hardware.name == name)
}

/// Replaces an older driver name by the present one, and sets the interfaces that it selects where
/// the operator selected none. The older name is not stored.
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

/// The interface of this kind that a node has: the selected one, else the default of its hardware
/// type. Empty for an unknown hardware type.
pub fn interface(node: &Node, kind: InterfaceKind) -> &'static str {
    let enabled = named(&node.driver).map_or(&[][..], |hardware| hardware.interfaces(kind));
    let chosen = node.kept.get(kind.field()).and_then(Value::as_str);
    let chosen = chosen.and_then(|chosen| enabled.iter().find(|name| **name == chosen));
    chosen.or(enabled.first()).copied().unwrap_or_default()
}

/// A capability of a node that depends on its interfaces.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum HardwareCapability {
    /// Soft power off: the operating system shuts down.
    SoftPower,
    /// Non-maskable interrupt (NMI).
    Nmi,
    /// A RAID configuration.
    Raid,
    /// A console.
    Console,
    /// Virtual media.
    VirtualMedia,
    /// A change between UEFI and BIOS.
    BootMode,
    /// A change of Secure Boot.
    SecureBoot,
    /// BIOS settings.
    Bios,
    /// Indicator LEDs.
    Indicators,
}

/// Whether a node has this capability, by its interfaces.
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

/// Whether the node's management interface is simulated: requests change only the record.
pub fn is_fake(node: &Node) -> bool {
    interface(node, InterfaceKind::Management) == "fake"
}

/// The boot devices that a node can be set to, by its management interface.
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

/// Whether the node has no BMC and a person switches its power: a power request succeeds at once,
/// and the operator must be shown what to do.
pub fn is_manual(node: &Node) -> bool {
    named(&node.driver).is_some_and(|hardware| hardware.manual)
}

/// The deploy interface that writes no disk: the machine boots the operator's files from the
/// network, at each boot.
pub const RAMDISK: &str = "ramdisk";

/// Whether a node's instance boots from the network instead of its disk.
pub fn netboots_instance(node: &Node) -> bool {
    interface(node, InterfaceKind::Deploy) == RAMDISK
}

/// How the machine boots, `uefi` or `bios`, if it is set: by the instance, else by the node's
/// capabilities, else by the last request to the BMC.
pub fn boot_mode(node: &Node) -> Option<&'static str> {
    let known = |word: &str| ["uefi", "bios"].into_iter().find(|mode| *mode == word);
    boot_modes(node).find_map(known)
}

/// All boot modes that the record has, by descending precedence.
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

/// One entry of `capabilities`, which are `key:value,key:value` or an object.
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
