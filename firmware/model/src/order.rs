//! What a caller of the API wants changed, and how that went.

use serde_json::Value;

use crate::node::JsonObject;
use crate::secret::SecretText;
use crate::{
    BmcRequest, BootDevice, JobStep, MacAddr, Node, NodeId, Port, PortId, PowerOrder, PowerState,
    Resource, ResourceId, ResourceKind, Verb,
};

/// One change asked for through the API. Reads never become orders, unless somebody else
/// than the box must be asked.
#[derive(Clone, Debug, PartialEq)]
pub enum RackOrder {
    /// Keep a new node. `revision`, `serial` and times are set by the rack.
    CreateNode(Box<Node>),
    /// Put this in place of the node's record, if its revision is still `based_on`.
    ReplaceNode {
        /// The whole new record.
        node: Box<Node>,
        /// The revision the caller read.
        based_on: u64,
    },
    /// Forget a node and its ports.
    DeleteNode(NodeId),
    /// Keep a new port.
    CreatePort(Box<Port>),
    /// Put this in place of the port's record, if its revision is still `based_on`.
    ReplacePort {
        /// The whole new record.
        port: Box<Port>,
        /// The revision the caller read.
        based_on: u64,
    },
    /// Forget a port.
    DeletePort(PortId),
    /// Keep a new resource. An allocation gets its node with this.
    CreateResource(Box<Resource>),
    /// Put this in place of the resource's record, if its revision is still `based_on`.
    ReplaceResource {
        /// The whole new record.
        resource: Box<Resource>,
        /// The revision the caller read.
        based_on: u64,
    },
    /// Forget a resource. An allocation gives its node back with this.
    DeleteResource(ResourceKind, ResourceId),
    /// Forget every resource of a kind that is nobody's.
    DeleteResources(ResourceKind),
    /// Bring an image of the catalogue into the cache.
    FetchImage(ResourceId),
    /// Move a node on in its life.
    Provision {
        /// Which.
        node: NodeId,
        /// How.
        verb: Verb,
        /// What goes with the verb.
        args: VerbArgs,
        /// The revision it was based on; none: whichever it has by then.
        based_on: Option<u64>,
    },
    /// Switch a node on, off, or off and on.
    Power {
        /// Which.
        node: NodeId,
        /// To what.
        want: PowerWanted,
        /// How long that may take, in seconds; none means the usual.
        timeout_s: Option<u32>,
    },
    /// Choose the boot device.
    SetBoot {
        /// Which.
        node: NodeId,
        /// From where.
        device: BootDevice,
        /// For every boot.
        persistent: bool,
    },
    /// Say something to a node's BMC or agent and wait for what it says.
    Vendor {
        /// Which.
        node: NodeId,
        /// What.
        method: VendorMethod,
    },
    /// Collect the logs of a node's agent.
    CollectLogs(NodeId),
    /// Say why a deployment of this node would be refused, and change nothing.
    CheckDeploy(NodeId),
    /// Hands off, or on again.
    Maintenance {
        /// Which.
        node: NodeId,
        /// Off or on.
        on: bool,
        /// Why.
        reason: Option<String>,
    },
    /// An agent asks which node it is.
    Lookup {
        /// Its hardware addresses.
        addresses: Vec<MacAddr>,
        /// The node it believes to be.
        node: Option<NodeId>,
    },
    /// An agent is alive.
    Heartbeat {
        /// Of which node.
        node: NodeId,
        /// What it said.
        heartbeat: AgentHeartbeat,
    },
    /// An agent from before tokens asks which node it is.
    LegacyLookup {
        /// Its hardware addresses.
        addresses: Vec<MacAddr>,
        /// The node it believes to be.
        node: Option<NodeId>,
    },
    /// An agent from before tokens is alive.
    LegacyHeartbeat {
        /// Of which node.
        node: NodeId,
        /// Where it listens.
        url: String,
    },
    /// An agent sends what it found in its machine.
    Inventory {
        /// The whole document: `inventory` and what else was collected.
        document: Value,
    },
}

impl RackOrder {
    /// What it asks for, in a word or two; none for what agents say, which is no
    /// change that somebody wants.
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
            | Self::DeletePort(_)
            | Self::Inventory { .. } => None,
        }
    }
}

/// What a vendor method says to whom.
#[derive(Clone, Debug, PartialEq)]
pub enum VendorMethod {
    /// To the BMC: one of `Nmi`, `BmcReset`, `Raw`.
    Bmc(PowerOrder),
    /// To the BMC: what is asked of it beside power.
    BmcRequest(BmcRequest),
    /// To the agent.
    Agent {
        /// Extension and command, such as `standby.sync`.
        command: String,
        /// Keyword arguments.
        params: JsonObject,
        /// Answer when the command has ended, not when it has begun.
        wait: bool,
    },
}

impl VendorMethod {
    /// Its name.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Agent { .. } => "agent_command",
            Self::BmcRequest(errand) => errand.word(),
            Self::Bmc(PowerOrder::Nmi) => "inject_nmi",
            Self::Bmc(PowerOrder::BmcReset { .. }) => "bmc_reset",
            Self::Bmc(_) => "send_raw",
        }
    }
}

/// What goes with a verb.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VerbArgs {
    /// `clean_steps`, `deploy_steps` or `service_steps`.
    pub steps: Vec<JobStep>,
    /// `configdrive`, as it was given.
    pub configdrive: Option<Value>,
    /// `rescue_password`: in clear from the caller to the rack, hashed after that.
    pub rescue_password: Option<SecretText>,
    /// `disable_ramdisk`: run the steps without booting the agent.
    pub disable_ramdisk: bool,
    /// The node's whole new `instance_info`, stored only if the verb is accepted. It was made
    /// from the record of revision `based_on`, so the order must name that.
    pub instance_info: Option<JsonObject>,
}

/// What an operator wants of a machine's power.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PowerWanted {
    /// Reach this state, hard.
    State(PowerState),
    /// Ask the system to shut down.
    SoftOff,
    /// Off and on again.
    Reboot,
    /// Shut down and on again.
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
    /// Where the agent listens.
    pub callback_url: String,
    /// The secret it was given.
    pub agent_token: Option<String>,
    /// Its version.
    pub agent_version: Option<String>,
    /// Its own certificate.
    pub agent_verify_ca: Option<String>,
    /// Why the box does not call that URL; told only to a caller with the token.
    pub callback_refused: Option<&'static str>,
}

/// How an order went, when it went well.
#[derive(Clone, Debug, PartialEq)]
pub enum OrderOutcome {
    /// It is on flash.
    Stored,
    /// The agent is this node.
    Found(Box<LookupResult>),
    /// The inventory belongs to this node.
    Inspected(NodeId),
    /// Why a deployment would be refused; none if it would not.
    Checked(Option<String>),
    /// What the BMC or the agent said.
    Reply(Value),
    /// Under way: the answer comes later.
    Deferred,
}

/// What an agent is told at lookup.
#[derive(Clone, Debug, PartialEq)]
pub struct LookupResult {
    /// Which node.
    pub node: NodeId,
    /// Its `properties`.
    pub properties: JsonObject,
    /// Its `instance_info`, secrets masked.
    pub instance_info: JsonObject,
    /// Its `driver_internal_info`, secrets masked.
    pub driver_internal_info: JsonObject,
    /// The token in clear the first time, the mask after that.
    pub agent_token: String,
    /// Seconds.
    pub heartbeat_timeout_s: u64,
}

/// An order that was not carried out. Nothing has changed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{sentence}")]
pub struct OrderRefusal {
    /// Of what kind.
    pub kind: RefusalKind,
    /// What is wrong and what to do, for people.
    pub sentence: String,
}

/// Kinds of refusals, as far as callers act on them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RefusalKind {
    /// There is no such thing.
    NotFound,
    /// The request makes no sense, or not in this state.
    Invalid,
    /// Something else has that name, or the state forbids it.
    Conflict,
    /// The record changed since the caller read it: read again and repeat.
    Stale,
    /// The caller may not.
    Forbidden,
    /// The BMC or the agent failed: repeating it by itself is no good idea.
    Failed,
    /// A bound is reached, or flash failed: repeat later.
    Unavailable,
}

impl OrderRefusal {
    /// The refusal of a heartbeat without the right token. It is the same for a node that
    /// does not exist, so that nobody learns which do.
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
