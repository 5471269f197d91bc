//! Vendor methods: something said to a BMC or an agent, and the answer owed to
//! whoever asked for it.
//!
//! Nothing of this is on flash. A box that restarts has closed the connection of
//! who waited, and does not say the thing again: it may have been heard.

use serde_json::{Value, json};
use trivet_agent::RawAnswer;
use trivet_model::node::Object;
use trivet_model::order::VendorMethod;
use trivet_model::{
    AgentError, Done, Errand, Node, NodeId, NoteKind, Now, Phase, PowerAnswer, PowerError,
    PowerOrder, ProvisionState, Refusal, RefusalKind, Tick,
};

use crate::errands::OWED_MS_MAX;
use crate::{Output, Rack};

/// The most answers owed at once.
pub const PROMISES_MAX: usize = 256;

/// How long an answer may be owed. Longer than a BMC or an agent is waited for, but
/// orders before this one may take their time too.
const PROMISE_MS_MAX: u64 = 90_000;

/// An answer that is owed.
pub(crate) struct Promise {
    ticket: u64,
    due: Tick,
    /// What was asked, without what may be secret.
    label: String,
    waits_for: WaitsFor,
}

enum WaitsFor {
    Bmc(PowerOrder),
    /// The number of the errand, and what it was.
    Errand(u64, Errand),
    /// The number of the call.
    Agent(u64),
}

impl Rack {
    /// Begins a vendor method. Its answer comes later, unless it is refused.
    pub(crate) fn vendor(
        &mut self,
        now: Now,
        ticket: u64,
        id: NodeId,
        method: VendorMethod,
    ) -> Result<(), Refusal> {
        let node = self.known(id)?;
        if self.promises.len() >= PROMISES_MAX {
            let sentence = "Too many vendor methods are under way; try again in a moment.";
            return Err(Refusal::new(RefusalKind::Unavailable, sentence));
        }
        if self.promises.contains_key(&id) {
            return Err(conflict(
                id,
                "another vendor method is under way; wait for its end",
            ));
        }
        let due = now.tick.after_ms(PROMISE_MS_MAX);
        match method {
            VendorMethod::Errand(errand) => {
                bmc_is_free(&node)?;
                self.calls += 1;
                let number = self.calls;
                let promise = Promise {
                    ticket,
                    due: now.tick.after_ms(OWED_MS_MAX),
                    label: errand.word().to_owned(),
                    waits_for: WaitsFor::Errand(number, errand.clone()),
                };
                self.promises.insert(id, promise);
                self.give_errand(now, &node, number, &errand);
            }
            VendorMethod::Bmc(order) => {
                bmc_is_free(&node)?;
                let promise = Promise {
                    ticket,
                    due,
                    label: label(order),
                    waits_for: WaitsFor::Bmc(order),
                };
                self.promises.insert(id, promise);
                self.order_power(now, id, order);
            }
            VendorMethod::Agent {
                command,
                params,
                wait,
            } => {
                let call = self.call_agent_raw(&node, &command, params, wait)?;
                let promise = Promise {
                    ticket,
                    due,
                    label: format!("agent_command {command}"),
                    waits_for: WaitsFor::Agent(call),
                };
                self.promises.insert(id, promise);
            }
        }
        Ok(())
    }

    fn call_agent_raw(
        &mut self,
        node: &Node,
        command: &str,
        params: Object,
        wait: bool,
    ) -> Result<u64, Refusal> {
        let id = node.id;
        if command == trivet_agent::COLLECT_LOGS {
            // Tokens stand in them, packed so that nobody sees it.
            let sentence = format!(
                "{command} is not passed on, as logs hold secrets; ask for them by POST \
                 /trivet/nodes/{id}/logs (trivet node logs --collect), which takes those out."
            );
            return Err(Refusal::new(RefusalKind::Invalid, sentence));
        }
        let called = self
            .waits
            .get(&id)
            .is_some_and(|waits| waits.call.is_some());
        let held = matches!(
            node.provision_state,
            ProvisionState::CleanHold | ProvisionState::DeployHold | ProvisionState::ServiceHold
        );
        let at_work = |phase| !held && phase != Phase::AwaitAgent;
        if called || node.job.as_ref().is_some_and(|job| at_work(job.phase)) {
            let why = format!(
                "its agent is at work for the box ({}); wait until that is done",
                node.provision_state
            );
            return Err(conflict(id, &why));
        }
        let request = trivet_agent::raw_call(node, command, params, wait).map_err(|error| {
            let sentence = format!("Node {id} takes no agent command: {error}.");
            Refusal::new(RefusalKind::Invalid, sentence)
        })?;
        let session = node.agent.as_ref();
        self.calls += 1;
        self.outputs.push(Output::CallAgent {
            node: id,
            call: self.calls,
            url: session
                .and_then(|agent| agent.url.clone())
                .unwrap_or_default(),
            verify_ca: session.and_then(|agent| agent.verify_ca.clone()),
            request,
        });
        Ok(self.calls)
    }

    /// A BMC answered one of the orders that only vendor methods give.
    pub(crate) fn vendor_bmc_answered(
        &mut self,
        now: Now,
        id: NodeId,
        order: PowerOrder,
        answer: Result<PowerAnswer, PowerError>,
    ) {
        let outcome = match &answer {
            Ok(PowerAnswer::Raw { code, .. }) => format!("completion code 0x{code:02x}"),
            Ok(_) => "accepted".to_owned(),
            Err(error) => error.to_string(),
        };
        self.note_vendor(now, id, label(order), outcome);
        let asked = self.promises.get(&id);
        let asked =
            asked.is_some_and(|owed| matches!(owed.waits_for, WaitsFor::Bmc(it) if it == order));
        if !asked {
            // Nobody waits for it any more, or it is a rung of the ladder.
            return self.rung_taken(now, id, order, answer);
        }
        let result = match answer {
            Ok(PowerAnswer::Raw { code, data }) => Ok(json!({
                "completion_code": format!("0x{code:02x}"),
                "data": data.to_string(),
            })),
            Ok(_) => Ok(json!({ "accepted": true })),
            Err(error) => Err(refusal(id, &error)),
        };
        self.keep_promise(id, result);
    }

    /// What was asked, if the answer to the errand of this number is owed.
    pub(crate) fn owed_errand(&self, id: NodeId, number: u64) -> Option<Errand> {
        match &self.promises.get(&id)?.waits_for {
            WaitsFor::Errand(owed, errand) if *owed == number => Some(errand.clone()),
            _ => None,
        }
    }

    /// Takes an agent's answer if it is to a vendor method.
    pub(crate) fn vendor_agent_answered(
        &mut self,
        now: Now,
        id: NodeId,
        call: u64,
        result: &mut Result<(u16, Vec<u8>), String>,
    ) -> bool {
        let owed = self.promises.get(&id);
        let owed =
            owed.filter(|owed| matches!(owed.waits_for, WaitsFor::Agent(number) if number == call));
        let Some(label) = owed.map(|owed| owed.label.clone()) else {
            return false;
        };
        let session = self.book.node(id).and_then(|node| node.agent.as_ref());
        let token = session.map_or("", |agent| agent.token.as_str());
        let failed = |error: AgentError| {
            let sentence = format!("Node {id}: {error}.");
            (
                error.to_string(),
                Err(Refusal::new(RefusalKind::Failed, sentence)),
            )
        };
        let (outcome, result) = match result {
            Err(said) => {
                let url = session.and_then(|agent| agent.url.clone());
                failed(AgentError::Unreachable {
                    url: url.unwrap_or_default(),
                    said: trivet_agent::without_token(said.clone(), token),
                })
            }
            Ok((status, body)) => {
                trivet_agent::blot_token(body, token);
                match trivet_agent::raw_answer(*status, body) {
                    Ok(RawAnswer::Busy) => {
                        let busy =
                            "its agent works on another command; try again when that is done";
                        (busy.to_owned(), Err(conflict(id, busy)))
                    }
                    Ok(RawAnswer::Said { status, document }) => (status, Ok(document)),
                    Err(error) => failed(error),
                }
            }
        };
        self.note_vendor(now, id, label, outcome);
        self.keep_promise(id, result);
        true
    }

    pub(crate) fn note_vendor(&mut self, now: Now, id: NodeId, method: String, outcome: String) {
        self.note(now, Some(id), NoteKind::VendorCalled { method, outcome });
    }

    pub(crate) fn keep_promise(&mut self, id: NodeId, result: Result<Value, Refusal>) {
        if let Some(promise) = self.promises.remove(&id) {
            let result = result.map(Done::Said);
            let ticket = promise.ticket;
            self.outputs.push(Output::Reply { ticket, result });
        }
    }

    /// The node is gone, and with it whoever would have answered.
    pub(crate) fn break_promise(&mut self, id: NodeId) {
        let sentence = format!("Node {id} was deleted meanwhile.");
        self.keep_promise(id, Err(Refusal::new(RefusalKind::NotFound, sentence)));
    }

    /// When the next answer is overdue.
    pub(crate) fn promise_deadline(&self) -> Option<Tick> {
        self.promises.values().map(|promise| promise.due).min()
    }

    /// Tells those who waited too long.
    pub(crate) fn expire_promises(&mut self, now: Now) {
        let overdue = self.promises.iter();
        let overdue = overdue.filter(|(_, promise)| promise.due <= now.tick);
        let overdue: Vec<_> = overdue
            .map(|(id, owed)| (*id, owed.label.clone()))
            .collect();
        for (id, label) in overdue {
            let sentence = format!(
                "Node {id}: no answer to {label} in time; whether it was carried out is not known."
            );
            self.note_vendor(now, id, label, "no answer in time".to_owned());
            self.keep_promise(id, Err(Refusal::new(RefusalKind::Failed, sentence)));
        }
    }
}

fn label(order: PowerOrder) -> String {
    match order {
        PowerOrder::Nmi => "inject_nmi".to_owned(),
        PowerOrder::BmcReset { warm: true } => "bmc_reset warm".to_owned(),
        PowerOrder::BmcReset { warm: false } => "bmc_reset cold".to_owned(),
        // Data may hold a password, as that of Set User Password does.
        PowerOrder::Raw {
            netfn,
            command,
            data,
        } => {
            let bytes = data.as_slice().len();
            format!("send_raw 0x{netfn:02x} 0x{command:02x} and {bytes} bytes")
        }
        other => format!("{other:?}"),
    }
}

/// A job that is at work has the BMC for itself.
fn bmc_is_free(node: &Node) -> Result<(), Refusal> {
    if node.job.is_none() || node.provision_state.is_waiting() {
        return Ok(());
    }
    let state = node.provision_state;
    let why = format!("it is busy ({state}); wait until that is done");
    Err(conflict(node.id, &why))
}

/// What a caller is told of a BMC that failed.
pub(crate) fn refusal(id: NodeId, error: &PowerError) -> Refusal {
    let kind = match error {
        PowerError::NotConfigured { .. }
        | PowerError::SharedBmc { .. }
        | PowerError::Unsupported { .. } => RefusalKind::Invalid,
        PowerError::Busy => RefusalKind::Conflict,
        _ => RefusalKind::Failed,
    };
    Refusal::new(kind, format!("Node {id}: {error}."))
}

fn conflict(id: NodeId, why: &str) -> Refusal {
    Refusal::new(RefusalKind::Conflict, format!("Node {id}: {why}."))
}
