//! Codecs: how the value of one field is encoded.
//!
//! All values are in postcard encoding. A codec never changes after a release: another
//! encoding of a field is a new tag. Enumerated values are stored as text and free-form
//! objects as JSON text, so neither the order of variants nor a type of another crate can
//! change the bytes.

use core::marker::PhantomData;
use core::net::Ipv4Addr;
use core::num::NonZeroU32;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;

use serde::Serialize;
use serde::de::{Deserialize, DeserializeOwned};
use serde_json::Value;
use trivet_model::attributes::{NodeAttributes, PortAttributes};
use trivet_model::node::JsonObject;
use trivet_model::{MacAddr, NodeId, PortId, ResourceId, UnixMs};
use uuid::Uuid;

use super::tagged::{FieldTag, TaggedFields, put_number, read_list, write_list};
use super::{RecordKind, object_text, value_text};
use crate::error::RecordError;
use crate::seal::{RecordSeal, SealedBytes, SealedJson};

/// The field that is encoded: errors and sealed values name it.
#[derive(Clone, Copy)]
pub(super) struct FieldPlace<'a> {
    kind: RecordKind,
    seal: RecordSeal<'a>,
    field: &'static str,
    /// Index of the part that the field belongs to, 0 if there is one part.
    item: u32,
}

impl<'a> FieldPlace<'a> {
    pub(super) fn new(kind: RecordKind, seal: RecordSeal<'a>) -> Self {
        Self {
            kind,
            seal,
            field: "",
            item: 0,
        }
    }

    pub(super) fn named(self, field: &'static str) -> Self {
        Self { field, ..self }
    }

    pub(super) fn malformed(self, what: &'static str) -> RecordError {
        self.kind.malformed(what)
    }

    fn put<T: Serialize + ?Sized>(self, value: &T, out: &mut Vec<u8>) -> Result<(), RecordError> {
        let bytes = postcard::to_allocvec(value);
        out.extend(bytes.map_err(|_| self.malformed("it has no bytes"))?);
        Ok(())
    }

    fn take<'b, T: Deserialize<'b>>(self, bytes: &'b [u8]) -> Result<(T, &'b [u8]), RecordError> {
        postcard::take_from_bytes(bytes).map_err(|_| self.malformed("a field cannot be read"))
    }

    fn json<T: DeserializeOwned>(self, text: &str) -> Result<T, RecordError> {
        super::json(self.kind, text)
    }
}

/// How values of one type are encoded.
pub(super) trait FieldCodec {
    /// The type in memory.
    type Value;

    /// What the README calls the encoding.
    #[cfg(test)]
    const FORM: &'static str;

    /// Whether the encoding begins with a byte that says whether there is a value.
    #[cfg(test)]
    const OPTIONAL: bool = false;

    /// The fields of the parts, if the value is a number of parts and then the parts.
    const PARTS: Option<&'static [FieldTag]> = None;

    /// Appends the value.
    fn encode(
        place: FieldPlace<'_>,
        value: &Self::Value,
        out: &mut Vec<u8>,
    ) -> Result<(), RecordError>;

    /// Reads a value, and returns the bytes after it.
    fn decode<'b>(
        place: FieldPlace<'_>,
        bytes: &'b [u8],
    ) -> Result<(Self::Value, &'b [u8]), RecordError>;
}

/// Makes a codec that stores another type than it has in memory.
macro_rules! codec {
    ($(#[$doc:meta])* $name:ident $(<$param:ident: $bound:path>)?, $form:literal,
        $value:ty, $stored:ty,
        |$place:ident, $from:ident| $encode:expr, |$read:ident| $decode:expr
    ) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub(super) struct $name $(<$param>(PhantomData<$param>))?;

        impl $(<$param: $bound>)? FieldCodec for $name $(<$param>)? {
            type Value = $value;

            #[cfg(test)]
            const FORM: &'static str = $form;

            fn encode(
                $place: FieldPlace<'_>,
                $from: &Self::Value,
                out: &mut Vec<u8>,
            ) -> Result<(), RecordError> {
                $place.put(&$encode, out)
            }

            fn decode<'b>(
                $place: FieldPlace<'_>,
                bytes: &'b [u8],
            ) -> Result<(Self::Value, &'b [u8]), RecordError> {
                let ($read, rest): ($stored, _) = $place.take(bytes)?;
                Ok(($decode, rest))
            }
        }
    };
}

codec! {
    /// An unsigned number with seven bits per byte, the lowest first.
    Number<T: UnsignedNumber>, "number", T, T, |place, value| value, |read| read
}

codec! {
    /// A signed number in zigzag form: 0, -1, 1, -2 ... are stored as 0, 1, 2, 3 ...
    Signed, "signed number", i64, i64, |place, value| value, |read| read
}

codec! {
    /// True or false, one byte.
    Flag, "flag", bool, bool, |place, value| value, |read| read
}

codec! {
    /// Text in UTF-8.
    Text, "text", String, String, |place, value| value, |read| read
}

codec! {
    /// Texts in order.
    TextList, "list of texts", Vec<String>, Vec<String>, |place, value| value, |read| read
}

codec! {
    /// Texts by name.
    TextMap, "map of texts", BTreeMap<String, String>, BTreeMap<String, String>,
    |place, value| value, |read| read
}

codec! {
    /// One of a fixed set of words, as text.
    Word<T: EnumeratedWord>, "word", T, String,
    |place, value| value.to_string(), |read| super::word(place.kind, &read)?
}

codec! {
    /// Milliseconds since 1970.
    Time, "time", UnixMs, u64, |place, at| at.0, |read| UnixMs(read)
}

codec! {
    /// 16 bytes without a length.
    Id<T: RecordId>, "UUID", T, [u8; 16], |place, id| id.to_bytes(), |read| T::from_bytes(read)
}

codec! {
    /// 6 bytes without a length.
    Mac, "MAC address", MacAddr, [u8; 6], |place, address| address.0, |read| MacAddr(read)
}

codec! {
    /// 4 bytes without a length.
    Ipv4, "IPv4 address", Ipv4Addr, [u8; 4],
    |place, address| address.octets(), |read| Ipv4Addr::from(read)
}

codec! {
    /// A free-form object without secrets.
    Object, "object", JsonObject, String,
    |place, object| object_text(place.kind, place.field, object)?, |read| place.json(&read)?
}

codec! {
    /// Any JSON value without secrets.
    Json, "JSON", Value, String,
    |place, value| value_text(place.kind, place.field, value)?, |read| place.json(&read)?
}

codec! {
    /// A number of which 0 is none.
    CountOrNone, "number", Option<NonZeroU32>, u32,
    |place, value| value.map_or(0, NonZeroU32::get), |read| NonZeroU32::new(read)
}

codec! {
    /// A free-form object with its secrets sealed.
    SealedObject, "sealed object", JsonObject, SealedJson,
    |place, object| place.seal.object(place.field, place.item, object)?,
    |read| place.seal.open_json(place.field, place.item, &read)?
}

codec! {
    /// The attributes of a node as the object of their names and values, secrets sealed.
    SealedAttributes, "sealed object", NodeAttributes, SealedJson,
    |place, attributes| {
        place.seal.object(place.field, place.item, &attributes.to_object())?
    },
    |read| NodeAttributes::from_object(place.seal.open_json(place.field, place.item, &read)?)
}

codec! {
    /// The attributes of a port as the object of their names and values.
    PortObject, "object", PortAttributes, String,
    |place, attributes| object_text(place.kind, place.field, &attributes.to_object())?,
    |read| PortAttributes::from_object(place.json(&read)?)
}

codec! {
    /// Any JSON value with its secrets sealed.
    SealedValue, "sealed JSON", Value, SealedJson,
    |place, value| place.seal.value(place.field, place.item, value)?,
    |read| place.seal.open_json(place.field, place.item, &read)?
}

codec! {
    /// A value that is JSON on flash, with its secrets sealed.
    SealedForm<T: JsonForm>, "sealed JSON", T, SealedJson,
    |place, value| {
        let form = serde_json::to_value(value);
        let form = form.map_err(|_| place.malformed("a value has no text"))?;
        place.seal.value(place.field, place.item, &form)?
    },
    |read| place.seal.open_json(place.field, place.item, &read)?
}

codec! {
    /// A text that is a secret as a whole.
    SealedText, "sealed text", String, SealedBytes,
    |place, text| place.seal.text(place.field, text)?,
    |read| place.seal.open_text(place.field, &read)?
}

/// Numbers whose encoding does not depend on their width.
pub(super) trait UnsignedNumber: Serialize + DeserializeOwned {}

impl UnsignedNumber for u32 {}
impl UnsignedNumber for u64 {}

/// Enumerated values of the model.
pub(super) trait EnumeratedWord: Display + FromStr {}

impl<T: Display + FromStr> EnumeratedWord for T {}

/// Values of the model that are JSON on flash.
pub(super) trait JsonForm: Serialize + DeserializeOwned {}

impl<T: Serialize + DeserializeOwned> JsonForm for T {}

/// Identifiers of the model.
pub(super) trait RecordId {
    fn to_bytes(&self) -> [u8; 16];
    fn from_bytes(bytes: [u8; 16]) -> Self;
}

macro_rules! record_id {
    ($($id:ident),+) => {$(
        impl RecordId for $id {
            fn to_bytes(&self) -> [u8; 16] {
                self.bytes()
            }

            fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(Uuid::from_bytes(bytes))
            }
        }
    )+};
}

record_id!(NodeId, PortId, ResourceId);

/// 0, or 1 and the value.
#[derive(Debug)]
pub(super) struct Optional<C>(PhantomData<C>);

impl<C: FieldCodec> FieldCodec for Optional<C> {
    type Value = Option<C::Value>;

    #[cfg(test)]
    const FORM: &'static str = C::FORM;

    #[cfg(test)]
    const OPTIONAL: bool = true;

    fn encode(
        place: FieldPlace<'_>,
        value: &Self::Value,
        out: &mut Vec<u8>,
    ) -> Result<(), RecordError> {
        put_number(value.iter().len(), out);
        value
            .iter()
            .try_for_each(|value| C::encode(place, value, out))
    }

    fn decode<'b>(
        place: FieldPlace<'_>,
        bytes: &'b [u8],
    ) -> Result<(Self::Value, &'b [u8]), RecordError> {
        match bytes.split_first() {
            Some((0, rest)) => Ok((None, rest)),
            Some((1, rest)) => C::decode(place, rest).map(|(value, rest)| (Some(value), rest)),
            _ => Err(place.malformed("a field cannot be read")),
        }
    }
}

/// 0, or 1 and a list of fields.
#[derive(Debug)]
pub(super) struct OptionalPart<G>(PhantomData<G>);

impl<G: TaggedFields> FieldCodec for OptionalPart<G> {
    type Value = Option<G::Record>;

    #[cfg(test)]
    const FORM: &'static str = "fields";

    #[cfg(test)]
    const OPTIONAL: bool = true;

    const PARTS: Option<&'static [FieldTag]> = Some(G::FIELDS);

    fn encode(
        place: FieldPlace<'_>,
        value: &Self::Value,
        out: &mut Vec<u8>,
    ) -> Result<(), RecordError> {
        put_number(value.iter().len(), out);
        value
            .iter()
            .try_for_each(|part| write_list::<G>(place, part, out))
    }

    fn decode<'b>(
        place: FieldPlace<'_>,
        bytes: &'b [u8],
    ) -> Result<(Self::Value, &'b [u8]), RecordError> {
        match bytes.split_first() {
            Some((0, rest)) => Ok((None, rest)),
            Some((1, rest)) => read_list::<G>(place, rest).map(|(part, rest)| (Some(part), rest)),
            _ => Err(place.malformed("a field cannot be read")),
        }
    }
}

/// 1 and a list of fields, as an optional part that is always there.
#[derive(Debug)]
pub(super) struct Part<G>(PhantomData<G>);

impl<G: TaggedFields> FieldCodec for Part<G> {
    type Value = G::Record;

    #[cfg(test)]
    const FORM: &'static str = "fields after 1";

    const PARTS: Option<&'static [FieldTag]> = Some(G::FIELDS);

    fn encode(
        place: FieldPlace<'_>,
        value: &Self::Value,
        out: &mut Vec<u8>,
    ) -> Result<(), RecordError> {
        put_number(1, out);
        write_list::<G>(place, value, out)
    }

    fn decode<'b>(
        place: FieldPlace<'_>,
        bytes: &'b [u8],
    ) -> Result<(Self::Value, &'b [u8]), RecordError> {
        match bytes.split_first() {
            Some((1, rest)) => read_list::<G>(place, rest),
            _ => Err(place.malformed("a field cannot be read")),
        }
    }
}

/// A number of parts, then a list of fields for each of them.
#[derive(Debug)]
pub(super) struct PartList<G>(PhantomData<G>);

impl<G: TaggedFields> FieldCodec for PartList<G> {
    type Value = Vec<G::Record>;

    #[cfg(test)]
    const FORM: &'static str = "list of fields";

    const PARTS: Option<&'static [FieldTag]> = Some(G::FIELDS);

    fn encode(
        place: FieldPlace<'_>,
        value: &Self::Value,
        out: &mut Vec<u8>,
    ) -> Result<(), RecordError> {
        put_number(value.len(), out);
        (0..)
            .zip(value)
            .try_for_each(|(item, part)| write_list::<G>(FieldPlace { item, ..place }, part, out))
    }

    fn decode<'b>(
        place: FieldPlace<'_>,
        bytes: &'b [u8],
    ) -> Result<(Self::Value, &'b [u8]), RecordError> {
        let (count, mut rest): (u32, _) = place.take(bytes)?;
        let mut parts = Vec::new();
        for item in 0..count {
            let (part, after) = read_list::<G>(FieldPlace { item, ..place }, rest)?;
            parts.push(part);
            rest = after;
        }
        Ok((parts, rest))
    }
}
