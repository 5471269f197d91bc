//! Login to IPMI 2.0: Get Channel Authentication Capabilities, Open Session, RAKP 1 to 4 (section
//! 13.15), for one suite. A refusal counts only if it has the tag and the session identifier that
//! were chosen at random for this login, so an attacker who cannot read the traffic cannot forge
//! one.

use trivet_model::{Entropy, PowerError};

use crate::channel::{IpmiChannel, RmcpPlusChannel};
use crate::command::{NETFN_APP, app};
use crate::suite::{IpmiCipherSuite, RakpExchange, same_code};
use crate::wire::message::{IpmiMessage, SEQUENCE_MASK};
use crate::wire::packet::{
    self, KIND_OPEN_REQUEST, KIND_OPEN_RESPONSE, KIND_RAKP_1, KIND_RAKP_2, KIND_RAKP_3,
    KIND_RAKP_4, RmcpPacket,
};
use crate::wire::rakp::{
    OpenSessionRequest, ROLE_NAME_ONLY, Rakp1, Rakp3, RakpReply, parse_opened, parse_rakp2, status,
};

use super::{IpmiLoginProgress, IpmiLoginTimeout, IpmiTarget};

/// The number for the channel of the request itself, and the bit that requests IPMI 2.0 data.
const THIS_CHANNEL_V2: u8 = 0x8e;

/// The stage of a login: each one names the message whose response is expected.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum RmcpPlusLoginStage {
    Capabilities,
    Open,
    Rakp1,
    Rakp3,
}

/// One attempt to log in.
pub(in crate::client) struct RmcpPlusLogin {
    stage: RmcpPlusLoginStage,
    tag: u8,
    exchange: RakpExchange,
    /// Whether the BMC reported that it does not support IPMI 2.0. The report is not authenticated,
    /// so it is used only to explain a later timeout.
    lacks_v2: bool,
    /// A refusal too short to contain our session identifier, as OpenIPMI's simulator sends for
    /// algorithms. Only its tag matches, which can be guessed, so it counts only if no other
    /// response arrives before the next retry.
    unconfirmed_refusal: Option<u8>,
}

impl RmcpPlusLogin {
    /// A login that starts with a request whether there is a BMC.
    pub(super) fn new(
        target: &IpmiTarget,
        suite: IpmiCipherSuite,
        entropy: &mut dyn Entropy,
    ) -> Self {
        let mut console_random = [0; 16];
        entropy.fill(&mut console_random);
        let drawn = entropy.number();
        let exchange = RakpExchange {
            suite,
            // Zero means no session.
            console_id: (drawn as u32).max(1),
            managed_id: 0,
            console_random,
            managed_random: [0; 16],
            guid: [0; 16],
            role: ROLE_NAME_ONLY | target.privilege.level(),
            username: target.username.clone(),
        };
        Self {
            stage: RmcpPlusLoginStage::Capabilities,
            tag: (drawn >> 32) as u8,
            exchange,
            lacks_v2: false,
            unconfirmed_refusal: None,
        }
    }

    /// The same, if it is known that there is a BMC.
    pub(super) fn open(
        target: &IpmiTarget,
        suite: IpmiCipherSuite,
        entropy: &mut dyn Entropy,
    ) -> Self {
        Self {
            stage: RmcpPlusLoginStage::Open,
            ..Self::new(target, suite, entropy)
        }
    }

    pub(super) fn timeout_meaning(&self) -> IpmiLoginTimeout {
        match (self.stage, self.exchange.suite) {
            (RmcpPlusLoginStage::Capabilities, _) => IpmiLoginTimeout::NoBmc,
            (RmcpPlusLoginStage::Open, _) if self.lacks_v2 => {
                IpmiLoginTimeout::KnownCause(PowerError::InvalidResponse {
                    message: "it answers, but not to IPMI 2.0 (RMCP+); switch that on, or write \
                       ipmi_protocol_version 1.5 where it is too old for that",
                })
            }
            (RmcpPlusLoginStage::Open, IpmiCipherSuite::Sha256) => IpmiLoginTimeout::SuiteRefused,
            _ => IpmiLoginTimeout::DuringLogin,
        }
    }

    /// An unauthenticated refusal, if no other response followed.
    pub(super) fn take_unconfirmed_refusal(&mut self) -> Option<IpmiLoginProgress> {
        self.unconfirmed_refusal
            .take()
            .map(|status| self.refused(status))
    }

    /// The privilege level that this login requests.
    fn level(&self) -> u8 {
        self.exchange.role & !ROLE_NAME_ONLY
    }

    fn capabilities(&self) -> IpmiMessage {
        let data = [THIS_CHANNEL_V2, self.level()];
        IpmiMessage::request(
            NETFN_APP,
            self.tag & SEQUENCE_MASK,
            app::CHANNEL_AUTHENTICATION,
            &data,
        )
    }

    /// The message whose response is expected. A repetition is identical to the last byte, so that
    /// a BMC can distinguish it from a new attempt.
    pub(super) fn message(&self, target: &IpmiTarget) -> Vec<u8> {
        let (kind, payload) = match self.stage {
            RmcpPlusLoginStage::Capabilities => {
                return packet::emit_sessionless(&self.capabilities().emit())
                    .expect("a request of nine bytes fits the old header");
            }
            RmcpPlusLoginStage::Open => {
                let request = OpenSessionRequest {
                    tag: self.tag,
                    privilege: self.level(),
                    console_id: self.exchange.console_id,
                    algorithms: self.exchange.suite.algorithms(),
                };
                (KIND_OPEN_REQUEST, request.emit())
            }
            RmcpPlusLoginStage::Rakp1 => {
                let request = Rakp1 {
                    tag: self.tag,
                    managed_id: self.exchange.managed_id,
                    console_random: self.exchange.console_random,
                    role: self.exchange.role,
                    username: self.exchange.username.clone(),
                };
                (KIND_RAKP_1, request.emit())
            }
            RmcpPlusLoginStage::Rakp3 => {
                let code = self.exchange.rakp3_code(&target.password);
                (KIND_RAKP_3, self.rakp3(status::OK, code))
            }
        };
        packet::emit_rmcp_plus(kind, 0, 0, &payload)
    }

    fn rakp3(&self, status: u8, code: Vec<u8>) -> Vec<u8> {
        Rakp3 {
            tag: self.tag,
            status,
            managed_id: self.exchange.managed_id,
            code,
        }
        .emit()
    }

    pub(super) fn handle_packet(
        &mut self,
        target: &IpmiTarget,
        packet: &RmcpPacket<'_>,
    ) -> IpmiLoginProgress {
        match (self.stage, packet) {
            (RmcpPlusLoginStage::Capabilities, RmcpPacket::Sessionless { message }) => {
                self.handle_capabilities(message)
            }
            (RmcpPlusLoginStage::Capabilities, _) => IpmiLoginProgress::Ignored,
            (_, RmcpPacket::RmcpPlus(plus)) if !plus.encrypted && !plus.authenticated => {
                match RakpReply::parse(plus.payload) {
                    Some(reply) if self.expects(plus.kind, &reply) => self
                        .handle_reply(target, &reply)
                        .unwrap_or(IpmiLoginProgress::Ignored),
                    Some(_) => IpmiLoginProgress::Ignored,
                    None => self.handle_short_refusal(plus.kind, plus.payload),
                }
            }
            _ => IpmiLoginProgress::Ignored,
        }
    }

    fn handle_capabilities(&mut self, bytes: &[u8]) -> IpmiLoginProgress {
        match IpmiMessage::parse(bytes) {
            Some(message) if message.answers(&self.capabilities()) => {
                // Byte 1 has the bit for extended data, byte 3 the bit for IPMI 2.0.
                let v2 = matches!(message.body[..], [0, _, one, _, three, ..]
                    if one & 0x80 != 0 && three & 0x02 != 0);
                self.lacks_v2 = !v2;
                self.advance(RmcpPlusLoginStage::Open);
                IpmiLoginProgress::Next
            }
            _ => IpmiLoginProgress::Ignored,
        }
    }

    fn handle_short_refusal(&mut self, kind: u8, payload: &[u8]) -> IpmiLoginProgress {
        if let &[tag, status, ..] = payload
            && (Some(kind), tag) == (self.awaited(), self.tag)
            && status != status::OK
        {
            self.unconfirmed_refusal = Some(status);
        }
        IpmiLoginProgress::Ignored
    }

    fn awaited(&self) -> Option<u8> {
        match self.stage {
            RmcpPlusLoginStage::Capabilities => None,
            RmcpPlusLoginStage::Open => Some(KIND_OPEN_RESPONSE),
            RmcpPlusLoginStage::Rakp1 => Some(KIND_RAKP_2),
            RmcpPlusLoginStage::Rakp3 => Some(KIND_RAKP_4),
        }
    }

    fn expects(&self, kind: u8, reply: &RakpReply<'_>) -> bool {
        Some(kind) == self.awaited()
            && reply.tag == self.tag
            && reply.console_id == self.exchange.console_id
    }

    /// `None` when the reply is cut short.
    fn handle_reply(
        &mut self,
        target: &IpmiTarget,
        reply: &RakpReply<'_>,
    ) -> Option<IpmiLoginProgress> {
        if reply.status != status::OK {
            return Some(self.refused(reply.status));
        }
        match self.stage {
            RmcpPlusLoginStage::Capabilities => None,
            RmcpPlusLoginStage::Open => {
                let (managed_id, algorithms) = parse_opened(reply.rest)?;
                if algorithms != self.exchange.suite.algorithms() {
                    return Some(IpmiLoginProgress::SuiteRefused);
                }
                self.exchange.managed_id = managed_id;
                self.advance(RmcpPlusLoginStage::Rakp1);
                Some(IpmiLoginProgress::Next)
            }
            RmcpPlusLoginStage::Rakp1 => self.handle_rakp2(target, reply.rest),
            RmcpPlusLoginStage::Rakp3 => Some(self.handle_rakp4(target, reply.rest)),
        }
    }

    fn refused(&self, status: u8) -> IpmiLoginProgress {
        if self.stage == RmcpPlusLoginStage::Open && status::is_about_algorithms(status) {
            return IpmiLoginProgress::SuiteRefused;
        }
        IpmiLoginProgress::Refused {
            error: status::error(status),
            final_packet: None,
        }
    }

    fn handle_rakp2(&mut self, target: &IpmiTarget, rest: &[u8]) -> Option<IpmiLoginProgress> {
        let (managed_random, guid, code) = parse_rakp2(rest)?;
        self.exchange.managed_random = managed_random;
        self.exchange.guid = guid;
        if same_code(code, &self.exchange.rakp2_code(&target.password)) {
            self.advance(RmcpPlusLoginStage::Rakp3);
            return Some(IpmiLoginProgress::Next);
        }
        // The BMC gets an error status, so that it can free its half-open session.
        let payload = self.rakp3(status::BAD_CHECK_VALUE, Vec::new());
        let parting = Some(packet::emit_rmcp_plus(KIND_RAKP_3, 0, 0, &payload));
        Some(IpmiLoginProgress::Refused {
            error: status::error(status::BAD_CHECK_VALUE),
            final_packet: parting,
        })
    }

    fn handle_rakp4(&self, target: &IpmiTarget, code: &[u8]) -> IpmiLoginProgress {
        let keys = self.exchange.keys(&target.password, target.kg.as_deref());
        if !same_code(code, &self.exchange.rakp4_code(&keys)) {
            return IpmiLoginProgress::Refused {
                error: PowerError::Login {
                    message: "the BMC key (K_g) is wrong, see ipmi_hex_kg_key",
                },
                final_packet: None,
            };
        }
        let RakpExchange {
            suite,
            console_id,
            managed_id,
            ..
        } = self.exchange;
        let channel = RmcpPlusChannel::new(suite, keys, console_id, managed_id);
        IpmiLoginProgress::Done(IpmiChannel::RmcpPlus(Box::new(channel)))
    }

    fn advance(&mut self, stage: RmcpPlusLoginStage) {
        self.stage = stage;
        self.unconfirmed_refusal = None;
        self.tag = self.tag.wrapping_add(1);
    }
}
