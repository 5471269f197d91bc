//! Records as bytes: postcard inside a versioned envelope.
//!
//! The envelope is one byte of kind and two of version, little-endian, before the
//! payload. Each version of each record has a frozen struct here, which is never
//! edited once released: postcard has no field names, so any edit makes old bytes
//! read as something else. Words travel as text and free-form objects as JSON
//! text, so neither the order of variants nor a foreign type can change the bytes.

mod lease;
mod node_v1;
mod node_v2;
mod port;
mod resource;
mod unit;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use trivet_model::node::JsonObject;
use trivet_model::{Lease, MacAddr, Node, NodeId, Port, PortId, Resource, ResourceId};

use crate::RecordKey;
use crate::error::RecordError;
use crate::seal::Sealer;

/// Deepest nesting of a free-form object. The JSON reader refuses more than 127,
/// and what it would refuse must never get to flash.
pub const JSON_DEPTH_MAX: usize = 100;

const ENVELOPE_BYTES: usize = 3;

/// The kinds of records. The numbers stand on flash.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RecordKind {
    /// A node.
    Node = 1,
    /// A port.
    Port = 2,
    /// A lease.
    Lease = 3,
    /// The box itself; there is one.
    Box = 4,
    /// One of Ironic's smaller resources.
    Resource = 5,
}

impl RecordKind {
    const ALL: [Self; 5] = [
        Self::Node,
        Self::Port,
        Self::Lease,
        Self::Box,
        Self::Resource,
    ];

    /// The kind with this number.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|&kind| kind as u8 == number)
    }

    /// The kind that messages call so.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// What messages call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Port => "port",
            Self::Lease => "lease",
            Self::Box => "box",
            Self::Resource => "resource",
        }
    }

    const fn newest_version(self) -> u16 {
        match self {
            Self::Node => node_v2::VERSION,
            Self::Port => port::VERSION,
            Self::Lease => lease::VERSION,
            Self::Box => unit::VERSION,
            Self::Resource => resource::VERSION,
        }
    }

    fn malformed(self, what: &'static str) -> RecordError {
        let kind = self.name();
        RecordError::Malformed { kind, what }
    }
}

/// What messages call records of this number.
pub(crate) fn kind_name(number: u8) -> &'static str {
    RecordKind::from_number(number).map_or("foreign", RecordKind::name)
}

#[cfg(test)]
thread_local! {
    /// How many records this thread has decoded.
    pub(crate) static DECODED: core::cell::Cell<usize> = const { core::cell::Cell::new(0) };
}

/// One record, read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum StoredRecord {
    Node(Box<Node>),
    Port(Port),
    Lease(Lease),
    Serial(u64),
    Resource(Resource),
}

/// The bytes of a node, its secrets sealed.
pub(crate) fn encode_node(sealer: &Sealer, node: &Node) -> Result<Vec<u8>, RecordError> {
    seal(
        RecordKind::Node,
        node_v2::VERSION,
        &node_v2::NodeV2::from_model(sealer, node)?,
    )
}

/// The bytes of a port.
pub(crate) fn encode_port(port: &Port) -> Result<Vec<u8>, RecordError> {
    seal(
        RecordKind::Port,
        port::VERSION,
        &port::PortV1::from_model(port)?,
    )
}

/// The bytes of a lease.
pub(crate) fn encode_lease(lease: &Lease) -> Result<Vec<u8>, RecordError> {
    seal(
        RecordKind::Lease,
        lease::VERSION,
        &lease::LeaseV1::from_model(lease),
    )
}

/// The bytes of a resource, its secrets sealed.
pub(crate) fn encode_resource(
    sealer: &Sealer,
    resource: &Resource,
) -> Result<Vec<u8>, RecordError> {
    seal(
        RecordKind::Resource,
        resource::VERSION,
        &resource::ResourceV1::from_model(sealer, resource)?,
    )
}

/// The bytes of the box's own record, which show whether a key belongs to the store.
pub(crate) fn encode_serial(sealer: &Sealer, serial: u64) -> Result<Vec<u8>, RecordError> {
    let unit = unit::BoxV2::new(sealer, serial)?;
    seal(RecordKind::Box, unit::VERSION, &unit)
}

/// Where a node stands.
pub(crate) fn node_key(id: NodeId) -> RecordKey {
    key(RecordKind::Node, id.bytes())
}

/// The node that stands there, if one does.
pub(crate) fn node_of(place: &RecordKey) -> Option<NodeId> {
    let id = NodeId(uuid::Uuid::from_bytes(place.id));
    (*place == node_key(id)).then_some(id)
}

/// Where a port stands.
pub(crate) fn port_key(id: PortId) -> RecordKey {
    key(RecordKind::Port, id.bytes())
}

/// Where a lease stands: its hardware address, filled up with zeros.
pub(crate) fn lease_key(mac: MacAddr) -> RecordKey {
    let mut id = [0; 16];
    id[..6].copy_from_slice(&mac.0);
    key(RecordKind::Lease, id)
}

/// Where a resource stands.
pub(crate) fn resource_key(id: ResourceId) -> RecordKey {
    key(RecordKind::Resource, id.bytes())
}

/// Where the box's own record stands.
pub(crate) fn unit_key() -> RecordKey {
    key(RecordKind::Box, [0; 16])
}

fn key(kind: RecordKind, id: [u8; 16]) -> RecordKey {
    RecordKey {
        kind: kind as u8,
        id,
    }
}

/// Reads a record of any known version and checks that it stands under its key.
/// Without a sealer only a record in which nothing is sealed can be read.
pub(crate) fn decode(
    sealer: Option<&Sealer>,
    at: &RecordKey,
    bytes: &[u8],
) -> Result<StoredRecord, RecordError> {
    #[cfg(test)]
    DECODED.set(DECODED.get() + 1);
    let kind =
        RecordKind::from_number(at.kind).ok_or(RecordError::UnknownKind { kind: at.kind })?;
    let (envelope, payload) = bytes
        .split_first_chunk::<ENVELOPE_BYTES>()
        .ok_or(kind.malformed("its envelope is cut short"))?;
    if envelope[0] != at.kind {
        return Err(kind.malformed("its envelope names another kind"));
    }
    let version = u16::from_le_bytes([envelope[1], envelope[2]]);
    if version > kind.newest_version() {
        return Err(RecordError::NewerVersion {
            kind: kind.name(),
            found: version,
            known: kind.newest_version(),
        });
    }
    let (record, own_key) = match (kind, version) {
        (RecordKind::Node, 1 | 2) => {
            let node = if version == 1 {
                open::<node_v1::NodeV1>(kind, payload)?.into_model()?
            } else {
                open::<node_v2::NodeV2>(kind, payload)?.into_model(sealer)?
            };
            let own_key = node_key(node.id);
            (StoredRecord::Node(Box::new(node)), own_key)
        }
        (RecordKind::Port, 1) => {
            let port = open::<port::PortV1>(kind, payload)?.into_model()?;
            let own_key = port_key(port.id);
            (StoredRecord::Port(port), own_key)
        }
        (RecordKind::Lease, 1) => {
            let lease = open::<lease::LeaseV1>(kind, payload)?.into_model();
            (StoredRecord::Lease(lease), lease_key(lease.mac))
        }
        (RecordKind::Box, 1) => {
            let unit = open::<unit::BoxV1>(kind, payload)?;
            (StoredRecord::Serial(unit.serial), unit_key())
        }
        (RecordKind::Box, 2 | 3) => {
            let unit = open::<unit::BoxV2>(kind, payload)?;
            (StoredRecord::Serial(unit.checked(sealer)?), unit_key())
        }
        (RecordKind::Resource, 1) => {
            let resource = open::<resource::ResourceV1>(kind, payload)?.into_model(sealer)?;
            let own_key = resource_key(resource.id);
            (StoredRecord::Resource(resource), own_key)
        }
        _ => return Err(kind.malformed("no version has this number")),
    };
    if own_key == *at {
        Ok(record)
    } else {
        Err(kind.malformed("it stands under the key of another record"))
    }
}

/// Whether the bytes begin like a record of this key that this program can read.
pub(crate) fn has_envelope(at: &RecordKey, bytes: &[u8]) -> bool {
    match (RecordKind::from_number(at.kind), bytes) {
        (Some(kind), [first, low, high, ..]) => {
            let version = u16::from_le_bytes([*low, *high]);
            *first == at.kind && (1..=kind.newest_version()).contains(&version)
        }
        _ => false,
    }
}

/// Whether the record is of a version that is written no more.
pub(crate) fn is_old(at: &RecordKey, bytes: &[u8]) -> bool {
    match (RecordKind::from_number(at.kind), bytes) {
        (Some(kind), [_, low, high, ..]) => {
            u16::from_le_bytes([*low, *high]) < kind.newest_version()
        }
        _ => false,
    }
}

/// Whether the box's own record, which these bytes are, shows that a key is the right one.
pub(crate) fn proves_key(unit: &[u8]) -> bool {
    matches!(unit, [_, low, high, ..] if u16::from_le_bytes([*low, *high]) >= 2)
}

fn seal<T: Serialize>(kind: RecordKind, version: u16, frozen: &T) -> Result<Vec<u8>, RecordError> {
    let payload = postcard::to_allocvec(frozen).map_err(|_| kind.malformed("it has no bytes"))?;
    let mut bytes = Vec::with_capacity(ENVELOPE_BYTES + payload.len());
    bytes.push(kind as u8);
    bytes.extend_from_slice(&version.to_le_bytes());
    bytes.extend_from_slice(&payload);
    Ok(bytes)
}

fn open<T: DeserializeOwned>(kind: RecordKind, payload: &[u8]) -> Result<T, RecordError> {
    match postcard::take_from_bytes(payload) {
        Ok((frozen, [])) => Ok(frozen),
        Ok(_) => Err(kind.malformed("bytes are left over after its fields")),
        Err(_) => Err(kind.malformed("its fields cannot be read")),
    }
}

/// Writes a free-form object as text.
fn object_text(
    kind: RecordKind,
    field: &'static str,
    object: &JsonObject,
) -> Result<String, RecordError> {
    if object
        .values()
        .any(|value| !is_shallow(value, JSON_DEPTH_MAX - 1))
    {
        return Err(too_deep(kind.name(), field));
    }
    serde_json::to_string(object).map_err(|_| kind.malformed("an object has no text"))
}

/// Writes any JSON value as text.
fn value_text(kind: RecordKind, field: &'static str, value: &Value) -> Result<String, RecordError> {
    if !is_shallow(value, JSON_DEPTH_MAX) {
        return Err(too_deep(kind.name(), field));
    }
    serde_json::to_string(value).map_err(|_| kind.malformed("a value has no text"))
}

pub(crate) fn too_deep(kind: &'static str, field: &'static str) -> RecordError {
    RecordError::TooDeep {
        kind,
        field,
        limit: JSON_DEPTH_MAX,
    }
}

pub(crate) fn is_shallow(value: &Value, levels: usize) -> bool {
    let inner = |value: &Value| is_shallow(value, levels - 1);
    match value {
        Value::Array(items) => levels > 0 && items.iter().all(inner),
        Value::Object(fields) => levels > 0 && fields.values().all(inner),
        _ => true,
    }
}

/// Reads JSON text back.
fn json<T: DeserializeOwned>(kind: RecordKind, text: &str) -> Result<T, RecordError> {
    serde_json::from_str(text).map_err(|_| kind.malformed("its JSON cannot be read"))
}

/// Reads a word back.
fn word<T: std::str::FromStr>(kind: RecordKind, text: &str) -> Result<T, RecordError> {
    text.parse()
        .map_err(|_| kind.malformed("a state word in it is unknown"))
}

/// Reads an optional word back.
fn optional_word<T: std::str::FromStr>(
    kind: RecordKind,
    text: Option<String>,
) -> Result<Option<T>, RecordError> {
    text.map(|text| word(kind, &text)).transpose()
}

#[cfg(test)]
mod tests;
