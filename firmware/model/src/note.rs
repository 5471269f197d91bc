//! Events as values: the timeline, the log line and the diagnosis are renderings of these.

mod evidence;
mod image_text;

use core::fmt;
use core::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use crate::fault::ForeignServerText;
use crate::story::Stage;
use crate::{ApiCaller, BoxFault, MacAddr, NodeId, PowerState, ProvisionState, UnixMs};

pub use evidence::{EvidenceNote, ImageProblem, LOOKUP_MACS_NOTED_MAX};

/// An event with its time.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Note {
    /// The time by the wall clock.
    pub at: UnixMs,
    /// The node it concerns, if it is a known one.
    pub node: Option<NodeId>,
    /// The event.
    pub kind: NoteKind,
}

/// The kind of an event.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum NoteKind {
    /// The provision state changed.
    StateChanged {
        /// The former state.
        from: ProvisionState,
        /// The new state.
        to: ProvisionState,
    },
    /// The BMC reported this power state.
    PowerIs(PowerState),
    /// The power state after a request to hardware that cannot report it.
    PowerAssumed(PowerState),
    /// An order to switch power was sent to the BMC or the SSH host.
    PowerOrdered {
        /// The order, such as `power on`.
        order: &'static str,
    },
    /// The order was accepted.
    PowerAccepted {
        /// The order, such as `power on`.
        order: &'static str,
    },
    /// Too many machines boot from the network: this one waits in the queue.
    BootQueued {
        /// How many are before it.
        ahead: u64,
    },
    /// A person must do what a BMC would do.
    ManualActionNeeded {
        /// The action, such as `switch node-3 on now`.
        what: String,
    },
    /// The BMC failed an order.
    PowerFailed {
        /// The kind of the error, see [`crate::PowerError::kind`].
        kind: &'static str,
        /// The whole error message.
        message: String,
    },
    /// An operator sent a command to the BMC or the agent by a vendor method.
    VendorCalled {
        /// The command, without secrets.
        method: String,
        /// Its result.
        outcome: String,
    },
    /// A DHCP exchange: a machine's request and the reply.
    Dhcp {
        /// Its hardware address.
        mac: MacAddr,
        /// The message type of the request, such as `DISCOVER`.
        request: &'static str,
        /// The message type of the reply, such as `OFFER`; none where there was none.
        reply: Option<&'static str>,
        /// The address that was leased or confirmed.
        address: Option<Ipv4Addr>,
        /// The firmware by its DHCP options, such as `UEFI x64 PXE`.
        firmware: &'static str,
        /// The boot file in the reply.
        boot: Option<String>,
        /// Why it was refused or not answered.
        why: Option<&'static str>,
    },
    /// Another DHCP server was seen for the first time.
    ForeignServerSeen {
        /// The interface.
        link: String,
        /// The server identifier that it sends.
        address: Ipv4Addr,
        /// Its hardware address, if it is known.
        mac: Option<MacAddr>,
    },
    /// A fault was raised.
    FaultRaised(BoxFault),
    /// The fault was cleared.
    FaultCleared(BoxFault),
    /// A machine that is not a port of any node requested an address.
    UnknownMachineSeen {
        /// Its hardware address.
        mac: MacAddr,
    },
    /// More such machines requested an address than are noted one by one.
    UnknownMachinesSeen {
        /// How many more.
        more: u64,
    },
    /// A file was sent, completely or in part.
    FileSent {
        /// TFTP or HTTP.
        by: &'static str,
        /// The path of the file.
        path: String,
        /// Bytes that were sent.
        sent: u64,
        /// Bytes that were requested.
        requested: u64,
        /// The duration in ms.
        took_ms: u64,
    },
    /// A request for a file was refused.
    FileRefused {
        /// TFTP or HTTP.
        by: &'static str,
        /// The path of the file.
        path: String,
        /// The error of the protocol, such as `404 Not Found`.
        answer: &'static str,
        /// The reason.
        why: String,
    },
    /// An image is fetched from its source, or verified.
    ImageFetching {
        /// Its name.
        image: String,
    },
    /// A packed image is being unpacked.
    ImageUnpacking {
        /// Its name.
        image: String,
    },
    /// An image is in the cache and its digest is right.
    ImageComplete {
        /// Its name.
        image: String,
        /// Its size.
        bytes: u64,
    },
    /// An image has changed on the disk of this box.
    ImageCorrupt {
        /// Its name.
        image: String,
        /// How many of its chunks changed.
        chunks: u64,
    },
    /// An image was evicted from the cache to free space.
    ImageEvicted {
        /// Its name.
        image: String,
    },
    /// A node's agent runs, and its image is not ready.
    AwaitingImage {
        /// Its name.
        image: String,
    },
    /// An agent could not write an image and reports the image as the cause.
    ImageRejected {
        /// Its name.
        image: String,
        /// The agent's own text.
        message: String,
    },
    /// The agent of an idle node begins to write an image that no deployment needs yet.
    ImageAheadStarted {
        /// Its name.
        image: String,
    },
    /// That agent has written the image and verified it.
    ImageAheadWritten {
        /// Its name.
        image: String,
        /// Its size.
        bytes: u64,
        /// The duration in ms.
        took_ms: u64,
    },
    /// That agent could not write the image.
    ImageAheadFailed {
        /// Its name.
        image: String,
        /// The reason.
        why: String,
    },
    /// A deployment found its image on the disk: the agent verified it there and fetched nothing.
    ImageWasOnDisk {
        /// Its name.
        image: String,
    },
    /// An image is not available.
    ImageFailed {
        /// The whole error message.
        why: String,
    },
    /// A boot file could not be compared with its source; the copy in the cache is used.
    BootFileUnverified {
        /// The whole error message.
        why: String,
    },
    /// An agent found its node and received the token of this boot.
    AgentLookedUp {
        /// The address that received it.
        from: IpAddr,
    },
    /// An agent redeemed the one-time token of this boot for a certificate.
    AgentEnrolled {
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
    /// An agent keeps running though its work is done.
    AgentKeepsRunning,
    /// A job continues with the agent of the previous one, without a boot.
    AgentReused,
    /// The heartbeats of an idle agent stopped.
    AgentExpired {
        /// Seconds since the last one.
        seconds: u64,
    },
    /// The heartbeats of an agent at work stopped.
    AgentTimedOut {
        /// Seconds since the last one.
        seconds: u64,
    },
    /// A caller was not authenticated.
    CallerRefused {
        /// The address it called from.
        from: IpAddr,
        /// The reason, without the secret.
        why: &'static str,
    },
    /// A request of an agent was refused.
    AgentRefused {
        /// The address it called from.
        from: IpAddr,
        /// The kind of request, such as `lookup`.
        request: &'static str,
        /// The reason, without secrets.
        why: String,
    },
    /// A caller requested a change.
    OrderReceived {
        /// The caller, its address, and its request.
        caller: Arc<ApiCaller>,
        /// A short name of the order.
        order: &'static str,
        /// Why it was refused, if it was.
        refused: Option<String>,
    },
    /// An agent's logs were stored.
    LogsStored {
        /// Their file name.
        name: String,
        /// Their size.
        bytes: u64,
    },
    /// An agent's logs could not be collected.
    LogsMissing {
        /// The reason.
        why: String,
    },
    /// Inspection data arrived.
    Inspected,
    /// An inspection found an interface, and a port was created for it.
    PortFound {
        /// Its hardware address.
        mac: MacAddr,
    },
    /// An inspection reported an interface from which no frame was ever received: no port.
    PortNeverSeen {
        /// Its hardware address.
        mac: MacAddr,
    },
    /// A step started.
    StepStarted {
        /// Its name.
        step: String,
    },
    /// A step is done.
    StepDone {
        /// Its name.
        step: String,
    },
    /// A fact that the diagnosis of the job reads.
    Evidence(EvidenceNote),
    /// A try failed and will be repeated.
    Retrying {
        /// The error.
        why: String,
    },
    /// Something failed that the job does not need.
    Warning {
        /// The error, and what follows.
        why: String,
    },
    /// The job failed.
    Failed {
        /// The text of `last_error`.
        why: String,
    },
    /// A stage of the job runs for much longer than usual.
    StageLate {
        /// The stage.
        stage: Stage,
        /// How long it has run, in ms.
        lasted_ms: u64,
        /// How long it usually takes, in ms; none where that is not known.
        usual_ms: Option<u64>,
        /// The diagnosis, if there is one.
        diagnosis: Option<String>,
    },
    /// This box restarted while the node had a job.
    BoxRestarted,
    /// A note from before the last restart of this box, of a kind of which only the text is
    /// kept.
    Restored {
        /// Its text.
        text: String,
    },
}

impl NoteKind {
    /// The text of events of agents.
    fn fmt_agent(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AgentLookedUp { from } => {
                write!(
                    out,
                    "agent looked its node up; the token was sent to {from}"
                )
            }
            Self::AgentEnrolled { from } => write!(
                out,
                "agent at {from} has the token from the BMC and got a certificate; without it \
                 nobody is this node in this boot"
            ),
            Self::AgentWeaklyAuthenticated { from } => write!(
                out,
                "weakly authenticated: the agent calls from {from}, an address that this box did \
                 not lease"
            ),
            Self::AgentReady { version } => write!(out, "agent {version} is ready"),
            Self::AgentKeepsRunning => write!(out, "the agent keeps running for the next job"),
            Self::AgentReused => write!(out, "continues with the running agent, without a boot"),
            Self::AgentExpired { seconds } => write!(
                out,
                "no heartbeat of the idle agent for {seconds} s; the next job boots the machine"
            ),
            Self::AgentTimedOut { seconds } => write!(
                out,
                "no heartbeat of the agent for {seconds} s; the power state is read from its BMC"
            ),
            Self::Inspected => write!(out, "inventory arrived"),
            Self::LogsStored { name, bytes } => {
                write!(out, "the agent's logs are stored: {name}, {bytes} bytes")
            }
            Self::LogsMissing { why } => {
                write!(out, "the agent's logs could not be collected: {why}")
            }
            Self::PortFound { mac } => write!(out, "interface {mac} was found and is a port now"),
            Self::PortNeverSeen { mac } => write!(
                out,
                "interface {mac} was reported, but never seen by this box; no port was created"
            ),
            _ => Ok(()),
        }
    }
}

impl NoteKind {
    /// The text of events of files.
    fn fmt_file(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FileSent {
                by,
                path,
                sent,
                requested,
                took_ms,
            } => {
                if sent == requested {
                    write!(out, "{by} sent {path}, {requested} bytes")?;
                } else {
                    write!(out, "{by} sent {path} short: {sent} of {requested} bytes")?;
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

    /// The text of events of callers and of unknown machines.
    fn fmt_caller(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownMachineSeen { mac } => {
                write!(out, "unknown machine {mac} requested an address")
            }
            Self::UnknownMachinesSeen { more } => {
                write!(out, "and {more} more unknown machines requested an address")
            }
            Self::CallerRefused { from, why } => write!(out, "caller refused: {why} ({from})"),
            Self::AgentRefused { from, request, why } => {
                write!(out, "{request} of an agent refused: {why} ({from})")
            }
            Self::OrderReceived {
                caller,
                order,
                refused: None,
            } => write!(out, "{order}, requested by {caller}"),
            Self::OrderReceived {
                caller,
                order,
                refused: Some(why),
            } => write!(out, "{order} refused, requested by {caller}: {why}"),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for NoteKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StateChanged { from, to } => write!(out, "{from} -> {to}"),
            Self::PowerIs(state) => write!(out, "BMC reports {state}"),
            Self::PowerAssumed(state) => write!(
                out,
                "{state} is assumed: this power interface cannot read the power state"
            ),
            Self::PowerOrdered { order } => write!(out, "{order} ordered"),
            Self::PowerAccepted { order } => write!(out, "{order} accepted by the BMC"),
            Self::BootQueued { ahead } => {
                write!(out, "waits for its turn to boot, {ahead} ahead")
            }
            Self::ManualActionNeeded { what } => write!(out, "by hand: {what}"),
            Self::PowerFailed { message, .. } => write!(out, "power order failed: {message}"),
            Self::VendorCalled { method, outcome } => write!(out, "{method}: {outcome}"),
            Self::Dhcp { .. } => self.fmt_dhcp(out),
            Self::ForeignServerSeen { link, address, mac } => {
                write!(
                    out,
                    "{}, was seen on {link}",
                    ForeignServerText(*address, *mac)
                )
            }
            Self::FaultRaised(fault) => write!(out, "fault: {fault}"),
            Self::FaultCleared(fault) => write!(out, "fault cleared: {fault}"),
            Self::FileSent { .. } | Self::FileRefused { .. } => self.fmt_file(out),
            Self::ImageFetching { .. }
            | Self::ImageUnpacking { .. }
            | Self::ImageComplete { .. }
            | Self::ImageCorrupt { .. }
            | Self::ImageEvicted { .. }
            | Self::AwaitingImage { .. }
            | Self::ImageRejected { .. }
            | Self::ImageAheadStarted { .. }
            | Self::ImageAheadWritten { .. }
            | Self::ImageAheadFailed { .. }
            | Self::ImageWasOnDisk { .. }
            | Self::ImageFailed { .. }
            | Self::BootFileUnverified { .. } => self.fmt_image(out),
            Self::AgentLookedUp { .. }
            | Self::AgentEnrolled { .. }
            | Self::AgentWeaklyAuthenticated { .. }
            | Self::AgentReady { .. }
            | Self::AgentKeepsRunning
            | Self::AgentReused
            | Self::AgentExpired { .. }
            | Self::AgentTimedOut { .. }
            | Self::LogsStored { .. }
            | Self::LogsMissing { .. }
            | Self::Inspected
            | Self::PortFound { .. }
            | Self::PortNeverSeen { .. } => self.fmt_agent(out),
            Self::CallerRefused { .. }
            | Self::AgentRefused { .. }
            | Self::OrderReceived { .. }
            | Self::UnknownMachineSeen { .. }
            | Self::UnknownMachinesSeen { .. } => self.fmt_caller(out),
            Self::StepStarted { step } => write!(out, "step {step} started"),
            Self::StepDone { step } => write!(out, "step {step} done"),
            Self::Evidence(evidence) => evidence.fmt(out),
            Self::Retrying { why } => write!(out, "trying again: {why}"),
            Self::Warning { why } => write!(out, "warning: {why}"),
            Self::Failed { why } => write!(out, "failed: {why}"),
            Self::StageLate { .. } => self.fmt_late(out),
            Self::BoxRestarted => out.write_str("this box restarted; the job continues"),
            Self::Restored { text } => out.write_str(text),
        }
    }
}

impl NoteKind {
    fn fmt_late(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::StageLate {
            stage,
            lasted_ms,
            usual_ms,
            diagnosis,
        } = self
        else {
            return Ok(());
        };
        write!(out, "stage {stage} is late: {} s", lasted_ms / 1000)?;
        if let Some(usual) = usual_ms {
            write!(out, ", usually {}.{} s", usual / 1000, usual % 1000 / 100)?;
        }
        match diagnosis {
            Some(sentence) => write!(out, ". {sentence}"),
            None => Ok(()),
        }
    }

    fn fmt_dhcp(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Dhcp {
            mac,
            request: requested,
            reply,
            address,
            firmware,
            boot,
            why,
        } = self
        else {
            return Ok(());
        };
        let reply = reply.unwrap_or("no answer");
        write!(out, "{mac} ({firmware}): {requested}, {reply}")?;
        if let Some(address) = address {
            write!(out, " {address}")?;
        }
        if let Some(boot) = boot {
            write!(out, ", boot {boot}")?;
        }
        why.map_or(Ok(()), |why| write!(out, ": {why}"))
    }
}

/// A duration in ms and a number of bytes, shown with the rate where that is useful.
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
