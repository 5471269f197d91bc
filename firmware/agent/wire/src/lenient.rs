//! Deserializes fields that may be missing, null or of the wrong type.

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// The value if it has the right type, else none. Never an error on valid JSON.
pub(crate) fn option<'de, D, T>(input: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    let value = Value::deserialize(input)?;
    Ok(serde_json::from_value(value).ok())
}

/// The value if it has the right type, else its default.
pub(crate) fn or_default<'de, D, T>(input: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned + Default,
{
    option(input).map(Option::unwrap_or_default)
}

/// The entries of a list that have the right type; anything else is an empty list.
pub(crate) fn list<'de, D, T>(input: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    let Value::Array(items) = Value::deserialize(input)? else {
        return Ok(Vec::new());
    };
    let read = items.into_iter().map(serde_json::from_value);
    Ok(read.filter_map(Result::ok).collect())
}

/// A whole number that may be encoded as a float or as a string.
pub(crate) fn number<'de, D>(input: D) -> Result<Option<u64>, D::Error>
where
    D: Deserializer<'de>,
{
    Ok(match Value::deserialize(input)? {
        Value::Number(number) => number.as_u64().or_else(|| number.as_f64().and_then(whole)),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    })
}

/// A whole number, which may be negative, as a number or a string; zero where it is missing.
/// Anything else is an error: a wrong guess would skip a step that must run.
pub(crate) fn whole_number<'de, D>(input: D) -> Result<i64, D::Error>
where
    D: Deserializer<'de>,
{
    let value = Value::deserialize(input)?;
    let number = match &value {
        Value::Null => Some(0),
        Value::Number(number) => number.as_i64().or_else(|| {
            let size = number.as_f64().filter(|float| float.fract() == 0.0)?;
            let whole = i64::try_from(whole(size.abs())?).ok()?;
            Some(if size < 0.0 { -whole } else { whole })
        }),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    number.ok_or_else(|| D::Error::custom(format_args!("{value} is not a whole number")))
}

/// A boolean; false where it is missing. Anything else is an error.
pub(crate) fn flag<'de, D>(input: D) -> Result<bool, D::Error>
where
    D: Deserializer<'de>,
{
    match Value::deserialize(input)? {
        Value::Null => Ok(false),
        Value::Bool(flag) => Ok(flag),
        other => Err(D::Error::custom(format_args!(
            "{other} is neither true nor false"
        ))),
    }
}

/// Below two to the power of 53 every whole float is exact.
fn whole(float: f64) -> Option<u64> {
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    #[expect(clippy::cast_sign_loss, reason = "the range was checked")]
    (0.0..EXACT_MAX).contains(&float).then_some(float as u64)
}

/// A string, or the JSON of another value; null is none.
pub(crate) fn text<'de, D>(input: D) -> Result<Option<String>, D::Error>
where
    D: Deserializer<'de>,
{
    Ok(match Value::deserialize(input)? {
        Value::Null => None,
        Value::String(text) => Some(text),
        other => Some(other.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Probe {
        #[serde(default, deserialize_with = "option")]
        flag: Option<bool>,
        #[serde(default, deserialize_with = "number")]
        size: Option<u64>,
        #[serde(default, deserialize_with = "list")]
        names: Vec<String>,
        #[serde(default, deserialize_with = "text")]
        text: Option<String>,
    }

    fn probe(value: Value) -> Probe {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn missing_null_and_wrong_types_are_nothing() {
        let nothing = probe(json!({}));
        assert_eq!(nothing.flag, None);
        let nulls = json!({"flag": null, "size": null, "names": null, "text": null});
        assert_eq!(probe(nulls), nothing);
        let wrong = json!({"flag": "yes", "size": [], "names": {"a": 1}});
        assert_eq!(probe(wrong), nothing);
    }

    #[test]
    fn numbers_may_be_floats_or_text() {
        for (given, want) in [
            (json!(24576), Some(24576)),
            (json!(24576.0), Some(24576)),
            (json!(" 24576 "), Some(24576)),
            (json!(-1), None),
            (json!(1e300), None),
            (json!("many"), None),
        ] {
            assert_eq!(probe(json!({"size": given})).size, want, "{given}");
        }
    }

    #[test]
    fn a_list_keeps_its_good_entries() {
        assert_eq!(
            probe(json!({"names": ["a", 1, null, "b"]})).names,
            ["a", "b"]
        );
    }

    #[test]
    fn text_may_be_anything() {
        assert_eq!(probe(json!({"text": "no"})).text.as_deref(), Some("no"));
        assert_eq!(
            probe(json!({"text": {"a": 1}})).text.as_deref(),
            Some("{\"a\":1}")
        );
    }
}
