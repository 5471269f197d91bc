//! Agents' logs: when they are collected, and what is stored of them. Their bytes are handled
//! by the shell.

use trivet_model::secret::SecretText;
use trivet_model::view::LogBundle;
use trivet_model::{AgentSession, NodeId, NoteKind, Now, OrderRefusal, RefusalKind};

use crate::{Rack, RackOutput};

impl Rack {
    /// Collects the logs of an agent whose session the node may have ended.
    pub(crate) fn collect_logs(&mut self, node: NodeId, agent: &AgentSession) {
        let Some(url) = agent.url.clone() else { return };
        self.outputs.push(RackOutput::CollectLogs {
            node,
            url,
            verify_ca: agent.verify_ca.clone(),
            request: trivet_agent::logs_call(agent),
            token: SecretText::new(agent.token.clone()),
        });
    }

    /// An operator requests the logs.
    pub(crate) fn logs_wanted(&mut self, id: NodeId) -> Result<(), OrderRefusal> {
        let node = self.require_node(id)?;
        match node.agent.filter(|agent| agent.url.is_some()) {
            Some(agent) => {
                if !self.agents.begin_logs(id) {
                    let sentence = format!("The logs of node {id} are being collected already.");
                    return Err(OrderRefusal::new(RefusalKind::Conflict, sentence));
                }
                self.collect_logs(id, &agent);
                Ok(())
            }
            None => {
                let sentence = format!(
                    "Node {id} has no agent running; logs are collected while one \
                     runs, and when a job fails."
                );
                Err(OrderRefusal::new(RefusalKind::Conflict, sentence))
            }
        }
    }

    pub(crate) fn logs_stored(
        &mut self,
        now: Now,
        id: NodeId,
        stored: Vec<LogBundle>,
        collected: Option<Result<String, String>>,
    ) {
        if self.records.node(id).is_none() {
            return self.outputs.push(RackOutput::DropLogs(id));
        }
        if collected.is_some() && self.agents.end_logs(id) {
            self.switch_off_failed(now, id);
        }
        let note = collected.map(|collected| match collected {
            Ok(name) => {
                let bundle = stored.iter().find(|bundle| bundle.name == name);
                let bytes = bundle.map_or(0, |bundle| bundle.bytes);
                NoteKind::LogsStored { name, bytes }
            }
            Err(why) => NoteKind::LogsMissing { why },
        });
        self.records.change_view(id, |view| view.live.logs = stored);
        if let Some(note) = note {
            self.note(now, Some(id), note);
        }
    }
}
