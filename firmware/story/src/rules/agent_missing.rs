//! There is no agent to boot.

use super::{DiagnosisRule, DiagnosisText, action};
use crate::{DiagnosisContext, JobEvidence};
use trivet_model::Diagnosis;

pub(super) const RULE: DiagnosisRule = DiagnosisRule {
    name: "agent-missing",
    diagnose,
};

fn diagnose(evidence: &JobEvidence, context: &DiagnosisContext) -> Option<Diagnosis> {
    if context.site.has_agent || !evidence.has_refused_order {
        return None;
    }
    let text = DiagnosisText {
        sentence: "This box has no agent to boot; the order was refused and nothing was switched \
                   on."
        .to_owned(),
        cause: "Neither boot.kernel and boot.ramdisk are set in the settings, nor deploy_kernel \
                and deploy_ramdisk in driver_info."
            .to_owned(),
        next_action:
            "Build the ramdisk, set boot.kernel and boot.ramdisk, and start the box again."
                .to_owned(),
        action: action(
            "get-agent",
            "trivet-image ramdisk --agent trivet --output DIRECTORY".to_owned(),
        ),
    };
    Some(text.of(&RULE))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, check_none, in_time};
    use super::*;
    use std::sync::Arc;
    use trivet_model::{ApiCaller, NoteKind, UnixMs};

    fn order(refused: Option<&str>) -> JobEvidence {
        let mut evidence = JobEvidence::default();
        let note = NoteKind::OrderReceived {
            caller: Arc::new(ApiCaller::agent([192, 0, 2, 9].into())),
            order: "inspect",
            refused: refused.map(str::to_owned),
        };
        evidence.observe(UnixMs(1), &note);
        evidence
    }

    #[test]
    fn a_refused_order_on_a_box_without_agent_matches() {
        let mut context = in_time();
        check_none(&RULE, &order(Some("no")), &context);
        context.site.has_agent = false;
        check_none(&RULE, &order(None), &context);
        let found = check(&RULE, &order(Some("no")), &context);
        assert_eq!(
            found.action.map(|action| action.kind).as_deref(),
            Some("get-agent")
        );
    }
}
