//! A simulated Redfish service, for tests and interoperability tests.
//!
//! Pure, like the client. It has sessions and passwords, machines whose power follows after a
//! delay, boot overrides, virtual media, Secure Boot, identify LEDs, sensors, an inventory, ETags,
//! and tasks if the test enables them. Tests can switch on the faults of real BMCs.

mod change;
mod show;

use std::collections::{BTreeMap, VecDeque};

use serde_json::{Value, json};
use trivet_model::secret::SecretText;
use trivet_model::{Entropy, MacAddr, PowerState, Tick};

use trivet_bmc::http::{BmcHttpCredentials, BmcHttpMethod, BmcHttpRequest, BmcHttpResponse};

/// Most sessions at a time. Ours; real BMCs have as few.
pub const SESSIONS_MAX: usize = 8;
/// Most tasks that are kept; the oldest are removed. Ours.
const TASKS_MAX: usize = 16;
/// Most event subscriptions. Ours; real BMCs have as few.
const SUBSCRIPTIONS_MAX: usize = 8;
/// Most actions that are recorded. Ours.
const ACTIONS_MAX: usize = 4096;

/// The configuration of the simulated service.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of its own for a test"
)]
#[derive(Clone, Debug)]
pub struct RedfishSimulatorSetup {
    /// User and password; `None` if no login is required.
    pub user: Option<(String, SecretText)>,
    /// The user has only read access.
    pub read_only: bool,
    /// It has a session service; otherwise each request needs the password.
    pub sessions: bool,
    /// Delay of a power change, in milliseconds.
    pub lag_ms: u64,
    /// Changes become tasks that take this many milliseconds.
    pub task_ms: Option<u64>,
    /// Virtual media are below the manager, not below the system.
    pub media_below_manager: bool,
    /// Sensors as single resources, otherwise as the older tables.
    pub sensors: bool,
    /// How many machines it manages.
    pub machines: usize,
}

impl Default for RedfishSimulatorSetup {
    fn default() -> Self {
        Self {
            user: Some(("root".to_owned(), SecretText::new("calvin"))),
            read_only: false,
            sessions: true,
            lag_ms: 0,
            task_ms: None,
            media_below_manager: false,
            sensors: true,
            machines: 1,
        }
    }
}

/// Faults of the service; tests can change them at any time.
#[derive(Clone, Debug, Default)]
pub struct RedfishSimulatorFaults {
    /// The number of requests that are refused with 503, and the `Retry-After` in seconds.
    pub busy: (u32, u64),
    /// The number of responses that are cut in half.
    pub truncated: u32,
    /// The power state that it reports instead of the true one.
    pub reported_power: Option<PowerState>,
    /// It accepts resets and does nothing.
    pub ignores_resets: bool,
}

/// One simulated machine.
#[derive(Clone, Debug)]
pub struct RedfishSimulatorMachine {
    /// The present power state.
    pub power: PowerState,
    /// The next power state, and when it takes effect.
    pub pending: Option<(PowerState, Tick)>,
    /// Boot override: target, enabled, mode, URL.
    pub boot: [String; 4],
    /// The image in its virtual drive.
    pub media: Option<String>,
    /// Whether the identify LED is on.
    pub indicator: bool,
    /// Secure Boot as set.
    pub secure_boot: bool,
    /// Hardware addresses of its ports.
    pub macs: Vec<MacAddr>,
    /// The health that it reports.
    pub health: &'static str,
    revision: u64,
}

impl RedfishSimulatorMachine {
    fn new(number: usize) -> Self {
        let last = u8::try_from(number).unwrap_or(u8::MAX);
        Self {
            power: PowerState::Off,
            pending: None,
            boot: ["None", "Disabled", "UEFI", ""].map(str::to_owned),
            media: None,
            indicator: false,
            secure_boot: false,
            macs: vec![
                MacAddr([2, 0, 0, 0, 1, last]),
                MacAddr([2, 0, 0, 0, 2, last]),
            ],
            health: "OK",
            revision: 1,
        }
    }

    fn apply_pending(&mut self, now: Tick) {
        if let Some((state, at)) = self.pending
            && now >= at
        {
            self.pending = None;
            self.power = state;
            self.revision += 1;
        }
    }
}

struct RedfishSimulatorTask {
    until: Tick,
    action: RedfishSimulatorAction,
    ended: Option<Result<(), u16>>,
}

/// An action that a client requested.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RedfishSimulatorAction {
    /// Reset of a machine, with the `ResetType`.
    Reset(usize, String),
    /// Reset of the BMC itself.
    ManagerReset,
    /// An image inserted into a machine's drive, or ejected from it.
    Media(usize, Option<String>),
    /// A change of a machine's settings.
    Change(usize, Value),
    /// A change of a machine's Secure Boot.
    SecureBoot(usize, bool),
}

/// A simulated Redfish service.
pub struct RedfishSimulator {
    setup: RedfishSimulatorSetup,
    /// Its present faults.
    pub faults: RedfishSimulatorFaults,
    machines: Vec<RedfishSimulatorMachine>,
    sessions: BTreeMap<String, String>,
    tasks: BTreeMap<u64, RedfishSimulatorTask>,
    subscriptions: BTreeMap<u64, Value>,
    numbers: u64,
    down_until: Tick,
    actions: VecDeque<RedfishSimulatorAction>,
}

impl RedfishSimulator {
    /// A service whose machines are off.
    pub fn new(setup: RedfishSimulatorSetup) -> Self {
        Self {
            machines: (1..=setup.machines)
                .map(RedfishSimulatorMachine::new)
                .collect(),
            setup,
            faults: RedfishSimulatorFaults::default(),
            sessions: BTreeMap::new(),
            tasks: BTreeMap::new(),
            subscriptions: BTreeMap::new(),
            numbers: 0,
            down_until: Tick::default(),
            actions: VecDeque::new(),
        }
    }

    /// A machine, by its index.
    pub fn machine(&mut self, index: usize) -> Option<&mut RedfishSimulatorMachine> {
        self.machines.get_mut(index)
    }

    /// The actions since the last call, oldest first.
    pub fn take_actions(&mut self) -> Vec<RedfishSimulatorAction> {
        self.actions.drain(..).collect()
    }

    /// How many sessions are open.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// The bodies of the requests that made its event subscriptions, with their `Id`.
    pub fn subscriptions(&self) -> Vec<Value> {
        self.subscriptions.values().cloned().collect()
    }

    /// Removes all sessions, as BMCs do.
    pub fn drop_sessions(&mut self) {
        self.sessions.clear();
    }

    /// Restarts: no responses until then, and volatile state is lost.
    pub fn restart(&mut self, until: Tick) {
        self.sessions.clear();
        self.tasks.clear();
        self.down_until = until;
    }

    /// The response to a request; `None` while it restarts.
    pub fn handle(
        &mut self,
        now: Tick,
        request: &BmcHttpRequest,
        entropy: &mut dyn Entropy,
    ) -> Option<BmcHttpResponse> {
        if now < self.down_until {
            return None;
        }
        for machine in &mut self.machines {
            machine.apply_pending(now);
        }
        if self.faults.busy.0 > 0 {
            self.faults.busy.0 -= 1;
            let retry_after_s = Some(self.faults.busy.1).filter(|seconds| *seconds > 0);
            let refusal = refused(503, "Base.1.8.ServiceTemporarilyUnavailable", "Try again.");
            return Some(BmcHttpResponse {
                retry_after_s,
                ..refusal
            });
        }
        let mut answer = self.route(now, request, entropy);
        if self.faults.truncated > 0 && !answer.body.is_empty() {
            self.faults.truncated -= 1;
            answer.body.truncate(answer.body.len() / 2);
        }
        Some(answer)
    }

    fn route(
        &mut self,
        now: Tick,
        request: &BmcHttpRequest,
        entropy: &mut dyn Entropy,
    ) -> BmcHttpResponse {
        let path = request.path.trim_end_matches('/');
        let parts: Vec<&str> = path.split('/').skip(1).collect();
        if parts.first() != Some(&"redfish") || parts.get(1) != Some(&"v1") {
            return missing();
        }
        let parts = &parts[2..];
        let body = request
            .body
            .as_ref()
            .map(SecretText::reveal)
            .unwrap_or_default();
        let body: Value = serde_json::from_str(body).unwrap_or_default();
        if let (BmcHttpMethod::Post, ["SessionService", "Sessions"]) = (request.method, parts) {
            return self.log_in(&body, entropy);
        }
        if !parts.is_empty() && !self.is_authorized(request.credentials.as_ref()) {
            return refused(401, "Base.1.8.NoValidSession", "Not authenticated.");
        }
        match request.method {
            BmcHttpMethod::Get => self.show(now, parts),
            BmcHttpMethod::Delete => match parts {
                ["SessionService", "Sessions", id] => {
                    self.sessions.retain(|_, session| session != id);
                    BmcHttpResponse {
                        status: 204,
                        ..BmcHttpResponse::default()
                    }
                }
                ["EventService", "Subscriptions", id] => {
                    let id = id.parse::<u64>().unwrap_or_default();
                    match self.subscriptions.remove(&id) {
                        Some(_) => BmcHttpResponse {
                            status: 204,
                            ..BmcHttpResponse::default()
                        },
                        None => missing(),
                    }
                }
                _ => missing(),
            },
            _ if self.setup.read_only => {
                refused(403, "Base.1.8.InsufficientPrivilege", "Read access only.")
            }
            BmcHttpMethod::Post => self.act(now, parts, &body),
            BmcHttpMethod::Patch => self.change(now, parts, request.if_match.as_deref(), &body),
        }
    }

    fn is_authorized(&self, credentials: Option<&BmcHttpCredentials>) -> bool {
        let Some((name, password)) = &self.setup.user else {
            return true;
        };
        match credentials {
            Some(BmcHttpCredentials::Token(token)) => self.sessions.contains_key(token.reveal()),
            Some(BmcHttpCredentials::Basic(pair)) => {
                pair.reveal() == format!("{name}:{}", password.reveal())
            }
            None => false,
        }
    }

    fn log_in(&mut self, body: &Value, entropy: &mut dyn Entropy) -> BmcHttpResponse {
        if !self.setup.sessions {
            return missing();
        }
        let word = |key: &str| body.get(key).and_then(Value::as_str);
        let right = self.setup.user.as_ref().is_some_and(|(name, password)| {
            word("UserName") == Some(name) && word("Password") == Some(password.reveal())
        });
        if !right {
            return refused(401, "Base.1.8.ResourceAtUriUnauthorized", "Wrong password.");
        }
        if self.sessions.len() >= SESSIONS_MAX {
            return refused(503, "Base.1.8.SessionLimitExceeded", "No session is free.");
        }
        self.numbers += 1;
        let (id, token) = (
            self.numbers.to_string(),
            format!("{:016x}", entropy.number()),
        );
        let place = format!("/redfish/v1/SessionService/Sessions/{id}");
        self.sessions.insert(token.clone(), id);
        BmcHttpResponse {
            token: Some(SecretText::new(token)),
            location: Some(place.clone()),
            ..found(201, &json!({"@odata.id": place, "Name": "Session"}))
        }
    }

    fn record_action(&mut self, action: &RedfishSimulatorAction) {
        if self.actions.len() >= ACTIONS_MAX {
            self.actions.pop_front();
        }
        self.actions.push_back(action.clone());
    }
}

fn found(status: u16, body: &Value) -> BmcHttpResponse {
    BmcHttpResponse {
        status,
        body: body.to_string().into_bytes(),
        ..BmcHttpResponse::default()
    }
}

fn missing() -> BmcHttpResponse {
    refused(
        404,
        "Base.1.8.ResourceMissingAtURI",
        "There is no such resource.",
    )
}

/// A refusal in the format of DSP0266, section 8.6.
fn refused(status: u16, id: &str, text: &str) -> BmcHttpResponse {
    let message = json!({"MessageId": id, "Message": text, "Severity": "Warning"});
    let error = json!({"code": id, "message": text, "@Message.ExtendedInfo": [message]});
    found(status, &json!({"error": error}))
}
