//! What a machine loads when it boots from the network.

use core::net::Ipv4Addr;

use crate::{LinkId, MacAddr};

/// What a machine boots when it boots from the network.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum BootPlan {
    /// The agent's ramdisk.
    Agent {
        /// Its files, and the additions to its kernel command line.
        files: KernelBoot,
        /// The URL of the API, without a slash at the end.
        api_url: String,
        /// The agent is to send inspection data.
        inspect: bool,
    },
    /// A kernel and a ramdisk of the operator's choice, such as an installer's.
    Kernel(KernelBoot),
    /// The image of a disk or a CD, read over the network.
    Iso {
        /// Its URL.
        url: String,
    },
    /// Its own disk, or the next boot device of its firmware.
    Disk,
    /// Its job has not decided yet: wait and repeat the request.
    Wait,
}

/// A kernel with its ramdisk.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct KernelBoot {
    /// The URL of the kernel.
    pub kernel: String,
    /// The URL of the ramdisk.
    pub ramdisk: String,
    /// Kernel arguments; may be empty.
    pub args: String,
}

impl BootPlan {
    /// Whether the machine loads its system from the network.
    pub fn is_net(&self) -> bool {
        match self {
            Self::Agent { .. } | Self::Kernel(_) | Self::Iso { .. } => true,
            Self::Disk | Self::Wait => false,
        }
    }

    /// The last and largest file of the boot, where it is one that is loaded completely.
    pub fn last_file(&self) -> Option<&str> {
        match self {
            Self::Agent { files, .. } | Self::Kernel(files) => Some(&files.ramdisk),
            Self::Iso { .. } | Self::Disk | Self::Wait => None,
        }
    }
}

/// A DHCP client and how its firmware described itself.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ClientSeen {
    /// Its hardware address.
    pub mac: MacAddr,
    /// The link that received it.
    pub link: LinkId,
    /// DHCP option 93, first entry.
    pub arch: Option<u16>,
    /// DHCP option 97, as a UUID in text order.
    pub uuid: Option<[u8; 16]>,
    /// It is iPXE (option 175 or user class).
    pub ipxe: bool,
    /// DHCP option 60, as far as it is text.
    pub vendor_class: Option<String>,
    /// The address it was leased, if any.
    pub address: Option<Ipv4Addr>,
}
