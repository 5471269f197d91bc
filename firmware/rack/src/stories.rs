//! Stages that are late, jobs that have ended, and their diagnosis.

use trivet_model::story::{
    CAUSE_BYTES_MAX, COMMAND_BYTES_MAX, NEXT_ACTION_BYTES_MAX, RULE_BYTES_MAX, SENTENCE_BYTES_MAX,
    StoryDiagnosis, shortened,
};
use trivet_model::{Diagnosis, NoteKind, Now};

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
        }
        self.records.publish_stories();
    }
}

/// The diagnosis as it is stored.
pub(crate) fn stored(diagnosis: &Diagnosis) -> StoryDiagnosis {
    let name = |text: &str| shortened(text, RULE_BYTES_MAX);
    let action = diagnosis.action.as_ref();
    let command = action.map(|action| action.command.clone());
    StoryDiagnosis {
        rule: name(&diagnosis.rule),
        sentence: shortened(&diagnosis.sentence, SENTENCE_BYTES_MAX),
        cause: shortened(&diagnosis.cause, CAUSE_BYTES_MAX),
        next_action: shortened(&diagnosis.next_action, NEXT_ACTION_BYTES_MAX),
        action: action.map(|action| name(&action.kind)),
        command: command.filter(|command| command.len() <= COMMAND_BYTES_MAX),
    }
}
