//! Claims about ratios, and whether they hold.
//!
//! Other work on a machine slows some runs, of ours and of the peers. So a run is repeated
//! while one of its claims does not hold, a bounded number of times, and for each claim the
//! best ratio counts.

use std::io;

/// Most runs of one scenario.
pub const RUNS_MAX: usize = 3;

/// The claimed ratio of ours to the peer's.
#[derive(Clone, Copy, Debug)]
pub enum RatioLimit {
    /// At least this.
    AtLeast(f64),
    /// At most this.
    AtMost(f64),
}

/// One claim.
#[derive(Clone, Copy, Debug)]
pub struct RatioClaim {
    /// What is measured, with its unit.
    pub name: &'static str,
    /// The claimed limit.
    pub limit: RatioLimit,
}

impl RatioClaim {
    fn holds(&self, ratio: f64) -> bool {
        match self.limit {
            RatioLimit::AtLeast(least) => ratio >= least,
            RatioLimit::AtMost(most) => ratio <= most,
        }
    }

    fn is_better(&self, ratio: f64, than: f64) -> bool {
        match self.limit {
            RatioLimit::AtLeast(_) => ratio > than,
            RatioLimit::AtMost(_) => ratio < than,
        }
    }
}

/// The result of one run for one claim.
#[derive(Clone, Debug)]
pub struct RatioSample {
    /// Ours.
    pub ours: f64,
    /// The peer's.
    pub peer: f64,
    /// The peer's name.
    pub peer_name: &'static str,
}

impl RatioSample {
    fn ratio(&self) -> f64 {
        self.ours / self.peer
    }
}

/// Runs a scenario until each of its claims held once, and prints the result of each. True if
/// all held.
///
/// # Errors
///
/// When a run fails; that does not depend on speed, so it is not repeated.
pub fn check_claims(
    claims: &[RatioClaim],
    mut run: impl FnMut() -> io::Result<Vec<RatioSample>>,
    say: &mut dyn FnMut(&str),
) -> io::Result<bool> {
    let mut best: Vec<Option<RatioSample>> = vec![None; claims.len()];
    let mut runs = 0;
    let holds = |(claim, seen): (&RatioClaim, &Option<RatioSample>)| {
        seen.as_ref().is_some_and(|seen| claim.holds(seen.ratio()))
    };
    while runs < RUNS_MAX && !claims.iter().zip(&best).all(holds) {
        runs += 1;
        for ((claim, best), seen) in claims.iter().zip(&mut best).zip(run()?) {
            let ratio = seen.ratio();
            let than = best.as_ref().map(RatioSample::ratio);
            if than.is_none_or(|than| claim.is_better(ratio, than)) {
                *best = Some(seen);
            }
        }
    }
    for (claim, best) in claims.iter().zip(&best) {
        say(&line(claim, best.as_ref(), runs));
    }
    Ok(claims.iter().zip(&best).all(holds))
}

fn line(claim: &RatioClaim, best: Option<&RatioSample>, runs: usize) -> String {
    let Some(seen) = best else {
        return format!("FAIL {}: nothing measured", claim.name);
    };
    let word = if claim.holds(seen.ratio()) {
        "PASS"
    } else {
        "FAIL"
    };
    let limit = match claim.limit {
        RatioLimit::AtLeast(least) => format!("at least {least}"),
        RatioLimit::AtMost(most) => format!("at most {most}"),
    };
    format!(
        "{word} {}: {:.3}, {} {:.3}, ratio {:.2} ({limit}; best of {runs})",
        claim.name,
        seen.ours,
        seen.peer_name,
        seen.peer,
        seen.ratio()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const FASTER: RatioClaim = RatioClaim {
        name: "rate",
        limit: RatioLimit::AtLeast(1.0),
    };
    const CHEAPER: RatioClaim = RatioClaim {
        name: "cost",
        limit: RatioLimit::AtMost(0.5),
    };

    fn checked(runs: &[[f64; 2]]) -> (bool, Vec<String>) {
        let mut runs = runs.iter();
        let run = || {
            let ratios = runs
                .next()
                .ok_or_else(|| io::Error::other("one too many"))?;
            let seen = ratios.map(|ours| RatioSample {
                ours,
                peer: 1.0,
                peer_name: "peer",
            });
            Ok(seen.to_vec())
        };
        let mut lines = Vec::new();
        let within_limits = check_claims(&[FASTER, CHEAPER], run, &mut |line| {
            lines.push(line.to_owned());
        });
        (within_limits.unwrap(), lines)
    }

    #[test]
    fn a_run_that_shows_all_claims_is_enough() {
        let (within_limits, lines) = checked(&[[1.0, 0.5]]);
        assert!(within_limits);
        let want = "PASS rate: 1.000, peer 1.000, ratio 1.00 (at least 1; best of 1)";
        assert_eq!(lines[0], want);
    }

    #[test]
    fn the_best_of_each_claim_counts() {
        let (within_limits, lines) = checked(&[[1.2, 0.7], [0.8, 0.4]]);
        assert!(within_limits);
        assert!(lines[0].contains("ratio 1.20"), "{lines:?}");
        assert!(lines[1].contains("ratio 0.40"), "{lines:?}");
    }

    #[test]
    fn a_claim_that_never_holds_fails_after_the_last_run() {
        let (within_limits, lines) = checked(&[[0.9, 0.4], [0.7, 0.4], [0.8, 0.4]]);
        assert!(!within_limits);
        assert!(lines[0].starts_with("FAIL rate: 0.900"), "{lines:?}");
        assert!(lines[1].starts_with("PASS cost"), "{lines:?}");
    }
}
