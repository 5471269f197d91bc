//! The operator: takes every node from enrolment to active, only through the API.
//!
//! It relies only on the node's record as read, repeats requests without a response, and gives
//! a node up after a bounded number of failures.

use serde_json::{Value, json};
use trivet_model::{Entropy as _, MacAddr, NodeId, PortId, ProvisionState, SeededRandom, Verb};
use trivet_sim::{BMC_PASSWORD, BMC_USER};

use crate::machine::SimHttpRequest;
use crate::network::{HTTP_TIMEOUT_MS, SimHttpResult, bmc_address};

/// How many times a node may fail before it is given up.
const FAILURES_MAX: u32 = 4;

/// Interval of checks of a node.
const POLL_MS: u64 = 3000;

/// The API version it uses.
const VERSION: &str = "1.90";

/// The rescue password; the box must never reveal it.
pub(crate) const RESCUE_PASSWORD: &str = "the operator's own rescue word";

/// Steps that need an agent but run in the box: a wait, a hold that the operator ends, a reboot
/// into the agent.
fn service_steps() -> Value {
    json!([
        {"interface": "power", "step": "wait", "args": {"seconds": 2}},
        {"interface": "power", "step": "hold"},
        {"interface": "power", "step": "reboot"},
        {"interface": "power", "step": "wait"},
    ])
}

/// The resource class of every node, for allocations.
pub(crate) const CLASS: &str = "sim";

/// The last request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum SimOperatorRequest {
    ReadNode,
    CreateImage,
    CreateNode,
    CreatePort,
    SetImage,
    SetExtra(u64),
    Verb(Verb),
    EndMaintenance,
}

/// The result for a node.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum SimOperatorOutcome {
    Active,
    GivenUp,
}

/// What the operator does with its node.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum SimOperatorGoal {
    /// An active node.
    Active,
    /// Only the record and the port.
    Enrolled,
}

/// The operator of one node.
pub(crate) struct SimOperator {
    pub(crate) node: NodeId,
    pub(crate) end: Option<SimOperatorOutcome>,
    /// The image of the node.
    instance_info: Value,
    port: PortId,
    machine: usize,
    mac: MacAddr,
    sent: SimOperatorRequest,
    next: SimOperatorRequest,
    has_port: bool,
    inspected: bool,
    extra: u64,
    failures: u32,
    /// Verbs still to be tried once active, to deploy again.
    verbs_left: Vec<Verb>,
    /// The operator aborts the next wait state it sees.
    aborts: bool,
    /// The password of the BMC in the record.
    bmc_password: &'static str,
    /// The machine whose BMC the record names.
    bmc_of: usize,
    /// The properties in the record.
    properties: Value,
    goal: SimOperatorGoal,
    /// The image for the catalogue, if it is written ahead.
    image: Value,
    /// How long the node stays available before it is deployed.
    available_ms: u64,
}

impl SimOperator {
    pub(crate) fn new(
        machine: usize,
        mac: MacAddr,
        instance_info: Value,
        chance: &mut SeededRandom,
    ) -> Self {
        let more = match chance.below(8) {
            0 => vec![Verb::Rebuild],
            1 => vec![Verb::Deleted],
            2 => vec![Verb::Rescue],
            3 => vec![Verb::Service],
            _ => Vec::new(),
        };
        Self {
            node: NodeId::random(chance),
            port: PortId::random(chance),
            instance_info,
            machine,
            mac,
            sent: SimOperatorRequest::ReadNode,
            next: SimOperatorRequest::CreateNode,
            has_port: false,
            inspected: false,
            extra: chance.number() % 3,
            failures: 0,
            end: None,
            verbs_left: more,
            aborts: chance.chance(100),
            bmc_password: BMC_PASSWORD,
            bmc_of: machine,
            properties: json!({}),
            goal: SimOperatorGoal::Active,
            image: Value::Null,
            available_ms: 0,
        }
    }

    /// Adds this image to the catalogue, and lets its node wait for a deployment.
    pub(crate) fn expect_ahead(&mut self, image: Value, available_ms: u64) {
        (self.image, self.available_ms) = (image, available_ms);
        self.next = SimOperatorRequest::CreateImage;
    }

    /// The machine of its node.
    pub(crate) fn machine(&self) -> usize {
        self.machine
    }

    /// Aborts nothing, and once active tries at most this.
    pub(crate) fn use_plain_plan(&mut self, more: Option<Verb>) {
        (self.verbs_left, self.aborts) = (more.into_iter().collect(), false);
    }

    /// Writes a wrong password of the BMC into the record.
    pub(crate) fn use_wrong_password(&mut self) {
        self.bmc_password = "not the password";
    }

    /// Creates its port with this hardware address.
    pub(crate) fn use_mac(&mut self, mac: MacAddr) {
        self.mac = mac;
    }

    /// Creates its node and port, and nothing else.
    pub(crate) fn only_enrol(&mut self) {
        self.goal = SimOperatorGoal::Enrolled;
    }

    /// Writes hints into the record that no disk fits.
    pub(crate) fn use_wrong_hint(&mut self) {
        self.properties = json!({ "root_device": { "serial": "S-ABSENT" } });
    }

    /// Writes the BMC of another machine into the record.
    pub(crate) fn use_bmc_of(&mut self, machine: usize) {
        self.bmc_of = machine;
    }

    /// Whether it follows the plain plan: nothing is aborted.
    pub(crate) fn is_plain(&self) -> bool {
        !self.aborts
    }

    /// Whether it is about to end a rescue that it saw.
    pub(crate) fn saw_rescue(&self) -> bool {
        self.next == SimOperatorRequest::Verb(Verb::Unrescue)
    }

    /// The next request.
    pub(crate) fn next_request(&mut self) -> SimHttpRequest {
        self.sent = self.next;
        let node = format!("/v1/nodes/{}", self.node);
        let (method, path, body) = match self.sent {
            SimOperatorRequest::ReadNode => ("GET", node, Value::Null),
            SimOperatorRequest::CreateImage => {
                ("POST", "/trivet/images".to_owned(), self.image.clone())
            }
            SimOperatorRequest::CreateNode => ("POST", "/v1/nodes".to_owned(), self.node_body()),
            SimOperatorRequest::CreatePort => {
                let body = json!({
                    "uuid": self.port.to_string(), "node_uuid": self.node.to_string(),
                    "address": self.mac.to_string(),
                });
                ("POST", "/v1/ports".to_owned(), body)
            }
            SimOperatorRequest::SetImage => {
                let value = &self.instance_info;
                let op = json!([{"op": "add", "path": "/instance_info", "value": value}]);
                ("PATCH", node, op)
            }
            SimOperatorRequest::SetExtra(count) => {
                let op = json!([{"op": "add", "path": "/extra/count", "value": count}]);
                ("PATCH", node, op)
            }
            SimOperatorRequest::Verb(verb) => {
                let mut body = json!({ "target": verb.as_str() });
                match verb {
                    Verb::Rescue => body["rescue_password"] = json!(RESCUE_PASSWORD),
                    Verb::Service => body["service_steps"] = service_steps(),
                    _ => {}
                }
                ("PUT", format!("{node}/states/provision"), body)
            }
            SimOperatorRequest::EndMaintenance => {
                ("DELETE", format!("{node}/maintenance"), Value::Null)
            }
        };
        let query = match self.sent {
            SimOperatorRequest::ReadNode => {
                "fields=provision_state,last_error,maintenance,inspection_finished_at,\
                 instance_info,extra"
            }
            _ => "",
        };
        let body = if body.is_null() {
            Vec::new()
        } else {
            body.to_string().into_bytes()
        };
        SimHttpRequest {
            method,
            path,
            query: query.to_owned(),
            version: Some(VERSION.to_owned()),
            body,
            certificate: None,
            timeout_ms: HTTP_TIMEOUT_MS,
        }
    }

    fn node_body(&self) -> Value {
        json!({
            "uuid": self.node.to_string(),
            "name": format!("node-{}", self.machine),
            "driver": "ipmi",
            "resource_class": CLASS,
            "driver_info": {
                "ipmi_address": bmc_address(self.bmc_of).to_string(),
                "ipmi_username": BMC_USER, "ipmi_password": self.bmc_password,
            },
            "properties": self.properties,
        })
    }

    /// Handles a response; returns the delay until its next request, unless it has finished.
    pub(crate) fn handle_response(&mut self, answer: SimHttpResult) -> Option<u64> {
        let status = answer.as_ref().map(|(status, _)| *status);
        let requested = self.sent;
        self.next = SimOperatorRequest::ReadNode;
        match (requested, status) {
            // Repeating is safe: an existing record gives a conflict.
            (
                SimOperatorRequest::CreateImage
                | SimOperatorRequest::CreateNode
                | SimOperatorRequest::CreatePort,
                None | Some(503),
            ) => self.next = requested,
            (SimOperatorRequest::CreateImage, _) | (SimOperatorRequest::ReadNode, Some(404)) => {
                self.next = SimOperatorRequest::CreateNode;
            }
            (SimOperatorRequest::CreateNode, Some(201 | 409)) => {
                self.next = SimOperatorRequest::CreatePort;
            }
            (SimOperatorRequest::CreatePort, Some(201 | 409)) => self.has_port = true,
            (SimOperatorRequest::ReadNode, Some(200)) => {
                let body = answer.map(|(_, body)| body).unwrap_or_default();
                let node = serde_json::from_slice(&body).unwrap_or_default();
                return self.decide(&node);
            }
            _ => {}
        }
        Some(if self.next == SimOperatorRequest::ReadNode {
            POLL_MS
        } else {
            200
        })
    }

    /// Decides by the node's record.
    fn decide(&mut self, node: &Value) -> Option<u64> {
        let state = node["provision_state"].as_str().unwrap_or_default();
        let Ok(state) = state.parse::<ProvisionState>() else {
            return Some(POLL_MS);
        };
        if !self.has_port {
            self.next = SimOperatorRequest::CreatePort;
            return Some(100);
        }
        if self.goal == SimOperatorGoal::Enrolled {
            self.end = Some(SimOperatorOutcome::GivenUp);
            return None;
        }
        let failed = state.is_failure()
            || (state == ProvisionState::Enroll && !node["last_error"].is_null());
        if failed {
            self.failures += 1;
            if self.failures > FAILURES_MAX {
                self.end = Some(SimOperatorOutcome::GivenUp);
                return None;
            }
        }
        if node["maintenance"] == json!(true) {
            self.next = SimOperatorRequest::EndMaintenance;
            return Some(100);
        }
        if self.extra > 0 && !state.is_resting() && node["extra"]["count"] != json!(self.extra) {
            self.next = SimOperatorRequest::SetExtra(self.extra);
            return Some(100);
        }
        if self.aborts && state.is_waiting() {
            self.aborts = false;
            self.next = SimOperatorRequest::Verb(Verb::Abort);
            return Some(100);
        }
        self.choose_verb(state, node)
    }

    fn choose_verb(&mut self, state: ProvisionState, node: &Value) -> Option<u64> {
        let verb = match state {
            ProvisionState::Enroll | ProvisionState::CleanFail => Verb::Manage,
            ProvisionState::Manageable => {
                self.inspected |= !node["inspection_finished_at"].is_null();
                if self.inspected {
                    Verb::Provide
                } else {
                    Verb::Inspect
                }
            }
            ProvisionState::InspectFail => Verb::Inspect,
            ProvisionState::Available if self.available_ms > 0 => {
                return Some(std::mem::take(&mut self.available_ms));
            }
            ProvisionState::Available | ProvisionState::DeployFail => {
                if node["instance_info"]["image_source"].is_null() {
                    self.next = SimOperatorRequest::SetImage;
                    return Some(100);
                }
                Verb::Active
            }
            ProvisionState::Error => Verb::Deleted,
            ProvisionState::Rescue | ProvisionState::RescueFail | ProvisionState::UnrescueFail => {
                Verb::Unrescue
            }
            ProvisionState::ServiceHold => Verb::Unhold,
            ProvisionState::ServiceFail => Verb::Service,
            ProvisionState::Active => {
                let Some(verb) = self.verbs_left.pop() else {
                    self.end = Some(SimOperatorOutcome::Active);
                    return None;
                };
                verb
            }
            _ => return Some(POLL_MS),
        };
        self.next = SimOperatorRequest::Verb(verb);
        Some(100)
    }
}
