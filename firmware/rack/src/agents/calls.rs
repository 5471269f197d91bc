//! Calls to agents, and their replies.

use trivet_model::{
    AgentError, AgentEvent, AgentOrder, EvidenceNote, ImageAheadReport, Node, NodeId, NoteKind, Now,
};
use trivet_node::NodeEvent;

use crate::{Rack, RackOutput, disk_size};

impl Rack {
    pub(crate) fn call_agent(&mut self, now: Now, id: NodeId, order: AgentOrder) {
        let Some(node) = self.records.node(id).cloned() else {
            return;
        };
        let Some(mut order) = self.with_image(now, &node, order) else {
            return;
        };
        let ports = self.records.ports_of(id);
        if !self.agents.may_call(id, &order) {
            return;
        }
        let Some(session) = &node.agent else {
            let error = AgentError::TokenRefused;
            self.events
                .push_back((id, NodeEvent::Agent(order, Err(error))));
            return;
        };
        let closed = self.has_closed_files(&node);
        let args = match &mut order {
            AgentOrder::Execute { step, .. } => Some(&mut step.args),
            AgentOrder::WriteImageAhead { args } => Some(args),
            _ => None,
        };
        if let (Some(url), Some(args)) = (&session.url, args) {
            self.settings.rewrite_urls(args, url, closed);
        }
        match (trivet_agent::call(&node, &ports, &order), &session.url) {
            (Ok(request), Some(url)) => {
                // A node without a job keeps the time-out of its agent.
                let looks = order.is_reading() || node.job.is_none();
                let call = self.agents.begin_call(id, order);
                self.outputs.push(RackOutput::CallAgent {
                    node: id,
                    call,
                    url: url.clone(),
                    verify_ca: session.verify_ca.clone(),
                    request,
                });
                if !looks {
                    // The scheduled wake-up belonged to the state before this order. This order
                    // always ends with a reply or a time-out.
                    self.nodes.cancel_wake(id);
                }
            }
            (Err(error), _) => {
                let text = error.to_string();
                self.events.push_back((
                    id,
                    NodeEvent::Agent(order, Err(AgentError::Refused { message: text })),
                ));
            }
            (_, None) => {
                let error = AgentError::Unreachable {
                    url: "its address".to_owned(),
                    message: "it has not sent its callback URL".to_owned(),
                };
                self.events
                    .push_back((id, NodeEvent::Agent(order, Err(error))));
            }
        }
    }

    pub(crate) fn agent_answered(
        &mut self,
        now: Now,
        id: NodeId,
        call: u64,
        mut result: Result<(u16, Vec<u8>), String>,
    ) {
        if self.vendor_agent_answered(now, id, call, &mut result) {
            return;
        }
        // A reply to a call that a later call replaced is ignored.
        let Some((order, beaten)) = self.agents.end_call(id, call) else {
            return;
        };
        let session = self.records.node(id).and_then(|node| node.agent.as_ref());
        let token = session.map_or("", |agent| agent.token.as_str());
        let mut answer = match result {
            Ok((status, mut body)) => {
                // Before any of it is parsed or truncated.
                trivet_agent::redact_token(&mut body, token);
                let node = self.records.node(id).map(AsRef::as_ref);
                let ahead = session.and_then(|agent| agent.ahead.as_ref());
                let deployment = node.and_then(Node::deployment);
                let deployment = deployment.or(ahead.map(|ahead| &ahead.deployment));
                for secret in deployment.iter().flat_map(|deployment| deployment.tokens()) {
                    trivet_agent::redact_token(&mut body, secret);
                }
                trivet_agent::answer(&order, status, &body)
            }
            Err(reply) => {
                let url = session.and_then(|agent| agent.url.clone());
                Err(AgentError::Unreachable {
                    url: url.unwrap_or_default(),
                    message: trivet_agent::without_token(reply, token),
                })
            }
        };
        if let Ok(
            AgentEvent::StepFailed { message: reply, .. }
            | AgentEvent::ImageAhead(ImageAheadReport::Failed { message: reply }),
        ) = &mut answer
        {
            *reply = super::callers::redacted(std::mem::take(reply));
        }
        if let Ok(AgentEvent::StepFailed { message: reply, .. }) = &answer
            && self.write_failed(now, id, reply)
        {
            return;
        }
        self.note_agent_evidence(now, id, &answer);
        // A short step may end, and its heartbeat arrive, before the reply that reports its
        // start. That heartbeat carried the result, and the next one is minutes away.
        let looks_again = beaten
            && matches!(
                answer,
                Ok(AgentEvent::Accepted | AgentEvent::StepRunning | AgentEvent::Busy)
                    | Err(AgentError::Unreachable { .. })
            );
        self.events.push_back((id, NodeEvent::Agent(order, answer)));
        if looks_again {
            self.events.push_back((id, NodeEvent::Heartbeat));
        }
    }

    /// Notes what the diagnosis reads of a failed call: once for each boot.
    fn note_agent_evidence(
        &mut self,
        now: Now,
        id: NodeId,
        answer: &Result<AgentEvent, AgentError>,
    ) {
        let evidence = match answer {
            // Without an address the session has ended meanwhile: nothing can be said of the path.
            Err(AgentError::Unreachable { url, .. }) if url.is_empty() => return,
            Err(AgentError::Unreachable { url, message: text }) => {
                let known = self.records.evidence_of(id);
                if known.is_some_and(|known| known.boot.agent_call.is_some()) {
                    return;
                }
                EvidenceNote::AgentUnreachable {
                    url: url.clone(),
                    error: text.clone(),
                }
            }
            Ok(AgentEvent::StepFailed { message, .. })
                if trivet_agent::is_disk_not_found(message) =>
            {
                let Some(node) = self.records.node(id) else {
                    return;
                };
                EvidenceNote::DiskNotFound {
                    hints: disk_size::root_device_hints(node),
                    disks: disk_size::inspected_disks(node),
                }
            }
            _ => return,
        };
        self.note(now, Some(id), NoteKind::Evidence(evidence));
    }
}
