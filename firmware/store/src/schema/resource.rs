//! Resources: one version for all kinds, since they are of one shape.

use serde::{Deserialize, Serialize};
use trivet_model::{NodeId, Resource, ResourceId, UnixMs};
use uuid::Uuid;

use super::{RecordKind, resource_key, word};
use crate::error::RecordError;
use crate::seal::{RecordSeal, SealedJson, Sealer};

pub(super) const VERSION: u16 = 1;

const KIND: RecordKind = RecordKind::Resource;

/// Version 1, frozen.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ResourceV1 {
    id: [u8; 16],
    kind: String,
    revision: u64,
    serial: u64,
    name: Option<String>,
    node: Option<[u8; 16]>,
    fields: SealedJson,
    created_at_ms: u64,
    updated_at_ms: Option<u64>,
}

impl ResourceV1 {
    pub(super) fn from_model(sealer: &Sealer, resource: &Resource) -> Result<Self, RecordError> {
        // Taken apart, so that a new field does not compile until it has a version.
        let Resource {
            id,
            kind,
            revision,
            serial,
            name,
            node,
            fields,
            created_at,
            updated_at,
        } = resource;
        Ok(Self {
            id: id.bytes(),
            kind: kind.as_str().to_owned(),
            revision: *revision,
            serial: *serial,
            name: name.clone(),
            node: node.map(NodeId::bytes),
            fields: sealer.of(resource_key(*id)).object("fields", fields)?,
            created_at_ms: created_at.0,
            updated_at_ms: updated_at.map(|at| at.0),
        })
    }

    pub(super) fn into_model(self, sealer: Option<&Sealer>) -> Result<Resource, RecordError> {
        let id = ResourceId(Uuid::from_bytes(self.id));
        let seal = RecordSeal::of(sealer, resource_key(id));
        Ok(Resource {
            id,
            kind: word(KIND, &self.kind)?,
            revision: self.revision,
            serial: self.serial,
            name: self.name,
            node: self.node.map(|id| NodeId(Uuid::from_bytes(id))),
            fields: seal.open_json("fields", 0, &self.fields)?,
            created_at: UnixMs(self.created_at_ms),
            updated_at: self.updated_at_ms.map(UnixMs),
        })
    }
}
