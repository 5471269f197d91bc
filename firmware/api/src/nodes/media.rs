//! `/v1/nodes/<ident>/vmedia`: images in drives that are not there.
//!
//! A BMC is asked. What is inserted on hardware that is pretended stands among the node's
//! own fields as `vmedia`, an object of device types and addresses.

use serde_json::{Value, json};
use trivet_hardware::{Ability, pretends};
use trivet_model::node::Object;
use trivet_model::secret::{Hidden, MASK};
use trivet_model::view::NodeView;
use trivet_model::{Errand, Node};

use super::{able, replace, unlocked};
use crate::call::{Call, empty, reply};
use crate::errands::errand;
use crate::error::Fault;
use crate::field::Shape;
use crate::route::{Arg, Route, Takes, arg, required};
use crate::{Outcome, Then, body};

/// Device types and what a BMC calls the media they take.
const DEVICES: [(&str, &[&str]); 3] = [
    ("cdrom", &["CD", "DVD"]),
    ("disk", &["USBStick"]),
    ("floppy", &["Floppy"]),
];

const WORDS: &[&str] = &["cdrom", "disk", "floppy"];

/// Longest address of an image. Ours.
pub(crate) const IMAGE_URL_BYTES_MAX: usize = 2048;

const INSERT: &[Arg] = &[
    required("device_type", 89, Shape::Word(WORDS)),
    required("image_url", 89, Shape::LongText),
    arg(
        "image_download_source",
        89,
        Shape::Word(&["http", "local", "swift"]),
    ),
];

pub(crate) const ROUTES: &[Route] = &[
    Route::get(
        &["v1", "nodes", "{node}", "vmedia"],
        93,
        "What is inserted",
        |call| show(call.this()?),
    ),
    Route::new(
        "POST",
        &["v1", "nodes", "{node}", "vmedia"],
        89,
        "Insert an image",
        |call| insert(call, call.this()?),
    )
    .takes(Takes::Args(INSERT)),
    Route::new(
        "DELETE",
        &["v1", "nodes", "{node}", "vmedia"],
        89,
        "Eject images",
        |call| eject(call, call.this()?),
    )
    .asks(&[&[arg("device_types", 89, Shape::Text)]]),
];

fn inserted(view: &NodeView) -> Object {
    let kept = view.node.driver_internal_info.get("vmedia");
    kept.and_then(Value::as_object).cloned().unwrap_or_default()
}

fn show(view: &NodeView) -> Result<Outcome, Fault> {
    able::or_refuse(view, Ability::VirtualMedia, "get_virtual_media")?;
    if !pretends(&view.node) {
        return errand(view, Errand::Media, Then::Media);
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

/// What a BMC said of its drives, as Ironic lists them.
pub(crate) fn listed(said: &Value) -> Value {
    let drives = said["media"].as_array().into_iter().flatten();
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

fn insert(call: &Call<'_>, view: &NodeView) -> Result<Outcome, Fault> {
    let object = body::args(call, INSERT)?;
    let text = |key: &str| {
        let text = body::text(&object, key)?.map(str::to_owned);
        Ok::<_, Fault>(text.unwrap_or_default())
    };
    let (device, url) = (text("device_type")?, text("image_url")?);
    if url.len() > IMAGE_URL_BYTES_MAX {
        return Err(Fault::bad(format!(
            "image_url has at most {IMAGE_URL_BYTES_MAX} bytes."
        )));
    }
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
    if !["http", "https", "nfs", "cifs"].contains(&scheme) {
        return Err(Fault::bad(format!(
            "Unsupported or missing URL scheme: {}",
            scheme.escape_debug()
        )));
    }
    able::or_refuse(view, Ability::VirtualMedia, "attach_virtual_media")?;
    if !pretends(&view.node) {
        let device = device.parse().map_err(|_| Fault::bad("No such device."))?;
        let url = Hidden::new(url);
        unlocked(call, &view.node)?;
        return errand(view, Errand::InsertMedia { device, url }, empty(204, None));
    }
    let mut inserted = inserted(view);
    inserted.insert(device, masked(&url).into());
    keep(call, view, inserted)
}

/// The address without a password in it: readers see it, and the hardware that has
/// such drives so far is pretended and fetches nothing.
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

fn eject(call: &Call<'_>, view: &NodeView) -> Result<Outcome, Fault> {
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
        return Err(Fault::bad(format!(
            "Invalid device type(s) {} (valid are {})",
            strange.join(", ").escape_debug(),
            WORDS.join(", ")
        )));
    }
    able::or_refuse(view, Ability::VirtualMedia, "detach_virtual_media")?;
    if !pretends(&view.node) {
        let named = types.iter().flatten();
        let devices = named.filter_map(|word| word.parse().ok()).collect();
        unlocked(call, &view.node)?;
        return errand(view, Errand::EjectMedia { devices }, empty(204, None));
    }
    let mut inserted = inserted(view);
    inserted.retain(|device, _| {
        types
            .as_ref()
            .is_some_and(|types| !types.contains(&device.as_str()))
    });
    keep(call, view, inserted)
}

fn keep(call: &Call<'_>, view: &NodeView, inserted: Object) -> Result<Outcome, Fault> {
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
    fn a_password_in_an_address_is_not_kept() {
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
