//! Power control without a BMC: on fake hardware the record changes at once; on hardware without
//! power control a note has the instructions for a person.

use std::collections::VecDeque;

use trivet_model::interface::{ManagementInterface, PowerInterface, VendorInterface};
use trivet_model::{BmcRequest, Node, NoteKind, PowerAnswer, PowerError, PowerOrder, PowerState};

use crate::protocol::{
    BmcInterface, BmcOrderStep, BmcProtocol, BmcProtocolContext, BmcProtocolEvent, BmcReach,
    BmcTarget,
};

const NO_BMC: &str = "this node has fake hardware without a BMC; choose a driver with a BMC";

const NO_MANAGEMENT: &str =
    "the node's driver has no management by a BMC; choose a driver with a BMC";

/// Simulated hardware: every order succeeds at once.
#[derive(Default)]
pub struct FakeProtocol {
    events: VecDeque<BmcProtocolEvent>,
}

impl BmcProtocol for FakeProtocol {
    fn name(&self) -> &'static str {
        "fake"
    }

    fn serves(&self, _: &Node, interface: BmcInterface) -> bool {
        matches!(
            interface,
            BmcInterface::Power(PowerInterface::Fake)
                | BmcInterface::Management(ManagementInterface::Fake | ManagementInterface::Noop)
                | BmcInterface::Vendor(VendorInterface::Fake)
        )
    }

    fn reach(&self) -> BmcReach {
        BmcReach::Record
    }

    fn order(
        &mut self,
        _: &mut BmcProtocolContext,
        target: &BmcTarget,
        number: u64,
        order: PowerOrder,
    ) -> Result<BmcOrderStep, PowerError> {
        let answer = Ok(answer(target.node, order));
        let event = BmcProtocolEvent::OrderAnswered { number, answer };
        self.events.push_back(event);
        Ok(BmcOrderStep::Taken)
    }

    fn request(
        &mut self,
        _: &mut BmcProtocolContext,
        target: &BmcTarget,
        _: u64,
        _: &BmcRequest,
    ) -> Result<(), PowerError> {
        let message = match trivet_drivers::management_interface(target.node) {
            Some(ManagementInterface::Noop) => NO_MANAGEMENT,
            _ => NO_BMC,
        };
        Err(PowerError::Unsupported { message })
    }

    fn next_event(&mut self) -> Option<BmcProtocolEvent> {
        self.events.pop_front()
    }
}

/// A machine that a person switches: an order succeeds at once, and a note says what to do.
#[derive(Default)]
pub struct ManualProtocol {
    events: VecDeque<BmcProtocolEvent>,
}

impl BmcProtocol for ManualProtocol {
    fn name(&self) -> &'static str {
        "manual"
    }

    fn serves(&self, node: &Node, interface: BmcInterface) -> bool {
        trivet_drivers::is_manual(node) && interface == BmcInterface::Power(PowerInterface::Fake)
    }

    fn reach(&self) -> BmcReach {
        BmcReach::Record
    }

    fn order(
        &mut self,
        _: &mut BmcProtocolContext,
        target: &BmcTarget,
        number: u64,
        order: PowerOrder,
    ) -> Result<BmcOrderStep, PowerError> {
        if let Some(what) = by_hand(target, order) {
            let (node, kind) = (target.node.id, NoteKind::ManualActionNeeded { what });
            self.events.push_back(BmcProtocolEvent::Note { node, kind });
        }
        let answer = Ok(answer(target.node, order));
        let event = BmcProtocolEvent::OrderAnswered { number, answer };
        self.events.push_back(event);
        Ok(BmcOrderStep::Taken)
    }

    fn request(
        &mut self,
        _: &mut BmcProtocolContext,
        _: &BmcTarget,
        _: u64,
        _: &BmcRequest,
    ) -> Result<(), PowerError> {
        let message = NO_MANAGEMENT;
        Err(PowerError::Unsupported { message })
    }

    fn next_event(&mut self) -> Option<BmcProtocolEvent> {
        self.events.pop_front()
    }
}

/// The answer where only the record changes.
fn answer(node: &Node, order: PowerOrder) -> PowerAnswer {
    match order {
        PowerOrder::Status => PowerAnswer::Power(node.power_state.unwrap_or(PowerState::Off)),
        PowerOrder::Off | PowerOrder::SoftOff => PowerAnswer::Power(PowerState::Off),
        PowerOrder::On | PowerOrder::Cycle | PowerOrder::Reset => {
            PowerAnswer::Power(PowerState::On)
        }
        PowerOrder::ReadBoot
        | PowerOrder::SetBoot { .. }
        | PowerOrder::Nmi
        | PowerOrder::BmcReset { .. }
        | PowerOrder::Raw { .. } => PowerAnswer::Accepted,
    }
}

/// The action that a person must take now, if any.
fn by_hand(target: &BmcTarget, order: PowerOrder) -> Option<String> {
    let name = target.node.label();
    Some(match order {
        PowerOrder::On if target.boots_agent => {
            format!("switch {name} on now and let it boot from the network")
        }
        PowerOrder::On => format!("switch {name} on now"),
        PowerOrder::Off => format!("switch {name} off now"),
        PowerOrder::SoftOff => format!("shut {name} down now"),
        PowerOrder::Cycle | PowerOrder::Reset => format!("switch {name} off and on again now"),
        _ => return None,
    })
}
