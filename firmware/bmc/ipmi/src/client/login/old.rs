//! Logging in to IPMI 1.5 with MD5: Get Channel Authentication Capabilities, Get
//! Session Challenge, Activate Session (sections 22.13, 22.16 and 22.17). For
//! BMCs that know nothing better. Only the last answer is proven; what somebody
//! forges before it can keep us out, not let him in.

use trivet_model::{Entropy, PowerError};

use crate::channel::Line;
use crate::channel::old::{self, Channel, MD5};
use crate::command::{NETFN_APP, app, completion};
use crate::wire::message::{Message, SEQUENCE_MASK};
use crate::wire::packet::{self, Packet};
use crate::wire::rakp::USERNAME_BYTES_MAX;
use crate::wire::{number_at, sixteen_at};

use super::{Heard, Silence, Target};

/// The channel a request comes in by.
const THIS_CHANNEL: u8 = 0x0e;

/// Where a login stands: each stage names the message that awaits its answer.
#[derive(Clone, Copy)]
enum Stage {
    Capabilities,
    Challenge,
    /// The session's provisional number and what is to be signed.
    Activate(u32, [u8; 16]),
}

/// One attempt to log in.
pub(in crate::client) struct Login {
    stage: Stage,
    tag: u8,
    /// The number that the BMC is to give its first packet to us.
    first: u32,
    /// An unsigned refusal: it counts when nothing better comes before the next
    /// repetition.
    doubtful: Option<u8>,
}

impl Login {
    pub(super) fn new(entropy: &mut dyn Entropy) -> Self {
        let drawn = entropy.number();
        Self {
            stage: Stage::Capabilities,
            tag: (drawn >> 32) as u8 & SEQUENCE_MASK,
            // Far from zero and from the end, which the numbers must not reach.
            first: (drawn as u32 >> 1).max(1),
            doubtful: None,
        }
    }

    pub(super) fn silence(&self) -> Silence {
        match self.stage {
            Stage::Capabilities => Silence::Nobody,
            Stage::Challenge => Silence::Midway,
            Stage::Activate(..) => Silence::Means(PowerError::Login {
                said: "it fell silent at the password, which is probably wrong",
            }),
        }
    }

    pub(super) fn believe_refusal(&mut self) -> Option<Heard> {
        self.doubtful.take().map(|code| self.refused(code))
    }

    fn request(&self, target: &Target) -> Message {
        let level = target.privilege.level();
        let (command, data) = match self.stage {
            Stage::Capabilities => (app::CHANNEL_AUTHENTICATION, vec![THIS_CHANNEL, level]),
            Stage::Challenge => {
                let mut data = vec![MD5];
                data.extend(&target.username);
                data.resize(1 + USERNAME_BYTES_MAX, 0);
                (app::SESSION_CHALLENGE, data)
            }
            Stage::Activate(_, challenge) => {
                let mut data = vec![MD5, level];
                data.extend(challenge);
                data.extend(self.first.to_le_bytes());
                (app::ACTIVATE_SESSION, data)
            }
        };
        Message::request(NETFN_APP, self.tag, command, &data)
    }

    pub(super) fn message(&self, target: &Target) -> Vec<u8> {
        let text = self.request(target).emit();
        let bytes = match self.stage {
            Stage::Activate(id, _) => old::sign(&target.password, id, 0, &text),
            _ => packet::bare(&text),
        };
        bytes.expect("a request of a known length fits the old header")
    }

    pub(super) fn hear(&mut self, target: &Target, packet: &Packet<'_>) -> Heard {
        let (text, signed) = match packet {
            Packet::Bare { message } => (*message, false),
            Packet::Old(packet) if old::is_signed(&target.password, packet) => {
                (packet.message, true)
            }
            _ => return Heard::Nothing,
        };
        let message = Message::parse(text).filter(|it| it.answers(&self.request(target)));
        let Some((&code, data)) = message.as_ref().and_then(|it| it.body.split_first()) else {
            return Heard::Nothing;
        };
        let next = match self.stage {
            _ if code != completion::OK && signed => return self.refused(code),
            _ if code != completion::OK => {
                self.doubtful = Some(code);
                return Heard::Nothing;
            }
            Stage::Capabilities => match data {
                [_, kinds, ..] if kinds & 1 << MD5 == 0 => {
                    return Heard::Refused {
                        error: PowerError::Nonsense {
                            said: "it offers no login with MD5 over IPMI 1.5; leave \
                               ipmi_protocol_version away",
                        },
                        parting: None,
                    };
                }
                _ => Some(Stage::Challenge),
            },
            Stage::Challenge => number_at(data, 0)
                .zip(sixteen_at(data, 4))
                .map(|(id, challenge)| Stage::Activate(id, challenge)),
            Stage::Activate(..) if signed => return self.activated(target, data),
            Stage::Activate(..) => None,
        };
        let Some(stage) = next else {
            return Heard::Nothing;
        };
        self.stage = stage;
        self.doubtful = None;
        self.tag = self.tag.wrapping_add(1) & SEQUENCE_MASK;
        Heard::Next
    }

    fn activated(&self, target: &Target, data: &[u8]) -> Heard {
        let (Some(&kind), Some(id), Some(next)) =
            (data.first(), number_at(data, 1), number_at(data, 5))
        else {
            return Heard::Nothing;
        };
        if kind & 0x0f != MD5 {
            return Heard::Refused {
                error: PowerError::Nonsense {
                    said: "it would not sign what it says; switch per-message authentication on",
                },
                parting: None,
            };
        }
        let channel = Channel::new(&target.password, id, next, self.first);
        Heard::Done(Line::Old(Box::new(channel)))
    }

    /// Codes of Get Session Challenge and of Activate Session.
    fn refused(&self, code: u8) -> Heard {
        let error = match (self.stage, code) {
            (Stage::Challenge, 0x81 | 0x82) => PowerError::Login {
                said: "it does not know the user",
            },
            (Stage::Activate(..), 0x81..=0x83) => PowerError::NoFreeSession,
            (Stage::Activate(..), 0x86) => PowerError::Privilege,
            _ => PowerError::Refused { code },
        };
        Heard::Refused {
            error,
            parting: None,
        }
    }
}
