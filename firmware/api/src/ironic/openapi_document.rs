//! The `OpenAPI` description as clients fetch it.

use std::sync::LazyLock;

use serde_json::Value;

use crate::table::access::Access;
use crate::table::openapi;
use crate::table::route::ApiRoute;
use crate::{ApiOutcome, Response, routes};

pub(crate) const ROUTES: &[ApiRoute] = &[ApiRoute::get(
    &["v1", "openapi.json"],
    1,
    "This OpenAPI description",
    |_| Ok(ApiOutcome::Reply(served())),
)
.for_(Access::Public)];

fn document() -> Value {
    openapi::document(routes::rows())
}

/// Generated once: it is the same for every client.
fn served() -> Response {
    static TEXT: LazyLock<String> = LazyLock::new(|| document().to_string());
    Response {
        status: 200,
        headers: vec![("Content-Type", "application/json".to_owned())],
        body: TEXT.as_bytes().to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{ApiBench, get};
    use serde_json::json;

    const SNAPSHOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi.json");

    /// A change of the API is a change of this file, which reviewers can see. Regenerate it with
    /// `TRIVET_WRITE_SNAPSHOTS=1 cargo test -p trivet-api`.
    #[test]
    fn the_description_is_the_one_that_is_checked_in() {
        let now = serde_json::to_string_pretty(&document()).unwrap() + "\n";
        if std::env::var_os("TRIVET_WRITE_SNAPSHOTS").is_some() {
            std::fs::write(SNAPSHOT, &now).unwrap();
        }
        let stored = std::fs::read_to_string(SNAPSHOT).unwrap();
        let same = stored == now;
        let hint = "openapi.json is out of date: TRIVET_WRITE_SNAPSHOTS=1 cargo test -p trivet-api";
        assert!(same, "{hint}");
    }

    #[test]
    fn it_is_served() {
        let served = ApiBench::new().reply(&get("/v1/openapi.json")).value();
        assert_eq!(served, document());
        assert_eq!(served["openapi"], "3.1.0");
    }

    #[test]
    fn every_reference_leads_somewhere() {
        fn walk(at: &Value, whole: &Value) {
            match at {
                Value::Object(object) => {
                    if let Some(Value::String(to)) = object.get("$ref") {
                        let pointer = to.strip_prefix('#').unwrap();
                        assert!(whole.pointer(pointer).is_some(), "{to}");
                    }
                    object.values().for_each(|value| walk(value, whole));
                }
                Value::Array(items) => items.iter().for_each(|value| walk(value, whole)),
                _ => {}
            }
        }
        let document = document();
        walk(&document, &document);
    }

    #[test]
    fn operations_have_names_of_their_own() {
        let mut seen = std::collections::BTreeSet::new();
        for row in routes::rows() {
            assert!(
                seen.insert(openapi::operation_id(row)),
                "{}",
                openapi::operation_id(row)
            );
        }
    }

    #[test]
    fn the_description_has_the_arguments_of_every_handler() {
        let document = document();
        let power = &document["paths"]["/v1/nodes/{node}/states/power"]["put"];
        let schema = &power["requestBody"]["content"]["application/json"]["schema"];
        assert_eq!(schema["required"], json!(["target"]));
        assert_eq!(schema["properties"]["timeout"]["x-since"], "1.27");
        let new = &document["components"]["schemas"]["nodes_new"];
        assert_eq!(new["required"], json!(["driver"]));
        assert!(new["properties"].get("provision_state").is_none());
        assert!(new["properties"].get("driver_info").is_some());
    }
}
