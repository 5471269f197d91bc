//! One command from its first request to its exit code, without a socket or a clock.
//!
//! The shell sends the requests, sleeps as long as requested, and passes responses back
//! with the time. Every step says what to print and what to do next.

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

/// The delay between two such attempts.
const TRY_GAP_MS: u64 = 1_000;

/// How long the box may be unreachable while we wait for a node: it may be restarting.
const UNREACHABLE_MS_MAX: u64 = 120_000;

/// How long an image may still show the state from before the request.
const SETTLE_MS: u64 = 3_000;

/// Most pages of one list.
const PAGES_MAX: u32 = 1_000;

/// How responses are shown.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OutputStyle {
    pub(crate) json: bool,
    /// The terminal's width, where there is one.
    pub(crate) width: Option<usize>,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TaskAction {
    /// Send this and pass the response back.
    Send(CliRequest),
    /// Wake the task after this many milliseconds.
    Pause(u64),
    /// The command has ended.
    End(Exit),
}

/// Something to print.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TaskOutput {
    /// A line of the result.
    Line(String),
    /// A message that is not part of the result.
    Note(String),
    /// A change while waiting; for output where nothing can be redrawn.
    Change(String),
    /// The progress; for a line that is redrawn.
    Progress(ProgressLine),
}

/// What to print and do after one event.
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

/// A running command.
#[derive(Debug)]
pub(crate) struct CommandTask {
    subject: String,
    then: FinalAction,
    style: OutputStyle,
    /// Not sent yet.
    rest: VecDeque<CliRequest>,
    /// Sent, or to be sent again.
    current: CliRequest,
    /// Whether `current` polls nodes.
    looking: bool,
    watcher: Option<NodeWatcher>,
    /// When polling started, and when the box last replied.
    started: u64,
    answered_at: u64,
    tries: u32,
    version: u16,
    /// The items of the pages so far.
    items: Vec<Value>,
    pages: u32,
    last: Option<NodeSnapshot>,
    /// A response that is not shown yet: the activities of its nodes were requested.
    unshown: Option<Value>,
    activities: Activities,
    /// Whether the box does not report activities.
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

    /// The first step.
    pub(crate) fn begin(&mut self, now: u64) -> TaskStep {
        self.answered_at = now;
        match self.rest.pop_front() {
            Some(request) => self.send(request),
            None => self.start_looking(now),
        }
    }

    /// After a pause: repeats the current request.
    pub(crate) fn woken(&mut self) -> TaskStep {
        self.send(self.current.clone())
    }

    /// Stopped from the keyboard.
    pub(crate) fn interrupted(&self) -> TaskStep {
        match &self.then {
            // This is the normal end of a watch without a goal.
            FinalAction::Watch { until: None, .. } => TaskStep::only(TaskAction::End(Exit::Fine)),
            FinalAction::WaitImage { image, .. } if self.looking => TaskStep::fault(CliFault::new(
                Exit::Interrupted,
                format!(
                    "stopped waiting; the box continues with image {image}. `trivet image show \
                     {image}` shows its progress."
                ),
            )),
            FinalAction::Wait { node, .. } if self.looking => TaskStep::fault(CliFault::new(
                Exit::Interrupted,
                format!(
                    "stopped waiting; the box continues with {node}. `trivet node watch {node}` \
                     follows it."
                ),
            )),
            _ => TaskStep::only(TaskAction::End(Exit::Interrupted)),
        }
    }

    /// Handles a response, or the reason why there is none.
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
            // An older box: its microversion is sufficient for most requests.
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
            && let Some(step) = self.page(key, &answer.body)
        {
            return step;
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

    /// Everything for the next output or decision was received.
    fn complete(&mut self, now: u64, body: Value) -> TaskStep {
        if self.looking {
            self.looked(now, &body)
        } else {
            self.finish(now, body)
        }
    }

    /// The request for the activities of the nodes in a response, if they are shown and
    /// one of the nodes has work in progress.
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

    /// Stores the activities. Without them the rest is still shown: an older box does
    /// not report them, and the next poll detects an unreachable box.
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

    /// Adds the activities to what is shown.
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
        let mut step = TaskStep::only(TaskAction::Pause(TRY_GAP_MS));
        if self.tries == 1 && !self.looking {
            step.outs.push(TaskOutput::Note(format!(
                "{} is busy; trying again for up to {}",
                self.subject,
                duration(u64::from(TRIES_MAX) * TRY_GAP_MS)
            )));
        }
        step
    }

    /// The box did not reply. A read may be repeated; a change may not, since it may
    /// have been executed.
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
        let mut step = TaskStep::only(TaskAction::Pause(TRY_GAP_MS));
        step.outs
            .push(TaskOutput::Change(format!("trivet: {}", fault.sentence)));
        step
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
                    "{}: this box does not support a verb with an image; it may be an \
                     older Trivet, or another Ironic. Set the image with `trivet node set \
                     --instance-info image_source=...`, then give the command without --image.",
                    self.subject
                ),
            );
        }
        CliFault::of(answer, &self.subject)
    }

    /// Whether the current request is a verb with an image.
    fn has_image(&self) -> bool {
        let node = self.subject.strip_prefix("node ").unwrap_or_default();
        self.current.path == provision_with_image_path(node)
    }

    /// The key of the list of which the current response is a page.
    fn list_key(&self) -> Option<&'static str> {
        match (&self.then, &self.watcher) {
            (FinalAction::Show(view), _) => view.list(),
            (_, Some(watcher)) if watcher.nodes.len() != 1 => Some("nodes"),
            _ => None,
        }
    }

    /// Stores a page; returns the next request if there is another page.
    fn page(&mut self, key: &str, body: &Value) -> Option<TaskStep> {
        self.items
            .extend(body[key].as_array().into_iter().flatten().cloned());
        self.pages += 1;
        let next = link_path(body["next"].as_str()?)?;
        (self.pages < PAGES_MAX).then(|| self.send(CliRequest::get(next)))
    }

    /// All requests of the plan have succeeded.
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
                        "{}: the box has no port with this address. `trivet port list` shows \
                         its ports.",
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
            view.lines(&body, self.style.width)
        };
        TaskStep {
            outs: lines.into_iter().map(TaskOutput::Line).collect(),
            act: TaskAction::End(exit),
        }
    }
}

mod waiting;

#[cfg(test)]
mod tests;
