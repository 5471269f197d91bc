//! Errands: what is asked of a BMC beside power, whatever protocol it speaks.
//!
//! An errand is a vendor method with another bound: its answer is owed, there is one for
//! a node, and it waits its turn behind the orders that the BMC has already.

use trivet_hardware::{Kind, REDFISH_NOT_YET, interface};
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
        "redfish" => REDFISH_NOT_YET,
        "fake" => "this node's hardware is pretended, and there is no BMC to ask",
        "noop" => "nobody manages this node's hardware for the box; choose a driver with a BMC",
        _ => "this box does not know the node's hardware type; choose another driver",
    };
    Way::None(PowerError::Unsupported { said })
}

impl Rack {
    /// Sends an errand to who can run it. Its number comes back with the answer.
    pub(crate) fn give_errand(&mut self, now: Now, node: &Node, number: u64, errand: &Errand) {
        let given = match way(node) {
            Way::Ipmi => self
                .lines
                .errand(now.tick, node, number, errand, &mut *self.entropy),
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
        let outcome = match &result {
            Ok(_) => "done".to_owned(),
            Err(error) => error.to_string(),
        };
        // One that nobody waits for any more was noted when the wait ended.
        if let Some(label) = self.owed_errand(id, number) {
            self.note_vendor(now, id, label, outcome);
            let result = result.map(|findings| findings.value());
            let result = result.map_err(|error| crate::vendor::refusal(id, &error));
            self.keep_promise(id, result);
        }
    }
}
