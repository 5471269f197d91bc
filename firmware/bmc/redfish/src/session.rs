//! The client of one BMC: one power order or operation at a time, one request in flight.
//!
//! It decides when to log in and what a lost connection means for the order. Logins are invisible
//! to scripts: a request that was refused because its session has expired is sent again in a new
//! session, once. The caller limits the request rate, because it knows which nodes share a BMC.

use std::collections::VecDeque;

use serde_json::{Value, json};
use trivet_model::power::HardwareHealth;
use trivet_model::secret::SecretText;
use trivet_model::{PowerAnswer, PowerError, PowerOrder, Tick};

use crate::fault;
use crate::link;
use crate::operation::{self, RedfishOperation, RedfishReply};
use crate::order;
use crate::script::{
    RedfishCall, RedfishParsedResponse, RedfishResponseResult, RedfishScriptContext,
    RedfishScriptResult, RedfishScriptStop,
};
use crate::secrets::RedfishSecrets;
use crate::target::{RedfishAuth, RedfishTarget};
use trivet_bmc::http::{
    BmcHttpCredentials, BmcHttpError, BmcHttpMethod, BmcHttpRequest, BmcHttpResponse,
};

/// Most orders and operations that are queued, in progress or have answers not yet fetched. Ours.
pub const ORDERS_WAITING_MAX: usize = 16;
/// Most bytes of all responses to one order or operation. Ours.
const JOB_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Most requests of one order or operation. Ours: sensors are read one by one.
const JOB_REQUESTS_MAX: usize = 600;
/// Longest duration of an order or operation, in milliseconds. Ours.
const JOB_MS_MAX: u64 = 300_000;
/// Most logins for one order, after busy or lost ones. Ours.
const LOGINS_MAX: u32 = 3;
/// Pause before the next login in milliseconds, if the BMC requests none. Ours.
const LOGIN_RETRY_MS: u64 = 2_000;
/// The longest pause that a BMC can request, in milliseconds. Ours.
const LOGIN_PAUSE_MS_MAX: u64 = 30_000;
/// Longest token that is stored, in bytes. Ours.
const TOKEN_BYTES_MAX: usize = 4096;
/// The path where sessions are created (DSP0266, section 13.3.4).
const SESSIONS: &str = "/redfish/v1/SessionService/Sessions";

enum RedfishTask {
    Order(PowerOrder),
    Operation(RedfishOperation),
}

enum RedfishTaskOutcome {
    Answer(PowerAnswer),
    Reply(RedfishReply),
}

impl RedfishTask {
    fn run(
        &self,
        context: &mut RedfishScriptContext<'_>,
    ) -> RedfishScriptResult<RedfishTaskOutcome> {
        match self {
            Self::Order(order) => order::run(*order, context).map(RedfishTaskOutcome::Answer),
            Self::Operation(operation) => {
                operation::run(operation, context).map(RedfishTaskOutcome::Reply)
            }
        }
    }

    /// Whether the BMC loses its sessions, because it restarts.
    fn ends_session(&self) -> bool {
        matches!(self, Self::Order(PowerOrder::BmcReset { .. }))
    }
}

/// The order or operation in progress.
struct RedfishJob {
    id: u64,
    task: RedfishTask,
    /// The system's path as it was known at the start: a script must see the same data each time it
    /// is run.
    known_system: Option<String>,
    answers: Vec<RedfishResponseResult>,
    bytes: usize,
    started: Tick,
    logins: u32,
    /// An expired session has been replaced.
    replaced: bool,
    /// The next request of the script, and when to send it.
    next: Option<(RedfishCall, Tick)>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum RedfishInFlight {
    Login,
    Call,
    Logout,
}

/// A session on the BMC.
struct RedfishSessionToken {
    token: SecretText,
    /// The path of the session, for the logout.
    path: Option<String>,
}

/// The client of one BMC.
pub struct RedfishSession {
    target: RedfishTarget,
    token: Option<RedfishSessionToken>,
    /// The BMC has no sessions: each request contains the password.
    basic: bool,
    system: Option<String>,
    in_flight: Option<RedfishInFlight>,
    job: Option<RedfishJob>,
    waiting: VecDeque<(u64, RedfishTask)>,
    answers: VecDeque<(u64, Result<PowerAnswer, PowerError>)>,
    replies: VecDeque<(u64, Result<RedfishReply, PowerError>)>,
    /// The state of the hardware that was last reported, and whether that was passed on.
    health: (Option<HardwareHealth>, bool),
    closing: bool,
}

impl RedfishSession {
    /// A client that sends nothing until its first order.
    pub fn new(target: RedfishTarget) -> Self {
        Self {
            basic: target.auth == RedfishAuth::Basic,
            target,
            token: None,
            system: None,
            in_flight: None,
            job: None,
            waiting: VecDeque::new(),
            answers: VecDeque::new(),
            replies: VecDeque::new(),
            health: (None, true),
            closing: false,
        }
    }

    /// Queues an order; [`RedfishSession::answer`] returns its answer with this `id`.
    pub fn order(&mut self, now: Tick, id: u64, order: PowerOrder) -> Result<(), PowerError> {
        self.enqueue_task(now, id, RedfishTask::Order(order))
    }

    /// Queues an operation; [`RedfishSession::reply`] returns its reply with this `id`.
    pub fn operation(
        &mut self,
        now: Tick,
        id: u64,
        operation: RedfishOperation,
    ) -> Result<(), PowerError> {
        operation::check(&operation)?;
        self.enqueue_task(now, id, RedfishTask::Operation(operation))
    }

    fn enqueue_task(&mut self, now: Tick, id: u64, task: RedfishTask) -> Result<(), PowerError> {
        let done = self.answers.len() + self.replies.len();
        let held = self.waiting.len() + usize::from(self.job.is_some()) + done;
        if held >= ORDERS_WAITING_MAX {
            return Err(PowerError::QueueFull);
        }
        self.waiting.push_back((id, task));
        self.start_next_job(now);
        Ok(())
    }

    /// Ends the session once all orders are done; [`RedfishSession::transmit`] returns the request
    /// for it. A later order logs in again.
    pub fn close(&mut self) {
        self.closing = true;
    }

    /// The request that ends the session on the BMC immediately, for a caller that drops this
    /// client.
    pub fn logout_request(&mut self) -> Option<BmcHttpRequest> {
        let token = self.token.take()?;
        Some(BmcHttpRequest {
            method: BmcHttpMethod::Delete,
            path: token.path?,
            credentials: Some(BmcHttpCredentials::Token(token.token)),
            if_match: None,
            body: None,
        })
    }

    /// When [`RedfishSession::transmit`] has something to send next, if ever.
    pub fn deadline(&self) -> Option<Tick> {
        if self.in_flight.is_some() {
            return None;
        }
        match &self.job {
            Some(work) => work.next.as_ref().map(|(_, due)| *due),
            None => (self.closing && self.token.is_some()).then(Tick::default),
        }
    }

    /// The next request, if it is due. Its response must be passed to
    /// [`RedfishSession::handle_response`] before there is another.
    pub fn transmit(&mut self, now: Tick) -> Option<BmcHttpRequest> {
        if self.in_flight.is_some() {
            return None;
        }
        let Some(work) = &mut self.job else {
            if !std::mem::take(&mut self.closing) {
                return None;
            }
            let request = self.logout_request()?;
            self.in_flight = Some(RedfishInFlight::Logout);
            return Some(request);
        };
        let (call, due) = work.next.as_ref()?;
        if now < *due {
            return None;
        }
        let credentials = match (&self.target.login, self.basic, &self.token) {
            (None, ..) => None,
            (Some(login), true, _) => {
                let pair = format!("{}:{}", login.username, login.password.reveal());
                Some(BmcHttpCredentials::Basic(SecretText::new(pair)))
            }
            (Some(_), false, Some(token)) => Some(BmcHttpCredentials::Token(token.token.clone())),
            (Some(login), false, None) => {
                work.logins += 1;
                self.in_flight = Some(RedfishInFlight::Login);
                let body = json!({
                    "UserName": login.username,
                    "Password": login.password.reveal(),
                });
                return Some(BmcHttpRequest {
                    method: BmcHttpMethod::Post,
                    path: SESSIONS.to_owned(),
                    credentials: None,
                    if_match: None,
                    body: Some(SecretText::new(body.to_string())),
                });
            }
        };
        self.in_flight = Some(RedfishInFlight::Call);
        Some(BmcHttpRequest {
            method: call.method,
            path: call.path.clone(),
            credentials,
            if_match: call.if_match.clone(),
            body: call
                .body
                .as_ref()
                .map(|body| SecretText::new(body.to_string())),
        })
    }

    /// Processes the response to the last request, or why there is none. A response without a
    /// request changes nothing.
    pub fn handle_response(&mut self, now: Tick, answer: Result<BmcHttpResponse, BmcHttpError>) {
        match self.in_flight.take() {
            Some(RedfishInFlight::Login) => self.handle_login_response(now, answer),
            Some(RedfishInFlight::Call) => self.handle_call_response(now, answer),
            Some(RedfishInFlight::Logout) | None => {}
        }
    }

    /// The next completed order, and its result.
    pub fn answer(&mut self) -> Option<(u64, Result<PowerAnswer, PowerError>)> {
        self.answers.pop_front()
    }

    /// The next completed operation, and its result.
    pub fn reply(&mut self) -> Option<(u64, Result<RedfishReply, PowerError>)> {
        self.replies.pop_front()
    }

    /// The state of the machine's hardware, once after each change.
    #[allow(
        clippy::option_option,
        reason = "no change and not reported are different"
    )]
    pub fn changed_health(&mut self) -> Option<Option<HardwareHealth>> {
        let (health, passed_on) = self.health;
        self.health.1 = true;
        (!passed_on).then_some(health)
    }

    fn start_next_job(&mut self, now: Tick) {
        if self.job.is_some() {
            return;
        }
        let Some((id, task)) = self.waiting.pop_front() else {
            return;
        };
        self.job = Some(RedfishJob {
            id,
            task,
            known_system: self.system.clone(),
            answers: Vec::new(),
            bytes: 0,
            started: now,
            logins: 0,
            replaced: false,
            next: None,
        });
        self.advance(now);
    }

    /// Runs the script with all responses so far.
    fn advance(&mut self, now: Tick) {
        let Some(work) = &mut self.job else { return };
        let mut context =
            RedfishScriptContext::new(&self.target, work.known_system.as_deref(), &work.answers);
        let step = work.task.run(&mut context);
        if let Some(health) = context.health
            && step.is_ok()
            && health != self.health.0
        {
            self.health = (health, false);
        }
        let found = context.found_system.take();
        if found.is_some() {
            self.system = found;
        }
        let over = work.answers.len() >= JOB_REQUESTS_MAX || work.bytes > JOB_BYTES_MAX;
        match step {
            Err(RedfishScriptStop::Send { .. }) if over => {
                self.finish(now, Err(fault::invalid_response("too much data")));
            }
            Err(RedfishScriptStop::Send { call, wait_ms }) => {
                let due = now.after_ms(wait_ms);
                if due >= work.started.after_ms(JOB_MS_MAX) {
                    self.finish(now, Err(fault::busy("one order took too long")));
                } else {
                    work.next = Some((*call, due));
                }
            }
            Err(RedfishScriptStop::Fail(error)) => self.finish(now, Err(error)),
            Ok(outcome) => self.finish(now, Ok(outcome)),
        }
    }

    fn finish(&mut self, now: Tick, outcome: Result<RedfishTaskOutcome, PowerError>) {
        let Some(work) = self.job.take() else { return };
        let secrets = RedfishSecrets::of(&self.target, self.token.as_ref().map(|it| &it.token));
        let outcome = outcome.map_err(|error| secrets.redact_error(error));
        if outcome.is_err() {
            // The BMC may have been replaced by another one.
            self.system = None;
        }
        if work.task.ends_session() {
            self.token = None;
        }
        match (work.task, outcome) {
            (RedfishTask::Order(_), Ok(RedfishTaskOutcome::Answer(answer))) => {
                self.answers.push_back((work.id, Ok(answer)));
            }
            (RedfishTask::Order(_), Err(error)) => self.answers.push_back((work.id, Err(error))),
            (RedfishTask::Operation(_), Ok(RedfishTaskOutcome::Reply(report))) => {
                self.replies.push_back((work.id, Ok(report)));
            }
            (RedfishTask::Operation(_), Err(error)) => {
                self.replies.push_back((work.id, Err(error)));
            }
            // Each kind of task returns its own kind of outcome.
            (RedfishTask::Order(_), Ok(RedfishTaskOutcome::Reply(_)))
            | (RedfishTask::Operation(_), Ok(RedfishTaskOutcome::Answer(_))) => {}
        }
        self.start_next_job(now);
    }

    fn handle_call_response(&mut self, now: Tick, answer: Result<BmcHttpResponse, BmcHttpError>) {
        let Some(work) = &mut self.job else { return };
        let gone = matches!(&answer, Ok(answer) if answer.status == 401);
        if gone && self.token.take().is_some() && !work.replaced {
            // It was refused before anything was done, so it can be sent again.
            work.replaced = true;
            return;
        }
        work.next = None;
        let secrets = RedfishSecrets::of(&self.target, self.token.as_ref().map(|it| &it.token));
        let result = answer.and_then(|answer| {
            work.bytes = work.bytes.saturating_add(answer.body.len());
            parse_response(answer, &secrets)
        });
        work.answers.push(result);
        self.advance(now);
    }

    fn handle_login_response(&mut self, now: Tick, answer: Result<BmcHttpResponse, BmcHttpError>) {
        let Some(work) = &mut self.job else { return };
        let last = work.logins >= LOGINS_MAX;
        let mut again = |wait_ms| {
            if let Some((_, due)) = &mut work.next {
                *due = now.after_ms(wait_ms);
            }
        };
        let mut answer = match answer {
            Ok(answer) => answer,
            Err(BmcHttpError::Unreachable { .. } | BmcHttpError::Lost { .. }) if !last => {
                return again(LOGIN_RETRY_MS);
            }
            Err(error) => return self.finish(now, Err(fault::transport(&error))),
        };
        let plain = |token: &SecretText| {
            let text = token.reveal();
            !text.is_empty()
                && text.len() <= TOKEN_BYTES_MAX
                && text.bytes().all(|byte| byte.is_ascii_graphic())
        };
        let token = answer.token.take().filter(plain);
        let secrets = RedfishSecrets::of(&self.target, None);
        let reply = match parse_response(answer, &secrets) {
            Ok(reply) => reply,
            Err(error) => return self.finish(now, Err(fault::transport(&error))),
        };
        let unauthorised = || fault::has_message(&reply, "Unauthorized");
        match (reply.status, token) {
            (200..300, Some(token)) => {
                let id = reply.body.as_ref().and_then(link::id);
                let place = reply.location.as_deref().or(id);
                let path = place.and_then(|place| link::path(place, &self.target.address));
                self.token = Some(RedfishSessionToken { token, path });
            }
            (429 | 503, _) if !last => {
                let requested = reply
                    .retry_after_s
                    .map(|seconds| seconds.saturating_mul(1000));
                again(requested.unwrap_or(LOGIN_RETRY_MS).min(LOGIN_PAUSE_MS_MAX));
            }
            (429 | 503, _) => self.finish(now, Err(fault::refused(&reply))),
            (401 | 403, _) => self.finish(now, Err(fault::login("at its session service"))),
            (400, _) if unauthorised() => {
                self.finish(now, Err(fault::login("at its session service")));
            }
            // It has no session service, or no free session.
            _ if self.target.auth == RedfishAuth::Auto => self.basic = true,
            (200..300, None) => self.finish(
                now,
                Err(fault::invalid_response("a session without a token")),
            ),
            (404 | 405 | 501, _) => self.finish(now, Err(fault::no_sessions(reply.status))),
            _ if fault::has_message(&reply, "SessionLimitExceeded") => {
                self.finish(now, Err(PowerError::NoFreeSession));
            }
            _ => self.finish(now, Err(fault::refused(&reply))),
        }
    }
}

/// Parses a response. A body that is not JSON is not an error: many refusals are HTML.
fn parse_response(
    answer: BmcHttpResponse,
    secrets: &RedfishSecrets,
) -> Result<RedfishParsedResponse, BmcHttpError> {
    if answer.body.len() > trivet_bmc::http::HTTP_BODY_BYTES_MAX {
        return Err(BmcHttpError::TooLong);
    }
    let body = if answer.body.iter().all(u8::is_ascii_whitespace) {
        Some(Value::Null)
    } else {
        serde_json::from_slice(&answer.body).ok()
    };
    let body = body.map(|mut body| {
        // Only refusals are quoted; in other responses a value that equals the password must not be
        // changed.
        if answer.status >= 400 {
            secrets.redact_all(&mut body);
        }
        body
    });
    Ok(RedfishParsedResponse {
        status: answer.status,
        location: answer.location,
        etag: answer.etag,
        retry_after_s: answer.retry_after_s,
        body,
    })
}
