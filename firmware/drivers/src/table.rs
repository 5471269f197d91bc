//! The table of hardware types.

use trivet_model::interface::{
    BiosInterface, BootInterface, ConsoleInterface, DeployInterface, FirmwareInterface,
    InspectInterface, ManagementInterface, NetworkInterface, PowerInterface, RaidInterface,
    RescueInterface, StorageInterface, VendorInterface,
};

/// Keys of `driver_info`, and the description of each.
type DriverInfoProperties = &'static [(&'static str, &'static str)];

/// The description of one hardware type.
#[derive(Debug)]
pub struct HardwareTypeSpec {
    /// The name that Ironic uses.
    pub name: &'static str,
    /// A person switches the power on request.
    pub(crate) manual: bool,
    pub(crate) interfaces: HardwareInterfaces,
    properties: &'static [DriverInfoProperties],
}

/// The interfaces of a hardware type; of each kind, the first is the default.
#[derive(Debug)]
pub(crate) struct HardwareInterfaces {
    pub(crate) bios: &'static [BiosInterface],
    pub(crate) boot: &'static [BootInterface],
    pub(crate) console: &'static [ConsoleInterface],
    pub(crate) deploy: &'static [DeployInterface],
    pub(crate) firmware: &'static [FirmwareInterface],
    pub(crate) inspect: &'static [InspectInterface],
    pub(crate) management: &'static [ManagementInterface],
    pub(crate) network: &'static [NetworkInterface],
    pub(crate) power: &'static [PowerInterface],
    pub(crate) raid: &'static [RaidInterface],
    pub(crate) rescue: &'static [RescueInterface],
    pub(crate) storage: &'static [StorageInterface],
    pub(crate) vendor: &'static [VendorInterface],
}

impl HardwareTypeSpec {
    /// Keys of `driver_info`, and the description of each.
    pub fn properties(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.properties.iter().flat_map(|part| part.iter().copied())
    }
}

const BOOT: DriverInfoProperties = &[
    (
        "fast_track",
        "Whether the agent stays between two jobs, so that the next one needs no boot. \
         Optional: as the box's settings say.",
    ),
    (
        "agent_legacy_api",
        "Accept agents without token support (no authentication). Optional, false by default.",
    ),
    (
        "agent_require_mtls",
        "Accept only an agent that has a certificate for the token in its BMC. Optional, as \
         agent.require in the settings by default.",
    ),
    (
        "deploy_kernel",
        "Kernel of the agent's ramdisk, as an http or https URL that the box fetches and serves. \
         Optional: the box has its own.",
    ),
    (
        "deploy_kernel_checksum",
        "SHA-256 or SHA-512 digest of deploy_kernel, in hexadecimal digits. Optional: without it \
         the file is not verified.",
    ),
    (
        "deploy_ramdisk",
        "The agent's ramdisk, as an http or https URL that the box fetches and serves. \
         Optional: the box has its own.",
    ),
    (
        "deploy_ramdisk_checksum",
        "SHA-256 or SHA-512 digest of deploy_ramdisk, in hexadecimal digits. Optional: without it \
         the file is not verified.",
    ),
    (
        "rescue_kernel",
        "Kernel of the rescue ramdisk, as an http or https URL. Optional: deploy_kernel, else \
         the box's own.",
    ),
    (
        "rescue_kernel_checksum",
        "SHA-256 or SHA-512 digest of rescue_kernel, in hexadecimal digits. Optional: without it \
         the file is not verified.",
    ),
    (
        "rescue_ramdisk",
        "The rescue ramdisk, as an http or https URL. Optional: deploy_ramdisk, else the box's \
         own.",
    ),
    (
        "rescue_ramdisk_checksum",
        "SHA-256 or SHA-512 digest of rescue_ramdisk, in hexadecimal digits. Optional: without it \
         the file is not verified.",
    ),
    (
        "external_http_url",
        "URL at which the machine reaches this box for images and config drives, such as \
         http://192.0.2.1:8080, where it is behind address translation. Optional: as the box's \
         settings say.",
    ),
    (
        "kernel_append_params",
        "Arguments for the ramdisk's kernel instead of the box's; %default% stands for those. \
         Optional.",
    ),
];

const IPMI: DriverInfoProperties = &[
    ("ipmi_address", "IP address of the BMC. Required."),
    (
        "ipmi_port",
        "UDP port of the BMC. Optional, 623 by default.",
    ),
    ("ipmi_username", "User name. Optional, none by default."),
    ("ipmi_password", "Password. Optional, none by default."),
    (
        "ipmi_priv_level",
        "Privilege level. Optional, ADMINISTRATOR by default.",
    ),
    (
        "ipmi_cipher_suite",
        "RMCP+ cipher suite. Optional, 17 or 3 by default.",
    ),
    (
        "ipmi_allow_cipher_suite_0",
        "True lets ipmi_cipher_suite be 0, which is unprotected. Optional, false by default.",
    ),
    (
        "ipmi_protocol_version",
        "2.0, or 1.5 (with MD5) for a BMC that supports only this. Optional, 2.0 by default.",
    ),
    ("ipmi_hex_kg_key", "Kg key as hexadecimal digits. Optional."),
];

const REDFISH: DriverInfoProperties = &[
    (
        "redfish_address",
        "URL of the Redfish service, such as https://192.0.2.7, or its host. Required.",
    ),
    (
        "redfish_system_id",
        "Path of the system, such as /redfish/v1/Systems/1. Optional where there is one.",
    ),
    ("redfish_username", "User name. Optional."),
    ("redfish_password", "Password. Optional."),
    (
        "redfish_verify_ca",
        "true (hardware.redfish_ca of the box's settings), false (no check), a path on this \
         box or the PEM text of an authority. Optional, true by default.",
    ),
    (
        "redfish_pin",
        "SHA-256 of the BMC's certificate in hexadecimal digits: no other is trusted. Optional.",
    ),
    (
        "redfish_auth_type",
        "basic, session or auto. Optional, auto by default.",
    ),
];

const SSH: DriverInfoProperties = &[
    (
        "ssh_address",
        "IP address or name of the host of the virtual machine. Required.",
    ),
    ("ssh_port", "TCP port of its SSH. Optional, 22 by default."),
    ("ssh_username", "User name on that host. Required."),
    (
        "ssh_key_filename",
        "Path of the private key on this box. This or ssh_key_contents is required.",
    ),
    (
        "ssh_key_contents",
        "The private key itself. This or ssh_key_filename is required.",
    ),
    (
        "ssh_virt_type",
        "How the host runs machines: virsh (libvirt at qemu:///system), or commands, which are \
         given here. Optional, virsh by default.",
    ),
    (
        "ssh_power_on",
        "With commands: the command line on the host that switches the machine on. Required.",
    ),
    (
        "ssh_power_off",
        "With commands: the command line that switches it off. Required.",
    ),
    (
        "ssh_power_status",
        "With commands: the command line that prints on or off as its last word. Required.",
    ),
    (
        "ssh_power_soft_off",
        "With commands: the command line that shuts its system down. Optional.",
    ),
    (
        "ssh_power_reset",
        "With commands: the command line that resets it. Optional, off and on by default.",
    ),
];

const WAKE_ON_LAN: DriverInfoProperties = &[
    (
        "wol_address",
        "With power_interface wake-on-lan: IPv4 address that magic packets are sent to, such as \
         the broadcast address of the network. Optional, 255.255.255.255 by default.",
    ),
    (
        "wol_port",
        "With power_interface wake-on-lan: UDP port of magic packets. Optional, 9 by default.",
    ),
    (
        "ssh_address",
        "With power_interface wake-on-lan: the host that switches the machine off, with the \
         other keys ssh_* of the hardware type ssh. Optional: power-off is refused without it.",
    ),
];

/// Deploy interfaces of machines, in Ironic's order.
const DEPLOY: &[DeployInterface] = &[
    DeployInterface::Autodetect,
    DeployInterface::Direct,
    DeployInterface::Ramdisk,
    DeployInterface::CustomAgent,
];

/// Every hardware type. The interfaces of each are in Ironic's order, so that the defaults are the
/// same; but rescue is on by default, because every agent that this box boots has it.
pub const ALL: [HardwareTypeSpec; 5] = [
    HardwareTypeSpec {
        name: "ipmi",
        manual: false,
        interfaces: HardwareInterfaces {
            bios: &[BiosInterface::NoBios],
            boot: &[BootInterface::Ipxe, BootInterface::Pxe],
            console: &[ConsoleInterface::NoConsole],
            deploy: DEPLOY,
            firmware: &[FirmwareInterface::NoFirmware],
            inspect: &[InspectInterface::Agent, InspectInterface::NoInspect],
            management: &[ManagementInterface::Ipmitool, ManagementInterface::Noop],
            network: &[NetworkInterface::Noop],
            power: &[PowerInterface::Ipmitool],
            raid: &[RaidInterface::NoRaid, RaidInterface::Agent],
            rescue: &[RescueInterface::Agent, RescueInterface::NoRescue],
            storage: &[StorageInterface::Noop],
            vendor: &[VendorInterface::Ipmitool, VendorInterface::NoVendor],
        },
        properties: &[IPMI, BOOT],
    },
    HardwareTypeSpec {
        name: "redfish",
        manual: false,
        interfaces: HardwareInterfaces {
            bios: &[BiosInterface::Redfish, BiosInterface::NoBios],
            boot: &[
                BootInterface::Ipxe,
                BootInterface::Pxe,
                BootInterface::RedfishVirtualMedia,
                BootInterface::RedfishHttps,
            ],
            console: &[ConsoleInterface::NoConsole],
            deploy: DEPLOY,
            firmware: &[FirmwareInterface::Redfish, FirmwareInterface::NoFirmware],
            inspect: &[InspectInterface::Agent, InspectInterface::NoInspect],
            management: &[ManagementInterface::Redfish, ManagementInterface::Noop],
            network: &[NetworkInterface::Noop],
            power: &[PowerInterface::Redfish],
            raid: &[
                RaidInterface::Redfish,
                RaidInterface::NoRaid,
                RaidInterface::Agent,
            ],
            rescue: &[RescueInterface::Agent, RescueInterface::NoRescue],
            storage: &[StorageInterface::Noop],
            vendor: &[VendorInterface::Redfish, VendorInterface::NoVendor],
        },
        properties: &[REDFISH, BOOT],
    },
    HardwareTypeSpec {
        name: "manual-management",
        manual: true,
        interfaces: HardwareInterfaces {
            bios: &[BiosInterface::NoBios],
            boot: &[BootInterface::Ipxe, BootInterface::Pxe],
            console: &[ConsoleInterface::NoConsole],
            deploy: DEPLOY,
            firmware: &[FirmwareInterface::NoFirmware],
            inspect: &[InspectInterface::Agent, InspectInterface::NoInspect],
            management: &[ManagementInterface::Noop],
            network: &[NetworkInterface::Noop],
            power: &[PowerInterface::Fake, PowerInterface::WakeOnLan],
            raid: &[RaidInterface::NoRaid, RaidInterface::Agent],
            rescue: &[RescueInterface::Agent, RescueInterface::NoRescue],
            storage: &[StorageInterface::Noop],
            vendor: &[VendorInterface::NoVendor],
        },
        properties: &[WAKE_ON_LAN, BOOT],
    },
    HardwareTypeSpec {
        name: "ssh",
        manual: false,
        interfaces: HardwareInterfaces {
            bios: &[BiosInterface::NoBios],
            boot: &[BootInterface::Ipxe, BootInterface::Pxe],
            console: &[ConsoleInterface::NoConsole],
            deploy: DEPLOY,
            firmware: &[FirmwareInterface::NoFirmware],
            inspect: &[InspectInterface::Agent, InspectInterface::NoInspect],
            // A virtual machine boots from the network first; the boot script then boots the disk.
            management: &[ManagementInterface::Noop],
            network: &[NetworkInterface::Noop],
            power: &[PowerInterface::Ssh],
            raid: &[RaidInterface::NoRaid, RaidInterface::Agent],
            rescue: &[RescueInterface::Agent, RescueInterface::NoRescue],
            storage: &[StorageInterface::Noop],
            vendor: &[VendorInterface::NoVendor],
        },
        properties: &[SSH, BOOT],
    },
    HardwareTypeSpec {
        name: "fake-hardware",
        manual: false,
        interfaces: HardwareInterfaces {
            bios: &[BiosInterface::Fake, BiosInterface::NoBios],
            boot: &[BootInterface::Fake, BootInterface::Ipxe, BootInterface::Pxe],
            console: &[ConsoleInterface::Fake, ConsoleInterface::NoConsole],
            deploy: &[
                DeployInterface::Fake,
                DeployInterface::Autodetect,
                DeployInterface::Direct,
                DeployInterface::Ramdisk,
                DeployInterface::CustomAgent,
            ],
            firmware: &[FirmwareInterface::Fake, FirmwareInterface::NoFirmware],
            inspect: &[
                InspectInterface::Fake,
                InspectInterface::Agent,
                InspectInterface::NoInspect,
            ],
            management: &[ManagementInterface::Fake, ManagementInterface::Noop],
            network: &[NetworkInterface::Noop],
            power: &[PowerInterface::Fake],
            raid: &[
                RaidInterface::Fake,
                RaidInterface::NoRaid,
                RaidInterface::Agent,
            ],
            rescue: &[
                RescueInterface::Fake,
                RescueInterface::Agent,
                RescueInterface::NoRescue,
            ],
            storage: &[StorageInterface::Noop],
            vendor: &[VendorInterface::Fake, VendorInterface::NoVendor],
        },
        properties: &[],
    },
];
