//! What happened, as values: the timeline, the log line and the diagnosis are
//! renderings of these.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use crate::fault::ForeignServerText;
use crate::{ApiCaller, BoxFault, MacAddr, NodeId, PowerState, ProvisionState, UnixMs};

/// Something that happened.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Note {
    /// When, by the wall clock.
    pub at: UnixMs,
    /// To which node, if it is one we know.
    pub node: Option<NodeId>,
    /// What.
    pub kind: NoteKind,
}

/// What happened.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum NoteKind {
    /// The node went on in its life.
    StateChanged {
        /// From here.
        from: ProvisionState,
        /// To here.
        to: ProvisionState,
    },
    /// The BMC said this.
    PowerIs(PowerState),
    /// An order to switch power left for the BMC or the host.
    PowerOrdered {
        /// Which, such as `power on`.
        order: &'static str,
    },
    /// It was taken.
    PowerAccepted {
        /// Which, such as `power on`.
        order: &'static str,
    },
    /// Too many machines boot from the network: this one waits for its turn.
    BootQueued {
        /// How many wait before it.
        ahead: u64,
    },
    /// Somebody must do by hand what a BMC would do.
    ManualActionNeeded {
        /// What, such as `switch node-3 on now`.
        what: String,
    },
    /// The BMC failed an order.
    PowerFailed {
        /// The whole sentence.
        message: String,
    },
    /// An operator said something to the BMC or the agent by a vendor method.
    VendorCalled {
        /// Which, and what of it is no secret.
        method: String,
        /// What came of it.
        outcome: String,
    },
    /// A DHCP exchange: what a machine asked, and what it was told.
    Dhcp {
        /// Its hardware address.
        mac: MacAddr,
        /// What it asked, such as `DISCOVER`.
        request: &'static str,
        /// What it was told, such as `OFFER`; none where there was no answer.
        reply: Option<&'static str>,
        /// The address it was given or confirmed.
        address: Option<Ipv4Addr>,
        /// What its firmware says of itself, such as `UEFI x64 PXE`.
        firmware: &'static str,
        /// What it was told to boot.
        boot: Option<String>,
        /// Why it was refused or not answered.
        why: Option<&'static str>,
    },
    /// Another DHCP server was heard for the first time.
    ForeignServerSeen {
        /// The interface.
        link: String,
        /// As it names itself.
        address: Ipv4Addr,
        /// Its hardware address, if it is known.
        mac: Option<MacAddr>,
    },
    /// Something is wrong, from now on.
    FaultRaised(BoxFault),
    /// It is no longer so.
    FaultCleared(BoxFault),
    /// A machine that is no port of any node asked for an address.
    UnknownMachineSeen {
        /// Its hardware address.
        mac: MacAddr,
    },
    /// More such machines asked than are noted one by one.
    UnknownMachinesSeen {
        /// How many more.
        more: u64,
    },
    /// A file went out, whole or short.
    FileSent {
        /// By TFTP or HTTP.
        by: &'static str,
        /// Which.
        path: String,
        /// How many bytes left.
        sent: u64,
        /// How many were asked for.
        requested: u64,
        /// How long it took.
        took_ms: u64,
    },
    /// A request for a file was refused.
    FileRefused {
        /// By TFTP or HTTP.
        by: &'static str,
        /// Which file.
        path: String,
        /// The protocol's answer, such as `404 Not Found`.
        answer: &'static str,
        /// Why.
        why: String,
    },
    /// An image is fetched from its source, or checked.
    ImageFetching {
        /// Which.
        image: String,
    },
    /// The disk in a packed image is taken out.
    ImageUnpacking {
        /// Which.
        image: String,
    },
    /// An image is in the cache and its digest is right.
    ImageComplete {
        /// Which.
        image: String,
        /// How large it is.
        bytes: u64,
    },
    /// An image has changed on the disk of this box.
    ImageCorrupt {
        /// Which.
        image: String,
        /// How many of its chunks.
        chunks: u64,
    },
    /// An image was removed from the cache for want of room.
    ImageEvicted {
        /// Which.
        image: String,
    },
    /// A node's agent is up, and its image is not ready for it.
    AwaitingImage {
        /// Which.
        image: String,
    },
    /// An agent could not write an image and blames the image.
    ImageRejected {
        /// Which.
        image: String,
        /// The agent's own words.
        message: String,
    },
    /// An image is not to be had.
    ImageFailed {
        /// The whole sentence.
        why: String,
    },
    /// A boot file could not be compared with its source; the copy in the cache is used.
    BootFileUnverified {
        /// The whole sentence.
        why: String,
    },
    /// An agent found its node and received the token of this boot.
    AgentLookedUp {
        /// The address that received it.
        from: IpAddr,
    },
    /// An agent calls from an address that this box did not lease to the node.
    AgentWeaklyAuthenticated {
        /// The address.
        from: IpAddr,
    },
    /// An agent's first heartbeat of this boot.
    AgentReady {
        /// Its version.
        version: String,
    },
    /// An agent goes on running though its work is done.
    AgentKept,
    /// A job goes on with the agent of the one before it: nothing is booted.
    AgentReused,
    /// An agent that stayed is not heard any more.
    AgentExpired {
        /// For how long.
        seconds: u64,
    },
    /// An agent at work was not heard for too long.
    AgentTimedOut {
        /// How long.
        seconds: u64,
    },
    /// A caller did not prove itself.
    CallerRefused {
        /// The address it called from.
        from: IpAddr,
        /// Why, without the secret.
        why: &'static str,
    },
    /// A request of an agent was refused.
    AgentRefused {
        /// The address it called from.
        from: IpAddr,
        /// What it wanted, such as `lookup`.
        request: &'static str,
        /// Why, without secrets.
        why: String,
    },
    /// Somebody asked for a change.
    OrderReceived {
        /// Who, from where, and by which request.
        caller: Arc<ApiCaller>,
        /// For what, in a word or two.
        order: &'static str,
        /// Why it was not carried out, if it was not.
        refused: Option<String>,
    },
    /// An agent's logs are kept.
    LogsStored {
        /// What they are called.
        name: String,
        /// How large they are.
        bytes: u64,
    },
    /// An agent's logs are not to be had.
    LogsMissing {
        /// Why.
        why: String,
    },
    /// Inspection data arrived.
    Inspected,
    /// An inspection found an interface, which is a port now.
    PortFound {
        /// Its hardware address.
        mac: MacAddr,
    },
    /// An inspection named an interface that was never heard on a network: no port.
    PortNeverSeen {
        /// Its hardware address.
        mac: MacAddr,
    },
    /// A step began.
    StepStarted {
        /// Its name.
        step: String,
    },
    /// A step is done.
    StepDone {
        /// Its name.
        step: String,
    },
    /// A try failed and will be repeated.
    Retrying {
        /// What failed.
        why: String,
    },
    /// Something failed that the job can do without.
    Warning {
        /// What failed, and what follows.
        why: String,
    },
    /// The job failed.
    Failed {
        /// The sentence that stands in `last_error`.
        why: String,
    },
}

impl NoteKind {
    /// The words for what became of an image.
    fn fmt_image(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ImageFetching { image } => write!(out, "image {image} is fetched or checked"),
            Self::ImageUnpacking { image } => {
                write!(
                    out,
                    "image {image} is here, and the disk in it is taken out"
                )
            }
            Self::ImageComplete { image, bytes } => {
                write!(
                    out,
                    "image {image} is here, {bytes} bytes, its digest is right"
                )
            }
            Self::ImageCorrupt { image, chunks } => write!(
                out,
                "image {image} has changed on this box's disk in {chunks} chunks; they are \
                 fetched again"
            ),
            Self::ImageEvicted { image } => write!(out, "image {image} made room for another"),
            Self::AwaitingImage { image } => {
                write!(out, "waits for image {image} to be ready")
            }
            Self::ImageRejected {
                image,
                message: said,
            } => write!(
                out,
                "the agent could not write image {image}: {said}; the image is checked in this \
                 box before it is written again"
            ),
            Self::ImageFailed { why } | Self::BootFileUnverified { why } => out.write_str(why),
            _ => Ok(()),
        }
    }
}

impl NoteKind {
    /// The words for what became of an agent.
    fn fmt_agent(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AgentLookedUp { from } => {
                write!(out, "agent found its node; the token went to {from}")
            }
            Self::AgentWeaklyAuthenticated { from } => write!(
                out,
                "weakly authenticated: the agent calls from {from}, an address that this box did \
                 not lease"
            ),
            Self::AgentReady { version } => write!(out, "agent {version} is ready"),
            Self::AgentKept => write!(out, "the agent stays for the next job"),
            Self::AgentReused => write!(out, "goes on with the agent that stayed, without a boot"),
            Self::AgentExpired { seconds } => write!(
                out,
                "the agent that stayed was not heard for {seconds} s; the next job boots anew"
            ),
            Self::AgentTimedOut { seconds } => write!(
                out,
                "no heartbeat of the agent for {seconds} s; its BMC is asked whether it is on"
            ),
            Self::Inspected => write!(out, "inventory arrived"),
            Self::LogsStored { name, bytes } => {
                write!(out, "the agent's logs are kept: {name}, {bytes} bytes")
            }
            Self::LogsMissing { why } => write!(out, "the agent's logs are not to be had: {why}"),
            Self::PortFound { mac } => write!(out, "interface {mac} was found and is a port now"),
            Self::PortNeverSeen { mac } => write!(
                out,
                "interface {mac} was reported, but never heard by this box; no port was created"
            ),
            _ => Ok(()),
        }
    }
}

impl NoteKind {
    /// The words for what became of a request for a file.
    fn fmt_file(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FileSent {
                by,
                path,
                sent,
                requested: asked,
                took_ms,
            } => {
                if sent == asked {
                    write!(out, "{by} sent {path}, {asked} bytes")?;
                } else {
                    write!(out, "{by} sent {path} short: {sent} of {asked} bytes")?;
                }
                write!(out, " in {}", TransferTime(*took_ms, *sent))
            }
            Self::FileRefused {
                by,
                path,
                answer,
                why,
            } => write!(out, "{by} request for {path} refused with {answer}: {why}"),
            _ => Ok(()),
        }
    }

    /// The words for what callers wanted.
    fn fmt_caller(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CallerRefused { from, why } => write!(out, "caller refused: {why} ({from})"),
            Self::AgentRefused { from, request, why } => {
                write!(out, "{request} of an agent refused: {why} ({from})")
            }
            Self::OrderReceived {
                caller,
                order,
                refused: None,
            } => write!(out, "{order}, asked by {caller}"),
            Self::OrderReceived {
                caller,
                order,
                refused: Some(why),
            } => write!(out, "{order} refused, asked by {caller}: {why}"),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for NoteKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StateChanged { from, to } => write!(out, "{from} -> {to}"),
            Self::PowerIs(state) => write!(out, "BMC says {state}"),
            Self::PowerOrdered { order } => write!(out, "{order} ordered"),
            Self::PowerAccepted { order } => write!(out, "{order} taken by the BMC"),
            Self::BootQueued { ahead } => {
                write!(out, "waits for its turn to boot, {ahead} ahead")
            }
            Self::ManualActionNeeded { what } => write!(out, "by hand: {what}"),
            Self::PowerFailed { message: said } => write!(out, "power order failed: {said}"),
            Self::VendorCalled { method, outcome } => write!(out, "{method}: {outcome}"),
            Self::UnknownMachineSeen { mac } => {
                write!(out, "unknown machine {mac} asked for an address")
            }
            Self::Dhcp { .. } => self.fmt_dhcp(out),
            Self::UnknownMachinesSeen { more } => {
                write!(out, "and {more} more unknown machines asked for an address")
            }
            Self::ForeignServerSeen { link, address, mac } => {
                write!(
                    out,
                    "{}, was heard on {link}",
                    ForeignServerText(*address, *mac)
                )
            }
            Self::FaultRaised(fault) => write!(out, "fault: {fault}"),
            Self::FaultCleared(fault) => write!(out, "fault is gone: {fault}"),
            Self::FileSent { .. } | Self::FileRefused { .. } => self.fmt_file(out),
            Self::ImageFetching { .. }
            | Self::ImageUnpacking { .. }
            | Self::ImageComplete { .. }
            | Self::ImageCorrupt { .. }
            | Self::ImageEvicted { .. }
            | Self::AwaitingImage { .. }
            | Self::ImageRejected { .. }
            | Self::ImageFailed { .. }
            | Self::BootFileUnverified { .. } => self.fmt_image(out),
            Self::AgentLookedUp { .. }
            | Self::AgentWeaklyAuthenticated { .. }
            | Self::AgentReady { .. }
            | Self::AgentKept
            | Self::AgentReused
            | Self::AgentExpired { .. }
            | Self::AgentTimedOut { .. }
            | Self::LogsStored { .. }
            | Self::LogsMissing { .. }
            | Self::Inspected
            | Self::PortFound { .. }
            | Self::PortNeverSeen { .. } => self.fmt_agent(out),
            Self::CallerRefused { .. } | Self::AgentRefused { .. } | Self::OrderReceived { .. } => {
                self.fmt_caller(out)
            }
            Self::StepStarted { step } => write!(out, "step {step} started"),
            Self::StepDone { step } => write!(out, "step {step} done"),
            Self::Retrying { why } => write!(out, "trying again: {why}"),
            Self::Warning { why } => write!(out, "warning: {why}"),
            Self::Failed { why } => write!(out, "failed: {why}"),
        }
    }
}

impl NoteKind {
    fn fmt_dhcp(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Dhcp {
            mac,
            request: asked,
            reply: said,
            address,
            firmware,
            boot,
            why,
        } = self
        else {
            return Ok(());
        };
        let said = said.unwrap_or("no answer");
        write!(out, "{mac} ({firmware}): {asked}, {said}")?;
        if let Some(address) = address {
            write!(out, " {address}")?;
        }
        if let Some(boot) = boot {
            write!(out, ", boot {boot}")?;
        }
        why.map_or(Ok(()), |why| write!(out, ": {why}"))
    }
}

/// Milliseconds, and the rate where it means something.
struct TransferTime(u64, u64);

impl fmt::Display for TransferTime {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(ms, bytes) = *self;
        write!(out, "{}.{:03} s", ms / 1000, ms % 1000)?;
        let tenths = bytes.saturating_mul(10_000) / (ms.max(1) << 20);
        if ms > 0 && tenths > 0 {
            write!(out, " ({}.{} MiB/s)", tenths / 10, tenths % 10)?;
        }
        Ok(())
    }
}
