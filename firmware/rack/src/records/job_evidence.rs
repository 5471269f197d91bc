//! What the notes of each node's job show, in memory.

use std::collections::{BTreeMap, BTreeSet};

use trivet_model::{MacAddr, NodeId, NoteKind, UnixMs};
use trivet_story::{JobEvidence, net_boot_mac};

/// The evidence of all nodes, and the nodes whose diagnosis may have changed.
#[derive(Default)]
pub(super) struct JobEvidenceTable {
    by_node: BTreeMap<NodeId, JobEvidence>,
    changed: BTreeSet<NodeId>,
    begun: BTreeSet<NodeId>,
}

impl JobEvidenceTable {
    pub(super) fn of(&self, id: NodeId) -> Option<&JobEvidence> {
        self.by_node.get(&id)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (&NodeId, &JobEvidence)> {
        self.by_node.iter()
    }

    /// What was stored before the box restarted.
    pub(super) fn restore(&mut self, id: NodeId, evidence: JobEvidence) {
        self.by_node.insert(id, evidence);
    }

    pub(super) fn remove(&mut self, id: NodeId) {
        self.by_node.remove(&id);
        self.changed.remove(&id);
        self.begun.remove(&id);
    }

    /// Takes a note of a node into account.
    pub(super) fn observe(&mut self, at: UnixMs, id: NodeId, has_job: bool, kind: &NoteKind) {
        let evidence = self.present(id, has_job);
        evidence.observe(at, kind);
        let boots_again = evidence.net_boot_after_deploy_at == Some(at);
        if changes_diagnosis(kind) || boots_again {
            self.changed.insert(id);
        }
        if !has_job && let Some(mac) = net_boot_mac(kind) {
            self.observe_other_node(at, id, mac);
        }
    }

    /// The job of a node switches its machine on, and no note follows.
    pub(super) fn switched_on(&mut self, at: UnixMs, id: NodeId) {
        self.present(id, true).switched_on(at);
    }

    /// The evidence of the node's present job, or of its last one.
    fn present(&mut self, id: NodeId, has_job: bool) -> &mut JobEvidence {
        let evidence = self.by_node.entry(id).or_default();
        if has_job && !evidence.is_running {
            evidence.begin();
            self.begun.insert(id);
        }
        evidence.is_running = has_job;
        evidence
    }

    /// A node without a job boots from the network: it may be the machine of another node.
    fn observe_other_node(&mut self, at: UnixMs, id: NodeId, mac: MacAddr) {
        let (node, mac) = (id.to_string(), mac.to_string());
        let others = self.by_node.iter_mut().filter(|(other, _)| **other != id);
        for (_, evidence) in others {
            evidence.observe_other_node(at, &node, &mac);
        }
    }

    /// Takes a note of the box into account.
    pub(super) fn observe_box(&mut self, at: UnixMs, kind: &NoteKind) {
        if let NoteKind::UnknownMachineSeen { mac } = kind {
            let mac = mac.to_string();
            for evidence in self.by_node.values_mut() {
                evidence.observe_unknown_machine(at, &mac);
            }
        }
    }

    /// The nodes whose job has begun: what was known of the one before is outdated.
    pub(super) fn take_begun(&mut self) -> BTreeSet<NodeId> {
        std::mem::take(&mut self.begun)
    }

    /// The nodes whose diagnosis may have changed.
    pub(super) fn take_changed(&mut self) -> BTreeSet<NodeId> {
        std::mem::take(&mut self.changed)
    }
}

/// Whether a diagnosis that needs no time-out may follow from the note, or may end with it.
fn changes_diagnosis(kind: &NoteKind) -> bool {
    matches!(
        kind,
        NoteKind::PowerFailed { .. }
            | NoteKind::PowerAccepted { .. }
            | NoteKind::PowerIs(_)
            | NoteKind::Evidence(_)
            | NoteKind::OrderReceived { .. }
            | NoteKind::FileSent { .. }
            | NoteKind::Failed { .. }
    )
}
