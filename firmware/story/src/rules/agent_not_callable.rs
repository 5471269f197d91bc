//! The agent sends heartbeats, and calls to it fail.

use super::{DiagnosisRule, DiagnosisText, action};
use crate::{DiagnosisContext, JobEvidence};
use trivet_model::Diagnosis;

pub(super) const RULE: DiagnosisRule = DiagnosisRule {
    name: "agent-not-callable",
    diagnose,
};

fn diagnose(evidence: &JobEvidence, context: &DiagnosisContext) -> Option<Diagnosis> {
    let call = evidence.boot.agent_call.as_ref()?;
    context.stage?;
    let text = DiagnosisText {
        sentence: format!(
            "The agent sends heartbeats, but this box cannot open {}: {}.",
            call.url,
            call.error.trim_end_matches('.')
        ),
        cause: "A firewall or a missing route between this box and the machine, or an agent that \
                listens at another address."
            .to_owned(),
        next_action: "Allow TCP connections from this box to the agent's port, 9999.".to_owned(),
        action: action(
            "show-logs",
            format!("trivet node logs {}", context.node_name),
        ),
    };
    Some(text.of(&RULE))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{booted, check, check_none, in_time, job, late};
    use super::*;
    use trivet_model::{EvidenceNote, NoteKind};

    #[test]
    fn the_url_and_the_error_are_named_once_the_job_is_late() {
        let mut notes = booted();
        notes.push(NoteKind::AgentReady {
            version: "13.0.0".to_owned(),
        });
        check_none(&RULE, &job(&notes), &late(&job(&notes)));
        notes.push(NoteKind::Evidence(EvidenceNote::AgentUnreachable {
            url: "https://192.0.2.100:9999".to_owned(),
            error: "connection refused".to_owned(),
        }));
        let evidence = job(&notes);
        check_none(&RULE, &evidence, &in_time());
        let found = check(&RULE, &evidence, &late(&evidence));
        assert_eq!(
            found.sentence,
            "The agent sends heartbeats, but this box cannot open https://192.0.2.100:9999: \
             connection refused."
        );
        notes.push(NoteKind::StepStarted {
            step: "erase_devices".to_owned(),
        });
        check_none(&RULE, &job(&notes), &late(&evidence));
    }
}
