//! One change of a machine's power, or one reading of its power state, for a job or an
//! operator.
//!
//! A request that changes power is sent once. Then the power state is polled, first after
//! [`FIRST_POLL_MS`], later with growing pauses, until it is as wanted. Machines take from a
//! second to two minutes for that, and a BMC that receives the request again meanwhile may
//! start over. So the request is repeated only after `power_timeout_ms`, once. After two more
//! such times the BMC itself is restarted, if the settings allow it, and the request is sent a
//! last time.
//!
//! A BMC that does not answer is waited for: its restart takes minutes. All of this is in
//! memory: after a restart of the box the power state is read before any request is sent.

use trivet_model::{
    BmcFailureCause, EvidenceNote, JobKind, Node, PowerAnswer, PowerError, PowerOrder, PowerState,
    Tick,
};

use crate::context::BmcLimits;
use crate::outcome::BmcOrderOwner;

/// Pause between a request and the first poll; each later one is twice as long as the one
/// before. Ours: a good BMC is done in less.
const FIRST_POLL_MS: u64 = 100;

/// A power cycle that was not seen to switch off counts as done after this time. Ours: machines
/// are off for some seconds, and a BMC that has only accepted the request still reports on.
const CYCLE_MS: u64 = 5_000;

/// The longest pause before a request to a BMC that failed is repeated. Ours.
const RETRY_MS_MAX: u64 = 30_000;

/// How long an operator's order waits for a BMC that does not answer. Ours: an operator is
/// waiting.
const OPERATOR_WAIT_MS: u64 = 30_000;

/// The last escalation. Cold, because a warm restart may keep the error.
const BMC_RESET: PowerOrder = PowerOrder::BmcReset { warm: false };

/// A change under way; at most one for a node.
#[derive(Clone, Debug)]
pub(crate) struct PowerChange {
    /// The order of the job or the operator.
    order: PowerOrder,
    owner: BmcOrderOwner,
    /// The wanted power state; none where the BMC's acceptance is enough.
    wanted: Option<PowerState>,
    /// The request that is under way: its number, and since when.
    outstanding: Option<(u64, PowerOrder, Tick)>,
    /// When the change continues, and with which request.
    wake: Option<(Tick, PowerOrder)>,
    /// How many requests were sent, when the first and when the last.
    requests: u32,
    first: Tick,
    last: Tick,
    /// The BMC accepted one of them.
    accepted: bool,
    /// When the machine was last seen off.
    off_at: Option<Tick>,
    /// Polls since the last request.
    polls: u32,
    /// Failures in a row, since when, and the last of them.
    failures: u32,
    failing: Option<(Tick, PowerError)>,
    bmc_restarted: bool,
    /// The request is repeated as soon as the BMC answers after its restart.
    repeats_after_restart: bool,
    rules: PowerChangeRules,
}

/// Rules for carrying out an order.
#[derive(Clone, Copy, Debug)]
pub struct PowerChangeRules {
    /// How long a change may take until its request is repeated or the change has failed, in
    /// ms.
    pub timeout_ms: u64,
    /// The request may be repeated.
    pub repeats: bool,
    /// A restart of the machine may be requested again where it is unknown whether it happened.
    pub restarts_again: bool,
    /// The BMC may be restarted.
    pub resets_bmc: bool,
    /// How long a BMC that fails is waited for, in ms.
    pub bmc_wait_ms: u64,
    /// The first action.
    pub start: PowerChangeStart,
}

/// The first action of a change.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PowerChangeStart {
    /// Send the request.
    Request,
    /// Read the state first: the request may have been carried out already.
    Read,
    /// Only read the state: a request may be under way.
    OnlyPoll,
}

impl PowerChangeRules {
    /// The rules for a job.
    pub fn of_job(limits: &BmcLimits, node: &Node) -> Self {
        let verifies = node
            .job
            .as_ref()
            .is_some_and(|job| job.kind == JobKind::Verify);
        Self {
            timeout_ms: limits.power_timeout_ms,
            repeats: true,
            restarts_again: true,
            resets_bmc: limits.bmc_reset && !node.is_power_off_disabled(),
            // An error in a new record must not take minutes to show.
            bmc_wait_ms: if verifies {
                limits.power_timeout_ms.min(limits.bmc_wait_ms)
            } else {
                limits.bmc_wait_ms
            },
            start: PowerChangeStart::Request,
        }
    }

    /// The rules for an operator.
    pub fn of_operator(limits: &BmcLimits, node: &Node) -> Self {
        Self {
            timeout_ms: limits.power_timeout_ms,
            repeats: true,
            restarts_again: false,
            resets_bmc: limits.bmc_reset && !node.is_power_off_disabled(),
            bmc_wait_ms: OPERATOR_WAIT_MS,
            start: PowerChangeStart::Request,
        }
    }
}

/// The next action of a change.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum PowerChangeAction {
    /// Send this request after a pause in ms.
    After(u64, PowerOrder),
    /// Send this request now.
    Request(PowerOrder),
    /// The change has ended.
    End(Result<PowerAnswer, PowerError>),
}

impl PowerChange {
    pub(crate) fn new(
        now: Tick,
        order: PowerOrder,
        owner: BmcOrderOwner,
        rules: PowerChangeRules,
    ) -> Self {
        let wanted = match order {
            PowerOrder::On | PowerOrder::Cycle | PowerOrder::Reset => Some(PowerState::On),
            PowerOrder::Off | PowerOrder::SoftOff => Some(PowerState::Off),
            _ => None,
        };
        Self {
            order,
            owner,
            wanted,
            outstanding: None,
            wake: None,
            requests: 0,
            first: now,
            last: now,
            accepted: false,
            off_at: None,
            polls: 0,
            failures: 0,
            failing: None,
            bmc_restarted: false,
            repeats_after_restart: false,
            rules,
        }
    }

    /// The order, and for whom it is carried out.
    pub(crate) fn order(&self) -> (PowerOrder, BmcOrderOwner) {
        (self.order, self.owner)
    }

    pub(crate) fn first_request(&self) -> PowerOrder {
        if self.wanted.is_some() && self.rules.start != PowerChangeStart::Request {
            PowerOrder::Status
        } else {
            self.order
        }
    }

    /// The request to repeat. A machine that was seen off needs only to be switched on.
    fn repeated(&self) -> PowerOrder {
        match self.order {
            PowerOrder::Cycle | PowerOrder::Reset => PowerOrder::On,
            other => other,
        }
    }

    /// A request is sent under this number.
    pub(crate) fn record_request(&mut self, now: Tick, number: u64, order: PowerOrder) {
        self.wake = None;
        self.outstanding = Some((number, order, now));
        if order.switches().is_some() {
            if self.requests == 0 {
                self.first = now;
            }
            self.requests = self.requests.saturating_add(1);
            self.last = now;
            self.polls = 0;
        }
    }

    fn schedule_poll(&mut self, limits: &BmcLimits) -> PowerChangeAction {
        let longest = limits.power_poll_ms.max(1);
        let pause = FIRST_POLL_MS.saturating_mul(1 << self.polls.min(16));
        self.polls = self.polls.saturating_add(1);
        PowerChangeAction::After(pause.min(longest), PowerOrder::Status)
    }

    /// Handles the answer to the request of this number. None if that request is not under way.
    /// The evidence says that the BMC begins to fail requests, or answers again.
    pub(crate) fn handle_answer(
        &mut self,
        now: Tick,
        number: u64,
        answer: Result<PowerAnswer, PowerError>,
        limits: &BmcLimits,
    ) -> Option<(PowerChangeAction, Option<EvidenceNote>)> {
        let outstanding = self
            .outstanding
            .take_if(|(outstanding, ..)| *outstanding == number);
        let (_, order, requested_at) = outstanding?;
        let was_failing = self.failing.is_some();
        let (action, evidence) = match answer {
            result if order == BMC_RESET => return Some((self.restarted_bmc(now, result), None)),
            Ok(answer) => (
                self.answered(now, answer, limits),
                was_failing.then_some(EvidenceNote::BmcAnswersAgain),
            ),
            Err(error) => {
                let evidence = EvidenceNote::BmcRequestRepeated {
                    kind: error.root().kind(),
                    message: error.to_string(),
                };
                let action = self.failed(now, (order, requested_at), error);
                let goes_on = !matches!(action, PowerChangeAction::End(_));
                (action, (!was_failing && goes_on).then_some(evidence))
            }
        };
        Some((action, evidence))
    }

    /// Schedules the next request after a pause in ms; without one, the pause before a repetition.
    /// Returns when it is due.
    pub(crate) fn schedule(
        &mut self,
        now: Tick,
        pause_ms: u64,
        order: PowerOrder,
        limits: &BmcLimits,
    ) -> Tick {
        let repeats = pause_ms == 0;
        let pause_ms = if repeats {
            self.retry_ms(limits)
        } else {
            pause_ms
        };
        let at = now.after_ms(pause_ms);
        self.wake = Some((at, order));
        at
    }

    /// Takes the request that was scheduled, and when it is due.
    pub(crate) fn take_wake(&mut self) -> Option<(Tick, PowerOrder)> {
        self.wake.take()
    }

    fn answered(
        &mut self,
        now: Tick,
        answer: PowerAnswer,
        limits: &BmcLimits,
    ) -> PowerChangeAction {
        self.failures = 0;
        self.failing = None;
        match (self.wanted, answer) {
            (None, answer) => PowerChangeAction::End(Ok(answer)),
            (Some(wanted), PowerAnswer::Power(state)) if state == wanted => {
                if self.may_not_have_begun(now) {
                    return self.schedule_poll(limits);
                }
                PowerChangeAction::End(Ok(PowerAnswer::Power(state)))
            }
            (Some(_), PowerAnswer::Power(state)) => {
                if state == PowerState::Off {
                    self.off_at = Some(now);
                }
                self.wait_or_retry(now, limits)
            }
            (Some(_), _) => {
                self.accepted = true;
                self.schedule_poll(limits)
            }
        }
    }

    /// The machine is on, and a power cycle may not have switched it off yet.
    fn may_not_have_begun(&self, now: Tick) -> bool {
        self.order == PowerOrder::Cycle
            && self.accepted
            && self.off_at.is_none()
            && now.since_ms(self.last) < CYCLE_MS
    }

    /// The BMC answers, and the state is not the wanted one.
    fn wait_or_retry(&mut self, now: Tick, limits: &BmcLimits) -> PowerChangeAction {
        if std::mem::take(&mut self.repeats_after_restart) {
            return PowerChangeAction::Request(self.repeated());
        }
        let waited = now.since_ms(self.last);
        let timeout = self.rules.timeout_ms.max(1);
        if self.requests == 0 && self.rules.start != PowerChangeStart::OnlyPoll {
            return PowerChangeAction::Request(self.repeated());
        }
        // The second request has twice the time of the others: the BMC is restarted after it.
        let time = if self.requests == 2 {
            2 * timeout
        } else {
            timeout
        };
        match self.requests {
            _ if waited < time => self.schedule_poll(limits),
            1 if self.rules.repeats => PowerChangeAction::Request(self.repeated()),
            2 if self.rules.resets_bmc && !self.bmc_restarted => {
                PowerChangeAction::Request(BMC_RESET)
            }
            _ => PowerChangeAction::End(Err(self.no_effect(now))),
        }
    }

    fn no_effect(&self, now: Tick) -> PowerError {
        PowerError::NoEffect {
            what: self.order.switches().unwrap_or("answer"),
            requests: self.requests,
            waited_s: now.since_ms(self.first) / 1000,
            bmc_restarted: self.bmc_restarted,
        }
    }

    /// The BMC refused a request, or did not answer it.
    fn failed(
        &mut self,
        now: Tick,
        question: (PowerOrder, Tick),
        error: PowerError,
    ) -> PowerChangeAction {
        let (order, requested_at) = question;
        let restarts = matches!(order, PowerOrder::Cycle | PowerOrder::Reset);
        // A machine that is off refuses a reset: the job requests power-on instead.
        let refuses = error.is_refusal() && !self.accepted;
        let at_once = (restarts && !self.rules.restarts_again)
            || (refuses && (order == PowerOrder::Reset || !self.rules.restarts_again));
        // A BMC that starts may not know its users yet.
        let lasting = error.is_lasting() && !self.bmc_restarted && self.failing.is_none();
        if at_once || lasting {
            return PowerChangeAction::End(Err(error));
        }
        self.failures = self.failures.saturating_add(1);
        let since = self
            .failing
            .as_ref()
            .map_or(requested_at, |(since, _)| *since);
        let waited_ms = now.since_ms(since);
        self.failing = Some((since, error.clone()));
        let responds = is_responsive(&error);
        let reset_ms = 3 * self.rules.timeout_ms;
        let has_waited = self.rules.bmc_wait_ms >= reset_ms;
        let resets = self.rules.resets_bmc && !self.bmc_restarted && responds && has_waited;
        if resets && waited_ms >= reset_ms {
            return PowerChangeAction::Request(BMC_RESET);
        }
        if waited_ms >= self.rules.bmc_wait_ms && !resets {
            let last = Box::new(error);
            let waited_s = waited_ms / 1000;
            return PowerChangeAction::End(Err(PowerError::Unanswered { waited_s, last }));
        }
        // A repetition that is refused shows that the change is under way: it counts as
        // accepted.
        let refused = order.switches().is_some() && !error.is_no_response() && !self.accepted;
        if refused {
            // It was certainly not carried out.
            self.requests = self.requests.saturating_sub(1);
        }
        // The BMC may have received the request, so it is not repeated before its time: the
        // state is read.
        let next = match self.wanted {
            Some(_) if !refused && !restarts => PowerOrder::Status,
            _ => order,
        };
        PowerChangeAction::After(0, next)
    }

    /// The BMC was restarted, or refused to be.
    fn restarted_bmc(
        &mut self,
        now: Tick,
        result: Result<PowerAnswer, PowerError>,
    ) -> PowerChangeAction {
        match (result, self.failing.take()) {
            (Ok(_), _) => {
                self.bmc_restarted = true;
                self.failures = 0;
                if self.wanted.is_none() {
                    return PowerChangeAction::After(0, self.repeated());
                }
                // It may be offline for minutes: a request now would be lost.
                self.repeats_after_restart = true;
                PowerChangeAction::After(0, PowerOrder::Status)
            }
            (Err(_), Some((since, last))) => {
                let waited_s = now.since_ms(since) / 1000;
                let last = Box::new(last);
                PowerChangeAction::End(Err(PowerError::Unanswered { waited_s, last }))
            }
            (Err(_), None) => PowerChangeAction::End(Err(self.no_effect(now))),
        }
    }

    fn retry_ms(&self, limits: &BmcLimits) -> u64 {
        let doublings = self.failures.saturating_sub(1).min(8);
        let longest = RETRY_MS_MAX.max(limits.retry_ms);
        (limits.retry_ms << doublings).min(longest).max(1)
    }

    /// Whether the change ends when the machine was seen on the network, which proves that it
    /// is on.
    pub(crate) fn ends_when_machine_seen(&self) -> bool {
        self.order == PowerOrder::On && self.wanted.is_some()
    }
}

/// Whether a BMC that fails like this answers at all. One whose request is only queued is not
/// restarted.
fn is_responsive(error: &PowerError) -> bool {
    !error.is_no_response()
        && !matches!(
            error,
            PowerError::QueueFull
                | PowerError::NoFreeSession
                | PowerError::Host { .. }
                | PowerError::Bmc {
                    cause: BmcFailureCause::Busy,
                    ..
                }
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> BmcLimits {
        crate::tests::limits()
    }

    fn change(order: PowerOrder, operator: bool) -> PowerChange {
        let id = trivet_model::NodeId::random(&mut trivet_model::SeededRandom::new(1));
        let node = Node::new(id, "ipmi", trivet_model::UnixMs(1));
        let rules = if operator {
            PowerChangeRules::of_operator(&limits(), &node)
        } else {
            PowerChangeRules::of_job(&limits(), &node)
        };
        let mut change = PowerChange::new(Tick(0), order, BmcOrderOwner::Job, rules);
        change.record_request(Tick(0), 1, order);
        change
    }

    fn refused() -> PowerError {
        PowerError::Refused { code: 0xff }
    }

    #[test]
    fn polls_come_early_and_then_back_off_to_a_few_seconds() {
        let mut change = change(PowerOrder::Off, false);
        let pauses: Vec<_> = (0..8).map(|_| change.schedule_poll(&limits())).collect();
        let want = [100, 200, 400, 800, 1600, 3000, 3000, 3000];
        let want = want.map(|ms| PowerChangeAction::After(ms, PowerOrder::Status));
        assert_eq!(pauses, want);
    }

    #[test]
    fn a_power_cycle_is_done_once_the_machine_was_off_or_after_some_seconds() {
        let limits = limits();
        let [on, off] = [PowerState::On, PowerState::Off].map(PowerAnswer::Power);
        let done = PowerChangeAction::End(Ok(on));
        let accepted = || {
            let mut change = change(PowerOrder::Cycle, true);
            let _ = change.answered(Tick(0), PowerAnswer::Accepted, &limits);
            // The BMC has accepted the request and not switched off yet.
            let next = change.answered(Tick(300), on, &limits);
            assert!(matches!(
                next,
                PowerChangeAction::After(_, PowerOrder::Status)
            ));
            change
        };
        let mut change = accepted();
        let _ = change.answered(Tick(1_000), off, &limits);
        assert_eq!(change.answered(Tick(3_000), on, &limits), done);
        // It may have been off between two polls.
        let mut change = accepted();
        assert_eq!(change.answered(Tick(5_000), on, &limits), done);
    }

    #[test]
    fn a_repetition_that_is_refused_is_not_repeated_while_the_machine_switches() {
        let mut change = change(PowerOrder::Off, false);
        let _ = change.answered(Tick(0), PowerAnswer::Accepted, &limits());
        let on = PowerAnswer::Power(PowerState::On);
        let next = change.answered(Tick(60_000), on, &limits());
        assert_eq!(next, PowerChangeAction::Request(PowerOrder::Off));
        change.record_request(Tick(60_000), 2, PowerOrder::Off);
        let question = (PowerOrder::Off, Tick(60_000));
        let next = change.failed(Tick(60_001), question, refused());
        assert_eq!(next, PowerChangeAction::After(0, PowerOrder::Status));
        let next = change.answered(Tick(110_000), on, &limits());
        assert!(matches!(
            next,
            PowerChangeAction::After(_, PowerOrder::Status)
        ));
        assert_eq!(change.requests, 2);
    }

    #[test]
    fn a_refusal_ends_an_operators_order_at_once_and_a_jobs_after_its_timeout() {
        let question = (PowerOrder::On, Tick(0));
        let mut requested = change(PowerOrder::On, true);
        let next = requested.failed(Tick(5), question, refused());
        assert_eq!(next, PowerChangeAction::End(Err(refused())));
        let mut job = change(PowerOrder::On, false);
        let next = job.failed(Tick(5), question, refused());
        assert_eq!(next, PowerChangeAction::After(0, PowerOrder::On));
        let next = job.failed(Tick(180_000), question, refused());
        assert_eq!(next, PowerChangeAction::Request(BMC_RESET));
        let next = job.restarted_bmc(Tick(180_001), Ok(PowerAnswer::Accepted));
        // A BMC that restarts may be offline for minutes: the request waits until it answers.
        assert_eq!(next, PowerChangeAction::After(0, PowerOrder::Status));
        let off = PowerAnswer::Power(PowerState::Off);
        let next = job.answered(Tick(300_000), off, &limits());
        assert_eq!(next, PowerChangeAction::Request(PowerOrder::On));
    }

    #[test]
    fn a_wrong_password_ends_every_order_at_once() {
        let login = PowerError::Login { message: "no" };
        for operator in [false, true] {
            let mut change = change(PowerOrder::On, operator);
            let next = change.failed(Tick(5), (PowerOrder::On, Tick(0)), login.clone());
            assert_eq!(next, PowerChangeAction::End(Err(login.clone())));
        }
    }
}
