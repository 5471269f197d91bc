//! Verbs: what an operator may request of a node now, and which job that starts.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use trivet_drivers::{
    InterfaceKind, ReservedStep, cannot_run, deploy_method, has_invalid_wait, inspect_interface,
    is_off, netboots_instance, rescue_interface, reserved,
};
use trivet_model::interface::{DeployInterface, InspectInterface, RescueInterface};
use trivet_model::order::VerbArgs;
use trivet_model::{
    Job, JobKind, JobPhase, JobStep, Node, NoteKind, Now, OrderRefusal, ProvisionState,
    RefusalKind, StepKind, Verb,
};

use crate::steps::STEPS_MAX;
use crate::table::{self, ProvisionEvent, TransitionRow, TransitionTrigger};
use crate::{NodeAction, NodeLimits, NodeTransition, RESCUE_HASH};

/// Carries a verb out, or refuses it with the error message to show. For `active`, `deploy` and
/// `rebuild` the arguments contain the steps that write the image.
pub fn apply_verb(
    now: Now,
    limits: &NodeLimits,
    node: &Node,
    verb: Verb,
    args: VerbArgs,
) -> Result<(Node, Vec<NodeAction>), OrderRefusal> {
    let from = node.provision_state;
    let row = check_state(node, verb)?;
    refuse_by_rule(node, verb, &args)?;
    let mut transition = NodeTransition {
        now,
        limits,
        node: node.clone(),
        actions: Vec::new(),
    };
    transition.node.last_error = None;
    if verb == Verb::Abort && transition.stops_later() {
        return Ok((transition.node, transition.actions));
    }
    transition.apply_row(row);
    transition.begin(from, verb, args);
    Ok((transition.node, transition.actions))
}

/// The row of the state table for this verb. Refuses one that the node's state does not have.
pub fn check_state(node: &Node, verb: Verb) -> Result<TransitionRow, OrderRefusal> {
    let row = table::row(node.provision_state, TransitionTrigger::Verb(verb));
    row.ok_or_else(|| refuse_impossible(node, verb))
}

fn refuse_impossible(node: &Node, verb: Verb) -> OrderRefusal {
    let state = node.provision_state;
    let can: Vec<_> = table::verbs(state).map(Verb::as_str).collect();
    let advice = if can.is_empty() {
        "Wait until it is done.".to_owned()
    } else {
        format!("Possible now: {}.", can.join(", "))
    };
    OrderRefusal::new(
        RefusalKind::Invalid,
        format!(
            "The requested action \"{verb}\" can not be performed on node \"{}\" while it is in \
             state \"{state}\". {advice}",
            node.id
        ),
    )
}

fn refuse_by_rule(node: &Node, verb: Verb, args: &VerbArgs) -> Result<(), OrderRefusal> {
    let invalid = |sentence: String| Err(OrderRefusal::new(RefusalKind::Invalid, sentence));
    if let Some(why) = args.steps.iter().find_map(|step| cannot_run(node, step)) {
        return invalid(format!("Node \"{}\": {why}", node.id));
    }
    match verb {
        Verb::Active | Verb::Deploy | Verb::Rebuild | Verb::Rescue | Verb::Unrescue
            if node.maintenance =>
        {
            invalid(format!(
                "Node \"{}\" is in maintenance; end that first (DELETE .../maintenance).",
                node.id
            ))
        }
        Verb::Inspect | Verb::Rescue | Verb::Unrescue if is_off(node, kind_of(verb)) => {
            invalid(format!(
                "Node \"{}\" has no interface for \"{verb}\"; choose another {}.",
                node.id,
                kind_of(verb).field()
            ))
        }
        Verb::Rescue if args.rescue_password.is_none() => {
            invalid("The verb \"rescue\" needs a rescue_password.".to_owned())
        }
        _ if args.steps.iter().any(has_invalid_wait) => {
            invalid("Step power.wait: seconds must be a whole number, zero or above.".to_owned())
        }
        _ if node.is_power_off_disabled() && args.steps.iter().any(switches_off) => {
            invalid(format!(
                "Node \"{}\" has disable_power_off set, so step power.power_off cannot run on it; \
             leave the step out or use power.reboot.",
                node.id
            ))
        }
        Verb::Clean | Verb::Service if args.steps.is_empty() => invalid(format!(
            "The verb \"{verb}\" needs {verb}_steps, a list of steps to run."
        )),
        Verb::Clean | Verb::Service if args.disable_ramdisk => {
            let fake = deploy_method(node) == Some(DeployInterface::Fake);
            match args
                .steps
                .iter()
                .find(|step| !fake && reserved(step).is_none())
            {
                Some(step) => invalid(format!(
                    "disable_ramdisk: step {} of interface {} runs in the agent's ramdisk; leave \
                     it out or let the ramdisk boot.",
                    step.step, step.interface
                )),
                None => Ok(()),
            }
        }
        _ if args.steps.len() > STEPS_MAX => invalid(format!(
            "{} steps are more than {STEPS_MAX}.",
            args.steps.len()
        )),
        _ => Ok(()),
    }
}

fn switches_off(step: &JobStep) -> bool {
    reserved(step) == Some(ReservedStep::PowerOff)
}

/// The kind of interface that carries a verb out.
const fn kind_of(verb: Verb) -> InterfaceKind {
    match verb {
        Verb::Inspect => InterfaceKind::Inspect,
        Verb::Rescue | Verb::Unrescue => InterfaceKind::Rescue,
        _ => InterfaceKind::Deploy,
    }
}

impl NodeTransition<'_> {
    /// Starts the work of a verb, once the table allowed it.
    fn begin(&mut self, from: ProvisionState, verb: Verb, args: VerbArgs) {
        match verb {
            Verb::Manage if from == ProvisionState::Enroll => {
                self.start(JobKind::Verify, None, JobPhase::ReadPower, args);
            }
            Verb::Manage => {
                self.node.job = None;
                self.node.agent = None;
                self.node.enrolment = None;
            }
            Verb::Inspect => {
                self.node.inspection_started_at = Some(self.now.wall);
                self.node.inspection_finished_at = None;
                if inspect_interface(&self.node) == Some(InspectInterface::Fake) {
                    // As in Ironic, such an inspection has no results.
                    self.start_job(JobKind::Inspect, None, args);
                    self.finish();
                } else {
                    self.start(JobKind::Inspect, None, JobPhase::PowerOff, args);
                }
            }
            Verb::Provide if self.node.automated_clean == Some(false) => {
                self.apply_event(ProvisionEvent::Done);
            }
            Verb::Provide => self.start_steps(JobKind::Clean, StepKind::Clean, args),
            Verb::Clean => self.run_steps(JobKind::Clean, StepKind::Clean, args),
            Verb::Service => self.run_steps(JobKind::Service, StepKind::Service, args),
            Verb::Adopt => self.start(JobKind::Adopt, None, JobPhase::ReadPower, args),
            Verb::Active | Verb::Deploy | Verb::Rebuild => {
                self.start_steps(JobKind::Deploy, StepKind::Deploy, args);
                let replaces = verb == Verb::Rebuild && from == ProvisionState::Active;
                if let Some(job) = self.node.job.as_mut().filter(|_| replaces) {
                    job.awaits_source = job.phase == JobPhase::PowerOff;
                }
            }
            Verb::Deleted | Verb::Undeploy => {
                self.start(JobKind::TearDown, None, JobPhase::PowerOff, args);
            }
            Verb::Abort => self.stopped_by_operator(from),
            Verb::Unhold => self.released(),
            Verb::Rescue => {
                let password = args.rescue_password.clone();
                self.start_job(JobKind::Rescue, None, args);
                // A rescue without an agent needs no password.
                if let Some(hash) = password
                    && self.uses_agent()
                {
                    let info = &mut self.node.instance_info;
                    info.insert(RESCUE_HASH.to_owned(), hash.reveal().into());
                }
                self.enter(JobPhase::PowerOff);
            }
            Verb::Unrescue => self.start(JobKind::Unrescue, None, JobPhase::FinalOff, args),
        }
    }

    fn start(
        &mut self,
        kind: JobKind,
        step_kind: Option<StepKind>,
        first: JobPhase,
        args: VerbArgs,
    ) {
        self.start_job(kind, step_kind, args);
        self.enter(first);
    }

    /// Steps of an operator, in the given order.
    fn run_steps(&mut self, kind: JobKind, step_kind: StepKind, args: VerbArgs) {
        if !args.disable_ramdisk {
            return self.start_steps(kind, step_kind, args);
        }
        self.start_job(kind, Some(step_kind), args);
        if !self.uses_agent() {
            return self.enter(JobPhase::PowerOff);
        }
        if let Some(job) = &mut self.node.job {
            job.boots = None;
        }
        self.plan_here();
    }

    /// Stores a job in the node's record, with nothing started yet.
    pub(crate) fn start_job(&mut self, kind: JobKind, step_kind: Option<StepKind>, args: VerbArgs) {
        let node = &self.node;
        let fake = match kind {
            JobKind::Inspect => inspect_interface(node) == Some(InspectInterface::Fake),
            JobKind::Rescue => rescue_interface(node) == Some(RescueInterface::Fake),
            _ => deploy_method(node) == Some(DeployInterface::Fake),
        };
        let boots = match kind {
            JobKind::Verify | JobKind::Adopt | JobKind::Unrescue => None,
            // Nothing is written: the machine only boots.
            JobKind::Deploy if netboots_instance(&self.node) => None,
            _ => (!fake).then_some(NonZeroU32::MIN),
        };
        self.clear_boot();
        if let Some(drive) = args.configdrive {
            self.node
                .instance_info
                .insert("configdrive".to_owned(), drive);
        }
        self.node.job = Some(Job {
            kind,
            // The first phase of every job that has steps or an agent; `enter` replaces it
            // otherwise.
            phase: JobPhase::PowerOff,
            step_kind,
            // An operator's steps run in the given order; a deployment's are sorted.
            manual: kind != JobKind::Deploy && !args.steps.is_empty(),
            steps: args.steps,
            at: 0,
            versions: BTreeMap::new(),
            tries: 0,
            boots,
            heartbeat_lost_at: None,
            abort_after: None,
            deployment: args.deployment.map(|image| *image),
            has_inspection_data: false,
            awaits_source: false,
            agent_query: None,
        });
    }

    /// Whether an abort has to wait for the end of the present step, which must not be stopped:
    /// its agent does not offer that, and the state it would leave is unknown.
    fn stops_later(&mut self) -> bool {
        let Some(step) = self.unrepeatable_step() else {
            return false;
        };
        let Some(job) = &mut self.node.job else {
            return false;
        };
        let present = job.steps.get(job.at as usize);
        if present.is_some_and(|step| step.abortable) {
            return false;
        }
        if job.abort_after.replace(step.clone()).is_some() {
            // A second abort is intended: the step may never end.
            return false;
        }
        self.node.last_error = Some(format!(
            "the operator aborts this, but step {step} must not be stopped: it ends after that \
             step; abort again to stop it anyway"
        ));
        true
    }

    /// A step is done, or was not started: whether the job ends here because of an abort.
    pub(crate) fn stops_now(&mut self) -> bool {
        let job = self.node.job.as_ref();
        if job.is_none_or(|job| job.abort_after.is_none()) {
            return false;
        }
        self.apply_event_if_allowed(ProvisionEvent::Wait);
        let from = self.node.provision_state;
        let Some(row) = table::row(from, TransitionTrigger::Verb(Verb::Abort)) else {
            return false;
        };
        self.apply_row(row);
        self.stopped_by_operator(from);
        true
    }

    fn stopped_by_operator(&mut self, from: ProvisionState) {
        let why = format!("{from} was aborted by the operator");
        if self.node.provision_state != ProvisionState::Active {
            self.node.last_error = Some(why.clone());
            self.actions
                .push(NodeAction::Note(NoteKind::Failed { why }));
        }
        self.eject_agent_medium();
        self.node.job = None;
        self.clear_boot();
    }
}

#[cfg(test)]
mod tests;
