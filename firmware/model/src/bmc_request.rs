//! Errands: what is asked of a BMC beside power, and what it brings, whatever protocol
//! the BMC speaks.
//!
//! [`Errand`] is the question and [`Findings`] the answer. Findings become JSON in one
//! place, [`Findings::value`], so that the keys are the same for every protocol: what a
//! protocol cannot tell is `null` or left empty, and what it cannot do is refused with
//! [`crate::PowerError::Unsupported`]. Keys are only ever added.

mod reply;
#[cfg(test)]
mod tests;

use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::secret::SecretText;
use crate::words;

pub use reply::{
    BmcEvent, BmcEventSeverity, BmcIdentity, BmcIndicatorState, BmcInventory, BmcNetworkInterface,
    BmcReply, BmcSensor, BmcSystemInfo, BmcUser, BoardPart, ChassisPart, Processor, ProductPart,
    SensorState, SensorThresholds, VirtualMediaDrive,
};

/// How long an errand may take. Ours: an event log read record by record from a slow BMC
/// takes minutes.
pub const BMC_REQUEST_MS_MAX: u64 = 300_000;

/// Most bytes that are written into a boot mailbox. Ours: sixteen blocks of IPMI's.
pub const MAILBOX_BYTES_MAX: usize = 256;

/// Most bytes that are written into an inventory device at once. Ours; a larger one is
/// written part by part.
pub const INVENTORY_BYTES_MAX: usize = 3 * 1024;

words! {
    /// How a machine's firmware boots.
    BootMode {
        /// By UEFI.
        Uefi = "uefi",
        /// By the older BIOS.
        Bios = "bios",
    }
}

words! {
    /// A drive that is not there, in Ironic's words.
    MediaDevice {
        /// A CD or DVD.
        Cdrom = "cdrom",
        /// A USB stick.
        Disk = "disk",
        /// A floppy disk.
        Floppy = "floppy",
    }
}

/// What the light that marks a machine is to do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BmcIndicatorCommand {
    /// Be dark.
    Off,
    /// Be lit, or blink: whatever the machine does to be found.
    On,
    /// The same, and go off by itself. A BMC without such a timer refuses.
    For {
        /// So many seconds.
        seconds: u8,
    },
}

/// Something to ask of a BMC.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum BmcRequest {
    /// Read all sensors.
    Sensors,
    /// Read the event log.
    Events,
    /// Empty the event log.
    ClearEvents,
    /// Read what the machine's makers wrote into it: part and serial numbers.
    Inventory,
    /// Write into an inventory device, byte by byte.
    WriteInventory {
        /// Its number; zero is the machine's own.
        device: u8,
        /// Where to begin.
        offset: u16,
        /// At most [`INVENTORY_BYTES_MAX`].
        bytes: Vec<u8>,
    },
    /// Read who the BMC is.
    Identity,
    /// Read where in the network the BMC is.
    Network,
    /// List the BMC's users.
    Users,
    /// Read what the light that marks the machine does.
    Indicator,
    /// Switch that light.
    SetIndicator(BmcIndicatorCommand),
    /// Read the boot mailbox.
    Mailbox,
    /// Write the boot mailbox from its beginning on.
    WriteMailbox(HiddenBytes),
    /// Read how the firmware boots.
    BootMode,
    /// Choose how the firmware boots, from the next boot on.
    SetBootMode(BootMode),
    /// Read whether Secure Boot is on.
    SecureBoot,
    /// Switch Secure Boot, from the next boot on.
    SetSecureBoot(bool),
    /// List virtual drives and what is in them.
    Media,
    /// Put an image into a virtual drive.
    InsertMedia {
        /// Which.
        device: MediaDevice,
        /// Where the BMC fetches it; a login may be part of it.
        url: SecretText,
    },
    /// Take images out of virtual drives.
    EjectMedia {
        /// Which; empty means all.
        devices: Vec<MediaDevice>,
    },
    /// Read what the machine is made of.
    System,
}

impl BmcRequest {
    /// What it asks for, in a word or two. Nothing of it is secret.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Sensors => "read sensors",
            Self::Events => "read event log",
            Self::ClearEvents => "clear event log",
            Self::Inventory => "read inventory",
            Self::WriteInventory { .. } => "write inventory",
            Self::Identity => "read identity of the BMC",
            Self::Network => "read network of the BMC",
            Self::Users => "read users of the BMC",
            Self::Indicator => "read light",
            Self::SetIndicator(BmcIndicatorCommand::Off) => "light off",
            Self::SetIndicator(_) => "light on",
            Self::Mailbox => "read mailbox",
            Self::WriteMailbox(_) => "write mailbox",
            Self::BootMode => "read boot mode",
            Self::SetBootMode(_) => "set boot mode",
            Self::SecureBoot => "read secure boot",
            Self::SetSecureBoot(_) => "set secure boot",
            Self::Media => "list media",
            Self::InsertMedia { .. } => "insert media",
            Self::EjectMedia { .. } => "eject media",
            Self::System => "read system",
        }
    }

    /// Whether it only reads.
    pub const fn is_read_only(&self) -> bool {
        matches!(
            self,
            Self::Sensors
                | Self::Events
                | Self::Inventory
                | Self::Identity
                | Self::Network
                | Self::Users
                | Self::Indicator
                | Self::Mailbox
                | Self::BootMode
                | Self::SecureBoot
                | Self::Media
                | Self::System
        )
    }

    /// Whether doing it twice could do more than doing it once, so that it must not be
    /// said again where nobody knows whether it was heard: a log that is cleared again
    /// loses what came between.
    pub const fn at_most_once(&self) -> bool {
        matches!(self, Self::ClearEvents | Self::InsertMedia { .. })
    }
}

/// Bytes that may be secret: printing them shows how many they are.
#[derive(Clone, Eq, PartialEq)]
pub struct HiddenBytes(Box<[u8]>);

impl HiddenBytes {
    /// Hides some bytes.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into().into_boxed_slice())
    }

    /// The bytes, for whoever must use them.
    pub fn reveal(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for HiddenBytes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} hidden bytes", self.0.len())
    }
}
