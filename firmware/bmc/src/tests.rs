//! All BMCs of a few nodes, with a protocol that the test answers.

mod changes;
mod conflicts;
mod fake;
mod measurements;
mod routing;
mod sync;
mod vendor;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::json;
use trivet_model::interface::{ManagementInterface, PowerInterface, VendorInterface};
use trivet_model::{
    BmcReply, BmcRequest, BoxFault, Job, JobKind, JobPhase, MacAddr, Node, NodeId, PowerAnswer,
    PowerError, PowerOrder, PowerState, ProvisionState, SeededRandom, Tick, UnixMs,
};

use super::*;

const MAC: MacAddr = MacAddr([0x52, 0x54, 0, 0, 0, 1]);

pub(crate) fn limits() -> BmcLimits {
    BmcLimits {
        power_poll_ms: 3000,
        power_timeout_ms: 60_000,
        bmc_wait_ms: 240_000,
        bmc_reset: true,
        retry_ms: 5000,
        power_sync_retries_max: 3,
        power_sync_interval_ms: None,
    }
}

/// What a protocol was given, and what it reports next.
#[derive(Default)]
struct ScriptedWire {
    orders: Vec<(u64, NodeId, PowerOrder)>,
    requests: Vec<(u64, NodeId, BmcRequest)>,
    events: VecDeque<BmcProtocolEvent>,
    transmits: VecDeque<BmcTransmit>,
    received: usize,
    removed: Vec<NodeId>,
    /// Refuses every order and request with this error.
    refuses: Option<PowerError>,
    forwards: Option<PowerInterface>,
}

/// A protocol whose orders the test answers.
struct ScriptedProtocol {
    power: PowerInterface,
    reach: BmcReach,
    wire: Arc<Mutex<ScriptedWire>>,
}

impl BmcProtocol for ScriptedProtocol {
    fn name(&self) -> &'static str {
        "scripted"
    }

    fn serves(&self, _: &Node, interface: BmcInterface) -> bool {
        let is_ipmi = self.power == PowerInterface::Ipmitool
            && matches!(
                interface,
                BmcInterface::Management(ManagementInterface::Ipmitool)
                    | BmcInterface::Vendor(VendorInterface::Ipmitool)
            );
        is_ipmi || interface == BmcInterface::Power(self.power)
    }

    fn reach(&self) -> BmcReach {
        self.reach
    }

    fn bmc_identity(&self, node: &Node) -> Option<String> {
        let address = node.driver_info.get("ipmi_address")?.as_str()?;
        (self.reach == BmcReach::Bmc).then(|| format!("{address}:623"))
    }

    fn order(
        &mut self,
        _: &mut BmcProtocolContext,
        target: &BmcTarget,
        number: u64,
        order: PowerOrder,
    ) -> Result<BmcOrderStep, PowerError> {
        let mut wire = self.wire.lock().unwrap();
        if let Some(power) = wire.forwards {
            return Ok(BmcOrderStep::Forward(power));
        }
        if let Some(error) = wire.refuses.clone() {
            return Err(error);
        }
        assert_eq!(target.macs, [MAC]);
        wire.orders.push((number, target.node.id, order));
        Ok(BmcOrderStep::Taken)
    }

    fn request(
        &mut self,
        _: &mut BmcProtocolContext,
        target: &BmcTarget,
        number: u64,
        request: &BmcRequest,
    ) -> Result<(), PowerError> {
        let mut wire = self.wire.lock().unwrap();
        if let Some(error) = wire.refuses.clone() {
            return Err(error);
        }
        wire.requests
            .push((number, target.node.id, request.clone()));
        Ok(())
    }

    fn receive(&mut self, _: &mut BmcProtocolContext, message: BmcMessage) -> Option<BmcMessage> {
        let is_own = matches!(&message, BmcMessage::Datagram { from, .. }
            if from.port() == 623 && self.reach == BmcReach::Bmc);
        if is_own {
            self.wire.lock().unwrap().received += 1;
            return None;
        }
        Some(message)
    }

    fn remove(&mut self, _: &mut BmcProtocolContext, node: NodeId) {
        self.wire.lock().unwrap().removed.push(node);
    }

    fn next_event(&mut self) -> Option<BmcProtocolEvent> {
        self.wire.lock().unwrap().events.pop_front()
    }

    fn next_transmit(&mut self, _: Tick, calls: &mut u64) -> Option<BmcTransmit> {
        let transmit = self.wire.lock().unwrap().transmits.pop_front()?;
        *calls += 1;
        Some(transmit)
    }
}

#[derive(Default)]
struct TestNodes(BTreeMap<NodeId, Node>);

impl BmcNodeRecords for TestNodes {
    fn node(&self, id: NodeId) -> Option<&Node> {
        self.0.get(&id)
    }

    fn macs(&self, _: NodeId) -> Vec<MacAddr> {
        vec![MAC]
    }

    fn boots_agent(&self, node: &Node) -> bool {
        node.provision_state == ProvisionState::Inspecting
    }
}

struct BmcBench {
    bmcs: Bmcs,
    nodes: TestNodes,
    limits: BmcLimits,
    now: Tick,
    entropy: SeededRandom,
    wire: Arc<Mutex<ScriptedWire>>,
    /// A one-way protocol, on nodes with the power interface `wake-on-lan`.
    one_way: Arc<Mutex<ScriptedWire>>,
    /// A host, on nodes with the power interface `ssh`.
    host: Arc<Mutex<ScriptedWire>>,
}

fn id(number: u64) -> NodeId {
    NodeId::random(&mut SeededRandom::new(number))
}

impl BmcBench {
    fn new() -> Self {
        let wires: [Arc<Mutex<ScriptedWire>>; 3] = Default::default();
        let of = |power, reach, wire: &Arc<Mutex<ScriptedWire>>| -> Box<dyn BmcProtocol> {
            let wire = Arc::clone(wire);
            Box::new(ScriptedProtocol { power, reach, wire })
        };
        let protocols = vec![
            of(PowerInterface::Ipmitool, BmcReach::Bmc, &wires[0]),
            of(PowerInterface::WakeOnLan, BmcReach::OneWay, &wires[1]),
            of(PowerInterface::Ssh, BmcReach::Host, &wires[2]),
            Box::new(ManualProtocol::default()),
            Box::new(FakeProtocol::default()),
        ];
        let [wire, one_way, host] = wires;
        Self {
            bmcs: Bmcs::new(protocols, 100),
            nodes: TestNodes::default(),
            limits: limits(),
            now: Tick(0),
            entropy: SeededRandom::new(1),
            wire,
            one_way,
            host,
        }
    }

    /// A box that reads power states every minute.
    fn with_sync() -> Self {
        let mut bench = Self::new();
        bench.limits.power_sync_interval_ms = Some(60_000);
        bench
    }

    /// Adds an idle node whose BMC has an address of its own.
    fn with_node(&mut self, number: u64) -> NodeId {
        let id = id(number);
        let mut node = Node::new(id, "ipmi", UnixMs(1));
        node.serial = number;
        node.name = Some(format!("node-{number}"));
        node.provision_state = ProvisionState::Manageable;
        node.driver_info
            .insert("ipmi_address".into(), format!("192.0.2.{number}").into());
        self.nodes.0.insert(id, node);
        self.with(|bmcs, context| {
            bmcs.add(context, id);
            bmcs.records_changed(context, [id]);
        });
        id
    }

    fn node(&mut self, id: NodeId) -> &mut Node {
        self.nodes.0.get_mut(&id).unwrap()
    }

    /// Gives the node a job.
    fn start_job(&mut self, id: NodeId) {
        self.node(id).job = Some(Job {
            kind: JobKind::Inspect,
            phase: JobPhase::PowerOn,
            step_kind: None,
            manual: false,
            steps: Vec::new(),
            at: 0,
            versions: BTreeMap::new(),
            tries: 0,
            boots: None,
            abort_after: None,
            deployment: None,
            has_inspection_data: false,
            awaits_source: false,
            agent_query: None,
            heartbeat_lost_at: None,
        });
    }

    fn with<T>(&mut self, call: impl FnOnce(&mut Bmcs, &mut BmcContext) -> T) -> T {
        let mut context = BmcContext {
            now: self.now,
            nodes: &self.nodes,
            limits: self.limits,
            entropy: &mut self.entropy,
        };
        call(&mut self.bmcs, &mut context)
    }

    fn wire(&self) -> MutexGuard<'_, ScriptedWire> {
        self.wire.lock().unwrap()
    }

    /// All results so far.
    fn events(&mut self) -> Vec<BmcOutcome> {
        let mut events = Vec::new();
        while let Some(event) = self.with(Bmcs::next_outcome) {
            events.push(event);
        }
        events
    }

    /// The texts of the notes, and the other results.
    fn notes_and_events(&mut self) -> (Vec<String>, Vec<BmcOutcome>) {
        let (mut notes, mut others) = (Vec::new(), Vec::new());
        for event in self.events() {
            match event {
                BmcOutcome::Note { kind, .. } => notes.push(kind.to_string()),
                other => others.push(other),
            }
        }
        (notes, others)
    }

    fn advance(&mut self, ms: u64) {
        self.now = self.now.after_ms(ms);
        self.with(Bmcs::tick);
    }

    fn for_job(&mut self, id: NodeId, order: PowerOrder) {
        self.with(|bmcs, context| bmcs.order_for_job(context, id, order));
    }

    fn for_operator(&mut self, id: NodeId, order: PowerOrder) {
        let rules = PowerChangeRules::of_operator(&self.limits, &self.nodes.0[&id]);
        self.with(|bmcs, context| bmcs.order_for_operator(context, id, order, rules));
    }

    /// Takes the orders that the protocol was given since the last call.
    fn given(&self) -> Vec<(u64, PowerOrder)> {
        let given = std::mem::take(&mut self.wire().orders).into_iter();
        given.map(|(number, _, order)| (number, order)).collect()
    }

    /// Takes the only order that the protocol was given since the last call.
    #[track_caller]
    fn given_one(&self) -> (u64, PowerOrder) {
        let given = self.given();
        assert_eq!(given.len(), 1, "{given:?}");
        given[0]
    }

    fn answer(&self, number: u64, answer: Result<PowerAnswer, PowerError>) {
        let event = BmcProtocolEvent::OrderAnswered { number, answer };
        self.wire().events.push_back(event);
    }

    fn answer_power(&self, number: u64, state: PowerState) {
        self.answer(number, Ok(PowerAnswer::Power(state)));
    }
}

fn silent() -> PowerError {
    PowerError::NoResponse { waited_ms: 1 }
}

/// The orders that completed, among these results.
fn completed(events: &[BmcOutcome]) -> Vec<(BmcOrderOwner, PowerOrder, bool)> {
    let completed = events.iter().filter_map(|event| match event {
        BmcOutcome::OrderCompleted {
            owner,
            order,
            result,
            ..
        } => Some((*owner, *order, result.is_ok())),
        _ => None,
    });
    completed.collect()
}
