//! Nodes, with the job and the agent of the present boot. What is secret in them
//! is sealed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use trivet_model::{AgentSession, Job, JobStep, Node, NodeId, UnixMs};
use uuid::Uuid;

use super::{RecordKind, json, node_key, object_text, optional_word, value_text, word};
use crate::error::RecordError;
use crate::seal::{RecordSeal, SealedBytes, SealedJson, Sealer};

pub(super) const VERSION: u16 = 2;

const KIND: RecordKind = RecordKind::Node;

/// Version 2, frozen.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct NodeV2 {
    id: [u8; 16],
    revision: u64,
    serial: u64,
    name: Option<String>,
    driver: String,
    driver_info: SealedJson,
    /// JSON text.
    properties: String,
    instance_info: SealedJson,
    extra: SealedJson,
    driver_internal_info: SealedJson,
    provision_state: String,
    target_provision_state: Option<String>,
    provision_updated_at_ms: Option<u64>,
    power_state: Option<String>,
    target_power_state: Option<String>,
    last_error: Option<String>,
    maintenance: bool,
    maintenance_reason: Option<String>,
    fault: Option<String>,
    instance_uuid: Option<String>,
    resource_class: Option<String>,
    automated_clean: Option<bool>,
    created_at_ms: u64,
    updated_at_ms: Option<u64>,
    inspection_started_at_ms: Option<u64>,
    inspection_finished_at_ms: Option<u64>,
    /// JSON text.
    inventory: Option<String>,
    kept: SealedJson,
    job: Option<JobV2>,
    agent: Option<AgentV2>,
}

/// Part of version 2 of a node, frozen.
#[derive(Debug, Serialize, Deserialize)]
struct JobV2 {
    kind: String,
    phase: String,
    step_kind: Option<String>,
    manual: bool,
    steps: Vec<StepV2>,
    at: u32,
    versions: BTreeMap<String, String>,
    tries: u32,
    boots: u32,
}

/// Part of version 2 of a node, frozen.
#[derive(Debug, Serialize, Deserialize)]
struct StepV2 {
    step: String,
    interface: String,
    priority: i64,
    args: SealedJson,
    reboot_requested: bool,
    abortable: bool,
}

/// Part of version 2 of a node, frozen.
#[derive(Debug, Serialize, Deserialize)]
struct AgentV2 {
    token: SealedBytes,
    former_token: Option<SealedBytes>,
    url: Option<String>,
    verify_ca: Option<String>,
    version: Option<String>,
}

impl NodeV2 {
    pub(super) fn from_model(sealer: &Sealer, node: &Node) -> Result<Self, RecordError> {
        let seal = sealer.of(node_key(node.id));
        let text = |word: &'static str| word.to_owned();
        let inventory = node
            .inventory
            .as_ref()
            .map(|value| value_text(KIND, "inventory", value));
        Ok(Self {
            id: node.id.bytes(),
            revision: node.revision,
            serial: node.serial,
            name: node.name.clone(),
            driver: node.driver.clone(),
            driver_info: seal.object("driver_info", &node.driver_info)?,
            properties: object_text(KIND, "properties", &node.properties)?,
            instance_info: seal.object("instance_info", &node.instance_info)?,
            extra: seal.object("extra", &node.extra)?,
            driver_internal_info: seal
                .object("driver_internal_info", &node.driver_internal_info)?,
            provision_state: text(node.provision_state.as_str()),
            target_provision_state: node.target_provision_state.map(|at| text(at.as_str())),
            provision_updated_at_ms: node.provision_updated_at.map(|at| at.0),
            power_state: node.power_state.map(|state| text(state.as_str())),
            target_power_state: node.target_power_state.map(|state| text(state.as_str())),
            last_error: node.last_error.clone(),
            maintenance: node.maintenance,
            maintenance_reason: node.maintenance_reason.clone(),
            fault: node.fault.clone(),
            instance_uuid: node.instance_uuid.clone(),
            resource_class: node.resource_class.clone(),
            automated_clean: node.automated_clean,
            created_at_ms: node.created_at.0,
            updated_at_ms: node.updated_at.map(|at| at.0),
            inspection_started_at_ms: node.inspection_started_at.map(|at| at.0),
            inspection_finished_at_ms: node.inspection_finished_at.map(|at| at.0),
            inventory: inventory.transpose()?,
            kept: seal.object("kept", &node.kept)?,
            job: node
                .job
                .as_ref()
                .map(|job| JobV2::from_model(seal, job))
                .transpose()?,
            agent: node
                .agent
                .as_ref()
                .map(|agent| AgentV2::from_model(seal, agent))
                .transpose()?,
        })
    }

    /// Every field of a node is named here, so that a new one does not compile
    /// until it has a version.
    pub(super) fn into_model(self, sealer: Option<&Sealer>) -> Result<Node, RecordError> {
        let seal = RecordSeal::of(sealer, node_key(NodeId(Uuid::from_bytes(self.id))));
        Ok(Node {
            id: NodeId(Uuid::from_bytes(self.id)),
            revision: self.revision,
            serial: self.serial,
            name: self.name,
            driver: self.driver,
            driver_info: seal.open_json("driver_info", 0, &self.driver_info)?,
            properties: json(KIND, &self.properties)?,
            instance_info: seal.open_json("instance_info", 0, &self.instance_info)?,
            extra: seal.open_json("extra", 0, &self.extra)?,
            driver_internal_info: seal.open_json(
                "driver_internal_info",
                0,
                &self.driver_internal_info,
            )?,
            provision_state: word(KIND, &self.provision_state)?,
            target_provision_state: optional_word(KIND, self.target_provision_state)?,
            provision_updated_at: self.provision_updated_at_ms.map(UnixMs),
            power_state: optional_word(KIND, self.power_state)?,
            target_power_state: optional_word(KIND, self.target_power_state)?,
            last_error: self.last_error,
            maintenance: self.maintenance,
            maintenance_reason: self.maintenance_reason,
            fault: self.fault,
            instance_uuid: self.instance_uuid,
            resource_class: self.resource_class,
            automated_clean: self.automated_clean,
            created_at: UnixMs(self.created_at_ms),
            updated_at: self.updated_at_ms.map(UnixMs),
            inspection_started_at: self.inspection_started_at_ms.map(UnixMs),
            inspection_finished_at: self.inspection_finished_at_ms.map(UnixMs),
            inventory: match self.inventory {
                Some(text) => Some(json(KIND, &text)?),
                None => None,
            },
            kept: seal.open_json("kept", 0, &self.kept)?,
            job: self.job.map(|job| job.into_model(seal)).transpose()?,
            agent: self.agent.map(|agent| agent.into_model(seal)).transpose()?,
        })
    }
}

impl JobV2 {
    fn from_model(seal: RecordSeal<'_>, job: &Job) -> Result<Self, RecordError> {
        Ok(Self {
            kind: job.kind.as_str().to_owned(),
            phase: job.phase.as_str().to_owned(),
            step_kind: job.step_kind.map(|kind| kind.as_str().to_owned()),
            manual: job.manual,
            steps: (0..)
                .zip(&job.steps)
                .map(|(item, step)| StepV2::from_model(seal, item, step))
                .collect::<Result<_, _>>()?,
            at: job.at,
            versions: job.versions.clone(),
            tries: job.tries,
            boots: job.boots,
        })
    }

    fn into_model(self, seal: RecordSeal<'_>) -> Result<Job, RecordError> {
        Ok(Job {
            kind: word(KIND, &self.kind)?,
            phase: word(KIND, &self.phase)?,
            step_kind: optional_word(KIND, self.step_kind)?,
            manual: self.manual,
            steps: (0..)
                .zip(self.steps)
                .map(|(item, step)| step.into_model(seal, item))
                .collect::<Result<_, _>>()?,
            at: self.at,
            versions: self.versions,
            tries: self.tries,
            boots: self.boots,
        })
    }
}

impl StepV2 {
    fn from_model(seal: RecordSeal<'_>, item: u32, step: &JobStep) -> Result<Self, RecordError> {
        Ok(Self {
            step: step.step.clone(),
            interface: step.interface.clone(),
            priority: step.priority,
            args: seal.value("args", item, &step.args)?,
            reboot_requested: step.reboot_requested,
            abortable: step.abortable,
        })
    }

    fn into_model(self, seal: RecordSeal<'_>, item: u32) -> Result<JobStep, RecordError> {
        Ok(JobStep {
            step: self.step,
            interface: self.interface,
            priority: self.priority,
            args: seal.open_json("args", item, &self.args)?,
            reboot_requested: self.reboot_requested,
            abortable: self.abortable,
        })
    }
}

impl AgentV2 {
    fn from_model(seal: RecordSeal<'_>, agent: &AgentSession) -> Result<Self, RecordError> {
        let former = agent.former_token.as_ref();
        Ok(Self {
            token: seal.text("token", &agent.token)?,
            former_token: former
                .map(|token| seal.text("former_token", token))
                .transpose()?,
            url: agent.url.clone(),
            verify_ca: agent.verify_ca.clone(),
            version: agent.version.clone(),
        })
    }

    fn into_model(self, seal: RecordSeal<'_>) -> Result<AgentSession, RecordError> {
        let former = self.former_token.as_ref();
        Ok(AgentSession {
            token: seal.open_text("token", &self.token)?,
            former_token: former
                .map(|token| seal.open_text("former_token", token))
                .transpose()?,
            url: self.url,
            verify_ca: self.verify_ca,
            version: self.version,
        })
    }
}
