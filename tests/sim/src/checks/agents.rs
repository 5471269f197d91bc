//! What stock agents see: only what they know, one thing at a time, and nothing that was
//! done and seen to be done a second time.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::machine::Served;

/// What each machine's agent saw.
#[derive(Debug, Default)]
pub(crate) struct Agents(BTreeMap<usize, Seen>);

#[derive(Debug, Default)]
struct Seen {
    boot: u64,
    /// The command that runs, and the life of the box that gave it.
    running: Option<(u64, String)>,
    /// The orders on their way: in which life of the box, and to which boot.
    on_way: BTreeMap<u64, (u64, u64)>,
    /// Steps of this boot that the box knows to be done.
    done: BTreeSet<String>,
    mismatches: usize,
}

/// The words by which the agent tells of a parameter that it does not know.
const UNKNOWN_PARAMETER: &str = "unexpected keyword argument";
const MISMATCH: &str = "CLEAN_VERSION_MISMATCH";

impl Agents {
    fn of(&mut self, machine: usize, boot: u64) -> &mut Seen {
        let seen = self.0.entry(machine).or_default();
        if seen.boot != boot {
            *seen = Seen {
                boot,
                on_way: std::mem::take(&mut seen.on_way),
                ..Seen::default()
            };
        }
        seen
    }

    /// The box gives an order; a sentence if another is on its way.
    pub(crate) fn ordered(
        &mut self,
        machine: usize,
        (life, boot): (u64, u64),
        call: u64,
    ) -> Option<String> {
        let seen = self.0.entry(machine).or_default();
        seen.on_way.retain(|_, earlier| *earlier == (life, boot));
        let other = seen.on_way.keys().next().copied();
        seen.on_way.insert(call, (life, boot));
        let other = other?;
        Some(format!(
            "agent {machine} gets order {call} while {other} is on its way"
        ))
    }

    /// The box hears of an order, or has waited long enough.
    pub(crate) fn heard(&mut self, call: u64) {
        for seen in self.0.values_mut() {
            seen.on_way.remove(&call);
        }
    }

    /// The box knows that a step is done.
    pub(crate) fn done(&mut self, machine: usize, step: &str) {
        let seen = self.0.entry(machine).or_default();
        seen.done.insert(step.to_owned());
    }

    /// The node's job is over: what follows begins anew.
    pub(crate) fn rests(&mut self, machine: usize) {
        if let Some(seen) = self.0.get_mut(&machine) {
            seen.done.clear();
        }
    }

    /// An agent answers; a sentence if it must not have been asked, and what was met.
    pub(crate) fn served(
        &mut self,
        machine: usize,
        served: &Served,
    ) -> Result<Option<&'static str>, String> {
        let Served { status, said, .. } = served;
        let name = served.asked["name"].as_str().unwrap_or("the list");
        if matches!(status, 308 | 400 | 404 | 405 | 500) || said.contains(UNKNOWN_PARAMETER) {
            return Err(format!(
                "agent {machine} answered {name} with {status}: {said}"
            ));
        }
        let seen = self.of(machine, served.boot);
        let mismatches = said.matches(MISMATCH).count();
        if served.method == "GET" {
            if said.contains("agent_token=") {
                return Ok(Some("token told"));
            }
            if mismatches > seen.mismatches {
                // Where managers have changed, all steps begin anew.
                (seen.mismatches, seen.done) = (mismatches, BTreeSet::new());
                return Ok(Some("version mismatch"));
            }
            return Ok(None);
        }
        if *status == 409 {
            let ours = seen.running.as_ref();
            let ours = ours.filter(|(life, _)| *life == served.life);
            return match ours.filter(|(_, name)| said.ends_with(&format!("{name}\"}}"))) {
                Some((_, other)) => Err(format!("agent {machine} gets {name} while {other} runs")),
                None => Ok(Some("busy")),
            };
        }
        let step = served.asked["params"]["step"]["step"].as_str();
        if let Some(step) = step.filter(|step| seen.done.contains(*step)) {
            return Err(format!(
                "agent {machine} gets step {step}, which the box knows to be done"
            ));
        }
        let told: Value = serde_json::from_str(said).unwrap_or_default();
        let running = told["command_status"] == "RUNNING";
        let command = told["command_name"].as_str().unwrap_or_default();
        seen.running = running.then(|| (served.life, command.to_owned()));
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn post(status: u16, said: &Value) -> Served {
        Served {
            life: 1,
            boot: 1,
            method: "POST",
            asked: json!({"name": "deploy.execute_deploy_step",
                          "params": {"step": {"step": "write_image"}}}),
            status,
            said: said.to_string(),
        }
    }

    fn taken() -> Served {
        let said = json!({"command_status": "RUNNING", "command_name": "execute_deploy_step"});
        post(200, &said)
    }

    #[test]
    fn sees_what_an_agent_does_not_know() {
        let fault = json!({"faultstring": "Invalid command: Unknown command: x"});
        for status in [308, 400, 404, 405, 500] {
            assert!(Agents::default().served(0, &post(status, &fault)).is_err());
        }
        assert!(Agents::default().served(0, &taken()).is_ok());
    }

    #[test]
    fn sees_a_step_that_is_known_to_be_done() {
        let mut agents = Agents::default();
        assert_eq!(agents.served(0, &taken()), Ok(None));
        agents.done(0, "write_image");
        assert!(agents.served(0, &taken()).is_err());
        // Another boot, and another job, begin anew.
        let mut later = taken();
        later.boot = 2;
        assert_eq!(agents.served(0, &later), Ok(None));
        agents.done(0, "write_image");
        agents.rests(0);
        assert_eq!(agents.served(0, &later), Ok(None));
    }

    #[test]
    fn sees_two_orders_at_a_time() {
        let mut agents = Agents::default();
        assert_eq!(agents.ordered(0, (1, 1), 7), None);
        assert!(agents.ordered(0, (1, 1), 8).is_some());
        agents.heard(7);
        agents.heard(8);
        assert_eq!(agents.ordered(0, (1, 1), 9), None);
        assert_eq!(agents.ordered(0, (2, 1), 1), None, "another life");
        assert_eq!(agents.ordered(0, (2, 2), 2), None, "another boot");
    }

    #[test]
    fn an_agent_may_be_kept_busy_by_others_only() {
        let mut agents = Agents::default();
        let busy = |name: &str| {
            let words = format!("Agent is busy: executing command {name}");
            post(409, &json!({"faultcode": "Client", "faultstring": words}))
        };
        assert_eq!(agents.served(0, &taken()), Ok(None));
        assert_eq!(agents.served(0, &busy("start_flow")), Ok(Some("busy")));
        assert!(agents.served(0, &busy("execute_deploy_step")).is_err());
    }
}
