//! The records: what we know of a node, a port, a lease.
//!
//! These are the types in memory. What stands on flash are frozen versions of
//! them in `firmware/store`.

use std::collections::BTreeMap;

use core::fmt;
use core::net::{IpAddr, Ipv4Addr};
use core::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::{
    JobStep, MacAddr, NodeId, PortId, PowerState, ProvisionState, StepKind, UnixMs, words,
};

/// A free-form JSON object of Ironic's, such as `driver_info`.
pub type JsonObject = Map<String, Value>;

/// A node, in Ironic's words.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// UUID.
    pub id: NodeId,
    /// Counts changes of this record; a write based on an older one is refused.
    pub revision: u64,
    /// Place in the order of creation.
    pub serial: u64,
    /// Unique name.
    pub name: Option<String>,
    /// Hardware type, such as `ipmi`.
    pub driver: String,
    /// How to reach its BMC. Holds secrets.
    pub driver_info: JsonObject,
    /// What it is: `cpu_arch`, `memory_mb`, `capabilities` ...
    pub properties: JsonObject,
    /// What is deployed on it: `image_source` ...
    pub instance_info: JsonObject,
    /// The operator's own.
    pub extra: JsonObject,
    /// Our own, shown to clients.
    pub driver_internal_info: JsonObject,
    /// Where it is in its life.
    pub provision_state: ProvisionState,
    /// Where it is going.
    pub target_provision_state: Option<ProvisionState>,
    /// When `provision_state` last changed.
    pub provision_updated_at: Option<UnixMs>,
    /// What the BMC last said.
    pub power_state: Option<PowerState>,
    /// What the operator last asked for, while it is under way.
    pub target_power_state: Option<PowerState>,
    /// Why the last action failed.
    pub last_error: Option<String>,
    /// Hands off.
    pub maintenance: bool,
    /// Why.
    pub maintenance_reason: Option<String>,
    /// Ironic's fault word, such as `clean failure`.
    pub fault: Option<String>,
    /// The instance's UUID.
    pub instance_uuid: Option<String>,
    /// Class for schedulers.
    pub resource_class: Option<String>,
    /// Whether `provide` and `deleted` clean; none means yes.
    pub automated_clean: Option<bool>,
    /// When the record was made.
    pub created_at: UnixMs,
    /// When it last changed.
    pub updated_at: Option<UnixMs>,
    /// While an inspection runs.
    pub inspection_started_at: Option<UnixMs>,
    /// After it.
    pub inspection_finished_at: Option<UnixMs>,
    /// What the agent found, as JSON; none until inspected.
    pub inventory: Option<Value>,
    /// Fields of Ironic's that we keep and serve without acting on them:
    /// `description`, `owner`, `lessee`, `boot_interface` ...
    pub kept: JsonObject,
    /// The work under way.
    pub job: Option<Job>,
    /// The agent of the present boot.
    pub agent: Option<AgentSession>,
    /// Where the machine is mounted, for people. No decision reads it.
    #[serde(default)]
    pub location: Option<NodeLocation>,
}

/// The place of a machine in the data centre.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeLocation {
    /// Name of the rack.
    pub rack: String,
    /// Lowest rack unit that it occupies, if known.
    pub unit: Option<u32>,
}

impl Node {
    /// A fresh node in `enroll`.
    pub fn new(id: NodeId, driver: &str, created_at: UnixMs) -> Self {
        Self {
            id,
            revision: 0,
            serial: 0,
            name: None,
            driver: driver.to_owned(),
            driver_info: JsonObject::new(),
            properties: JsonObject::new(),
            instance_info: JsonObject::new(),
            extra: JsonObject::new(),
            driver_internal_info: JsonObject::new(),
            provision_state: ProvisionState::Enroll,
            target_provision_state: None,
            provision_updated_at: None,
            power_state: None,
            target_power_state: None,
            last_error: None,
            maintenance: false,
            maintenance_reason: None,
            fault: None,
            instance_uuid: None,
            resource_class: None,
            automated_clean: None,
            created_at,
            updated_at: None,
            inspection_started_at: None,
            inspection_finished_at: None,
            inventory: None,
            kept: JsonObject::new(),
            job: None,
            agent: None,
            location: None,
        }
    }

    /// Whether the operator lets agents from before tokens in for this node.
    pub fn allows_legacy_agent(&self) -> bool {
        match self.driver_info.get("agent_legacy_api") {
            Some(Value::Bool(allowed)) => *allowed,
            Some(Value::String(word)) => word.eq_ignore_ascii_case("true"),
            _ => false,
        }
    }

    /// Whether the machine must never be switched off (Ironic's `disable_power_off`): it is
    /// rebooted instead.
    pub fn is_power_off_disabled(&self) -> bool {
        self.kept.get("disable_power_off") == Some(&Value::Bool(true))
    }

    /// The address that received the token of the present or the last agent.
    pub fn agent_address(&self) -> Option<IpAddr> {
        let text = self.driver_internal_info.get(AGENT_ADDRESS)?;
        text.as_str()?.parse().ok()
    }

    /// Whether the present or the last agent called from an address that the box did not
    /// lease to the node.
    pub fn is_weakly_authenticated(&self) -> bool {
        let how = self.driver_internal_info.get(AGENT_AUTHENTICATION);
        how.and_then(Value::as_str) == Some(AUTHENTICATED_WEAKLY)
    }

    /// Whether the box put the node into maintenance because its BMC does not answer.
    pub fn has_power_failure(&self) -> bool {
        self.maintenance && self.fault.as_deref() == Some(POWER_FAILURE)
    }

    /// The name, or the UUID where there is none: how notes call the node.
    pub fn label(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.id.to_string())
    }

    /// Name and UUID, as errors of other nodes name this one; the UUID alone without a name.
    pub fn name_and_uuid(&self) -> String {
        match &self.name {
            Some(name) => format!("{name} ({})", self.id),
            None => self.id.to_string(),
        }
    }
}

/// Where `driver_internal_info` has the address that received the agent's token.
pub const AGENT_ADDRESS: &str = "agent_address";

/// Where `driver_internal_info` says how the agent was authenticated.
pub const AGENT_AUTHENTICATION: &str = "agent_authentication";

/// The agent called from the address that the box leased to the node.
pub const AUTHENTICATED_BY_LEASE: &str = "lease";

/// The agent called from an address that the box did not lease to the node.
pub const AUTHENTICATED_WEAKLY: &str = "weak";

/// The agent of one boot: its secret and where it listens.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct AgentSession {
    /// The token handed out at the first lookup.
    pub token: String,
    /// A token that was on its way out when the box lost power: nobody knows whether
    /// it arrived. It counts until the first heartbeat shows which one did.
    pub former_token: Option<String>,
    /// Where it listens; none until its first heartbeat.
    pub url: Option<String>,
    /// Its own certificate in PEM, trusted for this boot only.
    pub verify_ca: Option<String>,
    /// Its version.
    pub version: Option<String>,
}

impl AgentSession {
    /// The session of an agent from before tokens: its token is empty, which no
    /// guess ever is.
    pub fn legacy() -> Self {
        Self {
            token: String::new(),
            former_token: None,
            url: None,
            verify_ca: None,
            version: None,
        }
    }

    /// Whether this agent has no token.
    pub fn is_legacy(&self) -> bool {
        self.token.is_empty()
    }
}

words! {
    /// What work is under way on a node.
    JobKind {
        /// Check that the BMC answers (`manage`).
        Verify = "verify",
        /// Look inside.
        Inspect = "inspect",
        /// Clean, after `provide`, `clean` or `deleted`.
        Clean = "clean",
        /// Deploy or rebuild.
        Deploy = "deploy",
        /// Remove the instance.
        TearDown = "tear down",
        /// Take over a running instance.
        Adopt = "adopt",
        /// Boot a rescue ramdisk and set its password.
        Rescue = "rescue",
        /// Return from it to the instance.
        Unrescue = "unrescue",
        /// Run steps on a node with an instance.
        Service = "service",
    }
}

words! {
    /// How far the work is. Each phase names what it waits for, so that after a
    /// restart its order can be given again.
    JobPhase {
        /// For the power state.
        ReadPower = "read power",
        /// For the machine to be off, before it boots the agent.
        PowerOff = "power off",
        /// For the boot device to be the network.
        BootFromNet = "boot from net",
        /// For the BMC to take the order to power on.
        PowerOn = "power on",
        /// For the agent's first heartbeat, or its inspection data.
        AwaitAgent = "await agent",
        /// For the list of steps.
        GetSteps = "get steps",
        /// For the agent to take the step.
        StartStep = "start step",
        /// For the step to end.
        AwaitStep = "await step",
        /// For the BMC to say whether the machine of an agent that fell silent is on.
        CheckPower = "ask power",
        /// For the agent to say what it wrote, and to take the order to make it start.
        Bootloader = "bootloader",
        /// For the disk to be made to start.
        AwaitBootloader = "await bootloader",
        /// For the BMC to carry out a step that switches power.
        PowerStep = "power step",
        /// For time to pass, as a step asked.
        Pause = "pause",
        /// For `unhold`.
        Hold = "hold",
        /// For the agent to take the rescue password.
        FinishRescue = "finish rescue",
        /// For the agent's buffers to be on disk.
        Sync = "sync",
        /// For the machine to be off, after the agent's work.
        FinalOff = "final off",
        /// For the boot device to be the disk.
        BootFromDisk = "boot from disk",
        /// For the BMC to take the order to start the instance.
        StartInstance = "start instance",
    }
}

/// The work under way on a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// What.
    pub kind: JobKind,
    /// How far.
    pub phase: JobPhase,
    /// Which kind of steps it runs, if any.
    pub step_kind: Option<StepKind>,
    /// The operator gave the steps: run them in that order.
    pub manual: bool,
    /// Steps to run, in order; empty until known.
    pub steps: Vec<JobStep>,
    /// Index of the present one.
    pub at: u32,
    /// Versions of the agent's hardware managers.
    pub versions: BTreeMap<String, String>,
    /// How often the present phase was tried.
    pub tries: u32,
    /// How often the machine was booted into the agent for this job; zero where the
    /// job needs no agent.
    pub boots: u32,
}

/// A network port of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Port {
    /// UUID.
    pub id: PortId,
    /// Counts changes of this record.
    pub revision: u64,
    /// Place in the order of creation.
    pub serial: u64,
    /// Its node.
    pub node: NodeId,
    /// Hardware address.
    pub address: MacAddr,
    /// It boots from here.
    pub pxe_enabled: bool,
    /// The operator's own.
    pub extra: JsonObject,
    /// Fields of Ironic's that we keep and serve without acting on them.
    pub kept: JsonObject,
    /// When the record was made.
    pub created_at: UnixMs,
    /// When it last changed.
    pub updated_at: Option<UnixMs>,
}

/// Ironic's fault word for a node whose BMC does not answer.
pub const POWER_FAILURE: &str = "power failure";

/// Where a port's `extra` says which address is kept for it.
pub const RESERVED: &str = "ipv4_address";

impl Port {
    /// Its name, unique among ports.
    pub fn name(&self) -> Option<&str> {
        self.kept.get("name").and_then(Value::as_str)
    }

    /// The address that is kept for it.
    pub fn reserved(&self) -> Option<Ipv4Addr> {
        self.extra.get(RESERVED)?.as_str()?.parse().ok()
    }

    /// Does it say which address to keep, in a form that is no address?
    pub fn has_invalid_reservation(&self) -> bool {
        let said = self.extra.get(RESERVED);
        said.is_some_and(|said| !said.is_null()) && self.reserved().is_none()
    }
}

/// An address given to a machine. When it ends is known in memory only: after
/// a restart it counts anew, so that no address is ever given twice because a
/// clock stepped.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Lease {
    /// To whom.
    pub mac: MacAddr,
    /// Which.
    pub address: Ipv4Addr,
}
