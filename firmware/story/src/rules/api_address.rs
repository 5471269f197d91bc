//! Machines are told an address of the API that only the box itself reaches.

use super::{DiagnosisRule, DiagnosisText, action, lacks_agent};
use crate::{DiagnosisContext, FileEvidence, JobEvidence};
use trivet_model::Diagnosis;

pub(super) const RULE: DiagnosisRule = DiagnosisRule {
    name: "api-address",
    diagnose,
};

fn diagnose(evidence: &JobEvidence, context: &DiagnosisContext) -> Option<Diagnosis> {
    let (site, boot) = (&context.site, &evidence.boot);
    let loader = boot.loader.as_ref();
    let has_loaded = loader.is_some_and(FileEvidence::is_whole) || boot.ipxe_at.is_some();
    let expected = site.api_is_loopback && lacks_agent(evidence, context) && has_loaded;
    if !expected || boot.looked_up_at.is_some() {
        return None;
    }
    let better = match &site.own_address {
        Some(address) => format!(", such as {address}"),
        None => String::new(),
    };
    let text = DiagnosisText {
        sentence: format!(
            "Machines are sent to {}, where each of them reaches only itself.",
            site.api_url
        ),
        cause: "api.listen or api.public_url is a loopback address.".to_owned(),
        next_action: format!(
            "Set api.listen to 0.0.0.0 or to an address on the machines' network{better}, and \
             start the box again."
        ),
        action: action("edit-settings", "trivet check --config FILE".to_owned()),
    };
    Some(text.of(&RULE))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{booted, check, check_none, job, late};
    use super::*;
    use trivet_model::NoteKind;

    #[test]
    fn an_agent_that_calls_itself_is_explained() {
        let evidence = job(&booted());
        let mut context = late(&evidence);
        check_none(&RULE, &evidence, &context);
        context.site.api_is_loopback = true;
        context.site.api_url = "http://127.0.0.1:6385".to_owned();
        let found = check(&RULE, &evidence, &context);
        assert_eq!(
            found.sentence,
            "Machines are sent to http://127.0.0.1:6385, where each of them reaches only itself."
        );
        assert!(found.next_action.contains("192.0.2.1"), "{found:?}");
    }

    #[test]
    fn an_agent_that_reached_the_box_does_not_match() {
        let mut notes = booted();
        let from = [192, 0, 2, 100].into();
        notes.push(NoteKind::AgentLookedUp { from });
        let evidence = job(&notes);
        let mut context = late(&evidence);
        context.site.api_is_loopback = true;
        check_none(&RULE, &evidence, &context);
    }
}
