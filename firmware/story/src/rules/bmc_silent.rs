//! The BMC does not answer.

use super::{DiagnosisRule, DiagnosisText, action, duration};
use crate::{DiagnosisContext, JobEvidence};
use trivet_model::Diagnosis;
use trivet_model::interface::PowerInterface;

pub(super) const RULE: DiagnosisRule = DiagnosisRule {
    name: "bmc-silent",
    diagnose,
};

fn diagnose(evidence: &JobEvidence, context: &DiagnosisContext) -> Option<Diagnosis> {
    let failure = evidence.bmc.as_ref()?;
    if failure.kind != "unreachable" {
        return None;
    }
    let keys = context.site.bmc_keys;
    let address = context.site.bmc_address.as_deref().unwrap_or("of the node");
    let node = &context.node_name;
    let since = match context.stage_ms {
        0 => String::new(),
        ms => format!(" for {}", duration(ms)),
    };
    let service = if keys == PowerInterface::Redfish.as_str() {
        "its web service is off"
    } else {
        "IPMI over LAN is off in it"
    };
    let result = match evidence.boot.first_frame_at {
        Some(_) => "",
        None => "; nothing was switched",
    };
    let text = DiagnosisText {
        sentence: format!("The BMC at {address} has not answered{since}{result}."),
        cause: format!(
            "The address is wrong, the BMC has no power or no link to this box, or {service}."
        ),
        next_action: format!(
            "Compare {keys}_address with the BMC's own setting, and check its cable and VLAN."
        ),
        action: action(
            "edit-bmc",
            format!("trivet node set {node} --driver-info {keys}_address=ADDRESS"),
        ),
    };
    Some(text.of(&RULE))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, check_none, dhcp, in_time, job, switched_on};
    use super::*;
    use trivet_model::NoteKind;

    fn failed(kind: &'static str) -> NoteKind {
        let message = "the BMC did not answer".to_owned();
        NoteKind::PowerFailed { kind, message }
    }

    #[test]
    fn a_bmc_without_an_answer_is_named_by_its_address() {
        let found = check(&RULE, &job(&[failed("unreachable")]), &in_time());
        assert_eq!(
            found.sentence,
            "The BMC at 10.0.0.17 has not answered; nothing was switched."
        );
        assert!(found.cause.contains("IPMI over LAN"), "{found:?}");
        let mut redfish = in_time();
        redfish.site.bmc_keys = PowerInterface::Redfish.as_str();
        let found = check(&RULE, &job(&[failed("unreachable")]), &redfish);
        assert!(found.cause.contains("web service"), "{found:?}");
    }

    #[test]
    fn a_machine_that_was_seen_was_switched() {
        let notes = [
            switched_on(),
            dhcp("UEFI x64 PXE", None),
            failed("unreachable"),
        ];
        let found = check(&RULE, &job(&notes), &in_time());
        assert_eq!(found.sentence, "The BMC at 10.0.0.17 has not answered.");
    }

    #[test]
    fn a_bmc_that_answers_does_not_match() {
        check_none(&RULE, &job(&[failed("busy")]), &in_time());
        let accepted = NoteKind::PowerAccepted { order: "power on" };
        check_none(&RULE, &job(&[failed("unreachable"), accepted]), &in_time());
    }
}
