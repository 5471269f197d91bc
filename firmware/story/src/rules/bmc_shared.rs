//! Another node names the same BMC.

use super::{DiagnosisRule, DiagnosisText, action};
use crate::{DiagnosisContext, JobEvidence};
use trivet_model::Diagnosis;

pub(super) const RULE: DiagnosisRule = DiagnosisRule {
    name: "bmc-shared",
    diagnose,
};

fn diagnose(_: &JobEvidence, context: &DiagnosisContext) -> Option<Diagnosis> {
    let other = context.site.bmc_shared_with.as_ref()?;
    let node = &context.node_name;
    let keys = context.site.bmc_keys;
    let address = context.site.bmc_address.as_deref().unwrap_or("its address");
    let text = DiagnosisText {
        sentence: format!(
            "Node {other} has the same BMC, {address}, so the power of {node} is not switched."
        ),
        cause: "Two records name one BMC; only the older node uses it.".to_owned(),
        next_action: format!(
            "Correct {keys}_address in driver_info of one of the two, or delete one."
        ),
        action: action(
            "edit-bmc",
            format!("trivet node set {node} --driver-info {keys}_address=ADDRESS"),
        ),
    };
    Some(text.of(&RULE))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, check_none, in_time, job};
    use super::*;

    #[test]
    fn the_other_node_is_named() {
        let mut context = in_time();
        check_none(&RULE, &job(&[]), &context);
        context.site.bmc_shared_with = Some("node-04".to_owned());
        let found = check(&RULE, &job(&[]), &context);
        assert_eq!(
            found.sentence,
            "Node node-04 has the same BMC, 10.0.0.17, so the power of node-17 is not switched."
        );
    }
}
