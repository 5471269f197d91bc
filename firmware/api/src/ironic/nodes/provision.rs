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
use crate::table::field::{self, ValueShape};
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
    let object = body::args_of_any_version(call, ARGUMENTS)?;
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
    // Ironic's order of checks: it decides the error for a request with two mistakes.
    check_since(call, verb, &VERBS_SINCE)?;
    if matches!(verb, Verb::Active | Verb::Rebuild) && node.maintenance {
        return Err(in_maintenance(node));
    }
    if let Err(refusal) = trivet_node::check_state(node, verb) {
        unlocked(call, node)?;
        return Err(ApiFault::bad(refusal.sentence));
    }
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

/// Verbs whose version is compared first, with the version of each.
const VERBS_SINCE: [(Verb, u16); 10] = [
    (Verb::Manage, 4),
    (Verb::Provide, 4),
    (Verb::Inspect, 6),
    (Verb::Abort, 13),
    (Verb::Clean, 15),
    (Verb::Adopt, 17),
    (Verb::Rescue, 38),
    (Verb::Unrescue, 38),
    (Verb::Deploy, 73),
    (Verb::Undeploy, 73),
];

/// Those whose version is compared last, after the state and the arguments.
const LATER_VERBS_SINCE: [(Verb, u16); 2] = [(Verb::Unhold, 85), (Verb::Service, 87)];

fn check_since(call: &ApiCall<'_>, verb: Verb, table: &[(Verb, u16)]) -> Result<(), ApiFault> {
    match table
        .iter()
        .find(|(one, since)| *one == verb && !call.has(*since))
    {
        Some((verb, since)) => Err(ApiFault::too_new(&format!("the verb \"{verb}\""), *since)),
        None => Ok(()),
    }
}

/// The version from which on this state can be aborted.
fn check_abort(call: &ApiCall<'_>, node: &Node) -> Result<(), ApiFault> {
    let since = match node.provision_state {
        ProvisionState::DeployWait => 110,
        ProvisionState::InspectWait => 41,
        _ => return Ok(()),
    };
    check_since(call, Verb::Abort, &[(Verb::Abort, since)])
}

const fn deploys(verb: Verb) -> bool {
    matches!(verb, Verb::Active | Verb::Deploy | Verb::Rebuild)
}

fn in_maintenance(node: &Node) -> ApiFault {
    ApiFault::bad(format!(
        "The provisioning operation can't be performed on node {} because it's in maintenance \
         mode.",
        node.id
    ))
}

fn misplaced(name: &str, with: &str) -> ApiFault {
    ApiFault::bad(format!(
        "\"{name}\" is only valid when setting target provision state to {with}"
    ))
}

fn arguments(
    call: &ApiCall<'_>,
    view: &NodeView,
    verb: Verb,
    object: &JsonObject,
) -> Result<VerbArgs, ApiFault> {
    let mut args = VerbArgs::default();
    if let Some(drive) = object.get("configdrive").filter(|drive| !is_blank(drive)) {
        let late = verb == Verb::Rebuild && !call.has(35);
        if !matches!(verb, Verb::Active | Verb::Rebuild) || late {
            return Err(ApiFault::bad(format!(
                "Adding a config drive is only supported when setting provision state to {}",
                if call.has(35) {
                    "active, rebuild"
                } else {
                    "active"
                }
            )));
        }
        args.configdrive = Some(configdrive(call, drive)?);
    }
    let mut disable_ramdisk = object.get("disable_ramdisk").and_then(Value::as_bool);
    if let Some(ident) = body::text(object, "runbook")?.filter(|ident| !ident.is_empty()) {
        let runbook_steps = runbook_steps(call, view, verb, object, ident)?;
        args.steps = runbook_steps.steps;
        disable_ramdisk = Some(runbook_steps.disable_ramdisk);
    }
    check_ramdisk(call, verb, disable_ramdisk)?;
    args.disable_ramdisk = disable_ramdisk == Some(true);
    let steps = |name: &str| object.get(name).filter(|steps| !is_blank(steps));
    if steps("clean_steps").is_some() && verb != Verb::Clean {
        return Err(misplaced("clean_steps", "clean"));
    }
    if steps("deploy_steps").is_some() {
        if !call.has(69) {
            return Err(ApiFault::too_new("deploy_steps", 69));
        }
        if !matches!(verb, Verb::Active | Verb::Rebuild) {
            return Err(misplaced("deploy_steps", "active or rebuild"));
        }
    }
    let password = body::text(object, "rescue_password")?;
    if password.is_some() && verb != Verb::Rescue {
        return Err(misplaced("rescue_password", "rescue"));
    }
    if verb == Verb::Abort {
        check_abort(call, &view.node)?;
    }
    if steps("service_steps").is_some() && verb != Verb::Service {
        return Err(misplaced("service_steps", "service"));
    }
    check_since(call, verb, &LATER_VERBS_SINCE)?;
    match verb {
        Verb::Rescue => args.rescue_password = Some(rescue_password(password)?),
        Verb::Clean | Verb::Service if args.steps.is_empty() => {
            args.steps = needed_steps(verb, steps(&format!("{verb}_steps")))?;
        }
        _ => {
            if let Some(wanted) = steps("deploy_steps") {
                args.steps = self::steps("deploy_steps", wanted, true)?;
            }
        }
    }
    Ok(args)
}

/// The steps that cleaning and servicing cannot do without.
fn needed_steps(verb: Verb, wanted: Option<&Value>) -> Result<Vec<JobStep>, ApiFault> {
    let name = format!("{verb}_steps");
    let wanted = wanted.ok_or_else(|| {
        ApiFault::bad(format!(
            "\"{name}\" is required when setting target provision state to {verb}"
        ))
    })?;
    steps(&name, wanted, false)
}

/// Empty texts, lists and objects count as absent.
fn is_blank(value: &Value) -> bool {
    match value {
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(object) => object.is_empty(),
        _ => false,
    }
}

fn runbook_steps(
    call: &ApiCall<'_>,
    view: &NodeView,
    verb: Verb,
    object: &JsonObject,
    ident: &str,
) -> Result<runbook::RunbookSteps, ApiFault> {
    if !call.has(92) {
        return Err(ApiFault::too_new("runbook", 92));
    }
    let read = runbook::read(call, view, verb, ident)?;
    let name = format!("{verb}_steps");
    if object.get(&name).is_some_and(|steps| !is_blank(steps)) {
        return Err(ApiFault::bad(format!(
            "Please provide either \"{name}\" or a runbook, but not both."
        )));
    }
    Ok(read)
}

fn rescue_password(password: Option<&str>) -> Result<SecretText, ApiFault> {
    let password = password.filter(|password| !password.trim().is_empty());
    let password = password.ok_or_else(|| {
        ApiFault::bad(
            "A non-empty \"rescue_password\" is required when setting target provision state to \
             rescue",
        )
    })?;
    if password.len() > RESCUE_PASSWORD_BYTES_MAX {
        return Err(ApiFault::bad(format!(
            "A rescue_password has at most {RESCUE_PASSWORD_BYTES_MAX} bytes."
        )));
    }
    Ok(SecretText::new(password))
}

/// Which verbs can run without the ramdisk; whether their steps can is decided by the node.
fn check_ramdisk(call: &ApiCall<'_>, verb: Verb, disable: Option<bool>) -> Result<(), ApiFault> {
    if disable.is_none() {
        return Ok(());
    }
    match verb {
        Verb::Clean if call.has(70) => {}
        Verb::Service if call.has(108) => {}
        Verb::Clean | Verb::Service => {
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
    let bad = |why: &str| ApiFault::bad(format!("Invalid {name}: {why}"));
    let not_of = |value: &Value, kind: &str| {
        let shown = field::quoted(value);
        bad(&format!("{shown} is not of type '{kind}'"))
    };
    let item = item.as_object().ok_or_else(|| not_of(item, "object"))?;
    let known = ["interface", "step", "args", "priority"];
    let known = &known[..if all { 4 } else { 3 }];
    if let Some(strange) = item.keys().find(|key| !known.contains(&key.as_str())) {
        let strange = strange.escape_debug();
        return Err(bad(&format!(
            "Additional properties are not allowed ('{strange}' was unexpected)"
        )));
    }
    let required = &known[..if all { 4 } else { 2 }];
    if let Some(missing) = required.iter().find(|key| !item.contains_key(**key)) {
        return Err(bad(&format!(
            "'{missing}' is a required property of a step"
        )));
    }
    let interface = item["interface"].as_str().unwrap_or_default();
    if !STEP_INTERFACES.contains(&interface) {
        let shown = field::quoted(&item["interface"]);
        return Err(bad(&format!(
            "{shown} is not one of {STEP_INTERFACES:?}: there are no steps of that interface"
        )));
    }
    let step = match &item["step"] {
        Value::String(step) if !step.is_empty() => step.clone(),
        Value::String(_) => return Err(bad("'' is too short: step is a name")),
        other => return Err(not_of(other, "string")),
    };
    let args = match item.get("args") {
        Some(Value::Object(args)) => json!(args),
        None => json!({}),
        Some(other) => return Err(not_of(other, "object")),
    };
    Ok(JobStep {
        step,
        interface: interface.to_owned(),
        priority: priority(item.get("priority")).map_err(|why| bad(&why))?,
        args,
        reboot_requested: false,
        abortable: false,
    })
}

/// The priority of a step: a number, or digits.
fn priority(value: Option<&Value>) -> Result<i64, String> {
    let number = match value {
        None => Some(0),
        Some(Value::String(digits)) => digits.parse::<u32>().ok().map(i64::from),
        Some(other) => other.as_i64().filter(|priority| *priority >= 0),
    };
    number.ok_or_else(|| {
        let shown = field::quoted(value.unwrap_or(&Value::Null));
        format!(
            "{shown} is not valid under any of the given schemas: priority must be a number, \
             zero or above"
        )
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
            return Err(in_maintenance(node));
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
