//! What is wrong with a node, what is the likely cause, and what to do next: the same sentences
//! for the API, the commands and the page.

use trivet_model::story::{JobOutcome, JobStory, Stage, StageState};
use trivet_model::view::NodeView;
use trivet_model::{Diagnosis, RackView, UnixMs};

use crate::words::{advice, doing};

/// How a node is, in one word.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NodeCondition {
    /// Nothing is wrong.
    Fine,
    /// A stage of its job is late.
    Late,
    /// Its last action failed.
    Failed,
    /// It is in maintenance mode.
    Maintenance,
    /// Its job goes on or has ended well, and the diagnosis names a problem.
    Problem,
}

impl NodeCondition {
    /// The word for programs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fine => "fine",
            Self::Late => "late",
            Self::Failed => "failed",
            Self::Maintenance => "maintenance",
            Self::Problem => "problem",
        }
    }
}

/// What is wrong with a node.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NodeWhy {
    /// How it is.
    pub condition: NodeCondition,
    /// What happened, in one sentence.
    pub sentence: String,
    /// The likely cause.
    pub cause: Option<String>,
    /// What to do next.
    pub next_action: Option<String>,
    /// The name of the rule that found it.
    pub rule: Option<String>,
    /// The kind of action that the box suggests.
    pub action: Option<String>,
    /// Its command.
    pub command: Option<String>,
    /// The stage that is late or failed.
    pub stage: Option<Stage>,
}

/// What is wrong with a node at this time.
pub fn why(view: &RackView, node: &NodeView, now: UnixMs) -> NodeWhy {
    let record = &node.node;
    let job = node.story.latest();
    let late = job.filter(|job| job.end.is_none()).and_then(|job| {
        let stage = job.current()?;
        (stage.state == StageState::Late).then_some(job)
    });
    if let Some(job) = late {
        return with_diagnosis(NodeCondition::Late, job, late_sentence(job, now), node);
    }
    let failed = record.last_error.is_some() || record.provision_state.is_failure();
    if failed && record.job.is_none() {
        let error = record.last_error.clone();
        let sentence = error.unwrap_or_else(|| format!("{}.", doing(view, node)));
        let job = job.filter(|job| job.outcome == JobOutcome::Failed);
        return match job {
            Some(job) => with_diagnosis(NodeCondition::Failed, job, sentence, node),
            None => NodeWhy {
                next_action: next_action(node),
                ..plain(NodeCondition::Failed, sentence)
            },
        };
    }
    if record.maintenance {
        let reason = record.maintenance_reason.as_deref();
        let reason = reason.unwrap_or("no reason was given");
        let next = format!("trivet node maintenance {} off", record.label());
        return NodeWhy {
            next_action: Some("Correct the cause, then end maintenance mode.".to_owned()),
            command: Some(next),
            ..plain(
                NodeCondition::Maintenance,
                format!("The node is in maintenance mode: {reason}."),
            )
        };
    }
    if let Some(found) = &node.live.diagnosis {
        return diagnosed(NodeCondition::Problem, found);
    }
    let sentence = format!(
        "Nothing is wrong. {} ({}).",
        doing(view, node),
        record.provision_state
    );
    plain(NodeCondition::Fine, sentence)
}

/// What the page shows beside a node with a problem: the diagnosis of its job, or else what to do.
pub(crate) fn problem(view: &RackView, node: &NodeView, now: UnixMs) -> Option<String> {
    let found = why(view, node, now);
    let is_late = found.condition == NodeCondition::Late;
    if !is_late && found.rule.is_none() {
        return advice(node);
    }
    let parts = [Some(found.sentence), found.cause, found.next_action];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    Some(parts.join(" "))
}

fn plain(condition: NodeCondition, sentence: String) -> NodeWhy {
    NodeWhy {
        condition,
        sentence,
        cause: None,
        next_action: None,
        rule: None,
        action: None,
        command: None,
        stage: None,
    }
}

/// The diagnosis of a job, or else what its stages show.
fn with_diagnosis(
    condition: NodeCondition,
    job: &JobStory,
    sentence: String,
    node: &NodeView,
) -> NodeWhy {
    let stage = job.deviation();
    let found = match (&node.live.diagnosis, &job.diagnosis) {
        (Some(found), _) => diagnosed(condition, found),
        // As it was stored before this box restarted.
        (None, Some(found)) => NodeWhy {
            cause: Some(found.cause.clone()),
            next_action: Some(found.next_action.clone()),
            rule: Some(found.rule.clone()),
            action: found.action.clone(),
            command: found.command.clone(),
            ..plain(condition, found.sentence.clone())
        },
        (None, None) => NodeWhy {
            cause: stage.and_then(|stage| stage.evidence.clone()),
            next_action: next_action(node).or_else(|| {
                let name = node.node.label();
                Some(format!(
                    "Look at the machine's console, or follow it: trivet node watch {name}."
                ))
            }),
            ..plain(condition, sentence)
        },
    };
    NodeWhy {
        stage: stage.map(|stage| stage.stage),
        ..found
    }
}

fn diagnosed(condition: NodeCondition, found: &Diagnosis) -> NodeWhy {
    let action = found.action.as_ref();
    NodeWhy {
        cause: Some(found.cause.clone()),
        next_action: Some(found.next_action.clone()),
        rule: Some(found.rule.clone()),
        action: action.map(|action| action.kind.clone()),
        command: action.map(|action| action.command.clone()),
        ..plain(condition, found.sentence.clone())
    }
}

/// What to do, without the word that the page shows before it.
fn next_action(node: &NodeView) -> Option<String> {
    let text = advice(node)?;
    Some(text.strip_prefix("Next: ").unwrap_or(&text).to_owned())
}

fn late_sentence(job: &JobStory, now: UnixMs) -> String {
    let Some(stage) = job.current() else {
        return "The job is late.".to_owned();
    };
    let lasted = stage.lasted_ms(now) / 1000;
    let usual = match stage.usual_ms {
        Some(usual) => format!("usually it takes {}", seconds(usual)),
        None => "how long it usually takes is not known yet".to_owned(),
    };
    let tries = match stage.tries {
        1 => String::new(),
        tries => format!(", try {tries}"),
    };
    format!(
        "Stage {} has run for {lasted} s{tries}; {usual}.",
        stage.stage
    )
}

/// A duration in seconds with one digit after the point below ten.
pub(crate) fn seconds(ms: u64) -> String {
    match ms {
        0..10_000 => format!("{}.{} s", ms / 1000, ms % 1000 / 100),
        _ => format!("{} s", ms / 1000),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use trivet_model::story::{NodeStories, RunningJobStory, StageStory, StoryDiagnosis};
    use trivet_model::{JobKind, JobPhase, ProvisionState};

    use super::*;
    use crate::testing::{NOW, NodeViewCase};

    fn stage(stage: Stage, state: StageState, since: Option<UnixMs>) -> StageStory {
        StageStory {
            stage,
            state,
            begin: UnixMs(NOW.0 - 140_000),
            since,
            duration_ms: 0,
            usual_ms: Some(400),
            tries: 2,
            bytes: 0,
            transfer_ms: 0,
            first_note: 1,
            last_note: 2,
            evidence: Some("snponly.efi stopped".to_owned()),
        }
    }

    fn job(outcome: JobOutcome, stage: StageStory) -> JobStory {
        JobStory {
            number: 1,
            kind: JobKind::Deploy,
            begin: UnixMs(0),
            end: (outcome != JobOutcome::Running).then_some(NOW),
            outcome,
            model: String::new(),
            stages: vec![stage],
            last_error: None,
            diagnosis: None,
        }
    }

    fn diagnosis() -> StoryDiagnosis {
        StoryDiagnosis {
            rule: "loader-not-requested".to_owned(),
            sentence: "It never asked for snponly.efi.".to_owned(),
            cause: "UDP 69 is blocked.".to_owned(),
            next_action: "Try HTTP boot.".to_owned(),
            action: Some("http-boot".to_owned()),
            command: Some("trivet x".to_owned()),
        }
    }

    fn running(job: JobStory) -> NodeView {
        let case = NodeViewCase::new(ProvisionState::DeployWait);
        let mut view = case.job(JobKind::Deploy, JobPhase::AwaitAgent, 0, 1).view();
        view.story.running = Some(Arc::new(RunningJobStory {
            node: view.node.id,
            story: job,
            evidence: serde_json::Value::Null,
            dropped: 0,
            notes: Vec::new(),
        }));
        view
    }

    fn why(node: &NodeView) -> NodeWhy {
        super::why(&RackView::default(), node, NOW)
    }

    #[test]
    fn a_node_without_a_problem_says_so_with_its_state() {
        let idle = why(&NodeViewCase::new(ProvisionState::Active).view());
        assert_eq!(idle.condition, NodeCondition::Fine);
        assert_eq!(
            idle.sentence,
            "Nothing is wrong. Running its instance (active)."
        );
        let since = Some(UnixMs(NOW.0 - 1000));
        let works = why(&running(job(
            JobOutcome::Running,
            stage(Stage::Post, StageState::Running, since),
        )));
        assert_eq!(works.condition, NodeCondition::Fine);
        assert!(works.sentence.starts_with("Nothing is wrong. Deploying:"));
    }

    #[test]
    fn a_late_stage_says_how_long_it_usually_takes() {
        let since = Some(UnixMs(NOW.0 - 140_000));
        let late = stage(Stage::Loader, StageState::Late, since);
        let mut job = job(JobOutcome::Running, late);
        let found = why(&running(job.clone()));
        assert_eq!(found.condition, NodeCondition::Late);
        assert_eq!(
            found.sentence,
            "Stage loader has run for 140 s, try 2; usually it takes 0.4 s."
        );
        assert_eq!(found.cause.as_deref(), Some("snponly.efi stopped"));
        assert_eq!(found.stage, Some(Stage::Loader));
        job.diagnosis = Some(diagnosis());
        let view = running(job.clone());
        assert_eq!(
            problem(&RackView::default(), &view, NOW).as_deref(),
            Some("It never asked for snponly.efi. UDP 69 is blocked. Try HTTP boot.")
        );
        let found = why(&running(job));
        assert_eq!(found.sentence, "It never asked for snponly.efi.");
        assert_eq!(found.cause.as_deref(), Some("UDP 69 is blocked."));
        assert_eq!(found.next_action.as_deref(), Some("Try HTTP boot."));
        assert_eq!(found.rule.as_deref(), Some("loader-not-requested"));
    }

    #[test]
    fn a_failed_job_gives_its_diagnosis_and_without_one_its_last_error() {
        let case = NodeViewCase::new(ProvisionState::DeployFail);
        let case = case.change(|node| node.last_error = Some("no sign of the agent".to_owned()));
        let mut view = case.view();
        let mut failed = job(
            JobOutcome::Failed,
            stage(Stage::Loader, StageState::Failed, None),
        );
        let with = |view: &mut NodeView, job: JobStory| {
            let mut stories = NodeStories::new(view.node.id);
            stories.add(job);
            view.story.finished = Some(Arc::new(stories));
        };
        with(&mut view, failed.clone());
        let found = why(&view);
        assert_eq!(found.condition, NodeCondition::Failed);
        assert_eq!(found.sentence, "no sign of the agent");
        assert!(found.next_action.is_some());
        failed.diagnosis = Some(diagnosis());
        with(&mut view, failed);
        assert_eq!(why(&view).sentence, "It never asked for snponly.efi.");
        view.story = trivet_model::story::NodeStoryView::default();
        assert_eq!(
            why(&view).condition,
            NodeCondition::Failed,
            "without a story"
        );
    }

    #[test]
    fn maintenance_is_named_with_its_reason() {
        let case = NodeViewCase::new(ProvisionState::Active).change(|node| {
            node.maintenance = true;
            node.maintenance_reason = Some("disk".to_owned());
        });
        let found = why(&case.view());
        assert_eq!(found.condition, NodeCondition::Maintenance);
        assert_eq!(found.sentence, "The node is in maintenance mode: disk.");
    }
}
