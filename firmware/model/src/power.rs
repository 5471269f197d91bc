//! Orders to a BMC and what it says back.

use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::words;

words! {
    /// Whether a machine runs, in Ironic's words.
    PowerState {
        /// It runs.
        On = "power on",
        /// It does not.
        Off = "power off",
    }
}

words! {
    /// Where a machine boots from next.
    BootDevice {
        /// The network.
        Pxe = "pxe",
        /// Its own disk.
        Disk = "disk",
        /// A CD, real or virtual.
        Cdrom = "cdrom",
        /// Its firmware's set-up screen.
        Bios = "bios",
        /// The disk in safe mode.
        Safe = "safe",
    }
}

/// One thing asked of a BMC.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PowerOrder {
    /// Read the power state.
    Status,
    /// Switch on.
    On,
    /// Switch off hard.
    Off,
    /// Ask the running system to shut down.
    SoftOff,
    /// Off and on again; on, if it was off.
    Cycle,
    /// Hard reset without power loss.
    Reset,
    /// Read the next boot device.
    ReadBoot,
    /// Choose the next boot device.
    SetBoot {
        /// From where.
        device: BootDevice,
        /// For every boot, not only the next.
        persistent: bool,
        /// As UEFI.
        efi: bool,
    },
}

/// What a BMC said when an order went through.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PowerAnswer {
    /// The order was accepted.
    Accepted,
    /// The power state, as the BMC claims it.
    Power(PowerState),
    /// The boot device that is set, if it is one we know.
    Boot {
        /// From where; none when the BMC has no override or an unknown one.
        device: Option<BootDevice>,
        /// For every boot.
        persistent: bool,
        /// As UEFI.
        efi: bool,
    },
}

/// Why an order to a BMC did not go through.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum PowerError {
    /// Nothing came back in time.
    #[error(
        "the BMC did not answer within {waited_ms} ms; check its address, cable and that \
         IPMI over LAN is on"
    )]
    Silent {
        /// How long we tried.
        waited_ms: u64,
    },
    /// The BMC does not accept the user or the password.
    #[error("the BMC refused the login ({said}); check ipmi_username and ipmi_password")]
    Login {
        /// What it said.
        said: &'static str,
    },
    /// The BMC refused the command.
    #[error("the BMC refused the command with completion code 0x{code:02x}")]
    Refused {
        /// IPMI completion code.
        code: u8,
    },
    /// The BMC sent something that its protocol does not allow.
    #[error("the BMC sent nonsense: {said}")]
    Nonsense {
        /// What was wrong with it.
        said: &'static str,
    },
    /// The node's `driver_info` does not say how to reach its BMC.
    #[error("driver_info lacks {missing}")]
    NotConfigured {
        /// The missing key.
        missing: &'static str,
    },
    /// This box does not do that.
    #[error("{said}")]
    Unsupported {
        /// The whole sentence.
        said: &'static str,
    },
    /// The host of a virtual machine did not carry the order out.
    #[error("{said}")]
    Host {
        /// The whole sentence.
        said: String,
        /// Trying again cannot help.
        lasting: bool,
    },
    /// Too many orders wait for this BMC.
    #[error("too many orders wait for this BMC; try again when the present one is done")]
    Busy,
}
