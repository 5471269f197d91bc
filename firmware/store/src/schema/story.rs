//! What happened: the finished jobs of a node, the job that runs, and the requests of callers.

use serde_json::Value;
use trivet_model::story::{
    AuditEntry, JobOutcome, JobStory, NodeFailure, NodeStories, RunningJobStory, Stage, StageState,
    StageStory, StoredNote, StoryDiagnosis,
};
use trivet_model::{JobKind, NodeId, ProvisionState};

use super::codec::{
    Id, Json, Number, Optional, OptionalPart, Part, PartList, Text, TextList, Time, Word,
};
use super::tagged::tagged_fields;

/// The version of these records. Further fields do not raise it.
pub(super) const VERSION: u16 = 1;

tagged_fields! {
    /// Fields of the finished jobs and failures of a node.
    StoriesFields: NodeStories {
        1 "node" node: Id<NodeId>;
        2 "jobs_count" jobs_count: Number<u32> = 0;
        3 "jobs" jobs: PartList<JobStoryFields> = Vec::new();
        4 "failures" failures: PartList<FailureFields> = Vec::new();
        5 "diagnosis" diagnosis: OptionalPart<DiagnosisFields> = None;
    }
}

tagged_fields! {
    /// Fields of the job that runs or failed last.
    RunningJobFields: RunningJobStory {
        1 "node" node: Id<NodeId>;
        2 "story" story: Part<JobStoryFields>;
        3 "evidence" evidence: Json = Value::Null;
        4 "dropped" dropped: Number<u32> = 0;
        5 "notes" notes: PartList<NoteFields> = Vec::new();
    }
}

tagged_fields! {
    /// Fields of a job.
    JobStoryFields: JobStory {
        1 "number" number: Number<u32>;
        2 "kind" kind: Word<JobKind>;
        3 "begin" begin: Time;
        4 "end" end: Optional<Time> = None;
        5 "outcome" outcome: Word<JobOutcome> = JobOutcome::Done;
        6 "model" model: Text = String::new();
        7 "stages" stages: PartList<StageFields> = Vec::new();
        8 "last_error" last_error: Optional<Text> = None;
        9 "diagnosis" diagnosis: OptionalPart<DiagnosisFields> = None;
    }
}

tagged_fields! {
    /// Fields of a stage of a job.
    StageFields: StageStory {
        1 "stage" stage: Word<Stage>;
        2 "state" state: Word<StageState> = StageState::Done;
        3 "begin" begin: Time;
        4 "since" since: Optional<Time> = None;
        5 "duration_ms" duration_ms: Number<u64> = 0;
        6 "usual_ms" usual_ms: Optional<Number<u64>> = None;
        7 "tries" tries: Number<u32> = 1;
        8 "bytes" bytes: Number<u64> = 0;
        9 "transfer_ms" transfer_ms: Number<u64> = 0;
        10 "first_note" first_note: Number<u32> = 0;
        11 "last_note" last_note: Number<u32> = 0;
        12 "evidence" evidence: Optional<Text> = None;
    }
}

tagged_fields! {
    /// Fields of a diagnosis.
    DiagnosisFields: StoryDiagnosis {
        1 "rule" rule: Text;
        2 "sentence" sentence: Text = String::new();
        3 "cause" cause: Text = String::new();
        4 "next_action" next_action: Text = String::new();
        5 "action" action: Optional<Text> = None;
        6 "command" command: Optional<Text> = None;
    }
}

tagged_fields! {
    /// Fields of a note.
    NoteFields: StoredNote {
        1 "at" at: Time;
        2 "kind" kind: Text = String::new();
        3 "text" text: Text = String::new();
        4 "fields" fields: TextList = Vec::new();
    }
}

tagged_fields! {
    /// Fields of a failure of a node.
    FailureFields: NodeFailure {
        1 "at" at: Time;
        2 "why" why: Text = String::new();
        3 "user" user: Optional<Text> = None;
        4 "state" state: Optional<Word<ProvisionState>> = None;
    }
}

tagged_fields! {
    /// Fields of a request of a caller.
    AuditFields: AuditEntry {
        1 "number" number: Number<u64>;
        2 "at" at: Time;
        3 "caller" caller: Text = String::new();
        4 "from" from: Text = String::new();
        5 "request_line" request_line: Text = String::new();
        6 "request" request: Text = String::new();
        7 "order" order: Text = String::new();
        8 "node" node: Optional<Id<NodeId>> = None;
        9 "node_name" node_name: Optional<Text> = None;
        10 "refused" refused: Optional<Text> = None;
        11 "user" user: Optional<Text> = None;
    }
}
