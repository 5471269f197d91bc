//! The BMC does not answer, and what the network says about it.

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
    let keys = context.site.bmc_keys;
    let address = context.site.bmc_address.as_deref().unwrap_or("of the node");
    let node = &context.node_name;
    let result = match evidence.boot.first_frame_at {
        Some(_) => "",
        None => "; nothing was switched",
    };
    let (service, port) = if keys == PowerInterface::Redfish.as_str() {
        ("its web service is off", "its TCP port")
    } else {
        ("IPMI over LAN is off in it", "its UDP port for IPMI")
    };
    let compare =
        format!("Compare {keys}_address with the BMC's own setting, and check its cable and VLAN.");
    let (sentence, cause, next_action) = match failure.kind.as_str() {
        "unreachable" => {
            let since = match context.stage_ms {
                0 => String::new(),
                ms => format!(" for {}", duration(ms)),
            };
            (
                format!("The BMC at {address} has not answered{since}{result}."),
                format!(
                    "A firewall drops the packets, the BMC hangs or has no link to this box, or \
                     {service}."
                ),
                compare,
            )
        }
        "no_host" => (
            format!("No machine has the address of the BMC, {address}{result}."),
            "The address is wrong, or the BMC has no power, no cable or another VLAN.".to_owned(),
            compare,
        ),
        "port_closed" => (
            format!("{address} answers, but {port} is closed{result}."),
            format!("That is another machine than the BMC, or {service}."),
            format!(
                "Compare {keys}_address with the BMC's own setting, and switch the service on."
            ),
        ),
        "no_session" => (
            format!("The BMC at {address} answers, but opens no session{result}."),
            "Its session table is full, its network service hangs, or it drops the login."
                .to_owned(),
            "Close other consoles to it; if that does not help, restart the BMC.".to_owned(),
        ),
        _ => return None,
    };
    let text = DiagnosisText {
        sentence,
        cause,
        next_action,
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
    use trivet_model::{EvidenceNote, NoteKind};

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
    fn a_bmc_is_named_while_its_request_is_repeated_until_it_answers() {
        let repeated = NoteKind::Evidence(EvidenceNote::BmcRequestRepeated {
            kind: "unreachable",
            message: "the BMC did not answer".to_owned(),
        });
        let mut context = in_time();
        context.stage_ms = 21_000;
        let found = check(&RULE, &job(std::slice::from_ref(&repeated)), &context);
        assert_eq!(
            found.sentence,
            "The BMC at 10.0.0.17 has not answered for 21 s; nothing was switched."
        );
        let again = NoteKind::Evidence(EvidenceNote::BmcAnswersAgain);
        check_none(&RULE, &job(&[repeated, again]), &context);
    }

    #[test]
    fn what_the_network_says_is_in_the_sentence() {
        for (kind, sentence) in [
            (
                "no_host",
                "No machine has the address of the BMC, 10.0.0.17; nothing was switched.",
            ),
            (
                "port_closed",
                "10.0.0.17 answers, but its UDP port for IPMI is closed; nothing was switched.",
            ),
            (
                "no_session",
                "The BMC at 10.0.0.17 answers, but opens no session; nothing was switched.",
            ),
        ] {
            let found = check(&RULE, &job(&[failed(kind)]), &in_time());
            assert_eq!(found.sentence, sentence);
        }
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
