//! Logging in to IPMI 2.0: Get Channel Authentication Capabilities, Open
//! Session, RAKP 1 to 4 (section 13.15), for one suite. A refusal counts
//! only if it carries the tag and the session identifier that were chosen at
//! random for this login, so nobody who cannot read the wire can forge one.

use trivet_model::{Entropy, PowerError};

use crate::channel::{Channel, Line};
use crate::command::{NETFN_APP, app};
use crate::suite::{Exchange, Suite, same_code};
use crate::wire::message::{Message, SEQUENCE_MASK};
use crate::wire::packet::{
    self, KIND_OPEN_REQUEST, KIND_OPEN_RESPONSE, KIND_RAKP_1, KIND_RAKP_2, KIND_RAKP_3,
    KIND_RAKP_4, Packet,
};
use crate::wire::rakp::{
    OpenRequest, ROLE_NAME_ONLY, Rakp1, Rakp3, Reply, parse_opened, parse_rakp2, status,
};

use super::{Heard, Silence, Target};

/// The channel a request comes in by, and the bit that asks for IPMI 2.0 data.
const THIS_CHANNEL_V2: u8 = 0x8e;

/// Where a login stands: each stage names the message that awaits its answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stage {
    Capabilities,
    Open,
    Rakp1,
    Rakp3,
}

/// One attempt to log in.
pub(in crate::client) struct Login {
    stage: Stage,
    tag: u8,
    exchange: Exchange,
    /// Whether the BMC said that it speaks IPMI 2.0. Anybody may have said so,
    /// so it only serves to explain a later silence.
    lacks_v2: bool,
    /// A refusal too short to name our session, as OpenIPMI's simulator sends
    /// for algorithms. Only its tag fits, which can be guessed, so it counts
    /// when nothing better comes before the next repetition.
    doubtful: Option<u8>,
}

impl Login {
    /// A login that starts by asking whether anybody is there.
    pub(super) fn new(target: &Target, suite: Suite, entropy: &mut dyn Entropy) -> Self {
        let mut console_random = [0; 16];
        entropy.fill(&mut console_random);
        let drawn = entropy.number();
        let exchange = Exchange {
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
            stage: Stage::Capabilities,
            tag: (drawn >> 32) as u8,
            exchange,
            lacks_v2: false,
            doubtful: None,
        }
    }

    /// The same, when it is known that somebody is.
    pub(super) fn open(target: &Target, suite: Suite, entropy: &mut dyn Entropy) -> Self {
        Self {
            stage: Stage::Open,
            ..Self::new(target, suite, entropy)
        }
    }

    pub(super) fn silence(&self) -> Silence {
        match (self.stage, self.exchange.suite) {
            (Stage::Capabilities, _) => Silence::Nobody,
            (Stage::Open, _) if self.lacks_v2 => Silence::Means(PowerError::Nonsense {
                said: "it answers, but not to IPMI 2.0 (RMCP+); switch that on, or write \
                       ipmi_protocol_version 1.5 where it is too old for that",
            }),
            (Stage::Open, Suite::Sha256) => Silence::Algorithms,
            _ => Silence::Midway,
        }
    }

    /// A doubtful refusal that nobody contradicted.
    pub(super) fn believe_refusal(&mut self) -> Option<Heard> {
        self.doubtful.take().map(|status| self.refused(status))
    }

    /// The level this login is for.
    fn level(&self) -> u8 {
        self.exchange.role & !ROLE_NAME_ONLY
    }

    fn capabilities(&self) -> Message {
        let data = [THIS_CHANNEL_V2, self.level()];
        Message::request(
            NETFN_APP,
            self.tag & SEQUENCE_MASK,
            app::CHANNEL_AUTHENTICATION,
            &data,
        )
    }

    /// The message whose answer is awaited. Sent again, it is the same to the
    /// last byte, so that a BMC can tell a repetition from a new attempt.
    pub(super) fn message(&self, target: &Target) -> Vec<u8> {
        let (kind, payload) = match self.stage {
            Stage::Capabilities => {
                return packet::bare(&self.capabilities().emit())
                    .expect("a request of nine bytes fits the old header");
            }
            Stage::Open => {
                let request = OpenRequest {
                    tag: self.tag,
                    privilege: self.level(),
                    console_id: self.exchange.console_id,
                    algorithms: self.exchange.suite.algorithms(),
                };
                (KIND_OPEN_REQUEST, request.emit())
            }
            Stage::Rakp1 => {
                let request = Rakp1 {
                    tag: self.tag,
                    managed_id: self.exchange.managed_id,
                    console_random: self.exchange.console_random,
                    role: self.exchange.role,
                    username: self.exchange.username.clone(),
                };
                (KIND_RAKP_1, request.emit())
            }
            Stage::Rakp3 => {
                let code = self.exchange.rakp3_code(&target.password);
                (KIND_RAKP_3, self.rakp3(status::OK, code))
            }
        };
        packet::plus(kind, 0, 0, &payload)
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

    pub(super) fn hear(&mut self, target: &Target, packet: &Packet<'_>) -> Heard {
        match (self.stage, packet) {
            (Stage::Capabilities, Packet::Bare { message }) => self.hear_capabilities(message),
            (Stage::Capabilities, _) => Heard::Nothing,
            (_, Packet::Plus(plus)) if !plus.encrypted && !plus.authenticated => {
                match Reply::parse(plus.payload) {
                    Some(reply) if self.expects(plus.kind, &reply) => {
                        self.hear_reply(target, &reply).unwrap_or(Heard::Nothing)
                    }
                    Some(_) => Heard::Nothing,
                    None => self.hear_short(plus.kind, plus.payload),
                }
            }
            _ => Heard::Nothing,
        }
    }

    fn hear_capabilities(&mut self, bytes: &[u8]) -> Heard {
        match Message::parse(bytes) {
            Some(message) if message.answers(&self.capabilities()) => {
                // Byte 1 has the bit for extended data, byte 3 that for IPMI 2.0.
                let v2 = matches!(message.body[..], [0, _, one, _, three, ..]
                    if one & 0x80 != 0 && three & 0x02 != 0);
                self.lacks_v2 = !v2;
                self.advance(Stage::Open);
                Heard::Next
            }
            _ => Heard::Nothing,
        }
    }

    fn hear_short(&mut self, kind: u8, payload: &[u8]) -> Heard {
        if let &[tag, status, ..] = payload
            && (Some(kind), tag) == (self.awaited(), self.tag)
            && status != status::OK
        {
            self.doubtful = Some(status);
        }
        Heard::Nothing
    }

    fn awaited(&self) -> Option<u8> {
        match self.stage {
            Stage::Capabilities => None,
            Stage::Open => Some(KIND_OPEN_RESPONSE),
            Stage::Rakp1 => Some(KIND_RAKP_2),
            Stage::Rakp3 => Some(KIND_RAKP_4),
        }
    }

    fn expects(&self, kind: u8, reply: &Reply<'_>) -> bool {
        Some(kind) == self.awaited()
            && reply.tag == self.tag
            && reply.console_id == self.exchange.console_id
    }

    /// `None` when the reply is cut short.
    fn hear_reply(&mut self, target: &Target, reply: &Reply<'_>) -> Option<Heard> {
        if reply.status != status::OK {
            return Some(self.refused(reply.status));
        }
        match self.stage {
            Stage::Capabilities => None,
            Stage::Open => {
                let (managed_id, algorithms) = parse_opened(reply.rest)?;
                if algorithms != self.exchange.suite.algorithms() {
                    return Some(Heard::Algorithms);
                }
                self.exchange.managed_id = managed_id;
                self.advance(Stage::Rakp1);
                Some(Heard::Next)
            }
            Stage::Rakp1 => self.hear_rakp2(target, reply.rest),
            Stage::Rakp3 => Some(self.hear_rakp4(target, reply.rest)),
        }
    }

    fn refused(&self, status: u8) -> Heard {
        if self.stage == Stage::Open && status::is_about_algorithms(status) {
            return Heard::Algorithms;
        }
        Heard::Refused {
            error: status::error(status),
            parting: None,
        }
    }

    fn hear_rakp2(&mut self, target: &Target, rest: &[u8]) -> Option<Heard> {
        let (managed_random, guid, code) = parse_rakp2(rest)?;
        self.exchange.managed_random = managed_random;
        self.exchange.guid = guid;
        if same_code(code, &self.exchange.rakp2_code(&target.password)) {
            self.advance(Stage::Rakp3);
            return Some(Heard::Next);
        }
        // The BMC is told, so that it can free the session it holds open.
        let payload = self.rakp3(status::BAD_CHECK_VALUE, Vec::new());
        let parting = Some(packet::plus(KIND_RAKP_3, 0, 0, &payload));
        Some(Heard::Refused {
            error: status::error(status::BAD_CHECK_VALUE),
            parting,
        })
    }

    fn hear_rakp4(&self, target: &Target, code: &[u8]) -> Heard {
        let keys = self.exchange.keys(&target.password, target.kg.as_deref());
        if !same_code(code, &self.exchange.rakp4_code(&keys)) {
            return Heard::Refused {
                error: PowerError::Login {
                    said: "the BMC key (K_g) is wrong, see ipmi_hex_kg_key",
                },
                parting: None,
            };
        }
        let Exchange {
            suite,
            console_id,
            managed_id,
            ..
        } = self.exchange;
        let channel = Channel::new(suite, keys, console_id, managed_id);
        Heard::Done(Line::Plus(Box::new(channel)))
    }

    fn advance(&mut self, stage: Stage) {
        self.stage = stage;
        self.doubtful = None;
        self.tag = self.tag.wrapping_add(1);
    }
}
