//! The machine chose the offer of another DHCP server.

use super::{DiagnosisRule, DiagnosisText, action, lacks_agent};
use crate::{DiagnosisContext, JobEvidence};
use trivet_model::Diagnosis;

pub(super) const RULE: DiagnosisRule = DiagnosisRule {
    name: "address-from-other-server",
    diagnose,
};

fn diagnose(evidence: &JobEvidence, context: &DiagnosisContext) -> Option<Diagnosis> {
    let boot = &evidence.boot;
    let other = boot.other_server.as_ref()?;
    if !lacks_agent(evidence, context) || boot.loader.is_some() || boot.ipxe_at.is_some() {
        return None;
    }
    let mut links = context.site.links.iter();
    let mode = links.find(|link| link.name == other.link);
    let mode = mode.map_or("server", |link| link.mode);
    let (cause, next_action) = if mode == "proxy" {
        (
            "This box sends boot information there (mode proxy), and the machine did not use it.",
            format!(
                "Remove the boot file and next server from the settings of {}.",
                other.server
            ),
        )
    } else {
        (
            "Two DHCP servers answer on this network, and the other one does not say what to boot.",
            "Switch one of the two off, or set this box to mode proxy there.".to_owned(),
        )
    };
    let text = DiagnosisText {
        sentence: format!(
            "The machine took {} from {}, another DHCP server on {}.",
            other.address, other.server, other.link
        ),
        cause: cause.to_owned(),
        next_action,
        action: action("change-mode", "trivet lan networks".to_owned()),
    };
    Some(text.of(&RULE))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{MAC, check, check_none, dhcp, in_time, job, late, switched_on};
    use super::*;
    use crate::SiteLink;
    use trivet_model::{EvidenceNote, NoteKind};

    fn chosen() -> NoteKind {
        NoteKind::Evidence(EvidenceNote::OtherServerChosen {
            link: "eth1".to_owned(),
            mac: MAC,
            address: [192, 0, 2, 59].into(),
            server: [192, 0, 2, 254].into(),
        })
    }

    #[test]
    fn the_other_server_is_named_and_the_next_action_depends_on_the_mode() {
        let evidence = job(&[switched_on(), chosen()]);
        check_none(&RULE, &evidence, &in_time());
        let mut context = late(&evidence);
        let found = check(&RULE, &evidence, &context);
        assert_eq!(
            found.sentence,
            "The machine took 192.0.2.59 from 192.0.2.254, another DHCP server on eth1."
        );
        assert!(found.next_action.contains("mode proxy"), "{found:?}");
        let (name, mode) = ("eth1".to_owned(), "proxy");
        context.site.links.push(SiteLink { name, mode });
        let found = check(&RULE, &evidence, &context);
        assert!(found.next_action.contains("boot file"), "{found:?}");
    }

    #[test]
    fn a_machine_that_took_our_address_later_does_not_match() {
        let ours = dhcp("UEFI x64 PXE", Some("snponly.efi"));
        let evidence = job(&[switched_on(), chosen(), ours]);
        check_none(&RULE, &evidence, &late(&evidence));
    }
}
