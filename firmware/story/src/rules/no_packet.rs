//! The BMC says that the machine is on, and no packet of it arrives.

use super::{DiagnosisRule, DiagnosisText, boots, duration, find_machine, lacks_agent};
use crate::{DiagnosisContext, JobEvidence};
use trivet_model::Diagnosis;

pub(super) const RULE: DiagnosisRule = DiagnosisRule {
    name: "no-packet",
    diagnose,
};

fn diagnose(evidence: &JobEvidence, context: &DiagnosisContext) -> Option<Diagnosis> {
    if !lacks_agent(evidence, context) || evidence.boot.first_frame_at.is_some() {
        return None;
    }
    let ports = match context.site.port_macs.join(", ") {
        ports if ports.is_empty() => "any port; the node has none".to_owned(),
        ports => ports,
    };
    let usual = match context.usual_ms {
        Some(ms) => format!(" (usual: {})", duration(ms)),
        None => String::new(),
    };
    let text = DiagnosisText {
        sentence: format!(
            "No packet arrived from {ports} within {} after the power-on{usual}{}.",
            duration(context.stage_ms),
            boots(evidence)
        ),
        cause:
            "The hardware address in the record is wrong, the cable is in another port, network \
                boot is off in the firmware, or the machine stops in its self-test."
                .to_owned(),
        next_action: format!(
            "{}ompare the cable and the hardware address, and look at its console.",
            if context.site.bmc_keys.is_empty() {
                "C"
            } else {
                "Switch its light on, c"
            }
        ),
        action: find_machine(context),
    };
    Some(text.of(&RULE))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{addressed, check, check_none, in_time, job, late, switched_on};
    use super::*;
    use core::net::Ipv4Addr;
    use trivet_model::{ApiCaller, NoteKind, Verb};

    #[test]
    fn the_time_the_usual_time_and_the_boot_are_named() {
        let evidence = job(&[switched_on(), switched_on()]);
        check_none(&RULE, &evidence, &in_time());
        let found = check(&RULE, &evidence, &late(&evidence));
        assert_eq!(
            found.sentence,
            "No packet arrived from 52:54:00:00:00:17 within 4 min 2 s after the power-on (usual: \
             1 min 11 s) (boot 2)."
        );
    }

    #[test]
    fn a_machine_without_a_bmc_has_no_light() {
        let evidence = job(&[switched_on()]);
        let light = check(&RULE, &evidence, &late(&evidence));
        assert!(
            light
                .next_action
                .starts_with("Switch its light on, compare"),
            "{light:?}"
        );
        let mut context = late(&evidence);
        context.site.bmc_keys = "";
        let found = check(&RULE, &evidence, &context);
        assert!(
            found.next_action.starts_with("Compare the cable"),
            "{found:?}"
        );
        let command = found.action.map(|action| action.command);
        assert_eq!(command.as_deref(), Some("trivet node show node-17"));
    }

    #[test]
    fn a_job_that_an_operator_aborted_was_not_late() {
        let caller = ApiCaller::agent(Ipv4Addr::LOCALHOST.into()).into();
        let aborted = NoteKind::OrderReceived {
            caller,
            order: Verb::Abort.as_str(),
            refused: None,
        };
        let evidence = job(&[switched_on(), aborted]);
        check_none(&RULE, &evidence, &late(&evidence));
    }

    #[test]
    fn a_machine_that_was_seen_or_not_switched_on_does_not_match() {
        let evidence = job(&addressed());
        check_none(&RULE, &evidence, &late(&evidence));
        let evidence = job(&[]);
        check_none(&RULE, &evidence, &late(&evidence));
    }
}
