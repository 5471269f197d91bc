//! The dispatcher: which part handles which input, and what follows from a node's transition.

use std::collections::VecDeque;

use trivet_model::{Entropy, NodeId, NoteKind, Now, OrderOutcome, RackView, Tick};
use trivet_node::{NodeAction, NodeEvent};
use trivet_store::StoreRecords;

use crate::agents::AgentsPart;
use crate::bmcs::{BmcsPart, bmc_context};
use crate::boot::BootPart;
use crate::boot_files::BootFiles;
use crate::faults::FaultExpiry;
use crate::image_deployment::PendingImageWrites;
use crate::image_part::ImagePart;
use crate::lan::{self, LanPart};
use crate::nodes::NodesPart;
use crate::part_context::PartContext;
use crate::records::RecordIndex;
use crate::{Outbox, RackInput, RackOutput, Settings};

/// All crates composed into one state machine. One thread owns it; it never blocks.
pub struct Rack {
    pub(crate) settings: Settings,
    pub(crate) entropy: Box<dyn Entropy + Send>,
    pub(crate) records: RecordIndex,
    pub(crate) lan: LanPart,
    /// The images of the cache.
    pub(crate) images: ImagePart,
    fault_expiry: FaultExpiry,
    pub(crate) bmcs: BmcsPart,
    pub(crate) boot: BootPart,
    pub(crate) agents: AgentsPart,
    pub(crate) nodes: NodesPart,
    /// Events that follow from this input, in order.
    pub(crate) events: VecDeque<(NodeId, NodeEvent)>,
    pub(crate) outputs: Vec<RackOutput>,
    /// Writes that wait for their image.
    pub(crate) pending_writes: PendingImageWrites,
    /// Files that nodes boot from, fetched by their URLs.
    pub(crate) boot_files: BootFiles,
}

impl Rack {
    /// Creates the rack from the records on flash. The shell must send [`RackInput::Started`]
    /// first.
    pub fn new(
        settings: Settings,
        entropy: Box<dyn Entropy + Send>,
        records: StoreRecords,
    ) -> Self {
        let mut entropy = entropy;
        // Call numbers start at random: a late reply to a call before a restart must not match
        // a new call.
        let calls = entropy.number() >> 1;
        let mut index = RecordIndex::restore(records);
        index.view.links.extend(lan::links(&settings));
        index.view.boots_max = settings.limits.boots_max;
        Self {
            lan: LanPart::new(&settings),
            images: ImagePart::new(&settings),
            bmcs: BmcsPart::new(&settings, calls),
            boot: BootPart::new(&settings),
            agents: AgentsPart::new(calls),
            nodes: NodesPart::default(),
            settings,
            entropy,
            records: index,
            fault_expiry: FaultExpiry::default(),
            events: VecDeque::new(),
            outputs: Vec::new(),
            pending_writes: PendingImageWrites::default(),
            boot_files: BootFiles::default(),
        }
    }

    /// A snapshot for readers. Its cost does not depend on the number of nodes.
    pub fn view(&self) -> RackView {
        self.records.view.clone()
    }

    /// When [`RackInput::Tick`] is due next.
    pub fn deadline(&self) -> Option<Tick> {
        let nodes = self.nodes.deadline().into_iter();
        nodes
            .chain(self.bmcs.deadline())
            .chain(self.boot.deadline())
            .chain(self.agents.deadline())
            .chain(self.lan.deadline())
            .chain(self.images.deadline())
            .chain(self.fault_expiry.deadline())
            .chain(self.records.next_lateness())
            .min()
    }

    /// Handles one input completely. The outbox collects over a batch.
    pub fn handle(&mut self, now: Now, input: RackInput, outbox: &mut Outbox) {
        match input {
            RackInput::Started => self.started(now),
            RackInput::Order {
                ticket,
                caller,
                order,
            } => {
                let result = self.handle_order(now, ticket, caller, order);
                self.run_to_quiescence(now);
                if result != Ok(OrderOutcome::Deferred) {
                    self.outputs.push(RackOutput::Reply { ticket, result });
                }
            }
            RackInput::Dhcp { arrival, bytes } => {
                let (lan, mut context) = self.lan_and_context(now);
                if let Some(message) = lan.handle_dhcp(&mut context, arrival, &bytes) {
                    self.handle_node_dhcp(now, message);
                }
            }
            RackInput::ArpClaimed { link, address, mac } => {
                let (lan, mut context) = self.lan_and_context(now);
                lan.handle_arp_claim(&mut context, link, address, mac);
            }
            RackInput::Bmc(message) => {
                let (bmcs, mut context) = self.bmcs_and_context(now);
                bmcs.receive(&mut context, message);
            }
            RackInput::AgentAnswered { node, call, result } => {
                self.agent_answered(now, node, call, result);
            }
            RackInput::FileRequested { .. }
            | RackInput::FileSent { .. }
            | RackInput::FileRefused { .. } => self.handle_file(now, input),
            RackInput::AgentRefused(refused) => self.agent_refused(now, &refused),
            RackInput::RequestRefused(refused) => self.records.audit_refused(now, &refused),
            RackInput::Stopping => self.records.write_audit(),
            RackInput::Image(report) => {
                let (images, mut context) = self.images_and_context(now);
                images.handle(&mut context, *report);
            }
            RackInput::Logs {
                node,
                bundles: stored,
                collected,
            } => self.logs_stored(now, node, stored, collected),
            RackInput::RecordTooLarge(node) => {
                self.events.push_back((node, NodeEvent::RecordTooLarge));
            }
            RackInput::Fault { fault, exists } => self.shell_fault(now, fault, exists),
            RackInput::Tick => self.tick(now),
        }
        self.run_to_quiescence(now);
        self.finish_stories(now);
        outbox.outputs.append(&mut self.outputs);
    }

    /// Handles the inputs about files that leave the box.
    fn handle_file(&mut self, now: Now, input: RackInput) {
        match input {
            RackInput::FileRequested {
                ticket,
                protocol,
                peer,
                certificate,
                path,
            } => {
                let client = (peer, certificate);
                let grant = self.file_requested(now, protocol, client, &path);
                self.outputs.push(RackOutput::File { ticket, grant });
            }
            RackInput::FileSent {
                peer,
                protocol,
                path,
                sent,
                requested,
                took_ms,
                ended,
            } => {
                self.file_sent(now, peer, protocol, path, (sent, requested, took_ms), ended);
            }
            RackInput::FileRefused {
                peer,
                protocol,
                path,
                answer,
                why,
            } => self.file_refused(now, (peer, protocol), path, (answer, why)),
            _ => {}
        }
    }

    /// Ends a batch: what must be durable before the outputs may leave.
    pub fn take_changes(&mut self, outbox: &mut Outbox) {
        outbox.changes.append(&mut self.records.take_changes());
    }

    fn started(&mut self, now: Now) {
        self.update_bmc_records(now);
        let (lan, mut context) = self.lan_and_context(now);
        lan.restore_leases(&mut context);
        let (images, mut context) = self.images_and_context(now);
        images.start(&mut context);
        self.offer_pull_secrets(now);
        self.pin_images();
        for fault in self.settings.faults.clone() {
            self.fault(now, fault);
        }
        let ids: Vec<_> = self.records.view.nodes.keys().copied().collect();
        for id in ids {
            if let Some(node) = self.records.node(id).cloned() {
                self.resume_boot(now, &node);
            }
            if self.records.node(id).is_some_and(|node| node.job.is_some()) {
                self.bmcs.resume_job(id);
            }
            if self.records.resume_story(now, id) {
                self.note(now, Some(id), NoteKind::BoxRestarted);
            }
            self.review_diagnosis(now, id);
            self.events.push_back((id, NodeEvent::Restarted));
            self.resume_power(now, id);
            let (bmcs, mut context) = self.bmcs_and_context(now);
            bmcs.add(&mut context, id);
        }
    }

    fn tick(&mut self, now: Now) {
        while let Some(id) = self.nodes.take_expired(now.tick) {
            self.events.push_back((id, NodeEvent::TimerExpired));
        }
        let (bmcs, mut context) = self.bmcs_and_context(now);
        bmcs.tick(&mut context);
        self.boot.tick(now.tick);
        self.expire_agent_replies(now);
        let (lan, mut context) = self.lan_and_context(now);
        lan.tick(&mut context);
        context.expire_faults();
        let (images, mut context) = self.images_and_context(now);
        images.tick(&mut context);
        self.note_late_stages(now);
    }

    /// Handles events until none are left.
    pub(crate) fn run_to_quiescence(&mut self, now: Now) {
        self.update_bmc_records(now);
        loop {
            while let Some((id, event)) = self.events.pop_front() {
                self.step(now, id, event);
            }
            self.handle_bmc_outcomes(now);
            let changed = self.handle_image_news(now);
            if !changed && self.events.is_empty() && !self.start_admitted_boots(now) {
                break;
            }
        }
        while let Some(message) = self.bmcs.next_transmit(now.tick) {
            self.outputs.push(RackOutput::Bmc(message));
        }
        self.update_diagnoses(now);
    }

    fn step(&mut self, now: Now, id: NodeId, event: NodeEvent) {
        let Some(before) = self.records.node(id).cloned() else {
            return;
        };
        let (mut after, mut actions) =
            trivet_node::step(now, &self.settings.limits, (*before).clone(), event);
        self.diagnose_failed_boot(now, &mut after, &mut actions);
        if after != *before {
            if after.job.is_none() {
                self.pending_writes.remove(id);
                self.boot_files.drop_pending_power_on(id);
                if before.job.is_some() {
                    self.bmcs.drop_change(id);
                }
            }
            self.records.put_node(now, after);
            self.check_boot(id);
        }
        self.run_actions(now, id, actions);
    }

    pub(crate) fn run_actions(&mut self, now: Now, id: NodeId, actions: Vec<NodeAction>) {
        for action in actions {
            match action {
                NodeAction::Power(order) => self.order_power(now, id, order),
                NodeAction::InsertMedium => self.insert_medium(now, id),
                NodeAction::EjectMedium => self.eject_medium(now, id),
                NodeAction::SendToken => self.send_token(now, id),
                NodeAction::ClearMailbox => self.clear_mailbox(now, id),
                NodeAction::Agent(order) => self.call_agent(now, id, order),
                NodeAction::WakeAfter(ms) => self.nodes.wake_at(id, now.tick.after_ms(ms)),
                NodeAction::CollectLogs(agent) => {
                    self.agents.begin_logs(id);
                    self.collect_logs(id, &agent);
                }
                NodeAction::SwitchOffFailed => self.switch_off_failed(now, id),
                NodeAction::AgentContradictsBmc { why } => self.agent_contradicts_bmc(id, &why),
                // `diagnose_failed_boot` has read it.
                NodeAction::BootFailed { .. } => {}
                NodeAction::Note(kind) => self.note(now, Some(id), kind),
            }
        }
    }

    /// Deletes a node. Everything is named here, so that a new part cannot be forgotten.
    pub(crate) fn remove_node(&mut self, now: Now, id: NodeId) {
        let Self {
            settings,
            entropy,
            records,
            lan,
            // The images that a node needs follow from its record.
            images: _,
            // Faults of nodes are cleared by the part that raised them.
            fault_expiry: _,
            bmcs,
            boot,
            agents,
            nodes,
            // An event of a node without a record has no effect.
            events: _,
            outputs,
            pending_writes,
            boot_files,
        } = self;
        records.remove_node(id);
        lan.remove_node();
        bmcs.remove_node(&mut bmc_context(now, settings, records, &mut **entropy), id);
        boot.remove_node(records, id);
        agents.remove_node(id, outputs);
        nodes.remove_node(id);
        pending_writes.remove(id);
        boot_files.drop_pending_power_on(id);
    }

    pub(crate) fn note(&mut self, now: Now, id: Option<NodeId>, kind: NoteKind) {
        self.context(now).note(id, kind);
    }

    /// The state that parts share.
    pub(crate) fn context(&mut self, now: Now) -> PartContext<'_> {
        self.lan_and_context(now).1
    }

    fn lan_and_context(&mut self, now: Now) -> (&mut LanPart, PartContext<'_>) {
        let context = PartContext {
            now,
            records: &mut self.records,
            fault_expiry: &mut self.fault_expiry,
            outputs: &mut self.outputs,
        };
        (&mut self.lan, context)
    }

    pub(crate) fn images_and_context(&mut self, now: Now) -> (&mut ImagePart, PartContext<'_>) {
        let context = PartContext {
            now,
            records: &mut self.records,
            fault_expiry: &mut self.fault_expiry,
            outputs: &mut self.outputs,
        };
        (&mut self.images, context)
    }
}
