//! The transfer of the loader ends before its end, does not end, or takes much longer than those
//! of other nodes.

use super::{DiagnosisRule, DiagnosisText, action, duration, file_name, lacks_agent, size};
use crate::evidence::is_loader;
use crate::{DiagnosisContext, JobEvidence};
use trivet_model::Diagnosis;

/// How many times slower than the median of other nodes a transfer is that is reported. Ours.
const SLOWER_MIN: u64 = 10;

/// Shorter transfers vary too much. Ours: a loader takes less than one second.
const SLOW_MS_MIN: u64 = 5000;

pub(super) const RULE: DiagnosisRule = DiagnosisRule {
    name: "loader-incomplete",
    diagnose,
};

fn diagnose(evidence: &JobEvidence, context: &DiagnosisContext) -> Option<Diagnosis> {
    let sentence = stopped(evidence, context)
        .or_else(|| unfinished(evidence, context))
        .or_else(|| slow(evidence, context))?;
    let text = DiagnosisText {
        sentence,
        cause: "Packets are lost between this box and the machine: a bad cable or port, a smaller \
                MTU on the way, or a firewall that allows only UDP port 69."
            .to_owned(),
        next_action: "Check the cable and the counters of the switch port, and allow UDP from \
                      the machine to all ports of this box."
            .to_owned(),
        action: action("show-networks", "trivet lan networks".to_owned()),
    };
    Some(text.of(&RULE))
}

/// The last transfer ended before its end.
fn stopped(evidence: &JobEvidence, context: &DiagnosisContext) -> Option<String> {
    let boot = &evidence.boot;
    let loader = boot.loader.as_ref().filter(|file| !file.is_whole())?;
    if !lacks_agent(evidence, context) || boot.ipxe_at.is_some() || loader.requested == 0 {
        return None;
    }
    let times = match loader.tries {
        1 => String::new(),
        tries => format!(", {tries} times"),
    };
    Some(format!(
        "{} stopped at {} of {}{times}.",
        file_name(&loader.path),
        size(loader.sent),
        size(loader.requested)
    ))
}

/// The stage is late, and the first transfer goes on.
fn unfinished(evidence: &JobEvidence, context: &DiagnosisContext) -> Option<String> {
    let transfer = context.site.transfer.as_ref()?;
    if !lacks_agent(evidence, context) || !is_loader(&transfer.path) {
        return None;
    }
    Some(format!(
        "{} is at {} of {} and goes on slowly.",
        file_name(&transfer.path),
        size(transfer.sent),
        size(transfer.requested)
    ))
}

/// It arrived, much later than at other nodes. What follows in this boot is explained by other
/// rules.
fn slow(evidence: &JobEvidence, context: &DiagnosisContext) -> Option<String> {
    let loader = evidence
        .boot
        .loader
        .as_ref()
        .filter(|file| file.is_whole())?;
    let others = context.site.neighbour_loader_rate?;
    let is_slow = loader.rate().saturating_mul(SLOWER_MIN) <= others;
    if context.stage.is_some() || loader.took_ms < SLOW_MS_MIN || !is_slow {
        return None;
    }
    Some(format!(
        "{} took {} at {}/s; other nodes received theirs at {}/s.",
        file_name(&loader.path),
        duration(loader.took_ms),
        size(loader.rate()),
        size(others)
    ))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{addressed, check, check_none, in_time, job, late, loaded, sent};
    use super::*;

    #[test]
    fn the_place_and_the_number_of_tries_are_named() {
        let mut notes = addressed();
        for _ in 0..3 {
            notes.push(sent("TFTP", "snponly.efi", 112_000, 262_144));
        }
        let evidence = job(&notes);
        check_none(&RULE, &evidence, &in_time());
        let found = check(&RULE, &evidence, &late(&evidence));
        assert_eq!(
            found.sentence,
            "snponly.efi stopped at 112 KB of 262 KB, 3 times."
        );
    }

    #[test]
    fn a_transfer_that_takes_ten_times_as_long_as_at_other_nodes_is_named() {
        let evidence = job(&loaded());
        let mut context = in_time();
        check_none(&RULE, &evidence, &context);
        context.site.neighbour_loader_rate = Some(290_000);
        check_none(&RULE, &evidence, &context);
        context.site.neighbour_loader_rate = Some(2_000_000);
        let found = check(&RULE, &evidence, &context);
        assert_eq!(
            found.sentence,
            "snponly.efi took 9 s at 29 KB/s; other nodes received theirs at 2 MB/s."
        );
        context.stage = late(&evidence).stage;
        check_none(&RULE, &evidence, &context);
    }

    #[test]
    fn a_transfer_that_goes_on_when_the_stage_is_late_is_named_with_its_progress() {
        let evidence = job(&addressed());
        let mut context = late(&evidence);
        context.site.transfer = Some(crate::TransferInProgress {
            path: "snponly.efi".to_owned(),
            sent: 40_000,
            requested: 262_144,
        });
        let found = check(&RULE, &evidence, &context);
        assert_eq!(
            found.sentence,
            "snponly.efi is at 40 KB of 262 KB and goes on slowly."
        );
    }

    #[test]
    fn a_later_transfer_of_all_of_it_does_not_match() {
        let mut notes = addressed();
        notes.push(sent("TFTP", "snponly.efi", 112_000, 262_144));
        notes.extend(loaded().pop());
        let evidence = job(&notes);
        check_none(&RULE, &evidence, &late(&evidence));
    }
}
