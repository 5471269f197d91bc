//! Nodes of version 2: one struct whose secrets are sealed. They are read and no longer
//! written.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use serde::Deserialize;
use trivet_model::attributes::NodeAttributes;
use trivet_model::{AgentSession, Job, JobStep, Node, NodeId, UnixMs};
use uuid::Uuid;

use super::{RecordKind, json, node_key, optional_word, word};
use crate::error::RecordError;
use crate::seal::{RecordSeal, SealedBytes, SealedJson, Sealer};

const KIND: RecordKind = RecordKind::Node;

/// Version 2, frozen.
#[derive(Debug, Deserialize)]
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
    attributes: SealedJson,
    job: Option<JobV2>,
    agent: Option<AgentV2>,
}

/// Part of version 2 of a node, frozen.
#[derive(Debug, Deserialize)]
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
#[derive(Debug, Deserialize)]
struct StepV2 {
    step: String,
    interface: String,
    priority: i64,
    args: SealedJson,
    reboot_requested: bool,
    abortable: bool,
}

/// Part of version 2 of a node, frozen.
#[derive(Debug, Deserialize)]
struct AgentV2 {
    token: SealedBytes,
    former_token: Option<SealedBytes>,
    url: Option<String>,
    verify_ca: Option<String>,
    version: Option<String>,
}

impl NodeV2 {
    /// The node. Fields that version 2 does not have get their defaults.
    pub(super) fn into_model(self, sealer: Option<&Sealer>) -> Result<Node, RecordError> {
        let id = NodeId(Uuid::from_bytes(self.id));
        let seal = RecordSeal::of(sealer, node_key(id));
        Ok(Node {
            revision: self.revision,
            serial: self.serial,
            name: self.name,
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
            updated_at: self.updated_at_ms.map(UnixMs),
            inspection_started_at: self.inspection_started_at_ms.map(UnixMs),
            inspection_finished_at: self.inspection_finished_at_ms.map(UnixMs),
            inventory: match self.inventory {
                Some(text) => Some(json(KIND, &text)?),
                None => None,
            },
            attributes: NodeAttributes::from_object(seal.open_json("kept", 0, &self.attributes)?),
            job: self.job.map(|job| job.into_model(seal)).transpose()?,
            agent: self.agent.map(|agent| agent.into_model(seal)).transpose()?,
            ..Node::new(id, &self.driver, UnixMs(self.created_at_ms))
        })
    }
}

impl JobV2 {
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
            boots: NonZeroU32::new(self.boots),
            heartbeat_lost_at: None,
            abort_after: None,
            deployment: None,
            has_inspection_data: false,
            awaits_source: false,
            agent_query: None,
        })
    }
}

impl StepV2 {
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
            is_clean: false,
            ahead: None,
        })
    }
}
