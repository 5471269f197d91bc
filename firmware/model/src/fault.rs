//! What is wrong with the box or its networks, as long as it is wrong.
//!
//! A note says that something happened; a fault stands until its cause is gone.
//! One cause is one fault, however often it shows.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::{MacAddr, UnixMs};

/// How many faults stand at the same time. Ours.
pub const FAULTS_MAX: usize = 256;

/// How many of them are of one kind. Ours: whoever can cause one kind by sending frames must
/// not hide the others.
pub const FAULTS_OF_KIND_MAX: usize = 32;

/// What to do where there is no agent to boot.
pub const AGENT_REMEDY: &str = "Build both with `trivet-image ramdisk --agent ipa --output \
    DIRECTORY`, set boot.kernel and boot.ramdisk, and start the box again";

/// One cause.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum BoxFault {
    /// Another DHCP server answers where the box does.
    ForeignServer {
        /// The interface.
        link: String,
        /// As it names itself.
        address: Ipv4Addr,
        /// Its hardware address, if it is known.
        mac: Option<MacAddr>,
    },
    /// No address is left.
    PoolExhausted {
        /// First of the range.
        first: Ipv4Addr,
        /// Last of the range.
        last: Ipv4Addr,
    },
    /// Somebody uses an address that is ours to give.
    AddressTaken {
        /// Which.
        address: Ipv4Addr,
        /// Who.
        by: MacAddr,
    },
    /// A file that machines are sent to is not there.
    LoaderMissing {
        /// Where it should be.
        path: String,
        /// Who needs it.
        firmware: &'static str,
    },
    /// The settings name no kernel and ramdisk of the agent.
    AgentMissing,
    /// A file of the agent that the settings name cannot be read.
    AgentFileMissing {
        /// Where it should be.
        path: String,
        /// What the system said.
        why: String,
    },
    /// Nodes are told an address of the box that they cannot reach.
    LoopbackAddress {
        /// The setting.
        key: &'static str,
        /// What nodes are told.
        url: String,
    },
    /// Programs send their tokens in plain HTTP over a network.
    PlainTokens {
        /// Where to.
        address: SocketAddr,
    },
    /// An interface of the settings cannot be used; the box waits for it.
    InterfaceMissing {
        /// Its name.
        name: String,
        /// What it lacks.
        why: &'static str,
    },
    /// A BMC cannot be read.
    BmcFailed {
        /// Of which node.
        node: String,
        /// The whole sentence.
        why: String,
    },
    /// Two nodes name one BMC.
    BmcShared {
        /// The one that is left alone.
        node: String,
        /// The one that has it.
        other: String,
        /// Where the BMC is.
        address: String,
    },
    /// Two addresses asked for the agent token of one node.
    AgentContested {
        /// Of which node.
        node: String,
        /// The address that received the token.
        first: IpAddr,
        /// The address that asked after it.
        second: IpAddr,
    },
    /// An image is not to be had.
    ImageFailed {
        /// The name of the catalogue entry, or of the file where a node names it by URL.
        image: String,
        /// The digest of its bytes in hexadecimal digits; none until it is known.
        digest: Option<String>,
        /// The whole sentence.
        why: String,
    },
}

/// Since when a fault stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FaultTimes {
    /// When it was first seen.
    pub since: UnixMs,
    /// When it was last seen.
    pub seen_at: UnixMs,
}

impl fmt::Display for BoxFault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ForeignServer { link, address, mac } => write!(
                out,
                "{}, answers on {link}; switch one of the two off, or set this box to mode \
                 \"proxy\" there",
                ForeignServerText(*address, *mac)
            ),
            Self::PoolExhausted { first, last } => write!(
                out,
                "no address from {first} to {last} is left; widen the range, shorten lease_s, or \
                 serve known machines only (mode \"reservations\")"
            ),
            Self::AddressTaken { address, by } => write!(
                out,
                "{by} uses {address}, which is this box's to give; give that machine another \
                 address or take it out of the range"
            ),
            Self::AgentMissing => write!(
                out,
                "boot.kernel and boot.ramdisk are not set, so no node can be inspected, cleaned \
                 or deployed. {AGENT_REMEDY}"
            ),
            Self::AgentFileMissing { path, why } => write!(
                out,
                "{path} cannot be read ({why}), so nodes cannot boot the agent. {AGENT_REMEDY}"
            ),
            Self::LoopbackAddress { key, url } => write!(
                out,
                "nodes are told {url}, which they cannot reach; listen on the address of the \
                 provisioning network or on 0.0.0.0, or set {key}"
            ),
            Self::PlainTokens { address } => write!(
                out,
                "tokens (api.tokens) that programs send to {address} travel in plain HTTP, where \
                 others can read them; let programs use 127.0.0.1 or an SSH tunnel, set api.tls = \
                 true, or set api.allow_plain_http = true where nobody else is on the network"
            ),
            Self::InterfaceMissing { name, why } => write!(
                out,
                "interface {name} {why}; DHCP is off there until it can be used (ip address)"
            ),
            Self::BmcFailed { node, why } => write!(out, "node {node}: {why}"),
            Self::BmcShared {
                node,
                other,
                address,
            } => write!(
                out,
                "node {node}: its BMC {address} is node {other}'s, so its power is not \
                 switched; correct the address in one of the records, or delete one"
            ),
            Self::AgentContested {
                node,
                first,
                second,
            } => write!(
                out,
                "node {node}: the agent at {first} received the node's token, and {second} asked \
                 for it as well; one of them is not this machine, so its job was stopped; find \
                 out which machine has which address"
            ),
            Self::ImageFailed { why, .. } => out.write_str(why),
            Self::LoaderMissing { path, firmware } => write!(
                out,
                "{path} is missing, so {firmware} cannot boot; install it (Debian: ipxe) or set \
                 boot.loaders (a link out of boot.loaders is not followed)"
            ),
        }
    }
}

/// Another server, for people.
pub(crate) struct ForeignServerText(pub(crate) Ipv4Addr, pub(crate) Option<MacAddr>);

impl fmt::Display for ForeignServerText {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(address, mac) = self;
        write!(out, "another DHCP server, {address}")?;
        mac.map_or(Ok(()), |mac| write!(out, " ({mac})"))
    }
}
