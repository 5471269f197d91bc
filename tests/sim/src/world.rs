//! The world: one thread, one queue of events, one seed.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::rc::Rc;

use trivet_model::{MacAddr, Seeded, Tick, UnixMs, Verb};
use trivet_rack::Input;

use crate::ambush::{Ambush, Trouble};
use crate::boxed::{Boxed, Died};
use crate::checks::Checks;
use crate::clerk::Clerk;
use crate::doors::content;
use crate::faults::Faults;
use crate::lodger::Lodger;
use crate::machine::{Disk, Machine, sha256};
use crate::operator::{Desk, End};
use crate::trace::{Trace, mark};
use crate::wires::{Event, Exchange, Queue, relay};

mod carry;
mod follow;
mod watch;

/// No seed runs longer than this.
const TIME_MS_MAX: u64 = 6 * 3600 * 1000;

/// 2026-11-16, when the world began.
const WALL_MS: u64 = 1_794_796_610_746;

/// How long the box thinks about a batch, at most.
const BATCH_MS: u64 = 4;

/// A machine on the wire that is nobody's node.
struct Stranger {
    mac: MacAddr,
    lodger: Lodger,
    armed: Option<Tick>,
}

/// Which agents machines have in their ramdisks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Agents {
    /// Two of three the stock one, by chance; and trouble that waits for it.
    Mixed,
    /// Our own.
    Own,
}

/// Everything there is.
pub(crate) struct World {
    pub(crate) now: Tick,
    pub(crate) trace: Trace,
    pub(crate) checks: Checks,
    pub(crate) faults: Faults,
    pub(crate) boxed: Boxed,
    pub(crate) machines: Vec<Machine>,
    pub(crate) desks: Vec<Desk>,
    clerk: Option<Clerk>,
    strangers: Vec<Stranger>,
    queue: Queue,
    chance: Seeded,
    wall_offset_ms: i64,
    exchanges: BTreeMap<u64, Rc<Exchange>>,
    exchange_number: u64,
    turn_due: bool,
    box_armed: Option<Tick>,
    off_ms: u64,
    image: [u8; 32],
    /// Where each node's job was last seen.
    places: Vec<String>,
    /// What was met, and where.
    pub(crate) met: BTreeMap<String, u64>,
}

impl World {
    pub(crate) fn new(seed: u64, agents: Agents, keep_text: bool) -> Self {
        let mut chance = Seeded::new(seed);
        let count = 2 + chance.below(4) as usize;
        let mut faults = Faults::of(seed, count, &mut chance);
        let mut stock = vec![false; count];
        if agents == Agents::Mixed {
            let mut chance = Seeded::new(seed.rotate_left(31) ^ 0x57_0c4b);
            stock.fill_with(|| chance.chance(667));
            faults.lie_in_wait(seed, count);
        }
        Self::with(seed, &stock, faults, chance, keep_text)
    }

    /// One machine with the stock agent, and one trouble at one place.
    pub(crate) fn staged(place: &'static str, trouble: Trouble, keep_text: bool) -> Self {
        let faults = Faults {
            ambushes: vec![Ambush::new(0, place, trouble)],
            ..Faults::default()
        };
        let mut world = Self::with(8, &[true], faults, Seeded::new(8), keep_text);
        let more = (place == "FinishRescue").then_some(Verb::Rescue);
        world.desks[0].goes_plainly(more);
        // Its time is measured.
        world.machines[0].is_quick();
        world
    }

    /// One machine with the stock agent and no trouble at all.
    pub(crate) fn plain(fast_track: bool) -> Self {
        let mut world = Self::with(8, &[true], Faults::default(), Seeded::new(8), true);
        world.boxed.settings.limits.fast_track = fast_track;
        world.desks[0].goes_plainly(None);
        world.machines[0].is_quick();
        world
    }

    fn with(
        seed: u64,
        stock: &[bool],
        faults: Faults,
        mut chance: Seeded,
        keep_text: bool,
    ) -> Self {
        let count = stock.len();
        let image = content(Path::new("/images/disk.raw")).unwrap_or_default();
        let strangers = if faults.are_quiet() {
            0
        } else {
            chance.below(3) as usize
        };
        let lease_s = 60 + chance.below(400) as u32;
        let addresses = (count + strangers + 1) as u8;
        let machines: Vec<_> = (0..count)
            .map(|at| Machine::new(at, seed ^ at as u64, stock[at]))
            .collect();
        let desks: Vec<_> = machines
            .iter()
            .map(|machine| Desk::new(machine.index, machine.hardware.mac, &mut chance))
            .collect();
        let nodes = desks.iter().map(|desk| desk.node).collect();
        let mut world = Self {
            now: Tick(0),
            trace: Trace::new(keep_text),
            checks: Checks::default(),
            boxed: Boxed::new(seed, addresses, lease_s, &image),
            machines,
            desks,
            clerk: Clerk::of(seed, nodes),
            strangers: Vec::new(),
            queue: Queue::default(),
            chance,
            wall_offset_ms: 0,
            exchanges: BTreeMap::new(),
            exchange_number: 0,
            turn_due: false,
            box_armed: None,
            off_ms: 1000,
            image: sha256(&image),
            places: vec![String::new(); count],
            met: BTreeMap::new(),
            faults,
        };
        world.begins(strangers);
        world
    }

    fn begins(&mut self, strangers: usize) {
        self.queue.push(Tick(0), Event::BoxStart);
        for desk in 0..self.desks.len() {
            let at = Tick(100 + self.chance.below(3000));
            self.queue.push(at, Event::Desk { desk });
        }
        self.clerk_pauses();
        for at in 0..strangers {
            let index = self.machines.len() + at;
            let mac = MacAddr([0x52, 0x54, 0, 0x99, 0, index as u8]);
            let start = Tick(self.chance.below(60_000));
            let lodger = Lodger::start(start, mac, None, relay(index));
            self.strangers.push(Stranger {
                mac,
                lodger,
                armed: Some(start),
            });
            self.queue.push(start, Event::Tick { machine: index });
        }
        for (at, incident) in self.faults.incidents.clone() {
            self.queue.push(at, Event::Incident(incident));
        }
    }

    /// Runs to the end; false if time ran out.
    pub(crate) fn run(&mut self) -> bool {
        while let Some((at, event)) = self.queue.pop() {
            self.now = at;
            if at.0 > TIME_MS_MAX {
                return false;
            }
            self.show(&event);
            self.happens(event);
            self.arm_box();
            if !self.checks.broken.is_empty() || self.is_over() {
                break;
            }
        }
        true
    }

    /// Every story has ended and the box rests.
    fn is_over(&self) -> bool {
        self.boxed.on.is_some()
            && self.desks.iter().all(|desk| desk.end.is_some())
            && self
                .boxed
                .durable
                .nodes
                .values()
                .all(|view| view.node.job.is_none())
            && self.machines.iter().all(|machine| !machine.is_starting())
    }

    /// Ends the box once more, to see that nothing is lost, and judges the nodes.
    pub(crate) fn judge(&mut self) {
        self.boxed.cut();
        self.boxed.attempted = None;
        self.starts();
        let plain = self.faults.are_none() && self.desks.iter().all(Desk::is_plain);
        let view = self.boxed.durable.clone();
        self.checks.ended(&view, plain);
        if plain {
            for machine in &self.machines {
                let verified = machine.disk == Disk::Image(self.image);
                if !verified || !machine.runs_system() {
                    let sentence = format!("machine {} does not run its image", machine.index);
                    self.checks.broken.push(sentence);
                }
            }
        }
    }

    /// How many nodes the operator brought to the end.
    pub(crate) fn active(&self) -> usize {
        self.desks
            .iter()
            .filter(|desk| desk.end == Some(End::Active))
            .count()
    }

    pub(crate) fn wall(&self) -> UnixMs {
        UnixMs((WALL_MS + self.now.0).saturating_add_signed(self.wall_offset_ms))
    }

    fn show(&mut self, event: &Event) {
        let (now, trace) = (self.now, &mut self.trace);
        match event {
            Event::BoxDhcp { from, bytes } => {
                trace.line(now, format_args!("box< dhcp {from} {:08x}", mark(bytes)));
            }
            Event::BoxBmc { from, bytes } => {
                trace.line(now, format_args!("box< bmc {from} {:08x}", mark(bytes)));
            }
            Event::BoxTftp { peer, port, bytes } => {
                trace.line(
                    now,
                    format_args!("box< tftp {peer} :{port} {:08x}", mark(bytes)),
                );
            }
            Event::BoxHttp(exchange) => trace.line(
                now,
                format_args!(
                    "box< {} {} {:?}",
                    exchange.method, exchange.path, exchange.who
                ),
            ),
            Event::BoxAnswered { to, result } => {
                let short = result.as_ref().map(|(status, body)| (*status, mark(body)));
                trace.line(now, format_args!("box< agent call {} {short:?}", to.call));
            }
            Event::Dhcp { to, bytes } => {
                trace.line(now, format_args!("{to}< dhcp {:08x}", mark(bytes)));
            }
            Event::Bmc { to, bytes } => {
                trace.line(now, format_args!("{to}< bmc {:08x}", mark(bytes)));
            }
            Event::Tftp { peer, from, bytes } => {
                trace.line(now, format_args!("{peer}< tftp {from} {:08x}", mark(bytes)));
            }
            Event::Http { exchange, answer } => {
                let Some(exchange) = self.exchanges.get(exchange) else {
                    return;
                };
                let short = answer.as_ref().map(|(status, body)| (*status, mark(body)));
                let refused = answer.as_ref().filter(|(status, _)| *status >= 400);
                let why = refused.map(|(_, body)| String::from_utf8_lossy(body));
                let why = why.unwrap_or_default();
                trace.line(now, format_args!("{:?}< {short:?} {why}", exchange.who));
            }
            Event::Called { url, to, request } => {
                trace.line(now, format_args!("{url}< call {} {request:?}", to.call));
            }
            other => trace.line(now, format_args!("{other:?}")),
        }
    }

    fn happens(&mut self, event: Event) {
        let now = self.now;
        match event {
            Event::BoxStart => self.starts(),
            Event::BoxTurn { life } if life == self.boxed.life => self.box_turn(),
            Event::BoxTick { life } if life == self.boxed.life => self.box_tick(),
            Event::BoxTurn { .. } | Event::BoxTick { .. } => {}
            Event::BoxDhcp { from, bytes } => {
                let source = std::net::SocketAddrV4::new(relay(from), 67);
                let arrival = trivet_rack::dhcp::Arrival::datagram(crate::wires::BOX, source);
                self.tell(Input::Dhcp { arrival, bytes });
            }
            Event::BoxBmc { from, bytes } => {
                self.checks.bmcs.heard(from);
                let from = SocketAddr::from((crate::wires::bmc(from), 623));
                self.tell(Input::Bmc { from, bytes });
            }
            Event::BoxTftp { peer, port, bytes } => {
                let mut out = Vec::new();
                if let Some(on) = &mut self.boxed.on {
                    on.tftp(now, peer, port, &bytes, &mut out);
                }
                self.carry_all(out);
            }
            Event::BoxHttp(exchange) => self.box_http(exchange),
            Event::BoxAnswered { to, result } => {
                self.checks.agents.heard(to.call);
                if to.life == self.boxed.life {
                    let (node, call) = (to.node, to.call);
                    self.tell(Input::AgentAnswered { node, call, result });
                }
            }
            Event::Http { exchange, answer } => self.hears(exchange, answer),
            Event::Called { url, to, request } => self.called(&url, to, &request),
            Event::Desk { desk } => self.desk_asks(desk),
            Event::Clerk => self.clerk_asks(),
            Event::Incident(incident) => self.goes_wrong(incident),
            Event::BmcWell { machine } => {
                let restarted = self.chance.chance(500);
                self.machines[machine].bmc_well(restarted);
            }
            other => self.machine_hears(other),
        }
    }

    fn machine_hears(&mut self, event: Event) {
        let (now, mut out) = (self.now, Vec::new());
        let index = match event {
            Event::Dhcp { to, bytes } => {
                match self.machines.get_mut(to) {
                    Some(machine) => machine.dhcp(now, &bytes, &mut out),
                    None => self.stranger(to, |lodger| lodger.datagram(now, &bytes)),
                }
                to
            }
            Event::Bmc { to, bytes } => {
                self.machines[to].bmc_datagram(now, &bytes, &mut out);
                to
            }
            Event::Tftp { peer, from, bytes } => {
                let to = self.holder(*peer.ip());
                let Some(to) = to else { return };
                self.machines[to].tftp(now, peer, from, &bytes, &mut out);
                to
            }
            Event::Tick { machine: to } => {
                match self.machines.get_mut(to) {
                    // A later arming replaced this tick.
                    Some(machine) if machine.armed != Some(now) => return,
                    Some(machine) => {
                        machine.armed = None;
                        machine.tick(now, &mut out);
                    }
                    None => self.stranger(to, |lodger| lodger.tick(now)),
                }
                to
            }
            Event::WorkDone {
                machine: to,
                life,
                command,
            } => {
                self.machines[to].work_done(now, life, &command, &mut out);
                to
            }
            _ => return,
        };
        self.follow(index, out);
    }

    fn stranger(&mut self, index: usize, act: impl FnOnce(&mut Lodger)) {
        let now = self.now;
        let Some(stranger) = self.strangers.get_mut(index - self.machines.len()) else {
            return;
        };
        let before = stranger.lodger.holds(now);
        stranger.armed = stranger.armed.filter(|at| *at > now);
        act(&mut stranger.lodger);
        let sent = stranger.lodger.transmit();
        let deadline = stranger.lodger.deadline();
        if let Some(at) = deadline
            && stranger.armed.is_none_or(|armed| at < armed)
        {
            stranger.armed = Some(at.max(now));
            self.queue.push(at.max(now), Event::Tick { machine: index });
        }
        let holds = stranger.lodger.holds(now);
        if let Some(bytes) = sent {
            self.datagram(|bytes| Event::BoxDhcp { from: index, bytes }, bytes);
        }
        if holds.is_some() && holds != before {
            self.check_addresses();
        }
    }

    /// The machine that has this address.
    fn holder(&self, address: Ipv4Addr) -> Option<usize> {
        let now = self.now;
        self.machines
            .iter()
            .position(|machine| machine.holds(now) == Some(address))
    }

    fn held(&self) -> Vec<(MacAddr, Ipv4Addr)> {
        let now = self.now;
        let machines = self
            .machines
            .iter()
            .map(|one| (one.hardware.mac, one.holds(now)));
        let strangers = self
            .strangers
            .iter()
            .map(|one| (one.mac, one.lodger.holds(now)));
        machines
            .chain(strangers)
            .filter_map(|(mac, address)| Some((mac, address?)))
            .collect()
    }

    fn check_addresses(&mut self) {
        let held = self.held();
        self.checks.addresses(&held);
    }

    // The box.

    fn starts(&mut self) {
        match self.boxed.start(self.now) {
            Ok(records) => {
                let (durable, tried) = (&self.boxed.durable, self.boxed.attempted.as_ref());
                self.checks.restarted(&records, durable, tried);
                let held = self.held();
                self.checks.leases(&held, &records);
                self.boxed.attempted = None;
                self.turn_due = false;
                self.box_armed = None;
                self.box_turn();
            }
            Err(sentence) => self.checks.broken.push(sentence),
        }
    }

    fn tell(&mut self, input: Input) {
        if let Some(on) = &mut self.boxed.on {
            on.put(input);
        }
    }

    fn box_turn(&mut self) {
        self.turn_due = false;
        let mut out = Vec::new();
        match self.boxed.turn(self.now, self.wall(), &mut out) {
            Ok(()) => {}
            Err(Died::InCommit) => {
                self.trace
                    .line(self.now, format_args!("box lost power inside a commit"));
                self.met_by_all("box cut in a commit");
                self.queue
                    .push(self.now.after_ms(self.off_ms), Event::BoxStart);
            }
            Err(Died::Refused(why)) => {
                self.checks
                    .broken
                    .push(format!("the store refused a batch: {why}"));
            }
        }
        self.watch();
        // What has not left a box that lost its power now never will.
        if self.boxed.on.is_some() {
            self.carry_all(out);
        }
    }

    fn box_tick(&mut self) {
        if self.box_armed != Some(self.now) {
            return;
        }
        self.box_armed = None;
        let (now, mut out) = (self.now, Vec::new());
        let Some(on) = &mut self.boxed.on else { return };
        on.tick(now, &mut out);
        let due = on.is_due(now);
        self.carry_all(out);
        if due {
            self.box_turn();
        }
    }

    fn box_http(&mut self, exchange: Rc<Exchange>) {
        let (number, mut out) = (exchange.number, Vec::new());
        if self.boxed.http(self.now, self.wall(), exchange, &mut out) {
            self.carry_all(out);
        } else {
            // Nobody listens: the connection is refused at once.
            self.queue.push(
                self.now.after_ms(1),
                Event::Http {
                    exchange: number,
                    answer: None,
                },
            );
        }
    }

    /// Sees to it that the box acts on what has come and on what is due.
    fn arm_box(&mut self) {
        let Some(on) = &self.boxed.on else { return };
        let life = self.boxed.life;
        if on.has_work() && !self.turn_due {
            self.turn_due = true;
            let at = self.now.after_ms(self.chance.below(BATCH_MS));
            self.queue.push(at, Event::BoxTurn { life });
        }
        if let Some(at) = on.deadline()
            && self.box_armed.is_none_or(|armed| at < armed)
        {
            let at = at.max(self.now);
            self.box_armed = Some(at);
            self.queue.push(at, Event::BoxTick { life });
        }
    }
}
