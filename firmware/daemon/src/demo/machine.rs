//! One simulated machine over real sockets: its BMC, its firmware, its agent.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::UdpSocket;
use tokio::sync::{mpsc, watch};
use trivet_bmc_ipmi::bmc::IpmiSimulator;
use trivet_image_agent::shell;
use trivet_image_agent::state_machine::{AgentIntervals, AgentMachineIdentity};
use trivet_model::{BootDevice, Digest};
use trivet_sim::{
    AgentKernelArguments, SimBootNetwork, SimChassis, SimFirmware, SimFirmwareAction,
    SimFirmwareHandover, SimHardware,
};

use super::rest_client;
use crate::clock::{DaemonClock, DaemonEntropy};
use crate::{image_directory, sockets};

/// Size of a simulated disk, as its agent reports it.
const DISK_BYTES: u64 = 8 << 30;

/// How long the power-on self-test of a machine takes. Real ones take minutes; this is
/// enough to watch.
const SELF_TEST: Duration = Duration::from_millis(700);

/// Longest datagram a machine receives.
const DATAGRAM_BYTES_MAX: usize = 2048;

/// The addresses of the box's services, as a machine reaches them.
#[derive(Clone, Debug)]
pub(crate) struct DemoEndpoints {
    pub(crate) api_url: String,
    pub(crate) dhcp: SocketAddrV4,
    pub(crate) tftp_port: u16,
    pub(crate) relay: Ipv4Addr,
}

/// A machine in the rack. It exists until the demo ends.
pub(crate) struct DemoMachine {
    pub(crate) hardware: SimHardware,
    pub(crate) bmc: SocketAddr,
    pub(crate) disk: PathBuf,
    endpoints: DemoEndpoints,
    clock: DaemonClock,
    chassis: Mutex<SimChassis>,
    /// Incremented with every change of power.
    power_changes: watch::Sender<u64>,
    /// Bytes of the image that its agent wrote last.
    written: AtomicU64,
    /// Whether it runs the system on its disk.
    installed: watch::Sender<bool>,
}

impl DemoMachine {
    /// A machine that is off, with its BMC running.
    pub(crate) async fn start(
        hardware: SimHardware,
        disks: &Path,
        wiring: DemoEndpoints,
    ) -> anyhow::Result<Arc<Self>> {
        let socket = sockets::udp("simulated BMC", super::any_port(Ipv4Addr::LOCALHOST)).await?;
        let machine = Arc::new(Self {
            bmc: socket.local_addr()?,
            disk: disks.join(format!("{}.raw", hardware.name())),
            endpoints: wiring,
            clock: DaemonClock::start(),
            chassis: Mutex::default(),
            power_changes: watch::channel(0).0,
            written: AtomicU64::new(0),
            installed: watch::channel(false).0,
            hardware,
        });
        tokio::spawn(Arc::clone(&machine).run_bmc(socket));
        tokio::spawn(Arc::clone(&machine).run());
        Ok(machine)
    }

    /// Waits until the machine runs the system on its disk.
    pub(crate) async fn booted_disk(&self) {
        let mut installed = self.installed.subscribe();
        let _ = installed.wait_for(|installed| *installed).await;
    }

    /// How many bytes its agent wrote, and the digest of that part of its disk.
    pub(crate) async fn disk_digest(&self) -> anyhow::Result<(u64, Digest)> {
        let (disk, written) = (self.disk.clone(), self.written.load(Ordering::Relaxed));
        let hash = move || image_directory::hash_first(&disk, written);
        let image = tokio::task::spawn_blocking(hash).await??;
        Ok((image.size, image.digest))
    }

    fn with_chassis<T>(&self, look: impl FnOnce(&mut SimChassis) -> T) -> T {
        let mut case = self.chassis.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = look(&mut case);
        let power_changes = case.power_changes();
        // Notify with the lock held: otherwise two callers could notify in another
        // order than they switched, and a machine would see its power change twice.
        self.power_changes
            .send_if_modified(|seen| std::mem::replace(seen, power_changes) != power_changes);
        answer
    }

    async fn run_bmc(self: Arc<Self>, socket: UdpSocket) {
        let mut bmc = IpmiSimulator::new(self.hardware.bmc());
        let mut entropy = DaemonEntropy::new();
        let mut buffer = [0; DATAGRAM_BYTES_MAX];
        loop {
            let Ok((length, peer)) = socket.recv_from(&mut buffer).await else {
                continue;
            };
            let mut hasher = DefaultHasher::new();
            peer.hash(&mut hasher);
            let answer = self.with_chassis(|case| {
                bmc.datagram(hasher.finish(), &buffer[..length], case, &mut entropy)
            });
            if let Some(answer) = answer {
                let _ = socket.send_to(&answer, peer).await;
            }
        }
    }

    /// Runs the machine: from power-on to power-off, in an endless loop.
    async fn run(self: Arc<Self>) {
        let mut power_changes = self.power_changes.subscribe();
        loop {
            power_changes.mark_unchanged();
            self.installed.send_replace(false);
            if self.with_chassis(|case| case.is_on()) {
                self.boot(&mut power_changes).await;
            } else if power_changes.changed().await.is_err() {
                return;
            }
        }
    }

    /// One boot, until power changes.
    async fn boot(&self, power_changes: &mut watch::Receiver<u64>) {
        tokio::select! {
            () = tokio::time::sleep(SELF_TEST) => {}
            _ = power_changes.changed() => return,
        }
        let written = self.disk.metadata().is_ok_and(|facts| facts.len() > 0);
        let device = self.with_chassis(|case| case.boot_device(written));
        let ended = if device == BootDevice::Disk {
            Some((SimFirmwareHandover::Disk, None))
        } else {
            tokio::select! {
                ended = self.run_firmware() => ended,
                _ = power_changes.changed() => return,
            }
        };
        match ended {
            Some((SimFirmwareHandover::Disk, _)) => {
                self.installed.send_replace(true);
                let _ = power_changes.changed().await;
            }
            Some((SimFirmwareHandover::Agent(line), address)) => {
                self.run_agent(line, address, power_changes).await;
            }
            // The system that the operator chose runs, or no socket was available and
            // the machine hangs: wait until its power is switched.
            Some((SimFirmwareHandover::Other, _)) | None => {
                let _ = power_changes.changed().await;
            }
        }
    }

    /// Runs the agent until it ends or power goes off.
    async fn run_agent(
        &self,
        line: AgentKernelArguments,
        address: Option<Ipv4Addr>,
        power_changes: &mut watch::Receiver<u64>,
    ) {
        let own = address.unwrap_or(Ipv4Addr::LOCALHOST);
        let options = shell::AgentOptions {
            api_url: line.api_url,
            inspection_url: line.inspection_url,
            listen: super::any_port(own),
            advertise: None,
            advertise_port: None,
            client: shell::AgentHttpClient {
                own: own.into(),
                trust: None,
            },
            tls: None,
            api_minor: 68,
            identity: AgentMachineIdentity {
                macs: vec![self.hardware.mac],
                inventory: self.hardware.inventory(DISK_BYTES),
                node: None,
                token: None,
                inspection: None,
                managers: Vec::new(),
            },
            target: shell::AgentTarget::File {
                path: self.disk.clone(),
                bytes: DISK_BYTES,
            },
            rescue: Some(self.disk.with_extension("rescue")),
            ignores_bootloader_failure: false,
            intervals: AgentIntervals::FAST,
            managers: Vec::new(),
            logs: || shell::NO_LOGS.to_owned(),
        };
        let (power, has_power) = watch::channel(true);
        let (events, mut reports) = mpsc::channel(16);
        let agent = shell::run(options, has_power, events, Box::new(DaemonEntropy::new()));
        tokio::pin!(agent);
        loop {
            tokio::select! {
                end = &mut agent => {
                    self.with_chassis(|case| match end {
                        Ok(shell::AgentExit::PowerOff) => case.power_off(),
                        Ok(shell::AgentExit::Reboot) => case.restart(),
                        _ => {}
                    });
                    // If the agent has failed, the machine stays on and does nothing.
                    let _ = power_changes.changed().await;
                    return;
                }
                _ = power_changes.changed() => {
                    // The shell returns after its last write, so the disk is idle then.
                    let _ = power.send(false);
                    let _ = (&mut agent).await;
                    return;
                }
                event = reports.recv() => {
                    if let Some(shell::AgentShellEvent::Wrote { bytes, .. }) = event {
                        self.written.store(bytes, Ordering::Relaxed);
                    }
                }
            }
        }
    }
}

/// The firmware over sockets.
impl DemoMachine {
    /// Runs until the firmware hands over; none if a socket is not available.
    async fn run_firmware(&self) -> Option<(SimFirmwareHandover, Option<Ipv4Addr>)> {
        let relay = UdpSocket::bind(super::any_port(self.endpoints.relay))
            .await
            .ok()?;
        let mut tftp: Option<UdpSocket> = None;
        let place = SimBootNetwork {
            relay: self.endpoints.relay,
            tftp_port: self.endpoints.tftp_port,
        };
        let mut firmware = SimFirmware::start(self.clock.now().tick, self.hardware.clone(), place);
        loop {
            while let Some(wanted) = firmware.next_action() {
                match wanted {
                    SimFirmwareAction::Dhcp(bytes) => {
                        tftp = None;
                        let _ = relay.send_to(&bytes, self.endpoints.dhcp).await;
                    }
                    SimFirmwareAction::Tftp { to, bytes } => {
                        if tftp.is_none() {
                            let own = firmware.address()?;
                            tftp = Some(UdpSocket::bind(super::any_port(own)).await.ok()?);
                        }
                        if let Some(socket) = &tftp {
                            let _ = socket.send_to(&bytes, to).await;
                        }
                    }
                    SimFirmwareAction::Fetch { url } => {
                        let answer =
                            rest_client::exchange(firmware.address(), "GET", &url, None).await;
                        let body = match &answer {
                            Ok((200, body)) => Some(&body[..]),
                            _ => None,
                        };
                        firmware.handle_fetched(self.clock.now().tick, body);
                    }
                }
            }
            if let Some(ended) = firmware.handover() {
                let ended = ended.clone();
                return Some((ended, firmware.address()));
            }
            self.listen(&mut firmware, &relay, tftp.as_ref()).await;
        }
    }

    /// Waits for one datagram, or the next timer.
    async fn listen(
        &self,
        firmware: &mut SimFirmware,
        relay: &UdpSocket,
        tftp: Option<&UdpSocket>,
    ) {
        let (mut one, mut two) = ([0; DATAGRAM_BYTES_MAX], [0; DATAGRAM_BYTES_MAX]);
        let now = self.clock.now().tick;
        let wait_ms = firmware
            .deadline()
            .map_or(1000, |deadline| deadline.since_ms(now));
        let from_tftp = async {
            match tftp {
                Some(socket) => socket.recv_from(&mut two).await,
                None => std::future::pending().await,
            }
        };
        let received = tokio::select! {
            received = relay.recv_from(&mut one) => {
                received.map(|(length, from)| (from, one[..length].to_vec()))
            }
            received = from_tftp => received.map(|(length, from)| (from, two[..length].to_vec())),
            () = tokio::time::sleep(Duration::from_millis(wait_ms)) => {
                return firmware.tick(self.clock.now().tick);
            }
        };
        if let Ok((from, bytes)) = received {
            firmware.handle_datagram(self.clock.now().tick, from, &bytes);
        }
    }
}
