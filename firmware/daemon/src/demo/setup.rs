//! The appliance of the demo: on loopback, free ports, its own files.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use trivet_model::{
    ApiCaller, Entropy as _, RackOrder, RackView, Resource, ResourceId, ResourceKind, SeededRandom,
    UnixMs,
};
use trivet_rack::dhcp::{BootServer, DhcpServerSettings as Dhcp, Subnet};
use trivet_rack::{BootLimitRule, IpmiTiming, NodeLimits, RackFilePaths};

use super::any_port;
use super::machine::DemoEndpoints;
use crate::appliance::{ApplianceResources, RunningAppliance, TcpService, open_store};
use crate::auth::Authenticator;
use crate::cache::ImageCacheOptions;
use crate::clock::{DaemonClock, DaemonEntropy};
use crate::engine::{Engine, EngineError};
use crate::listeners::browser::HostNames;
use crate::listeners::dhcp::{DhcpRelaySocket, OpenedDhcpListener};
use crate::{image_directory, sockets};

/// The demo's image.
pub(crate) const IMAGE: &str = "demo.raw";

/// Bytes of the demo's image. Large enough to see its progress.
const IMAGE_BYTES: usize = 16 << 20;

/// Megabytes of the demo's store.
const STORE_MIB: u32 = 16;

/// Addresses of the simulated network. All of 127.0.0.0/8 is this machine, so
/// each simulated machine can really use the address it is given.
const BOX: Ipv4Addr = Ipv4Addr::new(127, 77, 0, 1);
const RELAY: Ipv4Addr = Ipv4Addr::new(127, 77, 0, 2);

/// The running appliance.
pub(crate) struct DemoAppliance {
    pub(crate) endpoints: DemoEndpoints,
    pub(crate) page_url: String,
    pub(crate) inspector_url: String,
    view: watch::Receiver<Arc<RackView>>,
    stop: oneshot::Sender<()>,
    running: JoinHandle<Result<(), EngineError>>,
}

fn facts(clock: DaemonClock) -> trivet_api::ApiFacts {
    trivet_api::ApiFacts {
        hostname: "demo".to_owned(),
        drivers: hardware_types(),
        public_endpoint: None,
        inspector: false,
        agent_http_allowed: true,
        agent_missing: false,
        agent_iso: false,
        // Filled in when the images are listed.
        images: Vec::new(),
        started_at: clock.now().wall,
    }
}

impl DemoAppliance {
    /// Starts the appliance with its files in `data`.
    pub(crate) async fn start(data: &Path) -> anyhow::Result<Self> {
        let clock = DaemonClock::start();
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
        let wiring = DemoEndpoints {
            api_url: api_url.clone(),
            dhcp: dhcp_address,
            tftp_port: tftp.local_addr()?.port(),
            relay: RELAY,
        };
        let listening = |socket| TcpService {
            sockets: vec![socket],
            tls: None,
        };
        let parts = ApplianceResources {
            api: listening(api),
            inspector: listening(inspector),
            http: listening(http),
            https: TcpService::default(),
            panel: listening(panel),
            tftp: vec![tftp],
            dhcp: vec![OpenedDhcpListener::Relayed(DhcpRelaySocket {
                socket: dhcp,
                local: BOX,
            })],
            bmc: sockets::udp("BMC", home).await?,
            ssh: crate::listeners::ssh::SshCommandRunner::new(data, None),
            redfish: crate::listeners::redfish::RedfishHttpClient::new(None)?,
            auth: Authenticator::Open,
            hosts: HostNames::default(),
            facts: facts(clock),
            trust: None,
            connections_max: 4096,
            transfers_max: 1024,
            logs: data.join("logs"),
            cache: (data.join("cache"), ImageCacheOptions::plain(clock)),
            notes: Box::new(|_, _| {}),
            open_metrics: false,
            webhooks: Vec::new(),
        };
        let settings = settings(data, demo_files(data)?, api_url, http_url)?;
        let store = open_store(data, STORE_MIB)?;
        let appliance = RunningAppliance::start(clock, parts, settings, store)?;
        let view = appliance.engine.watch();
        catalogue_image(&appliance.engine, &data.join("files").join(IMAGE)).await?;
        let (stop, stopped) = oneshot::channel::<()>();
        let running = tokio::spawn(appliance.run(async {
            let _ = stopped.await;
        }));
        Ok(Self {
            endpoints: wiring,
            page_url,
            inspector_url,
            view,
            stop,
            running,
        })
    }

    /// Snapshots, for the terminal.
    pub(crate) fn view(&self) -> watch::Receiver<Arc<RackView>> {
        self.view.clone()
    }

    /// Ends the appliance.
    pub(crate) async fn shut_down(self) -> anyhow::Result<()> {
        let _ = self.stop.send(());
        Ok(self.running.await??)
    }
}

/// Puts the image into the catalogue, as an operator does. It comes through the cache.
async fn catalogue_image(engine: &Engine, file: &Path) -> anyhow::Result<()> {
    let image = image_directory::hash_first(file, IMAGE_BYTES as u64)?;
    let id = ResourceId::random(&mut DaemonEntropy::new());
    let mut resource = Resource::new(id, ResourceKind::Image, UnixMs(0));
    resource.name = Some(IMAGE.to_owned());
    let fields = &mut resource.fields;
    let source = format!("file://{}", file.display());
    fields.insert("sources".to_owned(), vec![source].into());
    fields.insert("checksum".to_owned(), image.digest.to_string().into());
    let order = RackOrder::CreateResource(Box::new(resource));
    let caller = ApiCaller::agent(BOX.into()).with_request_line("POST", "/trivet/images");
    let created = engine.order(Arc::new(caller), order).await;
    created.map_err(|refusal| anyhow::anyhow!("{refusal}"))?;
    Ok(())
}

/// Writes loader, kernel, ramdisk and image: bytes that only have to arrive complete.
fn demo_files(data: &Path) -> anyhow::Result<RackFilePaths> {
    let boot = data.join("boot");
    let images = data.join("images");
    crate::private::directory(&boot)?;
    crate::private::directory(&images)?;
    let file = |path: PathBuf, seed: u64, bytes: usize| -> anyhow::Result<PathBuf> {
        let mut content = vec![0; bytes];
        SeededRandom::new(seed).fill(&mut content);
        std::fs::write(&path, content)?;
        Ok(path)
    };
    file(boot.join("snponly.efi"), 1, 256 << 10)?;
    let public = data.join("files");
    crate::private::directory(&public)?;
    file(public.join(IMAGE), 4, IMAGE_BYTES)?;
    Ok(RackFilePaths {
        agent_from_other_server: false,
        kernel: Some(file(boot.join("kernel"), 2, 1 << 20)?),
        ramdisk: Some(file(boot.join("ramdisk"), 3, 2 << 20)?),
        iso: None,
        images: Some(images),
        loaders: Some(boot),
        operator: Some(public),
        data: None,
    })
}

fn settings(
    data: &Path,
    files: RackFilePaths,
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
        images: image_directory::catalogue(&data.join("images"), |_| {})?,
        api_url,
        http_url,
        https_url: String::new(),
        wildcard_listeners: trivet_rack::WildcardListeners::default(),
        cache: true,
        image_library: trivet_images::ImageLibraryOptions {
            retry_delay_ms: trivet_images::RETRY_DELAY_MS,
            ..trivet_images::ImageLibraryOptions::default()
        },
        files,
        kernel_args: String::new(),
        heartbeat_timeout_s: 3,
        // All of it is on loopback.
        ca_key: None,
        agent_requirement: trivet_rack::CertificateRequirement::None,
        agent_addresses: trivet_rack::AgentAddresses {
            any: true,
            ..trivet_rack::AgentAddresses::default()
        },
        limits: NodeLimits {
            agent_wait_ms: 60_000,
            // Longer than the heartbeat interval of the agents, which share this
            // machine.
            heartbeat_timeout_ms: 60_000,
            boot_ms: 60_000,
            power_poll_ms: 500,
            retry_ms: 500,
            ..NodeLimits::default()
        },
        pace: IpmiTiming::default(),
        power_sync_interval_ms: Some(10_000),
        boots_at_once: BootLimitRule::default(),
        images_ahead: Vec::new(),
        hardware: hardware_types(),
        faults: Vec::new(),
    })
}

/// Every hardware type, so that a client may try nodes of its own.
fn hardware_types() -> Vec<String> {
    let names = trivet_drivers::ALL.iter().map(|one| one.name.to_owned());
    names.collect()
}
