use crate::ironic::nodes::write::NODE_BYTES_MAX;
use crate::testing::{ApiBench, LATEST, NOW, get, node, node_id, send};
use serde_json::{Value, json};
use trivet_model::{ProvisionState, RackOrder};

#[track_caller]
fn refuses(bench: &ApiBench, body: &Value, version: &str, status: u16) -> String {
    bench.refuses(
        &send("POST", "/v1/nodes", &body.to_string()).at(version),
        status,
    )
}

#[test]
fn null_is_absent_for_fields_that_can_be_given_only() {
    let mut bench = ApiBench::new();
    let body = json!({"driver": "ipmi", "boot_mode": "uefi", "secure_boot": false, "shard": null});
    let body = body.to_string();
    let request = send("POST", "/v1/nodes", &body).at(LATEST);
    let shown = bench.done(&request).value();
    assert_eq!(shown["boot_mode"], "uefi");
    assert_eq!(shown["secure_boot"], false);
    let body = json!({"driver": "ipmi", "resource_class": "", "parent_node": ""}).to_string();
    let request = send("POST", "/v1/nodes", &body).at(LATEST);
    let shown = ApiBench::new().done(&request).value();
    assert_eq!(
        (&shown["resource_class"], &shown["parent_node"]),
        (&Value::Null, &Value::Null)
    );
    for name in ["power_state", "nonsense", "protected"] {
        let mut body = json!({"driver": "ipmi"});
        body[name] = Value::Null;
        let message = refuses(&bench, &body, LATEST, 400);
        assert!(message.contains("was unexpected"), "{message}");
    }
    // The default conductor group, and what is null, is accepted before its version.
    let body = json!({"driver": "ipmi", "conductor_group": "", "shard": null}).to_string();
    assert!(matches!(
        ApiBench::new().outcome(&send("POST", "/v1/nodes", &body).at("1.45")),
        crate::ApiOutcome::Order { .. }
    ));
}

#[test]
fn long_names_of_drivers_and_groups_have_no_conductor() {
    let bench = ApiBench::new();
    let long = "x".repeat(300);
    for body in [
        json!({"driver": long}),
        json!({"driver": "ipmi", "conductor_group": long}),
    ] {
        let message = refuses(&bench, &body, LATEST, 400);
        assert!(
            message.contains("No conductor service registered"),
            "{message}"
        );
    }
    for data in [json!("x"), json!([1]), json!({"odd": 1})] {
        let message = refuses(
            &bench,
            &json!({"driver": "ipmi", "network_data": data}),
            LATEST,
            400,
        );
        for words in [
            "is not valid under any of the given schemas",
            "is not of type 'null'",
        ] {
            assert!(message.contains(words), "{message}");
        }
    }
}

#[test]
fn a_node_is_made_in_enroll_and_shown_whole() {
    let mut bench = ApiBench::new();
    let body = json!({
        "driver": "ipmi", "name": "metal3~host-0", "driver_info": {"ipmi_password": "x"},
        "automated_clean": "false", "disable_power_off": false, "owner": "me", "uuid": null,
        "boot_interface": "pxe",
    })
    .to_string();
    let request = send("POST", "/v1/nodes", &body).at(LATEST);
    let response = bench.done(&request);
    assert_eq!(response.status, 201);
    let shown = response.value();
    let uuid = shown["uuid"].as_str().unwrap();
    let location = format!("http://box:6385/v1/nodes/{uuid}");
    assert_eq!(response.header("Location"), Some(location.as_str()));
    assert_eq!(shown["provision_state"], "enroll");
    assert_eq!(shown["power_state"], Value::Null);
    assert_eq!(shown["driver_info"], json!({"ipmi_password": "******"}));
    assert_eq!(shown["automated_clean"], false);
    assert_eq!(shown["owner"], "me");
    assert_eq!(shown["boot_interface"], "pxe");
    assert_eq!(shown["deploy_interface"], "autodetect");
    assert_eq!(shown["created_at"], NOW.to_string());
    for path in ["/v1/nodes/metal3~host-0", "/v1/nodes/metal3%7Ehost-0"] {
        assert_eq!(bench.reply(&get(path).at(LATEST)).value()["uuid"], uuid);
    }
}

#[test]
fn clients_older_than_enroll_get_a_node_that_is_available() {
    let bench = ApiBench::new();
    for (version, state) in [
        ("1.10", ProvisionState::Available),
        ("1.11", ProvisionState::Enroll),
    ] {
        let request = send("POST", "/v1/nodes", r#"{"driver": "ipmi"}"#).at(version);
        let RackOrder::CreateNode(node) = bench.order(&request).0 else {
            panic!("not a creation");
        };
        assert_eq!(node.provision_state, state);
    }
}

#[test]
fn refuses_a_body_that_is_no_node() {
    let bench = ApiBench::new();
    for body in [
        json!({}),
        json!({"driver": 5}),
        json!({"driver": "nonesuch"}),
        json!({"driver": "ipmi", "colour": "red"}),
        json!({"driver": "ipmi", "provision_state": "active"}),
        json!({"driver": "ipmi", "traits": ["CUSTOM_X"]}),
        json!({"driver": "ipmi", "protected": true}),
        json!({"driver": "ipmi", "extra": []}),
        json!({"driver": "ipmi", "maintenance": 5}),
        json!({"driver": "ipmi", "uuid": "x"}),
        json!({"driver": "ipmi", "boot_interface": "redfish-virtual-media"}),
        json!({"driver": "ipmi", "boot_interface": 7}),
        json!({"driver": "ipmi", "chassis_uuid": node_id(1).to_string()}),
        json!({"driver": "ipmi", "parent_node": node_id(1).to_string()}),
        json!({"driver": "ipmi", "description": "x".repeat(4097)}),
    ] {
        refuses(&bench, &body, LATEST, 400);
    }
}

#[test]
fn names_are_unreserved_characters_and_no_uuids_or_api_words() {
    let bench = ApiBench::new();
    let long = "x".repeat(256);
    let names = [
        "",
        "a b",
        "a/b",
        "caf\u{e9}",
        "detail",
        "states",
        "..",
        long.as_str(),
    ];
    for name in names {
        refuses(
            &bench,
            &json!({"driver": "ipmi", "name": name}),
            LATEST,
            400,
        );
    }
    let uuid = node_id(1).to_string();
    refuses(
        &bench,
        &json!({"driver": "ipmi", "name": uuid}),
        LATEST,
        400,
    );
    for name in ["a", "A-b_c.d~e", "0"] {
        let body = json!({"driver": "ipmi", "name": name}).to_string();
        bench.order(&send("POST", "/v1/nodes", &body).at(LATEST));
    }
}

#[test]
fn a_name_uuid_or_instance_in_use_is_a_conflict() {
    let mut bench = ApiBench::new();
    let mut taken = node(1);
    taken.instance_uuid = Some(node_id(9).to_string());
    bench.add(taken);
    for body in [
        json!({"driver": "ipmi", "name": "node-1"}),
        json!({"driver": "ipmi", "uuid": node_id(1).to_string()}),
        json!({"driver": "ipmi", "instance_uuid": node_id(9).to_string()}),
    ] {
        refuses(&bench, &body, LATEST, 409);
    }
}

#[test]
fn a_field_newer_than_the_version_is_not_acceptable() {
    let bench = ApiBench::new();
    for (field, value, since) in [
        ("name", json!("x"), 5),
        ("network_interface", json!("noop"), 20),
        ("boot_interface", json!("ipxe"), 31),
        ("owner", json!("x"), 50),
        ("disable_power_off", json!(true), 95),
        ("instance_name", json!("x"), 104),
    ] {
        let body = json!({"driver": "ipmi", field: value});
        refuses(&bench, &body, &format!("1.{}", since - 1), 406);
        let text = body.to_string();
        bench.order(&send("POST", "/v1/nodes", &text).at(&format!("1.{since}")));
    }
}

#[test]
fn size_and_depth_are_bounded() {
    let bench = ApiBench::new();
    let body = json!({"driver": "ipmi", "extra": {"x": "y".repeat(NODE_BYTES_MAX)}});
    let message = refuses(&bench, &body, LATEST, 400);
    assert!(message.contains("the limit is 40960"), "{message}");
    let deep = (0..70).fold(json!(1), |inner, _| json!([inner]));
    let message = refuses(
        &bench,
        &json!({"driver": "ipmi", "extra": {"x": deep}}),
        LATEST,
        400,
    );
    assert!(message.contains("levels"), "{message}");
    let abyss = format!("{{\"driver\": \"ipmi\", \"extra\": {}", "[".repeat(100_000));
    bench.refuses(&send("POST", "/v1/nodes", &abyss).at(LATEST), 400);
}

#[test]
fn a_child_needs_another_node_as_parent() {
    let mut bench = ApiBench::new();
    bench.add(node(1));
    let body = json!({"driver": "ipmi", "parent_node": node_id(1).to_string()}).to_string();
    let shown = bench
        .done(&send("POST", "/v1/nodes", &body).at(LATEST))
        .value();
    let list = bench.reply(&get("/v1/nodes").at(LATEST)).value();
    assert_eq!(
        list["nodes"].as_array().unwrap().len(),
        1,
        "children are hidden"
    );
    let all = bench
        .reply(&get("/v1/nodes?include_children=1").at(LATEST))
        .value();
    assert_eq!(all["nodes"].as_array().unwrap().len(), 2);
    let children = bench
        .reply(&get("/v1/nodes/node-1/children").at(LATEST))
        .value();
    assert_eq!(children["children"], json!([shown["uuid"]]));
}

#[test]
fn a_driver_name_of_the_first_releases_is_shown_as_the_present_one() {
    for (older, today, deploy) in [
        ("agent_ipmitool", "ipmi", "autodetect"),
        ("agent_ssh", "ssh", "autodetect"),
        ("fake_agent", "fake-hardware", "direct"),
        ("fake-hardware", "fake-hardware", "fake"),
    ] {
        let mut bench = ApiBench::new();
        bench.facts.drivers.push("ssh".into());
        let body = json!({ "driver": older }).to_string();
        let shown = bench.done(&send("POST", "/v1/nodes", &body).at(LATEST));
        assert_eq!(shown.value()["driver"], today);
        assert_eq!(shown.value()["deploy_interface"], deploy, "{older}");
    }
}

#[test]
fn a_misspelt_driver_info_key_is_refused_with_a_suggestion() {
    let bench = ApiBench::new();
    let body = json!({"driver": "ipmi", "driver_info": {"ipmi_adress": "192.0.2.1"}});
    let message = refuses(&bench, &body, LATEST, 400);
    assert!(message.contains("\"ipmi_adress\""), "{message}");
    assert!(
        message.contains("did you mean \"ipmi_address\"?"),
        "{message}"
    );
    // Other keys are stored, as in Ironic: Metal3 and other clients have their own.
    let body = json!({"driver": "ipmi", "driver_info": {
        "ipmi_address": "192.0.2.1", "force_persistent_boot_device": "Default", "rack": 7,
        "deploy_iso": "http://box/agent.iso",
    }})
    .to_string();
    bench.order(&send("POST", "/v1/nodes", &body).at(LATEST));
}

#[test]
fn the_limits_of_texts_are_in_characters() {
    let body = |class: &str| json!({"driver": "ipmi", "resource_class": class}).to_string();
    let bench = ApiBench::new();
    bench.order(&send("POST", "/v1/nodes", &body(&"\u{e9}".repeat(80))).at(LATEST));
    let long = body(&"\u{e9}".repeat(81));
    let message = bench.refuses(&send("POST", "/v1/nodes", &long).at(LATEST), 400);
    assert!(message.contains("at most 80 characters long"), "{message}");
}

#[test]
fn values_that_ironic_refuses_are_refused_in_its_words() {
    let bench = ApiBench::new();
    for (field, value, words) in [
        ("resource_class", json!("r".repeat(81)), "is too long"),
        ("name", json!(5), "5 is not of type 'string'"),
        (
            "chassis_uuid",
            json!("x"),
            "Expected UUID for chassis_uuid: x",
        ),
        (
            "conductor_group",
            json!("far"),
            "No conductor service registered which supports driver",
        ),
        (
            "network_data",
            json!({"odd": 1}),
            "'links' is a required property",
        ),
    ] {
        let mut body = json!({"driver": "fake-hardware"});
        body[field] = value;
        let message = refuses(&bench, &body, LATEST, 400);
        assert!(message.contains(words), "{message}");
    }
    let odd = send("POST", "/v1/nodes", r#"{"driver": "odd"}"#).at(LATEST);
    let message = bench.refuses(&odd, 400);
    let words = "No valid host was found. Reason: No conductor service registered which supports \
                 driver odd";
    assert!(message.starts_with(words), "{message}");
}

#[test]
fn a_text_in_the_place_of_an_object_may_be_a_secret_and_is_not_shown() {
    let bench = ApiBench::new();
    for field in ["driver_info", "instance_info", "properties", "extra"] {
        for value in [json!("s3cret"), json!(["s3cret"])] {
            let mut body = json!({"driver": "fake-hardware"});
            body[field] = value;
            let text = body.to_string();
            let message = bench.refuses(&send("POST", "/v1/nodes", &text).at(LATEST), 400);
            assert!(message.contains("is not of type 'object'"), "{message}");
            assert!(!message.contains("s3cret"), "{message}");
        }
    }
}
