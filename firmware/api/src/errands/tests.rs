//! What is asked of a BMC: who may, what becomes of it, and what is refused.

use trivet_model::errand::{
    Address, BootMode, Drive, Event, Findings, Identity, LightState, MediaDevice, Parts, Sensor,
    SensorState, Severity, System, Thresholds, User,
};
use trivet_model::secret::Hidden;
use trivet_model::view::BmcHealth;
use trivet_model::{Done, ProvisionState, Refusal, RefusalKind};

use super::*;
use crate::testing::{Bench, LATEST, get, node_id, send};
use crate::{Request, access, route};

fn bench() -> Bench {
    Bench::with(ProvisionState::Manageable)
}

fn redfish() -> Bench {
    let mut bench = bench();
    bench.change(|node| node.driver = "redfish".into());
    bench
}

#[track_caller]
fn becomes(bench: &Bench, request: &Request<'_>, want: Errand, then: &Then) {
    let (order, given) = bench.order(request);
    let node = node_id(1);
    let method = VendorMethod::Errand(want);
    assert_eq!(order, Order::Vendor { node, method });
    assert_eq!(&given, then);
}

#[test]
fn every_question_has_a_path() {
    for (word, want) in [
        ("sensors", Errand::Sensors),
        ("events", Errand::Events),
        ("inventory", Errand::Inventory),
        ("identity", Errand::Identity),
        ("network", Errand::Network),
        ("users", Errand::Users),
        ("light", Errand::Light),
        ("mailbox", Errand::Mailbox),
        ("boot_mode", Errand::BootMode),
        ("secure_boot", Errand::SecureBoot),
        ("media", Errand::Media),
        ("system", Errand::System),
    ] {
        let path = format!("/trivet/nodes/node-1/bmc/{word}");
        becomes(&bench(), &get(&path), want, &Then::Said);
        let nobody = format!("/trivet/nodes/nobody/bmc/{word}");
        bench().refuses(&get(&nobody), 404);
    }
    bench().refuses(&get("/trivet/nodes/node-1/bmc/dance"), 404);
}

#[test]
fn what_a_bmc_said_is_the_answer() {
    let request = get("/trivet/nodes/node-1/bmc/light");
    let said = Findings::Light(LightState::On).value();
    let shown = bench().finish(&request, &Then::Said, Ok(Done::Said(said)));
    assert_eq!(shown.value(), json!({"state": "on"}));
    let refusal = Refusal::new(RefusalKind::Invalid, "IPMI has no virtual media.");
    let shown = bench().finish(&request, &Then::Said, Err(refusal));
    assert_eq!(shown.status, 400);
    let silent = || Refusal::new(RefusalKind::Failed, "Node x: the BMC did not answer.");
    let shown = bench().finish(&request, &Then::Said, Err(silent()));
    assert_eq!(shown.status, 502, "the box itself is fine");
    assert!(shown.text().contains("did not answer"), "{}", shown.text());
    let ironics = get("/v1/nodes/node-1/management/indicators/led@system").at(LATEST);
    let shown = bench().finish(&ironics, &Then::Said, Err(silent()));
    assert_eq!(shown.status, 500);
}

#[test]
fn the_light_goes_on_off_and_out_by_itself() {
    let path = "/trivet/nodes/node-1/bmc/light";
    for (text, light) in [
        (r#"{"state": "on"}"#, Light::On),
        (r#"{"state": "off"}"#, Light::Off),
        (
            r#"{"state": "on", "seconds": 30}"#,
            Light::For { seconds: 30 },
        ),
    ] {
        let then = empty(204, None);
        let request = send("PUT", path, text);
        becomes(&bench(), &request, Errand::SetLight(light), &then);
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
fn what_is_written_comes_in_base64_and_has_bounds() {
    let mailbox = "/trivet/nodes/node-1/bmc/mailbox";
    let write = Errand::WriteMailbox(HiddenBytes::new("hi"));
    let request = send("PUT", mailbox, r#"{"data": "aGk="}"#);
    becomes(&bench(), &request, write, &empty(204, None));
    let inventory = "/trivet/nodes/node-1/bmc/inventory";
    let write = Errand::WriteInventory {
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
    becomes(&bench(), &request, Errand::ClearEvents, &empty(204, None));
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
fn a_bmcs_light_is_an_indicator_of_ironics() {
    let path = "/v1/nodes/node-1/management/indicators/led@system";
    let request = get(path).at(LATEST);
    becomes(&bench(), &request, Errand::Light, &Then::Said);
    let request = send("PUT", path, r#"{"state": "ON"}"#).at(LATEST);
    let lit = Errand::SetLight(Light::On);
    becomes(&bench(), &request, lit, &empty(204, None));
    let request = send("PUT", path, r#"{"state": "off"}"#).at(LATEST);
    let dark = Errand::SetLight(Light::Off);
    becomes(&bench(), &request, dark, &empty(204, None));
    bench().refuses(
        &send("PUT", path, r#"{"state": "blinking"}"#).at(LATEST),
        400,
    );
}

#[test]
fn modes_and_media_are_asked_of_a_bmc_that_has_them() {
    let states = "http://box:6385/v1/nodes/00000000-0000-4000-8000-000000000001/states";
    let then = empty(202, Some(states.into()));
    let mode = "/v1/nodes/node-1/states/boot_mode";
    let request = send("PUT", mode, r#"{"target": "uefi"}"#).at(LATEST);
    let uefi = Errand::SetBootMode(BootMode::Uefi);
    becomes(&redfish(), &request, uefi, &then);
    let secure = "/v1/nodes/node-1/states/secure_boot";
    let request = send("PUT", secure, r#"{"target": false}"#).at(LATEST);
    becomes(&redfish(), &request, Errand::SetSecureBoot(false), &then);
    let media = "/v1/nodes/node-1/vmedia";
    becomes(
        &redfish(),
        &get(media).at(LATEST),
        Errand::Media,
        &Then::Media,
    );
    let body = r#"{"device_type": "cdrom", "image_url": "http://u:p@x/y.iso"}"#;
    let insert = Errand::InsertMedia {
        device: MediaDevice::Cdrom,
        url: Hidden::new("http://u:p@x/y.iso"),
    };
    let request = send("POST", media, body).at(LATEST);
    becomes(&redfish(), &request, insert, &empty(204, None));
    for (query, devices) in [
        ("", vec![]),
        ("?device_types=cdrom", vec![MediaDevice::Cdrom]),
    ] {
        let path = format!("{media}{query}");
        let request = send("DELETE", &path, "").at(LATEST);
        let eject = Errand::EjectMedia { devices };
        becomes(&redfish(), &request, eject, &empty(204, None));
    }
}

#[test]
fn drives_are_listed_as_ironic_does() {
    let drive = |devices: &[MediaDevice], image: Option<&str>| Drive {
        id: "x".into(),
        devices: devices.to_vec(),
        image: image.map(str::to_owned),
        inserted: image.is_some(),
    };
    let said = Findings::Media(vec![
        drive(&[MediaDevice::Cdrom], Some("http://x/y.iso")),
        drive(&[MediaDevice::Disk, MediaDevice::Floppy], None),
    ]);
    let request = get("/v1/nodes/node-1/vmedia").at(LATEST);
    let done = Ok(Done::Said(said.value()));
    let shown = redfish().finish(&request, &Then::Media, done).value();
    assert_eq!(
        shown,
        json!([
            {"image": "http://x/y.iso", "inserted": true, "media_types": ["CD", "DVD"]},
            {"image": "", "inserted": false, "media_types": ["USBStick", "Floppy"]},
        ])
    );
}

#[test]
fn how_well_bmcs_answer_is_told_the_worst_first() {
    let mut bench = bench();
    bench.add(crate::testing::node(2));
    bench.add(crate::testing::node(3));
    for (number, score) in [(1, 100), (2, 40)] {
        let health = BmcHealth {
            asked: 16,
            answered: 8,
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
        "who was not asked is not listed"
    );
    let one = bench.reply(&get("/trivet/nodes/node-2/bmc")).value();
    assert_eq!(
        (&one["score"], &one["last_error"]),
        (&json!(40), &json!("login"))
    );
    let new = bench.reply(&get("/trivet/nodes/node-3/bmc")).value();
    assert_eq!((&new["score"], &new["asked"]), (&json!(null), &json!(0)));
}

/// What is described is what is told.
#[test]
fn the_description_has_the_keys_of_the_findings() {
    #[track_caller]
    fn check(word: &str, shown: &Value) {
        let path = ["trivet", "nodes", "x", "bmc", word].map(str::to_owned);
        let columns = match route::find("GET", &path).unwrap().gives {
            Gives::Record(_, columns) | Gives::List(_, columns) => columns(),
            _ => panic!("{word} is not described"),
        };
        let mut said: Vec<&str> = columns.iter().map(|column| column.name).collect();
        said.sort_unstable();
        let shown: Vec<&String> = shown.as_object().unwrap().keys().collect();
        assert_eq!(said, shown, "{word}");
    }
    let sensor = Sensor {
        name: String::new(),
        kind: String::new(),
        value: None,
        unit: None,
        state: SensorState::Ok,
        states: Vec::new(),
        thresholds: Thresholds::default(),
    };
    let event = Event {
        id: String::new(),
        time: None,
        severity: Severity::Ok,
        sensor: None,
        kind: None,
        asserted: None,
        message: String::new(),
        raw: None,
    };
    let user = User {
        id: String::new(),
        name: String::new(),
        role: String::new(),
        enabled: None,
    };
    let drive = Drive {
        id: String::new(),
        devices: Vec::new(),
        image: None,
        inserted: false,
    };
    check("sensors", &json!(sensor));
    check("events", &json!(event));
    check("users", &json!(user));
    check("media", &json!(drive));
    check("network", &json!(Address::default()));
    check("inventory", &json!(Parts::default()));
    check("identity", &json!(Identity::default()));
    check("system", &json!(System::default()));
    check("light", &Findings::Light(LightState::On).value());
    check("mailbox", &Findings::Mailbox(String::new()).value());
    check("boot_mode", &Findings::BootMode(None).value());
    check("secure_boot", &Findings::SecureBoot(None).value());
}
