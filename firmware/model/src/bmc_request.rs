//! BMC requests other than power, and their replies, for every BMC protocol.
//!
//! [`BmcRequest`] is the request and [`BmcReply`] the reply. Replies become JSON in one place,
//! [`BmcReply::value`], so that the keys are the same for every protocol: a value that a
//! protocol does not have is `null` or empty, and a request that it does not support is refused
//! with [`crate::PowerError::Unsupported`]. Keys are only ever added.

mod reply;
mod subscription;
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
pub use subscription::{
    BmcSubscription, EventSubscription, SUBSCRIPTION_LIST_MAX, SUBSCRIPTION_TEXT_BYTES_MAX,
};

/// How long a BMC request may take. Ours: an event log that is read record by record from a
/// slow BMC takes minutes.
pub const BMC_REQUEST_MS_MAX: u64 = 300_000;

/// Most bytes that are written into a boot mailbox. Ours: sixteen blocks in IPMI.
pub const MAILBOX_BYTES_MAX: usize = 256;

/// Most bytes that are written into an inventory device at once. Ours; a larger one is written
/// in parts.
pub const INVENTORY_BYTES_MAX: usize = 3 * 1024;

words! {
    /// The boot mode of a machine's firmware.
    BootMode {
        /// UEFI.
        Uefi = "uefi",
        /// Legacy BIOS.
        Bios = "bios",
    }
}

words! {
    /// A virtual media device, as Ironic names it.
    MediaDevice {
        /// A CD or DVD.
        Cdrom = "cdrom",
        /// A USB stick.
        Disk = "disk",
        /// A floppy disk.
        Floppy = "floppy",
    }
}

/// What the identification indicator (chassis LED) of a machine is to do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BmcIndicatorCommand {
    /// Switch off.
    Off,
    /// Switch on or blink: what the machine does for identification.
    On,
    /// The same for a limited time. A BMC without such a timer refuses.
    For {
        /// That time in seconds.
        seconds: u8,
    },
}

/// A request to a BMC.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum BmcRequest {
    /// Read all sensors.
    Sensors,
    /// Read the event log.
    Events,
    /// Clear the event log.
    ClearEvents,
    /// Read the FRU inventory: part and serial numbers.
    Inventory,
    /// Write bytes into a FRU inventory device.
    WriteInventory {
        /// The device number; zero is the machine's own.
        device: u8,
        /// The offset of the first byte.
        offset: u16,
        /// At most [`INVENTORY_BYTES_MAX`].
        bytes: Vec<u8>,
    },
    /// Read manufacturer, model and firmware version of the BMC.
    Identity,
    /// Read the network settings of the BMC.
    Network,
    /// List the BMC's users.
    Users,
    /// Read the state of the identification indicator.
    Indicator,
    /// Switch the identification indicator.
    SetIndicator(BmcIndicatorCommand),
    /// Read the boot mailbox.
    Mailbox,
    /// Write the boot mailbox from its first byte.
    WriteMailbox(HiddenBytes),
    /// Read the boot mode.
    BootMode,
    /// Set the boot mode, from the next boot on.
    SetBootMode(BootMode),
    /// Read whether Secure Boot is on.
    SecureBoot,
    /// Switch Secure Boot, from the next boot on.
    SetSecureBoot(bool),
    /// List virtual media devices and their images.
    Media,
    /// Insert an image into a virtual media device.
    InsertMedia {
        /// The device.
        device: MediaDevice,
        /// The URL from which the BMC fetches it; it may contain credentials.
        url: SecretText,
    },
    /// Eject images from virtual media devices.
    EjectMedia {
        /// The devices; empty means all.
        devices: Vec<MediaDevice>,
    },
    /// Boot from this URL, by UEFI HTTP boot.
    BootUrl {
        /// The URL; it may contain credentials.
        url: SecretText,
        /// Each time, not only the next time.
        persistent: bool,
    },
    /// Read the machine's hardware summary.
    System,
    /// Send events to a URL from now on.
    Subscribe(Box<EventSubscription>),
    /// End a subscription.
    Unsubscribe {
        /// The name that the BMC gave it.
        id: String,
    },
}

impl BmcRequest {
    /// A short name of the request for notes, without secrets.
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
            Self::BootUrl { .. } => "set boot URL",
            Self::System => "read system",
            Self::Subscribe(_) => "create subscription",
            Self::Unsubscribe { .. } => "delete subscription",
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

    /// Whether a repetition could have another effect, so that the request must not be sent
    /// again when it is unknown whether the BMC received it: a log that is cleared again loses
    /// the events in between, and a second subscription doubles each event.
    pub const fn at_most_once(&self) -> bool {
        matches!(
            self,
            Self::ClearEvents | Self::InsertMedia { .. } | Self::Subscribe(_)
        )
    }

    /// Whether it belongs to the vendor interface of a node, as in Ironic, and not to management.
    pub const fn is_vendor_method(&self) -> bool {
        matches!(self, Self::Subscribe(_) | Self::Unsubscribe { .. })
    }
}

/// Bytes that may be secret: printing shows only their number.
#[derive(Clone, Eq, PartialEq)]
pub struct HiddenBytes(Box<[u8]>);

impl HiddenBytes {
    /// Wraps these bytes.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into().into_boxed_slice())
    }

    /// The bytes, for the code that must use them.
    pub fn reveal(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for HiddenBytes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} hidden bytes", self.0.len())
    }
}
