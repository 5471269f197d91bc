//! Reasons why a frame got no reply.

use core::fmt;

use crate::message::MESSAGE_BYTES_MAX;

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $label:literal: $sentence:literal),* $(,)?) => {
        /// Why a frame got no reply.
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        pub enum Reason {
            $($(#[$doc])* $name),*
        }

        impl Reason {
            /// The text for notes and logs.
            pub const fn sentence(self) -> &'static str {
                match self {
                    $(Self::$name => $sentence),*
                }
            }

            /// The name of the reason, for counters.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $label),*
                }
            }
        }
    };
}

reasons! {
    /// Shorter than header and cookie.
    TooShort = "too_short": "the frame is too short to be DHCP",
    /// Longer than [`crate::MESSAGE_BYTES_MAX`].
    TooLong = "too_long": "the frame is longer than 1472 bytes",
    /// The wrong direction: not a request, or for a client not a reply.
    WrongDirection = "wrong_direction": "the frame goes the other way",
    /// The hardware is not Ethernet with six bytes of address.
    NotEthernet = "not_ethernet": "the client is not on Ethernet",
    /// The hardware address is zero or a group address.
    NotOneMachine = "not_one_machine": "the client's hardware address is not that of one machine",
    /// The DHCP magic cookie is missing.
    NoCookie = "no_cookie": "the frame is BOOTP without the cookie of DHCP",
    /// There is no message type.
    NoMessageType = "no_message_type": "the frame has no message type",
    /// A message type servers do not answer.
    UnknownMessageType = "unknown_message_type": "the message type is not for us",
    /// No configured subnet matches the link or relay of the frame.
    NoSubnet = "no_subnet": "no subnet is configured for the link or relay of this frame",
    /// Only known machines are served on this subnet.
    UnknownClient = "unknown_client":
        "the machine is not known and only known machines are served here",
    /// The box does not reply on this link.
    OnlyListening = "only_listening": "the box only listens here (mode \"listen\")",
    /// Another server gives the addresses on this link.
    OnlyBoot = "only_boot": "another server gives the addresses here (mode \"proxy\")",
    /// There is no loader for such firmware.
    NothingToBoot = "nothing_to_boot": "there is no loader for this firmware (boot.loaders)",
    /// The client has selected another server.
    OtherServer = "other_server": "the client uses another server",
    /// The client requests an address without a record here.
    NoRecord = "no_record": "we have no record of the address that the client requests",
    /// The message lacks the address it refers to.
    NoAddress = "no_address": "the message names no address",
    /// All addresses are in use.
    PoolExhausted = "pool_exhausted":
        "all addresses of the subnet are in use: widen its range or shorten the lease",
    /// The remaining addresses are reserved for known machines.
    OnlyForKnown = "kept_for_known":
        "the free addresses are kept for enrolled machines: enrol it or widen the range",
    /// More offers are open than [`crate::OFFERS_MAX`].
    TooManyOffers = "too_many_offers": "too many offers are open",
    /// More leases than [`crate::LEASES_MAX`].
    TooManyLeases = "too_many_leases": "too many leases",
    /// The relay's option 82 leaves no space for a reply.
    NoSpaceForReply = "no_room": "the relay's information leaves no space for a reply",
    /// No reply is needed (RELEASE or DECLINE).
    NoAnswerNeeded = "no_answer_needed": "none is needed",
}

const _: () = assert!(
    MESSAGE_BYTES_MAX == 1472,
    "the sentence of TooLong names it"
);

impl fmt::Display for Reason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.sentence())
    }
}

impl core::error::Error for Reason {}
