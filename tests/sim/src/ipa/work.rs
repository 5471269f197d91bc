//! What runs in the thread of an asynchronous command.

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256, Sha512};
use trivet_model::Tick;

use super::commands::{FAILED, MISMATCH, SUCCEEDED};
use super::{Ipa, LOOKUP_TIMEOUT_MS, Out, State, What, lookup_content, words};

/// How often a connection, and a whole download, is tried, and how far apart:
/// `image_download_connection_retries` and `_retry_interval`.
const TRIES_MAX: u32 = 10;
const TRY_MS: u64 = 10_000;

/// How long things take. Ours: disks and images of these racks are small.
const BRIEF_MS: u64 = 50;
const ERASE_MS: u64 = 900;
const WRITE_MS: u64 = 1500;
const LEAVE_MS: u64 = 200;
/// One `get_hardware_info` in a flow, as measured.
const FLOW_MS: u64 = 530;

/// What was done to the machine.
#[derive(Clone, Debug, PartialEq)]
pub enum Did {
    /// The disk is being written or erased: what stands there is worth nothing.
    Tore,
    /// The disk is erased.
    Erased,
    /// This is on the disk, and its digest was right.
    Wrote(Vec<u8>),
    /// A rescue user may log in with this hash.
    LetIn(String),
    /// The machine is switched off from within.
    PoweredOff,
    /// It is restarted from within.
    Rebooted,
}

/// The step that a command executes.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) kind: String,
    pub(super) step: Value,
}

impl Step {
    pub(super) fn told(&self, result: Value) -> Value {
        let kind = &self.kind;
        let mut told = json!({});
        told[format!("{kind}_result")] = result;
        told[format!("{kind}_step")] = self.step.clone();
        told
    }
}

/// What a thread does.
#[derive(Clone, Debug)]
pub(super) enum Task {
    /// Nothing that the world notices.
    Ends(Result<Value, Value>),
    /// It ends because the hardware managers are others.
    Mismatch(Value),
    Erase(Step),
    Write(Box<Write>),
    Flow(usize),
    PowerOff,
    Reboot,
}

/// An image on its way to the disk.
#[derive(Clone, Debug)]
pub(super) struct Write {
    pub(super) step: Option<Step>,
    info: Value,
    /// A root device hint is known, or was asked for.
    refreshed: bool,
    since: Option<Tick>,
    url: usize,
    connections: u32,
    downloads: u32,
    said: Vec<String>,
    came: Option<Vec<u8>>,
}

/// The thread under way.
#[derive(Debug)]
pub(super) struct Work {
    command: String,
    task: Task,
    /// When it goes on; none while it waits for an answer.
    due: Option<Tick>,
}

impl Work {
    pub(super) fn wake_at(&self) -> Option<Tick> {
        self.due
    }
}

impl Ipa {
    pub(super) fn writing(&self, info: &Value) -> Task {
        let hint = |place: &str| !self.node[place]["root_device"].is_null();
        Task::Write(Box::new(Write {
            step: None,
            info: info.clone(),
            refreshed: hint("instance_info") || hint("properties"),
            since: None,
            url: 0,
            connections: 0,
            downloads: 0,
            said: Vec::new(),
            came: None,
        }))
    }

    pub(super) fn begins(&mut self, now: Tick, id: &str, name: &str, task: Task) {
        let after_ms = match &task {
            Task::Ends(_) if name == "install_bootloader" => ERASE_MS,
            Task::Ends(_) | Task::Mismatch(_) | Task::Write(_) => BRIEF_MS,
            Task::Erase(_) => ERASE_MS,
            Task::Flow(tasks) => *tasks as u64 * FLOW_MS,
            Task::PowerOff | Task::Reboot => LEAVE_MS,
        };
        if matches!(task, Task::Erase(_)) {
            self.outs.push(Out::Did(Did::Tore));
        }
        self.work = Some(Work {
            command: id.to_owned(),
            task,
            due: Some(now.after_ms(after_ms)),
        });
    }

    /// Whether a thread is under way.
    pub fn is_working(&self) -> bool {
        self.work.is_some()
    }

    /// Somebody may log in; the agent's API ends.
    pub(super) fn rescued(&mut self, hash: &str) {
        self.state = State::Rescued;
        self.outs.push(Out::Did(Did::LetIn(hash.to_owned())));
    }

    pub(super) fn work_goes_on(&mut self, now: Tick) {
        let due = |work: &mut Work| work.due.is_some_and(|at| at <= now);
        let Some(work) = self.work.take_if(due) else {
            return;
        };
        let Work { command, task, .. } = work;
        match task {
            Task::Ends(Ok(result)) => self.ends(now, &command, SUCCEEDED, result),
            Task::Ends(Err(error)) => self.ends(now, &command, FAILED, error),
            Task::Mismatch(error) => self.ends(now, &command, MISMATCH, error),
            Task::Flow(_) => self.ends(now, &command, SUCCEEDED, Value::Null),
            Task::Erase(step) => {
                self.outs.push(Out::Did(Did::Erased));
                self.ends(now, &command, SUCCEEDED, step.told(Value::Null));
            }
            Task::PowerOff => {
                self.ends(now, &command, SUCCEEDED, Value::Null);
                self.outs.push(Out::Did(Did::PoweredOff));
            }
            Task::Reboot => {
                self.ends(now, &command, SUCCEEDED, Value::Null);
                self.outs.push(Out::Did(Did::Rebooted));
            }
            Task::Write(write) => self.write_goes_on(now, command, write),
        }
    }

    /// A thread has ended: its command has its result, and a beat is forced.
    fn ends(&mut self, now: Tick, id: &str, status: &'static str, told: Value) {
        let found = self.commands.iter_mut().find(|command| command.id == id);
        if let Some(command) = found {
            command.status = status;
            if status == SUCCEEDED {
                command.result = told;
            } else {
                command.error = told;
            }
        }
        self.force_beat(now);
    }

    // Writing.

    fn write_goes_on(&mut self, now: Tick, command: String, mut write: Box<Write>) {
        if !write.refreshed {
            write.since.get_or_insert(now);
            let node = self.node["uuid"].as_str();
            self.outs.push(Out::Ask(self.lookup(What::Refresh, node)));
            return self.waits(command, write, None);
        }
        let Some(came) = write.came.take() else {
            let urls = write.info["urls"].as_array();
            let url = urls.and_then(|urls| urls.get(write.url)?.as_str());
            let url = url.unwrap_or_default().to_owned();
            let fetch = Out::Fetch {
                command: command.clone(),
                url,
            };
            self.outs.push(fetch);
            return self.waits(command, write, None);
        };
        let (want, got) = digests(&write.info, &came);
        if want == got {
            return self.wrote(now, &command, &write, came);
        }
        let id = write.info["id"].as_str().unwrap_or_default();
        let details = format!(
            "Image failed to verify against checksum. location: {id}; image ID: {}; image \
             checksum: {want}; verification checksum: {got}",
            self.device()
        );
        let error = words::error("ImageChecksumError", &details);
        self.downloads_again(now, command, write, error);
    }

    fn waits(&mut self, command: String, write: Box<Write>, due: Option<Tick>) {
        self.work = Some(Work {
            command,
            task: Task::Write(write),
            due,
        });
    }

    fn wrote(&mut self, now: Tick, command: &str, write: &Write, came: Vec<u8>) {
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
        let told = match &write.step {
            Some(step) => step.told(result),
            None => result,
        };
        self.outs.push(Out::Did(Did::Wrote(came)));
        self.ends(now, command, SUCCEEDED, told);
    }

    fn device(&self) -> String {
        let disks = &self.setup.inventory["disks"];
        disks[0]["name"].as_str().unwrap_or("/dev/sda").to_owned()
    }

    /// The whole download begins anew, or there were enough.
    fn downloads_again(&mut self, now: Tick, command: String, mut write: Box<Write>, error: Value) {
        write.downloads += 1;
        if write.downloads == TRIES_MAX {
            return self.ends(now, &command, FAILED, error);
        }
        (write.url, write.connections, write.said) = (0, 0, Vec::new());
        self.waits(command, write, Some(now.after_ms(TRY_MS)));
    }

    /// The lookup that was to bring a root device hint.
    pub(super) fn refreshed(&mut self, now: Tick, answer: Option<(u16, &[u8])>) {
        let writes = |work: &mut Work| matches!(&work.task, Task::Write(write) if !write.refreshed);
        let Some(Work {
            command,
            task: Task::Write(mut write),
            ..
        }) = self.work.take_if(writes)
        else {
            return;
        };
        if let Some(content) = lookup_content(answer) {
            self.node = content["node"].clone();
            write.refreshed = true;
            let same = self.cached_image.is_some()
                && self.cached_image.as_deref() == write.info["id"].as_str();
            if same {
                // What was written in this life of the agent is not written again.
                let step = write.step.as_ref();
                let told = step.map_or(Value::Null, |step| step.told(Value::Null));
                return self.ends(now, &command, SUCCEEDED, told);
            }
            return self.waits(command, write, Some(now));
        }
        let pause_ms = self.lookup_pause(answer);
        let since = *write.since.get_or_insert(now);
        if now.since_ms(since) >= LOOKUP_TIMEOUT_MS {
            let details = "Could not look up node info. Check logs for details.";
            let error = words::error("LookupNodeError", details);
            return self.ends(now, &command, FAILED, error);
        }
        self.waits(command, write, Some(now.after_ms(pause_ms)));
    }

    /// An image came, or something else, or nothing.
    pub fn fetched(&mut self, now: Tick, id: &str, answer: Option<(u16, Vec<u8>)>) {
        let awaits = |work: &mut Work| {
            let writes = matches!(&work.task, Task::Write(_));
            work.command == id && writes && work.due.is_none()
        };
        let Some(Work {
            command,
            task: Task::Write(mut write),
            ..
        }) = self.work.take_if(awaits)
        else {
            return;
        };
        let image = write.info["id"].as_str().unwrap_or_default().to_owned();
        let status = match answer {
            Some((200, body)) => {
                self.outs.push(Out::Did(Did::Tore));
                (write.came, write.connections) = (Some(body), 0);
                return self.waits(command, write, Some(now.after_ms(WRITE_MS)));
            }
            Some((status, _)) => Some(status),
            None => None,
        };
        write.connections += 1;
        let said = status.map(|status| {
            let url = &write.info["urls"][write.url];
            format!("Received status code {status} from {url}, expected 200.")
        });
        let fatal_now = status.is_some_and(|status| status < 400);
        if write.connections < TRIES_MAX && !fatal_now {
            return self.waits(command, write, Some(now.after_ms(TRY_MS)));
        }
        let failed = |msg: &str| format!("Download of image {image} failed: {msg}");
        match (status, said) {
            (Some(500..), Some(said)) => {
                write.said.push(said);
                (write.url, write.connections) = (write.url + 1, 0);
                let urls = write.info["urls"].as_array().map_or(0, Vec::len);
                if write.url < urls {
                    return self.waits(command, write, Some(now));
                }
                let details = failed(&write.said.join("\n "));
                let error = words::error("ImageDownloadError", &details);
                self.downloads_again(now, command, write, error);
            }
            (Some(_), Some(said)) => {
                let error = words::error("ImageDownloadFatalError", &failed(&said));
                self.ends(now, &command, FAILED, error);
            }
            _ => {
                let details = "HTTPConnectionPool: Max retries exceeded";
                let error = words::error("CommandExecutionError", details);
                self.ends(now, &command, FAILED, error);
            }
        }
    }
}

/// The digest that an image must have, and the one it has.
fn digests(info: &Value, came: &[u8]) -> (String, String) {
    let want = info["os_hash_value"].as_str().or(info["checksum"].as_str());
    let want = want.unwrap_or_default().to_owned();
    let got = if want.len() == 128 {
        hex(&Sha512::digest(came))
    } else {
        hex(&Sha256::digest(came))
    };
    (want, got)
}

pub(super) fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from(b"0123456789abcdef"[usize::from(nibble)]);
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(digit).collect()
}
