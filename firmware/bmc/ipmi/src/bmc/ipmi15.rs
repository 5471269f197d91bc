//! The BMC's part of IPMI 1.5: Get Session Challenge and Activate Session (sections 22.16 and
//! 22.17), and sessions whose messages are authenticated with MD5. A packet with a wrong code is
//! dropped without a response, as real BMCs do.

use std::collections::VecDeque;

use trivet_model::Entropy;

use crate::channel::ipmi15::{Ipmi15Channel, MD5, is_signed, sign};
use crate::command::{NETFN_APP, app, completion};
use crate::wire::message::IpmiMessage;
use crate::wire::number_at;
use crate::wire::packet::Ipmi15Packet;

use super::commands::{self, IpmiCaller};
use super::{IpmiChassis, IpmiPrivilege, IpmiSimulator, IpmiSimulatorUser};

/// Most challenges and sessions at a time; the oldest are evicted. Ours.
const TABLE_MAX: usize = 8;

/// Completion codes of these two commands.
const UNKNOWN_USER: u8 = 0x81;
const ABOVE_LIMIT: u8 = 0x86;

#[derive(Default)]
pub(super) struct Ipmi15SessionTable {
    challenges: VecDeque<Ipmi15Challenge>,
    sessions: VecDeque<Ipmi15BmcSession>,
}

struct Ipmi15Challenge {
    id: u32,
    user: IpmiSimulatorUser,
    challenge: [u8; 16],
}

struct Ipmi15BmcSession {
    channel: Ipmi15Channel,
    user: IpmiSimulatorUser,
    level: IpmiPrivilege,
    /// The last request and its response: a repetition is not executed twice.
    last: Option<(IpmiMessage, IpmiMessage)>,
}

fn push<T>(queue: &mut VecDeque<T>, item: T) {
    if queue.len() >= TABLE_MAX {
        queue.pop_front();
    }
    queue.push_back(item);
}

impl IpmiSimulator {
    /// Responds to Get Session Challenge; `None` if the message is another one.
    pub(super) fn handle_session_challenge(
        &mut self,
        bytes: &[u8],
        entropy: &mut dyn Entropy,
    ) -> Option<Vec<u8>> {
        let table = self.ipmi15.as_mut()?;
        let request = IpmiMessage::parse(bytes)?;
        if (request.netfn, request.command) != (NETFN_APP, app::SESSION_CHALLENGE) {
            return None;
        }
        let answer = |body| Some(request.response(body).emit());
        let Some((&MD5, name)) = request.body.split_first() else {
            return answer(vec![completion::BAD_FIELD]);
        };
        let end = name
            .iter()
            .rposition(|&byte| byte != 0)
            .map_or(0, |at| at + 1);
        let users = &self.setup.users;
        let Some(user) = users.iter().find(|user| user.name == name[..end]) else {
            return answer(vec![UNKNOWN_USER]);
        };
        let id = (entropy.number() as u32).max(1);
        let mut code = [0; 16];
        entropy.fill(&mut code);
        let user = user.clone();
        push(
            &mut table.challenges,
            Ipmi15Challenge {
                id,
                user,
                challenge: code,
            },
        );
        let mut body = vec![completion::OK];
        body.extend(id.to_le_bytes());
        body.extend(code);
        answer(body)
    }

    /// An authenticated packet: the activation of a session, or a request inside one.
    pub(super) fn handle_ipmi15_packet(
        &mut self,
        packet: &Ipmi15Packet<'_>,
        machine: &mut dyn IpmiChassis,
        entropy: &mut dyn Entropy,
    ) -> Option<Vec<u8>> {
        let table = self.ipmi15.as_mut()?;
        let mut sessions = table.sessions.iter_mut();
        let at = sessions.position(|session| session.channel.id() == packet.session_id);
        let Some(at) = at else {
            return table.activate(packet, entropy);
        };
        let session = table.sessions.get_mut(at)?;
        let text = session.channel.open(packet)?;
        let request = IpmiMessage::parse(&text).filter(IpmiMessage::is_request)?;
        let caller = IpmiCaller {
            session_id: packet.session_id,
            level: session.level,
            limit: session.user.limit,
        };
        let known = session.last.as_ref().filter(|(last, _)| *last == request);
        let response = match known.map(|(_, response)| response.clone()) {
            Some(response) => response,
            None => request.response(self.execute(&request, Some(caller), machine)),
        };
        let session = self.ipmi15.as_mut()?.sessions.get_mut(at)?;
        if let Some(level) = commands::level_granted(&request, &response) {
            session.level = level;
        }
        session.last = Some((request.clone(), response.clone()));
        let bytes = session.channel.seal(&response.emit())?;
        if commands::session_closed(&request, &response).is_some() {
            self.ipmi15.as_mut()?.sessions.remove(at);
        }
        if commands::is_bmc_reset(&request, &response) {
            self.restart();
        }
        Some(bytes)
    }
}

impl Ipmi15SessionTable {
    /// A repetition gets a new session; the first one is then unused.
    fn activate(
        &mut self,
        packet: &Ipmi15Packet<'_>,
        entropy: &mut dyn Entropy,
    ) -> Option<Vec<u8>> {
        let mut challenges = self.challenges.iter();
        let opened = challenges.find(|it| it.id == packet.session_id)?;
        let (user, password) = (opened.user.clone(), opened.user.password.clone());
        if packet.sequence != 0 || !is_signed(&password, packet) {
            return None;
        }
        let request = IpmiMessage::parse(packet.message)?;
        let is_it = (request.netfn, request.command) == (NETFN_APP, app::ACTIVATE_SESSION);
        let wanted = *request.body.get(1)?;
        let first = number_at(&request.body, 18)?;
        if !is_it || request.body.get(2..18)? != opened.challenge {
            return None;
        }
        let mut body = vec![completion::OK, MD5];
        if wanted & 0x0f > user.limit as u8 {
            body = vec![ABOVE_LIMIT];
        } else {
            let drawn = entropy.number();
            let (id, next) = ((drawn as u32).max(1), (drawn >> 33) as u32 + 1);
            body.extend(id.to_le_bytes());
            body.extend(next.to_le_bytes());
            body.push(wanted);
            let session = Ipmi15BmcSession {
                channel: Ipmi15Channel::new(&password, id, first, next),
                user,
                level: IpmiPrivilege::User,
                last: None,
            };
            push(&mut self.sessions, session);
        }
        sign(
            &password,
            packet.session_id,
            0,
            &request.response(body).emit(),
        )
    }
}
