//! `/v1/nodes/<ident>/states`: reads the states, and requests power changes.

use serde_json::{Value, json};
use trivet_drivers::{HardwareCapability, InterfaceKind, can, is_fake};
use trivet_model::attributes::NodeAttributes;
use trivet_model::bmc_request::BootMode;
use trivet_model::order::PowerWanted;
use trivet_model::view::NodeView;
use trivet_model::{BmcRequest, Node, PowerState, ProvisionState, RackOrder};

use super::fields::FIELDS;
use super::{capability, provision, raid, replace, unlocked};
use crate::ApiOutcome;
use crate::table::call::{ApiCall, empty, order, reply};
use crate::table::error::ApiFault;
use crate::table::field::ValueShape;
use crate::table::route::{ApiArg, ApiRoute, BodySchema, ResponseSchema, arg, required};
use crate::table::{body, field};
use crate::trivet::bmc_requests::bmc_request;

/// The fields of the states document, each from its version on.
const STATES: [&str; 11] = [
    "boot_mode",
    "console_enabled",
    "last_error",
    "power_state",
    "provision_state",
    "provision_updated_at",
    "raid_config",
    "secure_boot",
    "target_power_state",
    "target_provision_state",
    "target_raid_config",
];

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get(
        &["v1", "nodes", "{node}", "states"],
        1,
        "All states of a node",
        |call| states(call, call.this()?),
    ),
    ApiRoute::new(
        "PUT",
        &["v1", "nodes", "{node}", "states", "power"],
        1,
        "Switch its power",
        |call| power(call, call.this()?),
    )
    .body(BodySchema::Args(POWER))
    .response(ResponseSchema::Empty(202)),
    ApiRoute::new(
        "PUT",
        &["v1", "nodes", "{node}", "states", "provision"],
        1,
        "Change the provision state of a node",
        |call| provision::provision(call, call.this()?),
    )
    .body(BodySchema::Args(provision::ARGUMENTS))
    .response(ResponseSchema::Empty(202)),
    ApiRoute::new(
        "PUT",
        &["v1", "nodes", "{node}", "states", "raid"],
        12,
        "Set its target RAID configuration",
        |call| raid::set(call, call.this()?),
    )
    .body(BodySchema::Any),
    ApiRoute::get(
        &["v1", "nodes", "{node}", "states", "console"],
        1,
        "Show its console",
        |call| console(call.this()?),
    ),
    ApiRoute::new(
        "PUT",
        &["v1", "nodes", "{node}", "states", "console"],
        1,
        "Switch its console",
        |call| set_console(call, call.this()?),
    )
    .body(BodySchema::Args(CONSOLE))
    .response(ResponseSchema::Empty(202)),
    ApiRoute::new(
        "PUT",
        &["v1", "nodes", "{node}", "states", "boot_mode"],
        76,
        "Set its boot mode",
        |call| set_boot_mode(call, call.this()?),
    )
    .body(BodySchema::Args(BOOT_MODE))
    .response(ResponseSchema::Empty(202)),
    ApiRoute::new(
        "PUT",
        &["v1", "nodes", "{node}", "states", "secure_boot"],
        76,
        "Switch Secure Boot",
        |call| set_secure_boot(call, call.this()?),
    )
    .body(BodySchema::Args(SECURE_BOOT))
    .response(ResponseSchema::Empty(202)),
];

const CONSOLE: &[ApiArg] = &[required("enabled", 1, ValueShape::Flag)];

const BOOT_MODE: &[ApiArg] = &[required("target", 76, ValueShape::Text)];

const SECURE_BOOT: &[ApiArg] = &[required("target", 76, ValueShape::Flag)];

const POWER: &[ApiArg] = &[
    required("target", 1, ValueShape::Text),
    arg("timeout", 27, ValueShape::Number),
];

fn console(view: &NodeView) -> Result<ApiOutcome, ApiFault> {
    // A node whose driver has no console has none that is enabled.
    let enabled = view.node.attributes.console_enabled;
    let info = if enabled { json!({}) } else { Value::Null };
    reply(&json!({ "console_enabled": enabled, "console_info": info }))
}

fn set_console(call: &ApiCall<'_>, view: &NodeView) -> Result<ApiOutcome, ApiFault> {
    let object = body::args(call, CONSOLE)?;
    let wanted = object.get("enabled") == Some(&json!(true));
    capability::require(view, HardwareCapability::Console, "console")?;
    let location = call.location(&format!("nodes/{}/states/console", view.node.id));
    keep(call, view, location, |attributes| {
        attributes.console_enabled = wanted;
    })
}

fn set_boot_mode(call: &ApiCall<'_>, view: &NodeView) -> Result<ApiOutcome, ApiFault> {
    let object = body::args(call, BOOT_MODE)?;
    let mode = body::text(&object, "target")?.unwrap_or("");
    let mode: BootMode = mode.parse().map_err(|_| {
        ApiFault::bad(format!(
            "Invalid boot mode {} requested for node. Allowed boot modes are: uefi, bios",
            mode.escape_debug()
        ))
    })?;
    capability::require(view, HardwareCapability::BootMode, "set_boot_mode")?;
    if !is_fake(&view.node) {
        return change(call, view, BmcRequest::SetBootMode(mode));
    }
    keep(call, view, location(call, view), |attributes| {
        attributes.boot_mode = Some(mode);
    })
}

fn set_secure_boot(call: &ApiCall<'_>, view: &NodeView) -> Result<ApiOutcome, ApiFault> {
    let object = body::args(call, SECURE_BOOT)?;
    let wanted = object.get("target").and_then(Value::as_bool);
    capability::require(view, HardwareCapability::SecureBoot, "set_secure_boot")?;
    if !is_fake(&view.node) {
        let on = wanted == Some(true);
        return change(call, view, BmcRequest::SetSecureBoot(on));
    }
    keep(call, view, location(call, view), |attributes| {
        attributes.secure_boot = wanted;
    })
}

fn location(call: &ApiCall<'_>, view: &NodeView) -> String {
    call.location(&format!("nodes/{}/states", view.node.id))
}

/// Sends a BMC request for the change, and responds with 202 when it is done.
fn change(
    call: &ApiCall<'_>,
    view: &NodeView,
    requested: BmcRequest,
) -> Result<ApiOutcome, ApiFault> {
    unlocked(call, &view.node)?;
    bmc_request(view, requested, empty(202, Some(location(call, view))))
}

/// Stores a state that needs no action, and responds with 202.
fn keep(
    call: &ApiCall<'_>,
    view: &NodeView,
    location: String,
    change: impl FnOnce(&mut NodeAttributes),
) -> Result<ApiOutcome, ApiFault> {
    unlocked(call, &view.node)?;
    let mut node = Node::clone(&view.node);
    change(&mut node.attributes);
    replace(view, node, empty(202, Some(location)))
}

fn states(call: &ApiCall<'_>, view: &NodeView) -> Result<ApiOutcome, ApiFault> {
    let fields: Vec<_> = FIELDS
        .iter()
        .filter(|field| STATES.contains(&field.name) && call.has(field.since))
        .collect();
    reply(&Value::Object(field::render(&fields, view, call)))
}

fn power(call: &ApiCall<'_>, view: &NodeView) -> Result<ApiOutcome, ApiFault> {
    let node = &view.node;
    let object = body::args(call, POWER).map_err(|fault| about_timeout(call, fault))?;
    let (want, soft) = match body::text(&object, "target")? {
        Some("power on") => (PowerWanted::State(PowerState::On), false),
        Some("power off") => (PowerWanted::State(PowerState::Off), false),
        Some("rebooting") => (PowerWanted::Reboot, false),
        Some("soft power off") => (PowerWanted::SoftOff, true),
        Some("soft rebooting") => (PowerWanted::SoftReboot, true),
        Some(other) => {
            let state = node.power_state.map_or("None", PowerState::as_str);
            return Err(ApiFault::bad(format!(
                "The requested action \"{}\" can not be performed on node \"{}\" while it is in \
                 state \"{state}\".",
                other.escape_debug(),
                node.id
            )));
        }
        None => return Err(ApiFault::bad("target is required.")),
    };
    if soft && !call.has(27) {
        return Err(ApiFault::too_new("a soft power target", 27));
    }
    let timeout_s = match object.get("timeout") {
        None | Some(Value::Null) => None,
        Some(timeout) => {
            let seconds = timeout.as_u64().filter(|seconds| *seconds > 0);
            let seconds =
                seconds.ok_or_else(|| ApiFault::bad("timeout has to be positive integer"))?;
            Some(u32::try_from(seconds).unwrap_or(u32::MAX))
        }
    };
    if soft && !can(node, HardwareCapability::SoftPower) {
        return Err(ApiFault::unsupported(&node.driver, "soft power"));
    }
    unlocked_for_power(call, view)?;
    capability::require_settings(view, InterfaceKind::Power)?;
    let off = matches!(
        want,
        PowerWanted::SoftOff | PowerWanted::State(PowerState::Off)
    );
    if off && node.is_power_off_disabled() {
        return Err(ApiFault::conflict(format!(
            "Failed to set node power state to power off. Node {} has disable_power_off set.",
            node.id
        )));
    }
    let location = location(call, view);
    let node = node.id;
    let wanted = RackOrder::Power {
        node,
        want,
        timeout_s,
    };
    order(wanted, empty(202, Some(location)))
}

/// Ironic's words for a timeout that is not a number come first.
fn about_timeout(call: &ApiCall<'_>, fault: ApiFault) -> ApiFault {
    let body = body::object_or_empty(call).unwrap_or_default();
    match body.get("timeout") {
        Some(Value::String(text)) if text.trim().parse::<i64>().is_err() => {
            let text = text.escape_debug();
            fault.after_if_bad(&format!("Expected an integer for timeout: {text}. "))
        }
        _ => fault,
    }
}

fn unlocked_for_power(call: &ApiCall<'_>, view: &NodeView) -> Result<(), ApiFault> {
    let state = view.node.provision_state;
    if matches!(state, ProvisionState::Cleaning | ProvisionState::CleanWait) {
        return Err(ApiFault::bad(format!(
            "The requested action \"power\" can not be performed on node \"{}\" while it is in \
             state \"{state}\".",
            view.node.id
        )));
    }
    unlocked(call, &view.node)
}
