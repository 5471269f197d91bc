//! Why a node's machine did not come up, or runs worse than it should.

use serde::{Deserialize, Serialize};

use crate::story::shortened;

/// Longest sentence, cause and next action together, in bytes. A finished job has at most 2 KiB.
pub const TEXT_BYTES_MAX: usize = 656;

/// Longest sentence of a diagnosis, in bytes.
const SENTENCE_BYTES_MAX: usize = 320;

/// Longest next action, in bytes.
const NEXT_ACTION_BYTES_MAX: usize = 180;

/// Longest command, in bytes.
pub const COMMAND_BYTES_MAX: usize = 120;

/// Longest name of a rule and of a kind of action, in bytes.
pub const RULE_BYTES_MAX: usize = 28;

/// Why a job does not go on. The rules that give it are in `firmware/story`.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Diagnosis {
    /// The name of the rule, such as `loader-not-requested`. Stable: programs compare it.
    pub rule: String,
    /// What happened, in one sentence.
    pub sentence: String,
    /// The likely cause.
    pub cause: String,
    /// What to do next.
    pub next_action: String,
    /// The same for programs, where the box can do it.
    pub action: Option<SuggestedAction>,
}

impl Diagnosis {
    /// Sentence, cause and next action as one text.
    pub fn text(&self) -> String {
        let Self {
            sentence,
            cause,
            next_action,
            ..
        } = self;
        format!("{sentence} {cause} {next_action}")
    }
}

impl Diagnosis {
    /// The diagnosis with texts of a bounded size, so that it fits into the record of its job.
    /// The cause is cut first: it may quote an error of another program.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        self.sentence = shortened(&self.sentence, SENTENCE_BYTES_MAX);
        self.next_action = shortened(&self.next_action, NEXT_ACTION_BYTES_MAX);
        let rest = TEXT_BYTES_MAX - self.sentence.len() - self.next_action.len();
        self.cause = shortened(&self.cause, rest);
        // A command that is cut would be another one.
        self.action = self
            .action
            .filter(|action| action.command.len() <= COMMAND_BYTES_MAX);
        self
    }
}

/// An action for programs: the page shows a button for it, the CLI a command.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct SuggestedAction {
    /// The kind, such as `edit-bmc`. Stable.
    pub kind: String,
    /// The command that does it, such as `trivet port create --node n1 --address MAC`. Words in
    /// capitals are to be replaced.
    pub command: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::story::StoryDiagnosis;

    fn diagnosis(sentence: usize, cause: usize, next_action: usize) -> Diagnosis {
        Diagnosis {
            rule: "r".to_owned(),
            sentence: "s".repeat(sentence),
            cause: "c".repeat(cause),
            next_action: "n".repeat(next_action),
            action: Some(SuggestedAction {
                kind: "k".to_owned(),
                command: "x".repeat(COMMAND_BYTES_MAX),
            }),
        }
    }

    #[test]
    fn a_diagnosis_that_fits_stays_as_it_is() {
        let whole = diagnosis(60, 470, 120);
        assert_eq!(whole.clone().bounded(), whole);
    }

    #[test]
    fn the_cause_is_cut_first_and_a_long_command_is_left_out() {
        let mut long = diagnosis(60, 5000, 120);
        if let Some(action) = &mut long.action {
            action.command.push('x');
        }
        let bounded = long.clone().bounded();
        assert_eq!(
            (bounded.sentence, bounded.next_action),
            (long.sentence, long.next_action)
        );
        assert_eq!(bounded.cause.len(), 476);
        assert_eq!(bounded.action, None);
        let hostile = diagnosis(5000, 5000, 5000).bounded();
        let bytes = hostile.sentence.len() + hostile.cause.len() + hostile.next_action.len();
        assert_eq!(bytes, TEXT_BYTES_MAX);
        assert!(hostile.cause.len() >= 150, "the cause keeps a part");
    }

    #[test]
    fn what_is_stored_is_read_again() {
        for action in [true, false] {
            let mut whole = diagnosis(1, 2, 3);
            whole.action = whole.action.filter(|_| action);
            let stored = StoryDiagnosis::from(&whole);
            assert_eq!(Diagnosis::from(&stored), whole);
        }
    }
}
