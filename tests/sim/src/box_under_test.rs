//! The box under test: rack and store on flash that can lose power, with file servers and API.
//!
//! Driven as the daemon drives it: the received inputs are one batch, the changes of the batch
//! are made durable, and only then its outputs are sent and the snapshot is published.

// An output that is ignored is named, so that `tests/tidy` can compare it with its list.
#![warn(clippy::wildcard_enum_match_arm)]

mod images;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::rc::Rc;
use std::sync::Arc;

use trivet_api::{ApiFacts, Request, Response, ResponsePlan};
use trivet_board_sim::{SimFlash, box_key};
use trivet_images::ImageEntryId;
use trivet_images::simulated::{SimImageDisk, SimImageShell};
use trivet_model::{
    ApiCaller, CallerIdentity, Entropy as _, KeyDigest, NodeCertificate, NodeId, NoteKind, Now,
    RackOrder, RackView, RefusalKind, SeededRandom, Tick, UnixMs,
};
use trivet_rack::bmc::BmcTransmit;
use trivet_rack::dhcp::{self, BootServer, Subnet};
use trivet_rack::{
    AgentHttpRequest, BootLimitRule, DhcpDestination, IpmiTiming, NodeLimits, Outbox, Rack,
    RackFilePaths, RackInput, RackOutput,
};
use trivet_store::{Store, StoreRecords};

use crate::file_servers::SimFileServers;
use crate::image_faults::SimImage;
use crate::machine::sha256;
use crate::network::{API_URL, BOX, HTTP_URL, SimHttpExchange};

/// Segments of the store: small, so that the log wraps around within one run.
const SEGMENT_BYTES: u32 = 32 * 1024;
const FLASH_BYTES: usize = 2 * 4096 + 16 * SEGMENT_BYTES as usize;

/// For a rack of 48.
const LARGE_FLASH_BYTES: usize = 2 * 4096 + 128 * SEGMENT_BYTES as usize;

/// How many times a change is retried when the record changed meanwhile.
const STALE_MAX: u32 = 8;

/// An output of the box.
#[derive(Debug)]
pub(crate) enum SimBoxOutput {
    Dhcp {
        to: DhcpDestination,
        bytes: Vec<u8>,
    },
    Bmc {
        to: SocketAddr,
        bytes: Vec<u8>,
    },
    Tftp {
        to: SocketAddrV4,
        from: SocketAddrV4,
        bytes: Vec<u8>,
    },
    Http {
        exchange: Rc<SimHttpExchange>,
        status: u16,
        body: Vec<u8>,
    },
    Call {
        node: NodeId,
        call: u64,
        url: String,
        verify_ca: Option<String>,
        request: AgentHttpRequest,
    },
    Note {
        node: Option<NodeId>,
        kind: NoteKind,
        label: String,
    },
}

/// Why the box is off.
#[derive(Debug)]
pub(crate) enum BoxFailure {
    /// The power was cut inside a commit.
    InCommit,
    /// The store reported an error, which must never happen.
    Refused(String),
}

/// An API request that the rack works on.
struct SimPendingOrder {
    exchange: Rc<SimHttpExchange>,
    then: ResponsePlan,
    tries: u32,
}

/// The state that is lost without power.
pub(crate) struct RunningBox {
    rack: Rack,
    store: Store<SimFlash>,
    started: Tick,
    inbox: Vec<RackInput>,
    view: RackView,
    tickets: u64,
    orders: BTreeMap<u64, SimPendingOrder>,
    file_servers: SimFileServers,
    images: SimImageShell,
    /// Requests for images that are not complete yet.
    image_requests: Vec<(u64, ImageEntryId)>,
    entropy: SeededRandom,
}

/// The box: flash, and the running state while it has power.
pub(crate) struct BoxUnderTest {
    pub(crate) settings: trivet_rack::Settings,
    facts: ApiFacts,
    seed: u64,
    flash: Option<SimFlash>,
    /// The image at its source.
    pub(crate) image: SimImage,
    /// The files of the cache while the box is off.
    image_disk: SimImageDisk,
    wrong_images: Vec<String>,
    /// The time of transfers of images is that of links of different rates.
    pub(crate) measures_links: bool,
    pub(crate) running: Option<RunningBox>,
    /// Counts starts: events of an earlier start are dropped.
    pub(crate) life: u64,
    /// The snapshot of the last durable batch, and the one whose commit was interrupted.
    pub(crate) durable: RackView,
    pub(crate) attempted: Option<RackView>,
}

fn files() -> RackFilePaths {
    RackFilePaths {
        agent_from_other_server: false,
        kernel: Some("/boot/kernel".into()),
        ramdisk: Some("/boot/ramdisk".into()),
        iso: None,
        images: Some("/images".into()),
        loaders: Some("/loaders".into()),
        operator: None,
        data: None,
    }
}

/// The settings of a box with this many addresses.
fn settings(addresses: u8, lease_s: u32, fast_track: bool) -> trivet_rack::Settings {
    let first = Ipv4Addr::new(10, 0, 0, 100);
    let subnet = Subnet {
        network: Ipv4Addr::new(10, 0, 0, 0),
        prefix: 24,
        first,
        last: Ipv4Addr::new(10, 0, 0, 99 + addresses),
        server: BOX,
        router: None,
        dns: Vec::new(),
        boot: BootServer::new(BOX, format!("{HTTP_URL}/boot/{{mac}}/script")),
        known_only: false,
        lease_s,
    };
    trivet_rack::Settings {
        dhcp: Some(dhcp::DhcpServerSettings {
            links: Vec::new(),
            subnets: vec![subnet],
        }),
        api_url: API_URL.to_owned(),
        http_url: HTTP_URL.to_owned(),
        https_url: String::new(),
        wildcard_listeners: trivet_rack::WildcardListeners::default(),
        images: trivet_images::ImageCatalogue::default(),
        cache: true,
        image_library: trivet_images::ImageLibraryOptions {
            scrub_ms: Some(120_000),
            retry_delay_ms: trivet_images::RETRY_DELAY_MS,
            ..trivet_images::ImageLibraryOptions::default()
        },
        files: files(),
        kernel_args: String::new(),
        heartbeat_timeout_s: 30,
        ca_key: None,
        agent_requirement: trivet_rack::CertificateRequirement::None,
        agent_addresses: trivet_rack::AgentAddresses::default(),
        limits: NodeLimits {
            agent_wait_ms: 60_000,
            heartbeat_timeout_ms: 60_000,
            boot_ms: 45_000,
            power_poll_ms: 3000,
            power_timeout_ms: 60_000,
            soft_off_ms: 600_000,
            bmc_wait_ms: 240_000,
            bmc_reset: true,
            power_off_after_deploy_failure: true,
            power_sync_retries_max: 3,
            retry_ms: 1000,
            tries_max: 6,
            boots_max: 3,
            erase: trivet_rack::EraseScope::default(),
            fast_track,
            sends_tokens: false,
        },
        pace: IpmiTiming {
            first_retry_ms: 250,
            wait_ms_max: 1000,
            tries_max: 4,
            order_ms_max: 8000,
            order_gap_ms: 50,
        },
        power_sync_interval_ms: None,
        boots_at_once: BootLimitRule::default(),
        images_ahead: Vec::new(),
        hardware: vec!["ipmi".to_owned()],
        faults: Vec::new(),
    }
}

impl BoxUnderTest {
    pub(crate) fn new(seed: u64, addresses: u8, lease_s: u32, image: SimImage) -> Self {
        let mut settings = settings(addresses, lease_s, seed % 4 == 3);
        if seed % 5 == 2 {
            settings.ca_key = Some(KeyDigest([0xca; 32]));
            settings.limits.sends_tokens = true;
        }
        Self {
            settings,
            facts: ApiFacts {
                agent_missing: false,
                agent_iso: false,
                hostname: "box".to_owned(),
                drivers: vec!["ipmi".to_owned()],
                public_endpoint: None,
                inspector: false,
                agent_http_allowed: true,
                images: Vec::new(),
                started_at: UnixMs(0),
            },
            seed,
            flash: Some(SimFlash::new(FLASH_BYTES)),
            image,
            image_disk: SimImage::empty_disk(),
            wrong_images: Vec::new(),
            measures_links: false,
            running: None,
            life: 0,
            durable: RackView::default(),
            attempted: None,
        }
    }

    /// Flash for many nodes instead of one whose log wraps around soon.
    pub(crate) fn enlarge_flash(&mut self) {
        self.flash = Some(SimFlash::new(LARGE_FLASH_BYTES));
    }

    /// Switches the power on: returns the records on flash, or why they cannot be read.
    pub(crate) fn start(&mut self, now: Tick) -> Result<StoreRecords, String> {
        self.life += 1;
        // Through the generator, so that no two starts use the same stream.
        let seed = SeededRandom::new(self.seed ^ (self.life << 32)).number();
        let flash = self.flash.take().ok_or("the box has no flash")?;
        let store = Store::open_with(flash.power_on(seed), box_key(), SEGMENT_BYTES)
            .map_err(|error| format!("the store does not open: {error:?}"))?;
        let records = store
            .records()
            .map_err(|error| format!("bad record: {error:?}"))?;
        let entropy = Box::new(SeededRandom::new(seed));
        let rack = Rack::new(self.settings.clone(), entropy, records.clone());
        let mut images = SimImageShell::new(self.image_disk.clone());
        self.image.apply(&mut images);
        self.running = Some(RunningBox {
            view: rack.view(),
            rack,
            store,
            started: now,
            inbox: vec![RackInput::Started],
            tickets: 0,
            orders: BTreeMap::new(),
            file_servers: SimFileServers::new(self.measures_links),
            images,
            image_requests: Vec::new(),
            entropy: SeededRandom::new(!seed),
        });
        Ok(records)
    }

    /// Cuts the power.
    pub(crate) fn cut_power(&mut self) {
        if let Some(mut on) = self.running.take() {
            // What was not synced is lost, in part, or reads as zeros.
            let mut chance = SeededRandom::new(self.seed ^ self.life.rotate_left(40));
            on.images
                .disk
                .cut_power(chance.below(1001), chance.chance(500));
            self.wrong_images.append(&mut on.images.wrong_reads);
            self.image_disk = on.images.disk;
            let mut flash = on.store.into_flash();
            flash.cut();
            self.flash = Some(flash);
        }
    }

    /// The counters of the store, if the box is on.
    pub(crate) fn store_stats(&self) -> Option<trivet_store::StoreStats> {
        self.running.as_ref().map(|on| on.store.stats())
    }

    /// How many finished jobs and requests of callers are on flash.
    pub(crate) fn stored_stories(&self) -> Result<(usize, usize), String> {
        let on = self.running.as_ref().ok_or("the box is off")?;
        let records = on.store.records();
        let records = records.map_err(|error| format!("bad record: {error:?}"))?;
        let jobs = records.stories.values().map(|stories| stories.jobs.len());
        Ok((jobs.sum(), records.audit.len()))
    }

    /// Cuts the power inside the next commit, after so many operations of flash.
    pub(crate) fn cut_power_in_commit(&mut self, operations: u64) {
        if let Some(on) = &mut self.running {
            on.store.flash_mut().cut_after(operations);
        }
    }

    /// Handles the received inputs as one batch.
    pub(crate) fn run_batch(
        &mut self,
        now: Tick,
        wall: UnixMs,
        out: &mut Vec<SimBoxOutput>,
    ) -> Result<(), BoxFailure> {
        let Some(on) = &mut self.running else {
            return Ok(());
        };
        let now = on.now(now, wall);
        let mut outbox = Outbox::default();
        for input in std::mem::take(&mut on.inbox) {
            on.rack.handle(now, input, &mut outbox);
        }
        if on.rack.deadline().is_some_and(|at| at <= now.tick) {
            on.rack.handle(now, RackInput::Tick, &mut outbox);
        }
        on.rack.take_changes(&mut outbox);
        let view = on.rack.view();
        match trivet_rack::make_durable(&mut on.store, &outbox.changes) {
            Ok(()) => {
                self.durable = view.clone();
                on.view = view;
                self.attempted = None;
            }
            Err(trivet_store::CommitError::Flash(_)) => {
                self.attempted = Some(view);
                self.cut_power();
                return Err(BoxFailure::InCommit);
            }
            Err(error) => return Err(BoxFailure::Refused(format!("{error:?}"))),
        }
        for output in outbox.outputs {
            self.dispatch_output(now, output, out);
        }
        Ok(())
    }

    fn dispatch_output(&mut self, now: Now, output: RackOutput, out: &mut Vec<SimBoxOutput>) {
        let Some(on) = &mut self.running else { return };
        match output {
            RackOutput::Reply { ticket, result } => {
                let Some(waiting) = on.orders.remove(&ticket) else {
                    return;
                };
                let stale = matches!(&result, Err(no) if no.kind == RefusalKind::Stale);
                if stale && waiting.tries < STALE_MAX {
                    on.api(&self.facts, now, waiting.exchange, waiting.tries + 1, out);
                    return;
                }
                let exchange = waiting.exchange;
                let request = request(&exchange);
                let answer =
                    trivet_api::finish(&request, &waiting.then, result, &on.view, &self.facts);
                let answer = trivet_api::conflict_after_retry(waiting.tries, answer);
                out.push(http_output(exchange, answer));
            }
            RackOutput::File { ticket, grant } => {
                on.file_granted(now.tick, ticket, grant, out);
            }
            RackOutput::Dhcp { to, bytes, .. } => out.push(SimBoxOutput::Dhcp { to, bytes }),
            RackOutput::Bmc(message) => match message {
                BmcTransmit::Datagram { to, bytes } => out.push(SimBoxOutput::Bmc { to, bytes }),
                BmcTransmit::Ssh(_) | BmcTransmit::Http(_) => {}
            },
            RackOutput::CallAgent {
                node,
                call,
                url,
                verify_ca,
                request,
            } => {
                out.push(SimBoxOutput::Call {
                    node,
                    call,
                    url,
                    verify_ca,
                    request,
                });
            }
            // No node of these racks is a virtual machine or uses Redfish, no address conflicts
            // occur, and no logs of agents are collected.
            RackOutput::CollectLogs { .. }
            | RackOutput::DropLogs(_)
            | RackOutput::Probe { .. }
            | RackOutput::Measured(_) => {}
            RackOutput::Image(order) => {
                on.images.carry_out(now.tick, *order);
                on.answer_image_requests(now.tick, out);
            }
            RackOutput::Note { note, label } => {
                out.push(SimBoxOutput::Note {
                    node: note.node,
                    kind: note.kind,
                    label: label.unwrap_or_default(),
                });
            }
        }
    }

    /// Handles an HTTP request; false if the box is off.
    pub(crate) fn http(
        &mut self,
        now: Tick,
        wall: UnixMs,
        exchange: Rc<SimHttpExchange>,
        out: &mut Vec<SimBoxOutput>,
    ) -> bool {
        let Some(on) = &mut self.running else {
            return false;
        };
        let now = on.now(now, wall);
        if exchange.api {
            on.api(&self.facts, now, exchange, 1, out);
        } else {
            let input = on.file_servers.http_request(exchange);
            on.inbox.push(input);
        }
        true
    }
}

impl RunningBox {
    fn now(&self, now: Tick, wall: UnixMs) -> Now {
        Now {
            tick: Tick(now.since_ms(self.started)),
            wall,
        }
    }

    /// Adds an input to the next batch.
    pub(crate) fn enqueue(&mut self, input: RackInput) {
        self.inbox.push(input);
    }

    pub(crate) fn has_work(&self) -> bool {
        !self.inbox.is_empty()
    }

    /// When the box has something due, in simulated time.
    pub(crate) fn deadline(&self) -> Option<Tick> {
        let own = self
            .rack
            .deadline()
            .into_iter()
            .chain(self.file_servers.deadline())
            .chain(self.images.deadline())
            .min();
        own.map(|at| self.started.after_ms(at.0))
    }

    /// Handles a TFTP datagram.
    pub(crate) fn tftp(
        &mut self,
        now: Tick,
        peer: SocketAddrV4,
        port: u16,
        packet: &[u8],
        out: &mut Vec<SimBoxOutput>,
    ) {
        let own = Tick(now.since_ms(self.started));
        let inbox = &mut self.inbox;
        self.file_servers
            .tftp(own, peer, port, packet, &mut |input| inbox.push(input), out);
    }

    /// Continues transfers that are due.
    pub(crate) fn tick(&mut self, now: Tick, out: &mut Vec<SimBoxOutput>) {
        let own = Tick(now.since_ms(self.started));
        let reports = self.images.poll(own).into_iter();
        let inputs = reports.map(|report| RackInput::Image(Box::new(report)));
        self.inbox.extend(inputs);
        if self.file_servers.deadline().is_some_and(|at| at <= own) {
            let inbox = &mut self.inbox;
            self.file_servers
                .tick(own, &mut |input| inbox.push(input), out);
        }
    }

    /// Whether the rack itself has something due.
    pub(crate) fn is_due(&self, now: Tick) -> bool {
        let own = Tick(now.since_ms(self.started));
        self.rack.deadline().is_some_and(|at| at <= own)
    }

    fn api(
        &mut self,
        facts: &ApiFacts,
        now: Now,
        exchange: Rc<SimHttpExchange>,
        tries: u32,
        out: &mut Vec<SimBoxOutput>,
    ) {
        let request = request(&exchange);
        match trivet_api::handle(&request, &self.view, facts, now.wall, &mut self.entropy) {
            trivet_api::ApiOutcome::Reply(response) => {
                let response = trivet_api::conflict_after_retry(tries, response);
                out.push(http_output(exchange, response));
            }
            trivet_api::ApiOutcome::Order { mut order, then } => {
                if let RackOrder::Enrol(enrolment) = &mut order {
                    enrolment.key = KeyDigest(sha256(&enrolment.csr));
                }
                self.order(exchange, order, then, tries);
            }
            // No client of these racks reads logs.
            trivet_api::ApiOutcome::Logs { .. } => {}
        }
    }

    fn order(
        &mut self,
        exchange: Rc<SimHttpExchange>,
        order: RackOrder,
        then: ResponsePlan,
        tries: u32,
    ) {
        self.tickets += 1;
        let ticket = self.tickets;
        let caller = caller(exchange.peer, exchange.certificate);
        self.orders.insert(
            ticket,
            SimPendingOrder {
                exchange,
                then,
                tries,
            },
        );
        self.inbox.push(RackInput::Order {
            ticket,
            caller,
            order,
        });
    }
}

/// The API has no authentication here.
fn caller(from: Ipv4Addr, certificate: Option<NodeCertificate>) -> Arc<ApiCaller> {
    let caller = ApiCaller {
        identity: CallerIdentity::Anyone,
        request: "req-sim".to_owned(),
        certificate,
        ..ApiCaller::agent(from.into())
    };
    Arc::new(caller.with_request_line("SIM", "/"))
}

fn request(exchange: &SimHttpExchange) -> Request<'_> {
    Request {
        method: exchange.method,
        path: &exchange.path,
        query: &exchange.query,
        host: "10.0.0.1:6385",
        scheme: "http",
        version: exchange.version.as_deref(),
        openstack_version: None,
        body: &exchange.body,
        request_id: "req-sim",
    }
}

fn http_output(exchange: Rc<SimHttpExchange>, response: Response) -> SimBoxOutput {
    SimBoxOutput::Http {
        exchange,
        status: response.status,
        body: response.body,
    }
}
