//! Runs with a fault that a rule of the diagnosis explains.

use std::net::{Ipv4Addr, SocketAddrV4};

use trivet_dhcp::{
    BootServer, DhcpArrival, DhcpLinkSettings, DhcpServer, DhcpServerSettings, HostDirectory,
    LoaderFileNames, Subnet,
};
use trivet_model::{
    BootDevice, Diagnosis, LinkMode, MacAddr, RackView, SeededRandom, UndeliveredReason, UnixMs,
};
use trivet_rack::RackInput;
use trivet_rack::bmc::BmcMessage;

use super::RackSimulation;
use crate::diagnosed_faults::{DiagnosedFault, OTHER_MAC, transfer_ms};
use crate::faults::{InjectedBmcFault, SeedFaults};
use crate::image_faults::ImageFault;
use crate::network::{BOX, SimEvent, SimHttpClient, TFTP_PORT, relay_address};

/// The other DHCP server.
const OTHER_SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 254);

/// The size of the image where its rate counts: it just fits on the disk of a machine.
const LARGE_IMAGE_BYTES: usize = 1 << 20;

/// How long a TFTP datagram takes to a machine with a bad cable, in ms.
const SLOW_TFTP_MS: u64 = 6000;

/// The opcode of data (RFC 1350).
const TFTP_DATA: u8 = 3;

/// Datagrams of a transfer that arrive before the rest is lost.
const TFTP_DATAGRAMS_MAX: u32 = 2;

/// The fault of a run, and what it needs.
#[derive(Default)]
pub(crate) struct DiagnosedRun {
    pub(crate) fault: Option<DiagnosedFault>,
    other_server: Option<DhcpServer>,
    tftp_datagrams: u32,
}

impl DiagnosedRun {
    fn is_passing(&self) -> bool {
        self.fault.is_some_and(DiagnosedFault::is_passing)
    }
}

/// The other server knows every machine.
struct AnyMachine;

impl HostDirectory for &AnyMachine {
    fn known(&self, _: MacAddr) -> bool {
        true
    }

    fn reserved(&self, _: MacAddr) -> Option<Ipv4Addr> {
        None
    }

    fn owner(&self, _: Ipv4Addr) -> Option<MacAddr> {
        None
    }
}

/// The end of a run with a diagnosis.
pub(crate) struct DiagnosedEnd {
    pub(crate) diagnosis: Diagnosis,
    pub(crate) last_error: Option<String>,
    pub(crate) at: UnixMs,
    /// What readers see then, and what they see after the power of the box was cut.
    pub(crate) view: RackView,
    pub(crate) restarted: RackView,
}

fn link(mode: LinkMode) -> DhcpLinkSettings {
    DhcpLinkSettings {
        name: "eth1".to_owned(),
        mode,
        discovery: true,
        server: BOX,
        boot: BootServer::new(BOX, String::new()),
        relayed: false,
        network: None,
    }
}

fn other_server() -> DhcpServer {
    let subnet = Subnet {
        network: Ipv4Addr::new(10, 0, 0, 0),
        prefix: 24,
        first: Ipv4Addr::new(10, 0, 0, 59),
        last: Ipv4Addr::new(10, 0, 0, 69),
        server: OTHER_SERVER,
        router: None,
        dns: Vec::new(),
        boot: BootServer {
            loaders: LoaderFileNames::default(),
            ..BootServer::new(OTHER_SERVER, String::new())
        },
        known_only: false,
        lease_s: 600,
    };
    DhcpServer::new(DhcpServerSettings {
        links: Vec::new(),
        subnets: vec![subnet],
    })
}

impl RackSimulation {
    /// Machines with the stock agent, and this fault for the whole run.
    pub(crate) fn with_diagnosed_fault(fault: DiagnosedFault) -> Self {
        let image = fault == DiagnosedFault::SlowLink;
        let faults = SeedFaults {
            image: image.then(|| vec![0x5a; LARGE_IMAGE_BYTES]),
            ..SeedFaults::default()
        };
        let stock = vec![true; fault.machines()];
        let mut simulation = Self::with(8, &stock, faults, SeededRandom::new(8), true);
        simulation.diagnosed.fault = Some(fault);
        for (machine, operator) in simulation
            .machines
            .iter_mut()
            .zip(&mut simulation.operators)
        {
            operator.use_plain_plan(None);
            machine.switch_power_at_once();
        }
        simulation.prepare(fault);
        simulation
    }

    fn prepare(&mut self, fault: DiagnosedFault) {
        // The one whose node is diagnosed.
        let machine = 0;
        let settings = &mut self.box_under_test.settings;
        match fault {
            DiagnosedFault::NoAgent => {
                (settings.files.kernel, settings.files.ramdisk) = (None, None);
            }
            DiagnosedFault::KernelAbsent => settings.files.kernel = Some("/boot/absent".into()),
            DiagnosedFault::LoopbackApi => {
                "http://127.0.0.1:6385".clone_into(&mut settings.api_url);
            }
            DiagnosedFault::ApiElsewhere => {
                "http://198.51.100.1:6385".clone_into(&mut settings.api_url);
            }
            DiagnosedFault::ListenOnly | DiagnosedFault::OtherServer => {
                let mode = match fault {
                    DiagnosedFault::ListenOnly => LinkMode::Listen,
                    _ => LinkMode::Server,
                };
                if let Some(dhcp) = &mut settings.dhcp {
                    dhcp.links.push(link(mode));
                }
                let other = fault == DiagnosedFault::OtherServer;
                self.diagnosed.other_server = other.then(other_server);
            }
            DiagnosedFault::BmcSilent => self.machines[machine].bmc_hangs = true,
            DiagnosedFault::BmcPassword => self.operators[machine].use_wrong_password(),
            DiagnosedFault::OtherMac => self.operators[machine].use_mac(OTHER_MAC),
            DiagnosedFault::OtherCards => {
                self.machines[machine].agent_hardware.mac = OTHER_MAC;
            }
            DiagnosedFault::WrongHint => self.operators[machine].use_wrong_hint(),
            DiagnosedFault::NetworkFirst => {
                self.machines[machine].bmc_fault = Some(InjectedBmcFault::ForgetsBootDevice);
                self.machines[machine].first_device = BootDevice::Pxe;
            }
            DiagnosedFault::SharedBmc => self.operators[machine].use_bmc_of(1),
            DiagnosedFault::PortOfOtherNode => {
                let mac = self.machines[machine].hardware.mac;
                self.operators[machine].use_mac(OTHER_MAC);
                self.operators[1].use_mac(mac);
                self.operators[1].only_enrol();
            }
            DiagnosedFault::ImageChanged => {
                self.box_under_test.inject_image_fault(ImageFault::Changed);
            }
            DiagnosedFault::SlowLink | DiagnosedFault::TftpSlow => {
                self.box_under_test.measures_links = true;
            }
            DiagnosedFault::CableOut
            | DiagnosedFault::BmcAbsent
            | DiagnosedFault::BmcPortClosed
            | DiagnosedFault::BmcNoSession
            | DiagnosedFault::TftpBlocked
            | DiagnosedFault::TftpCut
            | DiagnosedFault::LoaderWithoutDriver
            | DiagnosedFault::AgentSilent
            | DiagnosedFault::AgentRefusesCalls => {}
        }
    }

    /// Without faults no node has a diagnosis.
    pub(crate) fn check_no_diagnosis(&mut self) {
        if !self.faults.are_none() {
            return;
        }
        let views = self.box_under_test.durable.nodes.values();
        let found = views.filter_map(|view| view.live.diagnosis.as_ref());
        let broken: Vec<_> = found
            .map(|found| format!("without a fault there is the diagnosis {found:?}"))
            .collect();
        self.checks.violations.extend(broken);
    }

    /// Runs until the node of the fault has a diagnosis and no job, or only the diagnosis where
    /// the job goes on.
    pub(crate) fn run_until_diagnosed(&mut self) -> Option<DiagnosedEnd> {
        let node = self.operators[0].node;
        while let Some((at, event)) = self.queue.pop() {
            self.now = at;
            if at.0 > super::TIME_MS_MAX {
                return None;
            }
            self.trace_event(&event);
            self.handle(event);
            self.arm_box();
            let view = self.box_under_test.durable.nodes.get(&node);
            if let Some(view) = view
                && let Some(diagnosis) = &view.live.diagnosis
                && (view.node.job.is_none() || self.diagnosed.is_passing())
            {
                let (diagnosis, last_error) =
                    (Diagnosis::clone(diagnosis), view.node.last_error.clone());
                let view = self.box_under_test.durable.clone();
                self.box_under_test.cut_power();
                self.start_box();
                return Some(DiagnosedEnd {
                    diagnosis,
                    last_error,
                    at: self.wall(),
                    view,
                    restarted: self.box_under_test.durable.clone(),
                });
            }
        }
        None
    }

    fn has_fault(&self, fault: DiagnosedFault) -> bool {
        self.diagnosed.fault == Some(fault)
    }

    /// A machine sends a DHCP message: whether it is lost. The other server answers at once.
    pub(super) fn loses_dhcp(&mut self, index: usize, bytes: &[u8]) -> bool {
        let is_ipxe = bytes.windows(4).any(|word| word == b"iPXE");
        if let Some(server) = &mut self.diagnosed.other_server {
            let source = std::net::SocketAddrV4::new(relay_address(index), 67);
            let arrival = DhcpArrival::datagram(OTHER_SERVER, source);
            let outcome = server.handle(self.now, bytes, arrival, &AnyMachine);
            if let Some(reply) = outcome.reply {
                let bytes = reply.bytes;
                self.datagram(|bytes| SimEvent::Dhcp { to: index, bytes }, bytes);
            }
        }
        self.has_fault(DiagnosedFault::CableOut)
            || self.has_fault(DiagnosedFault::LoaderWithoutDriver) && is_ipxe
    }

    /// Whether a TFTP datagram of a machine is lost.
    pub(super) fn loses_tftp_request(&mut self, port: u16) -> bool {
        if port == TFTP_PORT {
            self.diagnosed.tftp_datagrams = 0;
        }
        self.has_fault(DiagnosedFault::TftpBlocked)
    }

    /// Whether a datagram to a BMC is lost, as a broken BMC or the network loses it. The network
    /// reports some of them.
    pub(super) fn loses_bmc_request(&mut self, to: SocketAddrV4, bytes: &[u8]) -> bool {
        let reason = match self.diagnosed.fault {
            Some(DiagnosedFault::BmcAbsent) => UndeliveredReason::NoHost,
            Some(DiagnosedFault::BmcPortClosed) => UndeliveredReason::PortClosed,
            Some(DiagnosedFault::BmcNoSession) => {
                // The type of authentication in the session header: RMCP+.
                return bytes.get(4) == Some(&6);
            }
            _ => return false,
        };
        let to = to.into();
        self.enqueue_input(RackInput::Bmc(BmcMessage::Undelivered { to, reason }));
        true
    }

    /// How long a TFTP datagram of the box takes to the machine, in ms; none if as usual.
    pub(super) fn slow_tftp_ms(&self, to: SocketAddrV4, bytes: &[u8]) -> Option<u64> {
        let is_data = bytes.get(1) == Some(&TFTP_DATA);
        let is_slow = self.has_fault(DiagnosedFault::TftpSlow) && self.holder(*to.ip()) == Some(0);
        (is_data && is_slow).then_some(SLOW_TFTP_MS)
    }

    /// Whether a TFTP datagram of the box is lost.
    pub(super) fn loses_tftp_data(&mut self) -> bool {
        self.diagnosed.tftp_datagrams += 1;
        let is_late = self.diagnosed.tftp_datagrams > TFTP_DATAGRAMS_MAX;
        self.has_fault(DiagnosedFault::TftpCut) && is_late
    }

    /// Whether a request to the API is lost: an agent that was told a loopback address calls
    /// itself.
    pub(super) fn loses_api_request(&self, client: &SimHttpClient) -> bool {
        let is_agent = matches!(
            client,
            SimHttpClient::Agent { .. } | SimHttpClient::Stock { .. }
        );
        let loses = [
            DiagnosedFault::AgentSilent,
            DiagnosedFault::LoopbackApi,
            DiagnosedFault::ApiElsewhere,
        ];
        is_agent && loses.iter().any(|fault| self.has_fault(*fault))
    }

    /// Whether connections to agents are refused.
    pub(super) fn refuses_calls(&self) -> bool {
        self.has_fault(DiagnosedFault::AgentRefusesCalls)
    }

    /// How long a response takes on the link of its client.
    pub(super) fn link_ms(&self, client: &SimHttpClient, bytes: usize) -> u64 {
        match client {
            SimHttpClient::Image { machine, .. } if self.has_fault(DiagnosedFault::SlowLink) => {
                transfer_ms(*machine == 0, bytes as u64)
            }
            _ => 0,
        }
    }
}
