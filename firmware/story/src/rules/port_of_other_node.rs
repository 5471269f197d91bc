//! No packet of the node's ports arrived, but the machine of another node, which nobody switched
//! on, booted from the network.

use super::{DiagnosisRule, DiagnosisText, action, between, lacks_agent};
use crate::{DiagnosisContext, JobEvidence};
use trivet_model::Diagnosis;

pub(super) const RULE: DiagnosisRule = DiagnosisRule {
    name: "port-of-other-node",
    diagnose,
};

fn diagnose(evidence: &JobEvidence, context: &DiagnosisContext) -> Option<Diagnosis> {
    let boot = &evidence.boot;
    let on_at = boot.switched_on_at?;
    if !lacks_agent(evidence, context) || boot.first_frame_at.is_some() {
        return None;
    }
    let seen = evidence.other_nodes.first()?;
    let names = &context.site.other_nodes;
    let (_, other) = names.iter().find(|(id, _)| *id == seen.node)?;
    let node = &context.node_name;
    let mac = &seen.mac;
    // In an earlier boot of the job it was seen before the latest power-on.
    let after = if seen.at >= on_at {
        between(on_at, seen.at)
    } else {
        "shortly".to_owned()
    };
    let text = DiagnosisText {
        sentence: format!(
            "{mac}, a port of node {other}, requested a boot {after} after the power-on of \
             {node}, and no packet of {node} arrived."
        ),
        cause: format!(
            "The hardware address of this machine is in the record of {other}, or the BMC \
             addresses of the two nodes are exchanged."
        ),
        next_action: format!(
            "Compare the ports and BMC addresses of {node} and {other} with the labels of the \
             machines, and correct the records."
        ),
        action: action("list-ports", format!("trivet port list --node {other}")),
    };
    Some(text.of(&RULE))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{addressed, check, check_none, in_time, job, late, switched_on};
    use super::*;
    use trivet_model::UnixMs;

    const OTHER: &str = "52:54:00:00:00:04";

    fn named(mut context: DiagnosisContext) -> DiagnosisContext {
        let other = ("uuid-4".to_owned(), "node-04".to_owned());
        context.site.other_nodes.push(other);
        context
    }

    #[test]
    fn the_node_that_has_the_port_is_named() {
        let mut evidence = job(&[switched_on()]);
        evidence.observe_other_node(UnixMs(39_000), "uuid-4", OTHER);
        check_none(&RULE, &evidence, &named(in_time()));
        let found = check(&RULE, &evidence, &named(late(&evidence)));
        assert_eq!(
            found.sentence,
            "52:54:00:00:00:04, a port of node node-04, requested a boot 38 s after the power-on \
             of node-17, and no packet of node-17 arrived."
        );
        let command = found.action.map(|action| action.command);
        assert_eq!(command.as_deref(), Some("trivet port list --node node-04"));
    }

    #[test]
    fn a_node_that_is_gone_and_one_that_booted_before_do_not_match() {
        let mut evidence = job(&[]);
        evidence.observe_other_node(UnixMs(39_000), "uuid-4", OTHER);
        check_none(&RULE, &evidence, &named(late(&evidence)));
        let mut evidence = job(&[switched_on()]);
        evidence.observe_other_node(UnixMs(39_000), "uuid-4", OTHER);
        check_none(&RULE, &evidence, &late(&evidence));
        let mut evidence = job(&addressed());
        evidence.observe_other_node(UnixMs(39_000), "uuid-4", OTHER);
        check_none(&RULE, &evidence, &named(late(&evidence)));
    }
}
