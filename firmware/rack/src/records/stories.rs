//! The stories of nodes: what changed in them, and when a stage is late.
//!
//! A note of a node with a job changes the record of its job, in the same batch. A note of
//! another node is in memory only, except for failures and requests of callers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::audit::AuditRing;
use super::job_evidence::JobEvidenceTable;
use crate::RefusedRequest;
use serde_json::Value;
use trivet_model::story::{
    AuditEntry, FAILED_JOB_NOTES_MAX, FAILURE_TEXT_BYTES_MAX, JOB_NOTES_MAX, JobOutcome, JobStory,
    NodeFailure, NodeStories, NodeStoryView, RunningJobStory, Stage, StoredNote, StoryDiagnosis,
    shortened,
};
use trivet_model::{Diagnosis, Job, JobPhase, Node, NodeId, Note, NoteKind, Now, Tick, UnixMs};
use trivet_store::{StoreChange, StoreRecords};
use trivet_story::{JobEvidence, JobRecorder, UsualDurations, late_after_ms, model_of, new_job};

/// Most bytes of the notes of a running job.
const JOB_NOTES_BYTES_MAX: usize = 24 * 1024;

/// Bytes of a stored note beside its texts.
const NOTE_OVERHEAD_BYTES: usize = 24;

/// How many finished jobs of all nodes together are kept. The oldest leave first.
const STORED_JOBS_MAX: usize = 16_384;

/// Bytes of a finished job, to find how many fit into half of the store: an estimate.
const JOB_BYTES: u64 = 600;

/// How many of them leave with one that comes.
const LEAVING_JOBS_MAX: usize = 64;

/// The job of a node with what is not stored of it.
struct RunningJob {
    record: RunningJobStory,
    /// Nothing is late while the job waits for a person, its turn or a pause.
    waits: bool,
    /// The stage and its try for which the timer was set.
    armed_for: Option<(Stage, u32)>,
}

/// The stories of all nodes.
#[derive(Default)]
pub(crate) struct StoryIndex {
    jobs: BTreeMap<NodeId, RunningJob>,
    finished: BTreeMap<NodeId, Arc<NodeStories>>,
    /// All finished jobs, by their ends.
    by_age: BTreeSet<(UnixMs, NodeId, u32)>,
    /// How many finished jobs fit into half of the store; none if its size is not known.
    jobs_max: Option<usize>,
    audit: AuditRing,
    usual: UsualDurations,
    /// When the stage of a node is late, earliest first.
    late_at: BTreeSet<(Tick, NodeId)>,
    late_of: BTreeMap<NodeId, Tick>,
    /// Jobs whose last notes may follow.
    ended: BTreeSet<NodeId>,
    /// Nodes whose stories the view does not show yet.
    unpublished: BTreeSet<NodeId>,
    jobs_changed: BTreeSet<NodeId>,
    finished_changed: BTreeSet<NodeId>,
}

impl StoryIndex {
    /// The stories on flash. Those of nodes that an older release deleted are deleted too.
    /// What the notes of running jobs show goes to `evidence`.
    pub(crate) fn restore(records: &mut StoreRecords, evidence: &mut JobEvidenceTable) -> Self {
        let mut index = Self::default();
        let has_node = |id: &NodeId| records.nodes.contains_key(id);
        let mut jobs: Vec<JobStory> = Vec::new();
        for (id, stories) in std::mem::take(&mut records.stories) {
            index.unpublished.insert(id);
            if !has_node(&id) {
                index.finished_changed.insert(id);
                continue;
            }
            jobs.extend(stories.jobs.iter().cloned());
            let ends = stories
                .jobs
                .iter()
                .map(|job| (ended_at(job), id, job.number));
            index.by_age.extend(ends);
            index.finished.insert(id, Arc::new(stories));
        }
        jobs.sort_by_key(ended_at);
        for job in &jobs {
            index.usual.add(job);
        }
        for (id, mut record) in std::mem::take(&mut records.jobs) {
            if !has_node(&id) {
                index.jobs_changed.insert(id);
                continue;
            }
            index.unpublished.insert(id);
            let stored = std::mem::take(&mut record.evidence);
            if record.story.end.is_none() {
                evidence.restore(id, evidence_of(&stored));
            }
            let job = RunningJob {
                record,
                waits: false,
                armed_for: None,
            };
            index.jobs.insert(id, job);
        }
        index.audit = AuditRing::restore(std::mem::take(&mut records.audit));
        index
    }

    /// The notes of a node from before the restart.
    pub(crate) fn restored_notes(&self, id: NodeId) -> impl Iterator<Item = Note> + '_ {
        let job = self.jobs.get(&id).into_iter();
        job.flat_map(|job| &job.record.notes).map(move |note| Note {
            at: note.at,
            node: Some(id),
            kind: note.restored(),
        })
    }

    /// What was wrong with a node before the restart.
    pub(crate) fn restored_diagnosis(&self, id: NodeId) -> Option<Diagnosis> {
        let running = self.jobs.get(&id).map(|job| &job.record.story);
        let stored = match running.filter(|story| story.end.is_none()) {
            Some(story) => story.diagnosis.as_ref(),
            None => self.finished.get(&id)?.diagnosis.as_ref(),
        };
        stored.map(Diagnosis::from)
    }

    /// The changes of this batch.
    pub(crate) fn take_changes(
        &mut self,
        evidence: &JobEvidenceTable,
        changes: &mut Vec<StoreChange>,
    ) {
        for id in std::mem::take(&mut self.jobs_changed) {
            changes.push(match self.jobs.get(&id) {
                Some(job) => StoreChange::PutJob(Arc::new(job.stored(evidence.of(id)))),
                None => StoreChange::DeleteJob(id),
            });
        }
        for id in std::mem::take(&mut self.finished_changed) {
            changes.push(match self.finished.get(&id) {
                Some(stories) => StoreChange::PutStories(Arc::clone(stories)),
                None => StoreChange::DeleteStories(id),
            });
        }
        self.audit.take_changes(changes);
    }

    /// Takes a node whose stories the view does not show yet.
    pub(crate) fn take_unpublished(&mut self) -> Option<(NodeId, NodeStoryView)> {
        let id = self.unpublished.pop_first()?;
        let view = NodeStoryView {
            finished: self.finished.get(&id).cloned(),
            running: self.jobs.get(&id).map(|job| Arc::new(job.record.clone())),
        };
        Some((id, view))
    }

    /// The requests of callers.
    pub(crate) fn audit(&self) -> &BTreeMap<u64, Arc<AuditEntry>> {
        self.audit.entries()
    }

    /// A request was refused before it became an order.
    pub(crate) fn audit_refused(
        &mut self,
        now: Now,
        node: Option<&Node>,
        refused: &RefusedRequest,
    ) {
        self.audit.add_refused(now, node, refused);
    }

    /// Writes the audit with this batch, whatever else it changes.
    pub(crate) fn write_audit(&mut self) {
        self.audit.write();
    }

    /// A node's record changed.
    pub(crate) fn node_changed(&mut self, now: Now, before: Option<&Node>, after: &Node) {
        let id = after.id;
        let former = before.and_then(|node| node.job.as_ref());
        match (former, &after.job) {
            (None, Some(job)) => self.begin(now, after, job),
            (Some(former), Some(job)) if former.kind != job.kind => self.begin(now, after, job),
            (Some(former), Some(job)) => {
                if (former.phase, former.at) != (job.phase, job.at) {
                    self.phase_changed(now, id, job);
                }
            }
            (Some(_), None) => {
                self.ended.insert(id);
            }
            (None, None) => {}
        }
    }

    /// The box has started, and this node has a job: its story continues, or begins if an
    /// older release has begun the job. True if it continues.
    pub(crate) fn resume(&mut self, now: Now, node: &Node) -> bool {
        let Some(job) = &node.job else {
            let open = self.jobs.get(&node.id);
            if open.is_some_and(|open| open.record.story.end.is_none()) {
                self.ended.insert(node.id);
            }
            return false;
        };
        let known = self.jobs.get(&node.id).map(|known| &known.record.story);
        if known.is_some_and(|story| story.end.is_none() && story.kind == job.kind) {
            self.arm(now, node.id);
            return true;
        }
        self.begin(now, node, job);
        false
    }

    fn begin(&mut self, now: Now, node: &Node, job: &Job) {
        let id = node.id;
        // A job that ended in the same step as this one begins.
        if self
            .jobs
            .get(&id)
            .is_some_and(|job| job.record.story.end.is_none())
        {
            self.finish(now, id);
        }
        let finished = self.finished.get(&id);
        let number = finished.map_or(0, |stories| stories.jobs_count) + 1;
        let record = RunningJobStory {
            node: id,
            story: new_job(number, job.kind, now.wall, model_of(node)),
            evidence: Value::Null,
            dropped: 0,
            notes: Vec::new(),
        };
        let running = RunningJob {
            record,
            waits: false,
            armed_for: None,
        };
        self.jobs.insert(id, running);
        self.phase_changed(now, id, job);
    }

    fn phase_changed(&mut self, now: Now, id: NodeId, job: &Job) {
        let step = job
            .steps
            .get(job.at as usize)
            .map(|step| step.step.as_str());
        self.record(now, id, |recorder| recorder.observe_phase(job.phase, step));
        if let Some(running) = self.jobs.get_mut(&id) {
            running.waits = matches!(job.phase, JobPhase::Hold | JobPhase::Pause);
        }
        self.arm(now, id);
    }

    fn record(&mut self, now: Now, id: NodeId, act: impl FnOnce(&mut JobRecorder<'_>)) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let (model, kind) = (job.record.story.model.clone(), job.record.story.kind);
        let usual = |stage| self.usual.usual_ms(&model, kind, stage);
        act(&mut JobRecorder {
            story: &mut job.record.story,
            at: now.wall,
            usual: &usual,
        });
        self.jobs_changed.insert(id);
        self.unpublished.insert(id);
    }

    /// A node has a new note, before the newest `follow` ones.
    pub(crate) fn noted(&mut self, now: Now, node: Option<&Node>, note: &Note, follow: usize) {
        self.audit.add(node, note);
        let Some(node) = node else {
            return;
        };
        match &note.kind {
            NoteKind::Failed { why } => self.add_failure(now, node, why),
            // That of a job is a part of why the job fails.
            NoteKind::PowerFailed { message, .. } if node.job.is_none() => {
                self.add_failure(now, node, message);
            }
            _ => {}
        }
        let id = node.id;
        let open = |job: &&mut RunningJob| job.record.story.end.is_none();
        let Some(job) = self.jobs.get_mut(&id).filter(open) else {
            return;
        };
        match note.kind {
            NoteKind::BootQueued { .. } | NoteKind::ManualActionNeeded { .. } => job.waits = true,
            NoteKind::PowerOrdered { .. } | NoteKind::PowerAccepted { .. } => job.waits = false,
            _ => {}
        }
        let number = job.insert(note, follow);
        let kind = &note.kind;
        self.record(now, id, |recorder| {
            if !matches!(kind, NoteKind::OrderReceived { .. }) {
                recorder.observe_note(number, kind);
            }
        });
        self.arm(now, id);
    }

    /// Takes a job that has ended.
    pub(crate) fn take_ended(&mut self) -> Option<NodeId> {
        self.ended.pop_first()
    }

    /// The stage of a node's job that runs, or was the first that failed: how long it lasted,
    /// and how long it usually takes.
    pub(crate) fn present_stage(&self, now: Now, id: NodeId) -> Option<(Stage, u64, Option<u64>)> {
        let job = self.jobs.get(&id)?;
        let story = &job.record.story;
        let stage = story.current().or_else(|| story.deviation())?;
        let lasted = stage.lasted_ms(now.wall);
        Some((stage.stage, lasted, stage.usual_ms))
    }

    /// Whether the job of this node has failed, as far as its notes say.
    pub(crate) fn has_failed(&self, id: NodeId) -> bool {
        let job = self.jobs.get(&id);
        job.is_some_and(|job| job.record.story.last_error.is_some())
    }

    /// The job of a node has ended. A failed job keeps its last notes until the next job.
    pub(crate) fn finish(&mut self, now: Now, id: NodeId) {
        self.disarm(id);
        let outcome = if self.has_failed(id) {
            JobOutcome::Failed
        } else {
            JobOutcome::Done
        };
        self.record(now, id, |recorder| recorder.finish(outcome));
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let story = job.record.story.clone();
        if outcome == JobOutcome::Failed {
            job.trim(FAILED_JOB_NOTES_MAX);
        } else {
            self.jobs.remove(&id);
        }
        self.usual.add(&story);
        self.by_age.insert((ended_at(&story), id, story.number));
        self.change_finished(id, |stories| {
            stories.jobs_count = story.number;
            stories.add(story);
        });
        let jobs_max = self.jobs_max.unwrap_or(STORED_JOBS_MAX);
        for _ in 0..LEAVING_JOBS_MAX {
            if self.by_age.len() <= jobs_max {
                break;
            }
            if let Some((_, oldest, number)) = self.by_age.pop_first() {
                self.change_finished(oldest, |stories| {
                    stories.jobs.retain(|job| job.number != number);
                });
            }
        }
    }

    /// The size of the store: all records together have at most this many bytes.
    pub(crate) fn limit(&mut self, live_bytes_max: u64) {
        let jobs = usize::try_from(live_bytes_max / 2 / JOB_BYTES).unwrap_or(usize::MAX);
        self.jobs_max = Some(jobs.min(STORED_JOBS_MAX));
    }

    fn change_finished(&mut self, id: NodeId, change: impl FnOnce(&mut NodeStories)) {
        let stories = self.finished.entry(id);
        let stories = stories.or_insert_with(|| Arc::new(NodeStories::new(id)));
        let known: Vec<_> = stories
            .jobs
            .iter()
            .map(|job| (ended_at(job), job.number))
            .collect();
        change(Arc::make_mut(stories));
        for (end, number) in known {
            if !stories.jobs.iter().any(|job| job.number == number) {
                self.by_age.remove(&(end, id, number));
            }
        }
        self.finished_changed.insert(id);
        self.unpublished.insert(id);
    }

    fn add_failure(&mut self, now: Now, node: &Node, why: &str) {
        let user = self.audit.user_of(node.id);
        self.change_finished(node.id, |stories| {
            stories.add_failure(NodeFailure {
                at: now.wall,
                why: shortened(why, FAILURE_TEXT_BYTES_MAX),
                user,
                state: Some(node.provision_state),
            });
        });
    }

    /// When the next stage is late.
    pub(crate) fn deadline(&self) -> Option<Tick> {
        self.late_at.first().map(|(at, _)| *at)
    }

    /// Takes a node whose stage is late now, and marks the stage.
    pub(crate) fn take_late(&mut self, now: Now) -> Option<NodeId> {
        let &(at, id) = self.late_at.first()?;
        if at > now.tick {
            return None;
        }
        self.disarm(id);
        self.record(now, id, |recorder| {
            recorder.set_late();
        });
        Some(id)
    }

    /// The diagnosis of the job that runs. One that has ended stays as it was.
    pub(crate) fn set_diagnosis(&mut self, now: Now, id: NodeId, diagnosis: StoryDiagnosis) {
        let open = |job: &RunningJob| job.record.story.end.is_none();
        if self.jobs.get(&id).is_some_and(open) {
            self.record(now, id, |recorder| {
                recorder.story.diagnosis = Some(diagnosis);
            });
        }
    }

    /// What is wrong with a node that has no job. While a job runs, its story has that.
    pub(crate) fn keep_diagnosis(&mut self, id: NodeId, diagnosis: Option<StoryDiagnosis>) {
        let job = self.jobs.get(&id);
        let runs = job.is_some_and(|job| job.record.story.end.is_none());
        let known = self.finished.get(&id);
        let known = known.and_then(|stories| stories.diagnosis.as_ref());
        if !runs && known != diagnosis.as_ref() {
            self.change_finished(id, |stories| stories.diagnosis = diagnosis);
        }
    }

    /// Sets the timer of the stage that runs, if it is another one than before.
    fn arm(&mut self, now: Now, id: NodeId) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let current = job.record.story.current();
        let wanted = current
            .filter(|stage| !job.waits && stage.state == trivet_model::story::StageState::Running);
        let key = wanted.map(|stage| (stage.stage, stage.tries));
        if job.armed_for == key {
            return;
        }
        job.armed_for = key;
        let after = wanted.map(|stage| late_after_ms(stage.stage, stage.usual_ms));
        self.disarm(id);
        if let Some(after) = after {
            let at = now.tick.after_ms(after);
            self.late_at.insert((at, id));
            self.late_of.insert(id, at);
        }
    }

    fn disarm(&mut self, id: NodeId) {
        if let Some(at) = self.late_of.remove(&id) {
            self.late_at.remove(&(at, id));
        }
    }

    /// The node was deleted, and all its stories with it.
    pub(crate) fn remove_node(&mut self, id: NodeId) {
        let Self {
            jobs,
            finished,
            by_age,
            jobs_max: _,
            // The requests of callers stay: also that one deleted the node.
            audit: _,
            usual: _,
            late_at,
            late_of,
            ended,
            unpublished,
            jobs_changed,
            finished_changed,
        } = self;
        if let Some(at) = late_of.remove(&id) {
            late_at.remove(&(at, id));
        }
        ended.remove(&id);
        unpublished.remove(&id);
        jobs.remove(&id);
        jobs_changed.insert(id);
        if let Some(stories) = finished.remove(&id) {
            for job in &stories.jobs {
                by_age.remove(&(ended_at(job), id, job.number));
            }
        }
        finished_changed.insert(id);
    }
}

impl RunningJob {
    /// The record for flash.
    fn stored(&self, evidence: Option<&JobEvidence>) -> RunningJobStory {
        RunningJobStory {
            evidence: match self.record.story.end {
                Some(_) => Value::Null,
                None => serde_json::to_value(evidence).unwrap_or(Value::Null),
            },
            ..self.record.clone()
        }
    }

    /// Inserts a note before the newest `follow` ones, and returns its number.
    fn insert(&mut self, note: &Note, follow: usize) -> u32 {
        let record = &mut self.record;
        let place = record.notes.len().saturating_sub(follow);
        record.notes.insert(place, StoredNote::of(note));
        let number = record.dropped + place as u32 + 1;
        if follow > 0 {
            for stage in &mut record.story.stages {
                for counted in [&mut stage.first_note, &mut stage.last_note] {
                    *counted += u32::from(*counted >= number);
                }
            }
        }
        self.trim(JOB_NOTES_MAX);
        number
    }

    fn trim(&mut self, notes_max: usize) {
        let notes = &self.record.notes;
        let mut surplus = notes.len().saturating_sub(notes_max);
        let mut bytes: usize = notes[surplus..].iter().map(note_bytes).sum();
        while bytes > JOB_NOTES_BYTES_MAX {
            bytes -= note_bytes(&notes[surplus]);
            surplus += 1;
        }
        self.record.notes.drain(..surplus);
        self.record.dropped += surplus as u32;
    }
}

fn note_bytes(note: &StoredNote) -> usize {
    let fields = note.fields.iter().map(String::len).sum::<usize>();
    NOTE_OVERHEAD_BYTES + note.kind.len() + note.text.len() + fields
}

fn ended_at(job: &JobStory) -> UnixMs {
    job.end.unwrap_or(job.begin)
}

/// The evidence of a job as it was stored. A field that this release has and the one that
/// stored it had not keeps its default.
fn evidence_of(stored: &Value) -> JobEvidence {
    let Ok(Value::Object(mut fields)) = serde_json::to_value(JobEvidence::default()) else {
        return JobEvidence::default();
    };
    if let Value::Object(stored) = stored {
        fields.extend(stored.clone());
    }
    serde_json::from_value(Value::Object(fields)).unwrap_or_default()
}
