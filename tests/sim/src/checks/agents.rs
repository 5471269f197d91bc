//! Checks the calls to stock agents: only known commands, one at a time, and no step that is
//! known to be done a second time.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::machine::AgentCallTrace;

/// The calls to the agent of each machine.
#[derive(Debug, Default)]
pub(crate) struct AgentCallChecks(BTreeMap<usize, AgentCallRecord>);

#[derive(Debug, Default)]
struct AgentCallRecord {
    boot: u64,
    /// The running command, and the start of the box that sent it.
    running: Option<(u64, String)>,
    /// The calls in flight: the start of the box, and the boot of the machine.
    in_flight: BTreeMap<u64, (u64, u64)>,
    /// Steps of this boot that the box knows to be done.
    done: BTreeSet<String>,
    mismatches: usize,
}

/// Part of the agent's error message for an unknown parameter.
const UNKNOWN_PARAMETER: &str = "unexpected keyword argument";
const MISMATCH: &str = "CLEAN_VERSION_MISMATCH";

impl AgentCallChecks {
    fn record_of_boot(&mut self, machine: usize, boot: u64) -> &mut AgentCallRecord {
        let seen = self.0.entry(machine).or_default();
        if seen.boot != boot {
            *seen = AgentCallRecord {
                boot,
                in_flight: std::mem::take(&mut seen.in_flight),
                ..AgentCallRecord::default()
            };
        }
        seen
    }

    /// The box sends a call; returns a violation if another is in flight.
    pub(crate) fn call_sent(
        &mut self,
        machine: usize,
        (life, boot): (u64, u64),
        call: u64,
    ) -> Option<String> {
        let seen = self.0.entry(machine).or_default();
        seen.in_flight.retain(|_, earlier| *earlier == (life, boot));
        let other = seen.in_flight.keys().next().copied();
        seen.in_flight.insert(call, (life, boot));
        let other = other?;
        Some(format!(
            "agent {machine} gets call {call} while {other} is in flight"
        ))
    }

    /// The box gets the result of a call, or a timeout.
    pub(crate) fn call_ended(&mut self, call: u64) {
        for seen in self.0.values_mut() {
            seen.in_flight.remove(&call);
        }
    }

    /// The box knows that a step is done.
    pub(crate) fn step_done(&mut self, machine: usize, step: &str) {
        let seen = self.0.entry(machine).or_default();
        seen.done.insert(step.to_owned());
    }

    /// The node's job has ended: the next job starts from the first step.
    pub(crate) fn job_ended(&mut self, machine: usize) {
        if let Some(seen) = self.0.get_mut(&machine) {
            seen.done.clear();
        }
    }

    /// An agent replies; returns a violation if it must not have been called, and what was
    /// observed.
    pub(crate) fn check_call(
        &mut self,
        machine: usize,
        served: &AgentCallTrace,
    ) -> Result<Option<&'static str>, String> {
        let AgentCallTrace {
            status,
            response: message,
            ..
        } = served;
        let name = served.request["name"].as_str().unwrap_or("the list");
        if matches!(status, 308 | 400 | 404 | 405 | 500) || message.contains(UNKNOWN_PARAMETER) {
            return Err(format!(
                "agent {machine} answered {name} with {status}: {message}"
            ));
        }
        let seen = self.record_of_boot(machine, served.boot);
        let mismatches = message.matches(MISMATCH).count();
        if served.method == "GET" {
            if message.contains("agent_token=") {
                return Ok(Some("token leaked"));
            }
            if mismatches > seen.mismatches {
                // With other hardware managers, all steps start again.
                (seen.mismatches, seen.done) = (mismatches, BTreeSet::new());
                return Ok(Some("version mismatch"));
            }
            return Ok(None);
        }
        if *status == 409 {
            let ours = seen.running.as_ref();
            let ours = ours.filter(|(life, _)| *life == served.life);
            return match ours.filter(|(_, name)| message.ends_with(&format!("{name}\"}}"))) {
                Some((_, other)) => Err(format!("agent {machine} gets {name} while {other} runs")),
                None => Ok(Some("busy")),
            };
        }
        let step = served.request["params"]["step"]["step"].as_str();
        if let Some(step) = step.filter(|step| seen.done.contains(*step)) {
            return Err(format!(
                "agent {machine} gets step {step}, which the box knows to be done"
            ));
        }
        let reported: Value = serde_json::from_str(message).unwrap_or_default();
        let running = reported["command_status"] == "RUNNING";
        let command = reported["command_name"].as_str().unwrap_or_default();
        seen.running = running.then(|| (served.life, command.to_owned()));
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn post(status: u16, message: &Value) -> AgentCallTrace {
        AgentCallTrace {
            life: 1,
            boot: 1,
            method: "POST",
            request: json!({"name": "deploy.execute_deploy_step",
                          "params": {"step": {"step": "write_image"}}}),
            status,
            response: message.to_string(),
        }
    }

    fn taken() -> AgentCallTrace {
        let message = json!({"command_status": "RUNNING", "command_name": "execute_deploy_step"});
        post(200, &message)
    }

    #[test]
    fn detects_an_unknown_command() {
        let fault = json!({"faultstring": "Invalid command: Unknown command: x"});
        for status in [308, 400, 404, 405, 500] {
            assert!(
                AgentCallChecks::default()
                    .check_call(0, &post(status, &fault))
                    .is_err()
            );
        }
        assert!(AgentCallChecks::default().check_call(0, &taken()).is_ok());
    }

    #[test]
    fn detects_a_step_that_is_known_to_be_done() {
        let mut agents = AgentCallChecks::default();
        assert_eq!(agents.check_call(0, &taken()), Ok(None));
        agents.step_done(0, "write_image");
        assert!(agents.check_call(0, &taken()).is_err());
        // Another boot and another job start again.
        let mut later = taken();
        later.boot = 2;
        assert_eq!(agents.check_call(0, &later), Ok(None));
        agents.step_done(0, "write_image");
        agents.job_ended(0);
        assert_eq!(agents.check_call(0, &later), Ok(None));
    }

    #[test]
    fn detects_two_calls_at_a_time() {
        let mut agents = AgentCallChecks::default();
        assert_eq!(agents.call_sent(0, (1, 1), 7), None);
        assert!(agents.call_sent(0, (1, 1), 8).is_some());
        agents.call_ended(7);
        agents.call_ended(8);
        assert_eq!(agents.call_sent(0, (1, 1), 9), None);
        assert_eq!(agents.call_sent(0, (2, 1), 1), None, "another life");
        assert_eq!(agents.call_sent(0, (2, 2), 2), None, "another boot");
    }

    #[test]
    fn an_agent_may_be_busy_with_commands_of_others_only() {
        let mut agents = AgentCallChecks::default();
        let busy = |name: &str| {
            let words = format!("Agent is busy: executing command {name}");
            post(409, &json!({"faultcode": "Client", "faultstring": words}))
        };
        assert_eq!(agents.check_call(0, &taken()), Ok(None));
        assert_eq!(agents.check_call(0, &busy("start_flow")), Ok(Some("busy")));
        assert!(agents.check_call(0, &busy("execute_deploy_step")).is_err());
    }
}
