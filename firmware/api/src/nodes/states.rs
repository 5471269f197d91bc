//! `/v1/nodes/<ident>/states`: reading them, and asking for power.

use serde_json::{Value, json};
use trivet_hardware::{Ability, can, pretends};
use trivet_model::errand::BootMode;
use trivet_model::order::PowerWanted;
use trivet_model::view::NodeView;
use trivet_model::{Errand, Node, Order, PowerState, ProvisionState};

use super::fields::FIELDS;
use super::{able, provision, raid, replace, unlocked};
use crate::call::{Call, empty, order, reply};
use crate::errands::errand;
use crate::error::Fault;
use crate::field::Shape;
use crate::route::{Arg, Gives, Route, Takes, arg, required};
use crate::{Outcome, body, field};

/// What the states document shows, each from the version its field has.
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

pub(crate) const ROUTES: &[Route] = &[
    Route::get(
        &["v1", "nodes", "{node}", "states"],
        1,
        "All states of a node",
        |call| states(call, call.this()?),
    ),
    Route::new(
        "PUT",
        &["v1", "nodes", "{node}", "states", "power"],
        1,
        "Switch it",
        |call| power(call, call.this()?),
    )
    .takes(Takes::Args(POWER))
    .gives(Gives::Empty(202)),
    Route::new(
        "PUT",
        &["v1", "nodes", "{node}", "states", "provision"],
        1,
        "Move a node on in its life",
        |call| provision::provision(call, call.this()?),
    )
    .takes(Takes::Args(provision::ARGUMENTS))
    .gives(Gives::Empty(202)),
    Route::new(
        "PUT",
        &["v1", "nodes", "{node}", "states", "raid"],
        12,
        "Wanted RAID",
        |call| raid::set(call, call.this()?),
    )
    .takes(Takes::Any),
    Route::get(
        &["v1", "nodes", "{node}", "states", "console"],
        1,
        "Its console",
        |call| console(call.this()?),
    ),
    Route::new(
        "PUT",
        &["v1", "nodes", "{node}", "states", "console"],
        1,
        "Switch it",
        |call| set_console(call, call.this()?),
    )
    .takes(Takes::Args(CONSOLE))
    .gives(Gives::Empty(202)),
    Route::new(
        "PUT",
        &["v1", "nodes", "{node}", "states", "boot_mode"],
        76,
        "Set it",
        |call| set_boot_mode(call, call.this()?),
    )
    .takes(Takes::Args(BOOT_MODE))
    .gives(Gives::Empty(202)),
    Route::new(
        "PUT",
        &["v1", "nodes", "{node}", "states", "secure_boot"],
        76,
        "Switch secure boot",
        |call| set_secure_boot(call, call.this()?),
    )
    .takes(Takes::Args(SECURE_BOOT))
    .gives(Gives::Empty(202)),
];

const CONSOLE: &[Arg] = &[required("enabled", 1, Shape::Flag)];

const BOOT_MODE: &[Arg] = &[required("target", 76, Shape::Text)];

const SECURE_BOOT: &[Arg] = &[required("target", 76, Shape::Flag)];

const POWER: &[Arg] = &[
    required("target", 1, Shape::Text),
    arg("timeout", 27, Shape::Number),
];

fn console(view: &NodeView) -> Result<Outcome, Fault> {
    able::or_refuse(view, Ability::Console, "console")?;
    let enabled = view.node.kept.get("console_enabled") == Some(&json!(true));
    let info = if enabled { json!({}) } else { Value::Null };
    reply(&json!({ "console_enabled": enabled, "console_info": info }))
}

fn set_console(call: &Call<'_>, view: &NodeView) -> Result<Outcome, Fault> {
    let object = body::args(call, CONSOLE)?;
    let wanted = object.get("enabled") == Some(&json!(true));
    able::or_refuse(view, Ability::Console, "console")?;
    let location = call.location(&format!("nodes/{}/states/console", view.node.id));
    keep(
        call,
        view,
        "console_enabled",
        wanted.then_some(Value::Bool(true)),
        location,
    )
}

fn set_boot_mode(call: &Call<'_>, view: &NodeView) -> Result<Outcome, Fault> {
    let object = body::args(call, BOOT_MODE)?;
    let mode = body::text(&object, "target")?.unwrap_or("");
    let mode: BootMode = mode.parse().map_err(|_| {
        Fault::bad(format!(
            "Invalid boot mode {} requested for node. Allowed boot modes are: uefi, bios",
            mode.escape_debug()
        ))
    })?;
    able::or_refuse(view, Ability::BootMode, "set_boot_mode")?;
    if !pretends(&view.node) {
        return change(call, view, Errand::SetBootMode(mode));
    }
    keep(
        call,
        view,
        "boot_mode",
        Some(json!(mode)),
        location(call, view),
    )
}

fn set_secure_boot(call: &Call<'_>, view: &NodeView) -> Result<Outcome, Fault> {
    let object = body::args(call, SECURE_BOOT)?;
    let wanted = object.get("target").cloned();
    able::or_refuse(view, Ability::SecureBoot, "set_secure_boot")?;
    if !pretends(&view.node) {
        let on = wanted == Some(Value::Bool(true));
        return change(call, view, Errand::SetSecureBoot(on));
    }
    keep(call, view, "secure_boot", wanted, location(call, view))
}

fn location(call: &Call<'_>, view: &NodeView) -> String {
    call.location(&format!("nodes/{}/states", view.node.id))
}

/// Has the BMC change a state, and answers 202 when it did.
fn change(call: &Call<'_>, view: &NodeView, asked: Errand) -> Result<Outcome, Fault> {
    unlocked(call, &view.node)?;
    errand(view, asked, empty(202, Some(location(call, view))))
}

/// Keeps a state that nothing has to be done for, and answers 202.
fn keep(
    call: &Call<'_>,
    view: &NodeView,
    name: &str,
    value: Option<Value>,
    location: String,
) -> Result<Outcome, Fault> {
    unlocked(call, &view.node)?;
    let mut node = Node::clone(&view.node);
    match value {
        Some(value) => drop(node.kept.insert(name.to_owned(), value)),
        None => drop(node.kept.remove(name)),
    }
    replace(view, node, empty(202, Some(location)))
}

fn states(call: &Call<'_>, view: &NodeView) -> Result<Outcome, Fault> {
    let fields: Vec<_> = FIELDS
        .iter()
        .filter(|field| STATES.contains(&field.name) && call.has(field.since))
        .collect();
    reply(&Value::Object(field::render(&fields, view, call)))
}

fn power(call: &Call<'_>, view: &NodeView) -> Result<Outcome, Fault> {
    let node = &view.node;
    let object = body::args(call, POWER)?;
    let (want, soft) = match body::text(&object, "target")? {
        Some("power on") => (PowerWanted::State(PowerState::On), false),
        Some("power off") => (PowerWanted::State(PowerState::Off), false),
        Some("rebooting") => (PowerWanted::Reboot, false),
        Some("soft power off") => (PowerWanted::SoftOff, true),
        Some("soft rebooting") => (PowerWanted::SoftReboot, true),
        Some(other) => {
            let state = node.power_state.map_or("None", PowerState::as_str);
            return Err(Fault::bad(format!(
                "The requested action \"{}\" can not be performed on node \"{}\" while it is in \
                 state \"{state}\".",
                other.escape_debug(),
                node.id
            )));
        }
        None => return Err(Fault::bad("target is required.")),
    };
    if soft && !call.has(27) {
        return Err(Fault::too_new("a soft power target", 27));
    }
    let timeout_s = match object.get("timeout") {
        None | Some(Value::Null) => None,
        Some(timeout) => {
            let seconds = timeout.as_u64().filter(|seconds| *seconds > 0);
            let seconds =
                seconds.ok_or_else(|| Fault::bad("timeout has to be positive integer"))?;
            Some(u32::try_from(seconds).unwrap_or(u32::MAX))
        }
    };
    if soft && !can(node, Ability::SoftPower) {
        return Err(Fault::unsupported(&node.driver, "soft power"));
    }
    unlocked_for_power(call, view)?;
    let off = matches!(
        want,
        PowerWanted::SoftOff | PowerWanted::State(PowerState::Off)
    );
    if off && node.kept.get("disable_power_off") == Some(&json!(true)) {
        return Err(Fault::conflict(format!(
            "Failed to set node power state to power off. Node {} has disable_power_off set.",
            node.id
        )));
    }
    let location = location(call, view);
    let node = node.id;
    let wanted = Order::Power {
        node,
        want,
        timeout_s,
    };
    order(wanted, empty(202, Some(location)))
}

fn unlocked_for_power(call: &Call<'_>, view: &NodeView) -> Result<(), Fault> {
    let state = view.node.provision_state;
    if matches!(state, ProvisionState::Cleaning | ProvisionState::CleanWait) {
        return Err(Fault::bad(format!(
            "The requested action \"power\" can not be performed on node \"{}\" while it is in \
             state \"{state}\".",
            view.node.id
        )));
    }
    unlocked(call, &view.node)
}
