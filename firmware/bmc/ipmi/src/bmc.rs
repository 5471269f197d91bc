//! A simulated BMC: the other end, for the rehearsal and the tests.
//!
//! It decides who may log in and what each command answers, as a careful BMC
//! would: bounded sessions, a sequence window, privilege levels, repeated
//! requests answered without being done twice. The machine it controls is a
//! [`Chassis`] that the caller owns. It has no clock; the session unused for
//! longest makes room for a new one.

mod commands;
mod fru;
mod handshake;
mod identity;
mod old;
mod options;
mod sdr;
mod sel;

use std::collections::{BTreeMap, VecDeque};

use trivet_model::{Entropy, PowerOrder, PowerState};

use crate::boot::BootFlags;
use crate::channel::Channel;
use crate::command::completion;
use crate::errand::{Lan, Light, LightNow};
pub use crate::errand::{MAILBOX_BLOCK_BYTES, MAILBOX_BLOCKS_MAX};
use crate::fru::Inventory;
pub use crate::privilege::Privilege;
use crate::sdr::Sensor;
use crate::sel::{Event, Record};
use crate::suite::{Exchange, Suite};
use crate::wire::message::Message;
use crate::wire::packet::{
    self, KIND_IPMI, KIND_OPEN_REQUEST, KIND_OPEN_RESPONSE, KIND_RAKP_1, KIND_RAKP_2, KIND_RAKP_3,
    KIND_RAKP_4, Packet, Plus,
};
use crate::wire::rakp::OpenRequest;

use commands::Caller;
use options::BootOptions;
pub use sdr::SENSORS_MAX;
pub use sel::SEL_RECORDS_MAX;

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
    /// Does one of `On`, `Off`, `SoftOff`, `Cycle`, `Reset`, `Nmi`; others do not come.
    fn control(&mut self, order: PowerOrder);
    /// The boot flags its firmware would read.
    fn boot(&self) -> BootFlags;
    /// Replaces them.
    fn set_boot(&mut self, flags: BootFlags);
    /// Switches the light that marks it, if it has one.
    fn identify(&mut self, _light: Light) {}
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
    fru: fru::Fru,
    log: sel::Log,
    sensors: sdr::Sensors,
    lan: Lan,
    /// Without a clock a timed light stays lit.
    light: LightNow,
    sessions: BTreeMap<u32, Slot>,
    /// Sessions of IPMI 1.5, where it speaks that.
    old: Option<old::Table>,
    clock: u64,
    busy: u32,
}

impl Bmc {
    /// A BMC without sessions.
    pub fn new(setup: Setup) -> Self {
        Self {
            setup,
            options: BootOptions::default(),
            fru: fru::Fru::default(),
            log: sel::Log::default(),
            sensors: sdr::Sensors::default(),
            lan: Lan::default(),
            light: LightNow::Off,
            sessions: BTreeMap::new(),
            old: None,
            clock: 0,
            busy: 0,
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

    /// Puts an inventory into the FRU device, zeros behind it.
    pub fn set_fru(&mut self, inventory: &Inventory) {
        self.fru.fill(&inventory.emit());
    }

    /// The bytes of the FRU device.
    pub fn fru(&self) -> &[u8] {
        &self.fru.bytes
    }

    /// Takes the FRU device only in pieces of so many bytes.
    pub fn set_fru_piece(&mut self, bytes: u8) {
        self.fru.piece = usize::from(bytes);
    }

    /// Adds an event to the log, at most [`SEL_RECORDS_MAX`].
    pub fn add_event(&mut self, time_s: u32, event: Event) {
        self.log.add(time_s, event);
    }

    /// What is in the log.
    pub fn events(&self) -> &[Record] {
        self.log.records()
    }

    /// Has the log say so often that its erasure goes on.
    pub fn erase_slowly(&mut self, times: u8) {
        self.log.slow = times;
    }

    /// Adds a sensor, at most [`SENSORS_MAX`], or changes the one of its number.
    /// Without a raw reading it says that it has none.
    pub fn set_sensor(&mut self, sensor: Sensor, raw: Option<u8>) {
        self.sensors.set(sensor, raw);
    }

    /// Tells it its place in the network.
    pub fn set_lan(&mut self, lan: Lan) {
        self.lan = lan;
    }

    /// Takes boot options only between "set in progress" and "set complete".
    pub fn insist_on_frames(&mut self) {
        self.options.framed = true;
    }

    /// Answers the next requests inside sessions with "node busy", as BMCs do
    /// that have other work.
    pub fn keep_busy(&mut self, requests: u32) {
        self.busy = requests;
    }

    /// Speaks IPMI 1.5 with MD5 too.
    pub fn speak_old(&mut self) {
        self.old = Some(old::Table::default());
    }

    /// Forgets all sessions, as a BMC does that restarts.
    pub fn restart(&mut self) {
        self.sessions.clear();
        self.old = self.old.as_ref().map(|_| old::Table::default());
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
            Packet::Bare { message } => {
                let challenge = self.challenged(message, entropy);
                packet::bare(&challenge.or_else(|| self.outside(message, chassis))?)
            }
            Packet::Old(packet) => self.old_inside(&packet, chassis, entropy),
            Packet::Plus(plus) if plus.encrypted || plus.authenticated || plus.session_id != 0 => {
                self.inside(&plus, chassis, entropy)
            }
            Packet::Plus(plus) => match plus.kind {
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
        }
    }

    /// A request outside any session.
    fn outside(&mut self, bytes: &[u8], chassis: &mut dyn Chassis) -> Option<Vec<u8>> {
        let request = Message::parse(bytes).filter(Message::is_request)?;
        let body = self.execute(&request, None, chassis);
        Some(request.response(body).emit())
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
            if let Some(left) = self.busy.checked_sub(1) {
                self.busy = left;
                return request.response(vec![completion::NODE_BUSY]);
            }
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
        if commands::resets(&request, &response) {
            self.restart();
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
        if commands::acted(request, response) {
            live.remember(sequence, request, response);
        }
    }
}
