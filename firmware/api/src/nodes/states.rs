//! `/v1/nodes/<ident>/states`: reading them, and asking for power.

use serde_json::{Value, json};
use trivet_hardware::{Ability, can};
use trivet_model::order::PowerWanted;
use trivet_model::view::NodeView;
use trivet_model::{Order, PowerState, ProvisionState};

use super::fields::FIELDS;
use super::{provision, unlocked};
use crate::call::{Call, empty, order, reply};
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
        |call| {
            body::object(call)?;
            Err(Fault::unsupported(&call.this()?.node.driver, "raid"))
        },
    )
    .takes(Takes::Any),
    Route::get(
        &["v1", "nodes", "{node}", "states", "console"],
        1,
        "Its console",
        console,
    ),
    Route::new(
        "PUT",
        &["v1", "nodes", "{node}", "states", "console"],
        1,
        "Switch it",
        console,
    )
    .takes(Takes::Args(&[required("enabled", 1, Shape::Flag)]))
    .gives(Gives::Empty(202)),
    Route::new(
        "PUT",
        &["v1", "nodes", "{node}", "states", "boot_mode"],
        76,
        "Set it",
        |call| {
            body::args(call, BOOT_MODE)?;
            Err(Fault::unsupported(
                &call.this()?.node.driver,
                "set_boot_mode",
            ))
        },
    )
    .takes(Takes::Args(BOOT_MODE))
    .gives(Gives::Empty(202)),
    Route::new(
        "PUT",
        &["v1", "nodes", "{node}", "states", "secure_boot"],
        76,
        "Switch secure boot",
        |call| {
            Err(Fault::unsupported(
                &call.this()?.node.driver,
                "set_secure_boot",
            ))
        },
    )
    .takes(Takes::Args(&[required("target", 76, Shape::Flag)]))
    .gives(Gives::Empty(202)),
];

const BOOT_MODE: &[Arg] = &[required("target", 76, Shape::Word(&["uefi", "bios"]))];

const POWER: &[Arg] = &[
    required("target", 1, Shape::Text),
    arg("timeout", 27, Shape::Number),
];

fn console(call: &Call<'_>) -> Result<Outcome, Fault> {
    Err(Fault::unsupported(&call.this()?.node.driver, "console"))
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
            let other = other.escape_debug();
            return Err(Fault::bad(format!("Invalid power target \"{other}\".")));
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
            let seconds = seconds
                .ok_or_else(|| Fault::bad("timeout must be a number of seconds above zero."))?;
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
            "Node {} must not be powered off: disable_power_off is set.",
            node.id
        )));
    }
    let location = call.location(&format!("nodes/{}/states", node.id));
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
