//! The loader was loaded, and its own request for an address never came.

use super::{DiagnosisRule, DiagnosisText, action, boots, file_name, lacks_agent};
use crate::{DiagnosisContext, JobEvidence};
use trivet_model::Diagnosis;

pub(super) const RULE: DiagnosisRule = DiagnosisRule {
    name: "loader-without-network",
    diagnose,
};

fn diagnose(evidence: &JobEvidence, context: &DiagnosisContext) -> Option<Diagnosis> {
    let boot = &evidence.boot;
    let loader = boot.loader.as_ref().filter(|file| file.is_whole())?;
    let has_gone_on = boot.ipxe_at.is_some() || boot.script.is_some() || boot.kernel.is_some();
    if !lacks_agent(evidence, context) || has_gone_on {
        return None;
    }
    let name = file_name(&loader.path);
    let text = DiagnosisText {
        sentence: format!(
            "{name} was loaded and requested no address afterwards{}.",
            boots(evidence)
        ),
        cause: "The loader found no network card that it can use, or Secure Boot refused to start \
                it."
        .to_owned(),
        next_action: format!(
            "Switch Secure Boot off, or put a loader with drivers of its own (ipxe.efi) in \
             boot.loaders in place of {name}."
        ),
        action: action("edit-settings", "trivet check --config FILE".to_owned()),
    };
    Some(text.of(&RULE))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, check_none, dhcp, in_time, job, late, loaded};
    use super::*;

    #[test]
    fn a_loader_without_a_request_of_its_own_matches_once_it_is_late() {
        let evidence = job(&loaded());
        check_none(&RULE, &evidence, &in_time());
        let found = check(&RULE, &evidence, &late(&evidence));
        assert_eq!(
            found.sentence,
            "snponly.efi was loaded and requested no address afterwards."
        );
    }

    #[test]
    fn a_loader_that_requests_an_address_does_not_match() {
        let mut notes = loaded();
        notes.push(dhcp("iPXE (UEFI x64)", None));
        let evidence = job(&notes);
        check_none(&RULE, &evidence, &late(&evidence));
    }
}
