//! One machine of the rack: case, BMC, firmware, agent or system, disk.
//!
//! The parts are the rehearsal's and the agent's own; here they are put together
//! and driven. What the machine wants of the world goes out as [`Effect`]s.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use sha2::{Digest as _, Sha256};
use trivet_bmc_ipmi::bmc::Bmc;
use trivet_image_agent::brain::{Failure, Outcome, State, Work};
use trivet_ipa::LOOKUP_VERSION;
use trivet_model::{BootDevice, Digest, PowerOrder, PowerState, Seeded, Tick};
use trivet_rack::Call;
use trivet_rehearsal::{Case, Do, Ended, Firmware, Hardware, KernelLine, Place};

use crate::faults::Lie;
use crate::lodger::Lodger;
use crate::wires::{AgentCall, Answer, Asked, TFTP_PORT, Who, relay};

mod front;
mod host;

use host::Host;

/// From power to the first instruction of the firmware's network code.
const POST_MS: u64 = 800;

/// How long erasing and writing take.
const ERASE_MS: u64 = 900;
pub(crate) const WRITE_MS: u64 = 1500;

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
    Said(String),
}

/// An HTTP request.
#[derive(Debug)]
pub(crate) struct Asks {
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) version: Option<&'static str>,
    pub(crate) body: Vec<u8>,
}

impl Asks {
    /// A request to read.
    pub(crate) fn get(path: &str) -> Self {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        Self {
            method: "GET",
            path: path.to_owned(),
            query: query.to_owned(),
            version: Some(LOOKUP_VERSION),
            body: Vec::new(),
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
    /// Its ramdisk of this boot has a rescue password.
    pub(crate) rescued: bool,
    pub(crate) armed: Option<Tick>,
    case: Case,
    claimed: Option<PowerState>,
    bmc: Bmc,
    entropy: Seeded,
    /// Counts boots: what belongs to an earlier one is dropped.
    life: u64,
    turns: u64,
    runs: Runs,
    shown: Option<Ipv4Addr>,
}

impl Machine {
    pub(crate) fn new(index: usize, seed: u64) -> Self {
        let hardware = Hardware::new(index as u16 + 1);
        Self {
            index,
            bmc: Bmc::new(hardware.bmc()),
            hardware,
            disk: Disk::Empty,
            lie: None,
            hangs: false,
            rescued: false,
            armed: None,
            case: Case::default(),
            claimed: None,
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
        match &self.runs {
            Runs::Nothing => None,
            Runs::Post { until, .. } => Some(*until),
            Runs::Firmware(firmware) => firmware.deadline(),
            Runs::Host(host) => {
                let brain = host.agent.as_ref().and_then(|agent| agent.brain.wake_at());
                host.lodger.deadline().into_iter().chain(brain).min()
            }
        }
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

    /// The agent's process ends; the kernel and its address stay.
    pub(crate) fn agent_dies(&mut self) {
        if let Runs::Host(host) = &mut self.runs
            && host.agent.take().is_some()
        {
            host.line = Some(KernelLine::default());
            self.life += 1;
        }
    }

    pub(crate) fn tick(&mut self, now: Tick, out: &mut Vec<Effect>) {
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
            (
                Runs::Host(host),
                Who::Agent {
                    life: then, asked, ..
                },
            ) if then == life => {
                if let Some(agent) = &mut host.agent {
                    let (status, body) = answer.unwrap_or_default();
                    let entropy = &mut self.entropy;
                    match asked {
                        Asked::Inspection => {
                            agent.brain.inspection_answered(now, status, &body, entropy);
                        }
                        Asked::Lookup => agent.brain.lookup_answered(now, status, &body, entropy),
                        Asked::Heartbeat => agent.brain.heartbeat_answered(now, status, entropy),
                    }
                }
            }
            (
                Runs::Host(_),
                Who::Image {
                    life: asked,
                    command,
                    ..
                },
            ) if asked == life => {
                self.image_came(now, &command, answer, out);
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
        let Runs::Host(host) = &mut self.runs else {
            return;
        };
        let serves = |agent: &&mut Box<host::Agent>| agent.brain.state() != State::Rescued;
        let Some(agent) = host.agent.as_mut().filter(serves) else {
            let result = Err("connection refused".to_owned());
            return out.push(Effect::Answer { to, result });
        };
        let body = request.body.as_deref().unwrap_or_default();
        let method = request.method.as_str();
        let reply = agent
            .brain
            .request(now, method, &request.path_and_query, body);
        if let Some(command) = reply.awaits {
            agent.held.push((command, to));
        } else {
            let result = Ok((reply.status, reply.body));
            out.push(Effect::Answer { to, result });
        }
        if let Some((command, work)) = reply.work {
            self.begins(now, command, work, out);
        }
        self.settle(now, out);
    }

    pub(crate) fn work_done(&mut self, now: Tick, life: u64, id: &str, out: &mut Vec<Effect>) {
        let Runs::Host(host) = &mut self.runs else {
            return;
        };
        let Some(agent) = host.agent.as_mut().filter(|_| life == self.life) else {
            return;
        };
        let Some((_, work, image)) = agent.work.take_if(|(command, ..)| command == id) else {
            return;
        };
        let went = match work {
            Work::WriteImage(_) => {
                let image = image.unwrap_or_default();
                self.disk = Disk::Image(sha256(&image));
                let bytes = image.len() as u64;
                Outcome::Wrote {
                    bytes,
                    root_uuid: None,
                }
            }
            Work::Erase { .. } => {
                self.disk = Disk::Empty;
                Outcome::Erased
            }
            Work::Rescue { .. } => {
                self.rescued = true;
                Outcome::Rescued
            }
            Work::PowerOff => {
                self.case.fall();
                Outcome::Leaving
            }
            Work::Reboot => {
                self.case.restart();
                Outcome::Leaving
            }
        };
        agent.finish(now, id, Ok(went), out);
        self.settle(now, out);
    }

    // What follows.

    fn tftp_port(&self) -> u16 {
        2000 + (self.life % 1000) as u16
    }

    fn begins(&mut self, now: Tick, command: String, work: Work, out: &mut Vec<Effect>) {
        let (index, life) = (self.index, self.life);
        let Runs::Host(host) = &mut self.runs else {
            return;
        };
        let Some(agent) = &mut host.agent else { return };
        out.push(Effect::Said(format!("machine {index} begins {work:?}")));
        let ends = |after_ms, command: &str| Effect::WorkEnds {
            life,
            command: command.to_owned(),
            after_ms,
        };
        match &work {
            Work::WriteImage(order) => {
                self.disk = Disk::Torn;
                let url = order.urls.first().cloned().unwrap_or_default();
                let who = Who::Image {
                    machine: index,
                    life,
                    command: command.clone(),
                };
                let peer = host.lodger.holds(now).unwrap_or(Ipv4Addr::UNSPECIFIED);
                let asks = Asks::get(path_of(&url));
                out.push(Effect::Http {
                    who,
                    peer,
                    api: false,
                    asks,
                });
            }
            Work::Erase { .. } => {
                self.disk = Disk::Torn;
                out.push(ends(ERASE_MS, &command));
            }
            Work::Rescue { .. } | Work::PowerOff | Work::Reboot => {
                out.push(ends(200, &command));
            }
        }
        agent.work = Some((command, work, None));
    }

    fn image_came(&mut self, now: Tick, id: &str, answer: Answer, out: &mut Vec<Effect>) {
        let life = self.life;
        let Runs::Host(host) = &mut self.runs else {
            return;
        };
        let Some(agent) = &mut host.agent else { return };
        let Some((command, Work::WriteImage(order), place)) = &mut agent.work else {
            return;
        };
        if command != id {
            return;
        }
        let failure = match answer {
            Some((200, body)) => {
                let got = Digest::Sha256(sha256(&body));
                if got == order.digest {
                    *place = Some(body);
                    let command = id.to_owned();
                    out.push(Effect::WorkEnds {
                        life,
                        command,
                        after_ms: WRITE_MS,
                    });
                    return out.push(Effect::Writing);
                }
                Failure::Checksum {
                    want: order.digest.to_string(),
                    got: got.to_string(),
                }
            }
            Some((status, _)) => Failure::Download(format!("status {status}")),
            None => Failure::Download("no answer".to_owned()),
        };
        agent.work = None;
        agent.finish(now, id, Err(failure), out);
    }

    /// Draws the consequences until nothing follows.
    fn settle(&mut self, now: Tick, out: &mut Vec<Effect>) {
        if self.case.turns() != self.turns {
            self.turned(now, out);
        }
        self.talk(now, out);
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
                host.agent_talks(now, &self.hardware, index, life, out);
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
