//! The transfer of the loader ends before its end.

use super::{DiagnosisRule, DiagnosisText, action, file_name, lacks_agent, size};
use crate::{DiagnosisContext, JobEvidence};
use trivet_model::Diagnosis;

pub(super) const RULE: DiagnosisRule = DiagnosisRule {
    name: "loader-incomplete",
    diagnose,
};

fn diagnose(evidence: &JobEvidence, context: &DiagnosisContext) -> Option<Diagnosis> {
    let boot = &evidence.boot;
    let loader = boot.loader.as_ref().filter(|file| !file.is_whole())?;
    if !lacks_agent(evidence, context) || boot.ipxe_at.is_some() || loader.requested == 0 {
        return None;
    }
    let times = match loader.tries {
        1 => String::new(),
        tries => format!(", {tries} times"),
    };
    let text = DiagnosisText {
        sentence: format!(
            "{} stopped at {} of {}{times}.",
            file_name(&loader.path),
            size(loader.sent),
            size(loader.requested)
        ),
        cause: "Packets are lost between this box and the machine: a bad cable or port, a smaller \
                MTU on the way, or a firewall that allows only UDP port 69."
            .to_owned(),
        next_action: "Check the cable and the counters of the switch port, and allow UDP from \
                      the machine to all ports of this box."
            .to_owned(),
        action: action("show-networks", "trivet lan networks".to_owned()),
    };
    Some(text.of(&RULE))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{addressed, check, check_none, in_time, job, late, loaded, sent};
    use super::*;

    #[test]
    fn the_place_and_the_number_of_tries_are_named() {
        let mut notes = addressed();
        for _ in 0..3 {
            notes.push(sent("TFTP", "snponly.efi", 112_000, 262_144));
        }
        let evidence = job(&notes);
        check_none(&RULE, &evidence, &in_time());
        let found = check(&RULE, &evidence, &late(&evidence));
        assert_eq!(
            found.sentence,
            "snponly.efi stopped at 112 KB of 262 KB, 3 times."
        );
    }

    #[test]
    fn a_later_transfer_of_all_of_it_does_not_match() {
        let mut notes = addressed();
        notes.push(sent("TFTP", "snponly.efi", 112_000, 262_144));
        notes.extend(loaded().pop());
        let evidence = job(&notes);
        check_none(&RULE, &evidence, &late(&evidence));
    }
}
