//! Actions and changes that clients can request from the simulated service, immediate or as a task.

use serde_json::{Value, json};
use trivet_model::{PowerState, Tick};

use super::{
    RedfishSimulator, RedfishSimulatorAction, RedfishSimulatorTask, SUBSCRIPTIONS_MAX, TASKS_MAX,
    found, missing, refused,
};
use trivet_bmc::http::BmcHttpResponse;

/// How long it does not respond when it restarts itself, in milliseconds.
const RESTART_MS: u64 = 20_000;

impl RedfishSimulator {
    /// Actions.
    pub(super) fn act(&mut self, now: Tick, parts: &[&str], body: &Value) -> BmcHttpResponse {
        let word = body.get("ResetType").and_then(Value::as_str);
        let word = word.unwrap_or_default().to_owned();
        match parts {
            ["EventService", "Subscriptions"] => self.subscribe(body),
            ["Managers", "BMC", "Actions", "Manager.Reset"] => {
                self.record_action(&RedfishSimulatorAction::ManagerReset);
                self.restart(now.after_ms(RESTART_MS));
                done()
            }
            ["Systems", id, "Actions", "ComputerSystem.Reset"] => match self.index(id) {
                Some(index) => self.begin(now, RedfishSimulatorAction::Reset(index, word)),
                None => missing(),
            },
            [kind, id, "VirtualMedia", "Cd", "Actions", action] => {
                let below = if self.setup.media_below_manager {
                    "Managers"
                } else {
                    "Systems"
                };
                let index = if *kind == "Managers" {
                    Some(0)
                } else {
                    self.index(id)
                };
                let image = body.get("Image").and_then(Value::as_str).map(str::to_owned);
                match (index.filter(|_| *kind == below), *action) {
                    (Some(index), "VirtualMedia.InsertMedia") if image.is_some() => {
                        self.begin(now, RedfishSimulatorAction::Media(index, image))
                    }
                    (Some(index), "VirtualMedia.EjectMedia") => {
                        self.begin(now, RedfishSimulatorAction::Media(index, None))
                    }
                    _ => missing(),
                }
            }
            _ => missing(),
        }
    }

    fn subscribe(&mut self, body: &Value) -> BmcHttpResponse {
        let valid = body["Destination"].is_string() && body["Context"].is_string();
        if !valid || self.subscriptions.len() >= SUBSCRIPTIONS_MAX {
            return refused(400, "Base.1.8.PropertyMissing", "Not a subscription.");
        }
        self.numbers += 1;
        let id = self.numbers;
        let mut described = body.clone();
        described["Id"] = id.to_string().into();
        // Credentials are never shown (DSP0266).
        described["HttpHeaders"] = Value::Null;
        self.subscriptions.insert(id, described);
        BmcHttpResponse {
            location: Some(format!("/redfish/v1/EventService/Subscriptions/{id}")),
            ..found(201, &Value::Null)
        }
    }

    /// Changes of resources.
    pub(super) fn change(
        &mut self,
        now: Tick,
        parts: &[&str],
        if_match: Option<&str>,
        body: &Value,
    ) -> BmcHttpResponse {
        let ["Systems", id, rest @ ..] = parts else {
            return missing();
        };
        let Some(index) = self.index(id) else {
            return missing();
        };
        let revision = self
            .machines
            .get(index)
            .map_or(0, |machine| machine.revision);
        let mark = format!("\"{revision}\"");
        let same = |etag: &str| etag.strip_prefix("W/").unwrap_or(etag) == mark;
        if if_match.is_some_and(|etag| !same(etag)) {
            return refused(412, "Base.1.8.PreconditionFailed", "Resource changed.");
        }
        match (rest, body.get("SecureBootEnable").and_then(Value::as_bool)) {
            ([], _) => self.begin(now, RedfishSimulatorAction::Change(index, body.clone())),
            (["SecureBoot"], Some(on)) => {
                self.begin(now, RedfishSimulatorAction::SecureBoot(index, on))
            }
            _ => missing(),
        }
    }

    fn index(&self, id: &str) -> Option<usize> {
        self.machine_of(id)?;
        id.parse::<usize>().ok()?.checked_sub(1)
    }

    fn begin(&mut self, now: Tick, action: RedfishSimulatorAction) -> BmcHttpResponse {
        self.record_action(&action);
        let Some(task_ms) = self.setup.task_ms else {
            return match self.execute(now, &action) {
                Ok(()) => done(),
                Err(status) => refused(status, "Base.1.8.ActionNotSupported", "Not in this state."),
            };
        };
        self.numbers += 1;
        if self.tasks.len() >= TASKS_MAX {
            self.tasks.pop_first();
        }
        let until = now.after_ms(task_ms);
        let ended = None;
        self.tasks.insert(
            self.numbers,
            RedfishSimulatorTask {
                until,
                action,
                ended,
            },
        );
        BmcHttpResponse {
            location: Some(format!(
                "/redfish/v1/TaskService/TaskMonitors/{}",
                self.numbers
            )),
            retry_after_s: Some(1),
            ..found(202, &json!({"TaskState": "New"}))
        }
    }

    pub(super) fn show_task(&mut self, now: Tick, number: &str) -> BmcHttpResponse {
        let number: Option<u64> = number.parse().ok();
        let task = number.and_then(|number| self.tasks.get(&number));
        let Some((number, task)) = number.zip(task) else {
            return missing();
        };
        if now < task.until {
            return BmcHttpResponse {
                retry_after_s: Some(1),
                ..found(202, &json!({"TaskState": "Running"}))
            };
        }
        let ended = match task.ended {
            Some(ended) => ended,
            None => {
                let action = task.action.clone();
                self.execute(now, &action)
            }
        };
        if let Some(task) = self.tasks.get_mut(&number) {
            task.ended = Some(ended);
        }
        match ended {
            Ok(()) => found(200, &json!({"TaskState": "Completed", "TaskStatus": "OK"})),
            Err(_) => found(
                200,
                &json!({
                    "TaskState": "Exception", "TaskStatus": "Critical",
                    "Messages": [{"Message": "Not in this state."}],
                }),
            ),
        }
    }

    /// Executes an action, or returns the HTTP status of the refusal.
    fn execute(&mut self, now: Tick, action: &RedfishSimulatorAction) -> Result<(), u16> {
        let (lag_ms, lazy) = (self.setup.lag_ms, self.faults.ignores_resets);
        let index = match action {
            RedfishSimulatorAction::Reset(index, _)
            | RedfishSimulatorAction::Media(index, _)
            | RedfishSimulatorAction::Change(index, _)
            | RedfishSimulatorAction::SecureBoot(index, _) => *index,
            RedfishSimulatorAction::ManagerReset => return Ok(()),
        };
        let machine = self.machines.get_mut(index).ok_or(404_u16)?;
        match action {
            RedfishSimulatorAction::Reset(_, word) => {
                let to = match (word.as_str(), machine.power) {
                    ("On" | "ForceOn", PowerState::Off)
                    | ("ForceRestart" | "PowerCycle", PowerState::On) => PowerState::On,
                    ("ForceOff" | "GracefulShutdown", PowerState::On) => PowerState::Off,
                    ("Nmi", PowerState::On) => return Ok(()),
                    // As iLO does: a machine that is on cannot be switched on.
                    (
                        "On" | "ForceOff" | "GracefulShutdown" | "ForceRestart" | "PowerCycle"
                        | "Nmi",
                        _,
                    ) => {
                        return Err(409);
                    }
                    _ => return Err(400),
                };
                if !lazy {
                    machine.pending = Some((to, now.after_ms(lag_ms)));
                    machine.apply_pending(now);
                }
            }
            RedfishSimulatorAction::Media(_, image) => machine.media.clone_from(image),
            RedfishSimulatorAction::SecureBoot(_, on) => machine.secure_boot = *on,
            RedfishSimulatorAction::Change(_, body) => {
                let keys =
                    ["Target", "Enabled", "Mode"].map(|key| format!("BootSourceOverride{key}"));
                let boot = body.get("Boot");
                let uri = ["HttpBootUri".to_owned()];
                for (own, key) in machine.boot.iter_mut().zip(keys.iter().chain(&uri)) {
                    if let Some(word) = boot.and_then(|boot| boot.get(key)?.as_str()) {
                        word.clone_into(own);
                    }
                }
                let light = body.get("LocationIndicatorActive").and_then(Value::as_bool);
                machine.indicator = light.unwrap_or(machine.indicator);
            }
            RedfishSimulatorAction::ManagerReset => {}
        }
        machine.revision += 1;
        Ok(())
    }
}

fn done() -> BmcHttpResponse {
    BmcHttpResponse {
        status: 204,
        ..BmcHttpResponse::default()
    }
}
