//! Vendor methods and BMC requests of callers, whose replies are deferred until the BMC has
//! answered.

use serde_json::json;
use trivet_drivers::{management_interface, vendor_interface};
use trivet_model::power::HardwareHealth;
use trivet_model::{
    BmcFailureCause, BmcReply, BmcRequest, Node, NodeId, NoteKind, OrderRefusal, PowerAnswer,
    PowerError, PowerOrder, RefusalKind,
};

use crate::Bmcs;
use crate::context::BmcContext;
use crate::deferred_replies::{
    BMC_REPLY_MS_MAX, DEFERRED_REPLY_MS_MAX, DeferredReply, no_reply_in_time, node_deleted,
};
use crate::outcome::{BmcOutcome, BmcRequestOrigin};
use crate::protocol::BmcInterface;

/// The interface of a node that a BMC request belongs to.
pub(crate) fn interface_of(node: &Node, request: &BmcRequest) -> Option<BmcInterface> {
    if request.is_vendor_method() {
        vendor_interface(node).map(BmcInterface::Vendor)
    } else {
        management_interface(node).map(BmcInterface::Management)
    }
}

impl Bmcs {
    /// A BMC reports another state of the hardware of its machine.
    pub(crate) fn read_health(&mut self, node: NodeId, health: Option<HardwareHealth>) {
        let outcome = BmcOutcome::HardwareHealth { node, health };
        self.outcomes.push_back(outcome);
    }

    /// Whether a reply of this node's BMC is awaited by a caller.
    pub fn awaits_reply(&self, id: NodeId) -> bool {
        self.replies.get(id).is_some()
    }

    /// How many replies are awaited by callers.
    pub fn replies_awaited(&self) -> usize {
        self.replies.len()
    }

    /// Sends a vendor method that is one order: an interrupt, a restart of the BMC, or a raw
    /// command. The caller checked that none is under way.
    pub fn vendor_order(
        &mut self,
        context: &mut BmcContext,
        id: NodeId,
        ticket: u64,
        order: PowerOrder,
    ) {
        let reply = DeferredReply {
            ticket,
            due: context.now.after_ms(DEFERRED_REPLY_MS_MAX),
            label: label(order),
            source: None,
        };
        self.replies.insert(id, reply);
        self.send(context, id, order, BmcRequestOrigin::Vendor { ticket });
    }

    /// Sends a BMC request. The caller checked that none is under way.
    pub fn vendor_request(
        &mut self,
        context: &mut BmcContext,
        id: NodeId,
        ticket: u64,
        request: BmcRequest,
    ) {
        let reply = DeferredReply {
            ticket,
            due: context.now.after_ms(BMC_REPLY_MS_MAX),
            label: request.word().to_owned(),
            source: Some(request.clone()),
        };
        self.replies.insert(id, reply);
        let origin = BmcRequestOrigin::Vendor { ticket };
        self.send_request(context, id, origin, &request);
    }

    /// Notes the outcome of an order that is sent at most once, for any origin.
    pub(crate) fn note_single_order(
        &mut self,
        id: NodeId,
        order: PowerOrder,
        answer: &Result<PowerAnswer, PowerError>,
    ) {
        let outcome = match answer {
            Ok(PowerAnswer::Raw { code, .. }) => format!("completion code 0x{code:02x}"),
            Ok(_) => "accepted".to_owned(),
            Err(error) => error.to_string(),
        };
        self.note_vendor(id, label(order), outcome);
    }

    pub(crate) fn vendor_order_answered(
        &mut self,
        id: NodeId,
        ticket: u64,
        answer: Result<PowerAnswer, PowerError>,
    ) {
        // The caller of a reply that is late has its error already.
        if self
            .replies
            .get(id)
            .is_none_or(|reply| reply.ticket != ticket)
        {
            return;
        }
        self.replies.remove(id);
        let result = match answer {
            Ok(PowerAnswer::Raw { code, data }) => Ok(json!({
                "completion_code": format!("0x{code:02x}"),
                "data": data.to_string(),
            })),
            Ok(_) => Ok(json!({ "accepted": true })),
            Err(error) => Err(refusal(id, &error)),
        };
        self.outcomes
            .push_back(BmcOutcome::ReplyReady { ticket, result });
    }

    pub(crate) fn vendor_request_answered(
        &mut self,
        node: NodeId,
        ticket: u64,
        answer: Result<BmcReply, PowerError>,
    ) {
        if self.replies.get(node).is_none_or(|it| it.ticket != ticket) {
            return;
        }
        let Some(request) = self.replies.remove(node).and_then(|reply| reply.source) else {
            return;
        };
        let outcome = match &answer {
            // The caller is noted already, and nothing has changed.
            Ok(_) if request.is_read_only() => None,
            Ok(_) => Some("done".to_owned()),
            Err(error) => Some(error.to_string()),
        };
        if let Some(outcome) = outcome {
            self.note_vendor(node, request.word().to_owned(), outcome);
        }
        let result = match answer {
            Ok(reply) => {
                let value = reply.value();
                self.outcomes.push_back(BmcOutcome::RequestCompleted {
                    node,
                    request,
                    reply,
                });
                Ok(value)
            }
            Err(error) => Err(refusal(node, &error)),
        };
        self.outcomes
            .push_back(BmcOutcome::ReplyReady { ticket, result });
    }

    /// Replies with an error to the callers that waited too long.
    pub(crate) fn expire_replies(&mut self, context: &BmcContext) {
        for (id, reply) in self.replies.take_expired(context.now) {
            let refusal = no_reply_in_time(id, &reply.label);
            self.note_vendor(id, reply.label, "no answer in time".to_owned());
            self.outcomes.push_back(BmcOutcome::ReplyReady {
                ticket: reply.ticket,
                result: Err(refusal),
            });
        }
    }

    /// The node was deleted: its deferred reply becomes an error.
    pub(crate) fn cancel_reply(&mut self, id: NodeId) {
        if let Some(reply) = self.replies.remove(id) {
            self.outcomes.push_back(BmcOutcome::ReplyReady {
                ticket: reply.ticket,
                result: Err(node_deleted(id)),
            });
        }
    }

    fn note_vendor(&mut self, id: NodeId, method: String, outcome: String) {
        self.note(id, NoteKind::VendorCalled { method, outcome });
    }
}

fn label(order: PowerOrder) -> String {
    match order {
        PowerOrder::Nmi => "inject_nmi".to_owned(),
        PowerOrder::BmcReset { warm: true } => "bmc_reset warm".to_owned(),
        PowerOrder::BmcReset { warm: false } => "bmc_reset cold".to_owned(),
        // Data may hold a password, as that of Set User Password does.
        PowerOrder::Raw {
            netfn,
            command,
            data,
        } => {
            let bytes = data.as_slice().len();
            format!("send_raw 0x{netfn:02x} 0x{command:02x} and {bytes} bytes")
        }
        other => format!("{other:?}"),
    }
}

/// The error for the caller of a BMC that failed.
fn refusal(id: NodeId, error: &PowerError) -> OrderRefusal {
    let kind = match error {
        PowerError::NotConfigured { .. }
        | PowerError::SharedBmc { .. }
        | PowerError::Unsupported { .. } => RefusalKind::Invalid,
        PowerError::QueueFull => RefusalKind::Conflict,
        PowerError::Bmc {
            cause: BmcFailureCause::Missing,
            ..
        } => RefusalKind::NotFound,
        _ => RefusalKind::Failed,
    };
    OrderRefusal::new(kind, format!("Node {id}: {error}."))
}
