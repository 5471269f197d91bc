//! Notes to counters. Each kind of note is in the match below or, where nothing is counted, in
//! `uncounted.txt` with the reason; `tests/tidy` compares the two with the enum.

use trivet_model::{Note, NoteKind, Tick};

use crate::counts::MetricCounts;
use crate::family::MetricFamily as F;

impl MetricCounts {
    /// Counts a note.
    pub fn count_note(&mut self, now: Tick, note: &Note) {
        match &note.kind {
            NoteKind::StateChanged { from, to } => {
                let Some(node) = note.node else { return };
                if let Some(job) = self.jobs.changed(now, node, (*from, *to)) {
                    let outcome = if job.is_done { "done" } else { "failed" };
                    self.add(F::Jobs, [job.kind.as_str(), outcome], 1);
                    if let (true, Some(took_ms)) = (job.is_done, job.took_ms) {
                        self.observe(F::JobSeconds, [job.kind.as_str(), ""], took_ms);
                    }
                }
            }
            NoteKind::FaultRaised(fault) => self.count_as(F::FaultsRaised, fault.name()),
            NoteKind::FaultCleared(fault) => self.count_as(F::FaultsCleared, fault.name()),
            NoteKind::BootQueued { .. } => self.count(F::BootsQueued),
            NoteKind::BootFileUnverified { .. } => self.count(F::BootFilesUnverified),
            NoteKind::ForeignServerSeen { .. } => self.count(F::DhcpForeignServers),
            NoteKind::UnknownMachineSeen { .. } => self.count(F::DhcpUnknownMachines),
            NoteKind::UnknownMachinesSeen { more } => {
                self.add(F::DhcpUnknownMachines, ["", ""], *more);
            }
            NoteKind::OrderReceived { order, refused, .. } => {
                let result = refused.as_ref().map_or("accepted", |_| "refused");
                self.add(F::Orders, [order, result], 1);
            }
            NoteKind::CallerRefused { .. } => self.count(F::CallersRefused),
            NoteKind::Inspected => self.count(F::Inspections),
            NoteKind::PortFound { .. } => self.count_as(F::InspectedPorts, "created"),
            NoteKind::PortNeverSeen { .. } => self.count_as(F::InspectedPorts, "never_seen"),
            NoteKind::StepStarted { .. } => self.count(F::StepsStarted),
            NoteKind::StepDone { .. } => self.count(F::StepsDone),
            NoteKind::Retrying { .. } => self.count(F::JobRetries),
            NoteKind::Warning { .. } => self.count(F::Warnings),
            NoteKind::Failed { .. } => self.count(F::JobErrors),
            NoteKind::StageLate { stage, .. } => self.count_as(F::StagesLate, stage.name()),
            NoteKind::BoxRestarted => self.count(F::JobsContinued),
            NoteKind::Evidence(evidence) => self.count_as(F::Evidence, evidence.name()),
            kind => {
                self.count_power(kind);
                self.count_image(kind, note.node.is_some());
                self.count_agent(kind);
            }
        }
    }

    fn count_power(&mut self, kind: &NoteKind) {
        match kind {
            NoteKind::PowerOrdered { order } => self.count_as(F::PowerOrders, order),
            NoteKind::PowerAccepted { order } => self.count_as(F::PowerAccepted, order),
            NoteKind::PowerFailed { .. } => self.count(F::PowerFailed),
            NoteKind::ManualActionNeeded { .. } => self.count(F::ManualActions),
            NoteKind::VendorCalled { .. } => self.count(F::VendorCalls),
            _ => {}
        }
    }

    /// The state of an image is noted once for the box, and again for each node that is being
    /// written with it: only the first is counted.
    fn count_image(&mut self, kind: &NoteKind, is_of_node: bool) {
        match kind {
            NoteKind::AwaitingImage { .. } => return self.count(F::ImageWaits),
            NoteKind::ImageRejected { .. } => return self.count(F::ImageRejections),
            NoteKind::ImageAheadStarted { .. } => return self.count_as(F::ImagesAhead, "started"),
            NoteKind::ImageAheadWritten { .. } => return self.count_as(F::ImagesAhead, "written"),
            NoteKind::ImageAheadFailed { .. } => return self.count_as(F::ImagesAhead, "failed"),
            NoteKind::ImageWasOnDisk { .. } => return self.count_as(F::ImagesAhead, "used"),
            _ if is_of_node => return,
            _ => {}
        }
        match kind {
            NoteKind::ImageFetching { .. } => self.count(F::ImageFillsStarted),
            NoteKind::ImageUnpacking { .. } => self.count(F::ImageUnpacks),
            NoteKind::ImageComplete { .. } => self.count_as(F::ImageFills, "complete"),
            NoteKind::ImageFailed { .. } => self.count_as(F::ImageFills, "failed"),
            NoteKind::ImageCorrupt { chunks, .. } => {
                self.add(F::ImageCorruptChunks, ["", ""], *chunks);
            }
            NoteKind::ImageEvicted { .. } => self.count(F::ImageEvictions),
            _ => {}
        }
    }

    fn count_agent(&mut self, kind: &NoteKind) {
        match kind {
            NoteKind::LogsStored { .. } => self.count_as(F::AgentLogs, "stored"),
            NoteKind::LogsMissing { .. } => self.count_as(F::AgentLogs, "missing"),
            NoteKind::AgentLookedUp { .. }
            | NoteKind::AgentEnrolled { .. }
            | NoteKind::AgentWeaklyAuthenticated { .. }
            | NoteKind::AgentReady { .. }
            | NoteKind::AgentKeepsRunning
            | NoteKind::AgentReused
            | NoteKind::AgentExpired { .. }
            | NoteKind::AgentTimedOut { .. }
            | NoteKind::AgentRefused { .. } => self.count_as(F::AgentEvents, kind.name()),
            _ => {}
        }
    }
}
