//! The interface between [`crate::Bmcs`] and a protocol.
//!
//! A protocol is a crate that implements [`BmcProtocol`]: it has the queue of each BMC, the pauses
//! between requests, and the sessions. It gets orders under a number and returns answers under the
//! same number; it does not know the origin of a request. Time and randomness are arguments, and
//! what is sent and received are values.

use trivet_model::interface::{ManagementInterface, PowerInterface, VendorInterface};
use trivet_model::power::HardwareHealth;
use trivet_model::{
    BmcReply, BmcRequest, Entropy, MacAddr, Node, NodeId, NoteKind, PowerAnswer, PowerError,
    PowerOrder, Tick,
};

use crate::message::{BmcMessage, BmcTransmit};

/// An interface of a node that a protocol may implement.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BmcInterface {
    /// Power control.
    Power(PowerInterface),
    /// Boot devices, interrupts, sensors and all other BMC requests.
    Management(ManagementInterface),
    /// Commands to the BMC itself.
    Vendor(VendorInterface),
}

/// Where the orders of a protocol go.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BmcReach {
    /// Nowhere: only the node's record changes.
    Record,
    /// To the machine, without a reply: its power state cannot be read.
    OneWay,
    /// To a host that answers for the machine.
    Host,
    /// To the machine's own BMC. How well it answers is recorded.
    Bmc,
}

impl BmcReach {
    /// Whether the power state can be read.
    pub fn answers(self) -> bool {
        matches!(self, Self::Host | Self::Bmc)
    }
}

/// The time and the randomness of a call.
pub struct BmcProtocolContext<'a> {
    /// The present time.
    pub now: Tick,
    /// Randomness.
    pub entropy: &'a mut dyn Entropy,
}

/// The node of an order.
pub struct BmcTarget<'a> {
    /// Its record.
    pub node: &'a Node,
    /// The addresses of its ports.
    pub macs: &'a [MacAddr],
    /// Its machine is to boot the agent from the network.
    pub boots_agent: bool,
}

/// What a protocol did with an order.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BmcOrderStep {
    /// It carries the order out and will answer it.
    Taken,
    /// The protocol of this power interface is to carry the order out.
    Forward(PowerInterface),
}

/// What a protocol reports.
#[derive(Debug)]
pub enum BmcProtocolEvent {
    /// The order of this number has ended.
    OrderAnswered {
        /// The number of the order.
        number: u64,
        /// The answer.
        answer: Result<PowerAnswer, PowerError>,
    },
    /// The BMC request of this number has ended.
    RequestAnswered {
        /// The number of the request.
        number: u64,
        /// The reply.
        reply: Result<BmcReply, PowerError>,
    },
    /// What the BMC reports about the hardware has changed.
    HardwareHealth {
        /// The node.
        node: NodeId,
        /// The new value; none if the BMC reports none.
        health: Option<HardwareHealth>,
    },
    /// A note for the timeline of a node.
    Note {
        /// The node.
        node: NodeId,
        /// The note.
        kind: NoteKind,
    },
}

/// A protocol for power control and other requests to BMCs.
///
/// Every order and request that was accepted ends with one answer, unless its node was removed.
pub trait BmcProtocol: Send {
    /// Its name in counters, such as `ipmi`.
    fn name(&self) -> &'static str;

    /// Whether this protocol implements this interface of this node.
    fn serves(&self, node: &Node, interface: BmcInterface) -> bool;

    /// Where its orders go.
    fn reach(&self) -> BmcReach;

    /// Whether the restart of a BMC belongs to the management interface, as in Redfish, and not to
    /// the vendor interface.
    fn resets_bmc_by_management(&self) -> bool {
        false
    }

    /// What identifies the node's BMC, beginning with its address; none where `driver_info` names
    /// none. Two nodes with the same identity would receive each other's replies.
    fn bmc_identity(&self, _node: &Node) -> Option<String> {
        None
    }

    /// Queues an order.
    fn order(
        &mut self,
        context: &mut BmcProtocolContext,
        target: &BmcTarget,
        number: u64,
        order: PowerOrder,
    ) -> Result<BmcOrderStep, PowerError>;

    /// Queues a BMC request other than power.
    fn request(
        &mut self,
        context: &mut BmcProtocolContext,
        target: &BmcTarget,
        number: u64,
        request: &BmcRequest,
    ) -> Result<(), PowerError>;

    /// Handles a message; returns it if it belongs to another protocol.
    fn receive(
        &mut self,
        _context: &mut BmcProtocolContext,
        message: BmcMessage,
    ) -> Option<BmcMessage> {
        Some(message)
    }

    /// When [`BmcProtocol::tick`] is due next.
    fn deadline(&self) -> Option<Tick> {
        None
    }

    /// Time has passed.
    fn tick(&mut self, _context: &mut BmcProtocolContext) {}

    /// Ends the session of a node: its orders and requests are answered with an error.
    fn remove(&mut self, _context: &mut BmcProtocolContext, _node: NodeId) {}

    /// The next report.
    fn next_event(&mut self) -> Option<BmcProtocolEvent>;

    /// The next message to send. A message that is answered gets the next number of `calls`.
    fn next_transmit(&mut self, _now: Tick, _calls: &mut u64) -> Option<BmcTransmit> {
        None
    }
}

/// The error of an order or request whose session was removed while it ran.
pub fn driver_info_changed() -> PowerError {
    PowerError::Host {
        message: "driver_info changed during a request to the BMC; retry".to_owned(),
        lasting: false,
    }
}
