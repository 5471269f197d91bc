use serde_json::json;

use super::*;

fn every() -> Vec<BmcRequest> {
    vec![
        BmcRequest::Sensors,
        BmcRequest::Events,
        BmcRequest::ClearEvents,
        BmcRequest::Inventory,
        BmcRequest::WriteInventory {
            device: 0,
            offset: 8,
            bytes: vec![1],
        },
        BmcRequest::Identity,
        BmcRequest::Network,
        BmcRequest::Users,
        BmcRequest::Indicator,
        BmcRequest::SetIndicator(BmcIndicatorCommand::On),
        BmcRequest::SetIndicator(BmcIndicatorCommand::Off),
        BmcRequest::SetIndicator(BmcIndicatorCommand::For { seconds: 5 }),
        BmcRequest::Mailbox,
        BmcRequest::WriteMailbox(HiddenBytes::new("hunter2")),
        BmcRequest::BootMode,
        BmcRequest::SetBootMode(BootMode::Uefi),
        BmcRequest::SecureBoot,
        BmcRequest::SetSecureBoot(true),
        BmcRequest::Media,
        BmcRequest::InsertMedia {
            device: MediaDevice::Cdrom,
            url: SecretText::new("http://user:hunter2@images.example/a.iso"),
        },
        BmcRequest::EjectMedia {
            devices: Vec::new(),
        },
        BmcRequest::System,
        BmcRequest::Subscribe(Box::new(subscription())),
        BmcRequest::Unsubscribe { id: "7".to_owned() },
    ]
}

fn subscription() -> EventSubscription {
    EventSubscription {
        destination: SecretText::new("https://user:hunter2@events.example/hook"),
        protocol: "Redfish".to_owned(),
        context: SecretText::new("hunter2"),
        event_types: vec!["Alert".to_owned()],
        http_headers: vec![("X-Token".to_owned(), SecretText::new("hunter2"))],
    }
}

#[test]
fn subscriptions_belong_to_the_vendor_interface_and_are_not_repeated() {
    let create = BmcRequest::Subscribe(Box::new(subscription()));
    let delete = BmcRequest::Unsubscribe { id: "7".to_owned() };
    assert!(create.is_vendor_method() && delete.is_vendor_method());
    assert!(create.at_most_once() && !delete.at_most_once());
    assert!(!create.is_read_only() && !delete.is_read_only());
    assert!(!BmcRequest::Media.is_vendor_method());
}

#[test]
fn a_subscription_has_the_keys_of_redfish() {
    let reply = BmcReply::Subscription(Box::new(BmcSubscription {
        id: "7".to_owned(),
        event_types: vec!["Alert".to_owned()],
        ..BmcSubscription::default()
    }));
    let want = json!({"Id": "7", "Context": "", "Destination": "", "EventTypes": ["Alert"],
                      "Protocol": ""});
    assert_eq!(reply.value(), want);
}

#[test]
fn nothing_that_is_secret_is_printed() {
    for bmc_request in every() {
        let shown = format!("{bmc_request:?} {}", bmc_request.word());
        assert!(!shown.contains("hunter2"), "{shown}");
    }
    let hidden = HiddenBytes::new("hunter2");
    assert_eq!(format!("{hidden:?}"), "7 hidden bytes");
    assert_eq!(hidden.reveal(), b"hunter2");
}

#[test]
fn read_only_requests_may_be_repeated() {
    for bmc_request in every() {
        let reads = ["read", "list"]
            .iter()
            .any(|word| bmc_request.word().starts_with(word));
        assert_eq!(bmc_request.is_read_only(), reads, "{bmc_request:?}");
        assert!(
            !(bmc_request.is_read_only() && bmc_request.at_most_once()),
            "{bmc_request:?}"
        );
    }
    assert!(BmcRequest::ClearEvents.at_most_once());
    assert!(!BmcRequest::SetIndicator(BmcIndicatorCommand::On).at_most_once());
}

#[test]
fn replies_have_the_documented_keys() {
    let sensor = BmcSensor {
        name: "CPU".into(),
        kind: "temperature".into(),
        value: Some(40.0),
        unit: Some("C".into()),
        state: SensorState::Ok,
        states: Vec::new(),
        thresholds: SensorThresholds {
            upper_critical: Some(90.0),
            ..SensorThresholds::default()
        },
    };
    let shown = BmcReply::Sensors(vec![sensor]).value();
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
    assert_eq!(BmcReply::Done.value(), json!({"done": true}));
    assert_eq!(
        BmcReply::Indicator(BmcIndicatorState::Blinking).value(),
        json!({"state": "blinking"})
    );
    assert_eq!(
        BmcReply::BootMode(Some(BootMode::Uefi)).value(),
        json!({"boot_mode": "uefi"})
    );
    assert_eq!(
        BmcReply::SecureBoot(None).value(),
        json!({"secure_boot": null})
    );
    assert_eq!(
        BmcReply::Mailbox("AA==".into()).value(),
        json!({"data": "AA=="})
    );
}

#[test]
fn lists_and_parts_have_the_documented_keys() {
    let event = BmcEvent {
        id: "1".into(),
        time: None,
        severity: BmcEventSeverity::Warning,
        sensor: Some("CPU".into()),
        kind: None,
        asserted: Some(true),
        message: "hot".into(),
        raw: None,
    };
    let events = BmcReply::Events {
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
    let inventory = BmcReply::Inventory(Box::new(BmcInventory {
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
    let network = BmcReply::Network(vec![BmcNetworkInterface::default()]).value();
    assert_eq!(network["interfaces"][0]["ipv6_addresses"], json!([]));
    let drive = VirtualMediaDrive {
        id: "Cd".into(),
        devices: vec![MediaDevice::Cdrom],
        image: None,
        inserted: false,
    };
    assert_eq!(
        BmcReply::Media(vec![drive]).value(),
        json!({"media": [{"id": "Cd", "devices": ["cdrom"], "image": null, "inserted": false}]})
    );
    let user = BmcUser {
        id: "2".into(),
        name: "admin".into(),
        role: "administrator".into(),
        enabled: Some(true),
    };
    assert_eq!(
        BmcReply::Users(vec![user]).value()["users"][0]["role"],
        "administrator"
    );
    let identity = BmcReply::Identity(Box::default()).value();
    assert!(keys(identity).contains("firmware_version manufacturer"));
    let system = BmcReply::System(Box::default()).value();
    assert_eq!(system["processors"], json!([]));
}
