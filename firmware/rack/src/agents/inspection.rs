//! The results of an agent's inspection: properties where none are set, ports for the machine's
//! interfaces, and the inventory.

use std::net::IpAddr;

use serde_json::Value;
use trivet_agent_inventory::InspectionResult;
use trivet_model::node::JsonObject;
use trivet_model::{
    ApiCaller, JobPhase, MacAddr, NodeId, NoteKind, Now, OrderOutcome, Port, PortId, ProvisionState,
};
use trivet_model::{Node, OrderRefusal, RefusalKind};
use trivet_node::NodeEvent;

use crate::{Rack, RefusedAgent};

const CAPABILITIES: &str = "capabilities";

const NOT_INSPECTED: &str = "it sends inspection data while the node is not being inspected";

impl Rack {
    pub(crate) fn inventory(
        &mut self,
        now: Now,
        caller: &ApiCaller,
        document: &Value,
    ) -> Result<OrderOutcome, OrderRefusal> {
        let from = caller.from;
        let findings = trivet_agent_inventory::read(document).map_err(|problem| {
            let sentence = problem.to_string();
            self.inspection_refused(now, from, document, &sentence);
            OrderRefusal::new(RefusalKind::Invalid, sentence)
        })?;
        let by_mac = self.only_owner(now, from, &findings.macs);
        let id = by_mac.or_else(|| {
            let unknown = |mac: &MacAddr| self.records.node_of_mac(*mac).is_none();
            let all_unknown = findings.macs.iter().all(unknown);
            all_unknown.then(|| self.owner_by_bmc(now, from, &findings))?
        });
        let mut node = self.require_node(id.ok_or_else(Self::nothing_found)?)?;
        let id = node.id;
        // Data are accepted only for a node that is being inspected.
        let phase = node.job.as_ref().map(|job| job.phase);
        let early =
            node.provision_state == ProvisionState::Inspecting && phase == Some(JobPhase::PowerOn);
        if node.provision_state != ProvisionState::InspectWait && !early {
            self.note_refused(now, id, from, NOT_INSPECTED);
            return Err(Self::nothing_found());
        }
        let strength = self.check_certificate(now, &node, caller)?;
        let proof = match by_mac {
            Some(_) => self.check_inspection_caller(now, &node, from)?,
            None => self.check_found_by_bmc(now, &node, from, &findings)?,
        };
        if early {
            // Its BMC has not confirmed the power-on yet: agents send again after a conflict.
            let sentence = format!("Node {id} is being switched on; send again.");
            return Err(OrderRefusal::new(RefusalKind::Conflict, sentence));
        }
        self.record_caller(now, &mut node, from, strength.or(proof));
        self.records.put_node(now, node.clone());
        self.make_ports(now, id, &findings);
        if by_mac.is_none() {
            // Its boot was not seen, because its addresses were not known.
            self.agents.restart_seen(id);
        }
        self.boot.boot_finished(id);
        self.events.push_back((
            id,
            NodeEvent::Inspected {
                properties: missing(&node, findings.properties),
                inventory: findings.stored,
                complaint: findings.complaint,
            },
        ));
        Ok(OrderOutcome::Inspected(id))
    }

    /// Notes why inspection data were refused, so that the operator sees why the inspection
    /// failed.
    fn inspection_refused(&mut self, now: Now, from: IpAddr, document: &Value, why: &str) {
        let owner = self.only_owner(now, from, &trivet_agent_inventory::addresses(document));
        let refused = RefusedAgent {
            from,
            node: owner,
            request: "inspection data",
            why: why.to_owned(),
        };
        self.agent_refused(now, &refused);
        let waits = |node: &Node| node.provision_state == ProvisionState::InspectWait;
        if let Some(id) = owner
            && let Ok(node) = self.require_node(id)
            && waits(&node)
            && self.check_inspection_caller(now, &node, from).is_ok()
        {
            let why = why.to_owned();
            self.events.push_back((id, NodeEvent::NotInspected { why }));
        }
    }

    /// Creates a port for each interface that has none yet and whose frames this box has
    /// received: an address that only the inventory contains could be any machine's. Only the
    /// interface that the machine booted from is known to boot; where that is not known, all
    /// may.
    fn make_ports(&mut self, now: Now, id: NodeId, findings: &InspectionResult) {
        for mac in &findings.macs {
            if self.records.view.macs.contains_key(mac) {
                continue;
            }
            if !self.was_seen(*mac) {
                self.note(now, Some(id), NoteKind::PortNeverSeen { mac: *mac });
                continue;
            }
            let port = Port {
                id: PortId::random(&mut *self.entropy),
                revision: 0,
                serial: 0,
                node: id,
                address: *mac,
                pxe_enabled: findings.pxe_mac.is_none_or(|pxe| pxe == *mac),
                extra: JsonObject::new(),
                attributes: trivet_model::attributes::PortAttributes::default(),
                created_at: now.wall,
                updated_at: None,
            };
            // If the box holds the maximum of ports, this one is left out.
            if self.create_port(now, port).is_ok() {
                self.note(now, Some(id), NoteKind::PortFound { mac: *mac });
            }
        }
    }
}

/// What was found and is not set: values of an operator are not replaced.
fn missing(node: &Node, found: JsonObject) -> JsonObject {
    let known = |key: &str| node.properties.get(key).filter(|value| !value.is_null());
    let text = |object: &JsonObject| object.get(CAPABILITIES)?.as_str().map(str::to_owned);
    let capabilities = match (text(&found), text(&node.properties)) {
        (Some(newer), Some(older)) => {
            Some(trivet_agent_inventory::merged_capabilities(&newer, &older))
        }
        _ => None,
    };
    let found = found.into_iter().filter(|(key, _)| known(key).is_none());
    let merged = capabilities.map(|text| (CAPABILITIES.to_owned(), text.into()));
    found.chain(merged).collect()
}
