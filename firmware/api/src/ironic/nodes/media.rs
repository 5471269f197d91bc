//! `/v1/nodes/<ident>/vmedia`: virtual media.
//!
//! For a BMC this is a BMC request. Images of fake hardware are stored in the node's field
//! `vmedia`, an object of device types and URLs.

use serde_json::{Value, json};
use trivet_drivers::{HardwareCapability, is_fake};
use trivet_model::node::JsonObject;
use trivet_model::secret::{MASK, SecretText};
use trivet_model::view::NodeView;
use trivet_model::{BmcRequest, Node};

use super::{capability, replace, unlocked};
use crate::table::body;
use crate::table::call::{ApiCall, empty, reply};
use crate::table::error::ApiFault;
use crate::table::field::ValueShape;
use crate::table::route::{ApiArg, ApiRoute, BodySchema, arg, required};
use crate::trivet::bmc_requests::bmc_request;
use crate::{ApiOutcome, ResponsePlan};

/// Device types and the BMC's names of their media types.
const DEVICES: [(&str, &[&str]); 3] = [
    ("cdrom", &["CD", "DVD"]),
    ("disk", &["USBStick"]),
    ("floppy", &["Floppy"]),
];

const WORDS: &[&str] = &["cdrom", "disk", "floppy"];

/// Longest URL of an image, in bytes. Ours.
pub(crate) const IMAGE_URL_BYTES_MAX: usize = 2048;

const INSERT: &[ApiArg] = &[
    required("device_type", 89, ValueShape::Word(WORDS)),
    required("image_url", 89, ValueShape::LongText),
    arg(
        "image_download_source",
        89,
        ValueShape::Word(&["http", "local", "swift"]),
    ),
];

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get(
        &["v1", "nodes", "{node}", "vmedia"],
        93,
        "List inserted virtual media",
        |call| show(call.this()?),
    ),
    ApiRoute::new(
        "POST",
        &["v1", "nodes", "{node}", "vmedia"],
        89,
        "Insert an image",
        |call| insert(call, call.this()?),
    )
    .body(BodySchema::Args(INSERT)),
    ApiRoute::new(
        "DELETE",
        &["v1", "nodes", "{node}", "vmedia"],
        89,
        "Eject images",
        |call| eject(call, call.this()?),
    )
    .query_args(&[&[arg("device_types", 89, ValueShape::Text)]]),
];

fn inserted(view: &NodeView) -> JsonObject {
    let stored = view.node.driver_internal_info.get("vmedia");
    stored
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default()
}

fn show(view: &NodeView) -> Result<ApiOutcome, ApiFault> {
    capability::require(view, HardwareCapability::VirtualMedia, "get_virtual_media")?;
    if !is_fake(&view.node) {
        return bmc_request(view, BmcRequest::Media, ResponsePlan::Media);
    }
    let inserted = inserted(view);
    let shown = DEVICES.map(|(device, media_types)| {
        let image = inserted.get(device).and_then(Value::as_str);
        json!({
            "image": image.unwrap_or(""), "inserted": image.is_some(), "media_types": media_types,
        })
    });
    reply(&json!(shown))
}

/// The drives that a BMC listed, in Ironic's format.
pub(crate) fn ironic_media(message: &Value) -> Value {
    let drives = message["media"].as_array().into_iter().flatten();
    let shown = drives.map(|drive| {
        let devices = drive["devices"].as_array().into_iter().flatten();
        let devices = devices.filter_map(Value::as_str);
        let known = |word| DEVICES.iter().find(|(device, _)| *device == word);
        let media: Vec<_> = devices.filter_map(known).flat_map(|(_, it)| *it).collect();
        json!({
            "image": drive["image"].as_str().unwrap_or(""),
            "inserted": drive["inserted"],
            "media_types": media,
        })
    });
    shown.collect()
}

fn insert(call: &ApiCall<'_>, view: &NodeView) -> Result<ApiOutcome, ApiFault> {
    let known = |key: &String| INSERT.iter().any(|arg| arg.name == key);
    if let Some(strange) = body::object_or_empty(call)?.keys().find(|key| !known(key)) {
        return Err(ApiFault::bad(format!(
            "Schema error for vmedia: Additional properties are not allowed ('{}' was unexpected)",
            strange.escape_debug()
        )));
    }
    let object = body::args(call, INSERT)?;
    let text = |key: &str| {
        let text = body::text(&object, key)?.map(str::to_owned);
        Ok::<_, ApiFault>(text.unwrap_or_default())
    };
    let (device, url) = (text("device_type")?, text("image_url")?);
    if url.len() > IMAGE_URL_BYTES_MAX {
        return Err(ApiFault::bad(format!(
            "image_url has at most {IMAGE_URL_BYTES_MAX} bytes."
        )));
    }
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
    if !["http", "https", "nfs", "cifs"].contains(&scheme) {
        return Err(ApiFault::bad(format!(
            "Unsupported or missing URL scheme: {}",
            scheme.escape_debug()
        )));
    }
    capability::require(
        view,
        HardwareCapability::VirtualMedia,
        "attach_virtual_media",
    )?;
    if !is_fake(&view.node) {
        let device = device
            .parse()
            .map_err(|_| ApiFault::bad("No such device."))?;
        let url = SecretText::new(url);
        unlocked(call, &view.node)?;
        return bmc_request(
            view,
            BmcRequest::InsertMedia { device, url },
            empty(204, None),
        );
    }
    let mut inserted = inserted(view);
    inserted.insert(device, masked(&url).into());
    keep(call, view, inserted)
}

/// The URL without its password: readers see it, and the hardware that has such drives so far is
/// fake and fetches nothing.
fn masked(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or("");
    match authority.rsplit_once('@') {
        Some((login, _)) => {
            let user = login.split(':').next().unwrap_or("");
            format!("{scheme}://{user}:{MASK}{}", &rest[login.len()..])
        }
        None => url.to_owned(),
    }
}

fn eject(call: &ApiCall<'_>, view: &NodeView) -> Result<ApiOutcome, ApiFault> {
    let types: Option<Vec<&str>> = call.query.last("device_types").map(|list| {
        let types = list.split(',').map(str::trim);
        types.filter(|word| !word.is_empty()).collect()
    });
    let strange: Vec<&str> = types
        .iter()
        .flatten()
        .copied()
        .filter(|word| !WORDS.contains(word))
        .collect();
    if !strange.is_empty() {
        return Err(ApiFault::bad(format!(
            "Invalid device type(s) {} (valid are {})",
            strange.join(", ").escape_debug(),
            WORDS.join(", ")
        )));
    }
    capability::require(
        view,
        HardwareCapability::VirtualMedia,
        "detach_virtual_media",
    )?;
    if !is_fake(&view.node) {
        let named = types.iter().flatten();
        let devices = named.filter_map(|word| word.parse().ok()).collect();
        unlocked(call, &view.node)?;
        return bmc_request(view, BmcRequest::EjectMedia { devices }, empty(204, None));
    }
    let mut inserted = inserted(view);
    inserted.retain(|device, _| {
        types
            .as_ref()
            .is_some_and(|types| !types.contains(&device.as_str()))
    });
    keep(call, view, inserted)
}

fn keep(call: &ApiCall<'_>, view: &NodeView, inserted: JsonObject) -> Result<ApiOutcome, ApiFault> {
    unlocked(call, &view.node)?;
    let mut node = Node::clone(&view.node);
    if inserted.is_empty() {
        node.driver_internal_info.remove("vmedia");
    } else {
        let inserted = Value::Object(inserted);
        node.driver_internal_info.insert("vmedia".into(), inserted);
    }
    replace(view, node, empty(204, None))
}

#[cfg(test)]
mod tests {
    use super::masked;

    #[test]
    fn a_password_in_a_url_is_not_stored() {
        for (url, shown) in [
            ("http://u:pw@box/x.iso", "http://u:******@box/x.iso"),
            ("http://u:p@w@box:80?a=b@c", "http://u:******@box:80?a=b@c"),
            ("http://token@box", "http://token:******@box"),
            ("http://box/x@y.iso", "http://box/x@y.iso"),
            ("http://box", "http://box"),
        ] {
            assert_eq!(masked(url), shown);
        }
    }
}
