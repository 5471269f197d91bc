//! Agents' logs: when they are collected, and what is kept of them. The bytes never come here.

use trivet_model::secret::Hidden;
use trivet_model::view::LogBundle;
use trivet_model::{AgentSession, NodeId, NoteKind, Now, Refusal, RefusalKind};

use crate::{Output, Rack};

/// Whether an agent's logs are being collected.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Collection {
    /// They are not.
    #[default]
    None,
    /// They are.
    UnderWay,
    /// They are, and then the machine is switched off.
    ThenOff,
}

impl Rack {
    /// Collects the logs of an agent that may not be the node's any more.
    pub(crate) fn collect_logs(&mut self, node: NodeId, agent: &AgentSession) {
        let Some(url) = agent.url.clone() else { return };
        self.outputs.push(Output::CollectLogs {
            node,
            url,
            verify_ca: agent.verify_ca.clone(),
            request: trivet_agent::logs_call(agent),
            token: Hidden::new(agent.token.clone()),
        });
    }

    /// An operator wants them.
    pub(crate) fn logs_wanted(&mut self, id: NodeId) -> Result<(), Refusal> {
        let node = self.known(id)?;
        match node.agent.filter(|agent| agent.url.is_some()) {
            Some(agent) => {
                let waits = self.waits.entry(id).or_default();
                if std::mem::replace(&mut waits.logs, Collection::UnderWay) != Collection::None {
                    let sentence = format!("The logs of node {id} are being collected already.");
                    return Err(Refusal::new(RefusalKind::Conflict, sentence));
                }
                self.collect_logs(id, &agent);
                Ok(())
            }
            None => {
                let sentence = format!(
                    "Node {id} has no agent that could be asked; logs are collected while one \
                     runs, and when a job fails."
                );
                Err(Refusal::new(RefusalKind::Conflict, sentence))
            }
        }
    }

    pub(crate) fn logs_kept(
        &mut self,
        now: Now,
        id: NodeId,
        kept: Vec<LogBundle>,
        collected: Option<Result<String, String>>,
    ) {
        if self.book.node(id).is_none() {
            return self.outputs.push(Output::DropLogs(id));
        }
        if collected.is_some()
            && let Some(waits) = self.waits.get_mut(&id)
            && std::mem::take(&mut waits.logs) == Collection::ThenOff
        {
            self.switch_off_failed(now, id);
        }
        let note = collected.map(|collected| match collected {
            Ok(name) => {
                let bundle = kept.iter().find(|bundle| bundle.name == name);
                let bytes = bundle.map_or(0, |bundle| bundle.bytes);
                NoteKind::LogsKept { name, bytes }
            }
            Err(why) => NoteKind::LogsMissing { why },
        });
        self.book.change_view(id, |view| view.live.logs = kept);
        if let Some(note) = note {
            self.note(now, Some(id), note);
        }
    }
}
