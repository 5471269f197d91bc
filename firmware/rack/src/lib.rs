//! The composition: all rooms as one machine, `handle(now, input, outbox)`.
//!
//! The only crate that knows every room, and it knows no protocol constant.
//! The shell gives it a batch of inputs, makes the changes in the [`Outbox`]
//! durable, and only then lets the outputs out: nothing is promised before the
//! record behind it is on flash. After each batch [`Rack::view`] is a snapshot
//! for readers.

mod advertised_addresses;
mod agents;
mod allocations;
mod bmc_conflicts;
mod bmc_requests;
mod boot;
mod boot_files;
mod boot_queue;
mod bounds;
mod callers;
mod disk_size;
mod dispatch;
mod durable;
mod faults;
mod health;
mod image_deployment;
mod images;
mod inspection;
mod ipmi_target;
mod ipmi_transport;
mod lan;
mod logs;
mod orders;
mod plan;
mod power_change;
mod power_control;
mod power_sync;
mod recently_seen;
mod records;
mod redfish_transport;
mod resources;
mod ssh_transport;
mod swapped_bmcs;
mod templates;
#[cfg(test)]
mod tests;
mod vendor;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

pub use advertised_addresses::WildcardListeners;
pub use bounds::{NODES_MAX, PORTS_MAX, RESOURCES_MAX};
pub use callers::AgentAddresses;
pub use dispatch::Rack;
pub use durable::make_durable;
pub use trivet_agent::{ANSWER_BYTES_MAX, AgentHttpMethod, AgentHttpRequest, logs_bundle};
pub use trivet_bmc_ipmi::IpmiTiming;
pub use trivet_bmc_redfish as bmc_redfish;
pub use trivet_bmc_ssh as ssh;
pub use trivet_bootqueue::BootLimitRule;
pub use trivet_dhcp as dhcp;
pub use trivet_dhcp::DhcpDestination;
pub use trivet_node::{EraseScope, NodeLimits};
pub use trivet_store::{StoreChange, StoreRecords};
pub use vendor::PENDING_REQUESTS_MAX;

use trivet_model::image::ImageStatus;
use trivet_model::secret::SecretText;
use trivet_model::view::LogBundle;
use trivet_model::{
    ApiCaller, BoxFault, LinkId, MacAddr, NodeId, Note, OrderOutcome, OrderRefusal, RackOrder,
};

/// What the rack is told at start.
#[derive(Clone)]
pub struct Settings {
    /// DHCP, if it is on.
    pub dhcp: Option<trivet_dhcp::DhcpServerSettings>,
    /// Where nodes reach the API, without a slash at the end.
    pub api_url: String,
    /// Where nodes reach boot files and images, without a slash at the end.
    pub http_url: String,
    /// What of these listens on every address.
    pub wildcard_listeners: WildcardListeners,
    /// The images of this box.
    pub images: trivet_images::ImageCatalogue,
    /// Images from elsewhere are fetched through the cache of this box.
    pub cache: bool,
    /// Where things lie on disk.
    pub files: RackFilePaths,
    /// What the operator adds to the agent's kernel line.
    pub kernel_args: String,
    /// Told to agents at lookup.
    pub heartbeat_timeout_s: u64,
    /// From where agents may call.
    pub agent_addresses: AgentAddresses,
    /// How long and how often jobs wait and try.
    pub limits: NodeLimits,
    /// How a BMC is asked again.
    pub pace: IpmiTiming,
    /// How often power states are read that nobody asks for; none is never.
    pub power_sync_interval_ms: Option<u64>,
    /// How many machines boot from the network at once.
    pub boots_at_once: BootLimitRule,
    /// Hardware types that are enabled.
    pub hardware: Vec<String>,
    /// What the shell found wrong at its start: it stands until the next one.
    pub faults: Vec<BoxFault>,
}

/// Where files lie. A file that is not named is not served.
#[derive(Clone, Debug, Default)]
pub struct RackFilePaths {
    /// The agent's kernel.
    pub kernel: Option<PathBuf>,
    /// The agent's ramdisk.
    pub ramdisk: Option<PathBuf>,
    /// Another server boots the agent on the nodes; none is served here.
    pub agent_from_other_server: bool,
    /// Images.
    pub images: Option<PathBuf>,
    /// Loaders.
    pub loaders: Option<PathBuf>,
    /// The operator's own.
    pub operator: Option<PathBuf>,
    /// The directory of the store and the keys: of it only images are ever served.
    pub data: Option<PathBuf>,
}

/// A request of an agent that was refused before it became an order.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RefusedAgent {
    /// The address it came from.
    pub from: IpAddr,
    /// The node that it names, if it names one.
    pub node: Option<NodeId>,
    /// What it wanted, such as `lookup`.
    pub request: &'static str,
    /// Why.
    pub why: String,
}

/// Something that reached the box.
#[derive(Debug)]
pub enum RackInput {
    /// The box has started: every node re-derives its orders.
    Started,
    /// A caller of the API wants something changed.
    Order {
        /// Comes back with the answer.
        ticket: u64,
        /// Who, and from where.
        caller: Arc<ApiCaller>,
        /// What.
        order: RackOrder,
    },
    /// A DHCP message.
    Dhcp {
        /// Where it came in.
        arrival: dhcp::DhcpArrival,
        /// The datagram's payload.
        bytes: Vec<u8>,
    },
    /// A machine says that an address is its own (an ARP answer).
    ArpClaimed {
        /// Where it was heard.
        link: LinkId,
        /// The address.
        address: Ipv4Addr,
        /// The machine.
        mac: MacAddr,
    },
    /// A datagram from a BMC.
    Bmc {
        /// From where.
        from: SocketAddr,
        /// The payload.
        bytes: Vec<u8>,
    },
    /// An agent answered a call, or did not.
    AgentAnswered {
        /// Of which node.
        node: NodeId,
        /// Which call.
        call: u64,
        /// Status and body, or what the connection said.
        result: Result<(u16, Vec<u8>), String>,
    },
    /// A command line on a host has ended, or could not be run.
    SshAnswered {
        /// For which node.
        node: NodeId,
        /// Which run.
        run: u64,
        /// What came of it, or why it did not run.
        result: Result<ssh::SshCommandOutput, String>,
    },
    /// A Redfish BMC answered a request, or did not.
    RedfishAnswered {
        /// For which node.
        node: NodeId,
        /// Which request.
        call: u64,
        /// What it answered, or why there is no answer.
        result: Result<bmc_redfish::RedfishResponse, bmc_redfish::RedfishTransportError>,
    },
    /// Somebody asks for a file.
    FileRequested {
        /// Comes back with the answer.
        ticket: u64,
        /// By which door.
        protocol: FileServerProtocol,
        /// Who asks.
        peer: IpAddr,
        /// The path as it came.
        path: String,
    },
    /// A file that was granted goes out.
    FileSent {
        /// To whom.
        peer: IpAddr,
        /// By which door.
        protocol: FileServerProtocol,
        /// The path as it came.
        path: String,
        /// Bytes so far.
        sent: u64,
        /// Bytes that were asked for.
        requested: u64,
        /// Time so far.
        took_ms: u64,
        /// No more will follow.
        ended: bool,
    },
    /// A request for a file was answered with an error.
    FileRefused {
        /// To whom.
        peer: IpAddr,
        /// By which door.
        protocol: FileServerProtocol,
        /// The path as it came.
        path: String,
        /// The protocol's answer, such as `404 Not Found`.
        answer: &'static str,
        /// Why.
        why: String,
    },
    /// A request of an agent was refused before it became an order.
    AgentRefused(RefusedAgent),
    /// Something became of an image in the cache.
    Image(Box<ImageStatus>),
    /// The answer to [`Output::FindSum`].
    ChecksumFound {
        /// Of which checksum file.
        url: String,
        /// Of which file.
        name: String,
        /// The digest, or a sentence why there is none.
        result: Result<trivet_model::Digest, String>,
    },
    /// The answer to [`Output::FetchBootFile`].
    BootFileFetched {
        /// Of which URL.
        url: String,
        /// What is in the cache now, or a sentence why nothing is.
        result: Result<FetchedFile, String>,
    },
    /// What is kept of the logs of a node's agents.
    Logs {
        /// Of which node.
        node: NodeId,
        /// All that is kept, oldest first.
        bundles: Vec<LogBundle>,
        /// What became of a collection, if there was one: how the new bundle is called, or
        /// why there is none.
        collected: Option<Result<String, String>>,
    },
    /// The store refused a record of this node as too large, and no caller was to blame: what
    /// its machine told was.
    RecordTooLarge(NodeId),
    /// Time has passed: [`Rack::deadline`] may be due.
    Tick,
}

/// How a file leaves the box.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FileServerProtocol {
    /// By TFTP.
    Tftp,
    /// By HTTP.
    Http,
}

impl FileServerProtocol {
    /// The protocol's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tftp => "TFTP",
            Self::Http => "HTTP",
        }
    }
}

/// Something that must leave the box, after the batch's changes are durable.
#[derive(Debug)]
pub enum RackOutput {
    /// The answer to [`Input::Order`]. It comes with the same input, except that to
    /// a vendor method, which comes when the BMC or the agent has answered.
    Reply {
        /// The order's.
        ticket: u64,
        /// How it went.
        result: Result<OrderOutcome, OrderRefusal>,
    },
    /// The answer to [`Input::FileAsked`].
    File {
        /// The question's.
        ticket: u64,
        /// What to send; none where there is no such file.
        grant: Option<FileGrant>,
    },
    /// A DHCP message to send.
    Dhcp {
        /// By which way.
        link: LinkId,
        /// From this address of ours.
        local: Ipv4Addr,
        /// Where to.
        to: DhcpDestination,
        /// The payload.
        bytes: Vec<u8>,
    },
    /// Ask on the wire who has an address (an ARP probe), or only listen for it where
    /// nothing is said. An answer comes as [`Input::Claimed`]; silence says nothing.
    Probe {
        /// Where.
        link: LinkId,
        /// Which.
        address: Ipv4Addr,
    },
    /// A datagram to a BMC.
    Bmc {
        /// Where to.
        to: SocketAddr,
        /// The payload.
        bytes: Vec<u8>,
    },
    /// A call to an agent. It is always answered by [`Input::AgentAnswered`].
    CallAgent {
        /// Of which node.
        node: NodeId,
        /// Which call.
        call: u64,
        /// Where the agent listens.
        url: String,
        /// Its certificate, the only one to trust.
        verify_ca: Option<String>,
        /// What to ask.
        request: AgentHttpRequest,
    },
    /// Collect an agent's logs and keep them. It is always answered by [`Input::Logs`].
    CollectLogs {
        /// Of which node.
        node: NodeId,
        /// Where the agent listens.
        url: String,
        /// Its certificate, the only one to trust.
        verify_ca: Option<String>,
        /// What to ask.
        request: AgentHttpRequest,
        /// What must not be kept.
        token: SecretText,
    },
    /// The node is gone: so are its logs.
    DropLogs(NodeId),
    /// A command line for another host. It is always answered by
    /// [`Input::SshAnswered`], within [`ssh::RUN_TIMEOUT_MS`].
    Ssh {
        /// For which node.
        node: NodeId,
        /// Which run.
        run: u64,
        /// Which host, and how to log in.
        target: Box<ssh::SshTarget>,
        /// The line for its shell.
        command: String,
    },
    /// A request to a Redfish BMC. It is always answered by [`Input::RedfishAnswered`],
    /// within [`bmc_redfish::REQUEST_TIMEOUT_MS`].
    Redfish {
        /// For which node.
        node: NodeId,
        /// Which request.
        call: u64,
        /// Which BMC, and whom to believe that it is.
        target: Box<bmc_redfish::RedfishTarget>,
        /// What to ask.
        request: Box<bmc_redfish::RedfishRequest>,
    },
    /// Bring this image into the cache, if it is not there.
    FillImage {
        /// Which.
        wanted: Box<trivet_images::ImageSpec>,
        /// Somebody waits for it: no hours are kept. How it ended is always told then.
        urgent: bool,
    },
    /// Read an image of the cache through, and mend it. How it ended is always told.
    CheckImage(Box<trivet_images::ImageSpec>),
    /// Find the digest of the file of this name in a checksum file. It is always
    /// answered by [`Input::SumFound`].
    FindChecksum {
        /// Where the checksum file is.
        url: String,
        /// The file's name.
        name: String,
    },
    /// Fetch the file at this URL into the cache, unless it is there and has not changed. It is
    /// always answered by [`Input::BootFileFetched`]; until then no second one is given for the
    /// same URL.
    FetchBootFile {
        /// Where it is.
        url: String,
        /// What its bytes are.
        format: trivet_images::ImageFormat,
    },
    /// These images stay in the cache whatever comes; all others may go.
    PinImages(Vec<trivet_model::Digest>),
    /// Nobody wants the image of this digest any more.
    DropImage(trivet_model::Digest),
    /// Something happened: log it.
    Note {
        /// What.
        note: Note,
        /// How to call the node, if it concerns one.
        label: Option<String>,
    },
}

/// What to send.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum FileGrant {
    /// These bytes.
    Bytes(Vec<u8>),
    /// The first of these files that exists, below the directory it is named with.
    File(Vec<ConfinedFile>),
    /// A file that the settings name by its whole path: a symbolic link is followed wherever it
    /// leads, except into the data directory.
    NamedFile {
        /// The file, or a link to it.
        file: PathBuf,
        /// The data directory.
        data: Option<PathBuf>,
    },
    /// This image, from the cache.
    Image(Box<trivet_images::ImageSpec>),
    /// The chunk list of this image, if it is whole.
    ChunkList(Box<trivet_images::ImageSpec>),
    /// Nothing yet, for the reason that this sentence gives; a later request may get it.
    Unavailable(String),
}

/// A file that was fetched by its URL alone and is whole in the cache.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FetchedFile {
    /// The digest that it has.
    pub digest: trivet_model::Digest,
    /// Why it is a copy that was fetched earlier and could not be compared with its source, if
    /// so: the whole sentence.
    pub old: Option<String>,
    /// The source sent an `ETag` or `Last-Modified`, so that the next fetch compares only.
    pub has_validator: bool,
}

/// A file and the directory it must not leave.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ConfinedFile {
    /// The directory; symbolic links may not lead out of it.
    pub root: PathBuf,
    /// The file.
    pub file: PathBuf,
}

/// What a batch of inputs leaves to do: first the changes, then the outputs.
#[derive(Debug, Default)]
pub struct Outbox {
    /// To be made durable, all or none.
    pub changes: Vec<StoreChange>,
    /// To be let out after that, in this order.
    pub outputs: Vec<RackOutput>,
}
