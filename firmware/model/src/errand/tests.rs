use serde_json::json;

use super::*;

fn every() -> Vec<Errand> {
    vec![
        Errand::Sensors,
        Errand::Events,
        Errand::ClearEvents,
        Errand::Inventory,
        Errand::WriteInventory {
            device: 0,
            offset: 8,
            bytes: vec![1],
        },
        Errand::Identity,
        Errand::Network,
        Errand::Users,
        Errand::Light,
        Errand::SetLight(Light::On),
        Errand::SetLight(Light::Off),
        Errand::SetLight(Light::For { seconds: 5 }),
        Errand::Mailbox,
        Errand::WriteMailbox(HiddenBytes::new("hunter2")),
        Errand::BootMode,
        Errand::SetBootMode(BootMode::Uefi),
        Errand::SecureBoot,
        Errand::SetSecureBoot(true),
        Errand::Media,
        Errand::InsertMedia {
            device: MediaDevice::Cdrom,
            url: Hidden::new("http://user:hunter2@images.example/a.iso"),
        },
        Errand::EjectMedia {
            devices: Vec::new(),
        },
        Errand::System,
    ]
}

#[test]
fn nothing_that_is_secret_is_printed() {
    for errand in every() {
        let shown = format!("{errand:?} {}", errand.word());
        assert!(!shown.contains("hunter2"), "{shown}");
    }
    let hidden = HiddenBytes::new("hunter2");
    assert_eq!(format!("{hidden:?}"), "7 hidden bytes");
    assert_eq!(hidden.reveal(), b"hunter2");
}

#[test]
fn what_reads_says_so_and_never_counts() {
    for errand in every() {
        let reads = ["read", "list"]
            .iter()
            .any(|word| errand.word().starts_with(word));
        assert_eq!(errand.reads(), reads, "{errand:?}");
        assert!(!(errand.reads() && errand.counts()), "{errand:?}");
    }
    assert!(Errand::ClearEvents.counts());
    assert!(!Errand::SetLight(Light::On).counts());
}

#[test]
fn findings_have_the_documented_keys() {
    let sensor = Sensor {
        name: "CPU".into(),
        kind: "temperature".into(),
        value: Some(40.0),
        unit: Some("C".into()),
        state: SensorState::Ok,
        states: Vec::new(),
        thresholds: Thresholds {
            upper_critical: Some(90.0),
            ..Thresholds::default()
        },
    };
    let shown = Findings::Sensors(vec![sensor]).value();
    assert_eq!(
        shown,
        json!({"sensors": [{
            "name": "CPU", "kind": "temperature", "value": 40.0, "unit": "C", "state": "ok",
            "states": [],
            "thresholds": {
                "lower_warning": null, "lower_critical": null, "lower_non_recoverable": null,
                "upper_warning": null, "upper_critical": 90.0, "upper_non_recoverable": null,
            },
        }]})
    );
    assert_eq!(Findings::Done.value(), json!({"done": true}));
    assert_eq!(
        Findings::Light(LightState::Blinking).value(),
        json!({"state": "blinking"})
    );
    assert_eq!(
        Findings::BootMode(Some(BootMode::Uefi)).value(),
        json!({"boot_mode": "uefi"})
    );
    assert_eq!(
        Findings::SecureBoot(None).value(),
        json!({"secure_boot": null})
    );
    assert_eq!(
        Findings::Mailbox("AA==".into()).value(),
        json!({"data": "AA=="})
    );
}

#[test]
fn lists_and_parts_have_the_documented_keys() {
    let event = Event {
        id: "1".into(),
        time: None,
        severity: Severity::Warning,
        sensor: Some("CPU".into()),
        kind: None,
        asserted: Some(true),
        message: "hot".into(),
        raw: None,
    };
    let events = Findings::Events {
        events: vec![event],
        overflowed: Some(false),
    };
    assert_eq!(
        events.value(),
        json!({"overflowed": false, "events": [{
            "id": "1", "time": null, "severity": "warning", "sensor": "CPU", "kind": null,
            "asserted": true, "message": "hot", "raw": null,
        }]})
    );
    let keys = |value: serde_json::Value| {
        let keys = value.as_object().unwrap().keys().cloned();
        keys.collect::<Vec<_>>().join(" ")
    };
    let inventory = Findings::Inventory(Box::new(Parts {
        chassis: Some(ChassisPart::default()),
        board: Some(BoardPart::default()),
        product: Some(ProductPart::default()),
        problem: None,
        data: None,
    }));
    let shown = inventory.value();
    assert_eq!(shown["board"]["serial_number"], "");
    assert_eq!(shown["product"]["asset_tag"], "");
    assert_eq!(keys(shown), "board chassis data problem product");
    let network = Findings::Network(vec![Address::default()]).value();
    assert_eq!(network["interfaces"][0]["ipv6_addresses"], json!([]));
    let drive = Drive {
        id: "Cd".into(),
        devices: vec![MediaDevice::Cdrom],
        image: None,
        inserted: false,
    };
    assert_eq!(
        Findings::Media(vec![drive]).value(),
        json!({"media": [{"id": "Cd", "devices": ["cdrom"], "image": null, "inserted": false}]})
    );
    let user = User {
        id: "2".into(),
        name: "admin".into(),
        role: "administrator".into(),
        enabled: Some(true),
    };
    assert_eq!(
        Findings::Users(vec![user]).value()["users"][0]["role"],
        "administrator"
    );
    let identity = Findings::Identity(Box::default()).value();
    assert!(keys(identity).contains("firmware_version manufacturer"));
    let system = Findings::System(Box::default()).value();
    assert_eq!(system["processors"], json!([]));
}
