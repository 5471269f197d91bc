//! Tests of command lines and the requests they cause.

use serde_json::Value;

use super::*;
use crate::arguments::ClientCommand;
use crate::arguments::tests::parsed;
use crate::testing::files;

fn planned(line: &str) -> Result<CommandPlan, CliFault> {
    match parsed(&format!("bmc {line}")).unwrap_or_else(|error| panic!("{line}: {error}")) {
        ClientCommand::Bmc(bmc) => plan(&bmc.command, &files),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn check(line: &str, method: &str, path: &str, body: Value) {
    let plan = planned(line).unwrap();
    let [request] = plan.requests.as_slice() else {
        panic!("{line} is one request");
    };
    assert_eq!((request.method, request.path.as_str()), (method, path));
    assert_eq!(request.body.clone().unwrap_or(Value::Null), body, "{line}");
    assert_eq!(request.is_slow, !line.starts_with("health"), "{line}");
}

#[test]
fn questions() {
    for word in [
        "sensors",
        "events",
        "inventory",
        "identity",
        "network",
        "users",
        "system",
        "light",
        "media",
    ] {
        let path = format!("/trivet/nodes/n%2F1/bmc/{word}");
        check(&format!("{word} n/1"), "GET", &path, Value::Null);
    }
    let bmc = "/trivet/nodes/n1/bmc";
    check(
        "boot-mode n1",
        "GET",
        &format!("{bmc}/boot_mode"),
        Value::Null,
    );
    let secure = format!("{bmc}/secure_boot");
    check("secure-boot n1", "GET", &secure, Value::Null);
    check("health n1", "GET", bmc, Value::Null);
    check("health", "GET", "/trivet/bmcs", Value::Null);
}

#[test]
fn the_light_that_finds_a_server() {
    let path = "/trivet/nodes/n1/bmc/light";
    for (word, body) in [
        ("on", json!({"state": "on"})),
        ("off", json!({"state": "off"})),
        ("0", json!({"state": "off"})),
        ("30", json!({"state": "on", "seconds": 30})),
    ] {
        check(&format!("light n1 {word}"), "PUT", path, body);
    }
    for wrong in ["light n1 purple", "light n1 256", "light n1 -1", "light"] {
        assert!(parsed(&format!("bmc {wrong}")).is_err(), "{wrong}");
    }
}

#[test]
fn what_changes_something() {
    let events = "/trivet/nodes/n1/bmc/events";
    check("events n1 --clear", "DELETE", events, Value::Null);
    let mode = "/v1/nodes/n1/states/boot_mode";
    check("boot-mode n1 uefi", "PUT", mode, json!({"target": "uefi"}));
    let secure = "/v1/nodes/n1/states/secure_boot";
    check("secure-boot n1 on", "PUT", secure, json!({"target": true}));
    check(
        "secure-boot n1 off",
        "PUT",
        secure,
        json!({"target": false}),
    );
    let reset = "/v1/nodes/n1/vendor_passthru/bmc_reset";
    check("reset n1", "POST", reset, json!({"warm": false}));
    check("reset n1 --warm", "POST", reset, json!({"warm": true}));
    let message = planned("light n1 9").unwrap().then;
    assert_eq!(
        message,
        FinalAction::Print("node n1: its light is on for 9 s".to_owned())
    );
}

#[test]
fn media_go_in_and_out() {
    let path = "/v1/nodes/n1/vmedia";
    let body = json!({"device_type": "cdrom", "image_url": "http://x/y.iso"});
    check("media n1 insert http://x/y.iso", "POST", path, body);
    let body = json!({"device_type": "disk", "image_url": "http://x/y"});
    check(
        "media n1 insert http://x/y --device disk",
        "POST",
        path,
        body,
    );
    let ClientCommand::Bmc(bmc) = parsed("bmc media n1 insert http://x/y").unwrap() else {
        panic!("it is about BMCs");
    };
    assert_eq!(bmc.global.url, None, "it is no address of a box");
    check("media n1 eject", "DELETE", path, Value::Null);
    let only = "/v1/nodes/n1/vmedia?device_types=floppy";
    check(
        "media n1 eject --device floppy",
        "DELETE",
        only,
        Value::Null,
    );
    assert!(parsed("bmc media n1 insert").is_err());
    assert!(parsed("bmc media n1 --device disk").is_err());
    let fault = planned("media n1 eject http://x").unwrap_err();
    assert!(fault.sentence.contains("no address"), "{}", fault.sentence);
    let fault = planned("media n1 insert @missing").unwrap_err();
    assert!(fault.sentence.contains("missing"), "{}", fault.sentence);
}
