//! Changes that a caller of the API requests, and their results.

use serde_json::Value;

use crate::node::JsonObject;
use crate::secret::SecretText;
use crate::{
    BmcRequest, BootDevice, Digest, ImageDeployment, JobStep, KeyDigest, MacAddr, Node, NodeId,
    Port, PortId, PowerOrder, PowerState, Resource, ResourceId, ResourceKind, Verb,
};

/// One change requested through the API. Reads are not orders, unless a BMC or an agent must be
/// contacted.
#[derive(Clone, Debug, PartialEq)]
pub enum RackOrder {
    /// Store a new node. `revision`, `serial` and times are set by the rack.
    CreateNode(Box<Node>),
    /// Replace the node's record, if its revision is still `based_on`.
    ReplaceNode {
        /// The whole new record.
        node: Box<Node>,
        /// The revision that the caller read.
        based_on: u64,
    },
    /// Delete a node and its ports.
    DeleteNode(NodeId),
    /// Store a new port.
    CreatePort(Box<Port>),
    /// Replace the port's record, if its revision is still `based_on`.
    ReplacePort {
        /// The whole new record.
        port: Box<Port>,
        /// The revision that the caller read.
        based_on: u64,
    },
    /// Delete a port.
    DeletePort(PortId),
    /// Store a new resource. For an allocation this chooses its node.
    CreateResource(Box<Resource>),
    /// Replace the resource's record, if its revision is still `based_on`.
    ReplaceResource {
        /// The whole new record.
        resource: Box<Resource>,
        /// The revision that the caller read.
        based_on: u64,
    },
    /// Delete a resource. For an allocation this frees its node.
    DeleteResource(ResourceKind, ResourceId),
    /// Delete every resource of a kind that belongs to no node.
    DeleteResources(ResourceKind),
    /// Fetch an image of the catalogue into the cache.
    FetchImage(ResourceId),
    /// Remove an image from the cache that is not in the catalogue.
    DropImage(Digest),
    /// Start a provision verb.
    Provision {
        /// The node.
        node: NodeId,
        /// The verb.
        verb: Verb,
        /// Its arguments.
        args: VerbArgs,
        /// The revision it was based on; none means any.
        based_on: Option<u64>,
    },
    /// Switch a node on, off, or off and on.
    Power {
        /// The node.
        node: NodeId,
        /// The wanted power state.
        want: PowerWanted,
        /// How long that may take, in seconds; none means the default.
        timeout_s: Option<u32>,
    },
    /// Choose the boot device.
    SetBoot {
        /// The node.
        node: NodeId,
        /// The device.
        device: BootDevice,
        /// For every boot, not only the next.
        persistent: bool,
    },
    /// Send a command to a node's BMC or agent and wait for the reply.
    Vendor {
        /// The node.
        node: NodeId,
        /// The command.
        method: VendorMethod,
    },
    /// Collect the logs of a node's agent.
    CollectLogs(NodeId),
    /// Check whether a deployment of this node would be refused, and change nothing.
    CheckDeploy(NodeId),
    /// Set or clear maintenance mode.
    Maintenance {
        /// The node.
        node: NodeId,
        /// Whether to set it.
        on: bool,
        /// The reason, for operators.
        reason: Option<String>,
    },
    /// An agent looks its node up.
    Lookup {
        /// Its hardware addresses.
        addresses: Vec<MacAddr>,
        /// The node's UUID, if the agent knows it.
        node: Option<NodeId>,
    },
    /// An agent sends a heartbeat.
    Heartbeat {
        /// The node of the agent.
        node: NodeId,
        /// The content of the heartbeat.
        heartbeat: AgentHeartbeat,
    },
    /// An agent that has read the one-time token in its BMC requests a certificate.
    Enrol(EnrolmentRequest),
    /// An agent from before tokens looks its node up.
    LegacyLookup {
        /// Its hardware addresses.
        addresses: Vec<MacAddr>,
        /// The node's UUID, if the agent knows it.
        node: Option<NodeId>,
    },
    /// An agent from before tokens sends a heartbeat.
    LegacyHeartbeat {
        /// The node of the agent.
        node: NodeId,
        /// The URL at which the agent listens.
        url: String,
    },
    /// An agent sends its inspection data.
    Inventory {
        /// The whole document: `inventory` and further collected data.
        document: Value,
    },
}

impl RackOrder {
    /// A short name of the order for notes; none for messages of agents, which are not
    /// requested by a caller.
    pub fn word(&self) -> Option<&'static str> {
        Some(match self {
            Self::CreateNode(_) => "create node",
            Self::ReplaceNode { .. } => "change node",
            Self::DeleteNode(_) => "delete node",
            Self::CreatePort(_) => "create port",
            Self::ReplacePort { .. } => "change port",
            Self::DeletePort(_) => "delete port",
            Self::CreateResource(_) => "create resource",
            Self::ReplaceResource { .. } => "change resource",
            Self::DeleteResource(..) => "delete resource",
            Self::DeleteResources(_) => "delete resources",
            Self::FetchImage(_) => "fill image",
            Self::DropImage(_) => "remove image",
            Self::Provision { verb, .. } => verb.as_str(),
            Self::Power { want, .. } => want.word(),
            Self::SetBoot { .. } => "set boot device",
            Self::CollectLogs(_) => "collect logs",
            Self::Maintenance { on: true, .. } => "maintenance on",
            Self::Maintenance { on: false, .. } => "maintenance off",
            Self::Vendor { method, .. } => method.word(),
            Self::CheckDeploy(_)
            | Self::Lookup { .. }
            | Self::Heartbeat { .. }
            | Self::Enrol(_)
            | Self::LegacyLookup { .. }
            | Self::LegacyHeartbeat { .. }
            | Self::Inventory { .. } => return None,
        })
    }

    /// The node it names, if it names one.
    pub fn node(&self) -> Option<NodeId> {
        match self {
            Self::CreateNode(node) | Self::ReplaceNode { node, .. } => Some(node.id),
            Self::CreatePort(port) | Self::ReplacePort { port, .. } => Some(port.node),
            Self::DeleteNode(node)
            | Self::CollectLogs(node)
            | Self::CheckDeploy(node)
            | Self::Provision { node, .. }
            | Self::Power { node, .. }
            | Self::SetBoot { node, .. }
            | Self::Maintenance { node, .. }
            | Self::Vendor { node, .. }
            | Self::LegacyHeartbeat { node, .. }
            | Self::Heartbeat { node, .. } => Some(*node),
            Self::Lookup { node, .. } | Self::LegacyLookup { node, .. } => *node,
            Self::CreateResource(resource) | Self::ReplaceResource { resource, .. } => {
                resource.node
            }
            Self::DeleteResource(..)
            | Self::DeleteResources(_)
            | Self::FetchImage(_)
            | Self::DropImage(_)
            | Self::DeletePort(_)
            | Self::Enrol(_)
            | Self::Inventory { .. } => None,
        }
    }
}

/// The command of a vendor method.
#[derive(Clone, Debug, PartialEq)]
pub enum VendorMethod {
    /// To the BMC: one of `Nmi`, `BmcReset`, `Raw`.
    Bmc(PowerOrder),
    /// To the BMC: a request other than power.
    BmcRequest(BmcRequest),
    /// A command to the agent.
    Agent {
        /// Extension and command, such as `standby.sync`.
        command: String,
        /// Keyword arguments.
        params: JsonObject,
        /// Reply when the command has ended, not when it has started.
        wait: bool,
    },
}

impl VendorMethod {
    /// The name of the method in the API.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Agent { .. } => "agent_command",
            Self::BmcRequest(bmc_request) => bmc_request.word(),
            Self::Bmc(PowerOrder::Nmi) => "inject_nmi",
            Self::Bmc(PowerOrder::BmcReset { .. }) => "bmc_reset",
            Self::Bmc(_) => "send_raw",
        }
    }
}

/// Arguments of a verb.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VerbArgs {
    /// `clean_steps`, `deploy_steps` or `service_steps`.
    pub steps: Vec<JobStep>,
    /// `configdrive`, unchanged.
    pub configdrive: Option<Value>,
    /// `rescue_password`: clear text from the caller to the rack, hashed after that.
    pub rescue_password: Option<SecretText>,
    /// `disable_ramdisk`: run the steps without booting the agent.
    pub disable_ramdisk: bool,
    /// The node's whole new `instance_info`, stored only if the verb is accepted. It was
    /// derived from the record of revision `based_on`, so the order must contain that revision.
    pub instance_info: Option<JsonObject>,
    /// The image to write; the rack sets it.
    pub deployment: Option<Box<ImageDeployment>>,
}

/// A power change that an operator requests.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PowerWanted {
    /// Reach this state by a hard switch.
    State(PowerState),
    /// Request the operating system to shut down.
    SoftOff,
    /// Power off and on again.
    Reboot,
    /// Shut down and power on again.
    SoftReboot,
}

impl PowerWanted {
    fn word(self) -> &'static str {
        match self {
            Self::State(state) => state.as_str(),
            Self::SoftOff => "soft power off",
            Self::Reboot => "reboot",
            Self::SoftReboot => "soft reboot",
        }
    }
}

/// A heartbeat.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct AgentHeartbeat {
    /// The URL at which the agent listens.
    pub callback_url: String,
    /// The token that it received at lookup.
    pub agent_token: Option<String>,
    /// Its version.
    pub agent_version: Option<String>,
    /// Its own certificate in PEM.
    pub agent_verify_ca: Option<String>,
    /// Why the box does not call that URL; sent only to a caller with the token.
    pub callback_refused: Option<&'static str>,
}

/// The result of a successful order.
#[derive(Clone, Debug, PartialEq)]
pub enum OrderOutcome {
    /// The change is on flash.
    Stored,
    /// The lookup found this node.
    Found(Box<LookupResult>),
    /// The one-time token of this node was redeemed: the caller gets a certificate for it.
    Enrolled(NodeId),
    /// The inspection data belong to this node.
    Inspected(NodeId),
    /// Why a deployment would be refused; none if it would not.
    Checked(Option<String>),
    /// The reply of the BMC or the agent.
    Reply(Value),
    /// Under way: the reply comes later.
    Deferred,
}

/// The request of an agent for a certificate. Its form was checked, and its sender has the key.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct EnrolmentRequest {
    /// The hardware addresses of the machine.
    pub addresses: Vec<MacAddr>,
    /// The signing request in DER.
    pub csr: Vec<u8>,
    /// SHA-256 of the public key in it.
    pub key: KeyDigest,
    /// The proof that its sender has the one-time token.
    pub proof: Vec<u8>,
}

/// The reply to an agent's lookup.
#[derive(Clone, Debug, PartialEq)]
pub struct LookupResult {
    /// The node that was found.
    pub node: NodeId,
    /// Its `properties`.
    pub properties: JsonObject,
    /// Its `instance_info`, secrets masked.
    pub instance_info: JsonObject,
    /// Its `driver_internal_info`, secrets masked.
    pub driver_internal_info: JsonObject,
    /// The token in clear text the first time, the mask after that.
    pub agent_token: String,
    /// The heartbeat timeout in seconds.
    pub heartbeat_timeout_s: u64,
}

/// The refusal of an order. Nothing has changed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{sentence}")]
pub struct OrderRefusal {
    /// The kind, from which the HTTP status follows.
    pub kind: RefusalKind,
    /// The error message for people: what is wrong and what to do next.
    pub sentence: String,
}

/// Kinds of refusals, as far as callers distinguish them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RefusalKind {
    /// The node, port or resource does not exist.
    NotFound,
    /// The request is invalid, or not possible in this state.
    Invalid,
    /// Another record has that name, or the state forbids it.
    Conflict,
    /// The record changed since the caller read it: read it again and repeat.
    Stale,
    /// The caller has no permission.
    Forbidden,
    /// The BMC or the agent failed: an automatic repetition does not help.
    Failed,
    /// A bound is reached, or flash failed: repeat later.
    Unavailable,
}

impl OrderRefusal {
    /// The same reply for each reason: a caller without the token learns nothing.
    pub fn of_enrolment() -> Self {
        let sentence = "Enrolment refused: the notes of the node say why, if there is such a node.";
        Self::new(RefusalKind::Forbidden, sentence)
    }

    /// The refusal of a heartbeat without the right token. It is the same for a node that does
    /// not exist, so that a caller cannot find out which nodes exist.
    pub fn of_heartbeat() -> Self {
        let sentence = "Heartbeat refused: no such node expects an agent, or agent_token is \
                        missing or wrong.";
        Self::new(RefusalKind::Invalid, sentence)
    }

    /// A refusal of this kind.
    pub fn new(kind: RefusalKind, sentence: impl Into<String>) -> Self {
        Self {
            kind,
            sentence: sentence.into(),
        }
    }
}
