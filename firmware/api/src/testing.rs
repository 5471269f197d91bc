//! A bench for tests: a view, a request, a response, all through the two public functions.

use std::sync::Arc;

use serde_json::Value;
use trivet_model::view::{NodeLiveState, NodeView};
use trivet_model::{
    Node, NodeId, OrderOutcome, OrderRefusal, Port, PortId, ProvisionState, RackOrder, RackView,
    Resource, SeededRandom, UnixMs,
};

use crate::{ApiFacts, ApiOutcome, Request, Response, ResponsePlan, finish, handle};

/// A time on 2026-11-16.
pub(crate) const NOW: UnixMs = UnixMs(1_794_796_610_746);

/// The newest version.
pub(crate) const LATEST: &str = "1.115";

/// A box with nodes, and its responses.
pub(crate) struct ApiBench {
    pub(crate) view: RackView,
    pub(crate) facts: ApiFacts,
}

/// The node with this number, in `enroll`.
pub(crate) fn node(number: u8) -> Node {
    let mut node = Node::new(node_id(number), "ipmi", NOW);
    node.serial = u64::from(number);
    node.revision = 7;
    node.name = Some(format!("node-{number}"));
    let address = format!("192.0.2.{number}");
    node.driver_info
        .insert("ipmi_address".into(), address.into());
    node
}

/// The same in another state.
pub(crate) fn node_in(number: u8, state: ProvisionState) -> Node {
    let mut node = node(number);
    node.provision_state = state;
    node
}

pub(crate) fn node_id(number: u8) -> NodeId {
    let text = format!("00000000-0000-4000-8000-0000000000{number:02x}");
    text.parse().unwrap()
}

pub(crate) fn port_id(number: u8) -> PortId {
    let text = format!("00000000-0000-4000-9000-0000000000{number:02x}");
    text.parse().unwrap()
}

/// A port of this node.
pub(crate) fn port(number: u8, of: u8) -> Port {
    Port {
        id: port_id(number),
        revision: 3,
        serial: u64::from(number),
        node: node_id(of),
        address: format!("52:54:00:00:00:{number:02x}").parse().unwrap(),
        pxe_enabled: true,
        extra: serde_json::Map::new(),
        attributes: trivet_model::attributes::PortAttributes::default(),
        created_at: NOW,
        updated_at: None,
    }
}

impl ApiBench {
    pub(crate) fn new() -> Self {
        let facts = ApiFacts {
            hostname: "box".into(),
            drivers: vec!["ipmi".into(), "fake-hardware".into()],
            started_at: NOW,
            ..ApiFacts::default()
        };
        Self {
            view: RackView::default(),
            facts,
        }
    }

    /// A bench with one node in this state.
    pub(crate) fn with(state: ProvisionState) -> Self {
        let mut bench = Self::new();
        bench.add(node_in(1, state));
        bench
    }

    pub(crate) fn add(&mut self, node: Node) {
        if let Some(name) = &node.name {
            self.view.names.insert(name.clone(), node.id);
        }
        if let Some(instance) = &node.instance_uuid {
            self.view.instances.insert(instance.clone(), node.id);
        }
        let before = self.view.nodes.get(&node.id);
        let view = NodeView {
            ports: before.map(|view| view.ports.clone()).unwrap_or_default(),
            resources: Vec::new(),
            timeline: before.map(|view| view.timeline.clone()).unwrap_or_default(),
            story: before.map(|view| view.story.clone()).unwrap_or_default(),
            live: NodeLiveState::default(),
            node: Arc::new(node),
        };
        self.view.nodes.insert(view.node.id, Arc::new(view));
    }

    /// Adds a failure to the history of the first node.
    pub(crate) fn add_failure(&mut self, failure: trivet_model::story::NodeFailure) {
        let id = node_id(1);
        self.view.nodes.change(id, |view| {
            let stories = view
                .story
                .finished
                .get_or_insert_with(|| Arc::new(trivet_model::story::NodeStories::new(id)));
            Arc::make_mut(stories).add_failure(failure);
        });
    }

    pub(crate) fn add_port(&mut self, port: Port) {
        self.view.macs.insert(port.address, port.id);
        if let Some(address) = port.reserved() {
            self.view.reserved.insert(address, port.id);
        }
        if let Some(name) = port.name() {
            self.view.port_names.insert(name.to_owned(), port.id);
        }
        let id = port.id;
        self.view.nodes.change(port.node, |view| {
            view.ports.retain(|other| *other != id);
            view.ports.push(id);
        });
        self.view.ports.insert(id, Arc::new(port));
    }

    /// The same with a port for its first node, so that it can boot.
    pub(crate) fn wired(mut self) -> Self {
        self.add_port(port(1, 1));
        self
    }

    /// Stores a resource, such as a chassis.
    pub(crate) fn add_resource(&mut self, resource: Resource) {
        let key = (resource.kind, resource.id);
        for claim in resource.claims() {
            self.view.claims.insert((key.0, claim), key.1);
        }
        self.view.resources.insert(key, Arc::new(resource));
    }

    /// Changes node 1.
    pub(crate) fn change(&mut self, change: impl FnOnce(&mut Node)) {
        let mut node = Node::clone(&self.view.nodes[&node_id(1)].node);
        change(&mut node);
        self.add(node);
    }

    pub(crate) fn outcome(&self, request: &Request<'_>) -> ApiOutcome {
        handle(
            request,
            &self.view,
            &self.facts,
            NOW,
            &mut SeededRandom::new(1),
        )
    }

    #[track_caller]
    pub(crate) fn reply(&self, request: &Request<'_>) -> Response {
        match self.outcome(request) {
            ApiOutcome::Reply(response) => response,
            other => panic!("became {other:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn order(&self, request: &Request<'_>) -> (RackOrder, ResponsePlan) {
        match self.outcome(request) {
            ApiOutcome::Order { order, then } => (order, then),
            ApiOutcome::Reply(response) => {
                panic!("was answered {}: {}", response.status, response.text())
            }
            other @ ApiOutcome::Logs { .. } => panic!("became {other:?}"),
        }
    }

    /// Executes the order as the rack does, and returns the response.
    #[track_caller]
    pub(crate) fn done(&mut self, request: &Request<'_>) -> Response {
        let (order, then) = self.order(request);
        match order {
            RackOrder::CreateNode(node) => self.add(*node),
            RackOrder::ReplaceNode { node, based_on } => {
                assert_eq!(based_on, self.view.nodes[&node.id].node.revision);
                self.add(*node);
            }
            RackOrder::CreatePort(port) | RackOrder::ReplacePort { port, .. } => {
                self.add_port(*port);
            }
            RackOrder::DeleteNode(id) => drop(self.view.nodes.remove(&id)),
            _ => {}
        }
        self.finish(request, &then, Ok(OrderOutcome::Stored))
    }

    pub(crate) fn finish(
        &self,
        request: &Request<'_>,
        then: &ResponsePlan,
        result: Result<OrderOutcome, OrderRefusal>,
    ) -> Response {
        finish(request, then, result, &self.view, &self.facts)
    }

    #[track_caller]
    pub(crate) fn refuses(&self, request: &Request<'_>, status: u16) -> String {
        let response = self.reply(request);
        assert_eq!(response.status, status, "{}", response.text());
        let fault = response.fault();
        let sentence = fault.get("faultstring").or(fault.get("description"));
        sentence.unwrap().as_str().unwrap().to_owned()
    }
}

/// A request without a body. A question mark starts the query.
pub(crate) fn get(path: &str) -> Request<'_> {
    send("GET", path, "")
}

pub(crate) fn send<'a>(method: &'a str, path: &'a str, body: &'a str) -> Request<'a> {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    Request {
        method,
        path,
        query,
        host: "box:6385",
        scheme: "http",
        version: None,
        openstack_version: None,
        body: body.as_bytes(),
        request_id: "req-1",
    }
}

impl<'a> Request<'a> {
    /// The same request at this version.
    pub(crate) fn at(mut self, version: &'a str) -> Self {
        self.version = Some(version);
        self
    }
}

impl Response {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self
            .headers
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    #[track_caller]
    pub(crate) fn value(&self) -> Value {
        assert_eq!(self.header("Content-Type"), Some("application/json"));
        serde_json::from_slice(&self.body).unwrap()
    }

    /// The JSON inside the error message.
    #[track_caller]
    pub(crate) fn fault(&self) -> Value {
        let outer = self.value();
        serde_json::from_str(outer["error_message"].as_str().unwrap()).unwrap()
    }
}
