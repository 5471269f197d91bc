//! What the notes of a job show.

use serde::{Deserialize, Serialize};
use trivet_model::{NoteKind, UnixMs};

/// What the notes of a job show, as typed facts that the rules read. Its size is bounded.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct JobEvidence {
    /// When the last note was taken.
    pub last_note_at: Option<UnixMs>,
}

impl JobEvidence {
    /// Takes one note of the job's node into account.
    pub fn observe(&mut self, at: UnixMs, _kind: &NoteKind) {
        self.last_note_at = Some(at);
    }
}
