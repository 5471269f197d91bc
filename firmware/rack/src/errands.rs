//! Errands: what is asked of a BMC beside power, whatever protocol it speaks.
//!
//! An errand is a vendor method with another bound: its answer is owed, there is one for
//! a node, and it waits its turn behind the orders that the BMC has already.

use serde_json::json;
use trivet_hardware::{Kind, interface};
use trivet_model::errand::ERRAND_MS_MAX;
use trivet_model::{Errand, Findings, Node, NodeId, Now, PowerError};

use crate::Rack;
use crate::switching::Way;

/// How long the answer to an errand may be owed: orders before it may take their time too.
pub(crate) const OWED_MS_MAX: u64 = ERRAND_MS_MAX + 60_000;

/// Who runs an errand: what manages the machine.
pub(crate) fn way(node: &Node) -> Way {
    let said = match interface(node, Kind::Management) {
        "ipmitool" => return Way::Ipmi,
        "redfish" => return Way::Redfish,
        "fake" => "this node's hardware is pretended, and there is no BMC to ask",
        "noop" => "nobody manages this node's hardware for the box; choose a driver with a BMC",
        _ => "this box does not know the node's hardware type; choose another driver",
    };
    Way::None(PowerError::Unsupported { said })
}

impl Rack {
    /// Sends an errand to who can run it. Its number comes back with the answer.
    pub(crate) fn give_errand(&mut self, now: Now, node: &Node, number: u64, errand: &Errand) {
        let way = way(node);
        if matches!(way, Way::Ipmi | Way::Redfish)
            && let Some(error) = self.shared_bmc(node.id)
        {
            return self.errand_answered(now, node.id, number, Err(error));
        }
        let given = match way {
            Way::Ipmi => self
                .lines
                .errand(now.tick, node, number, errand, &mut *self.entropy),
            Way::Redfish => self.services.errand(now.tick, node, number, errand),
            Way::None(error) => Err(error),
            Way::Host | Way::Pretended => Err(PowerError::Unsupported {
                said: "this node has no BMC to ask",
            }),
        };
        if let Err(error) = given {
            self.errand_answered(now, node.id, number, Err(error));
        }
    }

    /// An errand has ended, whoever ran it.
    pub(crate) fn errand_answered(
        &mut self,
        now: Now,
        id: NodeId,
        number: u64,
        result: Result<Findings, PowerError>,
    ) {
        // One that nobody waits for any more was noted when the wait ended.
        let Some(errand) = self.owed_errand(id, number) else {
            return;
        };
        let outcome = match &result {
            // Who asked is noted, and nothing has changed.
            Ok(_) if errand.reads() => None,
            Ok(_) => Some("done".to_owned()),
            Err(error) => Some(error.to_string()),
        };
        if let Some(outcome) = outcome {
            self.note_vendor(now, id, errand.word().to_owned(), outcome);
        }
        if let Ok(findings) = &result {
            self.keep_modes(now, id, &errand, findings);
        }
        let result = result.map(|findings| findings.value());
        let result = result.map_err(|error| crate::vendor::refusal(id, &error));
        self.keep_promise(id, result);
    }

    /// How the firmware boots stands in the node's record, as far as the BMC told it.
    pub(crate) fn keep_modes(
        &mut self,
        now: Now,
        id: NodeId,
        errand: &Errand,
        findings: &Findings,
    ) {
        let (field, value) = match (errand, findings) {
            (Errand::SetBootMode(mode), _) | (_, Findings::BootMode(Some(mode))) => {
                ("boot_mode", json!(mode))
            }
            (Errand::SetSecureBoot(on), _) | (_, Findings::SecureBoot(Some(on))) => {
                ("secure_boot", json!(on))
            }
            _ => return,
        };
        let Some(node) = self.book.node(id) else {
            return;
        };
        if node.kept.get(field) != Some(&value) {
            let mut node = (**node).clone();
            node.kept.insert(field.to_owned(), value);
            self.book.put_node(now, node);
        }
    }
}
