//! One command from its first request to its exit code, without a socket or a clock.
//!
//! The shell sends what it is told to send, sleeps as long as it is told to, and hands
//! answers back with the time. Every turn says what to print and what to do next.

use std::collections::VecDeque;

use serde_json::{Value, json};

use crate::activity::{self, Activities, Activity};
use crate::exit::Exit;
use crate::fault::{CliFault, error_message, is_passing};
use crate::plan::{
    CommandPlan, FinalAction, delete_port, look, look_image, provision_with_image_path,
};
use crate::progress::{ProgressLine, duration};
use crate::request::{CliRequest, CliResponse, VERSION, link_path};
use crate::show::{ACTIVITY, OutputView};
use crate::wait::{ImageSnapshot, NodeSnapshot, WaitGoal, WaitVerdict, look_gap_ms, wait_verdict};
use crate::watch::NodeWatcher;

/// How often a request is repeated while the node is locked or the box is busy.
const TRIES_MAX: u32 = 10;

/// Between two such tries.
const TRY_GAP_MS: u64 = 1_000;

/// How long the box may be away while we wait for a node: it may be restarted.
const UNREACHABLE_MS_MAX: u64 = 120_000;

/// How long an image may look as it did before it was asked for.
const SETTLE_MS: u64 = 3_000;

/// Most pages of one list.
const PAGES_MAX: u32 = 1_000;

/// How answers are shown.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OutputStyle {
    pub(crate) json: bool,
    /// The terminal's width, where there is one.
    pub(crate) width: Option<usize>,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TaskAction {
    /// Send this and hand back the answer.
    Send(CliRequest),
    /// Wake the task after so many milliseconds.
    Pause(u64),
    /// It is over.
    End(Exit),
}

/// Something to print.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TaskOutput {
    /// A line of the result.
    Line(String),
    /// A sentence beside the result.
    Note(String),
    /// A change while waiting; for where nothing can be redrawn.
    Change(String),
    /// Where it is; for a line that is redrawn.
    Progress(ProgressLine),
}

/// What one event leads to.
#[derive(Debug, PartialEq)]
pub(crate) struct TaskStep {
    pub(crate) outs: Vec<TaskOutput>,
    pub(crate) act: TaskAction,
}

impl TaskStep {
    fn only(act: TaskAction) -> Self {
        Self {
            outs: Vec::new(),
            act,
        }
    }

    fn fault(fault: CliFault) -> Self {
        Self {
            outs: vec![TaskOutput::Note(format!("trivet: {}", fault.sentence))],
            act: TaskAction::End(fault.exit),
        }
    }
}

/// A command under way.
#[derive(Debug)]
pub(crate) struct CommandTask {
    subject: String,
    then: FinalAction,
    style: OutputStyle,
    /// Not sent yet.
    rest: VecDeque<CliRequest>,
    /// Sent, or to be sent again.
    current: CliRequest,
    /// Whether `current` is a look at nodes.
    looking: bool,
    watcher: Option<NodeWatcher>,
    /// Since when we look, and when the box was last heard.
    started: u64,
    answered_at: u64,
    tries: u32,
    version: u16,
    /// What the pages so far had.
    items: Vec<Value>,
    pages: u32,
    last: Option<NodeSnapshot>,
    /// An answer that is not shown yet: the box was asked what the nodes in it are doing.
    unshown: Option<Value>,
    activities: Activities,
    /// The box does not tell what nodes are doing.
    lacks_progress: bool,
}

impl CommandTask {
    pub(crate) fn new(plan: CommandPlan, style: OutputStyle) -> Self {
        let watcher = match &plan.then {
            FinalAction::Watch { nodes, until, .. } => {
                Some(NodeWatcher::new(nodes.clone(), until.clone(), style.json))
            }
            _ => None,
        };
        Self {
            subject: plan.subject,
            then: plan.then,
            style,
            rest: plan.requests.into(),
            current: CliRequest::get("/v1"),
            looking: false,
            watcher,
            started: 0,
            answered_at: 0,
            tries: 0,
            version: VERSION,
            items: Vec::new(),
            pages: 0,
            last: None,
            unshown: None,
            activities: Activities::new(),
            lacks_progress: false,
        }
    }

    /// The first turn.
    pub(crate) fn begin(&mut self, now: u64) -> TaskStep {
        self.answered_at = now;
        match self.rest.pop_front() {
            Some(request) => self.send(request),
            None => self.start_looking(now),
        }
    }

    /// After a pause: the same again.
    pub(crate) fn woken(&mut self) -> TaskStep {
        self.send(self.current.clone())
    }

    /// Stopped from the keyboard.
    pub(crate) fn interrupted(&self) -> TaskStep {
        match &self.then {
            // A watch without an end ends so.
            FinalAction::Watch { until: None, .. } => TaskStep::only(TaskAction::End(Exit::Fine)),
            FinalAction::WaitImage { image, .. } if self.looking => TaskStep::fault(CliFault::new(
                Exit::Interrupted,
                format!(
                    "stopped waiting; the box goes on with image {image}. `trivet image show \
                     {image}` says how far it is."
                ),
            )),
            FinalAction::Wait { node, .. } if self.looking => TaskStep::fault(CliFault::new(
                Exit::Interrupted,
                format!(
                    "stopped waiting; the box goes on with node {node}. `trivet node watch {node}` \
                     follows it."
                ),
            )),
            _ => TaskStep::only(TaskAction::End(Exit::Interrupted)),
        }
    }

    /// An answer, or why there is none.
    pub(crate) fn answered(&mut self, now: u64, answer: Result<CliResponse, CliFault>) -> TaskStep {
        if let Some(body) = self.unshown.take() {
            self.progress_answered(answer);
            return self.complete(now, body);
        }
        let answer = match answer {
            Ok(answer) => answer,
            Err(fault) => return self.unanswered(now, fault),
        };
        let newest = answer.version_max.filter(|newest| *newest < self.version);
        if let (406, Some(newest)) = (answer.status, newest) {
            // An older box: its words will do for most of what we ask.
            self.version = newest;
            return self.woken();
        }
        if is_passing(&answer) && self.tries < TRIES_MAX {
            return self.try_again();
        }
        self.tries = 0;
        if answer.status == 404
            && let Some(path) = self.current.fallback.take()
        {
            // An older Trivet or another Ironic, or there is no such node.
            self.current.path = path;
            return self.woken();
        }
        if !(200..300).contains(&answer.status) {
            return TaskStep::fault(self.refused(&answer));
        }
        self.answered_at = now;
        if let Some(key) = self.list_key()
            && let Some(turn) = self.page(key, &answer.body)
        {
            return turn;
        }
        if !self.looking
            && let Some(request) = self.rest.pop_front()
        {
            return self.send(request);
        }
        match self.progress_request(&answer.body) {
            Some(request) => {
                self.unshown = Some(answer.body);
                self.send(request)
            }
            None => self.complete(now, answer.body),
        }
    }

    /// All that is shown or judged next has come.
    fn complete(&mut self, now: u64, body: Value) -> TaskStep {
        if self.looking {
            self.looked(now, &body)
        } else {
            self.finish(now, body)
        }
    }

    /// The request for what the nodes in an answer are doing, where that is shown and one of
    /// them has work under way.
    fn progress_request(&self, body: &Value) -> Option<CliRequest> {
        if self.lacks_progress || (self.style.json && !self.looking) {
            return None;
        }
        let many = match (&self.then, &self.watcher) {
            (FinalAction::Show(OutputView::Nodes), _) => true,
            (FinalAction::Show(OutputView::Node), _) => false,
            (FinalAction::Wait { .. }, _) if self.looking => false,
            (_, Some(watcher)) => watcher.nodes.len() != 1,
            _ => return None,
        };
        if many {
            let works = self.items.iter().any(activity::may_work);
            return works.then(|| activity::progress_request(None));
        }
        let node = body["uuid"].as_str().filter(|_| activity::may_work(body))?;
        Some(activity::progress_request(Some(node)))
    }

    /// Keeps what nodes are doing. Without that the rest is shown all the same: an older box
    /// does not tell it, and a box that went away is noticed by the next look.
    fn progress_answered(&mut self, answer: Result<CliResponse, CliFault>) {
        self.activities = match answer {
            Ok(answer) if answer.status == 200 => activity::read(&answer.body),
            Ok(answer) => {
                self.lacks_progress = answer.status == 404;
                Activities::new()
            }
            Err(_) => Activities::new(),
        };
    }

    /// Puts what nodes are doing into what is shown.
    fn with_activities(&self, view: &OutputView, body: &mut Value) {
        match view {
            OutputView::Nodes => {
                for node in body["nodes"].as_array_mut().into_iter().flatten() {
                    let uuid = node["uuid"].as_str().unwrap_or_default();
                    if let Some(activity) = self.activities.get(uuid) {
                        node[ACTIVITY] = json!(activity.words());
                    }
                }
            }
            OutputView::Node => {
                if let Some(activity) = self.activities.values().next() {
                    body["progress"] = activity.fields();
                }
            }
            _ => {}
        }
    }

    fn send(&mut self, request: CliRequest) -> TaskStep {
        self.current = request;
        self.current.version = self.version;
        TaskStep::only(TaskAction::Send(self.current.clone()))
    }

    fn try_again(&mut self) -> TaskStep {
        self.tries += 1;
        let mut turn = TaskStep::only(TaskAction::Pause(TRY_GAP_MS));
        if self.tries == 1 && !self.looking {
            turn.outs.push(TaskOutput::Note(format!(
                "{} is busy; trying again for up to {}",
                self.subject,
                duration(u64::from(TRIES_MAX) * TRY_GAP_MS)
            )));
        }
        turn
    }

    /// The box did not answer. A look may be repeated; what changes something may not,
    /// since it may have been done.
    fn unanswered(&mut self, now: u64, fault: CliFault) -> TaskStep {
        let away = now.saturating_sub(self.answered_at);
        if !self.looking || fault.exit != Exit::Unreachable || away > UNREACHABLE_MS_MAX {
            return TaskStep::fault(fault);
        }
        if self
            .limit()
            .is_some_and(|limit| now.saturating_sub(self.started) >= limit)
        {
            return TaskStep::fault(self.too_late());
        }
        let mut turn = TaskStep::only(TaskAction::Pause(TRY_GAP_MS));
        turn.outs
            .push(TaskOutput::Change(format!("trivet: {}", fault.sentence)));
        turn
    }

    fn refused(&self, answer: &CliResponse) -> CliFault {
        let images = matches!(
            &self.then,
            FinalAction::Show(OutputView::Images | OutputView::Image(_))
        );
        if images && answer.status == 404 {
            return CliFault::new(
                Exit::NotFound,
                "this box does not list its images: it has no /trivet/images. It may be an older \
                 Trivet, or another Ironic; look into the directory of its images instead.",
            );
        }
        if answer.status == 404
            && self.has_image()
            && !error_message(&answer.body).contains("Node ")
        {
            return CliFault::new(
                Exit::NotFound,
                format!(
                    "{}: this box does not take an image and a verb in one request; it may be an \
                     older Trivet, or another Ironic. Set the image with `trivet node set \
                     --instance-info image_source=...`, then give the command without --image.",
                    self.subject
                ),
            );
        }
        CliFault::of(answer, &self.subject)
    }

    /// Whether the present request is a verb with an image.
    fn has_image(&self) -> bool {
        let node = self.subject.strip_prefix("node ").unwrap_or_default();
        self.current.path == provision_with_image_path(node)
    }

    /// The key of the list that the present answer is a page of.
    fn list_key(&self) -> Option<&'static str> {
        match (&self.then, &self.watcher) {
            (FinalAction::Show(view), _) => view.list(),
            (_, Some(watcher)) if watcher.nodes.len() != 1 => Some("nodes"),
            _ => None,
        }
    }

    /// Keeps a page; the next request if there is another page.
    fn page(&mut self, key: &str, body: &Value) -> Option<TaskStep> {
        self.items
            .extend(body[key].as_array().into_iter().flatten().cloned());
        self.pages += 1;
        let next = link_path(body["next"].as_str()?)?;
        (self.pages < PAGES_MAX).then(|| self.send(CliRequest::get(next)))
    }

    /// All requests of the plan were answered well.
    fn finish(&mut self, now: u64, body: Value) -> TaskStep {
        match self.then.clone() {
            FinalAction::Show(view) => self.shown(&view, body),
            FinalAction::Print(sentence) => TaskStep {
                outs: if self.style.json {
                    Vec::new()
                } else {
                    vec![TaskOutput::Line(sentence)]
                },
                act: TaskAction::End(Exit::Fine),
            },
            FinalAction::Wait { .. }
            | FinalAction::WaitImage { .. }
            | FinalAction::Watch { .. } => self.start_looking(now),
            FinalAction::DeletePort => {
                let port = body["ports"][0]["uuid"].as_str();
                let Some(uuid) = port else {
                    let sentence = format!(
                        "{}: the box knows no port of this address. `trivet port list` shows \
                         those it knows.",
                        self.subject
                    );
                    return TaskStep::fault(CliFault::new(Exit::NotFound, sentence));
                };
                self.then = FinalAction::Print(format!("{}: deleted", self.subject));
                self.send(delete_port(uuid))
            }
        }
    }

    fn shown(&mut self, view: &OutputView, mut body: Value) -> TaskStep {
        if let Some(key) = view.list() {
            body = json!({ key: std::mem::take(&mut self.items) });
        }
        self.with_activities(view, &mut body);
        let (body, exit) = match view.chosen(body) {
            Ok(chosen) => chosen,
            Err(fault) => return TaskStep::fault(fault),
        };
        let lines = if self.style.json {
            vec![format!("{body:#}")]
        } else {
            view.table(&body).lines(self.style.width)
        };
        TaskStep {
            outs: lines.into_iter().map(TaskOutput::Line).collect(),
            act: TaskAction::End(exit),
        }
    }

    fn start_looking(&mut self, now: u64) -> TaskStep {
        self.started = now;
        self.looking = true;
        self.send(self.look())
    }

    /// The first request of a look.
    fn look(&self) -> CliRequest {
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

    fn looked(&mut self, now: u64, body: &Value) -> TaskStep {
        let elapsed = now.saturating_sub(self.started);
        self.pages = 0;
        // After the last page comes the first one again.
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

    /// One look of a wait.
    fn wait_update(
        &mut self,
        node: &str,
        goal: &WaitGoal,
        body: &Value,
        elapsed: u64,
    ) -> (Vec<TaskOutput>, Option<Result<(), CliFault>>) {
        let activity = std::mem::take(&mut self.activities).into_values().next();
        let mut sight = NodeSnapshot::of(body);
        sight.news = activity.as_ref().map(Activity::news);
        let mut outs = Vec::new();
        if self.last.as_ref() != Some(&sight) {
            let words = match goal {
                WaitGoal::Power(_) => &sight.power,
                WaitGoal::State(_) | WaitGoal::Rest => &sight.words(),
            };
            let work = activity.as_ref().map(|work| format!("; {}", work.words()));
            let work = work.unwrap_or_default();
            outs.push(TaskOutput::Change(format!("{node}: {words}{work}")));
        }
        outs.push(TaskOutput::Progress(match &activity {
            Some(activity) => ProgressLine::working(&sight, activity, elapsed),
            None => ProgressLine::of(&sight, elapsed),
        }));
        let verdict = wait_verdict(goal, &sight);
        let end = match &verdict {
            WaitVerdict::Pending => None,
            WaitVerdict::Reached => Some(Ok(())),
            WaitVerdict::Failed(why) => Some(Err(CliFault::new(
                Exit::Failed,
                format!("node {node} {why} (`trivet node history {node}` says more)"),
            ))),
        };
        if end.is_some() && self.style.json {
            outs.push(TaskOutput::Line(format!("{body:#}")));
        } else if verdict == WaitVerdict::Reached {
            let state = match goal {
                WaitGoal::Power(power) => format!("has {power}"),
                WaitGoal::State(_) | WaitGoal::Rest => format!("is {}", sight.state),
            };
            let took = duration(elapsed);
            outs.push(TaskOutput::Line(format!(
                "node {node} {state} after {took}"
            )));
        }
        self.last = Some(sight);
        (outs, end)
    }

    /// One look of a wait for an image.
    fn image_wait_update(
        &self,
        image: &str,
        body: &Value,
        elapsed: u64,
    ) -> (Vec<TaskOutput>, Option<Result<(), CliFault>>) {
        let sight = ImageSnapshot::of(body);
        let progress =
            ProgressLine::many(format!("{image}  {}", sight.state), sight.mib(), elapsed);
        let mut outs = vec![TaskOutput::Progress(progress)];
        let end = match sight.verdict() {
            WaitVerdict::Pending => return (outs, None),
            // It may be the fault of the time before.
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
                "image {image} is whole after {took}"
            )));
        }
        (outs, Some(end))
    }

    fn limit(&self) -> Option<u64> {
        match &self.then {
            FinalAction::Wait { limit_ms, .. } | FinalAction::WaitImage { limit_ms, .. } => {
                Some(*limit_ms)
            }
            FinalAction::Watch { limit_ms, .. } => *limit_ms,
            _ => None,
        }
    }

    fn too_late(&self) -> CliFault {
        let limit = duration(self.limit().unwrap_or(0));
        let state = self.last.as_ref().map(NodeSnapshot::words);
        let sentence = match state {
            Some(state) => format!(
                "{} is still `{state}` after {limit}; the box goes on with it",
                self.subject
            ),
            None => format!("{}: not there after {limit}; the box goes on", self.subject),
        };
        CliFault::new(Exit::TimedOut, sentence)
    }
}

#[cfg(test)]
mod tests;
