//! Dialogues as plain functions. A script is run from its start after each answer, with
//! all answers so far: it either has what it needs or names the next request. So a
//! dialogue reads from top to bottom, loops and all, and knows nothing of logins or time.
//!
//! Whatever a BMC answers, every script ends after a bounded number of requests.

use serde_json::Value;
use trivet_model::PowerError;

use crate::fault;
use crate::http::{Method, Trouble};
use crate::link;
use crate::target::Target;

/// How often something is said that the BMC surely has not heard, or that may be said
/// twice. Ours.
const TRIES_MAX: usize = 3;
/// Pause before it is said again, where the BMC names none. Ours.
const AGAIN_MS: u64 = 1_000;
/// The longest pause that a BMC may ask for. Ours.
const PAUSE_MS_MAX: u64 = 30_000;
/// How often a task is looked at. Ours.
const TASK_LOOKS_MAX: usize = 60;
/// Pause between two looks at a task, where the BMC names none. Ours.
const TASK_MS: u64 = 2_000;
/// Longest mark of a resource that is repeated to the BMC. Ours.
const ETAG_BYTES_MAX: usize = 128;
/// Members of a collection that are looked at. Ours.
pub(crate) const MEMBERS_MAX: usize = 256;
/// Where systems are (DSP0266, section 8.2).
const SYSTEMS: &str = "/redfish/v1/Systems";

/// An answer, read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) location: Option<String>,
    pub(crate) etag: Option<String>,
    pub(crate) retry_after_s: Option<u64>,
    /// Null where it was empty, none where it was no JSON.
    pub(crate) body: Option<Value>,
}

impl Reply {
    fn pause_ms(&self, otherwise: u64) -> u64 {
        let asked = self
            .retry_after_s
            .map(|seconds| seconds.saturating_mul(1000));
        asked
            .unwrap_or(otherwise)
            .clamp(otherwise.min(AGAIN_MS), PAUSE_MS_MAX)
    }

    fn is_good(&self) -> bool {
        (200..300).contains(&self.status)
    }

    fn is_busy(&self) -> bool {
        matches!(self.status, 429 | 503)
    }
}

pub(crate) type Heard = Result<Reply, Trouble>;

/// A request without its credentials.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) if_match: Option<String>,
    pub(crate) body: Option<Value>,
}

/// Why a script does not go on.
#[derive(Debug)]
pub(crate) enum Halt {
    /// It wants this answered first, asked after a pause.
    Ask { call: Box<Call>, wait_ms: u64 },
    /// It has failed.
    Fail(PowerError),
}

impl From<PowerError> for Halt {
    fn from(error: PowerError) -> Self {
        Self::Fail(error)
    }
}

pub(crate) type Step<T> = Result<T, Halt>;

/// A resource as the BMC shows it.
#[derive(Clone, Copy)]
pub(crate) struct Seen<'a> {
    pub(crate) body: &'a Value,
    etag: Option<&'a str>,
}

impl<'a> Seen<'a> {
    /// The value below these keys.
    pub(crate) fn at(&self, keys: &[&str]) -> Option<&'a Value> {
        keys.iter()
            .try_fold(self.body, |value, key| value.get(*key))
    }

    pub(crate) fn text(&self, keys: &[&str]) -> Option<&'a str> {
        self.at(keys)?.as_str()
    }

    fn etag(&self) -> Option<&'a str> {
        let etag = self.etag.or(self.text(&["@odata.etag"]))?;
        let plain =
            etag.len() <= ETAG_BYTES_MAX && etag.bytes().all(|byte| byte.is_ascii_graphic());
        plain.then_some(etag)
    }
}

/// How something that changes the BMC ended.
#[derive(Debug)]
pub(crate) enum Written {
    Done,
    Refused(PowerError),
    /// The BMC may have heard it.
    Unknown(PowerError),
}

impl Written {
    /// Where not knowing is no better than a refusal.
    pub(crate) fn done(self) -> Step<()> {
        match self {
            Self::Done => Ok(()),
            Self::Refused(error) | Self::Unknown(error) => Err(error.into()),
        }
    }
}

/// What a script has to go by.
pub(crate) struct Book<'a> {
    target: &'a Target,
    /// The system's path, if an earlier script found it.
    known: Option<&'a str>,
    answers: core::slice::Iter<'a, Heard>,
    /// The system's path, if this one has.
    pub(crate) found: Option<String>,
}

impl<'a> Book<'a> {
    pub(crate) fn new(target: &'a Target, known: Option<&'a str>, answers: &'a [Heard]) -> Self {
        Self {
            target,
            known,
            answers: answers.iter(),
            found: None,
        }
    }

    /// The answer to this request, which is asked after a pause if it has not been.
    fn ask(&mut self, call: Call, wait_ms: u64) -> Step<&'a Heard> {
        self.answers.next().ok_or(Halt::Ask {
            call: Box::new(call),
            wait_ms,
        })
    }

    pub(crate) fn path(&self, text: &str) -> Step<String> {
        let elsewhere = || fault::nonsense("a link that leaves the BMC").into();
        link::path(text, &self.target.address).ok_or_else(elsewhere)
    }

    /// The resource that a value links to, if it does.
    pub(crate) fn linked(&self, value: Option<&Value>) -> Step<Option<String>> {
        match value.and_then(link::id) {
            Some(id) => self.path(id).map(Some),
            None => Ok(None),
        }
    }

    /// Reads a resource after a pause. Reading may be done again.
    pub(crate) fn read_after(&mut self, path: &str, first_ms: u64) -> Step<Seen<'a>> {
        let mut wait_ms = first_ms;
        for attempt in 1.. {
            let call = Call {
                method: Method::Get,
                path: path.to_owned(),
                if_match: None,
                body: None,
            };
            let last = attempt >= TRIES_MAX;
            match self.ask(call, wait_ms)? {
                // An answer that was cut off on its way may come whole the next time.
                Ok(reply) if reply.is_good() && reply.body.is_none() && !last => {
                    wait_ms = AGAIN_MS;
                }
                Ok(reply) if reply.is_good() => {
                    let object = reply.body.as_ref().filter(|body| body.is_object());
                    let body = object.ok_or_else(|| fault::nonsense("no JSON object"))?;
                    let etag = reply.etag.as_deref();
                    return Ok(Seen { body, etag });
                }
                Ok(reply) if !last && (reply.is_busy() || reply.status >= 500) => {
                    wait_ms = reply.pause_ms(AGAIN_MS);
                }
                Ok(reply) => return Err(fault::refused(reply).into()),
                Err(Trouble::Unreachable { .. } | Trouble::Lost { .. }) if !last => {
                    wait_ms = AGAIN_MS;
                }
                Err(trouble) => return Err(fault::trouble(trouble).into()),
            }
        }
        Err(fault::nonsense("no end").into())
    }

    pub(crate) fn get(&mut self, path: &str) -> Step<Seen<'a>> {
        self.read_after(path, 0)
    }

    /// The paths of a collection's members.
    pub(crate) fn members(&mut self, path: &str) -> Step<Vec<String>> {
        let seen = self.get(path)?;
        let members = seen.at(&["Members"]).and_then(Value::as_array);
        let members = members.ok_or_else(|| fault::nonsense("a collection without members"))?;
        let ids = members.iter().take(MEMBERS_MAX).filter_map(link::id);
        ids.map(|id| self.path(id)).collect()
    }

    /// Where the node's system is.
    pub(crate) fn system_path(&mut self) -> Step<String> {
        if let Some(path) = self.target.system.as_deref().or(self.known) {
            return Ok(path.to_owned());
        }
        let mut members = self.members(SYSTEMS)?;
        match (members.pop(), members.is_empty()) {
            (Some(only), true) => {
                self.found = Some(only.clone());
                Ok(only)
            }
            (None, _) => Err(fault::nonsense("a list of systems with none in it").into()),
            (Some(_), false) => Err(PowerError::NotConfigured {
                missing: "redfish_system_id (the BMC has more than one system)",
            }
            .into()),
        }
    }

    pub(crate) fn system(&mut self) -> Step<Seen<'a>> {
        let path = self.system_path()?;
        self.get(&path)
    }

    /// Says something that changes the BMC, and follows the task it becomes. `once` is
    /// for what must not be said again where it may have been heard.
    fn write(&mut self, call: &Call, once: bool) -> Step<Result<&'a Reply, Written>> {
        let mut wait_ms = 0;
        for attempt in 1.. {
            let last = attempt >= TRIES_MAX;
            match self.ask(call.clone(), wait_ms)? {
                Ok(reply) if reply.is_busy() && !last && !once => {
                    wait_ms = reply.pause_ms(AGAIN_MS);
                }
                Ok(reply) => return Ok(Ok(reply)),
                // Nothing was said.
                Err(Trouble::Unreachable { .. }) if !last => wait_ms = AGAIN_MS,
                Err(trouble @ (Trouble::Lost { .. } | Trouble::TooLong)) => {
                    return Ok(Err(Written::Unknown(fault::trouble(trouble))));
                }
                Err(trouble) => return Ok(Err(Written::Refused(fault::trouble(trouble)))),
            }
        }
        Err(fault::nonsense("no end").into())
    }

    fn settle(&mut self, outcome: Result<&'a Reply, Written>) -> Step<Written> {
        match outcome {
            Ok(reply) if reply.status == 202 => self.follow(reply),
            Ok(reply) if reply.is_good() => Ok(Written::Done),
            Ok(reply) => Ok(Written::Refused(fault::refused(reply))),
            Err(written) => Ok(written),
        }
    }

    pub(crate) fn post(&mut self, path: &str, body: Value, once: bool) -> Step<Written> {
        let call = Call {
            method: Method::Post,
            path: path.to_owned(),
            if_match: None,
            body: Some(body),
        };
        let outcome = self.write(&call, once)?;
        self.settle(outcome)
    }

    /// Changes a resource that was read before. Where somebody else changed it since, it
    /// is read again, once.
    pub(crate) fn patch(&mut self, path: &str, seen: Seen<'a>, body: Value) -> Step<Written> {
        let mut call = Call {
            method: Method::Patch,
            path: path.to_owned(),
            if_match: seen.etag().map(str::to_owned),
            body: Some(body),
        };
        let mut outcome = self.write(&call, false)?;
        if matches!(outcome, Ok(reply) if reply.status == 412) {
            let fresh = self.get(path)?.etag();
            // A weak mark never matches where the BMC takes RFC 9110 by its word.
            let strong = fresh.map(|etag| etag.strip_prefix("W/").unwrap_or(etag));
            call.if_match = strong.map(str::to_owned);
            outcome = self.write(&call, false)?;
        }
        self.settle(outcome)
    }

    /// Looks at a task until it ends (DSP0266, section 12).
    fn follow(&mut self, accepted: &'a Reply) -> Step<Written> {
        let body = accepted.body.as_ref();
        let link = accepted.location.as_deref();
        let Some(link) = link.or_else(|| body.and_then(link::id)) else {
            return Ok(Written::Done);
        };
        let monitor = self.path(link)?;
        let mut wait_ms = accepted.pause_ms(TASK_MS);
        for _ in 0..TASK_LOOKS_MAX {
            let call = Call {
                method: Method::Get,
                path: monitor.clone(),
                if_match: None,
                body: None,
            };
            match self.ask(call, wait_ms)? {
                Ok(reply) => match task(reply) {
                    Some(written) => return Ok(written),
                    None => wait_ms = reply.pause_ms(TASK_MS),
                },
                Err(Trouble::Unreachable { .. } | Trouble::Lost { .. }) => wait_ms = TASK_MS,
                Err(trouble) => return Ok(Written::Unknown(fault::trouble(trouble))),
            }
        }
        Ok(Written::Unknown(fault::busy("its task does not end")))
    }
}

/// How a task ended, if it has.
fn task(reply: &Reply) -> Option<Written> {
    if reply.status == 202 || reply.is_busy() || reply.status >= 500 {
        return None;
    }
    // A BMC may forget a task as soon as it has ended.
    if matches!(reply.status, 404 | 410) {
        return Some(Written::Done);
    }
    if !reply.is_good() {
        return Some(Written::Refused(fault::refused(reply)));
    }
    let body = reply.body.as_ref();
    let word = |key| body.and_then(|body| body.get(key)?.as_str());
    let failed = || {
        let messages = body.and_then(|body| body.get("Messages")?.as_array());
        let mut messages = messages.into_iter().flatten();
        let said = messages.find_map(|message| message.get("Message")?.as_str());
        let said = fault::clean(said.unwrap_or("without a reason"));
        Some(Written::Refused(PowerError::Bmc {
            cause: trivet_model::Cause::Refused,
            said: format!("the BMC's task failed: {said}"),
        }))
    };
    match word("TaskState") {
        Some("Completed") if word("TaskStatus") == Some("Critical") => failed(),
        // Without a state, what came is the answer itself.
        None | Some("Completed") => Some(Written::Done),
        Some("Exception" | "Killed" | "Cancelled" | "Interrupted") => failed(),
        Some(_) => None,
    }
}
