//! The machine requests an address where the box sends nothing.

use super::{DiagnosisRule, DiagnosisText, action, lacks_agent};
use crate::{DiagnosisContext, JobEvidence};
use trivet_model::Diagnosis;

pub(super) const RULE: DiagnosisRule = DiagnosisRule {
    name: "dhcp-not-served",
    diagnose,
};

fn diagnose(evidence: &JobEvidence, context: &DiagnosisContext) -> Option<Diagnosis> {
    let boot = &evidence.boot;
    let unserved = boot.unserved.as_ref()?;
    if !lacks_agent(evidence, context) || boot.address.is_some() || boot.loader.is_some() {
        return None;
    }
    let text = DiagnosisText {
        sentence: format!(
            "{} requests an address on {}, where this box only listens.",
            unserved.mac, unserved.link
        ),
        cause: format!(
            "The mode of {} is listen, and no other server there says what to boot.",
            unserved.link
        ),
        next_action: "Set mode in [[dhcp]] to server, reservations or proxy, and start the box \
                      again."
            .to_owned(),
        action: action("change-mode", "trivet lan networks".to_owned()),
    };
    Some(text.of(&RULE))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{
        MAC, addressed, check, check_none, in_time, job, late, switched_on,
    };
    use super::*;
    use trivet_model::{EvidenceNote, NoteKind};

    fn unserved() -> NoteKind {
        NoteKind::Evidence(EvidenceNote::DhcpNotServed {
            link: "eth2".to_owned(),
            mac: MAC,
        })
    }

    #[test]
    fn the_interface_is_named_once_the_job_is_late() {
        let evidence = job(&[switched_on(), unserved()]);
        check_none(&RULE, &evidence, &in_time());
        let found = check(&RULE, &evidence, &late(&evidence));
        assert_eq!(
            found.sentence,
            "52:54:00:00:00:17 requests an address on eth2, where this box only listens."
        );
    }

    #[test]
    fn a_machine_that_was_served_elsewhere_does_not_match() {
        let mut notes = addressed();
        notes.push(unserved());
        let evidence = job(&notes);
        check_none(&RULE, &evidence, &late(&evidence));
    }
}
