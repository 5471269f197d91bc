//! No disk fits the root device hints.

use super::{DiagnosisRule, DiagnosisText, action};
use crate::{DiagnosisContext, JobEvidence};
use trivet_model::Diagnosis;

pub(super) const RULE: DiagnosisRule = DiagnosisRule {
    name: "disk-not-found",
    diagnose,
};

fn diagnose(evidence: &JobEvidence, context: &DiagnosisContext) -> Option<Diagnosis> {
    let disk = evidence.disk.as_ref()?;
    let node = &context.node_name;
    let text = DiagnosisText {
        sentence: format!(
            "No disk of {node} fits the root device hints {}.",
            disk.hints
        ),
        cause: format!("Inspection found {}.", disk.disks),
        next_action: "Correct the hints, or inspect the node again if its disks have changed."
            .to_owned(),
        action: action(
            "edit-hint",
            format!("trivet node set {node} --property root_device=HINTS"),
        ),
    };
    Some(text.of(&RULE))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, check_none, in_time, job};
    use super::*;
    use trivet_model::{EvidenceNote, NoteKind};

    #[test]
    fn hints_and_disks_are_named() {
        let note = NoteKind::Evidence(EvidenceNote::DiskNotFound {
            hints: "{\"wwn\":\"0x5000\"}".to_owned(),
            disks: "/dev/sda (480 GB)".to_owned(),
        });
        let found = check(&RULE, &job(&[note]), &in_time());
        assert_eq!(
            found.sentence,
            "No disk of node-17 fits the root device hints {\"wwn\":\"0x5000\"}."
        );
        assert_eq!(found.cause, "Inspection found /dev/sda (480 GB).");
        check_none(&RULE, &job(&[]), &in_time());
    }
}
