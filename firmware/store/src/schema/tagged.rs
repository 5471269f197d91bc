//! Tagged fields: the payload of every record that this program writes.
//!
//! A payload is a list of fields in postcard encoding: the number of fields, then for each
//! field its tag, the length of its value and the value, in ascending order of tags. A field
//! that has its default is left out. [`tagged_fields`] makes reader and writer of a record
//! from one table, with one line for each field, and does not compile if a field of the
//! record has no line. A tag that a table does not list was written by a newer program:
//! reading skips it, and [`carry_over`] copies it when the record is written again.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::RecordKind;
use super::codec::{FieldCodec, FieldPlace};
use crate::error::RecordError;

/// The tag that identifies a part, see [`carry_over`].
const PART_IDENTITY: u16 = 1;

/// One line of a table.
#[derive(Debug)]
pub(super) struct FieldTag {
    /// The number on flash. It is never used again for another field.
    pub(super) tag: u16,
    /// The fields of the parts, if the value consists of parts that are lists of fields.
    pub(super) parts: Option<&'static [FieldTag]>,
    /// What the README says about the field.
    #[cfg(test)]
    pub(super) documented: DocumentedField,
}

/// A line of the README about a field.
#[cfg(test)]
#[derive(Debug)]
pub(super) struct DocumentedField {
    pub(super) name: &'static str,
    pub(super) form: &'static str,
    pub(super) optional: bool,
    pub(super) required: bool,
}

impl FieldTag {
    #[cfg_attr(
        not(test),
        expect(unused_variables, reason = "only the test of the README reads them")
    )]
    pub(super) const fn new<C: FieldCodec>(tag: u16, name: &'static str, required: bool) -> Self {
        Self {
            tag,
            parts: C::PARTS,
            #[cfg(test)]
            documented: DocumentedField {
                name,
                form: C::FORM,
                optional: C::OPTIONAL,
                required,
            },
        }
    }
}

/// A record, or a part of one, that is stored as a list of fields.
pub(super) trait TaggedFields {
    type Record;

    const FIELDS: &'static [FieldTag];

    /// Appends the fields that do not have their defaults.
    fn write(
        place: FieldPlace<'_>,
        record: &Self::Record,
        out: &mut FieldWriter,
    ) -> Result<(), RecordError>;

    /// Reads the known fields. A field that is left out gets its default.
    fn read(place: FieldPlace<'_>, fields: &FieldList<'_>) -> Result<Self::Record, RecordError>;
}

/// Fields by tag, in ascending order.
pub(super) type FieldList<'a> = Vec<(u16, &'a [u8])>;

/// Collects the fields of a list.
#[derive(Debug, Default)]
pub(super) struct FieldWriter {
    count: usize,
    bytes: Vec<u8>,
}

impl FieldWriter {
    fn add(&mut self, tag: u16, value: &[u8]) {
        self.count += 1;
        put_number(tag.into(), &mut self.bytes);
        put_number(value.len(), &mut self.bytes);
        self.bytes.extend_from_slice(value);
    }

    /// Adds a field. Fields are added in the order of their tags.
    pub(super) fn field<C: FieldCodec>(
        &mut self,
        tag: u16,
        place: FieldPlace<'_>,
        value: &C::Value,
    ) -> Result<(), RecordError> {
        let mut bytes = Vec::new();
        C::encode(place, value, &mut bytes)?;
        self.add(tag, &bytes);
        Ok(())
    }

    fn finish(self, out: &mut Vec<u8>) {
        put_number(self.count, out);
        out.extend_from_slice(&self.bytes);
    }
}

/// Appends a list of fields.
pub(super) fn write_list<G: TaggedFields>(
    place: FieldPlace<'_>,
    record: &G::Record,
    out: &mut Vec<u8>,
) -> Result<(), RecordError> {
    let mut fields = FieldWriter::default();
    G::write(place, record, &mut fields)?;
    fields.finish(out);
    Ok(())
}

/// Reads a list of fields, and returns the bytes after it.
pub(super) fn read_list<'b, G: TaggedFields>(
    place: FieldPlace<'_>,
    bytes: &'b [u8],
) -> Result<(G::Record, &'b [u8]), RecordError> {
    let (fields, rest) = postcard::take_from_bytes::<FieldList<'b>>(bytes)
        .map_err(|_| place.malformed("its fields cannot be read"))?;
    if !fields.is_sorted_by(|one, next| one.0 < next.0) {
        return Err(place.malformed("its fields are not in the order of their tags"));
    }
    Ok((G::read(place, &fields)?, rest))
}

/// The first field of a list, if there is one.
pub(super) fn first_field(payload: &[u8]) -> Option<(u16, &[u8])> {
    let (count, rest) = postcard::take_from_bytes::<usize>(payload).ok()?;
    let first = postcard::take_from_bytes::<(u16, &[u8])>(rest);
    first.ok().filter(|_| count > 0).map(|(field, _)| field)
}

/// Reads the value of one field, which must end where its length says.
pub(super) fn read_field<C: FieldCodec>(
    place: FieldPlace<'_>,
    bytes: &[u8],
) -> Result<C::Value, RecordError> {
    match C::decode(place, bytes)? {
        (value, []) => Ok(value),
        _ => Err(place.malformed("bytes are left over after a field")),
    }
}

/// The payload of a record that is about to be written, with the fields added that the
/// payload on flash has and this program does not know.
///
/// The same is done for parts of a field (a job and its steps, an agent session). A part is
/// still the same one if it has the same index and the same value of tag 1. A part that was
/// replaced by another one takes its unknown fields along.
pub(super) fn carry_over(
    kind: RecordKind,
    table: &'static [FieldTag],
    earlier: &[u8],
    new: &[u8],
) -> Result<Vec<u8>, RecordError> {
    let list = |bytes| match postcard::take_from_bytes::<FieldList<'_>>(bytes) {
        Ok((fields, [])) => Ok(fields),
        _ => Err(kind.malformed("its fields cannot be read")),
    };
    let mut out = Vec::with_capacity(new.len());
    merge(kind, table, &list(earlier)?, &list(new)?)?.finish(&mut out);
    Ok(out)
}

fn merge(
    kind: RecordKind,
    table: &'static [FieldTag],
    earlier: &FieldList<'_>,
    new: &FieldList<'_>,
) -> Result<FieldWriter, RecordError> {
    let new = new.iter().map(|&(tag, value)| (tag, Cow::Borrowed(value)));
    let mut merged: BTreeMap<u16, Cow<'_, [u8]>> = new.collect();
    for &(tag, value) in earlier {
        match table.binary_search_by_key(&tag, |field| field.tag) {
            Err(_) => {
                merged.insert(tag, Cow::Borrowed(value));
            }
            Ok(index) => {
                if let (Some(parts), Some(new)) = (table[index].parts, merged.get_mut(&tag)) {
                    *new = Cow::Owned(merge_parts(kind, parts, value, new)?);
                }
            }
        }
    }
    let mut fields = FieldWriter::default();
    for (tag, value) in merged {
        fields.add(tag, &value);
    }
    Ok(fields)
}

/// An optional part and a list of parts have the same encoding: a number, then the parts.
fn merge_parts(
    kind: RecordKind,
    table: &'static [FieldTag],
    earlier: &[u8],
    new: &[u8],
) -> Result<Vec<u8>, RecordError> {
    let parts = |bytes| match postcard::take_from_bytes::<Vec<FieldList<'_>>>(bytes) {
        Ok((parts, [])) => Ok(parts),
        _ => Err(kind.malformed("the parts of a field cannot be read")),
    };
    let (earlier, new) = (parts(earlier)?, parts(new)?);
    let nothing = FieldList::new();
    let mut out = Vec::new();
    put_number(new.len(), &mut out);
    for (index, part) in new.iter().enumerate() {
        let same = earlier.get(index).filter(|earlier| {
            let identity = part.first().filter(|(tag, _)| *tag == PART_IDENTITY);
            identity.is_some() && identity == earlier.first()
        });
        merge(kind, table, same.unwrap_or(&nothing), part)?.finish(&mut out);
    }
    Ok(out)
}

/// Appends a number as postcard does: seven bits per byte, the lowest first.
pub(super) fn put_number(mut number: usize, out: &mut Vec<u8>) {
    while number > 0x7f {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Whether a field is left out. A function, so that a default has the type of its field.
pub(super) fn is_default<T: PartialEq>(value: &T, default: &T) -> bool {
    value == default
}

/// Whether the tags of a table ascend.
pub(super) const fn is_ascending(table: &[FieldTag]) -> bool {
    let mut index = 1;
    while index < table.len() {
        if table[index - 1].tag >= table[index].tag {
            return false;
        }
        index += 1;
    }
    true
}

/// Makes the reader and the writer of a record from a table. Each line is: tag, name on
/// flash, field of the record, codec, default. The name is part of what sealed values are
/// bound to and stays when the field of the record is renamed. A field without a default
/// is required.
macro_rules! tagged_fields {
    ($(#[$doc:meta])* $table:ident: $record:ident {
        $($tag:literal $name:literal $field:ident: $codec:ty $(= $default:expr)?;)+
    }) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub(super) struct $table;

        impl $crate::schema::tagged::TaggedFields for $table {
            type Record = $record;

            const FIELDS: &'static [$crate::schema::tagged::FieldTag] = &[$(
                $crate::schema::tagged::FieldTag::new::<$codec>(
                    $tag,
                    $name,
                    $crate::schema::tagged::tagged_fields!(@required $($default)?),
                ),
            )+];

            fn write(
                place: $crate::schema::codec::FieldPlace<'_>,
                record: &$record,
                out: &mut $crate::schema::tagged::FieldWriter,
            ) -> Result<(), $crate::error::RecordError> {
                // This does not compile if a field of the record has no line in the table.
                let $record { $($field),+ } = record;
                $(
                    if !$crate::schema::tagged::tagged_fields!(@left_out $field $($default)?) {
                        out.field::<$codec>($tag, place.named($name), $field)?;
                    }
                )+
                Ok(())
            }

            fn read(
                place: $crate::schema::codec::FieldPlace<'_>,
                fields: &$crate::schema::tagged::FieldList<'_>,
            ) -> Result<$record, $crate::error::RecordError> {
                $(let mut $field = None;)+
                for &(tag, bytes) in fields {
                    match tag {
                        $($tag => {
                            let place = place.named($name);
                            let value = $crate::schema::tagged::read_field::<$codec>(place, bytes);
                            $field = Some(value?);
                        })+
                        _ => {}
                    }
                }
                Ok($record {$(
                    $field: match $field {
                        Some(value) => value,
                        None => $crate::schema::tagged::tagged_fields!(@default place $($default)?),
                    },
                )+})
            }
        }

        const _: () = assert!($crate::schema::tagged::is_ascending(
            <$table as $crate::schema::tagged::TaggedFields>::FIELDS
        ));
    };
    (@required) => { true };
    (@required $default:expr) => { false };
    (@left_out $field:ident) => { false };
    (@left_out $field:ident $default:expr) => {
        $crate::schema::tagged::is_default($field, &$default)
    };
    (@default $place:ident) => {
        return Err($place.malformed("a required field is missing"))
    };
    (@default $place:ident $default:expr) => { $default };
}

pub(super) use tagged_fields;

#[cfg(test)]
mod tests;
