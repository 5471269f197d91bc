//! BMCs: connects `trivet_bmc` to the records. What it decides about a BMC becomes a record, a
//! note or an event of a job here.

mod operator_power;
mod swapped_bmcs;

use std::collections::BTreeMap;
use std::net::IpAddr;

use trivet_bmc::{
    BmcContext, BmcLimits, BmcNodeRecords, BmcOrderOwner, BmcOutcome, BmcProtocol, BmcTransmit,
    Bmcs, FakeProtocol, ManualProtocol,
};
use trivet_bmc_ipmi::IpmiProtocol;
use trivet_bmc_redfish::RedfishProtocol;
use trivet_bmc_ssh::SshProtocol;
use trivet_bmc_wol::WakeOnLanProtocol;
use trivet_model::interface::PowerInterface;
use trivet_model::node::POWER_FAILURE;
use trivet_model::power::HardwareHealth;
use trivet_model::{
    BmcReply, BmcRequest, Entropy, MacAddr, Node, NodeId, NoteKind, Now, OrderOutcome, PowerAnswer,
    PowerError, PowerOrder, Tick,
};
use trivet_node::{NodeEvent, NodeLimits};

use operator_power::OperatorPower;
use swapped_bmcs::PowerOns;

use crate::records::RecordIndex;
use crate::{Rack, RackOutput, Settings};

/// The protocols; the first one that serves an interface of a node carries its orders. A new
/// protocol is one crate and one line here.
fn protocols(settings: &Settings) -> Vec<Box<dyn BmcProtocol>> {
    vec![
        Box::new(IpmiProtocol::new(settings.pace)),
        Box::new(RedfishProtocol::default()),
        Box::new(SshProtocol::default()),
        Box::new(WakeOnLanProtocol::default()),
        Box::new(ManualProtocol::default()),
        Box::new(FakeProtocol::default()),
    ]
}

/// BMCs, and what is known of power orders beyond the records.
pub(crate) struct BmcsPart {
    bmcs: Bmcs,
    /// When each node was switched on, and which other machine was seen instead.
    power_ons: PowerOns,
    /// The power orders of operators.
    operator_power: BTreeMap<NodeId, OperatorPower>,
}

impl BmcsPart {
    /// The numbers of calls follow `calls`.
    pub(crate) fn new(settings: &Settings, calls: u64) -> Self {
        Self {
            bmcs: Bmcs::new(protocols(settings), calls),
            power_ons: PowerOns::default(),
            operator_power: BTreeMap::new(),
        }
    }

    pub(crate) fn deadline(&self) -> Option<Tick> {
        self.bmcs.deadline()
    }

    /// The node that would lose its BMC if the record `new` replaced `old`.
    pub(crate) fn displaced_node(&self, old: &Node, new: &Node) -> Option<NodeId> {
        self.bmcs.displaced_node(old, new)
    }

    /// Whether a node names a BMC at this address.
    pub(crate) fn is_bmc(&self, address: IpAddr) -> bool {
        self.bmcs.is_bmc(address)
    }

    /// Whether a caller waits for the BMC of this node.
    pub(crate) fn awaits_reply(&self, id: NodeId) -> bool {
        self.bmcs.awaits_reply(id)
    }

    /// How many callers wait for a BMC.
    pub(crate) fn replies_awaited(&self) -> usize {
        self.bmcs.replies_awaited()
    }

    /// The box has restarted during a job of this node.
    pub(crate) fn resume_job(&mut self, id: NodeId) {
        self.bmcs.resume_job(id);
    }

    /// The node's power change is no longer needed.
    pub(crate) fn drop_change(&mut self, id: NodeId) {
        self.bmcs.drop_change(id);
    }

    /// The next message to send.
    pub(crate) fn next_transmit(&mut self, now: Tick) -> Option<BmcTransmit> {
        self.bmcs.next_transmit(now)
    }

    /// The node was deleted.
    pub(crate) fn remove_node(&mut self, context: &mut BmcContext, id: NodeId) {
        let Self {
            bmcs,
            power_ons,
            operator_power,
        } = self;
        bmcs.remove(context, id);
        power_ons.remove(id);
        operator_power.remove(&id);
    }
}

/// The limits of BMCs, from those of nodes.
fn bmc_limits(limits: &NodeLimits, power_sync_interval_ms: Option<u64>) -> BmcLimits {
    BmcLimits {
        power_poll_ms: limits.power_poll_ms,
        power_timeout_ms: limits.power_timeout_ms,
        bmc_wait_ms: limits.bmc_wait_ms,
        bmc_reset: limits.bmc_reset,
        retry_ms: limits.retry_ms,
        power_sync_retries_max: limits.power_sync_retries_max,
        power_sync_interval_ms,
    }
}

impl BmcNodeRecords for RecordIndex {
    fn node(&self, id: NodeId) -> Option<&Node> {
        self.node(id).map(AsRef::as_ref)
    }

    fn macs(&self, id: NodeId) -> Vec<MacAddr> {
        let ports = self.ports_of(id);
        ports.iter().map(|port| port.address).collect()
    }

    fn boots_agent(&self, node: &Node) -> bool {
        trivet_node::boots_agent(node)
    }
}

/// What the BMCs use from outside.
pub(crate) fn bmc_context<'a>(
    now: Now,
    settings: &Settings,
    records: &'a RecordIndex,
    entropy: &'a mut dyn Entropy,
) -> BmcContext<'a> {
    BmcContext {
        now: now.tick,
        nodes: records,
        limits: bmc_limits(&settings.limits, settings.power_sync_interval_ms),
        entropy,
    }
}

impl Rack {
    pub(crate) fn bmcs_and_context(&mut self, now: Now) -> (&mut Bmcs, BmcContext<'_>) {
        let context = bmc_context(now, &self.settings, &self.records, &mut *self.entropy);
        (&mut self.bmcs.bmcs, context)
    }

    /// Starts an admitted order: for the job if there is one, else for the operator.
    pub(crate) fn start_order(&mut self, now: Now, id: NodeId, order: PowerOrder) {
        let Some(node) = self.records.node(id).cloned() else {
            return;
        };
        if node.job.is_some() {
            let (bmcs, mut context) = self.bmcs_and_context(now);
            bmcs.order_for_job(&mut context, id, order);
        } else {
            let power = self.bmcs.operator_power.entry(id).or_default();
            let rules = power.rules(&self.settings.limits, &node);
            let (bmcs, mut context) = self.bmcs_and_context(now);
            bmcs.order_for_operator(&mut context, id, order, rules);
        }
    }

    /// Reports which records changed, so that nodes with the same BMC are found.
    pub(crate) fn update_bmc_records(&mut self, now: Now) {
        let changed = self.records.take_bmcs_changed();
        if !changed.is_empty() {
            let (bmcs, mut context) = self.bmcs_and_context(now);
            bmcs.records_changed(&mut context, changed);
        }
    }

    /// Handles all results of BMCs.
    pub(crate) fn handle_bmc_outcomes(&mut self, now: Now) {
        loop {
            let (bmcs, mut context) = self.bmcs_and_context(now);
            let Some(outcome) = bmcs.next_outcome(&mut context) else {
                break;
            };
            self.handle_bmc_outcome(now, outcome);
        }
        let ended = self.bmcs.bmcs.take_measurements().into_iter();
        self.outputs.extend(ended.map(RackOutput::Measured));
    }

    fn handle_bmc_outcome(&mut self, now: Now, outcome: BmcOutcome) {
        match outcome {
            BmcOutcome::Note { node, kind } => self.note(now, Some(node), kind),
            BmcOutcome::FaultRaised(fault) => self.fault(now, fault),
            BmcOutcome::FaultCleared(fault) => self.fault_gone(now, &fault),
            BmcOutcome::HealthChanged { node, health } => {
                self.records
                    .change_view(node, |view| view.live.bmc = Some(health));
            }
            BmcOutcome::HardwareHealth { node, health } => {
                self.hardware_health_read(now, node, health);
            }
            BmcOutcome::SwitchOnSent { node, order } => {
                self.switched_on(now, node);
                let interface = self.records.node(node);
                let interface = interface.and_then(|node| trivet_drivers::power_interface(node));
                if interface == Some(PowerInterface::Fake) {
                    self.records.switched_on_without_bmc(now, node);
                }
                self.agents.restart_requested(now.tick, node, order);
            }
            BmcOutcome::OrderCompleted {
                node,
                owner: BmcOrderOwner::Job,
                order,
                result,
            } => {
                if self
                    .records
                    .node(node)
                    .is_some_and(|node| node.job.is_some())
                {
                    self.events
                        .push_back((node, NodeEvent::Power(order, result)));
                }
            }
            BmcOutcome::OrderCompleted {
                node,
                owner: BmcOrderOwner::Operator,
                order,
                result,
            } => self.operator_order_completed(now, node, order, result),
            BmcOutcome::MediumAnswered {
                node,
                ejects,
                result,
            } => self.medium_answered(now, node, ejects, result),
            BmcOutcome::MailboxWritten { node, of, result } => {
                self.mailbox_written(now, node, of, result);
            }
            BmcOutcome::PowerRead { node, answer } => {
                self.clear_power_failure(now, node);
                let event = NodeEvent::Power(PowerOrder::Status, Ok(answer));
                self.events.push_back((node, event));
            }
            BmcOutcome::PowerUnreadable { node, error } => self.power_failure(now, node, &error),
            BmcOutcome::RequestCompleted {
                node,
                request,
                reply,
            } => self.store_boot_modes(now, node, &request, &reply),
            BmcOutcome::ReplyReady { ticket, result } => {
                let result = result.map(OrderOutcome::Reply);
                self.outputs.push(RackOutput::Reply { ticket, result });
            }
        }
    }

    /// The BMC reports another state of the hardware; a fault is noted.
    fn hardware_health_read(&mut self, now: Now, id: NodeId, health: Option<HardwareHealth>) {
        self.records
            .change_view(id, |view| view.live.health = health);
        if let Some(health @ (HardwareHealth::Warning | HardwareHealth::Critical)) = health {
            let why = format!(
                "the BMC reports the health of the hardware as {health}; read its sensors and its \
                 event log for the cause"
            );
            self.note(now, Some(id), NoteKind::Warning { why });
        }
    }

    fn operator_order_completed(
        &mut self,
        now: Now,
        id: NodeId,
        order: PowerOrder,
        result: Result<PowerAnswer, PowerError>,
    ) {
        let Some(node) = self.records.node(id).filter(|node| node.job.is_none()) else {
            return;
        };
        if order.switches().is_some() {
            if node.target_power_state.is_some() {
                self.operator_power(now, id, result);
            }
        } else if let (
            PowerOrder::SetBoot {
                device, persistent, ..
            },
            Ok(_),
        ) = (order, result)
        {
            let mut node = (**node).clone();
            let info = &mut node.driver_internal_info;
            info.insert("boot_device".to_owned(), device.as_str().into());
            info.insert("boot_device_persistent".to_owned(), persistent.into());
            self.records.put_node(now, node);
        }
    }

    /// Puts the node in maintenance until its BMC answers, as in Ironic.
    fn power_failure(&mut self, now: Now, id: NodeId, error: &PowerError) {
        let Some(node) = self.records.node(id) else {
            return;
        };
        let why = format!(
            "{POWER_FAILURE}: the power state could not be read {} times in a row: {error}",
            self.settings.limits.power_sync_retries_max
        );
        let failed = Node {
            power_state: None,
            maintenance: true,
            maintenance_reason: Some(why.clone()),
            fault: Some(POWER_FAILURE.to_owned()),
            // The reason of a failed job stays.
            last_error: node.last_error.clone().or_else(|| Some(why.clone())),
            ..(**node).clone()
        };
        self.records.put_node(now, failed);
        self.note(now, Some(id), NoteKind::Warning { why });
    }

    /// The BMC answers again: clears what the power sync set, and nothing else.
    fn clear_power_failure(&mut self, now: Now, id: NodeId) {
        let Some(node) = self
            .records
            .node(id)
            .filter(|node| node.has_power_failure())
        else {
            return;
        };
        let mut well = (**node).clone();
        well.maintenance = false;
        well.fault = None;
        let why = well.maintenance_reason.take();
        if well.last_error == why {
            well.last_error = None;
        }
        self.records.put_node(now, well);
    }

    /// Stores in the node's record the boot modes that the BMC reported.
    pub(crate) fn store_boot_modes(
        &mut self,
        now: Now,
        id: NodeId,
        bmc_request: &BmcRequest,
        findings: &BmcReply,
    ) {
        let Some(old) = self.records.node(id) else {
            return;
        };
        let mut node = (**old).clone();
        match (bmc_request, findings) {
            (BmcRequest::SetBootMode(mode), _) | (_, BmcReply::BootMode(Some(mode))) => {
                node.attributes.boot_mode = Some(*mode);
            }
            (BmcRequest::SetSecureBoot(on), _) | (_, BmcReply::SecureBoot(Some(on))) => {
                node.attributes.secure_boot = Some(*on);
            }
            _ => return,
        }
        if node.attributes != old.attributes {
            self.records.put_node(now, node);
        }
    }

    /// A machine was seen on the network or through its agent.
    pub(crate) fn machine_seen(&mut self, now: Now, id: NodeId) {
        self.bmcs.bmcs.machine_seen(id);
        // A power-on that ends with this comes first: the job then waits for its agent.
        self.handle_bmc_outcomes(now);
        self.own_machine_seen(id);
        self.boot.machine_seen(now.tick, id);
        self.events.push_back((id, NodeEvent::MachineSeen));
    }
}
