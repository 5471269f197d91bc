//! Replies to BMC requests, and their JSON.

use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};

use super::{BmcSubscription, BootMode, MediaDevice};
use crate::words;

words! {
    /// The state of a sensor.
    SensorState {
        /// Within its thresholds.
        Ok = "ok",
        /// Beyond the warning threshold.
        Warning = "warning",
        /// Beyond the critical threshold.
        Critical = "critical",
        /// Beyond the non-recoverable threshold.
        NonRecoverable = "non_recoverable",
        /// It has states instead of thresholds, see `states`.
        Discrete = "discrete",
        /// It has no reading at present.
        Unavailable = "unavailable",
    }
}

words! {
    /// The severity of an event.
    BmcEventSeverity {
        /// Normal.
        Ok = "ok",
        /// A warning.
        Warning = "warning",
        /// Critical.
        Critical = "critical",
        /// The BMC does not report it.
        Unknown = "unknown",
    }
}

words! {
    /// The state of the identification indicator.
    BmcIndicatorState {
        /// It is off.
        Off = "off",
        /// It is on.
        On = "on",
        /// It blinks, or is on for a limited time.
        Blinking = "blinking",
        /// The BMC does not report it.
        Unknown = "unknown",
    }
}

/// The reply to a BMC request.
#[derive(Clone, Debug, PartialEq)]
pub enum BmcReply {
    /// Success without data: `{"done": true}`.
    Done,
    /// `{"sensors": [..]}`.
    Sensors(Vec<BmcSensor>),
    /// `{"events": [..], "overflowed"}`, oldest first.
    Events {
        /// The entries of the log.
        events: Vec<BmcEvent>,
        /// Whether events were lost because it was full.
        overflowed: Option<bool>,
    },
    /// The fields of [`BmcInventory`].
    Inventory(Box<BmcInventory>),
    /// The fields of [`BmcIdentity`].
    Identity(Box<BmcIdentity>),
    /// `{"interfaces": [..]}`.
    Network(Vec<BmcNetworkInterface>),
    /// `{"users": [..]}`.
    Users(Vec<BmcUser>),
    /// `{"state": ..}`.
    Indicator(BmcIndicatorState),
    /// `{"data": ..}`, base64.
    Mailbox(String),
    /// `{"boot_mode": ..}`.
    BootMode(Option<BootMode>),
    /// `{"secure_boot": ..}`.
    SecureBoot(Option<bool>),
    /// `{"media": [..]}`.
    Media(Vec<VirtualMediaDrive>),
    /// The fields of [`BmcSystemInfo`].
    System(Box<BmcSystemInfo>),
    /// The fields of [`BmcSubscription`].
    Subscription(Box<BmcSubscription>),
}

impl BmcReply {
    /// As JSON.
    pub fn value(&self) -> Value {
        match self {
            Self::Done => json!({ "done": true }),
            Self::Sensors(sensors) => json!({ "sensors": sensors }),
            Self::Events { events, overflowed } => {
                json!({ "events": events, "overflowed": overflowed })
            }
            Self::Inventory(parts) => json!(parts),
            Self::Identity(identity) => json!(identity),
            Self::Network(interfaces) => json!({ "interfaces": interfaces }),
            Self::Users(users) => json!({ "users": users }),
            Self::Indicator(state) => json!({ "state": state }),
            Self::Mailbox(data) => json!({ "data": data }),
            Self::BootMode(mode) => json!({ "boot_mode": mode }),
            Self::SecureBoot(on) => json!({ "secure_boot": on }),
            Self::Media(media) => json!({ "media": media }),
            Self::System(system) => json!(system),
            Self::Subscription(subscription) => json!(subscription),
        }
    }
}

/// One sensor and its reading.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BmcSensor {
    /// Its name in the BMC.
    pub name: String,
    /// The quantity: `temperature`, `voltage`, `current`, `fan`, `power`, or another name of
    /// the protocol in lower case with underscores.
    pub kind: String,
    /// The value, if it has one.
    pub value: Option<f64>,
    /// Unit of the value: `C`, `V`, `A`, `RPM`, `W`, `%`, ...
    pub unit: Option<String>,
    /// Its state.
    pub state: SensorState,
    /// Numbers of the active states, where it has states.
    pub states: Vec<u8>,
    /// Its thresholds, in the unit of the value.
    pub thresholds: SensorThresholds,
}

/// The thresholds of a sensor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct SensorThresholds {
    /// Lower values are a warning.
    pub lower_warning: Option<f64>,
    /// Lower values are critical.
    pub lower_critical: Option<f64>,
    /// Lower values are not recoverable.
    pub lower_non_recoverable: Option<f64>,
    /// Higher values are a warning.
    pub upper_warning: Option<f64>,
    /// Higher values are critical.
    pub upper_critical: Option<f64>,
    /// Higher values are not recoverable.
    pub upper_non_recoverable: Option<f64>,
}

/// One entry of the event log.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BmcEvent {
    /// Its number or name in the log.
    pub id: String,
    /// The time in Ironic's format, if the BMC's clock was set.
    pub time: Option<String>,
    /// Its severity.
    pub severity: BmcEventSeverity,
    /// Name or number of the sensor that reported it.
    pub sensor: Option<String>,
    /// The quantity of that sensor, as in [`BmcSensor::kind`].
    pub kind: Option<String>,
    /// Whether the condition started (or, if false, ended).
    pub asserted: Option<bool>,
    /// The description, for people.
    pub message: String,
    /// The record in hexadecimal digits, where the protocol has it.
    pub raw: Option<String>,
}

/// The FRU inventory of the machine.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct BmcInventory {
    /// The chassis.
    pub chassis: Option<ChassisPart>,
    /// The board.
    pub board: Option<BoardPart>,
    /// The product.
    pub product: Option<ProductPart>,
    /// Why some of it could not be read, for people.
    pub problem: Option<String>,
    /// The whole device in base64, where the protocol has its bytes.
    pub data: Option<String>,
}

/// The chassis.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct ChassisPart {
    /// Part number.
    pub part_number: String,
    /// Serial number.
    pub serial_number: String,
    /// Further fields of the manufacturer.
    pub extra: Vec<String>,
}

/// The board.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct BoardPart {
    /// Manufacturer.
    pub manufacturer: String,
    /// Name.
    pub name: String,
    /// Part number.
    pub part_number: String,
    /// Serial number.
    pub serial_number: String,
    /// The manufacturing time in Ironic's format.
    pub made_at: Option<String>,
    /// Further fields of the manufacturer.
    pub extra: Vec<String>,
}

/// The product.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct ProductPart {
    /// Manufacturer.
    pub manufacturer: String,
    /// Name.
    pub name: String,
    /// Part number or model.
    pub part_number: String,
    /// Version.
    pub version: String,
    /// Serial number.
    pub serial_number: String,
    /// The asset tag of the owner.
    pub asset_tag: String,
    /// Further fields of the manufacturer.
    pub extra: Vec<String>,
}

/// The identity of a BMC.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct BmcIdentity {
    /// `ipmi` or `redfish`.
    pub protocol: String,
    /// Version of the protocol, such as `2.0`.
    pub protocol_version: Option<String>,
    /// Version of the BMC's firmware.
    pub firmware_version: Option<String>,
    /// Manufacturer, by name.
    pub manufacturer: Option<String>,
    /// Manufacturer, by IANA's enterprise number.
    pub manufacturer_id: Option<u32>,
    /// Model of the BMC.
    pub model: Option<String>,
    /// The manufacturer's product number.
    pub product_id: Option<u16>,
    /// The manufacturer's number for the BMC.
    pub device_id: Option<u8>,
    /// Revision of the BMC.
    pub device_revision: Option<u8>,
    /// UUID of the BMC.
    pub bmc_uuid: Option<String>,
    /// UUID of the machine.
    pub system_uuid: Option<String>,
}

/// One network interface of the BMC.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct BmcNetworkInterface {
    /// Name of the interface or number of the channel.
    pub name: Option<String>,
    /// Hardware address.
    pub mac_address: Option<String>,
    /// IPv4 address.
    pub ipv4_address: Option<String>,
    /// IPv4 mask.
    pub ipv4_mask: Option<String>,
    /// IPv4 gateway.
    pub ipv4_gateway: Option<String>,
    /// The source of the IPv4 address: `static`, `dhcp`, `firmware`, `other`.
    pub ipv4_source: Option<String>,
    /// IPv6 addresses.
    pub ipv6_addresses: Vec<String>,
}

/// A user of the BMC.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct BmcUser {
    /// Number or name in the BMC.
    pub id: String,
    /// The login name; empty for an unused entry.
    pub name: String,
    /// Its role: `administrator`, `operator`, `user`, `none`, or the BMC's own name.
    pub role: String,
    /// Whether it may log in, where the BMC reports it.
    pub enabled: Option<bool>,
}

/// A virtual media drive.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct VirtualMediaDrive {
    /// Its identifier in the BMC.
    pub id: String,
    /// The kinds of media it accepts.
    pub devices: Vec<MediaDevice>,
    /// The URL of its image, without a password.
    pub image: Option<String>,
    /// Whether an image is inserted.
    pub inserted: bool,
}

/// The hardware summary of a machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct BmcSystemInfo {
    /// Manufacturer.
    pub manufacturer: Option<String>,
    /// Model.
    pub model: Option<String>,
    /// The manufacturer's stock-keeping number.
    pub sku: Option<String>,
    /// Serial number.
    pub serial_number: Option<String>,
    /// The asset tag of the owner.
    pub asset_tag: Option<String>,
    /// UUID.
    pub uuid: Option<String>,
    /// Version of the firmware.
    pub bios_version: Option<String>,
    /// Memory in MiB.
    pub memory_mb: Option<u64>,
    /// Processors.
    pub processors: Vec<Processor>,
    /// Hardware addresses of network cards.
    pub mac_addresses: Vec<String>,
    /// `ok`, `warning` or `critical`, as the BMC reports.
    pub health: Option<String>,
}

/// A processor.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Processor {
    /// Model.
    pub model: Option<String>,
    /// Architecture.
    pub architecture: Option<String>,
    /// Cores.
    pub cores: Option<u32>,
    /// Threads.
    pub threads: Option<u32>,
}
