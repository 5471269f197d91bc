//! The hardware interfaces of a node, by kind, with Ironic's names.
//!
//! A name outside these sets cannot be stored. Which of them a hardware type has, and which one
//! is in effect, is decided by `firmware/drivers`.

use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::words;

words! {
    /// BIOS settings.
    BiosInterface {
        /// No BIOS settings.
        NoBios = "no-bios",
        /// By the Redfish service.
        Redfish = "redfish",
        /// Simulated.
        Fake = "fake",
    }
}

words! {
    /// How the node boots the ramdisk.
    BootInterface {
        /// By iPXE over HTTP.
        Ipxe = "ipxe",
        /// By a boot loader over TFTP.
        Pxe = "pxe",
        /// From an ISO image that the BMC inserts as a virtual CD.
        RedfishVirtualMedia = "redfish-virtual-media",
        /// From a URL that the BMC gives to the firmware (UEFI HTTP boot).
        RedfishHttps = "redfish-https",
        /// Simulated.
        Fake = "fake",
    }
}

words! {
    /// Serial or graphical console.
    ConsoleInterface {
        /// No console.
        NoConsole = "no-console",
        /// Simulated.
        Fake = "fake",
    }
}

words! {
    /// How an instance is written to the node.
    DeployInterface {
        /// The agent writes the image to a disk.
        Direct = "direct",
        /// Nothing is written: the instance boots from the network at each boot.
        Ramdisk = "ramdisk",
        /// The agent runs the deploy steps of the operator and no others: they write the instance.
        CustomAgent = "custom-agent",
        /// `ramdisk` if the instance says so, else `direct`.
        Autodetect = "autodetect",
        /// Simulated.
        Fake = "fake",
    }
}

words! {
    /// Firmware of the components of a node.
    FirmwareInterface {
        /// No firmware updates.
        NoFirmware = "no-firmware",
        /// By the Redfish service.
        Redfish = "redfish",
        /// Simulated.
        Fake = "fake",
    }
}

words! {
    /// How the node's hardware is inspected.
    InspectInterface {
        /// By the agent.
        Agent = "agent",
        /// Not at all.
        NoInspect = "no-inspect",
        /// Simulated.
        Fake = "fake",
    }
}

words! {
    /// Boot device, boot mode, sensors.
    ManagementInterface {
        /// By IPMI.
        Ipmitool = "ipmitool",
        /// By the Redfish service.
        Redfish = "redfish",
        /// No management.
        Noop = "noop",
        /// Simulated.
        Fake = "fake",
    }
}

words! {
    /// The networks of the node's ports.
    NetworkInterface {
        /// Networks are not changed.
        Noop = "noop",
    }
}

words! {
    /// Power control.
    PowerInterface {
        /// By IPMI.
        Ipmitool = "ipmitool",
        /// By the Redfish service.
        Redfish = "redfish",
        /// By commands on the host of a virtual machine.
        Ssh = "ssh",
        /// Simulated, or by a person.
        Fake = "fake",
        /// On by a magic packet, off through the agent or SSH.
        WakeOnLan = "wake-on-lan",
    }
}

words! {
    /// RAID configuration.
    RaidInterface {
        /// No RAID.
        NoRaid = "no-raid",
        /// By the agent.
        Agent = "agent",
        /// By the Redfish service.
        Redfish = "redfish",
        /// Simulated.
        Fake = "fake",
    }
}

words! {
    /// How a rescue ramdisk is started on the node.
    RescueInterface {
        /// By the agent.
        Agent = "agent",
        /// Not at all.
        NoRescue = "no-rescue",
        /// Simulated.
        Fake = "fake",
    }
}

words! {
    /// Remote volumes.
    StorageInterface {
        /// No remote volumes.
        Noop = "noop",
    }
}

words! {
    /// Vendor-specific methods.
    VendorInterface {
        /// By IPMI.
        Ipmitool = "ipmitool",
        /// By the Redfish service.
        Redfish = "redfish",
        /// None.
        NoVendor = "no-vendor",
        /// Simulated.
        Fake = "fake",
    }
}

/// The interfaces that the operator selected; none means the default of the hardware type.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct NodeInterfaces {
    /// BIOS settings.
    pub bios: Option<BiosInterface>,
    /// How the node boots the ramdisk.
    pub boot: Option<BootInterface>,
    /// Console.
    pub console: Option<ConsoleInterface>,
    /// How an instance is written.
    pub deploy: Option<DeployInterface>,
    /// Firmware of components.
    pub firmware: Option<FirmwareInterface>,
    /// Inspection.
    pub inspect: Option<InspectInterface>,
    /// Boot device, boot mode, sensors.
    pub management: Option<ManagementInterface>,
    /// Networks of the ports.
    pub network: Option<NetworkInterface>,
    /// Power control.
    pub power: Option<PowerInterface>,
    /// RAID configuration.
    pub raid: Option<RaidInterface>,
    /// Rescue ramdisk.
    pub rescue: Option<RescueInterface>,
    /// Remote volumes.
    pub storage: Option<StorageInterface>,
    /// Vendor-specific methods.
    pub vendor: Option<VendorInterface>,
}
