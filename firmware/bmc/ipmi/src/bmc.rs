//! A simulated BMC: the other end, for the rehearsal and the tests.
//!
//! It decides who may log in and what each command answers, as a careful BMC
//! would: bounded sessions, a sequence window, privilege levels, repeated
//! requests answered without being done twice. The machine it controls is a
//! [`Chassis`] that the caller owns. It has no clock; the session unused for
//! longest makes room for a new one.

mod commands;
mod options;

use std::collections::{BTreeMap, VecDeque};

use trivet_model::{Entropy, PowerOrder, PowerState};

use crate::boot::BootFlags;
use crate::channel::Channel;
use crate::suite::{Exchange, Suite, same_code};
use crate::wire::message::Message;
use crate::wire::packet::{
    self, KIND_IPMI, KIND_OPEN_REQUEST, KIND_OPEN_RESPONSE, KIND_RAKP_1, KIND_RAKP_2, KIND_RAKP_3,
    KIND_RAKP_4, Packet, Plus,
};
use crate::wire::rakp::{
    OpenRequest, Rakp1, Rakp3, Reply, USERNAME_BYTES_MAX, emit_opened, status,
};

use commands::Caller;
use options::BootOptions;
pub use options::{MAILBOX_BLOCK_BYTES, MAILBOX_BLOCKS_MAX};

/// Most sessions at once, half-open ones included. Ours; real BMCs have 4 to 36.
pub const SESSIONS_MAX: usize = 8;
/// Most acts a session remembers, and how far apart in session numbers two
/// copies of one request may be. Ours: half the range of request numbers.
const ACTS_MAX: usize = 16;
const ACT_DISTANCE_MAX: u32 = 32;

/// The machine a BMC controls.
pub trait Chassis {
    /// Whether it runs.
    fn power(&self) -> PowerState;
    /// Does one of `On`, `Off`, `SoftOff`, `Cycle`, `Reset`; others do not come.
    fn control(&mut self, order: PowerOrder);
    /// The boot flags its firmware would read.
    fn boot(&self) -> BootFlags;
    /// Replaces them.
    fn set_boot(&mut self, flags: BootFlags);
}

/// Privilege levels, lowest first (section 6.8).
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Privilege {
    /// May look.
    User = 2,
    /// May switch power and choose boot devices.
    Operator = 3,
    /// May do all.
    Administrator = 4,
}

impl Privilege {
    fn from_level(level: u8) -> Option<Self> {
        match level {
            2 => Some(Self::User),
            3 => Some(Self::Operator),
            4 => Some(Self::Administrator),
            _ => None,
        }
    }
}

/// Somebody who may log in.
#[derive(Clone, Eq, PartialEq)]
pub struct User {
    /// Name, at most 16 bytes.
    pub name: Vec<u8>,
    /// Password, at most 20 bytes.
    pub password: Vec<u8>,
    /// The highest level this user may have.
    pub limit: Privilege,
}

/// What a BMC is set up with.
#[derive(Clone, Eq, PartialEq)]
pub struct Setup {
    /// Who may log in.
    pub users: Vec<User>,
    /// The system's identifier, as it goes over the wire.
    pub guid: [u8; 16],
    /// The BMC's own key, if it has one.
    pub kg: Option<Vec<u8>>,
    /// The suites it accepts.
    pub suites: Vec<Suite>,
}

enum Stage {
    Opened,
    Named { exchange: Box<Exchange>, user: User },
    Live(Box<Live>),
}

struct Live {
    channel: Channel,
    exchange: Exchange,
    user: User,
    level: Privilege,
    /// The last requests that acted on the machine, oldest first.
    acts: VecDeque<Act>,
}

/// A request that acted on the machine, kept to recognise its repetitions.
struct Act {
    sequence: u32,
    request: Message,
    response: Message,
}

impl Live {
    /// The response to a request that was done before. A copy that was late may
    /// come after other requests; one far away in session numbers is a new
    /// request whose six-bit number came round.
    fn repeated(&self, sequence: u32, request: &Message) -> Option<Message> {
        let near = |act: &&Act| {
            let ahead = sequence.wrapping_sub(act.sequence);
            ahead.min(ahead.wrapping_neg()) < ACT_DISTANCE_MAX
        };
        self.acts
            .iter()
            .filter(near)
            .find(|act| act.request == *request)
            .map(|act| act.response.clone())
    }

    fn remember(&mut self, sequence: u32, request: &Message, response: &Message) {
        if self.acts.len() >= ACTS_MAX {
            self.acts.pop_front();
        }
        let (request, response) = (request.clone(), response.clone());
        self.acts.push_back(Act {
            sequence,
            request,
            response,
        });
    }
}

/// One entry of the session table.
struct Slot {
    peer: u64,
    used: u64,
    request: OpenRequest,
    suite: Suite,
    stage: Stage,
}

/// A simulated BMC.
pub struct Bmc {
    setup: Setup,
    options: BootOptions,
    sessions: BTreeMap<u32, Slot>,
    clock: u64,
}

impl Bmc {
    /// A BMC without sessions.
    pub fn new(setup: Setup) -> Self {
        Self {
            setup,
            options: BootOptions::default(),
            sessions: BTreeMap::new(),
            clock: 0,
        }
    }

    /// How many sessions are open or half open.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// A block of the boot initiator mailbox (boot option 7), which the machine
    /// reads from inside. None where nothing was written.
    pub fn mailbox(&self, block: u8) -> Option<[u8; MAILBOX_BLOCK_BYTES]> {
        self.options.mailbox(block)
    }

    /// Forgets all sessions, as a BMC does that restarts.
    pub fn restart(&mut self) {
        self.sessions.clear();
    }

    /// Takes a datagram of `peer` and gives the answer, if it deserves one.
    /// `peer` is the caller's number for the sender's address.
    pub fn datagram(
        &mut self,
        peer: u64,
        bytes: &[u8],
        chassis: &mut dyn Chassis,
        entropy: &mut dyn Entropy,
    ) -> Option<Vec<u8>> {
        self.clock += 1;
        match Packet::parse(bytes)? {
            Packet::Ping { tag } => Some(packet::pong(tag)),
            Packet::Bare { message } => packet::bare(&self.outside(message, chassis)?),
            Packet::Plus(plus) if plus.encrypted || plus.authenticated => {
                self.inside(&plus, chassis, entropy)
            }
            Packet::Plus(plus) if plus.session_id == 0 => match plus.kind {
                KIND_IPMI => {
                    let answer = self.outside(plus.payload, chassis)?;
                    Some(packet::plus(KIND_IPMI, 0, 0, &answer))
                }
                KIND_OPEN_REQUEST => {
                    let answer = self.open(peer, plus.payload, entropy)?;
                    Some(packet::plus(KIND_OPEN_RESPONSE, 0, 0, &answer))
                }
                KIND_RAKP_1 => {
                    let answer = self.rakp1(plus.payload, entropy)?;
                    Some(packet::plus(KIND_RAKP_2, 0, 0, &answer))
                }
                KIND_RAKP_3 => {
                    let answer = self.rakp3(plus.payload)?;
                    Some(packet::plus(KIND_RAKP_4, 0, 0, &answer))
                }
                _ => None,
            },
            Packet::Plus(_) => None,
        }
    }

    /// A request outside any session.
    fn outside(&mut self, bytes: &[u8], chassis: &mut dyn Chassis) -> Option<Vec<u8>> {
        let request = Message::parse(bytes).filter(Message::is_request)?;
        let body = self.execute(&request, None, chassis);
        Some(request.response(body).emit())
    }

    fn open(&mut self, peer: u64, payload: &[u8], entropy: &mut dyn Entropy) -> Option<Vec<u8>> {
        let request = OpenRequest::parse(payload)?;
        let refuse = |status| refusal(request.tag, status, request.console_id);
        let suite = match Suite::from_algorithms(request.algorithms) {
            Some(suite) if self.setup.suites.contains(&suite) => suite,
            _ => return Some(refuse(self.algorithm_status(request))),
        };
        if request.console_id == 0 {
            return Some(refuse(status::BAD_SESSION_ID));
        }
        // A repetition finds the session that its first copy opened.
        let known = self.sessions.iter().find(|(_, slot)| {
            slot.peer == peer && slot.request == request && matches!(slot.stage, Stage::Opened)
        });
        let managed_id = match known {
            Some((&id, _)) => id,
            None => self.new_slot(peer, request, suite, entropy),
        };
        let rest = emit_opened(managed_id, suite.algorithms());
        let reply = Reply {
            tag: request.tag,
            status: status::OK,
            console_id: request.console_id,
            rest: &rest,
        };
        let mut answer = reply.emit();
        // The level this session may reach; the user's limit comes in later.
        // FreeIPMI asks for the highest, which is zero, and wants to hear its name.
        answer[2] = match request.privilege {
            0 => Privilege::Administrator as u8,
            level => level,
        };
        Some(answer)
    }

    /// Which of the three algorithms is the one that is not had.
    fn algorithm_status(&self, request: OpenRequest) -> u8 {
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
        request: OpenRequest,
        suite: Suite,
        entropy: &mut dyn Entropy,
    ) -> u32 {
        if self.sessions.len() >= SESSIONS_MAX {
            // Half-open sessions go first, so that opening alone, which needs no
            // password, ends nobody's session while there is another way.
            let oldest = self
                .sessions
                .iter()
                .min_by_key(|(_, slot)| (matches!(slot.stage, Stage::Live(_)), slot.used))
                .map(|(&id, _)| id);
            if let Some(id) = oldest {
                self.sessions.remove(&id);
            }
        }
        let mut managed_id = (entropy.number() as u32).max(1);
        // The table is small, so a free number is near.
        while self.sessions.contains_key(&managed_id) {
            managed_id = managed_id.wrapping_add(1).max(1);
        }
        let slot = Slot {
            peer,
            used: self.clock,
            request,
            suite,
            stage: Stage::Opened,
        };
        self.sessions.insert(managed_id, slot);
        managed_id
    }

    fn rakp1(&mut self, payload: &[u8], entropy: &mut dyn Entropy) -> Option<Vec<u8>> {
        let said = Rakp1::parse(payload)?;
        let slot = self.sessions.get_mut(&said.managed_id)?;
        let console_id = slot.request.console_id;
        let refuse = |status| Some(refusal(said.tag, status, console_id));
        if said.username.len() > USERNAME_BYTES_MAX {
            return refuse(status::BAD_NAME_LENGTH);
        }
        let Some(user) = self
            .setup
            .users
            .iter()
            .find(|user| user.name == said.username)
        else {
            return refuse(status::NAME_REFUSED);
        };
        // Level zero asks for the highest there is.
        let level = said.role & 0x0f;
        if level > user.limit as u8 {
            return refuse(status::ROLE_REFUSED);
        }
        slot.used = self.clock;
        let mut managed_random = [0; 16];
        match &slot.stage {
            Stage::Live(_) => return None,
            // A repetition must get the same answer: the console may have taken
            // the first one already.
            Stage::Named { exchange, .. }
                if exchange.console_random == said.console_random
                    && exchange.role == said.role
                    && exchange.username == said.username =>
            {
                managed_random = exchange.managed_random;
            }
            _ => entropy.fill(&mut managed_random),
        }
        let exchange = Box::new(Exchange {
            suite: slot.suite,
            console_id,
            managed_id: said.managed_id,
            console_random: said.console_random,
            managed_random,
            guid: self.setup.guid,
            role: said.role,
            username: said.username,
        });
        let mut rest = managed_random.to_vec();
        rest.extend(self.setup.guid);
        rest.extend(exchange.rakp2_code(&user.password));
        slot.stage = Stage::Named {
            exchange,
            user: user.clone(),
        };
        Some(
            Reply {
                tag: said.tag,
                status: status::OK,
                console_id,
                rest: &rest,
            }
            .emit(),
        )
    }

    fn rakp3(&mut self, payload: &[u8]) -> Option<Vec<u8>> {
        let said = Rakp3::parse(payload)?;
        let slot = self.sessions.get_mut(&said.managed_id)?;
        let console_id = slot.request.console_id;
        let (exchange, user) = match &slot.stage {
            Stage::Opened => return None,
            Stage::Named { exchange, user } => (exchange.as_ref().clone(), user.clone()),
            Stage::Live(live) => (live.exchange.clone(), live.user.clone()),
        };
        let live = matches!(slot.stage, Stage::Live(_));
        if said.status != status::OK {
            // The console gives up. It need not prove who it is, so only a
            // half-open session ends by this.
            if !live {
                self.sessions.remove(&said.managed_id);
            }
            return None;
        }
        if !same_code(&said.code, &exchange.rakp3_code(&user.password)) {
            return Some(refusal(said.tag, status::BAD_CHECK_VALUE, console_id));
        }
        let keys = exchange.keys(&user.password, self.setup.kg.as_deref());
        let code = exchange.rakp4_code(&keys);
        if !live {
            slot.used = self.clock;
            let channel = Channel::new(slot.suite, keys, said.managed_id, console_id);
            let level = Privilege::User;
            slot.stage = Stage::Live(Box::new(Live {
                channel,
                exchange,
                user,
                level,
                acts: VecDeque::new(),
            }));
        }
        Some(
            Reply {
                tag: said.tag,
                status: status::OK,
                console_id,
                rest: &code,
            }
            .emit(),
        )
    }

    /// A request inside a session.
    fn inside(
        &mut self,
        plus: &Plus<'_>,
        chassis: &mut dyn Chassis,
        entropy: &mut dyn Entropy,
    ) -> Option<Vec<u8>> {
        let id = plus.session_id;
        let slot = self.sessions.get_mut(&id)?;
        let Stage::Live(live) = &mut slot.stage else {
            return None;
        };
        let text = live.channel.open(plus)?;
        slot.used = self.clock;
        let request = Message::parse(&text).filter(Message::is_request)?;
        if plus.kind != KIND_IPMI {
            return None;
        }
        let known = live.repeated(plus.sequence, &request);
        let caller = Caller {
            session_id: id,
            level: live.level,
            limit: live.user.limit,
        };
        let response = known.unwrap_or_else(|| {
            let response = request.response(self.execute(&request, Some(caller), chassis));
            self.settle(id, plus.sequence, &request, &response);
            response
        });
        let Stage::Live(live) = &mut self.sessions.get_mut(&id)?.stage else {
            return None;
        };
        let bytes = live.channel.seal(KIND_IPMI, &response.emit(), entropy);
        if let Some(closed) = commands::session_closed(&request, &response) {
            self.sessions.remove(&closed);
        }
        Some(bytes)
    }

    /// Draws the consequences of a request for its session.
    fn settle(&mut self, id: u32, sequence: u32, request: &Message, response: &Message) {
        let Some(Slot {
            stage: Stage::Live(live),
            ..
        }) = self.sessions.get_mut(&id)
        else {
            return;
        };
        if let Some(level) = commands::level_granted(request, response) {
            live.level = level;
        }
        if commands::acts(request) {
            live.remember(sequence, request, response);
        }
    }
}

fn refusal(tag: u8, status: u8, console_id: u32) -> Vec<u8> {
    Reply {
        tag,
        status,
        console_id,
        rest: &[],
    }
    .emit()
}
