//! Hardware managers that are programs: a request in one line of JSON at the standard input, a
//! reply in one line at the standard output.
//!
//! `{"call": "describe"}` gets `{"name": .., "version": .., "support": 0..}`;
//! `{"call": "steps", "kind": "clean", "node": .., "ports": ..}` gets `{"steps": [..]}`;
//! `{"call": "execute", "kind": .., "step": .., "node": .., "ports": ..}` gets
//! `{"result": ..}`. `{"error": "incompatible"}` passes the step to the next manager, another
//! text fails it. The call, the kind and the name of the step are in the environment too
//! (`AGENT_CALL`, `AGENT_KIND`, `AGENT_STEP`), so that a shell script need not read JSON. A
//! program runs once for each request; its standard error is logged.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use trivet_agent_wire::IpaStep;
use trivet_agent_wire::command::StepsByManager;
use trivet_model::StepKind;

use crate::hardware_manager::{
    HardwareManager, MANAGER_STEPS_MAX, MANAGERS_MAX, ManagerError, SUPPORT_NONE,
};
use crate::program::log;
use crate::state_machine::{AgentWorkOutcome, ManagerRequest};

/// Longest reply of a program. Ours.
pub(super) const REPLY_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// How long a program may take to describe itself or list its steps. Ours.
const LIST_TIMEOUT: Duration = Duration::from_mins(1);

/// How long a step may take. Ours; the appliance has limits of its own.
const STEP_TIMEOUT: Duration = Duration::from_hours(24);

/// Longest name and version. Ours.
const NAME_BYTES_MAX: usize = 64;

/// The reply of a program.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ManagerReply {
    name: Option<String>,
    version: Option<String>,
    support: Option<u8>,
    steps: Option<Vec<IpaStep>>,
    result: Option<Value>,
    error: Option<String>,
}

/// The text of an error that passes a step to the next manager.
const INCOMPATIBLE: &str = "incompatible";

/// A hardware manager that is a program.
#[derive(Debug)]
pub struct ManagerProgram {
    path: PathBuf,
    name: String,
    version: String,
    support: u8,
}

impl ManagerProgram {
    /// Asks a program to describe itself. An error is a sentence.
    pub fn load(path: &Path) -> Result<Self, String> {
        let reply = call(path, &json!({"call": "describe"}), LIST_TIMEOUT)?;
        if let Some(error) = reply.error {
            return Err(error);
        }
        let name = reply.name.unwrap_or_default();
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(is_plain) {
            return Err("it has no name of letters, digits and underscores".to_owned());
        }
        let version = reply.version.unwrap_or_else(|| "1.0".to_owned());
        if version.len() > NAME_BYTES_MAX {
            return Err("its version is too long".to_owned());
        }
        Ok(Self {
            path: path.to_owned(),
            name,
            version,
            support: reply.support.unwrap_or(SUPPORT_NONE),
        })
    }

    fn request(&self, request: &Value, limit: Duration) -> Result<ManagerReply, ManagerError> {
        let reply = call(&self.path, request, limit);
        let reply =
            reply.map_err(|error| ManagerError::failed(format!("{}: {error}", self.name)))?;
        match reply.error.as_deref() {
            None => Ok(reply),
            Some(INCOMPATIBLE) => Err(ManagerError::Incompatible),
            Some(error) => Err(ManagerError::failed(format!("{}: {error}", self.name))),
        }
    }
}

impl HardwareManager for ManagerProgram {
    fn name(&self) -> &str {
        &self.name
    }

    fn version(&self) -> &str {
        &self.version
    }

    fn evaluate_hardware_support(&self) -> u8 {
        self.support
    }

    fn steps(
        &self,
        kind: StepKind,
        node: &Value,
        ports: &Value,
    ) -> Result<Vec<IpaStep>, ManagerError> {
        let kind = kind.to_string();
        let request = json!({"call": "steps", "kind": kind, "node": node, "ports": ports});
        let steps = self
            .request(&request, LIST_TIMEOUT)?
            .steps
            .unwrap_or_default();
        if steps.len() > MANAGER_STEPS_MAX {
            let words = format!("{}: more than {MANAGER_STEPS_MAX} steps", self.name);
            return Err(ManagerError::failed(words));
        }
        Ok(steps)
    }

    fn execute(
        &self,
        kind: StepKind,
        step: &Value,
        node: &Value,
        ports: &Value,
    ) -> Result<Value, ManagerError> {
        let request = json!({"call": "execute", "kind": kind.to_string(), "step": step,
                             "node": node, "ports": ports});
        Ok(self
            .request(&request, STEP_TIMEOUT)?
            .result
            .unwrap_or_default())
    }
}

/// The programs of a directory that support this machine, in the order of their names.
pub fn load_programs(directory: &Path) -> Vec<Arc<dyn HardwareManager>> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.retain(|path| {
        fs::metadata(path).is_ok_and(|facts| facts.is_file() && facts.permissions().mode() & 1 != 0)
    });
    paths.sort();
    let mut managers: Vec<Arc<dyn HardwareManager>> = Vec::new();
    for path in paths {
        let at = path.display();
        match ManagerProgram::load(&path) {
            Ok(_) if managers.len() >= MANAGERS_MAX => {
                log(&format!(
                    "hardware manager {at}: more than {MANAGERS_MAX}, ignored"
                ));
            }
            Ok(manager) if managers.iter().any(|one| one.name() == manager.name) => {
                log(&format!(
                    "hardware manager {at}: its name is another's, ignored"
                ));
            }
            Ok(manager) if manager.support == SUPPORT_NONE => {
                log(&format!(
                    "hardware manager {}: not for this machine",
                    manager.name
                ));
            }
            Ok(manager) => {
                let (name, version) = (&manager.name, &manager.version);
                log(&format!(
                    "hardware manager {name} {version}, support {}",
                    manager.support
                ));
                managers.push(Arc::new(manager));
            }
            Err(error) => log(&format!("hardware manager {at}: {error}")),
        }
    }
    managers
}

/// Passes a request to the managers.
pub(super) fn request(
    managers: &[Arc<dyn HardwareManager>],
    wanted: &ManagerRequest,
) -> Result<AgentWorkOutcome, ManagerError> {
    match wanted {
        ManagerRequest::ListSteps { kind, node, ports } => {
            let mut found: StepsByManager = BTreeMap::new();
            for manager in managers {
                match manager.steps(*kind, node, ports) {
                    Ok(steps) => {
                        found.insert(manager.name().to_owned(), steps);
                    }
                    Err(ManagerError::Incompatible) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(AgentWorkOutcome::Steps(*kind, found))
        }
        ManagerRequest::Execute {
            manager,
            kind,
            step,
            node,
            ports,
        } => {
            let found = managers.iter().find(|one| one.name() == manager);
            let found = found.ok_or(ManagerError::Incompatible)?;
            found
                .execute(*kind, step, node, ports)
                .map(AgentWorkOutcome::Value)
        }
    }
}

/// Runs a program with one request. An error is a sentence.
fn call(path: &Path, request: &Value, limit: Duration) -> Result<ManagerReply, String> {
    let text = |name: &str| {
        request
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let step = request.get("step").and_then(|step| step.get("step"));
    let mut child = Command::new(path)
        .env("AGENT_CALL", text("call"))
        .env("AGENT_KIND", text("kind"))
        .env(
            "AGENT_STEP",
            step.and_then(Value::as_str).unwrap_or_default(),
        )
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| error.to_string())?;
    let output = exchange(&mut child, request, limit);
    if output.is_err() {
        let _ = child.kill();
    }
    let ended = child.wait().map_err(|error| error.to_string())?;
    let output = output?;
    let line = output
        .split(|&byte| byte == b'\n')
        .next()
        .unwrap_or_default();
    if line.is_empty() {
        return Err(format!("it replied nothing ({ended})"));
    }
    serde_json::from_slice(line).map_err(|error| format!("its reply is not valid: {error}"))
}

/// Writes the request and reads the reply; each pipe has a thread, so that none blocks another.
fn exchange(child: &mut Child, request: &Value, limit: Duration) -> Result<Vec<u8>, String> {
    let (input, output, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let line = format!("{request}\n");
    thread::spawn(move || {
        if let Some(mut input) = input {
            // A program that does not read its request has an effect only by its reply.
            let _ = input.write_all(line.as_bytes());
        }
    });
    thread::spawn(move || {
        let text = errors.map(|errors| read_limited(errors).unwrap_or_default());
        for line in String::from_utf8_lossy(&text.unwrap_or_default()).lines() {
            log(line);
        }
    });
    let (sender, receiver) = mpsc::sync_channel(1);
    thread::spawn(move || {
        let read = output.map_or(Ok(Vec::new()), read_limited);
        let _ = sender.send(read);
    });
    match receiver.recv_timeout(limit) {
        Ok(Ok(bytes)) if bytes.len() as u64 > REPLY_BYTES_MAX => {
            Err(format!("its reply has more than {REPLY_BYTES_MAX} bytes"))
        }
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("it did not end within {} s", limit.as_secs())),
    }
}

/// Reads to the end, at most one byte more than is accepted.
fn read_limited(from: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(REPLY_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests;
