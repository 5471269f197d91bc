//! Both ends on one table, in virtual time.

use serde_json::{Value, json};
use trivet_model::secret::Hidden;
use trivet_model::{Cause, PowerAnswer, PowerError, PowerOrder, Seeded, Tick};

use crate::service::{Service, Setup};
use crate::{Answer, Errand, Report, Request, Session, Target, Trouble};

/// Requests that no test needs.
const REQUESTS_MAX: usize = 5_000;

type Wire = dyn FnMut(Tick, &Request, &mut Service, &mut Seeded) -> Result<Answer, Trouble>;

pub(super) struct Rig {
    pub(super) session: Session,
    pub(super) service: Service,
    pub(super) now: Tick,
    entropy: Seeded,
    /// Everything that was asked.
    pub(super) asked: Vec<Request>,
    wire: Box<Wire>,
    ids: u64,
}

pub(super) fn unreachable() -> Trouble {
    Trouble::Unreachable {
        said: "connection refused".to_owned(),
    }
}

pub(super) fn lost() -> Trouble {
    Trouble::Lost {
        said: "reset by peer".to_owned(),
    }
}

/// A wire that carries everything.
pub(super) fn carry(
    now: Tick,
    request: &Request,
    service: &mut Service,
    entropy: &mut Seeded,
) -> Result<Answer, Trouble> {
    service
        .handle(now, request, entropy)
        .ok_or_else(unreachable)
}

pub(super) fn target(more: Value) -> Target {
    let mut info = json!({
        "redfish_address": "https://192.0.2.7", "redfish_username": "root",
        "redfish_password": "calvin",
    });
    for (key, value) in more.as_object().unwrap() {
        info[key] = value.clone();
    }
    Target::of(info.as_object().unwrap()).unwrap()
}

impl Rig {
    pub(super) fn new(setup: Setup) -> Self {
        Self::with(setup, json!({}))
    }

    /// With more in `driver_info`.
    pub(super) fn with(setup: Setup, more: Value) -> Self {
        Self {
            session: Session::new(target(more)),
            service: Service::new(setup),
            now: Tick::default().after_ms(1_000),
            entropy: Seeded::new(7),
            asked: Vec::new(),
            wire: Box::new(carry),
            ids: 0,
        }
    }

    /// A peer that is no service at all: a function answers.
    pub(super) fn against(mut peer: impl FnMut(&Request) -> Answer + 'static) -> Self {
        let more = json!({"redfish_username": null});
        let mut rig = Self::with(Setup::default(), more);
        rig.wire(move |_, request, _, _| Ok(peer(request)));
        rig
    }

    pub(super) fn wire<W>(&mut self, wire: W)
    where
        W: FnMut(Tick, &Request, &mut Service, &mut Seeded) -> Result<Answer, Trouble> + 'static,
    {
        self.wire = Box::new(wire);
    }

    /// One request and its answer, or the time until the next one.
    #[track_caller]
    pub(super) fn step(&mut self) {
        match self.session.transmit(self.now) {
            Some(request) => {
                assert!(self.session.transmit(self.now).is_none(), "two at once");
                assert!(self.asked.len() < REQUESTS_MAX, "no end");
                self.asked.push(request.clone());
                let answer = (self.wire)(self.now, &request, &mut self.service, &mut self.entropy);
                self.now = self.now.after_ms(20);
                self.session.answered(self.now, answer);
            }
            None => {
                let due = self.session.deadline().expect("it has something to do");
                assert!(due > self.now, "it does not do what is due");
                self.now = due;
            }
        }
    }

    #[track_caller]
    pub(super) fn order(&mut self, order: PowerOrder) -> Result<PowerAnswer, PowerError> {
        self.ids += 1;
        self.session.order(self.now, self.ids, order)?;
        loop {
            if let Some((id, answer)) = self.session.answer() {
                assert_eq!(id, self.ids);
                return answer;
            }
            self.step();
        }
    }

    #[track_caller]
    pub(super) fn errand(&mut self, errand: Errand) -> Result<Report, PowerError> {
        self.ids += 1;
        self.session.errand(self.now, self.ids, errand)?;
        loop {
            if let Some((id, report)) = self.session.report() {
                assert_eq!(id, self.ids);
                return report;
            }
            self.step();
        }
    }

    /// Lets time pass for the machine, not for the session.
    pub(super) fn wait(&mut self, ms: u64) {
        self.now = self.now.after_ms(ms);
    }

    /// Method and path of what was asked since the last time.
    pub(super) fn take_asked(&mut self) -> Vec<String> {
        let lines = self.asked.drain(..).map(|request| line(&request));
        lines.collect()
    }
}

pub(super) fn line(request: &Request) -> String {
    format!("{} {}", request.method.as_str(), request.path)
}

pub(super) fn json_answer(status: u16, body: &Value) -> Answer {
    Answer {
        status,
        body: body.to_string().into_bytes(),
        ..Answer::default()
    }
}

/// What a request has in its body.
pub(super) fn body(request: &Request) -> Value {
    let text = request
        .body
        .as_ref()
        .map(Hidden::reveal)
        .unwrap_or_default();
    serde_json::from_str(text).unwrap_or_default()
}

#[track_caller]
pub(super) fn cause<T: std::fmt::Debug>(result: Result<T, PowerError>) -> Cause {
    match result.unwrap_err() {
        PowerError::Bmc { cause, .. } => cause,
        other => panic!("{other:?}"),
    }
}
