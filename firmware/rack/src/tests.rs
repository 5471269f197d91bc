//! The rack as a whole, one node at a time, on flash in memory.

mod agents;
mod allocations;
mod bmc_requests;
mod boot;
mod boot_files;
mod boot_queue;
mod callers;
mod diagnosis;
mod enrolment;
mod flash;
mod hardware;
mod health;
mod image_deployment;
mod image_failures;
mod image_library;
mod images;
mod images_ahead;
mod lan;
mod metal3;
mod oci_images;
mod orders;
mod plan;
mod power;
mod power_retries;
mod power_sync;
mod redfish;
mod resources;
mod stories;
mod swapped_bmcs;
mod templates;
mod unique;
mod vendor;

use std::net::Ipv4Addr;
use std::sync::Arc;

use serde_json::{Value, json};
use trivet_bmc::{BmcMessage, BmcTransmit};
use trivet_board_sim::{SimFlash, box_key};
use trivet_dhcp::{BootServer, Subnet};
use trivet_images::{FetchedFile, ImageFileKind, ImageWorkOrder, ImageWorkReport};
use trivet_model::image::ImageStatus;
use trivet_model::order::{AgentHeartbeat, LookupResult, VerbArgs};
use trivet_model::{
    ApiCaller, CallerIdentity, Digest, MacAddr, Node, NodeId, Now, OrderOutcome, OrderRefusal,
    Port, PortId, ProvisionState, RackOrder, RefusalKind, SeededRandom, Tick, UnixMs, Verb,
};
use trivet_store::Store;

use crate::{
    BootLimitRule, IpmiTiming, NodeLimits, Outbox, Rack, RackFilePaths, RackInput, RackOutput,
    Settings, make_durable,
};

const MAC: MacAddr = MacAddr([0x52, 0x54, 0, 0, 0, 1]);

/// A rack and its store, driven by the test.
struct RackBench {
    rack: Rack,
    settings: Settings,
    store: Store<SimFlash>,
    now: Now,
    /// The outputs of the last batch, except replies to orders.
    outputs: Vec<RackOutput>,
    /// The image work that was ordered since it was last taken.
    image_work: Vec<ImageWorkOrder>,
}

/// The caller of the tests' orders.
fn caller() -> Arc<ApiCaller> {
    let caller = ApiCaller {
        identity: CallerIdentity::user("ann"),
        request: "req-1".to_owned(),
        ..ApiCaller::agent(Ipv4Addr::LOCALHOST.into())
    };
    Arc::new(caller.with_request_line("PUT", "/v1/x"))
}

pub(crate) fn settings() -> Settings {
    let server = Ipv4Addr::new(10, 0, 0, 1);
    let subnet = Subnet {
        network: Ipv4Addr::new(10, 0, 0, 0),
        prefix: 24,
        first: Ipv4Addr::new(10, 0, 0, 100),
        last: Ipv4Addr::new(10, 0, 0, 101),
        server,
        router: None,
        dns: Vec::new(),
        boot: BootServer::new(server, "http://10.0.0.1:8080/boot/{mac}/script"),
        known_only: false,
        lease_s: 60,
    };
    let mut images = trivet_images::ImageCatalogue::default();
    let digest = Digest::Sha256([7; 32]);
    images
        .add(
            "disk.raw",
            trivet_images::CatalogueImage { size: 9, digest },
        )
        .unwrap();
    Settings {
        dhcp: Some(trivet_dhcp::DhcpServerSettings {
            links: Vec::new(),
            subnets: vec![subnet],
        }),
        api_url: "http://10.0.0.1:6385".into(),
        http_url: "http://10.0.0.1:8080".into(),
        https_url: String::new(),
        wildcard_listeners: crate::WildcardListeners::default(),
        images,
        cache: true,
        image_library: trivet_images::ImageLibraryOptions::default(),
        files: RackFilePaths {
            kernel: Some("/boot/kernel".into()),
            images: Some("/images".into()),
            loaders: Some("/loaders".into()),
            ..RackFilePaths::default()
        },
        kernel_args: String::new(),
        heartbeat_timeout_s: 300,
        ca_key: None,
        agent_requirement: crate::CertificateRequirement::None,
        agent_addresses: crate::AgentAddresses {
            any: true,
            ..crate::AgentAddresses::default()
        },
        limits: NodeLimits::default(),
        pace: IpmiTiming::default(),
        power_sync_interval_ms: None,
        boots_at_once: BootLimitRule::default(),
        images_ahead: Vec::new(),
        hardware: vec!["ipmi".into()],
        faults: Vec::new(),
    }
}

impl RackBench {
    /// The arguments of the step that writes the image of a node, as clients see them.
    fn write_args(&self, id: NodeId) -> Value {
        trivet_agent::write_image_args(self.node(id).deployment().unwrap(), id)
    }

    fn new() -> Self {
        Self::with(settings())
    }

    fn with(settings: Settings) -> Self {
        let store = Store::open(SimFlash::new(4 << 20), box_key()).unwrap();
        let entropy = Box::new(SeededRandom::new(1));
        let mut bench = Self {
            rack: Rack::new(settings.clone(), entropy, store.records().unwrap()),
            settings,
            store,
            now: Now {
                tick: Tick(0),
                wall: UnixMs(1_794_796_610_746),
            },
            outputs: Vec::new(),
            image_work: Vec::new(),
        };
        bench.start();
        bench
    }

    /// The same flash with a new rack that is restored from it.
    fn restarted(self) -> Self {
        self.restarted_with(BootLimitRule::Auto)
    }

    fn restarted_with(self, boots_at_once: BootLimitRule) -> Self {
        let settings = Settings {
            boots_at_once,
            ..self.settings.clone()
        };
        let entropy = Box::new(SeededRandom::new(2));
        let records = self.store.records().unwrap();
        let mut bench = Self {
            rack: Rack::new(settings, entropy, records),
            now: Now {
                tick: Tick(0),
                ..self.now
            },
            ..self
        };
        bench.start();
        bench
    }

    /// The rack starts, with an empty cache.
    fn start(&mut self) {
        self.handle(RackInput::Started);
        let outputs = std::mem::take(&mut self.outputs);
        self.image_report(ImageWorkReport::Found(Box::default()));
        self.outputs.splice(0..0, outputs);
    }

    fn handle(&mut self, input: RackInput) {
        let mut outbox = Outbox::default();
        self.rack.handle(self.now, input, &mut outbox);
        self.rack.take_changes(&mut outbox);
        make_durable(&mut self.store, &outbox.changes).unwrap();
        self.outputs = outbox.outputs;
        let ordered: Vec<_> = self.image_orders().into_iter().cloned().collect();
        self.image_work.extend(ordered);
    }

    /// The work on an image ends in this state.
    fn image_is(&mut self, status: ImageStatus) {
        let library = self.rack.images.library_mut();
        library.simulate_state(self.now, &status);
        self.handle(RackInput::Tick);
    }

    /// The fetch of a URL ends so.
    fn url_answered(&mut self, (url, result): (String, Result<FetchedFile, String>)) {
        self.rack
            .images
            .library_mut()
            .simulate_url_answer(&url, result);
        self.handle(RackInput::Tick);
    }

    /// The shell reports on the work on an image.
    fn image_report(&mut self, report: ImageWorkReport) {
        self.handle(RackInput::Image(Box::new(report)));
    }

    /// The image work that is ordered.
    fn image_orders(&self) -> Vec<&ImageWorkOrder> {
        let orders = self.outputs.iter().filter_map(|output| match output {
            RackOutput::Image(order) => Some(&**order),
            _ => None,
        });
        orders.collect()
    }

    /// The images whose files are begun: fills that start.
    fn fills(&self) -> Vec<Digest> {
        let digests = self
            .image_orders()
            .into_iter()
            .filter_map(|order| match order {
                ImageWorkOrder::Open { key, file, .. }
                    if !matches!(file, ImageFileKind::Unpacking) =>
                {
                    Some(key.0)
                }
                _ => None,
            });
        digests.collect()
    }

    fn order(&mut self, order: RackOrder) -> Result<OrderOutcome, OrderRefusal> {
        self.order_of(caller(), order)
    }

    fn order_of(
        &mut self,
        caller: Arc<ApiCaller>,
        order: RackOrder,
    ) -> Result<OrderOutcome, OrderRefusal> {
        self.handle(RackInput::Order {
            ticket: 5,
            caller,
            order,
        });
        let at = self
            .outputs
            .iter()
            .position(|output| matches!(output, RackOutput::Reply { ticket: 5, .. }))
            .expect("every order is answered at once");
        let RackOutput::Reply { result, .. } = self.outputs.remove(at) else {
            unreachable!()
        };
        result
    }

    #[track_caller]
    fn refused(&mut self, order: RackOrder, kind: RefusalKind) -> String {
        let refusal = self.order(order).unwrap_err();
        assert_eq!(refusal.kind, kind, "{refusal}");
        refusal.sentence
    }

    fn advance(&mut self, ms: u64) {
        self.now.tick = self.now.tick.after_ms(ms);
        self.handle(RackInput::Tick);
    }

    fn node(&self, id: NodeId) -> Node {
        (*self.rack.view().nodes.get(&id).unwrap().node).clone()
    }

    /// Changes the node's record directly, without any check.
    fn force(&mut self, id: NodeId, change: impl FnOnce(&mut Node)) {
        let mut node = self.node(id);
        change(&mut node);
        self.rack.records.put_node(self.now, node);
        self.handle(RackInput::Tick);
    }

    fn verb(&mut self, node: NodeId, verb: Verb) -> Result<OrderOutcome, OrderRefusal> {
        let based_on = Some(self.node(node).revision);
        self.order(RackOrder::Provision {
            node,
            verb,
            args: VerbArgs::default(),
            based_on,
        })
    }

    /// A node that boots its agent to be inspected.
    fn inspecting() -> (Self, NodeId) {
        Self::inspecting_with(settings())
    }

    fn inspecting_with(settings: Settings) -> (Self, NodeId) {
        let mut bench = Self::with(settings);
        let id = bench.with_node(1);
        bench.force(id, |node| node.provision_state = ProvisionState::Manageable);
        bench.verb(id, Verb::Inspect).unwrap();
        bench.force(id, |node| {
            node.provision_state = ProvisionState::InspectWait;
            node.job.as_mut().unwrap().phase = trivet_model::JobPhase::AwaitAgent;
        });
        (bench, id)
    }

    fn with_node(&mut self, number: u8) -> NodeId {
        let node = node(number);
        let id = node.id;
        self.order(RackOrder::CreateNode(Box::new(node))).unwrap();
        let port = RackOrder::CreatePort(Box::new(port(number, id)));
        self.order(port).unwrap();
        id
    }

    fn lookup(&mut self) -> Result<LookupResult, OrderRefusal> {
        let order = RackOrder::Lookup {
            addresses: vec![MAC],
            node: None,
        };
        self.order(order).map(|done| match done {
            OrderOutcome::Found(found) => *found,
            other => panic!("{other:?}"),
        })
    }

    /// How many replies are deferred.
    fn replies_awaited(&self) -> usize {
        self.rack.replies_awaited()
    }

    fn notes(&self) -> Vec<String> {
        let notes = self.outputs.iter().filter_map(|output| match output {
            RackOutput::Note { note, .. } => Some(note.kind.to_string()),
            _ => None,
        });
        notes.collect()
    }
}

fn node(number: u8) -> Node {
    let id = NodeId::random(&mut SeededRandom::new(u64::from(number)));
    let mut node = Node::new(id, "ipmi", UnixMs(1));
    node.name = Some(format!("node-{number}"));
    let info = json!({"ipmi_address": format!("192.0.2.{number}"), "ipmi_username": "a",
                      "ipmi_password": "b"});
    let Value::Object(info) = info else {
        unreachable!()
    };
    node.driver_info = info;
    node
}

fn port(number: u8, node: NodeId) -> Port {
    Port {
        id: PortId::random(&mut SeededRandom::new(100 + u64::from(number))),
        revision: 0,
        serial: 0,
        node,
        address: MacAddr([0x52, 0x54, 0, 0, 0, number]),
        pxe_enabled: true,
        extra: serde_json::Map::new(),
        attributes: trivet_model::attributes::PortAttributes::default(),
        created_at: UnixMs(1),
        updated_at: None,
    }
}

fn heartbeat_with(token: &str) -> AgentHeartbeat {
    AgentHeartbeat {
        callback_url: "http://10.0.0.100:9999".into(),
        agent_token: Some(token.into()),
        agent_version: Some("13.0.0".into()),
        agent_verify_ca: None,
        callback_refused: None,
    }
}
