//! Login to IPMI 1.5 with MD5: Get Channel Authentication Capabilities, Get Session Challenge,
//! Activate Session (sections 22.13, 22.16 and 22.17). For BMCs that support nothing newer. Only
//! the last response is authenticated; forged responses before it can prevent a login, not permit
//! one.

use trivet_model::{Entropy, PowerError};

use crate::channel::IpmiChannel;
use crate::channel::ipmi15::{self, Ipmi15Channel, MD5};
use crate::command::{NETFN_APP, app, completion};
use crate::wire::message::{IpmiMessage, SEQUENCE_MASK};
use crate::wire::packet::{self, RmcpPacket};
use crate::wire::rakp::USERNAME_BYTES_MAX;
use crate::wire::{number_at, sixteen_at};

use super::{IpmiLoginProgress, IpmiLoginTimeout, IpmiTarget};

/// The number for the channel of the request itself.
const THIS_CHANNEL: u8 = 0x0e;

/// The stage of a login: each one names the message whose response is expected.
#[derive(Clone, Copy)]
enum Ipmi15LoginStage {
    Capabilities,
    Challenge,
    /// The session's provisional number and the challenge.
    Activate(u32, [u8; 16]),
}

/// One attempt to log in.
pub(in crate::client) struct Ipmi15Login {
    stage: Ipmi15LoginStage,
    tag: u8,
    /// The sequence number of the BMC's first packet to us.
    first: u32,
    /// An unauthenticated refusal: it counts if no other response arrives before the next retry.
    unconfirmed_refusal: Option<u8>,
}

impl Ipmi15Login {
    pub(super) fn new(entropy: &mut dyn Entropy) -> Self {
        let drawn = entropy.number();
        Self {
            stage: Ipmi15LoginStage::Capabilities,
            tag: (drawn >> 32) as u8 & SEQUENCE_MASK,
            // Not close to zero or to the end, which the numbers must not reach.
            first: (drawn as u32 >> 1).max(1),
            unconfirmed_refusal: None,
        }
    }

    pub(super) fn timeout_meaning(&self) -> IpmiLoginTimeout {
        match self.stage {
            Ipmi15LoginStage::Capabilities => IpmiLoginTimeout::NoBmc,
            Ipmi15LoginStage::Challenge => IpmiLoginTimeout::DuringLogin,
            Ipmi15LoginStage::Activate(..) => IpmiLoginTimeout::KnownCause(PowerError::Login {
                message: "it did not reply to the password, which is probably wrong",
            }),
        }
    }

    pub(super) fn take_unconfirmed_refusal(&mut self) -> Option<IpmiLoginProgress> {
        self.unconfirmed_refusal
            .take()
            .map(|code| self.refused(code))
    }

    fn request(&self, target: &IpmiTarget) -> IpmiMessage {
        let level = target.privilege.level();
        let (command, data) = match self.stage {
            Ipmi15LoginStage::Capabilities => {
                (app::CHANNEL_AUTHENTICATION, vec![THIS_CHANNEL, level])
            }
            Ipmi15LoginStage::Challenge => {
                let mut data = vec![MD5];
                data.extend(&target.username);
                data.resize(1 + USERNAME_BYTES_MAX, 0);
                (app::SESSION_CHALLENGE, data)
            }
            Ipmi15LoginStage::Activate(_, challenge) => {
                let mut data = vec![MD5, level];
                data.extend(challenge);
                data.extend(self.first.to_le_bytes());
                (app::ACTIVATE_SESSION, data)
            }
        };
        IpmiMessage::request(NETFN_APP, self.tag, command, &data)
    }

    pub(super) fn message(&self, target: &IpmiTarget) -> Vec<u8> {
        let text = self.request(target).emit();
        let bytes = match self.stage {
            Ipmi15LoginStage::Activate(id, _) => ipmi15::sign(&target.password, id, 0, &text),
            _ => packet::emit_sessionless(&text),
        };
        bytes.expect("a request of a known length fits the old header")
    }

    pub(super) fn handle_packet(
        &mut self,
        target: &IpmiTarget,
        packet: &RmcpPacket<'_>,
    ) -> IpmiLoginProgress {
        let (text, signed) = match packet {
            RmcpPacket::Sessionless { message } => (*message, false),
            RmcpPacket::Ipmi15(packet) if ipmi15::is_signed(&target.password, packet) => {
                (packet.message, true)
            }
            _ => return IpmiLoginProgress::Ignored,
        };
        let message = IpmiMessage::parse(text).filter(|it| it.answers(&self.request(target)));
        let Some((&code, data)) = message.as_ref().and_then(|it| it.body.split_first()) else {
            return IpmiLoginProgress::Ignored;
        };
        let next = match self.stage {
            _ if code != completion::OK && signed => return self.refused(code),
            _ if code != completion::OK => {
                self.unconfirmed_refusal = Some(code);
                return IpmiLoginProgress::Ignored;
            }
            Ipmi15LoginStage::Capabilities => match data {
                [_, kinds, ..] if kinds & 1 << MD5 == 0 => {
                    return IpmiLoginProgress::Refused {
                        error: PowerError::InvalidResponse {
                            message: "it offers no login with MD5 over IPMI 1.5; leave \
                               ipmi_protocol_version away",
                        },
                        final_packet: None,
                    };
                }
                _ => Some(Ipmi15LoginStage::Challenge),
            },
            Ipmi15LoginStage::Challenge => number_at(data, 0)
                .zip(sixteen_at(data, 4))
                .map(|(id, challenge)| Ipmi15LoginStage::Activate(id, challenge)),
            Ipmi15LoginStage::Activate(..) if signed => return self.activated(target, data),
            Ipmi15LoginStage::Activate(..) => None,
        };
        let Some(stage) = next else {
            return IpmiLoginProgress::Ignored;
        };
        self.stage = stage;
        self.unconfirmed_refusal = None;
        self.tag = self.tag.wrapping_add(1) & SEQUENCE_MASK;
        IpmiLoginProgress::Next
    }

    fn activated(&self, target: &IpmiTarget, data: &[u8]) -> IpmiLoginProgress {
        let (Some(&kind), Some(id), Some(next)) =
            (data.first(), number_at(data, 1), number_at(data, 5))
        else {
            return IpmiLoginProgress::Ignored;
        };
        if kind & 0x0f != MD5 {
            return IpmiLoginProgress::Refused {
                error: PowerError::InvalidResponse {
                    message: "its messages are not signed; switch per-message authentication on",
                },
                final_packet: None,
            };
        }
        let channel = Ipmi15Channel::new(&target.password, id, next, self.first);
        IpmiLoginProgress::Done(IpmiChannel::Ipmi15(Box::new(channel)))
    }

    /// Completion codes of Get Session Challenge and of Activate Session.
    fn refused(&self, code: u8) -> IpmiLoginProgress {
        let error = match (self.stage, code) {
            (Ipmi15LoginStage::Challenge, 0x81 | 0x82) => PowerError::Login {
                message: "it does not know the user",
            },
            (Ipmi15LoginStage::Activate(..), 0x81..=0x83) => PowerError::NoFreeSession,
            (Ipmi15LoginStage::Activate(..), 0x86) => PowerError::Privilege,
            _ => PowerError::Refused { code },
        };
        IpmiLoginProgress::Refused {
            error,
            final_packet: None,
        }
    }
}
