//! Vendor methods: a command to a BMC or an agent, with a deferred reply to the caller. The BMC's
//! part is in `trivet_bmc`.

use trivet_agent::RawAgentReply;
use trivet_bmc::{
    DEFERRED_REPLIES_MAX, DEFERRED_REPLY_MS_MAX, DeferredReply, no_reply_in_time, node_deleted,
};
use trivet_model::node::JsonObject;
use trivet_model::order::VendorMethod;
use trivet_model::{
    AgentError, JobPhase, Node, NodeId, NoteKind, Now, OrderOutcome, OrderRefusal, ProvisionState,
    RefusalKind,
};

use crate::{Rack, RackOutput};

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
        if self.bmcs.awaits_reply(id) || self.agent_replies.get(id).is_some() {
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
                let source = self.call_agent_raw(&node, &command, params, wait)?;
                let reply = DeferredReply {
                    ticket,
                    due: now.tick.after_ms(DEFERRED_REPLY_MS_MAX),
                    label: format!("agent_command {command}"),
                    source,
                };
                self.agent_replies.insert(id, reply);
            }
        }
        Ok(())
    }

    /// How many replies are deferred.
    pub(crate) fn replies_awaited(&self) -> usize {
        self.bmcs.replies_awaited() + self.agent_replies.len()
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

    /// Handles an agent's reply if it belongs to a vendor method.
    pub(crate) fn vendor_agent_answered(
        &mut self,
        now: Now,
        id: NodeId,
        call: u64,
        result: &mut Result<(u16, Vec<u8>), String>,
    ) -> bool {
        let awaited = self.agent_replies.get(id);
        if awaited.is_none_or(|reply| reply.source != call) {
            return false;
        }
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
        if let Some(DeferredReply { ticket, label, .. }) = self.agent_replies.remove(id) {
            self.note_vendor(now, id, label, outcome);
            let result = result.map(OrderOutcome::Reply);
            self.outputs.push(RackOutput::Reply { ticket, result });
        }
        true
    }

    fn note_vendor(&mut self, now: Now, id: NodeId, method: String, outcome: String) {
        self.note(now, Some(id), NoteKind::VendorCalled { method, outcome });
    }

    /// The node was deleted: its deferred reply becomes an error.
    pub(crate) fn cancel_agent_reply(&mut self, id: NodeId) {
        if let Some(DeferredReply { ticket, .. }) = self.agent_replies.remove(id) {
            let result = Err(node_deleted(id));
            self.outputs.push(RackOutput::Reply { ticket, result });
        }
    }

    /// Replies with an error to the callers that waited too long.
    pub(crate) fn expire_agent_replies(&mut self, now: Now) {
        for (id, reply) in self.agent_replies.take_expired(now.tick) {
            let result = Err(no_reply_in_time(id, &reply.label));
            let ticket = reply.ticket;
            self.note_vendor(now, id, reply.label, "no answer in time".to_owned());
            self.outputs.push(RackOutput::Reply { ticket, result });
        }
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

fn conflict(id: NodeId, why: &str) -> OrderRefusal {
    OrderRefusal::new(RefusalKind::Conflict, format!("Node {id}: {why}."))
}
