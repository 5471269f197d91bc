//! A simulated BMC, for the simulation and the tests.
//!
//! It authenticates consoles and responds to commands as a correct BMC does: a bounded number of
//! sessions, a sequence window, privilege levels, and repeated requests that are answered without
//! being executed twice. The machine it controls is an [`IpmiChassis`] that the caller owns. It has
//! no clock; a new session evicts the least recently used one.

mod commands;
mod fru;
mod handshake;
mod identity;
mod ipmi15;
mod options;
mod sdr;
mod sel;

use std::collections::{BTreeMap, VecDeque};

use trivet_model::{Entropy, PowerOrder, PowerState};

use crate::boot::BootFlags;
use crate::channel::RmcpPlusChannel;
use crate::command::completion;
use crate::fru::FruInventory;
use crate::operation::{IpmiIdentify, IpmiIdentifyState, IpmiLanConfig};
pub use crate::operation::{MAILBOX_BLOCK_BYTES, MAILBOX_BLOCKS_MAX};
pub use crate::privilege::IpmiPrivilege;
use crate::sdr::SdrSensor;
use crate::sel::{SelEvent, SelRecord};
use crate::suite::{IpmiCipherSuite, RakpExchange};
use crate::wire::message::IpmiMessage;
use crate::wire::packet::{
    self, KIND_IPMI, KIND_OPEN_REQUEST, KIND_OPEN_RESPONSE, KIND_RAKP_1, KIND_RAKP_2, KIND_RAKP_3,
    KIND_RAKP_4, RmcpPacket, RmcpPlusPacket,
};
use crate::wire::rakp::OpenSessionRequest;

use commands::IpmiCaller;
use options::BootOptions;
pub use sdr::SENSORS_MAX;
pub use sel::SEL_RECORDS_MAX;

/// Most sessions at a time, half-open ones included. Ours; real BMCs have 4 to 36.
pub const SESSIONS_MAX: usize = 8;
/// Most requests that a session remembers, and the largest distance in session sequence numbers
/// between two copies of one request. Ours: half the range of request numbers.
const ACTIONS_MAX: usize = 16;
const ACTION_DISTANCE_MAX: u32 = 32;

/// The machine that a BMC controls.
pub trait IpmiChassis {
    /// The present power state.
    fn power(&self) -> PowerState;
    /// Executes one of `On`, `Off`, `SoftOff`, `Cycle`, `Reset`, `Nmi`; it is not called with
    /// others.
    fn control(&mut self, order: PowerOrder);
    /// The boot flags its firmware would read.
    fn boot(&self) -> BootFlags;
    /// Replaces the boot flags.
    fn set_boot(&mut self, flags: BootFlags);
    /// Switches the identify LED, if it has one.
    fn identify(&mut self, _light: IpmiIdentify) {}
}

/// A user of the simulated BMC.
#[derive(Clone, Eq, PartialEq)]
pub struct IpmiSimulatorUser {
    /// Name, at most 16 bytes.
    pub name: Vec<u8>,
    /// Password, at most 20 bytes.
    pub password: Vec<u8>,
    /// The highest privilege level of this user.
    pub limit: IpmiPrivilege,
}

/// The configuration of a simulated BMC.
#[derive(Clone, Eq, PartialEq)]
pub struct IpmiSimulatorSetup {
    /// The users that can log in.
    pub users: Vec<IpmiSimulatorUser>,
    /// The system GUID, in the byte order of the wire.
    pub guid: [u8; 16],
    /// The BMC key (K_g), if it has one.
    pub kg: Option<Vec<u8>>,
    /// The suites it accepts.
    pub suites: Vec<IpmiCipherSuite>,
}

enum IpmiSlotStage {
    Opened,
    Named {
        exchange: Box<RakpExchange>,
        user: IpmiSimulatorUser,
    },
    Live(Box<IpmiLiveSession>),
}

struct IpmiLiveSession {
    channel: RmcpPlusChannel,
    exchange: RakpExchange,
    user: IpmiSimulatorUser,
    level: IpmiPrivilege,
    /// The last requests that changed the machine, oldest first.
    actions: VecDeque<IpmiCompletedAction>,
}

/// A request that changed the machine, stored to recognise its repetitions.
struct IpmiCompletedAction {
    sequence: u32,
    request: IpmiMessage,
    response: IpmiMessage,
}

impl IpmiLiveSession {
    /// The response to a request that was executed before. A delayed copy can arrive after other
    /// requests; a request with a distant session sequence number is a new one whose six-bit
    /// request number wrapped around.
    fn repeated(&self, sequence: u32, request: &IpmiMessage) -> Option<IpmiMessage> {
        let near = |act: &&IpmiCompletedAction| {
            let ahead = sequence.wrapping_sub(act.sequence);
            ahead.min(ahead.wrapping_neg()) < ACTION_DISTANCE_MAX
        };
        self.actions
            .iter()
            .filter(near)
            .find(|act| act.request == *request)
            .map(|act| act.response.clone())
    }

    fn remember(&mut self, sequence: u32, request: &IpmiMessage, response: &IpmiMessage) {
        if self.actions.len() >= ACTIONS_MAX {
            self.actions.pop_front();
        }
        let (request, response) = (request.clone(), response.clone());
        self.actions.push_back(IpmiCompletedAction {
            sequence,
            request,
            response,
        });
    }
}

/// One entry of the session table.
struct IpmiSessionSlot {
    peer: u64,
    last_used: u64,
    request: OpenSessionRequest,
    suite: IpmiCipherSuite,
    stage: IpmiSlotStage,
}

/// A simulated BMC.
pub struct IpmiSimulator {
    setup: IpmiSimulatorSetup,
    options: BootOptions,
    fru: fru::SimulatedFru,
    sel: sel::SimulatedSel,
    sensors: sdr::SimulatedSensors,
    lan: IpmiLanConfig,
    /// Without a clock, a timed identify LED stays on.
    light: IpmiIdentifyState,
    sessions: BTreeMap<u32, IpmiSessionSlot>,
    /// Sessions of IPMI 1.5, if it is enabled.
    ipmi15: Option<ipmi15::Ipmi15SessionTable>,
    clock: u64,
    busy: u32,
}

impl IpmiSimulator {
    /// A BMC without sessions.
    pub fn new(setup: IpmiSimulatorSetup) -> Self {
        Self {
            setup,
            options: BootOptions::default(),
            fru: fru::SimulatedFru::default(),
            sel: sel::SimulatedSel::default(),
            sensors: sdr::SimulatedSensors::default(),
            lan: IpmiLanConfig::default(),
            light: IpmiIdentifyState::Off,
            sessions: BTreeMap::new(),
            ipmi15: None,
            clock: 0,
            busy: 0,
        }
    }

    /// How many sessions are open or half open.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// A block of the boot initiator mailbox (boot option 7), which the machine's own software
    /// reads. `None` if nothing was written.
    pub fn mailbox(&self, block: u8) -> Option<[u8; MAILBOX_BLOCK_BYTES]> {
        self.options.mailbox(block)
    }

    /// The machine's own software clears the mailbox.
    pub fn clear_mailbox(&mut self) {
        self.options.clear_mailbox();
    }

    /// The BMC has no mailbox: boot option 7 is optional.
    pub fn remove_mailbox(&mut self) {
        self.options.lacks_mailbox = true;
    }

    /// Stores an inventory in the FRU device, followed by zeros.
    pub fn set_fru(&mut self, inventory: &FruInventory) {
        self.fru.fill(&inventory.emit());
    }

    /// The bytes of the FRU device.
    pub fn fru(&self) -> &[u8] {
        &self.fru.bytes
    }

    /// Limits reads and writes of the FRU device to this many bytes.
    pub fn set_fru_piece(&mut self, bytes: u8) {
        self.fru.chunk_bytes = usize::from(bytes);
    }

    /// Adds an event to the log, at most [`SEL_RECORDS_MAX`].
    pub fn add_event(&mut self, time_s: u32, event: SelEvent) {
        self.sel.add(time_s, event);
    }

    /// The records of the event log.
    pub fn events(&self) -> &[SelRecord] {
        self.sel.records()
    }

    /// Sets how many polls report that the erasure of the log is in progress.
    pub fn set_sel_erase_polls(&mut self, times: u8) {
        self.sel.erase_polls = times;
    }

    /// Adds a sensor, at most [`SENSORS_MAX`], or replaces the one with its number. Without a raw
    /// reading it reports that it has none.
    pub fn set_sensor(&mut self, sensor: SdrSensor, raw: Option<u8>) {
        self.sensors.set(sensor, raw);
    }

    /// Sets its network configuration.
    pub fn set_lan(&mut self, lan: IpmiLanConfig) {
        self.lan = lan;
    }

    /// Accepts boot options only between "set in progress" and "set complete".
    pub fn require_set_in_progress(&mut self) {
        self.options.set_in_progress_required = true;
    }

    /// Responds to the next requests inside sessions with "node busy", as real BMCs under load do.
    pub fn set_busy_requests(&mut self, requests: u32) {
        self.busy = requests;
    }

    /// Enables IPMI 1.5 with MD5 as well.
    pub fn enable_ipmi15(&mut self) {
        self.ipmi15 = Some(ipmi15::Ipmi15SessionTable::default());
    }

    /// Drops all sessions, as a BMC does that restarts.
    pub fn restart(&mut self) {
        self.sessions.clear();
        self.ipmi15 = self
            .ipmi15
            .as_ref()
            .map(|_| ipmi15::Ipmi15SessionTable::default());
    }

    /// Processes a datagram of `peer` and returns the response, if there is one. `peer` is the
    /// caller's number for the sender's address.
    pub fn datagram(
        &mut self,
        peer: u64,
        bytes: &[u8],
        chassis: &mut dyn IpmiChassis,
        entropy: &mut dyn Entropy,
    ) -> Option<Vec<u8>> {
        self.clock += 1;
        match RmcpPacket::parse(bytes)? {
            RmcpPacket::Ping { tag } => Some(packet::pong(tag)),
            RmcpPacket::Sessionless { message } => {
                let challenge = self.handle_session_challenge(message, entropy);
                packet::emit_sessionless(
                    &challenge.or_else(|| self.handle_sessionless(message, chassis))?,
                )
            }
            RmcpPacket::Ipmi15(packet) => self.handle_ipmi15_packet(&packet, chassis, entropy),
            RmcpPacket::RmcpPlus(plus)
                if plus.encrypted || plus.authenticated || plus.session_id != 0 =>
            {
                self.handle_in_session(&plus, chassis, entropy)
            }
            RmcpPacket::RmcpPlus(plus) => match plus.kind {
                KIND_IPMI => {
                    let answer = self.handle_sessionless(plus.payload, chassis)?;
                    Some(packet::emit_rmcp_plus(KIND_IPMI, 0, 0, &answer))
                }
                KIND_OPEN_REQUEST => {
                    let answer = self.open(peer, plus.payload, entropy)?;
                    Some(packet::emit_rmcp_plus(KIND_OPEN_RESPONSE, 0, 0, &answer))
                }
                KIND_RAKP_1 => {
                    let answer = self.rakp1(plus.payload, entropy)?;
                    Some(packet::emit_rmcp_plus(KIND_RAKP_2, 0, 0, &answer))
                }
                KIND_RAKP_3 => {
                    let answer = self.rakp3(plus.payload)?;
                    Some(packet::emit_rmcp_plus(KIND_RAKP_4, 0, 0, &answer))
                }
                _ => None,
            },
        }
    }

    /// A request outside any session.
    fn handle_sessionless(
        &mut self,
        bytes: &[u8],
        chassis: &mut dyn IpmiChassis,
    ) -> Option<Vec<u8>> {
        let request = IpmiMessage::parse(bytes).filter(IpmiMessage::is_request)?;
        let body = self.execute(&request, None, chassis);
        Some(request.response(body).emit())
    }

    /// A request inside a session.
    fn handle_in_session(
        &mut self,
        plus: &RmcpPlusPacket<'_>,
        chassis: &mut dyn IpmiChassis,
        entropy: &mut dyn Entropy,
    ) -> Option<Vec<u8>> {
        let id = plus.session_id;
        let slot = self.sessions.get_mut(&id)?;
        let IpmiSlotStage::Live(live) = &mut slot.stage else {
            return None;
        };
        let text = live.channel.open(plus)?;
        slot.last_used = self.clock;
        let request = IpmiMessage::parse(&text).filter(IpmiMessage::is_request)?;
        if plus.kind != KIND_IPMI {
            return None;
        }
        let known = live.repeated(plus.sequence, &request);
        let caller = IpmiCaller {
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
            self.update_session(id, plus.sequence, &request, &response);
            response
        });
        let IpmiSlotStage::Live(live) = &mut self.sessions.get_mut(&id)?.stage else {
            return None;
        };
        let bytes = live.channel.seal(KIND_IPMI, &response.emit(), entropy);
        if let Some(closed) = commands::session_closed(&request, &response) {
            self.sessions.remove(&closed);
        }
        if commands::is_bmc_reset(&request, &response) {
            self.restart();
        }
        Some(bytes)
    }

    /// Updates the session after a request: its level, its end, or a restart.
    fn update_session(
        &mut self,
        id: u32,
        sequence: u32,
        request: &IpmiMessage,
        response: &IpmiMessage,
    ) {
        let Some(IpmiSessionSlot {
            stage: IpmiSlotStage::Live(live),
            ..
        }) = self.sessions.get_mut(&id)
        else {
            return;
        };
        if let Some(level) = commands::level_granted(request, response) {
            live.level = level;
        }
        if commands::is_action(request, response) {
            live.remember(sequence, request, response);
        }
    }
}
