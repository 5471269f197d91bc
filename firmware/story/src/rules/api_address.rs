//! Machines are told an address of the API that they cannot reach: a loopback address, or one
//! outside of their network, which has no router.

use super::{DiagnosisRule, DiagnosisText, action, lacks_agent};
use crate::{DiagnosisContext, FileEvidence, JobEvidence};
use trivet_model::Diagnosis;

pub(super) const RULE: DiagnosisRule = DiagnosisRule {
    name: "api-address",
    diagnose,
};

fn diagnose(evidence: &JobEvidence, context: &DiagnosisContext) -> Option<Diagnosis> {
    let (site, boot) = (&context.site, &evidence.boot);
    let loader = boot.loader.as_ref();
    let has_loaded = loader.is_some_and(FileEvidence::is_whole) || boot.ipxe_at.is_some();
    if !lacks_agent(evidence, context) || !has_loaded || boot.looked_up_at.is_some() {
        return None;
    }
    let url = &site.api_url;
    let better = match &site.own_address {
        Some(address) => format!(", such as {address}"),
        None => String::new(),
    };
    let listen = format!(
        "Set api.listen to 0.0.0.0 or to an address on the machines' network{better}, and start \
         the box again"
    );
    let (sentence, cause, next_action) = if site.api_is_loopback {
        (
            format!("Machines are sent to {url}, where each of them reaches only itself."),
            "api.listen or api.public_url is a loopback address.".to_owned(),
            format!("{listen}."),
        )
    } else {
        let network = site.api_outside_of.as_ref()?;
        (
            format!("Machines are sent to {url}, which is not on their network, {network}."),
            format!(
                "api.listen or api.public_url has another network, and {network} has no router."
            ),
            format!("{listen}; or set router in [[dhcp]]."),
        )
    };
    let text = DiagnosisText {
        sentence,
        cause,
        next_action,
        action: action("edit-settings", "trivet check --config FILE".to_owned()),
    };
    Some(text.of(&RULE))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{booted, check, check_none, job, late};
    use super::*;
    use trivet_model::NoteKind;

    #[test]
    fn an_agent_that_calls_itself_is_explained() {
        let evidence = job(&booted());
        let mut context = late(&evidence);
        check_none(&RULE, &evidence, &context);
        context.site.api_is_loopback = true;
        context.site.api_url = "http://127.0.0.1:6385".to_owned();
        let found = check(&RULE, &evidence, &context);
        assert_eq!(
            found.sentence,
            "Machines are sent to http://127.0.0.1:6385, where each of them reaches only itself."
        );
        assert!(found.next_action.contains("192.0.2.1"), "{found:?}");
    }

    #[test]
    fn an_address_outside_of_a_network_without_a_router_is_explained() {
        let evidence = job(&booted());
        let mut context = late(&evidence);
        context.site.api_url = "http://198.51.100.1:6385".to_owned();
        context.site.api_outside_of = Some("192.0.2.0/24".to_owned());
        let found = check(&RULE, &evidence, &context);
        assert_eq!(
            found.sentence,
            "Machines are sent to http://198.51.100.1:6385, which is not on their network, \
             192.0.2.0/24."
        );
        assert!(found.next_action.contains("router"), "{found:?}");
    }

    #[test]
    fn an_agent_that_reached_the_box_does_not_match() {
        let mut notes = booted();
        let from = [192, 0, 2, 100].into();
        notes.push(NoteKind::AgentLookedUp { from });
        let evidence = job(&notes);
        let mut context = late(&evidence);
        context.site.api_is_loopback = true;
        check_none(&RULE, &evidence, &context);
    }
}
