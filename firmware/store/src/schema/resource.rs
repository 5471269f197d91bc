//! Resources: the table of their fields, and the reader of version 1. All kinds of resources
//! have the same fields.

use serde::Deserialize;
use trivet_model::node::JsonObject;
use trivet_model::{NodeId, Resource, ResourceId, ResourceKind, UnixMs};
use uuid::Uuid;

use super::codec::{Id, Number, Optional, SealedObject, Text, Time, Word};
use super::tagged::tagged_fields;
use super::{RecordKind, resource_key, word};
use crate::error::RecordError;
use crate::seal::{RecordSeal, SealedJson, Sealer};

/// The version of resource records with tagged fields. Further fields do not raise it.
pub(super) const VERSION: u16 = 2;

const KIND: RecordKind = RecordKind::Resource;

tagged_fields! {
    /// Fields of a resource.
    ResourceFields: Resource {
        1 "id" id: Id<ResourceId>;
        2 "kind" kind: Word<ResourceKind>;
        3 "revision" revision: Number<u64> = 0;
        4 "serial" serial: Number<u64> = 0;
        5 "name" name: Optional<Text> = None;
        6 "node" node: Optional<Id<NodeId>> = None;
        7 "fields" fields: SealedObject = JsonObject::new();
        8 "created_at" created_at: Time;
        9 "updated_at" updated_at: Optional<Time> = None;
    }
}

/// Version 1, frozen.
#[derive(Debug, Deserialize)]
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
    pub(super) fn into_model(self, sealer: Option<&Sealer>) -> Result<Resource, RecordError> {
        let id = ResourceId(Uuid::from_bytes(self.id));
        let seal = RecordSeal::of(sealer, resource_key(id));
        let kind = word(KIND, &self.kind)?;
        Ok(Resource {
            revision: self.revision,
            serial: self.serial,
            name: self.name,
            node: self.node.map(|id| NodeId(Uuid::from_bytes(id))),
            fields: seal.open_json("fields", 0, &self.fields)?,
            updated_at: self.updated_at_ms.map(UnixMs),
            ..Resource::new(id, kind, UnixMs(self.created_at_ms))
        })
    }
}
