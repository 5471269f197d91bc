//! `/v1/nodes/<ident>/traits`.

use serde_json::{Value, json};
use trivet_model::Node;
use trivet_model::view::NodeView;

use super::{replace, unlocked};
use crate::ApiOutcome;
use crate::table::body;
use crate::table::call::{ApiCall, empty, reply};
use crate::table::error::ApiFault;
use crate::table::field;

/// Most traits of one node, as in Ironic.
pub(crate) const TRAITS_MAX: usize = 50;

/// Longest trait in bytes, as in Ironic.
pub(crate) const TRAIT_BYTES_MAX: usize = 255;

/// The names of the os-traits library (3.6), one per line.
const STANDARD_TRAITS: &str = include_str!("standard_traits.txt");

/// Custom traits begin with this.
const CUSTOM: &str = "CUSTOM_";

pub(crate) fn list(view: &NodeView) -> Result<ApiOutcome, ApiFault> {
    reply(&json!({ "traits": present(&view.node) }))
}

pub(crate) fn set(call: &ApiCall<'_>, view: &NodeView) -> Result<ApiOutcome, ApiFault> {
    keep(call, view, whole(call, "node")?, None)
}

pub(crate) fn clear(call: &ApiCall<'_>, view: &NodeView) -> Result<ApiOutcome, ApiFault> {
    keep(call, view, Vec::new(), None)
}

pub(crate) fn add(call: &ApiCall<'_>, view: &NodeView, name: &str) -> Result<ApiOutcome, ApiFault> {
    checked(name)?;
    without_body(call)?;
    let mut traits = present(&view.node);
    if !traits.iter().any(|present| present == name) {
        traits.push(name.to_owned());
    }
    let location = call.location(&format!("nodes/{}/traits/{name}", view.node.id));
    keep(call, view, traits, Some(location))
}

/// A trait is added by its path alone.
pub(crate) fn without_body(call: &ApiCall<'_>) -> Result<(), ApiFault> {
    match body::object_or_empty(call)?.keys().next() {
        None => Ok(()),
        Some(name) => Err(ApiFault::bad(format!(
            "Schema error for body: Additional properties are not allowed ('{}' was unexpected): \
             No body should be provided when adding a trait",
            name.escape_debug()
        ))),
    }
}

pub(crate) fn remove(
    call: &ApiCall<'_>,
    view: &NodeView,
    name: &str,
) -> Result<ApiOutcome, ApiFault> {
    let mut traits = present(&view.node);
    let before = traits.len();
    traits.retain(|present| present != name);
    if traits.len() == before {
        let name = name.escape_debug();
        return Err(ApiFault::not_found(format!(
            "Node {} doesn't have a trait '{name}'",
            view.node.id
        )));
    }
    keep(call, view, traits, None)
}

fn keep(
    call: &ApiCall<'_>,
    view: &NodeView,
    mut traits: Vec<String>,
    location: Option<String>,
) -> Result<ApiOutcome, ApiFault> {
    traits.sort_unstable();
    traits.dedup();
    if traits.len() > TRAITS_MAX {
        return Err(ApiFault::bad(format!(
            "Could not modify traits for node {} as it would exceed the maximum number of traits \
             per node ({} vs. {TRAITS_MAX})",
            view.node.id,
            traits.len()
        )));
    }
    unlocked(call, &view.node)?;
    let mut node = Node::clone(&view.node);
    node.attributes.traits = traits;
    replace(view, node, empty(204, location))
}

/// The node's traits.
pub(crate) fn present(node: &Node) -> Vec<String> {
    node.attributes.traits.clone()
}

/// All traits of a node or of a runbook, from the body.
pub(crate) fn whole(call: &ApiCall<'_>, noun: &str) -> Result<Vec<String>, ApiFault> {
    let object = body::object(call)?;
    if let Some(name) = object.keys().find(|name| *name != "traits") {
        return Err(ApiFault::bad(format!(
            "Schema error for body: Additional properties are not allowed ('{}' was unexpected)",
            name.escape_debug()
        )));
    }
    let list = object.get("traits").and_then(Value::as_array);
    let list = list.ok_or_else(|| match object.get("traits") {
        None => ApiFault::bad(format!(
            "A single {noun} trait may be added via PUT /v1/{noun}s/<{noun} identifier>/traits/\
             <trait> with no body, or all {noun} traits may be replaced via PUT /v1/{noun}s/\
             <{noun} identifier>/traits with the list of traits specified in the request body. \
             'traits' is a required property of that body."
        )),
        Some(other) => ApiFault::bad(format!(
            "Schema error for body: {} is not of type 'array': traits must be a list.",
            field::quoted(other)
        )),
    })?;
    let mut traits = Vec::new();
    for item in list {
        let name = item.as_str();
        let name = name.ok_or_else(|| {
            let shown = field::quoted(item);
            ApiFault::bad(format!(
                "Schema error for body: {shown} is not of type 'string'"
            ))
        })?;
        checked(name)?;
        traits.push(name.to_owned());
    }
    Ok(traits)
}

/// Refuses a text that is not a trait.
pub(crate) fn checked(name: &str) -> Result<(), ApiFault> {
    let plain = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    let custom = name.strip_prefix(CUSTOM);
    let custom = custom.is_some_and(|rest| !rest.is_empty() && rest.bytes().all(plain));
    let standard = || STANDARD_TRAITS.lines().any(|line| line == name);
    if name.len() > TRAIT_BYTES_MAX {
        return Err(field::too_long("trait", name, TRAIT_BYTES_MAX));
    }
    if custom || standard() {
        return Ok(());
    }
    let shown = field::quoted(&Value::from(name));
    Err(ApiFault::bad(format!(
        "Schema error: {shown} is not valid under any of the given schemas. Possible root cause: \
         {shown} does not match '^CUSTOM_[A-Z0-9_]+$', and it is not one of the standard traits."
    )))
}
