use crate::ironic::ports::write::PORT_BYTES_MAX;
use crate::testing::{ApiBench, LATEST, get, node, node_id, port, port_id, send};
use serde_json::{Value, json};
use trivet_model::{ProvisionState, RackOrder};

fn bench() -> ApiBench {
    let mut bench = ApiBench::with(ProvisionState::Manageable);
    bench.add(node(2));
    bench.add_port(port(1, 1));
    bench.add_port(port(2, 2));
    bench
}

#[track_caller]
fn refuses(body: &Value, version: &str, status: u16) -> String {
    bench().refuses(
        &send("POST", "/v1/ports", &body.to_string()).at(version),
        status,
    )
}

#[test]
fn a_port_is_made_with_its_address_in_lower_case() {
    let mut bench = bench();
    let body = json!({
        "address": "52:54:00:AA:BB:CC", "node_uuid": node_id(1).to_string(), "pxe_enabled": "False",
        "extra": {"a": 1}, "local_link_connection": {"port_id": "x", "hostname": "h"},
        "name": "eth0",
    })
    .to_string();
    let response = bench.done(&send("POST", "/v1/ports", &body).at(LATEST));
    assert_eq!(response.status, 201);
    let shown = response.value();
    let uuid = shown["uuid"].as_str().unwrap();
    let location = format!("http://box:6385/v1/ports/{uuid}");
    assert_eq!(response.header("Location"), Some(location.as_str()));
    assert_eq!(shown["address"], "52:54:00:aa:bb:cc");
    assert_eq!(shown["pxe_enabled"], false);
    assert_eq!(shown["is_smartnic"], false);
    assert_eq!(
        shown["local_link_connection"],
        json!({"port_id": "x", "hostname": "h"})
    );
    let keys: Vec<&String> = shown.as_object().unwrap().keys().collect();
    assert_eq!(
        keys,
        [
            "address",
            "available_for_dynamic_portgroup",
            "category",
            "created_at",
            "description",
            "extra",
            "internal_info",
            "is_smartnic",
            "links",
            "local_link_connection",
            "name",
            "node_uuid",
            "physical_network",
            "portgroup_uuid",
            "pxe_enabled",
            "updated_at",
            "uuid",
            "vendor"
        ]
    );
}

#[test]
fn a_node_may_be_named_from_1_94_on() {
    let body = json!({"address": "52:54:00:00:00:09", "node_ident": "node-1"}).to_string();
    let bench = bench();
    let (order, _) = bench.order(&send("POST", "/v1/ports", &body).at("1.94"));
    let RackOrder::CreatePort(port) = order else {
        panic!("not a creation");
    };
    assert_eq!(port.node, node_id(1));
    assert!(port.pxe_enabled);
    bench.refuses(&send("POST", "/v1/ports", &body).at("1.93"), 406);
}

#[test]
fn refuses_what_is_no_port() {
    let node = node_id(1).to_string();
    let mac = "52:54:00:00:00:09";
    for body in [
        json!({}),
        json!({"address": mac}),
        json!({"node_uuid": node}),
        json!({"address": "x", "node_uuid": node}),
        json!({"address": 5, "node_uuid": node}),
        json!({"address": mac, "node_uuid": "x"}),
        json!({"address": mac, "node_uuid": node_id(9).to_string()}),
        json!({"address": mac, "node_uuid": node, "node_ident": "node-1"}),
        json!({"address": mac, "node_uuid": node, "colour": "red"}),
        json!({"address": mac, "node_uuid": node, "internal_info": {}}),
        json!({"address": mac, "node_uuid": node, "portgroup_uuid": node}),
        json!({"address": mac, "node_uuid": node, "extra": {"x": "y".repeat(PORT_BYTES_MAX)}}),
        json!({"address": mac, "node_uuid": node, "extra": {"ipv4_address": "10.0.0.300"}}),
        json!({"address": mac, "node_uuid": node, "extra": {"ipv4_address": 7}}),
    ] {
        refuses(&body, LATEST, 400);
    }
    let older = json!({"address": mac, "node_uuid": node, "name": "x"});
    refuses(&older, "1.87", 406);
}

#[test]
fn addresses_uuids_and_names_are_unique() {
    let node = node_id(1).to_string();
    let mac = "52:54:00:00:00:09";
    let message = refuses(
        &json!({"address": "52:54:00:00:00:01", "node_uuid": node}),
        LATEST,
        409,
    );
    let owner = format!("It belongs to node node-1 ({node}).");
    assert!(
        message.ends_with(&owner),
        "the other node is named: {message}"
    );
    let uuid = port_id(1).to_string();
    refuses(
        &json!({"address": mac, "node_uuid": node, "uuid": uuid}),
        LATEST,
        409,
    );
    let mut bench = bench();
    let mut named = port(3, 1);
    named.attributes.set("name", Some(json!("eth0"))).unwrap();
    bench.add_port(named);
    let body = json!({"address": mac, "node_uuid": node, "name": "eth0"}).to_string();
    bench.refuses(&send("POST", "/v1/ports", &body).at(LATEST), 409);
}

#[test]
fn a_locked_node_keeps_its_ports() {
    let mut bench = bench();
    bench.change(|node| node.provision_state = ProvisionState::Deploying);
    let node = node_id(1).to_string();
    let body = json!({"address": "52:54:00:00:00:09", "node_uuid": node}).to_string();
    bench.refuses(&send("POST", "/v1/ports", &body).at(LATEST), 409);
    let path = format!("/v1/ports/{}", port_id(1));
    bench.refuses(&send("DELETE", &path, "").at(LATEST), 409);
    let patch = r#"[{"op": "add", "path": "/pxe_enabled", "value": false}]"#;
    bench.refuses(&send("PATCH", &path, patch).at(LATEST), 409);
}

#[test]
fn null_is_not_a_value_of_every_field() {
    let bench = bench();
    for (name, want) in [
        ("address", "None is not of type 'string'"),
        (
            "available_for_dynamic_portgroup",
            "None is not of type 'boolean'",
        ),
        ("node_uuid", "None is not of type 'string'"),
        ("internal_info", "Additional properties are not allowed"),
    ] {
        let mut body = json!({
            "address": "52:54:00:aa:bb:cc", "node_uuid": node_id(1).to_string(),
        });
        body[name] = Value::Null;
        let message = bench.refuses(
            &send("POST", "/v1/ports", &body.to_string()).at(LATEST),
            400,
        );
        assert!(message.contains(want), "{message}");
    }
    let body = json!({
        "address": "52:54:00:aa:bb:cc", "node_uuid": node_id(1).to_string(),
        "vendor": "v".repeat(33),
    });
    let message = bench.refuses(
        &send("POST", "/v1/ports", &body.to_string()).at(LATEST),
        400,
    );
    assert!(message.contains("is too long"), "{message}");
}

#[test]
fn lists_are_short_and_filtered() {
    let bench = bench();
    let all = bench.reply(&get("/v1/ports").at(LATEST)).value();
    assert_eq!(all["ports"].as_array().unwrap().len(), 2);
    let keys: Vec<&String> = all["ports"][0].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["address", "links", "uuid"]);
    for query in [
        "address=52:54:00:00:00:02",
        "address=52:54:00:00:00:02",
        "node=node-2",
        &format!("node_uuid={}", node_id(2)),
        &format!("marker={}", port_id(1)),
    ] {
        let body = bench
            .reply(&get(&format!("/v1/ports?{query}")).at(LATEST))
            .value();
        assert_eq!(body["ports"].as_array().unwrap().len(), 1, "{query}");
        assert_eq!(body["ports"][0]["uuid"], port_id(2).to_string());
    }
    let path = "/v1/ports?fields=node_uuid,uuid,address&address=52:54:00:00:00:0a";
    assert_eq!(
        bench.reply(&get(path).at(LATEST)).value(),
        json!({"ports": []})
    );
    bench.refuses(&get("/v1/ports?node=nobody").at(LATEST), 404);
    bench.refuses(
        &get(&format!("/v1/ports?node_uuid={}", node_id(9))).at(LATEST),
        404,
    );
    bench.refuses(&get("/v1/ports?address=x").at(LATEST), 400);
    bench.refuses(&get("/v1/ports?colour=x").at(LATEST), 400);
    let detail = bench.reply(&get("/v1/ports/detail").at(LATEST)).value();
    assert!(detail["ports"][0].get("node_uuid").is_some());
}

#[test]
fn a_port_is_shown_by_uuid_only() {
    let bench = bench();
    let path = format!("/v1/ports/{}", port_id(1));
    let shown = bench.reply(&get(&path).at(LATEST)).value();
    assert_eq!(shown["node_uuid"], node_id(1).to_string());
    let old = bench.reply(&get(&path).at("1.1")).value();
    assert!(old.get("pxe_enabled").is_none());
    bench.refuses(&get("/v1/ports/52:54:00:00:00:01").at(LATEST), 400);
    bench.refuses(&get(&format!("/v1/ports/{}", port_id(9))).at(LATEST), 404);
}

#[test]
fn a_port_is_found_by_its_name_in_every_version() {
    let mut bench = bench();
    let mut named = port(3, 1);
    named.attributes.name = Some("eth0".into());
    bench.add_port(named);
    for version in ["1.1", "1.87", "1.88", LATEST] {
        let shown = bench.reply(&get("/v1/ports/eth0").at(version)).value();
        assert_eq!(shown["uuid"], port_id(3).to_string(), "{version}");
        bench.refuses(&get("/v1/ports/eth1").at(version), 404);
    }
}

#[test]
fn a_port_is_patched_and_deleted() {
    let mut bench = bench();
    let path = format!("/v1/ports/{}", port_id(1));
    let patch = json!([
        {"op": "replace", "path": "/address", "value": "52:54:00:00:00:0B"},
        {"op": "add", "path": "/extra/a", "value": [1]},
        {"op": "add", "path": "/physical_network", "value": "net"},
        {"op": "replace", "path": "/pxe_enabled", "value": false},
        {"op": "replace", "path": "/node_uuid", "value": node_id(2).to_string()},
    ])
    .to_string();
    let request = send("PATCH", &path, &patch).at(LATEST);
    let RackOrder::ReplacePort { based_on, .. } = bench.order(&request).0 else {
        panic!("not a replacement");
    };
    assert_eq!(based_on, 3);
    let shown = bench.done(&request).value();
    assert_eq!(shown["address"], "52:54:00:00:00:0b");
    assert_eq!(shown["extra"], json!({"a": [1]}));
    assert_eq!(shown["physical_network"], "net");
    assert_eq!(shown["node_uuid"], node_id(2).to_string());
    let remove = r#"[{"op": "remove", "path": "/pxe_enabled"}]"#;
    let shown = bench.done(&send("PATCH", &path, remove).at(LATEST)).value();
    assert_eq!(shown["pxe_enabled"], true);
    assert_eq!(
        bench.reply(&send("PATCH", &path, "[]").at(LATEST)).status,
        200
    );
    let request = send("DELETE", &path, "").at(LATEST);
    assert_eq!(bench.order(&request).0, RackOrder::DeletePort(port_id(1)));
    assert_eq!(bench.done(&request).status, 204);
}

#[test]
fn a_port_refuses_bad_patches() {
    let bench = bench();
    let path = format!("/v1/ports/{}", port_id(1));
    for (patch, status) in [
        (json!([{"op": "remove", "path": "/address"}]), 400),
        (json!([{"op": "remove", "path": "/node_uuid"}]), 400),
        (json!([{"op": "add", "path": "/uuid", "value": "x"}]), 400),
        (
            json!([{"op": "add", "path": "/address", "value": null}]),
            400,
        ),
        (
            json!([{"op": "add", "path": "/address", "value": "52:54:00:00:00:02"}]),
            409,
        ),
        (
            json!([{"op": "add", "path": "/node_uuid", "value": "nobody"}]),
            400,
        ),
        (
            json!([{"op": "add", "path": "/node_uuid", "value": null}]),
            400,
        ),
    ] {
        bench.refuses(&send("PATCH", &path, &patch.to_string()).at(LATEST), status);
    }
}

#[test]
fn a_list_of_ports_looks_at_the_ports_it_shows_only() {
    let mut bench = ApiBench::new();
    bench.add(node(1));
    bench.add(node(2));
    for number in 1..=200 {
        bench.add_port(port(number, if number <= 2 { 1 } else { 2 }));
    }
    for (path, count) in [
        ("/v1/ports?limit=10", 10),
        ("/v1/ports?limit=10&sort_key=address&sort_dir=desc", 10),
        ("/v1/ports?limit=5&sort_key=uuid", 5),
        ("/v1/nodes/node-1/ports", 2),
        ("/v1/ports?node=node-1", 2),
        ("/v1/ports?address=52:54:00:00:00:07", 1),
    ] {
        crate::table::list::EXAMINED.set(0);
        let body = bench.reply(&get(path).at(LATEST)).value();
        assert_eq!(body["ports"].as_array().unwrap().len(), count, "{path}");
        assert_eq!(crate::table::list::EXAMINED.get(), count, "{path}");
    }
}

#[test]
fn a_link_names_a_switch_or_the_host_of_a_smart_nic() {
    let node = node_id(1).to_string();
    let with = |link: Value, smart: bool| {
        json!({
            "address": "52:54:00:aa:bb:cc", "node_uuid": node, "local_link_connection": link,
            "is_smartnic": smart,
        })
    };
    for (link, smart) in [
        (json!({}), false),
        (
            json!({"port_id": "e1", "switch_id": "52:54:00:00:00:01"}),
            false,
        ),
        (
            json!({"port_id": "e1", "switch_id": "01:02:03:04:05:06:07:08"}),
            false,
        ),
        (json!({"network_type": "unmanaged"}), false),
        (json!({"port_id": "e1", "hostname": "h"}), true),
    ] {
        bench().order(&send("POST", "/v1/ports", &with(link, smart).to_string()).at(LATEST));
    }
    for (link, smart, words) in [
        (
            json!({"port_id": "e1"}),
            false,
            "'switch_id' is a required property",
        ),
        (
            json!({"switch_id": "52:54:00:00:00:01"}),
            false,
            "'port_id' is a required property",
        ),
        (
            json!({"port_id": "e1", "switch_id": "odd"}),
            false,
            "received odd",
        ),
        (
            json!({"port_id": "e1", "switch_id": "52:54:00:00:00:01"}),
            true,
            "'hostname' is a required property",
        ),
    ] {
        let message = refuses(&with(link, smart), LATEST, 400);
        assert!(message.contains(words), "{message}");
    }
}

#[test]
fn ports_of_one_portgroup_are_in_one_physical_network() {
    let group: trivet_model::ResourceId = "00000000-0000-4000-a000-000000000001".parse().unwrap();
    let mut bench = bench();
    let kind = trivet_model::ResourceKind::PortGroup;
    let mut record = trivet_model::Resource::new(group, kind, crate::testing::NOW);
    record.node = Some(node_id(1));
    bench.add_resource(record);
    let mut member = port(7, 1);
    member.attributes.portgroup_uuid = Some(group);
    let net1 = json!("net1");
    member
        .attributes
        .extra_fields
        .insert("physical_network".into(), net1);
    bench.add_port(member);
    let create = |network: &str| {
        json!({
            "address": "52:54:00:aa:bb:cc", "node_uuid": node_id(1).to_string(),
            "portgroup_uuid": group.to_string(), "physical_network": network,
        })
        .to_string()
    };
    bench.order(&send("POST", "/v1/ports", &create("net1")).at(LATEST));
    let message = bench.refuses(&send("POST", "/v1/ports", &create("net2")).at(LATEST), 409);
    assert!(
        message.contains("has ports in physical network net1"),
        "{message}"
    );
    bench.refuses(&send("POST", "/v1/ports", &create("")).at(LATEST), 400);
    // A second member cannot leave the network of the first.
    let mut second = port(8, 1);
    second.attributes.portgroup_uuid = Some(group);
    let net1 = json!("net1");
    second
        .attributes
        .extra_fields
        .insert("physical_network".into(), net1);
    let path = format!("/v1/ports/{}", second.id);
    bench.add_port(second);
    let patch = r#"[{"op": "replace", "path": "/physical_network", "value": "net2"}]"#;
    bench.refuses(&send("PATCH", &path, patch).at("1.101"), 409);
    // From then on the network of the group is changed instead.
    let message = bench.refuses(&send("PATCH", &path, patch).at("1.102"), 400);
    assert!(message.contains("belongs to a portgroup"), "{message}");
}

/// Patches port 1 of a node in this state, with this value in this field.
fn patch_in(
    state: ProvisionState,
    instance: bool,
    maintenance: bool,
    field: &str,
) -> Option<String> {
    let mut bench = ApiBench::with(state);
    bench.change(|node| {
        node.instance_uuid = instance.then(|| "6b1e9a2c-1111-4222-8333-444455556666".into());
        node.maintenance = maintenance;
    });
    let group: trivet_model::ResourceId = "00000000-0000-4000-a000-000000000001".parse().unwrap();
    let kind = trivet_model::ResourceKind::PortGroup;
    let mut record = trivet_model::Resource::new(group, kind, crate::testing::NOW);
    record.node = Some(node_id(1));
    bench.add_resource(record);
    bench.add_port(port(1, 1));
    let value = match field {
        "address" => json!("52:54:00:00:00:0b"),
        "local_link_connection" => json!({"port_id": "1", "switch_id": "52:54:00:00:00:77"}),
        "portgroup_uuid" => json!(group.to_string()),
        "physical_network" | "description" => json!("net"),
        "extra" => json!({"a": 1}),
        _ => json!(false),
    };
    let patch = json!([{"op": "add", "path": format!("/{field}"), "value": value}]).to_string();
    let path = format!("/v1/ports/{}", port_id(1));
    let request = send("PATCH", &path, &patch).at(LATEST);
    match bench.outcome(&request) {
        crate::ApiOutcome::Order { .. } => None,
        _ => Some(bench.refuses(&request, 409)),
    }
}

#[test]
fn the_address_of_a_port_in_use_changes_in_maintenance_only() {
    use ProvisionState as S;
    for (state, instance) in [
        (S::Active, false),
        (S::Manageable, true),
        (S::Available, true),
    ] {
        let message = patch_in(state, instance, false, "address").unwrap();
        let words = format!(
            "Cannot update hardware address for port {} as node ",
            port_id(1)
        );
        assert!(message.starts_with(&words), "{message}");
        let words = "is active or has instance UUID assigned";
        assert!(message.contains(words), "{message}");
        assert_eq!(patch_in(state, instance, true, "address"), None);
    }
    for state in [S::Enroll, S::Manageable, S::Available, S::DeployFail] {
        assert_eq!(patch_in(state, false, false, "address"), None, "{state}");
    }
}

#[test]
fn the_connections_of_a_machine_that_can_be_deployed_change_in_maintenance_only() {
    use ProvisionState as S;
    let fields = [
        "pxe_enabled",
        "physical_network",
        "local_link_connection",
        "portgroup_uuid",
    ];
    for field in fields {
        for state in [S::Available, S::Active, S::DeployFail, S::InspectFail] {
            let message = patch_in(state, false, false, field).unwrap();
            let words = format!(
                "Port {} can not have any connectivity attributes (",
                port_id(1)
            );
            assert!(message.starts_with(&words), "{message}");
            let words = format!("updated unless node {} is in a enroll, ", node_id(1));
            assert!(message.contains(&words), "{message}");
            let words = format!("The current state is {state}.");
            assert!(message.ends_with(&words), "{message}");
            assert_eq!(patch_in(state, false, true, field), None);
        }
        for state in [S::Enroll, S::Manageable] {
            assert_eq!(patch_in(state, false, false, field), None);
        }
    }
    for field in ["extra", "description"] {
        assert_eq!(patch_in(S::Active, false, false, field), None);
    }
}

#[test]
fn a_patch_that_changes_no_connection_is_not_refused() {
    let mut bench = ApiBench::with(ProvisionState::Active);
    bench.add_port(port(1, 1));
    let path = format!("/v1/ports/{}", port_id(1));
    let patch = r#"[{"op": "replace", "path": "/pxe_enabled", "value": true},
        {"op": "replace", "path": "/address", "value": "52:54:00:00:00:01"}]"#;
    bench.order(&send("PATCH", &path, patch).at(LATEST));
}
