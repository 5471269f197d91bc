//! The running appliance: sockets that are open, the engine, and the doors.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use anyhow::Context as _;
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use trivet_board_linux::{BoxKeyFile, FileFlash};
use trivet_images::ImageKey;
use trivet_model::image::{ImageState, ImageStatus};
use trivet_model::{Note, NoteKind};
use trivet_rack::{RackInput, RackOutput};
use trivet_store::{OpenError, Store};

use crate::agent_logs::AgentLogStore;
use crate::auth::Authenticator;
use crate::cache::{ImageCache, ImageCacheOptions};
use crate::clock::DaemonClock;
use crate::engine::{self, Engine, EngineError};
use crate::listeners::{
    agents, api, bmc, boot, browser, dhcp, http, inspector, redfish, ssh, tftp, web,
};
use crate::log::{self, throttle::LogThrottle};
use crate::tls_identity::ServerTls;

/// Takes a note and how to call its node.
pub(crate) type NoteSink = Box<dyn FnMut(&Note, Option<&str>) + Send>;

/// A TCP service: its sockets and, if it is served over TLS, with what.
#[derive(Default)]
pub(crate) struct TcpService {
    pub(crate) sockets: Vec<TcpListener>,
    pub(crate) tls: Option<ServerTls>,
}

/// Everything the appliance stands on. Sockets are open already, so that their
/// ports are known and nothing has happened yet if one is not to be had.
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
    /// Under which names the API and the page may be asked.
    pub(crate) hosts: browser::HostNames,
    pub(crate) facts: trivet_api::ApiFacts,
    pub(crate) connections_max: usize,
    pub(crate) transfers_max: usize,
    /// Where images from elsewhere are kept, and how they are fetched.
    pub(crate) cache: (PathBuf, ImageCacheOptions),
    /// Where agents' logs are kept.
    pub(crate) logs: PathBuf,
    /// Where notes go.
    pub(crate) notes: NoteSink,
}

/// The appliance at work.
pub(crate) struct RunningAppliance {
    pub(crate) engine: Engine,
    listeners: JoinSet<()>,
    failed: oneshot::Receiver<EngineError>,
}

/// Opens the store in the box's data directory, making it and its key if they are
/// not there. The store's lock is held before the key is looked at.
pub(crate) fn open_store(data: &Path, size_mib: u32) -> anyhow::Result<Store<FileFlash>> {
    let (file, key) = (data.join("store"), data.join("store.key"));
    let flash = FileFlash::open(&file, u64::from(size_mib) << 20)
        .with_context(|| format!("the store {} cannot be opened", file.display()))?;
    let opened = Store::open(flash, BoxKeyFile::at(key.clone())).map_err(|error| {
        let file = file.display();
        let said = match error {
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
                     {data}` to go on without it, or restore the store from a copy"
                )
            }
            _ => format!(
                "the store {file} cannot be used; it was left as it is. Restore it from a copy, \
                 or move it away to begin with an empty one"
            ),
        };
        anyhow::Error::new(error).context(said)
    })?;
    crate::store_tool::remove_leftovers(data);
    Ok(opened)
}

impl RunningAppliance {
    /// Starts everything.
    pub(crate) fn start(
        clock: DaemonClock,
        ground: ApplianceResources,
        settings: trivet_rack::Settings,
        store: Store<FileFlash>,
    ) -> anyhow::Result<Self> {
        let bmc_socket = Arc::new(ground.bmc);
        let (dhcp, ears) = dhcp::DhcpListeners::new(ground.dhcp);
        let back = Arc::new(OnceLock::new());
        let cache = open_cache(&ground.cache, &back)?;
        let logs = AgentLogStore::at(ground.logs);
        let outlet = OutputDispatcher {
            clock,
            logs: logs.clone(),
            runtime: tokio::runtime::Handle::current(),
            engine: Arc::clone(&back),
            cache: cache.clone(),
            bmc: Arc::clone(&bmc_socket),
            dhcp: dhcp.clone(),
            ssh: ground.ssh,
            redfish: ground.redfish,
            notes: ground.notes,
        };
        let images = own_images(&settings);
        let any_agent_address = settings.agent_addresses.any;
        let (engine, failed) = engine::start(clock, settings, store, outlet.into_sink())?;
        // The engine's own handle: calls to agents end in inputs.
        let _ = back.set(engine.clone());
        report_logs(&logs, &engine);

        let mut doors = JoinSet::new();
        doors.spawn(bmc::run(bmc_socket, engine.clone()));
        doors.spawn(maintain_cache(cache.clone()));
        dhcp.receive(ears, &mut doors, &engine, clock);
        serve_tftp(
            &mut doors,
            ground.tftp,
            ground.transfers_max,
            &engine,
            clock,
        )?;
        let facts = trivet_api::ApiFacts {
            images,
            inspector: !ground.inspector.sockets.is_empty(),
            ..ground.facts
        };
        let strangers = allows_remote_clients(&ground.api, &ground.auth);
        let api = Arc::new(api::ApiService {
            engine: engine.clone(),
            facts,
            auth: ground.auth,
            clock,
            cache: cache.clone(),
            logs,
            any_agent_address,
            hosts: ground.hosts.clone(),
            refusals: api::RefusalLog::new(clock.now().tick),
        });
        let page = web::handler(engine.clone(), clock, ground.hosts);
        let places = http::ConnectionLimit::new(ground.connections_max);
        let seats = (&places, http::ClientTimeouts::default());
        let services = [
            (ground.api, api::handler(Arc::clone(&api))),
            (ground.inspector, inspector::handler(api, strangers)),
            (ground.panel, page),
        ];
        for (TcpService { sockets, tls }, handler) in services {
            http::serve(&mut doors, sockets, tls.as_ref(), seats, &handler);
        }
        for TcpService { sockets, tls } in [ground.http, ground.https] {
            let sources = (&engine, &cache);
            boot::serve(&mut doors, (sockets, tls.as_ref()), seats, sources, clock);
        }
        Ok(Self {
            engine,
            listeners: doors,
            failed,
        })
    }

    /// Runs until told to stop, or until the store fails.
    pub(crate) async fn run(mut self, stop: impl Future<Output = ()>) -> Result<(), EngineError> {
        let outcome = tokio::select! {
            () = stop => Ok(()),
            // A sender that is gone without a word is a thread that panicked.
            why = &mut self.failed => Err(why.unwrap_or(EngineError::Panicked)),
        };
        self.listeners.abort_all();
        self.engine.stop().await;
        outcome
    }
}

async fn maintain_cache(cache: ImageCache) {
    cache.resume_all().await;
    cache.scrub().await;
}

/// The image cache, whose news go to the rack.
fn open_cache(
    (root, ways): &(PathBuf, ImageCacheOptions),
    engine: &Arc<OnceLock<Engine>>,
) -> anyhow::Result<ImageCache> {
    let engine = Arc::clone(engine);
    let runtime = tokio::runtime::Handle::current();
    let news = Box::new(move |news: ImageStatus| {
        let last = news.state != ImageState::Fetching;
        let Some(engine) = engine.get() else { return };
        // Progress that finds a full queue is told again with the next one.
        if let Err(input) = engine.offer(RackInput::Image(Box::new(news)))
            && last
        {
            let engine = engine.clone();
            runtime.spawn(async move { retry_offer(&engine, input).await });
        }
    });
    ImageCache::open(root, ways.clone(), news)
        .with_context(|| format!("the image cache {} cannot be used", root.display()))
}

/// All of TFTP is one thread, which ends with the doors.
fn serve_tftp(
    doors: &mut JoinSet<()>,
    sockets: Vec<UdpSocket>,
    transfers_max: usize,
    engine: &Engine,
    clock: DaemonClock,
) -> anyhow::Result<()> {
    if sockets.is_empty() {
        return Ok(());
    }
    let sockets: Result<Vec<_>, _> = sockets.into_iter().map(UdpSocket::into_std).collect();
    let sockets = sockets.context("the sockets for TFTP cannot be used")?;
    let room = tftp::TftpTransferLimit::new(transfers_max);
    let serving = tftp::run(
        sockets,
        engine.clone(),
        clock,
        room,
        tftp::TftpServerOptions::default(),
    );
    doors.spawn(async move {
        if let Err(error) = serving.await {
            log::line(&format!(
                "trivet: warning: TFTP has stopped: {error}; restart the box"
            ));
        }
    });
    Ok(())
}

/// What was kept of agents' logs before this start.
fn report_logs(logs: &AgentLogStore, engine: &Engine) {
    let (found, engine) = (logs.stored_bundles(), engine.clone());
    tokio::spawn(async move {
        for news in found {
            retry_offer(&engine, news).await;
        }
    });
}

/// The images of this box, as the API names them.
fn own_images(settings: &trivet_rack::Settings) -> Vec<trivet_api::LocalImage> {
    let image = |(name, image): (&str, &trivet_images::CatalogueImage)| trivet_api::LocalImage {
        name: name.to_owned(),
        size: image.size,
        digest: image.digest,
    };
    settings.images.all().map(image).collect()
}

/// Whether people elsewhere may use the inspector's address. Where the API itself is
/// for this machine alone and asks nobody who he is, that is no way around it.
fn allows_remote_clients(api: &TcpService, auth: &Authenticator) -> bool {
    let at_home = |socket: &TcpListener| {
        let address = socket.local_addr();
        address.is_ok_and(|address| address.ip().is_loopback())
    };
    !(matches!(auth, Authenticator::Open) && api.sockets.iter().all(at_home))
}

/// Carries outputs from the engine's thread to the world.
struct OutputDispatcher {
    clock: DaemonClock,
    logs: AgentLogStore,
    runtime: tokio::runtime::Handle,
    engine: Arc<OnceLock<Engine>>,
    cache: ImageCache,
    bmc: Arc<UdpSocket>,
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
            RackOutput::Bmc { to, bytes } => self.send_bmc(to, &bytes),
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
                self.spawn_request(async move {
                    let result = agents::call(&url, verify_ca.as_deref(), &request).await;
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
                self.spawn_request(logs.collect(node, (url, verify_ca), (request, token), now));
            }
            RackOutput::DropLogs(node) => {
                let logs = self.logs.clone();
                self.runtime.spawn_blocking(move || logs.remove(node));
            }
            RackOutput::Ssh {
                node,
                run,
                target,
                command,
            } => {
                let door = self.ssh.clone();
                self.spawn_request(async move {
                    let result = door.run(run, &target, &command).await;
                    RackInput::SshAnswered { node, run, result }
                });
            }
            RackOutput::Redfish {
                node,
                call,
                target,
                request,
            } => {
                let door = self.redfish.clone();
                self.spawn_request(async move {
                    let result = door.send(&target, &request).await;
                    RackInput::RedfishAnswered { node, call, result }
                });
            }
            RackOutput::FillImage { .. }
            | RackOutput::CheckImage(_)
            | RackOutput::FindChecksum { .. }
            | RackOutput::FetchBootFile { .. }
            | RackOutput::PinImages(_)
            | RackOutput::DropImage(_) => self.dispatch_image(output),
            RackOutput::Note { note, label } => (self.notes)(&note, label.as_deref()),
            // The engine answers these itself.
            RackOutput::Reply { .. } | RackOutput::File { .. } => {}
        }
    }

    /// What is about images.
    fn dispatch_image(&self, output: RackOutput) {
        match output {
            RackOutput::FillImage { wanted, urgent } => self.ensure_cached(wanted, urgent),
            RackOutput::CheckImage(wanted) => {
                let cache = self.cache.clone();
                self.runtime
                    .spawn(async move { cache.reverify(&wanted).await });
            }
            RackOutput::FindChecksum { url, name } => {
                let cache = self.cache.clone();
                self.spawn_request(async move {
                    let result = cache.find_checksum(&url, &name).await;
                    RackInput::ChecksumFound { url, name, result }
                });
            }
            RackOutput::FetchBootFile { url, format } => {
                let cache = self.cache.clone();
                self.spawn_request(async move {
                    let result = cache.fetch_file(&url, format).await;
                    RackInput::BootFileFetched { url, result }
                });
            }
            RackOutput::PinImages(digests) => self.cache.pin(&digests),
            RackOutput::DropImage(digest) => self.cache.drop_image(ImageKey(digest)),
            _ => {}
        }
    }

    /// What goes wrong with an image is told by the cache itself.
    fn ensure_cached(&self, wanted: Box<trivet_images::ImageSpec>, urgent: bool) {
        let cache = self.cache.clone();
        if urgent {
            self.runtime
                .spawn(async move { cache.ensure(&wanted).await });
        } else {
            let _runtime = self.runtime.enter();
            let _ = cache.fill(&wanted);
        }
    }

    /// Does something whose outcome the rack waits for.
    fn spawn_request(&self, asking: impl Future<Output = RackInput> + Send + 'static) {
        let engine = Arc::clone(&self.engine);
        self.runtime
            .spawn(async move { deliver_reply(&engine, asking.await).await });
    }

    fn send_bmc(&self, to: SocketAddr, bytes: &[u8]) {
        // A datagram that does not leave is repeated by its session.
        let _ = self.bmc.try_send_to(bytes, to);
    }
}

/// Gives the rack an answer that a job waits for: a full queue only delays it.
async fn deliver_reply(engine: &OnceLock<Engine>, input: RackInput) {
    retry_offer(engine.wait(), input).await;
}

async fn retry_offer(engine: &Engine, mut input: RackInput) {
    while let Err(back) = engine.offer(input) {
        input = back;
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

/// Notes as lines of the log. What any machine can cause by asking for an address is
/// said within bounds.
pub(crate) fn note_logger(clock: DaemonClock) -> NoteSink {
    let mut asking = LogThrottle::new(clock.now().tick);
    Box::new(move |note, label| {
        let tick = clock.now().tick;
        let caused = matches!(
            note.kind,
            NoteKind::UnknownMachineSeen { .. }
                | NoteKind::Dhcp { .. }
                | NoteKind::FileRefused { .. }
                | NoteKind::AgentRefused { .. }
        );
        if let Some(line) = asking.dropped_line(tick) {
            log::line(&line);
        }
        if !caused || asking.allows(tick) {
            log::line(&log_line(note, label));
        }
    })
}

/// One line per note.
fn log_line(note: &Note, label: Option<&str>) -> String {
    let who = label.unwrap_or("box");
    let level = match note.kind {
        NoteKind::Failed { .. }
        | NoteKind::Warning { .. }
        | NoteKind::PowerFailed { .. }
        | NoteKind::FaultRaised(_)
        | NoteKind::CallerRefused { .. }
        | NoteKind::AgentRefused { .. }
        | NoteKind::OrderReceived {
            refused: Some(_), ..
        } => "warning",
        _ => "info",
    };
    format!("{} {level} {who}: {}", note.at, note.kind)
}
