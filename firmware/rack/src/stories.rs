//! Stages that are late, jobs that have ended, and their diagnosis.

use trivet_model::{NoteKind, Now};

use crate::Rack;

impl Rack {
    /// Bounds the stories by the size of the store: its records have at most this many bytes.
    pub fn limit_stories(&mut self, live_bytes_max: u64) {
        self.records.limit_stories(live_bytes_max);
    }

    /// Says which stages have become late.
    pub(crate) fn note_late_stages(&mut self, now: Now) {
        while let Some(id) = self.records.take_late(now) {
            let Some((stage, lasted_ms, usual_ms)) = self.records.present_stage(now, id) else {
                continue;
            };
            let diagnosis = self.diagnosis_of(now, id, Some((stage, usual_ms)));
            let sentence = diagnosis.as_ref().map(|found| found.sentence.clone());
            if diagnosis.is_some() {
                self.show_diagnosis(now, id, diagnosis);
            }
            let kind = NoteKind::StageLate {
                stage,
                lasted_ms,
                usual_ms,
                diagnosis: sentence,
            };
            self.note(now, Some(id), kind);
        }
    }

    /// Ends the stories of the jobs that have ended, after their last notes, and shows all
    /// changes of stories to readers.
    pub(crate) fn finish_stories(&mut self, now: Now) {
        while let Some(id) = self.records.take_ended_job() {
            if self.records.has_failed(id) {
                self.diagnose_failed_job(now, id);
            } else {
                self.end_diagnosis(now, id);
            }
            self.records.finish_job(now, id);
            self.records.keep_diagnosis(id);
        }
        self.records.publish_stories();
    }
}
