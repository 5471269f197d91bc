//! The BMC answers and refuses the login.

use super::{DiagnosisRule, DiagnosisText, action};
use crate::{DiagnosisContext, JobEvidence};
use trivet_model::Diagnosis;

pub(super) const RULE: DiagnosisRule = DiagnosisRule {
    name: "bmc-login",
    diagnose,
};

fn diagnose(evidence: &JobEvidence, context: &DiagnosisContext) -> Option<Diagnosis> {
    let failure = evidence.bmc.as_ref()?;
    let site = &context.site;
    let address = site.bmc_address.as_deref().unwrap_or("of the node");
    let keys = site.bmc_keys;
    let node = &context.node_name;
    let user = match &site.bmc_user {
        Some(user) => format!("user {user}"),
        None => "the user".to_owned(),
    };
    let set = |key: &str| {
        action(
            "edit-bmc",
            format!("trivet node set {node} --driver-info {keys}_{key}"),
        )
    };
    let text = match failure.kind.as_str() {
        "login" => DiagnosisText {
            sentence: format!("The BMC at {address} refused the login of {user}."),
            cause: format!("{keys}_username or {keys}_password in driver_info is wrong."),
            next_action: "Correct them; a BMC may lock a user after several wrong passwords."
                .to_owned(),
            action: set("password=@FILE"),
        },
        "privilege" => DiagnosisText {
            sentence: format!("The BMC at {address} does not give {user} the privilege needed."),
            cause: "The limit of that user in the BMC is too low for power orders.".to_owned(),
            next_action: "Raise the user's privilege in the BMC to OPERATOR or ADMINISTRATOR."
                .to_owned(),
            action: set("priv_level=OPERATOR"),
        },
        "no_suite" => DiagnosisText {
            sentence: format!(
                "The BMC at {address} accepts none of the cipher suites of this box."
            ),
            cause: "The BMC is old, or its cipher suites are restricted.".to_owned(),
            next_action: "Enable cipher suite 17 or 3 in the BMC, or name one that it has."
                .to_owned(),
            action: set("cipher_suite=3"),
        },
        _ => return None,
    };
    Some(text.of(&RULE))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, check_none, in_time, job};
    use super::*;
    use trivet_model::{NoteKind, PowerState};

    fn failed(kind: &'static str) -> NoteKind {
        NoteKind::PowerFailed {
            kind,
            message: "the BMC's error".to_owned(),
        }
    }

    #[test]
    fn a_wrong_password_a_low_privilege_and_old_suites_have_sentences_of_their_own() {
        let login = check(&RULE, &job(&[failed("login")]), &in_time());
        assert_eq!(
            login.sentence,
            "The BMC at 10.0.0.17 refused the login of user admin."
        );
        let command = login.action.map(|action| action.command);
        assert_eq!(
            command.as_deref(),
            Some("trivet node set node-17 --driver-info ipmi_password=@FILE")
        );
        let privilege = check(&RULE, &job(&[failed("privilege")]), &in_time());
        assert!(privilege.sentence.contains("privilege"), "{privilege:?}");
        let suite = check(&RULE, &job(&[failed("no_suite")]), &in_time());
        assert!(suite.sentence.contains("cipher suites"), "{suite:?}");
    }

    #[test]
    fn other_failures_and_a_later_success_do_not_match() {
        check_none(&RULE, &job(&[failed("refused")]), &in_time());
        let repaired = job(&[failed("login"), NoteKind::PowerIs(PowerState::On)]);
        check_none(&RULE, &repaired, &in_time());
    }
}
