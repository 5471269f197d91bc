//! Other forms of a path that Ironic's routing accepts, turned into the one that the route table
//! has.
//!
//! A path without `/v1` means version 1: the `bookmark` links have this form. The controllers of
//! Ironic below `/v1/nodes` also accept the node at the end of the path or as an argument. Below
//! microversion 1.91 a suffix `.json` does not count.

use trivet_model::{RackView, ResourceKind};

use crate::table::error::ApiFault;
use crate::table::percent;
use crate::table::query::Query;

/// First segments that are not resources of version 1.
const ROOTS: [&str; 4] = ["v1", "trivet", "healthz", "metrics"];

/// Controllers of Ironic that read the node from the end of the path.
const NODE_LAST: [&str; 3] = ["states", "management", "maintenance"];

/// From this version on, `.json` at the end of a path is part of a name.
const SUFFIX_UNTIL: u16 = 91;

const SUFFIX: &str = ".json";

/// The one path of the route table that ends with the suffix.
const DOCUMENT: &str = "openapi.json";

/// The decoded segments of a path, in the form of the route table.
pub(crate) fn segments(path: &str) -> Result<Vec<String>, ApiFault> {
    let mut segments = percent::segments(path)?;
    if path.ends_with("/nodes/detail/") {
        // Ironic reads an empty name of a node after the slash.
        return Err(ApiFault::no_path());
    }
    let first = segments.first().map(String::as_str);
    if first.is_some_and(|first| !first.is_empty() && !ROOTS.contains(&first)) {
        segments.insert(0, "v1".to_owned());
    }
    let controller = |word: &String| NODE_LAST.contains(&word.as_str());
    if below_nodes(&segments) && segments.get(2).is_some_and(controller) && segments.len() > 3 {
        // `/v1/nodes/states/console/<node>`
        segments[2..].rotate_right(1);
    }
    Ok(segments)
}

fn below_nodes(segments: &[String]) -> bool {
    matches!(segments, [first, second, ..] if first == "v1" && second == "nodes")
}

/// Moves a node that is named by an argument into the path: `/v1/nodes/validate?node=<node>` and
/// `/v1/nodes/states?node_ident=<node>`.
pub(crate) fn take_node(segments: &mut Vec<String>, query: &mut Query) {
    if !below_nodes(segments) || segments.len() != 3 {
        return;
    }
    let names: &[&str] = match segments[2].as_str() {
        "validate" => &["node", "node_uuid"],
        "states" | "maintenance" => &["node_ident"],
        _ => return,
    };
    if let Some(node) = names.iter().find_map(|name| query.take(name)) {
        segments.insert(2, node);
    }
}

/// Drops the suffix `.json` where the version has it, unless a record has this very name.
pub(crate) fn drop_suffix(segments: &mut [String], version: u16, view: &RackView) {
    if version >= SUFFIX_UNTIL || segments.first().is_none_or(|first| first != "v1") {
        return;
    }
    let collection = segments.get(1).cloned().unwrap_or_default();
    if collection == DOCUMENT {
        return;
    }
    if let Some(last) = segments.last_mut()
        && let Some(plain) = last.strip_suffix(SUFFIX)
        && !plain.is_empty()
        && !is_name(&collection, last, view)
    {
        *last = plain.to_owned();
    }
}

/// The path without the suffix, if it has one. For the role of a request, whose version is not
/// known.
pub(crate) fn without_suffix(segments: &[String]) -> Option<Vec<String>> {
    let (last, rest) = segments.split_last()?;
    let plain = last.strip_suffix(SUFFIX)?.to_owned();
    Some(rest.iter().cloned().chain([plain]).collect())
}

fn is_name(collection: &str, ident: &str, view: &RackView) -> bool {
    let kind = match collection {
        "nodes" => return view.node(ident).is_some(),
        "ports" => return view.port(ident).is_some(),
        "portgroups" => ResourceKind::PortGroup,
        "allocations" => ResourceKind::Allocation,
        _ => return false,
    };
    view.resource(kind, ident).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{ApiBench, get, node, send};

    #[track_caller]
    fn check(path: &str, want: &str) {
        assert_eq!(segments(path).unwrap().join("/"), want);
    }

    #[test]
    fn a_path_without_a_version_means_version_1() {
        check("/nodes/n1/states", "v1/nodes/n1/states");
        check("/v1/nodes", "v1/nodes");
        check("/trivet/nodes/n1", "trivet/nodes/n1");
        check("/v2/nodes", "v1/v2/nodes");
        check("//v1", "/v1");
        check("/", "");
    }

    #[test]
    fn a_slash_counts_after_the_detailed_list_of_nodes_only() {
        let bench = ApiBench::new();
        for (path, status) in [
            ("/v1/nodes/detail", 200),
            ("/v1/nodes/detail/", 404),
            ("/nodes/detail/", 404),
            ("/v1/nodes/", 200),
            ("/v1/ports/detail/", 200),
        ] {
            assert_eq!(bench.reply(&get(path)).status, status, "{path}");
        }
    }

    #[test]
    fn the_node_can_be_the_last_segment() {
        check("/v1/nodes/states/console/n1", "v1/nodes/n1/states/console");
        check("/v1/nodes/maintenance/n1", "v1/nodes/n1/maintenance");
        check("/v1/nodes/n1/states/console", "v1/nodes/n1/states/console");
        check("/v1/nodes/states", "v1/nodes/states");
    }

    #[test]
    fn the_bookmark_of_a_record_leads_to_it() {
        let mut bench = ApiBench::new();
        bench.add(node(1));
        let node = bench.reply(&get("/v1/nodes/node-1").at("1.115")).value();
        assert_eq!(node["links"][1]["rel"], "bookmark");
        let path = node["links"][1]["href"].as_str().unwrap();
        let path = path.strip_prefix("http://box:6385").unwrap();
        let same = bench.reply(&get(path).at("1.115"));
        assert_eq!((same.status, same.value()), (200, node));
        assert_eq!(bench.reply(&get("/drivers")).status, 200);
        assert_eq!(bench.reply(&get("/no-such")).status, 404);
    }

    #[test]
    fn the_node_can_be_an_argument() {
        let mut bench = ApiBench::new();
        bench.add(node(1));
        for path in [
            "/v1/nodes/validate?node=node-1",
            "/v1/nodes/states?node_ident=node-1",
            "/v1/nodes/states/console/node-1",
        ] {
            let (path, query) = path.split_once('?').unwrap_or((path, ""));
            let mut request = get(path).at("1.115");
            request.query = query;
            assert_ne!(bench.reply(&request).status, 404, "{path}?{query}");
        }
    }

    #[test]
    fn the_suffix_json_counts_from_1_91_on() {
        let mut bench = ApiBench::new();
        bench.add(node(1));
        bench.add(node(2));
        let mut odd = node(3);
        odd.name = Some("node-1.json".into());
        bench.add(odd);
        let name = |path: &'static str, version: &'static str| {
            bench.reply(&get(path).at(version)).value()["name"].clone()
        };
        assert_eq!(name("/v1/nodes/node-2.json", "1.90"), "node-2");
        assert_eq!(name("/v1/nodes/node-1.json", "1.90"), "node-1.json");
        let late = bench.reply(&get("/v1/nodes/node-2.json").at("1.91"));
        assert_eq!(late.status, 404);
        assert_eq!(bench.reply(&get("/v1/drivers.json").at("1.1")).status, 200);
        assert_eq!(bench.reply(&get("/v1/nodes.json")).status, 404);
    }

    #[test]
    fn another_form_of_a_path_needs_the_same_role() {
        for (method, path) in [
            ("POST", "/runbooks"),
            ("POST", "/v1/runbooks.json"),
            ("POST", "/nodes/n1/vendor_passthru.json"),
        ] {
            let role = crate::access(method, path);
            assert_eq!(role, crate::Access::Admin, "{method} {path}");
        }
        let response = ApiBench::new().reply(&send("POST", "/heartbeat/n1", "{}").at("1.115"));
        assert_eq!(response.status, 400);
    }
}
