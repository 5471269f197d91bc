//! Field tables: the fields of a record, the version of each, and whether it can be written. One
//! row per field defines responses, `fields=`, sorting and bodies.

use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::Value;
use trivet_model::UnixMs;
use trivet_model::node::JsonObject;
use trivet_model::secret::MASK;

use crate::table::call::ApiCall;
use crate::table::error::ApiFault;
use crate::table::query::truth;

/// Longest short text in Ironic, such as a name, in characters.
pub(crate) const TEXT_CHARS_MAX: usize = 255;

/// Longest description in characters, as in Ironic.
pub(crate) const DESCRIPTION_CHARS_MAX: usize = 4096;

/// How much of a refused value an error repeats. Ours.
const QUOTED_CHARS_MAX: usize = 80;

/// The type of a value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ValueShape {
    Text,
    LongText,
    /// True or false, also as a word.
    Flag,
    /// True or false, not as a word.
    Boolean,
    Uuid,
    Number,
    /// A whole number, never as text.
    Integer,
    Object,
    List,
    Links,
    /// One of these words.
    Word(&'static [&'static str]),
    Any,
}

/// When a field can be written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum FieldWrite {
    Never,
    AtCreation,
    InPatch,
    Always,
}

/// The properties of one field that do not depend on the record type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    pub(crate) name: &'static str,
    pub(crate) since: u16,
    pub(crate) shape: ValueShape,
    pub(crate) write: FieldWrite,
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
    pub(crate) shape: ValueShape,
    pub(crate) write: FieldWrite,
    /// Returns the value; for links only the path, from which the pair is built.
    show: fn(&R, &ApiCall<'_>, &'static str) -> Value,
}

/// A row of a table.
pub(crate) const fn field<R>(
    name: &'static str,
    since: u16,
    shape: ValueShape,
    write: FieldWrite,
    show: fn(&R, &ApiCall<'_>, &'static str) -> Value,
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
    pub(crate) fn show(&self, record: &R, call: &ApiCall<'_>) -> Value {
        match (self.shape, (self.show)(record, call, self.name)) {
            (ValueShape::Links, Value::String(path)) => call.links(&path),
            (_, value) => value,
        }
    }

    pub(crate) fn at_creation(&self) -> bool {
        matches!(self.write, FieldWrite::AtCreation | FieldWrite::Always)
    }

    pub(crate) fn in_patch(&self) -> bool {
        matches!(self.write, FieldWrite::InPatch | FieldWrite::Always)
    }

    pub(crate) fn sortable(&self) -> bool {
        !matches!(
            self.shape,
            ValueShape::Object | ValueShape::List | ValueShape::Links
        )
    }
}

/// The row with this name, if the request's version has it.
pub(crate) fn named<R>(
    table: &'static [Field<R>],
    name: &str,
    call: &ApiCall<'_>,
) -> Result<&'static Field<R>, ApiFault> {
    let field = table
        .iter()
        .find(|field| field.name == name)
        .ok_or_else(|| unknown_field(table, name, call))?;
    // Ironic compares no version when these two of a portgroup are read.
    let unversioned = call.word(1) == "portgroups"
        && call.method == "GET"
        && ["category", "physical_network"].contains(&name);
    // That a field cannot be patched is said before that it is of a later version.
    let refused_anyway = call.method == "PATCH" && !field.in_patch();
    if call.has(field.since) || unversioned || refused_anyway {
        Ok(field)
    } else {
        Err(ApiFault::too_new(name, field.since))
    }
}

/// The error for a name that is not a field: Ironic's words, with the fields that there are.
fn unknown_field<R>(table: &'static [Field<R>], name: &str, call: &ApiCall<'_>) -> ApiFault {
    let known = available_fields(table, call);
    let known: Vec<String> = known
        .iter()
        .map(|field| format!("'{}'", field.name))
        .collect();
    ApiFault::bad(format!(
        "Schema error: {} is not one of [{}]: there is no such field.",
        quoted(&Value::from(name)),
        known.join(", ")
    ))
}

/// The error for a patch of a field that cannot be patched.
pub(crate) fn not_in_patch<R>(
    table: &'static [Field<R>],
    root: &str,
    call: &ApiCall<'_>,
) -> ApiFault {
    let names: Vec<&str> = available_fields(table, call)
        .into_iter()
        .filter(|row| row.in_patch())
        .map(|row| row.name)
        .collect();
    ApiFault::bad(format!(
        "Cannot patch /{}. Only the following can be updated: {}",
        root.escape_debug(),
        names.join(", ")
    ))
}

/// A record with these fields, for a response. Each value is built during serialization, so that a
/// long list needs memory for its bytes only, not for a tree of values.
pub(crate) struct RenderedRecord<'s, 'c, R: 'static> {
    pub(crate) fields: &'s [&'static Field<R>],
    pub(crate) record: &'s R,
    pub(crate) call: &'s ApiCall<'c>,
}

impl<R> Serialize for RenderedRecord<'_, '_, R> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        let mut map = out.serialize_map(Some(self.fields.len()))?;
        for field in self.fields {
            match (
                field.shape,
                (field.show)(self.record, self.call, field.name),
            ) {
                (ValueShape::Links, Value::String(path)) => {
                    map.serialize_entry(field.name, &self.call.record_links(&path))?;
                }
                (_, value) => map.serialize_entry(field.name, &value)?,
            }
        }
        map.end()
    }
}

/// The record with these fields, as a value.
pub(crate) fn render<R>(
    fields: &[&'static Field<R>],
    record: &R,
    call: &ApiCall<'_>,
) -> JsonObject {
    fields
        .iter()
        .map(|field| (field.name.to_owned(), field.show(record, call)))
        .collect()
}

/// Every field of the request's version.
pub(crate) fn available_fields<R>(
    table: &'static [Field<R>],
    call: &ApiCall<'_>,
) -> Vec<&'static Field<R>> {
    table.iter().filter(|field| call.has(field.since)).collect()
}

/// A value as Ironic's errors show it, of bounded length.
pub(crate) fn quoted(value: &Value) -> String {
    let text = match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::String(text) => format!("'{}'", text.escape_debug()),
        // What is in them may be secret.
        Value::Array(_) => "[...]".to_owned(),
        Value::Object(_) => "{...}".to_owned(),
        Value::Number(number) => number.to_string(),
    };
    match text.char_indices().nth(QUOTED_CHARS_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

/// The same where an object or a list is wanted: a text in its place may be a secret.
pub(crate) fn masked(value: &Value) -> String {
    match value {
        Value::String(_) => format!("'{MASK}'"),
        value => quoted(value),
    }
}

/// Words as Ironic's errors list them.
pub(crate) fn quoted_words(words: &[&str]) -> String {
    format!("['{}']", words.join("', '"))
}

/// The error for a value of the wrong type: Ironic's words, then what is wanted.
fn wrong_type(name: &str, value: &Value, ironic: &str, want: &str) -> ApiFault {
    let holds_others = ironic.starts_with("'object'") || ironic.starts_with("'array'");
    let shown = if holds_others {
        masked(value)
    } else {
        quoted(value)
    };
    ApiFault::bad(format!(
        "Schema error: {shown} is not of type {ironic}: {name} must be {want}."
    ))
}

/// The error for a text that is not a UUID.
pub(crate) fn expected_uuid(name: &str, text: &str) -> ApiFault {
    ApiFault::bad(format!("Expected UUID for {name}: {}", text.escape_debug()))
}

/// Converts a written value to its stored form; null passes.
pub(crate) fn read(name: &str, shape: ValueShape, value: Value) -> Result<Value, ApiFault> {
    let wrong = |value: &Value, ironic, want: &str| Err(wrong_type(name, value, ironic, want));
    match (shape, value) {
        (_, Value::Null) => Ok(Value::Null),
        (ValueShape::Text, Value::String(text)) => bounded(name, text, TEXT_CHARS_MAX),
        (ValueShape::LongText, Value::String(text)) => bounded(name, text, DESCRIPTION_CHARS_MAX),
        (ValueShape::Uuid, Value::String(text)) => match text.parse::<trivet_model::NodeId>() {
            Ok(id) => Ok(Value::String(id.to_string())),
            Err(_) => Err(expected_uuid(name, &text)),
        },
        (ValueShape::Flag | ValueShape::Boolean, Value::Bool(flag)) => Ok(Value::Bool(flag)),
        // The command-line client sends the operator's word for some flags.
        (ValueShape::Flag, Value::String(text)) => match truth(&text) {
            Some(flag) => Ok(Value::Bool(flag)),
            None => Err(ApiFault::bad(format!(
                "Invalid {name}: Unrecognized value '{}'; use true or false.",
                text.escape_debug()
            ))),
        },
        (ValueShape::Object, Value::Object(object)) => Ok(Value::Object(object)),
        (ValueShape::List, Value::Array(items)) => Ok(Value::Array(items)),
        (ValueShape::Number | ValueShape::Integer, Value::Number(number)) => {
            Ok(Value::Number(number))
        }
        // The command-line client sends numbers as the operator typed them.
        (ValueShape::Number, Value::String(text)) => match text.trim().parse::<i64>() {
            Ok(number) => Ok(Value::from(number)),
            Err(_) => wrong(&Value::String(text), "'integer'", "a number"),
        },
        (ValueShape::Word(words), Value::String(text)) if words.contains(&text.as_str()) => {
            Ok(Value::String(text))
        }
        (ValueShape::Any, value) => Ok(value),
        (ValueShape::Word(words), value) => Err(ApiFault::bad(format!(
            "Schema error: {} is not one of {}: {name} must be one of these.",
            quoted(&value),
            quoted_words(words)
        ))),
        (ValueShape::Text | ValueShape::LongText, value) => {
            let want = match name {
                "name" => "a string: it is an invalid name",
                _ => "a string",
            };
            wrong(&value, "'string', 'null'", want)
        }
        (ValueShape::Uuid, value) => wrong(&value, "'string', 'null'", "a UUID"),
        (ValueShape::Flag, value) => wrong(&value, "'string', 'boolean', 'null'", "true or false"),
        (ValueShape::Boolean, value) => wrong(&value, "'boolean', 'null'", "true or false"),
        (ValueShape::Object, value) => wrong(&value, "'object', 'null'", "an object"),
        (ValueShape::List, value) => wrong(&value, "'array', 'null'", "a list"),
        (ValueShape::Number | ValueShape::Integer, value) => wrong(&value, "'integer'", "a number"),
        (ValueShape::Links, value) => wrong(&value, "'null'", "left to the server"),
    }
}

fn bounded(name: &str, text: String, limit: usize) -> Result<Value, ApiFault> {
    if is_longer(&text, limit) {
        return Err(too_long(name, &text, limit));
    }
    Ok(Value::String(text))
}

/// Whether a text has more characters than this. Ironic counts characters, not bytes.
pub(crate) fn is_longer(text: &str, limit: usize) -> bool {
    text.chars().nth(limit).is_some()
}

/// The error for a text that is too long.
pub(crate) fn too_long(name: &str, text: &str, limit: usize) -> ApiFault {
    let what = if name == "name" { "invalid name" } else { name };
    ApiFault::bad(format!(
        "Schema error: {} is too long: {what}: {name} must be at most {limit} characters long.",
        quoted(&Value::from(text))
    ))
}

/// A timestamp, or null.
pub(crate) fn timestamp(at: Option<UnixMs>) -> Value {
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
        assert_eq!(
            read("f", ValueShape::Flag, json!("True")).unwrap(),
            json!(true)
        );
        assert_eq!(
            read("f", ValueShape::Flag, json!(false)).unwrap(),
            json!(false)
        );
        assert!(read("f", ValueShape::Flag, json!("perhaps")).is_err());
        assert!(read("f", ValueShape::Flag, json!(1)).is_err());
    }

    #[test]
    fn texts_are_bounded() {
        let long = "x".repeat(TEXT_CHARS_MAX);
        assert!(read("t", ValueShape::Text, json!(long)).is_ok());
        assert!(read("t", ValueShape::Text, json!(long.clone() + "x")).is_err());
        let wide = "\u{e9}".repeat(TEXT_CHARS_MAX);
        assert!(read("t", ValueShape::Text, json!(wide.clone())).is_ok());
        assert!(read("t", ValueShape::Text, json!(wide + "\u{e9}")).is_err());
        let longer = "x".repeat(DESCRIPTION_CHARS_MAX);
        assert!(read("t", ValueShape::LongText, json!(longer)).is_ok());
        assert!(read("t", ValueShape::LongText, json!(longer.clone() + "x")).is_err());
    }

    #[test]
    fn a_uuid_is_kept_in_its_usual_form() {
        let plain = json!("00000000000040008000000000000001");
        assert_eq!(
            read("u", ValueShape::Uuid, plain).unwrap(),
            json!("00000000-0000-4000-8000-000000000001")
        );
        assert!(read("u", ValueShape::Uuid, json!("x")).is_err());
    }

    #[test]
    fn each_shape_refuses_the_others() {
        for shape in [
            ValueShape::Text,
            ValueShape::Uuid,
            ValueShape::Flag,
            ValueShape::Object,
            ValueShape::Number,
            ValueShape::Integer,
            ValueShape::Word(&["a"]),
            ValueShape::Links,
        ] {
            assert!(read("f", shape, json!([1])).is_err(), "{shape:?}");
            assert_eq!(read("f", shape, Value::Null).unwrap(), Value::Null);
        }
    }
}
