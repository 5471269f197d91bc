//! `PUT /v1/nodes/<ident>/states/provision`: verbs and their arguments. `PUT
//! /trivet/nodes/<ident>/provision` is the same with a change of `instance_info` in the same order,
//! so that a refused verb changes nothing.
//!
//! The node's state table decides which verbs a state accepts; this file validates the form, the
//! version, and errors that the operator can still correct.

use std::sync::Arc;

use serde_json::{Value, json};
use trivet_drivers::InterfaceKind;
use trivet_model::node::JsonObject;
use trivet_model::order::VerbArgs;
use trivet_model::secret::SecretText;
use trivet_model::view::NodeView;
use trivet_model::{JobStep, Node, ProvisionState, RackOrder, Verb};

use super::{runbook, secrets, unlocked, validate, write};
use crate::ApiOutcome;
use crate::table::body;
use crate::table::call::{ApiCall, empty, order};
use crate::table::error::ApiFault;
use crate::table::field::ValueShape;
use crate::table::route::{ApiArg, ApiRoute, BodySchema, ResponseSchema, arg, required};

/// Most steps in one request. Ours.
pub(crate) const STEPS_MAX: usize = 64;

/// Longest list of steps, in bytes of JSON. Ours: it is stored in the record.
pub(crate) const STEPS_BYTES_MAX: usize = 12 * 1024;

/// Largest config drive, in bytes of JSON. Ours: it is stored in the record. A larger one must be
/// at a URL.
pub(crate) const CONFIGDRIVE_BYTES_MAX: usize = 24 * 1024;

/// Longest rescue password, in bytes. Ours: the time of hashing grows with its square.
pub(crate) const RESCUE_PASSWORD_BYTES_MAX: usize = 255;

/// The keys of the body, and the version of each.
pub(crate) const ARGUMENTS: &[ApiArg] = OWN_ARGUMENTS.split_at(1).1;

/// The same, after the one argument that only our own path has.
const OWN_ARGUMENTS: &[ApiArg] = &[
    arg("instance_info", 1, ValueShape::Object),
    required("target", 1, ValueShape::Text),
    arg("configdrive", 1, ValueShape::Any),
    arg("clean_steps", 15, ValueShape::List),
    arg("rescue_password", 38, ValueShape::Text),
    arg("deploy_steps", 69, ValueShape::List),
    arg("disable_ramdisk", 70, ValueShape::Flag),
    arg("service_steps", 87, ValueShape::List),
    arg("runbook", 92, ValueShape::Text),
];

/// Interfaces of clean and service steps.
const STEP_INTERFACES: [&str; 7] = [
    "bios",
    "deploy",
    "firmware",
    "management",
    "power",
    "raid",
    "vendor",
];

/// Our own path. It is outside `/v1` because Ironic's request has no `instance_info`.
pub(crate) const ROUTES: &[ApiRoute] = &[ApiRoute::new(
    "PUT",
    &["trivet", "nodes", "{node}", "provision"],
    1,
    "Deploy or rebuild, and change instance_info in the same order",
    |call| provision_with_instance_info(call, call.this()?),
)
.body(BodySchema::Args(OWN_ARGUMENTS))
.response(ResponseSchema::Empty(202))];

pub(crate) fn provision(call: &ApiCall<'_>, view: &NodeView) -> Result<ApiOutcome, ApiFault> {
    let object = body::args(call, ARGUMENTS)?;
    provision_order(call, view, &object, None)
}

/// The keys in `instance_info` replace the node's, null removes a key, other keys stay.
fn provision_with_instance_info(
    call: &ApiCall<'_>,
    view: &NodeView,
) -> Result<ApiOutcome, ApiFault> {
    let mut object = body::args(call, OWN_ARGUMENTS)?;
    let Some(Value::Object(changes)) = object.remove("instance_info") else {
        return provision_order(call, view, &object, None);
    };
    let stored = &view.node.instance_info;
    let mut info = stored.clone();
    for (key, value) in changes {
        if value.is_null() {
            info.remove(&key);
        } else {
            info.insert(key, value);
        }
    }
    let mut info = Value::Object(info);
    // A client that writes back a masked secret keeps the stored one.
    secrets::restore(&mut info, &Value::Object(stored.clone()));
    let mut node = Node::clone(&view.node);
    if let Value::Object(info) = info {
        node.instance_info = info;
    }
    write::check_size(&node)?;
    let instance_info = Some(node.instance_info.clone());
    let changed = NodeView {
        node: Arc::new(node),
        ..view.clone()
    };
    provision_order(call, &changed, &object, instance_info)
}

fn provision_order(
    call: &ApiCall<'_>,
    view: &NodeView,
    object: &JsonObject,
    instance_info: Option<JsonObject>,
) -> Result<ApiOutcome, ApiFault> {
    let node = &view.node;
    let target = body::text(object, "target")?;
    let target = target.ok_or_else(|| ApiFault::bad("target is required."))?;
    let verb: Verb = target.parse().map_err(|_| {
        let target = target.escape_debug();
        ApiFault::bad(format!(
            "The requested action \"{target}\" can not be performed on node \"{}\" while it is \
             in state \"{}\".",
            node.id, node.provision_state
        ))
    })?;
    check_versions(call, node, verb, object)?;
    let mut args = arguments(call, view, verb, object)?;
    if instance_info.is_some() && !deploys(verb) {
        return Err(ApiFault::bad(
            "\"instance_info\" is only valid when setting target provision state to active, \
             deploy or rebuild",
        ));
    }
    args.instance_info = instance_info;
    unlocked(call, node)?;
    check_possible(call, view, verb)?;
    let location = call.location(&format!("nodes/{}/states", node.id));
    let (node, based_on) = (node.id, Some(node.revision));
    order(
        RackOrder::Provision {
            node,
            verb,
            args,
            based_on,
        },
        empty(202, Some(location)),
    )
}

fn check_versions(
    call: &ApiCall<'_>,
    node: &Node,
    verb: Verb,
    object: &JsonObject,
) -> Result<(), ApiFault> {
    let since = match verb {
        Verb::Manage | Verb::Provide => 4,
        Verb::Inspect => 6,
        Verb::Abort => match node.provision_state {
            ProvisionState::DeployWait => 110,
            ProvisionState::InspectWait => 41,
            _ => 13,
        },
        Verb::Clean => 15,
        Verb::Adopt => 17,
        Verb::Rescue | Verb::Unrescue => 38,
        Verb::Deploy | Verb::Undeploy => 73,
        Verb::Unhold => 85,
        Verb::Service => 87,
        Verb::Active | Verb::Rebuild | Verb::Deleted => 1,
    };
    if !call.has(since) {
        return Err(ApiFault::too_new(&format!("the verb \"{verb}\""), since));
    }
    if verb == Verb::Rebuild && object.contains_key("configdrive") && !call.has(35) {
        return Err(ApiFault::too_new("configdrive with rebuild", 35));
    }
    Ok(())
}

const fn deploys(verb: Verb) -> bool {
    matches!(verb, Verb::Active | Verb::Deploy | Verb::Rebuild)
}

fn arguments(
    call: &ApiCall<'_>,
    view: &NodeView,
    verb: Verb,
    object: &JsonObject,
) -> Result<VerbArgs, ApiFault> {
    let misplaced = |name: &str, with: &str| {
        Err(ApiFault::bad(format!(
            "\"{name}\" is only valid when setting target provision state to {with}"
        )))
    };
    let mut args = VerbArgs::default();
    if let Some(drive) = object.get("configdrive") {
        if !deploys(verb) {
            return Err(ApiFault::bad(
                "Adding a config drive is only supported when setting provision state to active, \
                 rebuild",
            ));
        }
        args.configdrive = Some(configdrive(call, drive)?);
    }
    let mut disable_ramdisk = object.get("disable_ramdisk").and_then(Value::as_bool);
    if let Some(ident) = body::text(object, "runbook")? {
        for name in ["clean_steps", "service_steps"] {
            if object.contains_key(name) {
                return Err(ApiFault::bad(format!(
                    "Please provide either \"{name}\" or a runbook, but not both."
                )));
            }
        }
        let runbook_steps = runbook::read(call, view, verb, ident)?;
        args.steps = runbook_steps.steps;
        disable_ramdisk = Some(runbook_steps.disable_ramdisk);
    }
    check_ramdisk(call, verb, disable_ramdisk)?;
    args.disable_ramdisk = disable_ramdisk == Some(true);
    for (name, with) in [
        ("clean_steps", Verb::Clean),
        ("service_steps", Verb::Service),
    ] {
        match object.get(name) {
            Some(steps) if verb == with => args.steps = self::steps(name, steps, false)?,
            Some(_) => return misplaced(name, with.as_str()),
            None if verb == with && args.steps.is_empty() => {
                return Err(ApiFault::bad(format!(
                    "\"{name}\" is required when setting target provision state to {with}"
                )));
            }
            None => {}
        }
    }
    match object.get("deploy_steps") {
        Some(steps) if deploys(verb) => args.steps = self::steps("deploy_steps", steps, true)?,
        Some(_) => return misplaced("deploy_steps", "active or rebuild"),
        None => {}
    }
    match (body::text(object, "rescue_password")?, verb) {
        (Some(password), Verb::Rescue) if !password.trim().is_empty() => {
            if password.len() > RESCUE_PASSWORD_BYTES_MAX {
                return Err(ApiFault::bad(format!(
                    "A rescue_password has at most {RESCUE_PASSWORD_BYTES_MAX} bytes."
                )));
            }
            args.rescue_password = Some(SecretText::new(password));
        }
        (_, Verb::Rescue) => {
            return Err(ApiFault::bad(
                "A non-empty \"rescue_password\" is required when setting target provision state \
                 to rescue",
            ));
        }
        (Some(_), _) => return misplaced("rescue_password", "rescue"),
        (None, _) => {}
    }
    Ok(args)
}

/// Which verbs can run without the ramdisk; whether their steps can is decided by the node.
fn check_ramdisk(call: &ApiCall<'_>, verb: Verb, disable: Option<bool>) -> Result<(), ApiFault> {
    if disable.is_none() {
        return Ok(());
    }
    match verb {
        Verb::Clean => {}
        Verb::Service if call.has(108) => {}
        Verb::Service => {
            return Err(ApiFault::not_acceptable(
                "disable_ramdisk is not acceptable in this API version",
            ));
        }
        _ => {
            return Err(ApiFault::bad(
                "disable_ramdisk is supported only with manual cleaning or servicing",
            ));
        }
    }
    Ok(())
}

fn configdrive(call: &ApiCall<'_>, drive: &Value) -> Result<Value, ApiFault> {
    if drive.to_string().len() > CONFIGDRIVE_BYTES_MAX {
        return Err(ApiFault::bad(format!(
            "A configdrive has at most {CONFIGDRIVE_BYTES_MAX} bytes; put a larger one at a URL."
        )));
    }
    let object = match drive {
        Value::String(text) => {
            check_drive_text(text)?;
            return Ok(drive.clone());
        }
        Value::Object(object) => object,
        _ => return Err(ApiFault::bad("configdrive must be a string or an object.")),
    };
    if !call.has(56) {
        return Err(ApiFault::bad(
            "Providing a JSON object for configdrive is only supported starting with API version \
             1.56",
        ));
    }
    body::only(
        object,
        &["meta_data", "network_data", "user_data", "vendor_data"],
    )?;
    if object.contains_key("vendor_data") && !call.has(59) {
        return Err(ApiFault::bad(
            "Providing vendor_data in configdrive is only supported starting with API version 1.59",
        ));
    }
    for name in ["meta_data", "network_data", "vendor_data"] {
        if !matches!(
            object.get(name),
            None | Some(Value::Null | Value::Object(_))
        ) {
            return Err(ApiFault::bad(format!(
                "configdrive: {name} must be an object."
            )));
        }
    }
    match object.get("user_data") {
        None | Some(Value::Null | Value::String(_) | Value::Object(_) | Value::Array(_)) => {
            Ok(drive.clone())
        }
        Some(_) => Err(ApiFault::bad(
            "configdrive: user_data must be text, an object or a list.",
        )),
    }
}

/// A text is a URL or base64; other text is a mistake.
fn check_drive_text(text: &str) -> Result<(), ApiFault> {
    let base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=\n\r".contains(&byte);
    if text.contains("://") || text.bytes().all(base64) {
        return Ok(());
    }
    Err(ApiFault::bad(
        "Invalid configdrive format: it is neither a JSON, nor a URL, nor a base64 string",
    ))
}

/// The steps of a request. Deploy steps need all four keys, the others at least interface and step.
pub(crate) fn steps(name: &str, value: &Value, all: bool) -> Result<Vec<JobStep>, ApiFault> {
    let Value::Array(items) = value else {
        return Err(ApiFault::bad(format!("{name} must be a list.")));
    };
    if items.is_empty() || items.len() > STEPS_MAX {
        return Err(ApiFault::bad(format!(
            "{name} must have between 1 and {STEPS_MAX} steps."
        )));
    }
    if value.to_string().len() > STEPS_BYTES_MAX {
        return Err(ApiFault::bad(format!(
            "{name} has at most {STEPS_BYTES_MAX} bytes."
        )));
    }
    items.iter().map(|item| step(name, item, all)).collect()
}

fn step(name: &str, item: &Value, all: bool) -> Result<JobStep, ApiFault> {
    let bad = |why: &str| ApiFault::bad(format!("{name}: {why}"));
    let item = item
        .as_object()
        .ok_or_else(|| bad("a step must be an object."))?;
    let known: &[&str] = if all {
        &["interface", "step", "args", "priority"]
    } else {
        &["interface", "step", "args"]
    };
    body::only(item, known)?;
    let text = |key: &str| {
        let text = body::text(item, key)?.filter(|text| !text.is_empty());
        text.ok_or_else(|| bad(&format!("a step needs \"{key}\".")))
    };
    let (interface, step) = (text("interface")?, text("step")?);
    if !STEP_INTERFACES.contains(&interface) {
        let interface = interface.escape_debug();
        return Err(bad(&format!(
            "there are no steps of interface \"{interface}\"."
        )));
    }
    let args = match item.get("args") {
        Some(Value::Object(args)) => json!(args),
        None if !all => json!({}),
        _ => return Err(bad("args must be an object.")),
    };
    let priority = match item.get("priority") {
        Some(priority) => priority.as_i64().filter(|priority| *priority >= 0),
        None if !all => Some(0),
        None => None,
    };
    Ok(JobStep {
        step: step.to_owned(),
        interface: interface.to_owned(),
        priority: priority.ok_or_else(|| bad("priority must be a number, zero or above."))?,
        args,
        reboot_requested: false,
        abortable: false,
    })
}

/// Refuses requests that would fail later for a reason that is already known.
fn check_possible(call: &ApiCall<'_>, view: &NodeView, verb: Verb) -> Result<(), ApiFault> {
    let node = &view.node;
    let removes = matches!(verb, Verb::Deleted | Verb::Undeploy | Verb::Rebuild);
    if removes && node.attributes.protected {
        return Err(ApiFault::forbidden(format!(
            "Node {} is protected and cannot be undeployed, rebuilt or deleted",
            node.id
        )));
    }
    if deploys(verb) {
        if node.maintenance {
            return Err(ApiFault::bad(format!(
                "The provisioning operation can't be performed on node {} because it's in \
                 maintenance mode.",
                node.id
            )));
        }
        let reasons = [
            InterfaceKind::Power,
            InterfaceKind::Boot,
            InterfaceKind::Deploy,
        ]
        .map(|kind| validate::reason(call, view, kind));
        if let Some(reason) = reasons.into_iter().flatten().next() {
            return Err(ApiFault::bad(format!(
                "Failed to validate deploy or power info for node {}. Error: {reason}",
                node.id
            )));
        }
    }
    let by_agent = trivet_drivers::interface(node, InterfaceKind::Inspect) == "agent";
    if verb == Verb::Inspect
        && by_agent
        && let Some(reason) = validate::reason_not_to_inspect(call, view)
    {
        return Err(ApiFault::bad(format!(
            "Failed to validate inspection or power info for node {}. Error: {reason}",
            node.id
        )));
    }
    if verb == Verb::Provide && node.attributes.retired {
        return Err(ApiFault::bad(format!(
            "The providing operation can't be performed on node {} because it is retired.",
            node.id
        )));
    }
    let (kind, word) = match verb {
        Verb::Inspect => (InterfaceKind::Inspect, "inspect"),
        Verb::Rescue | Verb::Unrescue => (InterfaceKind::Rescue, "rescue"),
        _ => return Ok(()),
    };
    if trivet_drivers::is_off(node, kind) {
        return Err(ApiFault::unsupported(&node.driver, word));
    }
    Ok(())
}
