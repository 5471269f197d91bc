//! The appliance's end: one session with one BMC, one order at a time.
//!
//! It decides when to log in, when to say something again and when to give up.
//! A request that goes unanswered is said again with the same request number
//! (so that the BMC can know it) under a new session number (old ones fall out
//! of its window). Datagrams that are not the awaited answer change nothing.
//! The session is kept between orders, and a lost one is replaced once per order.

mod login;
mod script;
mod talk;
mod target;

use std::collections::VecDeque;

use trivet_model::{Entropy, PowerAnswer, PowerError, PowerOrder, Tick};

use crate::channel::Line;
use crate::command::{Request, app, completion};
use crate::errand::{Errand, Report};
use crate::suite::Suite;
use crate::wire::message::{Message, SEQUENCE_MASK};
use crate::wire::packet::Packet;

use login::{Heard, Login, Silence};
use talk::{Answer, Next, Talk, told_apart};
pub use target::{Pace, Target};

/// Most orders and errands that wait, are under way or have answers nobody fetched. Ours.
pub const ORDERS_WAITING_MAX: usize = 16;
/// Most datagrams that wait to be sent; the oldest go first. Ours: one step
/// makes at most three.
const OUTBOX_MAX: usize = 8;
/// Logins begun again after a refusal, per order. Ours: one, against a damaged
/// or forged refusal; more could lock the account.
const REFUSALS_MAX: u32 = 1;
/// Sessions replaced because the BMC fell silent, per order. Ours.
const LOSSES_MAX: u32 = 1;
/// Tries in a session that an earlier order left, before it counts as lost. Ours.
const KEPT_TRIES_MAX: u32 = 3;
/// Datagrams with one request that changes power. Ours: a BMC that is busy with the change may
/// carry out each of them, and the caller polls the power state anyway.
const SWITCH_TRIES_MAX: u32 = 2;
/// How long a session may rest before we take it for gone. BMCs end sessions
/// after 60 s without traffic, give or take three (section 6.12.15).
const REST_MS_MAX: u64 = 50_000;
/// How long an errand may take in all. Ours: an event log read record by record
/// from a slow BMC takes minutes.
const ERRAND_MS_MAX: u64 = 300_000;

enum Link {
    /// No session. With work at hand, a login begins when the wait is over.
    Down,
    Login(Login),
    Up(Line),
}

/// The repetition of what was last said.
#[derive(Clone, Copy)]
struct Wait {
    due: Tick,
    next_ms: u64,
    tries: u32,
}

/// The order or errand under way.
struct Work {
    id: u64,
    talk: Talk,
    request: Request,
    started: Tick,
    /// When the BMC last said something that led on. An order has its time from
    /// the start, each request of an errand from here.
    moved: Tick,
    refusals: u32,
    losses: u32,
    /// Whether the session was there before this order.
    kept: bool,
    /// What went wrong last, should time run out.
    trouble: Option<PowerError>,
}

/// What an answer in the session is awaited to.
struct Asked {
    message: Message,
    /// Set Session Privilege Level, without which everybody is a mere user.
    raising: bool,
}

/// The appliance's end of a session with one BMC.
pub struct Session {
    target: Target,
    pace: Pace,
    link: Link,
    /// The suite this login uses, and the one that worked last.
    suite: Suite,
    proven: Option<Suite>,
    asked: Option<Asked>,
    wait: Option<Wait>,
    work: Option<Work>,
    waiting: VecDeque<(u64, Talk, Request)>,
    outbox: VecDeque<Vec<u8>>,
    answers: VecDeque<(u64, Result<PowerAnswer, PowerError>)>,
    reports: VecDeque<(u64, Result<Report, PowerError>)>,
    request_number: u8,
    last_heard: Tick,
    /// No order begins before.
    rests_until: Tick,
    closing: bool,
}

impl Session {
    /// A session that does nothing until its first order.
    pub fn new(target: Target, pace: Pace) -> Self {
        Self {
            suite: Suite::Sha256,
            proven: None,
            target,
            pace,
            link: Link::Down,
            asked: None,
            wait: None,
            work: None,
            waiting: VecDeque::new(),
            outbox: VecDeque::new(),
            answers: VecDeque::new(),
            reports: VecDeque::new(),
            request_number: 0,
            last_heard: Tick::default(),
            rests_until: Tick::default(),
            closing: false,
        }
    }

    /// Takes an order; its answer comes out of [`Session::answer`] under `id`.
    pub fn order(
        &mut self,
        now: Tick,
        id: u64,
        order: PowerOrder,
        entropy: &mut dyn Entropy,
    ) -> Result<(), PowerError> {
        let (talk, request) = Talk::order(order);
        self.take(now, id, talk, request, entropy)
    }

    /// Takes an errand; its report comes out of [`Session::report`] under `id`.
    pub fn errand(
        &mut self,
        now: Tick,
        id: u64,
        errand: Errand,
        entropy: &mut dyn Entropy,
    ) -> Result<(), PowerError> {
        let (talk, request) = Talk::errand(errand)?;
        self.take(now, id, talk, request, entropy)
    }

    fn take(
        &mut self,
        now: Tick,
        id: u64,
        talk: Talk,
        request: Request,
        entropy: &mut dyn Entropy,
    ) -> Result<(), PowerError> {
        if let Some(missing) = self.target.lacking() {
            return Err(PowerError::NotConfigured { missing });
        }
        let done = self.answers.len() + self.reports.len();
        let held = self.waiting.len() + usize::from(self.work.is_some()) + done;
        if held >= ORDERS_WAITING_MAX {
            return Err(PowerError::Busy);
        }
        self.waiting.push_back((id, talk, request));
        self.begin(now, entropy);
        Ok(())
    }

    /// Ends the session once all orders are done. The BMC is told, without
    /// waiting for its answer. A later order logs in anew.
    pub fn close(&mut self, entropy: &mut dyn Entropy) {
        self.closing = true;
        self.close_when_idle(entropy);
    }

    /// Ends everything at once: what was asked is not answered any more, and the BMC is
    /// told if there is a session. What is still to be sent is given.
    pub fn hang_up(&mut self, entropy: &mut dyn Entropy) -> Vec<Vec<u8>> {
        self.work = None;
        self.waiting.clear();
        self.outbox.clear();
        self.leave(entropy);
        self.outbox.drain(..).collect()
    }

    /// Takes a datagram from the BMC's address, whoever really sent it.
    pub fn datagram(&mut self, now: Tick, bytes: &[u8], entropy: &mut dyn Entropy) {
        let Some(packet) = Packet::parse(bytes) else {
            return;
        };
        match &mut self.link {
            Link::Down => {}
            Link::Login(login) => {
                let heard = login.hear(&self.target, &packet);
                self.heard_login(now, heard, entropy);
            }
            Link::Up(line) => {
                let text = line.open(&packet);
                if let Some(message) = text.as_deref().and_then(Message::parse) {
                    self.last_heard = now;
                    self.heard_message(now, &message, entropy);
                }
            }
        }
    }

    /// Does what is due.
    pub fn tick(&mut self, now: Tick, entropy: &mut dyn Entropy) {
        let Some(work) = &self.work else {
            return self.begin(now, entropy);
        };
        if now >= self.limit(work) {
            self.give_up(now, entropy);
        } else if let Some(wait) = self.wait.filter(|wait| now >= wait.due) {
            self.overdue(now, wait, entropy);
        }
    }

    /// When [`Session::tick`] has something to do next, if ever.
    pub fn deadline(&self) -> Option<Tick> {
        let Some(work) = self.work.as_ref() else {
            return (!self.waiting.is_empty()).then_some(self.rests_until);
        };
        let limit = self.limit(work);
        Some(self.wait.map_or(limit, |wait| wait.due.min(limit)))
    }

    fn limit(&self, work: &Work) -> Tick {
        let order = work.moved.after_ms(self.pace.order_ms_max);
        order.min(
            work.started
                .after_ms(ERRAND_MS_MAX.max(self.pace.order_ms_max)),
        )
    }

    /// The next datagram to send.
    pub fn transmit(&mut self) -> Option<Vec<u8>> {
        self.outbox.pop_front()
    }

    /// The next order that is done, and how it ended.
    pub fn answer(&mut self) -> Option<(u64, Result<PowerAnswer, PowerError>)> {
        self.answers.pop_front()
    }

    /// The next errand that is done, and what it brought.
    pub fn report(&mut self) -> Option<(u64, Result<Report, PowerError>)> {
        self.reports.pop_front()
    }

    /// The wait for an answer is over.
    fn overdue(&mut self, now: Tick, wait: Wait, entropy: &mut dyn Entropy) {
        let kept = self.work.as_ref().is_some_and(|work| work.kept);
        let switches = self.switches();
        let mut tries_max = self.pace.tries_max;
        match &mut self.link {
            Link::Down => return self.log_in(now, entropy),
            Link::Login(login) => {
                if let Some(heard) = login.believe_refusal() {
                    return self.heard_login(now, heard, entropy);
                }
            }
            Link::Up(_) if self.asked.is_none() => return self.ask(now, entropy),
            Link::Up(_) if switches => tries_max = tries_max.min(SWITCH_TRIES_MAX),
            Link::Up(_) if kept => tries_max = tries_max.min(KEPT_TRIES_MAX),
            Link::Up(_) => {}
        }
        if wait.tries < tries_max {
            self.say(now, wait.next_ms, wait.tries + 1, entropy);
        } else {
            self.fell_silent(now, entropy);
        }
    }

    fn post(&mut self, bytes: Vec<u8>) {
        if self.outbox.len() >= OUTBOX_MAX {
            self.outbox.pop_front();
        }
        self.outbox.push_back(bytes);
    }

    /// Takes up the next order if none is under way.
    fn begin(&mut self, now: Tick, entropy: &mut dyn Entropy) {
        let rests = now < self.rests_until && !self.waiting.is_empty();
        if self.work.is_some() || rests {
            return;
        }
        let Some((id, talk, request)) = self.waiting.pop_front() else {
            self.close_when_idle(entropy);
            return;
        };
        if now.since_ms(self.last_heard) > REST_MS_MAX {
            self.leave(entropy);
        }
        if talk.counts() {
            // In a session that the BMC may have forgotten nobody could tell whether
            // such an order was heard.
            self.leave(entropy);
        }
        let kept = matches!(self.link, Link::Up(_));
        self.work = Some(Work {
            id,
            talk,
            request,
            started: now,
            moved: now,
            refusals: 0,
            losses: 0,
            kept,
            trouble: None,
        });
        if kept && self.switches() {
            // Whether the BMC still knows the session is found out by what may be said twice.
            self.raise(now, entropy);
        } else if kept {
            self.ask(now, entropy);
        } else {
            self.suite = self.target.suite.or(self.proven).unwrap_or(Suite::Sha256);
            self.log_in(now, entropy);
        }
    }

    fn finish(&mut self, now: Tick, result: Result<Answer, PowerError>, entropy: &mut dyn Entropy) {
        self.wait = None;
        self.asked = None;
        self.rests_until = now.after_ms(self.pace.rest_ms);
        if let Some(work) = self.work.take() {
            if work.talk.ends_session() {
                self.leave(entropy);
            }
            let id = work.id;
            match result.map_err(told_apart) {
                Ok(Answer::Power(answer)) => self.answers.push_back((id, Ok(answer))),
                Ok(Answer::Errand(report)) => self.reports.push_back((id, Ok(report))),
                Err(error) if work.talk.is_errand() => self.reports.push_back((id, Err(error))),
                Err(error) => self.answers.push_back((id, Err(error))),
            }
        }
        self.begin(now, entropy);
    }

    fn log_in(&mut self, now: Tick, entropy: &mut dyn Entropy) {
        let login = Login::new(&self.target, self.suite, entropy);
        self.enter(now, login, entropy);
    }

    fn enter(&mut self, now: Tick, login: Login, entropy: &mut dyn Entropy) {
        self.asked = None;
        self.link = Link::Login(login);
        self.say(now, self.pace.first_ms, 1, entropy);
    }

    /// Puts the order's present request to the BMC, in the session that stands.
    fn ask(&mut self, now: Tick, entropy: &mut dyn Entropy) {
        if let Some(work) = &self.work {
            let request = work.request.clone();
            self.ask_for(now, &request, false, entropy);
        }
    }

    fn raise(&mut self, now: Tick, entropy: &mut dyn Entropy) {
        let level = self.target.privilege.level();
        let request = Request::app(app::SET_SESSION_PRIVILEGE, &[level]);
        self.ask_for(now, &request, true, entropy);
    }

    fn ask_for(&mut self, now: Tick, request: &Request, raising: bool, entropy: &mut dyn Entropy) {
        let message = self.number(request);
        self.asked = Some(Asked { message, raising });
        let wait_ms = if self.switches() {
            self.pace.wait_ms_max
        } else {
            self.pace.first_ms
        };
        self.say(now, wait_ms, 1, entropy);
    }

    /// Whether a request that changes the machine's power awaits its answer.
    fn switches(&self) -> bool {
        let raising = self.asked.as_ref().is_some_and(|asked| asked.raising);
        let work = self.work.as_ref();
        !raising && work.is_some_and(|work| work.talk.switches())
    }

    fn number(&mut self, request: &Request) -> Message {
        self.request_number = self.request_number.wrapping_add(1) & SEQUENCE_MASK;
        Message::request(
            request.netfn,
            self.request_number,
            request.command,
            &request.data,
        )
    }

    /// Says, perhaps again, what awaits an answer.
    fn say(&mut self, now: Tick, wait_ms: u64, tries: u32, entropy: &mut dyn Entropy) {
        let bytes = match (&mut self.link, &self.asked) {
            (Link::Login(login), _) => Some(login.message(&self.target)),
            (Link::Up(line), Some(asked)) => line.seal(&asked.message.emit(), entropy),
            _ => return,
        };
        // What is too long for IPMI 1.5 is never heard, and so ends as silence.
        if let Some(bytes) = bytes {
            self.post(bytes);
        }
        let next_ms = wait_ms.saturating_mul(2).min(self.pace.wait_ms_max.max(1));
        self.wait = Some(Wait {
            due: now.after_ms(wait_ms.max(1)),
            next_ms,
            tries,
        });
    }

    fn heard_login(&mut self, now: Tick, heard: Heard, entropy: &mut dyn Entropy) {
        match heard {
            Heard::Nothing => {}
            Heard::Next => self.say(now, self.pace.first_ms, 1, entropy),
            Heard::Done(line) => {
                self.link = Link::Up(line);
                self.proven = Some(self.suite);
                self.last_heard = now;
                self.raise(now, entropy);
            }
            Heard::Algorithms => self.other_suite(now, entropy),
            Heard::Refused { error, parting } => {
                if let Some(bytes) = parting {
                    self.post(bytes);
                }
                self.refused(now, error, entropy);
            }
        }
    }

    /// Suite 3 comes after suite 17; after that, or when one is forced, nothing.
    fn other_suite(&mut self, now: Tick, entropy: &mut dyn Entropy) {
        if self.target.suite.is_none() && self.suite == Suite::Sha256 {
            self.suite = Suite::Sha1;
            let login = Login::open(&self.target, self.suite, entropy);
            self.enter(now, login, entropy);
        } else {
            self.proven = None;
            self.suite = self.target.suite.unwrap_or(Suite::Sha256);
            self.refused(now, PowerError::NoSuite, entropy);
        }
    }

    /// Begins again after a pause, or lets the order fail.
    fn refused(&mut self, now: Tick, error: PowerError, entropy: &mut dyn Entropy) {
        self.link = Link::Down;
        self.asked = None;
        match &mut self.work {
            Some(work) if work.refusals < REFUSALS_MAX => {
                work.refusals += 1;
                work.trouble = Some(error);
                let due = now.after_ms(self.pace.first_ms.max(1));
                self.wait = Some(Wait {
                    due,
                    next_ms: self.pace.first_ms,
                    tries: 0,
                });
            }
            _ => self.finish(now, Err(error), entropy),
        }
    }

    /// The last try of a request went unanswered.
    fn fell_silent(&mut self, now: Tick, entropy: &mut dyn Entropy) {
        let silence = match &self.link {
            Link::Login(login) => Some(login.silence()),
            _ => None,
        };
        let silent = self.silent(now);
        let switches = self.switches();
        match silence {
            Some(Silence::Nobody) => self.give_up(now, entropy),
            Some(Silence::Means(error)) => self.refused(now, error, entropy),
            Some(Silence::Algorithms) if self.target.suite.is_none() => {
                self.other_suite(now, entropy);
            }
            Some(_) => self.refused(now, silent, entropy),
            None => match &mut self.work {
                // One that says it is busy is not lost.
                Some(work)
                    if work.losses < LOSSES_MAX
                        && work.trouble.is_none()
                        && !work.talk.counts()
                        && !switches =>
                {
                    work.losses += 1;
                    work.kept = false;
                    self.leave(entropy);
                    self.log_in(now, entropy);
                }
                _ => self.give_up(now, entropy),
            },
        }
    }

    fn silent(&self, now: Tick) -> PowerError {
        let waited_ms = self
            .work
            .as_ref()
            .map_or(0, |work| now.since_ms(work.moved));
        PowerError::Silent { waited_ms }
    }

    /// Lets the order fail, with what is known about why.
    fn give_up(&mut self, now: Tick, entropy: &mut dyn Entropy) {
        let silent = self.silent(now);
        let said = self.asked.as_ref().is_some_and(|asked| !asked.raising);
        let trouble = self.work.as_mut().and_then(|work| work.trouble.take());
        let work = self.work.as_ref().filter(|_| said && trouble.is_none());
        let result = match work.and_then(|work| work.talk.meant_by_silence()) {
            Some(answer) => Ok(answer),
            None => Err(trouble.unwrap_or(silent)),
        };
        self.leave(entropy);
        self.finish(now, result, entropy);
    }

    fn heard_message(&mut self, now: Tick, message: &Message, entropy: &mut dyn Entropy) {
        let (Some(asked), Some(work)) = (&self.asked, &mut self.work) else {
            return;
        };
        let Some((&code, data)) = message.body.split_first() else {
            return;
        };
        if !message.answers(&asked.message) {
            return;
        }
        if code == completion::NODE_BUSY {
            // It asks to be asked again, which the repetition does.
            work.trouble = Some(PowerError::Refused { code });
            return;
        }
        work.trouble = None;
        if asked.raising {
            if code == completion::OK {
                self.ask(now, entropy);
            } else {
                self.leave(entropy);
                self.finish(now, Err(PowerError::Privilege), entropy);
            }
            return;
        }
        if work.talk.is_errand() {
            work.moved = now;
            // A session replaced long ago says nothing about the one at hand.
            work.losses = 0;
        }
        match work.talk.hear(code, data) {
            Next::Ask(request) => {
                work.request = request;
                self.ask(now, entropy);
            }
            Next::Later { request, wait_ms } => {
                work.request = request;
                self.asked = None;
                self.wait = Some(Wait {
                    due: now.after_ms(wait_ms.max(1)),
                    next_ms: self.pace.first_ms,
                    tries: 0,
                });
            }
            Next::Done(result) => self.finish(now, result, entropy),
        }
    }

    fn close_when_idle(&mut self, entropy: &mut dyn Entropy) {
        if self.closing && self.work.is_none() && self.waiting.is_empty() {
            self.closing = false;
            self.leave(entropy);
        }
    }

    /// Drops the session, if there is one, with one word to the BMC so that its
    /// slot becomes free.
    fn leave(&mut self, entropy: &mut dyn Entropy) {
        self.asked = None;
        self.wait = None;
        if let Link::Up(mut line) = core::mem::replace(&mut self.link, Link::Down) {
            let request = Request::app(app::CLOSE_SESSION, &line.peer_id().to_le_bytes());
            let message = self.number(&request);
            if let Some(bytes) = line.seal(&message.emit(), entropy) {
                self.post(bytes);
            }
        }
    }
}
