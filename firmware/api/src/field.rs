//! Field tables: what a record shows, since which version, and what may be
//! written. One row per field drives answers, `fields=`, sorting and bodies.

use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::Value;
use trivet_model::UnixMs;
use trivet_model::node::Object;

use crate::call::Call;
use crate::error::Fault;
use crate::query::truth;

/// Longest short text of Ironic's, such as a name.
pub(crate) const TEXT_BYTES_MAX: usize = 255;

/// Longest description, as in Ironic.
pub(crate) const DESCRIPTION_BYTES_MAX: usize = 4096;

/// What a value looks like.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Shape {
    Text,
    LongText,
    Flag,
    Uuid,
    Number,
    Object,
    List,
    Links,
    /// One of these words.
    Word(&'static [&'static str]),
    Any,
}

/// When a field may be written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Write {
    Never,
    AtCreation,
    InPatch,
    Always,
}

/// What a table says of one field, whatever the record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    pub(crate) name: &'static str,
    pub(crate) since: u16,
    pub(crate) shape: Shape,
    pub(crate) write: Write,
}

/// The columns of a table.
pub(crate) fn columns<R>(table: &'static [Field<R>]) -> Vec<Column> {
    table
        .iter()
        .map(|field| Column {
            name: field.name,
            since: field.since,
            shape: field.shape,
            write: field.write,
        })
        .collect()
}

/// One field of a record of kind `R`.
pub(crate) struct Field<R> {
    pub(crate) name: &'static str,
    pub(crate) since: u16,
    pub(crate) shape: Shape,
    pub(crate) write: Write,
    /// What it shows; of links only the path, which stands for the pair of them.
    show: fn(&R, &Call<'_>, &'static str) -> Value,
}

/// A row of a table.
pub(crate) const fn field<R>(
    name: &'static str,
    since: u16,
    shape: Shape,
    write: Write,
    show: fn(&R, &Call<'_>, &'static str) -> Value,
) -> Field<R> {
    Field {
        name,
        since,
        shape,
        write,
        show,
    }
}

impl<R> Field<R> {
    pub(crate) fn show(&self, record: &R, call: &Call<'_>) -> Value {
        match (self.shape, (self.show)(record, call, self.name)) {
            (Shape::Links, Value::String(path)) => call.links(&path),
            (_, value) => value,
        }
    }

    pub(crate) fn at_creation(&self) -> bool {
        matches!(self.write, Write::AtCreation | Write::Always)
    }

    pub(crate) fn in_patch(&self) -> bool {
        matches!(self.write, Write::InPatch | Write::Always)
    }

    pub(crate) fn sortable(&self) -> bool {
        !matches!(self.shape, Shape::Object | Shape::List | Shape::Links)
    }
}

/// The row of this name, if the request's version has it.
pub(crate) fn named<R>(
    table: &'static [Field<R>],
    name: &str,
    call: &Call<'_>,
) -> Result<&'static Field<R>, Fault> {
    let field = table
        .iter()
        .find(|field| field.name == name)
        .ok_or_else(|| Fault::bad(format!("Field \"{}\" is not known.", name.escape_debug())))?;
    if call.has(field.since) {
        Ok(field)
    } else {
        Err(Fault::too_new(name, field.since))
    }
}

/// A record with these fields, for an answer. Each value is made when it is written,
/// so that a long list costs its bytes and no tree of values beside them.
pub(crate) struct Shown<'s, 'c, R: 'static> {
    pub(crate) fields: &'s [&'static Field<R>],
    pub(crate) record: &'s R,
    pub(crate) call: &'s Call<'c>,
}

impl<R> Serialize for Shown<'_, '_, R> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        let mut map = out.serialize_map(Some(self.fields.len()))?;
        for field in self.fields {
            match (
                field.shape,
                (field.show)(self.record, self.call, field.name),
            ) {
                (Shape::Links, Value::String(path)) => {
                    map.serialize_entry(field.name, &self.call.pair(&path))?;
                }
                (_, value) => map.serialize_entry(field.name, &value)?,
            }
        }
        map.end()
    }
}

/// The record with these fields, as a value.
pub(crate) fn render<R>(fields: &[&'static Field<R>], record: &R, call: &Call<'_>) -> Object {
    fields
        .iter()
        .map(|field| (field.name.to_owned(), field.show(record, call)))
        .collect()
}

/// Every field the request's version has.
pub(crate) fn every<R>(table: &'static [Field<R>], call: &Call<'_>) -> Vec<&'static Field<R>> {
    table.iter().filter(|field| call.has(field.since)).collect()
}

/// Takes a value that was written, in the form we keep; null passes.
pub(crate) fn read(name: &str, shape: Shape, value: Value) -> Result<Value, Fault> {
    let bad = |want: &str| Err(Fault::bad(format!("{name} must be {want}.")));
    match (shape, value) {
        (_, Value::Null) => Ok(Value::Null),
        (Shape::Text | Shape::LongText, Value::String(text)) => {
            let limit = match shape {
                Shape::LongText => DESCRIPTION_BYTES_MAX,
                _ => TEXT_BYTES_MAX,
            };
            if text.len() > limit {
                return bad(&format!("at most {limit} bytes long"));
            }
            Ok(Value::String(text))
        }
        (Shape::Uuid, Value::String(text)) => match text.parse::<trivet_model::NodeId>() {
            Ok(id) => Ok(Value::String(id.to_string())),
            Err(_) => bad("a UUID"),
        },
        (Shape::Flag, Value::Bool(flag)) => Ok(Value::Bool(flag)),
        // The command-line client sends the operator's word for some flags.
        (Shape::Flag, Value::String(text)) => match truth(&text) {
            Some(flag) => Ok(Value::Bool(flag)),
            None => bad("true or false"),
        },
        (Shape::Object, Value::Object(object)) => Ok(Value::Object(object)),
        (Shape::List, Value::Array(items)) => Ok(Value::Array(items)),
        (Shape::Number, Value::Number(number)) => Ok(Value::Number(number)),
        // The command-line client sends numbers as the operator typed them.
        (Shape::Number, Value::String(text)) => match text.trim().parse::<i64>() {
            Ok(number) => Ok(Value::from(number)),
            Err(_) => bad("a number"),
        },
        (Shape::Word(words), Value::String(text)) if words.contains(&text.as_str()) => {
            Ok(Value::String(text))
        }
        (Shape::Any, value) => Ok(value),
        (Shape::Text | Shape::LongText, _) => bad("a string"),
        (Shape::Uuid, _) => bad("a UUID"),
        (Shape::Flag, _) => bad("true or false"),
        (Shape::Object, _) => bad("an object"),
        (Shape::List, _) => bad("a list"),
        (Shape::Number, _) => bad("a number"),
        (Shape::Word(words), _) => bad(&format!("one of {}", words.join(", "))),
        (Shape::Links, _) => bad("left to the server"),
    }
}

/// A moment, or null.
pub(crate) fn moment(at: Option<UnixMs>) -> Value {
    at.map_or(Value::Null, |at| Value::String(at.to_string()))
}

/// A text, or null.
pub(crate) fn text(text: Option<&str>) -> Value {
    text.map_or(Value::Null, Value::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn flags_come_as_words_too() {
        assert_eq!(read("f", Shape::Flag, json!("True")).unwrap(), json!(true));
        assert_eq!(read("f", Shape::Flag, json!(false)).unwrap(), json!(false));
        assert!(read("f", Shape::Flag, json!("perhaps")).is_err());
        assert!(read("f", Shape::Flag, json!(1)).is_err());
    }

    #[test]
    fn texts_are_bounded() {
        let long = "x".repeat(TEXT_BYTES_MAX);
        assert!(read("t", Shape::Text, json!(long)).is_ok());
        assert!(read("t", Shape::Text, json!(long.clone() + "x")).is_err());
        let longer = "x".repeat(DESCRIPTION_BYTES_MAX);
        assert!(read("t", Shape::LongText, json!(longer)).is_ok());
        assert!(read("t", Shape::LongText, json!(longer.clone() + "x")).is_err());
    }

    #[test]
    fn a_uuid_is_kept_in_its_usual_form() {
        let plain = json!("00000000000040008000000000000001");
        assert_eq!(
            read("u", Shape::Uuid, plain).unwrap(),
            json!("00000000-0000-4000-8000-000000000001")
        );
        assert!(read("u", Shape::Uuid, json!("x")).is_err());
    }

    #[test]
    fn each_shape_refuses_the_others() {
        for shape in [
            Shape::Text,
            Shape::Uuid,
            Shape::Flag,
            Shape::Object,
            Shape::Number,
            Shape::Word(&["a"]),
            Shape::Links,
        ] {
            assert!(read("f", shape, json!([1])).is_err(), "{shape:?}");
            assert_eq!(read("f", shape, Value::Null).unwrap(), Value::Null);
        }
    }
}
