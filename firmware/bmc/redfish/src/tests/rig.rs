//! Client and simulated service together, in virtual time.

use serde_json::{Value, json};
use trivet_model::secret::SecretText;
use trivet_model::{BmcFailureCause, PowerAnswer, PowerError, PowerOrder, SeededRandom, Tick};

use crate::service::{RedfishSimulator, RedfishSimulatorSetup};
use crate::{
    BmcHttpError, BmcHttpRequest, BmcHttpResponse, RedfishOperation, RedfishReply, RedfishSession,
    RedfishTarget,
};

/// A limit that no test reaches.
const REQUESTS_MAX: usize = 5_000;

type RedfishTestWire = dyn FnMut(
    Tick,
    &BmcHttpRequest,
    &mut RedfishSimulator,
    &mut SeededRandom,
) -> Result<BmcHttpResponse, BmcHttpError>;

pub(super) struct RedfishTestRig {
    pub(super) session: RedfishSession,
    pub(super) service: RedfishSimulator,
    pub(super) now: Tick,
    entropy: SeededRandom,
    /// Every request that was sent.
    pub(super) requests: Vec<BmcHttpRequest>,
    wire: Box<RedfishTestWire>,
    ids: u64,
}

pub(super) fn unreachable() -> BmcHttpError {
    BmcHttpError::Unreachable {
        reason: None,
        message: "connection refused".to_owned(),
    }
}

pub(super) fn lost() -> BmcHttpError {
    BmcHttpError::Lost {
        message: "reset by peer".to_owned(),
    }
}

/// A network without faults.
pub(super) fn deliver(
    now: Tick,
    request: &BmcHttpRequest,
    service: &mut RedfishSimulator,
    entropy: &mut SeededRandom,
) -> Result<BmcHttpResponse, BmcHttpError> {
    service
        .handle(now, request, entropy)
        .ok_or_else(unreachable)
}

pub(super) fn target(more: Value) -> RedfishTarget {
    let mut info = json!({
        "redfish_address": "https://192.0.2.7", "redfish_username": "root",
        "redfish_password": "calvin",
    });
    for (key, value) in more.as_object().unwrap() {
        info[key] = value.clone();
    }
    RedfishTarget::of(info.as_object().unwrap()).unwrap()
}

impl RedfishTestRig {
    pub(super) fn new(setup: RedfishSimulatorSetup) -> Self {
        Self::with(setup, json!({}))
    }

    /// With additional keys in `driver_info`.
    pub(super) fn with(setup: RedfishSimulatorSetup, more: Value) -> Self {
        Self {
            session: RedfishSession::new(target(more)),
            service: RedfishSimulator::new(setup),
            now: Tick::default().after_ms(1_000),
            entropy: SeededRandom::new(7),
            requests: Vec::new(),
            wire: Box::new(deliver),
            ids: 0,
        }
    }

    /// A peer that is a function instead of the simulated service.
    pub(super) fn against(
        mut peer: impl FnMut(&BmcHttpRequest) -> BmcHttpResponse + 'static,
    ) -> Self {
        let more = json!({"redfish_username": null});
        let mut rig = Self::with(RedfishSimulatorSetup::default(), more);
        rig.wire(move |_, request, _, _| Ok(peer(request)));
        rig
    }

    pub(super) fn wire<W>(&mut self, wire: W)
    where
        W: FnMut(
                Tick,
                &BmcHttpRequest,
                &mut RedfishSimulator,
                &mut SeededRandom,
            ) -> Result<BmcHttpResponse, BmcHttpError>
            + 'static,
    {
        self.wire = Box::new(wire);
    }

    /// One request and its response, or the time until the next one.
    #[track_caller]
    pub(super) fn step(&mut self) {
        match self.session.transmit(self.now) {
            Some(request) => {
                assert!(self.session.transmit(self.now).is_none(), "two at once");
                assert!(self.requests.len() < REQUESTS_MAX, "no end");
                self.requests.push(request.clone());
                let answer = (self.wire)(self.now, &request, &mut self.service, &mut self.entropy);
                self.now = self.now.after_ms(20);
                self.session.handle_response(self.now, answer);
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
    pub(super) fn operation(
        &mut self,
        operation: RedfishOperation,
    ) -> Result<RedfishReply, PowerError> {
        self.ids += 1;
        self.session.operation(self.now, self.ids, operation)?;
        loop {
            if let Some((id, report)) = self.session.reply() {
                assert_eq!(id, self.ids);
                return report;
            }
            self.step();
        }
    }

    /// Advances the time of the machine, not of the client.
    pub(super) fn wait(&mut self, ms: u64) {
        self.now = self.now.after_ms(ms);
    }

    /// Method and path of the requests since the last call.
    pub(super) fn take_requests(&mut self) -> Vec<String> {
        let lines = self.requests.drain(..).map(|request| line(&request));
        lines.collect()
    }
}

pub(super) fn line(request: &BmcHttpRequest) -> String {
    format!("{} {}", request.method.as_str(), request.path)
}

pub(super) fn json_answer(status: u16, body: &Value) -> BmcHttpResponse {
    BmcHttpResponse {
        status,
        body: body.to_string().into_bytes(),
        ..BmcHttpResponse::default()
    }
}

/// The body of a request.
pub(super) fn body(request: &BmcHttpRequest) -> Value {
    let text = request
        .body
        .as_ref()
        .map(SecretText::reveal)
        .unwrap_or_default();
    serde_json::from_str(text).unwrap_or_default()
}

#[track_caller]
pub(super) fn cause<T: std::fmt::Debug>(result: Result<T, PowerError>) -> BmcFailureCause {
    match result.unwrap_err() {
        PowerError::Bmc { cause, .. } => cause,
        other => panic!("{other:?}"),
    }
}
