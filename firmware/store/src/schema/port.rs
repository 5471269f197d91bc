//! Ports: the table of their fields, and the reader of version 1.

use serde::Deserialize;
use trivet_model::attributes::PortAttributes;
use trivet_model::node::JsonObject;
use trivet_model::{MacAddr, NodeId, Port, PortId, UnixMs};
use uuid::Uuid;

use super::codec::{Flag, Id, Mac, Number, Object, Optional, PortObject, Time};
use super::tagged::tagged_fields;
use super::{RecordKind, json};
use crate::error::RecordError;

/// The version of port records with tagged fields. Further fields do not raise it.
pub(super) const VERSION: u16 = 2;

const KIND: RecordKind = RecordKind::Port;

tagged_fields! {
    /// Fields of a port.
    PortFields: Port {
        1 "id" id: Id<PortId>;
        2 "revision" revision: Number<u64> = 0;
        3 "serial" serial: Number<u64> = 0;
        4 "node" node: Id<NodeId>;
        5 "address" address: Mac;
        6 "pxe_enabled" pxe_enabled: Flag = false;
        7 "extra" extra: Object = JsonObject::new();
        8 "kept" attributes: PortObject = PortAttributes::default();
        9 "created_at" created_at: Time;
        10 "updated_at" updated_at: Optional<Time> = None;
    }
}

/// Version 1, frozen.
#[derive(Debug, Deserialize)]
pub(super) struct PortV1 {
    id: [u8; 16],
    revision: u64,
    serial: u64,
    node: [u8; 16],
    address: [u8; 6],
    pxe_enabled: bool,
    /// JSON text.
    extra: String,
    /// JSON text.
    attributes: String,
    created_at_ms: u64,
    updated_at_ms: Option<u64>,
}

impl PortV1 {
    pub(super) fn into_model(self) -> Result<Port, RecordError> {
        Ok(Port {
            id: PortId(Uuid::from_bytes(self.id)),
            revision: self.revision,
            serial: self.serial,
            node: NodeId(Uuid::from_bytes(self.node)),
            address: MacAddr(self.address),
            pxe_enabled: self.pxe_enabled,
            extra: json(KIND, &self.extra)?,
            attributes: PortAttributes::from_object(json(KIND, &self.attributes)?),
            created_at: UnixMs(self.created_at_ms),
            updated_at: self.updated_at_ms.map(UnixMs),
        })
    }
}
