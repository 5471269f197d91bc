//! The image is transferred much more slowly than to other machines.

use super::{DiagnosisRule, DiagnosisText, find_machine, size};
use crate::{DiagnosisContext, JobEvidence};
use trivet_model::Diagnosis;

pub(super) const RULE: DiagnosisRule = DiagnosisRule {
    name: "slow-link",
    diagnose,
};

/// How many times slower than the median a link is that is reported. Ours: 100 Mbit/s instead of
/// 1 Gbit/s.
const SLOWER_MIN: u64 = 9;

/// Smaller transfers say nothing about a link. Ours.
const BYTES_MIN: u64 = 1 << 20;

fn diagnose(evidence: &JobEvidence, context: &DiagnosisContext) -> Option<Diagnosis> {
    let transfer = evidence.image_transfer.as_ref()?;
    let others = context.site.neighbour_image_rate?;
    let rate = transfer.rate();
    if transfer.sent < BYTES_MIN || rate.saturating_mul(SLOWER_MIN) > others {
        return None;
    }
    let node = &context.node_name;
    let text = DiagnosisText {
        sentence: format!(
            "{node} received its image at {}/s, other nodes at {}/s.",
            size(rate),
            size(others)
        ),
        cause: "A bad cable, or a network card or switch port that runs at a lower speed."
            .to_owned(),
        next_action: "Compare the speed of the port on the switch, and change the cable."
            .to_owned(),
        action: find_machine(context),
    };
    Some(text.of(&RULE))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, check_none, in_time, job, sent};
    use super::*;

    #[test]
    fn a_tenth_of_the_rate_of_others_matches() {
        let evidence = job(&[sent(
            "HTTP",
            "/nodes/1/2/debian.raw",
            81_000_000,
            81_000_000,
        )]);
        let mut context = in_time();
        check_none(&RULE, &evidence, &context);
        context.site.neighbour_image_rate = Some(30_000_000);
        check_none(&RULE, &evidence, &context);
        context.site.neighbour_image_rate = Some(110_000_000);
        let found = check(&RULE, &evidence, &context);
        assert_eq!(
            found.sentence,
            "node-17 received its image at 9 MB/s, other nodes at 110 MB/s."
        );
    }

    #[test]
    fn a_small_file_says_nothing() {
        let evidence = job(&[sent("HTTP", "/images/small", 9000, 9000)]);
        let mut context = in_time();
        context.site.neighbour_image_rate = Some(110_000_000);
        check_none(&RULE, &evidence, &context);
    }
}
