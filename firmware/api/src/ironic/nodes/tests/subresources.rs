use crate::ironic::nodes::traits::{TRAIT_BYTES_MAX, TRAITS_MAX};
use crate::testing::{ApiBench, LATEST, NOW, get, node_id, port, send};
use serde_json::{Value, json};
use trivet_model::{BootDevice, OrderOutcome, ProvisionState, RackOrder};

fn bench() -> ApiBench {
    ApiBench::with(ProvisionState::Manageable)
}

#[track_caller]
fn value(bench: &ApiBench, path: &str) -> Value {
    let path = format!("/v1/nodes/node-1/{path}");
    let response = bench.reply(&get(&path).at(LATEST));
    assert_eq!(response.status, 200, "{}", response.text());
    response.value()
}

#[track_caller]
fn refuses(bench: &ApiBench, method: &str, path: &str, body: &str, status: u16) -> String {
    let path = format!("/v1/nodes/node-1/{path}");
    bench.refuses(&send(method, &path, body).at(LATEST), status)
}

#[test]
fn the_states_document_has_ironics_keys() {
    let body = value(&bench(), "states");
    let keys: Vec<&String> = body.as_object().unwrap().keys().collect();
    assert_eq!(
        keys,
        [
            "boot_mode",
            "console_enabled",
            "last_error",
            "power_state",
            "provision_state",
            "provision_updated_at",
            "raid_config",
            "secure_boot",
            "target_power_state",
            "target_provision_state",
            "target_raid_config"
        ]
    );
}

#[test]
fn deletion_depends_on_state_maintenance_and_instance() {
    let request = send("DELETE", "/v1/nodes/node-1", "").at(LATEST);
    for state in [
        ProvisionState::Enroll,
        ProvisionState::Manageable,
        ProvisionState::Available,
        ProvisionState::AdoptFail,
    ] {
        let mut bench = ApiBench::with(state);
        assert_eq!(bench.order(&request).0, RackOrder::DeleteNode(node_id(1)));
        assert_eq!(bench.done(&request).status, 204);
    }
    let mut bench = ApiBench::with(ProvisionState::Active);
    bench.refuses(&request, 409);
    bench.change(|node| node.maintenance = true);
    bench.order(&request);
    bench.change(|node| {
        node.maintenance = false;
        node.provision_state = ProvisionState::Available;
        node.instance_uuid = Some(node_id(9).to_string());
    });
    bench.refuses(&request, 409);
    let mut locked = ApiBench::with(ProvisionState::Cleaning);
    locked.change(|node| node.maintenance = true);
    locked.refuses(&request, 409);
}

#[test]
fn maintenance_is_set_and_cleared_with_and_without_a_reason() {
    let bench = bench();
    let path = "/v1/nodes/node-1/maintenance";
    let node = node_id(1);
    for (body, reason) in [
        ("", None),
        ("{}", None),
        ("null", None),
        (r#"{"reason": null}"#, None),
        (r#"{"reason": "disk"}"#, Some("disk".to_owned())),
    ] {
        let (order, _) = bench.order(&send("PUT", path, body).at(LATEST));
        let on = true;
        assert_eq!(order, RackOrder::Maintenance { node, on, reason });
    }
    let (order, _) = bench.order(&send("DELETE", path, "").at(LATEST));
    let (on, reason) = (false, None);
    assert_eq!(order, RackOrder::Maintenance { node, on, reason });
    refuses(&bench, "PUT", "maintenance", r#"{"why": "x"}"#, 400);
    refuses(&bench, "PUT", "maintenance", r#"{"reason": 5}"#, 400);
    refuses(&bench, "POST", "maintenance", "", 405);
}

#[test]
fn validation_names_what_is_missing() {
    let before = value(&bench(), "validate");
    let why = before["boot"]["reason"].as_str().unwrap();
    assert!(why.contains("does not have any port"), "{why}");
    let mut bench = bench().wired();
    bench.change(|node| node.driver_info.clear());
    let before = value(&bench, "validate");
    assert_eq!(before["power"]["result"], false);
    assert_eq!(before["deploy"]["result"], false);
    assert_eq!(before["boot"], json!({"result": true}));
    assert_eq!(before["network"], json!({"result": true}));
    assert_eq!(before.as_object().unwrap().len(), 12);
    bench.change(|node| {
        node.driver_info
            .insert("ipmi_address".into(), json!("192.0.2.1"));
        node.driver_info.insert("ipmi_port".into(), json!("6230"));
        node.instance_info
            .insert("image_source".into(), json!("http://x"));
        node.instance_info
            .insert("image_os_hash_algo".into(), json!("sha256"));
        node.instance_info
            .insert("image_os_hash_value".into(), json!("0f"));
    });
    let after = validated(&bench, None);
    for kind in ["power", "management", "boot", "deploy", "inspect"] {
        assert_eq!(after[kind], json!({"result": true}), "{kind}");
    }
    bench.change(|node| drop(node.driver_info.insert("ipmi_port".into(), json!("65536"))));
    assert_eq!(validated(&bench, None)["power"]["result"], false);
    bench.change(|node| node.driver = "fake-hardware".into());
    let deploy = &validated(&bench, None)["deploy"];
    assert_eq!(*deploy, json!({"result": true}));
}

#[test]
fn a_node_that_boots_from_a_medium_needs_the_iso_image_of_the_agent() {
    let mut bench = bench().wired();
    bench.facts.drivers.push("redfish".into());
    bench.facts.agent_missing = true;
    bench.change(|node| {
        node.driver = "redfish".into();
        let interface = trivet_model::interface::BootInterface::RedfishVirtualMedia;
        node.attributes.interfaces.boot = Some(interface);
        node.driver_info
            .insert("redfish_address".into(), json!("https://192.0.2.1"));
    });
    let before = value(&bench, "validate");
    let why = before["boot"]["reason"].as_str().unwrap();
    assert!(why.starts_with("boot.iso is not set"), "{why}");
    bench.facts.agent_iso = true;
    assert_eq!(
        value(&bench, "validate")["boot"],
        json!({"result": true}),
        "it needs no kernel and ramdisk"
    );
}

/// The response when the deployment check returns this error.
fn validated(bench: &ApiBench, lacks: Option<&str>) -> Value {
    let request = get("/v1/nodes/node-1/validate").at(LATEST);
    let (order, then) = bench.order(&request);
    assert_eq!(order, RackOrder::CheckDeploy(node_id(1)));
    let checked = OrderOutcome::Checked(lacks.map(str::to_owned));
    let response = bench.finish(&request, &then, Ok(checked));
    assert_eq!(response.status, 200, "{}", response.text());
    response.value()
}

#[test]
fn validation_shows_why_a_deployment_would_be_refused() {
    let mut bench = bench();
    bench.change(|node| node.driver = "fake-hardware".into());
    let lacks = "instance_info has an invalid image_type";
    let results = validated(&bench, Some(lacks));
    let want = json!({"result": false, "reason": lacks});
    assert_eq!(results["deploy"], want);
    assert_eq!(results["power"], json!({"result": true}));
}

#[test]
fn the_boot_device_is_set_read_and_listed() {
    let mut bench = bench();
    assert_eq!(
        value(&bench, "management/boot_device"),
        json!({"boot_device": null, "persistent": null})
    );
    bench.change(|node| {
        let info = &mut node.driver_internal_info;
        info.insert("boot_device".into(), json!("disk"));
        info.insert("boot_device_persistent".into(), json!(true));
    });
    assert_eq!(
        value(&bench, "management/boot_device"),
        json!({"boot_device": "disk", "persistent": true})
    );
    let path = "/v1/nodes/node-1/management/boot_device";
    let request = send(
        "PUT",
        path,
        r#"{"boot_device": "pxe", "persistent": "False"}"#,
    )
    .at(LATEST);
    let want = RackOrder::SetBoot {
        node: node_id(1),
        device: BootDevice::Pxe,
        persistent: false,
    };
    assert_eq!(bench.order(&request).0, want);
    assert_eq!(bench.done(&request).status, 204);
    for body in [
        r#"{"boot_device": "floppy"}"#,
        r#"{"persistent": true}"#,
        r#"{"boot_device": "pxe", "persistent": 5}"#,
        r#"{"boot_device": "pxe", "persistent": "perhaps"}"#,
        r#"{"boot_device": "pxe", "colour": 1}"#,
    ] {
        refuses(&bench, "PUT", "management/boot_device", body, 400);
    }
    let listed = value(&bench, "management/boot_device/supported");
    assert_eq!(
        listed["supported_boot_devices"],
        json!(["pxe", "disk", "cdrom", "bios", "safe"])
    );
}

#[test]
fn the_inventory_is_what_the_agent_found() {
    let mut bench = bench();
    refuses(&bench, "GET", "inventory", "", 404);
    let inventory = json!({"cpu": {"count": 4}});
    for (stored, plugin_data) in [
        (inventory.clone(), json!({})),
        (
            json!({"inventory": inventory, "root_disk": 1}),
            json!({"root_disk": 1}),
        ),
        (
            json!({"inventory": inventory, "plugin_data": {"a": 1}}),
            json!({"a": 1}),
        ),
    ] {
        bench.change(|node| node.inventory = Some(stored));
        let found = value(&bench, "inventory");
        assert_eq!(found["inventory"], inventory);
        for (key, value) in plugin_data.as_object().unwrap() {
            assert_eq!(found["plugin_data"][key], *value, "{key}");
        }
        let hooks = ["all_interfaces", "valid_interfaces", "macs", "parsed_lldp"];
        let keys = found["plugin_data"].as_object().unwrap();
        assert_eq!(
            keys.len(),
            plugin_data.as_object().unwrap().len() + hooks.len()
        );
        assert_eq!(found["plugin_data"]["all_interfaces"], json!({}));
    }
    bench.refuses(&get("/v1/nodes/node-1/inventory").at("1.80"), 404);
}

#[test]
fn traits_are_put_one_by_one_and_whole() {
    let mut bench = bench();
    let path = "/v1/nodes/node-1/traits";
    let body = r#"{"traits": ["CUSTOM_B", "HW_CPU_X86_VMX", "CUSTOM_B"]}"#;
    assert_eq!(bench.done(&send("PUT", path, body).at(LATEST)).status, 204);
    let one = format!("{path}/CUSTOM_A");
    let response = bench.done(&send("PUT", &one, "").at(LATEST));
    assert_eq!(response.status, 204);
    assert!(
        response
            .header("Location")
            .unwrap()
            .ends_with("/traits/CUSTOM_A")
    );
    let want = json!(["CUSTOM_A", "CUSTOM_B", "HW_CPU_X86_VMX"]);
    assert_eq!(value(&bench, "traits"), json!({ "traits": want }));
    let node = bench.reply(&get("/v1/nodes/node-1").at(LATEST)).value();
    assert_eq!(node["traits"], want);
    bench.done(&send("DELETE", &one, "").at(LATEST));
    refuses(&bench, "DELETE", "traits/CUSTOM_A", "", 404);
    bench.done(&send("DELETE", path, "").at(LATEST));
    assert_eq!(value(&bench, "traits"), json!({"traits": []}));
}

#[test]
fn traits_are_bounded_and_well_formed() {
    let bench = bench();
    let many: Vec<String> = (0..=TRAITS_MAX).map(|at| format!("CUSTOM_{at}")).collect();
    let body = json!({ "traits": many }).to_string();
    let message = refuses(&bench, "PUT", "traits", &body, 400);
    let words = "would exceed the maximum number of traits per node (51 vs. 50)";
    assert!(message.contains(words), "{message}");
    for (body, words) in [
        (
            "{}",
            "A single node trait may be added via PUT /v1/nodes/<node identifier>/traits/<",
        ),
        (r#"{"traits": "x"}"#, "'x' is not of type 'array'"),
        (
            r#"{"traits": ["odd"]}"#,
            "'odd' does not match '^CUSTOM_[A-Z0-9_]+$'",
        ),
    ] {
        let message = refuses(&bench, "PUT", "traits", body, 400);
        assert!(message.contains(words), "{message}");
    }
    let long = format!("CUSTOM_{}", "X".repeat(TRAIT_BYTES_MAX));
    for name in ["CUSTOM_", "custom_x", "CUSTOM_x", "X", "", long.as_str()] {
        refuses(
            &bench,
            "PUT",
            "traits",
            &json!({"traits": [name]}).to_string(),
            400,
        );
    }
    refuses(&bench, "PUT", "traits", r#"{"traits": [5]}"#, 400);
    refuses(&bench, "PUT", "traits", r#"{"traits": "X"}"#, 400);
    refuses(&bench, "PUT", "traits/CUSTOM_A", r#"{"a": 1}"#, 400);
}

#[test]
fn history_lists_the_failures() {
    let mut bench = bench();
    assert_eq!(value(&bench, "history"), json!({"history": []}));
    bench.add_failure(trivet_model::story::NodeFailure {
        at: NOW,
        why: "the disk is gone".into(),
        user: Some("ann".to_owned()),
        state: Some(trivet_model::ProvisionState::CleanFail),
    });
    let list = value(&bench, "history");
    assert_eq!(list["history"].as_array().unwrap().len(), 1);
    let record = &list["history"][0];
    assert_eq!(record["event"], "the disk is gone");
    assert_eq!(record["severity"], "ERROR");
    assert_eq!(record["created_at"], NOW.to_string());
    assert!(record.get("conductor").is_none());
    let uuid = record["uuid"].as_str().unwrap();
    let one = value(&bench, &format!("history/{uuid}"));
    assert_eq!(one["conductor"], "box");
    assert_eq!(one["user"], "ann", "the user of the last order");
    assert_eq!(one["uuid"], uuid);
    refuses(&bench, "GET", "history/other", "", 404);
}

#[test]
fn virtual_interfaces_are_accepted_and_not_stored() {
    let bench = bench();
    assert_eq!(value(&bench, "vifs"), json!({"vifs": []}));
    let path = "/v1/nodes/node-1/vifs";
    assert_eq!(
        bench
            .reply(&send("POST", path, r#"{"id": "x"}"#).at(LATEST))
            .status,
        204
    );
    let one = format!("{path}/x");
    assert_eq!(
        bench.reply(&send("DELETE", &one, "").at(LATEST)).status,
        204
    );
    refuses(&bench, "POST", "vifs", "{}", 400);
}

#[test]
fn the_thin_parts_answer_correctly() {
    let mut bench = bench();
    bench.add_port(port(1, 1));
    assert_eq!(value(&bench, "bios"), json!({"bios": []}));
    assert_eq!(value(&bench, "firmware"), json!({"firmware": []}));
    assert_eq!(value(&bench, "portgroups"), json!({"portgroups": []}));
    let lights = value(&bench, "management/indicators");
    assert_eq!(lights["indicators"][0]["name"], "led@system");
    let methods = value(&bench, "vendor_passthru/methods");
    assert_eq!(methods.as_object().unwrap().len(), 3);
    assert_eq!(value(&bench, "ports")["ports"].as_array().unwrap().len(), 1);
    assert_eq!(
        value(&bench, "volume/connectors"),
        json!({"connectors": []})
    );
    assert!(value(&bench, "volume")["targets"].is_array());
    assert_eq!(value(&bench, "children")["children"], json!([]));
    let console = json!({"console_enabled": false, "console_info": null});
    assert_eq!(value(&bench, "states/console"), console);
    for (method, path, body, status) in [
        ("GET", "bios/x", "", 404),
        ("GET", "allocation", "", 404),
        ("GET", "vmedia", "", 400),
        ("POST", "vmedia", "{}", 400),
        ("PUT", "states/raid", "{}", 404),
        ("PUT", "states/boot_mode", r#"{"target": "uefi"}"#, 400),
        ("PUT", "states/boot_mode", r#"{"target": "x"}"#, 400),
        ("PUT", "states/secure_boot", r#"{"target": true}"#, 400),
        ("GET", "management/indicators/led", "", 400),
        ("GET", "management/indicators/led@chassis", "", 400),
        ("POST", "vendor_passthru/dance", "", 400),
        ("GET", "states/power", "", 405),
        ("GET", "nothing", "", 404),
        ("GET", "states/nothing", "", 404),
    ] {
        refuses(&bench, method, path, body, status);
    }
}

#[test]
fn what_came_later_does_not_exist_before() {
    let bench = bench();
    for (path, since) in [
        ("vifs", 28),
        ("volume", 32),
        ("bios", 40),
        ("history", 78),
        ("children", 83),
        ("firmware", 86),
    ] {
        let path = format!("/v1/nodes/node-1/{path}");
        let below = format!("1.{}", since - 1);
        assert_eq!(bench.reply(&get(&path).at(&below)).status, 404, "{path}");
        let at = format!("1.{since}");
        assert_eq!(bench.reply(&get(&path).at(&at)).status, 200, "{path}");
    }
    let traits = "/v1/nodes/node-1/traits";
    bench.refuses(&get(traits).at("1.36"), 406);
    bench.refuses(&send("PUT", traits, "{}").at("1.36"), 405);
    bench.refuses(&send("DELETE", traits, "").at("1.36"), 404);
    assert_eq!(bench.reply(&get(traits).at("1.37")).status, 200);
}

/// Requests that reach a BMC: driver, method and path, body.
const BMC_REQUESTS: &[(&str, &str, &str)] = &[
    ("ipmi", "PUT states/power", r#"{"target": "power on"}"#),
    (
        "ipmi",
        "PUT management/boot_device",
        r#"{"boot_device": "pxe"}"#,
    ),
    ("ipmi", "GET management/boot_device", ""),
    ("ipmi", "GET management/indicators", ""),
    ("ipmi", "GET management/indicators/led@system", ""),
    ("ipmi", "PUT management/inject_nmi", "{}"),
    ("ipmi", "POST vendor_passthru/bmc_reset", "{}"),
    ("redfish", "PUT states/power", r#"{"target": "rebooting"}"#),
    ("redfish", "PUT states/boot_mode", r#"{"target": "uefi"}"#),
    ("redfish", "PUT states/secure_boot", r#"{"target": true}"#),
    ("redfish", "GET vmedia", ""),
    (
        "redfish",
        "POST vmedia",
        r#"{"device_type": "cdrom", "image_url": "http://192.0.2.1/a.iso"}"#,
    ),
    ("redfish", "DELETE vmedia", ""),
];

/// A node with this driver and `driver_info`.
fn driven_by(driver: &str, info: &Value) -> ApiBench {
    let mut bench = bench();
    bench.facts.drivers.push("redfish".into());
    bench.change(|node| {
        node.driver = driver.into();
        node.driver_info = info.as_object().unwrap().clone();
    });
    bench
}

#[test]
fn requests_to_a_bmc_need_its_address() {
    let address = json!({"ipmi_address": "192.0.2.7", "redfish_address": "192.0.2.7"});
    let ipmi = "Missing the following IPMI credentials in node's driver_info: ['ipmi_address'].";
    let redfish = format!(
        "Missing the following Redfish properties in node {} driver_info: ['redfish_address'].",
        node_id(1)
    );
    for (driver, request, body) in BMC_REQUESTS {
        let (method, path) = request.split_once(' ').unwrap();
        let words = if *driver == "ipmi" { ipmi } else { &redfish };
        let message = refuses(&driven_by(driver, &json!({})), method, path, body, 400);
        assert!(message.starts_with(words), "{request}: {message}");
        let path = format!("/v1/nodes/node-1/{path}");
        let request = send(method, &path, body).at(LATEST);
        if let crate::ApiOutcome::Reply(response) = driven_by(driver, &address).outcome(&request) {
            assert_eq!(response.status, 200, "{path}: {}", response.text());
        }
    }
    let wrong = json!({"ipmi_address": "192.0.2.7", "ipmi_port": "x"});
    let off = r#"{"target": "power off"}"#;
    let message = refuses(&driven_by("ipmi", &wrong), "PUT", "states/power", off, 400);
    let words = "ipmi_port \"x\" is not a valid port.";
    assert!(message.starts_with(words), "{message}");
}
