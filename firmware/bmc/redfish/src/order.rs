//! Power orders as scripts.
//!
//! A change of power is always requested, even if the reported state is already the wanted one: a
//! BMC that reports "on" for a machine that is off must not keep it off. If the BMC refuses the
//! request or may not have received it, the state is read. The caller polls whether the machine
//! follows, which takes some time.

use serde_json::{Value, json};
use trivet_model::{BootDevice, PowerAnswer, PowerError, PowerOrder, PowerState};

use crate::fault;
use crate::quirk::{self, RedfishQuirk};
use crate::script::{
    RedfishResource, RedfishScriptContext, RedfishScriptResult, RedfishWriteOutcome,
};

/// Most polls for a change before it counts as not applied. Ours.
const POLLS_MAX: usize = 5;
/// Pause between two polls, in milliseconds. Ours.
const POLL_MS: u64 = 1_000;

/// Executes an order.
pub(crate) fn run(
    order: PowerOrder,
    context: &mut RedfishScriptContext<'_>,
) -> RedfishScriptResult<PowerAnswer> {
    match order {
        PowerOrder::Status => {
            let system = context.system()?;
            // As in Ironic, the health of the system is read with its power state.
            let health = system.text(&["Status", "Health"]);
            context.health = Some(health.and_then(|word| word.parse().ok()));
            Ok(PowerAnswer::Power(power(system)?))
        }
        PowerOrder::On => switch(context, &["On", "ForceOn"], Some(PowerState::On)),
        PowerOrder::Off => switch(context, &["ForceOff"], Some(PowerState::Off)),
        PowerOrder::SoftOff => switch(context, &["GracefulShutdown"], Some(PowerState::Off)),
        PowerOrder::Cycle => restart(context, &["PowerCycle", "ForceRestart"]),
        PowerOrder::Reset => restart(context, &["ForceRestart", "PowerCycle"]),
        PowerOrder::Nmi => {
            let system = context.system()?;
            let (target, word) = action(context, system, "#ComputerSystem.Reset", &["Nmi"])?;
            let written = context.post(&target, json!({"ResetType": word}), true)?;
            written.done().map(|()| PowerAnswer::Accepted)
        }
        PowerOrder::BmcReset { warm } => bmc_reset(context, warm),
        PowerOrder::ReadBoot => Ok(boot(context.system()?)),
        PowerOrder::SetBoot {
            device,
            persistent,
            efi,
        } => {
            let words: &[&str] = match device {
                BootDevice::Pxe => &["Pxe"],
                BootDevice::Disk => &["Hdd"],
                // `UsbCd` is Supermicro's name for a virtual CD.
                BootDevice::Cdrom => &["Cd", "UsbCd"],
                BootDevice::Bios => &["BiosSetup"],
                BootDevice::Safe => {
                    let message = "Redfish has no safe mode to boot; choose the disk instead";
                    return Err(fault::unsupported(message).into());
                }
            };
            set_boot(context, words, persistent, efi, None)?;
            Ok(PowerAnswer::Accepted)
        }
        PowerOrder::Raw { .. } => {
            let message = "raw commands exist only in IPMI, not in Redfish";
            Err(fault::unsupported(message).into())
        }
    }
}

/// The power state that the BMC reports. A machine that is shutting down counts as on.
fn power(system: RedfishResource<'_>) -> Result<PowerState, PowerError> {
    match system.text(&["PowerState"]) {
        Some("On" | "PoweringOn" | "PoweringOff" | "Paused") => Ok(PowerState::On),
        Some("Off") => Ok(PowerState::Off),
        _ => Err(fault::invalid_response("a system without a power state")),
    }
}

fn switch(
    context: &mut RedfishScriptContext<'_>,
    words: &[&str],
    end: Option<PowerState>,
) -> RedfishScriptResult<PowerAnswer> {
    let system = context.system()?;
    let (target, word) = action(context, system, "#ComputerSystem.Reset", words)?;
    // A repeated restart request would restart the machine twice.
    let once = end.is_none();
    match context.post(&target, json!({"ResetType": word}), once)? {
        RedfishWriteOutcome::Done => Ok(PowerAnswer::Accepted),
        RedfishWriteOutcome::Refused(error) | RedfishWriteOutcome::Unknown(error) => {
            // Some BMCs refuse to switch on what is on; some do it and send no response.
            let moot = end.is_some() && !error.is_lasting();
            if moot && power(context.system()?).ok() == end {
                return Ok(PowerAnswer::Accepted);
            }
            Err(error.into())
        }
    }
}

/// Off and on again; only on, if it is off.
fn restart(
    context: &mut RedfishScriptContext<'_>,
    words: &[&str],
) -> RedfishScriptResult<PowerAnswer> {
    match power(context.system()?)? {
        PowerState::Off => switch(context, &["On", "ForceOn"], Some(PowerState::On)),
        PowerState::On => switch(context, words, None),
    }
}

/// The target of an action, and the first of these values that it accepts. If the BMC does not list
/// the accepted values, the first is tried; for a restart that is `ForceRestart`.
fn action(
    context: &mut RedfishScriptContext<'_>,
    on: RedfishResource<'_>,
    name: &str,
    words: &[&str],
) -> RedfishScriptResult<(String, String)> {
    let lacks = || fault::unsupported("the BMC cannot do this: its Redfish has no such reset");
    let action = on.at(&["Actions", name]).ok_or_else(lacks)?;
    let target = action.get("target").and_then(Value::as_str);
    let target = target.ok_or_else(|| fault::invalid_response("an action without a target"))?;
    let target = context.path(target)?;
    let mut allowed = action
        .get("ResetType@Redfish.AllowableValues")
        .and_then(Value::as_array);
    if let (None, Some(info)) = (
        allowed,
        action.get("@Redfish.ActionInfo").and_then(Value::as_str),
    ) {
        let path = context.path(info)?;
        let parameters = context
            .get(&path)?
            .at(&["Parameters"])
            .and_then(Value::as_array);
        allowed = parameters
            .into_iter()
            .flatten()
            .find(|parameter| parameter.get("Name").and_then(Value::as_str) == Some("ResetType"))
            .and_then(|parameter| parameter.get("AllowableValues")?.as_array());
    }
    let word = match allowed {
        Some(allowed) => words
            .iter()
            .find(|word| allowed.iter().any(|one| one == **word)),
        None => words
            .iter()
            .find(|word| **word == "ForceRestart")
            .or(words.first()),
    };
    Ok((target, (*word.ok_or_else(lacks)?).to_owned()))
}

fn bmc_reset(
    context: &mut RedfishScriptContext<'_>,
    warm: bool,
) -> RedfishScriptResult<PowerAnswer> {
    let manager = manager(context)?;
    let manager = context.get(&manager)?;
    let words: &[&str] = if warm {
        &["GracefulRestart", "ForceRestart"]
    } else {
        &["ForceRestart", "GracefulRestart"]
    };
    let (target, word) = action(context, manager, "#Manager.Reset", words)?;
    match context.post(&target, json!({"ResetType": word}), true)? {
        // A BMC that restarts may do so before it replies.
        RedfishWriteOutcome::Done | RedfishWriteOutcome::Unknown(_) => Ok(PowerAnswer::Accepted),
        RedfishWriteOutcome::Refused(error) => Err(error.into()),
    }
}

/// The manager resource of the system, else the only one.
pub(crate) fn manager(context: &mut RedfishScriptContext<'_>) -> RedfishScriptResult<String> {
    let system = context.system()?;
    let managers = system.at(&["Links", "ManagedBy"]);
    if let Some(path) = context.linked(managers.and_then(|list| list.get(0)))? {
        return Ok(path);
    }
    let mut members = context.members("/redfish/v1/Managers")?;
    match (members.pop(), members.is_empty()) {
        (Some(only), true) => Ok(only),
        _ => Err(fault::invalid_response("the system's manager is ambiguous").into()),
    }
}

fn boot(system: RedfishResource<'_>) -> PowerAnswer {
    let word = |key| system.text(&["Boot", key]).unwrap_or_default();
    let enabled = word("BootSourceOverrideEnabled");
    let device = match word("BootSourceOverrideTarget") {
        "Pxe" => Some(BootDevice::Pxe),
        "Hdd" => Some(BootDevice::Disk),
        "Cd" | "UsbCd" => Some(BootDevice::Cdrom),
        "BiosSetup" => Some(BootDevice::Bios),
        _ => None,
    };
    PowerAnswer::Boot {
        device: device.filter(|_| enabled != "Disabled"),
        persistent: enabled == "Continuous",
        efi: word("BootSourceOverrideMode") == "UEFI",
    }
}

/// Sets the boot override and reads it back: the target only, because some BMCs report "Continuous"
/// whatever was set. Without `efi` the mode is not changed, since the operator may not have set
/// one.
pub(crate) fn set_boot(
    context: &mut RedfishScriptContext<'_>,
    words: &[&str],
    persistent: bool,
    efi: bool,
    uri: Option<&str>,
) -> RedfishScriptResult<()> {
    let path = context.system_path()?;
    let system = context.get(&path)?;
    let lacks =
        || fault::unsupported("the BMC cannot boot from there: its Redfish does not offer it");
    let offered = |key: &str| {
        let key = format!("{key}@Redfish.AllowableValues");
        system.at(&["Boot", &key]).and_then(Value::as_array)
    };
    let word = match offered("BootSourceOverrideTarget") {
        Some(allowed) => words
            .iter()
            .find(|word| allowed.iter().any(|one| one == **word)),
        None => words.first(),
    };
    let word = *word.ok_or_else(lacks)?;
    let enabled = if persistent { "Continuous" } else { "Once" };
    let mut boot = json!({
        "BootSourceOverrideTarget": word,
        "BootSourceOverrideEnabled": enabled,
    });
    let mode = system.text(&["Boot", "BootSourceOverrideMode"]);
    let modes = offered("BootSourceOverrideMode");
    let has_uefi = modes.is_none_or(|modes| modes.iter().any(|one| one == "UEFI"));
    if efi && has_uefi && mode.is_some_and(|mode| mode != "UEFI") {
        boot["BootSourceOverrideMode"] = "UEFI".into();
    }
    if let Some(uri) = uri {
        boot["HttpBootUri"] = uri.into();
    }
    let written = context.patch(&path, system, json!({"Boot": boot}))?;
    if quirk::has(system.body, RedfishQuirk::BootOverrideDeferred) {
        return written.done();
    }
    let mismatch = "its boot device reads back as another one";
    await_change(context, &path, written, mismatch, |now| {
        now.text(&["Boot", "BootSourceOverrideTarget"]) == Some(word)
    })
}

/// Reads a resource until it shows a change, or returns the error that the change was not applied.
pub(crate) fn await_change(
    context: &mut RedfishScriptContext<'_>,
    path: &str,
    written: RedfishWriteOutcome,
    mismatch: &str,
    shows: impl Fn(RedfishResource<'_>) -> bool,
) -> RedfishScriptResult<()> {
    if let RedfishWriteOutcome::Refused(error) = written {
        return Err(error.into());
    }
    for look in 0..POLLS_MAX {
        let wait_ms = if look == 0 { 0 } else { POLL_MS };
        if shows(context.read_after(path, wait_ms)?) {
            return Ok(());
        }
    }
    written.done()?;
    Err(fault::not_applied(mismatch).into())
}
