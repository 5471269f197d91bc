//! Records as bytes: a list of tagged fields in an envelope with a version.
//!
//! The envelope is the kind (one byte) and the version (two bytes, little-endian). The newest
//! version of each kind has tagged fields, see [`tagged`]; a new field is a new line in the
//! table of its record and does not raise the version. Each older version has a frozen
//! struct, which is never edited: postcard stores no field names, so an edit would change
//! the meaning of old bytes. Older versions are read and no longer written.

mod codec;
mod lease;
mod moved;
mod node;
mod node_v1;
mod node_v2;
mod port;
mod resource;
mod story;
mod tagged;
mod unit;

use serde::de::DeserializeOwned;
use serde_json::Value;
use trivet_model::node::JsonObject;
use trivet_model::story::{AUDIT_ENTRIES_MAX, AuditEntry, NodeStories, RunningJobStory};
use trivet_model::{Lease, MacAddr, Node, NodeId, Port, PortId, Resource, ResourceId};

use crate::RecordKey;
use crate::error::RecordError;
use crate::seal::{RecordSeal, Sealer};

use codec::FieldPlace;
use tagged::{FieldTag, TaggedFields};

/// Deepest nesting of a free-form object. The JSON reader refuses more than 127 levels, so
/// deeper objects must not be written. The limit is ours.
pub const JSON_DEPTH_MAX: usize = 100;

const ENVELOPE_BYTES: usize = 3;

/// The kinds of records, with their numbers on flash.
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
    /// The finished jobs and the failures of a node.
    Stories = 6,
    /// The job of a node that runs or failed last, with its notes.
    Job = 7,
    /// A request of a caller.
    Audit = 8,
}

impl RecordKind {
    const ALL: [Self; 8] = [
        Self::Node,
        Self::Port,
        Self::Lease,
        Self::Box,
        Self::Resource,
        Self::Stories,
        Self::Job,
        Self::Audit,
    ];

    /// The kind with this number.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|&kind| kind as u8 == number)
    }

    /// The kind with this name.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The name in messages and exports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Port => "port",
            Self::Lease => "lease",
            Self::Box => "box",
            Self::Resource => "resource",
            Self::Stories => "stories",
            Self::Job => "job",
            Self::Audit => "audit",
        }
    }

    const fn newest_version(self) -> u16 {
        match self {
            Self::Node => node::VERSION,
            Self::Port => port::VERSION,
            Self::Lease => lease::VERSION,
            Self::Box => unit::VERSION,
            Self::Resource => resource::VERSION,
            Self::Stories | Self::Job | Self::Audit => story::VERSION,
        }
    }

    /// The table of the fields of the newest version.
    const fn fields(self) -> &'static [FieldTag] {
        match self {
            Self::Node => node::NodeFields::FIELDS,
            Self::Port => port::PortFields::FIELDS,
            Self::Lease => lease::LeaseFields::FIELDS,
            Self::Box => unit::BoxFields::FIELDS,
            Self::Resource => resource::ResourceFields::FIELDS,
            Self::Stories => story::StoriesFields::FIELDS,
            Self::Job => story::RunningJobFields::FIELDS,
            Self::Audit => story::AuditFields::FIELDS,
        }
    }

    fn malformed(self, what: &'static str) -> RecordError {
        let kind = self.name();
        RecordError::Malformed { kind, what }
    }
}

/// The name of the kind with this number, in messages.
pub(crate) fn kind_name(number: u8) -> &'static str {
    RecordKind::from_number(number).map_or("foreign", RecordKind::name)
}

#[cfg(test)]
thread_local! {
    /// How many records this thread has decoded.
    pub(crate) static DECODED: core::cell::Cell<usize> = const { core::cell::Cell::new(0) };
}

/// A decoded record.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum StoredRecord {
    Node(Box<Node>),
    Port(Port),
    Lease(Lease),
    Serial(u64),
    Resource(Resource),
    Stories(Box<NodeStories>),
    Job(Box<RunningJobStory>),
    Audit(AuditEntry),
}

impl StoredRecord {
    /// The key that belongs to the id in the record.
    fn key(&self) -> RecordKey {
        match self {
            Self::Node(node) => node_key(node.id),
            Self::Port(port) => port_key(port.id),
            Self::Lease(lease) => lease_key(lease.mac),
            Self::Serial(_) => unit_key(),
            Self::Resource(resource) => resource_key(resource.id),
            Self::Stories(stories) => stories_key(stories.node),
            Self::Job(job) => job_key(job.node),
            Self::Audit(entry) => audit_key(entry.number),
        }
    }
}

/// The bytes of a node, with its secrets sealed.
pub(crate) fn encode_node(sealer: &Sealer, node: &Node) -> Result<Vec<u8>, RecordError> {
    encode::<node::NodeFields>(sealer.of(node_key(node.id)), node)
}

/// The bytes of a port.
pub(crate) fn encode_port(port: &Port) -> Result<Vec<u8>, RecordError> {
    encode::<port::PortFields>(RecordSeal::of(None, port_key(port.id)), port)
}

/// The bytes of a lease.
pub(crate) fn encode_lease(lease: &Lease) -> Result<Vec<u8>, RecordError> {
    encode::<lease::LeaseFields>(RecordSeal::of(None, lease_key(lease.mac)), lease)
}

/// The bytes of a resource, with its secrets sealed.
pub(crate) fn encode_resource(
    sealer: &Sealer,
    resource: &Resource,
) -> Result<Vec<u8>, RecordError> {
    encode::<resource::ResourceFields>(sealer.of(resource_key(resource.id)), resource)
}

/// The bytes of the finished jobs and failures of a node.
pub(crate) fn encode_stories(stories: &NodeStories) -> Result<Vec<u8>, RecordError> {
    let key = stories_key(stories.node);
    encode::<story::StoriesFields>(RecordSeal::of(None, key), stories)
}

/// The bytes of the job of a node.
pub(crate) fn encode_job(job: &RunningJobStory) -> Result<Vec<u8>, RecordError> {
    encode::<story::RunningJobFields>(RecordSeal::of(None, job_key(job.node)), job)
}

/// The bytes of a request of a caller.
pub(crate) fn encode_audit(entry: &AuditEntry) -> Result<Vec<u8>, RecordError> {
    encode::<story::AuditFields>(RecordSeal::of(None, audit_key(entry.number)), entry)
}

/// The bytes of the record of the box, which show whether a key belongs to the store.
pub(crate) fn encode_serial(sealer: &Sealer, serial: u64) -> Result<Vec<u8>, RecordError> {
    let record = unit::BoxRecord::new(serial);
    encode::<unit::BoxFields>(sealer.of(unit_key()), &record)
}

/// The bytes of a record that is about to be written, with the fields added that the value
/// on flash has and this program does not know: a newer program wrote them.
pub(crate) fn carry_over(
    at: &RecordKey,
    earlier: Option<&[u8]>,
    new: Vec<u8>,
) -> Result<Vec<u8>, RecordError> {
    let Some(kind) = RecordKind::from_number(at.kind) else {
        return Ok(new);
    };
    let Some(earlier) = earlier.filter(|bytes| is_tagged(kind, bytes)) else {
        return Ok(new);
    };
    let (envelope, payload) = new.split_at(ENVELOPE_BYTES.min(new.len()));
    let earlier = &earlier[ENVELOPE_BYTES..];
    let merged = tagged::carry_over(kind, kind.fields(), earlier, payload)?;
    Ok([envelope, merged.as_slice()].concat())
}

/// The key of a node.
pub(crate) fn node_key(id: NodeId) -> RecordKey {
    key(RecordKind::Node, id.bytes())
}

/// The node with this key, if it is the key of a node.
pub(crate) fn node_of(place: &RecordKey) -> Option<NodeId> {
    let id = NodeId(uuid::Uuid::from_bytes(place.id));
    (*place == node_key(id)).then_some(id)
}

/// The key of a port.
pub(crate) fn port_key(id: PortId) -> RecordKey {
    key(RecordKind::Port, id.bytes())
}

/// The key of a lease: its hardware address, then zeros.
pub(crate) fn lease_key(mac: MacAddr) -> RecordKey {
    let mut id = [0; 16];
    id[..6].copy_from_slice(&mac.0);
    key(RecordKind::Lease, id)
}

/// The key of a resource.
pub(crate) fn resource_key(id: ResourceId) -> RecordKey {
    key(RecordKind::Resource, id.bytes())
}

/// The key of the finished jobs and failures of a node.
pub(crate) fn stories_key(id: NodeId) -> RecordKey {
    key(RecordKind::Stories, id.bytes())
}

/// The key of the job of a node.
pub(crate) fn job_key(id: NodeId) -> RecordKey {
    key(RecordKind::Job, id.bytes())
}

/// The key of a request of a caller: its place in the ring.
pub(crate) fn audit_key(number: u64) -> RecordKey {
    let place = u128::from(number % AUDIT_ENTRIES_MAX as u64);
    key(RecordKind::Audit, place.to_be_bytes())
}

/// Whether records of this key are of a kind that this program knows. Others were written by a
/// newer program, and are kept as they are.
pub(crate) fn is_known(at: &RecordKey) -> bool {
    RecordKind::from_number(at.kind).is_some()
}

/// The key of the record of the box.
pub(crate) fn unit_key() -> RecordKey {
    key(RecordKind::Box, [0; 16])
}

fn key(kind: RecordKind, id: [u8; 16]) -> RecordKey {
    RecordKey {
        kind: kind as u8,
        id,
    }
}

/// Reads a record of any known version and checks that its id matches its key.
/// Without a sealer, only a record without sealed values can be read.
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
    let mut record = if version == kind.newest_version() {
        decode_tagged(sealer, kind, at, payload)?
    } else {
        decode_frozen(sealer, kind, version, payload)?
    };
    if let StoredRecord::Node(node) = &mut record {
        moved::move_to_fields(node);
    }
    if record.key() == *at {
        Ok(record)
    } else {
        Err(kind.malformed("it stands under the key of another record"))
    }
}

/// Reads the payload of a record with tagged fields.
fn decode_tagged(
    sealer: Option<&Sealer>,
    kind: RecordKind,
    at: &RecordKey,
    payload: &[u8],
) -> Result<StoredRecord, RecordError> {
    let own_key = own_key(kind, payload).unwrap_or(*at);
    let place = FieldPlace::new(kind, RecordSeal::of(sealer, own_key));
    Ok(match kind {
        RecordKind::Node => {
            StoredRecord::Node(Box::new(fields::<node::NodeFields>(place, payload)?))
        }
        RecordKind::Port => StoredRecord::Port(fields::<port::PortFields>(place, payload)?),
        RecordKind::Lease => StoredRecord::Lease(fields::<lease::LeaseFields>(place, payload)?),
        RecordKind::Box => StoredRecord::Serial(fields::<unit::BoxFields>(place, payload)?.serial),
        RecordKind::Resource => {
            StoredRecord::Resource(fields::<resource::ResourceFields>(place, payload)?)
        }
        RecordKind::Stories => {
            StoredRecord::Stories(Box::new(fields::<story::StoriesFields>(place, payload)?))
        }
        RecordKind::Job => {
            StoredRecord::Job(Box::new(fields::<story::RunningJobFields>(place, payload)?))
        }
        RecordKind::Audit => StoredRecord::Audit(fields::<story::AuditFields>(place, payload)?),
    })
}

/// The key that the id in a payload belongs to. Sealed values are bound to it, so a record
/// under the key of another one is recognised as such. The id is the value of tag 1.
fn own_key(kind: RecordKind, payload: &[u8]) -> Option<RecordKey> {
    match kind {
        RecordKind::Box => return Some(unit_key()),
        // Its key is a place in a ring, and nothing in it is sealed.
        RecordKind::Audit => return None,
        _ => {}
    }
    let value = tagged::first_field(payload).filter(|(tag, _)| *tag == 1);
    let (_, value) = value?;
    let mut id = [0; 16];
    id.get_mut(..value.len())?.copy_from_slice(value);
    Some(key(kind, id))
}

/// Reads the payload of a version that is no longer written.
fn decode_frozen(
    sealer: Option<&Sealer>,
    kind: RecordKind,
    version: u16,
    payload: &[u8],
) -> Result<StoredRecord, RecordError> {
    Ok(match (kind, version) {
        (RecordKind::Node, 1) => {
            let node = open::<node_v1::NodeV1>(kind, payload)?.into_model()?;
            StoredRecord::Node(Box::new(node))
        }
        (RecordKind::Node, 2) => {
            let node = open::<node_v2::NodeV2>(kind, payload)?.into_model(sealer)?;
            StoredRecord::Node(Box::new(node))
        }
        (RecordKind::Port, 1) => {
            StoredRecord::Port(open::<port::PortV1>(kind, payload)?.into_model()?)
        }
        (RecordKind::Lease, 1) => {
            StoredRecord::Lease(open::<lease::LeaseV1>(kind, payload)?.into_model())
        }
        (RecordKind::Box, 1) => StoredRecord::Serial(open::<unit::BoxV1>(kind, payload)?.serial),
        (RecordKind::Box, 2 | 3) => {
            StoredRecord::Serial(open::<unit::BoxV2>(kind, payload)?.checked(sealer)?)
        }
        (RecordKind::Resource, 1) => {
            let resource = open::<resource::ResourceV1>(kind, payload)?;
            StoredRecord::Resource(resource.into_model(sealer)?)
        }
        _ => return Err(kind.malformed("no version has this number")),
    })
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

/// Whether the record has a version that is no longer written.
pub(crate) fn is_old(at: &RecordKey, bytes: &[u8]) -> bool {
    match (RecordKind::from_number(at.kind), bytes) {
        (Some(kind), [_, low, high, ..]) => {
            u16::from_le_bytes([*low, *high]) < kind.newest_version()
        }
        _ => false,
    }
}

/// Whether the bytes have an envelope of the version with tagged fields.
fn is_tagged(kind: RecordKind, bytes: &[u8]) -> bool {
    matches!(bytes, [_, low, high, ..]
        if u16::from_le_bytes([*low, *high]) == kind.newest_version())
}

/// Whether these bytes of the record of the box show whether a key is the right one.
pub(crate) fn proves_key(unit: &[u8]) -> bool {
    matches!(unit, [_, low, high, ..] if u16::from_le_bytes([*low, *high]) >= 2)
}

/// Writes the envelope and the tagged fields of a record.
fn encode<G: TaggedFields>(
    seal: RecordSeal<'_>,
    record: &G::Record,
) -> Result<Vec<u8>, RecordError> {
    let number = seal.at.kind;
    let kind = RecordKind::from_number(number);
    let kind = kind.ok_or(RecordError::UnknownKind { kind: number })?;
    let mut bytes = vec![number];
    bytes.extend_from_slice(&kind.newest_version().to_le_bytes());
    tagged::write_list::<G>(FieldPlace::new(kind, seal), record, &mut bytes)?;
    Ok(bytes)
}

/// Reads the tagged fields of a record.
fn fields<G: TaggedFields>(
    place: FieldPlace<'_>,
    payload: &[u8],
) -> Result<G::Record, RecordError> {
    match tagged::read_list::<G>(place, payload)? {
        (record, []) => Ok(record),
        _ => Err(place.malformed("bytes are left over after its fields")),
    }
}

/// Reads a frozen struct.
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

/// Reads JSON text.
fn json<T: DeserializeOwned>(kind: RecordKind, text: &str) -> Result<T, RecordError> {
    serde_json::from_str(text).map_err(|_| kind.malformed("its JSON cannot be read"))
}

/// Reads a word.
fn word<T: std::str::FromStr>(kind: RecordKind, text: &str) -> Result<T, RecordError> {
    text.parse()
        .map_err(|_| kind.malformed("a state word in it is unknown"))
}

/// Reads an optional word.
fn optional_word<T: std::str::FromStr>(
    kind: RecordKind,
    text: Option<String>,
) -> Result<Option<T>, RecordError> {
    text.map(|text| word(kind, &text)).transpose()
}

#[cfg(test)]
mod tests;
