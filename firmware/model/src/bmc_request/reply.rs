//! What errands bring, and how it reads as JSON.

use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};

use super::{BootMode, MediaDevice};
use crate::words;

words! {
    /// How a sensor is.
    SensorState {
        /// Within its thresholds.
        Ok = "ok",
        /// Past a first threshold.
        Warning = "warning",
        /// Past a critical one.
        Critical = "critical",
        /// Past the last one.
        NonRecoverable = "non_recoverable",
        /// It has states instead of thresholds, see `states`.
        Discrete = "discrete",
        /// It says nothing at present.
        Unavailable = "unavailable",
    }
}

words! {
    /// How bad an event is.
    BmcEventSeverity {
        /// As it should be.
        Ok = "ok",
        /// Not yet bad.
        Warning = "warning",
        /// Bad.
        Critical = "critical",
        /// The BMC does not say.
        Unknown = "unknown",
    }
}

words! {
    /// What the light that marks a machine does.
    BmcIndicatorState {
        /// It is dark.
        Off = "off",
        /// It is lit.
        On = "on",
        /// It blinks, or is lit for a while.
        Blinking = "blinking",
        /// The BMC does not say.
        Unknown = "unknown",
    }
}

/// What an errand brought.
#[derive(Clone, Debug, PartialEq)]
pub enum BmcReply {
    /// It is done: `{"done": true}`.
    Done,
    /// `{"sensors": [..]}`.
    Sensors(Vec<BmcSensor>),
    /// `{"events": [..], "overflowed"}`, oldest first.
    Events {
        /// What is in the log.
        events: Vec<BmcEvent>,
        /// Whether events were lost because it was full.
        overflowed: Option<bool>,
    },
    /// The fields of [`Parts`].
    Inventory(Box<BmcInventory>),
    /// The fields of [`Identity`].
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
    /// The fields of [`System`].
    System(Box<BmcSystemInfo>),
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
        }
    }
}

/// One sensor and what it said.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BmcSensor {
    /// As the machine calls it.
    pub name: String,
    /// What it measures: `temperature`, `voltage`, `current`, `fan`, `power`, or another
    /// word of the protocol in lower case with underscores.
    pub kind: String,
    /// The value, if it has one.
    pub value: Option<f64>,
    /// Unit of the value: `C`, `V`, `A`, `RPM`, `W`, `%`, ...
    pub unit: Option<String>,
    /// How it is.
    pub state: SensorState,
    /// Numbers of the states that hold, where it has states.
    pub states: Vec<u8>,
    /// Where the state changes, in the unit of the value.
    pub thresholds: SensorThresholds,
}

/// The thresholds of a sensor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct SensorThresholds {
    /// Below it is a warning.
    pub lower_warning: Option<f64>,
    /// Below it is critical.
    pub lower_critical: Option<f64>,
    /// Below it is the end.
    pub lower_non_recoverable: Option<f64>,
    /// Above it is a warning.
    pub upper_warning: Option<f64>,
    /// Above it is critical.
    pub upper_critical: Option<f64>,
    /// Above it is the end.
    pub upper_non_recoverable: Option<f64>,
}

/// One entry of the event log.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BmcEvent {
    /// Its number or name in the log.
    pub id: String,
    /// When, as Ironic writes times, if the BMC's clock was set.
    pub time: Option<String>,
    /// How bad it is.
    pub severity: BmcEventSeverity,
    /// Name or number of the sensor that saw it.
    pub sensor: Option<String>,
    /// What that sensor measures, in the words of [`Sensor::kind`].
    pub kind: Option<String>,
    /// Whether it came (or, if not, went).
    pub asserted: Option<bool>,
    /// What happened, for people.
    pub message: String,
    /// The record in hexadecimal digits, where the protocol shows it.
    pub raw: Option<String>,
}

/// What the machine's makers wrote into it.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct BmcInventory {
    /// The case.
    pub chassis: Option<ChassisPart>,
    /// The board.
    pub board: Option<BoardPart>,
    /// The machine as it is sold.
    pub product: Option<ProductPart>,
    /// Why some of it could not be read, for people.
    pub problem: Option<String>,
    /// The whole device in base64, where the protocol shows its bytes.
    pub data: Option<String>,
}

/// The case.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct ChassisPart {
    /// Part number.
    pub part_number: String,
    /// Serial number.
    pub serial_number: String,
    /// What else its maker wrote.
    pub extra: Vec<String>,
}

/// The board.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct BoardPart {
    /// Maker.
    pub manufacturer: String,
    /// Name.
    pub name: String,
    /// Part number.
    pub part_number: String,
    /// Serial number.
    pub serial_number: String,
    /// When it was made, as Ironic writes times.
    pub made_at: Option<String>,
    /// What else its maker wrote.
    pub extra: Vec<String>,
}

/// The machine as it is sold.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct ProductPart {
    /// Maker.
    pub manufacturer: String,
    /// Name.
    pub name: String,
    /// Part number or model.
    pub part_number: String,
    /// Version.
    pub version: String,
    /// Serial number.
    pub serial_number: String,
    /// The owner's own number.
    pub asset_tag: String,
    /// What else its maker wrote.
    pub extra: Vec<String>,
}

/// Who a BMC is.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct BmcIdentity {
    /// `ipmi` or `redfish`.
    pub protocol: String,
    /// Version of the protocol, such as `2.0`.
    pub protocol_version: Option<String>,
    /// Version of the BMC's firmware.
    pub firmware_version: Option<String>,
    /// Maker, by name.
    pub manufacturer: Option<String>,
    /// Maker, by IANA's enterprise number.
    pub manufacturer_id: Option<u32>,
    /// Model of the BMC.
    pub model: Option<String>,
    /// The maker's number for the product.
    pub product_id: Option<u16>,
    /// The maker's number for the BMC.
    pub device_id: Option<u8>,
    /// Revision of the BMC.
    pub device_revision: Option<u8>,
    /// UUID of the BMC.
    pub bmc_uuid: Option<String>,
    /// UUID of the machine.
    pub system_uuid: Option<String>,
}

/// One place of the BMC in the network.
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
    /// Where the IPv4 address is from: `static`, `dhcp`, `firmware`, `other`.
    pub ipv4_source: Option<String>,
    /// IPv6 addresses.
    pub ipv6_addresses: Vec<String>,
}

/// A user of the BMC.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct BmcUser {
    /// Number or name in the BMC.
    pub id: String,
    /// What it logs in as; empty where nobody has set it up.
    pub name: String,
    /// What it may do: `administrator`, `operator`, `user`, `none`, or the BMC's word.
    pub role: String,
    /// Whether it may log in, where the BMC says.
    pub enabled: Option<bool>,
}

/// A virtual drive.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct VirtualMediaDrive {
    /// As the BMC calls it.
    pub id: String,
    /// What can be put in.
    pub devices: Vec<MediaDevice>,
    /// What is in, without a password.
    pub image: Option<String>,
    /// Whether something is in.
    pub inserted: bool,
}

/// What a machine is made of.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct BmcSystemInfo {
    /// Maker.
    pub manufacturer: Option<String>,
    /// Model.
    pub model: Option<String>,
    /// The maker's number for what it sold.
    pub sku: Option<String>,
    /// Serial number.
    pub serial_number: Option<String>,
    /// The owner's own number.
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
    /// `ok`, `warning` or `critical`, as the BMC judges.
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
