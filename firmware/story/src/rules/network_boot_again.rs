//! The image is written, and the machine boots from the network again.

use super::{DiagnosisRule, DiagnosisText, action};
use crate::{DiagnosisContext, JobEvidence};
use trivet_model::Diagnosis;

pub(super) const RULE: DiagnosisRule = DiagnosisRule {
    name: "network-boot-again",
    diagnose,
};

fn diagnose(evidence: &JobEvidence, context: &DiagnosisContext) -> Option<Diagnosis> {
    let (written, _) = (evidence.written_at?, evidence.net_boot_after_deploy_at?);
    if context.site.netboots_instance {
        return None;
    }
    let node = &context.node_name;
    // To the second: 2026-11-16T02:37:20.
    let written = written.to_string();
    let written = written.split(['.', '+']).next().unwrap_or_default();
    let written = written.replace('T', " ");
    let text = DiagnosisText {
        sentence: format!(
            "The image was written at {written} UTC, but {node} boots from the network again."
        ),
        cause: "The network is before the disk in the boot order of the firmware, and the BMC did \
                not keep the boot device disk."
            .to_owned(),
        next_action: "Set the boot device again; if that does not help, change the boot order in \
                      the setup of the firmware."
            .to_owned(),
        action: action(
            "set-boot-device",
            format!("trivet node boot-device {node} disk --persistent"),
        ),
    };
    Some(text.of(&RULE))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{booted, check, check_none, dhcp, in_time, job};
    use super::*;
    use trivet_model::{NoteKind, ProvisionState};

    fn deployed() -> Vec<NoteKind> {
        let mut notes = booted();
        notes.push(NoteKind::StepDone {
            step: "write_image".to_owned(),
        });
        notes.push(NoteKind::StateChanged {
            from: ProvisionState::Deploying,
            to: ProvisionState::Active,
        });
        notes
    }

    #[test]
    fn firmware_that_requests_an_address_after_the_deployment_matches() {
        let mut notes = deployed();
        check_none(&RULE, &job(&notes), &in_time());
        notes.push(dhcp("UEFI x64 PXE", Some("snponly.efi")));
        let mut context = in_time();
        let found = check(&RULE, &job(&notes), &context);
        assert!(
            found
                .sentence
                .contains("node-17 boots from the network again")
        );
        context.site.netboots_instance = true;
        check_none(&RULE, &job(&notes), &context);
    }

    #[test]
    fn the_installed_system_may_request_an_address() {
        let mut notes = deployed();
        notes.push(dhcp("operating system", None));
        check_none(&RULE, &job(&notes), &in_time());
    }
}
