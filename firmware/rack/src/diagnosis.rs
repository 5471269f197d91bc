//! Why the job of a node does not go on: asks the rules of `trivet_story` with the evidence of
//! the job and the facts of the box.

use std::sync::Arc;

use trivet_model::{Diagnosis, Node, NodeId, NoteKind, Now};
use trivet_node::NodeAction;
use trivet_story::{DiagnosisContext, Stage, diagnose, rules};

use crate::Rack;

/// A boot that was given up: what was missing, and the number of boots if it was the last.
struct FailedBoot {
    why: String,
    last_of: Option<u32>,
}

impl Rack {
    /// The diagnosis of a node's job: `late` is the stage that is late or failed, if there is
    /// one, with the usual duration in ms where that is known.
    pub fn diagnosis_of(
        &self,
        now: Now,
        id: NodeId,
        late: Option<(Stage, Option<u64>)>,
    ) -> Option<Diagnosis> {
        let node = self.records.node(id)?;
        let evidence = self.records.evidence_of(id)?;
        let since = evidence.boot.switched_on_at.filter(|_| late.is_some());
        let context = DiagnosisContext {
            node_name: node.label(),
            stage: late.map(|(stage, _)| stage),
            stage_ms: since.map_or(0, |since| now.wall.0.saturating_sub(since.0)),
            usual_ms: late.and_then(|(_, usual_ms)| usual_ms),
            site: self.site_facts(node, evidence),
        };
        diagnose(evidence, &context)
    }

    /// The machine of a job did not come up in time. The diagnosis is stored for readers, and a
    /// job that ends because of it gets it as its error.
    pub(crate) fn diagnose_failed_boot(
        &mut self,
        now: Now,
        after: &mut Node,
        actions: &mut [NodeAction],
    ) {
        let boot = actions.iter().find_map(|action| match action {
            NodeAction::BootFailed { why, last_of } => Some(FailedBoot {
                why: why.clone(),
                last_of: *last_of,
            }),
            _ => None,
        });
        let Some(boot) = boot else { return };
        let id = after.id;
        let evidence = self.records.evidence_of(id);
        let stage = evidence.map_or(Stage::Power, |evidence| evidence.boot.stage());
        let Some(diagnosis) = self.diagnosis_of(now, id, Some((stage, None))) else {
            return;
        };
        if let (Some(boots), Some(old)) = (boot.last_of, after.last_error.clone()) {
            let new = format!("{} ({} after {boots} boots)", diagnosis.text(), boot.why);
            if after.maintenance_reason.as_ref() == Some(&old) {
                after.maintenance_reason = Some(new.clone());
            }
            after.last_error = Some(new.clone());
            for action in actions {
                if let NodeAction::Note(NoteKind::Failed { why }) = action {
                    why.clone_from(&new);
                }
            }
        }
        self.show_diagnosis(now, id, Some(diagnosis));
    }

    /// A job that has failed is explained, if it is not yet.
    pub(crate) fn diagnose_failed_job(&mut self, now: Now, id: NodeId) {
        let view = self.records.view.nodes.get(&id);
        let found = match view.and_then(|view| view.live.diagnosis.as_deref()) {
            Some(shown) => Some(shown.clone()),
            None => {
                let stage = self.records.present_stage(now, id);
                self.diagnosis_of(now, id, stage.map(|(stage, _, usual)| (stage, usual)))
            }
        };
        if found.is_some() {
            self.show_diagnosis(now, id, found);
        }
    }

    /// A job has ended well: what stopped one of its boots is over.
    pub(crate) fn end_diagnosis(&mut self, now: Now, id: NodeId) {
        let view = self.records.view.nodes.get(&id);
        let shown = view.and_then(|view| view.live.diagnosis.as_ref());
        if shown.is_some_and(|shown| !rules::outlasts_success(&shown.rule)) {
            self.show_diagnosis(now, id, None);
        }
    }

    /// The box has started: what its settings lacked before may be there now.
    pub(crate) fn review_diagnosis(&mut self, now: Now, id: NodeId) {
        let Some(view) = self.records.view.nodes.get(&id) else {
            return;
        };
        let shown = view.live.diagnosis.as_ref();
        let is_about_settings = shown.is_some_and(|shown| rules::is_about_settings(&shown.rule));
        if is_about_settings && self.check_agent_files(&view.node).is_ok() {
            self.show_diagnosis(now, id, None);
        }
    }

    /// Updates what readers see of nodes whose notes may have changed the diagnosis.
    pub(crate) fn update_diagnoses(&mut self, now: Now) {
        for id in self.records.take_jobs_begun() {
            self.show_diagnosis(now, id, None);
        }
        for id in self.records.take_evidence_changed() {
            let found = self.diagnosis_of(now, id, None);
            let view = self.records.view.nodes.get(&id);
            let shown = view.and_then(|view| view.live.diagnosis.as_ref());
            // What was found when a boot failed stays until the next job.
            let ends = shown.is_some_and(|shown| rules::ends_with_its_cause(&shown.rule));
            if found.is_some() || ends {
                self.show_diagnosis(now, id, found);
            }
        }
    }

    /// Shows the diagnosis to readers. The story of the job that runs keeps it; without such a
    /// job the stories of the node do.
    pub(crate) fn show_diagnosis(&mut self, now: Now, id: NodeId, diagnosis: Option<Diagnosis>) {
        if let Some(found) = &diagnosis {
            self.records.set_diagnosis(now, id, found.into());
        }
        let view = self.records.view.nodes.get(&id);
        let shown = view.and_then(|view| view.live.diagnosis.as_deref());
        if view.is_some() && shown != diagnosis.as_ref() {
            let diagnosis = diagnosis.map(Arc::new);
            self.records
                .change_view(id, |view| view.live.diagnosis = diagnosis);
            self.records.keep_diagnosis(id);
        }
    }
}
