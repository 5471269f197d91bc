//! Faults of the box or its networks, as long as they exist.
//!
//! A note reports an event; a fault stays until its cause has ended. One cause is one fault,
//! however often it occurs.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::{MacAddr, UnixMs};

/// The most faults at the same time. Ours.
pub const FAULTS_MAX: usize = 256;

/// The most faults of one kind. Ours: a machine that can cause one kind by sending frames must
/// not hide the others.
pub const FAULTS_OF_KIND_MAX: usize = 32;

/// What to do where no agent is configured.
pub const AGENT_REMEDY: &str = "Build both with `trivet-image ramdisk --agent trivet --output \
    DIRECTORY`, set boot.kernel and boot.ramdisk, and start the box again";

/// Why a node that boots from a medium of its BMC has no agent to boot, and what to do.
pub const AGENT_ISO_LACKS: &str = "boot.iso is not set or cannot be used, nor are boot.kernel and \
    boot.ramdisk set for a boot from the network instead of the medium. Make the image with \
    `trivet-image iso`, set boot.iso, and start the box again";

/// A fault, identified by its cause.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum BoxFault {
    /// Another DHCP server answers on a link that the box serves.
    ForeignServer {
        /// The interface.
        link: String,
        /// The server identifier that it sends.
        address: Ipv4Addr,
        /// Its hardware address, if it is known.
        mac: Option<MacAddr>,
    },
    /// All addresses of a range are leased.
    PoolExhausted {
        /// First address of the range.
        first: Ipv4Addr,
        /// Last address of the range.
        last: Ipv4Addr,
    },
    /// A machine without a lease uses an address of ours.
    AddressTaken {
        /// The address.
        address: Ipv4Addr,
        /// The hardware address of that machine.
        by: MacAddr,
    },
    /// A boot file that DHCP replies name is missing.
    LoaderMissing {
        /// The path of the missing file.
        path: String,
        /// The firmware that needs it.
        firmware: &'static str,
    },
    /// The settings name no kernel and ramdisk of the agent.
    AgentMissing,
    /// A file of the agent that the settings name cannot be read.
    AgentFileMissing {
        /// The path in the settings.
        path: String,
        /// The error of the operating system.
        why: String,
    },
    /// The ISO image of the agent that the settings name cannot be used.
    AgentIsoUnusable {
        /// The whole error message.
        why: String,
    },
    /// The URL that the box sends to nodes is a loopback address.
    LoopbackAddress {
        /// The setting.
        key: &'static str,
        /// The URL that is sent to nodes.
        url: String,
    },
    /// Programs send their tokens in plain HTTP over a network.
    PlainTokens {
        /// The address they are sent to.
        address: SocketAddr,
    },
    /// An interface of the settings cannot be used; the box waits for it.
    InterfaceMissing {
        /// Its name.
        name: String,
        /// The reason, as the end of a sentence about the interface.
        why: &'static str,
    },
    /// A BMC cannot be read.
    BmcFailed {
        /// The name of the node.
        node: String,
        /// The whole error message.
        why: String,
    },
    /// Two nodes name the same BMC.
    BmcShared {
        /// The node that may not use it.
        node: String,
        /// The node that uses it.
        other: String,
        /// The address of the BMC.
        address: String,
    },
    /// Two addresses requested the agent token of one node.
    AgentContested {
        /// The name of the node.
        node: String,
        /// The address that received the token.
        first: IpAddr,
        /// The address that requested it later.
        second: IpAddr,
    },
    /// An image is not available.
    ImageFailed {
        /// The name of the catalogue entry, or of the file where a node names it by URL.
        image: String,
        /// The digest of its bytes in hexadecimal digits; none until it is known.
        digest: Option<String>,
        /// The whole error message.
        why: String,
    },
    /// A webhook does not accept events.
    WebhookFailed {
        /// Its URL, without credentials.
        url: String,
        /// The last error, as the end of a sentence about the receiver.
        why: String,
    },
}

/// When a fault occurred.
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
                "{by} uses {address}, which this box leases; give that machine another \
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
            Self::AgentIsoUnusable { why } => fmt_agent_iso(out, why),
            Self::LoopbackAddress { key, url } => write!(
                out,
                "nodes receive {url}, which they cannot reach; listen on the address of the \
                 provisioning network or on 0.0.0.0, or set {key}"
            ),
            Self::PlainTokens { address } => write!(
                out,
                "tokens (api.tokens) that programs send to {address} travel in plain HTTP, where \
                 others can read them; let programs use 127.0.0.1 or an SSH tunnel, set api.tls = \
                 true, or set api.allow_plain_http = true where no other machine is on the network"
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
                "node {node}: the agent at {first} received the node's token, and {second} \
                 requested it as well; one of them is not this machine, so its job was stopped; \
                 find out which machine has which address"
            ),
            Self::ImageFailed { why, .. } => out.write_str(why),
            Self::WebhookFailed { url, why } => fmt_webhook(out, url, why),
            Self::LoaderMissing { path, firmware } => write!(
                out,
                "{path} is missing, so {firmware} cannot boot; install it (Debian: ipxe) or set \
                 boot.loaders (a link out of boot.loaders is not followed)"
            ),
        }
    }
}

fn fmt_agent_iso(out: &mut fmt::Formatter<'_>, why: &str) -> fmt::Result {
    write!(
        out,
        "boot.iso: {why}; machines do not boot the agent from virtual media or a URL of their BMC"
    )
}

fn fmt_webhook(out: &mut fmt::Formatter<'_>, url: &str, why: &str) -> fmt::Result {
    write!(
        out,
        "the webhook {url} {why}; events wait for it and are sent again; correct the receiver or \
         webhook.url"
    )
}

/// Another server, formatted for people.
pub(crate) struct ForeignServerText(pub(crate) Ipv4Addr, pub(crate) Option<MacAddr>);

impl fmt::Display for ForeignServerText {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(address, mac) = self;
        write!(out, "another DHCP server, {address}")?;
        mac.map_or(Ok(()), |mac| write!(out, " ({mac})"))
    }
}
