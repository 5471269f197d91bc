//! One line that shows the progress of a wait.

use std::fmt::Write as _;

use crate::activity::Activity;
use crate::table::cut;
use crate::wait::NodeSnapshot;

/// Characters inside the bar.
const BAR_CHARS: u64 = 20;

/// The progress of a wait.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct ProgressLine {
    words: String,
    /// Completed halves of steps, for the bar; the current step, and the number of
    /// steps.
    done: Option<(u64, u64, u64)>,
    elapsed_ms: u64,
}

impl ProgressLine {
    /// The progress of one node.
    pub(crate) fn of(snapshot: &NodeSnapshot, elapsed_ms: u64) -> Self {
        let mut words = format!("{}  {}", snapshot.name, snapshot.state);
        if let Some(wanted) = &snapshot.target_power {
            let _ = write!(words, "  {} -> {wanted}", snapshot.power);
        }
        if let Some(step) = &snapshot.step {
            let _ = write!(words, "  {step}");
        }
        Self {
            words,
            // The current step counts as half done.
            done: snapshot
                .done
                .map(|(at, count)| (at.saturating_mul(2).saturating_sub(1), at, count)),
            elapsed_ms,
        }
    }

    /// The progress of one node whose activity the box reports: percent and time are
    /// those of the activity.
    pub(crate) fn working(snapshot: &NodeSnapshot, activity: &Activity, elapsed_ms: u64) -> Self {
        let mut words = format!(
            "{}  {}  {}",
            snapshot.name,
            snapshot.state,
            activity.phase()
        );
        if let Some(tries) = activity.tries() {
            let _ = write!(words, "  {tries}");
        }
        Self {
            words,
            done: activity
                .percent
                .map(|percent| (percent.saturating_mul(2), percent, 100)),
            elapsed_ms: activity.elapsed_ms.unwrap_or(elapsed_ms),
        }
    }

    /// The progress of many nodes: how many have reached the goal.
    pub(crate) fn many(words: String, done: Option<(u64, u64)>, elapsed_ms: u64) -> Self {
        Self {
            words,
            done: done.map(|(there, count)| (there.saturating_mul(2), there, count)),
            elapsed_ms,
        }
    }

    /// The line, at most as wide as the terminal. If it is too long, the bar is left
    /// out first: the numbers show the same.
    pub(crate) fn line(&self, width: usize) -> String {
        let whole = format!("{}{}", self.words, self.tail(true));
        if whole.chars().count() <= width {
            return whole;
        }
        let tail = self.tail(false);
        let space = width.saturating_sub(tail.chars().count());
        cut(&format!("{}{tail}", cut(&self.words, space)), width)
    }

    fn tail(&self, has_bar: bool) -> String {
        let mut tail = String::new();
        if let Some((halves, at, count)) = self.done {
            tail.push_str("  ");
            if has_bar {
                let _ = write!(tail, "{} ", bar(halves, count));
            }
            let _ = write!(tail, "{at}/{count}");
        }
        let _ = write!(tail, "  {}", duration(self.elapsed_ms));
        tail
    }
}

/// A bar with this many completed halves.
fn bar(halves: u64, count: u64) -> String {
    let full = halves.saturating_mul(BAR_CHARS) / count.max(1).saturating_mul(2);
    let full = full.min(BAR_CHARS) as usize;
    format!(
        "[{}{}]",
        "#".repeat(full),
        "-".repeat(BAR_CHARS as usize - full)
    )
}

/// A duration as text.
pub(crate) fn duration(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        _ => format!("{} h {:02} min", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node_snapshot() -> NodeSnapshot {
        NodeSnapshot {
            name: "node-01".to_owned(),
            state: "wait call-back".to_owned(),
            step: Some("deploy.write_image".to_owned()),
            ..NodeSnapshot::default()
        }
    }

    #[test]
    fn the_line_has_state_step_and_time() {
        let line = ProgressLine::of(&node_snapshot(), 12_300).line(80);
        assert_eq!(line, "node-01  wait call-back  deploy.write_image  12 s");
    }

    #[test]
    fn steps_that_are_known_have_a_bar() {
        let mut snapshot = node_snapshot();
        snapshot.done = Some((2, 4));
        let line = ProgressLine::of(&snapshot, 0).line(120);
        assert!(
            line.ends_with("  [#######-------------] 2/4  0 s"),
            "{line}"
        );
        snapshot.done = Some((1, 1));
        let line = ProgressLine::of(&snapshot, 0).line(120);
        assert!(line.contains("[##########----------] 1/1"), "{line}");
        let all = ProgressLine::many("2 nodes".to_owned(), Some((2, 2)), 0).line(80);
        assert_eq!(all, "2 nodes  [####################] 2/2  0 s");
        assert_eq!(bar(0, 4), "[--------------------]");
        assert_eq!(bar(9, 4), "[####################]");
        assert_eq!(bar(u64::MAX, u64::MAX).len(), 22);
        assert_eq!(bar(0, 0).len(), 22);
    }

    #[test]
    fn the_bar_gives_way_before_the_words_and_the_numbers_stay() {
        let mut snapshot = node_snapshot();
        snapshot.done = Some((1, 2));
        for width in 0..100 {
            let line = ProgressLine::of(&snapshot, 5_000).line(width);
            assert!(line.chars().count() <= width, "{width}: {line}");
        }
        let line = ProgressLine::of(&snapshot, 5_000).line(60);
        assert_eq!(
            line,
            "node-01  wait call-back  deploy.write_image  1/2  5 s"
        );
        assert!(
            ProgressLine::of(&snapshot, 5_000)
                .line(40)
                .ends_with("...  1/2  5 s")
        );
    }

    #[test]
    fn durations_are_shown_in_readable_units() {
        assert_eq!(duration(59_999), "59 s");
        assert_eq!(duration(61_000), "1 min 01 s");
        assert_eq!(duration(3_661_000), "1 h 01 min");
    }
}
