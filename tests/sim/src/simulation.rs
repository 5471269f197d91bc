//! The simulation: one thread, one queue of events, one seed.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::rc::Rc;

use trivet_model::{MacAddr, SeededRandom, Tick, UnixMs, Verb};
use trivet_rack::RackInput;
use trivet_rack::bmc::BmcMessage;

use crate::allocator::ResourceAllocator;
use crate::box_under_test::{BoxFailure, BoxUnderTest};
use crate::checks::InvariantChecks;
use crate::dhcp_client::RenewingDhcpClient;
use crate::fault_points::{FaultPoint, InjectedFault};
use crate::faults::SeedFaults;
use crate::file_servers::file_content;
use crate::image_faults::SimImage;
use crate::machine::{FaultyMachine, SimMachineDisk, sha256};
use crate::network::{SimEvent, SimEventQueue, SimHttpExchange, relay_address};
use crate::operator::{SimOperator, SimOperatorOutcome};
use crate::trace::{Trace, short_hash};

mod delivery;
mod diagnosed;
mod image_checks;
mod images_ahead;
mod job_watch;
mod machine_outputs;
mod steady;

/// No seed runs longer than this.
const TIME_MS_MAX: u64 = 6 * 3600 * 1000;

/// 2026-11-16, the start of the simulated wall clock.
const WALL_MS: u64 = 1_794_796_610_746;

/// How long the box takes for a batch, at most.
const BATCH_MS: u64 = 4;

/// A machine on the network without a node.
struct UnmanagedMachine {
    mac: MacAddr,
    dhcp: RenewingDhcpClient,
    tick_at: Option<Tick>,
}

/// Which agents the ramdisks have.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AgentMix {
    /// Two of three the stock one, at random; with fault points for it.
    Mixed,
    /// Our own.
    Own,
}

/// All state of a run.
pub(crate) struct RackSimulation {
    pub(crate) now: Tick,
    pub(crate) trace: Trace,
    pub(crate) checks: InvariantChecks,
    pub(crate) faults: SeedFaults,
    pub(crate) box_under_test: BoxUnderTest,
    pub(crate) machines: Vec<FaultyMachine>,
    pub(crate) operators: Vec<SimOperator>,
    allocator: Option<ResourceAllocator>,
    unmanaged: Vec<UnmanagedMachine>,
    queue: SimEventQueue,
    chance: SeededRandom,
    wall_offset_ms: i64,
    exchanges: BTreeMap<u64, Rc<SimHttpExchange>>,
    exchange_number: u64,
    batch_due: bool,
    box_tick_at: Option<Tick>,
    off_ms: u64,
    image: [u8; 32],
    /// The last observed point of each node's job.
    job_points: Vec<String>,
    /// What was observed, and at which point.
    pub(crate) observed: BTreeMap<String, u64>,
    diagnosed: diagnosed::DiagnosedRun,
    /// Datagrams to BMCs so far.
    pub(crate) bmc_datagrams: u64,
}

impl RackSimulation {
    pub(crate) fn new(seed: u64, agents: AgentMix, keep_text: bool) -> Self {
        let mut chance = SeededRandom::new(seed);
        let count = 2 + chance.below(4) as usize;
        let mut faults = SeedFaults::for_seed(seed, count, &mut chance);
        let mut stock = vec![false; count];
        if agents == AgentMix::Mixed {
            let mut chance = SeededRandom::new(seed.rotate_left(31) ^ 0x57_0c4b);
            stock.fill_with(|| chance.chance(667));
            faults.add_fault_points(seed, count);
        }
        faults.add_image_faults(seed);
        let mut simulation = Self::with(seed, &stock, faults, chance, keep_text);
        simulation.write_ahead_for_seed(seed);
        simulation
    }

    /// One machine with the stock agent, and one fault at one point.
    pub(crate) fn with_fault(place: &'static str, fault: InjectedFault, keep_text: bool) -> Self {
        let faults = SeedFaults {
            fault_points: vec![FaultPoint::new(0, place, fault)],
            ..SeedFaults::default()
        };
        let mut simulation = Self::with(8, &[true], faults, SeededRandom::new(8), keep_text);
        let more = (place == "FinishRescue").then_some(Verb::Rescue);
        simulation.operators[0].use_plain_plan(more);
        // Its duration is measured.
        simulation.machines[0].switch_power_at_once();
        simulation
    }

    /// One machine with the stock agent and no faults.
    pub(crate) fn without_faults(fast_track: bool) -> Self {
        let mut simulation = Self::with(
            8,
            &[true],
            SeedFaults::default(),
            SeededRandom::new(8),
            true,
        );
        simulation.box_under_test.settings.limits.fast_track = fast_track;
        simulation.operators[0].use_plain_plan(None);
        simulation.machines[0].switch_power_at_once();
        simulation
    }

    fn with(
        seed: u64,
        stock: &[bool],
        faults: SeedFaults,
        mut chance: SeededRandom,
        keep_text: bool,
    ) -> Self {
        let count = stock.len();
        let usual = || file_content(Path::new("/images/disk.raw"));
        let raw = faults.image.clone().or_else(usual).unwrap_or_default();
        let digest = sha256(&raw);
        let image = SimImage::new(seed, raw);
        let info = image.instance_info();
        let unknown_machines = if faults.are_quiet() {
            0
        } else {
            chance.below(3) as usize
        };
        let lease_s = 60 + chance.below(400) as u32;
        let addresses = (count + unknown_machines + 1) as u8;
        let machines: Vec<_> = (0..count)
            .map(|at| FaultyMachine::new(at, seed ^ at as u64, stock[at]))
            .collect();
        let operators: Vec<_> = machines
            .iter()
            .map(|machine| {
                let mac = machine.hardware.mac;
                SimOperator::new(machine.index, mac, info.clone(), &mut chance)
            })
            .collect();
        let nodes = operators.iter().map(|operator| operator.node).collect();
        let mut simulation = Self {
            now: Tick(0),
            trace: Trace::new(keep_text),
            checks: InvariantChecks::default(),
            box_under_test: BoxUnderTest::new(seed, addresses, lease_s, image),
            machines,
            operators,
            allocator: ResourceAllocator::for_seed(seed, nodes),
            unmanaged: Vec::new(),
            queue: SimEventQueue::default(),
            chance,
            wall_offset_ms: 0,
            exchanges: BTreeMap::new(),
            exchange_number: 0,
            batch_due: false,
            box_tick_at: None,
            off_ms: 1000,
            image: digest,
            job_points: vec![String::new(); count],
            observed: BTreeMap::new(),
            diagnosed: diagnosed::DiagnosedRun::default(),
            bmc_datagrams: 0,
            faults,
        };
        simulation.schedule_start(unknown_machines);
        simulation
    }

    fn schedule_start(&mut self, unknown_machines: usize) {
        self.queue.push(Tick(0), SimEvent::BoxStart);
        for operator in 0..self.operators.len() {
            let at = Tick(100 + self.chance.below(3000));
            self.queue
                .push(at, SimEvent::OperatorDue { index: operator });
        }
        self.schedule_allocator();
        for at in 0..unknown_machines {
            let index = self.machines.len() + at;
            let mac = MacAddr([0x52, 0x54, 0, 0x99, 0, index as u8]);
            let start = Tick(self.chance.below(60_000));
            let client = RenewingDhcpClient::start(start, mac, None, relay_address(index));
            self.unmanaged.push(UnmanagedMachine {
                mac,
                dhcp: client,
                tick_at: Some(start),
            });
            self.queue.push(start, SimEvent::Tick { machine: index });
        }
        for (at, incident) in self.faults.incidents.clone() {
            self.queue.push(at, SimEvent::Incident(incident));
        }
    }

    /// Runs to the end; false if time ran out.
    pub(crate) fn run(&mut self) -> bool {
        while let Some((at, event)) = self.queue.pop() {
            self.now = at;
            if at.0 > TIME_MS_MAX {
                return false;
            }
            self.trace_event(&event);
            self.handle(event);
            self.arm_box();
            if !self.checks.violations.is_empty() || self.is_over() {
                break;
            }
        }
        true
    }

    /// Every operator has finished and the box is idle.
    fn is_over(&self) -> bool {
        self.box_under_test.running.is_some()
            && self.operators.iter().all(|operator| operator.end.is_some())
            && self
                .box_under_test
                .durable
                .nodes
                .values()
                .all(|view| view.node.job.is_none())
            && self.machines.iter().all(|machine| !machine.is_starting())
    }

    /// Restarts the box once more, to check that nothing is lost, and checks the nodes.
    pub(crate) fn check_end(&mut self) {
        self.box_under_test.cut_power();
        self.box_under_test.attempted = None;
        self.start_box();
        let plain = self.faults.are_none() && self.operators.iter().all(SimOperator::is_plain);
        let view = self.box_under_test.durable.clone();
        self.checks.check_final_states(&view, plain);
        self.check_images(&view);
        if plain {
            for machine in &self.machines {
                let verified = machine.disk == SimMachineDisk::Image(self.image);
                if !verified || !machine.runs_system() {
                    let sentence = format!("machine {} does not run its image", machine.index);
                    self.checks.violations.push(sentence);
                }
            }
        }
    }

    /// How many nodes the operator made active.
    pub(crate) fn active(&self) -> usize {
        self.operators
            .iter()
            .filter(|operator| operator.end == Some(SimOperatorOutcome::Active))
            .count()
    }

    pub(crate) fn wall(&self) -> UnixMs {
        UnixMs((WALL_MS + self.now.0).saturating_add_signed(self.wall_offset_ms))
    }

    fn trace_event(&mut self, event: &SimEvent) {
        let (now, trace) = (self.now, &mut self.trace);
        match event {
            SimEvent::BoxDhcp { from, bytes } => {
                trace.line(
                    now,
                    format_args!("box< dhcp {from} {:08x}", short_hash(bytes)),
                );
            }
            SimEvent::BoxBmc { from, bytes } => {
                trace.line(
                    now,
                    format_args!("box< bmc {from} {:08x}", short_hash(bytes)),
                );
            }
            SimEvent::BoxTftp { peer, port, bytes } => {
                trace.line(
                    now,
                    format_args!("box< tftp {peer} :{port} {:08x}", short_hash(bytes)),
                );
            }
            SimEvent::BoxHttp(exchange) => trace.line(
                now,
                format_args!(
                    "box< {} {} {:?}",
                    exchange.method, exchange.path, exchange.client
                ),
            ),
            SimEvent::BoxAgentReply { to, result } => {
                let short = result
                    .as_ref()
                    .map(|(status, body)| (*status, short_hash(body)));
                trace.line(now, format_args!("box< agent call {} {short:?}", to.call));
            }
            SimEvent::Dhcp { to, bytes } => {
                trace.line(now, format_args!("{to}< dhcp {:08x}", short_hash(bytes)));
            }
            SimEvent::Bmc { to, bytes } => {
                trace.line(now, format_args!("{to}< bmc {:08x}", short_hash(bytes)));
            }
            SimEvent::Tftp { peer, from, bytes } => {
                trace.line(
                    now,
                    format_args!("{peer}< tftp {from} {:08x}", short_hash(bytes)),
                );
            }
            SimEvent::Http { exchange, answer } => {
                let Some(exchange) = self.exchanges.get(exchange) else {
                    return;
                };
                let short = answer
                    .as_ref()
                    .map(|(status, body)| (*status, short_hash(body)));
                let refused = answer.as_ref().filter(|(status, _)| *status >= 400);
                let why = refused.map(|(_, body)| String::from_utf8_lossy(body));
                let why = why.unwrap_or_default();
                trace.line(now, format_args!("{:?}< {short:?} {why}", exchange.client));
            }
            SimEvent::AgentCalled { url, to, request } => {
                trace.line(now, format_args!("{url}< call {} {request:?}", to.call));
            }
            other => trace.line(now, format_args!("{other:?}")),
        }
    }

    fn handle(&mut self, event: SimEvent) {
        let now = self.now;
        match event {
            SimEvent::BoxStart => self.start_box(),
            SimEvent::BoxBatch { life } if life == self.box_under_test.life => self.run_box_batch(),
            SimEvent::BoxTick { life } if life == self.box_under_test.life => self.box_tick(),
            SimEvent::BoxBatch { .. } | SimEvent::BoxTick { .. } => {}
            SimEvent::BoxDhcp { from, bytes } => {
                let source = std::net::SocketAddrV4::new(relay_address(from), 67);
                let arrival = trivet_rack::dhcp::DhcpArrival::datagram(crate::network::BOX, source);
                self.enqueue_input(RackInput::Dhcp { arrival, bytes });
            }
            SimEvent::BoxBmc { from, bytes } => {
                self.checks.bmcs.response_received(from);
                let from = SocketAddr::from((crate::network::bmc_address(from), 623));
                self.enqueue_input(RackInput::Bmc(BmcMessage::Datagram { from, bytes }));
            }
            SimEvent::BoxTftp { peer, port, bytes } => {
                let mut out = Vec::new();
                if let Some(on) = &mut self.box_under_test.running {
                    on.tftp(now, peer, port, &bytes, &mut out);
                }
                self.deliver_all(out);
            }
            SimEvent::BoxHttp(exchange) => self.box_http(exchange),
            SimEvent::BoxAgentReply { to, result } => {
                self.checks.agents.call_ended(to.call);
                if to.life == self.box_under_test.life {
                    let (node, call) = (to.node, to.call);
                    self.enqueue_input(RackInput::AgentAnswered { node, call, result });
                }
            }
            SimEvent::Http { exchange, answer } => self.deliver_response(exchange, answer),
            SimEvent::AgentCalled { url, to, request } => self.deliver_call(&url, to, &request),
            SimEvent::OperatorDue { index: operator } => self.run_operator(operator),
            SimEvent::AllocatorDue => self.run_allocator(),
            SimEvent::Incident(incident) => self.apply_incident(incident),
            SimEvent::BmcRecovers { machine } => {
                let restarted = self.chance.chance(500);
                self.machines[machine].recover_bmc(restarted);
            }
            other => self.handle_machine_event(other),
        }
    }

    fn handle_machine_event(&mut self, event: SimEvent) {
        let (now, mut out) = (self.now, Vec::new());
        let index = match event {
            SimEvent::Dhcp { to, bytes } => {
                match self.machines.get_mut(to) {
                    Some(machine) => machine.dhcp(now, &bytes, &mut out),
                    None => self.drive_unmanaged(to, |client| client.datagram(now, &bytes)),
                }
                to
            }
            SimEvent::Bmc { to, bytes } => {
                self.machines[to].bmc_datagram(now, &bytes, &mut out);
                to
            }
            SimEvent::Tftp { peer, from, bytes } => {
                let to = self.holder(*peer.ip());
                let Some(to) = to else { return };
                self.machines[to].tftp(now, peer, from, &bytes, &mut out);
                to
            }
            SimEvent::Tick { machine: to } => {
                match self.machines.get_mut(to) {
                    // A later deadline replaced this tick.
                    Some(machine) if machine.tick_at != Some(now) => return,
                    Some(machine) => {
                        machine.tick_at = None;
                        machine.tick(now, &mut out);
                    }
                    None => self.drive_unmanaged(to, |client| client.tick(now)),
                }
                to
            }
            SimEvent::WorkDone {
                machine: to,
                life,
                command,
            } => {
                self.machines[to].work_done(now, life, &command, &mut out);
                to
            }
            _ => return,
        };
        self.apply_outputs(index, out);
    }

    fn drive_unmanaged(&mut self, index: usize, act: impl FnOnce(&mut RenewingDhcpClient)) {
        let now = self.now;
        let Some(unknown) = self.unmanaged.get_mut(index - self.machines.len()) else {
            return;
        };
        let before = unknown.dhcp.address(now);
        unknown.tick_at = unknown.tick_at.filter(|at| *at > now);
        act(&mut unknown.dhcp);
        let sent = unknown.dhcp.transmit();
        let deadline = unknown.dhcp.deadline();
        if let Some(at) = deadline
            && unknown.tick_at.is_none_or(|armed| at < armed)
        {
            unknown.tick_at = Some(at.max(now));
            self.queue
                .push(at.max(now), SimEvent::Tick { machine: index });
        }
        let holds = unknown.dhcp.address(now);
        if let Some(bytes) = sent {
            self.datagram(|bytes| SimEvent::BoxDhcp { from: index, bytes }, bytes);
        }
        if holds.is_some() && holds != before {
            self.check_addresses();
        }
    }

    /// The machine with this address.
    fn holder(&self, address: Ipv4Addr) -> Option<usize> {
        let now = self.now;
        self.machines
            .iter()
            .position(|machine| machine.address(now) == Some(address))
    }

    fn held_addresses(&self) -> Vec<(MacAddr, Ipv4Addr)> {
        let now = self.now;
        let machines = self
            .machines
            .iter()
            .map(|one| (one.hardware.mac, one.address(now)));
        let unknown_machines = self
            .unmanaged
            .iter()
            .map(|one| (one.mac, one.dhcp.address(now)));
        machines
            .chain(unknown_machines)
            .filter_map(|(mac, address)| Some((mac, address?)))
            .collect()
    }

    fn check_addresses(&mut self) {
        let held = self.held_addresses();
        self.checks.check_unique_addresses(&held);
    }

    // The box.

    fn start_box(&mut self) {
        match self.box_under_test.start(self.now) {
            Ok(records) => {
                let (durable, tried) = (
                    &self.box_under_test.durable,
                    self.box_under_test.attempted.as_ref(),
                );
                self.checks.check_restart(&records, durable, tried);
                let held = self.held_addresses();
                self.checks.check_leases(&held, &records);
                self.box_under_test.attempted = None;
                self.batch_due = false;
                self.box_tick_at = None;
                self.run_box_batch();
            }
            Err(sentence) => self.checks.violations.push(sentence),
        }
    }

    fn enqueue_input(&mut self, input: RackInput) {
        if let Some(on) = &mut self.box_under_test.running {
            on.enqueue(input);
        }
    }

    fn run_box_batch(&mut self) {
        self.batch_due = false;
        let mut out = Vec::new();
        match self
            .box_under_test
            .run_batch(self.now, self.wall(), &mut out)
        {
            Ok(()) => {}
            Err(BoxFailure::InCommit) => {
                self.trace
                    .line(self.now, format_args!("box lost power inside a commit"));
                self.count_observation_for_all("box cut in a commit");
                self.queue
                    .push(self.now.after_ms(self.off_ms), SimEvent::BoxStart);
            }
            Err(BoxFailure::Refused(why)) => {
                self.checks
                    .violations
                    .push(format!("the store refused a batch: {why}"));
            }
        }
        self.observe_jobs();
        // Outputs of a box that loses power now are never sent.
        if self.box_under_test.running.is_some() {
            self.deliver_all(out);
        }
    }

    fn box_tick(&mut self) {
        if self.box_tick_at != Some(self.now) {
            return;
        }
        self.box_tick_at = None;
        let (now, mut out) = (self.now, Vec::new());
        let Some(on) = &mut self.box_under_test.running else {
            return;
        };
        on.tick(now, &mut out);
        let due = on.is_due(now);
        self.deliver_all(out);
        if due {
            self.run_box_batch();
        }
    }

    fn box_http(&mut self, exchange: Rc<SimHttpExchange>) {
        let (number, mut out) = (exchange.number, Vec::new());
        if self
            .box_under_test
            .http(self.now, self.wall(), exchange, &mut out)
        {
            self.deliver_all(out);
        } else {
            // The box is off: the connection is refused at once.
            self.queue.push(
                self.now.after_ms(1),
                SimEvent::Http {
                    exchange: number,
                    answer: None,
                },
            );
        }
    }

    /// Schedules the box for its inputs and for what is due.
    fn arm_box(&mut self) {
        let Some(on) = &self.box_under_test.running else {
            return;
        };
        let life = self.box_under_test.life;
        if on.has_work() && !self.batch_due {
            self.batch_due = true;
            let at = self.now.after_ms(self.chance.below(BATCH_MS));
            self.queue.push(at, SimEvent::BoxBatch { life });
        }
        if let Some(at) = on.deadline()
            && self.box_tick_at.is_none_or(|armed| at < armed)
        {
            let at = at.max(self.now);
            self.box_tick_at = Some(at);
            self.queue.push(at, SimEvent::BoxTick { life });
        }
    }
}
