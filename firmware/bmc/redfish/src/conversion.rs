//! Conversion between the requests and replies that all BMC protocols share and those of Redfish.
//! Requests that this box does not support over Redfish are refused with what to do instead.

use trivet_model::PowerError;
use trivet_model::bmc_request::{
    BmcIndicatorCommand, BmcIndicatorState, BmcReply, BmcRequest as RequestedOperation, BmcSensor,
    BmcSystemInfo, BootMode as Mode, Processor, SensorState, SensorThresholds,
};

use crate::operation::{
    RedfishBootMode, RedfishInventory, RedfishOperation, RedfishReply, RedfishSensorReading,
};

/// The Redfish operation for a request.
pub fn to_operation(operation: &RequestedOperation) -> Result<RedfishOperation, PowerError> {
    let unsupported = |message| Err(PowerError::Unsupported { message });
    Ok(match operation {
        RequestedOperation::Sensors => RedfishOperation::Sensors,
        RequestedOperation::Identity => RedfishOperation::Identity,
        RequestedOperation::Indicator => RedfishOperation::Indicator,
        RequestedOperation::SetIndicator(BmcIndicatorCommand::Off) => {
            RedfishOperation::SetIndicator(false)
        }
        RequestedOperation::SetIndicator(BmcIndicatorCommand::On) => {
            RedfishOperation::SetIndicator(true)
        }
        RequestedOperation::SetIndicator(BmcIndicatorCommand::For { .. }) => {
            return unsupported("Redfish has no timer for indicators; set it on, later off");
        }
        RequestedOperation::BootMode => RedfishOperation::BootMode,
        RequestedOperation::SetBootMode(Mode::Uefi) => {
            RedfishOperation::SetBootMode(RedfishBootMode::Uefi)
        }
        RequestedOperation::SetBootMode(Mode::Bios) => {
            RedfishOperation::SetBootMode(RedfishBootMode::Legacy)
        }
        RequestedOperation::SecureBoot => RedfishOperation::SecureBoot,
        RequestedOperation::SetSecureBoot(on) => RedfishOperation::SetSecureBoot(*on),
        RequestedOperation::Media => RedfishOperation::Media,
        RequestedOperation::InsertMedia { device, url } => RedfishOperation::InsertMedia {
            device: *device,
            url: url.clone(),
        },
        RequestedOperation::EjectMedia { devices } => RedfishOperation::EjectMedia {
            devices: devices.clone(),
        },
        RequestedOperation::BootUrl { url, persistent } => RedfishOperation::BootHttp {
            url: url.reveal().to_owned(),
            persistent: *persistent,
        },
        RequestedOperation::System => RedfishOperation::Inventory,
        RequestedOperation::Subscribe(subscription) => {
            RedfishOperation::Subscribe(subscription.clone())
        }
        RequestedOperation::Unsubscribe { id } => RedfishOperation::Unsubscribe { id: id.clone() },
        RequestedOperation::Events | RequestedOperation::ClearEvents => {
            return unsupported("this box does not read event logs by Redfish yet");
        }
        RequestedOperation::Inventory | RequestedOperation::WriteInventory { .. } => {
            return unsupported("Redfish has no inventory device; read the system inventory");
        }
        RequestedOperation::Network | RequestedOperation::Users => {
            return unsupported("this box does not read the settings of a BMC by Redfish yet");
        }
        RequestedOperation::Mailbox | RequestedOperation::WriteMailbox(_) => {
            return unsupported("Redfish has no boot mailbox, only IPMI has one");
        }
    })
}

/// The shared form of a reply.
pub fn to_bmc_reply(report: RedfishReply) -> BmcReply {
    match report {
        RedfishReply::Done => BmcReply::Done,
        RedfishReply::Media(drives) => BmcReply::Media(drives),
        RedfishReply::BootMode(mode) => BmcReply::BootMode(Some(match mode {
            RedfishBootMode::Uefi => Mode::Uefi,
            RedfishBootMode::Legacy => Mode::Bios,
        })),
        RedfishReply::SecureBoot(secure) => BmcReply::SecureBoot(Some(secure.enabled)),
        RedfishReply::Sensors(readings) => {
            BmcReply::Sensors(readings.into_iter().map(sensor).collect())
        }
        RedfishReply::Inventory(found) => BmcReply::System(Box::new(system(*found))),
        RedfishReply::Identity(identity) => BmcReply::Identity(identity),
        RedfishReply::Subscription(subscription) => BmcReply::Subscription(subscription),
        RedfishReply::Indicator(on) => BmcReply::Indicator(if on {
            BmcIndicatorState::On
        } else {
            BmcIndicatorState::Off
        }),
    }
}

fn sensor(reading: RedfishSensorReading) -> BmcSensor {
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
    BmcSensor {
        name: reading.name,
        kind,
        value: reading.value,
        unit,
        state,
        states: Vec::new(),
        thresholds: SensorThresholds::default(),
    }
}

/// Converts a name such as `AirFlow` to `air_flow`.
fn lower(word: &str) -> String {
    let mut text = String::new();
    for character in word.chars().filter(char::is_ascii_alphanumeric) {
        if character.is_ascii_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.push(character.to_ascii_lowercase());
    }
    text
}

fn system(found: RedfishInventory) -> BmcSystemInfo {
    let processor = Processor {
        model: found.cpu_model,
        ..Processor::default()
    };
    // Limited to the number of sockets that a machine can have, whatever the BMC reports.
    let processors = found.cpus.unwrap_or(0).min(64);
    BmcSystemInfo {
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
    use trivet_model::bmc_request::{HiddenBytes, MediaDevice};
    use trivet_model::secret::SecretText;

    #[test]
    fn supported_requests_become_operations() {
        let url = SecretText::new("http://192.0.2.1/a.iso");
        for operation in [
            RequestedOperation::Sensors,
            RequestedOperation::Identity,
            RequestedOperation::Indicator,
            RequestedOperation::SetIndicator(BmcIndicatorCommand::On),
            RequestedOperation::BootMode,
            RequestedOperation::SetBootMode(Mode::Bios),
            RequestedOperation::SecureBoot,
            RequestedOperation::SetSecureBoot(true),
            RequestedOperation::Media,
            RequestedOperation::InsertMedia {
                device: MediaDevice::Cdrom,
                url,
            },
            RequestedOperation::EjectMedia {
                devices: Vec::new(),
            },
            RequestedOperation::System,
            RequestedOperation::Unsubscribe { id: "1".to_owned() },
        ] {
            assert!(to_operation(&operation).is_ok(), "{operation:?}");
        }
    }

    #[test]
    fn what_it_does_not_is_refused_with_a_sentence() {
        for operation in [
            RequestedOperation::Events,
            RequestedOperation::ClearEvents,
            RequestedOperation::Inventory,
            RequestedOperation::Network,
            RequestedOperation::Users,
            RequestedOperation::Mailbox,
            RequestedOperation::WriteMailbox(HiddenBytes::new(vec![1])),
            RequestedOperation::SetIndicator(BmcIndicatorCommand::For { seconds: 5 }),
        ] {
            let Err(PowerError::Unsupported { message }) = to_operation(&operation) else {
                panic!("{operation:?}");
            };
            assert!(message.contains("Redfish"), "{message}");
        }
    }

    #[test]
    fn sensors_are_converted_to_shared_words() {
        let reading = |kind: &str, unit: &str, value, health: Option<&str>| {
            sensor(RedfishSensorReading {
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
    fn a_million_sockets_are_limited() {
        let found = RedfishInventory {
            cpus: Some(u64::MAX),
            memory_mib: Some(512),
            health: Some("OK".to_owned()),
            ..RedfishInventory::default()
        };
        let reported = system(found);
        assert_eq!(
            (reported.processors.len(), reported.memory_mb),
            (64, Some(512))
        );
        assert_eq!(reported.health.as_deref(), Some("ok"));
    }

    #[test]
    fn modes_and_indicators_are_converted() {
        let report = RedfishReply::BootMode(RedfishBootMode::Legacy);
        assert_eq!(to_bmc_reply(report), BmcReply::BootMode(Some(Mode::Bios)));
        assert_eq!(
            to_bmc_reply(RedfishReply::Indicator(true)),
            BmcReply::Indicator(BmcIndicatorState::On)
        );
        assert_eq!(to_bmc_reply(RedfishReply::Done), BmcReply::Done);
    }
}
