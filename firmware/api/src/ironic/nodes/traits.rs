//! `/v1/nodes/<ident>/traits`.

use serde_json::{Value, json};
use trivet_model::Node;
use trivet_model::view::NodeView;

use super::{replace, unlocked};
use crate::ApiOutcome;
use crate::table::body;
use crate::table::call::{ApiCall, empty, reply};
use crate::table::error::ApiFault;

/// Most traits of one node, as in Ironic.
pub(crate) const TRAITS_MAX: usize = 50;

/// Longest trait in bytes, as in Ironic.
pub(crate) const TRAIT_BYTES_MAX: usize = 255;

/// Name spaces of the os-traits library and of custom traits. The library's list of names is not
/// included: a standard trait is recognised by its name space.
const NAME_SPACES: [&str; 6] = ["CUSTOM_", "COMPUTE_", "HW_", "MISC_", "OWNER_", "STORAGE_"];

pub(crate) fn list(view: &NodeView) -> Result<ApiOutcome, ApiFault> {
    reply(&json!({ "traits": present(&view.node) }))
}

pub(crate) fn set(call: &ApiCall<'_>, view: &NodeView) -> Result<ApiOutcome, ApiFault> {
    keep(call, view, whole(call)?, None)
}

pub(crate) fn clear(call: &ApiCall<'_>, view: &NodeView) -> Result<ApiOutcome, ApiFault> {
    keep(call, view, Vec::new(), None)
}

pub(crate) fn add(call: &ApiCall<'_>, view: &NodeView, name: &str) -> Result<ApiOutcome, ApiFault> {
    checked(name)?;
    if !body::object_or_empty(call)?.is_empty() {
        return Err(ApiFault::bad(
            "No body should be provided when adding a trait",
        ));
    }
    let mut traits = present(&view.node);
    if !traits.iter().any(|present| present == name) {
        traits.push(name.to_owned());
    }
    let location = call.location(&format!("nodes/{}/traits/{name}", view.node.id));
    keep(call, view, traits, Some(location))
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
    if traits.len() > TRAITS_MAX {
        return Err(ApiFault::bad(format!(
            "A node has at most {TRAITS_MAX} traits."
        )));
    }
    unlocked(call, &view.node)?;
    traits.sort_unstable();
    traits.dedup();
    let mut node = Node::clone(&view.node);
    node.attributes.traits = traits;
    replace(view, node, empty(204, location))
}

/// The node's traits.
pub(crate) fn present(node: &Node) -> Vec<String> {
    node.attributes.traits.clone()
}

fn whole(call: &ApiCall<'_>) -> Result<Vec<String>, ApiFault> {
    let object = body::object(call)?;
    body::only(&object, &["traits"])?;
    let list = object.get("traits").and_then(Value::as_array);
    let list = list.ok_or_else(|| ApiFault::bad("traits must be a list."))?;
    let mut traits = Vec::new();
    for item in list {
        let name = item.as_str();
        let name = name.ok_or_else(|| ApiFault::bad("A trait must be a string."))?;
        checked(name)?;
        traits.push(name.to_owned());
    }
    Ok(traits)
}

/// Refuses a text that is not a trait.
pub(crate) fn checked(name: &str) -> Result<(), ApiFault> {
    let plain = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    let spaced = |space: &str| name.len() > space.len() && name.starts_with(space);
    if name.len() <= TRAIT_BYTES_MAX
        && name.bytes().all(plain)
        && NAME_SPACES.iter().any(|space| spaced(space))
    {
        return Ok(());
    }
    Err(ApiFault::bad(format!(
        "Invalid trait \"{}\": a trait is a standard one or CUSTOM_ followed by capitals, digits \
         and underscores.",
        name.escape_debug()
    )))
}
