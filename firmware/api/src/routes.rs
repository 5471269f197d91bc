//! All rows of the API in one list, and which row handles a request.
//!
//! `table` has the mechanism; the modules in the list below have the rows. A new module is one
//! line here.

use crate::ironic::{
    agent, drivers, events, nodes, openapi_document, passthru, ports, resources, root,
};
use crate::table::access::Access;
use crate::table::call::ApiCall;
use crate::table::error::ApiFault;
use crate::table::path_forms;
use crate::table::route::{self, ApiRoute};
use crate::trivet::{
    agent_artifacts, bmc_requests, enrolment, images, lan, progress, story, telemetry,
};
use crate::{ApiOutcome, BODY_BYTES_MAX, Response, inspector, trivet};

/// All rows. The first matching row is used, so fixed segments are before segments in braces.
pub(crate) const TABLES: &[&[ApiRoute]] = &[
    root::ROUTES,
    openapi_document::ROUTES,
    agent::ROUTES,
    nodes::ROUTES,
    nodes::OF_CHASSIS,
    nodes::SUBRESOURCES,
    nodes::STATES,
    nodes::MANAGEMENT,
    nodes::LIGHTS,
    nodes::SETTINGS,
    nodes::MEDIA,
    nodes::PROVISION,
    trivet::nodes::ROUTES,
    ports::ROUTES,
    resources::BELOW,
    resources::CHASSIS,
    resources::PORTGROUPS,
    resources::ALLOCATIONS,
    resources::TEMPLATES,
    resources::RUNBOOKS,
    resources::RULES,
    resources::VOLUME,
    drivers::ROUTES,
    passthru::ROUTES,
    events::ROUTES,
    images::ROUTES,
    lan::ROUTES,
    agent_artifacts::ROUTES,
    progress::ROUTES,
    story::ROUTES,
    bmc_requests::ROUTES,
    telemetry::ROUTES,
    enrolment::ROUTES,
];

/// All rows in order.
pub(crate) fn rows() -> impl Iterator<Item = &'static ApiRoute> + Clone {
    TABLES.iter().flat_map(|table| table.iter())
}

/// The row for a method and a path, independent of the version.
pub(crate) fn find(method: &str, segments: &[String]) -> Option<&'static ApiRoute> {
    rows().find(|row| row.method == method && row.matches(segments))
}

/// The role that a request needs, from its row of the route table. A path that does not exist needs
/// the same role as other paths, so that unauthenticated clients cannot find out which paths exist.
pub fn access(method: &str, path: &str) -> Access {
    let needed = |segments: &[String]| match (find(method, segments), method) {
        (Some(row), _) => row.access,
        (None, "GET" | "HEAD" | "OPTIONS") => Access::Reader,
        (None, _) => Access::Operator,
    };
    let segments = path_forms::segments(path).unwrap_or_else(|_| vec![String::new()]);
    // Old versions ignore the suffix `.json`: the role is that of both readings.
    let plain = path_forms::without_suffix(&segments);
    let plain = plain.map_or(Access::Public, |plain| needed(&plain));
    needed(&segments).max(plain)
}

/// Handles a call: returns a response or an order.
pub(crate) fn route(call: &ApiCall<'_>) -> Result<ApiOutcome, ApiFault> {
    if call.body.len() > BODY_BYTES_MAX {
        return Err(ApiFault::layer(
            413,
            "Content Too Large",
            format!("A body has at most {BODY_BYTES_MAX} bytes."),
        ));
    }
    if call.method == "OPTIONS" {
        return Ok(ApiOutcome::Reply(Response::empty(200)));
    }
    let updates_allocation = call.word(1) == "allocations" && call.method == "PATCH";
    if updates_allocation && call.has(52) && !call.has(57) {
        return Err(ApiFault::of_method(
            "The API version does not allow updating allocations",
        ));
    }
    if let [_, nodes, _, last] = call.segments.as_slice()
        && nodes == "nodes"
        && last == "management"
    {
        return Err(ApiFault::no_method(call.method));
    }
    let Some(row) = route::select(rows(), call)? else {
        return Err(inspector::wrong_endpoint(call).unwrap_or_else(|| not_in_version(call)));
    };
    route::check_query(call, row)?;
    (row.answer)(call)
}

/// The error for a path that the version does not have: Ironic's status and form, which depend on
/// the resource.
fn not_in_version(call: &ApiCall<'_>) -> ApiFault {
    if find(call.method, &call.segments).is_none() {
        return ApiFault::no_path();
    }
    let reads = call.method == "GET";
    let resource = call.word(1).replace('_', " ");
    let not_allowed = format!("The API version does not allow {resource}");
    // The node is looked up before the version is compared.
    if call.word(1) == "nodes"
        && call.last() == "raid"
        && let Err(fault) = call.this()
    {
        return fault;
    }
    match (call.word(1), call.segments.last().map(String::as_str)) {
        ("drivers", Some("logical_disk_properties")) | ("nodes", Some("raid")) => {
            ApiFault::not_acceptable("Request not acceptable.")
        }
        ("nodes", _) if call.word(3) == "traits" => match call.method {
            "GET" => ApiFault::not_acceptable("Request not acceptable."),
            "PUT" => ApiFault::layer(405, "Method Not Allowed", not_allowed),
            _ => ApiFault::not_found("Resource could not be found."),
        },
        ("runbooks", _) if call.word(3) == "traits" => {
            let traits = "The API version does not allow runbook traits";
            ApiFault::layer(404, "Not Found", traits)
        }
        ("deploy_templates" | "runbooks", _) if !reads => {
            ApiFault::layer(405, "Method Not Allowed", not_allowed)
        }
        ("deploy_templates" | "runbooks", _) => ApiFault::layer(404, "Not Found", not_allowed),
        ("allocations" | "inspection_rules", _) if !reads => ApiFault::of_method(not_allowed),
        ("nodes", Some("vmedia")) if reads && call.has(89) => {
            ApiFault::not_found("The resource could not be found.")
        }
        ("heartbeat" | "lookup", _) | ("nodes", Some("inject_nmi")) => {
            ApiFault::not_found("Resource could not be found.")
        }
        ("allocations" | "inspection_rules" | "shards", _) => ApiFault::not_found(not_allowed),
        ("portgroups", _) if call.segments.len() > 3 => ApiFault::no_path(),
        ("conductors" | "events" | "portgroups", _) | ("volume" | "nodes", Some("volume")) => {
            ApiFault::not_found("The API is not supported for this version")
        }
        _ => ApiFault::no_path(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_row_hides_another() {
        let rows: Vec<&ApiRoute> = rows().collect();
        for (at, row) in rows.iter().enumerate() {
            let own: Vec<String> = row.path.iter().map(|word| (*word).to_owned()).collect();
            let earlier = rows[..at]
                .iter()
                .find(|other| other.method == row.method && other.matches(&own));
            assert!(earlier.is_none(), "{} {:?}", row.method, row.path);
        }
    }

    #[test]
    fn every_row_has_a_summary_and_a_known_version() {
        for row in rows() {
            assert!(!row.summary.is_empty(), "{} {:?}", row.method, row.path);
            assert!((1..=crate::VERSION_MAX.0).contains(&row.since));
            for arg in row.query_args.iter().flat_map(|group| group.iter()) {
                assert!((1..=crate::VERSION_MAX.0).contains(&arg.since), "{arg:?}");
            }
        }
    }

    #[track_caller]
    fn needs(want: Access, requests: &[(&str, &str)]) {
        for (method, path) in requests {
            assert_eq!(access(method, path), want, "{method} {path}");
        }
    }

    #[test]
    fn only_discovery_and_the_agents_paths_need_no_credentials() {
        needs(
            Access::Public,
            &[("GET", "/"), ("GET", "/v1"), ("GET", "/v1/")],
        );
        needs(
            Access::Agent,
            &[
                ("GET", "/v1/lookup"),
                ("POST", "/v1/heartbeat/node-1"),
                ("POST", "/v1/continue_inspection"),
            ],
        );
    }

    #[test]
    fn reads_need_a_reader() {
        needs(
            Access::Reader,
            &[
                ("GET", "/v1/nodes"),
                ("HEAD", "/v1/nodes/x"),
                ("OPTIONS", "/v1/nodes"),
                ("GET", "/v1/runbooks"),
                ("GET", "/v1/lookup/../nodes"),
                ("GET", "/v1//nodes"),
                ("GET", "/v1/heartbeat/node-1"),
                ("GET", "/v1/nodes/x/vendor_passthru/methods"),
                ("GET", "/%zz"),
                ("GET", "/v1/%6eodes"),
            ],
        );
    }

    #[test]
    fn changes_need_an_operator() {
        needs(
            Access::Operator,
            &[
                ("POST", "/v1/nodes"),
                ("DELETE", "/v1/nodes/x"),
                ("PATCH", "/v1/nodes/x"),
                ("PUT", "/v1/nodes/x/states/provision"),
                ("POST", "/v1"),
                ("POST", "/v1/heartbeat/a/b"),
                ("POST", "/v1/lookup"),
                ("BREW", "/v1/nodes"),
                ("POST", "/%zz"),
            ],
        );
    }

    #[test]
    fn raw_commands_and_what_runs_later_need_an_admin() {
        needs(
            Access::Admin,
            &[
                ("POST", "/v1/nodes/x/vendor_passthru"),
                ("POST", "/v1/nodes/x/vendor_passthru/send_raw"),
                ("GET", "/v1/nodes/x/vendor_passthru/read"),
                ("GET", "/v1/nodes/x/vendor_passthru/heartbeat"),
                ("POST", "/v1/nodes/x/%76endor_passthru"),
                ("PUT", "/v1/drivers/ipmi/vendor_passthru/anything"),
            ],
        );
    }
}
