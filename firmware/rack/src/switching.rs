//! Which way a power order goes, and power orders of an operator.

use trivet_hardware::{Ability, Kind, can, interface};
use trivet_model::order::PowerWanted;
use trivet_model::{
    Node, NodeId, NoteKind, Now, PowerAnswer, PowerError, PowerOrder, PowerState, Refusal,
    RefusalKind,
};
use trivet_node::Event;

use crate::Rack;

/// How often an operator's hard order is looked after, once a second.
const POLLS_MAX: u32 = 60;

/// How long a system may take to shut down. Ironic's number.
const SOFT_S: u32 = 600;

/// The longest time an operator may give. Ours.
const TIMEOUT_S_MAX: u32 = 86_400;

/// How an operator's power order goes on; in memory only.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Goal {
    /// What was ordered, where it is one that must come true at once.
    hard: Option<PowerOrder>,
    /// What happened since it was ordered.
    since: Since,
    /// How often it was looked after, and how often it may be; none means [`POLLS_MAX`].
    polls: u32,
    polls_max: Option<u32>,
    /// Switch on once the machine is seen off.
    then_on: bool,
    /// Being on counts only after that.
    must_fall: bool,
}

/// What happened to an order on its way.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Since {
    /// Nothing of note.
    #[default]
    Ordered,
    /// The BMC was restarted for it: its silence is no answer.
    BmcRestarted,
    /// The box has restarted: whether the BMC was told is not known.
    BoxRestarted,
}

impl Goal {
    /// What is said of an order that did not come true.
    fn unmet(self) -> &'static str {
        if self.since == Since::BoxRestarted {
            "the box restarted while the power order was under way, and the power is still not as \
             it was wanted; give the order again"
        } else if self.polls_max.is_some() {
            "the BMC took the power order, but the system did not go down in time; power off or \
             reboot hard"
        } else if self.since == Since::BmcRestarted {
            "the BMC took the power order, but the power state did not change, also after the BMC \
             was restarted; look at the machine and its BMC"
        } else {
            "the BMC took the power order, but the power state did not change; look at the machine \
             and its BMC"
        }
    }
}

/// Who carries an order out.
pub(crate) enum Way {
    Ipmi,
    Redfish,
    /// The host that runs the machine.
    Host,
    /// Nobody: it is as if done at once.
    Pretended,
    None(PowerError),
}

/// Decided by the node's interfaces: boot devices and interrupts are management, what
/// is said to the BMC itself is its vendor's, the rest is power.
pub(crate) fn way(node: &Node, order: PowerOrder) -> Way {
    let kind = match order {
        PowerOrder::ReadBoot | PowerOrder::SetBoot { .. } | PowerOrder::Nmi => Kind::Management,
        // Redfish restarts a BMC as part of management.
        PowerOrder::BmcReset { .. } if interface(node, Kind::Management) == "redfish" => {
            Kind::Management
        }
        PowerOrder::BmcReset { .. } | PowerOrder::Raw { .. } => Kind::Vendor,
        _ => Kind::Power,
    };
    match interface(node, kind) {
        "ipmitool" => Way::Ipmi,
        "ssh" => Way::Host,
        "fake" | "noop" => Way::Pretended,
        "redfish" => Way::Redfish,
        "no-vendor" => Way::None(PowerError::Unsupported {
            said: "the node's vendor interface is off; choose one that has this method",
        }),
        _ => Way::None(PowerError::Unsupported {
            said: "this box does not know the node's hardware type; choose another driver",
        }),
    }
}

/// Whether somebody is asked when it comes to power.
pub(crate) fn has_bmc(node: &Node) -> bool {
    matches!(
        way(node, PowerOrder::Status),
        Way::Ipmi | Way::Redfish | Way::Host
    )
}

impl Rack {
    /// Takes an order that no BMC is asked for. The record is what counts.
    pub(crate) fn pretend_power(&mut self, now: Now, node: &Node, order: PowerOrder) {
        let state = match order {
            PowerOrder::Status => node.power_state.unwrap_or(PowerState::Off),
            PowerOrder::Off | PowerOrder::SoftOff => PowerState::Off,
            PowerOrder::On | PowerOrder::Cycle | PowerOrder::Reset => PowerState::On,
            PowerOrder::ReadBoot
            | PowerOrder::SetBoot { .. }
            | PowerOrder::Nmi
            | PowerOrder::BmcReset { .. }
            | PowerOrder::Raw { .. } => {
                return self.bmc_answered(now, node.id, order, Ok(PowerAnswer::Accepted));
            }
        };
        if trivet_hardware::by_hand(node)
            && let Some(what) = by_hand(node, order)
        {
            self.note(now, Some(node.id), NoteKind::ByHand { what });
        }
        self.bmc_answered(now, node.id, order, Ok(PowerAnswer::Power(state)));
    }

    /// A BMC answered: to the job if there is one, else to the operator's order.
    pub(crate) fn bmc_answered(
        &mut self,
        now: Now,
        id: NodeId,
        order: PowerOrder,
        answer: Result<PowerAnswer, PowerError>,
    ) {
        if order.counts() {
            return self.vendor_bmc_answered(now, id, order, answer);
        }
        let Some(node) = self.book.node(id).cloned() else {
            return;
        };
        if order == PowerOrder::Status && self.freshened(now, &node, &answer) {
            return;
        }
        match (&answer, order.switches()) {
            (Err(error), _) => {
                let said = error.to_string();
                self.note(now, Some(id), NoteKind::PowerFailed { said });
            }
            (Ok(_), Some(order)) if has_bmc(&node) => {
                self.note(now, Some(id), NoteKind::PowerTaken { order });
            }
            _ => {}
        }
        // First, so that what follows from an answer is heard after it.
        self.events
            .push_back((id, Event::Power(order, answer.clone())));
        if let PowerOrder::SetBoot {
            device, persistent, ..
        } = order
            && answer.is_ok()
            && node.job.is_none()
        {
            let mut node = (*node).clone();
            let info = &mut node.driver_internal_info;
            info.insert("boot_device".to_owned(), device.as_str().into());
            info.insert("boot_device_persistent".to_owned(), persistent.into());
            self.book.put_node(now, node);
        } else if node.job.is_none() && node.target_power_state.is_some() {
            self.operator_power(now, id, &answer);
        }
    }

    fn operator_power(&mut self, now: Now, id: NodeId, answer: &Result<PowerAnswer, PowerError>) {
        let Some(node) = self.book.node(id) else {
            return;
        };
        let mut node = (**node).clone();
        let goal = &mut self.waits.entry(id).or_default().power;
        let more = goal.polls < goal.polls_max.unwrap_or(POLLS_MAX);
        match answer {
            Ok(PowerAnswer::Power(PowerState::Off)) if goal.then_on => {
                (goal.then_on, goal.must_fall) = (false, false);
                return self.order_power(now, id, PowerOrder::On);
            }
            Ok(PowerAnswer::Power(state))
                if Some(*state) == node.target_power_state && !goal.must_fall =>
            {
                node.target_power_state = None;
                node.power_state = Some(*state);
                self.note(now, Some(id), NoteKind::PowerIs(*state));
            }
            Ok(_) if more => return self.once_more(now, id),
            Err(error) if error.is_silence() && more && goal.since == Since::BmcRestarted => {
                return self.once_more(now, id);
            }
            Ok(_) => {
                let said = goal.unmet();
                node.target_power_state = None;
                node.last_error = Some(said.to_owned());
                let said = said.to_owned();
                self.note(now, Some(id), NoteKind::PowerFailed { said });
            }
            Err(error) => {
                node.target_power_state = None;
                node.last_error = Some(error.to_string());
            }
        }
        self.book.put_node(now, node);
    }

    /// The power is not yet as an operator wants it: it is looked at again, and now and
    /// then stronger means are tried.
    fn once_more(&mut self, now: Now, id: NodeId) {
        let goal = &mut self.waits.entry(id).or_default().power;
        let rung = goal
            .hard
            .and_then(|order| trivet_node::rung(order, goal.polls, POLLS_MAX));
        match rung {
            Some(order) => {
                // Looking again counts; this answer is not to a look.
                goal.polls += 1;
                self.order_power(now, id, order);
            }
            None => self.wake_after(now, id, self.settings.limits.power_poll_ms),
        }
    }

    /// A BMC was restarted for a job or an operator's order, or would not be.
    pub(crate) fn rung_taken(
        &mut self,
        now: Now,
        id: NodeId,
        order: PowerOrder,
        answer: Result<PowerAnswer, PowerError>,
    ) {
        let Some(node) = self.book.node(id) else {
            return;
        };
        if node.job.is_some() {
            self.events.push_back((id, Event::Power(order, answer)));
        } else if node.target_power_state.is_some() {
            let goal = &mut self.waits.entry(id).or_default().power;
            if answer.is_ok() {
                goal.since = Since::BmcRestarted;
            }
            self.wake_after(now, id, self.settings.limits.retry_ms);
        }
    }

    /// A machine is heard on the wire, so it is on, whatever its BMC says.
    pub(crate) fn is_alive(&mut self, now: Now, id: NodeId) {
        let Some(node) = self.book.node(id).cloned() else {
            return;
        };
        if node.job.is_some() || node.power_state == Some(PowerState::On) {
            return;
        }
        let goal = self.waits.get(&id).map(|waits| waits.power);
        let falls = goal.is_some_and(|goal| goal.must_fall);
        if node.target_power_state == Some(PowerState::On) && !falls {
            let mut node = (*node).clone();
            node.target_power_state = None;
            node.power_state = Some(PowerState::On);
            self.note(now, Some(id), NoteKind::PowerIs(PowerState::On));
            self.book.put_node(now, node);
        } else if node.target_power_state.is_none() {
            // Somebody pressed its button, or the BMC is wrong: it is asked now.
            self.fresh.hurry(now.tick, id);
        }
    }

    /// Looks whether an operator's order has worked.
    pub(crate) fn look_at_power(&mut self, now: Now, id: NodeId) {
        let waiting = self
            .book
            .node(id)
            .is_some_and(|node| node.target_power_state.is_some());
        if waiting {
            self.waits.entry(id).or_default().power.polls += 1;
            self.order_power(now, id, PowerOrder::Status);
        }
    }

    /// After a restart: an order to be on is given again to a machine that is off,
    /// because it may have been half of a reboot.
    pub(crate) fn resume_power(&mut self, now: Now, id: NodeId) {
        let target = self.book.node(id).and_then(|node| node.target_power_state);
        let goal = &mut self.waits.entry(id).or_default().power;
        if target.is_some() {
            goal.since = Since::BoxRestarted;
        }
        goal.then_on = target == Some(PowerState::On);
        self.look_at_power(now, id);
    }

    pub(crate) fn power_wanted(
        &mut self,
        now: Now,
        node: Node,
        want: PowerWanted,
        timeout_s: Option<u32>,
    ) -> Result<(), Refusal> {
        if node.job.is_some() {
            return Err(Refusal::new(
                RefusalKind::Conflict,
                format!(
                    "Node {} is busy ({}); wait until that is done or abort it.",
                    node.id, node.provision_state
                ),
            ));
        }
        // One that waits for its turn to boot may think better of it.
        if let Some(target) = node.target_power_state
            && !self.gate.waits(node.id)
        {
            let sentence = format!(
                "Node {} is on its way to {target}; wait until that is done.",
                node.id
            );
            return Err(Refusal::new(RefusalKind::Conflict, sentence));
        }
        let soft = matches!(want, PowerWanted::SoftOff | PowerWanted::SoftReboot);
        if soft && !can(&node, Ability::SoftPower) {
            return Err(Refusal::new(
                RefusalKind::Invalid,
                format!(
                    "Node {} cannot be shut down softly; power it off or reboot it hard.",
                    node.id
                ),
            ));
        }
        let (order, target) = match want {
            PowerWanted::State(PowerState::On) => (PowerOrder::On, PowerState::On),
            PowerWanted::State(PowerState::Off) => (PowerOrder::Off, PowerState::Off),
            PowerWanted::SoftOff => (PowerOrder::SoftOff, PowerState::Off),
            PowerWanted::Reboot => (PowerOrder::Cycle, PowerState::On),
            // A machine that is off cannot be asked; it is just switched on.
            PowerWanted::SoftReboot if node.power_state == Some(PowerState::Off) => {
                (PowerOrder::On, PowerState::On)
            }
            PowerWanted::SoftReboot => (PowerOrder::SoftOff, PowerState::On),
        };
        let id = node.id;
        let then_on = want == PowerWanted::SoftReboot && order == PowerOrder::SoftOff;
        let seconds = timeout_s.or(soft.then_some(SOFT_S));
        let poll_ms = self.settings.limits.power_poll_ms.max(1);
        let polls = seconds.map(|seconds| {
            let polls = u64::from(seconds.min(TIMEOUT_S_MAX)) * 1000 / poll_ms;
            u32::try_from(polls).unwrap_or(u32::MAX).max(1)
        });
        self.boots_no_more(id);
        self.waits.entry(id).or_default().power = Goal {
            hard: polls.is_none().then_some(order),
            since: Since::Ordered,
            polls: 0,
            polls_max: polls,
            then_on,
            must_fall: then_on,
        };
        let node = Node {
            target_power_state: Some(target),
            last_error: None,
            // Whatever ran there does so no more.
            agent: None,
            ..node
        };
        self.book.put_node(now, node);
        self.order_power(now, id, order);
        Ok(())
    }
}

/// What somebody must do now, if anything.
fn by_hand(node: &Node, order: PowerOrder) -> Option<String> {
    let name = node.label();
    let agent = trivet_node::boots_agent(node);
    Some(match order {
        PowerOrder::On if agent => {
            format!("switch {name} on now and let it boot from the network")
        }
        PowerOrder::On => format!("switch {name} on now"),
        PowerOrder::Off => format!("switch {name} off now"),
        PowerOrder::SoftOff => format!("shut {name} down now"),
        PowerOrder::Cycle | PowerOrder::Reset => format!("switch {name} off and on again now"),
        _ => return None,
    })
}
