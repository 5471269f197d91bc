use serde_json::json;
use trivet_model::bmc_request::{BootMode, HiddenBytes, MediaDevice};
use trivet_model::secret::SecretText;

use super::*;
use crate::operation::DeviceId;
use crate::sdr::tests::full;
use crate::sel::SelInfo;

#[test]
fn what_ipmi_can_do_has_an_operation() {
    for (request, want) in [
        (RequestedOperation::Sensors, IpmiOperation::Sensors),
        (RequestedOperation::Events, IpmiOperation::SelList),
        (RequestedOperation::ClearEvents, IpmiOperation::SelClear),
        (
            RequestedOperation::Inventory,
            IpmiOperation::ReadFru { device: 0 },
        ),
        (RequestedOperation::Identity, IpmiOperation::Identity),
        (
            RequestedOperation::Network,
            IpmiOperation::Lan { channel: 14 },
        ),
        (
            RequestedOperation::Users,
            IpmiOperation::Users { channel: 14 },
        ),
        (RequestedOperation::Indicator, IpmiOperation::IdentifyState),
        (
            RequestedOperation::Mailbox,
            IpmiOperation::ReadMailbox { blocks: 16 },
        ),
        (
            RequestedOperation::WriteMailbox(HiddenBytes::new("x")),
            IpmiOperation::WriteMailbox {
                bytes: b"x".to_vec(),
            },
        ),
        (
            RequestedOperation::WriteInventory {
                device: 1,
                offset: 8,
                bytes: vec![5],
            },
            IpmiOperation::WriteFru {
                device: 1,
                offset: 8,
                bytes: vec![5],
            },
        ),
    ] {
        assert_eq!(to_operation(&request).as_ref(), Ok(&want));
        assert_eq!(request.at_most_once(), want.at_most_once(), "{request:?}");
    }
    for (wanted, light) in [
        (Wanted::Off, IpmiIdentify::For { seconds: 0 }),
        (Wanted::On, IpmiIdentify::On),
        (Wanted::For { seconds: 9 }, IpmiIdentify::For { seconds: 9 }),
    ] {
        let operation = to_operation(&RequestedOperation::SetIndicator(wanted));
        assert_eq!(operation, Ok(IpmiOperation::Identify { identify: light }));
    }
}

#[test]
fn what_ipmi_cannot_do_is_refused_with_a_sentence() {
    for request in [
        RequestedOperation::BootMode,
        RequestedOperation::SetBootMode(BootMode::Uefi),
        RequestedOperation::SecureBoot,
        RequestedOperation::SetSecureBoot(true),
        RequestedOperation::Media,
        RequestedOperation::InsertMedia {
            device: MediaDevice::Cdrom,
            url: SecretText::new("http://images.example/a.iso"),
        },
        RequestedOperation::EjectMedia {
            devices: Vec::new(),
        },
        RequestedOperation::System,
    ] {
        let Err(PowerError::Unsupported { message }) = to_operation(&request) else {
            panic!("{request:?}");
        };
        assert!(message.starts_with("IPMI"), "{message}");
    }
}

#[test]
fn sensors_have_units_states_and_thresholds() {
    let shown = to_bmc_reply(IpmiReply::Sensors(vec![
        full().reading(&[72, 0xc0, 0b1000]),
        full().reading(&[]),
    ]));
    let shown = shown.value();
    let first = &shown["sensors"][0];
    assert_eq!(first["kind"], "temperature");
    assert_eq!(
        (&first["unit"], &first["value"]),
        (&json!("C"), &json!(72.0))
    );
    assert_eq!(first["state"], "warning");
    assert_eq!(first["thresholds"]["upper_warning"], 70.0);
    assert_eq!(first["thresholds"]["upper_critical"], 80.0);
    assert_eq!(first["thresholds"]["lower_warning"], json!(null));
    let second = &shown["sensors"][1];
    assert_eq!(
        (&second["state"], &second["value"]),
        (&json!("unavailable"), &json!(null))
    );
}

#[test]
fn states_power_and_odd_numbers_of_sensors_are_converted() {
    let reading = SdrReading {
        number: 1,
        kind: 8,
        name: "PSU".into(),
        value: Some(0.1 + 0.2),
        unit: "W".into(),
        thresholds: [None; 6],
        state: SdrSensorState::Bits(0b101),
    };
    let reported = sensor(reading);
    assert_eq!(
        (reported.kind.as_str(), reported.value),
        ("power", Some(0.3))
    );
    assert_eq!(
        (reported.state, reported.states),
        (SensorState::Discrete, vec![0, 2])
    );
    assert!(rounded(1e308) > 1e307, "large values stay");
    for (state, want) in [
        (SdrSensorState::Ok, SensorState::Ok),
        (SdrSensorState::Critical, SensorState::Critical),
        (SdrSensorState::NonRecoverable, SensorState::NonRecoverable),
    ] {
        let reading = SdrReading {
            state,
            ..full().reading(&[])
        };
        assert_eq!(sensor(reading).state, want);
    }
}

#[test]
fn an_inventory_has_its_areas_and_its_bytes() {
    let inventory = FruInventory {
        chassis: Some(FruChassis {
            serial: "C1".into(),
            ..FruChassis::default()
        }),
        board: Some(FruBoard {
            made_minutes: 1,
            maker: "Maker".into(),
            ..FruBoard::default()
        }),
        product: Some(FruProduct {
            asset: "A9".into(),
            ..FruProduct::default()
        }),
    };
    let bytes = inventory.emit();
    let shown = to_bmc_reply(IpmiReply::Fru(bytes.clone())).value();
    assert_eq!(shown["chassis"]["serial_number"], "C1");
    assert_eq!(
        shown["board"]["made_at"],
        "1996-01-01T00:01:00.000000+00:00"
    );
    assert_eq!(shown["product"]["asset_tag"], "A9");
    assert_eq!(shown["data"], STANDARD.encode(&bytes));
    assert_eq!(shown["problem"], json!(null));
    let shown = to_bmc_reply(IpmiReply::Fru(vec![0xff; 16])).value();
    assert_eq!(
        (&shown["board"], &shown["problem"]),
        (&json!(null), &json!("no common header"))
    );
}

#[test]
fn identity_network_and_users_are_converted() {
    let device = DeviceId {
        id: 32,
        revision: 1,
        major: 2,
        minor: 0x05,
        ipmi: (1, 5),
        maker: 674,
        product: 256,
    };
    let identity = IpmiIdentity {
        device,
        bmc_guid: None,
        system_guid: Some([0; 16]),
    };
    let shown = to_bmc_reply(IpmiReply::Identity(identity)).value();
    assert_eq!(shown["firmware_version"], "2.05");
    assert_eq!(shown["protocol_version"], "1.5");
    assert_eq!(
        (&shown["manufacturer"], &shown["bmc_uuid"]),
        (&json!("Dell"), &json!(null))
    );
    assert_eq!(shown["system_uuid"], "00000000-0000-0000-0000-000000000000");
    for (source, word) in [
        (AddressSource::Static, "static"),
        (AddressSource::Dhcp, "dhcp"),
        (AddressSource::Firmware, "firmware"),
        (AddressSource::Other(7), "other"),
    ] {
        let lan = IpmiLanConfig {
            source: Some(source),
            mac: Some([2, 0, 0, 0, 0, 9]),
            ..IpmiLanConfig::default()
        };
        let shown = to_bmc_reply(IpmiReply::Lan(lan)).value();
        let first = &shown["interfaces"][0];
        assert_eq!(first["ipv4_source"], word);
        assert_eq!(first["mac_address"], "02:00:00:00:00:09");
    }
    let roles = [1, 2, 3, 4, 5, 15].map(|limit| {
        let entry = UserEntry {
            id: 2,
            name: "n".into(),
            limit,
            messaging: true,
        };
        user(entry).role
    });
    assert_eq!(
        roles.join(" "),
        "callback user operator administrator oem none"
    );
}

#[test]
fn other_replies_are_converted_too() {
    for (light, word) in [
        (IpmiIdentifyState::Off, "off"),
        (IpmiIdentifyState::On, "on"),
        (IpmiIdentifyState::Timed, "blinking"),
        (IpmiIdentifyState::Unknown, "unknown"),
    ] {
        assert_eq!(
            to_bmc_reply(IpmiReply::IdentifyState(light)).value(),
            json!({"state": word})
        );
    }
    assert_eq!(to_bmc_reply(IpmiReply::Done), BmcReply::Done);
    let mailbox = to_bmc_reply(IpmiReply::Mailbox(vec![0, 1]));
    assert_eq!(mailbox, BmcReply::Mailbox("AAE=".into()));
    let info = SelInfo {
        overflowed: true,
        ..SelInfo::default()
    };
    let records = Vec::new();
    let shown = to_bmc_reply(IpmiReply::Sel { info, records }).value();
    assert_eq!(shown, json!({"events": [], "overflowed": true}));
}
