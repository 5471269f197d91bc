//! The running appliance: open sockets, the engine, and the listeners.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use anyhow::Context as _;
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tracing::{error, info, warn};
use trivet_board_linux::{BoxKeyFile, FileFlash};
use trivet_certs_authority::Authority;
use trivet_model::{KeyDigest, Note, NoteKind};
use trivet_rack::bmc::{BmcHttpCall, BmcMessage, BmcSshRun, BmcTransmit};
use trivet_rack::{RackInput, RackOutput};
use trivet_store::{OpenError, Store};

use crate::agent_logs::{AgentLogStore, AgentToCall};
use crate::auth::Authenticator;
use crate::cache::{ImageCache, ImageCacheOptions, ImageReports};
use crate::clock::DaemonClock;
use crate::engine::{self, Engine, EngineError};
use crate::listeners::{
    agents, api, bmc, boot, browser, dhcp, http, inspector, redfish, ssh, tftp, web,
};
use crate::log::NOTE;
use crate::log::throttle::{self, LogThrottle};
use crate::tls_identity::{AgentCallIdentity, ServerTls};
use crate::webhooks::{self, Webhook};

/// Receives a note and the display name of its node.
pub(crate) type NoteSink = Box<dyn FnMut(&Note, Option<&str>) + Send>;

/// A TCP service: its sockets and, if it is served over TLS, the TLS configuration.
#[derive(Default)]
pub(crate) struct TcpService {
    pub(crate) sockets: Vec<TcpListener>,
    pub(crate) tls: Option<ServerTls>,
}

/// How nodes get certificates, and how the box shows its own to their agents.
#[derive(Clone)]
pub(crate) struct NodeTrust {
    pub(crate) authority: Arc<Authority>,
    pub(crate) shown: AgentCallIdentity,
}

impl NodeTrust {
    /// SHA-256 of the public key of the authority.
    pub(crate) fn ca_key(&self) -> KeyDigest {
        KeyDigest(self.authority.key_digest())
    }
}

/// Everything the appliance needs to run. The sockets are already open, so that their
/// ports are known and a socket that cannot be opened fails before anything else has
/// started.
pub(crate) struct ApplianceResources {
    pub(crate) api: TcpService,
    pub(crate) inspector: TcpService,
    pub(crate) http: TcpService,
    pub(crate) https: TcpService,
    pub(crate) panel: TcpService,
    pub(crate) tftp: Vec<UdpSocket>,
    pub(crate) dhcp: Vec<dhcp::OpenedDhcpListener>,
    pub(crate) bmc: UdpSocket,
    pub(crate) ssh: ssh::SshCommandRunner,
    pub(crate) redfish: redfish::RedfishHttpClient,
    pub(crate) auth: Authenticator,
    /// The host names under which clients may call the API and the web page.
    pub(crate) hosts: browser::HostNames,
    pub(crate) facts: trivet_api::ApiFacts,
    /// Certificates of nodes, where the API has TLS.
    pub(crate) trust: Option<NodeTrust>,
    pub(crate) connections_max: usize,
    pub(crate) transfers_max: usize,
    /// The directory of cached images, and the options for fetching them.
    pub(crate) cache: (PathBuf, ImageCacheOptions),
    /// The directory of agent logs.
    pub(crate) logs: PathBuf,
    /// Receives every note.
    pub(crate) notes: NoteSink,
    /// `/metrics` needs no credentials.
    pub(crate) open_metrics: bool,
    /// The URLs that receive events.
    pub(crate) webhooks: Vec<Webhook>,
}

/// The running appliance.
pub(crate) struct RunningAppliance {
    pub(crate) engine: Engine,
    listeners: JoinSet<()>,
    failed: oneshot::Receiver<EngineError>,
}

/// Opens the store in the box's data directory. Creates the store and its key if they
/// do not exist. Takes the store's lock before it reads the key.
pub(crate) fn open_store(data: &Path, size_mib: u32) -> anyhow::Result<Store<FileFlash>> {
    let (file, key) = (data.join("store"), data.join("store.key"));
    let flash = FileFlash::open(&file, u64::from(size_mib) << 20)
        .with_context(|| format!("the store {} cannot be opened", file.display()))?;
    let opened = Store::open(flash, BoxKeyFile::at(key.clone())).map_err(|error| {
        let file = file.display();
        let text = match error {
            OpenError::Key(_) | OpenError::KeyMissing | OpenError::WrongKey => format!(
                "the store {file} cannot be opened with its key file {}; both were left as they \
                 are",
                key.display()
            ),
            OpenError::Damaged { .. } | OpenError::SuperblockDamaged | OpenError::Flash(_) => {
                let data = data.display();
                format!(
                    "the store {file} is damaged; it was left as it is. Run `trivet store check \
                     --data {data}` to see what is damaged, then `trivet store repair --data \
                     {data}` to continue without it, or restore the store from a copy"
                )
            }
            _ => format!(
                "the store {file} cannot be used; it was left as it is. Restore it from a copy, \
                 or move it away to start with an empty one"
            ),
        };
        anyhow::Error::new(error).context(text)
    })?;
    crate::store_tool::remove_leftovers(data);
    Ok(opened)
}

impl RunningAppliance {
    /// Starts the engine and every listener.
    pub(crate) fn start(
        clock: DaemonClock,
        parts: ApplianceResources,
        settings: trivet_rack::Settings,
        store: Store<FileFlash>,
    ) -> anyhow::Result<Self> {
        let bmc_socket = bmc::shared_socket(parts.bmc)?;
        let (dhcp, receivers) = dhcp::DhcpListeners::new(parts.dhcp);
        let back = Arc::new(OnceLock::new());
        let (cache, reports) = open_cache(&parts.cache)?;
        let logs = AgentLogStore::at(parts.logs);
        let outlet = OutputDispatcher {
            clock,
            logs: logs.clone(),
            runtime: tokio::runtime::Handle::current(),
            engine: Arc::clone(&back),
            cache: cache.clone(),
            bmc: Arc::clone(&bmc_socket),
            shown: parts.trust.as_ref().map(|trust| trust.shown.clone()),
            dhcp: dhcp.clone(),
            ssh: parts.ssh,
            redfish: parts.redfish,
            notes: parts.notes,
        };
        let images = own_images(&settings);
        let any_agent_address = settings.agent_addresses.any;
        let (engine, failed) = engine::start(clock, settings, store, outlet.into_sink())?;
        // The dispatcher sends the results of agent calls back to the engine as inputs.
        let _ = back.set(engine.clone());
        report_logs(&logs, &engine);

        let mut tasks = JoinSet::new();
        tasks.spawn(bmc::run(bmc_socket, engine.clone()));
        tasks.spawn(deliver_image_reports(reports, engine.clone()));
        dhcp.receive(receivers, &mut tasks, &engine, clock);
        let tftp = (parts.tftp, parts.transfers_max);
        serve_tftp(&mut tasks, tftp, &engine, clock)?;
        let facts = trivet_api::ApiFacts {
            images,
            inspector: !parts.inspector.sockets.is_empty(),
            ..parts.facts
        };
        let name = &facts.hostname;
        webhooks::start(&mut tasks, parts.webhooks, &engine, clock, name);
        let allow_remote = allows_remote_clients(&parts.api, &parts.auth);
        let api = Arc::new(api::ApiService {
            engine: engine.clone(),
            facts,
            auth: parts.auth,
            clock,
            cache: cache.clone(),
            logs,
            any_agent_address,
            hosts: parts.hosts.clone(),
            authority: parts.trust.map(|trust| trust.authority),
            refusals: api::RefusalLog::new(clock.now().tick),
            observed: api::ApiTelemetry::new(parts.open_metrics),
        });
        let page = web::handler(engine.clone(), clock, parts.hosts);
        let places = counted_connections(&engine, parts.connections_max);
        let limits = (&places, http::ClientTimeouts::default());
        let services = [
            (parts.api, api::handler(Arc::clone(&api))),
            (parts.inspector, inspector::handler(api, allow_remote)),
            (parts.panel, page),
        ];
        for (TcpService { sockets, tls }, handler) in services {
            http::serve(&mut tasks, sockets, tls.as_ref(), limits, &handler);
        }
        for TcpService { sockets, tls } in [parts.http, parts.https] {
            let sources = (&engine, &cache);
            boot::serve(&mut tasks, (sockets, tls.as_ref()), limits, sources, clock);
        }
        Ok(Self {
            engine,
            listeners: tasks,
            failed,
        })
    }

    /// Runs until `stop` resolves, or until the store fails.
    pub(crate) async fn run(mut self, stop: impl Future<Output = ()>) -> Result<(), EngineError> {
        let outcome = tokio::select! {
            () = stop => Ok(()),
            // The sender was dropped without a value: the engine thread panicked.
            why = &mut self.failed => Err(why.unwrap_or(EngineError::Panicked)),
        };
        self.listeners.abort_all();
        self.engine.stop().await;
        outcome
    }
}

/// The limit of connections, which the metrics show.
fn counted_connections(engine: &Engine, connections_max: usize) -> http::ConnectionLimit {
    let limit = http::ConnectionLimit::new(connections_max);
    let telemetry = engine.telemetry();
    telemetry.set_connections(limit.clone(), connections_max);
    limit
}

/// Opens the image cache.
fn open_cache(
    (root, options): &(PathBuf, ImageCacheOptions),
) -> anyhow::Result<(ImageCache, ImageReports)> {
    ImageCache::open(root, options.clone())
        .with_context(|| format!("the image cache {} cannot be used", root.display()))
}

/// Passes the reports of the image cache to the rack, in their order. Waits while the queue is
/// full.
pub(crate) async fn deliver_image_reports(mut reports: ImageReports, engine: Engine) {
    while let Some(report) = reports.recv().await {
        retry_offer(&engine, RackInput::Image(Box::new(report))).await;
    }
}

/// All of TFTP runs on one thread, which ends together with the listeners.
fn serve_tftp(
    tasks: &mut JoinSet<()>,
    (sockets, transfers_max): (Vec<UdpSocket>, usize),
    engine: &Engine,
    clock: DaemonClock,
) -> anyhow::Result<()> {
    if sockets.is_empty() {
        return Ok(());
    }
    let sockets: Result<Vec<_>, _> = sockets.into_iter().map(UdpSocket::into_std).collect();
    let sockets = sockets.context("the sockets for TFTP cannot be used")?;
    let limit = tftp::TftpTransferLimit::new(transfers_max);
    let serving = tftp::run(
        sockets,
        engine.clone(),
        clock,
        limit,
        tftp::TftpServerOptions::default(),
    );
    tasks.spawn(async move {
        if let Err(error) = serving.await {
            error!(
                service = "tftp",
                "TFTP has stopped: {error}; restart the box"
            );
        }
    });
    Ok(())
}

/// Reports the agent logs that were stored before this start.
fn report_logs(logs: &AgentLogStore, engine: &Engine) {
    let (found, engine) = (logs.stored_bundles(), engine.clone());
    tokio::spawn(async move {
        for news in found {
            retry_offer(&engine, news).await;
        }
    });
}

/// The local images of this box, as the API names them.
fn own_images(settings: &trivet_rack::Settings) -> Vec<trivet_api::LocalImage> {
    let image = |(name, image): (&str, &trivet_images::CatalogueImage)| trivet_api::LocalImage {
        name: name.to_owned(),
        size: image.size,
        digest: image.digest,
    };
    settings.images.all().map(image).collect()
}

/// Whether clients on other machines may use the inspector's address. If the API is
/// loopback-only and unauthenticated, the inspector must not widen access.
fn allows_remote_clients(api: &TcpService, auth: &Authenticator) -> bool {
    let at_home = |socket: &TcpListener| {
        let address = socket.local_addr();
        address.is_ok_and(|address| address.ip().is_loopback())
    };
    !(matches!(auth, Authenticator::Open) && api.sockets.iter().all(at_home))
}

/// Executes the engine's outputs: sends datagrams, calls agents, fetches images.
struct OutputDispatcher {
    clock: DaemonClock,
    logs: AgentLogStore,
    runtime: tokio::runtime::Handle,
    engine: Arc<OnceLock<Engine>>,
    cache: ImageCache,
    bmc: Arc<UdpSocket>,
    /// What agents that have enrolled ask for.
    shown: Option<AgentCallIdentity>,
    dhcp: dhcp::DhcpListeners,
    ssh: ssh::SshCommandRunner,
    redfish: redfish::RedfishHttpClient,
    notes: NoteSink,
}

impl OutputDispatcher {
    fn into_sink(mut self) -> engine::OutputSink {
        Box::new(move |output| self.dispatch(output))
    }

    fn dispatch(&mut self, output: RackOutput) {
        match output {
            RackOutput::Bmc(message) => self.dispatch_bmc(message),
            RackOutput::Dhcp {
                link,
                local,
                to,
                bytes,
            } => self.dhcp.send(link, local, &to, &bytes),
            RackOutput::Probe { link, address } => self.dhcp.probe(link, address),
            RackOutput::CallAgent {
                node,
                call,
                url,
                verify_ca,
                request,
            } => {
                let shown = self.shown.clone();
                self.spawn_request(async move {
                    let pin = verify_ca.as_deref();
                    let result = agents::call(&url, pin, shown.as_ref(), &request).await;
                    RackInput::AgentAnswered { node, call, result }
                });
            }
            RackOutput::CollectLogs {
                node,
                url,
                verify_ca,
                request,
                token,
            } => {
                let (logs, now) = (self.logs.clone(), self.clock.now().wall);
                let agent = AgentToCall {
                    url,
                    verify_ca,
                    shown: self.shown.clone(),
                };
                self.spawn_request(logs.collect(node, agent, (request, token), now));
            }
            RackOutput::DropLogs(node) => {
                let logs = self.logs.clone();
                self.runtime.spawn_blocking(move || logs.remove(node));
            }
            RackOutput::Image(order) => self.cache.execute(*order),
            RackOutput::Note { note, label } => (self.notes)(&note, label.as_deref()),
            // The engine handles these itself.
            RackOutput::Reply { .. } | RackOutput::File { .. } | RackOutput::Measured(_) => {}
        }
    }

    /// Sends a message to a BMC, or to the host of a machine.
    fn dispatch_bmc(&self, message: BmcTransmit) {
        match message {
            BmcTransmit::Datagram { to, bytes } => self.send_bmc(to, &bytes),
            BmcTransmit::Ssh(ssh) => {
                let listener = self.ssh.clone();
                self.spawn_request(async move {
                    let BmcSshRun {
                        node,
                        run,
                        host,
                        command,
                    } = *ssh;
                    let result = listener.run(run, &host, &command).await;
                    RackInput::Bmc(BmcMessage::SshAnswered { node, run, result })
                });
            }
            BmcTransmit::Http(http) => {
                let listener = self.redfish.clone();
                self.spawn_request(async move {
                    let BmcHttpCall {
                        node,
                        call,
                        target,
                        request,
                    } = *http;
                    let result = listener.send(&target, &request).await;
                    RackInput::Bmc(BmcMessage::HttpAnswered { node, call, result })
                });
            }
        }
    }

    /// Starts a request whose result the rack waits for.
    fn spawn_request(&self, request: impl Future<Output = RackInput> + Send + 'static) {
        let engine = Arc::clone(&self.engine);
        self.runtime
            .spawn(async move { deliver_reply(&engine, request.await).await });
    }

    fn send_bmc(&self, to: SocketAddr, bytes: &[u8]) {
        bmc::send(&self.bmc, to, bytes);
    }
}

/// Sends the rack a reply that a job waits for. Waits while the queue is full.
async fn deliver_reply(engine: &OnceLock<Engine>, input: RackInput) {
    retry_offer(engine.wait(), input).await;
}

/// Offers an input until the queue has space for it.
pub(crate) async fn retry_offer(engine: &Engine, mut input: RackInput) {
    while let Err(back) = engine.offer(input) {
        input = back;
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

/// Writes notes to the log. Notes that any machine can cause by sending DHCP requests
/// are rate-limited.
pub(crate) fn note_logger(clock: DaemonClock) -> NoteSink {
    let mut request = LogThrottle::new(clock.now().tick);
    Box::new(move |note, label| {
        let tick = clock.now().tick;
        let caused = matches!(
            note.kind,
            NoteKind::UnknownMachineSeen { .. }
                | NoteKind::Dhcp { .. }
                | NoteKind::FileRefused { .. }
                | NoteKind::AgentRefused { .. }
        );
        if let Some(count) = request.take_dropped(tick) {
            throttle::log_dropped(count);
        }
        if !caused || request.allows(tick) {
            log_note(note, label.unwrap_or("box"));
        }
    })
}

/// Logs one note.
fn log_note(note: &Note, node: &str) {
    let (at, kind) = (note.at.to_string(), &note.kind);
    let needs_attention = matches!(
        kind,
        NoteKind::Failed { .. }
            | NoteKind::StageLate { .. }
            | NoteKind::Warning { .. }
            | NoteKind::PowerFailed { .. }
            | NoteKind::Evidence(_)
            | NoteKind::FaultRaised(_)
            | NoteKind::CallerRefused { .. }
            | NoteKind::AgentRefused { .. }
            | NoteKind::OrderReceived {
                refused: Some(_),
                ..
            }
    );
    if needs_attention {
        warn!(target: NOTE, at, node, "{kind}");
    } else {
        info!(target: NOTE, at, node, "{kind}");
    }
}
