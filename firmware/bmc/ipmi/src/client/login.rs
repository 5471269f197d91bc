//! Logging in, by the way that the target asks for. A login knows what to say
//! and what to believe; when to say it again is the session's business.

mod ipmi15;
mod rmcp_plus;

use trivet_model::{Entropy, PowerError};

use crate::channel::IpmiChannel;
use crate::suite::IpmiCipherSuite;
use crate::wire::packet::RmcpPacket;

use super::IpmiTarget;

/// What one datagram did to a login.
pub(super) enum IpmiLoginProgress {
    /// It was not the awaited answer.
    Ignored,
    /// The next message is to be sent.
    Next,
    /// The session stands.
    Done(IpmiChannel),
    /// The BMC will not do this suite.
    SuiteRefused,
    /// The BMC refused, or its proof is wrong; perhaps a last word to it.
    Refused {
        error: PowerError,
        final_packet: Option<Vec<u8>>,
    },
}

/// What it means when the last try of a message went unanswered.
pub(super) enum IpmiLoginTimeout {
    /// Nobody has answered anything yet.
    NoBmc,
    /// Some BMCs keep silent where they should refuse a suite.
    SuiteRefused,
    /// It is known what such silence is about.
    KnownCause(PowerError),
    /// Somebody was there a moment ago.
    DuringLogin,
}

/// One attempt to log in.
pub(super) enum IpmiLogin {
    /// To IPMI 2.0.
    RmcpPlus(Box<rmcp_plus::RmcpPlusLogin>),
    /// To IPMI 1.5.
    Ipmi15(Box<ipmi15::Ipmi15Login>),
}

impl IpmiLogin {
    /// A login that starts by asking whether anybody is there.
    pub(super) fn new(
        target: &IpmiTarget,
        suite: IpmiCipherSuite,
        entropy: &mut dyn Entropy,
    ) -> Self {
        if target.ipmi15 {
            Self::Ipmi15(Box::new(ipmi15::Ipmi15Login::new(entropy)))
        } else {
            Self::RmcpPlus(Box::new(rmcp_plus::RmcpPlusLogin::new(
                target, suite, entropy,
            )))
        }
    }

    /// The same with another suite, when it is known that somebody is.
    pub(super) fn open(
        target: &IpmiTarget,
        suite: IpmiCipherSuite,
        entropy: &mut dyn Entropy,
    ) -> Self {
        Self::RmcpPlus(Box::new(rmcp_plus::RmcpPlusLogin::open(
            target, suite, entropy,
        )))
    }

    /// The message whose answer is awaited. Sent again, it is the same to the
    /// last byte, so that a BMC can tell a repetition from a new attempt.
    pub(super) fn message(&self, target: &IpmiTarget) -> Vec<u8> {
        match self {
            Self::RmcpPlus(login) => login.message(target),
            Self::Ipmi15(login) => login.message(target),
        }
    }

    pub(super) fn handle_packet(
        &mut self,
        target: &IpmiTarget,
        packet: &RmcpPacket<'_>,
    ) -> IpmiLoginProgress {
        match self {
            Self::RmcpPlus(login) => login.handle_packet(target, packet),
            Self::Ipmi15(login) => login.handle_packet(target, packet),
        }
    }

    /// A doubtful refusal that nobody contradicted.
    pub(super) fn take_unconfirmed_refusal(&mut self) -> Option<IpmiLoginProgress> {
        match self {
            Self::RmcpPlus(login) => login.take_unconfirmed_refusal(),
            Self::Ipmi15(login) => login.take_unconfirmed_refusal(),
        }
    }

    pub(super) fn timeout_meaning(&self) -> IpmiLoginTimeout {
        match self {
            Self::RmcpPlus(login) => login.timeout_meaning(),
            Self::Ipmi15(login) => login.timeout_meaning(),
        }
    }
}
