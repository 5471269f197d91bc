//! A diagnosis: what happened, the likely cause, and what to do next.

pub use trivet_model::{Diagnosis, SuggestedAction};

use crate::rules;
use crate::{JobEvidence, SiteFacts, Stage};

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
    /// Facts of the box and of the node's record.
    pub site: SiteFacts,
}

/// The diagnosis of the first rule that matches, with bounded texts.
pub fn diagnose(evidence: &JobEvidence, context: &DiagnosisContext) -> Option<Diagnosis> {
    rules::ALL
        .iter()
        .find_map(|rule| (rule.diagnose)(evidence, context))
        .map(Diagnosis::bounded)
}
