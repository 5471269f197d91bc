//! Verbs: what an operator may ask of a node now, and what that begins.

use std::collections::BTreeMap;

use trivet_model::order::VerbArgs;
use trivet_model::{
    Job, JobKind, Node, NoteKind, Now, Phase, ProvisionState, Refusal, RefusalKind, StepKind, Verb,
};

use crate::steps::STEPS_MAX;
use crate::table::{self, Cause, Turn};
use crate::{Action, Limits, Turning};

/// Carries a verb out, or refuses it with the sentence to show. For `active`,
/// `deploy` and `rebuild` the arguments bring the steps that write the image.
pub fn ask(
    now: Now,
    limits: &Limits,
    node: &Node,
    verb: Verb,
    args: VerbArgs,
) -> Result<(Node, Vec<Action>), Refusal> {
    let from = node.provision_state;
    let Some(row) = table::row(from, Cause::Verb(verb)) else {
        return Err(impossible(node, verb));
    };
    refuse_by_rule(node, verb, &args)?;
    let mut turning = Turning {
        now,
        limits,
        node: node.clone(),
        actions: Vec::new(),
    };
    turning.node.last_error = None;
    turning.follow(row);
    turning.begin(from, verb, args);
    Ok((turning.node, turning.actions))
}

fn impossible(node: &Node, verb: Verb) -> Refusal {
    let state = node.provision_state;
    let can: Vec<_> = table::verbs(state).map(Verb::as_str).collect();
    let advice = if can.is_empty() {
        "Wait until it is done.".to_owned()
    } else {
        format!("Possible now: {}.", can.join(", "))
    };
    Refusal::new(
        RefusalKind::Invalid,
        format!(
            "The requested action \"{verb}\" can not be performed on node \"{}\" while it is in \
             state \"{state}\". {advice}",
            node.id
        ),
    )
}

fn refuse_by_rule(node: &Node, verb: Verb, args: &VerbArgs) -> Result<(), Refusal> {
    let invalid = |sentence: String| Err(Refusal::new(RefusalKind::Invalid, sentence));
    match verb {
        Verb::Rescue | Verb::Unrescue | Verb::Service => invalid(format!(
            "This box does not offer \"{verb}\" yet; node \"{}\" was left as it is.",
            node.id
        )),
        Verb::Active | Verb::Deploy | Verb::Rebuild if node.maintenance => invalid(format!(
            "Node \"{}\" is in maintenance; end that first (DELETE .../maintenance).",
            node.id
        )),
        Verb::Clean if args.steps.is_empty() => {
            invalid("The verb \"clean\" needs clean_steps, a list of steps to run.".to_owned())
        }
        _ if args.steps.len() > STEPS_MAX => invalid(format!(
            "{} steps are more than {STEPS_MAX}.",
            args.steps.len()
        )),
        _ => Ok(()),
    }
}

impl Turning<'_> {
    /// What a verb begins, once the table allowed it.
    fn begin(&mut self, from: ProvisionState, verb: Verb, args: VerbArgs) {
        match verb {
            Verb::Manage if from == ProvisionState::Enroll => {
                self.start(JobKind::Verify, None, Phase::ReadPower, args);
            }
            Verb::Manage => {
                self.node.job = None;
                self.node.agent = None;
            }
            Verb::Inspect => {
                self.node.inspection_started_at = Some(self.now.wall);
                self.node.inspection_finished_at = None;
                self.start(JobKind::Inspect, None, Phase::PowerOff, args);
            }
            Verb::Provide if self.node.automated_clean == Some(false) => self.turn(Turn::Done),
            Verb::Provide => {
                self.start(JobKind::Clean, Some(StepKind::Clean), Phase::PowerOff, args);
            }
            Verb::Clean => {
                self.start(JobKind::Clean, Some(StepKind::Clean), Phase::PowerOff, args);
                if let Some(job) = &mut self.node.job {
                    job.manual = true;
                }
            }
            Verb::Adopt => self.start(JobKind::Adopt, None, Phase::ReadPower, args),
            Verb::Active | Verb::Deploy | Verb::Rebuild => {
                self.start(
                    JobKind::Deploy,
                    Some(StepKind::Deploy),
                    Phase::PowerOff,
                    args,
                );
            }
            Verb::Deleted | Verb::Undeploy => {
                self.start(JobKind::TearDown, None, Phase::PowerOff, args);
            }
            Verb::Abort => self.stopped_by_operator(from),
            Verb::Unhold => self.wait_for_agent(),
            Verb::Rescue | Verb::Unrescue | Verb::Service => {}
        }
    }

    fn start(&mut self, kind: JobKind, step_kind: Option<StepKind>, first: Phase, args: VerbArgs) {
        self.node.agent = None;
        if let Some(drive) = args.configdrive {
            self.node
                .instance_info
                .insert("configdrive".to_owned(), drive);
        }
        self.node.job = Some(Job {
            kind,
            phase: first,
            step_kind,
            manual: false,
            steps: args.steps,
            at: 0,
            versions: BTreeMap::new(),
            tries: 0,
            boots: u32::from(first == Phase::PowerOff),
        });
        self.enter(first);
    }

    fn stopped_by_operator(&mut self, from: ProvisionState) {
        let why = format!("{from} was aborted by the operator");
        if self.node.provision_state != ProvisionState::Active {
            self.node.last_error = Some(why.clone());
            self.actions.push(Action::Note(NoteKind::Failed { why }));
        }
        self.node.job = None;
        self.node.agent = None;
    }
}

#[cfg(test)]
mod tests;
