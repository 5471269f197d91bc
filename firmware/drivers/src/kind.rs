//! The kinds of interfaces.

/// One kind of interface of a node, in Ironic's words.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum InterfaceKind {
    /// BIOS settings.
    Bios,
    /// How the node boots the ramdisk.
    Boot,
    /// Serial or graphical console.
    Console,
    /// How an instance is written to the node.
    Deploy,
    /// Firmware of its components.
    Firmware,
    /// How the node's hardware is inspected.
    Inspect,
    /// Boot device, boot mode, sensors.
    Management,
    /// The networks of its ports.
    Network,
    /// Power control.
    Power,
    /// RAID configuration.
    Raid,
    /// How a rescue ramdisk is started on the node.
    Rescue,
    /// Remote volumes.
    Storage,
    /// Vendor-specific methods.
    Vendor,
}

/// Name, field of the node, and the minor microversion in which the field appeared.
const FACTS: [(&str, &str, u16); 13] = [
    ("bios", "bios_interface", 40),
    ("boot", "boot_interface", 31),
    ("console", "console_interface", 31),
    ("deploy", "deploy_interface", 31),
    ("firmware", "firmware_interface", 86),
    ("inspect", "inspect_interface", 31),
    ("management", "management_interface", 31),
    ("network", "network_interface", 20),
    ("power", "power_interface", 31),
    ("raid", "raid_interface", 31),
    ("rescue", "rescue_interface", 38),
    ("storage", "storage_interface", 33),
    ("vendor", "vendor_interface", 31),
];

impl InterfaceKind {
    /// Every kind, sorted by name.
    pub const ALL: [Self; 13] = [
        Self::Bios,
        Self::Boot,
        Self::Console,
        Self::Deploy,
        Self::Firmware,
        Self::Inspect,
        Self::Management,
        Self::Network,
        Self::Power,
        Self::Raid,
        Self::Rescue,
        Self::Storage,
        Self::Vendor,
    ];

    /// The name that Ironic uses.
    pub const fn as_str(self) -> &'static str {
        FACTS[self as usize].0
    }

    /// The field of the node that selects it, such as `power_interface`.
    pub const fn field(self) -> &'static str {
        FACTS[self as usize].1
    }

    /// The minor microversion in which that field appeared.
    pub const fn since(self) -> u16 {
        FACTS[self as usize].2
    }

    /// The kind with this name or this field name.
    pub fn named(name: &str) -> Option<Self> {
        let at = |kind: &Self| name == kind.as_str() || name == kind.field();
        Self::ALL.into_iter().find(at)
    }
}
