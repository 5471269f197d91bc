//! The machine was refused a file that it needs to boot.

use super::{DiagnosisRule, DiagnosisText, action, lacks_agent};
use crate::{DiagnosisContext, JobEvidence};
use trivet_model::Diagnosis;

pub(super) const RULE: DiagnosisRule = DiagnosisRule {
    name: "boot-file-refused",
    diagnose,
};

fn diagnose(evidence: &JobEvidence, context: &DiagnosisContext) -> Option<Diagnosis> {
    let boot = &evidence.boot;
    let refused = boot.refused.as_ref()?;
    if !lacks_agent(evidence, context) || boot.looked_up_at.is_some() {
        return None;
    }
    let text = DiagnosisText {
        sentence: format!(
            "The machine requested {} by {} and got {}.",
            refused.path, refused.by, refused.answer
        ),
        cause: format!("{}.", first_upper(refused.why.trim_end_matches('.'))),
        next_action: "Put the file where the settings name it (boot.kernel, boot.ramdisk, \
                      boot.loaders), then try again."
            .to_owned(),
        action: action("show-faults", "trivet lan faults".to_owned()),
    };
    Some(text.of(&RULE))
}

fn first_upper(text: &str) -> String {
    let mut characters = text.chars();
    match characters.next() {
        Some(first) => first.to_uppercase().chain(characters).collect(),
        None => "The file is not available".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, check_none, in_time, job, late, loaded};
    use super::*;
    use trivet_model::NoteKind;

    fn refused() -> NoteKind {
        NoteKind::FileRefused {
            by: "HTTP",
            path: "/boot/kernel".to_owned(),
            answer: "404 Not Found",
            why: "there is no such file on this box".to_owned(),
        }
    }

    #[test]
    fn the_file_and_the_answer_are_named() {
        let mut notes = loaded();
        notes.push(refused());
        let evidence = job(&notes);
        check_none(&RULE, &evidence, &in_time());
        let found = check(&RULE, &evidence, &late(&evidence));
        assert_eq!(
            found.sentence,
            "The machine requested /boot/kernel by HTTP and got 404 Not Found."
        );
        assert_eq!(found.cause, "There is no such file on this box.");
    }

    #[test]
    fn an_agent_that_came_up_in_spite_of_it_does_not_match() {
        let mut notes = loaded();
        notes.push(refused());
        let from = [192, 0, 2, 100].into();
        notes.push(NoteKind::AgentLookedUp { from });
        let evidence = job(&notes);
        check_none(&RULE, &evidence, &late(&evidence));
    }
}
