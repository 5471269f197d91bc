//! The notes of a node.

use core::ops::Index;
use std::collections::VecDeque;
use std::sync::Arc;

use crate::Note;

/// The notes of a node, oldest first. Snapshots share the notes, so a copy costs one pointer
/// for each; a short timeline takes little memory, which matters for ten thousand nodes.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    notes: VecDeque<Arc<Note>>,
}

impl Timeline {
    /// An empty timeline.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many notes there are.
    pub fn len(&self) -> usize {
        self.notes.len()
    }

    /// Whether there are no notes.
    pub fn is_empty(&self) -> bool {
        self.notes.is_empty()
    }

    /// The notes, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Note> {
        self.notes.iter().map(AsRef::as_ref)
    }

    /// The newest note.
    pub fn last(&self) -> Option<&Note> {
        self.notes.back().map(AsRef::as_ref)
    }

    /// Adds the newest note.
    pub fn push_back(&mut self, note: Note) {
        self.notes.push_back(Arc::new(note));
    }

    /// Inserts a note at this index, which is at most the length.
    pub fn insert(&mut self, place: usize, note: Note) {
        self.notes.insert(place, Arc::new(note));
    }

    /// Removes the oldest note.
    pub fn pop_front(&mut self) {
        self.notes.pop_front();
    }

    /// Removes the note at this index, if there is one.
    pub fn remove(&mut self, place: usize) {
        self.notes.remove(place);
    }
}

impl Index<usize> for Timeline {
    type Output = Note;

    fn index(&self, place: usize) -> &Note {
        &self.notes[place]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NoteKind, UnixMs};

    fn note(number: u64) -> Note {
        Note {
            at: UnixMs(number),
            node: None,
            kind: NoteKind::Inspected,
        }
    }

    #[test]
    fn a_timeline_of_few_notes_takes_little_memory_and_a_copy_shares_them() {
        let mut timeline = Timeline::new();
        for number in 0..3 {
            timeline.push_back(note(number));
        }
        let bytes = timeline.notes.capacity() * size_of::<Arc<Note>>();
        assert!(bytes <= 64, "{bytes} bytes beside the notes");
        let copy = timeline.clone();
        let mut pairs = copy.notes.iter().zip(&timeline.notes);
        assert!(pairs.all(|(one, two)| Arc::ptr_eq(one, two)));
    }

    #[test]
    fn notes_are_added_taken_away_and_read_from_both_ends() {
        let mut timeline = Timeline::new();
        for number in [1, 2, 4] {
            timeline.push_back(note(number));
        }
        timeline.insert(2, note(3));
        timeline.pop_front();
        timeline.remove(0);
        let ats: Vec<u64> = timeline.iter().rev().map(|note| note.at.0).collect();
        assert_eq!(ats, [4, 3]);
        assert_eq!(timeline.last(), Some(&note(4)));
        assert_eq!(timeline[0], note(3));
        assert_eq!((timeline.len(), timeline.is_empty()), (2, false));
    }
}
