//! What a part of the rack uses besides its own state.

use trivet_model::{Measurement, NodeId, NoteKind, Now};

use crate::RackOutput;
use crate::faults::FaultExpiry;
use crate::records::RecordIndex;

/// The state that all parts share, for the time of one input. A part gets this and not the rack,
/// so that it cannot reach into another part.
pub(crate) struct PartContext<'a> {
    /// The time of the input.
    pub(crate) now: Now,
    /// The records, and the snapshot for readers.
    pub(crate) records: &'a mut RecordIndex,
    /// When present faults expire.
    pub(crate) fault_expiry: &'a mut FaultExpiry,
    /// What leaves the box after the records are durable.
    pub(crate) outputs: &'a mut Vec<RackOutput>,
}

impl PartContext<'_> {
    /// Stores a note of a node, or of the box.
    pub(crate) fn note(&mut self, id: Option<NodeId>, kind: NoteKind) {
        let output = self.records.note(self.now, id, kind);
        self.outputs.push(output);
    }

    /// Counts a fact.
    pub(crate) fn measure(&mut self, measurement: Measurement) {
        self.outputs.push(RackOutput::Measured(measurement));
    }
}
