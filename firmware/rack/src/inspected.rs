//! What an agent found in its machine: properties where none are known, ports for its
//! interfaces, and the inventory.

use std::net::IpAddr;

use serde_json::Value;
use trivet_inspect::Findings;
use trivet_model::node::Object;
use trivet_model::{Done, NodeId, NoteKind, Now, Phase, Port, PortId, ProvisionState};
use trivet_model::{Node, Refusal, RefusalKind};
use trivet_node::Event;

use crate::{Rack, RefusedAgent};

const CAPABILITIES: &str = "capabilities";

const NOT_INSPECTED: &str = "it sends inspection data while the node is not being inspected";

impl Rack {
    pub(crate) fn inventory(
        &mut self,
        now: Now,
        from: IpAddr,
        document: &Value,
    ) -> Result<Done, Refusal> {
        let findings = trivet_inspect::read(document).map_err(|problem| {
            let sentence = problem.to_string();
            self.findings_refused(now, from, document, &sentence);
            Refusal::new(RefusalKind::Invalid, sentence)
        })?;
        let id = self
            .only_owner(now, from, &findings.macs)
            .ok_or_else(Self::nothing_found)?;
        let mut node = self.known(id)?;
        // Data are taken only for a node that is being inspected.
        let phase = node.job.as_ref().map(|job| job.phase);
        let early =
            node.provision_state == ProvisionState::Inspecting && phase == Some(Phase::PowerOn);
        if node.provision_state != ProvisionState::InspectWait && !early {
            self.note_refused(now, id, from, NOT_INSPECTED);
            return Err(Self::nothing_found());
        }
        let proof = self.check_findings(now, &node, from)?;
        if early {
            // Its BMC has not confirmed the power-on yet: agents send again after a conflict.
            let sentence = format!("Node {id} is being switched on; send again.");
            return Err(Refusal::new(RefusalKind::Conflict, sentence));
        }
        self.keep_caller(now, &mut node, from, proof);
        self.book.put_node(now, node.clone());
        self.make_ports(now, id, &findings);
        self.gate.arrived(id);
        self.events.push_back((
            id,
            Event::Inspected {
                properties: missing(&node, findings.properties),
                inventory: findings.kept,
                complaint: findings.complaint,
            },
        ));
        Ok(Done::Inspected(id))
    }

    /// Whoever asked for the inspection learns why it came to nothing.
    fn findings_refused(&mut self, now: Now, from: IpAddr, document: &Value, why: &str) {
        let owner = self.only_owner(now, from, &trivet_inspect::addresses(document));
        let refused = RefusedAgent {
            from,
            node: owner,
            request: "inspection data",
            why: why.to_owned(),
        };
        self.agent_refused(now, &refused);
        let waits = |node: &Node| node.provision_state == ProvisionState::InspectWait;
        if let Some(id) = owner
            && let Ok(node) = self.known(id)
            && waits(&node)
            && self.check_findings(now, &node, from).is_ok()
        {
            let why = why.to_owned();
            self.events.push_back((id, Event::NotInspected { why }));
        }
    }

    /// A port for each interface that is nobody's yet and was heard on a network: what an
    /// inventory only claims could be any machine's address. Only the one that the machine booted
    /// from is known to boot; where that is not known, all may.
    fn make_ports(&mut self, now: Now, id: NodeId, findings: &Findings) {
        for mac in &findings.macs {
            if self.book.view.macs.contains_key(mac) {
                continue;
            }
            if !self.was_heard(*mac) {
                self.note(now, Some(id), NoteKind::PortUnheard { mac: *mac });
                continue;
            }
            let port = Port {
                id: PortId::random(&mut *self.entropy),
                revision: 0,
                serial: 0,
                node: id,
                address: *mac,
                pxe_enabled: findings.pxe_mac.is_none_or(|pxe| pxe == *mac),
                extra: Object::new(),
                kept: Object::new(),
                created_at: now.wall,
                updated_at: None,
            };
            // A box that holds as many ports as it can does without this one.
            if self.create_port(now, port).is_ok() {
                self.note(now, Some(id), NoteKind::PortFound { mac: *mac });
            }
        }
    }
}

/// What was found and nobody has said: an operator knows better.
fn missing(node: &Node, found: Object) -> Object {
    let known = |key: &str| node.properties.get(key).filter(|value| !value.is_null());
    let text = |object: &Object| object.get(CAPABILITIES)?.as_str().map(str::to_owned);
    let capabilities = match (text(&found), text(&node.properties)) {
        (Some(newer), Some(older)) => Some(trivet_inspect::merged_capabilities(&newer, &older)),
        _ => None,
    };
    let found = found.into_iter().filter(|(key, _)| known(key).is_none());
    let merged = capabilities.map(|text| (CAPABILITIES.to_owned(), text.into()));
    found.chain(merged).collect()
}
