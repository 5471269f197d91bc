//! The records of nodes, ports and leases.
//!
//! These are the types in memory. Flash holds frozen versions of them, defined in
//! `firmware/store`.

use std::collections::BTreeMap;

use core::fmt;
use core::net::{IpAddr, Ipv4Addr};
use core::num::NonZeroU32;
use core::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value, json};

use crate::attributes::{NodeAttributes, PortAttributes};
use crate::secret;
use crate::{
    Digest, ImageAhead, ImageDeployment, JobStep, MacAddr, NodeId, PortId, PowerState,
    ProvisionState, StepKind, UnixMs, words,
};

/// A free-form JSON object of Ironic's, such as `driver_info`.
pub type JsonObject = Map<String, Value>;

/// A node, with Ironic's field names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// UUID.
    pub id: NodeId,
    /// Counts changes of this record; a write based on an older one is refused.
    pub revision: u64,
    /// Position in the order of creation.
    pub serial: u64,
    /// Unique name.
    pub name: Option<String>,
    /// Hardware type, such as `ipmi`.
    pub driver: String,
    /// How to reach its BMC. Contains secrets.
    pub driver_info: JsonObject,
    /// Its hardware: `cpu_arch`, `memory_mb`, `capabilities` ...
    pub properties: JsonObject,
    /// Its instance: `image_source` ...
    pub instance_info: JsonObject,
    /// Free for the operator.
    pub extra: JsonObject,
    /// Values that the box stores for clients. No decision reads them.
    pub driver_internal_info: JsonObject,
    /// Its provision state.
    pub provision_state: ProvisionState,
    /// The state that the present job leads to.
    pub target_provision_state: Option<ProvisionState>,
    /// When `provision_state` last changed.
    pub provision_updated_at: Option<UnixMs>,
    /// The power state that the BMC last reported.
    pub power_state: Option<PowerState>,
    /// The power state that the operator last requested, while that is under way.
    pub target_power_state: Option<PowerState>,
    /// Why the last action failed.
    pub last_error: Option<String>,
    /// Maintenance mode: no automatic actions.
    pub maintenance: bool,
    /// The reason for it.
    pub maintenance_reason: Option<String>,
    /// Ironic's name of the fault, such as `clean failure`.
    pub fault: Option<String>,
    /// The instance's UUID.
    pub instance_uuid: Option<String>,
    /// Resource class for schedulers.
    pub resource_class: Option<String>,
    /// Whether `provide` and `deleted` clean; none means yes.
    pub automated_clean: Option<bool>,
    /// When the record was created.
    pub created_at: UnixMs,
    /// When it last changed.
    pub updated_at: Option<UnixMs>,
    /// When the running inspection started.
    pub inspection_started_at: Option<UnixMs>,
    /// When the last inspection ended.
    pub inspection_finished_at: Option<UnixMs>,
    /// The inspection data, as JSON; none until inspected.
    pub inventory: Option<Value>,
    /// Fields that clients set by name: interfaces, `retired`, `traits`, `owner` ...
    pub attributes: NodeAttributes,
    /// The job under way.
    pub job: Option<Job>,
    /// The agent of the present boot.
    pub agent: Option<AgentSession>,
    /// Where the machine is mounted, for people. No decision reads it.
    #[serde(default)]
    pub location: Option<NodeLocation>,
    /// The caller that received the token of the present or the last agent.
    #[serde(default)]
    pub agent_caller: Option<AgentCaller>,
    /// Identifies the config drive in `instance_info`, if the box built it from a template.
    #[serde(default)]
    pub template_drive: Option<u64>,
    /// The one-time token of the present boot, and who redeemed it.
    #[serde(default)]
    pub enrolment: Option<NodeEnrolment>,
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
    /// A new node in `enroll`.
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
            attributes: NodeAttributes::default(),
            job: None,
            agent: None,
            location: None,
            agent_caller: None,
            template_drive: None,
            enrolment: None,
        }
    }

    /// Whether the operator accepts agents from before tokens for this node.
    pub fn allows_legacy_agent(&self) -> bool {
        match self.driver_info.get("agent_legacy_api") {
            Some(Value::Bool(allowed)) => *allowed,
            Some(Value::String(word)) => word.eq_ignore_ascii_case("true"),
            _ => false,
        }
    }

    /// Whether the operator accepts only agents that have enrolled for this node; none if the
    /// settings decide.
    pub fn requires_enrolment(&self) -> Option<bool> {
        match self.driver_info.get("agent_require_mtls")? {
            Value::Bool(required) => Some(*required),
            Value::String(word) if word.eq_ignore_ascii_case("true") => Some(true),
            Value::String(word) if word.eq_ignore_ascii_case("false") => Some(false),
            // What cannot be read must not weaken the node.
            _ => Some(true),
        }
    }

    /// Whether the machine must never be switched off (Ironic's `disable_power_off`): it is
    /// rebooted instead.
    pub fn is_power_off_disabled(&self) -> bool {
        self.attributes.disable_power_off
    }

    /// The address that received the token of the present or the last agent.
    pub fn agent_address(&self) -> Option<IpAddr> {
        self.agent_caller.map(|caller| caller.address)
    }

    /// Whether the present or the last agent called from an address that the box did not
    /// lease to the node.
    pub fn is_weakly_authenticated(&self) -> bool {
        self.agent_caller
            .is_some_and(|caller| caller.authentication == AgentAuthentication::Weak)
    }

    /// The image that the job of the node writes.
    pub fn deployment(&self) -> Option<&ImageDeployment> {
        self.job.as_ref()?.deployment.as_ref()
    }

    /// `driver_internal_info` as clients and agents see it: with the values that have a field
    /// of their own in the record, and secrets masked.
    pub fn shown_internal_info(&self) -> JsonObject {
        let mut info = secret::masked(&self.driver_internal_info);
        if let Some(caller) = &self.agent_caller {
            info.insert(AGENT_ADDRESS.to_owned(), caller.address.to_string().into());
            let word = caller.authentication.as_str();
            info.insert(AGENT_AUTHENTICATION.to_owned(), word.into());
        }
        if let Some(ahead) = self.agent.as_ref().and_then(|agent| agent.ahead.as_ref()) {
            let shown = json!({"image": ahead.name, "state": ahead.phase.as_str()});
            info.insert(IMAGE_AHEAD.to_owned(), shown);
        }
        let strength = self.agent_strength();
        if strength != NO_AGENT_STRENGTH {
            info.insert(AGENT_STRENGTH.to_owned(), strength.into());
        }
        if self.template_drive.is_some() {
            info.insert(TEMPLATE_DRIVE.to_owned(), secret::MASK.into());
        }
        info
    }

    /// How strongly the present agent is authenticated, for people.
    pub fn agent_strength(&self) -> &'static str {
        let caller = self.agent.as_ref().and(self.agent_caller);
        match caller.map(|caller| caller.authentication) {
            Some(AgentAuthentication::Certificate) => "out-of-band mTLS",
            Some(AgentAuthentication::Lease | AgentAuthentication::Weak) => "in-band token",
            None => NO_AGENT_STRENGTH,
        }
    }

    /// Whether the box put the node into maintenance because its BMC does not answer.
    pub fn has_power_failure(&self) -> bool {
        self.maintenance && self.fault.as_deref() == Some(POWER_FAILURE)
    }

    /// The name, or the UUID where there is none: the node's name in notes.
    pub fn label(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.id.to_string())
    }

    /// Name and UUID, for errors of other nodes; the UUID alone without a name.
    pub fn name_and_uuid(&self) -> String {
        match &self.name {
            Some(name) => format!("{name} ({})", self.id),
            None => self.id.to_string(),
        }
    }
}

/// The key of the address that received the agent's token, in what clients see of
/// `driver_internal_info`.
pub const AGENT_ADDRESS: &str = "agent_address";

/// The key of how the agent was authenticated.
pub const AGENT_AUTHENTICATION: &str = "agent_authentication";

/// The key of the image that is written ahead, and how far it is.
pub const IMAGE_AHEAD: &str = "image_ahead";

/// The key of how strongly the present agent is authenticated.
pub const AGENT_STRENGTH: &str = "agent_strength";

/// The strength of a node without an agent.
const NO_AGENT_STRENGTH: &str = "none";

/// The key that says that the config drive was built from a template.
pub const TEMPLATE_DRIVE: &str = "configdrive_of_template";

words! {
    /// How the caller that received a token was authenticated.
    AgentAuthentication {
        /// It called from the address that the box leased to the node.
        Lease = "lease",
        /// It called from an address that the box did not lease to the node.
        Weak = "weak",
        /// It has a certificate for which it redeemed the token in its BMC.
        Certificate = "certificate",
    }
}

/// The caller that received the token of an agent.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct AgentCaller {
    /// Its address.
    pub address: IpAddr,
    /// How it was authenticated.
    pub authentication: AgentAuthentication,
}

/// The enrolment of one boot. It ends with the boot.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct NodeEnrolment {
    /// The one-time token, as text.
    pub token: String,
    /// The certificate for which it was redeemed.
    pub redeemed: Option<RedeemedEnrolment>,
}

/// For what a one-time token was redeemed.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct RedeemedEnrolment {
    /// SHA-256 of the signing request.
    pub request: KeyDigest,
    /// SHA-256 of the public key in it: a certificate with this key is that of this boot.
    pub key: KeyDigest,
}

/// A SHA-256 of a public key or of what contains one. Its text is in hexadecimal digits.
#[derive(Clone, Copy, Eq, PartialEq, Serialize, Deserialize)]
pub struct KeyDigest(pub [u8; 32]);

impl fmt::Display for KeyDigest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        Digest::Sha256(self.0).fmt(out)
    }
}

impl fmt::Debug for KeyDigest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{self}")
    }
}

impl FromStr for KeyDigest {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text.parse() {
            Ok(Digest::Sha256(bytes)) => Ok(Self(bytes)),
            _ => Err(()),
        }
    }
}

/// The agent of one boot: its token and its URL.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct AgentSession {
    /// The token issued at the first lookup.
    pub token: String,
    /// A token that was being sent when the box lost power: it is unknown whether it arrived.
    /// It is valid until the first heartbeat shows which token the agent has.
    pub former_token: Option<String>,
    /// Its callback URL; none until its first heartbeat.
    pub url: Option<String>,
    /// Its own certificate in PEM, trusted for this boot only.
    pub verify_ca: Option<String>,
    /// Its version.
    pub version: Option<String>,
    /// This agent has cleaned the node for a deployment, and nothing was ordered since that may
    /// change a disk.
    #[serde(default)]
    pub is_clean: bool,
    /// The image that this agent writes ahead, or has written.
    #[serde(default)]
    pub ahead: Option<ImageAhead>,
}

impl AgentSession {
    /// The session of an agent from before tokens: its token is empty, and an empty token is
    /// never accepted from a caller.
    pub fn legacy() -> Self {
        Self {
            token: String::new(),
            former_token: None,
            url: None,
            verify_ca: None,
            version: None,
            is_clean: false,
            ahead: None,
        }
    }

    /// Something is ordered that may change a disk of the machine.
    pub fn disk_may_change(&mut self) {
        self.is_clean = false;
        self.ahead = None;
    }

    /// Whether this agent has no token.
    pub fn is_legacy(&self) -> bool {
        self.token.is_empty()
    }
}

words! {
    /// The kind of a job.
    JobKind {
        /// Verify that the BMC answers (`manage`).
        Verify = "verify",
        /// Inspect the hardware.
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
        /// Return from rescue to the instance.
        Unrescue = "unrescue",
        /// Run steps on a node with an instance.
        Service = "service",
    }
}

words! {
    /// The phase of a job. Each phase is named by what it waits for, so that after a restart of
    /// the box its order can be sent again.
    JobPhase {
        /// For the power state.
        ReadPower = "read power",
        /// For the machine to be off, before it boots the agent.
        PowerOff = "power off",
        /// For the boot device to be the network.
        BootFromNet = "boot from net",
        /// For the BMC to have the one-time token of the coming boot.
        SendToken = "send token",
        /// For the BMC to accept the power-on.
        PowerOn = "power on",
        /// For the agent's first heartbeat, or its inspection data.
        AwaitAgent = "await agent",
        /// For the list of steps.
        GetSteps = "get steps",
        /// For the agent to accept the step.
        StartStep = "start step",
        /// For the step to end.
        AwaitStep = "await step",
        /// For the BMC to report whether the machine of an agent without heartbeats is on.
        CheckPower = "ask power",
        /// For the agent to report the partitions it wrote, and to accept the order to install
        /// a boot loader.
        Bootloader = "bootloader",
        /// For the boot loader to be installed.
        AwaitBootloader = "await bootloader",
        /// For the BMC to carry out a step that switches power.
        PowerStep = "power step",
        /// For the time of a wait step to pass.
        Pause = "pause",
        /// For `unhold`.
        Hold = "hold",
        /// For the agent to accept the rescue password.
        FinishRescue = "finish rescue",
        /// For the agent's buffers to be written to disk.
        Sync = "sync",
        /// For the machine to be off, after the agent's work.
        FinalOff = "final off",
        /// For the boot device to be the disk.
        BootFromDisk = "boot from disk",
        /// For the BMC to accept the start of the instance.
        StartInstance = "start instance",
    }
}

words! {
    /// The check at the end of a deployment that the agent no longer answers. A BMC may report a
    /// power change that did not happen, or that of another machine.
    AgentQuery {
        /// The machine was powered off, and the agent is called.
        First = "first call",
        /// It has answered once, perhaps while the machine was still switching off.
        Answered = "answered",
        /// It is called once more.
        Second = "second call",
        /// The machine was restarted and gets time for that.
        Restarted = "restarted",
        /// The machine was restarted, and the agent is called.
        AfterRestart = "call after the restart",
    }
}

/// A job of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Its kind.
    pub kind: JobKind,
    /// Its present phase.
    pub phase: JobPhase,
    /// The kind of steps it runs, if any.
    pub step_kind: Option<StepKind>,
    /// The operator sent the steps: run them in that order.
    pub manual: bool,
    /// Steps to run, in order; empty until known.
    pub steps: Vec<JobStep>,
    /// Index of the present step.
    pub at: u32,
    /// Versions of the agent's hardware managers.
    pub versions: BTreeMap<String, String>,
    /// Number of tries of the present phase.
    pub tries: u32,
    /// Number of boots into the agent for this job; none where the job needs no agent.
    pub boots: Option<NonZeroU32>,
    /// When the agent stopped sending heartbeats for the last time, if it did.
    pub heartbeat_lost_at: Option<UnixMs>,
    /// The step after which the job ends, because an operator aborted it.
    pub abort_after: Option<String>,
    /// The image that its step `write_image` writes.
    pub deployment: Option<ImageDeployment>,
    /// The data of its inspection are stored.
    #[serde(default)]
    pub has_inspection_data: bool,
    /// The instance keeps running until the image that replaces it can be fetched.
    #[serde(default)]
    pub awaits_source: bool,
    /// The check at the end of a deployment that its agent has stopped.
    pub agent_query: Option<AgentQuery>,
}

/// A network port of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Port {
    /// UUID.
    pub id: PortId,
    /// Counts changes of this record.
    pub revision: u64,
    /// Position in the order of creation.
    pub serial: u64,
    /// Its node.
    pub node: NodeId,
    /// Hardware address.
    pub address: MacAddr,
    /// The machine boots from it.
    pub pxe_enabled: bool,
    /// Free for the operator.
    pub extra: JsonObject,
    /// Fields that clients set by name: `name`, `portgroup_uuid` ...
    pub attributes: PortAttributes,
    /// When the record was created.
    pub created_at: UnixMs,
    /// When it last changed.
    pub updated_at: Option<UnixMs>,
}

/// Ironic's fault name for a node whose BMC does not answer.
pub const POWER_FAILURE: &str = "power failure";

/// The key in a port's `extra` of the address that is reserved for it.
pub const RESERVED: &str = "ipv4_address";

impl Port {
    /// Its name, unique among ports.
    pub fn name(&self) -> Option<&str> {
        self.attributes.name.as_deref()
    }

    /// The address that is reserved for it.
    pub fn reserved(&self) -> Option<Ipv4Addr> {
        self.extra.get(RESERVED)?.as_str()?.parse().ok()
    }

    /// Whether the reserved address is set, but is not an IPv4 address.
    pub fn has_invalid_reservation(&self) -> bool {
        let message = self.extra.get(RESERVED);
        message.is_some_and(|message| !message.is_null()) && self.reserved().is_none()
    }
}

/// A leased address. Its expiry is known in memory only: after a restart of the box the lease
/// time starts again, so that no address is leased twice because a clock stepped.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Lease {
    /// The machine that holds it.
    pub mac: MacAddr,
    /// The leased address.
    pub address: Ipv4Addr,
}
