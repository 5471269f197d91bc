//! Tests of command lines and the requests they cause.

use super::*;
use crate::arguments::ClientCommand;
use crate::arguments::tests::parsed;
use crate::exit::Exit;
use crate::testing::files;

fn plan(line: &str) -> Result<CommandPlan, CliFault> {
    match parsed(line).unwrap_or_else(|error| panic!("{line}: {error}")) {
        ClientCommand::Node(node) => super::node(&node.command, node.global.json, &files),
        ClientCommand::Port(port) => Ok(super::port(&port.command)),
        ClientCommand::Image(image) => Ok(super::image(&image.command)),
        ClientCommand::Lan(lan) => Ok(super::lan(lan.command)),
        ClientCommand::Bmc(bmc) => crate::bmc::plan(&bmc.command, &files),
        ClientCommand::Events(_) => panic!("{line}: events are a stream"),
        ClientCommand::Status(_) => Ok(super::status()),
    }
}

#[test]
fn stories_and_the_status_are_read_from_their_paths() {
    let path = "/trivet/nodes/n%2F1/story";
    check("node story n/1", &[("GET", path, Value::Null)]);
    check("node why n/1", &[("GET", path, Value::Null)]);
    let good = format!("{path}?last_good=true");
    check("node story n/1 --last-good", &[("GET", &good, Value::Null)]);
    check("status", &[("GET", "/trivet/status", Value::Null)]);
}

#[test]
fn networks_are_listed() {
    for word in ["networks", "faults", "strangers"] {
        let path = format!("/trivet/{word}");
        check(&format!("lan {word}"), &[("GET", &path, Value::Null)]);
    }
}

/// Method, path and body of every request.
#[track_caller]
fn check(line: &str, want: &[(&str, &str, Value)]) {
    let plan = plan(line).unwrap();
    let got: Vec<(&str, &str, Value)> = plan
        .requests
        .iter()
        .map(|one| {
            let body = one.body.clone().unwrap_or(Value::Null);
            (one.method, one.path.as_str(), body)
        })
        .collect();
    assert_eq!(got, want, "{line}");
}

#[track_caller]
fn refuses(line: &str, word: &str) {
    let fault = plan(line).unwrap_err();
    assert_eq!(fault.exit, Exit::Usage);
    assert!(fault.sentence.contains(word), "{line}: {}", fault.sentence);
}

#[test]
fn a_location_is_set_at_the_path_of_trivets_own_fields() {
    let show = ("GET", "/trivet/nodes/n1", Value::Null);
    let own = |location: Value| ("PATCH", "/trivet/nodes/n1", json!({ "location": location }));
    check(
        "node set n1 --location-rack r1 --location-unit 17",
        &[own(json!({"rack": "r1", "unit": 17})), show.clone()],
    );
    let name = json!([{"op": "add", "path": "/name", "value": "n2"}]);
    check(
        "node set n1 --name n2 --location-rack r1",
        &[
            ("PATCH", "/v1/nodes/n1", name),
            own(json!({"rack": "r1"})),
            show.clone(),
        ],
    );
    check(
        "node set n1 --location-unit 18",
        &[own(json!({"unit": 18})), show.clone()],
    );
    check("node set n1 --unset location", &[own(Value::Null), show]);
}

#[test]
fn reading_commands() {
    let none = Value::Null;
    let show = [("GET", "/trivet/nodes/n%2F1", none.clone())];
    check("node show n/1", &show);
    let fallback = plan("node show n/1").unwrap().requests[0].fallback.clone();
    assert_eq!(fallback.as_deref(), Some("/v1/nodes/n%2F1"));
    check(
        "node validate n1",
        &[("GET", "/v1/nodes/n1/validate", none.clone())],
    );
    check(
        "node history n1",
        &[("GET", "/v1/nodes/n1/history?detail=True", none.clone())],
    );
    check(
        "node inventory n1",
        &[("GET", "/v1/nodes/n1/inventory", none.clone())],
    );
    check(
        "node power status n1",
        &[("GET", "/v1/nodes/n1/states", none.clone())],
    );
    let path = "/v1/nodes/n1/management/boot_device";
    check("node boot-device n1", &[("GET", path, none.clone())]);
    let path = "/v1/nodes/n1/management/boot_device/supported";
    check(
        "node boot-device n1 --supported",
        &[("GET", path, none.clone())],
    );
    check("image list", &[("GET", "/trivet/images", none.clone())]);
    let path = "/trivet/images/a.raw";
    check("image remove a.raw", &[("DELETE", path, none.clone())]);
    for (line, method, rest) in [
        ("image fill a.raw", "POST", "/fill"),
        ("image fill a.raw --no-wait", "POST", "/fill"),
        ("image upload a.raw f", "GET", ""),
        ("image pin a.raw", "PUT", "/pin"),
        ("image unpin a.raw", "DELETE", "/pin"),
    ] {
        check(line, &[(method, &format!("{path}{rest}"), none.clone())]);
    }
    let body = json!({
        "name": "a.raw", "sources": ["http://h/a", "http://i/a"], "checksum": "ab",
        "pinned": false,
    });
    check(
        "image add a.raw --source http://h/a --source http://i/a --checksum ab",
        &[("POST", "/trivet/images", body.clone())],
    );
    let mut packed = body;
    packed["format"] = json!("qcow2");
    check(
        "image add a.raw --source http://h/a --source http://i/a --checksum ab --format qcow2",
        &[("POST", "/trivet/images", packed)],
    );
    let body = json!({"name": "debian", "sources": ["oci://h/debian:12"], "pinned": false});
    check(
        "image add debian --source oci://h/debian:12",
        &[("POST", "/trivet/images", body)],
    );
    check(
        "port list --node a+b",
        &[("GET", "/v1/ports?detail=True&node=a%2Bb", none)],
    );
}

#[test]
fn lists_are_filtered_by_the_box() {
    let path = "/v1/nodes?detail=True&provision_state=available&maintenance=true\
                &resource_class=a%26b&driver=ipmi";
    check(
        "node list --json --state available --maintenance --resource-class a&b --driver ipmi",
        &[("GET", path, Value::Null)],
    );
    let plan = plan("node list").unwrap();
    assert!(
        plan.requests[0]
            .path
            .starts_with("/v1/nodes?fields=uuid,name,")
    );
}

#[test]
fn verbs_and_where_they_end() {
    for (line, target, end) in [
        ("manage", "manage", "manageable"),
        ("inspect", "inspect", "manageable"),
        ("provide", "provide", "available"),
        ("deploy", "active", "active"),
        ("undeploy", "undeploy", "available"),
        ("rebuild", "rebuild", "active"),
        ("unrescue", "unrescue", "active"),
        ("adopt", "adopt", "active"),
    ] {
        let line = format!("node {line} n1 --timeout 9");
        let body = json!({ "target": target });
        check(&line, &[("PUT", "/v1/nodes/n1/states/provision", body)]);
        let want = FinalAction::Wait {
            node: "n1".to_owned(),
            goal: WaitGoal::State(end.to_owned()),
            limit_ms: 9_000,
        };
        assert_eq!(plan(&line).unwrap().then, want, "{line}");
    }
    let FinalAction::Wait { goal, .. } = plan("node abort n1").unwrap().then else {
        panic!("an abort is waited for");
    };
    assert_eq!(goal, WaitGoal::Rest);
}

#[test]
fn waiting_is_a_choice() {
    let message = plan("node provide n1 --no-wait").unwrap().then;
    assert!(matches!(message, FinalAction::Print(text) if text.contains("trivet node watch n1")));
    let waits = plan("node provide n1 --no-wait --wait").unwrap().then;
    assert!(
        matches!(waits, FinalAction::Wait { .. }),
        "the last word counts"
    );
    let json = plan("node provide n1 --no-wait --json").unwrap();
    assert_eq!(json.then, FinalAction::Show(OutputView::Node));
    assert_eq!(json.requests[1].path, "/v1/nodes/n1");
}

#[test]
fn a_deployment_and_its_image_are_one_request() {
    check(
        "node deploy n1 --image http://a/b --sha256 00ff --config-drive object --steps steps",
        &[(
            "PUT",
            "/trivet/nodes/n1/provision",
            json!({
                "target": "active",
                "instance_info": {
                    "image_source": "http://a/b", "image_os_hash_algo": "sha256",
                    "image_os_hash_value": "00ff", "image_checksum": null,
                    "image_disk_format": null, "image_container_format": null,
                    "image_type": null, "kernel": null, "ramdisk": null,
                },
                "configdrive": {"meta_data": {"name": "a"}},
                "deploy_steps": [{"interface": "deploy", "step": "erase_devices"}],
            }),
        )],
    );
    for (given, want) in [("text", "H4sIAAAA"), ("https://a/c", "https://a/c")] {
        let body = json!({"target": "rebuild", "configdrive": want});
        let line = format!("node rebuild n1 --config-drive {given}");
        check(&line, &[("PUT", "/v1/nodes/n1/states/provision", body)]);
    }
    refuses("node deploy n1 --steps object", "no JSON list");
    refuses("node deploy n1 --config-drive absent", "absent");
}

/// Kept digests made a rebuild write the former image again.
#[test]
fn a_new_image_drops_what_instance_info_says_of_the_former_image() {
    let body = json!({"target": "rebuild", "instance_info": {
        "image_source": "b.raw", "image_os_hash_algo": null, "image_os_hash_value": null,
        "image_checksum": null, "image_disk_format": null, "image_container_format": null,
        "image_type": null, "kernel": null, "ramdisk": null,
    }});
    check(
        "node rebuild n1 --image b.raw",
        &[("PUT", "/trivet/nodes/n1/provision", body)],
    );
}

#[test]
fn cleaning_by_hand_has_steps() {
    let body = json!({"target": "clean", "clean_steps": [
        {"interface": "deploy", "step": "a"}, {"interface": "raid", "step": "b.c"},
    ]});
    let line = "node clean n1 --step deploy.a --step raid.b.c";
    check(line, &[("PUT", "/v1/nodes/n1/states/provision", body)]);
    let body = json!({
        "target": "clean",
        "clean_steps": [{"interface": "deploy", "step": "erase_devices"}],
    });
    let line = "node clean n1 --steps steps";
    check(line, &[("PUT", "/v1/nodes/n1/states/provision", body)]);
    refuses("node clean n1 --step erase", "INTERFACE.STEP");
    refuses("node clean n1 --steps text", "not JSON");
}

#[test]
fn a_rescue_password_comes_from_a_file() {
    let body = json!({"target": "rescue", "rescue_password": "hunter2"});
    let line = "node rescue n1 --rescue-password-file password";
    check(line, &[("PUT", "/v1/nodes/n1/states/provision", body)]);
}

#[test]
fn power_hard_and_soft() {
    for (line, target) in [
        ("on n1", "power on"),
        ("off n1", "power off"),
        ("off n1 --soft", "soft power off"),
        ("reboot n1", "rebooting"),
        ("reboot n1 --soft", "soft rebooting"),
    ] {
        let body = json!({ "target": target });
        check(
            &format!("node power {line}"),
            &[("PUT", "/v1/nodes/n1/states/power", body)],
        );
    }
    refuses("node power on n1 --soft", "--soft");
    refuses("node power status n1 --soft", "--soft");
}

#[test]
fn nodes_are_created_and_changed() {
    let fields = "--name n1 --driver-info a=1 --driver-info ipmi_password=@password \
                  --property cpus=4 --extra x/y=z --interface inspect=agent \
                  --resource-class big --automated-clean false";
    let body = json!({
        "driver": "ipmi", "name": "n1", "driver_info": {"a": 1, "ipmi_password": "hunter2"},
        "properties": {"cpus": 4}, "extra": {"x/y": "z"}, "inspect_interface": "agent",
        "resource_class": "big", "automated_clean": false,
    });
    check(
        &format!("node create --driver ipmi {fields}"),
        &[("POST", "/v1/nodes", body)],
    );
    let add = |path: &str, value: Value| json!({"op": "add", "path": path, "value": value});
    let patch = json!([
        add("/driver", json!("redfish")), add("/description", json!("d")),
        add("/driver_info/ipmi_password", json!("hunter2")), add("/extra/x~1y", json!("z")),
        add("/boot_interface", json!("ipxe")),
        {"op": "remove", "path": "/extra/a.b"}, {"op": "remove", "path": "/name"},
    ]);
    check(
        "node set n1 --driver redfish --description d --driver-info ipmi_password=@password \
         --extra x/y=z --interface boot=ipxe --unset extra.a.b --unset name",
        &[("PATCH", "/v1/nodes/n1?reset_interfaces=true", patch)],
    );
    let class = json!([add("/resource_class", json!("big"))]);
    check(
        "node set n1 --resource-class big",
        &[("PATCH", "/v1/nodes/n1", class)],
    );
    refuses("node set n1", "nothing to set");
    refuses("node set n1 --driver-info ipmi_password=hunter2", "@FILE");
    refuses("node create --driver ipmi --driver-info x", "KEY=VALUE");
    check("node delete n1", &[("DELETE", "/v1/nodes/n1", Value::Null)]);
}

#[test]
fn small_switches() {
    let path = "/v1/nodes/n1/management/boot_device";
    let body = json!({"boot_device": "pxe", "persistent": true});
    check(
        "node boot-device n1 pxe --persistent",
        &[("PUT", path, body)],
    );
    let path = "/v1/nodes/n1/maintenance";
    check("node maintenance on n1", &[("PUT", path, json!({}))]);
    let body = json!({"reason": "fan"});
    check(
        "node maintenance on n1 --reason fan",
        &[("PUT", path, body)],
    );
    check("node maintenance off n1", &[("DELETE", path, Value::Null)]);
}

#[test]
fn ports_by_uuid_and_by_address() {
    let body = json!({"node_ident": "n1", "address": "52:54:00:00:00:01", "pxe_enabled": false});
    let line = "port create --node n1 --address 52:54:00:00:00:01 --pxe-enabled false";
    check(line, &[("POST", "/v1/ports", body)]);
    check(
        "port delete u-1",
        &[("DELETE", "/v1/ports/u-1", Value::Null)],
    );
    let path = "/v1/ports?address=52%3A54%3A00%3A00%3A00%3A01";
    check(
        "port delete 52:54:00:00:00:01",
        &[("GET", path, Value::Null)],
    );
    assert_eq!(
        plan("port delete 52:54:00:00:00:01").unwrap().then,
        FinalAction::DeletePort
    );
}

#[test]
fn a_watch_sends_no_other_request_first() {
    let plan = plan("node watch n1 n2 --until active --timeout 5").unwrap();
    assert!(plan.requests.is_empty());
    let want = FinalAction::Watch {
        nodes: vec!["n1".to_owned(), "n2".to_owned()],
        until: Some("active".to_owned()),
        limit_ms: Some(5_000),
    };
    assert_eq!(plan.then, want);
}
