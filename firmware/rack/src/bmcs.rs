//! BMCs: connects `trivet_bmc` to the records. What it decides about a BMC becomes a record, a
//! note or an event of a job here.

mod operator_power;
mod swapped_bmcs;

use trivet_bmc::{
    BmcContext, BmcLimits, BmcNodeRecords, BmcOrderOwner, BmcOutcome, BmcProtocol, Bmcs,
    FakeProtocol, ManualProtocol,
};
use trivet_bmc_ipmi::IpmiProtocol;
use trivet_bmc_redfish::RedfishProtocol;
use trivet_bmc_ssh::SshProtocol;
use trivet_bmc_wol::WakeOnLanProtocol;
use trivet_model::node::POWER_FAILURE;
use trivet_model::{
    BmcReply, BmcRequest, MacAddr, Node, NodeId, NoteKind, Now, OrderOutcome, PowerAnswer,
    PowerError, PowerOrder,
};
use trivet_node::{NodeEvent, NodeLimits};

pub(crate) use operator_power::OperatorPower;
pub(crate) use swapped_bmcs::PowerOns;

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

pub(crate) fn new_bmcs(settings: &Settings, calls: u64) -> Bmcs {
    Bmcs::new(protocols(settings), calls)
}

/// The limits of BMCs, from those of nodes.
pub(crate) fn bmc_limits(limits: &NodeLimits, power_sync_interval_ms: Option<u64>) -> BmcLimits {
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

impl Rack {
    pub(crate) fn bmcs_and_context(&mut self, now: Now) -> (&mut Bmcs, BmcContext<'_>) {
        let settings = &self.settings;
        let context = BmcContext {
            now: now.tick,
            nodes: &self.records,
            limits: bmc_limits(&settings.limits, settings.power_sync_interval_ms),
            entropy: &mut *self.entropy,
        };
        (&mut self.bmcs, context)
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
            let power = self.transient.entry(id).or_default().power;
            let rules = power.rules(&self.settings.limits, &node);
            let (bmcs, mut context) = self.bmcs_and_context(now);
            bmcs.order_for_operator(&mut context, id, order, rules);
        }
    }

    /// Tells which records changed, so that nodes with the same BMC are found.
    pub(crate) fn update_bmc_records(&mut self, now: Now) {
        let changed = std::mem::take(&mut self.records.bmcs_changed);
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
                return;
            };
            self.handle_bmc_outcome(now, outcome);
        }
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
            BmcOutcome::SwitchOnSent { node, order } => {
                self.switched_on(now, node);
                self.restart_requested(now, node, order);
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
        self.bmcs.machine_seen(id);
        self.own_machine_seen(id);
        self.boot_queue.machine_seen(now.tick, id);
        self.events.push_back((id, NodeEvent::MachineSeen));
    }
}
