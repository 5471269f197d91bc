//! Jobs by the provision states that a node passes: which job a state belongs to, and how the
//! job ended.

use std::collections::BTreeMap;

use trivet_model::{JobKind, NodeId, ProvisionState, Tick};

/// The most jobs whose begin is remembered. Ours: more than a rack has nodes. The oldest node by
/// identity is forgotten first, and its job is counted without a duration.
const JOBS_MAX: usize = 16_384;

/// When the jobs that are under way began.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunningJobs(BTreeMap<NodeId, (JobKind, Tick)>);

/// A job that has ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct EndedJob {
    pub(crate) kind: JobKind,
    pub(crate) is_done: bool,
    /// None where it began before the box started.
    pub(crate) took_ms: Option<u64>,
}

impl RunningJobs {
    /// A node has changed its state. Returns the job that ended with it.
    pub(crate) fn changed(
        &mut self,
        now: Tick,
        node: NodeId,
        (from, to): (ProvisionState, ProvisionState),
    ) -> Option<EndedJob> {
        let (before, after) = (job_of(from), job_of(to));
        if before == after {
            return None;
        }
        let begun = self.0.remove(&node);
        if let Some(kind) = after {
            if self.0.len() >= JOBS_MAX {
                self.0.pop_first();
            }
            self.0.insert(node, (kind, now));
        }
        let kind = before?;
        let begun = begun.filter(|(of, _)| *of == kind);
        Some(EndedJob {
            kind,
            is_done: !is_failure(to),
            took_ms: begun.map(|(_, at)| now.since_ms(at)),
        })
    }
}

/// The job that a node in this state has.
const fn job_of(state: ProvisionState) -> Option<JobKind> {
    use ProvisionState as S;
    Some(match state {
        S::Verifying => JobKind::Verify,
        S::Inspecting | S::InspectWait => JobKind::Inspect,
        S::Cleaning | S::CleanWait | S::CleanHold => JobKind::Clean,
        S::Deploying | S::DeployWait | S::DeployHold => JobKind::Deploy,
        S::Deleting => JobKind::TearDown,
        S::Adopting => JobKind::Adopt,
        S::Rescuing | S::RescueWait => JobKind::Rescue,
        S::Unrescuing => JobKind::Unrescue,
        S::Servicing | S::ServiceWait | S::ServiceHold => JobKind::Service,
        S::Enroll
        | S::Manageable
        | S::Available
        | S::Active
        | S::DeployFail
        | S::Error
        | S::CleanFail
        | S::InspectFail
        | S::AdoptFail
        | S::Rescue
        | S::RescueFail
        | S::UnrescueFail
        | S::ServiceFail => return None,
    })
}

/// Whether a job that leads to this state has failed. A verification that fails leads back to
/// `enroll`.
const fn is_failure(state: ProvisionState) -> bool {
    use ProvisionState as S;
    matches!(
        state,
        S::Enroll
            | S::DeployFail
            | S::Error
            | S::CleanFail
            | S::InspectFail
            | S::AdoptFail
            | S::RescueFail
            | S::UnrescueFail
            | S::ServiceFail
    )
}
