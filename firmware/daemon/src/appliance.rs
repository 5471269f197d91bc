//! The running appliance: sockets that are open, the engine, and the doors.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use anyhow::Context as _;
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use trivet_board_linux::{FileFlash, KeyFile};
use trivet_images::Key;
use trivet_model::image::{ImageNews, ImageState};
use trivet_model::{Note, NoteKind};
use trivet_rack::{Input, Output};
use trivet_store::{OpenError, Store};

use crate::auth::Auth;
use crate::cache::{Cache, Ways};
use crate::clock::Clock;
use crate::doors::{
    agents, api, bmc, boot, browser, dhcp, http, inspector, panel, redfish, ssh, tftp,
};
use crate::engine::{self, Engine, EngineError};
use crate::identity::ServerTls;
use crate::logs::Logs;
use crate::say::{self, throttle::Throttle};

/// Takes a note and how to call its node.
pub(crate) type NoteSink = Box<dyn FnMut(&Note, Option<&str>) + Send>;

/// A TCP service: its sockets and, if it is served over TLS, with what.
#[derive(Default)]
pub(crate) struct Listening {
    pub(crate) sockets: Vec<TcpListener>,
    pub(crate) tls: Option<ServerTls>,
}

/// Everything the appliance stands on. Sockets are open already, so that their
/// ports are known and nothing has happened yet if one is not to be had.
pub(crate) struct Ground {
    pub(crate) api: Listening,
    pub(crate) inspector: Listening,
    pub(crate) http: Listening,
    pub(crate) https: Listening,
    pub(crate) panel: Listening,
    pub(crate) tftp: Vec<UdpSocket>,
    pub(crate) dhcp: Vec<dhcp::Place>,
    pub(crate) bmc: UdpSocket,
    pub(crate) ssh: ssh::Door,
    pub(crate) redfish: redfish::Door,
    pub(crate) auth: Auth,
    /// Under which names the API and the page may be asked.
    pub(crate) hosts: browser::HostNames,
    pub(crate) facts: trivet_api::Facts,
    pub(crate) connections_max: usize,
    pub(crate) transfers_max: usize,
    /// Where images from elsewhere are kept, and how they are fetched.
    pub(crate) cache: (PathBuf, Ways),
    /// Where agents' logs are kept.
    pub(crate) logs: PathBuf,
    /// Where notes go.
    pub(crate) notes: NoteSink,
}

/// The appliance at work.
pub(crate) struct Appliance {
    pub(crate) engine: Engine,
    doors: JoinSet<()>,
    failed: oneshot::Receiver<EngineError>,
}

/// Opens the store in the box's data directory, making it and its key if they are
/// not there. The store's lock is held before the key is looked at.
pub(crate) fn open_store(data: &Path, size_mib: u32) -> anyhow::Result<Store<FileFlash>> {
    let (file, key) = (data.join("store"), data.join("store.key"));
    let flash = FileFlash::open(&file, u64::from(size_mib) << 20)
        .with_context(|| format!("the store {} cannot be opened", file.display()))?;
    let opened = Store::open(flash, KeyFile::at(key.clone())).map_err(|error| {
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

impl Appliance {
    /// Starts everything.
    pub(crate) fn start(
        clock: Clock,
        ground: Ground,
        settings: trivet_rack::Settings,
        store: Store<FileFlash>,
    ) -> anyhow::Result<Self> {
        let bmc_socket = Arc::new(ground.bmc);
        let (dhcp, ears) = dhcp::Doors::new(ground.dhcp);
        let back = Arc::new(OnceLock::new());
        let cache = open_cache(&ground.cache, &back)?;
        let logs = Logs::at(ground.logs);
        let outlet = Outlet {
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
        let (engine, failed) = engine::start(clock, settings, store, outlet.carrier())?;
        // The engine's own handle: calls to agents end in inputs.
        let _ = back.set(engine.clone());
        tell_logs(&logs, &engine);

        let mut doors = JoinSet::new();
        doors.spawn(bmc::run(bmc_socket, engine.clone()));
        doors.spawn(look_after(cache.clone()));
        dhcp.hear(ears, &mut doors, &engine, clock);
        serve_tftp(
            &mut doors,
            ground.tftp,
            ground.transfers_max,
            &engine,
            clock,
        )?;
        let facts = trivet_api::Facts {
            images,
            inspector: !ground.inspector.sockets.is_empty(),
            ..ground.facts
        };
        let strangers = takes_strangers(&ground.api, &ground.auth);
        let api = Arc::new(api::Api {
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
        let page = panel::handler(engine.clone(), clock, ground.hosts);
        let places = http::Places::new(ground.connections_max);
        let seats = (&places, http::Waits::default());
        let services = [
            (ground.api, api::handler(Arc::clone(&api))),
            (ground.inspector, inspector::handler(api, strangers)),
            (ground.panel, page),
        ];
        for (Listening { sockets, tls }, handler) in services {
            http::serve(&mut doors, sockets, tls.as_ref(), seats, &handler);
        }
        for Listening { sockets, tls } in [ground.http, ground.https] {
            let sources = (&engine, &cache);
            boot::serve(&mut doors, (sockets, tls.as_ref()), seats, sources, clock);
        }
        Ok(Self {
            engine,
            doors,
            failed,
        })
    }

    /// Runs until told to stop, or until the store fails.
    pub(crate) async fn run(mut self, stop: impl Future<Output = ()>) -> Result<(), EngineError> {
        let outcome = tokio::select! {
            () = stop => Ok(()),
            // A sender that is gone without a word is a thread that panicked.
            why = &mut self.failed => Err(why.unwrap_or(EngineError::Broke)),
        };
        self.doors.abort_all();
        self.engine.stop().await;
        outcome
    }
}

async fn look_after(cache: Cache) {
    cache.look_after().await;
    cache.scrub().await;
}

/// The image cache, whose news go to the rack.
fn open_cache(
    (root, ways): &(PathBuf, Ways),
    engine: &Arc<OnceLock<Engine>>,
) -> anyhow::Result<Cache> {
    let engine = Arc::clone(engine);
    let runtime = tokio::runtime::Handle::current();
    let news = Box::new(move |news: ImageNews| {
        let last = news.state != ImageState::Filling;
        let Some(engine) = engine.get() else { return };
        // Progress that finds a full queue is told again with the next one.
        if let Err(input) = engine.offer(Input::Image(Box::new(news)))
            && last
        {
            let engine = engine.clone();
            runtime.spawn(async move { offer_again(&engine, input).await });
        }
    });
    Cache::open(root, ways.clone(), news)
        .with_context(|| format!("the image cache {} cannot be used", root.display()))
}

/// All of TFTP is one thread, which ends with the doors.
fn serve_tftp(
    doors: &mut JoinSet<()>,
    sockets: Vec<UdpSocket>,
    transfers_max: usize,
    engine: &Engine,
    clock: Clock,
) -> anyhow::Result<()> {
    if sockets.is_empty() {
        return Ok(());
    }
    let sockets: Result<Vec<_>, _> = sockets.into_iter().map(UdpSocket::into_std).collect();
    let sockets = sockets.context("the sockets for TFTP cannot be used")?;
    let room = tftp::Room::new(transfers_max);
    let serving = tftp::run(sockets, engine.clone(), clock, room, tftp::Ways::default());
    doors.spawn(async move {
        if let Err(error) = serving.await {
            say::line(&format!(
                "trivet: warning: TFTP has stopped: {error}; restart the box"
            ));
        }
    });
    Ok(())
}

/// What was kept of agents' logs before this start.
fn tell_logs(logs: &Logs, engine: &Engine) {
    let (found, engine) = (logs.found(), engine.clone());
    tokio::spawn(async move {
        for news in found {
            offer_again(&engine, news).await;
        }
    });
}

/// The images of this box, as the API names them.
fn own_images(settings: &trivet_rack::Settings) -> Vec<trivet_api::Image> {
    let image = |(name, image): (&str, &trivet_images::Image)| trivet_api::Image {
        name: name.to_owned(),
        size: image.size,
        digest: image.digest,
    };
    settings.images.all().map(image).collect()
}

/// Whether people elsewhere may use the inspector's address. Where the API itself is
/// for this machine alone and asks nobody who he is, that is no way around it.
fn takes_strangers(api: &Listening, auth: &Auth) -> bool {
    let at_home = |socket: &TcpListener| {
        let address = socket.local_addr();
        address.is_ok_and(|address| address.ip().is_loopback())
    };
    !(matches!(auth, Auth::Open) && api.sockets.iter().all(at_home))
}

/// Carries outputs from the engine's thread to the world.
struct Outlet {
    clock: Clock,
    logs: Logs,
    runtime: tokio::runtime::Handle,
    engine: Arc<OnceLock<Engine>>,
    cache: Cache,
    bmc: Arc<UdpSocket>,
    dhcp: dhcp::Doors,
    ssh: ssh::Door,
    redfish: redfish::Door,
    notes: NoteSink,
}

impl Outlet {
    fn carrier(mut self) -> engine::Carrier {
        Box::new(move |output| self.carry(output))
    }

    fn carry(&mut self, output: Output) {
        match output {
            Output::Bmc { to, bytes } => self.send_bmc(to, &bytes),
            Output::Dhcp {
                link,
                local,
                to,
                bytes,
            } => self.dhcp.send(link, local, &to, &bytes),
            Output::Probe { link, address } => self.dhcp.probe(link, address),
            Output::CallAgent {
                node,
                call,
                url,
                verify_ca,
                request,
            } => {
                self.owe(async move {
                    let result = agents::call(&url, verify_ca.as_deref(), &request).await;
                    Input::AgentAnswered { node, call, result }
                });
            }
            Output::CollectLogs {
                node,
                url,
                verify_ca,
                request,
                token,
            } => {
                let (logs, now) = (self.logs.clone(), self.clock.now().wall);
                self.owe(logs.collect(node, (url, verify_ca), (request, token), now));
            }
            Output::DropLogs(node) => {
                let logs = self.logs.clone();
                self.runtime.spawn_blocking(move || logs.forget(node));
            }
            Output::Ssh {
                node,
                run,
                target,
                command,
            } => {
                let door = self.ssh.clone();
                self.owe(async move {
                    let result = door.run(run, &target, &command).await;
                    Input::SshAnswered { node, run, result }
                });
            }
            Output::Redfish {
                node,
                call,
                target,
                request,
            } => {
                let door = self.redfish.clone();
                self.owe(async move {
                    let result = door.ask(&target, &request).await;
                    Input::RedfishAnswered { node, call, result }
                });
            }
            Output::FillImage { .. }
            | Output::CheckImage(_)
            | Output::FindSum { .. }
            | Output::FetchBootFile { .. }
            | Output::PinImages(_)
            | Output::DropImage(_) => self.carry_image(output),
            Output::Note { note, label } => (self.notes)(&note, label.as_deref()),
            // The engine answers these itself.
            Output::Reply { .. } | Output::File { .. } => {}
        }
    }

    /// What is about images.
    fn carry_image(&self, output: Output) {
        match output {
            Output::FillImage { wanted, urgent } => self.fill(wanted, urgent),
            Output::CheckImage(wanted) => {
                let cache = self.cache.clone();
                self.runtime
                    .spawn(async move { cache.check(&wanted).await });
            }
            Output::FindSum { url, name } => {
                let cache = self.cache.clone();
                self.owe(async move {
                    let result = cache.find_sum(&url, &name).await;
                    Input::SumFound { url, name, result }
                });
            }
            Output::FetchBootFile { url, format } => {
                let cache = self.cache.clone();
                self.owe(async move {
                    let result = cache.fetch_file(&url, format).await;
                    Input::BootFileFetched { url, result }
                });
            }
            Output::PinImages(digests) => self.cache.pin(&digests),
            Output::DropImage(digest) => self.cache.drop_image(Key(digest)),
            _ => {}
        }
    }

    /// What goes wrong with an image is told by the cache itself.
    fn fill(&self, wanted: Box<trivet_images::Wanted>, urgent: bool) {
        let cache = self.cache.clone();
        if urgent {
            self.runtime
                .spawn(async move { cache.bring(&wanted).await });
        } else {
            let _runtime = self.runtime.enter();
            let _ = cache.fill(&wanted);
        }
    }

    /// Does something whose outcome the rack waits for.
    fn owe(&self, asking: impl Future<Output = Input> + Send + 'static) {
        let engine = Arc::clone(&self.engine);
        self.runtime
            .spawn(async move { answer(&engine, asking.await).await });
    }

    fn send_bmc(&self, to: SocketAddr, bytes: &[u8]) {
        // A datagram that does not leave is repeated by its session.
        let _ = self.bmc.try_send_to(bytes, to);
    }
}

/// Gives the rack an answer that a job waits for: a full queue only delays it.
async fn answer(engine: &OnceLock<Engine>, input: Input) {
    offer_again(engine.wait(), input).await;
}

async fn offer_again(engine: &Engine, mut input: Input) {
    while let Err(back) = engine.offer(input) {
        input = back;
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

/// Notes as lines of the log. What any machine can cause by asking for an address is
/// said within bounds.
pub(crate) fn log(clock: Clock) -> NoteSink {
    let mut asking = Throttle::new(clock.now().tick);
    Box::new(move |note, label| {
        let tick = clock.now().tick;
        let caused = matches!(
            note.kind,
            NoteKind::StrangerSeen { .. }
                | NoteKind::Dhcp { .. }
                | NoteKind::FileRefused { .. }
                | NoteKind::AgentRefused { .. }
        );
        if let Some(line) = asking.left_out_line(tick) {
            say::line(&line);
        }
        if !caused || asking.allows(tick) {
            say::line(&log_line(note, label));
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
        | NoteKind::Asked {
            refused: Some(_), ..
        } => "warning",
        _ => "info",
    };
    format!("{} {level} {who}: {}", note.at, note.kind)
}
