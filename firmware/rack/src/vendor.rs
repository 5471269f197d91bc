//! Vendor methods: a command to a BMC or an agent, with a deferred reply to the caller.
//!
//! Nothing of this is on flash. A restart of the box closes the callers' connections, and the
//! command is not sent again: it may have been carried out.

use serde_json::{Value, json};
use trivet_agent::RawAgentReply;
use trivet_model::node::JsonObject;
use trivet_model::order::VendorMethod;
use trivet_model::{
    AgentError, BmcRequest, JobPhase, Node, NodeId, NoteKind, Now, OrderOutcome, OrderRefusal,
    PowerAnswer, PowerError, PowerOrder, ProvisionState, RefusalKind, Tick,
};

use crate::bmc_requests::BMC_REPLY_WAIT_MS_MAX;
use crate::{Rack, RackOutput};

/// The most deferred replies at once.
pub const PENDING_REQUESTS_MAX: usize = 256;

/// How long a reply may be deferred, in ms. Longer than the time-out of a BMC or an agent,
/// because the orders before this one take time too.
const PENDING_REQUEST_MS_MAX: u64 = 90_000;

/// A deferred reply.
pub(crate) struct PendingVendorRequest {
    ticket: u64,
    due: Tick,
    /// The command, without data that may be secret.
    label: String,
    source: PendingReplySource,
}

enum PendingReplySource {
    BmcOrder(PowerOrder),
    /// The number of the BMC request, and the request.
    BmcRequest(u64, BmcRequest),
    /// The number of the call.
    Agent(u64),
}

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
        if self.pending_requests.len() >= PENDING_REQUESTS_MAX {
            let sentence = "Too many vendor methods are under way; try again in a moment.";
            return Err(OrderRefusal::new(RefusalKind::Unavailable, sentence));
        }
        if self.pending_requests.contains_key(&id) {
            return Err(conflict(
                id,
                "another vendor method is under way; wait for its end",
            ));
        }
        let due = now.tick.after_ms(PENDING_REQUEST_MS_MAX);
        match method {
            VendorMethod::BmcRequest(bmc_request) => {
                bmc_is_free(&node)?;
                self.calls += 1;
                let number = self.calls;
                let promise = PendingVendorRequest {
                    ticket,
                    due: now.tick.after_ms(BMC_REPLY_WAIT_MS_MAX),
                    label: bmc_request.word().to_owned(),
                    source: PendingReplySource::BmcRequest(number, bmc_request.clone()),
                };
                self.pending_requests.insert(id, promise);
                self.send_bmc_request(now, &node, number, &bmc_request);
            }
            VendorMethod::Bmc(order) => {
                bmc_is_free(&node)?;
                let promise = PendingVendorRequest {
                    ticket,
                    due,
                    label: label(order),
                    source: PendingReplySource::BmcOrder(order),
                };
                self.pending_requests.insert(id, promise);
                self.order_power(now, id, order);
            }
            VendorMethod::Agent {
                command,
                params,
                wait,
            } => {
                let call = self.call_agent_raw(&node, &command, params, wait)?;
                let promise = PendingVendorRequest {
                    ticket,
                    due,
                    label: format!("agent_command {command}"),
                    source: PendingReplySource::Agent(call),
                };
                self.pending_requests.insert(id, promise);
            }
        }
        Ok(())
    }

    fn call_agent_raw(
        &mut self,
        node: &Node,
        command: &str,
        params: JsonObject,
        wait: bool,
    ) -> Result<u64, OrderRefusal> {
        let id = node.id;
        if command == trivet_agent::COLLECT_LOGS {
            // They contain tokens in a compressed file, where redaction cannot find them.
            let sentence = format!(
                "{command} is not passed on, as logs contain secrets; request them by POST \
                 /trivet/nodes/{id}/logs (trivet node logs --collect), which redacts them."
            );
            return Err(OrderRefusal::new(RefusalKind::Invalid, sentence));
        }
        let called = self
            .transient
            .get(&id)
            .is_some_and(|waits| waits.call.is_some());
        let held = matches!(
            node.provision_state,
            ProvisionState::CleanHold | ProvisionState::DeployHold | ProvisionState::ServiceHold
        );
        let at_work = |phase| !held && phase != JobPhase::AwaitAgent;
        if called || node.job.as_ref().is_some_and(|job| at_work(job.phase)) {
            let why = format!(
                "its agent runs a job of the box ({}); wait until that is done",
                node.provision_state
            );
            return Err(conflict(id, &why));
        }
        let request = trivet_agent::raw_call(node, command, params, wait).map_err(|error| {
            let sentence = format!("Node {id} accepts no agent command: {error}.");
            OrderRefusal::new(RefusalKind::Invalid, sentence)
        })?;
        let session = node.agent.as_ref();
        self.calls += 1;
        self.outputs.push(RackOutput::CallAgent {
            node: id,
            call: self.calls,
            url: session
                .and_then(|agent| agent.url.clone())
                .unwrap_or_default(),
            verify_ca: session.and_then(|agent| agent.verify_ca.clone()),
            request,
        });
        Ok(self.calls)
    }

    /// A BMC replied to one of the orders that only vendor methods send.
    pub(crate) fn vendor_bmc_answered(
        &mut self,
        now: Now,
        id: NodeId,
        order: PowerOrder,
        answer: Result<PowerAnswer, PowerError>,
    ) {
        let outcome = match &answer {
            Ok(PowerAnswer::Raw { code, .. }) => format!("completion code 0x{code:02x}"),
            Ok(_) => "accepted".to_owned(),
            Err(error) => error.to_string(),
        };
        self.note_vendor(now, id, label(order), outcome);
        let asked = self.pending_requests.get(&id);
        let asked = asked.is_some_and(
            |owed| matches!(owed.source, PendingReplySource::BmcOrder(it) if it == order),
        );
        if !asked {
            // The reply is no longer awaited, or belongs to an escalation.
            return self.bmc_restart_answered(now, id, order, answer);
        }
        let result = match answer {
            Ok(PowerAnswer::Raw { code, data }) => Ok(json!({
                "completion_code": format!("0x{code:02x}"),
                "data": data.to_string(),
            })),
            Ok(_) => Ok(json!({ "accepted": true })),
            Err(error) => Err(refusal(id, &error)),
        };
        self.send_deferred_reply(id, result);
    }

    /// The BMC request of this number, if its reply is still deferred.
    pub(crate) fn pending_bmc_request(&self, id: NodeId, number: u64) -> Option<BmcRequest> {
        match &self.pending_requests.get(&id)?.source {
            PendingReplySource::BmcRequest(owed, bmc_request) if *owed == number => {
                Some(bmc_request.clone())
            }
            _ => None,
        }
    }

    /// Handles an agent's reply if it belongs to a vendor method.
    pub(crate) fn vendor_agent_answered(
        &mut self,
        now: Now,
        id: NodeId,
        call: u64,
        result: &mut Result<(u16, Vec<u8>), String>,
    ) -> bool {
        let owed = self.pending_requests.get(&id);
        let owed = owed.filter(
            |owed| matches!(owed.source, PendingReplySource::Agent(number) if number == call),
        );
        let Some(label) = owed.map(|owed| owed.label.clone()) else {
            return false;
        };
        let session = self.records.node(id).and_then(|node| node.agent.as_ref());
        let token = session.map_or("", |agent| agent.token.as_str());
        let failed = |error: AgentError| {
            let sentence = format!("Node {id}: {error}.");
            (
                error.to_string(),
                Err(OrderRefusal::new(RefusalKind::Failed, sentence)),
            )
        };
        let (outcome, result) = match result {
            Err(said) => {
                let url = session.and_then(|agent| agent.url.clone());
                failed(AgentError::Unreachable {
                    url: url.unwrap_or_default(),
                    said: trivet_agent::without_token(said.clone(), token),
                })
            }
            Ok((status, body)) => {
                trivet_agent::redact_token(body, token);
                match trivet_agent::raw_answer(*status, body) {
                    Ok(RawAgentReply::Busy) => {
                        let busy =
                            "its agent works on another command; try again when that is done";
                        (busy.to_owned(), Err(conflict(id, busy)))
                    }
                    Ok(RawAgentReply::Completed { status, document }) => (status, Ok(document)),
                    Err(error) => failed(error),
                }
            }
        };
        self.note_vendor(now, id, label, outcome);
        self.send_deferred_reply(id, result);
        true
    }

    pub(crate) fn note_vendor(&mut self, now: Now, id: NodeId, method: String, outcome: String) {
        self.note(now, Some(id), NoteKind::VendorCalled { method, outcome });
    }

    pub(crate) fn send_deferred_reply(&mut self, id: NodeId, result: Result<Value, OrderRefusal>) {
        if let Some(promise) = self.pending_requests.remove(&id) {
            let result = result.map(OrderOutcome::Reply);
            let ticket = promise.ticket;
            self.outputs.push(RackOutput::Reply { ticket, result });
        }
    }

    /// The node was deleted: its deferred reply becomes an error.
    pub(crate) fn cancel_pending_request(&mut self, id: NodeId) {
        let sentence = format!("Node {id} was deleted meanwhile.");
        self.send_deferred_reply(id, Err(OrderRefusal::new(RefusalKind::NotFound, sentence)));
    }

    /// When the next deferred reply times out.
    pub(crate) fn pending_request_deadline(&self) -> Option<Tick> {
        self.pending_requests
            .values()
            .map(|promise| promise.due)
            .min()
    }

    /// Replies with an error to the callers that waited too long.
    pub(crate) fn expire_pending_requests(&mut self, now: Now) {
        let overdue = self.pending_requests.iter();
        let overdue = overdue.filter(|(_, promise)| promise.due <= now.tick);
        let overdue: Vec<_> = overdue
            .map(|(id, owed)| (*id, owed.label.clone()))
            .collect();
        for (id, label) in overdue {
            let sentence = format!(
                "Node {id}: no answer to {label} in time; whether it was carried out is not known."
            );
            self.note_vendor(now, id, label, "no answer in time".to_owned());
            self.send_deferred_reply(id, Err(OrderRefusal::new(RefusalKind::Failed, sentence)));
        }
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

/// Refuses where a job uses the BMC.
fn bmc_is_free(node: &Node) -> Result<(), OrderRefusal> {
    if node.job.is_none() || node.provision_state.is_waiting() {
        return Ok(());
    }
    let state = node.provision_state;
    let why = format!("it is busy ({state}); wait until that is done");
    Err(conflict(node.id, &why))
}

/// The error for the caller of a BMC that failed.
pub(crate) fn refusal(id: NodeId, error: &PowerError) -> OrderRefusal {
    let kind = match error {
        PowerError::NotConfigured { .. }
        | PowerError::SharedBmc { .. }
        | PowerError::Unsupported { .. } => RefusalKind::Invalid,
        PowerError::QueueFull => RefusalKind::Conflict,
        _ => RefusalKind::Failed,
    };
    OrderRefusal::new(kind, format!("Node {id}: {error}."))
}

fn conflict(id: NodeId, why: &str) -> OrderRefusal {
    OrderRefusal::new(RefusalKind::Conflict, format!("Node {id}: {why}."))
}
