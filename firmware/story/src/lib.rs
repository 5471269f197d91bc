//! What happened to a node: the stages of each job, how long they usually take, and why a job
//! does not go on.
//!
//! Everything here is derived from the typed notes of [`trivet_model::NoteKind`]. A running job
//! has a record of its stages and a [`JobEvidence`]: what the notes of the job show. When a
//! stage is late or fails, [`diagnose`] asks each rule in order; the first that matches gives
//! the sentence, the likely cause and the next action. Nothing here has input or output.

mod boot_path;
mod diagnosis;
mod evidence;
mod lateness;
mod recorder;
pub mod rules;
mod site_facts;

pub use diagnosis::{Diagnosis, DiagnosisContext, SuggestedAction, diagnose};
pub use evidence::{
    AgentCallEvidence, BmcEvidence, BootEvidence, DiskEvidence, EVIDENCE_TEXT_BYTES_MAX,
    FileEvidence, ImageEvidence, ImageProblemKind, JobEvidence, LookupEvidence, OtherNodeEvidence,
    OtherServerEvidence, RefusedFileEvidence, UNKNOWN_MACHINES_PER_JOB_MAX, UnknownMachineEvidence,
    UnservedLinkEvidence, net_boot_mac,
};
pub use lateness::{COMMON_MODEL, UsualDurations, late_after_ms, model_of};
pub use recorder::{JobRecorder, UsualLookup, new_job};
pub use site_facts::{SiteFacts, SiteLink, TransferInProgress};
pub use trivet_model::story::{Stage, StageState};
