//! A machine from power-on to its operating system: DHCP, the loader by TFTP,
//! DHCP again as iPXE, the script, kernel and ramdisk by HTTP.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use embedded_tftp as tftp;
use trivet_dhcp::client::{BoundLease, DhcpClient};
use trivet_model::Tick;

use crate::script::{self, IpxeScriptOutcome, IpxeScriptRetry};
use crate::{AgentKernelArguments, SimHardware};

/// UEFI for x86-64 (RFC 4578, table 1).
const ARCH_UEFI_X64: u16 = 7;

/// Delay before firmware restarts after a failed boot. Ours: real firmware tries its boot order
/// again from the start.
const START_OVER_MS: u64 = 2000;

/// Longest expected loader.
const LOADER_BYTES_MAX: u64 = 4 << 20;

/// The network of a simulated machine.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SimBootNetwork {
    /// The relay between the machine and the DHCP server.
    pub relay: Ipv4Addr,
    /// The port at which TFTP is served; 69 on a real network.
    pub tftp_port: u16,
}

/// An action that the firmware requests.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum SimFirmwareAction {
    /// Send this through the relay to the DHCP server.
    Dhcp(Vec<u8>),
    /// Send this to a TFTP server.
    Tftp {
        /// The destination.
        to: SocketAddrV4,
        /// The UDP payload.
        bytes: Vec<u8>,
    },
    /// Fetch this by HTTP and report the result with [`SimFirmware::handle_fetched`].
    Fetch {
        /// The URL.
        url: String,
    },
}

/// The system that the firmware has started.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum SimFirmwareHandover {
    /// The agent.
    Agent(AgentKernelArguments),
    /// The system on the disk.
    Disk,
    /// A kernel or image of the operator, which is not an agent.
    Other,
}

enum SimFirmwareStage {
    Address {
        client: DhcpClient,
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
        line: AgentKernelArguments,
        on_failure: Option<IpxeScriptRetry>,
    },
    Ramdisk {
        line: AgentKernelArguments,
        on_failure: Option<IpxeScriptRetry>,
    },
    Image {
        on_failure: Option<IpxeScriptRetry>,
    },
    Waiting {
        until: Tick,
        retry_url: Option<String>,
    },
    HandedOver(SimFirmwareHandover),
}

/// The firmware of one machine, from power-on.
pub struct SimFirmware {
    hardware: SimHardware,
    network: SimBootNetwork,
    stage: SimFirmwareStage,
    address: Option<Ipv4Addr>,
    actions: VecDeque<SimFirmwareAction>,
}

impl SimFirmware {
    /// Firmware right after power-on.
    pub fn start(now: Tick, hardware: SimHardware, place: SimBootNetwork) -> Self {
        let stage = SimFirmwareStage::Waiting {
            until: now,
            retry_url: None,
        };
        let mut firmware = Self {
            hardware,
            network: place,
            stage,
            address: None,
            actions: VecDeque::new(),
        };
        firmware.request_address(now, false);
        firmware
    }

    /// The address from DHCP.
    pub fn address(&self) -> Option<Ipv4Addr> {
        self.address
    }

    /// The started system, if the boot has finished.
    pub fn handover(&self) -> Option<&SimFirmwareHandover> {
        match &self.stage {
            SimFirmwareStage::HandedOver(ended) => Some(ended),
            _ => None,
        }
    }

    /// The next requested action.
    pub fn next_action(&mut self) -> Option<SimFirmwareAction> {
        match &mut self.stage {
            SimFirmwareStage::Address { client, .. } => {
                if let Some(bytes) = client.transmit() {
                    self.actions.push_back(SimFirmwareAction::Dhcp(bytes));
                }
            }
            SimFirmwareStage::Loader { receiver, to, .. } => {
                let mut bytes = Vec::new();
                if receiver.transmit(&mut bytes).is_some() {
                    self.actions
                        .push_back(SimFirmwareAction::Tftp { to: *to, bytes });
                }
            }
            _ => {}
        }
        self.actions.pop_front()
    }

    /// When [`SimFirmware::tick`] is due.
    pub fn deadline(&self) -> Option<Tick> {
        match &self.stage {
            SimFirmwareStage::Address { client, .. } => client.deadline(),
            SimFirmwareStage::Loader { receiver, .. } => {
                let at_us = receiver.deadline();
                at_us.map(|at_us| Tick(at_us.div_ceil(1000)))
            }
            SimFirmwareStage::Waiting { until, .. } => Some(*until),
            _ => None,
        }
    }

    /// Handles timeouts.
    pub fn tick(&mut self, now: Tick) {
        match &mut self.stage {
            SimFirmwareStage::Address { client, .. } => {
                client.tick(now);
                if client.deadline().is_none() && client.bound().is_none() {
                    self.start_over(now);
                }
            }
            SimFirmwareStage::Loader { receiver, .. } => {
                receiver.tick(us(now));
                self.after_loader(now);
            }
            SimFirmwareStage::Waiting {
                until,
                retry_url: again,
            } if *until <= now => match again.take() {
                Some(url) => self.fetch_script(url),
                None => self.request_address(now, false),
            },
            _ => {}
        }
    }

    /// Handles a received datagram.
    pub fn handle_datagram(&mut self, now: Tick, from: SocketAddr, bytes: &[u8]) {
        match &mut self.stage {
            SimFirmwareStage::Address { client, ipxe } => {
                let ipxe = *ipxe;
                client.datagram(now, bytes);
                if let Some(bound) = client.bound().cloned() {
                    self.handle_address(now, ipxe, &bound);
                }
            }
            SimFirmwareStage::Loader {
                receiver,
                to,
                loaded,
            } => {
                let SocketAddr::V4(from) = from else { return };
                // The server replies from its own port for this transfer and keeps it (RFC
                // 1350, section 4).
                let first = to.port() == self.network.tftp_port;
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

    /// Handles a fetched file; `None` if the request failed.
    pub fn handle_fetched(&mut self, now: Tick, body: Option<&[u8]>) {
        let rest = SimFirmwareStage::Waiting {
            until: now,
            retry_url: None,
        };
        match (std::mem::replace(&mut self.stage, rest), body) {
            (SimFirmwareStage::Script, Some(body)) => self.handle_script(now, body),
            (
                SimFirmwareStage::Kernel {
                    ramdisk,
                    line,
                    on_failure: otherwise,
                },
                Some(kernel),
            ) if !kernel.is_empty() => {
                self.stage = SimFirmwareStage::Ramdisk {
                    line,
                    on_failure: otherwise,
                };
                self.actions
                    .push_back(SimFirmwareAction::Fetch { url: ramdisk });
            }
            (SimFirmwareStage::Ramdisk { line, .. }, Some(ramdisk)) if !ramdisk.is_empty() => {
                let agent = line.api_url.is_some() || line.inspection_url.is_some();
                self.stage = SimFirmwareStage::HandedOver(if agent {
                    SimFirmwareHandover::Agent(line)
                } else {
                    SimFirmwareHandover::Other
                });
            }
            (SimFirmwareStage::Image { .. }, Some(image)) if !image.is_empty() => {
                self.stage = SimFirmwareStage::HandedOver(SimFirmwareHandover::Other);
            }
            (
                SimFirmwareStage::Kernel {
                    on_failure: otherwise,
                    ..
                }
                | SimFirmwareStage::Ramdisk {
                    on_failure: otherwise,
                    ..
                }
                | SimFirmwareStage::Image {
                    on_failure: otherwise,
                },
                _,
            ) => match otherwise {
                Some(again) => self.retry_script(now, again),
                None => self.start_over(now),
            },
            (SimFirmwareStage::HandedOver(ended), _) => {
                self.stage = SimFirmwareStage::HandedOver(ended);
            }
            _ => self.start_over(now),
        }
    }

    fn request_address(&mut self, now: Tick, ipxe: bool) {
        let mut client = DhcpClient::new(
            self.hardware.mac,
            Some(ARCH_UEFI_X64),
            ipxe,
            Some(self.hardware.uuid),
            Some(self.network.relay),
        );
        client.start(now);
        self.stage = SimFirmwareStage::Address { client, ipxe };
    }

    fn handle_address(&mut self, now: Tick, ipxe: bool, bound: &BoundLease) {
        self.address = Some(bound.address);
        match (&bound.boot_file, ipxe) {
            (Some(url), true) => self.fetch_script(url.clone()),
            (Some(file), false) => {
                let options = tftp::TransferOptions {
                    block_bytes: Some(1428),
                    window_blocks: Some(4),
                    timeout_s: None,
                    file_bytes: Some(0),
                };
                let limits = tftp::TransferLimits {
                    file_bytes_max: LOADER_BYTES_MAX,
                    ..tftp::TransferLimits::default()
                };
                let mode = tftp::TransferMode::Octet;
                let receiver = Box::new(tftp::Receiver::new(file, mode, options, limits, us(now)));
                let to = SocketAddrV4::new(bound.next_server, self.network.tftp_port);
                self.stage = SimFirmwareStage::Loader {
                    receiver,
                    to,
                    loaded: Vec::new(),
                };
            }
            (None, _) => self.start_over(now),
        }
    }

    fn after_loader(&mut self, now: Tick) {
        let SimFirmwareStage::Loader {
            receiver,
            to,
            loaded,
        } = &mut self.stage
        else {
            return;
        };
        match receiver.state() {
            tftp::TransferState::Running => {}
            tftp::TransferState::Done { .. } if !loaded.is_empty() => {
                // The last acknowledgement must still be sent.
                let mut bytes = Vec::new();
                if receiver.transmit(&mut bytes).is_some() {
                    self.actions
                        .push_back(SimFirmwareAction::Tftp { to: *to, bytes });
                }
                self.request_address(now, true);
            }
            tftp::TransferState::Done { .. } | tftp::TransferState::Failed { .. } => {
                self.start_over(now);
            }
        }
    }

    fn fetch_script(&mut self, url: String) {
        self.actions.push_back(SimFirmwareAction::Fetch { url });
        self.stage = SimFirmwareStage::Script;
    }

    fn handle_script(&mut self, now: Tick, body: &[u8]) {
        let script = std::str::from_utf8(body).ok().and_then(script::parse);
        match script {
            Some(IpxeScriptOutcome::Boot {
                kernel,
                ramdisk,
                line,
                on_failure: otherwise,
            }) => {
                self.stage = SimFirmwareStage::Kernel {
                    ramdisk,
                    line,
                    on_failure: otherwise,
                };
                self.actions
                    .push_back(SimFirmwareAction::Fetch { url: kernel });
            }
            Some(IpxeScriptOutcome::Image {
                url,
                on_failure: otherwise,
            }) => {
                self.stage = SimFirmwareStage::Image {
                    on_failure: otherwise,
                };
                self.actions.push_back(SimFirmwareAction::Fetch { url });
            }
            Some(IpxeScriptOutcome::Exit) => {
                self.stage = SimFirmwareStage::HandedOver(SimFirmwareHandover::Disk);
            }
            Some(IpxeScriptOutcome::Retry(again)) => self.retry_script(now, again),
            None => self.start_over(now),
        }
    }

    fn retry_script(&mut self, now: Tick, again: IpxeScriptRetry) {
        self.stage = SimFirmwareStage::Waiting {
            until: now.after_ms(again.after_ms),
            retry_url: Some(again.url),
        };
    }

    fn start_over(&mut self, now: Tick) {
        self.address = None;
        self.stage = SimFirmwareStage::Waiting {
            until: now.after_ms(START_OVER_MS),
            retry_url: None,
        };
    }
}

/// TFTP uses microseconds.
fn us(now: Tick) -> u64 {
    now.0.saturating_mul(1000)
}

#[cfg(test)]
mod tests;
