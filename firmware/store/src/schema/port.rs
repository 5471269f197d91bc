//! Ports.

use serde::{Deserialize, Serialize};
use trivet_model::{MacAddr, NodeId, Port, PortId, UnixMs};
use uuid::Uuid;

use super::{RecordKind, json, object_text};
use crate::error::RecordError;

pub(super) const VERSION: u16 = 1;

const KIND: RecordKind = RecordKind::Port;

/// Version 1, frozen.
#[derive(Debug, Serialize, Deserialize)]
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
    kept: String,
    created_at_ms: u64,
    updated_at_ms: Option<u64>,
}

impl PortV1 {
    pub(super) fn from_model(port: &Port) -> Result<Self, RecordError> {
        // Taken apart, so that a new field does not compile until it has a version.
        let Port {
            id,
            revision,
            serial,
            node,
            address,
            pxe_enabled,
            extra,
            kept,
            created_at,
            updated_at,
        } = port;
        Ok(Self {
            id: id.bytes(),
            revision: *revision,
            serial: *serial,
            node: node.bytes(),
            address: address.0,
            pxe_enabled: *pxe_enabled,
            extra: object_text(KIND, "extra", extra)?,
            kept: object_text(KIND, "kept", kept)?,
            created_at_ms: created_at.0,
            updated_at_ms: updated_at.map(|at| at.0),
        })
    }

    pub(super) fn into_model(self) -> Result<Port, RecordError> {
        Ok(Port {
            id: PortId(Uuid::from_bytes(self.id)),
            revision: self.revision,
            serial: self.serial,
            node: NodeId(Uuid::from_bytes(self.node)),
            address: MacAddr(self.address),
            pxe_enabled: self.pxe_enabled,
            extra: json(KIND, &self.extra)?,
            kept: json(KIND, &self.kept)?,
            created_at: UnixMs(self.created_at_ms),
            updated_at: self.updated_at_ms.map(UnixMs),
        })
    }
}
