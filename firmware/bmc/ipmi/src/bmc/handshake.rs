//! The BMC's part of the handshake: Open Session and RAKP 2 and 4 (sections 13.17 to 13.23). A
//! repeated message gets the same response, because the console may have lost the first response or
//! used it already.

use std::collections::VecDeque;

use trivet_model::Entropy;

use crate::channel::RmcpPlusChannel;
use crate::suite::{IpmiCipherSuite, RakpExchange, same_code};
use crate::wire::rakp::{
    OpenSessionRequest, Rakp1, Rakp3, RakpReply, USERNAME_BYTES_MAX, emit_opened, status,
};

use super::{
    IpmiLiveSession, IpmiPrivilege, IpmiSessionSlot, IpmiSimulator, IpmiSlotStage, SESSIONS_MAX,
};

impl IpmiSimulator {
    pub(super) fn open(
        &mut self,
        peer: u64,
        payload: &[u8],
        entropy: &mut dyn Entropy,
    ) -> Option<Vec<u8>> {
        let request = OpenSessionRequest::parse(payload)?;
        let refuse = |status| refusal(request.tag, status, request.console_id);
        let suite = match IpmiCipherSuite::from_algorithms(request.algorithms) {
            Some(suite) if self.setup.suites.contains(&suite) => suite,
            _ => return Some(refuse(self.algorithm_status(request))),
        };
        if request.console_id == 0 {
            return Some(refuse(status::BAD_SESSION_ID));
        }
        // A repetition uses the session that its first copy opened.
        let known = self.sessions.iter().find(|(_, slot)| {
            slot.peer == peer
                && slot.request == request
                && matches!(slot.stage, IpmiSlotStage::Opened)
        });
        let managed_id = match known {
            Some((&id, _)) => id,
            None => self.new_slot(peer, request, suite, entropy),
        };
        let rest = emit_opened(managed_id, suite.algorithms());
        let reply = RakpReply {
            tag: request.tag,
            status: status::OK,
            console_id: request.console_id,
            rest: &rest,
        };
        let mut answer = reply.emit();
        // The highest level of this session; the user's limit is applied later. FreeIPMI requests
        // the highest level as zero, and expects its number in the response.
        answer[2] = match request.privilege {
            0 => IpmiPrivilege::Administrator as u8,
            level => level,
        };
        Some(answer)
    }

    /// The status code for the unsupported one of the three algorithms.
    fn algorithm_status(&self, request: OpenSessionRequest) -> u8 {
        let offered = |at: usize| {
            self.setup
                .suites
                .iter()
                .any(|suite| suite.algorithms()[at] == request.algorithms[at])
        };
        if !offered(0) {
            status::BAD_AUTHENTICATION
        } else if !offered(1) {
            status::BAD_INTEGRITY
        } else if !offered(2) {
            status::BAD_CONFIDENTIALITY
        } else {
            status::NO_SUITE_MATCH
        }
    }

    fn new_slot(
        &mut self,
        peer: u64,
        request: OpenSessionRequest,
        suite: IpmiCipherSuite,
        entropy: &mut dyn Entropy,
    ) -> u32 {
        if self.sessions.len() >= SESSIONS_MAX {
            // Half-open sessions are evicted first: opening a session needs no password, so it must
            // not end a live session while there is a half-open one.
            let oldest = self
                .sessions
                .iter()
                .min_by_key(|(_, slot)| {
                    (matches!(slot.stage, IpmiSlotStage::Live(_)), slot.last_used)
                })
                .map(|(&id, _)| id);
            if let Some(id) = oldest {
                self.sessions.remove(&id);
            }
        }
        let mut managed_id = (entropy.number() as u32).max(1);
        // The table is small, so a free number is found soon.
        while self.sessions.contains_key(&managed_id) {
            managed_id = managed_id.wrapping_add(1).max(1);
        }
        let slot = IpmiSessionSlot {
            peer,
            last_used: self.clock,
            request,
            suite,
            stage: IpmiSlotStage::Opened,
        };
        self.sessions.insert(managed_id, slot);
        managed_id
    }

    pub(super) fn rakp1(&mut self, payload: &[u8], entropy: &mut dyn Entropy) -> Option<Vec<u8>> {
        let message = Rakp1::parse(payload)?;
        let slot = self.sessions.get_mut(&message.managed_id)?;
        let console_id = slot.request.console_id;
        let refuse = |status| Some(refusal(message.tag, status, console_id));
        if message.username.len() > USERNAME_BYTES_MAX {
            return refuse(status::BAD_NAME_LENGTH);
        }
        let Some(user) = self
            .setup
            .users
            .iter()
            .find(|user| user.name == message.username)
        else {
            return refuse(status::NAME_REFUSED);
        };
        // Level zero requests the highest level.
        let level = message.role & 0x0f;
        if level > user.limit as u8 {
            return refuse(status::ROLE_REFUSED);
        }
        slot.last_used = self.clock;
        let mut managed_random = [0; 16];
        match &slot.stage {
            IpmiSlotStage::Live(_) => return None,
            // A repetition must get the same response: the console may have used the first one
            // already.
            IpmiSlotStage::Named { exchange, .. }
                if exchange.console_random == message.console_random
                    && exchange.role == message.role
                    && exchange.username == message.username =>
            {
                managed_random = exchange.managed_random;
            }
            _ => entropy.fill(&mut managed_random),
        }
        let exchange = Box::new(RakpExchange {
            suite: slot.suite,
            console_id,
            managed_id: message.managed_id,
            console_random: message.console_random,
            managed_random,
            guid: self.setup.guid,
            role: message.role,
            username: message.username,
        });
        let mut rest = managed_random.to_vec();
        rest.extend(self.setup.guid);
        rest.extend(exchange.rakp2_code(&user.password));
        slot.stage = IpmiSlotStage::Named {
            exchange,
            user: user.clone(),
        };
        Some(
            RakpReply {
                tag: message.tag,
                status: status::OK,
                console_id,
                rest: &rest,
            }
            .emit(),
        )
    }

    pub(super) fn rakp3(&mut self, payload: &[u8]) -> Option<Vec<u8>> {
        let message = Rakp3::parse(payload)?;
        let slot = self.sessions.get_mut(&message.managed_id)?;
        let console_id = slot.request.console_id;
        let (exchange, user) = match &slot.stage {
            IpmiSlotStage::Opened => return None,
            IpmiSlotStage::Named { exchange, user } => (exchange.as_ref().clone(), user.clone()),
            IpmiSlotStage::Live(live) => (live.exchange.clone(), live.user.clone()),
        };
        let live = matches!(slot.stage, IpmiSlotStage::Live(_));
        if message.status != status::OK {
            // The console aborts. This message is not authenticated, so it ends only a half-open
            // session.
            if !live {
                self.sessions.remove(&message.managed_id);
            }
            return None;
        }
        if !same_code(&message.code, &exchange.rakp3_code(&user.password)) {
            return Some(refusal(message.tag, status::BAD_CHECK_VALUE, console_id));
        }
        let keys = exchange.keys(&user.password, self.setup.kg.as_deref());
        let code = exchange.rakp4_code(&keys);
        if !live {
            slot.last_used = self.clock;
            let channel = RmcpPlusChannel::new(slot.suite, keys, message.managed_id, console_id);
            let level = IpmiPrivilege::User;
            slot.stage = IpmiSlotStage::Live(Box::new(IpmiLiveSession {
                channel,
                exchange,
                user,
                level,
                actions: VecDeque::new(),
            }));
        }
        Some(
            RakpReply {
                tag: message.tag,
                status: status::OK,
                console_id,
                rest: &code,
            }
            .emit(),
        )
    }
}

fn refusal(tag: u8, status: u8, console_id: u32) -> Vec<u8> {
    RakpReply {
        tag,
        status,
        console_id,
        rest: &[],
    }
    .emit()
}
