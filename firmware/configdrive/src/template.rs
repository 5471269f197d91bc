//! Config drive templates: texts with placeholders for the facts of one node.
//!
//! `{{ node.name }}` is replaced by a fact, and dots select fields of objects: `{{
//! node.extra.rack }}`. Other double braces are left unchanged, such as those that cloud-init
//! replaces on the machine itself.

use serde_json::{Map, Value};

use crate::{CONTENT_BYTES_MAX, ConfigDriveError};

const OPEN: &str = "{{";
const CLOSE: &str = "}}";
const NODE_PREFIX: &str = "node.";

/// Longer placeholders are left unchanged: this bounds the search for their end.
const PLACEHOLDER_BYTES_MAX: usize = 256;

/// The parts of a drive with every placeholder replaced. Keys are not searched.
pub fn render_template(
    parts: &Map<String, Value>,
    node: &Value,
) -> Result<Map<String, Value>, ConfigDriveError> {
    ConfigDriveTemplate { node, bytes: 0 }.parts(parts)
}

struct ConfigDriveTemplate<'a> {
    node: &'a Value,
    /// Bytes inserted so far: a short text may refer to a long fact many times.
    bytes: usize,
}

impl ConfigDriveTemplate<'_> {
    fn parts(
        &mut self,
        parts: &Map<String, Value>,
    ) -> Result<Map<String, Value>, ConfigDriveError> {
        let filled = parts
            .iter()
            .map(|(key, part)| Ok((key.clone(), self.value(part)?)));
        filled.collect()
    }

    fn value(&mut self, part: &Value) -> Result<Value, ConfigDriveError> {
        match part {
            Value::String(words) => self.text(words).map(Value::String),
            Value::Array(list) => {
                let list: Result<_, ConfigDriveError> =
                    list.iter().map(|one| self.value(one)).collect();
                list.map(Value::Array)
            }
            Value::Object(parts) => self.parts(parts).map(Value::Object),
            other => Ok(other.clone()),
        }
    }

    fn text(&mut self, words: &str) -> Result<String, ConfigDriveError> {
        let mut out = String::with_capacity(words.len());
        let mut rest = words;
        while let Some(at) = rest.find(OPEN) {
            let (before, from) = rest.split_at(at);
            out.push_str(before);
            let inner = &from[OPEN.len()..];
            match placeholder(inner) {
                Some((path, after)) => {
                    out.push_str(&self.fact(path)?);
                    rest = after;
                }
                None => {
                    out.push_str(OPEN);
                    rest = inner;
                }
            }
        }
        out.push_str(rest);
        Ok(out)
    }

    fn fact(&mut self, path: &str) -> Result<String, ConfigDriveError> {
        let found = path
            .split('.')
            .try_fold(self.node, |value, key| value.get(key));
        let text = match found {
            None | Some(Value::Null) => {
                let known = self.node.as_object().into_iter().flatten();
                let known: Vec<String> = known
                    .map(|(key, _)| format!("{NODE_PREFIX}{key}"))
                    .collect();
                return Err(ConfigDriveError::UnknownTemplateField {
                    path: format!("{NODE_PREFIX}{path}"),
                    known: known.join(", "),
                });
            }
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        };
        self.bytes += text.len();
        match self.bytes {
            bytes if bytes > CONTENT_BYTES_MAX => Err(ConfigDriveError::TooLarge { bytes }),
            _ => Ok(text),
        }
    }
}

/// The path in one of our placeholders, and the text after it; `inner` is the text after the
/// opening braces.
fn placeholder(inner: &str) -> Option<(&str, &str)> {
    let near = inner.as_bytes();
    let near = &near[..near.len().min(PLACEHOLDER_BYTES_MAX)];
    let mut pairs = near.windows(CLOSE.len());
    let end = pairs.position(|pair| pair == CLOSE.as_bytes())?;
    let path = inner[..end].trim().strip_prefix(NODE_PREFIX)?;
    Some((path, &inner[end + CLOSE.len()..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fill(part: &Value) -> Result<Value, ConfigDriveError> {
        let node = json!({"name": "n1", "extra": {"rack": {"row": 7}, "tags": ["a"]}, "no": null});
        let parts = json!({ "p": part });
        render_template(parts.as_object().unwrap(), &node).map(|mut filled| filled["p"].take())
    }

    #[test]
    fn facts_replace_their_placeholders() {
        for (part, want) in [
            (json!("{{ node.name }}.example"), json!("n1.example")),
            (json!("{{node.name}}{{node.name}}"), json!("n1n1")),
            (json!("row {{ node.extra.rack.row }}"), json!("row 7")),
            (
                json!({"a": ["{{ node.extra.tags }}"]}),
                json!({"a": ["[\"a\"]"]}),
            ),
            (json!(7), json!(7)),
        ] {
            assert_eq!(fill(&part), Ok(want));
        }
    }

    #[test]
    fn other_braces_are_left_unchanged() {
        for words in [
            "{{ ds.meta_data.hostname }}",
            "{{ nodes }}",
            "{{ node.name",
            "{{",
            "}} {{ }}",
            "${{ v1.x }}",
        ] {
            assert_eq!(fill(&json!(words)), Ok(json!(words)));
        }
        let mixed = json!("{{ {{ node.name }}");
        assert_eq!(fill(&mixed), Ok(json!("{{ n1")));
    }

    #[test]
    fn too_many_insertions_are_refused_before_they_use_the_memory() {
        let node = json!({"extra": "x".repeat(100_000)});
        let words = "{{ node.extra }}".repeat(50_000);
        let parts = json!({"user_data": words, "vendor_data": ["{{ node.extra }}"]});
        let message = render_template(parts.as_object().unwrap(), &node).unwrap_err();
        assert_eq!(message, ConfigDriveError::TooLarge { bytes: 600_000 });
    }

    #[test]
    fn many_braces_are_scanned_once() {
        let far = format!(
            "{}{}}}}}",
            "{{ ".repeat(300_000),
            "\u{e9}".repeat(PLACEHOLDER_BYTES_MAX)
        );
        assert_eq!(fill(&json!(far)), Ok(json!(far)));
    }

    #[test]
    fn a_missing_fact_is_named_in_the_error() {
        for path in ["node.missing", "node.name.more", "node.no", "node."] {
            let text = fill(&json!(format!("x {{{{ {path} }}}}"))).unwrap_err();
            assert!(text.to_string().contains(path), "{text}");
            assert!(text.to_string().contains("node.extra, node.name"), "{text}");
        }
    }
}
