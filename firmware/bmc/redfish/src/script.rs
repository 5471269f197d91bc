//! Request sequences as plain functions. A script is run from its start after each response, with
//! all responses so far: it either returns its result or names the next request. So a sequence
//! reads from top to bottom, with its loops, and does not handle logins or time.
//!
//! Every script ends after a bounded number of requests, whatever the BMC responds.

use serde_json::Value;
use trivet_model::PowerError;
use trivet_model::power::HardwareHealth;

use crate::fault;
use crate::link;
use crate::target::RedfishTarget;
use trivet_bmc::http::{BmcHttpError, BmcHttpMethod};

/// Most attempts for a request that the BMC has certainly not received, or that can be repeated.
/// Ours.
const TRIES_MAX: usize = 3;
/// Pause before the next attempt in milliseconds, if the BMC requests none. Ours.
const RETRY_MS: u64 = 1_000;
/// The longest pause that a BMC can request, in milliseconds. Ours.
const PAUSE_MS_MAX: u64 = 30_000;
/// Most polls of a task. Ours.
const TASK_POLLS_MAX: usize = 60;
/// Pause between two polls of a task in milliseconds, if the BMC requests none. Ours.
const TASK_POLL_MS: u64 = 2_000;
/// Longest ETag that is sent back to the BMC, in bytes. Ours.
const ETAG_BYTES_MAX: usize = 128;
/// Most members of a collection that are read. Ours.
pub(crate) const MEMBERS_MAX: usize = 256;
/// The collection of systems (DSP0266, section 8.2).
const SYSTEMS: &str = "/redfish/v1/Systems";

/// A parsed response.
#[derive(Clone, Debug, Default)]
pub(crate) struct RedfishParsedResponse {
    pub(crate) status: u16,
    pub(crate) location: Option<String>,
    pub(crate) etag: Option<String>,
    pub(crate) retry_after_s: Option<u64>,
    /// Null if it was empty, `None` if it was not JSON.
    pub(crate) body: Option<Value>,
}

impl RedfishParsedResponse {
    fn pause_ms(&self, otherwise: u64) -> u64 {
        let requested = self
            .retry_after_s
            .map(|seconds| seconds.saturating_mul(1000));
        requested
            .unwrap_or(otherwise)
            .clamp(otherwise.min(RETRY_MS), PAUSE_MS_MAX)
    }

    fn is_good(&self) -> bool {
        (200..300).contains(&self.status)
    }

    fn is_busy(&self) -> bool {
        matches!(self.status, 429 | 503)
    }
}

pub(crate) type RedfishResponseResult = Result<RedfishParsedResponse, BmcHttpError>;

/// A request without its credentials.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RedfishCall {
    pub(crate) method: BmcHttpMethod,
    pub(crate) path: String,
    pub(crate) if_match: Option<String>,
    pub(crate) body: Option<Value>,
}

/// Why a script stops.
#[derive(Debug)]
pub(crate) enum RedfishScriptStop {
    /// It needs the response to this request, sent after a pause.
    Send {
        call: Box<RedfishCall>,
        wait_ms: u64,
    },
    /// It has failed.
    Fail(PowerError),
}

impl From<PowerError> for RedfishScriptStop {
    fn from(error: PowerError) -> Self {
        Self::Fail(error)
    }
}

pub(crate) type RedfishScriptResult<T> = Result<T, RedfishScriptStop>;

/// A resource as the BMC returned it.
#[derive(Clone, Copy)]
pub(crate) struct RedfishResource<'a> {
    pub(crate) body: &'a Value,
    etag: Option<&'a str>,
}

impl<'a> RedfishResource<'a> {
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

/// The result of a request that changes the BMC.
#[derive(Debug)]
pub(crate) enum RedfishWriteOutcome {
    Done,
    Refused(PowerError),
    /// The BMC may have received it.
    Unknown(PowerError),
}

impl RedfishWriteOutcome {
    /// Converts an unknown result to an error, for callers that treat it as a refusal.
    pub(crate) fn done(self) -> RedfishScriptResult<()> {
        match self {
            Self::Done => Ok(()),
            Self::Refused(error) | Self::Unknown(error) => Err(error.into()),
        }
    }
}

/// The responses so far, and what earlier scripts found.
pub(crate) struct RedfishScriptContext<'a> {
    target: &'a RedfishTarget,
    /// The system's path, if an earlier script found it.
    known_system: Option<&'a str>,
    answers: core::slice::Iter<'a, RedfishResponseResult>,
    /// The system's path, if this script found it.
    pub(crate) found_system: Option<String>,
    /// The state of the hardware, if this script read it; none in it if the BMC reports none.
    #[allow(
        clippy::option_option,
        reason = "not read and not reported are different"
    )]
    pub(crate) health: Option<Option<HardwareHealth>>,
}

impl<'a> RedfishScriptContext<'a> {
    pub(crate) fn new(
        target: &'a RedfishTarget,
        known: Option<&'a str>,
        answers: &'a [RedfishResponseResult],
    ) -> Self {
        Self {
            target,
            known_system: known,
            answers: answers.iter(),
            found_system: None,
            health: None,
        }
    }

    /// The response to this request; if there is none yet, the request is sent after a pause.
    fn send(
        &mut self,
        call: RedfishCall,
        wait_ms: u64,
    ) -> RedfishScriptResult<&'a RedfishResponseResult> {
        self.answers.next().ok_or(RedfishScriptStop::Send {
            call: Box::new(call),
            wait_ms,
        })
    }

    pub(crate) fn path(&self, text: &str) -> RedfishScriptResult<String> {
        let elsewhere = || fault::invalid_response("a link to another host").into();
        link::path(text, &self.target.address).ok_or_else(elsewhere)
    }

    /// The resource that a value links to, if it is a link.
    pub(crate) fn linked(&self, value: Option<&Value>) -> RedfishScriptResult<Option<String>> {
        match value.and_then(link::id) {
            Some(id) => self.path(id).map(Some),
            None => Ok(None),
        }
    }

    /// Reads a resource after a pause. A read is repeated after an error.
    pub(crate) fn read_after(
        &mut self,
        path: &str,
        first_ms: u64,
    ) -> RedfishScriptResult<RedfishResource<'a>> {
        let mut wait_ms = first_ms;
        for attempt in 1.. {
            let call = RedfishCall {
                method: BmcHttpMethod::Get,
                path: path.to_owned(),
                if_match: None,
                body: None,
            };
            let last = attempt >= TRIES_MAX;
            match self.send(call, wait_ms)? {
                // A truncated response may be complete at the next attempt.
                Ok(reply) if reply.is_good() && reply.body.is_none() && !last => {
                    wait_ms = RETRY_MS;
                }
                Ok(reply) if reply.is_good() => {
                    let object = reply.body.as_ref().filter(|body| body.is_object());
                    let body = object.ok_or_else(|| fault::invalid_response("no JSON object"))?;
                    let etag = reply.etag.as_deref();
                    return Ok(RedfishResource { body, etag });
                }
                Ok(reply) if !last && (reply.is_busy() || reply.status >= 500) => {
                    wait_ms = reply.pause_ms(RETRY_MS);
                }
                Ok(reply) => return Err(fault::refused(reply).into()),
                Err(BmcHttpError::Unreachable { .. } | BmcHttpError::Lost { .. }) if !last => {
                    wait_ms = RETRY_MS;
                }
                Err(error) => return Err(fault::transport(error).into()),
            }
        }
        Err(fault::invalid_response("no end").into())
    }

    pub(crate) fn get(&mut self, path: &str) -> RedfishScriptResult<RedfishResource<'a>> {
        self.read_after(path, 0)
    }

    /// The paths of a collection's members.
    pub(crate) fn members(&mut self, path: &str) -> RedfishScriptResult<Vec<String>> {
        let seen = self.get(path)?;
        let members = seen.at(&["Members"]).and_then(Value::as_array);
        let members =
            members.ok_or_else(|| fault::invalid_response("a collection without members"))?;
        let ids = members.iter().take(MEMBERS_MAX).filter_map(link::id);
        ids.map(|id| self.path(id)).collect()
    }

    /// The path of the node's system.
    pub(crate) fn system_path(&mut self) -> RedfishScriptResult<String> {
        if let Some(path) = self.target.system.as_deref().or(self.known_system) {
            return Ok(path.to_owned());
        }
        let mut members = self.members(SYSTEMS)?;
        match (members.pop(), members.is_empty()) {
            (Some(only), true) => {
                self.found_system = Some(only.clone());
                Ok(only)
            }
            (None, _) => Err(fault::invalid_response("an empty list of systems").into()),
            (Some(_), false) => Err(PowerError::NotConfigured {
                missing: "redfish_system_id (the BMC has more than one system)",
            }
            .into()),
        }
    }

    pub(crate) fn system(&mut self) -> RedfishScriptResult<RedfishResource<'a>> {
        let path = self.system_path()?;
        self.get(&path)
    }

    /// Sends a request that changes the BMC, and polls the task that it creates. With `once`, the
    /// request is not repeated if the BMC may have received it.
    fn write(
        &mut self,
        call: &RedfishCall,
        once: bool,
    ) -> RedfishScriptResult<Result<&'a RedfishParsedResponse, RedfishWriteOutcome>> {
        let mut wait_ms = 0;
        for attempt in 1.. {
            let last = attempt >= TRIES_MAX;
            match self.send(call.clone(), wait_ms)? {
                Ok(reply) if reply.is_busy() && !last && !once => {
                    wait_ms = reply.pause_ms(RETRY_MS);
                }
                Ok(reply) => return Ok(Ok(reply)),
                // The request was not sent.
                Err(BmcHttpError::Unreachable { .. }) if !last => wait_ms = RETRY_MS,
                Err(
                    error @ (BmcHttpError::Lost { .. }
                    | BmcHttpError::Silent
                    | BmcHttpError::TooLong),
                ) => {
                    return Ok(Err(RedfishWriteOutcome::Unknown(fault::transport(error))));
                }
                Err(error) => {
                    return Ok(Err(RedfishWriteOutcome::Refused(fault::transport(error))));
                }
            }
        }
        Err(fault::invalid_response("no end").into())
    }

    fn finish_write(
        &mut self,
        outcome: Result<&'a RedfishParsedResponse, RedfishWriteOutcome>,
    ) -> RedfishScriptResult<RedfishWriteOutcome> {
        match outcome {
            Ok(reply) if reply.status == 202 => self.follow_task(reply),
            Ok(reply) if reply.is_good() => Ok(RedfishWriteOutcome::Done),
            Ok(reply) => Ok(RedfishWriteOutcome::Refused(fault::refused(reply))),
            Err(written) => Ok(written),
        }
    }

    pub(crate) fn post(
        &mut self,
        path: &str,
        body: Value,
        once: bool,
    ) -> RedfishScriptResult<RedfishWriteOutcome> {
        let call = RedfishCall {
            method: BmcHttpMethod::Post,
            path: path.to_owned(),
            if_match: None,
            body: Some(body),
        };
        let outcome = self.write(&call, once)?;
        self.finish_write(outcome)
    }

    /// Creates a member of a collection: the response that describes it. It is sent once, because
    /// a second member would be created.
    pub(crate) fn create(
        &mut self,
        path: &str,
        body: Value,
    ) -> RedfishScriptResult<&'a RedfishParsedResponse> {
        let call = RedfishCall {
            method: BmcHttpMethod::Post,
            path: path.to_owned(),
            if_match: None,
            body: Some(body),
        };
        match self.write(&call, true)? {
            Ok(reply) if reply.is_good() => Ok(reply),
            Ok(reply) => Err(fault::refused(reply).into()),
            Err(RedfishWriteOutcome::Refused(error) | RedfishWriteOutcome::Unknown(error)) => {
                Err(error.into())
            }
            Err(RedfishWriteOutcome::Done) => Err(fault::invalid_response("no end").into()),
        }
    }

    /// Deletes a resource; false if there is none.
    pub(crate) fn delete(&mut self, path: &str) -> RedfishScriptResult<bool> {
        let call = RedfishCall {
            method: BmcHttpMethod::Delete,
            path: path.to_owned(),
            if_match: None,
            body: None,
        };
        let outcome = self.write(&call, false)?;
        if matches!(outcome, Ok(reply) if matches!(reply.status, 404 | 410)) {
            return Ok(false);
        }
        self.finish_write(outcome)?.done()?;
        Ok(true)
    }

    /// Changes a resource that was read before. If another client changed it since, it is read
    /// again, once.
    pub(crate) fn patch(
        &mut self,
        path: &str,
        seen: RedfishResource<'a>,
        body: Value,
    ) -> RedfishScriptResult<RedfishWriteOutcome> {
        let mut call = RedfishCall {
            method: BmcHttpMethod::Patch,
            path: path.to_owned(),
            if_match: seen.etag().map(str::to_owned),
            body: Some(body),
        };
        let mut outcome = self.write(&call, false)?;
        if matches!(outcome, Ok(reply) if reply.status == 412) {
            let fresh = self.get(path)?.etag();
            // A weak ETag never matches in a BMC that follows RFC 9110 strictly.
            let strong = fresh.map(|etag| etag.strip_prefix("W/").unwrap_or(etag));
            call.if_match = strong.map(str::to_owned);
            outcome = self.write(&call, false)?;
        }
        self.finish_write(outcome)
    }

    /// Polls a task until it ends (DSP0266, section 12).
    fn follow_task(
        &mut self,
        accepted: &'a RedfishParsedResponse,
    ) -> RedfishScriptResult<RedfishWriteOutcome> {
        let body = accepted.body.as_ref();
        let link = accepted.location.as_deref();
        let Some(link) = link.or_else(|| body.and_then(link::id)) else {
            return Ok(RedfishWriteOutcome::Done);
        };
        let monitor = self.path(link)?;
        let mut wait_ms = accepted.pause_ms(TASK_POLL_MS);
        for _ in 0..TASK_POLLS_MAX {
            let call = RedfishCall {
                method: BmcHttpMethod::Get,
                path: monitor.clone(),
                if_match: None,
                body: None,
            };
            match self.send(call, wait_ms)? {
                Ok(reply) => match task_outcome(reply) {
                    Some(written) => return Ok(written),
                    None => wait_ms = reply.pause_ms(TASK_POLL_MS),
                },
                Err(
                    BmcHttpError::Unreachable { .. }
                    | BmcHttpError::Lost { .. }
                    | BmcHttpError::Silent,
                ) => {
                    wait_ms = TASK_POLL_MS;
                }
                Err(error) => return Ok(RedfishWriteOutcome::Unknown(fault::transport(error))),
            }
        }
        Ok(RedfishWriteOutcome::Unknown(fault::busy(
            "its task does not end",
        )))
    }
}

/// The result of a task, if it has ended.
fn task_outcome(reply: &RedfishParsedResponse) -> Option<RedfishWriteOutcome> {
    if reply.status == 202 || reply.is_busy() || reply.status >= 500 {
        return None;
    }
    // A BMC may delete a task as soon as it has ended.
    if matches!(reply.status, 404 | 410) {
        return Some(RedfishWriteOutcome::Done);
    }
    if !reply.is_good() {
        return Some(RedfishWriteOutcome::Refused(fault::refused(reply)));
    }
    let body = reply.body.as_ref();
    let word = |key| body.and_then(|body| body.get(key)?.as_str());
    let failed = || {
        let messages = body.and_then(|body| body.get("Messages")?.as_array());
        let mut messages = messages.into_iter().flatten();
        let text = messages.find_map(|message| message.get("Message")?.as_str());
        let text = fault::clean(text.unwrap_or("without a reason"));
        Some(RedfishWriteOutcome::Refused(PowerError::Bmc {
            cause: trivet_model::BmcFailureCause::Refused,
            message: format!("the BMC's task failed: {text}"),
        }))
    };
    match word("TaskState") {
        Some("Completed") if word("TaskStatus") == Some("Critical") => failed(),
        // Without a task state, the response is the result itself.
        None | Some("Completed") => Some(RedfishWriteOutcome::Done),
        Some("Exception" | "Killed" | "Cancelled" | "Interrupted") => failed(),
        Some(_) => None,
    }
}
