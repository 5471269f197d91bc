//! Kernel and ramdisk were loaded, and the agent never called.

use super::{DiagnosisRule, DiagnosisText, action, boots, duration, lacks_agent, size};
use crate::{DiagnosisContext, JobEvidence};
use trivet_model::Diagnosis;

pub(super) const RULE: DiagnosisRule = DiagnosisRule {
    name: "agent-silent",
    diagnose,
};

fn diagnose(evidence: &JobEvidence, context: &DiagnosisContext) -> Option<Diagnosis> {
    let boot = &evidence.boot;
    let ramdisk = boot.ramdisk.as_ref().filter(|file| file.is_whole())?;
    if !lacks_agent(evidence, context) || boot.looked_up_at.is_some() || boot.lookup.is_some() {
        return None;
    }
    let memory = match context.site.memory_mib {
        Some(mib) => format!(" (inspection found {mib} MiB)"),
        None => String::new(),
    };
    let node = &context.node_name;
    let text = DiagnosisText {
        sentence: format!(
            "The ramdisk was loaded ({} in {}) and its agent never called {}{}.",
            size(ramdisk.requested),
            duration(ramdisk.took_ms),
            context.site.api_url,
            boots(evidence)
        ),
        cause: format!(
            "The kernel stopped, the memory is too small for the ramdisk{memory}, the ramdisk has \
             no driver for the network card, or the way to that address is blocked."
        ),
        next_action: "Look at the console of the machine: the agent writes there what it waits \
                      for."
            .to_owned(),
        action: action("show-node", format!("trivet node show {node}")),
    };
    Some(text.of(&RULE))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{booted, check, check_none, in_time, job, late, sent};
    use super::*;
    use trivet_model::NoteKind;

    #[test]
    fn the_size_and_the_url_are_named_once_it_is_late() {
        let evidence = job(&booted());
        check_none(&RULE, &evidence, &in_time());
        let mut context = late(&evidence);
        context.site.memory_mib = Some(2048);
        let found = check(&RULE, &evidence, &context);
        assert_eq!(
            found.sentence,
            "The ramdisk was loaded (88 MB in 9 s) and its agent never called \
             http://192.0.2.1:6385."
        );
        assert!(found.cause.contains("2048 MiB"), "{found:?}");
    }

    #[test]
    fn a_part_of_the_ramdisk_or_a_lookup_does_not_match() {
        let mut part = booted();
        part.pop();
        part.push(sent("HTTP", "/boot/ramdisk", 9, 88_000_000));
        let evidence = job(&part);
        check_none(&RULE, &evidence, &late(&evidence));
        let mut called = booted();
        let from = [192, 0, 2, 100].into();
        called.push(NoteKind::AgentLookedUp { from });
        let evidence = job(&called);
        check_none(&RULE, &evidence, &late(&evidence));
    }
}
