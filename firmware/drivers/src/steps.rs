//! Steps that need no agent, and steps that this box cannot run.

use trivet_model::{JobStep, Node, StepKind};

use crate::{InterfaceKind, interface};

/// The meaning of a reserved step. Ironic reserves these names, for interface `power`, in clean,
/// deploy and service steps.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ReservedStep {
    /// Stop until the verb `unhold`.
    Hold,
    /// Wait before the next step.
    Wait {
        /// Seconds to wait; `None` waits for the agent's next heartbeat.
        seconds: Option<u64>,
    },
    /// Switch the power on.
    PowerOn,
    /// Switch the power off.
    PowerOff,
    /// Switch the power off and on again.
    Reboot,
}

/// The longest `wait`, in seconds. Ours: one day.
pub(crate) const WAIT_S_MAX: u64 = 86_400;

/// The meaning of this step, if it is a reserved one.
pub fn reserved(step: &JobStep) -> Option<ReservedStep> {
    if step.interface != "power" {
        return None;
    }
    let seconds = step.args.get("seconds");
    let seconds = seconds.and_then(|seconds| match seconds {
        serde_json::Value::String(text) => text.trim().parse().ok(),
        other => other.as_u64(),
    });
    match step.step.as_str() {
        "hold" => Some(ReservedStep::Hold),
        "wait" => Some(ReservedStep::Wait {
            seconds: seconds.map(|seconds: u64| seconds.min(WAIT_S_MAX)),
        }),
        "power_on" => Some(ReservedStep::PowerOn),
        "power_off" => Some(ReservedStep::PowerOff),
        "reboot" => Some(ReservedStep::Reboot),
        _ => None,
    }
}

/// Whether this is a `wait` whose argument is not a number of seconds.
pub fn has_invalid_wait(step: &JobStep) -> bool {
    let given = step
        .args
        .get("seconds")
        .is_some_and(|seconds| !seconds.is_null());
    given && reserved(step) == Some(ReservedStep::Wait { seconds: None })
}

/// The reason why this step cannot be run on this node, independent of the agent; `None` if it can
/// be tried. The Redfish interfaces for BIOS, firmware and RAID can be selected, because Metal3
/// always sends them, but have no steps yet.
pub fn cannot_run(node: &Node, step: &JobStep) -> Option<String> {
    let kind = match step.interface.as_str() {
        "bios" => InterfaceKind::Bios,
        "firmware" => InterfaceKind::Firmware,
        "raid" => InterfaceKind::Raid,
        _ => return None,
    };
    if interface(node, kind) != "redfish" {
        return None;
    }
    let (field, word) = (kind.field(), kind.as_str());
    let instead = match kind {
        InterfaceKind::Raid => {
            "; choose raid_interface agent for software RAID, or leave the step out"
        }
        _ => "; leave the step out",
    };
    Some(format!(
        "Step {word}.{} cannot be run: this box runs no {word} steps by Redfish yet ({field} is \
         redfish){instead}.",
        step.step
    ))
}

/// Interface and name of each step of a node with `deploy_interface` `fake`, all of priority zero.
pub fn fake_steps(kind: StepKind) -> &'static [(&'static str, &'static str)] {
    match kind {
        StepKind::Clean | StepKind::Service => &[
            ("bios", "apply_configuration"),
            ("bios", "factory_reset"),
            ("deploy", "erase_devices"),
            ("deploy", "erase_devices_metadata"),
            ("firmware", "update"),
            ("raid", "create_configuration"),
            ("raid", "delete_configuration"),
        ],
        StepKind::Deploy => &[
            ("bios", "apply_configuration"),
            ("bios", "factory_reset"),
            ("deploy", "deploy"),
            ("deploy", "erase_devices_metadata"),
            ("deploy", "write_image"),
            ("firmware", "update"),
            ("raid", "apply_configuration"),
        ],
    }
}
