//! The image cannot be used.

use super::{DiagnosisRule, DiagnosisText, action};
use crate::evidence::ImageProblemKind;
use crate::{DiagnosisContext, JobEvidence};
use trivet_model::Diagnosis;

pub(super) const RULE: DiagnosisRule = DiagnosisRule {
    name: "image-unusable",
    diagnose,
};

fn diagnose(evidence: &JobEvidence, context: &DiagnosisContext) -> Option<Diagnosis> {
    let found = evidence.image.as_ref()?;
    let (image, node) = (&found.image, &context.node_name);
    let text = match found.problem {
        ImageProblemKind::Different => DiagnosisText {
            sentence: format!("Image {image} is not what the record of {node} says."),
            cause: format!("{}.", found.why.trim_end_matches('.')),
            next_action: "Correct image_checksum in instance_info, or the file at its source."
                .to_owned(),
            action: action(
                "edit-image",
                format!("trivet node set {node} --instance-info image_checksum=SHA256"),
            ),
        },
        ImageProblemKind::Unavailable => DiagnosisText {
            sentence: format!("Image {image} cannot be fetched."),
            cause: format!("{}.", found.why.trim_end_matches('.')),
            next_action: "Fix the source or the network path, then deploy again.".to_owned(),
            action: action("show-images", "trivet image list".to_owned()),
        },
        ImageProblemKind::TooLarge => DiagnosisText {
            sentence: format!("Image {image} is larger than the disk of {node}."),
            cause: format!("{}.", found.why.trim_end_matches('.')),
            next_action: "Choose a larger disk with root_device hints, or a smaller image."
                .to_owned(),
            action: action(
                "edit-hint",
                format!("trivet node set {node} --property root_device=HINTS"),
            ),
        },
    };
    Some(text.of(&RULE))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, check_none, in_time, job};
    use super::*;
    use trivet_model::{EvidenceNote, ImageProblem, NoteKind};

    fn unusable(problem: ImageProblem) -> NoteKind {
        NoteKind::Evidence(EvidenceNote::ImageUnusable {
            problem,
            image: "debian.raw".to_owned(),
            why: "it has the digest 12".to_owned(),
        })
    }

    #[test]
    fn each_problem_has_its_sentence_with_the_error_as_cause() {
        let of = |problem| check(&RULE, &job(&[unusable(problem)]), &in_time());
        let different = of(ImageProblem::Different);
        assert_eq!(
            different.sentence,
            "Image debian.raw is not what the record of node-17 says."
        );
        assert_eq!(different.cause, "it has the digest 12.");
        assert!(of(ImageProblem::Unavailable).sentence.contains("fetched"));
        assert!(of(ImageProblem::TooLarge).sentence.contains("larger"));
    }

    #[test]
    fn a_job_with_another_end_does_not_match() {
        let why = "something else".to_owned();
        check_none(&RULE, &job(&[NoteKind::Failed { why }]), &in_time());
    }
}
