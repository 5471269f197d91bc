//! Hardware types: which interfaces each has, what it needs in `driver_info`, and what it can do.
//!
//! Only tables and functions on them. A node's record names its hardware type and may select an
//! interface of each kind; [`interface`] returns the one in effect. Everything that differs between
//! machines is decided by interface, never by hardware type, so that a simulation can mix them
//! (`power_interface` `fake`, `deploy_interface` `direct`). Names are Ironic's. An interface is
//! listed only if it is implemented, or if storing its settings does no harm.

mod bmc_address;
mod check;
mod kind;
mod misspelt;
mod payload;
mod steps;
mod table;

pub use bmc_address::{bmc_addresses, bmc_keys};
pub use check::{SSH_PORT, check, external_http_url, fast_track, number};
pub use kind::InterfaceKind;
pub use misspelt::suggested_key;
pub use payload::{
    BOOT_TEXT_BYTES_MAX, BootFileSource, NetbootPayload, agent_args, agent_credentials,
    agent_files, boot_file_digest, payload,
};
pub use steps::{ReservedStep, cannot_run, fake_steps, has_invalid_wait, reserved};
pub use table::{ALL, HardwareTypeSpec};

use serde_json::Value;
use trivet_model::bmc_request::BootMode;
use trivet_model::interface::{
    BiosInterface, BootInterface, ConsoleInterface, DeployInterface, FirmwareInterface,
    InspectInterface, ManagementInterface, NetworkInterface, PowerInterface, RaidInterface,
    RescueInterface, StorageInterface, VendorInterface,
};
use trivet_model::node::JsonObject;
use trivet_model::{BootDevice, Node, NoteKind, PowerState};

use table::HardwareInterfaces;

/// Driver names of Ironic's first releases, and the present hardware type of each.
const ALIASES: [(&str, &str); 4] = [
    ("agent_ipmitool", "ipmi"),
    ("agent_pyghmi", "ipmi"),
    ("agent_ssh", "ssh"),
    (REAL_AGENT, "fake-hardware"),
];

/// The driver of fake hardware that boots a real agent.
const REAL_AGENT: &str = "fake_agent";

/// The hardware type with this name, or with this older name.
pub fn named(name: &str) -> Option<&'static HardwareTypeSpec> {
    let name = ALIASES
        .iter()
        .find(|(alias, _)| *alias == name)
        .map_or(name, |(_, today)| *today);
    ALL.iter().find(|hardware| hardware.name == name)
}

/// Replaces an older driver name by the present one, and sets the interfaces that it selects where
/// the operator selected none. The older name is not stored.
pub fn adopt_alias(node: &mut Node) {
    let alias = ALIASES.iter().find(|(alias, _)| *alias == node.driver);
    let Some((alias, today)) = alias else {
        return;
    };
    (*today).clone_into(&mut node.driver);
    if *alias == REAL_AGENT {
        let chosen = &mut node.attributes.interfaces;
        chosen.boot.get_or_insert(BootInterface::Ipxe);
        chosen.deploy.get_or_insert(DeployInterface::Direct);
        chosen.inspect.get_or_insert(InspectInterface::Agent);
        chosen.rescue.get_or_insert(RescueInterface::Agent);
    }
}

/// The interface in effect: the selected one if the hardware type has it, else its default. None
/// for an unknown hardware type.
fn in_effect<T: Copy + PartialEq + 'static>(
    node: &Node,
    chosen: Option<T>,
    enabled: impl Fn(&'static HardwareInterfaces) -> &'static [T],
) -> Option<T> {
    let enabled = enabled(&named(&node.driver)?.interfaces);
    let chosen = chosen.filter(|chosen| enabled.contains(chosen));
    chosen.or(enabled.first().copied())
}

/// Makes one function for each kind of interface, and those that take the kind as a value.
macro_rules! interfaces_by_kind {
    ($($kind:ident: $field:ident, $function:ident -> $interface:ident;)+) => {
        $(
            #[doc = concat!("The ", stringify!($field), " interface in effect: the selected one,")]
            /// else the default of the hardware type. None for an unknown hardware type.
            pub fn $function(node: &Node) -> Option<$interface> {
                let chosen = node.attributes.interfaces.$field;
                in_effect(node, chosen, |enabled| enabled.$field)
            }
        )+

        /// The name of the interface of this kind that is in effect. Empty for an unknown
        /// hardware type.
        pub fn interface(node: &Node, kind: InterfaceKind) -> &'static str {
            match kind {
                $(InterfaceKind::$kind => $function(node).map_or("", $interface::as_str),)+
            }
        }

        impl HardwareTypeSpec {
            /// Names of the interfaces of a kind, default first.
            pub fn interfaces(&self, kind: InterfaceKind) -> Vec<&'static str> {
                match kind {
                    $(InterfaceKind::$kind => {
                        let enabled = self.interfaces.$field.iter();
                        enabled.map(|one| one.as_str()).collect()
                    })+
                }
            }
        }
    };
}

interfaces_by_kind! {
    Bios: bios, bios_interface -> BiosInterface;
    Boot: boot, boot_interface -> BootInterface;
    Console: console, console_interface -> ConsoleInterface;
    Deploy: deploy, deploy_interface -> DeployInterface;
    Firmware: firmware, firmware_interface -> FirmwareInterface;
    Inspect: inspect, inspect_interface -> InspectInterface;
    Management: management, management_interface -> ManagementInterface;
    Network: network, network_interface -> NetworkInterface;
    Power: power, power_interface -> PowerInterface;
    Raid: raid, raid_interface -> RaidInterface;
    Rescue: rescue, rescue_interface -> RescueInterface;
    Storage: storage, storage_interface -> StorageInterface;
    Vendor: vendor, vendor_interface -> VendorInterface;
}

/// Whether the interface of this kind is one of those that do nothing, such as `no-rescue`.
pub fn is_off(node: &Node, kind: InterfaceKind) -> bool {
    interface(node, kind).starts_with("no-")
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
    use ManagementInterface as Management;
    let management = management_interface(node);
    let manages = |by: &[Management]| management.is_some_and(|one| by.contains(&one));
    match ability {
        HardwareCapability::SoftPower => matches!(
            power_interface(node),
            Some(
                PowerInterface::Ipmitool
                    | PowerInterface::Redfish
                    | PowerInterface::Fake
                    | PowerInterface::Ssh
            )
        ),
        HardwareCapability::Raid => matches!(
            raid_interface(node),
            Some(RaidInterface::Fake | RaidInterface::Agent)
        ),
        HardwareCapability::Console => console_interface(node) == Some(ConsoleInterface::Fake),
        HardwareCapability::Bios => bios_interface(node) == Some(BiosInterface::Fake),
        HardwareCapability::Nmi => manages(&[Management::Ipmitool, Management::Redfish]),
        HardwareCapability::BootMode
        | HardwareCapability::SecureBoot
        | HardwareCapability::VirtualMedia => manages(&[Management::Fake, Management::Redfish]),
        HardwareCapability::Indicators => {
            manages(&[Management::Fake, Management::Ipmitool, Management::Redfish])
        }
    }
}

/// Whether the node's management interface is simulated: requests change only the record.
pub fn is_fake(node: &Node) -> bool {
    management_interface(node) == Some(ManagementInterface::Fake)
}

/// The boot devices that a node can be set to, by its management interface.
pub fn boot_devices(node: &Node) -> &'static [BootDevice] {
    match management_interface(node) {
        Some(ManagementInterface::Ipmitool) => BootDevice::ALL,
        Some(ManagementInterface::Redfish) => &[
            BootDevice::Pxe,
            BootDevice::Disk,
            BootDevice::Cdrom,
            BootDevice::Bios,
        ],
        Some(ManagementInterface::Fake) => &[BootDevice::Pxe],
        Some(ManagementInterface::Noop) | None => &[],
    }
}

/// Whether the node has no BMC and a person switches its power: a power request succeeds at once,
/// and the operator must be shown what to do.
pub fn is_manual(node: &Node) -> bool {
    named(&node.driver).is_some_and(|hardware| hardware.manual)
}

/// The note about a new power state: hardware without a reply only makes it likely.
pub fn power_note(node: &Node, state: PowerState) -> NoteKind {
    match power_interface(node) {
        Some(PowerInterface::WakeOnLan) => NoteKind::PowerAssumed(state),
        Some(PowerInterface::Fake) if is_manual(node) => NoteKind::PowerAssumed(state),
        _ => NoteKind::PowerIs(state),
    }
}

/// A medium of the BMC that a machine boots from, instead of the network boot of its firmware.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BootMedium {
    /// An ISO image in a virtual CD drive.
    VirtualCd,
    /// An ISO image at a URL that the firmware loads (UEFI HTTP boot).
    FirmwareUrl,
}

/// The medium that the node's boot interface uses. None if its machine boots from the network.
pub fn boot_medium(node: &Node) -> Option<BootMedium> {
    match boot_interface(node)? {
        BootInterface::RedfishVirtualMedia => Some(BootMedium::VirtualCd),
        BootInterface::RedfishHttps => Some(BootMedium::FirmwareUrl),
        BootInterface::Ipxe | BootInterface::Pxe | BootInterface::Fake => None,
    }
}

/// How an instance is deployed: the deploy interface in effect, where `autodetect` is replaced by
/// what it selects. None for an unknown hardware type.
pub fn deploy_method(node: &Node) -> Option<DeployInterface> {
    match deploy_interface(node)? {
        DeployInterface::Autodetect if payload::is_ramdisk_deploy(&node.instance_info) => {
            Some(DeployInterface::Ramdisk)
        }
        DeployInterface::Autodetect => Some(DeployInterface::Direct),
        other => Some(other),
    }
}

/// Whether a node's instance boots from the network instead of its disk.
pub fn netboots_instance(node: &Node) -> bool {
    deploy_method(node) == Some(DeployInterface::Ramdisk)
}

/// How the machine boots, `uefi` or `bios`, if it is set: by the instance, else by the node's
/// capabilities, else by the last request to the BMC.
pub fn boot_mode(node: &Node) -> Option<&'static str> {
    let known = |word: &str| ["uefi", "bios"].into_iter().find(|mode| *mode == word);
    boot_modes(node).find_map(known)
}

/// All boot modes that the record has, by descending precedence.
fn boot_modes(node: &Node) -> impl Iterator<Item = &str> {
    let reported = [
        capability(&node.instance_info, "boot_mode"),
        text(&node.instance_info, "deploy_boot_mode"),
        capability(&node.properties, "boot_mode"),
        node.attributes.boot_mode.map(BootMode::as_str),
    ];
    reported.into_iter().flatten()
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
