//! The composition of all crates into one state machine, `handle(now, input, outbox)`.
//!
//! This is the only crate that depends on every other one, and it contains no protocol
//! constant. The shell passes it a batch of inputs, makes the changes in the [`Outbox`]
//! durable, and only then sends the outputs: nothing is acknowledged before its record is on
//! flash. After each batch [`Rack::view`] is a snapshot for readers.

mod agents;
mod bmcs;
mod boot;
mod boot_files;
mod bounds;
mod diagnosis;
mod disk_size;
mod dispatch;
mod durable;
mod faults;
mod image_deployment;
mod image_part;
mod images;
mod images_ahead;
mod lan;
mod named_image;
mod nodes;
mod oci_images;
mod part_context;
mod records;
mod requests;
mod site_facts;
mod stories;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;

pub use agents::{AgentAddresses, CertificateRequirement};
pub use bounds::{NODES_MAX, PORTS_MAX, RESOURCES_MAX};
pub use dispatch::Rack;
pub use durable::make_durable;
pub use images_ahead::{AHEAD_TRIES_MAX, AHEAD_WRITES_MAX, ImageAheadAmount, ImageAheadRule};
pub use lan::WildcardListeners;
pub use trivet_agent::{ANSWER_BYTES_MAX, AgentHttpMethod, AgentHttpRequest, logs_bundle};
pub use trivet_bmc as bmc;
pub use trivet_bmc_ipmi::IpmiTiming;
pub use trivet_bootqueue::BootLimitRule;
pub use trivet_dhcp as dhcp;
pub use trivet_dhcp::DhcpDestination;
pub use trivet_node::{EraseScope, NodeLimits};
pub use trivet_store::{StoreChange, StoreRecords};
pub use trivet_story as story;

use trivet_model::secret::SecretText;
use trivet_model::view::LogBundle;
use trivet_model::{
    ApiCaller, BoxFault, KeyDigest, LinkId, MacAddr, Measurement, NodeCertificate, NodeId, Note,
    OrderOutcome, OrderRefusal, RackOrder,
};

/// The settings of the rack, fixed at start.
#[derive(Clone)]
pub struct Settings {
    /// DHCP, if it is on.
    pub dhcp: Option<trivet_dhcp::DhcpServerSettings>,
    /// Where nodes reach the API, without a slash at the end.
    pub api_url: String,
    /// Where nodes reach boot files and images, without a slash at the end.
    pub http_url: String,
    /// The same files over TLS; empty if there is no such listener. Agents with a certificate
    /// fetch the config drive and the image of their node there, and nobody else gets them.
    pub https_url: String,
    /// Which of these services listen on every address.
    pub wildcard_listeners: WildcardListeners,
    /// The images in the box's own directory.
    pub images: trivet_images::ImageCatalogue,
    /// Images from other servers are fetched through the cache of this box.
    pub cache: bool,
    /// How they are fetched and kept.
    pub image_library: trivet_images::ImageLibraryOptions,
    /// Paths of files and directories.
    pub files: RackFilePaths,
    /// The operator's additions to the agent's kernel command line.
    pub kernel_args: String,
    /// In seconds; sent to agents at lookup.
    pub heartbeat_timeout_s: u64,
    /// SHA-256 of the public key of the box's CA, if agents reach the API over TLS: then each
    /// boot of an agent has a one-time token.
    pub ca_key: Option<KeyDigest>,
    /// Which agents need a certificate from their first request on.
    pub agent_requirement: CertificateRequirement,
    /// From which addresses agents may call.
    pub agent_addresses: AgentAddresses,
    /// Time-outs and numbers of retries of jobs.
    pub limits: NodeLimits,
    /// When requests to a BMC are repeated.
    pub pace: IpmiTiming,
    /// How often the power states of idle nodes are read, in ms; none is never.
    pub power_sync_interval_ms: Option<u64>,
    /// How many machines boot from the network at once.
    pub boots_at_once: BootLimitRule,
    /// Images that are written to idle nodes before a deployment needs them.
    pub images_ahead: Vec<ImageAheadRule>,
    /// Hardware types that are enabled.
    pub hardware: Vec<String>,
    /// Faults that the shell found at its start: they stay until the next start.
    pub faults: Vec<BoxFault>,
}

/// Paths of the files to serve. A file that is not named is not served.
#[derive(Clone, Debug, Default)]
pub struct RackFilePaths {
    /// The agent's kernel.
    pub kernel: Option<PathBuf>,
    /// The agent's ramdisk.
    pub ramdisk: Option<PathBuf>,
    /// An ISO image with both.
    pub iso: Option<AgentIso>,
    /// Another server boots the agent on the nodes; none is served here.
    pub agent_from_other_server: bool,
    /// The directory of images.
    pub images: Option<PathBuf>,
    /// The directory of boot loaders.
    pub loaders: Option<PathBuf>,
    /// The directory of the operator's own files.
    pub operator: Option<PathBuf>,
    /// The directory of the store and the keys: only its images are ever served.
    pub data: Option<PathBuf>,
}

/// An ISO image of the agent, whose menus have areas for kernel arguments.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AgentIso {
    /// Its path.
    pub file: PathBuf,
    /// The areas: the first byte of each, and how many there are.
    pub areas: Vec<(u64, usize)>,
}

/// A request of an agent that was refused before it became an order.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RefusedAgent {
    /// The address it came from.
    pub from: IpAddr,
    /// The node that it names, if it names one.
    pub node: Option<NodeId>,
    /// The kind of request, such as `lookup`.
    pub request: &'static str,
    /// The reason, for the note.
    pub why: String,
}

/// A request of a caller that was refused before it became an order.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RefusedRequest {
    /// Who sent it.
    pub caller: Arc<ApiCaller>,
    /// The node that its path names, if it exists.
    pub node: Option<NodeId>,
    /// The reason, for the audit.
    pub why: String,
}

impl RefusedRequest {
    /// Stands for the order that it would have become, in the audit and in metrics.
    pub const ORDER: &'static str = "request";
}

/// An input: something that the box received.
#[derive(Debug)]
pub enum RackInput {
    /// The box has started: every node repeats its pending orders.
    Started,
    /// A caller of the API requests a change.
    Order {
        /// Returned with the reply.
        ticket: u64,
        /// The caller's identity and address.
        caller: Arc<ApiCaller>,
        /// The requested change.
        order: RackOrder,
    },
    /// A DHCP message.
    Dhcp {
        /// The interface that received it, with its addresses.
        arrival: dhcp::DhcpArrival,
        /// The datagram's payload.
        bytes: Vec<u8>,
    },
    /// A machine claims an address (an ARP reply).
    ArpClaimed {
        /// The link that received it.
        link: LinkId,
        /// The claimed address.
        address: Ipv4Addr,
        /// The hardware address of the machine.
        mac: MacAddr,
    },
    /// A message from a BMC, or the end of a request to one.
    Bmc(bmc::BmcMessage),
    /// An agent replied to a call, or did not.
    AgentAnswered {
        /// The node of the agent.
        node: NodeId,
        /// The number of the call.
        call: u64,
        /// Status and body, or the error of the connection.
        result: Result<(u16, Vec<u8>), String>,
    },
    /// A client requests a file.
    FileRequested {
        /// Returned with the reply.
        ticket: u64,
        /// The protocol of the request.
        protocol: FileServerProtocol,
        /// The client's address.
        peer: IpAddr,
        /// The certificate of the connection.
        certificate: Option<NodeCertificate>,
        /// The path as received.
        path: String,
    },
    /// A file is being sent, or was sent.
    FileSent {
        /// The client's address.
        peer: IpAddr,
        /// The protocol of the request.
        protocol: FileServerProtocol,
        /// The path as received.
        path: String,
        /// Bytes sent so far.
        sent: u64,
        /// Bytes that were requested.
        requested: u64,
        /// Milliseconds so far.
        took_ms: u64,
        /// The transfer has ended.
        ended: bool,
    },
    /// A request for a file was answered with an error.
    FileRefused {
        /// The client's address.
        peer: IpAddr,
        /// The protocol of the request.
        protocol: FileServerProtocol,
        /// The path as received.
        path: String,
        /// The error of the protocol, such as `404 Not Found`.
        answer: &'static str,
        /// The reason, for the note.
        why: String,
    },
    /// A request of an agent was refused before it became an order.
    AgentRefused(RefusedAgent),
    /// A request of a caller was refused before it became an order.
    RequestRefused(RefusedRequest),
    /// The engine stops after this batch: what waits for the next commit is written now.
    Stopping,
    /// The shell reports on the work on an image.
    Image(Box<trivet_images::ImageWorkReport>),
    /// The stored logs of a node's agents.
    Logs {
        /// The node of the agents.
        node: NodeId,
        /// All stored bundles, oldest first.
        bundles: Vec<LogBundle>,
        /// The result of a collection, if there was one: the name of the new bundle, or why
        /// there is none.
        collected: Option<Result<String, String>>,
    },
    /// The store refused a record of this node as too large, and the cause was not an API
    /// request but data from its machine.
    RecordTooLarge(NodeId),
    /// The shell reports that a fault exists, or that it has ended.
    Fault {
        /// The fault.
        fault: BoxFault,
        /// It exists.
        exists: bool,
    },
    /// Time has passed: [`Rack::deadline`] may be due.
    Tick,
}

/// The protocol by which a file is sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FileServerProtocol {
    /// TFTP (RFC 1350).
    Tftp,
    /// HTTP.
    Http,
}

impl FileServerProtocol {
    /// The protocol's name, for logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tftp => "TFTP",
            Self::Http => "HTTP",
        }
    }
}

/// An output: something to send or do after the batch's changes are durable.
#[derive(Debug)]
pub enum RackOutput {
    /// The reply to [`RackInput::Order`]. It follows in the same batch, except for a vendor
    /// method, where it follows the reply of the BMC or the agent.
    Reply {
        /// The ticket of the order.
        ticket: u64,
        /// The outcome, or why it was refused.
        result: Result<OrderOutcome, OrderRefusal>,
    },
    /// The reply to [`RackInput::FileRequested`].
    File {
        /// The ticket of the request.
        ticket: u64,
        /// What to send; none where there is no such file.
        grant: Option<FileGrant>,
    },
    /// A DHCP message to send.
    Dhcp {
        /// The link to send it on.
        link: LinkId,
        /// The source address, one of ours.
        local: Ipv4Addr,
        /// The destination address.
        to: DhcpDestination,
        /// The payload.
        bytes: Vec<u8>,
    },
    /// Send an ARP probe for an address, or only listen for it on a link where nothing is sent.
    /// A reply arrives as [`RackInput::ArpClaimed`]; no reply has no meaning.
    Probe {
        /// The link to probe on.
        link: LinkId,
        /// The address to probe.
        address: Ipv4Addr,
    },
    /// A message to a BMC, or to the host of a machine.
    Bmc(bmc::BmcTransmit),
    /// A call to an agent. It always ends with [`RackInput::AgentAnswered`].
    CallAgent {
        /// The node of the agent.
        node: NodeId,
        /// The number of the call.
        call: u64,
        /// The URL at which the agent listens.
        url: String,
        /// The agent's certificate, the only one to trust.
        verify_ca: Option<String>,
        /// The request to send.
        request: AgentHttpRequest,
    },
    /// Collect an agent's logs and store them. It always ends with [`RackInput::Logs`].
    CollectLogs {
        /// The node of the agent.
        node: NodeId,
        /// The URL at which the agent listens.
        url: String,
        /// The agent's certificate, the only one to trust.
        verify_ca: Option<String>,
        /// The request to send.
        request: AgentHttpRequest,
        /// The token to redact from the logs.
        token: SecretText,
    },
    /// Delete the logs of this node, which was deleted.
    DropLogs(NodeId),
    /// Work on an image. What comes back is [`RackInput::Image`].
    Image(Box<trivet_images::ImageWorkOrder>),
    /// An event to log.
    Note {
        /// The event.
        note: Note,
        /// The name of the node in the log, if it concerns one.
        label: Option<String>,
    },
    /// A fact to count.
    Measured(Measurement),
}

/// The content of a reply to a request for a file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum FileGrant {
    /// These bytes.
    Bytes(Vec<u8>),
    /// The first of these files that exists, below the directory it is named with.
    File(Vec<ConfinedFile>),
    /// A file that the settings name by its whole path: a symbolic link is followed to any
    /// target outside the data directory.
    NamedFile {
        /// The file, or a link to it.
        file: PathBuf,
        /// The data directory.
        data: Option<PathBuf>,
    },
    /// A file that the settings name, with other bytes in some places.
    PatchedFile {
        /// The file, or a link to it.
        file: PathBuf,
        /// The data directory.
        data: Option<PathBuf>,
        /// The places, by their first byte; they are sorted and do not overlap.
        patches: Vec<(u64, Vec<u8>)>,
    },
    /// This image, from the cache.
    Image(Box<ImageGrant>),
    /// The chunk list of this image, which is complete.
    ChunkList(trivet_images::ImageKey),
    /// Nothing yet, for the reason in this sentence; a later request may succeed.
    Unavailable(String),
    /// Nothing for this client, for the reason in this sentence.
    Forbidden(&'static str),
}

/// An image that may be read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ImageGrant {
    /// The image.
    pub spec: trivet_images::ImageSpec,
    /// The entry of the cache to read.
    pub read: trivet_images::ImageReadGrant,
}

/// A file and the directory that confines it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ConfinedFile {
    /// The directory; symbolic links may not point out of it.
    pub root: PathBuf,
    /// The file.
    pub file: PathBuf,
    /// A directory that it may not lead to, nor contain: the data directory.
    pub data: Option<PathBuf>,
}

/// The results of a batch of inputs: first make the changes durable, then send the outputs.
#[derive(Debug, Default)]
pub struct Outbox {
    /// To be made durable, all or none.
    pub changes: Vec<StoreChange>,
    /// To be sent after that, in this order.
    pub outputs: Vec<RackOutput>,
}
