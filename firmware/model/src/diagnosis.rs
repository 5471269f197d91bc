//! Why a node's machine did not come up, or runs worse than it should.

use serde::{Deserialize, Serialize};

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

/// An action for programs: the page shows a button for it, the CLI a command.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct SuggestedAction {
    /// The kind, such as `edit-bmc`. Stable.
    pub kind: String,
    /// The command that does it, such as `trivet port create --node n1 --address MAC`. Words in
    /// capitals are to be replaced.
    pub command: String,
}
