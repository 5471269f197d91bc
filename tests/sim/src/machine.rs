//! One machine of the rack: case, BMC, firmware, agent or system, disk.
//!
//! The parts are the rehearsal's and the agent's own; here they are put together
//! and driven. What the machine wants of the world goes out as [`Effect`]s.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use trivet_bmc_ipmi::bmc::{Bmc, Chassis as _};
use trivet_ipa::LOOKUP_VERSION;
use trivet_model::{BootDevice, PowerOrder, PowerState, Seeded, Tick};
use trivet_rack::Call;
use trivet_rehearsal::{Case, Do, Ended, Firmware, Hardware, KernelLine, Place};

use crate::faults::Lie;
use crate::ipa::Did;
use crate::lodger::Lodger;
use crate::wires::{AgentCall, Answer, HTTP_TIMEOUT_MS, TFTP_PORT, Who, relay};

mod front;
mod host;
mod own;
mod slow;
mod stock;

pub(crate) use front::THIRD_REQUEST;
use host::{Agent, Host};
pub(crate) use own::WRITE_MS;
use slow::Slow;
pub(crate) use stock::Blow;

/// From power to the first instruction of the firmware's network code.
const POST_MS: u64 = 800;

/// What stands on the disk.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Disk {
    /// Nothing that boots.
    Empty,
    /// Somebody has begun to write.
    Torn,
    /// An image with this digest.
    Image([u8; 32]),
}

/// What the machine wants of the world.
#[derive(Debug)]
pub(crate) enum Effect {
    Dhcp(Vec<u8>),
    Bmc(Vec<u8>),
    /// The BMC was told to do this.
    Controlled(PowerOrder),
    Tftp {
        peer: SocketAddrV4,
        to: SocketAddrV4,
        bytes: Vec<u8>,
    },
    Http {
        who: Who,
        peer: Ipv4Addr,
        api: bool,
        asks: Asks,
    },
    Answer {
        to: AgentCall,
        result: Result<(u16, Vec<u8>), String>,
    },
    /// Work ends after so long.
    WorkEnds {
        life: u64,
        command: String,
        after_ms: u64,
    },
    /// The image has begun to be written.
    Writing,
    /// The machine got an address.
    Holds(Ipv4Addr),
    /// It boots from its disk.
    BootsDisk,
    /// Its stock agent was called and says this.
    Served(Served),
    /// Something happened that seeds must have met.
    Met(&'static str),
    Said(String),
}

/// A call to a stock agent, as a checker sees it.
#[derive(Debug)]
pub(crate) struct Served {
    /// The life of the box that called, and the boot of the machine.
    pub(crate) life: u64,
    pub(crate) boot: u64,
    pub(crate) method: &'static str,
    pub(crate) asked: Value,
    pub(crate) status: u16,
    pub(crate) said: String,
}

/// An HTTP request.
#[derive(Debug)]
pub(crate) struct Asks {
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) version: Option<String>,
    pub(crate) body: Vec<u8>,
    /// How long the client waits for an answer.
    pub(crate) timeout_ms: u64,
}

impl Asks {
    /// A request to read.
    pub(crate) fn get(path: &str) -> Self {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        Self {
            method: "GET",
            path: path.to_owned(),
            query: query.to_owned(),
            version: Some(LOOKUP_VERSION.to_owned()),
            body: Vec::new(),
            timeout_ms: HTTP_TIMEOUT_MS,
        }
    }
}

enum Runs {
    Nothing,
    Post { until: Tick, device: BootDevice },
    Firmware(Box<Firmware>),
    Host(Box<Host>),
}

/// One machine.
pub(crate) struct Machine {
    pub(crate) index: usize,
    pub(crate) hardware: Hardware,
    pub(crate) disk: Disk,
    pub(crate) lie: Option<Lie>,
    pub(crate) hangs: bool,
    /// Until when its agent's beats are lost.
    pub(crate) mute: Option<Tick>,
    /// Its ramdisk of this boot has a rescue password.
    pub(crate) rescued: bool,
    pub(crate) armed: Option<Tick>,
    /// Its ramdisk has the stock agent; else our own.
    stock: bool,
    case: Case,
    claimed: Option<PowerState>,
    /// How long it takes to follow its BMC, and what it is following.
    slow: Slow,
    bmc: Bmc,
    entropy: Seeded,
    /// Counts boots: what belongs to an earlier one is dropped.
    life: u64,
    turns: u64,
    runs: Runs,
    shown: Option<Ipv4Addr>,
}

impl Machine {
    pub(crate) fn new(index: usize, seed: u64, stock: bool) -> Self {
        let hardware = Hardware::new(index as u16 + 1);
        Self {
            index,
            bmc: Bmc::new(hardware.bmc()),
            hardware,
            disk: Disk::Empty,
            lie: None,
            hangs: false,
            mute: None,
            rescued: false,
            armed: None,
            stock,
            case: Case::default(),
            claimed: None,
            slow: Slow::of(seed),
            entropy: Seeded::new(seed),
            life: 0,
            turns: 0,
            runs: Runs::Nothing,
            shown: None,
        }
    }

    /// Whether the installed system runs, or did until it was switched off.
    pub(crate) fn runs_system(&self) -> bool {
        matches!(&self.runs, Runs::Host(host) if host.line.is_none() && host.agent.is_none())
    }

    /// Whether it is between power and its system: what it boots is still to be seen.
    pub(crate) fn is_starting(&self) -> bool {
        matches!(self.runs, Runs::Post { .. })
    }

    /// The address it believes to hold.
    pub(crate) fn holds(&self, now: Tick) -> Option<Ipv4Addr> {
        match &self.runs {
            Runs::Firmware(firmware) => firmware.address(),
            Runs::Host(host) => host.lodger.holds(now),
            _ => None,
        }
    }

    pub(crate) fn deadline(&self) -> Option<Tick> {
        let runs = match &self.runs {
            Runs::Nothing => None,
            Runs::Post { until, .. } => Some(*until),
            Runs::Firmware(firmware) => firmware.deadline(),
            Runs::Host(host) => host.deadline(),
        };
        runs.into_iter().chain(self.slow.deadline()).min()
    }

    /// How often its power has changed: what ran before is gone.
    pub(crate) fn turns(&self) -> u64 {
        self.turns
    }

    // What happens to it.

    pub(crate) fn loses_power(&mut self, now: Tick, back: bool, out: &mut Vec<Effect>) {
        if back {
            self.case.restart();
        } else {
            self.case.fall();
        }
        self.settle(now, out);
    }

    /// Something happens to the agent's process; the kernel and its address stay. False
    /// where there was nothing it could happen to.
    pub(crate) fn agent_suffers(&mut self, now: Tick, blow: Blow, out: &mut Vec<Effect>) -> bool {
        let Runs::Host(host) = &mut self.runs else {
            return false;
        };
        let suffered = match (&mut host.agent, blow) {
            (Some(Agent::Stock(stock)), blow) => {
                if blow == Blow::Dies && stock.is_working() {
                    out.push(Effect::Met("died mid-command"));
                }
                stock.suffers(now, blow)
            }
            // Nobody restarts our own.
            (Some(Agent::Own(_)), Blow::Dies | Blow::Hangs) => {
                host.agent = None;
                host.line = Some(KernelLine::default());
                self.life += 1;
                true
            }
            _ => false,
        };
        self.settle(now, out);
        suffered
    }

    pub(crate) fn tick(&mut self, now: Tick, out: &mut Vec<Effect>) {
        if let Some(order) = self.slow.due(now) {
            self.case.control(order);
            self.settle(now, out);
        }
        match &mut self.runs {
            Runs::Post { until, device } if *until <= now => {
                let device = *device;
                self.starts(now, device, out);
            }
            Runs::Nothing | Runs::Post { .. } => {}
            Runs::Firmware(firmware) => firmware.tick(now),
            Runs::Host(host) => host.lodger.tick(now),
        }
        self.settle(now, out);
    }

    pub(crate) fn dhcp(&mut self, now: Tick, bytes: &[u8], out: &mut Vec<Effect>) {
        match &mut self.runs {
            Runs::Firmware(firmware) => {
                let from = SocketAddr::from((relay(self.index), 67));
                firmware.datagram(now, from, bytes);
            }
            Runs::Host(host) => host.lodger.datagram(now, bytes),
            _ => {}
        }
        self.settle(now, out);
    }

    pub(crate) fn tftp(
        &mut self,
        now: Tick,
        peer: SocketAddrV4,
        from: SocketAddrV4,
        bytes: &[u8],
        out: &mut Vec<Effect>,
    ) {
        let port = self.tftp_port();
        if let Runs::Firmware(firmware) = &mut self.runs
            && firmware.address() == Some(*peer.ip())
            && peer.port() == port
        {
            firmware.datagram(now, from.into(), bytes);
        }
        self.settle(now, out);
    }

    pub(crate) fn http(&mut self, now: Tick, who: Who, answer: Answer, out: &mut Vec<Effect>) {
        let life = self.life;
        match (&mut self.runs, who) {
            (Runs::Firmware(firmware), Who::Firmware { life: asked, .. }) if asked == life => {
                let body = answer
                    .filter(|(status, _)| *status == 200)
                    .map(|(_, body)| body);
                firmware.fetched(now, body.as_deref());
            }
            (Runs::Host(host), who) => {
                let entropy = &mut self.entropy;
                match (&mut host.agent, who) {
                    (
                        Some(Agent::Own(own)),
                        Who::Agent {
                            life: at, asked, ..
                        },
                    ) if at == life => {
                        own.answered(now, asked, answer, entropy);
                    }
                    (
                        Some(Agent::Own(own)),
                        Who::Image {
                            life: at, command, ..
                        },
                    ) if at == life => {
                        own.image_came(now, life, &command, answer, out);
                    }
                    (
                        Some(Agent::Stock(stock)),
                        Who::Stock {
                            life: at,
                            start,
                            what,
                            ..
                        },
                    ) if at == life => stock.answered(now, (start, what), &answer, out),
                    (
                        Some(Agent::Stock(stock)),
                        Who::Image {
                            life: at, command, ..
                        },
                    ) if at == life => {
                        stock.image_came(now, &command, answer, out);
                    }
                    _ => {}
                }
            }
            _ => {}
        }
        self.settle(now, out);
    }

    /// A call to the agent at our address.
    pub(crate) fn called(
        &mut self,
        now: Tick,
        to: AgentCall,
        request: &Call,
        out: &mut Vec<Effect>,
    ) {
        let (machine, life, turns) = (self.index, self.life, self.turns);
        let Runs::Host(host) = &mut self.runs else {
            return;
        };
        let peer = host.lodger.holds(now).unwrap_or(Ipv4Addr::UNSPECIFIED);
        let seat = own::Seat {
            machine,
            life,
            peer,
        };
        let did = match &mut host.agent {
            None => {
                let result = Err("connection refused".to_owned());
                return out.push(Effect::Answer { to, result });
            }
            Some(Agent::Own(own)) => own.called(now, seat, to, request, out),
            Some(Agent::Stock(stock)) => {
                stock.called(now, turns, to, request, out);
                None
            }
        };
        self.does(did);
        self.settle(now, out);
    }

    /// Work of our own agent ends.
    pub(crate) fn work_done(&mut self, now: Tick, life: u64, id: &str, out: &mut Vec<Effect>) {
        let did = match &mut self.runs {
            Runs::Host(host) if life == self.life => match &mut host.agent {
                Some(Agent::Own(own)) => own.work_done(now, id, out),
                _ => None,
            },
            _ => None,
        };
        self.does(did);
        self.settle(now, out);
    }

    /// What an agent did to its machine.
    fn does(&mut self, did: impl IntoIterator<Item = Did>) {
        for did in did {
            match did {
                Did::Tore => self.disk = Disk::Torn,
                Did::Erased => self.disk = Disk::Empty,
                Did::Wrote(image) => self.disk = Disk::Image(sha256(&image)),
                Did::LetIn(_) => self.rescued = true,
                Did::PoweredOff => self.case.fall(),
                Did::Rebooted => self.case.restart(),
            }
        }
    }

    // What follows.

    fn tftp_port(&self) -> u16 {
        2000 + (self.life % 1000) as u16
    }

    /// Draws the consequences until nothing follows.
    fn settle(&mut self, now: Tick, out: &mut Vec<Effect>) {
        loop {
            if self.case.turns() != self.turns {
                self.turned(now, out);
            }
            self.talk(now, out);
            // An agent may have switched its machine off.
            if self.case.turns() == self.turns {
                break;
            }
        }
        let holds = self.holds(now);
        if holds != self.shown {
            self.shown = holds;
            out.extend(holds.map(Effect::Holds));
        }
    }

    /// The power changed: what ran is gone.
    fn turned(&mut self, now: Tick, out: &mut Vec<Effect>) {
        self.turns = self.case.turns();
        self.life += 1;
        self.shown = None;
        self.rescued = false;
        let (index, life) = (self.index, self.life);
        if self.case.is_on() {
            let device = self.case.boot_device(matches!(self.disk, Disk::Image(_)));
            out.push(Effect::Said(format!(
                "machine {index} life {life} on, boots {device}"
            )));
            self.runs = Runs::Post {
                until: now.after_ms(POST_MS),
                device,
            };
        } else {
            out.push(Effect::Said(format!("machine {index} off")));
            self.runs = Runs::Nothing;
        }
    }

    fn starts(&mut self, now: Tick, device: BootDevice, out: &mut Vec<Effect>) {
        if device == BootDevice::Disk {
            self.boots_disk(now, out);
        } else {
            let place = Place {
                relay: relay(self.index),
                tftp_port: TFTP_PORT,
            };
            let firmware = Firmware::start(now, self.hardware.clone(), place);
            self.runs = Runs::Firmware(Box::new(firmware));
        }
    }

    fn boots_disk(&mut self, now: Tick, out: &mut Vec<Effect>) {
        out.push(Effect::BootsDisk);
        // A disk that does not boot leaves the machine at its firmware's prompt.
        self.runs = if matches!(self.disk, Disk::Image(_)) {
            self.host(now, None)
        } else {
            Runs::Nothing
        };
    }

    fn host(&self, now: Tick, line: Option<KernelLine>) -> Runs {
        let hardware = &self.hardware;
        let lodger = Lodger::start(now, hardware.mac, Some(hardware.uuid), relay(self.index));
        Runs::Host(Box::new(Host {
            lodger,
            line,
            agent: None,
        }))
    }

    /// Lets out what whatever runs wants to say.
    fn talk(&mut self, now: Tick, out: &mut Vec<Effect>) {
        let (index, life, port) = (self.index, self.life, self.tftp_port());
        match &mut self.runs {
            Runs::Nothing | Runs::Post { .. } => {}
            Runs::Firmware(firmware) => {
                while let Some(wanted) = firmware.wanted() {
                    let own = firmware.address().unwrap_or(Ipv4Addr::UNSPECIFIED);
                    out.push(match wanted {
                        Do::Dhcp(bytes) => Effect::Dhcp(bytes),
                        Do::Tftp { to, bytes } => Effect::Tftp {
                            peer: SocketAddrV4::new(own, port),
                            to,
                            bytes,
                        },
                        Do::Fetch { url } => Effect::Http {
                            who: Who::Firmware {
                                machine: index,
                                life,
                            },
                            peer: own,
                            api: false,
                            asks: Asks::get(path_of(&url)),
                        },
                    });
                }
                match firmware.ended().cloned() {
                    Some(Ended::Agent(line)) => {
                        self.runs = self.host(now, Some(line));
                        self.talk(now, out);
                    }
                    Some(Ended::Disk) => {
                        self.boots_disk(now, out);
                        self.talk(now, out);
                    }
                    // No node of these racks boots anything else.
                    Some(Ended::Other) => self.runs = Runs::Nothing,
                    None => {}
                }
            }
            Runs::Host(host) => {
                while let Some(bytes) = host.lodger.transmit() {
                    out.push(Effect::Dhcp(bytes));
                }
                let seed = self.stock.then(|| stock::seed_of(&self.entropy, life));
                let did = host.agent_talks(now, &self.hardware, seed, (index, life), out);
                self.does(did);
            }
        }
    }
}

/// What follows the host in one of our URLs.
fn path_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.find('/').map_or("/", |at| &rest[at..])
}

pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}
