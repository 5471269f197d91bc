//! The client: one session with one BMC, one order at a time.
//!
//! It decides when to log in, when to repeat a request and when to give up. A request without a
//! response is sent again with the same request number (so that the BMC can recognise it) and a new
//! session sequence number (old ones leave its window). Datagrams that are not the expected
//! response change nothing. The session is kept between orders, and a lost one is replaced once per
//! order.

mod failure;
mod job_script;
mod login;
mod power_script;
mod target;

use std::collections::VecDeque;

use trivet_model::{Entropy, PowerAnswer, PowerError, PowerOrder, Tick, UndeliveredReason};

use crate::channel::IpmiChannel;
use crate::command::{IpmiRequest, app, completion};
use crate::operation::{IpmiOperation, IpmiReply};
use crate::suite::IpmiCipherSuite;
use crate::wire::message::{IpmiMessage, SEQUENCE_MASK};
use crate::wire::packet::RmcpPacket;

use job_script::{IpmiJobAnswer, IpmiJobNext, IpmiJobScript, classify_completion_code};
use login::{IpmiLogin, IpmiLoginProgress, IpmiLoginTimeout};
pub use target::{IpmiTarget, IpmiTiming};

/// Most orders and operations that are queued, in progress or have answers not yet fetched. Ours.
pub const ORDERS_WAITING_MAX: usize = 16;
/// Most datagrams that wait to be sent; the oldest are dropped. Ours: one step makes at most three.
const OUTBOX_MAX: usize = 8;
/// Most logins repeated after a refusal, per order. Ours: one, against a damaged or forged refusal;
/// more could lock the account.
const REFUSALS_MAX: u32 = 1;
/// Most sessions replaced because the BMC did not respond, per order. Ours.
const LOSSES_MAX: u32 = 1;
/// Most attempts in a session of an earlier order, before it counts as lost. Ours.
const REUSED_SESSION_TRIES_MAX: u32 = 3;
/// Most datagrams with one request that changes power. Ours: a BMC that is busy with the change may
/// execute each of them, and the caller polls the power state anyway.
const SWITCH_TRIES_MAX: u32 = 2;
/// Longest idle time of a session before it counts as lost, in milliseconds. BMCs end sessions
/// after 60 s without traffic, plus or minus three (section 6.12.15).
const SESSION_IDLE_MS_MAX: u64 = 50_000;
/// Longest duration of an operation, in milliseconds. Ours: an event log read record by record from
/// a slow BMC takes minutes.
const OPERATION_MS_MAX: u64 = 300_000;

enum IpmiLinkState {
    /// No session. If an order is queued, a login begins when the wait is over.
    Down,
    Login(IpmiLogin),
    Up(IpmiChannel),
}

/// The retry timer of the last request.
#[derive(Clone, Copy)]
struct IpmiRetryTimer {
    due: Tick,
    next_ms: u64,
    tries: u32,
}

/// The order or operation in progress.
struct IpmiJob {
    id: u64,
    script: IpmiJobScript,
    request: IpmiRequest,
    started: Tick,
    /// When the last useful response was received. The time limit of an order counts from its
    /// start, that of an operation's request from here.
    last_progress: Tick,
    refusals: u32,
    losses: u32,
    /// Whether the session existed before this order.
    reused_session: bool,
    /// The last error, for the case of a timeout.
    last_error: Option<PowerError>,
}

/// The request whose response is expected.
struct IpmiPendingRequest {
    message: IpmiMessage,
    /// Set Session Privilege Level; without it a session has only the level User.
    raises_privilege: bool,
}

/// The client of one BMC.
pub struct IpmiSession {
    target: IpmiTarget,
    timing: IpmiTiming,
    link: IpmiLinkState,
    /// The suite of this login, and the one that worked last.
    suite: IpmiCipherSuite,
    proven_suite: Option<IpmiCipherSuite>,
    pending_request: Option<IpmiPendingRequest>,
    retry_timer: Option<IpmiRetryTimer>,
    job: Option<IpmiJob>,
    waiting: VecDeque<(u64, IpmiJobScript, IpmiRequest)>,
    outbox: VecDeque<Vec<u8>>,
    answers: VecDeque<(u64, Result<PowerAnswer, PowerError>)>,
    replies: VecDeque<(u64, Result<IpmiReply, PowerError>)>,
    request_number: u8,
    last_received: Tick,
    /// What the network reported since the last packet of the BMC. It can be forged, so it only
    /// explains a missing response.
    undelivered: Option<UndeliveredReason>,
    /// No order starts before this time.
    next_job_at: Tick,
    closing: bool,
}

impl IpmiSession {
    /// A client that sends nothing until its first order.
    pub fn new(target: IpmiTarget, timing: IpmiTiming) -> Self {
        Self {
            suite: IpmiCipherSuite::Sha256,
            proven_suite: None,
            target,
            timing,
            link: IpmiLinkState::Down,
            pending_request: None,
            retry_timer: None,
            job: None,
            waiting: VecDeque::new(),
            outbox: VecDeque::new(),
            answers: VecDeque::new(),
            replies: VecDeque::new(),
            request_number: 0,
            last_received: Tick::default(),
            undelivered: None,
            next_job_at: Tick::default(),
            closing: false,
        }
    }

    /// Queues an order; [`IpmiSession::answer`] returns its answer with this `id`.
    pub fn order(
        &mut self,
        now: Tick,
        id: u64,
        order: PowerOrder,
        entropy: &mut dyn Entropy,
    ) -> Result<(), PowerError> {
        let (script, request) = IpmiJobScript::order(order);
        self.enqueue_job(now, id, script, request, entropy)
    }

    /// Queues an operation; [`IpmiSession::reply`] returns its reply with this `id`.
    pub fn operation(
        &mut self,
        now: Tick,
        id: u64,
        operation: IpmiOperation,
        entropy: &mut dyn Entropy,
    ) -> Result<(), PowerError> {
        let (script, request) = IpmiJobScript::operation(operation)?;
        self.enqueue_job(now, id, script, request, entropy)
    }

    fn enqueue_job(
        &mut self,
        now: Tick,
        id: u64,
        script: IpmiJobScript,
        request: IpmiRequest,
        entropy: &mut dyn Entropy,
    ) -> Result<(), PowerError> {
        if let Some(missing) = self.target.missing_setting() {
            return Err(PowerError::NotConfigured { missing });
        }
        let done = self.answers.len() + self.replies.len();
        let held = self.waiting.len() + usize::from(self.job.is_some()) + done;
        if held >= ORDERS_WAITING_MAX {
            return Err(PowerError::QueueFull);
        }
        self.waiting.push_back((id, script, request));
        self.start_next_job(now, entropy);
        Ok(())
    }

    /// Ends the session once all orders are done. Close Session is sent without waiting for the
    /// response. A later order logs in again.
    pub fn close(&mut self, entropy: &mut dyn Entropy) {
        self.closing = true;
        self.close_when_idle(entropy);
    }

    /// Ends everything immediately: queued orders get no answer, and Close Session is sent if there
    /// is a session. Returns the datagrams that are still to be sent.
    pub fn abort(&mut self, entropy: &mut dyn Entropy) -> Vec<Vec<u8>> {
        self.job = None;
        self.waiting.clear();
        self.outbox.clear();
        self.end_session(entropy);
        self.outbox.drain(..).collect()
    }

    /// Processes a datagram from the BMC's address; it can be forged.
    pub fn datagram(&mut self, now: Tick, bytes: &[u8], entropy: &mut dyn Entropy) {
        let Some(packet) = RmcpPacket::parse(bytes) else {
            return;
        };
        self.undelivered = None;
        match &mut self.link {
            IpmiLinkState::Down => {}
            IpmiLinkState::Login(login) => {
                let progress = login.handle_packet(&self.target, &packet);
                self.handle_login_progress(now, progress, entropy);
            }
            IpmiLinkState::Up(line) => {
                let text = line.open(&packet);
                if let Some(message) = text.as_deref().and_then(IpmiMessage::parse) {
                    self.last_received = now;
                    self.handle_message(now, &message, entropy);
                }
            }
        }
    }

    /// The network reports that a datagram did not get to the BMC.
    pub fn undelivered(&mut self, reason: UndeliveredReason) {
        self.undelivered = Some(reason);
    }

    /// Executes what is due.
    pub fn tick(&mut self, now: Tick, entropy: &mut dyn Entropy) {
        let Some(work) = &self.job else {
            return self.start_next_job(now, entropy);
        };
        if now >= self.limit(work) {
            self.give_up(now, entropy);
        } else if let Some(wait) = self.retry_timer.filter(|wait| now >= wait.due) {
            self.handle_retry_timer(now, wait, entropy);
        }
    }

    /// When [`IpmiSession::tick`] has something to do next, if ever.
    pub fn deadline(&self) -> Option<Tick> {
        let Some(work) = self.job.as_ref() else {
            return (!self.waiting.is_empty()).then_some(self.next_job_at);
        };
        let limit = self.limit(work);
        Some(self.retry_timer.map_or(limit, |wait| wait.due.min(limit)))
    }

    fn limit(&self, work: &IpmiJob) -> Tick {
        let order = work.last_progress.after_ms(self.timing.order_ms_max);
        order.min(
            work.started
                .after_ms(OPERATION_MS_MAX.max(self.timing.order_ms_max)),
        )
    }

    /// The next datagram to send.
    pub fn transmit(&mut self) -> Option<Vec<u8>> {
        self.outbox.pop_front()
    }

    /// The next completed order, and its result.
    pub fn answer(&mut self) -> Option<(u64, Result<PowerAnswer, PowerError>)> {
        self.answers.pop_front()
    }

    /// The next completed operation, and its result.
    pub fn reply(&mut self) -> Option<(u64, Result<IpmiReply, PowerError>)> {
        self.replies.pop_front()
    }

    /// The retry timer has expired.
    fn handle_retry_timer(&mut self, now: Tick, wait: IpmiRetryTimer, entropy: &mut dyn Entropy) {
        let reused = self.job.as_ref().is_some_and(|work| work.reused_session);
        let switches = self.switches();
        let mut tries_max = self.timing.tries_max;
        match &mut self.link {
            IpmiLinkState::Down => return self.log_in(now, entropy),
            IpmiLinkState::Login(login) => {
                if let Some(progress) = login.take_unconfirmed_refusal() {
                    return self.handle_login_progress(now, progress, entropy);
                }
            }
            IpmiLinkState::Up(_) if self.pending_request.is_none() => {
                return self.send_request(now, entropy);
            }
            IpmiLinkState::Up(_) if switches => tries_max = tries_max.min(SWITCH_TRIES_MAX),
            IpmiLinkState::Up(_) if reused => tries_max = tries_max.min(REUSED_SESSION_TRIES_MAX),
            IpmiLinkState::Up(_) => {}
        }
        if wait.tries < tries_max {
            self.transmit_pending(now, wait.next_ms, wait.tries + 1, entropy);
        } else {
            self.handle_no_response(now, entropy);
        }
    }

    fn enqueue_datagram(&mut self, bytes: Vec<u8>) {
        if self.outbox.len() >= OUTBOX_MAX {
            self.outbox.pop_front();
        }
        self.outbox.push_back(bytes);
    }

    /// Starts the next order if none is in progress.
    fn start_next_job(&mut self, now: Tick, entropy: &mut dyn Entropy) {
        let rests = now < self.next_job_at && !self.waiting.is_empty();
        if self.job.is_some() || rests {
            return;
        }
        let Some((id, script, request)) = self.waiting.pop_front() else {
            self.close_when_idle(entropy);
            return;
        };
        if now.since_ms(self.last_received) > SESSION_IDLE_MS_MAX {
            self.end_session(entropy);
        }
        if script.at_most_once() {
            // In a session that the BMC may have dropped, it would be unknown whether the BMC
            // received such an order.
            self.end_session(entropy);
        }
        let reused = matches!(self.link, IpmiLinkState::Up(_));
        self.undelivered = None;
        self.job = Some(IpmiJob {
            id,
            script,
            request,
            started: now,
            last_progress: now,
            refusals: 0,
            losses: 0,
            reused_session: reused,
            last_error: None,
        });
        if reused && self.switches() {
            // A repeatable request checks first whether the BMC still has the session.
            self.raise_privilege(now, entropy);
        } else if reused {
            self.send_request(now, entropy);
        } else {
            self.suite = self
                .target
                .suite
                .or(self.proven_suite)
                .unwrap_or(IpmiCipherSuite::Sha256);
            self.log_in(now, entropy);
        }
    }

    fn finish(
        &mut self,
        now: Tick,
        result: Result<IpmiJobAnswer, PowerError>,
        entropy: &mut dyn Entropy,
    ) {
        self.retry_timer = None;
        self.pending_request = None;
        self.next_job_at = now.after_ms(self.timing.order_gap_ms);
        if let Some(work) = self.job.take() {
            if work.script.ends_session() {
                self.end_session(entropy);
            }
            let id = work.id;
            match result.map_err(classify_completion_code) {
                Ok(IpmiJobAnswer::Power(answer)) => self.answers.push_back((id, Ok(answer))),
                Ok(IpmiJobAnswer::Operation(report)) => self.replies.push_back((id, Ok(report))),
                Err(error) if work.script.is_operation() => {
                    self.replies.push_back((id, Err(error)));
                }
                Err(error) => self.answers.push_back((id, Err(error))),
            }
        }
        self.start_next_job(now, entropy);
    }

    fn log_in(&mut self, now: Tick, entropy: &mut dyn Entropy) {
        let login = IpmiLogin::new(&self.target, self.suite, entropy);
        self.start_login(now, login, entropy);
    }

    fn start_login(&mut self, now: Tick, login: IpmiLogin, entropy: &mut dyn Entropy) {
        self.pending_request = None;
        self.link = IpmiLinkState::Login(login);
        self.transmit_pending(now, self.timing.first_retry_ms, 1, entropy);
    }

    /// Sends the order's present request in the established session.
    fn send_request(&mut self, now: Tick, entropy: &mut dyn Entropy) {
        if let Some(work) = &self.job {
            let request = work.request.clone();
            self.send_message(now, &request, false, entropy);
        }
    }

    fn raise_privilege(&mut self, now: Tick, entropy: &mut dyn Entropy) {
        let level = self.target.privilege.level();
        let request = IpmiRequest::app(app::SET_SESSION_PRIVILEGE, &[level]);
        self.send_message(now, &request, true, entropy);
    }

    fn send_message(
        &mut self,
        now: Tick,
        request: &IpmiRequest,
        raising: bool,
        entropy: &mut dyn Entropy,
    ) {
        let message = self.number(request);
        self.pending_request = Some(IpmiPendingRequest {
            message,
            raises_privilege: raising,
        });
        let wait_ms = if self.switches() {
            self.timing.wait_ms_max
        } else {
            self.timing.first_retry_ms
        };
        self.transmit_pending(now, wait_ms, 1, entropy);
    }

    /// Whether a request that changes the machine's power has no response yet.
    fn switches(&self) -> bool {
        let raising = self
            .pending_request
            .as_ref()
            .is_some_and(|requested| requested.raises_privilege);
        let work = self.job.as_ref();
        !raising && work.is_some_and(|work| work.script.changes_power())
    }

    fn number(&mut self, request: &IpmiRequest) -> IpmiMessage {
        self.request_number = self.request_number.wrapping_add(1) & SEQUENCE_MASK;
        IpmiMessage::request(
            request.netfn,
            self.request_number,
            request.command,
            &request.data,
        )
    }

    /// Sends the pending request, perhaps again.
    fn transmit_pending(&mut self, now: Tick, wait_ms: u64, tries: u32, entropy: &mut dyn Entropy) {
        let bytes = match (&mut self.link, &self.pending_request) {
            (IpmiLinkState::Login(login), _) => Some(login.message(&self.target)),
            (IpmiLinkState::Up(line), Some(requested)) => {
                line.seal(&requested.message.emit(), entropy)
            }
            _ => return,
        };
        // A message that is too long for IPMI 1.5 is not sent, and so ends in a timeout.
        if let Some(bytes) = bytes {
            self.enqueue_datagram(bytes);
        }
        let next_ms = wait_ms
            .saturating_mul(2)
            .min(self.timing.wait_ms_max.max(1));
        self.retry_timer = Some(IpmiRetryTimer {
            due: now.after_ms(wait_ms.max(1)),
            next_ms,
            tries,
        });
    }

    fn handle_message(&mut self, now: Tick, message: &IpmiMessage, entropy: &mut dyn Entropy) {
        let (Some(requested), Some(work)) = (&self.pending_request, &mut self.job) else {
            return;
        };
        let Some((&code, data)) = message.body.split_first() else {
            return;
        };
        if !message.answers(&requested.message) {
            return;
        }
        if code == completion::NODE_BUSY {
            // The BMC is busy; the retry timer repeats the request.
            work.last_error = Some(PowerError::Refused { code });
            return;
        }
        work.last_error = None;
        if requested.raises_privilege {
            if code == completion::OK {
                self.send_request(now, entropy);
            } else {
                self.end_session(entropy);
                self.finish(now, Err(PowerError::Privilege), entropy);
            }
            return;
        }
        if work.script.is_operation() {
            work.last_progress = now;
            // An earlier loss does not count against the present session.
            work.losses = 0;
        }
        match work.script.handle_response(code, data) {
            IpmiJobNext::Send(request) => {
                work.request = request;
                self.send_request(now, entropy);
            }
            IpmiJobNext::SendLater { request, wait_ms } => {
                work.request = request;
                self.pending_request = None;
                self.retry_timer = Some(IpmiRetryTimer {
                    due: now.after_ms(wait_ms.max(1)),
                    next_ms: self.timing.first_retry_ms,
                    tries: 0,
                });
            }
            IpmiJobNext::Done(result) => self.finish(now, result, entropy),
        }
    }

    fn close_when_idle(&mut self, entropy: &mut dyn Entropy) {
        if self.closing && self.job.is_none() && self.waiting.is_empty() {
            self.closing = false;
            self.end_session(entropy);
        }
    }

    /// Drops the session, if there is one, and sends one Close Session so that the BMC frees its
    /// slot.
    fn end_session(&mut self, entropy: &mut dyn Entropy) {
        self.pending_request = None;
        self.retry_timer = None;
        if let IpmiLinkState::Up(mut line) = core::mem::replace(&mut self.link, IpmiLinkState::Down)
        {
            let request = IpmiRequest::app(app::CLOSE_SESSION, &line.peer_id().to_le_bytes());
            let message = self.number(&request);
            if let Some(bytes) = line.seal(&message.emit(), entropy) {
                self.enqueue_datagram(bytes);
            }
        }
    }
}
