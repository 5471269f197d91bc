//! The thread of an asynchronous command.

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256, Sha512};
use trivet_model::Tick;

use super::commands::{FAILED, MISMATCH, SUCCEEDED};
use super::{
    LOOKUP_TIMEOUT_MS, SimIpa, SimIpaOutput, SimIpaRequestKind, SimIpaState, lookup_content,
    messages,
};

/// How many times a connection, and a whole download, is tried, and the delay between:
/// `image_download_connection_retries` and `_retry_interval`.
const TRIES_MAX: u32 = 10;
const TRY_MS: u64 = 10_000;

/// Durations of the work. Ours: disks and images of these racks are small.
const BRIEF_MS: u64 = 50;
const ERASE_MS: u64 = 900;
const WRITE_MS: u64 = 1500;
const POWER_CHANGE_MS: u64 = 200;
/// One `get_hardware_info` in a flow, as measured.
const FLOW_MS: u64 = 530;

/// A change to the machine.
#[derive(Clone, Debug, PartialEq)]
pub enum SimAgentEffect {
    /// The disk is being written or erased: its content is not valid.
    DiskInvalidated,
    /// The disk is erased.
    DiskErased,
    /// An image with the right digest was written.
    ImageWritten(Vec<u8>),
    /// These bytes are on its disk, but the first ones are missing.
    ImageWrittenAhead(Vec<u8>),
    /// The rescue user can log in with this password hash.
    RescueEnabled(String),
    /// The machine switches itself off.
    PoweredOff,
    /// The machine restarts itself.
    Rebooted,
}

/// The step that a command executes.
#[derive(Clone, Debug)]
pub(super) struct SimIpaStep {
    pub(super) kind: String,
    pub(super) step: Value,
}

impl SimIpaStep {
    pub(super) fn with_result(&self, result: Value) -> Value {
        let kind = &self.kind;
        let mut reported = json!({});
        reported[format!("{kind}_result")] = result;
        reported[format!("{kind}_step")] = self.step.clone();
        reported
    }
}

/// The task of a thread.
#[derive(Clone, Debug)]
pub(super) enum SimIpaTask {
    /// Ends with this result, without effect on the machine.
    Finish(Result<Value, Value>),
    /// It ends because the hardware managers have changed.
    Mismatch(Value),
    Erase(SimIpaStep),
    Write(Box<SimIpaImageWrite>),
    Flow(usize),
    PowerOff,
    Reboot,
}

/// An image that is being written.
#[derive(Clone, Debug)]
pub(super) struct SimIpaImageWrite {
    pub(super) step: Option<SimIpaStep>,
    info: Value,
    /// A root device hint is known, or was looked up.
    refreshed: bool,
    since: Option<Tick>,
    url: usize,
    connections: u32,
    downloads: u32,
    errors: Vec<String>,
    received: Option<Vec<u8>>,
}

/// The running thread.
#[derive(Debug)]
pub(super) struct SimIpaThread {
    command: String,
    task: SimIpaTask,
    /// When it continues; `None` while it waits for a response.
    due: Option<Tick>,
}

impl SimIpaThread {
    pub(super) fn wake_at(&self) -> Option<Tick> {
        self.due
    }
}

impl SimIpa {
    pub(super) fn writing(&self, info: &Value) -> SimIpaTask {
        let hint = |place: &str| !self.node[place]["root_device"].is_null();
        SimIpaTask::Write(Box::new(SimIpaImageWrite {
            step: None,
            info: info.clone(),
            refreshed: hint("instance_info") || hint("properties"),
            since: None,
            url: 0,
            connections: 0,
            downloads: 0,
            errors: Vec::new(),
            received: None,
        }))
    }

    /// The hints of the node, if no disk fits them. Only equality is compared.
    pub(super) fn unmatched_hints(&self) -> Option<Value> {
        let hints = ["instance_info", "properties"].map(|place| &self.node[place]["root_device"]);
        let hints = hints.into_iter().find(|hints| hints.is_object())?;
        let disks = self.setup.inventory["disks"].as_array();
        let fits = |disk: &Value| {
            let mut all = hints.as_object().into_iter().flatten();
            all.all(|(key, value)| disk[key] == *value)
        };
        let any = disks.is_some_and(|disks| disks.iter().any(fits));
        (!any).then(|| hints.clone())
    }

    pub(super) fn start_thread(&mut self, now: Tick, id: &str, name: &str, task: SimIpaTask) {
        let after_ms = match &task {
            SimIpaTask::Finish(_) if name == "install_bootloader" => ERASE_MS,
            SimIpaTask::Finish(_) | SimIpaTask::Mismatch(_) | SimIpaTask::Write(_) => BRIEF_MS,
            SimIpaTask::Erase(_) => ERASE_MS,
            SimIpaTask::Flow(tasks) => *tasks as u64 * FLOW_MS,
            SimIpaTask::PowerOff | SimIpaTask::Reboot => POWER_CHANGE_MS,
        };
        if matches!(task, SimIpaTask::Erase(_)) {
            self.outputs
                .push(SimIpaOutput::Effect(SimAgentEffect::DiskInvalidated));
        }
        self.thread = Some(SimIpaThread {
            command: id.to_owned(),
            task,
            due: Some(now.after_ms(after_ms)),
        });
    }

    /// Whether a thread is running.
    pub fn is_working(&self) -> bool {
        self.thread.is_some()
    }

    /// Enables the rescue login; the agent's API ends.
    pub(super) fn enable_rescue(&mut self, hash: &str) {
        self.state = SimIpaState::Rescued;
        self.outputs
            .push(SimIpaOutput::Effect(SimAgentEffect::RescueEnabled(
                hash.to_owned(),
            )));
    }

    pub(super) fn advance_thread(&mut self, now: Tick) {
        let due = |work: &mut SimIpaThread| work.due.is_some_and(|at| at <= now);
        let Some(work) = self.thread.take_if(due) else {
            return;
        };
        let SimIpaThread { command, task, .. } = work;
        match task {
            SimIpaTask::Finish(Ok(result)) => self.finish_command(now, &command, SUCCEEDED, result),
            SimIpaTask::Finish(Err(error)) => self.finish_command(now, &command, FAILED, error),
            SimIpaTask::Mismatch(error) => self.finish_command(now, &command, MISMATCH, error),
            SimIpaTask::Flow(_) => self.finish_command(now, &command, SUCCEEDED, Value::Null),
            SimIpaTask::Erase(step) => {
                self.outputs
                    .push(SimIpaOutput::Effect(SimAgentEffect::DiskErased));
                self.finish_command(now, &command, SUCCEEDED, step.with_result(Value::Null));
            }
            SimIpaTask::PowerOff => {
                self.finish_command(now, &command, SUCCEEDED, Value::Null);
                self.outputs
                    .push(SimIpaOutput::Effect(SimAgentEffect::PoweredOff));
            }
            SimIpaTask::Reboot => {
                self.finish_command(now, &command, SUCCEEDED, Value::Null);
                self.outputs
                    .push(SimIpaOutput::Effect(SimAgentEffect::Rebooted));
            }
            SimIpaTask::Write(write) => self.advance_write(now, command, write),
        }
    }

    /// A thread has ended: its command gets its result, and a heartbeat is forced.
    fn finish_command(&mut self, now: Tick, id: &str, status: &'static str, reported: Value) {
        let found = self.commands.iter_mut().find(|command| command.id == id);
        if let Some(command) = found {
            command.status = status;
            if status == SUCCEEDED {
                command.result = reported;
            } else {
                command.error = reported;
            }
        }
        self.force_heartbeat(now);
    }

    // Writing.

    fn advance_write(&mut self, now: Tick, command: String, mut write: Box<SimIpaImageWrite>) {
        if !write.refreshed {
            write.since.get_or_insert(now);
            let node = self.node["uuid"].as_str();
            self.outputs.push(SimIpaOutput::Request(
                self.lookup(SimIpaRequestKind::Refresh, node),
            ));
            return self.suspend_write(command, write, None);
        }
        let Some(bytes) = write.received.take() else {
            let urls = write.info["urls"].as_array();
            let url = urls.and_then(|urls| urls.get(write.url)?.as_str());
            let url = url.unwrap_or_default().to_owned();
            let fetch = SimIpaOutput::Fetch {
                command: command.clone(),
                url,
            };
            self.outputs.push(fetch);
            return self.suspend_write(command, write, None);
        };
        let (want, got) = digests(&write.info, &bytes);
        if want == got {
            return self.finish_write(now, &command, &write, bytes);
        }
        let id = write.info["id"].as_str().unwrap_or_default();
        let details = format!(
            "Image failed to verify against checksum. location: {id}; image ID: {}; image \
             checksum: {want}; verification checksum: {got}",
            self.device()
        );
        let error = messages::error("ImageChecksumError", &details);
        self.retry_download(now, command, write, error);
    }

    fn suspend_write(&mut self, command: String, write: Box<SimIpaImageWrite>, due: Option<Tick>) {
        self.thread = Some(SimIpaThread {
            command,
            task: SimIpaTask::Write(write),
            due,
        });
    }

    fn finish_write(&mut self, now: Tick, command: &str, write: &SimIpaImageWrite, bytes: Vec<u8>) {
        let id = write.info["id"].as_str().unwrap_or_default();
        let streams = write.info["stream_raw_images"] == json!(true);
        if !streams {
            self.cached_image = Some(id.to_owned());
        }
        let uuid = format!("0x{:08x}", self.setup.seed as u32);
        self.uuids = json!({ "root uuid": uuid });
        let text = format!(
            "image ({id}) written to device {} root_uuid={uuid}",
            self.device()
        );
        let result = json!({ "result": format!("prepare_image: {text}") });
        let reported = match &write.step {
            Some(step) => step.with_result(result),
            None => result,
        };
        self.outputs
            .push(SimIpaOutput::Effect(SimAgentEffect::ImageWritten(bytes)));
        self.finish_command(now, command, SUCCEEDED, reported);
    }

    fn device(&self) -> String {
        let disks = &self.setup.inventory["disks"];
        disks[0]["name"].as_str().unwrap_or("/dev/sda").to_owned()
    }

    /// Starts the whole download again, or fails after the last attempt.
    fn retry_download(
        &mut self,
        now: Tick,
        command: String,
        mut write: Box<SimIpaImageWrite>,
        error: Value,
    ) {
        write.downloads += 1;
        if write.downloads == TRIES_MAX {
            return self.finish_command(now, &command, FAILED, error);
        }
        (write.url, write.connections, write.errors) = (0, 0, Vec::new());
        self.suspend_write(command, write, Some(now.after_ms(TRY_MS)));
    }

    /// The response to the lookup of the root device hint.
    pub(super) fn handle_refresh_response(&mut self, now: Tick, answer: Option<(u16, &[u8])>) {
        let writes = |work: &mut SimIpaThread| match &work.task {
            SimIpaTask::Write(write) => !write.refreshed,
            _ => false,
        };
        let Some(SimIpaThread {
            command,
            task: SimIpaTask::Write(mut write),
            ..
        }) = self.thread.take_if(writes)
        else {
            return;
        };
        if let Some(content) = lookup_content(answer) {
            self.node = content["node"].clone();
            write.refreshed = true;
            let same = self.cached_image.is_some()
                && self.cached_image.as_deref() == write.info["id"].as_str();
            if same {
                // An image written since the agent's start is not written again.
                let step = write.step.as_ref();
                let reported = step.map_or(Value::Null, |step| step.with_result(Value::Null));
                return self.finish_command(now, &command, SUCCEEDED, reported);
            }
            return self.suspend_write(command, write, Some(now));
        }
        let pause_ms = self.lookup_pause(answer);
        let since = *write.since.get_or_insert(now);
        if now.since_ms(since) >= LOOKUP_TIMEOUT_MS {
            let details = "Could not look up node info. Check logs for details.";
            let error = messages::error("LookupNodeError", details);
            return self.finish_command(now, &command, FAILED, error);
        }
        self.suspend_write(command, write, Some(now.after_ms(pause_ms)));
    }

    /// Handles the response of the image server, or a timeout.
    pub fn handle_image_response(&mut self, now: Tick, id: &str, answer: Option<(u16, Vec<u8>)>) {
        let awaits = |work: &mut SimIpaThread| {
            let writes = matches!(&work.task, SimIpaTask::Write(_));
            work.command == id && writes && work.due.is_none()
        };
        let Some(SimIpaThread {
            command,
            task: SimIpaTask::Write(mut write),
            ..
        }) = self.thread.take_if(awaits)
        else {
            return;
        };
        let image = write.info["id"].as_str().unwrap_or_default().to_owned();
        let status = match answer {
            Some((200, body)) => {
                self.outputs
                    .push(SimIpaOutput::Effect(SimAgentEffect::DiskInvalidated));
                (write.received, write.connections) = (Some(body), 0);
                return self.suspend_write(command, write, Some(now.after_ms(WRITE_MS)));
            }
            Some((status, _)) => Some(status),
            None => None,
        };
        write.connections += 1;
        let message = status.map(|status| {
            let url = &write.info["urls"][write.url];
            format!("Received status code {status} from {url}, expected 200.")
        });
        let fatal_now = status.is_some_and(|status| status < 400);
        if write.connections < TRIES_MAX && !fatal_now {
            return self.suspend_write(command, write, Some(now.after_ms(TRY_MS)));
        }
        let failed = |msg: &str| format!("Download of image {image} failed: {msg}");
        match (status, message) {
            (Some(500..), Some(message)) => {
                write.errors.push(message);
                (write.url, write.connections) = (write.url + 1, 0);
                let urls = write.info["urls"].as_array().map_or(0, Vec::len);
                if write.url < urls {
                    return self.suspend_write(command, write, Some(now));
                }
                let details = failed(&write.errors.join("\n "));
                let error = messages::error("ImageDownloadError", &details);
                self.retry_download(now, command, write, error);
            }
            (Some(_), Some(message)) => {
                let error = messages::error("ImageDownloadFatalError", &failed(&message));
                self.finish_command(now, &command, FAILED, error);
            }
            _ => {
                let details = "HTTPConnectionPool: Max retries exceeded";
                let error = messages::error("CommandExecutionError", details);
                self.finish_command(now, &command, FAILED, error);
            }
        }
    }
}

/// The expected digest of an image, and the computed one.
fn digests(info: &Value, bytes: &[u8]) -> (String, String) {
    let want = info["os_hash_value"].as_str().or(info["checksum"].as_str());
    let want = want.unwrap_or_default().to_owned();
    let got = if want.len() == 128 {
        hex(&Sha512::digest(bytes))
    } else {
        hex(&Sha256::digest(bytes))
    };
    (want, got)
}

pub(super) fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from(b"0123456789abcdef"[usize::from(nibble)]);
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(digit).collect()
}
