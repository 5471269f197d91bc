//! The appliance's end: one BMC, one order or errand at a time, one request in flight.
//!
//! It decides when to log in and what a connection's end means for the order. A script
//! never notices a login: a request that was refused because its session is gone is said
//! again in a new one, once. How fast a BMC may be asked is for the caller, who also
//! knows which nodes share one.

use std::collections::VecDeque;

use serde_json::{Value, json};
use trivet_model::secret::Hidden;
use trivet_model::{PowerAnswer, PowerError, PowerOrder, Tick};

use crate::errand::{self, Errand, Report};
use crate::fault;
use crate::http::{Answer, Credentials, Method, Request, Trouble};
use crate::link;
use crate::order;
use crate::script::{Book, Call, Halt, Heard, Reply, Step};
use crate::secrets::Secrets;
use crate::target::{Auth, Target};

/// Most orders and errands that wait, are under way or have answers nobody fetched. Ours.
pub const ORDERS_WAITING_MAX: usize = 16;
/// Longest body that is read. Ours: the largest of real BMCs have some 200 KiB.
pub const BODY_BYTES_MAX: usize = 512 * 1024;
/// How long a BMC may take for one answer. Ours: slow ones need some ten seconds.
pub const REQUEST_TIMEOUT_MS: u64 = 30_000;
/// Bytes of all answers to one order or errand. Ours.
const WORK_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Requests of one order or errand. Ours: sensors are read one by one.
const WORK_REQUESTS_MAX: usize = 600;
/// How long an order or errand may take in all. Ours.
const WORK_MS_MAX: u64 = 300_000;
/// Logins that are begun for one order, after busy or lost ones. Ours.
const LOGINS_MAX: u32 = 3;
/// Pause before the next, where the BMC names none. Ours.
const LOGIN_AGAIN_MS: u64 = 2_000;
/// The longest pause that a BMC may ask for. Ours.
const LOGIN_PAUSE_MS_MAX: u64 = 30_000;
/// Longest token that is kept. Ours.
const TOKEN_BYTES_MAX: usize = 4096;
/// Where sessions are made (DSP0266, section 13.3.4).
const SESSIONS: &str = "/redfish/v1/SessionService/Sessions";

enum Task {
    Order(PowerOrder),
    Errand(Errand),
}

enum Outcome {
    Answer(PowerAnswer),
    Report(Report),
}

impl Task {
    fn run(&self, book: &mut Book<'_>) -> Step<Outcome> {
        match self {
            Self::Order(order) => order::run(*order, book).map(Outcome::Answer),
            Self::Errand(errand) => errand::run(errand, book).map(Outcome::Report),
        }
    }

    /// A BMC that restarts forgets its sessions.
    fn ends_session(&self) -> bool {
        matches!(self, Self::Order(PowerOrder::BmcReset { .. }))
    }
}

/// The order or errand under way.
struct Work {
    id: u64,
    task: Task,
    /// The system's path as it was known at the start: a script must find the same
    /// ground each time it is run.
    known: Option<String>,
    answers: Vec<Heard>,
    bytes: usize,
    started: Tick,
    logins: u32,
    /// A session that was gone has been replaced.
    replaced: bool,
    /// What the script asks next, and when.
    next: Option<(Call, Tick)>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Flying {
    Login,
    Call,
    Farewell,
}

/// A session on the BMC.
struct Token {
    token: Hidden,
    /// Where it can be ended.
    path: Option<String>,
}

/// The appliance's end of the talk with one BMC.
pub struct Session {
    target: Target,
    token: Option<Token>,
    /// The BMC has no sessions: the password goes with each request.
    basic: bool,
    system: Option<String>,
    flying: Option<Flying>,
    work: Option<Work>,
    waiting: VecDeque<(u64, Task)>,
    answers: VecDeque<(u64, Result<PowerAnswer, PowerError>)>,
    reports: VecDeque<(u64, Result<Report, PowerError>)>,
    closing: bool,
}

impl Session {
    /// A session that does nothing until its first order.
    pub fn new(target: Target) -> Self {
        Self {
            basic: target.auth == Auth::Basic,
            target,
            token: None,
            system: None,
            flying: None,
            work: None,
            waiting: VecDeque::new(),
            answers: VecDeque::new(),
            reports: VecDeque::new(),
            closing: false,
        }
    }

    /// Takes an order; its answer comes out of [`Session::answer`] under `id`.
    pub fn order(&mut self, now: Tick, id: u64, order: PowerOrder) -> Result<(), PowerError> {
        self.take(now, id, Task::Order(order))
    }

    /// Takes an errand; its report comes out of [`Session::report`] under `id`.
    pub fn errand(&mut self, now: Tick, id: u64, errand: Errand) -> Result<(), PowerError> {
        errand::check(&errand)?;
        self.take(now, id, Task::Errand(errand))
    }

    fn take(&mut self, now: Tick, id: u64, task: Task) -> Result<(), PowerError> {
        let done = self.answers.len() + self.reports.len();
        let held = self.waiting.len() + usize::from(self.work.is_some()) + done;
        if held >= ORDERS_WAITING_MAX {
            return Err(PowerError::Busy);
        }
        self.waiting.push_back((id, task));
        self.begin(now);
        Ok(())
    }

    /// Ends the session once all orders are done; [`Session::transmit`] gives the
    /// request for it. A later order logs in anew.
    pub fn close(&mut self) {
        self.closing = true;
    }

    /// The request that ends the session on the BMC at once, for who forgets this one.
    pub fn farewell(&mut self) -> Option<Request> {
        let token = self.token.take()?;
        Some(Request {
            method: Method::Delete,
            path: token.path?,
            credentials: Some(Credentials::Token(token.token)),
            if_match: None,
            body: None,
        })
    }

    /// When [`Session::transmit`] has something to send next, if ever.
    pub fn deadline(&self) -> Option<Tick> {
        if self.flying.is_some() {
            return None;
        }
        match &self.work {
            Some(work) => work.next.as_ref().map(|(_, due)| *due),
            None => (self.closing && self.token.is_some()).then(Tick::default),
        }
    }

    /// The next request, if its time has come. It must be answered by
    /// [`Session::answered`] before there is another.
    pub fn transmit(&mut self, now: Tick) -> Option<Request> {
        if self.flying.is_some() {
            return None;
        }
        let Some(work) = &mut self.work else {
            if !std::mem::take(&mut self.closing) {
                return None;
            }
            let request = self.farewell()?;
            self.flying = Some(Flying::Farewell);
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
                Some(Credentials::Basic(Hidden::new(pair)))
            }
            (Some(_), false, Some(token)) => Some(Credentials::Token(token.token.clone())),
            (Some(login), false, None) => {
                work.logins += 1;
                self.flying = Some(Flying::Login);
                let body = json!({
                    "UserName": login.username,
                    "Password": login.password.reveal(),
                });
                return Some(Request {
                    method: Method::Post,
                    path: SESSIONS.to_owned(),
                    credentials: None,
                    if_match: None,
                    body: Some(Hidden::new(body.to_string())),
                });
            }
        };
        self.flying = Some(Flying::Call);
        Some(Request {
            method: call.method,
            path: call.path.clone(),
            credentials,
            if_match: call.if_match.clone(),
            body: call.body.as_ref().map(|body| Hidden::new(body.to_string())),
        })
    }

    /// Takes the answer to the last request, or why there is none. One that nobody
    /// asked for changes nothing.
    pub fn answered(&mut self, now: Tick, answer: Result<Answer, Trouble>) {
        match self.flying.take() {
            Some(Flying::Login) => self.logged_in(now, answer),
            Some(Flying::Call) => self.heard(now, answer),
            Some(Flying::Farewell) | None => {}
        }
    }

    /// The next order that is done, and how it ended.
    pub fn answer(&mut self) -> Option<(u64, Result<PowerAnswer, PowerError>)> {
        self.answers.pop_front()
    }

    /// The next errand that is done, and what it brought.
    pub fn report(&mut self) -> Option<(u64, Result<Report, PowerError>)> {
        self.reports.pop_front()
    }

    fn begin(&mut self, now: Tick) {
        if self.work.is_some() {
            return;
        }
        let Some((id, task)) = self.waiting.pop_front() else {
            return;
        };
        self.work = Some(Work {
            id,
            task,
            known: self.system.clone(),
            answers: Vec::new(),
            bytes: 0,
            started: now,
            logins: 0,
            replaced: false,
            next: None,
        });
        self.advance(now);
    }

    /// Runs the script with all that has been heard.
    fn advance(&mut self, now: Tick) {
        let Some(work) = &mut self.work else { return };
        let mut book = Book::new(&self.target, work.known.as_deref(), &work.answers);
        let step = work.task.run(&mut book);
        let found = book.found.take();
        if found.is_some() {
            self.system = found;
        }
        let over = work.answers.len() >= WORK_REQUESTS_MAX || work.bytes > WORK_BYTES_MAX;
        match step {
            Err(Halt::Ask { .. }) if over => {
                self.finish(now, Err(fault::nonsense("more than anybody reads")));
            }
            Err(Halt::Ask { call, wait_ms }) => {
                let due = now.after_ms(wait_ms);
                if due >= work.started.after_ms(WORK_MS_MAX) {
                    self.finish(now, Err(fault::busy("it took too long over one order")));
                } else {
                    work.next = Some((*call, due));
                }
            }
            Err(Halt::Fail(error)) => self.finish(now, Err(error)),
            Ok(outcome) => self.finish(now, Ok(outcome)),
        }
    }

    fn finish(&mut self, now: Tick, outcome: Result<Outcome, PowerError>) {
        let Some(work) = self.work.take() else { return };
        let secrets = Secrets::of(&self.target, self.token.as_ref().map(|it| &it.token));
        let outcome = outcome.map_err(|error| secrets.hidden_in(error));
        if outcome.is_err() {
            // The BMC may be another one now.
            self.system = None;
        }
        if work.task.ends_session() {
            self.token = None;
        }
        match (work.task, outcome) {
            (Task::Order(_), Ok(Outcome::Answer(answer))) => {
                self.answers.push_back((work.id, Ok(answer)));
            }
            (Task::Order(_), Err(error)) => self.answers.push_back((work.id, Err(error))),
            (Task::Errand(_), Ok(Outcome::Report(report))) => {
                self.reports.push_back((work.id, Ok(report)));
            }
            (Task::Errand(_), Err(error)) => self.reports.push_back((work.id, Err(error))),
            // A task's script gives its own kind of outcome.
            (Task::Order(_), Ok(Outcome::Report(_)))
            | (Task::Errand(_), Ok(Outcome::Answer(_))) => {}
        }
        self.begin(now);
    }

    fn heard(&mut self, now: Tick, answer: Result<Answer, Trouble>) {
        let Some(work) = &mut self.work else { return };
        let gone = matches!(&answer, Ok(answer) if answer.status == 401);
        if gone && self.token.take().is_some() && !work.replaced {
            // It was refused before anything was done, so it may be said again.
            work.replaced = true;
            return;
        }
        work.next = None;
        let secrets = Secrets::of(&self.target, self.token.as_ref().map(|it| &it.token));
        let heard = answer.and_then(|answer| {
            work.bytes = work.bytes.saturating_add(answer.body.len());
            read(answer, &secrets)
        });
        work.answers.push(heard);
        self.advance(now);
    }

    fn logged_in(&mut self, now: Tick, answer: Result<Answer, Trouble>) {
        let Some(work) = &mut self.work else { return };
        let last = work.logins >= LOGINS_MAX;
        let mut again = |wait_ms| {
            if let Some((_, due)) = &mut work.next {
                *due = now.after_ms(wait_ms);
            }
        };
        let mut answer = match answer {
            Ok(answer) => answer,
            Err(Trouble::Unreachable { .. } | Trouble::Lost { .. }) if !last => {
                return again(LOGIN_AGAIN_MS);
            }
            Err(trouble) => return self.finish(now, Err(fault::trouble(&trouble))),
        };
        let plain = |token: &Hidden| {
            let text = token.reveal();
            !text.is_empty()
                && text.len() <= TOKEN_BYTES_MAX
                && text.bytes().all(|byte| byte.is_ascii_graphic())
        };
        let token = answer.token.take().filter(plain);
        let secrets = Secrets::of(&self.target, None);
        let reply = match read(answer, &secrets) {
            Ok(reply) => reply,
            Err(trouble) => return self.finish(now, Err(fault::trouble(&trouble))),
        };
        let unauthorised = || fault::has_message(&reply, "Unauthorized");
        match (reply.status, token) {
            (200..300, Some(token)) => {
                let id = reply.body.as_ref().and_then(link::id);
                let place = reply.location.as_deref().or(id);
                let path = place.and_then(|place| link::path(place, &self.target.address));
                self.token = Some(Token { token, path });
            }
            (429 | 503, _) if !last => {
                let asked = reply
                    .retry_after_s
                    .map(|seconds| seconds.saturating_mul(1000));
                again(asked.unwrap_or(LOGIN_AGAIN_MS).min(LOGIN_PAUSE_MS_MAX));
            }
            (429 | 503, _) => self.finish(now, Err(fault::refused(&reply))),
            (401 | 403, _) => self.finish(now, Err(fault::login("at its session service"))),
            (400, _) if unauthorised() => {
                self.finish(now, Err(fault::login("at its session service")));
            }
            // It has no sessions, or none left.
            _ if self.target.auth == Auth::Auto => self.basic = true,
            (200..300, None) => self.finish(now, Err(fault::nonsense("a session without a token"))),
            (404 | 405 | 501, _) => self.finish(now, Err(fault::no_sessions(reply.status))),
            _ if fault::has_message(&reply, "SessionLimitExceeded") => {
                self.finish(now, Err(PowerError::NoFreeSession));
            }
            _ => self.finish(now, Err(fault::refused(&reply))),
        }
    }
}

/// Reads what came. No JSON is no failure by itself: many refusals come as HTML.
fn read(answer: Answer, secrets: &Secrets) -> Result<Reply, Trouble> {
    if answer.body.len() > BODY_BYTES_MAX {
        return Err(Trouble::TooLong);
    }
    let body = if answer.body.iter().all(u8::is_ascii_whitespace) {
        Some(Value::Null)
    } else {
        serde_json::from_slice(&answer.body).ok()
    };
    let body = body.map(|mut body| {
        // Only refusals are quoted; elsewhere a word that happens to be the password
        // must keep its meaning.
        if answer.status >= 400 {
            secrets.blot_all(&mut body);
        }
        body
    });
    Ok(Reply {
        status: answer.status,
        location: answer.location,
        etag: answer.etag,
        retry_after_s: answer.retry_after_s,
        body,
    })
}
