//! Functions of fake hardware: consoles, modes, indicators, disks, drives.

use crate::testing::{ApiBench, LATEST, get, send};
use serde_json::{Value, json};
use trivet_model::story::NodeFailure;
use trivet_model::{ProvisionState, UnixMs};

fn fake() -> ApiBench {
    let mut bench = ApiBench::with(ProvisionState::Manageable);
    bench.change(|node| node.driver = "fake-hardware".into());
    bench
}

fn path(rest: &str) -> String {
    format!("/v1/nodes/node-1/{rest}")
}

#[track_caller]
fn value(bench: &ApiBench, rest: &str) -> Value {
    let response = bench.reply(&get(&path(rest)).at(LATEST));
    assert_eq!(response.status, 200, "{}", response.text());
    response.value()
}

#[track_caller]
fn does(bench: &mut ApiBench, method: &str, rest: &str, body: &Value, status: u16) {
    let (path, body) = (path(rest), body.to_string());
    let response = bench.done(&send(method, &path, &body).at(LATEST));
    assert_eq!(response.status, status, "{}", response.text());
}

#[track_caller]
fn refuses(bench: &ApiBench, method: &str, rest: &str, body: &Value, status: u16) -> String {
    let (path, body) = (path(rest), body.to_string());
    bench.refuses(&send(method, &path, &body).at(LATEST), status)
}

#[test]
fn the_console_is_stored_and_locks_the_driver() {
    let mut bench = fake();
    let off = json!({"console_enabled": false, "console_info": null});
    assert_eq!(value(&bench, "states/console"), off);
    does(
        &mut bench,
        "PUT",
        "states/console",
        &json!({"enabled": "true"}),
        202,
    );
    assert_eq!(value(&bench, "states/console")["console_enabled"], true);
    assert_eq!(value(&bench, "states")["console_enabled"], true);
    let patch = json!([{"op": "replace", "path": "/driver", "value": "ipmi"}]).to_string();
    let message = bench.refuses(&send("PATCH", "/v1/nodes/node-1", &patch).at(LATEST), 409);
    assert!(message.contains("console"), "{message}");
    does(
        &mut bench,
        "PUT",
        "states/console",
        &json!({"enabled": false}),
        202,
    );
    assert_eq!(value(&bench, "states/console"), off);
    refuses(&bench, "PUT", "states/console", &json!({}), 400);
}

#[test]
fn boot_mode_and_secure_boot_are_stored_and_shown() {
    let mut bench = fake();
    assert_eq!(value(&bench, "states")["secure_boot"], Value::Null);
    does(
        &mut bench,
        "PUT",
        "states/boot_mode",
        &json!({"target": "uefi"}),
        202,
    );
    does(
        &mut bench,
        "PUT",
        "states/secure_boot",
        &json!({"target": false}),
        202,
    );
    let states = value(&bench, "states");
    assert_eq!(states["boot_mode"], "uefi");
    assert_eq!(states["secure_boot"], false);
    let message = refuses(
        &bench,
        "PUT",
        "states/boot_mode",
        &json!({"target": "x"}),
        400,
    );
    assert!(message.contains("uefi, bios"), "{message}");
    refuses(
        &bench,
        "PUT",
        "states/secure_boot",
        &json!({"target": "x"}),
        400,
    );
}

#[test]
fn a_raid_target_is_checked_stored_and_cleared() {
    let mut bench = fake();
    let disk = json!({"raid_level": "1", "size_gb": 100, "is_root_volume": true});
    let target = json!({"logical_disks": [disk, {"raid_level": "5", "size_gb": "MAX"}]});
    does(&mut bench, "PUT", "states/raid", &target, 204);
    assert_eq!(value(&bench, "states")["target_raid_config"], target);
    for wrong in [
        json!({"logical_disks": []}),
        json!({"logical_disks": "x"}),
        json!({"logical_disks": [7]}),
        json!({"disks": []}),
        json!({"logical_disks": [disk, disk]}),
        json!({"logical_disks": [{"raid_level": "1"}]}),
        json!({"logical_disks": [{"raid_level": "7", "size_gb": 1}]}),
        json!({"logical_disks": [{"raid_level": "1", "size_gb": -1}]}),
        json!({"logical_disks": [{"raid_level": "1", "size_gb": 1, "colour": "red"}]}),
        json!({"logical_disks": [{"raid_level": "1", "size_gb": 1, "physical_disks": ["a"]}]}),
        json!({"logical_disks": vec![json!({"raid_level": "1", "size_gb": 1}); 65]}),
    ] {
        refuses(&bench, "PUT", "states/raid", &wrong, 400);
    }
    does(&mut bench, "PUT", "states/raid", &json!({}), 204);
    assert_eq!(value(&bench, "states")["target_raid_config"], json!({}));
}

#[test]
fn indicators_are_listed_set_and_stored() {
    let mut bench = fake();
    let list = value(&bench, "management/indicators");
    assert_eq!(list["indicators"][1]["name"], "led@system");
    let led = "management/indicators/led@system";
    assert_eq!(value(&bench, led), json!({"state": "off"}));
    does(&mut bench, "PUT", led, &json!({"state": "BLINKING"}), 204);
    assert_eq!(value(&bench, led), json!({"state": "blinking"}));
    refuses(&bench, "PUT", led, &json!({"state": "purple"}), 400);
    let fixed = "management/indicators/led-0@chassis";
    refuses(&bench, "PUT", fixed, &json!({"state": "on"}), 400);
    for name in ["led", "led@nowhere", "lamp@system"] {
        let rest = format!("management/indicators/{name}");
        bench.refuses(&get(&path(&rest)).at(LATEST), 400);
    }
}

#[test]
fn images_are_inserted_and_ejected() {
    let mut bench = fake();
    let image = json!({"device_type": "cdrom", "image_url": "http://x/y.iso"});
    does(&mut bench, "POST", "vmedia", &image, 204);
    let other = json!({"device_type": "floppy", "image_url": "https://x/z"});
    does(&mut bench, "POST", "vmedia", &other, 204);
    let shown = value(&bench, "vmedia");
    assert_eq!(shown[0]["image"], "http://x/y.iso");
    assert_eq!(shown[1]["inserted"], false);
    assert_eq!(shown[2]["inserted"], true);
    does(
        &mut bench,
        "DELETE",
        "vmedia?device_types=cdrom,disk",
        &json!({}),
        204,
    );
    let shown = value(&bench, "vmedia");
    assert_eq!(shown[0]["inserted"], false);
    assert_eq!(shown[2]["inserted"], true);
    does(&mut bench, "DELETE", "vmedia", &json!({}), 204);
    assert_eq!(value(&bench, "vmedia")[2]["inserted"], false);
    for wrong in [
        json!({}),
        json!({"device_type": "tape", "image_url": "http://x"}),
        json!({"device_type": "disk", "image_url": "x.iso"}),
        json!({"device_type": "disk", "image_url": "http://x", "colour": "red"}),
    ] {
        refuses(&bench, "POST", "vmedia", &wrong, 400);
    }
    refuses(
        &bench,
        "DELETE",
        "vmedia?device_types=tape",
        &json!({}),
        400,
    );
}

#[test]
fn settings_and_firmware_are_shown_as_the_hardware_reported_them() {
    let mut bench = fake();
    bench.change(|node| {
        let info = &mut node.driver_internal_info;
        info.insert("bios_settings".into(), json!({"Boot": "Uefi", "Cores": 8}));
        let nic = json!({"component": "nic:1", "current_version": "2", "vendor": "Acme"});
        info.insert("firmware_components".into(), json!([nic]));
    });
    let list = value(&bench, "bios");
    assert_eq!(list["bios"][1]["value"], "8");
    assert!(list["bios"][0].get("attribute_type").is_none());
    let long = value(&bench, "bios?detail=True");
    assert!(long["bios"][0].get("attribute_type").is_some());
    let chosen = value(&bench, "bios?fields=name");
    assert!(chosen["bios"][0].get("value").is_none());
    assert_eq!(value(&bench, "bios/Boot")["Boot"]["value"], "Uefi");
    bench.refuses(&get(&path("bios/None")).at(LATEST), 404);
    let older = bench.reply(&get(&path("bios/Boot")).at("1.73")).value();
    assert!(older["Boot"].get("read_only").is_none());
    let firmware = value(&bench, "firmware")["firmware"][0].clone();
    assert_eq!(firmware["vendor"], "Acme");
    assert_eq!(firmware["initial_version"], Value::Null);
    let older = bench.reply(&get(&path("firmware")).at("1.113")).value();
    assert!(older["firmware"][0].get("vendor").is_none());
}

#[test]
fn history_is_paged_sorted_and_grows_with_its_version() {
    let mut bench = fake();
    for number in 0..3 {
        bench.add_failure(NodeFailure {
            at: UnixMs(1000 * number),
            why: format!("{number}: {}", "x".repeat(300)),
            user: None,
            state: None,
        });
    }
    let events = |rest: &str| value(&bench, rest)["history"].as_array().unwrap().clone();
    let first = events("history?limit=2");
    assert_eq!(first.len(), 2);
    assert_eq!(first[0]["event"].as_str().unwrap().len(), 254);
    let rest = format!("history?marker={}", first[1]["uuid"].as_str().unwrap());
    assert_eq!(events(&rest).len(), 1);
    let last = events("history?sort_dir=desc&detail=true")[0].clone();
    assert!(last["event"].as_str().unwrap().starts_with("2: "));
    for (name, since) in [("project", 113), ("state", 115), ("duration_seconds", 115)] {
        for version in [since - 1, since] {
            let (at, path) = (format!("1.{version}"), path("history?detail=true"));
            let shown = bench.reply(&get(&path).at(&at)).value();
            let has = shown["history"][0].get(name).is_some();
            assert_eq!(has, version >= since, "{name} at {at}");
        }
    }
}

#[test]
fn unsupported_functions_are_refused() {
    let bench = ApiBench::with(ProvisionState::Manageable);
    let image = json!({"device_type": "cdrom", "image_url": "http://x/y.iso"});
    let on = json!({"enabled": true});
    let disk = json!({"logical_disks": [{"raid_level": "1", "size_gb": 1}]});
    for (method, rest, body, status) in [
        ("PUT", "states/console", on, 400),
        ("PUT", "states/boot_mode", json!({"target": "uefi"}), 400),
        ("PUT", "states/secure_boot", json!({"target": true}), 400),
        ("PUT", "states/raid", disk, 404),
        ("POST", "vmedia", image, 400),
        ("DELETE", "vmedia", json!({}), 400),
    ] {
        let message = refuses(&bench, method, rest, &body, status);
        assert!(
            message.contains("Driver ipmi does not support"),
            "{message}"
        );
    }
}
