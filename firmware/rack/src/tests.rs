//! The rack as a whole, one node at a time, on flash in memory.

mod agents;
mod allocations;
mod boot;
mod boot_files;
mod callers;
mod errands;
mod flash;
mod freshness;
mod hardware;
mod health;
mod image_failures;
mod images;
mod ladder;
mod lan;
mod orders;
mod plan;
mod power;
mod redfish;
mod resources;
mod storm;
mod swapped;
mod templates;
mod unique;
mod vendor;
mod written;

use std::net::Ipv4Addr;
use std::sync::Arc;

use serde_json::{Value, json};
use trivet_board_sim::{SimFlash, box_key};
use trivet_dhcp::{BootServer, Subnet};
use trivet_model::order::{Beat, Found, VerbArgs};
use trivet_model::{
    Caller, Digest, Done, MacAddr, Node, NodeId, Now, Order, Port, PortId, ProvisionState, Refusal,
    RefusalKind, Seeded, Tick, UnixMs, Verb, Who,
};
use trivet_store::Store;

use crate::{AtOnce, Files, Input, Limits, Outbox, Output, Pace, Rack, Settings, make_durable};

const MAC: MacAddr = MacAddr([0x52, 0x54, 0, 0, 0, 1]);

/// A rack and its store, driven by hand.
struct Bench {
    rack: Rack,
    settings: Settings,
    store: Store<SimFlash>,
    now: Now,
    /// What the last batch let out, answers to orders excepted.
    outputs: Vec<Output>,
}

/// Whose orders the tests give.
fn caller() -> Arc<Caller> {
    let caller = Caller {
        who: Who::user("ann"),
        request: "req-1".to_owned(),
        ..Caller::agent(Ipv4Addr::LOCALHOST.into())
    };
    Arc::new(caller.asking("PUT", "/v1/x"))
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
    let mut images = trivet_images::Catalogue::default();
    let digest = Digest::Sha256([7; 32]);
    images
        .list("disk.raw", trivet_images::Image { size: 9, digest })
        .unwrap();
    Settings {
        dhcp: Some(trivet_dhcp::Settings {
            links: Vec::new(),
            subnets: vec![subnet],
        }),
        api_url: "http://10.0.0.1:6385".into(),
        http_url: "http://10.0.0.1:8080".into(),
        everywhere: crate::Everywhere::default(),
        images,
        cache: true,
        files: Files {
            kernel: Some("/boot/kernel".into()),
            images: Some("/images".into()),
            loaders: Some("/loaders".into()),
            ..Files::default()
        },
        kernel_args: String::new(),
        heartbeat_timeout_s: 300,
        agent_addresses: crate::AgentAddresses {
            any: true,
            ..crate::AgentAddresses::default()
        },
        limits: Limits::default(),
        pace: Pace::default(),
        power_fresh_ms: None,
        boots_at_once: AtOnce::default(),
        hardware: vec!["ipmi".into()],
        faults: Vec::new(),
    }
}

impl Bench {
    fn new() -> Self {
        Self::with(settings())
    }

    fn with(settings: Settings) -> Self {
        let store = Store::open(SimFlash::new(4 << 20), box_key()).unwrap();
        let entropy = Box::new(Seeded::new(1));
        let mut bench = Self {
            rack: Rack::new(settings.clone(), entropy, store.records().unwrap()),
            settings,
            store,
            now: Now {
                tick: Tick(0),
                wall: UnixMs(1_794_796_610_746),
            },
            outputs: Vec::new(),
        };
        bench.tell(Input::Started);
        bench
    }

    /// The same flash with a rack that knows only what stands on it.
    fn restarted(self) -> Self {
        self.restarted_with(AtOnce::Auto)
    }

    fn restarted_with(self, boots_at_once: AtOnce) -> Self {
        let settings = Settings {
            boots_at_once,
            ..self.settings.clone()
        };
        let entropy = Box::new(Seeded::new(2));
        let records = self.store.records().unwrap();
        let mut bench = Self {
            rack: Rack::new(settings, entropy, records),
            now: Now {
                tick: Tick(0),
                ..self.now
            },
            ..self
        };
        bench.tell(Input::Started);
        bench
    }

    fn tell(&mut self, input: Input) {
        let mut outbox = Outbox::default();
        self.rack.handle(self.now, input, &mut outbox);
        self.rack.take_changes(&mut outbox);
        make_durable(&mut self.store, &outbox.changes).unwrap();
        self.outputs = outbox.outputs;
    }

    fn order(&mut self, order: Order) -> Result<Done, Refusal> {
        self.order_of(caller(), order)
    }

    fn order_of(&mut self, caller: Arc<Caller>, order: Order) -> Result<Done, Refusal> {
        self.tell(Input::Order {
            ticket: 5,
            caller,
            order,
        });
        let at = self
            .outputs
            .iter()
            .position(|output| matches!(output, Output::Reply { ticket: 5, .. }))
            .expect("every order is answered at once");
        let Output::Reply { result, .. } = self.outputs.remove(at) else {
            unreachable!()
        };
        result
    }

    #[track_caller]
    fn refused(&mut self, order: Order, kind: RefusalKind) -> String {
        let refusal = self.order(order).unwrap_err();
        assert_eq!(refusal.kind, kind, "{refusal}");
        refusal.sentence
    }

    fn later(&mut self, ms: u64) {
        self.now.tick = self.now.tick.after_ms(ms);
        self.tell(Input::Tick);
    }

    fn node(&self, id: NodeId) -> Node {
        (*self.rack.view().nodes.get(&id).unwrap().node).clone()
    }

    /// Puts the node where the test wants it, past all rules.
    fn force(&mut self, id: NodeId, change: impl FnOnce(&mut Node)) {
        let mut node = self.node(id);
        change(&mut node);
        self.rack.book.put_node(self.now, node);
        self.tell(Input::Tick);
    }

    fn verb(&mut self, node: NodeId, verb: Verb) -> Result<Done, Refusal> {
        let based_on = Some(self.node(node).revision);
        self.order(Order::Provision {
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
            node.job.as_mut().unwrap().phase = trivet_model::Phase::AwaitAgent;
        });
        (bench, id)
    }

    fn with_node(&mut self, number: u8) -> NodeId {
        let node = node(number);
        let id = node.id;
        self.order(Order::CreateNode(Box::new(node))).unwrap();
        let port = Order::CreatePort(Box::new(port(number, id)));
        self.order(port).unwrap();
        id
    }

    fn lookup(&mut self) -> Result<Found, Refusal> {
        let order = Order::Lookup {
            addresses: vec![MAC],
            node: None,
        };
        self.order(order).map(|done| match done {
            Done::Found(found) => *found,
            other => panic!("{other:?}"),
        })
    }

    fn notes(&self) -> Vec<String> {
        let notes = self.outputs.iter().filter_map(|output| match output {
            Output::Note { note, .. } => Some(note.kind.to_string()),
            _ => None,
        });
        notes.collect()
    }
}

fn node(number: u8) -> Node {
    let id = NodeId::random(&mut Seeded::new(u64::from(number)));
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
        id: PortId::random(&mut Seeded::new(100 + u64::from(number))),
        revision: 0,
        serial: 0,
        node,
        address: MacAddr([0x52, 0x54, 0, 0, 0, number]),
        pxe_enabled: true,
        extra: serde_json::Map::new(),
        kept: serde_json::Map::new(),
        created_at: UnixMs(1),
        updated_at: None,
    }
}

fn beat(token: &str) -> Beat {
    Beat {
        callback_url: "http://10.0.0.100:9999".into(),
        agent_token: Some(token.into()),
        agent_version: Some("13.0.0".into()),
        agent_verify_ca: None,
        callback_refused: None,
    }
}
