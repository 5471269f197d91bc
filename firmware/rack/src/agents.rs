//! Agents: lookup, heartbeat, and calls to them.

pub(crate) mod callers;
mod inspection;
pub(crate) mod logs;

pub use callers::AgentAddresses;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use trivet_model::caller::printable;
use trivet_model::order::{AgentHeartbeat, LookupResult};
use trivet_model::secret::{MASK, masked};
use trivet_model::{
    AgentError, AgentEvent, AgentOrder, AgentSession, MacAddr, Node, NodeId, NoteKind, Now,
    OrderOutcome, OrderRefusal, PowerOrder, RefusalKind,
};
use trivet_node::NodeEvent;

use crate::agents::callers::AgentAuthentication;
use crate::{Rack, RackOutput, RefusedAgent};

/// For this long after a refused agent of a node, further refusals for the same reason are not
/// noted. Ours.
const REFUSED_QUIET_MS: u64 = 60_000;

/// Most reasons of refusals noted for one node within that time: this many for callers at the
/// node's own address, and this many for all others. Ours.
const REFUSED_REASONS_MAX: usize = 32;

/// Longest reason of a refusal in a note, in characters. Ours.
const WHY_CHARS_MAX: usize = 300;

const UNKNOWN_MACS: &str = "it names no hardware address of a port; create a port for one of its \
                            machine's interfaces";

const UNKNOWN_UUID: &str = "it names a node that does not exist";

const NOT_EXPECTED: &str = "it looks its node up while no agent is expected to boot there";

const NO_LEGACY: &str = "an agent without tokens looks the node up, which driver_info's \
                         agent_legacy_api does not allow, or another agent is there";

/// First line of a PEM certificate (RFC 7468, section 5).
const PEM_CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----";

/// For this long after a reset request a lookup is accepted only if the machine was seen to
/// restart. Ours: the slowest machines restart two minutes after their BMC accepted the
/// request.
const RESTART_MS_MAX: u64 = 180_000;

const NOT_RESTARTED: &str = "its machine was not seen to restart since the job requested a reset; \
                             this is the agent of the previous boot";

impl Rack {
    /// A request to switch on or to restart is sent to the node's BMC. The agent of the
    /// previous boot runs until the machine restarts and must not be mistaken for the new one.
    pub(crate) fn restart_requested(&mut self, now: Now, id: NodeId, order: PowerOrder) {
        let reset = order == PowerOrder::Reset;
        self.transient.entry(id).or_default().reset_at = reset.then_some(now.tick);
    }

    /// The machine requests an address or a boot file.
    pub(crate) fn restart_seen(&mut self, id: NodeId) {
        if let Some(waits) = self.transient.get_mut(&id) {
            waits.reset_at = None;
        }
    }

    /// Whether the machine may still run the agent of the previous boot. Where the machine has
    /// its address from another server, this box does not see it restart, and every lookup is
    /// accepted.
    fn awaits_restart(&self, now: Now, id: NodeId) -> bool {
        let reset_at = self.transient.get(&id).and_then(|waits| waits.reset_at);
        reset_at.is_some_and(|at| now.tick.since_ms(at) < RESTART_MS_MAX)
            && !self.leased_to(id).is_empty()
    }

    /// One message for every reason, as in Ironic: a caller without a token learns nothing.
    pub(crate) fn nothing_found() -> OrderRefusal {
        OrderRefusal::new(RefusalKind::NotFound, "Resource could not be found.")
    }

    /// The node that an agent looks up, if its agent is expected now and may call from this
    /// address.
    fn expected(
        &mut self,
        now: Now,
        from: IpAddr,
        addresses: &[MacAddr],
        node: Option<NodeId>,
    ) -> Result<(Node, AgentAuthentication), OrderRefusal> {
        let named = node.is_some();
        let id = node.or_else(|| self.only_owner(now, from, addresses));
        let Some(node) = id.and_then(|id| self.require_node(id).ok()) else {
            if named {
                self.note_leaseholder_refused(now, from, UNKNOWN_UUID);
            }
            return Err(Self::nothing_found());
        };
        let awaited = |node: &Node| {
            node.provision_state.allows_lookup()
                && trivet_node::boots_agent(node)
                && !trivet_node::awaits_reset(node)
        };
        if !awaited(&node) {
            self.note_refused(now, node.id, from, NOT_EXPECTED);
            return Err(Self::nothing_found());
        }
        if self.awaits_restart(now, node.id) {
            self.note_refused(now, node.id, from, NOT_RESTARTED);
            return Err(Self::nothing_found());
        }
        let proof = self.check_lookup(now, &node, addresses, from)?;
        Ok((node, proof))
    }

    pub(crate) fn lookup(
        &mut self,
        now: Now,
        from: IpAddr,
        addresses: &[MacAddr],
        node: Option<NodeId>,
    ) -> Result<OrderOutcome, OrderRefusal> {
        let (mut node, proof) = self.expected(now, from, addresses, node)?;
        let id = node.id;
        let mut agent_token = MASK.to_owned();
        let waits = self.transient.entry(id).or_default();
        // The box lost power between the commit of a token and the first heartbeat: the agent
        // may never have received the token, and an agent without one hangs for ever.
        let unsure = node
            .agent
            .as_ref()
            .is_some_and(|session| session.url.is_none());
        if node.agent.is_none() || (unsure && !waits.token_issued) {
            waits.token_issued = true;
            // The agent of the earlier boot will not answer its pending call.
            waits.call = None;
            // Sent in clear text once, and durable before it is sent.
            let token = trivet_certs_enrol::mint(&mut *self.entropy);
            node.agent = Some(AgentSession {
                token: token.clone(),
                former_token: node.agent.map(|session| session.token),
                url: None,
                verify_ca: None,
                version: None,
            });
            agent_token = token;
            self.record_caller(now, &mut node, from, proof);
            self.records.put_node(now, node.clone());
            let from = from.to_canonical();
            self.note(now, Some(id), NoteKind::AgentLookedUp { from });
        }
        self.boot_queue.boot_finished(id);
        self.machine_seen(now, id);
        Ok(OrderOutcome::Found(Box::new(LookupResult {
            node: id,
            properties: node.properties,
            instance_info: masked(&node.instance_info),
            driver_internal_info: masked(&node.driver_internal_info),
            agent_token,
            heartbeat_timeout_s: self.settings.heartbeat_timeout_s,
        })))
    }

    /// A lookup of an agent from before tokens. The first caller from the machine's address is
    /// accepted, so an agent must be expected, and the operator must have allowed this for this
    /// node.
    pub(crate) fn legacy_lookup(
        &mut self,
        now: Now,
        from: IpAddr,
        addresses: &[MacAddr],
        node: Option<NodeId>,
    ) -> Result<OrderOutcome, OrderRefusal> {
        let (mut node, proof) = self.expected(now, from, addresses, node)?;
        let id = node.id;
        let other = node.agent.as_ref().is_some_and(|agent| !agent.is_legacy());
        if !node.allows_legacy_agent() || other {
            self.note_refused(now, id, from, NO_LEGACY);
            return Err(Self::nothing_found());
        }
        if node.agent.is_none() {
            node.agent = Some(AgentSession::legacy());
            self.record_caller(now, &mut node, from, proof);
            self.records.put_node(now, node.clone());
            let from = from.to_canonical();
            self.note(now, Some(id), NoteKind::AgentLookedUp { from });
        }
        self.boot_queue.boot_finished(id);
        self.machine_seen(now, id);
        Ok(OrderOutcome::Found(Box::new(LookupResult {
            node: id,
            properties: node.properties,
            instance_info: masked(&node.instance_info),
            driver_internal_info: masked(&node.driver_internal_info),
            agent_token: MASK.to_owned(),
            heartbeat_timeout_s: self.settings.heartbeat_timeout_s,
        })))
    }

    /// A heartbeat of an agent from before tokens. Accepted only where such an agent looked its
    /// node up in this boot, and only from the address of the first heartbeat. All refusals
    /// have the same text, because this caller is not authenticated.
    pub(crate) fn legacy_heartbeat(
        &mut self,
        now: Now,
        from: IpAddr,
        id: NodeId,
        url: String,
    ) -> Result<(), OrderRefusal> {
        let mut node = self
            .require_node(id)
            .map_err(|_| OrderRefusal::of_heartbeat())?;
        let checked = self.check_heartbeat(&node, from);
        let checked = checked.and_then(|()| self.check_callback(&url, from));
        let allowed = node.allows_legacy_agent();
        let session = node
            .agent
            .as_mut()
            .filter(|agent| allowed && agent.is_legacy());
        let refused = match (&session, checked) {
            (None, _) => Some("no agent without a token was accepted"),
            (Some(_), Err(why)) => Some(why),
            (Some(session), Ok(())) => session
                .url
                .as_ref()
                .is_some_and(|known| *known != url)
                .then_some("agent_url differs from the recorded one"),
        };
        if let Some(why) = refused {
            self.note_refused(now, id, from, why);
            return Err(OrderRefusal::of_heartbeat());
        }
        if let Some(session) = session.filter(|session| session.url.is_none()) {
            session.url = Some(url);
            self.records.put_node(now, node.clone());
            let version = "without a token".to_owned();
            self.note(now, Some(id), NoteKind::AgentReady { version });
        }
        self.heartbeat_accepted(now, &node);
        Ok(())
    }

    /// The one node that has any of these hardware addresses. Where several nodes have, a note
    /// is added to each of them: the agent learns nothing, but the operators must.
    pub(crate) fn only_owner(
        &mut self,
        now: Now,
        from: IpAddr,
        addresses: &[MacAddr],
    ) -> Option<NodeId> {
        let owners: BTreeSet<_> = addresses
            .iter()
            .filter_map(|mac| self.records.node_of_mac(*mac))
            .collect();
        if owners.len() == 1 {
            return owners.into_iter().next();
        }
        if owners.is_empty() && !addresses.is_empty() {
            self.note_leaseholder_refused(now, from, UNKNOWN_MACS);
        }
        for id in owners {
            let why = "it names addresses of this node and of another one; remove the ports that \
                       are not this machine's";
            self.note_refused(now, id, from, why);
        }
        None
    }

    pub(crate) fn heartbeat(
        &mut self,
        now: Now,
        from: IpAddr,
        id: NodeId,
        beat: AgentHeartbeat,
    ) -> Result<(), OrderRefusal> {
        let node = self
            .records
            .node(id)
            .ok_or_else(OrderRefusal::of_heartbeat)?;
        let node = Arc::clone(node);
        let Some(session) = &node.agent else {
            self.note_refused(
                now,
                id,
                from,
                "no agent has looked the node up in this boot",
            );
            return Err(OrderRefusal::of_heartbeat());
        };
        let guess = beat.agent_token.as_deref();
        let former = session.former_token.as_ref();
        let former = former.filter(|token| trivet_certs_enrol::matches(token, guess));
        if former.is_none() && !trivet_certs_enrol::matches(&session.token, guess) {
            self.note_refused(now, id, from, "agent_token is missing or wrong");
            return Err(OrderRefusal::of_heartbeat());
        }
        let checked = self.check_heartbeat(&node, from);
        let checked = beat.callback_refused.map_or(checked, Err);
        if let Err(why) = checked.and_then(|()| self.check_callback(&beat.callback_url, from)) {
            return Err(self.refuse_caller(now, id, from, why));
        }
        if session
            .url
            .as_ref()
            .is_some_and(|url| *url != beat.callback_url)
        {
            return Err(self.refuse_caller(
                now,
                id,
                from,
                "callback_url differs from the recorded one",
            ));
        }
        if session.url.is_some() && session.verify_ca != beat.agent_verify_ca {
            return Err(self.refuse_caller(
                now,
                id,
                from,
                "agent_verify_ca differs from the recorded one",
            ));
        }
        let certificate = beat.agent_verify_ca.as_deref().unwrap_or_default();
        if beat.callback_url.starts_with("https://") && !certificate.contains(PEM_CERTIFICATE) {
            let why = "it listens by https and sent no certificate (agent_verify_ca) to verify \
                       it; let the agent create its own (enable_auto_tls, no listen_tls)";
            return Err(self.refuse_caller(now, id, from, why));
        }
        if session.url.is_none() {
            let version = beat.agent_version.clone().unwrap_or_default();
            let mut ready = Node::clone(&node);
            ready.agent = Some(AgentSession {
                token: former.unwrap_or(&session.token).clone(),
                former_token: None,
                url: Some(beat.callback_url),
                verify_ca: beat.agent_verify_ca,
                version: beat.agent_version,
            });
            self.records.put_node(now, ready);
            self.note(now, Some(id), NoteKind::AgentReady { version });
        }
        // A heartbeat that changes nothing ends here: a memory write, never a flash write.
        self.heartbeat_accepted(now, &node);
        Ok(())
    }

    fn heartbeat_accepted(&mut self, now: Now, node: &Node) {
        let id = node.id;
        self.records
            .change_view(id, |view| view.live.heartbeat_at = Some(now.wall));
        if let Some(waits) = self.transient.get_mut(&id) {
            waits.heartbeat_during_call = waits.call.is_some();
        }
        if node.provision_state.is_waiting() || node.job.is_none() {
            self.events.push_back((id, NodeEvent::Heartbeat));
        }
    }

    fn refuse_caller(
        &mut self,
        now: Now,
        id: NodeId,
        from: IpAddr,
        why: &'static str,
    ) -> OrderRefusal {
        self.note_refused(now, id, from, why);
        OrderRefusal::new(
            RefusalKind::Invalid,
            format!("Heartbeat for node {id} refused: {why}."),
        )
    }

    pub(crate) fn note_refused(&mut self, now: Now, id: NodeId, from: IpAddr, why: &'static str) {
        if self.is_refusal_due(now, id, from, why) {
            let from = from.to_canonical();
            self.note(now, Some(id), NoteKind::CallerRefused { from, why });
        }
    }

    /// Whether a refusal of this kind is noted now. A refused agent repeats its calls, which
    /// must not hide all other notes. Callers at other addresses hide no refusal of the node's
    /// own machine.
    fn is_refusal_due(&mut self, now: Now, id: NodeId, from: IpAddr, kind: &'static str) -> bool {
        let own = self.node_of_peer(from.to_canonical()) == Some(id);
        let refused = &mut self.transient.entry(id).or_default().refused;
        refused.retain(|_, until| now.tick < *until);
        let reasons = refused.keys().filter(|(_, of_own)| *of_own == own).count();
        if refused.contains_key(&(kind, own)) || reasons >= REFUSED_REASONS_MAX {
            return false;
        }
        let until = now.tick.after_ms(REFUSED_QUIET_MS);
        refused.insert((kind, own), until);
        true
    }

    /// Notes a refusal of a caller that names no known node, on the node that has its address.
    fn note_leaseholder_refused(&mut self, now: Now, from: IpAddr, why: &'static str) {
        if let Some(id) = self.node_of_peer(from.to_canonical()) {
            self.note_refused(now, id, from, why);
        }
    }

    /// A request of an agent was refused: adds a note to the node that has the caller's
    /// address, or else to the one that the request names.
    pub(crate) fn agent_refused(&mut self, now: Now, refused: &RefusedAgent) {
        let (from, request) = (refused.from.to_canonical(), refused.request);
        let named = refused.node.filter(|id| self.records.node(*id).is_some());
        let Some(id) = self.node_of_peer(from).or(named) else {
            return;
        };
        if self.is_refusal_due(now, id, from, request) {
            let why = crate::agents::callers::redacted(printable(&refused.why, WHY_CHARS_MAX));
            self.note(now, Some(id), NoteKind::AgentRefused { from, request, why });
        }
    }

    pub(crate) fn call_agent(&mut self, now: Now, id: NodeId, order: AgentOrder) {
        let Some(node) = self.records.node(id).cloned() else {
            return;
        };
        let Some(mut order) = self.with_image(now, &node, order) else {
            return;
        };
        let ports = self.records.ports_of(id);
        let waits = self.transient.entry(id).or_default();
        // A call that is under way is not sent a second time: the agent may have received it,
        // and its reply or time-out is still to come.
        let on_way = waits.call.as_ref().is_some_and(|(_, other)| {
            std::mem::discriminant(other) == std::mem::discriminant(&order)
        });
        if on_way || (order == AgentOrder::ListCommands && waits.call.is_some()) {
            return;
        }
        let Some(session) = &node.agent else {
            let error = AgentError::TokenRefused;
            self.events
                .push_back((id, NodeEvent::Agent(order, Err(error))));
            return;
        };
        if let (Some(url), AgentOrder::Execute { step, .. }) = (&session.url, &mut order) {
            self.settings.rewrite_urls(&mut step.args, url);
        }
        match (trivet_agent::call(&node, &ports, &order), &session.url) {
            (Ok(request), Some(url)) => {
                self.calls += 1;
                let looks = order == AgentOrder::ListCommands;
                waits.call = Some((self.calls, order));
                waits.heartbeat_during_call = false;
                self.outputs.push(RackOutput::CallAgent {
                    node: id,
                    call: self.calls,
                    url: url.clone(),
                    verify_ca: session.verify_ca.clone(),
                    request,
                });
                if !looks {
                    // The scheduled wake-up belonged to the state before this order. This order
                    // always ends with a reply or a time-out.
                    self.cancel_wake(id);
                }
            }
            (Err(error), _) => {
                let said = error.to_string();
                self.events.push_back((
                    id,
                    NodeEvent::Agent(order, Err(AgentError::Refused { said })),
                ));
            }
            (_, None) => {
                let error = AgentError::Unreachable {
                    url: "its address".to_owned(),
                    said: "it has not sent its callback URL".to_owned(),
                };
                self.events
                    .push_back((id, NodeEvent::Agent(order, Err(error))));
            }
        }
    }

    pub(crate) fn agent_answered(
        &mut self,
        now: Now,
        id: NodeId,
        call: u64,
        mut result: Result<(u16, Vec<u8>), String>,
    ) {
        if self.vendor_agent_answered(now, id, call, &mut result) {
            return;
        }
        let Some(waits) = self.transient.get_mut(&id) else {
            return;
        };
        // A reply to a call that a later call replaced is ignored.
        let Some((_, order)) = waits.call.take_if(|(number, _)| *number == call) else {
            return;
        };
        let beaten = std::mem::take(&mut waits.heartbeat_during_call);
        let session = self.records.node(id).and_then(|node| node.agent.as_ref());
        let token = session.map_or("", |agent| agent.token.as_str());
        let mut answer = match result {
            Ok((status, mut body)) => {
                // Before any of it is parsed or truncated.
                trivet_agent::redact_token(&mut body, token);
                let node = self.records.node(id).map(AsRef::as_ref);
                for secret in node.map(Self::deployment_tokens).unwrap_or_default() {
                    trivet_agent::redact_token(&mut body, &secret);
                }
                trivet_agent::answer(&order, status, &body)
            }
            Err(said) => {
                let url = session.and_then(|agent| agent.url.clone());
                Err(AgentError::Unreachable {
                    url: url.unwrap_or_default(),
                    said: trivet_agent::without_token(said, token),
                })
            }
        };
        if let Ok(AgentEvent::StepFailed { message: said, .. }) = &mut answer {
            *said = crate::agents::callers::redacted(std::mem::take(said));
        }
        if let Ok(AgentEvent::StepFailed { message: said, .. }) = &answer
            && self.write_failed(now, id, said)
        {
            return;
        }
        // A short step may end, and its heartbeat arrive, before the reply that reports its
        // start. That heartbeat carried the result, and the next one is minutes away.
        let looks_again = beaten
            && matches!(
                answer,
                Ok(AgentEvent::Accepted | AgentEvent::StepRunning | AgentEvent::Busy)
                    | Err(AgentError::Unreachable { .. })
            );
        self.events.push_back((id, NodeEvent::Agent(order, answer)));
        if looks_again {
            self.events.push_back((id, NodeEvent::Heartbeat));
        }
    }
}
