//! The appliance of the demo: on loopback, free ports, its own files.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use trivet_model::{Entropy as _, Seeded, View};
use trivet_rack::dhcp::{BootServer, Settings as Dhcp, Subnet};
use trivet_rack::{AtOnce, Files, Limits, Pace};

use super::any_port;
use super::machine::Wiring;
use crate::appliance::{Appliance, Ground, Listening, open_store};
use crate::auth::Auth;
use crate::cache::Ways;
use crate::clock::Clock;
use crate::doors::browser::HostNames;
use crate::doors::dhcp::{Place, Relayed};
use crate::engine::EngineError;
use crate::{library, sockets};

/// The demo's image.
pub(crate) const IMAGE: &str = "demo.raw";

/// Bytes of the demo's image. Large enough to see it move.
const IMAGE_BYTES: usize = 16 << 20;

/// Megabytes of the demo's store.
const STORE_MIB: u32 = 16;

/// Addresses of the simulated network. All of 127.0.0.0/8 is this machine, so
/// each simulated machine can really use the address it is given.
const BOX: Ipv4Addr = Ipv4Addr::new(127, 77, 0, 1);
const RELAY: Ipv4Addr = Ipv4Addr::new(127, 77, 0, 2);

/// The appliance at work.
pub(crate) struct Stage {
    pub(crate) wiring: Wiring,
    pub(crate) page_url: String,
    pub(crate) inspector_url: String,
    view: watch::Receiver<Arc<View>>,
    stop: oneshot::Sender<()>,
    running: JoinHandle<Result<(), EngineError>>,
}

fn facts(clock: Clock) -> trivet_api::Facts {
    trivet_api::Facts {
        hostname: "demo".to_owned(),
        drivers: hardware(),
        public_endpoint: None,
        inspector: false,
        agent_http_allowed: true,
        agent_missing: false,
        // Filled in when the images are listed.
        images: Vec::new(),
        started_at: clock.now().wall,
    }
}

impl Stage {
    /// Starts the appliance with its files in `data`.
    pub(crate) async fn set(data: &Path) -> anyhow::Result<Self> {
        let clock = Clock::start();
        let files = props(data)?;
        let home = any_port(Ipv4Addr::LOCALHOST);
        let api = sockets::tcp("API", home).await?;
        let http = sockets::tcp("HTTP", home).await?;
        let panel = sockets::tcp("panel", home).await?;
        let inspector = sockets::tcp("inspector", home).await?;
        let tftp = sockets::udp("TFTP", any_port(BOX)).await?;
        let dhcp = sockets::udp("DHCP", any_port(BOX)).await?;
        let api_url = format!("http://{}", api.local_addr()?);
        let http_url = format!("http://{}", http.local_addr()?);
        let page_url = format!("http://{}/", panel.local_addr()?);
        let inspector_url = format!("http://{}", inspector.local_addr()?);
        let std::net::SocketAddr::V4(dhcp_address) = dhcp.local_addr()? else {
            anyhow::bail!("the DHCP socket has no IPv4 address");
        };
        let wiring = Wiring {
            api_url: api_url.clone(),
            dhcp: dhcp_address,
            tftp_port: tftp.local_addr()?.port(),
            relay: RELAY,
        };
        let listening = |socket| Listening {
            sockets: vec![socket],
            tls: None,
        };
        let ground = Ground {
            api: listening(api),
            inspector: listening(inspector),
            http: listening(http),
            https: Listening::default(),
            panel: listening(panel),
            tftp: vec![tftp],
            dhcp: vec![Place::Relayed(Relayed {
                socket: dhcp,
                local: BOX,
            })],
            bmc: sockets::udp("BMC", home).await?,
            ssh: crate::doors::ssh::Door::new(data, None),
            redfish: crate::doors::redfish::Door::new(None)?,
            auth: Auth::Open,
            hosts: HostNames::default(),
            facts: facts(clock),
            connections_max: 4096,
            transfers_max: 1024,
            logs: data.join("logs"),
            cache: (data.join("cache"), Ways::plain(clock)),
            notes: Box::new(|_, _| {}),
        };
        let settings = settings(data, files, api_url, http_url)?;
        let store = open_store(data, STORE_MIB)?;
        let appliance = Appliance::start(clock, ground, settings, store)?;
        let view = appliance.engine.watch();
        let (stop, stopped) = oneshot::channel::<()>();
        let running = tokio::spawn(appliance.run(async {
            let _ = stopped.await;
        }));
        Ok(Self {
            wiring,
            page_url,
            inspector_url,
            view,
            stop,
            running,
        })
    }

    /// Snapshots, for the terminal.
    pub(crate) fn view(&self) -> watch::Receiver<Arc<View>> {
        self.view.clone()
    }

    /// Ends the appliance.
    pub(crate) async fn strike(self) -> anyhow::Result<()> {
        let _ = self.stop.send(());
        Ok(self.running.await??)
    }
}

/// Loader, kernel, ramdisk and image: bytes that only have to arrive whole.
fn props(data: &Path) -> anyhow::Result<Files> {
    let boot = data.join("boot");
    let images = data.join("images");
    crate::private::directory(&boot)?;
    crate::private::directory(&images)?;
    let file = |path: PathBuf, seed: u64, bytes: usize| -> anyhow::Result<PathBuf> {
        let mut content = vec![0; bytes];
        Seeded::new(seed).fill(&mut content);
        std::fs::write(&path, content)?;
        Ok(path)
    };
    file(boot.join("snponly.efi"), 1, 256 << 10)?;
    file(images.join(IMAGE), 4, IMAGE_BYTES)?;
    Ok(Files {
        agent_elsewhere: false,
        kernel: Some(file(boot.join("kernel"), 2, 1 << 20)?),
        ramdisk: Some(file(boot.join("ramdisk"), 3, 2 << 20)?),
        images: Some(images),
        loaders: Some(boot),
        operator: None,
        data: None,
    })
}

fn settings(
    data: &Path,
    files: Files,
    api_url: String,
    http_url: String,
) -> anyhow::Result<trivet_rack::Settings> {
    let boot = BootServer::new(BOX, format!("{http_url}/boot/{{mac}}/script"));
    let subnet = Subnet {
        network: Ipv4Addr::new(127, 77, 0, 0),
        prefix: 16,
        first: Ipv4Addr::new(127, 77, 1, 1),
        last: Ipv4Addr::new(127, 77, 8, 254),
        server: BOX,
        router: None,
        dns: Vec::new(),
        boot,
        known_only: true,
        lease_s: 3600,
    };
    Ok(trivet_rack::Settings {
        dhcp: Some(Dhcp {
            links: Vec::new(),
            subnets: vec![subnet],
        }),
        images: library::catalogue(&data.join("images"), |_| {})?,
        api_url,
        http_url,
        everywhere: trivet_rack::Everywhere::default(),
        cache: false,
        files,
        kernel_args: String::new(),
        heartbeat_timeout_s: 3,
        // All of it is on loopback.
        agent_addresses: trivet_rack::AgentAddresses {
            any: true,
            ..trivet_rack::AgentAddresses::default()
        },
        limits: Limits {
            agent_wait_ms: 60_000,
            // Longer than agents are told, who share this machine with all others.
            silence_ms: 60_000,
            boot_ms: 60_000,
            power_poll_ms: 500,
            retry_ms: 500,
            ..Limits::default()
        },
        pace: Pace::default(),
        power_fresh_ms: Some(10_000),
        boots_at_once: AtOnce::default(),
        hardware: hardware(),
        faults: Vec::new(),
    })
}

/// Every hardware type, so that a client may rehearse with nodes of its own.
fn hardware() -> Vec<String> {
    let names = trivet_hardware::ALL.iter().map(|one| one.name.to_owned());
    names.collect()
}
