//! Every field, filter and path is available exactly from its version in the tables on: each field
//! to read, to select, to write at creation and to patch.

use serde_json::{Value, json};
use trivet_model::{ProvisionState, Resource, ResourceKind};

use crate::ApiOutcome;
use crate::routes::{find, rows};
use crate::table::field::{Column, FieldWrite, ValueShape};
use crate::table::route::{ApiRoute, BodySchema, ResponseSchema};
use crate::testing::{ApiBench, NOW, get, node_id, port, send};

const CHASSIS: &str = "00000000-0000-4000-a000-000000000001";
const GROUP: &str = "00000000-0000-4000-a000-000000000002";

fn bench() -> ApiBench {
    let mut bench = ApiBench::with(ProvisionState::Active);
    bench.add(crate::testing::node(2));
    bench.add_port(port(1, 1));
    let id = CHASSIS.parse().unwrap();
    bench.add_resource(Resource::new(id, ResourceKind::Chassis, NOW));
    let mut group = Resource::new(GROUP.parse().unwrap(), ResourceKind::PortGroup, NOW);
    group.node = Some(node_id(1));
    bench.add_resource(group);
    bench.change(|node| {
        node.driver = "fake-hardware".into();
        node.maintenance = true;
        node.attributes.retired = true;
        node.attributes.protected = true;
    });
    bench
}

/// A valid value of the field.
fn sample(column: &Column) -> Value {
    match (column.name, column.shape) {
        ("chassis_uuid", _) => json!(CHASSIS),
        ("portgroup_uuid", _) => json!(GROUP),
        ("node_uuid", _) => json!(node_id(1).to_string()),
        ("parent_node", _) => json!("node-2"),
        ("address", _) => json!("52:54:00:00:00:77"),
        ("driver", _) => json!("fake-hardware"),
        ("network_interface" | "storage_interface", _) => json!("noop"),
        ("conductor_group", _) => json!(""),
        ("boot_mode", _) => json!("uefi"),
        (name, _) if name.ends_with("_interface") => json!("fake"),
        (_, ValueShape::Flag | ValueShape::Boolean) => json!(true),
        (_, ValueShape::Uuid) => json!("00000000-0000-4000-b000-000000000009"),
        (_, ValueShape::Object) => json!({}),
        _ => json!("word"),
    }
}

/// The columns of the row's body or response.
fn columns(method: &str, path: &str) -> Vec<Column> {
    let segments: Vec<String> = path[1..].split('/').map(str::to_owned).collect();
    let row = find(method, &segments).unwrap();
    match (row.body, row.response) {
        (BodySchema::Record(columns) | BodySchema::Patch(columns), _)
        | (_, ResponseSchema::Record(_, columns) | ResponseSchema::List(_, columns)) => columns(),
        _ => panic!("{method} {path} has no columns"),
    }
}

fn status(bench: &ApiBench, method: &str, path: &str, body: &str, version: u16) -> u16 {
    let version = format!("1.{version}");
    match bench.outcome(&send(method, path, body).at(&version)) {
        ApiOutcome::Order { .. } | ApiOutcome::Logs { .. } => 200,
        ApiOutcome::Reply(response) => response.status,
    }
}

/// Refused as too new by the version before, and accepted from this version on.
#[track_caller]
fn came_with(bench: &ApiBench, method: &str, path: &str, body: &str, since: u16) {
    let before = status(bench, method, path, body, since - 1);
    assert_eq!(before, 406, "{method} {path} {body} before 1.{since}");
    let then = status(bench, method, path, body, since);
    assert_eq!(then, 200, "{method} {path} {body} at 1.{since}");
}

/// The other required fields of a record.
type RequiredFields = fn() -> Value;

const KINDS: [(&str, &str, RequiredFields); 2] = [
    (
        "/v1/nodes",
        "/v1/nodes/00000000-0000-4000-8000-000000000001",
        || json!({"driver": "fake-hardware"}),
    ),
    (
        "/v1/ports",
        "/v1/ports/00000000-0000-4000-9000-000000000001",
        || json!({"address": "52:54:00:00:00:78", "node_uuid": node_id(1).to_string()}),
    ),
];

#[test]
fn fields_are_shown_from_their_version_on() {
    let bench = bench();
    for (all, one, _) in KINDS {
        for column in columns("GET", one) {
            for version in [column.since.saturating_sub(1).max(1), column.since] {
                let at = format!("1.{version}");
                let shown = bench.reply(&get(one).at(&at)).value();
                let has = shown.get(column.name).is_some();
                assert_eq!(has, version >= column.since, "{} at {at}", column.name);
            }
            // `fields=` itself was introduced in 1.8.
            let requested = column.since.max(8);
            for path in [one, all] {
                let path = format!("{path}?fields={}", column.name);
                came_with(&bench, "GET", &path, "", requested);
            }
        }
    }
}

#[test]
fn fields_are_written_from_their_version_on() {
    let bench = bench();
    for (all, one, base) in KINDS {
        for column in columns("POST", all) {
            if column.since == 1 {
                continue;
            }
            let at_creation = matches!(column.write, FieldWrite::AtCreation | FieldWrite::Always);
            let in_patch = matches!(column.write, FieldWrite::InPatch | FieldWrite::Always);
            let value = sample(&column);
            // The default of this one is accepted at every version.
            if at_creation && column.name != "conductor_group" {
                let mut body = base();
                body[column.name] = value.clone();
                if column.name == "retired_reason" {
                    body["retired"] = json!(true);
                }
                came_with(&bench, "POST", all, &body.to_string(), column.since);
            }
            if in_patch {
                let patch = json!([
                    {"op": "add", "path": format!("/{}", column.name), "value": value},
                ]);
                came_with(&bench, "PATCH", one, &patch.to_string(), column.since);
            }
        }
    }
}

#[test]
fn filters_are_taken_from_their_version_on() {
    let bench = bench();
    for (all, _, _) in KINDS {
        let segments: Vec<String> = all[1..].split('/').map(str::to_owned).collect();
        let row = find("GET", &segments).unwrap();
        for arg in row.query_args.iter().flat_map(|group| group.iter()) {
            let value = match (arg.name, arg.shape) {
                // `detail` is refused with 400 before 1.43, as in Ironic.
                ("marker" | "detail", _) => continue,
                ("fault", _) => "power%20failure".to_owned(),
                ("provision_state", _) => "active".to_owned(),
                ("limit", _) => "7".to_owned(),
                ("sort_key" | "fields", _) => "uuid".to_owned(),
                ("sort_dir", _) => "asc".to_owned(),
                ("parent_node" | "node", _) => node_id(1).to_string(),
                ("chassis_uuid", _) => CHASSIS.to_owned(),
                ("portgroup", _) => GROUP.to_owned(),
                ("address", _) => "52:54:00:00:00:01".to_owned(),
                (_, ValueShape::Flag) => "true".to_owned(),
                (_, ValueShape::Uuid) => node_id(1).to_string(),
                _ => "word".to_owned(),
            };
            let path = format!("{all}?{}={value}", arg.name);
            let since = match arg.name {
                "include_children" | "parent_node" => 83,
                "sharded" => 82,
                _ => arg.since,
            };
            if since == 1 {
                assert_eq!(status(&bench, "GET", &path, "", 1), 200, "{path}");
            } else {
                came_with(&bench, "GET", &path, "", since);
            }
        }
    }
}

#[test]
fn paths_exist_from_their_version_on() {
    let bench = bench();
    let path = |row: &ApiRoute| {
        let words = row.path.iter().map(|word| match *word {
            "{node}" => "node-1",
            word if word.starts_with('{') => "x",
            word => word,
        });
        format!("/{}", words.collect::<Vec<_>>().join("/"))
    };
    for row in rows().filter(|row| row.since > 1) {
        let path = path(row);
        let before = status(&bench, row.method, &path, "", row.since - 1);
        assert!(
            matches!(before, 404..=406),
            "{} {path} before 1.{}: {before}",
            row.method,
            row.since
        );
        let version = format!("1.{}", row.since);
        let then = bench.outcome(&send(row.method, &path, "").at(&version));
        if let ApiOutcome::Reply(response) = then
            && response.status >= 400
        {
            // Errors of the HTTP layer have a title; errors of a handler do not.
            let fault = response.fault();
            assert!(fault.get("title").is_none(), "{} {path}", row.method);
        }
    }
}
