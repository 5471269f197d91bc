//! The machine has its address and never requested the loader.

use super::{DiagnosisRule, DiagnosisText, action, boots, file_name, lacks_agent};
use crate::{DiagnosisContext, JobEvidence};
use trivet_model::Diagnosis;

pub(super) const RULE: DiagnosisRule = DiagnosisRule {
    name: "loader-not-requested",
    diagnose,
};

fn diagnose(evidence: &JobEvidence, context: &DiagnosisContext) -> Option<Diagnosis> {
    let boot = &evidence.boot;
    let (address, file) = (boot.address.as_ref()?, boot.boot_file.as_ref()?);
    let has_gone_on = boot.loader.is_some() || boot.ipxe_at.is_some() || boot.script.is_some();
    if !lacks_agent(evidence, context) || has_gone_on || boot.refused.is_some() {
        return None;
    }
    let (port, service) = if file.starts_with("http") {
        ("the TCP port of its URL", "HTTP")
    } else {
        ("UDP port 69", "TFTP")
    };
    let text = DiagnosisText {
        sentence: format!(
            "The machine has its address, {address}, and never requested {}{}.",
            file_name(file),
            boots(evidence)
        ),
        cause: format!(
            "The boot order is right; {port} ({service}) is blocked between the machine and this \
             box, or its firmware ignores the boot file."
        ),
        next_action: format!(
            "Allow {port} to this box, and look at the console for an error of the firmware."
        ),
        action: action("show-networks", "trivet lan networks".to_owned()),
    };
    Some(text.of(&RULE))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{addressed, check, check_none, in_time, job, late, loaded};
    use super::*;

    #[test]
    fn the_address_and_the_file_are_named_once_it_is_late() {
        let evidence = job(&addressed());
        check_none(&RULE, &evidence, &in_time());
        let found = check(&RULE, &evidence, &late(&evidence));
        assert_eq!(
            found.sentence,
            "The machine has its address, 192.0.2.100, and never requested snponly.efi."
        );
        assert!(found.cause.contains("UDP port 69"), "{found:?}");
    }

    #[test]
    fn a_machine_that_loads_does_not_match() {
        let evidence = job(&loaded());
        check_none(&RULE, &evidence, &late(&evidence));
    }
}
