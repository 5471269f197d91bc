//! Progress of the log-in, and what follows when the BMC refuses it or does not respond.

use super::{
    Entropy, IpmiCipherSuite, IpmiLinkState, IpmiLogin, IpmiLoginProgress, IpmiLoginTimeout,
    IpmiRetryTimer, IpmiSession, LOSSES_MAX, PowerError, REFUSALS_MAX, Tick,
};

impl IpmiSession {
    pub(super) fn handle_login_progress(
        &mut self,
        now: Tick,
        progress: IpmiLoginProgress,
        entropy: &mut dyn Entropy,
    ) {
        match progress {
            IpmiLoginProgress::Ignored => {}
            IpmiLoginProgress::Next => {
                self.transmit_pending(now, self.timing.first_retry_ms, 1, entropy);
            }
            IpmiLoginProgress::Done(line) => {
                self.link = IpmiLinkState::Up(line);
                self.proven_suite = Some(self.suite);
                self.last_received = now;
                self.raise_privilege(now, entropy);
            }
            IpmiLoginProgress::SuiteRefused => self.try_next_suite(now, entropy),
            IpmiLoginProgress::Refused {
                error,
                final_packet: parting,
            } => {
                if let Some(bytes) = parting {
                    self.enqueue_datagram(bytes);
                }
                self.handle_login_refusal(now, error, entropy);
            }
        }
    }

    /// Tries suite 3 after suite 17; there is no further one, and none if the suite is set.
    pub(super) fn try_next_suite(&mut self, now: Tick, entropy: &mut dyn Entropy) {
        if self.target.suite.is_none() && self.suite == IpmiCipherSuite::Sha256 {
            self.suite = IpmiCipherSuite::Sha1;
            let login = IpmiLogin::open(&self.target, self.suite, entropy);
            self.start_login(now, login, entropy);
        } else {
            self.proven_suite = None;
            self.suite = self.target.suite.unwrap_or(IpmiCipherSuite::Sha256);
            self.handle_login_refusal(now, PowerError::NoSuite, entropy);
        }
    }

    /// Repeats the login after a pause, or ends the order with an error.
    pub(super) fn handle_login_refusal(
        &mut self,
        now: Tick,
        error: PowerError,
        entropy: &mut dyn Entropy,
    ) {
        self.link = IpmiLinkState::Down;
        self.pending_request = None;
        match &mut self.job {
            Some(work) if work.refusals < REFUSALS_MAX => {
                work.refusals += 1;
                work.last_error = Some(error);
                let due = now.after_ms(self.timing.first_retry_ms.max(1));
                self.retry_timer = Some(IpmiRetryTimer {
                    due,
                    next_ms: self.timing.first_retry_ms,
                    tries: 0,
                });
            }
            _ => self.finish(now, Err(error), entropy),
        }
    }

    /// The last attempt of a request got no response.
    pub(super) fn handle_no_response(&mut self, now: Tick, entropy: &mut dyn Entropy) {
        let silence = match &self.link {
            IpmiLinkState::Login(login) => Some(login.timeout_meaning()),
            _ => None,
        };
        let silent = match (&silence, self.no_response_error(now)) {
            (Some(IpmiLoginTimeout::DuringLogin), PowerError::NoResponse { waited_ms }) => {
                PowerError::NoSession { waited_ms }
            }
            (_, silent) => silent,
        };
        let switches = self.switches();
        match silence {
            Some(IpmiLoginTimeout::NoBmc) => self.give_up(now, entropy),
            Some(IpmiLoginTimeout::KnownCause(error)) => {
                self.handle_login_refusal(now, error, entropy);
            }
            Some(IpmiLoginTimeout::SuiteRefused) if self.target.suite.is_none() => {
                self.try_next_suite(now, entropy);
            }
            Some(_) => self.handle_login_refusal(now, silent, entropy),
            None => match &mut self.job {
                // A BMC that reports busy is not lost.
                Some(work)
                    if work.losses < LOSSES_MAX
                        && work.last_error.is_none()
                        && !work.script.at_most_once()
                        && !switches =>
                {
                    work.losses += 1;
                    work.reused_session = false;
                    self.end_session(entropy);
                    self.log_in(now, entropy);
                }
                _ => self.give_up(now, entropy),
            },
        }
    }

    pub(super) fn no_response_error(&self, now: Tick) -> PowerError {
        let waited_ms = self
            .job
            .as_ref()
            .map_or(0, |work| now.since_ms(work.last_progress));
        match self.undelivered {
            Some(reason) => PowerError::Undelivered { waited_ms, reason },
            None => PowerError::NoResponse { waited_ms },
        }
    }

    /// Ends the order with the most specific error that is known.
    pub(super) fn give_up(&mut self, now: Tick, entropy: &mut dyn Entropy) {
        let silent = self.no_response_error(now);
        let message = self
            .pending_request
            .as_ref()
            .is_some_and(|requested| !requested.raises_privilege);
        let error = self.job.as_mut().and_then(|work| work.last_error.take());
        let work = self.job.as_ref().filter(|_| message && error.is_none());
        let result = match work.and_then(|work| work.script.answer_without_response()) {
            Some(answer) => Ok(answer),
            None => Err(error.unwrap_or(silent)),
        };
        self.end_session(entropy);
        self.finish(now, result, entropy);
    }
}
