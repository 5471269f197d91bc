//! What a machine gets when it boots from the network.

use core::net::Ipv4Addr;

use crate::{LinkId, MacAddr};

/// What a machine boots into when it boots from the network.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum BootPlan {
    /// The agent's ramdisk.
    Agent {
        /// Its files, and what is added to its kernel line.
        files: KernelBoot,
        /// Where the API is served, without a slash at the end.
        api_url: String,
        /// The agent is to send what it finds.
        inspect: bool,
    },
    /// A kernel and a ramdisk of the operator's choice, such as an installer's.
    Kernel(KernelBoot),
    /// The image of a disk or a CD, read over the network.
    Iso {
        /// Where it is.
        url: String,
    },
    /// Its own disk, or whatever its firmware tries next.
    Disk,
    /// Its job has not decided yet: wait and ask again.
    Wait,
}

/// A kernel with its ramdisk.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct KernelBoot {
    /// Where the kernel is.
    pub kernel: String,
    /// Where the ramdisk is.
    pub ramdisk: String,
    /// Words for the kernel line; may be empty.
    pub args: String,
}

impl BootPlan {
    /// Whether the machine loads what it runs from the network.
    pub fn is_net(&self) -> bool {
        match self {
            Self::Agent { .. } | Self::Kernel(_) | Self::Iso { .. } => true,
            Self::Disk | Self::Wait => false,
        }
    }

    /// The last and largest file of the boot, where it is one that is loaded whole.
    pub fn last_file(&self) -> Option<&str> {
        match self {
            Self::Agent { files, .. } | Self::Kernel(files) => Some(&files.ramdisk),
            Self::Iso { .. } | Self::Disk | Self::Wait => None,
        }
    }
}

/// Who asked for an address and how its firmware described itself.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ClientSeen {
    /// Its hardware address.
    pub mac: MacAddr,
    /// Where it was heard.
    pub link: LinkId,
    /// DHCP option 93, first entry.
    pub arch: Option<u16>,
    /// DHCP option 97, as a UUID in text order.
    pub uuid: Option<[u8; 16]>,
    /// It is iPXE (option 175 or user class).
    pub ipxe: bool,
    /// DHCP option 60, as far as it is text.
    pub vendor_class: Option<String>,
    /// The address it was given, if any.
    pub address: Option<Ipv4Addr>,
}
