//! Checkers: they know the invariants, and nothing of how the box keeps them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use serde_json::Value;
use trivet_model::secret::MASK;
use trivet_model::{MacAddr, Node, NodeId, ProvisionState, RackView, ResourceKind};
use trivet_store::StoreRecords;

use crate::network::{SimHttpClient, SimHttpExchange};
use crate::operator::RESCUE_PASSWORD;

mod agents;
mod bmc;

use agents::AgentCallChecks;
use bmc::BmcTrafficChecks;

/// What was observed, and the violations.
#[derive(Debug, Default)]
pub(crate) struct InvariantChecks {
    /// Tokens that the box sent in clear text.
    tokens: BTreeSet<String>,
    /// Records whose creation was acknowledged.
    created: BTreeSet<String>,
    /// Records whose deletion was requested, with any result, and those that were deleted.
    deletions_requested: BTreeSet<String>,
    deleted: BTreeSet<String>,
    /// The least `extra.count` that was acknowledged.
    counts: BTreeMap<NodeId, u64>,
    /// The revision each node had when a change of it was last acknowledged.
    revisions: BTreeMap<NodeId, u64>,
    /// How many allocations got a node.
    pub(crate) allocated: usize,
    /// Checks of the traffic to BMCs.
    pub(crate) bmcs: BmcTrafficChecks,
    /// Checks of the calls to stock agents.
    pub(crate) agents: AgentCallChecks,
    pub(crate) violations: Vec<String>,
}

impl InvariantChecks {
    fn fail(&mut self, sentence: String) {
        if self.violations.len() < 20 {
            self.violations.push(sentence);
        }
    }

    /// Records the violation of another checker, if there is one.
    pub(crate) fn report(&mut self, sentence: Option<String>) {
        if let Some(sentence) = sentence {
            self.fail(sentence);
        }
    }

    /// Checks text for people or logs.
    pub(crate) fn check_no_token(&mut self, place: &str, words: &str) {
        if self.tokens.iter().any(|token| words.contains(token)) {
            self.fail(format!("{place} shows an agent's token: {words}"));
        }
    }

    /// Checks a changed node record.
    pub(crate) fn check_node(&mut self, node: &Node) {
        let (name, state) = (node.label(), node.provision_state);
        for words in [&node.last_error, &node.maintenance_reason] {
            self.check_no_token(&name, words.as_deref().unwrap_or_default());
        }
        if state.is_failure() && node.last_error.is_none() {
            self.fail(format!("{name} is in {state} without a last_error"));
        }
    }

    /// A client sends a request; the box may not receive it.
    pub(crate) fn request_sent(&mut self, exchange: &SimHttpExchange) {
        if exchange.method == "DELETE" {
            self.deletions_requested.extend(last_path_segment(exchange));
        }
    }

    /// The API sends a response, with this snapshot.
    pub(crate) fn response_sent(
        &mut self,
        exchange: &SimHttpExchange,
        status: u16,
        body: &[u8],
        view: &RackView,
    ) {
        let secret = RESCUE_PASSWORD.as_bytes();
        if body.windows(secret.len()).any(|part| part == secret) {
            self.fail(format!("{} showed the rescue password", exchange.path));
        }
        if exchange.path != trivet_agent_wire::LOOKUP_PATH {
            self.check_no_token(&exchange.path, &String::from_utf8_lossy(body));
        }
        if !exchange.api || status >= 300 {
            return;
        }
        let read = || serde_json::from_slice::<Value>(body).unwrap_or_default();
        if exchange.path == trivet_agent_wire::LOOKUP_PATH {
            self.check_token(&read());
        }
        if exchange.client == SimHttpClient::Impostor && exchange.method == "POST" {
            self.fail(format!(
                "a forged heartbeat was accepted: {}",
                exchange.path
            ));
        }
        if exchange.client == SimHttpClient::Allocator {
            self.check_references(view);
        }
        match (exchange.method, status) {
            // Undeploying frees an allocation, which may then be deleted.
            ("POST", 201) if exchange.path == "/v1/allocations" => {
                // The answer says `allocating`, as Ironic's does: the record has the node.
                let created = read()["uuid"].clone();
                let of_kind = view.resources.iter().filter(|((kind, _), allocation)| {
                    *kind == ResourceKind::Allocation && allocation.node.is_some()
                });
                let mut ids = of_kind.map(|((_, id), _)| id.to_string());
                self.allocated += usize::from(ids.any(|id| created == id.as_str()));
            }
            ("POST", 201) => {
                self.created
                    .extend(read()["uuid"].as_str().map(str::to_owned));
            }
            ("DELETE", 204) if exchange.client == SimHttpClient::Allocator => {
                self.deleted.extend(last_path_segment(exchange));
            }
            ("PATCH" | "PUT" | "DELETE", 200 | 202 | 204) => {
                let id = exchange
                    .path
                    .split('/')
                    .nth(3)
                    .and_then(|id| id.parse().ok());
                let node = id.and_then(|id: NodeId| view.nodes.get(&id));
                if let Some(node) = node {
                    let node = &node.node;
                    self.revisions.insert(node.id, node.revision);
                    let count = node.extra.get("count").and_then(Value::as_u64);
                    self.counts.extend(count.map(|count| (node.id, count)));
                }
            }
            _ => {}
        }
    }

    /// No record refers to a missing one, and no node is in two allocations.
    fn check_references(&mut self, view: &RackView) {
        let wrong = crate::allocation_checks::first_violation(
            view.nodes.values().map(|view| &*view.node),
            view.ports.values().map(|port| &**port),
            view.resources.values().map(|resource| &**resource),
        );
        if let Some(sentence) = wrong {
            self.fail(sentence);
        }
    }

    fn check_token(&mut self, found: &Value) {
        let token = found["config"]["agent_token"].as_str().unwrap_or_default();
        if token == MASK {
            return;
        }
        if token.len() < trivet_agent_wire::TOKEN_CHARS_MIN {
            self.fail(format!(
                "a lookup was answered with the short token {token:?}"
            ));
        }
        if !self.tokens.insert(token.to_owned()) {
            self.fail(format!("the token {token} was handed out twice"));
        }
    }

    /// The box has restarted with these records. They must be those of its last durable batch,
    /// or completely those of the batch whose commit was interrupted.
    pub(crate) fn check_restart(
        &mut self,
        records: &StoreRecords,
        durable: &RackView,
        tried: Option<&RackView>,
    ) {
        let whole = tried.is_some_and(|tried| difference(records, tried).is_none());
        if let Some(lost) = difference(records, durable)
            && !whole
        {
            let tried = tried.and_then(|tried| difference(records, tried));
            self.fail(format!(
                "after a restart {lost}; against the cut batch: {tried:?}"
            ));
        }
        let wrong = crate::allocation_checks::first_violation(
            records.nodes.values(),
            records.ports.values(),
            records.resources.values(),
        );
        self.violations
            .extend(wrong.map(|wrong| format!("after a restart {wrong}")));
        let resource = |id: &str| {
            id.parse()
                .is_ok_and(|id| records.resources.contains_key(&id))
        };
        for id in self.deleted.iter().filter(|id| resource(id)) {
            self.violations
                .push(format!("the record {id} was deleted and is there again"));
        }
        for id in self.created.difference(&self.deletions_requested) {
            let node = id.parse().is_ok_and(|id| records.nodes.contains_key(&id));
            let port = id.parse().is_ok_and(|id| records.ports.contains_key(&id));
            if !node && !port && !resource(id) {
                self.violations
                    .push(format!("the acknowledged record {id} is lost"));
            }
        }
        for (id, revision) in &self.revisions {
            let found = records.nodes.get(id).map(|node| node.revision);
            if found.is_none_or(|found| found < *revision) {
                let sentence = format!("node {id} is at {found:?}, acknowledged was {revision}");
                self.violations.push(sentence);
            }
        }
        for (id, count) in &self.counts {
            let node = records.nodes.get(id);
            let found = node.and_then(|node| node.extra.get("count")?.as_u64());
            if found.is_none_or(|found| found < *count) {
                self.violations
                    .push(format!("node {id} lost its acknowledged count {count}"));
            }
        }
    }

    /// The addresses in use by clients; each must be unique.
    pub(crate) fn check_unique_addresses(&mut self, held: &[(MacAddr, Ipv4Addr)]) {
        let mut holders: BTreeMap<Ipv4Addr, MacAddr> = BTreeMap::new();
        for (mac, address) in held {
            if let Some(other) = holders.insert(*address, *mac) {
                self.fail(format!("{address} is held by {other} and by {mac}"));
            }
        }
    }

    /// An address in use must be in the records of a box that restarts.
    pub(crate) fn check_leases(&mut self, held: &[(MacAddr, Ipv4Addr)], records: &StoreRecords) {
        for (mac, address) in held {
            let found = records.leases.get(mac).map(|lease| lease.address);
            if found != Some(*address) {
                self.fail(format!("{mac} holds {address}, flash says {found:?}"));
            }
        }
    }

    /// A machine boots from its disk while its node is in this state.
    pub(crate) fn check_disk_boot(&mut self, machine: usize, active: bool, verified: bool) {
        if active && !verified {
            self.fail(format!(
                "machine {machine} is active and boots an unverified disk"
            ));
        }
    }

    /// The simulation has ended: every node is in a stable state, or has an error.
    pub(crate) fn check_final_states(&mut self, view: &RackView, all_active: bool) {
        for node in view.nodes.values().map(|view| &view.node) {
            let (name, state) = (node.label(), node.provision_state);
            let shows = node.last_error.is_some() || node.maintenance;
            if !state.is_resting() && !shows {
                let job = node.job.as_ref().map(|job| job.phase);
                self.fail(format!(
                    "{name} is neither stable nor has an error: {state}, {job:?}"
                ));
            }
            if node.job.is_none() && node.instance_info.contains_key("hashed_rescue_password") {
                self.fail(format!("{name} keeps a rescue password that is not needed"));
            }
            if state.is_resting() && node.job.is_some() {
                self.fail(format!("{name} is in {state} with a job"));
            }
            if state.is_failure() && !shows {
                self.fail(format!("{name} is in {state} without a reason"));
            }
            if all_active && state != ProvisionState::Active {
                let why = &node.last_error;
                self.fail(format!("no fault happened, but {name} is {state}: {why:?}"));
            }
        }
    }
}

/// The last segment of the path: the record that a request is about.
fn last_path_segment(exchange: &SimHttpExchange) -> Option<String> {
    exchange.path.rsplit('/').next().map(str::to_owned)
}

/// The difference between records and a snapshot, if there is one.
fn difference(records: &StoreRecords, view: &RackView) -> Option<String> {
    if records.nodes.len() != view.nodes.len() || records.ports.len() != view.ports.len() {
        return Some(format!(
            "there are {} nodes and {} ports instead of {} and {}",
            records.nodes.len(),
            records.ports.len(),
            view.nodes.len(),
            view.ports.len()
        ));
    }
    let node = view
        .nodes
        .iter()
        .find(|(id, shown)| records.nodes.get(id) != Some(&*shown.node));
    if let Some((id, shown)) = node {
        let found = records
            .nodes
            .get(id)
            .map(|node| (node.revision, node.provision_state));
        let wanted = (shown.node.revision, shown.node.provision_state);
        return Some(format!("node {id} is {found:?} instead of {wanted:?}"));
    }
    let port = view
        .ports
        .iter()
        .find(|(id, shown)| records.ports.get(id) != Some(&**shown));
    if let Some((id, _)) = port {
        return Some(format!("port {id} differs"));
    }
    let shown = &view.resources;
    if records.resources.len() != shown.len() {
        let (found, wanted) = (records.resources.len(), shown.len());
        return Some(format!("there are {found} resources instead of {wanted}"));
    }
    let resource = shown
        .iter()
        .find(|(key, shown)| records.resources.get(&key.1) != Some(&***shown));
    if let Some((key, _)) = resource {
        return Some(format!("{} {} differs", key.0, key.1));
    }
    story_difference(records, view)
}

/// The difference between stored stories and those of a snapshot, if there is one.
fn story_difference(records: &StoreRecords, view: &RackView) -> Option<String> {
    for (id, node) in view.nodes.iter() {
        if records.stories.get(id) != node.story.finished.as_deref() {
            return Some(format!("the finished jobs of node {id} differ"));
        }
        // The evidence is for the diagnosis, not for readers.
        let stored = records.jobs.get(id).cloned().map(|mut job| {
            job.evidence = serde_json::Value::Null;
            job
        });
        if stored.as_ref() != node.story.running.as_deref() {
            return Some(format!("the notes of the job of node {id} differ"));
        }
    }
    let shown = view.audit.iter().map(|(number, entry)| (number, &**entry));
    let differs = !records.audit.iter().eq(shown);
    differs.then(|| "the requests of callers differ".to_owned())
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    fn lookup(token: &str) -> (Rc<SimHttpExchange>, Vec<u8>) {
        let exchange = SimHttpExchange {
            number: 1,
            client: SimHttpClient::Operator { index: 0 },
            peer: Ipv4Addr::LOCALHOST,
            api: true,
            method: "GET",
            path: trivet_agent_wire::LOOKUP_PATH.to_owned(),
            query: String::new(),
            version: Some("1.62".to_owned()),
            body: Vec::new(),
            certificate: None,
        };
        let body = serde_json::json!({"config": {"agent_token": token}});
        (Rc::new(exchange), body.to_string().into_bytes())
    }

    #[test]
    fn detects_a_token_that_is_sent_twice_but_not_its_mask() {
        let mut checks = InvariantChecks::default();
        let (token, view) = ("t".repeat(43), RackView::default());
        for (text, broken) in [
            (token.as_str(), 0),
            (MASK, 0),
            (MASK, 0),
            (token.as_str(), 1),
        ] {
            let (exchange, body) = lookup(text);
            checks.response_sent(&exchange, 200, &body, &view);
            assert_eq!(checks.violations.len(), broken);
        }
    }

    #[test]
    fn detects_an_address_with_two_holders() {
        let mut checks = InvariantChecks::default();
        let (one, other) = (MacAddr([1; 6]), MacAddr([2; 6]));
        checks
            .check_unique_addresses(&[(one, [10, 0, 0, 1].into()), (other, [10, 0, 0, 2].into())]);
        assert!(checks.violations.is_empty());
        checks
            .check_unique_addresses(&[(one, [10, 0, 0, 1].into()), (other, [10, 0, 0, 1].into())]);
        assert_eq!(checks.violations.len(), 1);
    }

    #[test]
    fn detects_a_lease_that_is_not_on_flash() {
        let mut checks = InvariantChecks::default();
        checks.check_leases(
            &[(MacAddr([1; 6]), [10, 0, 0, 1].into())],
            &StoreRecords::default(),
        );
        assert_eq!(checks.violations.len(), 1);
    }

    #[test]
    fn detects_an_unverified_boot_only_when_active() {
        let mut checks = InvariantChecks::default();
        checks.check_disk_boot(0, false, false);
        checks.check_disk_boot(0, true, true);
        assert!(checks.violations.is_empty());
        checks.check_disk_boot(0, true, false);
        assert_eq!(checks.violations.len(), 1);
    }
}
