//! `/v1/nodes/<ident>/states`: reading them, and asking for power.

use serde_json::{Value, json};
use trivet_model::order::PowerWanted;
use trivet_model::view::NodeView;
use trivet_model::{Order, PowerState, ProvisionState};

use super::fields::FIELDS;
use super::{provision, unlocked};
use crate::call::{Call, empty, order, reply};
use crate::error::Fault;
use crate::route::get;
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

pub(crate) fn route(call: &Call<'_>, view: &NodeView, rest: &[&str]) -> Result<Outcome, Fault> {
    let driver = view.node.driver.as_str();
    match (rest, call.method) {
        ([], _) => get(call, |call| states(call, view)),
        (["power"], "PUT") => power(call, view),
        (["provision"], "PUT") => provision::provision(call, view),
        (["raid"], "PUT") => {
            call.exists_since(12)?;
            body::object(call)?;
            Err(Fault::unsupported(driver, "raid"))
        }
        (["console"], "GET" | "PUT") => Err(Fault::unsupported(driver, "console")),
        (["boot_mode"], "PUT") => {
            call.exists_since(76)?;
            let object = body::object(call)?;
            body::only(&object, &["target"])?;
            match body::text(&object, "target")? {
                Some("uefi" | "bios") => Err(Fault::unsupported(driver, "set_boot_mode")),
                _ => Err(Fault::bad("target must be uefi or bios.")),
            }
        }
        (["secure_boot"], "PUT") => {
            call.exists_since(76)?;
            Err(Fault::unsupported(driver, "set_secure_boot"))
        }
        (["power" | "provision" | "raid" | "console" | "boot_mode" | "secure_boot"], other) => {
            Err(Fault::no_method(other))
        }
        _ => Err(Fault::no_path()),
    }
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
    let object = body::object(call)?;
    body::only(&object, &["target", "timeout"])?;
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
    match object.get("timeout") {
        None | Some(Value::Null) => {}
        Some(_) if !call.has(27) => return Err(Fault::too_new("timeout", 27)),
        Some(timeout) if timeout.as_u64().is_some_and(|seconds| seconds > 0) => {}
        Some(_) => {
            return Err(Fault::bad(
                "timeout must be a number of seconds above zero.",
            ));
        }
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
    order(Order::Power { node, want }, empty(202, Some(location)))
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
