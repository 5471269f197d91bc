//! Login, with the protocol version of the target. A login knows which messages to send and how to
//! verify the responses; the session decides when to repeat them.

mod ipmi15;
mod rmcp_plus;

use trivet_model::{Entropy, PowerError};

use crate::channel::IpmiChannel;
use crate::suite::IpmiCipherSuite;
use crate::wire::packet::RmcpPacket;

use super::IpmiTarget;

/// The effect of one datagram on a login.
pub(super) enum IpmiLoginProgress {
    /// It was not the expected response.
    Ignored,
    /// The next message is to be sent.
    Next,
    /// The session is established.
    Done(IpmiChannel),
    /// The BMC does not support this suite.
    SuiteRefused,
    /// The BMC refused, or its authentication code is wrong; perhaps with a final message to it.
    Refused {
        error: PowerError,
        final_packet: Option<Vec<u8>>,
    },
}

/// The meaning of the last attempt of a message without a response.
pub(super) enum IpmiLoginTimeout {
    /// There was no response to any message.
    NoBmc,
    /// Some BMCs do not respond where they should refuse a suite.
    SuiteRefused,
    /// The cause of the missing response is known.
    KnownCause(PowerError),
    /// The BMC responded to an earlier message.
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
    /// A login that starts with a request whether there is a BMC.
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

    /// The same with another suite, if it is known that there is a BMC.
    pub(super) fn open(
        target: &IpmiTarget,
        suite: IpmiCipherSuite,
        entropy: &mut dyn Entropy,
    ) -> Self {
        Self::RmcpPlus(Box::new(rmcp_plus::RmcpPlusLogin::open(
            target, suite, entropy,
        )))
    }

    /// The message whose response is expected. A repetition is identical to the last byte, so that
    /// a BMC can distinguish it from a new attempt.
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

    /// An unauthenticated refusal, if no other response followed.
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
