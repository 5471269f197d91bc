//! Each kind through the two public functions, on a bench that stores orders as the rack does.

mod allocation;
mod steps;

use std::sync::Arc;

use serde_json::{Value, json};
use trivet_model::{PowerState, ProvisionState, RackOrder, Resource, ResourceKind, SeededRandom};

use crate::access;
use crate::testing::{ApiBench, LATEST, NOW, get, node_id, port, send};
use crate::{Access, Response};

#[test]
fn lists_take_the_arguments_that_ironic_takes() {
    let bench = ResourceBench::new();
    for (path, status) in [
        ("/v1/allocations?detail=true", 400),
        ("/v1/chassis?detail=true", 200),
        ("/v1/chassis?marker=x", 400),
        ("/v1/runbooks?marker=x", 404),
        ("/v1/volume/targets?sort_key=node_uuid", 400),
        ("/v1/portgroups?fields=physical_network", 200),
    ] {
        assert_eq!(
            bench.0.reply(&get(path).at("1.95")).status,
            status,
            "{path}"
        );
    }
}

#[test]
fn null_is_no_value_of_a_required_field() {
    let mut bench = ResourceBench::new();
    let steps = json!([{"interface": "bios", "step": "s", "args": {}, "order": 1}]);
    for (path, body, words) in [
        (
            "/v1/runbooks",
            json!({"name": null, "steps": steps}),
            "None is not of type 'string'",
        ),
        (
            "/v1/runbooks",
            json!({"name": "B", "steps": null}),
            "None is not of type 'array'",
        ),
        (
            "/v1/runbooks",
            json!({"name": "a b", "steps": steps}),
            "does not match",
        ),
        (
            "/v1/runbooks",
            json!({"name": "B", "steps": steps, "public": "true"}),
            "'true' is not of type 'boolean', 'null'",
        ),
        (
            "/v1/chassis",
            json!({"nodes": null}),
            "Additional properties are not allowed",
        ),
        (
            "/v1/volume/connectors",
            json!({"node_uuid": "no-such", "type": "iqn", "connector_id": "c"}),
            "node_uuid",
        ),
    ] {
        let response = bench.send("POST", path, &body);
        let text = response.fault().to_string();
        assert_eq!(response.status, 400, "{text}");
        assert!(text.contains(words), "{text}");
    }
}

/// A bench that stores resources, and the number of requests it has received.
struct ResourceBench(ApiBench, u64);

impl ResourceBench {
    /// With node 1 in this state, switched off.
    fn with(state: ProvisionState) -> Self {
        let mut bench = ApiBench::with(state);
        bench.change(|node| node.power_state = Some(PowerState::Off));
        Self(bench, 0)
    }

    fn new() -> Self {
        Self::with(ProvisionState::Manageable)
    }

    fn store(&mut self, mut resource: Resource) {
        let key = (resource.kind, resource.id);
        self.remove(key.0, key.1);
        resource.revision += 1;
        for claim in resource.claims() {
            self.0.view.claims.insert((key.0, claim), key.1);
        }
        if let Some(node) = resource.node {
            let nodes = &mut self.0.view.nodes;
            nodes.change(node, |view| view.resources.push(key));
        }
        self.0.view.resources.insert(key, Arc::new(resource));
    }

    fn remove(&mut self, kind: ResourceKind, id: trivet_model::ResourceId) {
        let Some(old) = self.0.view.resources.remove(&(kind, id)) else {
            return;
        };
        for claim in old.claims() {
            self.0.view.claims.remove(&(kind, claim));
        }
        if let Some(node) = old.node {
            let nodes = &mut self.0.view.nodes;
            nodes.change(node, |view| view.resources.retain(|key| *key != (kind, id)));
        }
    }

    /// Sends a request at the newest version; an order is executed.
    #[track_caller]
    fn send(&mut self, method: &str, path: &str, body: &Value) -> Response {
        self.send_at(LATEST, method, path, body)
    }

    #[track_caller]
    fn send_at(&mut self, version: &str, method: &str, path: &str, body: &Value) -> Response {
        let text = match body {
            Value::Null => String::new(),
            body => body.to_string(),
        };
        let request = send(method, path, &text);
        let request = request.at(version);
        // Every new record gets another UUID.
        self.1 += 1;
        let (view, facts, chance) = (&self.0.view, &self.0.facts, &mut SeededRandom::new(self.1));
        let outcome = crate::handle(&request, view, facts, NOW, chance);
        let (order, then) = match outcome {
            crate::ApiOutcome::Reply(response) => return response,
            crate::ApiOutcome::Order { order, then } => (order, then),
            other @ crate::ApiOutcome::Logs { .. } => panic!("became {other:?}"),
        };
        match order {
            RackOrder::CreateResource(resource) => self.store(*resource),
            RackOrder::ReplaceResource { resource, based_on } => {
                let key = (resource.kind, resource.id);
                assert_eq!(based_on, self.0.view.resources[&key].revision);
                self.store(*resource);
            }
            RackOrder::DeleteResource(kind, id) => self.remove(kind, id),
            other => panic!("{other:?}"),
        }
        self.0
            .finish(&request, &then, Ok(trivet_model::OrderOutcome::Stored))
    }

    /// Creates a resource and returns the response.
    #[track_caller]
    fn makes(&mut self, path: &str, body: &Value) -> Value {
        let response = self.send("POST", path, body);
        assert_eq!(response.status, 201, "{}", response.text());
        let made = response.value();
        let uuid = made["uuid"].as_str().unwrap();
        let location = response.header("Location").unwrap();
        assert!(location.ends_with(&format!("{path}/{uuid}")), "{location}");
        made
    }

    #[track_caller]
    fn refuses(&mut self, method: &str, path: &str, body: &Value, status: u16) -> String {
        let response = self.send(method, path, body);
        assert_eq!(response.status, status, "{body}: {}", response.text());
        let fault = response.fault();
        let sentence = fault.get("faultstring").or(fault.get("description"));
        sentence.unwrap().as_str().unwrap().to_owned()
    }

    #[track_caller]
    fn shows(&self, path: &str) -> Value {
        let response = self.0.reply(&get(path).at(LATEST));
        assert_eq!(response.status, 200, "{}", response.text());
        response.value()
    }

    #[track_caller]
    fn patches(&mut self, path: &str, op: &str, field: &str, value: &Value) -> Value {
        let patch = json!([{"op": op, "path": field, "value": value}]);
        let response = self.send("PATCH", path, &patch);
        assert_eq!(response.status, 200, "{}", response.text());
        response.value()
    }
}

/// One valid body of every kind, its version, and whether its changes need an admin.
fn every_kind() -> Vec<(&'static str, Value, u16, bool)> {
    let node = node_id(1).to_string();
    let step = |rank: &str| json!([{"interface": "bios", "step": "x", "args": {}, rank: 1}]);
    vec![
        ("/v1/chassis", json!({"description": "left"}), 1, false),
        ("/v1/portgroups", json!({"node_uuid": node}), 23, false),
        (
            "/v1/volume/connectors",
            json!({"node_uuid": node, "type": "iqn", "connector_id": "a"}),
            32,
            false,
        ),
        (
            "/v1/volume/targets",
            json!({"node_uuid": node, "volume_type": "iscsi", "boot_index": 0, "volume_id": "v"}),
            32,
            false,
        ),
        (
            "/v1/allocations",
            json!({"resource_class": "big"}),
            52,
            false,
        ),
        (
            "/v1/deploy_templates",
            json!({"name": "CUSTOM_A", "steps": step("priority")}),
            55,
            true,
        ),
        (
            "/v1/runbooks",
            json!({"name": "CUSTOM_A", "steps": step("order")}),
            92,
            true,
        ),
        (
            "/v1/inspection_rules",
            json!({"actions": [{"op": "fail", "args": {"msg": "no"}}]}),
            96,
            true,
        ),
    ]
}

#[test]
fn every_kind_is_made_listed_shown_changed_and_deleted() {
    let mut kinds = every_kind();
    // Rules cannot be created yet; see `steps`.
    kinds.retain(|(path, ..)| *path != "/v1/inspection_rules");
    for (path, body, since, _) in kinds {
        let mut bench = ResourceBench::new();
        let made = bench.makes(path, &body);
        let one = format!("{path}/{}", made["uuid"].as_str().unwrap());
        for (name, value) in body.as_object().unwrap() {
            assert_eq!(made[name], *value, "{path}");
        }
        assert_eq!(made["updated_at"], Value::Null, "{path}");
        // The answer to the creation of an allocation says that the choice of a node has begun;
        // the rack, which is not part of this test, chooses it.
        let as_made = |mut shown: Value| {
            if path == "/v1/allocations" {
                assert_eq!(made["state"], "allocating");
                shown["state"] = made["state"].clone();
            }
            shown
        };
        assert_eq!(as_made(bench.shows(&one)), made);
        let key = path.rsplit('/').next().unwrap();
        let list = bench.shows(path);
        assert_eq!(list[key].as_array().unwrap().len(), 1, "{path}");
        assert_eq!(list[key][0]["uuid"], made["uuid"]);
        // Allocations are always listed with all fields.
        let query = if path == "/v1/allocations" {
            ""
        } else {
            "?detail=True"
        };
        let wide = bench.shows(&format!("{path}{query}"));
        assert_eq!(as_made(wide[key][0].clone()), made, "{path}");
        let narrow = bench.shows(&format!("{one}?fields=uuid"));
        assert_eq!(narrow.as_object().unwrap().len(), 2, "{path}");
        if made.get("extra").is_some() {
            let changed = bench.patches(&one, "add", "/extra/a", &json!(1));
            assert_eq!(changed["extra"], json!({"a": 1}));
        } else {
            let changed = bench.patches(&one, "replace", "/description", &json!("x"));
            assert_eq!(changed["description"], "x");
        }
        let patch = json!([{"op": "replace", "path": "/created_at", "value": "x"}]);
        let message = bench.refuses("PATCH", &one, &patch, 400);
        assert!(
            message.starts_with("Cannot patch /created_at. Only "),
            "{message}"
        );
        assert_eq!(bench.send("DELETE", &one, &Value::Null).status, 204);
        bench.refuses("GET", &one, &Value::Null, 404);
        if since > 1 {
            let older = format!("1.{}", since - 1);
            let response = bench.send_at(&older, "POST", path, &body);
            assert!(matches!(response.status, 404 | 405), "{path}");
            assert_eq!(bench.send_at(&older, "GET", path, &Value::Null).status, 404);
        }
        let at = format!("1.{since}");
        let response = bench.send_at(&at, "POST", path, &body);
        assert_eq!(response.status, 201, "{path} {}", response.text());
    }
}

#[test]
fn what_is_strange_missing_or_too_large_is_refused() {
    for (path, body, ..) in every_kind() {
        let mut bench = ResourceBench::new();
        let mut strange = body.clone();
        strange["colour"] = json!(1);
        let message = bench.refuses("POST", path, &strange, 400);
        assert!(message.contains("colour"), "{message}");
        for name in body.as_object().unwrap().keys() {
            let mut less = body.clone();
            less.as_object_mut().unwrap().remove(name);
            if path != "/v1/chassis" {
                let message = bench.refuses("POST", path, &less, 400);
                assert!(message.contains(name.as_str()), "{path} {message}");
            }
        }
        let mut large = body.clone();
        let field = if path == "/v1/inspection_rules" {
            large["conditions"] = json!([{"op": "eq", "args": {"values": "x".repeat(40_000)}}]);
            "conditions"
        } else {
            large["extra"] = json!({"a": "x".repeat(40_000)});
            "extra"
        };
        let message = bench.refuses("POST", path, &large, 400);
        assert!(message.contains("bytes"), "{field} {message}");
        bench.refuses("POST", path, &json!([]), 400);
        let mut other = body.clone();
        other["uuid"] = json!("no uuid");
        bench.refuses("POST", path, &other, 400);
    }
}

#[test]
fn what_harms_machines_is_for_administrators() {
    for (path, _, _, guarded) in every_kind() {
        let one = format!("{path}/x");
        let want = if guarded {
            Access::Admin
        } else {
            Access::Operator
        };
        for (method, path) in [("POST", path), ("PATCH", &one), ("DELETE", &one)] {
            assert_eq!(access(method, path), want, "{method} {path}");
        }
        assert_eq!(access("GET", path), Access::Reader);
    }
}

#[test]
fn a_portgroup_has_ironics_defaults_and_checks() {
    let mut bench = ResourceBench::new();
    let node = node_id(1).to_string();
    let body = json!({"node_uuid": node, "address": "52:54:00:AA:00:01", "name": "bond"});
    let made = bench.makes("/v1/portgroups", &body);
    assert_eq!(made["address"], "52:54:00:aa:00:01");
    assert_eq!(made["mode"], "active-backup");
    assert_eq!(made["standalone_ports_supported"], true);
    assert_eq!(made["properties"], json!({}));
    let older = bench.send_at("1.25", "GET", "/v1/portgroups/bond", &Value::Null);
    let older = older.value();
    assert_eq!(older.get("mode"), None);
    for (body, status, message) in [
        (
            json!({"node_uuid": node, "address": "x"}),
            400,
            "MAC address",
        ),
        (
            json!({"node_uuid": node_id(9).to_string()}),
            400,
            "could not be found",
        ),
        (json!({"node_uuid": "node-1"}), 400, "UUID"),
        (
            json!({"node_uuid": node, "name": "a b"}),
            400,
            "invalid name 'a b'",
        ),
        (
            json!({"node_uuid": node, "name": "bond"}),
            409,
            "A portgroup with name bond already exists.",
        ),
        (
            json!({"node_uuid": node, "address": "52:54:00:aa:00:01"}),
            409,
            "A portgroup with MAC address 52:54:00:aa:00:01 already exists.",
        ),
        (
            json!({"node_uuid": node, "standalone_ports_supported": "perhaps"}),
            400,
            "true or false",
        ),
    ] {
        let sentence = bench.refuses("POST", "/v1/portgroups", &body, status);
        assert!(sentence.contains(message), "{sentence}");
    }
    let path = "/v1/portgroups/bond";
    let off = bench.patches(
        path,
        "replace",
        "/standalone_ports_supported",
        &json!(false),
    );
    assert_eq!(off["standalone_ports_supported"], false);
    let back = bench.patches(path, "remove", "/standalone_ports_supported", &Value::Null);
    assert_eq!(back["standalone_ports_supported"], true);
    let patch = json!([{"op": "remove", "path": "/node_uuid"}]);
    bench.refuses("PATCH", path, &patch, 400);
    let patch = json!([{"op": "replace", "path": "/node_uuid", "value": null}]);
    bench.refuses("PATCH", path, &patch, 400);
}

#[test]
fn portgroups_are_filtered_and_have_ports() {
    let mut bench = ResourceBench::new();
    let node = node_id(1).to_string();
    let body = json!({"node_uuid": node, "address": "52:54:00:aa:00:01", "name": "bond"});
    let group = bench.makes("/v1/portgroups", &body)["uuid"].clone();
    let mut member = port(1, 1);
    member
        .attributes
        .set("portgroup_uuid", Some(group.clone()))
        .unwrap();
    bench.0.add_port(member);
    bench.0.add_port(port(2, 1));
    let count = |bench: &ResourceBench, path: &str| {
        let list = bench.shows(path);
        let key = if path.contains("/ports") {
            "ports"
        } else {
            "portgroups"
        };
        list[key].as_array().unwrap().len()
    };
    for (path, want) in [
        ("/v1/portgroups?address=52:54:00:AA:00:01", 1),
        ("/v1/portgroups?address=52:54:00:aa:00:02", 0),
        ("/v1/portgroups?node=node-1", 1),
        ("/v1/portgroups?shard=a", 0),
        ("/v1/portgroups/detail", 1),
        ("/v1/nodes/node-1/portgroups", 1),
        ("/v1/nodes/node-1/portgroups/detail", 1),
        ("/v1/portgroups/bond/ports", 1),
        ("/v1/portgroups/bond/ports/detail", 1),
    ] {
        assert_eq!(count(&bench, path), want, "{path}");
    }
    bench.refuses("GET", "/v1/portgroups?node=x", &Value::Null, 404);
    bench.refuses("GET", "/v1/portgroups?address=x", &Value::Null, 400);
    bench.refuses("GET", "/v1/portgroups/x/ports", &Value::Null, 404);
    let message = bench.refuses("DELETE", "/v1/portgroups/bond", &Value::Null, 400);
    assert!(message.ends_with("contains ports."), "{message}");
}

#[test]
fn a_portgroup_of_a_busy_node_waits() {
    let mut bench = ResourceBench::new();
    let body = json!({"node_uuid": node_id(1).to_string(), "name": "bond"});
    bench.makes("/v1/portgroups", &body);
    bench
        .0
        .change(|node| node.provision_state = ProvisionState::Cleaning);
    bench.refuses("DELETE", "/v1/portgroups/bond", &Value::Null, 409);
    let patch = json!([{"op": "add", "path": "/extra/a", "value": 1}]);
    bench.refuses("PATCH", "/v1/portgroups/bond", &patch, 409);
}

#[test]
fn a_chassis_with_nodes_stays() {
    let mut bench = ResourceBench::new();
    let chassis = bench.makes("/v1/chassis", &json!({}))["uuid"].clone();
    let path = format!("/v1/chassis/{}", chassis.as_str().unwrap());
    bench
        .0
        .change(|node| node.attributes.set("chassis_uuid", Some(chassis)).unwrap());
    let message = bench.refuses("DELETE", &path, &Value::Null, 400);
    assert!(message.ends_with("contains nodes."), "{message}");
    bench.refuses("GET", "/v1/chassis/left", &Value::Null, 400);
}

#[test]
fn secrets_of_volumes_are_masked_and_stored() {
    let mut bench = ResourceBench::new();
    let body = json!({
        "node_uuid": node_id(1).to_string(), "volume_type": "iscsi", "boot_index": 0,
        "volume_id": "v", "properties": {"auth_password": "hunter2", "target_portal": "p"},
    });
    let made = bench.makes("/v1/volume/targets", &body);
    let masked = json!({"auth_password": "******", "target_portal": "p"});
    assert_eq!(made["properties"], masked);
    let path = format!("/v1/volume/targets/{}", made["uuid"].as_str().unwrap());
    let mut back = masked.clone();
    back["target_portal"] = json!("q");
    bench.patches(&path, "replace", "/properties", &back);
    bench.patches(&path, "add", "/extra/a", &json!(1));
    let stored = bench.0.view.resources.values().next().unwrap();
    let want = json!({"auth_password": "hunter2", "target_portal": "q"});
    assert_eq!(stored.fields["properties"], want);
    let other = bench.refuses("POST", "/v1/volume/targets", &body, 409);
    assert!(
        other.contains("boot index '0' for the same node"),
        "{other}"
    );
    let mut half = body.clone();
    half["boot_index"] = json!(1.5);
    bench.refuses("POST", "/v1/volume/targets", &half, 400);
    let below = bench.shows("/v1/nodes/node-1/volume/targets");
    assert_eq!(below["targets"].as_array().unwrap().len(), 1);
    let listed = bench.shows("/v1/volume/targets?sort_key=boot_index&node=node-1");
    assert_eq!(listed["targets"][0]["uuid"], made["uuid"]);
}

#[test]
fn volumes_of_a_running_machine_stay_as_they_are() {
    let mut bench = ResourceBench::with(ProvisionState::Active);
    let body = json!({
        "node_uuid": node_id(1).to_string(), "type": "iqn", "connector_id": "a",
    });
    let made = bench.makes("/v1/volume/connectors", &body);
    let message = bench.refuses("POST", "/v1/volume/connectors", &body, 409);
    assert!(message.contains("type iqn and connector ID a"), "{message}");
    let path = format!("/v1/volume/connectors/{}", made["uuid"].as_str().unwrap());
    bench
        .0
        .change(|node| node.power_state = Some(PowerState::On));
    let message = bench.refuses("DELETE", &path, &Value::Null, 400);
    assert!(
        message.contains("\"volume connector deletion\""),
        "{message}"
    );
    let patch = json!([{"op": "replace", "path": "/type", "value": "ip"}]);
    bench.refuses("PATCH", &path, &patch, 400);
    bench
        .0
        .change(|node| node.power_state = Some(PowerState::Off));
    let changed = bench.patches(&path, "replace", "/type", &json!("ip"));
    assert_eq!(changed["type"], "ip");
    assert_eq!(bench.send("DELETE", &path, &Value::Null).status, 204);
}

#[test]
fn the_boot_index_of_a_volume_is_a_number_and_not_a_text() {
    let mut bench = ResourceBench::new();
    let mut body = json!({
        "node_uuid": node_id(1).to_string(), "volume_type": "iscsi", "boot_index": "1",
        "volume_id": "v",
    });
    let path = "/v1/volume/targets";
    let message = bench.refuses("POST", path, &body, 400);
    assert!(
        message.contains("'1' is not of type 'integer'"),
        "{message}"
    );
    body["boot_index"] = json!(1);
    let made = bench.makes(path, &body);
    let path = format!("{path}/{}", made["uuid"].as_str().unwrap());
    let patch = json!([{"op": "replace", "path": "/boot_index", "value": "2"}]);
    let message = bench.refuses("PATCH", &path, &patch, 400);
    assert!(
        message.contains("'2' is not of type 'integer'"),
        "{message}"
    );
}

#[test]
fn a_filter_by_node_needs_a_node() {
    let bench = ResourceBench::new();
    for path in [
        "portgroups",
        "allocations",
        "volume/targets",
        "volume/connectors",
        "ports",
    ] {
        let path = format!("/v1/{path}?node=");
        let message = bench.0.refuses(&get(&path).at(LATEST), 400);
        assert!(
            message.contains("'' is not valid under any of the given schemas"),
            "{message}"
        );
    }
}
