//! JSON patches (RFC 6902), with the operations that Ironic supports: add, replace, remove.

use serde_json::Value;

use crate::table::body;
use crate::table::error::ApiFault;
use crate::table::field;

/// Most operations in one patch. Ours.
pub(crate) const PATCH_OPS_MAX: usize = 256;

/// Most segments in one path. Ours.
pub(crate) const PATCH_SEGMENTS_MAX: usize = 32;

/// The operation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum PatchOp {
    Add,
    Replace,
    Remove,
}

/// One operation with its path and value.
#[derive(Clone, Debug)]
pub(crate) struct PatchChange {
    pub(crate) op: PatchOp,
    /// Never empty.
    path: Vec<String>,
    value: Value,
}

impl PatchChange {
    /// The field it touches.
    pub(crate) fn root(&self) -> &str {
        self.path.first().map_or("", String::as_str)
    }

    /// The new value; null for a removal.
    pub(crate) fn value(&self) -> &Value {
        &self.value
    }

    /// Whether it touches a whole field.
    pub(crate) fn is_whole(&self) -> bool {
        self.path.len() == 1
    }

    fn shown_path(&self) -> String {
        format!("/{}", self.path.join("/"))
            .escape_debug()
            .to_string()
    }
}

/// Parses a patch. `escapes`: the version supports `~1` and `~0`.
pub(crate) fn parse(body: &[u8], escapes: bool) -> Result<Vec<PatchChange>, ApiFault> {
    // No body at all is an empty object, as in Ironic.
    let value = body::parsed(if body.is_empty() { b"{}" } else { body })?;
    let items = match value {
        Value::Array(items) => items,
        other => {
            return Err(ApiFault::bad(format!(
                "Schema error for patch: {} is not of type 'array': a patch is a list of \
                 operations.",
                field::masked(&other)
            )));
        }
    };
    if items.len() > PATCH_OPS_MAX {
        return Err(ApiFault::bad(format!(
            "A patch has at most {PATCH_OPS_MAX} operations."
        )));
    }
    items
        .into_iter()
        .map(|item| change(item, escapes))
        .collect()
}

fn change(item: Value, escapes: bool) -> Result<PatchChange, ApiFault> {
    let mut item = match item {
        Value::Object(item) => item,
        other => {
            return Err(ApiFault::bad(format!(
                "Schema error for patch: {} is not of type 'object': an operation is one.",
                field::masked(&other)
            )));
        }
    };
    let op = match item.remove("op") {
        None => return Err(lacks("op")),
        Some(op) => match op.as_str() {
            Some("add") => PatchOp::Add,
            Some("replace") => PatchOp::Replace,
            Some("remove") => PatchOp::Remove,
            _ => {
                return Err(ApiFault::bad(format!(
                    "Schema error for patch: {} is not one of ['add', 'replace', 'remove']",
                    field::quoted(&op)
                )));
            }
        },
    };
    let path = match item.remove("path") {
        Some(Value::String(path)) => segments(&path, escapes)?,
        _ => return Err(lacks("path")),
    };
    let value = item.remove("value");
    if value.is_none() && op != PatchOp::Remove {
        return Err(ApiFault::bad(format!(
            "Couldn't apply patch to '/{}'. Reason: The operation does not contain a 'value' \
             member; add and replace need one.",
            path.join("/").escape_debug()
        )));
    }
    if let Some(strange) = item.keys().next() {
        let strange = strange.escape_debug();
        return Err(ApiFault::bad(format!(
            "Schema error for patch: Additional properties are not allowed ('{strange}' was \
             unexpected)"
        )));
    }
    Ok(PatchChange {
        op,
        path,
        value: value.unwrap_or(Value::Null),
    })
}

fn lacks(name: &str) -> ApiFault {
    ApiFault::bad(format!(
        "Schema error for patch: '{name}' is a required property of each operation."
    ))
}

fn segments(path: &str, escapes: bool) -> Result<Vec<String>, ApiFault> {
    let bad = || {
        ApiFault::bad(format!(
            "Schema error for patch: '{}' does not match '^(/[\\w-]+)+$': invalid path.",
            path.escape_debug()
        ))
    };
    let segments: Vec<&str> = path.strip_prefix('/').ok_or_else(bad)?.split('/').collect();
    if segments.len() > PATCH_SEGMENTS_MAX || segments.contains(&"") {
        return Err(bad());
    }
    segments
        .into_iter()
        .map(|segment| match (segment.contains('~'), escapes) {
            (false, _) => Ok(segment.to_owned()),
            (true, false) => Err(bad()),
            (true, true) => {
                let lawful = segment
                    .split('~')
                    .skip(1)
                    .all(|rest| rest.starts_with(['0', '1']));
                if !lawful {
                    return Err(bad());
                }
                Ok(segment.replace("~1", "/").replace("~0", "~"))
            }
        })
        .collect()
}

/// Applies a patch to a document whose top-level fields all exist. After an error the document must
/// not be used.
pub(crate) fn apply(document: &mut Value, changes: &[PatchChange]) -> Result<(), ApiFault> {
    changes
        .iter()
        .try_for_each(|change| apply_one(document, change))
}

fn apply_one(document: &mut Value, change: &PatchChange) -> Result<(), ApiFault> {
    let missing = || {
        let why = match change.op {
            PatchOp::Remove => "can't remove a non-existent object",
            PatchOp::Replace => "can't replace a non-existent object",
            PatchOp::Add => "member not found in the document:",
        };
        let last = change.path.last().map_or("", String::as_str);
        cannot(change, &format!("{why} '{}'", last.escape_debug()))
    };
    let (last, parents) = change.path.split_last().ok_or_else(missing)?;
    // Removing a whole field sets it to its default, which null represents.
    if parents.is_empty() && change.op == PatchOp::Remove {
        *document.get_mut(last).ok_or_else(missing)? = Value::Null;
        return Ok(());
    }
    let mut place = document;
    for segment in parents {
        place = match place {
            Value::Object(object) => object.get_mut(segment),
            Value::Array(items) => {
                let at = index(segment).ok_or_else(|| no_index(change, segment))?;
                items.get_mut(at)
            }
            _ => None,
        }
        .ok_or_else(missing)?;
    }
    match place {
        Value::Object(object) => match change.op {
            PatchOp::Remove => object.remove(last).map(drop).ok_or_else(missing),
            PatchOp::Replace if !object.contains_key(last) => Err(missing()),
            PatchOp::Add | PatchOp::Replace => {
                object.insert(last.clone(), change.value.clone());
                Ok(())
            }
        },
        Value::Array(items) => apply_to_list(items, last, change),
        _ => Err(missing()),
    }
}

fn apply_to_list(items: &mut Vec<Value>, last: &str, change: &PatchChange) -> Result<(), ApiFault> {
    if last == "-" && change.op == PatchOp::Add {
        items.push(change.value.clone());
        return Ok(());
    }
    let at = match index(last) {
        Some(at) => at,
        None if last == "-" => return Err(cannot(change, "invalid array index '-'")),
        None => return Err(no_index(change, last)),
    };
    match change.op {
        PatchOp::Add if at <= items.len() => items.insert(at, change.value.clone()),
        PatchOp::Replace if at < items.len() => items[at] = change.value.clone(),
        PatchOp::Remove if at < items.len() => drop(items.remove(at)),
        PatchOp::Add => return Err(cannot(change, "can't insert outside of list")),
        PatchOp::Replace => return Err(cannot(change, "can't replace outside of list")),
        PatchOp::Remove => {
            return Err(cannot(
                change,
                &format!("can't remove a non-existent object '{at}'"),
            ));
        }
    }
    Ok(())
}

fn cannot(change: &PatchChange, why: &str) -> ApiFault {
    ApiFault::bad(format!(
        "Couldn't apply patch to '{}'. Reason: {why}",
        change.shown_path()
    ))
}

fn no_index(change: &PatchChange, segment: &str) -> ApiFault {
    let segment = segment.escape_debug();
    cannot(
        change,
        &format!("'{segment}' is not a valid sequence index"),
    )
}

/// An index as in RFC 6901: digits without leading zeros.
fn index(text: &str) -> Option<usize> {
    let lawful =
        text == "0" || (!text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit()));
    if lawful { text.parse().ok() } else { None }
}

/// Refuses a new name that is not a text, or too long: Ironic calls both an invalid name. `owner`
/// is what has the name.
pub(crate) fn check_new_name(owner: &str, change: &PatchChange) -> Result<(), ApiFault> {
    let value = change.value();
    let is_name = match value {
        Value::String(text) => !field::is_longer(text, field::TEXT_CHARS_MAX),
        other => other.is_null(),
    };
    let is_new_name = change.op != PatchOp::Remove && change.root() == "name" && change.is_whole();
    if !is_new_name || is_name {
        return Ok(());
    }
    Err(ApiFault::bad(format!(
        "{owner}: Cannot change name to invalid name {}: a name is a text of at most {} \
         characters.",
        field::quoted(value),
        field::TEXT_CHARS_MAX
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn patched(document: Value, patch: &Value) -> Result<Value, ApiFault> {
        let mut document = document;
        let changes = parse(patch.to_string().as_bytes(), true)?;
        apply(&mut document, &changes)?;
        Ok(document)
    }

    #[track_caller]
    fn check(document: Value, patch: &Value, want: &Value) {
        assert_eq!(&patched(document, patch).unwrap(), want);
    }

    #[track_caller]
    fn refuses(document: Value, patch: &Value) {
        assert!(patched(document, patch).is_err(), "{patch}");
    }

    #[test]
    fn add_sets_whether_or_not_it_is_there() {
        check(
            json!({"extra": {"a": 1}}),
            &json!([
                {"op": "add", "path": "/extra/a", "value": null},
                {"op": "add", "path": "/extra/b", "value": {"c": [1]}},
                {"op": "add", "path": "/extra/b/c/-", "value": 2},
                {"op": "add", "path": "/extra/b/c/0", "value": 0},
            ]),
            &json!({"extra": {"a": null, "b": {"c": [0, 1, 2]}}}),
        );
    }

    #[test]
    fn replace_and_remove_need_what_they_name() {
        check(
            json!({"extra": {"a": 1, "list": [1, 2]}}),
            &json!([
                {"op": "replace", "path": "/extra/a", "value": 2},
                {"op": "remove", "path": "/extra/list/0"},
                {"op": "replace", "path": "/extra/list/0", "value": "x"},
            ]),
            &json!({"extra": {"a": 2, "list": ["x"]}}),
        );
        for op in [
            json!({"op": "replace", "path": "/extra/b", "value": 1}),
            json!({"op": "remove", "path": "/extra/b"}),
            json!({"op": "remove", "path": "/extra/list/2"}),
            json!({"op": "remove", "path": "/extra/list/-"}),
            json!({"op": "add", "path": "/extra/list/3", "value": 1}),
            json!({"op": "add", "path": "/extra/list/01", "value": 1}),
            json!({"op": "add", "path": "/extra/list/+1", "value": 1}),
            json!({"op": "add", "path": "/extra/b/c", "value": 1}),
            json!({"op": "add", "path": "/extra/a/c", "value": 1}),
        ] {
            refuses(json!({"extra": {"a": 1, "list": [1, 2]}}), &json!([op]));
        }
    }

    #[test]
    fn a_wrong_place_in_a_list_is_named_in_ironics_words() {
        for (op, path, why) in [
            ("replace", "x", "'x' is not a valid sequence index"),
            ("replace", "-1", "'-1' is not a valid sequence index"),
            ("replace", "01", "'01' is not a valid sequence index"),
            ("add", "x/y", "'x' is not a valid sequence index"),
            ("replace", "9", "can't replace outside of list"),
            ("add", "9", "can't insert outside of list"),
            ("remove", "9", "can't remove a non-existent object '9'"),
            ("remove", "-", "invalid array index '-'"),
        ] {
            let patch = json!([{"op": op, "path": format!("/l/{path}"), "value": 1}]);
            let fault = patched(json!({"l": [1, 2]}), &patch).unwrap_err();
            let text = crate::Response::from(fault).fault()["faultstring"].to_string();
            let want = format!("Couldn't apply patch to '/l/{path}'. Reason: {why}");
            assert!(text.contains(&want), "{text}");
        }
    }

    #[test]
    fn removing_a_whole_field_leaves_null() {
        let patch = json!([{"op": "remove", "path": "/name"}]);
        check(json!({"name": "x"}), &patch, &json!({"name": null}));
    }

    #[test]
    fn test_move_and_copy_are_refused() {
        for op in ["test", "move", "copy", "", "ADD"] {
            refuses(
                json!({"a": 1}),
                &json!([{"op": op, "path": "/a", "value": 1}]),
            );
        }
    }

    #[test]
    fn refuses_what_is_no_patch() {
        for patch in [
            json!({}),
            json!([1]),
            json!([{"op": "add", "value": 1}]),
            json!([{"op": "add", "path": "/a"}]),
            json!([{"op": "add", "path": "a", "value": 1}]),
            json!([{"op": "add", "path": "", "value": 1}]),
            json!([{"op": "add", "path": "/", "value": 1}]),
            json!([{"op": "add", "path": "/a//b", "value": 1}]),
            json!([{"op": "add", "path": "/a", "value": 1, "from": "/b"}]),
            json!([{"op": "add", "path": "/a/~2", "value": 1}]),
            json!([{"op": "add", "path": "/a/~", "value": 1}]),
        ] {
            refuses(json!({"a": {}}), &patch);
        }
    }

    #[test]
    fn escapes_came_late() {
        let patch = json!([{"op": "add", "path": "/extra/a~1b~01", "value": 1}]).to_string();
        assert!(parse(patch.as_bytes(), false).is_err());
        let changes = parse(patch.as_bytes(), true).unwrap();
        let mut document = json!({"extra": {}});
        apply(&mut document, &changes).unwrap();
        assert_eq!(document, json!({"extra": {"a/b~1": 1}}));
    }

    #[test]
    fn operations_and_segments_are_bounded() {
        let op = json!({"op": "add", "path": "/a", "value": 1});
        let patch = |count: usize| Value::Array(vec![op.clone(); count]);
        check(json!({"a": 0}), &patch(PATCH_OPS_MAX), &json!({"a": 1}));
        refuses(json!({"a": 0}), &patch(PATCH_OPS_MAX + 1));
        let deep = "/a".repeat(PATCH_SEGMENTS_MAX + 1);
        refuses(json!({}), &json!([{"op": "add", "path": deep, "value": 1}]));
    }
}
