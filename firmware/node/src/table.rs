//! The provision state machine, whole, as one table.
//!
//! Verbs are an operator's; turns are our own. Follows Ironic 39; the facts it
//! is compared with stand in `facts/provision-states.txt`.

use trivet_model::ProvisionState::{self, *};
use trivet_model::Verb;

/// What moves a node from one state to the next without an operator.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Turn {
    /// We wait for the agent now.
    Wait,
    /// The agent called: we work.
    Resume,
    /// A step asked to stop until `unhold`.
    Hold,
    /// The work is done.
    Done,
    /// The work failed.
    Fail,
}

/// Why a row applies.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Cause {
    /// An operator asked.
    Verb(Verb),
    /// Our own doing.
    Turn(Turn),
}

/// Where a row leads.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum To {
    /// To this state.
    State(ProvisionState),
    /// To the state that stands in `target_provision_state`.
    Target,
}

/// What a row does to `target_provision_state`. Entering a stable state clears
/// it whatever the row says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Aim {
    /// Sets it.
    At(ProvisionState),
    /// Leaves it.
    Kept,
}

/// One row of the table.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Row {
    /// In this state ...
    pub from: ProvisionState,
    /// ... for this reason ...
    pub cause: Cause,
    /// ... the node goes here ...
    pub to: To,
    /// ... on its way there.
    pub aim: Aim,
}

const fn verb(from: ProvisionState, verb: Verb, to: ProvisionState, aim: Aim) -> Row {
    Row {
        from,
        cause: Cause::Verb(verb),
        to: To::State(to),
        aim,
    }
}

const fn turn(from: ProvisionState, turn: Turn, to: ProvisionState) -> Row {
    Row {
        from,
        cause: Cause::Turn(turn),
        to: To::State(to),
        aim: Aim::Kept,
    }
}

/// Every transition there is.
pub const TABLE: &[Row] = &[
    verb(Enroll, Verb::Manage, Verifying, Aim::At(Manageable)),
    turn(Verifying, Turn::Done, Manageable),
    turn(Verifying, Turn::Fail, Enroll),
    // Cleaning.
    verb(Manageable, Verb::Provide, Cleaning, Aim::At(Available)),
    verb(Manageable, Verb::Clean, Cleaning, Aim::At(Manageable)),
    turn(Cleaning, Turn::Wait, CleanWait),
    turn(CleanWait, Turn::Resume, Cleaning),
    Row {
        from: Cleaning,
        cause: Cause::Turn(Turn::Done),
        to: To::Target,
        aim: Aim::Kept,
    },
    turn(Cleaning, Turn::Fail, CleanFail),
    turn(CleanWait, Turn::Fail, CleanFail),
    turn(Cleaning, Turn::Hold, CleanHold),
    turn(CleanWait, Turn::Hold, CleanHold),
    verb(CleanHold, Verb::Unhold, CleanWait, Aim::Kept),
    verb(CleanHold, Verb::Abort, CleanFail, Aim::Kept),
    verb(CleanWait, Verb::Abort, CleanFail, Aim::Kept),
    verb(CleanFail, Verb::Manage, Manageable, Aim::Kept),
    // Inspection.
    verb(Manageable, Verb::Inspect, Inspecting, Aim::At(Manageable)),
    turn(Inspecting, Turn::Wait, InspectWait),
    turn(InspectWait, Turn::Resume, Inspecting),
    turn(Inspecting, Turn::Done, Manageable),
    turn(Inspecting, Turn::Fail, InspectFail),
    turn(InspectWait, Turn::Fail, InspectFail),
    verb(InspectWait, Verb::Abort, InspectFail, Aim::Kept),
    verb(InspectFail, Verb::Inspect, Inspecting, Aim::At(Manageable)),
    verb(InspectFail, Verb::Manage, Manageable, Aim::Kept),
    // Adoption.
    verb(Manageable, Verb::Adopt, Adopting, Aim::At(Active)),
    turn(Adopting, Turn::Done, Active),
    turn(Adopting, Turn::Fail, AdoptFail),
    verb(AdoptFail, Verb::Adopt, Adopting, Aim::At(Active)),
    verb(AdoptFail, Verb::Manage, Manageable, Aim::Kept),
    // Deployment.
    verb(Available, Verb::Active, Deploying, Aim::At(Active)),
    verb(Available, Verb::Deploy, Deploying, Aim::At(Active)),
    verb(Available, Verb::Manage, Manageable, Aim::Kept),
    verb(Active, Verb::Rebuild, Deploying, Aim::At(Active)),
    verb(DeployFail, Verb::Active, Deploying, Aim::At(Active)),
    verb(DeployFail, Verb::Deploy, Deploying, Aim::At(Active)),
    verb(DeployFail, Verb::Rebuild, Deploying, Aim::At(Active)),
    verb(Error, Verb::Rebuild, Deploying, Aim::At(Active)),
    turn(Deploying, Turn::Wait, DeployWait),
    turn(DeployWait, Turn::Resume, Deploying),
    turn(Deploying, Turn::Done, Active),
    turn(Deploying, Turn::Fail, DeployFail),
    turn(DeployWait, Turn::Fail, DeployFail),
    turn(Deploying, Turn::Hold, DeployHold),
    turn(DeployWait, Turn::Hold, DeployHold),
    verb(DeployHold, Verb::Unhold, DeployWait, Aim::Kept),
    verb(DeployHold, Verb::Abort, DeployFail, Aim::Kept),
    verb(DeployWait, Verb::Abort, DeployFail, Aim::Kept),
    // Removal. Its end is the beginning of cleaning.
    verb(Active, Verb::Deleted, Deleting, Aim::At(Available)),
    verb(Active, Verb::Undeploy, Deleting, Aim::At(Available)),
    verb(DeployFail, Verb::Deleted, Deleting, Aim::At(Available)),
    verb(DeployFail, Verb::Undeploy, Deleting, Aim::At(Available)),
    verb(DeployWait, Verb::Deleted, Deleting, Aim::At(Available)),
    verb(DeployWait, Verb::Undeploy, Deleting, Aim::At(Available)),
    verb(Error, Verb::Deleted, Deleting, Aim::At(Available)),
    verb(Error, Verb::Undeploy, Deleting, Aim::At(Available)),
    verb(Rescue, Verb::Deleted, Deleting, Aim::At(Available)),
    verb(Rescue, Verb::Undeploy, Deleting, Aim::At(Available)),
    verb(RescueWait, Verb::Deleted, Deleting, Aim::At(Available)),
    verb(RescueWait, Verb::Undeploy, Deleting, Aim::At(Available)),
    verb(RescueFail, Verb::Deleted, Deleting, Aim::At(Available)),
    verb(RescueFail, Verb::Undeploy, Deleting, Aim::At(Available)),
    verb(UnrescueFail, Verb::Deleted, Deleting, Aim::At(Available)),
    verb(UnrescueFail, Verb::Undeploy, Deleting, Aim::At(Available)),
    verb(ServiceWait, Verb::Deleted, Deleting, Aim::At(Available)),
    verb(ServiceWait, Verb::Undeploy, Deleting, Aim::At(Available)),
    verb(ServiceFail, Verb::Deleted, Deleting, Aim::At(Available)),
    verb(ServiceFail, Verb::Undeploy, Deleting, Aim::At(Available)),
    turn(Deleting, Turn::Done, Cleaning),
    turn(Deleting, Turn::Fail, Error),
    // Rescue.
    verb(Active, Verb::Rescue, Rescuing, Aim::At(Rescue)),
    verb(Rescue, Verb::Rescue, Rescuing, Aim::At(Rescue)),
    verb(RescueFail, Verb::Rescue, Rescuing, Aim::At(Rescue)),
    verb(UnrescueFail, Verb::Rescue, Rescuing, Aim::At(Rescue)),
    verb(ServiceFail, Verb::Rescue, Rescuing, Aim::At(Rescue)),
    turn(Rescuing, Turn::Wait, RescueWait),
    turn(RescueWait, Turn::Resume, Rescuing),
    turn(Rescuing, Turn::Done, Rescue),
    turn(Rescuing, Turn::Fail, RescueFail),
    turn(RescueWait, Turn::Fail, RescueFail),
    verb(RescueWait, Verb::Abort, RescueFail, Aim::Kept),
    verb(Rescue, Verb::Unrescue, Unrescuing, Aim::At(Active)),
    verb(RescueFail, Verb::Unrescue, Unrescuing, Aim::At(Active)),
    verb(UnrescueFail, Verb::Unrescue, Unrescuing, Aim::At(Active)),
    turn(Unrescuing, Turn::Done, Active),
    turn(Unrescuing, Turn::Fail, UnrescueFail),
    // Service.
    verb(Active, Verb::Service, Servicing, Aim::At(Active)),
    verb(ServiceFail, Verb::Service, Servicing, Aim::At(Active)),
    verb(ServiceHold, Verb::Service, Servicing, Aim::At(Active)),
    turn(Servicing, Turn::Wait, ServiceWait),
    turn(ServiceWait, Turn::Resume, Servicing),
    turn(Servicing, Turn::Done, Active),
    turn(Servicing, Turn::Fail, ServiceFail),
    turn(ServiceWait, Turn::Fail, ServiceFail),
    turn(Servicing, Turn::Hold, ServiceHold),
    turn(ServiceWait, Turn::Hold, ServiceHold),
    verb(ServiceHold, Verb::Unhold, ServiceWait, Aim::Kept),
    verb(ServiceHold, Verb::Abort, ServiceFail, Aim::Kept),
    verb(ServiceWait, Verb::Abort, ServiceFail, Aim::Kept),
    verb(ServiceFail, Verb::Abort, Active, Aim::Kept),
];

/// The row for this state and cause.
pub fn row(from: ProvisionState, cause: Cause) -> Option<Row> {
    TABLE
        .iter()
        .find(|row| row.from == from && row.cause == cause)
        .copied()
}

/// The verbs that this state knows, for saying what can be done instead.
pub fn verbs(from: ProvisionState) -> impl Iterator<Item = Verb> {
    TABLE
        .iter()
        .filter(move |row| row.from == from)
        .filter_map(|row| match row.cause {
            Cause::Verb(verb) => Some(verb),
            Cause::Turn(_) => None,
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

    /// All states that turns lead to from `first`, going on only through `through`.
    fn reachable(
        first: ProvisionState,
        through: &BTreeSet<ProvisionState>,
        target: Option<ProvisionState>,
    ) -> BTreeSet<ProvisionState> {
        let mut seen = BTreeSet::from([first]);
        let mut open = vec![first];
        while let Some(state) = open.pop() {
            for row in TABLE.iter().filter(|row| row.from == state) {
                // A hold is left by `unhold`, which belongs to the same story.
                if !matches!(row.cause, Cause::Turn(_) | Cause::Verb(Verb::Unhold)) {
                    continue;
                }
                let to = match row.to {
                    To::State(to) => to,
                    To::Target => target.expect("a row to the target has one"),
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
        let Some(row) = row(fact.from, Cause::Verb(fact.verb)) else {
            return vec![format!("no row for: {}", fact.line)];
        };
        let To::State(first) = row.to else {
            return vec![format!("a verb must lead to a state: {}", fact.line)];
        };
        let target = match row.aim {
            Aim::At(state) => Some(state),
            Aim::Kept => None,
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
        // Ironic takes `undeploy` wherever it takes `deleted`; the facts name the older word.
        let known: BTreeSet<_> = facts().iter().map(|fact| (fact.from, fact.verb)).collect();
        for row in TABLE {
            if let Cause::Verb(verb) = row.cause {
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
        let mut told = BTreeSet::new();
        for fact in facts() {
            told.extend([fact.from, fact.result]);
            told.extend(fact.through);
            told.extend(fact.failures);
        }
        let mut listed = BTreeSet::new();
        for row in TABLE {
            listed.insert(row.from);
            if let To::State(to) = row.to {
                listed.insert(to);
            }
        }
        for &state in ProvisionState::ALL {
            assert!(told.contains(&state), "the facts do not mention {state}");
            assert!(
                listed.contains(&state),
                "the table does not mention {state}"
            );
        }
    }

    #[test]
    fn no_state_has_two_rows_for_one_cause() {
        for (at, row) in TABLE.iter().enumerate() {
            let twin = TABLE[at + 1..]
                .iter()
                .find(|other| other.from == row.from && other.cause == row.cause);
            assert_eq!(twin, None, "twice: {row:?}");
        }
    }

    #[test]
    fn every_state_that_works_can_fail() {
        for &state in ProvisionState::ALL {
            let holds = matches!(state, DeployHold | CleanHold | ServiceHold);
            if !state.is_resting() && !holds {
                assert!(
                    row(state, Cause::Turn(Turn::Fail)).is_some(),
                    "{state} cannot fail"
                );
            }
        }
    }

    #[test]
    fn tells_what_can_be_done_in_a_state() {
        assert_eq!(verbs(CleanWait).collect::<Vec<_>>(), [Verb::Abort]);
        assert_eq!(verbs(Verifying).count(), 0);
    }
}
