//! One machine of the rack: chassis, BMC, firmware, agent or system, disk.
//!
//! The parts are those of `firmware/sim` and of the agent; here they are combined and driven.
//! Outputs of the machine are [`SimMachineOutput`]s.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use trivet_bmc_ipmi::bmc::{IpmiChassis as _, IpmiSimulator};
use trivet_model::{BootDevice, PowerOrder, PowerState, SeededRandom, Tick};
use trivet_rack::AgentHttpRequest;
use trivet_sim::{
    AgentKernelArguments, SimBootNetwork, SimChassis, SimFirmware, SimFirmwareAction,
    SimFirmwareHandover, SimHardware,
};

use crate::dhcp_client::RenewingDhcpClient;
use crate::faults::InjectedBmcFault;
use crate::ipa::SimAgentEffect;
use crate::network::{
    AgentCall, HTTP_TIMEOUT_MS, SimHttpClient, SimHttpResult, TFTP_PORT, relay_address, url_path,
};

mod disk;
mod faulty_chassis;
mod host_system;
mod http_request;
mod own_agent;
mod power_delay;
mod stock_agent;

pub(crate) use disk::SimMachineDisk;
pub(crate) use faulty_chassis::THIRD_REQUEST;
use host_system::{AgentStart, HostSystem, RunningAgent};
pub(crate) use http_request::SimHttpRequest;
pub(crate) use own_agent::WRITE_MS;
use power_delay::MachinePowerDelay;
pub(crate) use stock_agent::InjectedAgentFault;

/// From power-on to the start of the firmware's network code.
const POST_MS: u64 = 800;

/// An output of the machine.
#[derive(Debug)]
pub(crate) enum SimMachineOutput {
    Dhcp(Vec<u8>),
    Bmc(Vec<u8>),
    /// The BMC received this power order.
    Controlled(PowerOrder),
    Tftp {
        peer: SocketAddrV4,
        to: SocketAddrV4,
        bytes: Vec<u8>,
    },
    Http {
        client: SimHttpClient,
        peer: Ipv4Addr,
        api: bool,
        request: SimHttpRequest,
    },
    Answer {
        to: AgentCall,
        result: Result<(u16, Vec<u8>), String>,
    },
    /// Work ends after this time.
    WorkEnds {
        life: u64,
        command: String,
        after_ms: u64,
    },
    /// The write of the image has started.
    Writing,
    /// The machine got an address.
    AddressBound(Ipv4Addr),
    /// It boots from its disk.
    BootsDisk,
    /// Its stock agent was called, with this reply.
    AgentCalled(AgentCallTrace),
    /// Something that the seeds must cover.
    Observed(&'static str),
    Log(String),
}

/// A call to a stock agent, for the checker.
#[derive(Debug)]
pub(crate) struct AgentCallTrace {
    /// The start of the box that called, and the boot of the machine.
    pub(crate) life: u64,
    pub(crate) boot: u64,
    pub(crate) method: &'static str,
    pub(crate) request: Value,
    pub(crate) status: u16,
    pub(crate) response: String,
}

enum SimMachineSoftware {
    Nothing,
    Post { until: Tick, device: BootDevice },
    Firmware(Box<SimFirmware>),
    Host(Box<HostSystem>),
}

/// One machine with its faults.
pub(crate) struct FaultyMachine {
    pub(crate) index: usize,
    pub(crate) hardware: SimHardware,
    pub(crate) disk: SimMachineDisk,
    pub(crate) bmc_fault: Option<InjectedBmcFault>,
    pub(crate) bmc_hangs: bool,
    /// Until when its agent's heartbeats are lost.
    pub(crate) heartbeats_lost_until: Option<Tick>,
    /// Its ramdisk of this boot has a rescue password.
    pub(crate) rescued: bool,
    pub(crate) tick_at: Option<Tick>,
    /// The hardware that its agent sees.
    pub(crate) agent_hardware: SimHardware,
    /// The first device in the boot order of its firmware, disk or network.
    pub(crate) first_device: BootDevice,
    /// Its ramdisk has the stock agent; otherwise our own.
    stock: bool,
    case: SimChassis,
    claimed: Option<PowerState>,
    /// How long it takes to follow its BMC, and the pending change.
    power_delay: MachinePowerDelay,
    bmc: IpmiSimulator,
    entropy: SeededRandom,
    /// Counts boots: events of an earlier one are dropped.
    life: u64,
    power_changes: u64,
    software: SimMachineSoftware,
    reported_address: Option<Ipv4Addr>,
}

impl FaultyMachine {
    pub(crate) fn new(index: usize, seed: u64, stock: bool) -> Self {
        let hardware = SimHardware::new(index as u16 + 1);
        let mut bmc = IpmiSimulator::new(hardware.bmc());
        if index % 4 == 3 {
            bmc.remove_mailbox();
        }
        Self {
            index,
            bmc,
            agent_hardware: hardware.clone(),
            hardware,
            disk: SimMachineDisk::Empty,
            bmc_fault: None,
            bmc_hangs: false,
            heartbeats_lost_until: None,
            rescued: false,
            tick_at: None,
            first_device: BootDevice::Disk,
            stock,
            case: SimChassis::default(),
            claimed: None,
            power_delay: MachinePowerDelay::for_seed(seed),
            entropy: SeededRandom::new(seed),
            life: 0,
            power_changes: 0,
            software: SimMachineSoftware::Nothing,
            reported_address: None,
        }
    }

    /// Whether the installed system runs, or did until it was switched off.
    pub(crate) fn runs_system(&self) -> bool {
        match &self.software {
            SimMachineSoftware::Host(host) => host.line.is_none() && host.agent.is_none(),
            _ => false,
        }
    }

    /// Whether it is between power-on and its system.
    pub(crate) fn is_starting(&self) -> bool {
        matches!(self.software, SimMachineSoftware::Post { .. })
    }

    /// The address it uses.
    pub(crate) fn address(&self, now: Tick) -> Option<Ipv4Addr> {
        match &self.software {
            SimMachineSoftware::Firmware(firmware) => firmware.address(),
            SimMachineSoftware::Host(host) => host.dhcp.address(now),
            _ => None,
        }
    }

    pub(crate) fn deadline(&self) -> Option<Tick> {
        let runs = match &self.software {
            SimMachineSoftware::Nothing => None,
            SimMachineSoftware::Post { until, .. } => Some(*until),
            SimMachineSoftware::Firmware(firmware) => firmware.deadline(),
            SimMachineSoftware::Host(host) => host.deadline(),
        };
        runs.into_iter().chain(self.power_delay.deadline()).min()
    }

    /// Number of power changes: software of an earlier one has ended.
    pub(crate) fn power_changes(&self) -> u64 {
        self.power_changes
    }

    // Events.

    pub(crate) fn lose_power(&mut self, now: Tick, back: bool, out: &mut Vec<SimMachineOutput>) {
        if back {
            self.case.restart();
        } else {
            self.case.power_off();
        }
        self.run_to_quiescence(now, out);
    }

    /// Applies a fault to the agent's process; the kernel and its address stay. False if it has
    /// no effect.
    pub(crate) fn inject_agent_fault(
        &mut self,
        now: Tick,
        blow: InjectedAgentFault,
        out: &mut Vec<SimMachineOutput>,
    ) -> bool {
        let SimMachineSoftware::Host(host) = &mut self.software else {
            return false;
        };
        let suffered = match (&mut host.agent, blow) {
            (Some(RunningAgent::Stock(stock)), blow) => {
                if blow == InjectedAgentFault::Dies && stock.is_working() {
                    out.push(SimMachineOutput::Observed("died mid-command"));
                }
                stock.inject_fault(now, blow)
            }
            // Our own agent is not restarted.
            (Some(RunningAgent::Own(_)), InjectedAgentFault::Dies | InjectedAgentFault::Hangs) => {
                host.agent = None;
                host.line = Some(AgentKernelArguments::default());
                self.life += 1;
                true
            }
            _ => false,
        };
        self.run_to_quiescence(now, out);
        suffered
    }

    pub(crate) fn tick(&mut self, now: Tick, out: &mut Vec<SimMachineOutput>) {
        if let Some(order) = self.power_delay.take_due(now) {
            self.case.control(order);
            self.run_to_quiescence(now, out);
        }
        match &mut self.software {
            SimMachineSoftware::Post { until, device } if *until <= now => {
                let device = *device;
                self.start_boot(now, device, out);
            }
            SimMachineSoftware::Nothing | SimMachineSoftware::Post { .. } => {}
            SimMachineSoftware::Firmware(firmware) => firmware.tick(now),
            SimMachineSoftware::Host(host) => host.dhcp.tick(now),
        }
        self.run_to_quiescence(now, out);
    }

    pub(crate) fn dhcp(&mut self, now: Tick, bytes: &[u8], out: &mut Vec<SimMachineOutput>) {
        match &mut self.software {
            SimMachineSoftware::Firmware(firmware) => {
                let from = SocketAddr::from((relay_address(self.index), 67));
                firmware.handle_datagram(now, from, bytes);
            }
            SimMachineSoftware::Host(host) => host.dhcp.datagram(now, bytes),
            _ => {}
        }
        self.run_to_quiescence(now, out);
    }

    pub(crate) fn tftp(
        &mut self,
        now: Tick,
        peer: SocketAddrV4,
        from: SocketAddrV4,
        bytes: &[u8],
        out: &mut Vec<SimMachineOutput>,
    ) {
        let port = self.tftp_port();
        if let SimMachineSoftware::Firmware(firmware) = &mut self.software
            && firmware.address() == Some(*peer.ip())
            && peer.port() == port
        {
            firmware.handle_datagram(now, from.into(), bytes);
        }
        self.run_to_quiescence(now, out);
    }

    pub(crate) fn http(
        &mut self,
        now: Tick,
        who: SimHttpClient,
        answer: SimHttpResult,
        out: &mut Vec<SimMachineOutput>,
    ) {
        let life = self.life;
        match (&mut self.software, who) {
            (
                SimMachineSoftware::Firmware(firmware),
                SimHttpClient::Firmware { life: sender, .. },
            ) if sender == life => {
                let body = answer
                    .filter(|(status, _)| *status == 200)
                    .map(|(_, body)| body);
                firmware.handle_fetched(now, body.as_deref());
            }
            (SimMachineSoftware::Host(host), who) => {
                let entropy = &mut self.entropy;
                match (&mut host.agent, who) {
                    (
                        Some(RunningAgent::Own(own)),
                        SimHttpClient::Agent {
                            life: at,
                            kind: sender,
                            ..
                        },
                    ) if at == life => {
                        own.handle_response(now, sender, answer, entropy, out);
                    }
                    (
                        Some(RunningAgent::Own(own)),
                        SimHttpClient::Image {
                            life: at, command, ..
                        },
                    ) if at == life => {
                        own.handle_image_response(now, life, &command, answer, out);
                    }
                    (
                        Some(RunningAgent::Stock(stock)),
                        SimHttpClient::Stock {
                            life: at,
                            start,
                            kind: what,
                            ..
                        },
                    ) if at == life => stock.handle_response(now, (start, what), &answer, out),
                    (
                        Some(RunningAgent::Stock(stock)),
                        SimHttpClient::Image {
                            life: at, command, ..
                        },
                    ) if at == life => {
                        stock.handle_image_response(now, &command, answer, out);
                    }
                    _ => {}
                }
            }
            _ => {}
        }
        self.run_to_quiescence(now, out);
    }

    /// A call to the agent at our address.
    pub(crate) fn handle_call(
        &mut self,
        now: Tick,
        to: AgentCall,
        request: &AgentHttpRequest,
        out: &mut Vec<SimMachineOutput>,
    ) {
        let (machine, life, power_changes) = (self.index, self.life, self.power_changes);
        let SimMachineSoftware::Host(host) = &mut self.software else {
            return;
        };
        let peer = host.dhcp.address(now).unwrap_or(Ipv4Addr::UNSPECIFIED);
        let location = own_agent::SimAgentLocation {
            machine,
            life,
            peer,
        };
        let did = match &mut host.agent {
            None => {
                let result = Err("connection refused".to_owned());
                return out.push(SimMachineOutput::Answer { to, result });
            }
            Some(RunningAgent::Own(own)) => {
                own.handle_call(now, (location, self.disk), to, request, out)
            }
            Some(RunningAgent::Stock(stock)) => {
                stock.handle_call(now, power_changes, to, request, out);
                None
            }
        };
        self.apply_effects(did);
        self.run_to_quiescence(now, out);
    }

    /// Work of our own agent has ended.
    pub(crate) fn work_done(
        &mut self,
        now: Tick,
        life: u64,
        id: &str,
        out: &mut Vec<SimMachineOutput>,
    ) {
        let did = match &mut self.software {
            SimMachineSoftware::Host(host) if life == self.life => match &mut host.agent {
                Some(RunningAgent::Own(own)) => own.work_done(now, id, out),
                _ => None,
            },
            _ => None,
        };
        self.apply_effects(did);
        self.run_to_quiescence(now, out);
    }

    /// Applies the changes of an agent to its machine.
    fn apply_effects(&mut self, did: impl IntoIterator<Item = SimAgentEffect>) {
        for did in did {
            match did {
                SimAgentEffect::DiskInvalidated => self.disk = SimMachineDisk::Incomplete,
                SimAgentEffect::DiskErased => self.disk = SimMachineDisk::Empty,
                SimAgentEffect::ImageWritten(image) => {
                    self.disk = SimMachineDisk::Image(sha256(&image));
                }
                SimAgentEffect::ImageWrittenAhead(image) => {
                    self.disk = SimMachineDisk::WrittenAhead(sha256(&image));
                }
                SimAgentEffect::RescueEnabled(_) => self.rescued = true,
                SimAgentEffect::PoweredOff => self.case.power_off(),
                SimAgentEffect::Rebooted => self.case.restart(),
            }
        }
    }

    // Consequences.

    fn tftp_port(&self) -> u16 {
        2000 + (self.life % 1000) as u16
    }

    /// Runs until nothing more follows.
    fn run_to_quiescence(&mut self, now: Tick, out: &mut Vec<SimMachineOutput>) {
        loop {
            if self.case.power_changes() != self.power_changes {
                self.power_changed(now, out);
            }
            self.transmit(now, out);
            // An agent may have switched its machine off.
            if self.case.power_changes() == self.power_changes {
                break;
            }
        }
        let holds = self.address(now);
        if holds != self.reported_address {
            self.reported_address = holds;
            out.extend(holds.map(SimMachineOutput::AddressBound));
        }
    }

    /// The power changed: the running software has ended.
    fn power_changed(&mut self, now: Tick, out: &mut Vec<SimMachineOutput>) {
        self.power_changes = self.case.power_changes();
        self.life += 1;
        self.reported_address = None;
        self.rescued = false;
        let (index, life) = (self.index, self.life);
        if self.case.is_on() {
            let device = self.case.boot_device(
                matches!(self.disk, SimMachineDisk::Image(_))
                    && self.first_device == BootDevice::Disk,
            );
            out.push(SimMachineOutput::Log(format!(
                "machine {index} life {life} on, boots {device}"
            )));
            self.software = SimMachineSoftware::Post {
                until: now.after_ms(POST_MS),
                device,
            };
        } else {
            out.push(SimMachineOutput::Log(format!("machine {index} off")));
            self.software = SimMachineSoftware::Nothing;
        }
    }

    fn start_boot(&mut self, now: Tick, device: BootDevice, out: &mut Vec<SimMachineOutput>) {
        if device == BootDevice::Disk {
            self.boot_disk(now, out);
        } else {
            let place = SimBootNetwork {
                relay: relay_address(self.index),
                tftp_port: TFTP_PORT,
            };
            let firmware = SimFirmware::start(now, self.hardware.clone(), place);
            self.software = SimMachineSoftware::Firmware(Box::new(firmware));
        }
    }

    fn boot_disk(&mut self, now: Tick, out: &mut Vec<SimMachineOutput>) {
        out.push(SimMachineOutput::BootsDisk);
        // Without a bootable disk the machine stays at its firmware's prompt.
        self.software = if matches!(self.disk, SimMachineDisk::Image(_)) {
            self.host(now, None)
        } else {
            SimMachineSoftware::Nothing
        };
    }

    fn host(&self, now: Tick, line: Option<AgentKernelArguments>) -> SimMachineSoftware {
        let hardware = &self.hardware;
        let client = RenewingDhcpClient::start(
            now,
            hardware.mac,
            Some(hardware.uuid),
            relay_address(self.index),
        );
        SimMachineSoftware::Host(Box::new(HostSystem {
            dhcp: client,
            line,
            agent: None,
        }))
    }

    /// Sends the messages of the running software.
    fn transmit(&mut self, now: Tick, out: &mut Vec<SimMachineOutput>) {
        let (index, life, port) = (self.index, self.life, self.tftp_port());
        match &mut self.software {
            SimMachineSoftware::Nothing | SimMachineSoftware::Post { .. } => {}
            SimMachineSoftware::Firmware(firmware) => {
                while let Some(wanted) = firmware.next_action() {
                    let own = firmware.address().unwrap_or(Ipv4Addr::UNSPECIFIED);
                    out.push(match wanted {
                        SimFirmwareAction::Dhcp(bytes) => SimMachineOutput::Dhcp(bytes),
                        SimFirmwareAction::Tftp { to, bytes } => SimMachineOutput::Tftp {
                            peer: SocketAddrV4::new(own, port),
                            to,
                            bytes,
                        },
                        SimFirmwareAction::Fetch { url } => SimMachineOutput::Http {
                            client: SimHttpClient::Firmware {
                                machine: index,
                                life,
                            },
                            peer: own,
                            api: false,
                            request: SimHttpRequest::get(url_path(&url)),
                        },
                    });
                }
                match firmware.handover().cloned() {
                    Some(SimFirmwareHandover::Agent(line)) => {
                        self.software = self.host(now, Some(line));
                        self.transmit(now, out);
                    }
                    Some(SimFirmwareHandover::Disk) => {
                        self.boot_disk(now, out);
                        self.transmit(now, out);
                    }
                    // No node of these racks boots anything else.
                    Some(SimFirmwareHandover::Other) => self.software = SimMachineSoftware::Nothing,
                    None => {}
                }
            }
            SimMachineSoftware::Host(host) => {
                while let Some(bytes) = host.dhcp.transmit() {
                    out.push(SimMachineOutput::Dhcp(bytes));
                }
                let seed = self
                    .stock
                    .then(|| stock_agent::seed_of(&self.entropy, life));
                let bmc = &mut self.bmc;
                let start = AgentStart {
                    hardware: &self.agent_hardware,
                    stock: seed,
                    take_token: &mut || own_agent::take_token(bmc, life),
                };
                let did = host.poll_agent(now, start, (index, life), out);
                self.apply_effects(did);
            }
        }
    }
}

pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}
