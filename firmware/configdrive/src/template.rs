//! Config drives for many: texts with places for what is true of one node.
//!
//! `{{ node.name }}` stands for a fact, and dots lead into objects: `{{ node.extra.rack }}`.
//! Other double braces are somebody else's and stay, such as those that cloud-init fills in
//! on the machine itself.

use serde_json::{Map, Value};

use crate::Problem;

const OPEN: &str = "{{";
const CLOSE: &str = "}}";
const OURS: &str = "node.";

/// The parts of a drive with every place filled in. Keys are not looked at.
pub fn filled(parts: &Map<String, Value>, node: &Value) -> Result<Map<String, Value>, Problem> {
    let filled = parts
        .iter()
        .map(|(key, part)| Ok((key.clone(), value(part, node)?)));
    filled.collect()
}

fn value(part: &Value, node: &Value) -> Result<Value, Problem> {
    match part {
        Value::String(words) => text(words, node).map(Value::String),
        Value::Array(list) => {
            let list: Result<Vec<Value>, Problem> =
                list.iter().map(|one| value(one, node)).collect();
            list.map(Value::Array)
        }
        Value::Object(parts) => filled(parts, node).map(Value::Object),
        other => Ok(other.clone()),
    }
}

fn text(words: &str, node: &Value) -> Result<String, Problem> {
    let mut out = String::with_capacity(words.len());
    let mut rest = words;
    while let Some(at) = rest.find(OPEN) {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let inner = &from[OPEN.len()..];
        let end = inner.find(CLOSE);
        let place = end.map(|end| inner[..end].trim());
        match (place.and_then(|place| place.strip_prefix(OURS)), end) {
            (Some(path), Some(end)) => {
                out.push_str(&fact(path, node)?);
                rest = &inner[end + CLOSE.len()..];
            }
            _ => {
                out.push_str(OPEN);
                rest = inner;
            }
        }
    }
    out.push_str(rest);
    Ok(out)
}

fn fact(path: &str, node: &Value) -> Result<String, Problem> {
    let found = path.split('.').try_fold(node, |value, key| value.get(key));
    match found {
        None | Some(Value::Null) => Err(Problem::NoFact {
            path: format!("{OURS}{path}"),
        }),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(other) => Ok(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fill(part: &Value) -> Result<Value, Problem> {
        let node = json!({"name": "n1", "extra": {"rack": {"row": 7}, "tags": ["a"]}, "no": null});
        let parts = json!({ "p": part });
        filled(parts.as_object().unwrap(), &node).map(|mut filled| filled["p"].take())
    }

    #[test]
    fn facts_stand_where_they_are_named() {
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
    fn braces_of_others_stay() {
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
    fn a_fact_that_the_node_has_not_is_named() {
        for path in ["node.missing", "node.name.more", "node.no", "node."] {
            let said = fill(&json!(format!("x {{{{ {path} }}}}"))).unwrap_err();
            assert!(said.to_string().contains(path), "{said}");
        }
    }
}
