//! The node's fields: one row each, with its version.
//!
//! Every response of a version has the fields of this table; no other field is advertised.

use serde_json::{Value, json};
use trivet_agent_wire::image::{WRITE_IMAGE, write_image_args};
use trivet_drivers::InterfaceKind;
use trivet_model::node::JsonObject;
use trivet_model::view::NodeView;
use trivet_model::{JobStep, Node, ProvisionState, StepKind, secret};

use super::{is_locked, secrets};
use crate::ironic::drivers;
use crate::table::call::ApiCall;
use crate::table::field::{Field, FieldWrite, ValueShape, field, text, timestamp};

use FieldWrite::{Always, AtCreation, InPatch, Never};
use ValueShape::{Flag, Links, List, LongText, Object as Map, Text, Uuid};

/// Every field of a node, by name.
pub(crate) const FIELDS: &[Field<NodeView>] = &[
    field("allocation_uuid", 52, Uuid, Never, extra_field),
    field("automated_clean", 47, Flag, Always, |view, _, _| {
        json!(view.node.automated_clean)
    }),
    field("bios_interface", 40, Text, Always, interface),
    field("boot_interface", 31, Text, Always, interface),
    field("boot_mode", 75, Text, AtCreation, extra_field),
    field("chassis_uuid", 1, Uuid, Always, extra_field),
    field("clean_step", 7, Map, Never, |view, _, _| {
        step(view, StepKind::Clean)
    }),
    field("conductor", 49, Text, Never, |_, call, _| {
        json!(call.facts.hostname)
    }),
    field("conductor_group", 46, LongText, Always, |view, _, name| {
        view.node.attributes.get(name).unwrap_or_else(|| json!(""))
    }),
    field("console_enabled", 1, Flag, AtCreation, extra_flag),
    field("console_interface", 31, Text, Always, interface),
    field("created_at", 1, Text, Never, |view, _, _| {
        timestamp(Some(view.node.created_at))
    }),
    field("deploy_interface", 31, Text, Always, interface),
    field("deploy_step", 44, Map, Never, |view, _, _| {
        step(view, StepKind::Deploy)
    }),
    field("description", 51, LongText, Always, extra_field),
    field("disable_power_off", 95, Flag, Always, extra_flag),
    field("driver", 1, LongText, Always, |view, _, _| {
        json!(view.node.driver)
    }),
    field("driver_info", 1, Map, Always, |view, _, _| {
        driver_info(view)
    }),
    field("driver_internal_info", 3, Map, Never, |view, _, _| {
        internal_info(view)
    }),
    field("extra", 1, Map, Always, |view, _, _| json!(view.node.extra)),
    field("fault", 42, Text, Never, |view, _, _| {
        text(view.node.fault.as_deref())
    }),
    field("firmware_interface", 86, Text, Always, interface),
    field("health", 109, Text, Never, |view, _, _| health(view)),
    field("inspect_interface", 31, Text, Always, interface),
    field("inspection_finished_at", 6, Text, Never, |view, _, _| {
        timestamp(view.node.inspection_finished_at)
    }),
    field("inspection_started_at", 6, Text, Never, |view, _, _| {
        timestamp(view.node.inspection_started_at)
    }),
    field("instance_info", 1, Map, Always, |view, _, _| {
        Value::Object(secrets::instance_info(&view.node.instance_info))
    }),
    field("instance_name", 104, Text, Always, extra_field),
    field("instance_uuid", 1, Uuid, Always, |view, _, _| {
        text(view.node.instance_uuid.as_deref())
    }),
    field("last_error", 1, Text, Never, |view, _, _| {
        text(view.node.last_error.as_deref())
    }),
    field("lessee", 65, Text, Always, extra_field),
    field("links", 1, Links, Never, |view, _, _| {
        Value::String(format!("nodes/{}", view.node.id))
    }),
    field("maintenance", 1, Flag, Always, |view, _, _| {
        json!(view.node.maintenance)
    }),
    field("maintenance_reason", 1, Text, Never, |view, _, _| {
        text(view.node.maintenance_reason.as_deref())
    }),
    field("management_interface", 31, Text, Always, interface),
    field("name", 5, Text, Always, |view, _, _| {
        text(view.node.name.as_deref())
    }),
    field("network_data", 66, Map, Always, extra_object),
    field("network_interface", 20, Text, Always, interface),
    field("owner", 50, Text, Always, extra_field),
    field("parent_node", 83, Text, Always, extra_field),
    field("portgroups", 24, Links, Never, subresource_path),
    field("ports", 1, Links, Never, subresource_path),
    field("power_interface", 31, Text, Always, interface),
    field("power_state", 1, Text, Never, |view, _, _| {
        json!(view.node.power_state)
    }),
    field("properties", 1, Map, Always, |view, _, _| {
        json!(view.node.properties)
    }),
    field("protected", 48, Flag, InPatch, extra_flag),
    field("protected_reason", 48, LongText, InPatch, extra_field),
    field("provision_state", 1, Text, Never, |view, call, _| {
        state(call, Some(view.node.provision_state))
    }),
    field("provision_updated_at", 1, Text, Never, |view, _, _| {
        timestamp(view.node.provision_updated_at)
    }),
    field("raid_config", 12, Map, Never, extra_object),
    field("raid_interface", 31, Text, Always, interface),
    field("rescue_interface", 38, Text, Always, interface),
    field("reservation", 1, Text, Never, |view, call, _| {
        text(is_locked(&view.node).then_some(call.facts.hostname.as_str()))
    }),
    field("resource_class", 21, Text, Always, |view, _, _| {
        text(view.node.resource_class.as_deref())
    }),
    field("retired", 61, Flag, Always, extra_flag),
    field("retired_reason", 61, LongText, Always, extra_field),
    field("secure_boot", 75, Flag, AtCreation, extra_field),
    field("service_step", 87, Map, Never, |view, _, _| {
        step(view, StepKind::Service)
    }),
    field("shard", 82, Text, Always, extra_field),
    field("states", 14, Links, Never, subresource_path),
    field("storage_interface", 33, Text, Always, interface),
    field("target_power_state", 1, Text, Never, |view, _, _| {
        json!(view.node.target_power_state)
    }),
    field("target_provision_state", 1, Text, Never, |view, call, _| {
        state(call, view.node.target_provision_state)
    }),
    field("target_raid_config", 12, Map, Never, extra_object),
    field("traits", 37, List, Never, |view, _, name| {
        view.node.attributes.get(name).unwrap_or_else(|| json!([]))
    }),
    field("updated_at", 1, Text, Never, |view, _, _| {
        timestamp(view.node.updated_at)
    }),
    field("uuid", 1, Uuid, AtCreation, |view, _, _| {
        json!(view.node.id.to_string())
    }),
    field("vendor_interface", 31, Text, Always, interface),
    field("volume", 32, Links, Never, subresource_path),
];

/// What the BMC reported; only Redfish does.
fn health(view: &NodeView) -> Value {
    json!(view.live.health)
}

fn extra_field(view: &NodeView, _: &ApiCall<'_>, name: &'static str) -> Value {
    view.node.attributes.get(name).unwrap_or(Value::Null)
}

fn extra_flag(view: &NodeView, _: &ApiCall<'_>, name: &'static str) -> Value {
    Value::Bool(view.node.attributes.get(name) == Some(Value::Bool(true)))
}

fn extra_object(view: &NodeView, _: &ApiCall<'_>, name: &'static str) -> Value {
    let stored = view.node.attributes.get(name);
    stored.unwrap_or_else(|| json!({}))
}

fn subresource_path(view: &NodeView, _: &ApiCall<'_>, name: &'static str) -> Value {
    Value::String(format!("nodes/{}/{name}", view.node.id))
}

fn shown(object: &JsonObject) -> Value {
    Value::Object(secret::masked(object))
}

/// The selected interface, or the hardware type's default; null if the hardware type is not
/// enabled.
pub(crate) fn interface(view: &NodeView, call: &ApiCall<'_>, name: &'static str) -> Value {
    let enabled = drivers::enabled(call, &view.node.driver).is_some();
    match InterfaceKind::named(name).filter(|_| enabled) {
        Some(kind) => json!(trivet_drivers::interface(&view.node, kind)),
        None => view.node.attributes.get(name).unwrap_or(Value::Null),
    }
}

/// A state with its name in the request's version.
pub(crate) fn state(call: &ApiCall<'_>, state: Option<ProvisionState>) -> Value {
    match state {
        Some(ProvisionState::Available) if !call.has(2) => Value::Null,
        Some(ProvisionState::InspectWait) if !call.has(39) => {
            json!(ProvisionState::Inspecting)
        }
        other => json!(other),
    }
}

/// The agent's data that are also in `driver_info`, where the first clients expect them.
pub(super) const AGENT_SHOWN: [&str; 2] = ["agent_url", "agent_last_heartbeat"];

/// The URL of the present agent and the time of its last heartbeat. That time is in memory only: a
/// heartbeat changes no record.
fn agent(view: &NodeView) -> impl Iterator<Item = (String, Value)> {
    let url = view.node.agent.as_ref().and_then(|agent| agent.url.clone());
    let received = view.live.heartbeat_at.filter(|_| url.is_some());
    let [url_field, heartbeat_field] = AGENT_SHOWN.map(str::to_owned);
    let received = received.map(|at| (heartbeat_field, timestamp(Some(at))));
    let url = url.map(|url| (url_field, Value::from(url)));
    url.into_iter().chain(received)
}

/// As stored, with the agent's data that the first clients expect there.
fn driver_info(view: &NodeView) -> Value {
    let mut info = shown(&view.node.driver_info);
    if let Value::Object(info) = &mut info {
        info.extend(agent(view));
    }
    info
}

/// The stored data, and, as in Ironic, the steps of the present job and the index of the present
/// one: clients show their progress from these.
fn internal_info(view: &NodeView) -> Value {
    let mut info = view.node.shown_internal_info();
    info.extend(agent(view));
    if let Some(agent) = &view.node.agent {
        let version = agent.version.clone().map(Value::from);
        info.extend(version.map(|version| ("agent_version".to_owned(), version)));
        info.insert("agent_secret_token".to_owned(), secret::MASK.into());
    }
    let job = view.node.job.as_ref().filter(|job| !job.steps.is_empty());
    if let Some(job) = job
        && let Some(kind) = job.step_kind
    {
        let steps: Vec<Value> = job
            .steps
            .iter()
            .map(|step| shown_step(&view.node, step))
            .collect();
        info.insert(format!("{kind}_steps"), Value::Array(steps));
        info.insert(format!("{kind}_step_index"), json!(job.at));
    }
    Value::Object(info)
}

/// The present step, in the field of its kind.
fn step(view: &NodeView, kind: StepKind) -> Value {
    let job = view
        .node
        .job
        .as_ref()
        .filter(|job| job.step_kind == Some(kind));
    let step = job.and_then(|job| job.steps.get(job.at as usize));
    step.map_or_else(|| json!({}), |step| shown_step(&view.node, step))
}

fn shown_step(node: &Node, step: &JobStep) -> Value {
    let deployment = node.deployment().filter(|_| step.step == WRITE_IMAGE);
    let own = || step.args.clone();
    let shown_args = deployment.map_or_else(own, |image| write_image_args(image, node.id));
    let mut args = JsonObject::new();
    args.insert("args".into(), shown_args);
    let mut shown = secret::masked(&args);
    shown.insert("step".into(), json!(step.step));
    shown.insert("interface".into(), json!(step.interface));
    shown.insert("priority".into(), json!(step.priority));
    Value::Object(shown)
}
