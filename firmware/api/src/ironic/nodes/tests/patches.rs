use crate::testing::{ApiBench, LATEST, get, node, node_id, send};
use serde_json::{Value, json};
use trivet_model::{PowerState, ProvisionState, RackOrder, secret::MASK};

fn patch(bench: &mut ApiBench, patch: &Value) -> Value {
    let body = patch.to_string();
    let response = bench.done(&send("PATCH", "/v1/nodes/node-1", &body).at(LATEST));
    assert_eq!(response.status, 200);
    response.value()
}

#[track_caller]
fn refuses(bench: &ApiBench, patch: &Value, status: u16) -> String {
    let body = patch.to_string();
    bench.refuses(&send("PATCH", "/v1/nodes/node-1", &body).at(LATEST), status)
}

fn add(path: &str, value: &Value) -> Value {
    json!([{"op": "add", "path": path, "value": value}])
}

#[test]
fn null_removes_only_what_ironic_lets_it_remove() {
    let bench = ApiBench::with(ProvisionState::Manageable);
    for (path, words) in [
        ("/name", "invalid name 'None'"),
        ("/parent_node", "Requested value was invalid"),
        ("/network_data", "None is not of type 'object'"),
        ("/driver", "None is not of type 'string'"),
    ] {
        let message = refuses(&bench, &add(path, &Value::Null), 400);
        assert!(message.contains(words), "{message}");
    }
    let message = refuses(&bench, &add("/name", &json!("a b")), 400);
    let words = "Cannot change name to invalid name 'a b'";
    assert!(message.contains(words), "{message}");
    let message = refuses(&bench, &add("/name", &json!(5)), 400);
    assert!(message.contains("invalid name"), "{message}");
    let message = refuses(&bench, &add("/instance_name", &json!("")), 400);
    assert!(message.contains("should be non-empty"), "{message}");
    // No body at all is an empty object.
    let message = bench.refuses(&send("PATCH", "/v1/nodes/node-1", "").at(LATEST), 400);
    assert!(message.contains("is not of type 'array'"), "{message}");
    // Below a text there is nothing, and the text itself is not removed.
    let below = json!([{"op": "remove", "path": "/driver/none"}]);
    let message = refuses(&bench, &below, 400);
    assert!(message.contains("Couldn't apply patch"), "{message}");
}

#[test]
fn a_patch_answers_with_the_whole_node_and_values_come_back_as_written() {
    let mut bench = ApiBench::with(ProvisionState::Manageable);
    let shown = patch(
        &mut bench,
        &json!([
            {"op": "add", "path": "/extra/a", "value": {"n": 1.5, "null": null, "l": [3, 1, 2]}},
            {"op": "add", "path": "/properties/capabilities", "value": "boot_mode:uefi"},
            {"op": "replace", "path": "/name", "value": "ns~new"},
            {"op": "add", "path": "/automated_clean", "value": false},
            {"op": "add", "path": "/network_data",
             "value": {"links": [], "networks": [], "services": []}},
            {"op": "add", "path": "/disable_power_off", "value": true},
            {"op": "add", "path": "/inspect_interface", "value": "no-inspect"},
        ]),
    );
    assert_eq!(
        shown["extra"]["a"],
        json!({"n": 1.5, "null": null, "l": [3, 1, 2]})
    );
    assert_eq!(shown["name"], "ns~new");
    assert_eq!(shown["automated_clean"], false);
    assert_eq!(
        shown["network_data"],
        json!({"links": [], "networks": [], "services": []})
    );
    assert_eq!(shown["disable_power_off"], true);
    assert_eq!(shown["inspect_interface"], "no-inspect");
    assert_eq!(shown["reservation"], Value::Null);
}

#[test]
fn removing_a_field_gives_its_default() {
    let mut bench = ApiBench::with(ProvisionState::Manageable);
    bench.change(|node| {
        node.extra.insert("a".into(), json!(1));
        node.attributes
            .set("boot_interface", Some(json!("pxe")))
            .unwrap();
        node.attributes.set("owner", Some(json!("me"))).unwrap();
        node.attributes.retired = true;
    });
    let names = [
        "extra",
        "boot_interface",
        "owner",
        "retired",
        "name",
        "lessee",
    ];
    let ops: Vec<Value> = names
        .iter()
        .map(|name| json!({"op": "remove", "path": format!("/{name}")}))
        .collect();
    let body = json!(ops).to_string();
    let path = format!("/v1/nodes/{}", node_id(1));
    let shown = bench.done(&send("PATCH", &path, &body).at(LATEST)).value();
    assert_eq!(shown["extra"], json!({}));
    assert_eq!(shown["boot_interface"], "ipxe");
    assert_eq!(shown["owner"], Value::Null);
    assert_eq!(shown["retired"], false);
    assert_eq!(shown["name"], Value::Null);
}

#[test]
fn a_field_newer_than_the_version_may_be_removed_but_not_set() {
    let mut bench = ApiBench::with(ProvisionState::Manageable);
    bench.change(|node| node.attributes.set("owner", Some(json!("me"))).unwrap());
    let set = add("/owner", &json!("you")).to_string();
    bench.refuses(&send("PATCH", "/v1/nodes/node-1", &set).at("1.49"), 406);
    let removal = json!([{"op": "remove", "path": "/owner"}]).to_string();
    bench.done(&send("PATCH", "/v1/nodes/node-1", &removal).at("1.49"));
    let shown = bench.reply(&get("/v1/nodes/node-1").at(LATEST)).value();
    assert_eq!(shown["owner"], Value::Null);
}

#[test]
fn an_empty_patch_changes_nothing_and_is_no_order() {
    let bench = ApiBench::with(ProvisionState::Deploying);
    let response = bench.reply(&send("PATCH", "/v1/nodes/node-1", "[]").at(LATEST));
    assert_eq!(response.status, 200);
    assert_eq!(response.value()["name"], "node-1");
}

#[test]
fn refuses_fields_that_are_not_the_clients() {
    let bench = ApiBench::with(ProvisionState::Manageable);
    for name in [
        "uuid",
        "provision_state",
        "power_state",
        "traits",
        "links",
        "colour",
        "fault",
    ] {
        refuses(&bench, &add(&format!("/{name}"), &json!("x")), 400);
    }
    refuses(&bench, &json!([{"op": "remove", "path": "/driver"}]), 400);
    refuses(
        &bench,
        &json!([{"op": "remove", "path": "/extra/none"}]),
        400,
    );
    refuses(&bench, &json!({"op": "add"}), 400);
    let body = add("/disable_power_off", &json!(true)).to_string();
    bench.refuses(&send("PATCH", "/v1/nodes/node-1", &body).at("1.94"), 406);
}

#[test]
fn one_bad_operation_spoils_all() {
    let bench = ApiBench::with(ProvisionState::Manageable);
    let ops = json!([
        {"op": "add", "path": "/extra/a", "value": 1},
        {"op": "remove", "path": "/extra/b"},
    ]);
    refuses(&bench, &ops, 400);
}

#[test]
fn a_mask_written_back_keeps_the_secret() {
    let mut bench = ApiBench::with(ProvisionState::Manageable);
    bench.change(|node| {
        node.driver_info
            .insert("ipmi_password".into(), json!("hunter2"));
        node.driver_info
            .insert("ipmi_address".into(), json!("192.0.2.1"));
    });
    let shown = bench.reply(&get("/v1/nodes/node-1").at(LATEST)).value();
    let mut info = shown["driver_info"].clone();
    assert_eq!(info["ipmi_password"], MASK);
    info["ipmi_address"] = json!("192.0.2.2");
    patch(
        &mut bench,
        &json!([{"op": "replace", "path": "/driver_info", "value": info}]),
    );
    let stored = &bench.view.nodes[&node_id(1)].node.driver_info;
    assert_eq!(stored["ipmi_password"], "hunter2");
    assert_eq!(stored["ipmi_address"], "192.0.2.2");
    patch(&mut bench, &add("/driver_info/ipmi_password", &json!(MASK)));
    let stored = &bench.view.nodes[&node_id(1)].node.driver_info;
    assert_eq!(stored["ipmi_password"], "hunter2");
    patch(
        &mut bench,
        &add("/driver_info/ipmi_password", &json!("new")),
    );
    let stored = &bench.view.nodes[&node_id(1)].node.driver_info;
    assert_eq!(stored["ipmi_password"], "new");
}

#[test]
fn secrets_that_a_patch_does_not_touch_stay_in_clear() {
    let mut bench = ApiBench::with(ProvisionState::Manageable);
    bench.change(|node| {
        node.instance_info
            .insert("image_url".into(), json!("http://x/?sig"));
    });
    let body = add("/instance_info/a", &json!(1)).to_string();
    let request = send("PATCH", "/v1/nodes/node-1", &body).at(LATEST);
    let RackOrder::ReplaceNode { node, based_on } = bench.order(&request).0 else {
        panic!("not a replacement");
    };
    assert_eq!(based_on, 7);
    assert_eq!(node.instance_info["image_url"], "http://x/?sig");
}

#[test]
fn nothing_changes_while_a_transition_is_under_way() {
    for (state, status) in [
        (ProvisionState::Deploying, 409),
        (ProvisionState::DeployWait, 409),
        (ProvisionState::CleanWait, 409),
        (ProvisionState::Inspecting, 409),
    ] {
        let mut bench = ApiBench::with(state);
        bench.change(|node| node.target_provision_state = Some(ProvisionState::Active));
        refuses(&bench, &add("/extra/a", &json!(1)), status);
    }
    for state in [
        ProvisionState::DeployFail,
        ProvisionState::CleanFail,
        ProvisionState::InspectFail,
        ProvisionState::InspectWait,
        ProvisionState::Error,
    ] {
        let mut bench = ApiBench::with(state);
        bench.change(|node| node.target_provision_state = Some(ProvisionState::Active));
        patch(&mut bench, &add("/extra/a", &json!(1)));
    }
    let mut bench = ApiBench::with(ProvisionState::Active);
    bench.change(|node| node.target_power_state = Some(PowerState::On));
    let message = refuses(&bench, &add("/extra/a", &json!(1)), 409);
    assert!(message.contains("is locked by host box"), "{message}");
}

#[test]
fn in_maintenance_an_instance_can_always_be_removed() {
    let mut bench = ApiBench::with(ProvisionState::DeployWait);
    bench.change(|node| {
        node.target_provision_state = Some(ProvisionState::Active);
        node.instance_uuid = Some(node_id(9).to_string());
    });
    let remove = json!([{"op": "remove", "path": "/instance_uuid"}]);
    refuses(&bench, &remove, 409);
    bench.change(|node| node.maintenance = true);
    assert_eq!(patch(&mut bench, &remove)["instance_uuid"], Value::Null);
}

#[test]
fn interfaces_and_class_change_only_while_nothing_runs() {
    let mut bench = ApiBench::with(ProvisionState::Active);
    refuses(&bench, &add("/boot_interface", &json!("pxe")), 409);
    refuses(&bench, &add("/resource_class", &json!("gold")), 409);
    bench.change(|node| node.maintenance = true);
    patch(&mut bench, &add("/boot_interface", &json!("pxe")));
    refuses(&bench, &add("/boot_interface", &json!("floppy")), 400);
}

#[test]
fn a_new_driver_needs_its_own_interfaces_or_a_reset() {
    let mut bench = ApiBench::with(ProvisionState::Manageable);
    bench.change(|node| {
        node.attributes
            .set("power_interface", Some(json!("ipmitool")))
            .unwrap();
    });
    let body = add("/driver", &json!("fake-hardware")).to_string();
    bench.refuses(&send("PATCH", "/v1/nodes/node-1", &body).at(LATEST), 400);
    let path = "/v1/nodes/node-1?reset_interfaces=true";
    bench.refuses(&send("PATCH", path, &body).at("1.44"), 406);
    let other = add("/extra/a", &json!(1)).to_string();
    bench.refuses(&send("PATCH", path, &other).at(LATEST), 400);
    let shown = bench.done(&send("PATCH", path, &body).at(LATEST)).value();
    assert_eq!(shown["driver"], "fake-hardware");
    assert_eq!(shown["power_interface"], "fake");
}

#[test]
fn a_new_driver_must_support_the_interfaces_that_were_defaults_of_the_old_one() {
    let mut bench = ApiBench::with(ProvisionState::Manageable);
    let message = refuses(&bench, &add("/driver", &json!("fake-hardware")), 400);
    assert!(
        message.contains("is not supported by hardware type fake-hardware"),
        "{message}"
    );
    assert!(message.contains("reset_interfaces=true"), "{message}");
    // Those of the patch itself count.
    let mut body = vec![json!({"op": "add", "path": "/driver", "value": "fake-hardware"})];
    for kind in ["power", "management", "vendor"] {
        let path = format!("/{kind}_interface");
        body.push(json!({"op": "add", "path": path, "value": "fake"}));
    }
    let shown = patch(&mut bench, &json!(body));
    assert_eq!(shown["power_interface"], "fake");
    assert_eq!(shown["deploy_interface"], "autodetect", "as before");
}

#[test]
fn an_instance_is_not_replaced_by_another() {
    let mut bench = ApiBench::with(ProvisionState::Active);
    let (one, two) = (node_id(8).to_string(), node_id(9).to_string());
    patch(&mut bench, &add("/instance_uuid", &json!(one)));
    refuses(&bench, &add("/instance_uuid", &json!(two)), 409);
    refuses(&bench, &add("/instance_uuid", &json!("x")), 400);
    let mut other = node(2);
    other.instance_uuid = Some(two.clone());
    bench.add(other);
    patch(
        &mut bench,
        &json!([{"op": "remove", "path": "/instance_uuid"}]),
    );
    refuses(&bench, &add("/instance_uuid", &json!(two)), 409);
}

#[test]
fn leaving_maintenance_clears_reason_and_fault() {
    let mut bench = ApiBench::with(ProvisionState::Active);
    bench.change(|node| {
        node.maintenance = true;
        node.maintenance_reason = Some("why".into());
        node.fault = Some("power failure".into());
    });
    let shown = patch(&mut bench, &add("/maintenance", &json!(false)));
    assert_eq!(shown["maintenance_reason"], Value::Null);
    assert_eq!(shown["fault"], Value::Null);
}

#[test]
fn only_a_node_with_an_instance_is_protected() {
    let mut bench = ApiBench::with(ProvisionState::Manageable);
    refuses(&bench, &add("/protected", &json!(true)), 409);
    bench.change(|node| node.provision_state = ProvisionState::Active);
    assert_eq!(
        patch(&mut bench, &add("/protected", &json!("True")))["protected"],
        true
    );
    bench.refuses(&send("DELETE", "/v1/nodes/node-1", "").at(LATEST), 403);
    let verb = r#"{"target": "deleted"}"#;
    let path = "/v1/nodes/node-1/states/provision";
    bench.refuses(&send("PUT", path, verb).at(LATEST), 403);
}

#[test]
fn a_name_that_is_not_a_text_or_too_long_is_invalid_in_ironics_words() {
    let mut bench = ApiBench::with(ProvisionState::Manageable);
    for name in [json!(5), json!(["x"]), json!(true), json!("x".repeat(256))] {
        let message = refuses(&bench, &add("/name", &name), 400);
        assert!(
            message.contains(": Cannot change name to invalid name "),
            "{message}"
        );
    }
    patch(&mut bench, &add("/name", &json!("x".repeat(255))));
}

#[test]
fn a_name_in_use_is_a_conflict() {
    let mut bench = ApiBench::with(ProvisionState::Manageable);
    bench.add(node(2));
    refuses(&bench, &add("/name", &json!("node-2")), 409);
    patch(&mut bench, &add("/name", &json!("node-1")));
}

#[test]
fn a_patch_may_not_add_a_misspelt_driver_info_key_but_may_leave_one() {
    let mut bench = ApiBench::with(ProvisionState::Manageable);
    let misspelt = add("/driver_info/ipmi_pasword", &json!("x"));
    let message = refuses(&bench, &misspelt, 400);
    assert!(message.contains("ipmi_password"), "{message}");
    bench.change(|node| {
        node.driver_info
            .insert("ipmi_adress".into(), json!("192.0.2.1"));
    });
    patch(&mut bench, &add("/driver_info/ipmi_port", &json!(623)));
    patch(
        &mut bench,
        &json!([{"op": "remove", "path": "/driver_info/ipmi_adress"}]),
    );
}

#[test]
fn that_a_field_cannot_be_patched_is_said_before_its_version() {
    let bench = ApiBench::with(ProvisionState::Manageable);
    for field in ["traits", "allocation_uuid", "health"] {
        let patch = format!(r#"[{{"op": "remove", "path": "/{field}"}}]"#);
        let request = send("PATCH", "/v1/nodes/node-1", &patch);
        let message = bench.refuses(&request.at("1.8"), 400);
        let words = format!("Cannot patch /{field}. Only the following can be updated: ");
        assert!(message.starts_with(&words), "{message}");
    }
}
