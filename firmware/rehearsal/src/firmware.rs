//! A machine from power-on to its operating system: DHCP, the loader by TFTP,
//! DHCP again as iPXE, the script, kernel and ramdisk by HTTP.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use embedded_tftp as tftp;
use trivet_dhcp::client::{Bound, Client};
use trivet_model::Tick;

use crate::script::{self, Again, Script};
use crate::{Hardware, KernelLine};

/// UEFI for x86-64 (RFC 4578, table 1).
const ARCH_UEFI_X64: u16 = 7;

/// Firmware that failed to boot starts over after this long. Ours: real
/// firmware falls through its boot order and comes round again.
const START_OVER_MS: u64 = 2000;

/// The loader we expect to be no longer than this.
const LOADER_BYTES_MAX: u64 = 4 << 20;

/// Where a simulated machine's wires end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Place {
    /// The relay in front of it.
    pub relay: Ipv4Addr,
    /// The port at which TFTP is served; 69 on a real network.
    pub tftp_port: u16,
}

/// What the firmware wants done.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Do {
    /// Send this through the relay to the DHCP server.
    Dhcp(Vec<u8>),
    /// Send this to a TFTP server.
    Tftp {
        /// Where to.
        to: SocketAddrV4,
        /// The payload.
        bytes: Vec<u8>,
    },
    /// Fetch this by HTTP and report it with [`Firmware::fetched`].
    Fetch {
        /// From where.
        url: String,
    },
}

/// Where the firmware handed over.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Ended {
    /// To the agent.
    Agent(KernelLine),
    /// To the disk.
    Disk,
    /// To a kernel or an image of the operator's, which is no agent.
    Other,
}

enum Stage {
    Address {
        client: Client,
        ipxe: bool,
    },
    Loader {
        receiver: Box<tftp::Receiver>,
        to: SocketAddrV4,
        loaded: Vec<u8>,
    },
    Script,
    Kernel {
        ramdisk: String,
        line: KernelLine,
        otherwise: Option<Again>,
    },
    Ramdisk {
        line: KernelLine,
        otherwise: Option<Again>,
    },
    Image {
        otherwise: Option<Again>,
    },
    Resting {
        until: Tick,
        again: Option<String>,
    },
    Ended(Ended),
}

/// One machine's firmware, from power-on on.
pub struct Firmware {
    hardware: Hardware,
    place: Place,
    stage: Stage,
    address: Option<Ipv4Addr>,
    wants: VecDeque<Do>,
}

impl Firmware {
    /// Firmware that has just been given power.
    pub fn start(now: Tick, hardware: Hardware, place: Place) -> Self {
        let stage = Stage::Resting {
            until: now,
            again: None,
        };
        let mut firmware = Self {
            hardware,
            place,
            stage,
            address: None,
            wants: VecDeque::new(),
        };
        firmware.ask_address(now, false);
        firmware
    }

    /// The address it was given.
    pub fn address(&self) -> Option<Ipv4Addr> {
        self.address
    }

    /// Where it handed over, once it did.
    pub fn ended(&self) -> Option<&Ended> {
        match &self.stage {
            Stage::Ended(ended) => Some(ended),
            _ => None,
        }
    }

    /// What it wants done next.
    pub fn wanted(&mut self) -> Option<Do> {
        match &mut self.stage {
            Stage::Address { client, .. } => {
                if let Some(bytes) = client.transmit() {
                    self.wants.push_back(Do::Dhcp(bytes));
                }
            }
            Stage::Loader { receiver, to, .. } => {
                let mut bytes = Vec::new();
                if receiver.transmit(&mut bytes).is_some() {
                    self.wants.push_back(Do::Tftp { to: *to, bytes });
                }
            }
            _ => {}
        }
        self.wants.pop_front()
    }

    /// When [`Firmware::tick`] is due.
    pub fn deadline(&self) -> Option<Tick> {
        match &self.stage {
            Stage::Address { client, .. } => client.deadline(),
            Stage::Loader { receiver, .. } => {
                let at_us = receiver.deadline();
                at_us.map(|at_us| Tick(at_us.div_ceil(1000)))
            }
            Stage::Resting { until, .. } => Some(*until),
            _ => None,
        }
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Tick) {
        match &mut self.stage {
            Stage::Address { client, .. } => {
                client.tick(now);
                if client.deadline().is_none() && client.bound().is_none() {
                    self.start_over(now);
                }
            }
            Stage::Loader { receiver, .. } => {
                receiver.tick(us(now));
                self.after_loader(now);
            }
            Stage::Resting { until, again } if *until <= now => match again.take() {
                Some(url) => self.fetch_script(url),
                None => self.ask_address(now, false),
            },
            _ => {}
        }
    }

    /// A datagram came.
    pub fn datagram(&mut self, now: Tick, from: SocketAddr, bytes: &[u8]) {
        match &mut self.stage {
            Stage::Address { client, ipxe } => {
                let ipxe = *ipxe;
                client.datagram(now, bytes);
                if let Some(bound) = client.bound().cloned() {
                    self.has_address(now, ipxe, &bound);
                }
            }
            Stage::Loader {
                receiver,
                to,
                loaded,
            } => {
                let SocketAddr::V4(from) = from else { return };
                // The server answers from a port of its own for this transfer and stays
                // with it (RFC 1350, section 4).
                let first = to.port() == self.place.tftp_port;
                if from.ip() != to.ip() || (!first && from != *to) {
                    return;
                }
                *to = from;
                receiver.datagram(us(now), bytes, loaded);
                self.after_loader(now);
            }
            _ => {}
        }
    }

    /// What was fetched, or nothing if that failed.
    pub fn fetched(&mut self, now: Tick, body: Option<&[u8]>) {
        let rest = Stage::Resting {
            until: now,
            again: None,
        };
        match (std::mem::replace(&mut self.stage, rest), body) {
            (Stage::Script, Some(body)) => self.has_script(now, body),
            (
                Stage::Kernel {
                    ramdisk,
                    line,
                    otherwise,
                },
                Some(kernel),
            ) if !kernel.is_empty() => {
                self.stage = Stage::Ramdisk { line, otherwise };
                self.wants.push_back(Do::Fetch { url: ramdisk });
            }
            (Stage::Ramdisk { line, .. }, Some(ramdisk)) if !ramdisk.is_empty() => {
                let agent = line.api_url.is_some() || line.inspection_url.is_some();
                self.stage = Stage::Ended(if agent {
                    Ended::Agent(line)
                } else {
                    Ended::Other
                });
            }
            (Stage::Image { .. }, Some(image)) if !image.is_empty() => {
                self.stage = Stage::Ended(Ended::Other);
            }
            (
                Stage::Kernel { otherwise, .. }
                | Stage::Ramdisk { otherwise, .. }
                | Stage::Image { otherwise },
                _,
            ) => match otherwise {
                Some(again) => self.asks_again(now, again),
                None => self.start_over(now),
            },
            (Stage::Ended(ended), _) => self.stage = Stage::Ended(ended),
            _ => self.start_over(now),
        }
    }

    fn ask_address(&mut self, now: Tick, ipxe: bool) {
        let mut client = Client::new(
            self.hardware.mac,
            Some(ARCH_UEFI_X64),
            ipxe,
            Some(self.hardware.uuid),
            Some(self.place.relay),
        );
        client.start(now);
        self.stage = Stage::Address { client, ipxe };
    }

    fn has_address(&mut self, now: Tick, ipxe: bool, bound: &Bound) {
        self.address = Some(bound.address);
        match (&bound.boot_file, ipxe) {
            (Some(url), true) => self.fetch_script(url.clone()),
            (Some(file), false) => {
                let asked = tftp::Options {
                    block_bytes: Some(1428),
                    window_blocks: Some(4),
                    timeout_s: None,
                    file_bytes: Some(0),
                };
                let limits = tftp::Limits {
                    file_bytes_max: LOADER_BYTES_MAX,
                    ..tftp::Limits::default()
                };
                let mode = tftp::Mode::Octet;
                let receiver = Box::new(tftp::Receiver::new(file, mode, asked, limits, us(now)));
                let to = SocketAddrV4::new(bound.next_server, self.place.tftp_port);
                self.stage = Stage::Loader {
                    receiver,
                    to,
                    loaded: Vec::new(),
                };
            }
            (None, _) => self.start_over(now),
        }
    }

    fn after_loader(&mut self, now: Tick) {
        let Stage::Loader {
            receiver,
            to,
            loaded,
        } = &mut self.stage
        else {
            return;
        };
        match receiver.state() {
            tftp::State::Running => {}
            tftp::State::Done { .. } if !loaded.is_empty() => {
                // The last acknowledgement is still to leave.
                let mut bytes = Vec::new();
                if receiver.transmit(&mut bytes).is_some() {
                    self.wants.push_back(Do::Tftp { to: *to, bytes });
                }
                self.ask_address(now, true);
            }
            tftp::State::Done { .. } | tftp::State::Failed { .. } => self.start_over(now),
        }
    }

    fn fetch_script(&mut self, url: String) {
        self.wants.push_back(Do::Fetch { url });
        self.stage = Stage::Script;
    }

    fn has_script(&mut self, now: Tick, body: &[u8]) {
        let script = std::str::from_utf8(body).ok().and_then(script::parse);
        match script {
            Some(Script::Boot {
                kernel,
                ramdisk,
                line,
                otherwise,
            }) => {
                self.stage = Stage::Kernel {
                    ramdisk,
                    line,
                    otherwise,
                };
                self.wants.push_back(Do::Fetch { url: kernel });
            }
            Some(Script::Image { url, otherwise }) => {
                self.stage = Stage::Image { otherwise };
                self.wants.push_back(Do::Fetch { url });
            }
            Some(Script::Exit) => self.stage = Stage::Ended(Ended::Disk),
            Some(Script::Again(again)) => self.asks_again(now, again),
            None => self.start_over(now),
        }
    }

    fn asks_again(&mut self, now: Tick, again: Again) {
        self.stage = Stage::Resting {
            until: now.after_ms(again.after_ms),
            again: Some(again.url),
        };
    }

    fn start_over(&mut self, now: Tick) {
        self.address = None;
        self.stage = Stage::Resting {
            until: now.after_ms(START_OVER_MS),
            again: None,
        };
    }
}

/// TFTP counts microseconds.
fn us(now: Tick) -> u64 {
    now.0.saturating_mul(1000)
}

#[cfg(test)]
mod tests;
