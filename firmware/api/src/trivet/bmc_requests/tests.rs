//! BMC requests: roles, conversion to orders, replies and refusals.

use trivet_model::bmc_request::{
    BmcEvent, BmcEventSeverity, BmcIdentity, BmcIndicatorState, BmcInventory, BmcNetworkInterface,
    BmcReply, BmcSensor, BmcSystemInfo, BmcUser, BootMode, MediaDevice, SensorState,
    SensorThresholds, VirtualMediaDrive,
};
use trivet_model::secret::SecretText;
use trivet_model::view::BmcHealth;
use trivet_model::{OrderOutcome, OrderRefusal, ProvisionState, RefusalKind};

use super::*;
use crate::Request;
use crate::testing::{ApiBench, LATEST, get, node_id, send};
use crate::{access, routes};

fn bench() -> ApiBench {
    ApiBench::with(ProvisionState::Manageable)
}

fn redfish() -> ApiBench {
    let mut bench = bench();
    bench.change(|node| {
        node.driver = "redfish".into();
        let address = serde_json::json!("192.0.2.1");
        node.driver_info.insert("redfish_address".into(), address);
    });
    bench
}

#[track_caller]
fn becomes(bench: &ApiBench, request: &Request<'_>, want: BmcRequest, then: &ResponsePlan) {
    let (order, given) = bench.order(request);
    let node = node_id(1);
    let method = VendorMethod::BmcRequest(want);
    assert_eq!(order, RackOrder::Vendor { node, method });
    assert_eq!(&given, then);
}

#[test]
fn every_question_has_a_path() {
    for (word, want) in [
        ("sensors", BmcRequest::Sensors),
        ("events", BmcRequest::Events),
        ("inventory", BmcRequest::Inventory),
        ("identity", BmcRequest::Identity),
        ("network", BmcRequest::Network),
        ("users", BmcRequest::Users),
        ("light", BmcRequest::Indicator),
        ("mailbox", BmcRequest::Mailbox),
        ("boot_mode", BmcRequest::BootMode),
        ("secure_boot", BmcRequest::SecureBoot),
        ("media", BmcRequest::Media),
        ("system", BmcRequest::System),
    ] {
        let path = format!("/trivet/nodes/node-1/bmc/{word}");
        becomes(&bench(), &get(&path), want, &ResponsePlan::CommandReply);
        let nobody = format!("/trivet/nodes/nobody/bmc/{word}");
        bench().refuses(&get(&nobody), 404);
    }
    bench().refuses(&get("/trivet/nodes/node-1/bmc/dance"), 404);
}

#[test]
fn the_reply_of_a_bmc_is_the_response() {
    let request = get("/trivet/nodes/node-1/bmc/light");
    let reply = BmcReply::Indicator(BmcIndicatorState::On).value();
    let shown = bench().finish(
        &request,
        &ResponsePlan::CommandReply,
        Ok(OrderOutcome::Reply(reply)),
    );
    assert_eq!(shown.value(), json!({"state": "on"}));
    let refusal = OrderRefusal::new(RefusalKind::Invalid, "IPMI has no virtual media.");
    let shown = bench().finish(&request, &ResponsePlan::CommandReply, Err(refusal));
    assert_eq!(shown.status, 400);
    let silent = || OrderRefusal::new(RefusalKind::Failed, "Node x: the BMC did not answer.");
    let shown = bench().finish(&request, &ResponsePlan::CommandReply, Err(silent()));
    assert_eq!(shown.status, 502, "the box itself is fine");
    assert!(shown.text().contains("did not answer"), "{}", shown.text());
    let ironics = get("/v1/nodes/node-1/management/indicators/led@system").at(LATEST);
    let shown = bench().finish(&ironics, &ResponsePlan::CommandReply, Err(silent()));
    assert_eq!(shown.status, 500);
}

#[test]
fn the_identify_led_is_set_on_off_and_timed() {
    let path = "/trivet/nodes/node-1/bmc/light";
    for (text, light) in [
        (r#"{"state": "on"}"#, BmcIndicatorCommand::On),
        (r#"{"state": "off"}"#, BmcIndicatorCommand::Off),
        (
            r#"{"state": "on", "seconds": 30}"#,
            BmcIndicatorCommand::For { seconds: 30 },
        ),
    ] {
        let then = empty(204, None);
        let request = send("PUT", path, text);
        becomes(&bench(), &request, BmcRequest::SetIndicator(light), &then);
    }
    for wrong in [
        "{}",
        r#"{"state": "purple"}"#,
        r#"{"state": "on", "seconds": 0}"#,
        r#"{"state": "on", "seconds": 256}"#,
        r#"{"state": "off", "seconds": 9}"#,
        r#"{"state": "on", "colour": "blue"}"#,
    ] {
        bench().refuses(&send("PUT", path, wrong), 400);
    }
}

#[test]
fn written_data_is_base64_and_has_bounds() {
    let mailbox = "/trivet/nodes/node-1/bmc/mailbox";
    let write = BmcRequest::WriteMailbox(HiddenBytes::new("hi"));
    let request = send("PUT", mailbox, r#"{"data": "aGk="}"#);
    becomes(&bench(), &request, write, &empty(204, None));
    let inventory = "/trivet/nodes/node-1/bmc/inventory";
    let write = BmcRequest::WriteInventory {
        device: 0,
        offset: 8,
        bytes: b"hi".to_vec(),
    };
    let request = send("PUT", inventory, r#"{"offset": 8, "data": "aGk="}"#);
    becomes(&bench(), &request, write, &empty(204, None));
    let long = json!({"data": STANDARD.encode([0; 257])}).to_string();
    for wrong in ["{}", r#"{"data": ""}"#, r#"{"data": "?"}"#, &long] {
        bench().refuses(&send("PUT", mailbox, wrong), 400);
    }
    for wrong in [
        r#"{"data": "aGk=", "device": 256}"#,
        r#"{"data": "aGk=", "offset": 65536}"#,
        r#"{"data": "aGk=", "offset": -1}"#,
    ] {
        bench().refuses(&send("PUT", inventory, wrong), 400);
    }
    let request = send("DELETE", "/trivet/nodes/node-1/bmc/events", "");
    becomes(
        &bench(),
        &request,
        BmcRequest::ClearEvents,
        &empty(204, None),
    );
}

#[test]
fn readers_read_operators_switch_and_admins_write_bytes() {
    for (method, word, want) in [
        ("GET", "sensors", Access::Reader),
        ("GET", "light", Access::Reader),
        ("PUT", "light", Access::Operator),
        ("DELETE", "events", Access::Operator),
        ("GET", "users", Access::Operator),
        ("GET", "mailbox", Access::Admin),
        ("PUT", "mailbox", Access::Admin),
        ("PUT", "inventory", Access::Admin),
    ] {
        let path = format!("/trivet/nodes/x/bmc/{word}");
        assert_eq!(access(method, &path), want, "{method} {word}");
    }
}

#[test]
fn the_identify_led_is_an_indicator_in_ironic() {
    let path = "/v1/nodes/node-1/management/indicators/led@system";
    let request = get(path).at(LATEST);
    becomes(
        &bench(),
        &request,
        BmcRequest::Indicator,
        &ResponsePlan::CommandReply,
    );
    let request = send("PUT", path, r#"{"state": "ON"}"#).at(LATEST);
    let lit = BmcRequest::SetIndicator(BmcIndicatorCommand::On);
    becomes(&bench(), &request, lit, &empty(204, None));
    let request = send("PUT", path, r#"{"state": "off"}"#).at(LATEST);
    let dark = BmcRequest::SetIndicator(BmcIndicatorCommand::Off);
    becomes(&bench(), &request, dark, &empty(204, None));
    bench().refuses(
        &send("PUT", path, r#"{"state": "blinking"}"#).at(LATEST),
        400,
    );
}

#[test]
fn modes_and_media_are_requested_from_a_bmc_that_has_them() {
    let states = "http://box:6385/v1/nodes/00000000-0000-4000-8000-000000000001/states";
    let then = empty(202, Some(states.into()));
    let mode = "/v1/nodes/node-1/states/boot_mode";
    let request = send("PUT", mode, r#"{"target": "uefi"}"#).at(LATEST);
    let uefi = BmcRequest::SetBootMode(BootMode::Uefi);
    becomes(&redfish(), &request, uefi, &then);
    let secure = "/v1/nodes/node-1/states/secure_boot";
    let request = send("PUT", secure, r#"{"target": false}"#).at(LATEST);
    becomes(
        &redfish(),
        &request,
        BmcRequest::SetSecureBoot(false),
        &then,
    );
    let media = "/v1/nodes/node-1/vmedia";
    becomes(
        &redfish(),
        &get(media).at(LATEST),
        BmcRequest::Media,
        &ResponsePlan::Media,
    );
    let body = r#"{"device_type": "cdrom", "image_url": "http://u:p@x/y.iso"}"#;
    let insert = BmcRequest::InsertMedia {
        device: MediaDevice::Cdrom,
        url: SecretText::new("http://u:p@x/y.iso"),
    };
    let request = send("POST", media, body).at(LATEST);
    becomes(&redfish(), &request, insert, &empty(204, None));
    for (query, devices) in [
        ("", vec![]),
        ("?device_types=cdrom", vec![MediaDevice::Cdrom]),
    ] {
        let path = format!("{media}{query}");
        let request = send("DELETE", &path, "").at(LATEST);
        let eject = BmcRequest::EjectMedia { devices };
        becomes(&redfish(), &request, eject, &empty(204, None));
    }
}

#[test]
fn drives_are_listed_as_ironic_does() {
    let drive = |devices: &[MediaDevice], image: Option<&str>| VirtualMediaDrive {
        id: "x".into(),
        devices: devices.to_vec(),
        image: image.map(str::to_owned),
        inserted: image.is_some(),
    };
    let message = BmcReply::Media(vec![
        drive(&[MediaDevice::Cdrom], Some("http://x/y.iso")),
        drive(&[MediaDevice::Disk, MediaDevice::Floppy], None),
    ]);
    let request = get("/v1/nodes/node-1/vmedia").at(LATEST);
    let done = Ok(OrderOutcome::Reply(message.value()));
    let shown = redfish()
        .finish(&request, &ResponsePlan::Media, done)
        .value();
    assert_eq!(
        shown,
        json!([
            {"image": "http://x/y.iso", "inserted": true, "media_types": ["CD", "DVD"]},
            {"image": "", "inserted": false, "media_types": ["USBStick", "Floppy"]},
        ])
    );
}

#[test]
fn bmc_statistics_are_listed_worst_first() {
    let mut bench = bench();
    bench.add(crate::testing::node(2));
    bench.add(crate::testing::node(3));
    for (number, score) in [(1, 100), (2, 40)] {
        let health = BmcHealth {
            requests: 16,
            replies: 8,
            median_ms: Some(30),
            last_error: Some("login"),
            score,
        };
        let nodes = &mut bench.view.nodes;
        nodes.change(node_id(number), |view| view.live.bmc = Some(health));
    }
    let shown = bench.reply(&get("/trivet/bmcs")).value();
    let names = shown["bmcs"].as_array().unwrap().iter();
    let names: Vec<_> = names.map(|bmc| bmc["node"].clone()).collect();
    assert_eq!(
        names,
        ["node-2", "node-1"],
        "a BMC without requests is not listed"
    );
    let one = bench.reply(&get("/trivet/nodes/node-2/bmc")).value();
    assert_eq!(
        (&one["score"], &one["last_error"]),
        (&json!(40), &json!("login"))
    );
    let new = bench.reply(&get("/trivet/nodes/node-3/bmc")).value();
    assert_eq!((&new["score"], &new["asked"]), (&json!(null), &json!(0)));
}

/// Every request has a description, and only those.
#[test]
fn the_description_has_the_keys_of_the_findings() {
    #[track_caller]
    fn check(word: &str, shown: &Value) {
        let path = ["trivet", "nodes", "x", "bmc", word].map(str::to_owned);
        let columns = match routes::find("GET", &path).unwrap().response {
            ResponseSchema::Record(_, columns) | ResponseSchema::List(_, columns) => columns(),
            _ => panic!("{word} is not described"),
        };
        let mut lines: Vec<&str> = columns.iter().map(|column| column.name).collect();
        lines.sort_unstable();
        let shown: Vec<&String> = shown.as_object().unwrap().keys().collect();
        assert_eq!(lines, shown, "{word}");
    }
    let sensor = BmcSensor {
        name: String::new(),
        kind: String::new(),
        value: None,
        unit: None,
        state: SensorState::Ok,
        states: Vec::new(),
        thresholds: SensorThresholds::default(),
    };
    let event = BmcEvent {
        id: String::new(),
        time: None,
        severity: BmcEventSeverity::Ok,
        sensor: None,
        kind: None,
        asserted: None,
        message: String::new(),
        raw: None,
    };
    let user = BmcUser {
        id: String::new(),
        name: String::new(),
        role: String::new(),
        enabled: None,
    };
    let drive = VirtualMediaDrive {
        id: String::new(),
        devices: Vec::new(),
        image: None,
        inserted: false,
    };
    check("sensors", &json!(sensor));
    check("events", &json!(event));
    check("users", &json!(user));
    check("media", &json!(drive));
    check("network", &json!(BmcNetworkInterface::default()));
    check("inventory", &json!(BmcInventory::default()));
    check("identity", &json!(BmcIdentity::default()));
    check("system", &json!(BmcSystemInfo::default()));
    check("light", &BmcReply::Indicator(BmcIndicatorState::On).value());
    check("mailbox", &BmcReply::Mailbox(String::new()).value());
    check("boot_mode", &BmcReply::BootMode(None).value());
    check("secure_boot", &BmcReply::SecureBoot(None).value());
}
