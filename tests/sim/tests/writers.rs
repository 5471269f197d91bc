//! Two writers of one record. By seed: both read the same snapshot, their requests arrive in
//! any order, in one batch or in several, with other writers between them. One succeeds; the
//! others get a conflict in Ironic's format; the record is completely that of the one that
//! succeeded, on flash as well.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use serde_json::{Value, json};
use trivet_api::{ApiFacts, ApiOutcome, Request, Response, ResponsePlan};
use trivet_board_sim::{SimFlash, box_key};
use trivet_model::{
    ApiCaller, Node, NodeId, Now, ProvisionState, RackOrder, RackView, RefusalKind, SeededRandom,
    Tick, UnixMs,
};
use trivet_rack::{
    IpmiTiming, NodeLimits, Outbox, Rack, RackFilePaths, RackInput, RackOutput, Settings,
    StoreChange,
};
use trivet_store::Store;

const SEEDS: u64 = 400;
const SEGMENT_BYTES: u32 = 32 * 1024;
const FLASH_BYTES: usize = 2 * 4096 + 16 * SEGMENT_BYTES as usize;
const STALE_MAX: u32 = 8;

/// A request of a writer.
struct WriterRequest {
    method: &'static str,
    path: String,
    body: String,
}

impl WriterRequest {
    fn new(method: &'static str, path: impl Into<String>, body: &Value) -> Self {
        Self {
            method,
            path: path.into(),
            body: body.to_string(),
        }
    }

    fn request(&self) -> Request<'_> {
        Request {
            method: self.method,
            path: &self.path,
            query: "",
            host: "box",
            scheme: "http",
            version: Some("latest"),
            openstack_version: None,
            body: self.body.as_bytes(),
            request_id: "req-1",
        }
    }
}

/// A pending request, and how many times it was tried.
struct PendingWriterOrder {
    writer: usize,
    order: RackOrder,
    then: ResponsePlan,
    tries: u32,
}

struct WriterHarness {
    rack: Rack,
    store: Store<SimFlash>,
    view: RackView,
    facts: ApiFacts,
    chance: SeededRandom,
}

impl WriterHarness {
    /// A box with one node that is ready for every verb of an operator.
    fn new(seed: u64, node: &Node) -> Self {
        let mut store = open(SimFlash::new(FLASH_BYTES));
        store
            .commit(&[StoreChange::PutNode(Arc::new(node.clone()))])
            .expect("the flash has space");
        let records = store.records().expect("what was written is read");
        let rack = Rack::new(settings(), Box::new(SeededRandom::new(seed)), records);
        let facts = ApiFacts {
            hostname: "box".to_owned(),
            drivers: vec!["ipmi".to_owned()],
            ..ApiFacts::default()
        };
        let view = rack.view();
        let chance = SeededRandom::new(seed);
        let mut harness = Self {
            rack,
            store,
            view,
            facts,
            chance,
        };
        harness.batch(vec![RackInput::Started]);
        harness
    }

    fn handle(&mut self, wanted: &WriterRequest) -> ApiOutcome {
        let (view, facts) = (&self.view, &self.facts);
        trivet_api::handle(&wanted.request(), view, facts, UnixMs(5), &mut self.chance)
    }

    /// One batch, as the daemon does it: durable before any reply.
    fn batch(&mut self, inputs: Vec<RackInput>) -> Vec<RackOutput> {
        let now = Now {
            tick: Tick(1),
            wall: UnixMs(5),
        };
        let mut outbox = Outbox::default();
        for input in inputs {
            self.rack.handle(now, input, &mut outbox);
        }
        self.rack.take_changes(&mut outbox);
        trivet_rack::make_durable(&mut self.store, &outbox.changes).expect("the flash has space");
        self.view = self.rack.view();
        outbox.outputs
    }

    /// The responses to writers that all read the same snapshot.
    fn answers(&mut self, writers: &[WriterRequest]) -> Vec<Response> {
        let mut answers: BTreeMap<usize, Response> = BTreeMap::new();
        let mut waiting = Vec::new();
        for (writer, wanted) in writers.iter().enumerate() {
            let outcome = self.handle(wanted);
            sort_outcome(writer, 1, outcome, &mut waiting, &mut answers);
        }
        while !waiting.is_empty() {
            let size = 1 + self.chance.below(waiting.len() as u64) as usize;
            let batch: Vec<PendingWriterOrder> = (0..size)
                .map(|_| waiting.swap_remove(self.chance.below(waiting.len() as u64) as usize))
                .collect();
            let inputs = batch.iter().zip(0..).map(|(one, ticket)| RackInput::Order {
                ticket,
                caller: Arc::new(ApiCaller::agent(Ipv4Addr::LOCALHOST.into())),
                order: one.order.clone(),
            });
            let outputs = self.batch(inputs.collect());
            for output in outputs {
                let RackOutput::Reply { ticket, result } = output else {
                    continue;
                };
                let one = &batch[ticket as usize];
                let wanted = &writers[one.writer];
                let stale = matches!(&result, Err(no) if no.kind == RefusalKind::Stale);
                if stale && one.tries < STALE_MAX {
                    let outcome = self.handle(wanted);
                    let (writer, tries) = (one.writer, one.tries + 1);
                    sort_outcome(writer, tries, outcome, &mut waiting, &mut answers);
                    continue;
                }
                let (request, facts) = (wanted.request(), &self.facts);
                let answer = trivet_api::finish(&request, &one.then, result, &self.view, facts);
                answers.insert(
                    one.writer,
                    trivet_api::conflict_after_retry(one.tries, answer),
                );
            }
        }
        answers.into_values().collect()
    }

    /// A restart would find the records that readers see.
    fn check_flash(self) {
        let records = open(SimFlash::with_bytes(self.store.flash().bytes().to_vec()))
            .records()
            .expect("what was written is read");
        assert_eq!(records.nodes.len(), self.view.nodes.len());
        for (id, node) in &records.nodes {
            assert_eq!(node, self.view.nodes[id].node.as_ref());
        }
        assert_eq!(records.ports.len(), self.view.ports.len());
        for (id, port) in &records.ports {
            assert_eq!(port, self.view.ports[id].as_ref());
        }
    }
}

fn sort_outcome(
    writer: usize,
    tries: u32,
    outcome: ApiOutcome,
    waiting: &mut Vec<PendingWriterOrder>,
    answers: &mut BTreeMap<usize, Response>,
) {
    match outcome {
        ApiOutcome::Reply(answer) => {
            answers.insert(writer, trivet_api::conflict_after_retry(tries, answer));
        }
        ApiOutcome::Order { order, then } => waiting.push(PendingWriterOrder {
            writer,
            order,
            then,
            tries,
        }),
        other @ ApiOutcome::Logs { .. } => panic!("no writer requested {other:?}"),
    }
}

fn open(flash: SimFlash) -> Store<SimFlash> {
    Store::open_with(flash, box_key(), SEGMENT_BYTES).expect("a store of our own")
}

fn settings() -> Settings {
    Settings {
        dhcp: None,
        api_url: String::new(),
        http_url: String::new(),
        https_url: String::new(),
        wildcard_listeners: trivet_rack::WildcardListeners::default(),
        images: trivet_images::ImageCatalogue::default(),
        cache: false,
        image_library: trivet_images::ImageLibraryOptions::default(),
        files: RackFilePaths {
            agent_from_other_server: true,
            ..RackFilePaths::default()
        },
        kernel_args: String::new(),
        heartbeat_timeout_s: 300,
        ca_key: None,
        agent_requirement: trivet_rack::CertificateRequirement::None,
        agent_addresses: trivet_rack::AgentAddresses::default(),
        limits: NodeLimits::default(),
        pace: IpmiTiming::default(),
        power_sync_interval_ms: None,
        boots_at_once: trivet_rack::BootLimitRule::default(),
        images_ahead: Vec::new(),
        hardware: vec!["ipmi".to_owned()],
        faults: Vec::new(),
    }
}

fn node(state: ProvisionState) -> Node {
    let id = NodeId::random(&mut SeededRandom::new(7));
    let mut node = Node::new(id, "ipmi", UnixMs(1));
    node.provision_state = state;
    node.serial = 1;
    let info = json!({"ipmi_address": "192.0.2.1", "ipmi_username": "a", "ipmi_password": "b"});
    node.driver_info = info.as_object().cloned().expect("an object");
    node
}

/// The writer that succeeded; all others got a conflict.
#[track_caller]
fn winner(seed: u64, answers: &[Response]) -> usize {
    let won: Vec<usize> = (0..answers.len())
        .filter(|at| answers[*at].status < 300)
        .collect();
    for answer in answers.iter().filter(|answer| answer.status >= 300) {
        let body: Value = serde_json::from_slice(&answer.body).expect("JSON");
        assert_eq!(answer.status, 409, "seed {seed}: {body}");
        let inner = body["error_message"].as_str().expect("a text");
        let inner: Value = serde_json::from_str(inner).expect("JSON inside");
        assert_eq!(inner["faultcode"], "Client", "seed {seed}: {inner}");
        assert!(
            inner["faultstring"]
                .as_str()
                .is_some_and(|message| !message.is_empty())
        );
    }
    assert_eq!(won.len(), 1, "seed {seed}: {won:?} won");
    won[0]
}

/// Between two and five writers.
fn writer_range(seed: u64) -> std::ops::Range<usize> {
    0..2 + seed as usize % 4
}

#[test]
fn of_writers_of_an_instance_one_wins() {
    for seed in 0..SEEDS {
        let node = node(ProvisionState::Available);
        let mut harness = WriterHarness::new(seed, &node);
        let instance = |at: usize| format!("00000000-0000-4000-8000-{at:012}");
        let mut writers: Vec<WriterRequest> = writer_range(seed)
            .map(|at| {
                let patch = json!([
                    {"op": "add", "path": "/instance_uuid", "value": instance(at)},
                    {"op": "add", "path": "/extra/writer", "value": at},
                ]);
                WriterRequest::new("PATCH", format!("/v1/nodes/{}", node.id), &patch)
            })
            .collect();
        // One more that changes another field: both its patch and the first one apply.
        let patch = json!([{"op": "add", "path": "/description", "value": "apart"}]);
        writers.push(WriterRequest::new(
            "PATCH",
            format!("/v1/nodes/{}", node.id),
            &patch,
        ));
        let mut answers = harness.answers(&writers);
        assert_eq!(answers.pop().map(|answer| answer.status), Some(200));
        let won = winner(seed, &answers);
        let stored = Arc::clone(&harness.view.nodes[&node.id].node);
        assert_eq!(stored.instance_uuid, Some(instance(won)), "seed {seed}");
        assert_eq!(stored.extra["writer"], json!(won), "seed {seed}");
        let description = stored.attributes.description.as_deref();
        assert_eq!(description, Some("apart"), "seed {seed}");
        harness.check_flash();
    }
}

#[test]
fn of_verbs_one_wins() {
    for seed in 0..SEEDS {
        let node = node(ProvisionState::Manageable);
        let mut harness = WriterHarness::new(seed, &node);
        // A node without a port cannot boot and is not inspected.
        let port = json!({"address": "52:54:00:00:00:77", "node_uuid": node.id.to_string()});
        let made = harness.answers(&[WriterRequest::new("POST", "/v1/ports", &port)]);
        assert_eq!(made[0].status, 201, "seed {seed}");
        let verbs = [("inspect", "inspecting"), ("provide", "cleaning")];
        let verb = |at: usize| verbs[(seed as usize / 4 + at) % 2];
        let writers: Vec<WriterRequest> = writer_range(seed)
            .map(|at| {
                let path = format!("/v1/nodes/{}/states/provision", node.id);
                WriterRequest::new("PUT", path, &json!({"target": verb(at).0}))
            })
            .collect();
        let answers = harness.answers(&writers);
        let won = winner(seed, &answers);
        let stored = Arc::clone(&harness.view.nodes[&node.id].node);
        assert_eq!(stored.provision_state.as_str(), verb(won).1, "seed {seed}");
        harness.check_flash();
    }
}

#[test]
fn of_power_orders_one_wins() {
    for seed in 0..SEEDS {
        let node = node(ProvisionState::Manageable);
        let mut harness = WriterHarness::new(seed, &node);
        let want = |at: usize| ["power on", "power off"][(seed as usize / 4 + at) % 2];
        let writers: Vec<WriterRequest> = writer_range(seed)
            .map(|at| {
                let path = format!("/v1/nodes/{}/states/power", node.id);
                WriterRequest::new("PUT", path, &json!({"target": want(at)}))
            })
            .collect();
        let answers = harness.answers(&writers);
        let won = winner(seed, &answers);
        let target = harness.view.nodes[&node.id].node.target_power_state;
        assert_eq!(json!(target), json!(want(won)), "seed {seed}");
        harness.check_flash();
    }
}

#[test]
fn of_creates_of_one_name_or_address_one_wins() {
    for seed in 0..SEEDS {
        let node = node(ProvisionState::Available);
        let mut harness = WriterHarness::new(seed, &node);
        let nodes: Vec<WriterRequest> = writer_range(seed)
            .map(|at| {
                let body = json!({"driver": "ipmi", "name": "twin", "extra": {"writer": at}});
                WriterRequest::new("POST", "/v1/nodes", &body)
            })
            .collect();
        let answers = harness.answers(&nodes);
        let won = winner(seed, &answers);
        let other = harness.view.node("twin").unwrap();
        assert_eq!(other.node.extra["writer"], json!(won), "seed {seed}");
        let ports: Vec<WriterRequest> = writer_range(seed)
            .map(|at| {
                let body = json!({"node_uuid": node.id.to_string(), "extra": {"writer": at},
                                  "address": "52:54:00:00:00:01"});
                WriterRequest::new("POST", "/v1/ports", &body)
            })
            .collect();
        let answers = harness.answers(&ports);
        let won = winner(seed, &answers);
        assert_eq!(harness.view.ports.len(), 1);
        let port = harness.view.ports.values().next().unwrap();
        assert_eq!(port.extra["writer"], json!(won), "seed {seed}");
        harness.check_flash();
    }
}
