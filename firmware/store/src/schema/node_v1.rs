//! Nodes of version 1: one struct whose secrets are not sealed. They are read and no longer
//! written.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use serde::Deserialize;
use trivet_model::attributes::NodeAttributes;
use trivet_model::{AgentSession, Job, JobStep, Node, NodeId, UnixMs};
use uuid::Uuid;

use super::{RecordKind, json, optional_word, word};
use crate::error::RecordError;

const KIND: RecordKind = RecordKind::Node;

/// Version 1, frozen.
#[derive(Debug, Deserialize)]
pub(super) struct NodeV1 {
    id: [u8; 16],
    revision: u64,
    serial: u64,
    name: Option<String>,
    driver: String,
    /// JSON text, as the next four.
    driver_info: String,
    properties: String,
    instance_info: String,
    extra: String,
    driver_internal_info: String,
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
    /// JSON text.
    attributes: String,
    job: Option<JobV1>,
    agent: Option<AgentV1>,
}

/// Part of version 1 of a node, frozen.
#[derive(Debug, Deserialize)]
struct JobV1 {
    kind: String,
    phase: String,
    step_kind: Option<String>,
    manual: bool,
    steps: Vec<StepV1>,
    at: u32,
    versions: BTreeMap<String, String>,
    tries: u32,
    boots: u32,
}

/// Part of version 1 of a node, frozen.
#[derive(Debug, Deserialize)]
struct StepV1 {
    step: String,
    interface: String,
    priority: i64,
    /// JSON text.
    args: String,
    reboot_requested: bool,
    abortable: bool,
}

/// Part of version 1 of a node, frozen.
#[derive(Debug, Deserialize)]
struct AgentV1 {
    token: String,
    former_token: Option<String>,
    url: Option<String>,
    verify_ca: Option<String>,
    version: Option<String>,
}

impl NodeV1 {
    /// The node. Fields that version 1 does not have get their defaults.
    pub(super) fn into_model(self) -> Result<Node, RecordError> {
        let id = NodeId(Uuid::from_bytes(self.id));
        Ok(Node {
            revision: self.revision,
            serial: self.serial,
            name: self.name,
            driver_info: json(KIND, &self.driver_info)?,
            properties: json(KIND, &self.properties)?,
            instance_info: json(KIND, &self.instance_info)?,
            extra: json(KIND, &self.extra)?,
            driver_internal_info: json(KIND, &self.driver_internal_info)?,
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
            attributes: NodeAttributes::from_object(json(KIND, &self.attributes)?),
            job: self.job.map(JobV1::into_model).transpose()?,
            agent: self.agent.map(AgentV1::into_model),
            ..Node::new(id, &self.driver, UnixMs(self.created_at_ms))
        })
    }
}

impl JobV1 {
    fn into_model(self) -> Result<Job, RecordError> {
        Ok(Job {
            kind: word(KIND, &self.kind)?,
            phase: word(KIND, &self.phase)?,
            step_kind: optional_word(KIND, self.step_kind)?,
            manual: self.manual,
            steps: self
                .steps
                .into_iter()
                .map(StepV1::into_model)
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

impl StepV1 {
    fn into_model(self) -> Result<JobStep, RecordError> {
        Ok(JobStep {
            step: self.step,
            interface: self.interface,
            priority: self.priority,
            args: json(KIND, &self.args)?,
            reboot_requested: self.reboot_requested,
            abortable: self.abortable,
        })
    }
}

impl AgentV1 {
    fn into_model(self) -> AgentSession {
        AgentSession {
            token: self.token,
            former_token: self.former_token,
            url: self.url,
            verify_ca: self.verify_ca,
            version: self.version,
            is_clean: false,
            ahead: None,
        }
    }
}
