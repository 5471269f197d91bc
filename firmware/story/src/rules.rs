//! The rules of the diagnosis, one file each, in the order in which they are asked.

use crate::{Diagnosis, DiagnosisContext, JobEvidence};

/// A rule: the diagnosis, if the evidence matches.
pub type DiagnosisRule = fn(&JobEvidence, &DiagnosisContext) -> Option<Diagnosis>;

/// All rules.
pub const ALL: &[DiagnosisRule] = &[];
