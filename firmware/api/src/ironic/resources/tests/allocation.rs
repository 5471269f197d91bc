use super::*;

const PATH: &str = "/v1/allocations";

#[test]
fn an_allocation_names_what_it_wants() {
    let mut bench = ResourceBench::new();
    let body = json!({
        "name": "mine", "resource_class": "big", "traits": ["CUSTOM_GPU"],
        "candidate_nodes": ["node-1"], "owner": "somebody",
    });
    let made = bench.makes(PATH, &body);
    // Names are converted to UUIDs.
    assert_eq!(made["candidate_nodes"], json!([node_id(1).to_string()]));
    assert_eq!(made["node_uuid"], Value::Null);
    assert_eq!(bench.shows("/v1/allocations/mine")["uuid"], made["uuid"]);
    for (body, status, message) in [
        (
            json!({"name": "x"}),
            400,
            "resource_class field is mandatory",
        ),
        (json!({"resource_class": "x".repeat(81)}), 400, "80"),
        (
            json!({"resource_class": "b", "traits": ["gpu"]}),
            400,
            "gpu",
        ),
        (json!({"resource_class": "b", "traits": [1]}), 400, "traits"),
        (
            json!({"resource_class": "b", "candidate_nodes": ["node-9"]}),
            400,
            "Nodes cannot be found: node-9",
        ),
        (
            json!({"resource_class": "b", "name": "a/b"}),
            400,
            "invalid name 'a/b'",
        ),
        (
            json!({"resource_class": "b", "name": "mine"}),
            409,
            "An allocation with name mine already exists.",
        ),
        (
            json!({"resource_class": "b", "state": "active"}),
            400,
            "state",
        ),
        (
            json!({"resource_class": "b", "node": "node-9"}),
            400,
            "node-9",
        ),
        (json!({"resource_class": "b", "node": 5}), 400, "node"),
    ] {
        let sentence = bench.refuses("POST", PATH, &body, status);
        assert!(sentence.contains(message), "{sentence}");
    }
    let body = json!({"resource_class": "b", "owner": "x"});
    assert_eq!(bench.send_at("1.59", "POST", PATH, &body).status, 406);
}

#[test]
fn only_name_and_extra_change_and_only_since_1_57() {
    let mut bench = ResourceBench::new();
    bench.makes(PATH, &json!({"name": "mine", "resource_class": "big"}));
    let changed = bench.patches("/v1/allocations/mine", "replace", "/name", &json!("yours"));
    assert_eq!(changed["name"], "yours");
    let patch = json!([{"op": "replace", "path": "/resource_class", "value": "small"}]);
    let message = bench.refuses("PATCH", "/v1/allocations/yours", &patch, 400);
    assert_eq!(
        message,
        "Cannot patch /resource_class. Only the following can be updated: extra, name"
    );
    let patch = json!([{"op": "add", "path": "/extra/a", "value": 1}]);
    let response = bench.send_at("1.56", "PATCH", "/v1/allocations/yours", &patch);
    assert_eq!(response.status, 405);
    let patch = json!([{"op": "remove", "path": "/name"}]);
    let response = bench.send("PATCH", "/v1/allocations/yours", &patch);
    assert_eq!(response.value()["name"], Value::Null);
}

#[test]
fn a_backfill_takes_class_and_identity_from_the_instance() {
    let mut bench = ResourceBench::with(ProvisionState::Active);
    let instance = node_id(77).to_string();
    bench.0.change(|node| {
        node.instance_uuid = Some(instance.clone());
        node.resource_class = Some("big".into());
    });
    let body = json!({"node": "node-1"});
    let made = bench.makes(PATH, &body);
    assert_eq!(made["uuid"], instance);
    assert_eq!(made["resource_class"], "big");
    assert_eq!(made["node_uuid"], node_id(1).to_string());
    let response = bench.send_at("1.57", "POST", PATH, &body);
    assert_eq!(response.status, 400);
}

#[test]
fn allocations_are_filtered_and_found_below_their_node() {
    let mut bench = ResourceBench::new();
    bench.refuses("GET", "/v1/nodes/node-1/allocation", &Value::Null, 404);
    let body = json!({"name": "a", "resource_class": "big", "owner": "somebody"});
    bench.makes(PATH, &body);
    let key = bench.0.view.resources.keys().next().copied().unwrap();
    let mut given = Resource::clone(&bench.0.view.resources[&key]);
    given.node = Some(node_id(1));
    given.fields.insert("state".into(), json!("active"));
    bench.store(given);
    for (query, want) in [
        ("node=node-1", 1),
        ("resource_class=big", 1),
        ("resource_class=small", 0),
        ("state=active", 1),
        ("state=error", 0),
        ("owner=somebody", 1),
        ("owner=x&state=active", 0),
    ] {
        let list = bench.shows(&format!("{PATH}?{query}"));
        let count = list["allocations"].as_array().unwrap().len();
        assert_eq!(count, want, "{query}");
    }
    bench.refuses("GET", "/v1/allocations?node=x", &Value::Null, 400);
    let below = bench.shows("/v1/nodes/node-1/allocation");
    assert_eq!(below["name"], "a");
    let narrow = bench.shows("/v1/nodes/node-1/allocation?fields=state");
    assert_eq!(narrow["state"], "active");
    assert_eq!(narrow.as_object().unwrap().len(), 2);
    let path = "/v1/nodes/node-1/allocation";
    assert_eq!(bench.send("DELETE", path, &Value::Null).status, 204);
    bench.refuses("GET", "/v1/allocations/a", &Value::Null, 404);
}

#[test]
fn a_node_shows_its_allocation() {
    let mut bench = ResourceBench::new();
    let id = node_id(77).to_string();
    bench.0.change(|node| {
        node.attributes
            .set("allocation_uuid", Some(json!(id)))
            .unwrap();
    });
    assert_eq!(bench.shows("/v1/nodes/node-1")["allocation_uuid"], id);
    let patch = json!([{"op": "replace", "path": "/allocation_uuid", "value": id}]);
    bench.refuses("PATCH", "/v1/nodes/node-1", &patch, 400);
}
