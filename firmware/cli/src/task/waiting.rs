//! Waiting: polls until nodes or images are where the command wants them.

use super::{
    Activity, CliFault, CliRequest, CommandTask, Exit, FinalAction, ImageSnapshot, NodeSnapshot,
    ProgressLine, SETTLE_MS, TaskAction, TaskOutput, TaskStep, Value, WaitGoal, WaitVerdict,
    duration, look, look_gap_ms, look_image, wait_verdict,
};

impl CommandTask {
    pub(super) fn start_looking(&mut self, now: u64) -> TaskStep {
        self.started = now;
        self.looking = true;
        self.send(self.look())
    }

    /// The first request of a poll.
    pub(super) fn look(&self) -> CliRequest {
        match (&self.then, &self.watcher) {
            (FinalAction::Wait { node, .. }, _) => look(Some(node)),
            (FinalAction::WaitImage { image, .. }, _) => look_image(image),
            (_, Some(watcher)) => match watcher.nodes.as_slice() {
                [node] => look(Some(node)),
                _ => look(None),
            },
            _ => look(None),
        }
    }

    pub(super) fn looked(&mut self, now: u64, body: &Value) -> TaskStep {
        let elapsed = now.saturating_sub(self.started);
        self.pages = 0;
        // After the last page the next poll starts with the first one.
        self.current = self.look();
        let items = std::mem::take(&mut self.items);
        if let Some(watcher) = &mut self.watcher {
            watcher.activities = std::mem::take(&mut self.activities);
        }
        let (mut outs, verdict) = match (self.then.clone(), &mut self.watcher) {
            (FinalAction::Wait { node, goal, .. }, _) => {
                self.wait_update(&node, &goal, body, elapsed)
            }
            (FinalAction::WaitImage { image, .. }, _) => {
                self.image_wait_update(&image, body, elapsed)
            }
            (_, Some(watcher)) => {
                let one = std::slice::from_ref(body);
                let all = if watcher.nodes.len() == 1 {
                    one
                } else {
                    &items
                };
                let looked = watcher.look(all, elapsed);
                let lines = looked.lines.into_iter().map(TaskOutput::Line);
                let outs = lines
                    .chain(looked.progress.map(TaskOutput::Progress))
                    .collect();
                (outs, looked.end)
            }
            _ => (Vec::new(), Some(Ok(()))),
        };
        let act = match verdict {
            Some(Ok(())) => TaskAction::End(Exit::Fine),
            Some(Err(fault)) => {
                outs.push(TaskOutput::Note(format!("trivet: {}", fault.sentence)));
                TaskAction::End(fault.exit)
            }
            None => match self.limit() {
                Some(limit) if elapsed >= limit => {
                    let fault = self.too_late();
                    outs.push(TaskOutput::Note(format!("trivet: {}", fault.sentence)));
                    TaskAction::End(fault.exit)
                }
                Some(limit) => TaskAction::Pause(look_gap_ms(elapsed).min(limit - elapsed)),
                None => TaskAction::Pause(look_gap_ms(elapsed)),
            },
        };
        TaskStep { outs, act }
    }

    /// Handles one poll of a wait.
    pub(super) fn wait_update(
        &mut self,
        node: &str,
        goal: &WaitGoal,
        body: &Value,
        elapsed: u64,
    ) -> (Vec<TaskOutput>, Option<Result<(), CliFault>>) {
        let activity = std::mem::take(&mut self.activities).into_values().next();
        let mut snapshot = NodeSnapshot::of(body);
        snapshot.news = activity.as_ref().map(Activity::news);
        let mut outs = Vec::new();
        if self.last.as_ref() != Some(&snapshot) {
            let words = match goal {
                WaitGoal::Power(_) => &snapshot.power,
                WaitGoal::State(_) | WaitGoal::Rest => &snapshot.words(),
            };
            let work = activity.as_ref().map(|work| format!("; {}", work.words()));
            let work = work.unwrap_or_default();
            outs.push(TaskOutput::Change(format!("{node}: {words}{work}")));
        }
        outs.push(TaskOutput::Progress(match &activity {
            Some(activity) => ProgressLine::working(&snapshot, activity, elapsed),
            None => ProgressLine::of(&snapshot, elapsed),
        }));
        let verdict = wait_verdict(goal, &snapshot);
        let end = match &verdict {
            WaitVerdict::Pending => None,
            WaitVerdict::Reached => Some(Ok(())),
            WaitVerdict::Failed(why) => Some(Err(CliFault::new(
                Exit::Failed,
                format!("node {node} {why} (`trivet node history {node}` shows more)"),
            ))),
        };
        if end.is_some() && self.style.json {
            outs.push(TaskOutput::Line(format!("{body:#}")));
        } else if verdict == WaitVerdict::Reached {
            let state = match goal {
                WaitGoal::Power(power) => format!("has {power}"),
                WaitGoal::State(_) | WaitGoal::Rest => format!("is {}", snapshot.state),
            };
            let took = duration(elapsed);
            outs.push(TaskOutput::Line(format!(
                "node {node} {state} after {took}"
            )));
        }
        self.last = Some(snapshot);
        (outs, end)
    }

    /// Handles one poll of a wait for an image.
    pub(super) fn image_wait_update(
        &self,
        image: &str,
        body: &Value,
        elapsed: u64,
    ) -> (Vec<TaskOutput>, Option<Result<(), CliFault>>) {
        let snapshot = ImageSnapshot::of(body);
        let progress = ProgressLine::many(
            format!("{image}  {}", snapshot.state),
            snapshot.mib(),
            elapsed,
        );
        let mut outs = vec![TaskOutput::Progress(progress)];
        let end = match snapshot.verdict() {
            WaitVerdict::Pending => return (outs, None),
            // It may be the error from before the request.
            WaitVerdict::Failed(_) if elapsed < SETTLE_MS => return (outs, None),
            WaitVerdict::Reached => Ok(()),
            WaitVerdict::Failed(why) => {
                let sentence = format!("image {image} {why}");
                Err(CliFault::new(Exit::Failed, sentence))
            }
        };
        if self.style.json {
            outs.push(TaskOutput::Line(format!("{body:#}")));
        } else if end.is_ok() {
            let took = duration(elapsed);
            outs.push(TaskOutput::Line(format!(
                "image {image} is complete after {took}"
            )));
        }
        (outs, Some(end))
    }

    pub(super) fn limit(&self) -> Option<u64> {
        match &self.then {
            FinalAction::Wait { limit_ms, .. } | FinalAction::WaitImage { limit_ms, .. } => {
                Some(*limit_ms)
            }
            FinalAction::Watch { limit_ms, .. } => *limit_ms,
            _ => None,
        }
    }

    pub(super) fn too_late(&self) -> CliFault {
        let limit = duration(self.limit().unwrap_or(0));
        let state = self.last.as_ref().map(NodeSnapshot::words);
        let sentence = match state {
            Some(state) => format!(
                "{} is still `{state}` after {limit}; the box continues",
                self.subject
            ),
            None => format!(
                "{}: not reached after {limit}; the box continues",
                self.subject
            ),
        };
        CliFault::new(Exit::TimedOut, sentence)
    }
}
