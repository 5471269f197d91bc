//! Lookup and heartbeat of agents, and refusals.

use std::collections::BTreeSet;
use std::net::IpAddr;

use trivet_model::caller::printable;
use trivet_model::note::LOOKUP_MACS_NOTED_MAX;
use trivet_model::order::{AgentHeartbeat, LookupResult};
use trivet_model::secret::{MASK, masked};
use trivet_model::{
    AgentAuthentication, AgentSession, ApiCaller, EvidenceNote, MacAddr, Node, NodeId, NoteKind,
    Now, OrderOutcome, OrderRefusal, RefusalKind,
};
use trivet_node::NodeEvent;

use crate::{Rack, RefusedAgent};

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

const NOT_RESTARTED: &str = "its machine was not seen to restart since the job requested a reset; \
                             this is the agent of the previous boot";

impl Rack {
    /// Whether the machine may still run the agent of the previous boot. Where the machine has
    /// its address from another server, this box does not see it restart, and every lookup is
    /// accepted.
    fn awaits_restart(&self, now: Now, id: NodeId) -> bool {
        self.agents.awaits_restart(now.tick, id) && !self.leased_to(id).is_empty()
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
        caller: &ApiCaller,
        addresses: &[MacAddr],
        node: Option<NodeId>,
    ) -> Result<(Node, AgentAuthentication), OrderRefusal> {
        let from = caller.from;
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
        let strength = self.check_certificate(now, &node, caller)?;
        let proof = self.check_lookup(now, &node, addresses, from)?;
        Ok((node, strength.or(proof)))
    }

    pub(crate) fn lookup(
        &mut self,
        now: Now,
        caller: &ApiCaller,
        addresses: &[MacAddr],
        node: Option<NodeId>,
    ) -> Result<OrderOutcome, OrderRefusal> {
        let (mut node, proof) = self.expected(now, caller, addresses, node)?;
        let from = caller.from;
        let id = node.id;
        let mut agent_token = MASK.to_owned();
        // The box lost power between the commit of a token and the first heartbeat: the agent
        // may never have received the token, and an agent without one hangs for ever.
        let unsure = node
            .agent
            .as_ref()
            .is_some_and(|session| session.url.is_none());
        if node.agent.is_none() || (unsure && !self.agents.has_issued_token(id)) {
            self.agents.token_issued(id);
            // Sent in clear text once, and durable before it is sent.
            let token = trivet_certs_enrol::mint(&mut *self.entropy);
            node.agent = Some(AgentSession {
                token: token.clone(),
                former_token: node.agent.map(|session| session.token),
                url: None,
                verify_ca: None,
                version: None,
                is_clean: false,
                ahead: None,
            });
            agent_token = token;
            self.record_caller(now, &mut node, from, proof);
            self.records.put_node(now, node.clone());
            let from = from.to_canonical();
            self.note(now, Some(id), NoteKind::AgentLookedUp { from });
        }
        self.boot.boot_finished(id);
        self.machine_seen(now, id);
        Ok(OrderOutcome::Found(Box::new(LookupResult {
            node: id,
            driver_internal_info: node.shown_internal_info(),
            properties: node.properties,
            instance_info: masked(&node.instance_info),
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
        caller: &ApiCaller,
        addresses: &[MacAddr],
        node: Option<NodeId>,
    ) -> Result<OrderOutcome, OrderRefusal> {
        let (mut node, proof) = self.expected(now, caller, addresses, node)?;
        let from = caller.from;
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
        self.boot.boot_finished(id);
        self.machine_seen(now, id);
        Ok(OrderOutcome::Found(Box::new(LookupResult {
            node: id,
            driver_internal_info: node.shown_internal_info(),
            properties: node.properties,
            instance_info: masked(&node.instance_info),
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
        caller: &ApiCaller,
        id: NodeId,
        url: String,
    ) -> Result<(), OrderRefusal> {
        let from = caller.from;
        let mut node = self
            .require_node(id)
            .map_err(|_| OrderRefusal::of_heartbeat())?;
        self.check_certificate(now, &node, caller)?;
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
            if let Some(id) = self.node_of_peer(from.to_canonical()) {
                self.note_lookup_unmatched(now, id, from, (addresses, 0));
            }
        }
        let nodes = owners.len();
        for id in owners {
            self.note_lookup_unmatched(now, id, from, (addresses, nodes));
            let why = "it names addresses of this node and of another one; remove the ports that \
                       are not this machine's";
            self.note_refused(now, id, from, why);
        }
        None
    }

    /// Notes, once for each boot, which hardware addresses an agent named.
    pub(crate) fn note_lookup_unmatched(
        &mut self,
        now: Now,
        id: NodeId,
        from: IpAddr,
        (addresses, nodes): (&[MacAddr], usize),
    ) {
        let known = self.records.evidence_of(id);
        if known.is_none_or(|known| !known.is_running || known.boot.lookup.is_some()) {
            return;
        }
        let macs = addresses.iter().take(LOOKUP_MACS_NOTED_MAX).copied();
        let evidence = EvidenceNote::LookupUnmatched {
            from: from.to_canonical(),
            macs: macs.collect(),
            nodes,
        };
        self.note(now, Some(id), NoteKind::Evidence(evidence));
    }

    pub(crate) fn heartbeat(
        &mut self,
        now: Now,
        caller: &ApiCaller,
        id: NodeId,
        heartbeat: AgentHeartbeat,
    ) -> Result<(), OrderRefusal> {
        let from = caller.from;
        let node = self.records.node(id).cloned();
        let node = node.ok_or_else(OrderRefusal::of_heartbeat)?;
        let Some(session) = &node.agent else {
            self.note_refused(
                now,
                id,
                from,
                "no agent has looked the node up in this boot",
            );
            return Err(OrderRefusal::of_heartbeat());
        };
        self.check_certificate(now, &node, caller)?;
        let guess = heartbeat.agent_token.as_deref();
        let former = session.former_token.as_ref();
        let former = former.filter(|token| trivet_certs_enrol::matches(token, guess));
        if former.is_none() && !trivet_certs_enrol::matches(&session.token, guess) {
            self.note_refused(now, id, from, "agent_token is missing or wrong");
            return Err(OrderRefusal::of_heartbeat());
        }
        let checked = self.check_heartbeat(&node, from);
        let checked = heartbeat.callback_refused.map_or(checked, Err);
        if let Err(why) = checked.and_then(|()| self.check_callback(&heartbeat.callback_url, from))
        {
            return Err(self.refuse_caller(now, id, from, why));
        }
        if session
            .url
            .as_ref()
            .is_some_and(|url| *url != heartbeat.callback_url)
        {
            return Err(self.refuse_caller(
                now,
                id,
                from,
                "callback_url differs from the recorded one",
            ));
        }
        if session.url.is_some() && session.verify_ca != heartbeat.agent_verify_ca {
            return Err(self.refuse_caller(
                now,
                id,
                from,
                "agent_verify_ca differs from the recorded one",
            ));
        }
        let certificate = heartbeat.agent_verify_ca.as_deref().unwrap_or_default();
        if heartbeat.callback_url.starts_with("https://") && !certificate.contains(PEM_CERTIFICATE)
        {
            let why = "it listens by https and sent no certificate (agent_verify_ca) to verify \
                       it; let the agent create its own (enable_auto_tls, no listen_tls)";
            return Err(self.refuse_caller(now, id, from, why));
        }
        if session.url.is_none() {
            let version = heartbeat.agent_version.clone().unwrap_or_default();
            let mut ready = Node::clone(&node);
            ready.agent = Some(AgentSession {
                token: former.unwrap_or(&session.token).clone(),
                former_token: None,
                url: Some(heartbeat.callback_url),
                verify_ca: heartbeat.agent_verify_ca,
                version: heartbeat.agent_version,
                ..session.clone()
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
        self.agents.heartbeat_received(id);
        if node.provision_state.is_waiting() || node.job.is_none() {
            self.events.push_back((id, NodeEvent::Heartbeat));
            self.plan_image_ahead(now, id);
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
        self.agents.is_refusal_due(now.tick, id, (kind, own))
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
}
