//! The agent looked its node up with hardware addresses that are not those of one node.

use super::{DiagnosisRule, DiagnosisText, action, lacks_agent};
use crate::{DiagnosisContext, JobEvidence};
use trivet_model::Diagnosis;

pub(super) const RULE: DiagnosisRule = DiagnosisRule {
    name: "lookup-unmatched",
    diagnose,
};

fn diagnose(evidence: &JobEvidence, context: &DiagnosisContext) -> Option<Diagnosis> {
    if !lacks_agent(evidence, context) {
        return None;
    }
    let lookup = evidence.boot.lookup.as_ref()?;
    let node = &context.node_name;
    let machine = match &lookup.macs[..] {
        [one] => format!("address {one}"),
        more => format!("addresses {}", more.join(", ")),
    };
    let ports = match context.site.port_macs.join(", ") {
        ports if ports.is_empty() => format!("{node} has no port"),
        ports => format!("the ports of {node} have {ports}"),
    };
    let text = if lookup.nodes == 0 {
        let first = lookup.macs.first().map_or("MAC", String::as_str);
        DiagnosisText {
            sentence: format!("The agent has the hardware {machine}; {ports}."),
            cause: "The machine has other network cards than its record says.".to_owned(),
            next_action: "Create a port for one of them, if this is the machine of the node."
                .to_owned(),
            action: action(
                "add-port",
                format!("trivet port create --node {node} --address {first}"),
            ),
        }
    } else {
        DiagnosisText {
            sentence: format!(
                "The agent has the hardware {machine}, of {} nodes.",
                lookup.nodes
            ),
            cause: "Ports of one machine are in the records of several nodes.".to_owned(),
            next_action: "Delete the ports that are not this machine's.".to_owned(),
            action: action("list-ports", format!("trivet port list --node {node}")),
        }
    };
    Some(text.of(&RULE))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{booted, check, check_none, in_time, job, late};
    use super::*;
    use trivet_model::{EvidenceNote, MacAddr, NoteKind};

    fn lookup(nodes: usize) -> NoteKind {
        NoteKind::Evidence(EvidenceNote::LookupUnmatched {
            from: [192, 0, 2, 100].into(),
            macs: vec![MacAddr([2, 0, 0, 0, 0, 1])],
            nodes,
        })
    }

    #[test]
    fn unknown_addresses_are_named_with_those_of_the_record() {
        let mut notes = booted();
        notes.push(lookup(0));
        let evidence = job(&notes);
        check_none(&RULE, &evidence, &in_time());
        let found = check(&RULE, &evidence, &late(&evidence));
        assert_eq!(
            found.sentence,
            "The agent has the hardware address 02:00:00:00:00:01; the ports of node-17 have \
             52:54:00:00:00:17."
        );
        let command = found.action.map(|action| action.command);
        assert_eq!(
            command.as_deref(),
            Some("trivet port create --node node-17 --address 02:00:00:00:00:01")
        );
    }

    #[test]
    fn addresses_of_several_nodes_have_another_sentence() {
        let mut notes = booted();
        notes.push(lookup(2));
        let evidence = job(&notes);
        let found = check(&RULE, &evidence, &late(&evidence));
        assert!(found.sentence.contains("of 2 nodes"), "{found:?}");
    }

    #[test]
    fn a_later_lookup_that_matched_ends_it() {
        let mut notes = booted();
        notes.push(lookup(0));
        let from = [192, 0, 2, 100].into();
        notes.push(NoteKind::AgentLookedUp { from });
        let evidence = job(&notes);
        check_none(&RULE, &evidence, &late(&evidence));
    }
}
