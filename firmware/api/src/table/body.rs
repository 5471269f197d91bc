//! Request bodies: parsed once, bounded in size and depth.

use serde_json::Value;
use trivet_model::node::JsonObject;

use crate::table::call::ApiCall;
use crate::table::error::ApiFault;
use crate::table::field;
use crate::table::route::ApiArg;

/// Deepest nesting in a record. Ours, below the 128 levels at which the JSON parser stops, so that
/// a stored record can always be read again.
pub(crate) const DEPTH_MAX: usize = 64;

/// Most digits of a number in an error.
const DIGITS_SHOWN_MAX: usize = 40;

/// The body as any JSON; `None` if it is empty.
pub(crate) fn value(call: &ApiCall<'_>) -> Result<Option<Value>, ApiFault> {
    if call.body.iter().all(u8::is_ascii_whitespace) {
        return Ok(None);
    }
    // What agents send is not the operator's record, and must not fail for a number in it.
    if ["heartbeat", "continue_inspection", "continue"].contains(&call.word(1)) {
        return any(call.body).map(Some);
    }
    parsed(call.body).map(Some)
}

fn any(body: &[u8]) -> Result<Value, ApiFault> {
    serde_json::from_slice(body)
        .map_err(|error| ApiFault::bad(format!("Malformed JSON in the body: {error}")))
}

/// The body as JSON. Integers that the parser would round are refused: what is stored must be what
/// was sent.
pub(crate) fn parsed(body: &[u8]) -> Result<Value, ApiFault> {
    let value = any(body)?;
    match rounded_integer(body) {
        None => Ok(value),
        Some(digits) => Err(ApiFault::bad(format!(
            "The integer {digits} is out of range: an integer is at least -2^63 and below 2^64. \
             Send it as a string."
        ))),
    }
}

/// The first digits of an integer in valid JSON that has more than 64 bits.
fn rounded_integer(json: &[u8]) -> Option<String> {
    let mut rest = json;
    while let Some((first, after)) = rest.split_first() {
        rest = match first {
            b'"' => after_text(after),
            b'-' | b'0'..=b'9' => {
                let of_number = |byte: &u8| b"+-.eE0123456789".contains(byte);
                let length = rest.iter().take_while(|byte| of_number(byte)).count();
                let (number, after) = rest.split_at(length);
                let text = core::str::from_utf8(number).unwrap_or_default();
                let whole = !text.contains(['.', 'e', 'E']);
                if whole && text.parse::<u64>().is_err() && text.parse::<i64>().is_err() {
                    return Some(text.chars().take(DIGITS_SHOWN_MAX).collect());
                }
                after
            }
            _ => after,
        };
    }
    None
}

/// What follows the text that has begun.
fn after_text(json: &[u8]) -> &[u8] {
    let mut escaped = false;
    let end = json.iter().position(|byte| match byte {
        _ if escaped => {
            escaped = false;
            false
        }
        b'\\' => {
            escaped = true;
            false
        }
        byte => *byte == b'"',
    });
    end.map_or(&[], |end| &json[end + 1..])
}

/// The body as an object. No body at all is an empty one in Ironic's API, so that the error names
/// what is missing.
pub(crate) fn object(call: &ApiCall<'_>) -> Result<JsonObject, ApiFault> {
    match value(call)? {
        None if call.word(0) == "v1" => Ok(JsonObject::new()),
        Some(Value::Object(object)) => Ok(object),
        other => Err(not_an_object(&other.unwrap_or_default())),
    }
}

fn not_an_object(value: &Value) -> ApiFault {
    ApiFault::bad(format!(
        "Schema error: {} is not of type 'object': The body must be a JSON object.",
        field::masked(value)
    ))
}

/// The body as an object; empty if there is no body.
pub(crate) fn object_or_empty(call: &ApiCall<'_>) -> Result<JsonObject, ApiFault> {
    match value(call)? {
        None | Some(Value::Null) => Ok(JsonObject::new()),
        Some(Value::Object(object)) => Ok(object),
        Some(other) => Err(not_an_object(&other)),
    }
}

/// Refuses every key that is not among these.
pub(crate) fn only(object: &JsonObject, known: &[&str]) -> Result<(), ApiFault> {
    let strange: Vec<&str> = object
        .keys()
        .map(String::as_str)
        .filter(|key| !known.contains(key))
        .collect();
    if strange.is_empty() {
        return Ok(());
    }
    Err(ApiFault::bad(format!(
        "Unexpected arguments: {}",
        strange.join(", ").escape_debug()
    )))
}

/// The body as an object with only these keys, each of its shape. Null counts as absent.
pub(crate) fn args(call: &ApiCall<'_>, args: &[ApiArg]) -> Result<JsonObject, ApiFault> {
    let object = args_of_any_version(call, args)?;
    match args
        .iter()
        .find(|arg| object.contains_key(arg.name) && !call.has(arg.since))
    {
        Some(arg) => Err(ApiFault::too_new(arg.name, arg.since)),
        None => Ok(object),
    }
}

/// The same, where the handler compares the versions.
pub(crate) fn args_of_any_version(
    call: &ApiCall<'_>,
    args: &[ApiArg],
) -> Result<JsonObject, ApiFault> {
    let mut object = object_or_empty(call)?;
    let names: Vec<&str> = args.iter().map(|arg| arg.name).collect();
    only(&object, &names)?;
    object.retain(|_, value| !value.is_null());
    for arg in args {
        match object.remove(arg.name) {
            Some(value) => {
                let value = field::read(arg.name, arg.shape, value)?;
                object.insert(arg.name.to_owned(), value);
            }
            None if arg.required => {
                let name = arg.name;
                return Err(ApiFault::bad(format!(
                    "Missing mandatory parameter: {name}: '{name}' is a required property"
                )));
            }
            None => {}
        }
    }
    Ok(object)
}

/// A text of the object; null counts as absent.
pub(crate) fn text<'o>(object: &'o JsonObject, key: &str) -> Result<Option<&'o str>, ApiFault> {
    match object.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(ApiFault::bad(format!("{key} must be a string."))),
    }
}

/// How deep a value is nested; a plain value has depth zero.
pub(crate) fn depth(value: &Value) -> usize {
    match value {
        Value::Object(object) => 1 + object.values().map(depth).max().unwrap_or(0),
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{ApiBench, send};
    use serde_json::json;

    #[test]
    fn malformed_json_is_a_bad_request() {
        for body in ["{", "[1]", "\"x\"", "", "null"] {
            let response = ApiBench::new().reply(&send("POST", "/v1/nodes", body).at("1.95"));
            assert_eq!(response.status, 400, "{body}");
            assert_eq!(response.fault()["faultcode"], "Client");
        }
    }

    #[test]
    fn an_integer_that_would_be_rounded_is_refused() {
        for whole in [
            "18446744073709551615",
            "-9223372036854775808",
            "0",
            "1e400",
            "\"18446744073709551616\"",
            r#""\\" , "99999999999999999999""#,
        ] {
            assert_eq!(rounded_integer(whole.as_bytes()), None, "{whole}");
        }
        let long = "1".repeat(50);
        for (json, digits) in [
            ("18446744073709551616", "18446744073709551616"),
            (
                r#"{"a\"": [1, -9223372036854775809]}"#,
                "-9223372036854775809",
            ),
            (long.as_str(), &long[..DIGITS_SHOWN_MAX]),
        ] {
            assert_eq!(rounded_integer(json.as_bytes()).as_deref(), Some(digits));
        }
        let bench = ApiBench::with(trivet_model::ProvisionState::Enroll);
        let body = r#"{"driver": "ipmi", "extra": {"a": 18446744073709551616}}"#;
        let message = bench.refuses(&send("POST", "/v1/nodes", body).at("1.95"), 400);
        assert!(
            message.contains("18446744073709551616 is out of range"),
            "{message}"
        );
        let patch = r#"[{"op": "add", "path": "/extra/a", "value": -9223372036854775809}]"#;
        bench.refuses(&send("PATCH", "/v1/nodes/node-1", patch).at("1.95"), 400);
    }

    #[test]
    fn depth_counts_objects_and_lists() {
        assert_eq!(depth(&json!(1)), 0);
        assert_eq!(depth(&json!({})), 1);
        assert_eq!(depth(&json!({"a": [{"b": 1}], "c": 1})), 3);
    }
}
