//! A diagnosis: what happened, the likely cause, and what to do next.

use serde::{Deserialize, Serialize};

use crate::rules;
use crate::{JobEvidence, Stage};

/// Why a job does not go on.
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

/// An action for programs: the page shows a button for it, the CLI a command.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct SuggestedAction {
    /// The kind, such as `edit-bmc`. Stable.
    pub kind: String,
    /// The command that does it, such as `trivet node bmc set node-17 --password-file FILE`.
    pub command: String,
}

/// What a diagnosis reads beside the evidence of the job.
#[derive(Clone, Debug, Default)]
pub struct DiagnosisContext {
    /// The node's name, or its UUID where it has none.
    pub node_name: String,
    /// The stage that is late or failed.
    pub stage: Option<Stage>,
    /// How long that stage has lasted, in ms.
    pub stage_ms: u64,
    /// How long it usually takes for this model at this site, in ms.
    pub usual_ms: Option<u64>,
}

/// The diagnosis of the first rule that matches.
pub fn diagnose(evidence: &JobEvidence, context: &DiagnosisContext) -> Option<Diagnosis> {
    rules::ALL.iter().find_map(|rule| rule(evidence, context))
}
