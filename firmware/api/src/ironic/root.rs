//! The documents by which clients discover the API.

use serde_json::{Map, Value, json};

use crate::table::access::Access;
use crate::table::call::{ApiCall, reply};
use crate::table::error::ApiFault;
use crate::table::route::ApiRoute;
use crate::{ApiOutcome, VERSION_MAX, VERSION_MIN};

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get(&[], 1, "List API versions", root).for_(Access::Public),
    ApiRoute::get(&["v1"], 1, "List the resources of this API version", v1).for_(Access::Public),
];

/// Resources of the version document and the version of each.
const RESOURCES: [(&str, u16); 16] = [
    ("nodes", 1),
    ("ports", 1),
    ("drivers", 1),
    ("chassis", 1),
    ("lookup", 22),
    ("heartbeat", 22),
    ("portgroups", 23),
    ("volume", 32),
    ("conductors", 49),
    ("allocations", 52),
    ("events", 54),
    ("deploy_templates", 55),
    ("shards", 82),
    ("continue_inspection", 84),
    ("runbooks", 92),
    ("inspection_rules", 96),
];

fn version(call: &ApiCall<'_>) -> Value {
    json!({
        "id": "v1",
        "links": [{"href": format!("{}/v1/", call.base), "rel": "self"}],
        "status": "CURRENT",
        "min_version": VERSION_MIN.to_string(),
        "version": VERSION_MAX.to_string(),
    })
}

/// `GET /`.
fn root(call: &ApiCall<'_>) -> Result<ApiOutcome, ApiFault> {
    let version = version(call);
    reply(&json!({
        "name": "OpenStack Ironic API",
        "description": "Trivet, a provisioning appliance with Ironic's API.",
        "default_version": version,
        "versions": [version],
    }))
}

/// `GET /v1`.
fn v1(call: &ApiCall<'_>) -> Result<ApiOutcome, ApiFault> {
    let mut document = Map::new();
    document.insert("id".into(), "v1".into());
    document.insert("version".into(), version(call));
    let description = json!({
        "href": format!("{}/v1/openapi.json", call.base),
        "rel": "describedby",
        "type": "application/json",
    });
    let own = json!({"href": format!("{}/v1/", call.base), "rel": "self"});
    document.insert("links".into(), json!([own, description]));
    document.insert(
        "media_types".into(),
        json!({
            "base": "application/json",
            "type": "application/vnd.openstack.ironic.v1+json",
        }),
    );
    for (name, since) in RESOURCES {
        if call.has(since) {
            document.insert(name.into(), call.links(&format!("{name}/")));
        }
    }
    reply(&Value::Object(document))
}

#[cfg(test)]
mod tests {
    use crate::testing::{ApiBench, get, send};

    #[test]
    fn the_root_names_one_version_with_its_range() {
        let body = ApiBench::new().reply(&get("/")).value();
        assert_eq!(body["versions"].as_array().unwrap().len(), 1);
        assert_eq!(body["default_version"]["min_version"], "1.1");
        assert_eq!(body["versions"][0]["version"], "1.115");
        assert_eq!(
            body["versions"][0]["links"][0]["href"],
            "http://box:6385/v1/"
        );
    }

    #[test]
    fn the_version_document_is_the_same_with_a_slash() {
        let bench = ApiBench::new();
        let plain = bench.reply(&get("/v1").at("1.110")).value();
        assert_eq!(plain, bench.reply(&get("/v1/").at("1.110")).value());
        assert_eq!(plain["version"]["version"], "1.115");
        assert_eq!(plain["inspection_rules"][1]["rel"], "bookmark");
    }

    #[test]
    fn an_old_version_sees_fewer_resources() {
        let body = ApiBench::new().reply(&get("/v1")).value();
        assert!(body.get("nodes").is_some());
        assert!(body.get("lookup").is_none());
        assert!(body.get("inspection_rules").is_none());
    }

    #[test]
    fn unknown_paths_are_404_and_other_methods_405() {
        let bench = ApiBench::new();
        for path in [
            "/v2",
            "/v1/nothing",
            "/v1/nodes/a/b/c/d",
            "//v1",
            "/v1//nodes",
        ] {
            let response = bench.reply(&get(path).at("1.110"));
            assert_eq!(response.status, 404, "{path}");
        }
        for (method, path) in [
            ("HEAD", "/v1/nodes"),
            ("DELETE", "/v1"),
            ("POST", "/v1/lookup"),
            ("PUT", "/v1/drivers"),
        ] {
            let response = bench.reply(&send(method, path, "").at("1.110"));
            assert_eq!(response.status, 405, "{method} {path}");
        }
        assert_eq!(bench.reply(&send("OPTIONS", "/v1/nodes", "")).status, 200);
    }
}
