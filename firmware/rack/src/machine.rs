//! The machine: who gets which input, and what follows from a node's step.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use trivet_model::{AgentOrder, Done, Entropy, NodeId, NoteKind, Now, PowerOrder, Tick, View};
use trivet_node::{Action, Event};
use trivet_store::Records;

use crate::boot_files::BootFiles;
use crate::faults::Quiet;
use crate::freshness::Fresh;
use crate::health::Health;
use crate::hosts::Hosts;
use crate::lan::{self, Lan};
use crate::logs::Collection;
use crate::power::Lines;
use crate::power_change::PowerChange;
use crate::records::Book;
use crate::redfish::Services;
use crate::rivals::Rivals;
use crate::swapped::PowerOns;
use crate::switching::{OperatorPower, Way, way};
use crate::vendor::Promise;
use crate::written::Writes;
use crate::{Input, Outbox, Output, Settings};

/// All rooms as one machine. One thread owns it; it never waits.
pub struct Rack {
    pub(crate) settings: Settings,
    pub(crate) entropy: Box<dyn Entropy + Send>,
    pub(crate) book: Book,
    pub(crate) dhcp: Option<trivet_dhcp::Server>,
    pub(crate) lan: Lan,
    pub(crate) quiet: Quiet,
    pub(crate) lines: Lines,
    pub(crate) hosts: Hosts,
    pub(crate) services: Services,
    /// What each node waits for, apart from its record.
    pub(crate) waits: BTreeMap<NodeId, Waits>,
    /// Wake-ups, earliest first.
    wakes: BTreeSet<(Tick, NodeId)>,
    /// When changes of power go on, earliest first.
    pub(crate) power_wakes: BTreeSet<(Tick, NodeId)>,
    /// Whose job has requested nothing of its BMC since the box started: what it requested
    /// before may have been carried out.
    pub(crate) resumed: BTreeSet<NodeId>,
    /// Who was switched on when, and who was heard instead.
    pub(crate) power_ons: PowerOns,
    /// Steps that follow from this input, in order.
    pub(crate) events: VecDeque<(NodeId, Event)>,
    pub(crate) outputs: Vec<Output>,
    pub(crate) calls: u64,
    /// Who boots from the network, and who waits for it.
    pub(crate) gate: trivet_storm::Gate,
    /// Answers owed to callers, one for a node.
    pub(crate) promises: BTreeMap<NodeId, Promise>,
    /// Whose power state is read when.
    pub(crate) fresh: Fresh,
    /// How well BMCs answer.
    pub(crate) health: Health,
    /// Nodes that name one BMC.
    pub(crate) rivals: Rivals,
    /// Writes that wait for their image.
    pub(crate) writes: Writes,
    /// Files that nodes boot from, fetched by their URLs.
    pub(crate) boot_files: BootFiles,
}

/// What is under way for one node and not on flash.
#[derive(Default)]
pub(crate) struct Waits {
    wake: Option<Tick>,
    /// The call to the agent that is out, and its number.
    pub(crate) call: Option<(u64, AgentOrder)>,
    /// The agent beat while that call was out.
    pub(crate) beaten: bool,
    /// This run of the box handed out the token of the present boot.
    pub(crate) minted: bool,
    /// When a reset was requested, until the machine is seen to restart.
    pub(crate) reset_at: Option<Tick>,
    /// Why agents were refused, whether they called from the node's own address, and until
    /// when that is not noted again. [`crate::agents`] bounds it.
    pub(crate) refused: BTreeMap<(&'static str, bool), Tick>,
    /// Whether the agent's logs are being collected.
    pub(crate) logs: Collection,
    /// What an operator's power order is about.
    pub(crate) power: OperatorPower,
    /// The change of power, or the question to the BMC, that is under way.
    pub(crate) change: Option<PowerChange>,
}

impl Rack {
    /// The machine with the records that flash held. The shell must send
    /// [`Input::Started`] first.
    pub fn new(settings: Settings, entropy: Box<dyn Entropy + Send>, records: Records) -> Self {
        let mut entropy = entropy;
        // A late answer to a call of a former machine must not fit a call of this one.
        let calls = entropy.number() >> 1;
        let mut book = Book::restore(records);
        book.view.links.extend(lan::links(&settings));
        book.view.boots_max = settings.limits.boots_max;
        Self {
            dhcp: settings.dhcp.clone().map(trivet_dhcp::Server::new),
            lines: Lines::new(settings.pace),
            hosts: Hosts::default(),
            services: Services::default(),
            gate: crate::boots::gate(&settings),
            settings,
            entropy,
            book,
            lan: Lan::default(),
            quiet: Quiet::default(),
            waits: BTreeMap::new(),
            wakes: BTreeSet::new(),
            power_wakes: BTreeSet::new(),
            resumed: BTreeSet::new(),
            power_ons: PowerOns::default(),
            events: VecDeque::new(),
            outputs: Vec::new(),
            calls,
            promises: BTreeMap::new(),
            fresh: Fresh::default(),
            health: Health::default(),
            rivals: Rivals::default(),
            writes: Writes::default(),
            boot_files: BootFiles::default(),
        }
    }

    /// A snapshot for readers. Costs the same however many nodes there are.
    pub fn view(&self) -> View {
        self.book.view.clone()
    }

    /// When [`Input::Tick`] is due next.
    pub fn deadline(&self) -> Option<Tick> {
        let wake = self.wakes.first().map(|(at, _)| *at);
        let leases = self.dhcp.as_ref().and_then(trivet_dhcp::Server::deadline);
        let power = self.power_wakes.first().map(|(at, _)| *at);
        wake.into_iter()
            .chain(power)
            .chain(self.lines.deadline())
            .chain(self.services.deadline())
            .chain(leases)
            .chain(self.gate.deadline())
            .chain(self.promise_deadline())
            .chain(self.lan.deadline())
            .chain(self.quiet.deadline())
            .chain(self.fresh.deadline())
            .min()
    }

    /// Takes one input through all rooms. The outbox collects over a batch.
    pub fn handle(&mut self, now: Now, input: Input, outbox: &mut Outbox) {
        match input {
            Input::Started => self.started(now),
            Input::Order {
                ticket,
                caller,
                order,
            } => {
                let result = self.asked(now, ticket, caller, order);
                self.settle(now);
                if result != Ok(Done::Owed) {
                    self.outputs.push(Output::Reply { ticket, result });
                }
            }
            Input::Dhcp { arrival, bytes } => self.dhcp_heard(now, arrival, &bytes),
            Input::Claimed { link, address, mac } => self.claimed(now, link, address, mac),
            Input::Bmc { from, bytes } => {
                self.lines
                    .datagram(now.tick, from, &bytes, &mut *self.entropy);
            }
            Input::AgentAnswered { node, call, result } => {
                self.agent_answered(now, node, call, result);
            }
            Input::SshAnswered { node, run, result } => self.ssh_answered(now, node, run, result),
            Input::RedfishAnswered { call, result, .. } => {
                self.services.answered(now.tick, call, result);
            }
            Input::FileAsked {
                ticket,
                door,
                peer,
                path,
            } => {
                let grant = self.file_asked(now, door, peer, &path);
                self.outputs.push(Output::File { ticket, grant });
            }
            Input::FileSent {
                peer,
                door,
                path,
                sent,
                asked,
                took_ms,
                ended,
            } => {
                self.file_sent(now, peer, door, path, (sent, asked, took_ms), ended);
            }
            Input::FileRefused {
                peer,
                door,
                path,
                answer,
                why,
            } => self.file_refused(now, (peer, door), path, (answer, why)),
            Input::AgentRefused(refused) => self.agent_refused(now, &refused),
            Input::Image(news) => self.image_news(now, crate::callers::without_credentials(*news)),
            Input::SumFound { url, name, result } => {
                let result = result.map_err(crate::callers::redacted);
                self.sum_found(now, &url, &name, result);
            }
            Input::BootFileFetched { url, result } => self.boot_file_fetched(now, &url, result),
            Input::Logs {
                node,
                kept,
                collected,
            } => self.logs_kept(now, node, kept, collected),
            Input::Overgrown(node) => self.events.push_back((node, Event::Overgrown)),
            Input::Tick => self.tick(now),
        }
        self.settle(now);
        outbox.outputs.append(&mut self.outputs);
    }

    /// Ends a batch: what must be durable before the outputs may leave.
    pub fn take_changes(&mut self, outbox: &mut Outbox) {
        outbox.changes.append(&mut self.book.take_changes());
    }

    fn started(&mut self, now: Now) {
        self.settle_rivals(now);
        self.restore_leases(now);
        self.pin_images();
        for fault in self.settings.faults.clone() {
            self.fault(now, fault);
        }
        let ids: Vec<_> = self.book.view.nodes.keys().copied().collect();
        for id in ids {
            if let Some(node) = self.book.node(id).cloned() {
                self.resume_boot(now, &node);
            }
            if self.book.node(id).is_some_and(|node| node.job.is_some()) {
                self.resumed.insert(id);
            }
            self.events.push_back((id, Event::Restarted));
            self.resume_power(now, id);
            self.keep_fresh(now, id);
        }
    }

    fn tick(&mut self, now: Now) {
        while let Some(&(at, id)) = self.wakes.first()
            && at <= now.tick
        {
            self.wakes.pop_first();
            if let Some(waits) = self.waits.get_mut(&id) {
                waits.wake = None;
            }
            self.events.push_back((id, Event::Woke));
        }
        self.wake_changes(now);
        self.lines.tick(now.tick, &mut *self.entropy);
        self.services.tick(now.tick);
        self.gate.tick(now.tick);
        self.expire_promises(now);
        self.expire_leases(now);
        self.tell_of_strangers(now);
        self.expire_faults(now);
        self.freshen(now);
    }

    /// Carries out what follows, until nothing does.
    pub(crate) fn settle(&mut self, now: Now) {
        self.settle_rivals(now);
        loop {
            while let Some((id, event)) = self.events.pop_front() {
                self.step(now, id, event);
            }
            while let Some((id, (order, asked), answer)) = self.lines.answer() {
                self.bmc_heard(now, id, Some(asked), answer.as_ref().err());
                self.bmc_answered(now, id, order, answer);
            }
            while let Some((id, (order, asked), answer)) = self.services.answer() {
                self.bmc_heard(now, id, Some(asked), answer.as_ref().err());
                self.bmc_answered(now, id, order, answer);
            }
            while let Some((id, number, result)) = self.services.findings() {
                self.bmc_heard(now, id, None, result.as_ref().err());
                self.errand_answered(now, id, number, result);
            }
            while let Some((id, number, result)) = self.lines.findings() {
                self.bmc_heard(now, id, None, result.as_ref().err());
                self.errand_answered(now, id, number, result);
            }
            if self.events.is_empty() && !self.let_boot(now) {
                break;
            }
        }
        while let Some((to, bytes)) = self.lines.transmit() {
            self.outputs.push(Output::Bmc { to, bytes });
        }
        while let Some(leaving) = self.services.transmit(now.tick, &mut self.calls) {
            self.outputs.push(Output::Redfish {
                node: leaving.node,
                call: leaving.call,
                target: leaving.target,
                request: Box::new(leaving.request),
            });
        }
    }

    fn step(&mut self, now: Now, id: NodeId, event: Event) {
        let Some(before) = self.book.node(id).cloned() else {
            return;
        };
        let (after, actions) =
            trivet_node::step(now, &self.settings.limits, (*before).clone(), event);
        if after != *before {
            if after.job.is_none() {
                self.writes.forget(id);
                self.boot_files.drop_held(id);
                if before.job.is_some() {
                    self.drop_change(id);
                }
            }
            self.book.put_node(now, after);
            self.check_boot(id);
        }
        self.carry_out(now, id, actions);
    }

    pub(crate) fn carry_out(&mut self, now: Now, id: NodeId, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Power(order) => self.order_power(now, id, order),
                Action::Agent(order) => self.call_agent(now, id, order),
                Action::WakeAfter(ms) => self.wake_after(now, id, ms),
                Action::CollectLogs(agent) => {
                    self.waits.entry(id).or_default().logs = Collection::UnderWay;
                    self.collect_logs(id, &agent);
                }
                Action::SwitchOffFailed => self.switch_off_failed(now, id),
                Action::AgentContradictsBmc { why } => self.agent_contradicts_bmc(id, &why),
                Action::Note(kind) => self.note(now, Some(id), kind),
            }
        }
    }

    /// Gives a power order whose turn has come.
    pub(crate) fn give_power(&mut self, now: Now, id: NodeId, order: PowerOrder) {
        let Some(node) = self.book.node(id).cloned() else {
            return;
        };
        if matches!(
            order,
            PowerOrder::On | PowerOrder::Cycle | PowerOrder::Reset
        ) {
            self.switched_on(now, id);
            self.restart_requested(now, id, order);
        }
        let way = way(&node, order);
        if let (Way::Ipmi | Way::Redfish | Way::Host, Some(order)) = (&way, order.switches()) {
            self.note(now, Some(id), NoteKind::PowerOrdered { order });
        }
        if matches!(way, Way::Ipmi | Way::Redfish)
            && let Some(error) = self.shared_bmc(id)
        {
            return self.bmc_answered(now, id, order, Err(error));
        }
        match way {
            Way::Ipmi => {
                let given = self.lines.order(now.tick, &node, order, &mut *self.entropy);
                if let Err(error) = given {
                    self.bmc_answered(now, id, order, Err(error));
                }
            }
            Way::Redfish => {
                let given = self.services.order(now.tick, &node, order);
                if let Err(error) = given {
                    self.bmc_answered(now, id, order, Err(error));
                }
            }
            Way::Host => self.order_host(now, &node, order),
            Way::Pretended => self.pretend_power(now, &node, order),
            Way::None(error) => self.bmc_answered(now, id, order, Err(error)),
        }
    }

    pub(crate) fn wake_after(&mut self, now: Now, id: NodeId, ms: u64) {
        let waits = self.waits.entry(id).or_default();
        let at = now.tick.after_ms(ms);
        if let Some(old) = waits.wake.replace(at) {
            self.wakes.remove(&(old, id));
        }
        self.wakes.insert((at, id));
    }

    pub(crate) fn wake_no_more(&mut self, id: NodeId) {
        let waits = self.waits.get_mut(&id);
        if let Some(old) = waits.and_then(|waits| waits.wake.take()) {
            self.wakes.remove(&(old, id));
        }
    }

    pub(crate) fn forget(&mut self, now: Now, id: NodeId) {
        self.forget_fresh(now, id);
        self.writes.forget(id);
        self.boot_files.drop_held(id);
        self.drop_change(id);
        self.resumed.remove(&id);
        self.power_ons.forget(id);
        if let Some(wake) = self.waits.remove(&id).and_then(|waits| waits.wake) {
            self.wakes.remove(&(wake, id));
        }
        self.boots_no_more(id);
        self.lines.forget(id, &mut *self.entropy);
        self.health.forget(id);
        self.hosts.forget(id);
        self.services.forget(id);
        self.break_promise(id);
        self.outputs.push(Output::DropLogs(id));
    }

    pub(crate) fn note(&mut self, now: Now, id: Option<NodeId>, kind: NoteKind) {
        let output = self.book.note(now, id, kind);
        self.outputs.push(output);
    }
}
