//! Errands in the words that all protocols share: which of ours each is, and what our
//! reports mean. What IPMI has no command for is refused with what to do instead.

mod event;
mod kind;
mod uuid;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use trivet_model::errand::{
    Address, BoardPart, ChassisPart, Errand as Asked, Findings, Identity as Who, Light as Wanted,
    LightState, Parts, ProductPart, Sensor, SensorState, Thresholds, User,
};
use trivet_model::{PowerError, UnixMs};

use crate::errand::{
    AddressSource, Errand, Identity, Lan, Light, LightNow, MAILBOX_BLOCKS_MAX, Report, UserEntry,
};
use crate::fru::{Board, Chassis, Inventory, Product};
use crate::sdr::{Reading, State};

/// The channel that is spoken on (section 6.3).
const CHANNEL_THIS: u8 = 0x0e;

/// Minutes from 1970 to 1996, when boards began to be made (FRU definition, section 11).
const MADE_MINUTES: u64 = 13_674_240;

/// The errand of IPMI that does what is asked.
pub fn asked(errand: &Asked) -> Result<Errand, PowerError> {
    let unsupported = |said| Err(PowerError::Unsupported { said });
    Ok(match errand {
        Asked::Sensors => Errand::Sensors,
        Asked::Events => Errand::SelList,
        Asked::ClearEvents => Errand::SelClear,
        Asked::Inventory => Errand::ReadFru { device: 0 },
        Asked::WriteInventory {
            device,
            offset,
            bytes,
        } => Errand::WriteFru {
            device: *device,
            offset: *offset,
            bytes: bytes.clone(),
        },
        Asked::Identity => Errand::Identity,
        Asked::Network => Errand::Lan {
            channel: CHANNEL_THIS,
        },
        Asked::Users => Errand::Users {
            channel: CHANNEL_THIS,
        },
        Asked::Light => Errand::LightNow,
        Asked::SetLight(wanted) => Errand::Identify {
            light: match *wanted {
                Wanted::Off => Light::For { seconds: 0 },
                Wanted::On => Light::On,
                Wanted::For { seconds } => Light::For { seconds },
            },
        },
        Asked::Mailbox => Errand::ReadMailbox {
            blocks: MAILBOX_BLOCKS_MAX,
        },
        Asked::WriteMailbox(bytes) => Errand::WriteMailbox {
            bytes: bytes.reveal().to_vec(),
        },
        Asked::BootMode | Asked::SetBootMode(_) => {
            return unsupported(
                "IPMI does not know the firmware's boot mode; choose it in the firmware's set-up",
            );
        }
        Asked::SecureBoot | Asked::SetSecureBoot(_) => {
            return unsupported(
                "IPMI does not know Secure Boot; switch it in the firmware's set-up",
            );
        }
        Asked::Media | Asked::InsertMedia { .. } | Asked::EjectMedia { .. } => {
            return unsupported("IPMI has no virtual media; boot the image from the network");
        }
        Asked::System => {
            return unsupported(
                "IPMI does not know what the machine is made of; inspect the node, or read its \
                 BMC's inventory",
            );
        }
    })
}

/// What a report means.
pub fn found(report: Report) -> Findings {
    match report {
        Report::Done | Report::BootFlags(_) | Report::SelInfo(_) | Report::Guid(_) => {
            Findings::Done
        }
        Report::Mailbox(bytes) => Findings::Mailbox(STANDARD.encode(bytes)),
        Report::Fru(bytes) => inventory(&bytes),
        Report::Sel { info, records } => Findings::Events {
            events: records.iter().map(event::told).collect(),
            overflowed: Some(info.overflowed),
        },
        Report::Sensors(readings) => Findings::Sensors(readings.into_iter().map(sensor).collect()),
        Report::Light(light) => Findings::Light(match light {
            LightNow::Off => LightState::Off,
            LightNow::Timed => LightState::Blinking,
            LightNow::On => LightState::On,
            LightNow::Unknown => LightState::Unknown,
        }),
        Report::Identity(identity) => Findings::Identity(Box::new(who(identity))),
        Report::Lan(lan) => Findings::Network(vec![address(lan)]),
        Report::Users(users) => Findings::Users(users.into_iter().map(user).collect()),
    }
}

/// Areas that can be read; a damaged one hides the others too, so the bytes are told.
fn inventory(bytes: &[u8]) -> Findings {
    let (parts, problem) = match Inventory::parse(bytes) {
        Ok(parts) => (parts, None),
        Err(error) => (Inventory::default(), Some(error.to_string())),
    };
    Findings::Inventory(Box::new(Parts {
        chassis: parts.chassis.map(chassis),
        board: parts.board.map(board),
        product: parts.product.map(product),
        problem,
        data: Some(STANDARD.encode(bytes)),
    }))
}

fn chassis(part: Chassis) -> ChassisPart {
    ChassisPart {
        part_number: part.part,
        serial_number: part.serial,
        extra: part.extra,
    }
}

fn board(part: Board) -> BoardPart {
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

fn product(part: Product) -> ProductPart {
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

fn sensor(reading: Reading) -> Sensor {
    let unit = match reading.unit.as_str() {
        "degrees C" => "C",
        "degrees F" => "F",
        other => other,
    };
    let (state, states) = match reading.state {
        State::Ok => (SensorState::Ok, 0),
        State::NonCritical => (SensorState::Warning, 0),
        State::Critical => (SensorState::Critical, 0),
        State::NonRecoverable => (SensorState::NonRecoverable, 0),
        State::Bits(bits) => (SensorState::Discrete, bits),
        State::Unavailable => (SensorState::Unavailable, 0),
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
    Sensor {
        kind,
        value: reading.value.map(rounded),
        unit: (!unit.is_empty()).then(|| unit.to_owned()),
        state,
        states: (0..15).filter(|bit| states >> bit & 1 != 0).collect(),
        thresholds: Thresholds {
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

/// Raw readings have eight bits: digits beyond the sixth are noise of the conversion.
fn rounded(value: f64) -> f64 {
    const STEPS: f64 = 1_000_000.0;
    let scaled = (value * STEPS).round() / STEPS;
    if scaled.is_finite() { scaled } else { value }
}

fn who(identity: Identity) -> Who {
    let device = identity.device;
    Who {
        protocol: "ipmi".to_owned(),
        protocol_version: Some(format!("{}.{}", device.ipmi & 0x0f, device.ipmi >> 4)),
        firmware_version: Some(format!("{}.{:02x}", device.major, device.minor)),
        manufacturer: kind::maker(device.maker).map(str::to_owned),
        manufacturer_id: (device.maker != 0).then_some(device.maker),
        model: None,
        product_id: (device.product != 0).then_some(device.product),
        device_id: Some(device.id),
        device_revision: Some(device.revision),
        bmc_uuid: identity.bmc.map(uuid::read),
        system_uuid: identity.system.map(uuid::read),
    }
}

fn address(lan: Lan) -> Address {
    let source = lan.source.map(|source| match source {
        AddressSource::Static => "static",
        AddressSource::Dhcp => "dhcp",
        AddressSource::Firmware => "firmware",
        AddressSource::Other(_) => "other",
    });
    Address {
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
fn user(entry: UserEntry) -> User {
    let role = match entry.limit {
        1 => "callback",
        2 => "user",
        3 => "operator",
        4 => "administrator",
        5 => "oem",
        _ => "none",
    };
    User {
        id: entry.id.to_string(),
        name: entry.name,
        role: role.to_owned(),
        enabled: Some(entry.messaging),
    }
}

#[cfg(test)]
mod tests;
