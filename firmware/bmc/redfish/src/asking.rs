//! Errands in the words that all protocols share: which of ours each is, and what our
//! reports mean. What this box does not ask by Redfish is refused with what to do instead.

use trivet_model::PowerError;
use trivet_model::errand::{
    BootMode as Mode, Errand as Asked, Findings, Light, LightState, Processor, Sensor, SensorState,
    System, Thresholds,
};

use crate::errand::{BootMode, Errand, Inventory, Report, SensorReading};

/// The errand of ours that does what is asked.
pub fn asked(errand: &Asked) -> Result<Errand, PowerError> {
    let unsupported = |said| Err(PowerError::Unsupported { said });
    Ok(match errand {
        Asked::Sensors => Errand::Sensors,
        Asked::Identity => Errand::Identity,
        Asked::Light => Errand::Light,
        Asked::SetLight(Light::Off) => Errand::SetLight(false),
        Asked::SetLight(Light::On) => Errand::SetLight(true),
        Asked::SetLight(Light::For { .. }) => {
            return unsupported("Redfish has no timer for lights; switch it on, and off again");
        }
        Asked::BootMode => Errand::BootMode,
        Asked::SetBootMode(Mode::Uefi) => Errand::SetBootMode(BootMode::Uefi),
        Asked::SetBootMode(Mode::Bios) => Errand::SetBootMode(BootMode::Legacy),
        Asked::SecureBoot => Errand::SecureBoot,
        Asked::SetSecureBoot(on) => Errand::SetSecureBoot(*on),
        Asked::Media => Errand::Media,
        Asked::InsertMedia { device, url } => Errand::InsertMedia {
            device: *device,
            url: url.clone(),
        },
        Asked::EjectMedia { devices } => Errand::EjectMedia {
            devices: devices.clone(),
        },
        Asked::System => Errand::Inventory,
        Asked::Events | Asked::ClearEvents => {
            return unsupported("this box does not read event logs by Redfish yet");
        }
        Asked::Inventory | Asked::WriteInventory { .. } => {
            return unsupported(
                "Redfish has no inventory device; read what the machine is made of (system)",
            );
        }
        Asked::Network | Asked::Users => {
            return unsupported("this box does not read a BMC's own settings by Redfish yet");
        }
        Asked::Mailbox | Asked::WriteMailbox(_) => {
            return unsupported("Redfish has no boot mailbox; that is IPMI's");
        }
    })
}

/// What a report means.
pub fn found(report: Report) -> Findings {
    match report {
        Report::Done => Findings::Done,
        Report::Media(drives) => Findings::Media(drives),
        Report::BootMode(mode) => Findings::BootMode(Some(match mode {
            BootMode::Uefi => Mode::Uefi,
            BootMode::Legacy => Mode::Bios,
        })),
        Report::SecureBoot(secure) => Findings::SecureBoot(Some(secure.enabled)),
        Report::Sensors(readings) => Findings::Sensors(readings.into_iter().map(sensor).collect()),
        Report::Inventory(found) => Findings::System(Box::new(system(*found))),
        Report::Identity(identity) => Findings::Identity(identity),
        Report::Light(on) => Findings::Light(if on { LightState::On } else { LightState::Off }),
    }
}

fn sensor(reading: SensorReading) -> Sensor {
    let kind = match reading.kind.as_str() {
        "Rotational" => "fan".to_owned(),
        other => lower(other),
    };
    let unit = match reading.unit.as_str() {
        "" => None,
        "Cel" => Some("C".to_owned()),
        _ => Some(reading.unit),
    };
    let state = match (reading.health.as_deref(), reading.value) {
        (Some("Warning"), _) => SensorState::Warning,
        (Some("Critical"), _) => SensorState::Critical,
        (_, None) => SensorState::Unavailable,
        _ => SensorState::Ok,
    };
    Sensor {
        name: reading.name,
        kind,
        value: reading.value,
        unit,
        state,
        states: Vec::new(),
        thresholds: Thresholds::default(),
    }
}

/// `AirFlow` as `air_flow`.
fn lower(word: &str) -> String {
    let mut text = String::new();
    for letter in word.chars().filter(char::is_ascii_alphanumeric) {
        if letter.is_ascii_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.push(letter.to_ascii_lowercase());
    }
    text
}

fn system(found: Inventory) -> System {
    let processor = Processor {
        model: found.cpu_model,
        ..Processor::default()
    };
    // As many as a machine has sockets, whatever a BMC says.
    let processors = found.cpus.unwrap_or(0).min(64);
    System {
        manufacturer: found.maker,
        model: found.model,
        sku: found.sku,
        serial_number: found.serial,
        asset_tag: found.asset_tag,
        uuid: found.uuid,
        bios_version: found.bios,
        memory_mb: found.memory_mib,
        processors: (0..processors).map(|_| processor.clone()).collect(),
        mac_addresses: found.macs.iter().map(ToString::to_string).collect(),
        health: found
            .health
            .map(|word| lower(&word))
            .map(|word| match word.as_str() {
                "o_k" => "ok".to_owned(),
                _ => word,
            }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trivet_model::errand::{HiddenBytes, MediaDevice};
    use trivet_model::secret::Hidden;

    #[test]
    fn what_redfish_does_is_asked() {
        let url = Hidden::new("http://192.0.2.1/a.iso");
        for errand in [
            Asked::Sensors,
            Asked::Identity,
            Asked::Light,
            Asked::SetLight(Light::On),
            Asked::BootMode,
            Asked::SetBootMode(Mode::Bios),
            Asked::SecureBoot,
            Asked::SetSecureBoot(true),
            Asked::Media,
            Asked::InsertMedia {
                device: MediaDevice::Cdrom,
                url,
            },
            Asked::EjectMedia {
                devices: Vec::new(),
            },
            Asked::System,
        ] {
            assert!(asked(&errand).is_ok(), "{errand:?}");
        }
    }

    #[test]
    fn what_it_does_not_is_refused_with_a_sentence() {
        for errand in [
            Asked::Events,
            Asked::ClearEvents,
            Asked::Inventory,
            Asked::Network,
            Asked::Users,
            Asked::Mailbox,
            Asked::WriteMailbox(HiddenBytes::new(vec![1])),
            Asked::SetLight(Light::For { seconds: 5 }),
        ] {
            let Err(PowerError::Unsupported { said }) = asked(&errand) else {
                panic!("{errand:?}");
            };
            assert!(said.contains("Redfish"), "{said}");
        }
    }

    #[test]
    fn sensors_are_told_in_shared_words() {
        let reading = |kind: &str, unit: &str, value, health: Option<&str>| {
            sensor(SensorReading {
                name: "x".to_owned(),
                kind: kind.to_owned(),
                value,
                unit: unit.to_owned(),
                health: health.map(str::to_owned),
            })
        };
        let inlet = reading("Temperature", "Cel", Some(20.0), Some("OK"));
        assert_eq!(
            (inlet.kind.as_str(), inlet.unit.as_deref()),
            ("temperature", Some("C"))
        );
        assert_eq!(inlet.state, SensorState::Ok);
        let fan = reading("Rotational", "RPM", None, None);
        assert_eq!(
            (fan.kind.as_str(), fan.state),
            ("fan", SensorState::Unavailable)
        );
        let flow = reading("AirFlow", "", Some(1.0), Some("Critical"));
        assert_eq!(
            (flow.kind.as_str(), flow.unit, flow.state),
            ("air_flow", None, SensorState::Critical)
        );
        assert_eq!(
            reading("", "W", Some(1.0), Some("Warning")).state,
            SensorState::Warning
        );
    }

    #[test]
    fn a_machine_of_a_million_sockets_is_told_as_a_smaller_one() {
        let found = Inventory {
            cpus: Some(u64::MAX),
            memory_mib: Some(512),
            health: Some("OK".to_owned()),
            ..Inventory::default()
        };
        let told = system(found);
        assert_eq!((told.processors.len(), told.memory_mb), (64, Some(512)));
        assert_eq!(told.health.as_deref(), Some("ok"));
    }

    #[test]
    fn modes_and_lights_are_told() {
        let report = Report::BootMode(BootMode::Legacy);
        assert_eq!(found(report), Findings::BootMode(Some(Mode::Bios)));
        assert_eq!(found(Report::Light(true)), Findings::Light(LightState::On));
        assert_eq!(found(Report::Done), Findings::Done);
    }
}
