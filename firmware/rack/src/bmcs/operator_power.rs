//! Power orders of an operator, and those of the box itself after a job.

use trivet_bmc::{BmcReach, PowerChangeRules, PowerChangeStart};
use trivet_drivers::{HardwareCapability, can, power_interface};
use trivet_model::interface::PowerInterface;
use trivet_model::order::PowerWanted;
use trivet_model::{
    Node, NodeId, Now, OrderRefusal, PowerAnswer, PowerError, PowerOrder, PowerState,
    ProvisionState, RefusalKind,
};
use trivet_node::NodeLimits;

use super::bmc_limits;
use crate::Rack;

/// The longest time-out an operator may set, in seconds. Ours.
const TIMEOUT_S_MAX: u32 = 86_400;

/// What is known of an operator's power order beyond the change itself; in memory only.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OperatorPower {
    reason: OperatorPowerReason,
    /// Switch on once the machine is seen off.
    then_on: bool,
    /// The operator's time-out.
    timeout_ms: Option<u64>,
}

/// The origin of an order.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum OperatorPowerReason {
    /// An operator wants an immediate change.
    #[default]
    Hard,
    /// An operator wants the operating system to shut down.
    Soft,
    /// It was under way when the box restarted: it is not known whether the BMC received the
    /// request.
    BoxRestarted,
    /// The box switches the machine off after a failed deployment, whose error must stay
    /// visible.
    DeployFailed,
}

impl OperatorPower {
    pub(super) fn rules(self, limits: &NodeLimits, node: &Node) -> PowerChangeRules {
        let mut rules = PowerChangeRules::of_operator(&bmc_limits(limits, None), node);
        let soft = self.reason == OperatorPowerReason::Soft;
        if soft {
            rules.timeout_ms = limits.soft_off_ms;
        }
        rules.timeout_ms = self.timeout_ms.unwrap_or(rules.timeout_ms);
        // A caller that sets a time-out gets its reply after that time.
        rules.repeats = !soft && self.timeout_ms.is_none();
        rules
    }

    /// The error message of an order that failed.
    fn failure_message(self, error: &PowerError) -> String {
        let message = match self.reason {
            OperatorPowerReason::BoxRestarted => {
                "the box restarted while the power order was under way, and the power \
                 state is still not the wanted one; send the order again"
            }
            OperatorPowerReason::Soft => {
                "the BMC accepted the power order, but the system did not go down in time; power \
                 off or reboot hard"
            }
            OperatorPowerReason::Hard | OperatorPowerReason::DeployFailed => {
                return error.to_string();
            }
        };
        message.to_owned()
    }
}

impl Rack {
    /// An operator's power order has ended.
    pub(crate) fn operator_power(
        &mut self,
        now: Now,
        id: NodeId,
        result: Result<PowerAnswer, PowerError>,
    ) {
        let Some(node) = self.records.node(id) else {
            return;
        };
        let mut node = (**node).clone();
        let power = self.bmcs.operator_power.entry(id).or_default();
        match result {
            Ok(PowerAnswer::Power(PowerState::Off)) if power.then_on => {
                *power = OperatorPower::default();
                return self.order_power(now, id, PowerOrder::On);
            }
            Ok(PowerAnswer::Power(state)) => {
                node.target_power_state = None;
                node.power_state = Some(state);
                let note = trivet_drivers::power_note(&node, state);
                self.note(now, Some(id), note);
            }
            Ok(_) => node.target_power_state = None,
            Err(error) => {
                let text = match &error {
                    PowerError::NoEffect { .. } => power.failure_message(&error),
                    other => other.to_string(),
                };
                node.target_power_state = None;
                if power.reason != OperatorPowerReason::DeployFailed {
                    node.last_error = Some(text);
                }
            }
        }
        self.records.put_node(now, node);
    }

    /// A machine was seen on the network, so it is on, whatever its BMC reports.
    pub(crate) fn sync_power_of_seen_machine(&mut self, now: Now, id: NodeId) {
        let Some(node) = self.records.node(id).cloned() else {
            return;
        };
        if node.job.is_some() || node.power_state == Some(PowerState::On) {
            return;
        }
        if node.target_power_state.is_some() {
            return;
        }
        if self.bmcs.bmcs.power_reach(&node) == Some(BmcReach::OneWay) {
            // No BMC can report it, and the record's state is all that is known.
            let mut node = (*node).clone();
            node.power_state = Some(PowerState::On);
            self.records.put_node(now, node);
        } else {
            // Its power button was pressed, or the BMC is wrong: the state is read now.
            self.bmcs.bmcs.sync_next(now.tick, id);
        }
    }

    /// Switches a machine off whose deployment failed, after its agent's logs were collected. A
    /// verb that arrives meanwhile replaces this order; a power order of an operator is refused
    /// until it has ended.
    pub(crate) fn switch_off_failed(&mut self, now: Now, id: NodeId) {
        let Some(node) = self.records.node(id) else {
            return;
        };
        if node.job.is_some() || node.target_power_state != Some(PowerState::Off) {
            return;
        }
        let limits = bmc_limits(&self.settings.limits, None);
        let rules = PowerChangeRules {
            bmc_wait_ms: limits.bmc_wait_ms,
            resets_bmc: false,
            ..PowerChangeRules::of_operator(&limits, node)
        };
        if self.agents.power_off_after_logs(id) {
            return;
        }
        let power = OperatorPower {
            reason: OperatorPowerReason::DeployFailed,
            ..OperatorPower::default()
        };
        self.bmcs.operator_power.insert(id, power);
        self.leave_boot_queue(id);
        let (bmcs, mut context) = self.bmcs_and_context(now);
        bmcs.order_for_operator(&mut context, id, PowerOrder::Off, rules);
    }

    /// After a restart of the box: continues an operator's order that was under way. Power-on
    /// is sent again to a machine that is off, because it may have been half of a reboot; a
    /// machine that is to be off may have received a soft request.
    pub(crate) fn resume_power(&mut self, now: Now, id: NodeId) {
        let node = self.records.node(id).filter(|node| node.job.is_none());
        let Some((node, target)) = node.and_then(|node| Some((node, node.target_power_state?)))
        else {
            return;
        };
        let fails = node.provision_state == ProvisionState::DeployFail;
        let limits = bmc_limits(&self.settings.limits, None);
        let rules = PowerChangeRules::of_operator(&limits, node);
        if fails && target == PowerState::Off {
            return self.switch_off_failed(now, id);
        }
        let power = OperatorPower {
            reason: OperatorPowerReason::BoxRestarted,
            ..OperatorPower::default()
        };
        self.bmcs.operator_power.insert(id, power);
        let order = match target {
            PowerState::On => PowerOrder::On,
            PowerState::Off => PowerOrder::Off,
        };
        let rules = PowerChangeRules {
            start: if target == PowerState::Off {
                PowerChangeStart::OnlyPoll
            } else {
                PowerChangeStart::Read
            },
            ..rules
        };
        let (bmcs, mut context) = self.bmcs_and_context(now);
        bmcs.order_for_operator(&mut context, id, order, rules);
    }

    /// Refuses an operator's power order that cannot be carried out now, or never.
    fn check_power_order(&self, node: &Node, want: PowerWanted) -> Result<(), OrderRefusal> {
        if node.job.is_some() {
            return Err(OrderRefusal::new(
                RefusalKind::Conflict,
                format!(
                    "Node {} is busy ({}); wait until that is done or abort it.",
                    node.id, node.provision_state
                ),
            ));
        }
        // An operator may change an order that still waits in the boot queue.
        if let Some(target) = node.target_power_state
            && !self.boot.is_queued(node.id)
        {
            let sentence = format!(
                "Node {} is on its way to {target}; wait until that is done.",
                node.id
            );
            return Err(OrderRefusal::new(RefusalKind::Conflict, sentence));
        }
        let soft = matches!(want, PowerWanted::SoftOff | PowerWanted::SoftReboot);
        if soft && !can(node, HardwareCapability::SoftPower) {
            return Err(OrderRefusal::new(
                RefusalKind::Invalid,
                format!(
                    "Node {} cannot be shut down softly; power it off or reboot it hard.",
                    node.id
                ),
            ));
        }
        let keeps_on = matches!(
            want,
            PowerWanted::State(PowerState::On) | PowerWanted::Reboot
        );
        if node.is_power_off_disabled() && !keeps_on {
            let sentence = format!(
                "Node {} has disable_power_off set and is not shut down; reboot it hard.",
                node.id
            );
            return Err(OrderRefusal::new(RefusalKind::Conflict, sentence));
        }
        Ok(())
    }

    pub(crate) fn power_wanted(
        &mut self,
        now: Now,
        node: Node,
        want: PowerWanted,
        timeout_s: Option<u32>,
    ) -> Result<(), OrderRefusal> {
        self.check_power_order(&node, want)?;
        let is_off = node.power_state == Some(PowerState::Off);
        let is_ipmi = power_interface(&node) == Some(PowerInterface::Ipmitool);
        let (order, target) = match want {
            PowerWanted::State(PowerState::On) => (PowerOrder::On, PowerState::On),
            PowerWanted::State(PowerState::Off) => (PowerOrder::Off, PowerState::Off),
            PowerWanted::SoftOff => (PowerOrder::SoftOff, PowerState::Off),
            PowerWanted::Reboot if node.is_power_off_disabled() => {
                (PowerOrder::Reset, PowerState::On)
            }
            // A machine that is off cannot go off; it is only switched on.
            PowerWanted::SoftReboot if is_off => (PowerOrder::On, PowerState::On),
            PowerWanted::SoftReboot => (PowerOrder::SoftOff, PowerState::On),
            PowerWanted::Reboot if is_ipmi && is_off => (PowerOrder::On, PowerState::On),
            // As Ironic's ipmitool interface: during a power cycle the BMC reports on until the
            // machine goes off, so that nothing shows when it is done.
            PowerWanted::Reboot if is_ipmi => (PowerOrder::Off, PowerState::On),
            PowerWanted::Reboot => (PowerOrder::Cycle, PowerState::On),
        };
        let id = node.id;
        let then_on =
            target == PowerState::On && matches!(order, PowerOrder::SoftOff | PowerOrder::Off);
        self.leave_boot_queue(id);
        let power = OperatorPower {
            reason: if order == PowerOrder::SoftOff {
                OperatorPowerReason::Soft
            } else {
                OperatorPowerReason::Hard
            },
            then_on,
            timeout_ms: timeout_s.map(|seconds| u64::from(seconds.min(TIMEOUT_S_MAX)) * 1000),
        };
        self.bmcs.operator_power.insert(id, power);
        let node = Node {
            target_power_state: Some(target),
            last_error: None,
            // The agent ends with the power change.
            agent: None,
            ..node
        };
        self.records.put_node(now, node);
        self.order_power(now, id, order);
        Ok(())
    }
}
