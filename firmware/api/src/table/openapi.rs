//! The `OpenAPI` 3.1 description of this API, generated from the route table.
//!
//! It describes the newest version; `x-since` is the microversion that introduced a path, an
//! argument or a field. Nothing is written here twice: the tables of a row define what its handler
//! reads and shows.

use serde_json::{Map, Value, json};

use crate::table::access::Access;
use crate::table::field::{Column, DESCRIPTION_CHARS_MAX, FieldWrite, TEXT_CHARS_MAX, ValueShape};
use crate::table::route::{ApiArg, ApiRoute, BodySchema, ResponseSchema};
use crate::{VERSION_MAX, VERSION_MIN, Version};

/// The whole description of these rows.
pub(crate) fn document(rows: impl Iterator<Item = &'static ApiRoute>) -> Value {
    let mut paths = Map::new();
    let mut schemas = Map::new();
    schemas.insert("Links".to_owned(), links());
    schemas.insert("Refusal".to_owned(), refusal());
    for row in rows {
        let path = paths.entry(path(row)).or_insert_with(|| json!({}));
        path[row.method.to_ascii_lowercase()] = operation(row, &mut schemas);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Trivet: OpenStack Ironic's API of a box on top of the rack",
            "version": VERSION_MAX.to_string(),
            "description": format!(
                "Microversions {VERSION_MIN} to {VERSION_MAX}; this describes the newest. \
                 `x-since` is the microversion that introduced an element; it does not exist in \
                 older requests and responses."
            ),
            "license": {"name": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"basic": []}, {"bearer": []}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "parameters": {"version": version_header()},
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic"},
                "bearer": {"type": "http", "scheme": "bearer"},
            },
        },
    })
}

fn path(row: &ApiRoute) -> String {
    format!("/{}", row.path.join("/"))
}

/// The name of the record of a row: the last segment of its path that names a collection.
fn subject(row: &ApiRoute) -> &'static str {
    let named = |word: &&&str| !word.starts_with('{') && **word != "detail";
    row.path.iter().rev().find(named).copied().unwrap_or("root")
}

fn operation(row: &ApiRoute, schemas: &mut Map<String, Value>) -> Value {
    let mut operation = json!({
        "operationId": operation_id(row),
        "summary": row.summary,
        "tags": [row.path.get(1).copied().unwrap_or("root")],
        "x-since": Version(row.since).to_string(),
        "x-access": format!("{:?}", row.access).to_lowercase(),
        "parameters": parameters(row),
        "responses": responses(row, schemas),
    });
    if let Some(body) = body(row, schemas) {
        operation["requestBody"] = body;
    }
    if row.access <= Access::Agent {
        operation["security"] = json!([]);
    }
    operation
}

pub(crate) fn operation_id(row: &ApiRoute) -> String {
    let words = row.path.iter().map(|word| {
        let word = word.trim_matches(['{', '}']);
        word.replace('.', "_")
    });
    let words: Vec<String> = words.collect();
    format!("{}_{}", row.method.to_ascii_lowercase(), words.join("_"))
}

fn parameters(row: &ApiRoute) -> Vec<Value> {
    let words = row.path.iter().filter_map(|word| {
        let name = word.strip_prefix('{')?.strip_suffix('}')?;
        Some(json!({
            "name": name, "in": "path", "required": true,
            "schema": {"type": "string", "minLength": 1},
        }))
    });
    let query_args = row
        .query_args
        .iter()
        .flat_map(|group| group.iter())
        .map(|arg| {
            json!({
                "name": arg.name, "in": "query", "required": arg.required,
                "schema": query_schema(arg.shape),
                "x-since": Version(arg.since).to_string(),
            })
        });
    let version = json!({"$ref": "#/components/parameters/version"});
    words.chain(query_args).chain([version]).collect()
}

/// A query argument: always text on the wire.
fn query_schema(shape: ValueShape) -> Value {
    match shape {
        ValueShape::Flag | ValueShape::Boolean => json!({"type": "boolean"}),
        ValueShape::Number | ValueShape::Integer => json!({"type": "integer", "minimum": 1}),
        ValueShape::Uuid => json!({"type": "string", "format": "uuid"}),
        ValueShape::Word(words) => json!({"type": "string", "enum": words}),
        _ => json!({"type": "string"}),
    }
}

fn body(row: &ApiRoute, schemas: &mut Map<String, Value>) -> Option<Value> {
    let schema = match row.body {
        BodySchema::Nothing => return None,
        BodySchema::Bytes => {
            let content = json!({"application/octet-stream": {}});
            return Some(json!({"required": true, "content": content}));
        }
        BodySchema::Any => json!({}),
        BodySchema::Args(args) => arguments(args),
        BodySchema::Record(columns) => {
            let name = format!("{}_new", subject(row));
            schemas.insert(name.clone(), new_record(&columns(), row.needs));
            reference(&name)
        }
        BodySchema::Patch(columns) => {
            let name = format!("{}_patch", subject(row));
            schemas.insert(name.clone(), patch(&columns()));
            reference(&name)
        }
    };
    let needed = match row.body {
        BodySchema::Args(args) => args.iter().any(|arg| arg.required),
        BodySchema::Any => false,
        _ => true,
    };
    Some(json!({
        "required": needed,
        "content": {"application/json": {"schema": schema}},
    }))
}

fn responses(row: &ApiRoute, schemas: &mut Map<String, Value>) -> Value {
    let refused = json!({
        "description": "Refused; the body has the reason",
        "content": {"application/json": {"schema": reference("Refusal")}},
    });
    let (status, schema) = match row.response {
        ResponseSchema::Empty(status) => (status, None),
        ResponseSchema::Any(status) => (status, Some(json!({}))),
        ResponseSchema::Record(status, columns) => (status, Some(record(row, &columns(), schemas))),
        ResponseSchema::List(key, columns) => {
            let record = record(row, &columns(), schemas);
            let list = json!({
                "type": "object",
                "required": [key],
                "properties": {
                    key: {"type": "array", "items": record},
                    "next": {"type": "string", "description": "The next page"},
                },
            });
            (200, Some(list))
        }
        ResponseSchema::Media(media) => {
            let done = json!({"description": "Done", "content": {media: {}}});
            return json!({"200": done, "default": refused});
        }
    };
    let done = match schema {
        None => json!({"description": "Done"}),
        Some(schema) => json!({
            "description": "Done",
            "content": {"application/json": {"schema": schema}},
        }),
    };
    json!({ status.to_string(): done, "default": refused })
}

fn record(row: &ApiRoute, columns: &[Column], schemas: &mut Map<String, Value>) -> Value {
    let name = subject(row);
    let properties: Map<String, Value> = columns
        .iter()
        .map(|column| {
            (
                column.name.to_owned(),
                dated(output_schema(column.shape), column.since),
            )
        })
        .collect();
    let schema = json!({"type": "object", "properties": properties});
    schemas.insert(name.to_owned(), schema);
    reference(name)
}

fn new_record(columns: &[Column], needs: &[&str]) -> Value {
    let properties: Map<String, Value> = columns
        .iter()
        .filter(|column| matches!(column.write, FieldWrite::AtCreation | FieldWrite::Always))
        .map(|column| {
            (
                column.name.to_owned(),
                dated(input_schema(column.shape), column.since),
            )
        })
        .collect();
    json!({
        "type": "object", "required": needs, "additionalProperties": false,
        "properties": properties,
    })
}

fn patch(columns: &[Column]) -> Value {
    let roots: Vec<&str> = columns
        .iter()
        .filter(|column| matches!(column.write, FieldWrite::InPatch | FieldWrite::Always))
        .map(|column| column.name)
        .collect();
    json!({
        "type": "array",
        "items": {
            "type": "object",
            "required": ["op", "path"],
            "properties": {
                "op": {"enum": ["add", "replace", "remove"]},
                "path": {"type": "string", "pattern": format!("^/({})(/.+)?$", roots.join("|"))},
                "value": {},
            },
        },
    })
}

fn arguments(args: &[ApiArg]) -> Value {
    let required: Vec<&str> = args
        .iter()
        .filter(|arg| arg.required)
        .map(|arg| arg.name)
        .collect();
    let properties: Map<String, Value> = args
        .iter()
        .map(|arg| {
            (
                arg.name.to_owned(),
                dated(input_schema(arg.shape), arg.since),
            )
        })
        .collect();
    json!({
        "type": "object", "required": required, "additionalProperties": false,
        "properties": properties,
    })
}

fn dated(mut schema: Value, since: u16) -> Value {
    schema["x-since"] = Value::from(Version(since).to_string());
    schema
}

/// A value of a request; null counts as absent.
fn input_schema(shape: ValueShape) -> Value {
    match shape {
        ValueShape::Text => json!({"type": ["string", "null"], "maxLength": TEXT_CHARS_MAX}),
        ValueShape::LongText => {
            json!({"type": ["string", "null"], "maxLength": DESCRIPTION_CHARS_MAX})
        }
        ValueShape::Flag | ValueShape::Boolean => json!({"type": ["boolean", "null"]}),
        ValueShape::Uuid => json!({"type": ["string", "null"], "format": "uuid"}),
        ValueShape::Number | ValueShape::Integer => json!({"type": ["integer", "null"]}),
        ValueShape::Object => json!({"type": ["object", "null"]}),
        ValueShape::List => json!({"type": ["array", "null"]}),
        ValueShape::Word(words) => json!({"type": "string", "enum": words}),
        ValueShape::Links => reference("Links"),
        ValueShape::Any => json!({}),
    }
}

/// A value of a response. Texts of the box, such as an error, can be longer than what a client can
/// write.
fn output_schema(shape: ValueShape) -> Value {
    match shape {
        ValueShape::Text | ValueShape::LongText | ValueShape::Word(_) => {
            json!({"type": ["string", "null"]})
        }
        other => input_schema(other),
    }
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

fn links() -> Value {
    json!({
        "type": "array",
        "items": {
            "type": "object",
            "required": ["href", "rel"],
            "properties": {"href": {"type": "string"}, "rel": {"type": "string"}},
        },
    })
}

/// JSON inside a string, as in Ironic.
fn refusal() -> Value {
    json!({
        "type": "object",
        "properties": {
            "error_message": {
                "type": "string",
                "description": "A JSON document: faultcode, faultstring, debuginfo; or code, \
                                title, description.",
            },
        },
    })
}

fn version_header() -> Value {
    json!({
        "name": "X-OpenStack-Ironic-API-Version",
        "in": "header",
        "required": false,
        "schema": {"type": "string", "pattern": "^(latest|1\\.[0-9]{1,3})$"},
        "description": format!("The requested microversion; {VERSION_MIN} by default."),
    })
}
