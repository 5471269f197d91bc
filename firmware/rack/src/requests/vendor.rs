//! Vendor methods: a command to a BMC or an agent, with a deferred reply to the caller. The BMC's
//! part is in `trivet_bmc`, the agent's in `agents/vendor.rs`.

use trivet_bmc::DEFERRED_REPLIES_MAX;
use trivet_model::order::VendorMethod;
use trivet_model::{Node, NodeId, Now, OrderRefusal, RefusalKind};

use crate::Rack;

impl Rack {
    /// Starts a vendor method. The reply is deferred, unless the method is refused.
    pub(crate) fn vendor(
        &mut self,
        now: Now,
        ticket: u64,
        id: NodeId,
        method: VendorMethod,
    ) -> Result<(), OrderRefusal> {
        let node = self.require_node(id)?;
        if self.replies_awaited() >= DEFERRED_REPLIES_MAX {
            let sentence = "Too many vendor methods are under way; try again in a moment.";
            return Err(OrderRefusal::new(RefusalKind::Unavailable, sentence));
        }
        if self.bmcs.awaits_reply(id) || self.agents.awaits_reply(id) {
            return Err(conflict(
                id,
                "another vendor method is under way; wait for its end",
            ));
        }
        match method {
            VendorMethod::BmcRequest(request) => {
                bmc_is_free(&node)?;
                let (bmcs, mut context) = self.bmcs_and_context(now);
                bmcs.vendor_request(&mut context, id, ticket, request);
            }
            VendorMethod::Bmc(order) => {
                bmc_is_free(&node)?;
                let (bmcs, mut context) = self.bmcs_and_context(now);
                bmcs.vendor_order(&mut context, id, ticket, order);
            }
            VendorMethod::Agent {
                command,
                params,
                wait,
            } => {
                self.vendor_command(now, ticket, &node, (command, params, wait))?;
            }
        }
        Ok(())
    }

    /// How many replies are deferred.
    pub(crate) fn replies_awaited(&self) -> usize {
        self.bmcs.replies_awaited() + self.agents.replies_awaited()
    }
}

/// Refuses where a job uses the BMC.
fn bmc_is_free(node: &Node) -> Result<(), OrderRefusal> {
    if node.job.is_none() || node.provision_state.is_waiting() {
        return Ok(());
    }
    let state = node.provision_state;
    let why = format!("it is busy ({state}); wait until that is done");
    Err(conflict(node.id, &why))
}

pub(crate) fn conflict(id: NodeId, why: &str) -> OrderRefusal {
    OrderRefusal::new(RefusalKind::Conflict, format!("Node {id}: {why}."))
}
