//! Resources of Ironic's that we answer correctly and do not keep: their lists
//! are empty, nothing can be found in them and nothing can be made.

use serde_json::{Value, json};
use trivet_model::node::Object;

use crate::call::{Call, reply};
use crate::error::Fault;
use crate::route::{empty_list, get};
use crate::{Outcome, Response, body};

/// Path, key of the list, and the version it came with.
const EMPTY: [(&str, &str, u16); 6] = [
    ("chassis", "chassis", 1),
    ("portgroups", "portgroups", 23),
    ("allocations", "allocations", 52),
    ("deploy_templates", "deploy_templates", 55),
    ("runbooks", "runbooks", 92),
    ("inspection_rules", "inspection_rules", 96),
];

/// Everything below `/v1` that has no room of its own.
pub(crate) fn route(call: &Call<'_>, rest: &[&str]) -> Result<Outcome, Fault> {
    match rest {
        ["volume", volume @ ..] => {
            call.exists_since(32)?;
            self::volume(call, volume, "volume")
        }
        ["events"] => {
            call.exists_since(54)?;
            events(call)
        }
        [name, below @ ..] if below.len() < 2 => {
            let (_, key, since) = EMPTY
                .iter()
                .find(|(path, _, _)| path == name)
                .ok_or_else(Fault::no_path)?;
            call.exists_since(*since)?;
            empty_resource(call, key, below.first().copied())
        }
        _ => Err(Fault::no_path()),
    }
}

fn empty_resource(
    call: &Call<'_>,
    key: &'static str,
    ident: Option<&str>,
) -> Result<Outcome, Fault> {
    match (call.method, ident) {
        ("GET", None | Some("detail")) => empty_list(call, key),
        ("POST", None) => Err(Fault::bad(format!("This server does not keep {key}."))),
        ("GET" | "PATCH" | "PUT" | "DELETE", Some(ident)) => Err(Fault::not_found(format!(
            "{} could not be found among {key}.",
            ident.escape_debug()
        ))),
        (other, _) => Err(Fault::no_method(other)),
    }
}

/// `/v1/volume` and `/v1/nodes/<ident>/volume`.
pub(crate) fn volume(call: &Call<'_>, rest: &[&str], path: &str) -> Result<Outcome, Fault> {
    match rest {
        [] => get(call, |call| {
            reply(&json!({
                "links": call.links(&format!("{path}/")),
                "connectors": call.links(&format!("{path}/connectors")),
                "targets": call.links(&format!("{path}/targets")),
            }))
        }),
        ["connectors"] => empty_resource(call, "connectors", None),
        ["targets"] => empty_resource(call, "targets", None),
        ["connectors", ident] => empty_resource(call, "connectors", Some(ident)),
        ["targets", ident] => empty_resource(call, "targets", Some(ident)),
        _ => Err(Fault::no_path()),
    }
}

/// Neutron's news; there is no Neutron, but telling is allowed.
fn events(call: &Call<'_>) -> Result<Outcome, Fault> {
    if call.method != "POST" {
        return Err(Fault::no_method(call.method));
    }
    let object = body::object(call)?;
    body::only(&object, &["events"])?;
    match object.get("events") {
        Some(Value::Array(_)) => Ok(Outcome::Reply(Response::empty(204))),
        _ => Err(Fault::bad("events must be a list.")),
    }
}

/// `GET /v1/shards`: how many nodes each shard has.
pub(crate) fn shards(call: &Call<'_>) -> Result<Outcome, Fault> {
    let mut counts = std::collections::BTreeMap::<&str, u64>::new();
    for node in call.view.nodes.values() {
        let shard = node.node.kept.get("shard").and_then(Value::as_str);
        *counts.entry(shard.unwrap_or("None")).or_default() += 1;
    }
    let shards: Vec<Object> = counts
        .into_iter()
        .map(|(name, count)| {
            Object::from_iter([
                ("name".to_owned(), Value::from(name)),
                ("count".to_owned(), Value::from(count)),
            ])
        })
        .collect();
    reply(&json!({ "shards": shards }))
}

#[cfg(test)]
mod tests {
    use crate::testing::{Bench, get, node, send};
    use serde_json::json;

    #[test]
    fn lists_we_do_not_keep_are_empty_from_their_version_on() {
        let bench = Bench::new();
        for (path, key, since) in [
            ("/v1/chassis", "chassis", 1),
            ("/v1/portgroups/", "portgroups", 23),
            ("/v1/portgroups/detail", "portgroups", 23),
            ("/v1/allocations", "allocations", 52),
            ("/v1/deploy_templates", "deploy_templates", 55),
            ("/v1/runbooks", "runbooks", 92),
            ("/v1/inspection_rules", "inspection_rules", 96),
            ("/v1/volume/connectors", "connectors", 32),
            ("/v1/volume/targets", "targets", 32),
        ] {
            let at = format!("1.{since}");
            let response = bench.reply(&get(path).at(&at));
            assert_eq!(response.status, 200, "{path}");
            assert_eq!(response.value(), json!({ key: [] }));
            if since > 1 {
                let below = format!("1.{}", since - 1);
                assert_eq!(bench.reply(&get(path).at(&below)).status, 404, "{path}");
            }
        }
    }

    #[test]
    fn nothing_is_found_or_made_in_them() {
        let bench = Bench::new();
        assert_eq!(bench.reply(&get("/v1/chassis/x").at("1.99")).status, 404);
        let make = send("POST", "/v1/chassis", "{}").at("1.99");
        assert_eq!(bench.reply(&make).status, 400);
        assert_eq!(bench.reply(&get("/v1/events").at("1.99")).status, 405);
        let tell = send("POST", "/v1/events", r#"{"events": []}"#).at("1.99");
        assert_eq!(bench.reply(&tell).status, 204);
    }

    #[test]
    fn shards_count_their_nodes() {
        let mut bench = Bench::new();
        assert_eq!(
            bench.reply(&get("/v1/shards").at("1.82")).value(),
            json!({"shards": []})
        );
        bench.add(node(1));
        bench.add(node(2));
        let mut third = node(3);
        third.kept.insert("shard".into(), "east".into());
        bench.add(third);
        assert_eq!(
            bench.reply(&get("/v1/shards").at("1.82")).value(),
            json!({"shards": [{"name": "None", "count": 2}, {"name": "east", "count": 1}]})
        );
    }

    #[test]
    fn the_volume_document_links_to_its_lists() {
        let body = Bench::new().reply(&get("/v1/volume").at("1.32")).value();
        assert_eq!(
            body["connectors"][0]["href"],
            "http://box:6385/v1/volume/connectors"
        );
    }
}
