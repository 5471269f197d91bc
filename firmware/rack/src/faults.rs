//! Present faults: raised once however often the cause occurs, and cleared when the cause has
//! ended or has not occurred for a while.

use std::collections::BTreeMap;
use std::mem::discriminant;

use trivet_model::fault::{FAULTS_MAX, FAULTS_OF_KIND_MAX, FaultTimes};
use trivet_model::{BoxFault, NoteKind, Now, Tick};

use crate::Rack;
use crate::part_context::PartContext;

/// A fault without a known end is cleared if it has not occurred for this long. Ours.
pub(crate) const FAULT_QUIET_MS: u64 = 600_000;

/// When faults without a known end expire.
#[derive(Default)]
pub(crate) struct FaultExpiry(BTreeMap<BoxFault, Tick>);

impl FaultExpiry {
    /// A scan is cheap: there are at most [`FAULTS_MAX`].
    pub(crate) fn deadline(&self) -> Option<Tick> {
        self.0.values().min().copied()
    }
}

impl PartContext<'_> {
    /// Raises a fault that stays until [`PartContext::fault_gone`] is called.
    pub(crate) fn fault(&mut self, fault: BoxFault) {
        let faults = &mut self.records.view.faults;
        if let Some(standing) = faults.get_mut(&fault) {
            standing.seen_at = self.now.wall;
            return;
        }
        let kind = discriminant(&fault);
        let same = faults.keys().filter(|one| discriminant(*one) == kind);
        if faults.len() >= FAULTS_MAX || same.count() >= FAULTS_OF_KIND_MAX {
            return;
        }
        let standing = FaultTimes {
            since: self.now.wall,
            seen_at: self.now.wall,
        };
        faults.insert(fault.clone(), standing);
        self.note(None, NoteKind::FaultRaised(fault));
    }

    /// Raises a fault that expires if it does not occur again.
    pub(crate) fn fault_seen(&mut self, fault: BoxFault) {
        self.fault(fault.clone());
        if self.records.view.faults.contains_key(&fault) {
            self.fault_expiry
                .0
                .insert(fault, self.now.tick.after_ms(FAULT_QUIET_MS));
        }
    }

    pub(crate) fn fault_gone(&mut self, fault: &BoxFault) {
        if self.remove_fault(fault) {
            self.note(None, NoteKind::FaultCleared(fault.clone()));
        }
    }

    /// Removes a fault without a note: it is reported in another form.
    pub(crate) fn remove_fault(&mut self, fault: &BoxFault) -> bool {
        self.fault_expiry.0.remove(fault);
        self.records.view.faults.remove(fault).is_some()
    }

    pub(crate) fn expire_faults(&mut self) {
        let quiet = self
            .fault_expiry
            .0
            .iter()
            .filter(|(_, at)| **at <= self.now.tick);
        let gone: Vec<_> = quiet.map(|(fault, _)| fault.clone()).collect();
        for fault in gone {
            self.fault_gone(&fault);
        }
    }
}

impl Rack {
    pub(crate) fn fault(&mut self, now: Now, fault: BoxFault) {
        self.context(now).fault(fault);
    }

    pub(crate) fn fault_seen(&mut self, now: Now, fault: BoxFault) {
        self.context(now).fault_seen(fault);
    }

    pub(crate) fn fault_gone(&mut self, now: Now, fault: &BoxFault) {
        self.context(now).fault_gone(fault);
    }

    /// A fault that the shell found or that it saw end.
    pub(crate) fn shell_fault(&mut self, now: Now, fault: BoxFault, exists: bool) {
        if exists {
            self.fault(now, fault);
        } else {
            self.fault_gone(now, &fault);
        }
    }
}
