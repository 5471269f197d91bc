//! Reasons why a frame got no reply.

use core::fmt;

use crate::message::MESSAGE_BYTES_MAX;

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $sentence:literal),* $(,)?) => {
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
        }
    };
}

reasons! {
    /// Shorter than header and cookie.
    TooShort = "the frame is too short to be DHCP",
    /// Longer than [`crate::MESSAGE_BYTES_MAX`].
    TooLong = "the frame is longer than 1472 bytes",
    /// The wrong direction: not a request, or for a client not a reply.
    WrongDirection = "the frame goes the other way",
    /// The hardware is not Ethernet with six bytes of address.
    NotEthernet = "the client is not on Ethernet",
    /// The hardware address is zero or a group address.
    NotOneMachine = "the client's hardware address is not that of one machine",
    /// The DHCP magic cookie is missing.
    NoCookie = "the frame is BOOTP without the cookie of DHCP",
    /// There is no message type.
    NoMessageType = "the frame has no message type",
    /// A message type servers do not answer.
    UnknownMessageType = "the message type is not for us",
    /// No configured subnet matches the link or relay of the frame.
    NoSubnet = "no subnet is configured for the link or relay of this frame",
    /// Only known machines are served on this subnet.
    UnknownClient = "the machine is not known and only known machines are served here",
    /// The box does not reply on this link.
    OnlyListening = "the box only listens here (mode \"listen\")",
    /// Another server gives the addresses on this link.
    OnlyBoot = "another server gives the addresses here (mode \"proxy\")",
    /// There is no loader for such firmware.
    NothingToBoot = "there is no loader for this firmware (boot.loaders)",
    /// The client has selected another server.
    OtherServer = "the client uses another server",
    /// The client asks about an address without a record here.
    NoRecord = "we have no record of the address the client asks about",
    /// The message lacks the address it refers to.
    NoAddress = "the message names no address",
    /// All addresses are in use.
    PoolExhausted = "all addresses of the subnet are in use: widen its range or shorten the lease",
    /// The remaining addresses are reserved for known machines.
    KeptForKnown = "the free addresses are kept for enrolled machines: enrol it or widen the range",
    /// More offers are open than [`crate::OFFERS_MAX`].
    TooManyOffers = "too many offers are open",
    /// More leases than [`crate::LEASES_MAX`].
    TooManyLeases = "too many leases",
    /// The relay's option 82 leaves no space for a reply.
    NoRoom = "the relay's information leaves no space for a reply",
    /// No reply is needed (RELEASE or DECLINE).
    NoAnswerNeeded = "none is needed",
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
