use serde_json::json;
use trivet_model::errand::{BootMode, HiddenBytes, MediaDevice};
use trivet_model::secret::Hidden;

use super::*;
use crate::errand::DeviceId;
use crate::sdr::tests::full;
use crate::sel::SelInfo;

#[test]
fn what_ipmi_can_do_has_an_errand() {
    for (asking, want) in [
        (Asked::Sensors, Errand::Sensors),
        (Asked::Events, Errand::SelList),
        (Asked::ClearEvents, Errand::SelClear),
        (Asked::Inventory, Errand::ReadFru { device: 0 }),
        (Asked::Identity, Errand::Identity),
        (Asked::Network, Errand::Lan { channel: 14 }),
        (Asked::Users, Errand::Users { channel: 14 }),
        (Asked::Light, Errand::LightNow),
        (Asked::Mailbox, Errand::ReadMailbox { blocks: 16 }),
        (
            Asked::WriteMailbox(HiddenBytes::new("x")),
            Errand::WriteMailbox {
                bytes: b"x".to_vec(),
            },
        ),
        (
            Asked::WriteInventory {
                device: 1,
                offset: 8,
                bytes: vec![5],
            },
            Errand::WriteFru {
                device: 1,
                offset: 8,
                bytes: vec![5],
            },
        ),
    ] {
        assert_eq!(asked(&asking).as_ref(), Ok(&want));
        assert_eq!(asking.counts(), want.counts(), "{asking:?}");
    }
    for (wanted, light) in [
        (Wanted::Off, Light::For { seconds: 0 }),
        (Wanted::On, Light::On),
        (Wanted::For { seconds: 9 }, Light::For { seconds: 9 }),
    ] {
        let errand = asked(&Asked::SetLight(wanted));
        assert_eq!(errand, Ok(Errand::Identify { light }));
    }
}

#[test]
fn what_ipmi_cannot_do_is_refused_with_a_sentence() {
    for asking in [
        Asked::BootMode,
        Asked::SetBootMode(BootMode::Uefi),
        Asked::SecureBoot,
        Asked::SetSecureBoot(true),
        Asked::Media,
        Asked::InsertMedia {
            device: MediaDevice::Cdrom,
            url: Hidden::new("http://images.example/a.iso"),
        },
        Asked::EjectMedia {
            devices: Vec::new(),
        },
        Asked::System,
    ] {
        let Err(PowerError::Unsupported { said }) = asked(&asking) else {
            panic!("{asking:?}");
        };
        assert!(said.starts_with("IPMI"), "{said}");
    }
}

#[test]
fn sensors_are_told_with_units_states_and_thresholds() {
    let shown = found(Report::Sensors(vec![
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
fn states_power_and_odd_numbers_of_sensors_are_told() {
    let reading = Reading {
        number: 1,
        kind: 8,
        name: "PSU".into(),
        value: Some(0.1 + 0.2),
        unit: "W".into(),
        thresholds: [None; 6],
        state: State::Bits(0b101),
    };
    let told = sensor(reading);
    assert_eq!((told.kind.as_str(), told.value), ("power", Some(0.3)));
    assert_eq!(
        (told.state, told.states),
        (SensorState::Discrete, vec![0, 2])
    );
    assert!(rounded(1e308) > 1e307, "large values stay");
    for (state, want) in [
        (State::Ok, SensorState::Ok),
        (State::Critical, SensorState::Critical),
        (State::NonRecoverable, SensorState::NonRecoverable),
    ] {
        let reading = Reading {
            state,
            ..full().reading(&[])
        };
        assert_eq!(sensor(reading).state, want);
    }
}

#[test]
fn an_inventory_is_told_area_by_area_and_byte_by_byte() {
    let inventory = Inventory {
        chassis: Some(Chassis {
            serial: "C1".into(),
            ..Chassis::default()
        }),
        board: Some(Board {
            made_minutes: 1,
            maker: "Maker".into(),
            ..Board::default()
        }),
        product: Some(Product {
            asset: "A9".into(),
            ..Product::default()
        }),
    };
    let bytes = inventory.emit();
    let shown = found(Report::Fru(bytes.clone())).value();
    assert_eq!(shown["chassis"]["serial_number"], "C1");
    assert_eq!(
        shown["board"]["made_at"],
        "1996-01-01T00:01:00.000000+00:00"
    );
    assert_eq!(shown["product"]["asset_tag"], "A9");
    assert_eq!(shown["data"], STANDARD.encode(&bytes));
    assert_eq!(shown["problem"], json!(null));
    let shown = found(Report::Fru(vec![0xff; 16])).value();
    assert_eq!(
        (&shown["board"], &shown["problem"]),
        (&json!(null), &json!("no common header"))
    );
}

#[test]
fn who_where_and_whose_are_told() {
    let device = DeviceId {
        id: 32,
        revision: 1,
        major: 2,
        minor: 0x05,
        ipmi: 0x51,
        maker: 674,
        product: 256,
    };
    let identity = Identity {
        device,
        bmc: None,
        system: Some([0; 16]),
    };
    let shown = found(Report::Identity(identity)).value();
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
        let lan = Lan {
            source: Some(source),
            mac: Some([2, 0, 0, 0, 0, 9]),
            ..Lan::default()
        };
        let shown = found(Report::Lan(lan)).value();
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
fn what_is_left_is_told_too() {
    for (light, word) in [
        (LightNow::Off, "off"),
        (LightNow::On, "on"),
        (LightNow::Timed, "blinking"),
        (LightNow::Unknown, "unknown"),
    ] {
        assert_eq!(found(Report::Light(light)).value(), json!({"state": word}));
    }
    assert_eq!(found(Report::Done), Findings::Done);
    let mailbox = found(Report::Mailbox(vec![0, 1]));
    assert_eq!(mailbox, Findings::Mailbox("AAE=".into()));
    let info = SelInfo {
        overflowed: true,
        ..SelInfo::default()
    };
    let records = Vec::new();
    let shown = found(Report::Sel { info, records }).value();
    assert_eq!(shown, json!({"events": [], "overflowed": true}));
}
