//! The whole provision state machine as one table.
//!
//! Verbs come from an operator; events come from the job. Follows Ironic 39; the facts it is
//! compared with are in `facts/provision-states.txt`.

use trivet_model::ProvisionState::{self, *};
use trivet_model::Verb;

/// Changes the state of a node without an operator.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ProvisionEvent {
    /// The job now waits for the agent.
    Wait,
    /// The agent called: the job continues.
    Resume,
    /// A step requests to stop until `unhold`.
    Hold,
    /// The work is done.
    Done,
    /// The work failed.
    Fail,
}

/// Why a row applies.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TransitionTrigger {
    /// An operator requested this verb.
    Verb(Verb),
    /// The job reported this event.
    Event(ProvisionEvent),
}

/// The state after a row.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NextState {
    /// This state.
    State(ProvisionState),
    /// The state in `target_provision_state`.
    Target,
}

/// What a row does to `target_provision_state`. Entering a stable state clears it, whatever the
/// row contains.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TargetState {
    /// Sets it.
    Set(ProvisionState),
    /// Keeps it.
    Unchanged,
}

/// One row of the table.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TransitionRow {
    /// The row applies in this state ...
    pub from: ProvisionState,
    /// ... for this reason ...
    pub trigger: TransitionTrigger,
    /// ... and the node changes to this state ...
    pub to: NextState,
    /// ... with this target.
    pub target: TargetState,
}

const fn verb(
    from: ProvisionState,
    verb: Verb,
    to: ProvisionState,
    aim: TargetState,
) -> TransitionRow {
    TransitionRow {
        from,
        trigger: TransitionTrigger::Verb(verb),
        to: NextState::State(to),
        target: aim,
    }
}

const fn event(from: ProvisionState, event: ProvisionEvent, to: ProvisionState) -> TransitionRow {
    TransitionRow {
        from,
        trigger: TransitionTrigger::Event(event),
        to: NextState::State(to),
        target: TargetState::Unchanged,
    }
}

/// All transitions.
pub const TABLE: &[TransitionRow] = &[
    verb(
        Enroll,
        Verb::Manage,
        Verifying,
        TargetState::Set(Manageable),
    ),
    event(Verifying, ProvisionEvent::Done, Manageable),
    event(Verifying, ProvisionEvent::Fail, Enroll),
    // Cleaning.
    verb(
        Manageable,
        Verb::Provide,
        Cleaning,
        TargetState::Set(Available),
    ),
    verb(
        Manageable,
        Verb::Clean,
        Cleaning,
        TargetState::Set(Manageable),
    ),
    event(Cleaning, ProvisionEvent::Wait, CleanWait),
    event(CleanWait, ProvisionEvent::Resume, Cleaning),
    TransitionRow {
        from: Cleaning,
        trigger: TransitionTrigger::Event(ProvisionEvent::Done),
        to: NextState::Target,
        target: TargetState::Unchanged,
    },
    event(Cleaning, ProvisionEvent::Fail, CleanFail),
    event(CleanWait, ProvisionEvent::Fail, CleanFail),
    event(Cleaning, ProvisionEvent::Hold, CleanHold),
    event(CleanWait, ProvisionEvent::Hold, CleanHold),
    verb(CleanHold, Verb::Unhold, CleanWait, TargetState::Unchanged),
    verb(CleanHold, Verb::Abort, CleanFail, TargetState::Unchanged),
    verb(CleanWait, Verb::Abort, CleanFail, TargetState::Unchanged),
    verb(CleanFail, Verb::Manage, Manageable, TargetState::Unchanged),
    // Inspection.
    verb(
        Manageable,
        Verb::Inspect,
        Inspecting,
        TargetState::Set(Manageable),
    ),
    event(Inspecting, ProvisionEvent::Wait, InspectWait),
    event(InspectWait, ProvisionEvent::Resume, Inspecting),
    event(Inspecting, ProvisionEvent::Done, Manageable),
    event(Inspecting, ProvisionEvent::Fail, InspectFail),
    event(InspectWait, ProvisionEvent::Fail, InspectFail),
    verb(
        InspectWait,
        Verb::Abort,
        InspectFail,
        TargetState::Unchanged,
    ),
    verb(
        InspectFail,
        Verb::Inspect,
        Inspecting,
        TargetState::Set(Manageable),
    ),
    verb(
        InspectFail,
        Verb::Manage,
        Manageable,
        TargetState::Unchanged,
    ),
    // Adoption.
    verb(Manageable, Verb::Adopt, Adopting, TargetState::Set(Active)),
    event(Adopting, ProvisionEvent::Done, Active),
    event(Adopting, ProvisionEvent::Fail, AdoptFail),
    verb(AdoptFail, Verb::Adopt, Adopting, TargetState::Set(Active)),
    verb(AdoptFail, Verb::Manage, Manageable, TargetState::Unchanged),
    // Deployment.
    verb(Available, Verb::Active, Deploying, TargetState::Set(Active)),
    verb(Available, Verb::Deploy, Deploying, TargetState::Set(Active)),
    verb(Available, Verb::Manage, Manageable, TargetState::Unchanged),
    verb(Active, Verb::Rebuild, Deploying, TargetState::Set(Active)),
    verb(
        DeployFail,
        Verb::Active,
        Deploying,
        TargetState::Set(Active),
    ),
    verb(
        DeployFail,
        Verb::Deploy,
        Deploying,
        TargetState::Set(Active),
    ),
    verb(
        DeployFail,
        Verb::Rebuild,
        Deploying,
        TargetState::Set(Active),
    ),
    verb(Error, Verb::Rebuild, Deploying, TargetState::Set(Active)),
    event(Deploying, ProvisionEvent::Wait, DeployWait),
    event(DeployWait, ProvisionEvent::Resume, Deploying),
    event(Deploying, ProvisionEvent::Done, Active),
    event(Deploying, ProvisionEvent::Fail, DeployFail),
    event(DeployWait, ProvisionEvent::Fail, DeployFail),
    event(Deploying, ProvisionEvent::Hold, DeployHold),
    event(DeployWait, ProvisionEvent::Hold, DeployHold),
    verb(DeployHold, Verb::Unhold, DeployWait, TargetState::Unchanged),
    verb(DeployHold, Verb::Abort, DeployFail, TargetState::Unchanged),
    verb(DeployWait, Verb::Abort, DeployFail, TargetState::Unchanged),
    // Removal. Cleaning follows it.
    verb(Active, Verb::Deleted, Deleting, TargetState::Set(Available)),
    verb(
        Active,
        Verb::Undeploy,
        Deleting,
        TargetState::Set(Available),
    ),
    verb(
        DeployFail,
        Verb::Deleted,
        Deleting,
        TargetState::Set(Available),
    ),
    verb(
        DeployFail,
        Verb::Undeploy,
        Deleting,
        TargetState::Set(Available),
    ),
    verb(
        DeployWait,
        Verb::Deleted,
        Deleting,
        TargetState::Set(Available),
    ),
    verb(
        DeployWait,
        Verb::Undeploy,
        Deleting,
        TargetState::Set(Available),
    ),
    verb(Error, Verb::Deleted, Deleting, TargetState::Set(Available)),
    verb(Error, Verb::Undeploy, Deleting, TargetState::Set(Available)),
    verb(Rescue, Verb::Deleted, Deleting, TargetState::Set(Available)),
    verb(
        Rescue,
        Verb::Undeploy,
        Deleting,
        TargetState::Set(Available),
    ),
    verb(
        RescueWait,
        Verb::Deleted,
        Deleting,
        TargetState::Set(Available),
    ),
    verb(
        RescueWait,
        Verb::Undeploy,
        Deleting,
        TargetState::Set(Available),
    ),
    verb(
        RescueFail,
        Verb::Deleted,
        Deleting,
        TargetState::Set(Available),
    ),
    verb(
        RescueFail,
        Verb::Undeploy,
        Deleting,
        TargetState::Set(Available),
    ),
    verb(
        UnrescueFail,
        Verb::Deleted,
        Deleting,
        TargetState::Set(Available),
    ),
    verb(
        UnrescueFail,
        Verb::Undeploy,
        Deleting,
        TargetState::Set(Available),
    ),
    verb(
        ServiceWait,
        Verb::Deleted,
        Deleting,
        TargetState::Set(Available),
    ),
    verb(
        ServiceWait,
        Verb::Undeploy,
        Deleting,
        TargetState::Set(Available),
    ),
    verb(
        ServiceFail,
        Verb::Deleted,
        Deleting,
        TargetState::Set(Available),
    ),
    verb(
        ServiceFail,
        Verb::Undeploy,
        Deleting,
        TargetState::Set(Available),
    ),
    event(Deleting, ProvisionEvent::Done, Cleaning),
    event(Deleting, ProvisionEvent::Fail, Error),
    // Rescue.
    verb(Active, Verb::Rescue, Rescuing, TargetState::Set(Rescue)),
    verb(Rescue, Verb::Rescue, Rescuing, TargetState::Set(Rescue)),
    verb(RescueFail, Verb::Rescue, Rescuing, TargetState::Set(Rescue)),
    verb(
        UnrescueFail,
        Verb::Rescue,
        Rescuing,
        TargetState::Set(Rescue),
    ),
    verb(
        ServiceFail,
        Verb::Rescue,
        Rescuing,
        TargetState::Set(Rescue),
    ),
    event(Rescuing, ProvisionEvent::Wait, RescueWait),
    event(RescueWait, ProvisionEvent::Resume, Rescuing),
    event(Rescuing, ProvisionEvent::Done, Rescue),
    event(Rescuing, ProvisionEvent::Fail, RescueFail),
    event(RescueWait, ProvisionEvent::Fail, RescueFail),
    verb(RescueWait, Verb::Abort, RescueFail, TargetState::Unchanged),
    verb(Rescue, Verb::Unrescue, Unrescuing, TargetState::Set(Active)),
    verb(
        RescueFail,
        Verb::Unrescue,
        Unrescuing,
        TargetState::Set(Active),
    ),
    verb(
        UnrescueFail,
        Verb::Unrescue,
        Unrescuing,
        TargetState::Set(Active),
    ),
    event(Unrescuing, ProvisionEvent::Done, Active),
    event(Unrescuing, ProvisionEvent::Fail, UnrescueFail),
    // Service.
    verb(Active, Verb::Service, Servicing, TargetState::Set(Active)),
    verb(
        ServiceFail,
        Verb::Service,
        Servicing,
        TargetState::Set(Active),
    ),
    verb(
        ServiceHold,
        Verb::Service,
        Servicing,
        TargetState::Set(Active),
    ),
    event(Servicing, ProvisionEvent::Wait, ServiceWait),
    event(ServiceWait, ProvisionEvent::Resume, Servicing),
    event(Servicing, ProvisionEvent::Done, Active),
    event(Servicing, ProvisionEvent::Fail, ServiceFail),
    event(ServiceWait, ProvisionEvent::Fail, ServiceFail),
    event(Servicing, ProvisionEvent::Hold, ServiceHold),
    event(ServiceWait, ProvisionEvent::Hold, ServiceHold),
    verb(
        ServiceHold,
        Verb::Unhold,
        ServiceWait,
        TargetState::Unchanged,
    ),
    verb(
        ServiceHold,
        Verb::Abort,
        ServiceFail,
        TargetState::Unchanged,
    ),
    verb(
        ServiceWait,
        Verb::Abort,
        ServiceFail,
        TargetState::Unchanged,
    ),
    verb(ServiceFail, Verb::Abort, Active, TargetState::Unchanged),
];

/// The row for this state and cause.
pub fn row(from: ProvisionState, cause: TransitionTrigger) -> Option<TransitionRow> {
    TABLE
        .iter()
        .find(|row| row.from == from && row.trigger == cause)
        .copied()
}

/// The verbs that are allowed in this state, for error messages.
pub fn verbs(from: ProvisionState) -> impl Iterator<Item = Verb> {
    TABLE
        .iter()
        .filter(move |row| row.from == from)
        .filter_map(|row| match row.trigger {
            TransitionTrigger::Verb(verb) => Some(verb),
            TransitionTrigger::Event(_) => None,
        })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const FACTS: &str = include_str!("../facts/provision-states.txt");

    struct Fact {
        line: &'static str,
        from: ProvisionState,
        verb: Verb,
        through: BTreeSet<ProvisionState>,
        result: ProvisionState,
        failures: Vec<ProvisionState>,
        target: &'static str,
    }

    fn states(list: &'static str) -> Vec<ProvisionState> {
        match list {
            "-" => Vec::new(),
            list => list
                .split(", ")
                .map(|word| word.parse().expect(word))
                .collect(),
        }
    }

    fn facts() -> Vec<Fact> {
        FACTS
            .lines()
            .filter(|line| !line.starts_with('#'))
            .map(|line| {
                let cells: Vec<_> = line.split(" | ").collect();
                let [from, verb, through, result, failures, target] = cells[..] else {
                    panic!("a fact has six cells: {line}");
                };
                Fact {
                    line,
                    from: from.parse().expect(from),
                    verb: verb.parse().expect(verb),
                    through: states(through).into_iter().collect(),
                    result: result.parse().expect(result),
                    failures: states(failures),
                    target,
                }
            })
            .collect()
    }

    /// All states that events reach from `first`, through the states in `through` only.
    fn reachable(
        first: ProvisionState,
        through: &BTreeSet<ProvisionState>,
        target: Option<ProvisionState>,
    ) -> BTreeSet<ProvisionState> {
        let mut seen = BTreeSet::from([first]);
        let mut open = vec![first];
        while let Some(state) = open.pop() {
            for row in TABLE.iter().filter(|row| row.from == state) {
                // A hold is left by `unhold`, which belongs to the same job.
                if !matches!(
                    row.trigger,
                    TransitionTrigger::Event(_) | TransitionTrigger::Verb(Verb::Unhold)
                ) {
                    continue;
                }
                let to = match row.to {
                    NextState::State(to) => to,
                    NextState::Target => target.expect("a row to the target has one"),
                };
                if seen.insert(to) && through.contains(&to) {
                    open.push(to);
                }
            }
        }
        seen
    }

    fn omissions(fact: &Fact) -> Vec<String> {
        let mut missing = Vec::new();
        let Some(row) = row(fact.from, TransitionTrigger::Verb(fact.verb)) else {
            return vec![format!("no row for: {}", fact.line)];
        };
        let NextState::State(first) = row.to else {
            return vec![format!("a verb must lead to a state: {}", fact.line)];
        };
        let target = match row.target {
            TargetState::Set(state) => Some(state),
            TargetState::Unchanged => None,
        };
        let want = match fact.target {
            "-" | "kept" => None,
            word => Some(word.parse().expect(word)),
        };
        if target != want {
            missing.push(format!("target is {target:?}, not {want:?}: {}", fact.line));
        }
        if fact.through.is_empty() {
            if first != fact.result {
                missing.push(format!("leads to {first}: {}", fact.line));
            }
            return missing;
        }
        if !fact.through.contains(&first) {
            missing.push(format!("begins with {first}: {}", fact.line));
        }
        let seen = reachable(first, &fact.through, target);
        for state in fact
            .through
            .iter()
            .chain([&fact.result])
            .chain(&fact.failures)
        {
            if !seen.contains(state) {
                missing.push(format!("never reaches {state}: {}", fact.line));
            }
        }
        missing
    }

    #[test]
    fn the_table_holds_every_fact() {
        let missing: Vec<_> = facts().iter().flat_map(omissions).collect();
        assert!(missing.is_empty(), "{}", missing.join("\n"));
    }

    #[test]
    fn the_table_has_no_verb_that_the_facts_do_not_know() {
        // Ironic accepts `undeploy` wherever it accepts `deleted`; the facts have the older
        // name.
        let known: BTreeSet<_> = facts().iter().map(|fact| (fact.from, fact.verb)).collect();
        for row in TABLE {
            if let TransitionTrigger::Verb(verb) = row.trigger {
                let older = if verb == Verb::Undeploy {
                    Verb::Deleted
                } else {
                    verb
                };
                assert!(
                    known.contains(&(row.from, older)),
                    "{} knows no {verb}",
                    row.from
                );
            }
        }
    }

    #[test]
    fn every_state_is_in_the_facts_and_in_the_table() {
        let mut reported = BTreeSet::new();
        for fact in facts() {
            reported.extend([fact.from, fact.result]);
            reported.extend(fact.through);
            reported.extend(fact.failures);
        }
        let mut listed = BTreeSet::new();
        for row in TABLE {
            listed.insert(row.from);
            if let NextState::State(to) = row.to {
                listed.insert(to);
            }
        }
        for &state in ProvisionState::ALL {
            assert!(
                reported.contains(&state),
                "the facts do not mention {state}"
            );
            assert!(
                listed.contains(&state),
                "the table does not mention {state}"
            );
        }
    }

    #[test]
    fn no_state_has_two_rows_for_one_cause() {
        for (at, row) in TABLE.iter().enumerate() {
            let duplicate = TABLE[at + 1..]
                .iter()
                .find(|other| other.from == row.from && other.trigger == row.trigger);
            assert_eq!(duplicate, None, "twice: {row:?}");
        }
    }

    #[test]
    fn every_state_that_works_can_fail() {
        for &state in ProvisionState::ALL {
            let holds = matches!(state, DeployHold | CleanHold | ServiceHold);
            if !state.is_resting() && !holds {
                assert!(
                    row(state, TransitionTrigger::Event(ProvisionEvent::Fail)).is_some(),
                    "{state} cannot fail"
                );
            }
        }
    }

    #[test]
    fn lists_what_can_be_done_in_a_state() {
        assert_eq!(verbs(CleanWait).collect::<Vec<_>>(), [Verb::Abort]);
        assert_eq!(verbs(Verifying).count(), 0);
    }
}
