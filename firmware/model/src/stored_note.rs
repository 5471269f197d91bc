//! Notes of a job as they are stored: the text, and the values that are read again after a
//! restart.

use crate::story::{NOTE_TEXT_BYTES_MAX, StoredNote, shortened};
use crate::{Note, NoteKind};

/// Longest stored value of a note, in bytes.
const VALUE_BYTES_MAX: usize = 160;

impl StoredNote {
    /// The stored form of a note.
    pub fn of(note: &Note) -> Self {
        let fields = fields(&note.kind);
        let fields = fields.iter().map(|text| shortened(text, VALUE_BYTES_MAX));
        Self {
            at: note.at,
            kind: note.kind.name().to_owned(),
            text: shortened(&note.kind.to_string(), NOTE_TEXT_BYTES_MAX),
            fields: fields.collect(),
        }
    }

    /// The note for the timeline. Kinds of which nothing is read again become their text.
    pub fn restored(&self) -> NoteKind {
        self.typed().unwrap_or_else(|| NoteKind::Restored {
            text: self.text.clone(),
        })
    }

    fn typed(&self) -> Option<NoteKind> {
        let fields: Vec<&str> = self.fields.iter().map(String::as_str).collect();
        Some(match (self.kind.as_str(), fields.as_slice()) {
            ("state_changed", [from, to]) => NoteKind::StateChanged {
                from: from.parse().ok()?,
                to: to.parse().ok()?,
            },
            ("file_sent", [by, path, sent, requested, took_ms]) => NoteKind::FileSent {
                by: ["TFTP", "HTTP"].into_iter().find(|known| known == by)?,
                path: (*path).to_owned(),
                sent: sent.parse().ok()?,
                requested: requested.parse().ok()?,
                took_ms: took_ms.parse().ok()?,
            },
            ("step_started", [step]) => NoteKind::StepStarted {
                step: (*step).to_owned(),
            },
            ("step_done", [step]) => NoteKind::StepDone {
                step: (*step).to_owned(),
            },
            _ => return None,
        })
    }
}

/// The values of a note that are read again.
fn fields(kind: &NoteKind) -> Vec<String> {
    match kind {
        NoteKind::StateChanged { from, to } => vec![from.to_string(), to.to_string()],
        NoteKind::FileSent {
            by,
            path,
            sent,
            requested,
            took_ms,
        } => vec![
            (*by).to_owned(),
            path.clone(),
            sent.to_string(),
            requested.to_string(),
            took_ms.to_string(),
        ],
        NoteKind::StepStarted { step } | NoteKind::StepDone { step } => vec![step.clone()],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ProvisionState, UnixMs};

    #[track_caller]
    fn stored(kind: NoteKind) -> StoredNote {
        StoredNote::of(&Note {
            at: UnixMs(7),
            node: None,
            kind,
        })
    }

    #[test]
    fn what_pages_read_of_a_note_is_there_after_a_restart() {
        for kind in [
            NoteKind::StateChanged {
                from: ProvisionState::Deploying,
                to: ProvisionState::DeployWait,
            },
            NoteKind::FileSent {
                by: "TFTP",
                path: "snponly.efi".to_owned(),
                sent: 5,
                requested: 9,
                took_ms: 3,
            },
            NoteKind::StepStarted {
                step: "write_image".to_owned(),
            },
            NoteKind::StepDone {
                step: "write_image".to_owned(),
            },
        ] {
            assert_eq!(stored(kind.clone()).restored(), kind);
        }
    }

    #[test]
    fn every_other_note_keeps_its_text_within_bounds() {
        let kind = NoteKind::Failed {
            why: "x".repeat(5000),
        };
        let note = stored(kind.clone());
        assert_eq!(note.text.len(), NOTE_TEXT_BYTES_MAX);
        let text = note.restored().to_string();
        assert_eq!(text, note.text);
        let kind = NoteKind::AgentReady {
            version: "9".to_owned(),
        };
        assert_eq!(
            stored(kind.clone()).restored().to_string(),
            kind.to_string()
        );
    }

    #[test]
    fn damaged_values_are_shown_as_text() {
        let mut note = stored(NoteKind::Inspected);
        note.kind = "state_changed".to_owned();
        note.fields = vec!["flying".to_owned(), "active".to_owned()];
        assert!(matches!(note.restored(), NoteKind::Restored { .. }));
    }
}
