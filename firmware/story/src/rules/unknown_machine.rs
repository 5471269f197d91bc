//! No packet of the node's ports arrived, but an unknown machine appeared after the power-on.

use super::{DiagnosisRule, DiagnosisText, action, between, lacks_agent};
use crate::{DiagnosisContext, JobEvidence};
use trivet_model::{Diagnosis, UnixMs};

pub(super) const RULE: DiagnosisRule = DiagnosisRule {
    name: "unknown-machine",
    diagnose,
};

fn diagnose(evidence: &JobEvidence, context: &DiagnosisContext) -> Option<Diagnosis> {
    let boot = &evidence.boot;
    let on_at = boot.switched_on_at?;
    if !lacks_agent(evidence, context) || boot.first_frame_at.is_some() {
        return None;
    }
    let (mac, after) = candidate(evidence, context, on_at)?;
    let node = &context.node_name;
    let ports = context.site.port_macs.join(", ");
    let text = DiagnosisText {
        sentence: format!(
            "No packet of {ports} arrived, but the unknown machine {mac} requested an address \
             {after} after the power-on of {node}."
        ),
        cause: format!("That may be the network card of {node}, and its record has another one."),
        next_action: "Compare the address with the label of the machine or with its BMC, then \
                      create a port for it."
            .to_owned(),
        action: action(
            "use-mac",
            format!("trivet port create --node {node} --address {mac}"),
        ),
    };
    Some(text.of(&RULE))
}

/// The machine that was first seen in this job; else one that was seen after the power-on.
fn candidate(
    evidence: &JobEvidence,
    context: &DiagnosisContext,
    on_at: UnixMs,
) -> Option<(String, String)> {
    let unknown = &context.site.unknown_machines;
    let is_unknown = |mac: &str| unknown.iter().any(|(other, _)| other == mac);
    let first = evidence.unknown_machines.iter();
    if let Some(first) = first.clone().find(|one| is_unknown(&one.mac)) {
        // In an earlier boot of the job it was seen before the latest power-on.
        let after = if first.at >= on_at {
            between(on_at, first.at)
        } else {
            "shortly".to_owned()
        };
        return Some((first.mac.clone(), after));
    }
    let (mac, at) = unknown.iter().find(|(_, at)| *at >= on_at)?;
    Some((mac.clone(), between(on_at, *at)))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{addressed, check, check_none, in_time, job, late, switched_on};
    use super::*;

    const OTHER: &str = "1a:1c:4e:c1:05:5e";

    fn seen(mut context: DiagnosisContext, second: u64) -> DiagnosisContext {
        let seen = (OTHER.to_owned(), UnixMs(second * 1000));
        context.site.unknown_machines.push(seen);
        context
    }

    #[test]
    fn a_machine_that_appeared_after_the_power_on_is_named() {
        let mut evidence = job(&[switched_on()]);
        evidence.observe_unknown_machine(UnixMs(39_000), OTHER);
        check_none(&RULE, &evidence, &seen(in_time(), 50));
        let found = check(&RULE, &evidence, &seen(late(&evidence), 50));
        assert_eq!(
            found.sentence,
            "No packet of 52:54:00:00:00:17 arrived, but the unknown machine 1a:1c:4e:c1:05:5e \
             requested an address 38 s after the power-on of node-17."
        );
        assert_eq!(
            found.action.map(|action| action.kind).as_deref(),
            Some("use-mac")
        );
    }

    #[test]
    fn a_machine_from_before_one_that_became_a_port_and_a_known_one_do_not_match() {
        let mut evidence = job(&[switched_on()]);
        check_none(&RULE, &evidence, &seen(late(&evidence), 0));
        evidence.observe_unknown_machine(UnixMs(39_000), OTHER);
        check_none(&RULE, &evidence, &late(&evidence));
        let evidence = job(&addressed());
        check_none(&RULE, &evidence, &seen(late(&evidence), 50));
    }
}
