use crate::table::list::PAGE_RECORDS_MAX;
use crate::testing::{ApiBench, LATEST, get, node, node_id, node_in};
use serde_json::{Value, json};
use trivet_model::{Node, NodeId, ProvisionState, Resource, ResourceKind, UnixMs};

fn uuids(body: &Value) -> Vec<String> {
    let nodes = body["nodes"].as_array().unwrap();
    nodes
        .iter()
        .map(|node| node["uuid"].as_str().unwrap().to_owned())
        .collect()
}

fn three() -> ApiBench {
    let mut bench = ApiBench::new();
    // The order of creation is the reverse of the order of UUIDs.
    for number in 1..=3 {
        let mut node = node(number);
        node.serial = u64::from(10 - number);
        bench.add(node);
    }
    bench
}

#[test]
fn a_page_begins_after_a_uuid_and_is_sorted_by_a_field_of_the_table() {
    let bench = three();
    let refuses = |query: &str, words: &str| {
        let path = format!("/v1/nodes?{query}");
        let message = bench.refuses(&get(&path).at(LATEST), 400);
        assert!(message.contains(words), "{message}");
    };
    refuses("marker=node-1", "Expected UUID for marker: node-1");
    refuses("marker=", "Expected UUID for marker");
    refuses("sort_dir=up", "'up' is not one of ['asc', 'desc']");
    refuses("limit=1&limit=2", "Expected an integer for limit");
    for key in [
        "allocation_uuid",
        "chassis_uuid",
        "conductor",
        "extra",
        "links",
    ] {
        refuses(
            &format!("sort_key={key}"),
            "is an invalid field for sorting",
        );
    }
    check(&bench, "sort_key=", &[3, 2, 1]);
}

#[test]
fn fields_are_named_in_any_case() {
    let body = three()
        .reply(&get("/v1/nodes?fields=UUID,Name").at(LATEST))
        .value();
    let keys: Vec<&String> = body["nodes"][0].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["links", "name", "uuid"]);
}

#[test]
fn a_method_of_a_later_version_is_an_unknown_path() {
    let bench = three();
    let status =
        |path: &'static str, version: &'static str| bench.reply(&get(path).at(version)).status;
    let message = bench.refuses(&get("/v1/nodes/node-1/vmedia").at("1.92"), 404);
    assert_eq!(message, "The resource could not be found.");
    assert_eq!(status("/v1/nodes/node-1/vmedia", "1.88"), 404);
    assert_eq!(status("/v1/nodes/node-1/maintenance", "1.92"), 405);
    assert_eq!(status("/v1/nodes/node-1/management", "1.92"), 405);
}

#[test]
fn a_description_is_found_in_any_case() {
    let mut bench = three();
    bench.change(|node| node.attributes.description = Some("The First".into()));
    check(&bench, "description_contains=FIRST", &[1]);
}

#[track_caller]
fn check(bench: &ApiBench, query: &str, want: &[u8]) {
    let path = format!("/v1/nodes?{query}");
    let body = bench.reply(&get(&path).at(LATEST)).value();
    let want: Vec<String> = want
        .iter()
        .map(|number| node_id(*number).to_string())
        .collect();
    assert_eq!(uuids(&body), want, "{query}");
}

#[test]
fn a_list_is_short_in_order_of_creation_and_takes_a_slash() {
    let bench = three();
    for path in ["/v1/nodes", "/v1/nodes/"] {
        let body = bench.reply(&get(path).at(LATEST)).value();
        let keys: Vec<&String> = body["nodes"][0].as_object().unwrap().keys().collect();
        assert_eq!(
            keys,
            [
                "instance_uuid",
                "links",
                "maintenance",
                "name",
                "power_state",
                "provision_state",
                "uuid"
            ]
        );
        assert!(body.get("next").is_none());
    }
    check(&bench, "", &[3, 2, 1]);
}

#[test]
fn detail_comes_by_path_and_by_argument() {
    let bench = three();
    let by_path = bench.reply(&get("/v1/nodes/detail").at("1.42")).value();
    assert!(by_path["nodes"][0].get("driver_info").is_some());
    let by_argument = bench
        .reply(&get("/v1/nodes?detail=True").at("1.43"))
        .value();
    assert!(by_argument["nodes"][0].get("driver_info").is_some());
    bench.refuses(&get("/v1/nodes?detail=True").at("1.42"), 400);
    bench.refuses(&get("/v1/nodes/detail?detail=True").at(LATEST), 400);
    bench.refuses(&get("/v1/nodes/detail?fields=uuid").at(LATEST), 400);
    bench.refuses(&get("/v1/nodes?detail=True&fields=uuid").at(LATEST), 400);
    bench.refuses(&get("/v1/nodes?detail=perhaps").at(LATEST), 400);
}

#[test]
fn fields_choose_and_links_stay() {
    let bench = three();
    let path = "/v1/nodes?fields=uuid,name&fields=power_state";
    let body = bench.reply(&get(path).at(LATEST)).value();
    let keys: Vec<&String> = body["nodes"][0].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["links", "name", "power_state", "uuid"]);
    bench.refuses(&get("/v1/nodes?fields=colour").at(LATEST), 400);
    bench.refuses(&get("/v1/nodes?fields=owner").at("1.49"), 406);
    bench.refuses(&get("/v1/nodes?fields=uuid").at("1.7"), 406);
    let one = bench
        .reply(&get("/v1/nodes/node-1?fields=uuid").at(LATEST))
        .value();
    assert_eq!(one.as_object().unwrap().len(), 2);
}

#[test]
fn pages_follow_each_other_and_keep_the_filter() {
    let bench = three();
    let mut path = "/v1/nodes?limit=2&maintenance=false&sort_key=name".to_owned();
    let mut seen = Vec::new();
    for _ in 0..3 {
        let body = bench.reply(&get(&path).at(LATEST)).value();
        seen.push(uuids(&body).len());
        let Some(next) = body.get("next") else { break };
        let next = next.as_str().unwrap();
        assert!(
            next.contains("maintenance=false&sort_key=name&limit=2&marker="),
            "{next}"
        );
        path = next.strip_prefix("http://box:6385").unwrap().to_owned();
    }
    assert_eq!(seen, [2, 1]);
    let exact = bench.reply(&get("/v1/nodes?limit=3").at(LATEST)).value();
    let after = exact["next"]
        .as_str()
        .unwrap()
        .strip_prefix("http://box:6385")
        .unwrap();
    let last = bench.reply(&get(after).at(LATEST)).value();
    assert_eq!(last, json!({"nodes": []}));
}

#[test]
fn limits_and_markers_are_checked() {
    let bench = three();
    for limit in ["0", "-1", "x", ""] {
        bench.refuses(&get(&format!("/v1/nodes?limit={limit}")).at(LATEST), 400);
    }
    bench.refuses(
        &get(&format!("/v1/nodes?marker={}", node_id(9))).at(LATEST),
        404,
    );
    check(&bench, "limit=99999999999", &[3, 2, 1]);
    check(&bench, "limit=99999999999999999999", &[3, 2, 1]);
}

#[test]
fn a_marker_whose_node_no_longer_passes_still_names_a_place() {
    let mut bench = three();
    bench.change(|node| {
        node.maintenance = true;
        node.serial = 8;
    });
    let query = format!("maintenance=false&marker={}", node_id(1));
    bench.add(Node {
        serial: 9,
        ..node(4)
    });
    check(&bench, &query, &[2, 4]);
}

#[test]
fn one_page_holds_a_thousand() {
    let mut bench = ApiBench::new();
    for number in 0..=PAGE_RECORDS_MAX as u128 {
        let id: NodeId = format!("{number:032x}").parse().unwrap();
        bench.add(Node::new(id, "ipmi", crate::testing::NOW));
    }
    let body = bench.reply(&get("/v1/nodes?limit=5000").at(LATEST)).value();
    assert_eq!(uuids(&body).len(), PAGE_RECORDS_MAX);
    assert!(body["next"].as_str().unwrap().contains("limit=1000"));
}

#[test]
fn sorting_takes_plain_fields_in_both_directions() {
    let bench = three();
    check(&bench, "sort_key=name", &[1, 2, 3]);
    check(&bench, "sort_key=name&sort_dir=desc", &[3, 2, 1]);
    check(&bench, "sort_key=maintenance", &[3, 2, 1]);
    check(&bench, "sort_dir=desc", &[1, 2, 3]);
    for query in [
        "sort_key=driver_info",
        "sort_key=colour",
        "sort_key=links",
        "sort_dir=up",
    ] {
        bench.refuses(&get(&format!("/v1/nodes?{query}")).at(LATEST), 400);
    }
}

#[test]
fn every_filter_filters() {
    let mut bench = ApiBench::new();
    bench.add(node(1));
    let mut other = node_in(2, ProvisionState::Active);
    other.maintenance = true;
    other.driver = "fake-hardware".into();
    other.fault = Some("power failure".into());
    other.resource_class = Some("gold".into());
    other.instance_uuid = Some(node_id(9).to_string());
    for (key, value) in [
        ("owner", json!("ann")),
        ("lessee", json!("bob")),
        ("description", json!("in the cellar")),
        ("conductor_group", json!("g")),
        ("retired", json!(true)),
        ("shard", json!("east")),
        ("instance_name", json!("web")),
    ] {
        other.attributes.set(key, Some(value)).unwrap();
    }
    bench.add(other);
    for query in [
        "maintenance=yes",
        "associated=1",
        "provision_state=active",
        "driver=fake-hardware",
        "fault=power%20failure",
        "resource_class=gold",
        "owner=ann",
        "lessee=bob",
        "project=ann",
        "project=bob",
        "description_contains=cellar",
        "conductor_group=g",
        "retired=true",
        "shard=west,east",
        "sharded=true",
        "instance_name=web",
        &format!("instance_uuid={}", node_id(9)),
    ] {
        check(&bench, query, &[2]);
    }
    check(&bench, "maintenance=no", &[1]);
    check(&bench, "conductor_group=", &[1]);
    check(&bench, "conductor=box", &[1, 2]);
    check(&bench, "conductor=other", &[]);
    check(&bench, "parent_node=node-1", &[]);
}

#[test]
fn the_nodes_of_a_chassis_by_filter_and_by_path() {
    let mut bench = three();
    let id = "00000000-0000-4000-a000-000000000001";
    bench.add_resource(Resource::new(
        id.parse().unwrap(),
        ResourceKind::Chassis,
        UnixMs(0),
    ));
    bench.change(|node| {
        node.attributes
            .set("chassis_uuid", Some(json!(id)))
            .unwrap();
    });
    check(&bench, &format!("chassis_uuid={id}"), &[1]);
    for path in ["nodes", "nodes/detail"] {
        let path = format!("/v1/chassis/{id}/{path}");
        let body = bench.reply(&get(&path).at(LATEST)).value();
        assert_eq!(uuids(&body), [node_id(1).to_string()], "{path}");
        assert_eq!(
            body["nodes"][0].get("chassis_uuid").is_some(),
            path.ends_with("detail")
        );
    }
    let other = node_id(9);
    bench.refuses(
        &get(&format!("/v1/nodes?chassis_uuid={other}")).at(LATEST),
        404,
    );
    bench.refuses(&get(&format!("/v1/chassis/{other}/nodes")).at(LATEST), 404);
    bench.refuses(&get("/v1/chassis/x/nodes").at(LATEST), 400);
}

#[test]
fn filters_refuse_nonsense_unknown_words_and_older_versions() {
    let bench = three();
    for query in [
        "provision_state=dancing",
        "maintenance=perhaps",
        "instance_uuid=x",
        "colour=red",
    ] {
        bench.refuses(&get(&format!("/v1/nodes?{query}")).at(LATEST), 400);
    }
    bench.refuses(&get("/v1/nodes?owner=x").at("1.49"), 406);
    bench.refuses(&get("/v1/nodes?provision_state=active").at("1.8"), 406);
}

/// Number of nodes in the rack of the tests below.
const MANY: u64 = 2000;

/// Every tenth node is active, one is in maintenance, two are of class gold.
fn many() -> ApiBench {
    let mut bench = ApiBench::new();
    for number in 0..MANY {
        let id: NodeId = format!("{number:032x}").parse().unwrap();
        let mut node = Node::new(id, "ipmi", crate::testing::NOW);
        node.serial = MANY - number;
        node.name = Some(format!("node-{number:05}"));
        if number % 10 == 0 {
            node.provision_state = ProvisionState::Active;
            node.instance_uuid = Some(id.to_string());
        }
        node.maintenance = number == 7;
        if number == 40 || number == 1999 {
            node.resource_class = Some("gold".into());
        }
        bench.add(node);
    }
    bench
}

/// The numbers of the nodes on a page of the tests above, and how many records were examined.
#[track_caller]
fn looked(bench: &ApiBench, query: &str) -> (Vec<u64>, usize) {
    crate::table::list::EXAMINED.set(0);
    let path = format!("/v1/nodes?{query}");
    let body = bench.reply(&get(&path).at(LATEST)).value();
    let number = |uuid: String| u64::from_str_radix(&uuid.replace('-', ""), 16).unwrap();
    let page = uuids(&body).into_iter().map(number).collect();
    (page, crate::table::list::EXAMINED.get())
}

#[test]
fn a_page_in_the_order_of_an_index_looks_at_the_nodes_of_the_page_only() {
    let bench = many();
    let marker: NodeId = format!("{:032x}", 1000).parse().unwrap();
    let marker = format!("marker={marker}&limit=10");
    for (query, first, step) in [
        ("limit=10", 1999, -1),
        ("limit=10&sort_dir=desc", 0, 1),
        ("limit=10&sort_key=name", 0, 1),
        ("limit=10&sort_key=uuid&sort_dir=desc", 1999, -1),
        (&*format!("{marker}&sort_key=id"), 999, -1),
        (&*format!("{marker}&sort_key=name"), 1001, 1),
        (&*format!("{marker}&sort_key=uuid"), 1001, 1),
        (&*format!("{marker}&sort_key=name&sort_dir=desc"), 999, -1),
    ] {
        let want: Vec<u64> = (0..10)
            .map(|at: i64| u64::try_from(first + at * step).unwrap())
            .collect();
        let (page, examined) = looked(&bench, query);
        assert_eq!(page, want, "{query}");
        assert_eq!(examined, 10, "{query}");
    }
}

#[test]
fn a_filtered_page_looks_at_the_nodes_of_the_smallest_index_only() {
    let bench = many();
    for (query, want, most) in [
        // Two walks in turn: along the filter's index and along the order.
        ("provision_state=active&limit=3", &[1990, 1980, 1970][..], 6),
        ("associated=true&limit=3", &[1990, 1980, 1970][..], 60),
        ("maintenance=true", &[7][..], 2),
        ("resource_class=gold", &[1999, 40][..], 5),
        ("resource_class=gold&sort_key=name", &[40, 1999][..], 5),
        // Three walks: the smallest index decides, and the other filters are checked.
        ("provision_state=active&resource_class=gold", &[40][..], 8),
        ("driver=redfish", &[][..], 2),
        ("owner=ann", &[][..], 2),
        // Not sorted by an index, but there are few records to sort.
        (
            "resource_class=gold&sort_key=created_at",
            &[1999, 40][..],
            2,
        ),
    ] {
        let (page, examined) = looked(&bench, query);
        assert_eq!(page, want, "{query}");
        assert!(examined <= most, "{query}: {examined}");
    }
}

#[test]
fn a_list_of_one_state_sorted_by_state_continues_after_a_marker_in_another_state() {
    let mut bench = ApiBench::new();
    for (number, state) in [
        (1, ProvisionState::Active),
        (2, ProvisionState::Available),
        (3, ProvisionState::Active),
    ] {
        bench.add(node_in(number, state));
    }
    let of = |marker: u8| {
        let marker = node_id(marker);
        format!("provision_state=active&sort_key=provision_state&marker={marker}")
    };
    check(&bench, &of(1), &[3]);
    check(&bench, &of(2), &[]);
    check(&bench, &format!("{}&sort_dir=desc", of(2)), &[3, 1]);
    check(&bench, &format!("{}&sort_dir=desc", of(3)), &[1]);
}
