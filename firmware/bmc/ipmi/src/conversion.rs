//! Conversion between the requests and replies that all BMC protocols share and those of IPMI.
//! Requests for which IPMI has no command are refused with what to do instead.

mod event;
mod kind;
mod uuid;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use trivet_model::bmc_request::{
    BmcIdentity as Who, BmcIndicatorCommand as Wanted, BmcIndicatorState, BmcInventory,
    BmcNetworkInterface, BmcReply, BmcRequest as RequestedOperation, BmcSensor, BmcUser, BoardPart,
    ChassisPart, ProductPart, SensorState, SensorThresholds,
};
use trivet_model::{PowerError, UnixMs};

use crate::fru::{FruBoard, FruChassis, FruInventory, FruProduct};
use crate::operation::{
    AddressSource, IpmiIdentify, IpmiIdentifyState, IpmiIdentity, IpmiLanConfig, IpmiOperation,
    IpmiReply, MAILBOX_BLOCKS_MAX, UserEntry,
};
use crate::sdr::{SdrReading, SdrSensorState};

/// The channel of this session (section 6.3).
const CHANNEL_THIS: u8 = 0x0e;

/// Minutes from 1970 to 1996, when manufacturing dates begin (FRU definition, section 11).
const MADE_MINUTES: u64 = 13_674_240;

/// The IPMI operation for a request.
pub fn to_operation(operation: &RequestedOperation) -> Result<IpmiOperation, PowerError> {
    let unsupported = |message| Err(PowerError::Unsupported { message });
    Ok(match operation {
        RequestedOperation::Sensors => IpmiOperation::Sensors,
        RequestedOperation::Events => IpmiOperation::SelList,
        RequestedOperation::ClearEvents => IpmiOperation::SelClear,
        RequestedOperation::Inventory => IpmiOperation::ReadFru { device: 0 },
        RequestedOperation::WriteInventory {
            device,
            offset,
            bytes,
        } => IpmiOperation::WriteFru {
            device: *device,
            offset: *offset,
            bytes: bytes.clone(),
        },
        RequestedOperation::Identity => IpmiOperation::Identity,
        RequestedOperation::Network => IpmiOperation::Lan {
            channel: CHANNEL_THIS,
        },
        RequestedOperation::Users => IpmiOperation::Users {
            channel: CHANNEL_THIS,
        },
        RequestedOperation::Indicator => IpmiOperation::IdentifyState,
        RequestedOperation::SetIndicator(wanted) => IpmiOperation::Identify {
            identify: match *wanted {
                Wanted::Off => IpmiIdentify::For { seconds: 0 },
                Wanted::On => IpmiIdentify::On,
                Wanted::For { seconds } => IpmiIdentify::For { seconds },
            },
        },
        RequestedOperation::Mailbox => IpmiOperation::ReadMailbox {
            blocks: MAILBOX_BLOCKS_MAX,
        },
        RequestedOperation::WriteMailbox(bytes) => IpmiOperation::WriteMailbox {
            bytes: bytes.reveal().to_vec(),
        },
        RequestedOperation::BootMode | RequestedOperation::SetBootMode(_) => {
            return unsupported(
                "IPMI does not know the firmware's boot mode; choose it in the firmware's set-up",
            );
        }
        RequestedOperation::SecureBoot | RequestedOperation::SetSecureBoot(_) => {
            return unsupported(
                "IPMI does not know Secure Boot; switch it in the firmware's set-up",
            );
        }
        RequestedOperation::Media
        | RequestedOperation::InsertMedia { .. }
        | RequestedOperation::EjectMedia { .. }
        | RequestedOperation::BootUrl { .. } => {
            return unsupported("IPMI has no virtual media; boot the image from the network");
        }
        RequestedOperation::Subscribe(_) | RequestedOperation::Unsubscribe { .. } => {
            return unsupported(
                "IPMI has no event subscriptions; read the BMC's event log instead",
            );
        }
        RequestedOperation::System => {
            return unsupported(
                "IPMI has no system inventory; inspect the node, or read its \
                 BMC's inventory",
            );
        }
    })
}

/// The shared form of a reply.
pub fn to_bmc_reply(report: IpmiReply) -> BmcReply {
    match report {
        IpmiReply::Done | IpmiReply::BootFlags(_) | IpmiReply::SelInfo(_) | IpmiReply::Guid(_) => {
            BmcReply::Done
        }
        IpmiReply::Mailbox(bytes) => BmcReply::Mailbox(STANDARD.encode(bytes)),
        IpmiReply::Fru(bytes) => inventory(&bytes),
        IpmiReply::Sel { info, records } => BmcReply::Events {
            events: records.iter().map(event::bmc_event).collect(),
            overflowed: Some(info.overflowed),
        },
        IpmiReply::Sensors(readings) => {
            BmcReply::Sensors(readings.into_iter().map(sensor).collect())
        }
        IpmiReply::IdentifyState(light) => BmcReply::Indicator(match light {
            IpmiIdentifyState::Off => BmcIndicatorState::Off,
            IpmiIdentifyState::Timed => BmcIndicatorState::Blinking,
            IpmiIdentifyState::On => BmcIndicatorState::On,
            IpmiIdentifyState::Unknown => BmcIndicatorState::Unknown,
        }),
        IpmiReply::Identity(identity) => BmcReply::Identity(Box::new(bmc_identity(identity))),
        IpmiReply::Lan(lan) => BmcReply::Network(vec![address(lan)]),
        IpmiReply::Users(users) => BmcReply::Users(users.into_iter().map(user).collect()),
    }
}

/// The parsed areas; if one is damaged, none can be read, so the bytes are returned.
fn inventory(bytes: &[u8]) -> BmcReply {
    let (parts, problem) = match FruInventory::parse(bytes) {
        Ok(parts) => (parts, None),
        Err(error) => (FruInventory::default(), Some(error.to_string())),
    };
    BmcReply::Inventory(Box::new(BmcInventory {
        chassis: parts.chassis.map(chassis),
        board: parts.board.map(board),
        product: parts.product.map(product),
        problem,
        data: Some(STANDARD.encode(bytes)),
    }))
}

fn chassis(part: FruChassis) -> ChassisPart {
    ChassisPart {
        part_number: part.part,
        serial_number: part.serial,
        extra: part.extra,
    }
}

fn board(part: FruBoard) -> BoardPart {
    let minutes = u64::from(part.made_minutes);
    let made = (minutes != 0).then(|| UnixMs((MADE_MINUTES + minutes) * 60_000));
    BoardPart {
        manufacturer: part.maker,
        name: part.name,
        part_number: part.part,
        serial_number: part.serial,
        made_at: made.map(|made| made.to_string()),
        extra: part.extra,
    }
}

fn product(part: FruProduct) -> ProductPart {
    ProductPart {
        manufacturer: part.maker,
        name: part.name,
        part_number: part.part,
        version: part.version,
        serial_number: part.serial,
        asset_tag: part.asset,
        extra: part.extra,
    }
}

fn sensor(reading: SdrReading) -> BmcSensor {
    let unit = match reading.unit.as_str() {
        "degrees C" => "C",
        "degrees F" => "F",
        other => other,
    };
    let (state, states) = match reading.state {
        SdrSensorState::Ok => (SensorState::Ok, 0),
        SdrSensorState::NonCritical => (SensorState::Warning, 0),
        SdrSensorState::Critical => (SensorState::Critical, 0),
        SdrSensorState::NonRecoverable => (SensorState::NonRecoverable, 0),
        SdrSensorState::Bits(bits) => (SensorState::Discrete, bits),
        SdrSensorState::Unavailable => (SensorState::Unavailable, 0),
    };
    let [
        lower_warning,
        lower_critical,
        lower_non_recoverable,
        upper_warning,
        upper_critical,
        upper_non_recoverable,
    ] = reading.thresholds;
    let kind = if unit == "W" {
        "power".to_owned()
    } else {
        kind::of_sensor(reading.kind)
    };
    BmcSensor {
        kind,
        value: reading.value.map(rounded),
        unit: (!unit.is_empty()).then(|| unit.to_owned()),
        state,
        states: (0..15).filter(|bit| states >> bit & 1 != 0).collect(),
        thresholds: SensorThresholds {
            lower_warning: lower_warning.map(rounded),
            lower_critical: lower_critical.map(rounded),
            lower_non_recoverable: lower_non_recoverable.map(rounded),
            upper_warning: upper_warning.map(rounded),
            upper_critical: upper_critical.map(rounded),
            upper_non_recoverable: upper_non_recoverable.map(rounded),
        },
        name: reading.name,
    }
}

/// Raw readings have eight bits: digits after the sixth are conversion errors.
fn rounded(value: f64) -> f64 {
    const STEPS: f64 = 1_000_000.0;
    let scaled = (value * STEPS).round() / STEPS;
    if scaled.is_finite() { scaled } else { value }
}

fn bmc_identity(identity: IpmiIdentity) -> Who {
    let device = identity.device;
    Who {
        protocol: "ipmi".to_owned(),
        protocol_version: Some(format!("{}.{}", device.ipmi.0, device.ipmi.1)),
        firmware_version: Some(format!("{}.{:02x}", device.major, device.minor)),
        manufacturer: kind::maker(device.maker).map(str::to_owned),
        manufacturer_id: (device.maker != 0).then_some(device.maker),
        model: None,
        product_id: (device.product != 0).then_some(device.product),
        device_id: Some(device.id),
        device_revision: Some(device.revision),
        bmc_uuid: identity.bmc_guid.map(uuid::read),
        system_uuid: identity.system_guid.map(uuid::read),
    }
}

fn address(lan: IpmiLanConfig) -> BmcNetworkInterface {
    let source = lan.source.map(|source| match source {
        AddressSource::Static => "static",
        AddressSource::Dhcp => "dhcp",
        AddressSource::Firmware => "firmware",
        AddressSource::Other(_) => "other",
    });
    BmcNetworkInterface {
        name: None,
        mac_address: lan.mac.map(|mac| trivet_model::MacAddr(mac).to_string()),
        ipv4_address: lan.address.map(|it| it.to_string()),
        ipv4_mask: lan.mask.map(|it| it.to_string()),
        ipv4_gateway: lan.gateway.map(|it| it.to_string()),
        ipv4_source: source.map(str::to_owned),
        ipv6_addresses: Vec::new(),
    }
}

/// Privilege levels are those of section 6.8.
fn user(entry: UserEntry) -> BmcUser {
    let role = match entry.limit {
        1 => "callback",
        2 => "user",
        3 => "operator",
        4 => "administrator",
        5 => "oem",
        _ => "none",
    };
    BmcUser {
        id: entry.id.to_string(),
        name: entry.name,
        role: role.to_owned(),
        enabled: Some(entry.messaging),
    }
}

#[cfg(test)]
mod tests;
