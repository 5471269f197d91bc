//! What is wrong now: raised once however often it shows, and gone when its cause
//! is, or when it has not shown for a while.

use std::collections::BTreeMap;
use std::mem::discriminant;

use trivet_model::fault::{FAULTS_MAX, FAULTS_OF_KIND_MAX, FaultTimes};
use trivet_model::{BoxFault, NoteKind, Now, Tick};

use crate::Rack;

/// A fault that shows by chance only is gone if it has not shown for this long. Ours.
pub(crate) const FAULT_QUIET_MS: u64 = 600_000;

/// When faults go that nobody takes back.
#[derive(Default)]
pub(crate) struct FaultExpiry(BTreeMap<BoxFault, Tick>);

impl FaultExpiry {
    /// There are few: see [`FAULTS_MAX`].
    pub(crate) fn deadline(&self) -> Option<Tick> {
        self.0.values().min().copied()
    }
}

impl Rack {
    /// Something is wrong until [`Rack::fault_gone`] says otherwise.
    pub(crate) fn fault(&mut self, now: Now, fault: BoxFault) {
        let faults = &mut self.records.view.faults;
        if let Some(standing) = faults.get_mut(&fault) {
            standing.seen_at = now.wall;
            return;
        }
        let kind = discriminant(&fault);
        let same = faults.keys().filter(|one| discriminant(*one) == kind);
        if faults.len() >= FAULTS_MAX || same.count() >= FAULTS_OF_KIND_MAX {
            return;
        }
        let standing = FaultTimes {
            since: now.wall,
            seen_at: now.wall,
        };
        faults.insert(fault.clone(), standing);
        self.note(now, None, NoteKind::FaultRaised(fault));
    }

    /// Something shows to be wrong, now and then.
    pub(crate) fn fault_seen(&mut self, now: Now, fault: BoxFault) {
        self.fault(now, fault.clone());
        if self.records.view.faults.contains_key(&fault) {
            self.fault_expiry
                .0
                .insert(fault, now.tick.after_ms(FAULT_QUIET_MS));
        }
    }

    pub(crate) fn fault_gone(&mut self, now: Now, fault: &BoxFault) {
        if self.remove_fault(fault) {
            self.note(now, None, NoteKind::FaultCleared(fault.clone()));
        }
    }

    /// Takes it back without a word: it is told in another form.
    pub(crate) fn remove_fault(&mut self, fault: &BoxFault) -> bool {
        self.fault_expiry.0.remove(fault);
        self.records.view.faults.remove(fault).is_some()
    }

    pub(crate) fn expire_faults(&mut self, now: Now) {
        let quiet = self
            .fault_expiry
            .0
            .iter()
            .filter(|(_, at)| **at <= now.tick);
        let gone: Vec<_> = quiet.map(|(fault, _)| fault.clone()).collect();
        for fault in gone {
            self.fault_gone(now, &fault);
        }
    }
}
