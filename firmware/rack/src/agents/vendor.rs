//! Commands of callers to agents, with a deferred reply.

use trivet_agent::RawAgentReply;
use trivet_bmc::{DEFERRED_REPLY_MS_MAX, DeferredReply, no_reply_in_time};
use trivet_model::node::JsonObject;
use trivet_model::{
    AgentError, JobPhase, Node, NodeId, NoteKind, Now, OrderOutcome, OrderRefusal, ProvisionState,
    RefusalKind,
};

use super::AgentsPart;
use crate::requests::vendor::conflict;
use crate::{Rack, RackOutput};

impl AgentsPart {
    /// Whether a caller waits for this node's agent.
    pub(crate) fn awaits_reply(&self, id: NodeId) -> bool {
        self.replies.get(id).is_some()
    }
}

impl Rack {
    /// Sends a command of a caller to the agent. The caller checked that none is under way.
    pub(crate) fn vendor_command(
        &mut self,
        now: Now,
        ticket: u64,
        node: &Node,
        (command, params, wait): (String, JsonObject, bool),
    ) -> Result<(), OrderRefusal> {
        let source = self.call_agent_raw(now, node, &command, params, wait)?;
        let reply = DeferredReply {
            ticket,
            due: now.tick.after_ms(DEFERRED_REPLY_MS_MAX),
            label: format!("agent_command {command}"),
            source,
        };
        self.agents.replies.insert(node.id, reply);
        Ok(())
    }

    fn call_agent_raw(
        &mut self,
        now: Now,
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
        let called = self.agents.is_called(id);
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
        if let (None, Some(session)) = (&node.job, &node.agent) {
            // What the command does with the disk is not known.
            let mut session = session.clone();
            session.disk_may_change();
            let agent = Some(session);
            self.records.put_node(
                now,
                Node {
                    agent,
                    ..node.clone()
                },
            );
        }
        let session = node.agent.as_ref();
        let call = self.agents.next_call();
        self.outputs.push(RackOutput::CallAgent {
            node: id,
            call,
            url: session
                .and_then(|agent| agent.url.clone())
                .unwrap_or_default(),
            verify_ca: session.and_then(|agent| agent.verify_ca.clone()),
            request,
        });
        Ok(call)
    }

    /// Handles an agent's reply if it belongs to a vendor method.
    pub(crate) fn vendor_agent_answered(
        &mut self,
        now: Now,
        id: NodeId,
        call: u64,
        result: &mut Result<(u16, Vec<u8>), String>,
    ) -> bool {
        let awaited = self.agents.replies.get(id);
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
            Err(message) => {
                let url = session.and_then(|agent| agent.url.clone());
                failed(AgentError::Unreachable {
                    url: url.unwrap_or_default(),
                    message: trivet_agent::without_token(message.clone(), token),
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
        if let Some(DeferredReply { ticket, label, .. }) = self.agents.replies.remove(id) {
            self.note_vendor(now, id, label, outcome);
            let result = result.map(OrderOutcome::Reply);
            self.outputs.push(RackOutput::Reply { ticket, result });
        }
        true
    }

    fn note_vendor(&mut self, now: Now, id: NodeId, method: String, outcome: String) {
        self.note(now, Some(id), NoteKind::VendorCalled { method, outcome });
    }

    /// Replies with an error to the callers that waited too long.
    pub(crate) fn expire_agent_replies(&mut self, now: Now) {
        for (id, reply) in self.agents.replies.take_expired(now.tick) {
            let result = Err(no_reply_in_time(id, &reply.label));
            let ticket = reply.ticket;
            self.note_vendor(now, id, reply.label, "no answer in time".to_owned());
            self.outputs.push(RackOutput::Reply { ticket, result });
        }
    }
}
