//! Hardware types with their interfaces, and the one conductor: this box.

use serde_json::{Value, json};
use trivet_drivers::{HardwareTypeSpec, InterfaceKind};
use trivet_model::UnixMs;
use trivet_model::node::JsonObject;

use crate::ApiOutcome;
use crate::ironic::nodes::raid;
use crate::ironic::passthru;
use crate::table::call::{ApiCall, reply};
use crate::table::error::ApiFault;
use crate::table::field::{self, Field, FieldWrite, ValueShape, field, quoted, timestamp};
use crate::table::list::{
    self, FIELDS_QUERY_ARGS, LIST_QUERY_ARGS, ListKind, ListRecord, RecordWalk, requested_names,
};
use crate::table::route::{ApiRoute, arg};
use FieldWrite::Never;

/// The enabled hardware type with this name or this older name.
pub(crate) fn enabled(call: &ApiCall<'_>, name: &str) -> Option<&'static HardwareTypeSpec> {
    let hardware = trivet_drivers::named(name)?;
    let enabled = call
        .facts
        .drivers
        .iter()
        .any(|driver| driver == hardware.name);
    enabled.then_some(hardware)
}

fn shown(hardware: &HardwareTypeSpec, call: &ApiCall<'_>, detail: bool) -> JsonObject {
    let name = hardware.name;
    let mut shown = JsonObject::new();
    shown.insert("name".into(), name.into());
    shown.insert("hosts".into(), json!([call.facts.hostname]));
    shown.insert("links".into(), call.links(&format!("drivers/{name}")));
    if call.has(14) {
        let properties = call.links(&format!("drivers/{name}/properties"));
        shown.insert("properties".into(), properties);
    }
    if call.has(30) {
        shown.insert("type".into(), "dynamic".into());
    }
    for kind in InterfaceKind::ALL {
        // Nodes have these fields from 1.31 on, drivers one version earlier.
        let since = if kind.since() == 31 { 30 } else { kind.since() };
        if detail && call.has(30) && call.has(since) {
            let (word, interfaces) = (kind.as_str(), hardware.interfaces(kind));
            let default = json!(interfaces.first());
            shown.insert(format!("default_{word}_interface"), default);
            shown.insert(format!("enabled_{word}_interfaces"), json!(interfaces));
        }
    }
    shown
}

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get(&["v1", "drivers"], 1, "List hardware types", list).query_args(&[&[
        arg("type", 30, ValueShape::Word(&["classic", "dynamic"])),
        arg("detail", 30, ValueShape::Flag),
        arg("fields", 77, ValueShape::Text),
    ]]),
    ApiRoute::get(&["v1", "drivers", "{driver}"], 1, "Show one", |call| {
        let shown = shown(named(call, call.last())?, call, true);
        reply(&Value::Object(chosen(call, shown)?))
    })
    .query_args(&[&[arg("fields", 77, ValueShape::Text)]]),
    ApiRoute::get(
        &["v1", "drivers", "{driver}", "properties"],
        1,
        "List its driver_info keys",
        |call| {
            let properties = named(call, call.word(2))?.properties();
            let shown: JsonObject = properties
                .map(|(key, text)| (key.to_owned(), Value::from(text)))
                .collect();
            reply(&Value::Object(shown))
        },
    ),
    ApiRoute::get(
        &[
            "v1",
            "drivers",
            "{driver}",
            "raid",
            "logical_disk_properties",
        ],
        12,
        "List the properties of a logical disk",
        |call| {
            let hardware = named(call, call.word(2))?;
            if hardware.interfaces(InterfaceKind::Raid) == ["no-raid"] {
                return Err(ApiFault::unsupported(hardware.name, "raid"));
            }
            let shown = raid::PROPERTIES.map(|(key, text)| (key.to_owned(), Value::from(text)));
            reply(&Value::Object(shown.into_iter().collect()))
        },
    ),
    ApiRoute::get(
        &["v1", "drivers", "{driver}", "vendor_passthru", "methods"],
        1,
        "List vendor passthru methods",
        |call| {
            named(call, call.word(2))?;
            reply(&passthru::driver_methods())
        },
    ),
    ApiRoute::get(
        &["v1", "conductors"],
        49,
        "List conductors: this box",
        conductors,
    )
    .query_args(&[LIST_QUERY_ARGS]),
    ApiRoute::get(
        &["v1", "conductors", "{host}"],
        49,
        "Show one",
        one_conductor,
    )
    .query_args(&[FIELDS_QUERY_ARGS]),
    ApiRoute::get(
        &["v1", "shards"],
        82,
        "Count the nodes of each shard",
        shards,
    ),
];

fn named(call: &ApiCall<'_>, name: &str) -> Result<&'static HardwareTypeSpec, ApiFault> {
    enabled(call, name).ok_or_else(|| {
        ApiFault::not_found(format!(
            "Could not find the following driver(s) or hardware type(s): {}.",
            name.escape_debug()
        ))
    })
}

fn list(call: &ApiCall<'_>) -> Result<ApiOutcome, ApiFault> {
    let detail = call.query.flag("detail")?.unwrap_or(false);
    let none = match call.query.last("type") {
        None | Some("dynamic") => false,
        Some("classic") => true,
        Some(_) => return Err(ApiFault::bad("type must be classic or dynamic.")),
    };
    if detail && call.query.last("fields").is_some() {
        return Err(ApiFault::bad(
            "Can not specify ?detail=True and fields in the same request.",
        ));
    }
    let mut drivers = Vec::new();
    for hardware in call.facts.drivers.iter().filter(|_| !none) {
        if let Some(hardware) = enabled(call, hardware) {
            let all = detail || call.query.last("fields").is_some();
            drivers.push(Value::Object(chosen(call, shown(hardware, call, all))?));
        }
    }
    reply(&json!({ "drivers": drivers }))
}

/// Only the fields in `fields=`, and the links.
fn chosen(call: &ApiCall<'_>, mut shown: JsonObject) -> Result<JsonObject, ApiFault> {
    let Some(names) = requested_names(call) else {
        return Ok(shown);
    };
    if let Some(strange) = names.iter().find(|name| !shown.contains_key(*name)) {
        let known: Vec<String> = shown.keys().map(|name| format!("'{name}'")).collect();
        return Err(ApiFault::bad(format!(
            "Schema error: {} is not one of [{}]: there is no such field.",
            quoted(&Value::from(strange.as_str())),
            known.join(", ")
        )));
    }
    shown.retain(|name, _| names.contains(name));
    Ok(shown)
}

/// The one conductor: what it shows is in the facts of the box.
struct ConductorRecord {
    hostname: String,
}

impl ListRecord for ConductorRecord {
    fn uuid(&self) -> String {
        self.hostname.clone()
    }

    fn serial(&self) -> u64 {
        0
    }
}

const CONDUCTOR_FIELDS: &[Field<ConductorRecord>] = &[
    field("alive", 49, ValueShape::Flag, Never, |_, _, _| json!(true)),
    field("conductor_group", 49, ValueShape::Text, Never, |_, _, _| {
        json!("")
    }),
    field("created_at", 49, ValueShape::Text, Never, |_, call, _| {
        known(call.facts.started_at)
    }),
    field("drivers", 49, ValueShape::List, Never, |_, call, _| {
        json!(call.facts.drivers)
    }),
    field("hostname", 49, ValueShape::Text, Never, |record, _, _| {
        json!(record.hostname)
    }),
    field("links", 49, ValueShape::Links, Never, |record, _, _| {
        Value::String(format!("conductors/{}", record.hostname))
    }),
    field("updated_at", 49, ValueShape::Text, Never, |_, call, _| {
        known(call.now)
    }),
];

const CONDUCTORS: ListKind<ConductorRecord> = ListKind {
    name: "conductors",
    table: CONDUCTOR_FIELDS,
    short: &["hostname", "conductor_group", "alive", "links"],
    detail_of_all_versions: false,
};

fn known(at: UnixMs) -> Value {
    timestamp(Some(at).filter(|at| *at != UnixMs::default()))
}

fn conductor(call: &ApiCall<'_>) -> ConductorRecord {
    ConductorRecord {
        hostname: call.facts.hostname.clone(),
    }
}

fn conductors(call: &ApiCall<'_>) -> Result<ApiOutcome, ApiFault> {
    let ours = conductor(call);
    let missing = |name: &&str| **name != ours.hostname;
    if let Some(name) = call
        .query
        .last("marker")
        .as_ref()
        .filter(|name| missing(name))
    {
        return Err(no_conductor(name));
    }
    list::page(
        call,
        &CONDUCTORS,
        |_| vec![RecordWalk::new(core::iter::once(&ours), false)],
        |_| true,
        |_| Some(&ours),
        false,
    )
}

fn no_conductor(name: &str) -> ApiFault {
    let name = name.escape_debug();
    ApiFault::not_found(format!("Conductor {name} could not be found."))
}

fn one_conductor(call: &ApiCall<'_>) -> Result<ApiOutcome, ApiFault> {
    if call.last() != call.facts.hostname {
        return Err(no_conductor(call.last()));
    }
    let fields = match list::requested_fields(CONDUCTOR_FIELDS, call)? {
        Some(fields) => fields,
        None => field::available_fields(CONDUCTOR_FIELDS, call),
    };
    reply(&Value::Object(field::render(
        &fields,
        &conductor(call),
        call,
    )))
}

fn shards(call: &ApiCall<'_>) -> Result<ApiOutcome, ApiFault> {
    let mut counts = std::collections::BTreeMap::<&str, u64>::new();
    for node in call.view.nodes.values() {
        let shard = node.node.attributes.shard.as_deref();
        *counts.entry(shard.unwrap_or("None")).or_default() += 1;
    }
    let shards: Vec<Value> = counts
        .into_iter()
        .map(|(name, count)| json!({"name": name, "count": count}))
        .collect();
    reply(&json!({ "shards": shards }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{ApiBench, get};

    #[test]
    fn enabled_types_are_listed_short_and_long() {
        let bench = ApiBench::new();
        let short = bench.reply(&get("/v1/drivers").at("1.110")).value();
        assert_eq!(short["drivers"].as_array().unwrap().len(), 2);
        assert_eq!(short["drivers"][0]["name"], "ipmi");
        assert_eq!(short["drivers"][0]["hosts"], json!(["box"]));
        assert!(short["drivers"][0].get("default_boot_interface").is_none());
        let long = bench
            .reply(&get("/v1/drivers?detail=True").at("1.110"))
            .value();
        assert_eq!(long["drivers"][0]["default_boot_interface"], "ipxe");
        assert_eq!(
            long["drivers"][0]["enabled_inspect_interfaces"],
            json!(["agent", "no-inspect"])
        );
        let classic = bench
            .reply(&get("/v1/drivers?type=classic").at("1.110"))
            .value();
        assert_eq!(classic, json!({"drivers": []}));
    }

    #[test]
    fn a_type_that_is_not_enabled_does_not_exist() {
        let mut bench = ApiBench::new();
        assert_eq!(
            bench.reply(&get("/v1/drivers/ipmi").at("1.110")).status,
            200
        );
        bench.facts.drivers = vec!["fake-hardware".into()];
        assert_eq!(
            bench.reply(&get("/v1/drivers/ipmi").at("1.110")).status,
            404
        );
        assert_eq!(bench.reply(&get("/v1/drivers/nonesuch")).status, 404);
    }

    #[test]
    fn an_older_name_shows_the_present_hardware_type() {
        let bench = ApiBench::new();
        let shown = bench.reply(&get("/v1/drivers/agent_ipmitool").at("1.110"));
        assert_eq!(shown.value()["name"], "ipmi");
        assert_eq!(bench.reply(&get("/v1/drivers/agent_ssh")).status, 404);
    }

    #[test]
    fn every_kind_of_interface_shows_from_its_version_on() {
        let shown = ApiBench::new()
            .reply(&get("/v1/drivers/ipmi").at("1.110"))
            .value();
        for kind in InterfaceKind::ALL {
            let word = kind.as_str();
            assert!(
                shown[format!("default_{word}_interface")].is_string(),
                "{word}"
            );
        }
        let older = ApiBench::new()
            .reply(&get("/v1/drivers/ipmi").at("1.39"))
            .value();
        assert!(older.get("default_bios_interface").is_none());
        assert!(older.get("default_boot_interface").is_some());
        let oldest = |version| {
            ApiBench::new()
                .reply(&get("/v1/drivers/ipmi").at(version))
                .value()
        };
        assert!(oldest("1.30").get("default_boot_interface").is_some());
        assert!(oldest("1.29").get("default_network_interface").is_none());
    }

    #[test]
    fn fields_choose_among_all() {
        let bench = ApiBench::new();
        let path = "/v1/drivers?fields=name,default_boot_interface";
        let body = bench.reply(&get(path).at("1.110")).value();
        let keys: Vec<&String> = body["drivers"][0].as_object().unwrap().keys().collect();
        assert_eq!(keys, ["default_boot_interface", "links", "name"]);
        let strange = get("/v1/drivers?fields=colour").at("1.110");
        assert_eq!(bench.reply(&strange).status, 400);
    }

    #[test]
    fn properties_describe_driver_info() {
        let body = ApiBench::new()
            .reply(&get("/v1/drivers/ipmi/properties"))
            .value();
        assert!(body["ipmi_address"].as_str().unwrap().contains("Required"));
    }

    #[test]
    fn vendor_methods_are_listed() {
        let bench = ApiBench::new();
        let methods = get("/v1/drivers/ipmi/vendor_passthru/methods");
        let listed = bench.reply(&methods).value();
        assert_eq!(listed.as_object().unwrap().len(), 1);
        assert_eq!(listed["lookup"]["http_methods"], json!(["POST"]));
        let call = bench.reply(&get("/v1/drivers/ipmi/vendor_passthru?method=dance"));
        assert_eq!(call.status, 400);
        assert_eq!(call.fault()["faultstring"], "No handler for method dance");
    }

    #[test]
    fn the_page_after_the_only_conductor_is_empty() {
        let bench = ApiBench::new();
        let first = bench
            .reply(&get("/v1/conductors?limit=1").at("1.49"))
            .value();
        assert_eq!(first["conductors"].as_array().unwrap().len(), 1);
        let next = "http://box:6385/v1/conductors?limit=1&marker=box";
        assert_eq!(first["next"], next);
        let path = next.strip_prefix("http://box:6385").unwrap();
        let second = bench.reply(&get(path).at("1.49")).value();
        assert_eq!(second, json!({"conductors": []}));
    }

    #[test]
    fn conductors_are_listed_like_other_records() {
        let bench = ApiBench::new();
        for (query, status) in [
            ("limit=x", 400),
            ("marker=other", 404),
            ("sort_dir=up", 400),
            ("sort_key=alive", 400),
            ("sort_key=drivers", 400),
            ("fields=colour", 400),
            ("sort_key=hostname&limit=1", 200),
        ] {
            let path = format!("/v1/conductors?{query}");
            assert_eq!(
                bench.reply(&get(&path).at("1.49")).status,
                status,
                "{query}"
            );
        }
    }

    #[test]
    fn this_box_is_the_one_conductor() {
        let bench = ApiBench::new();
        let list = bench.reply(&get("/v1/conductors").at("1.49")).value();
        assert_eq!(list["conductors"][0]["hostname"], "box");
        assert_eq!(list["conductors"][0]["alive"], true);
        let one = bench.reply(&get("/v1/conductors/box").at("1.49")).value();
        assert_eq!(one["drivers"], json!(["ipmi", "fake-hardware"]));
        assert_eq!(
            bench.reply(&get("/v1/conductors/other").at("1.49")).status,
            404
        );
        assert_eq!(bench.reply(&get("/v1/conductors").at("1.48")).status, 404);
    }
}
