//! The box's own images. Ironic does not have them, so these paths are outside `/v1`.

use serde_json::{Value, json};
use trivet_model::image::{IMAGE_BYTES_MAX, ImageFormat, ImageStatus};
use trivet_model::secret;
use trivet_model::{Digest, OciReference, RackOrder, Resource, ResourceId, ResourceKind};

use crate::table::body;
use crate::table::call::{self, ApiCall, reply};
use crate::table::error::ApiFault;
use crate::table::field::ValueShape;
use crate::table::route::{ApiArg, ApiRoute, BodySchema, ResponseSchema, arg, required};
use crate::{ApiOutcome, Response, ResponsePlan};

/// Most sources of an image, and the most bytes of one. Ours.
const SOURCES_MAX: usize = 8;
const SOURCE_BYTES_MAX: usize = 2048;

/// The boot modes of an image that does not support both.
const BOOT_MODES: [&str; 2] = ["bios", "uefi"];

/// An image of the box.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LocalImage {
    /// The name for `image_source`.
    pub name: String,
    /// Size in bytes.
    pub size: u64,
    /// Digest of the image.
    pub digest: Digest,
}

/// The keys of a new image of the catalogue.
const NEW: &[ApiArg] = &[
    required("name", 1, ValueShape::Text),
    arg("sources", 1, ValueShape::List),
    arg("checksum", 1, ValueShape::Text),
    arg("boot_mode", 1, ValueShape::Text),
    arg("pinned", 1, ValueShape::Flag),
    arg("format", 1, ValueShape::Text),
];

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get(&["trivet", "images"], 1, "List the box's images", list),
    ApiRoute::get(&["trivet", "images", "{image}"], 1, "Show one", show),
    ApiRoute::new(
        "POST",
        &["trivet", "images"],
        1,
        "Add an image to the catalogue",
        create,
    )
    .body(BodySchema::Args(NEW))
    .response(ResponseSchema::Any(201)),
    ApiRoute::new(
        "DELETE",
        &["trivet", "images", "{image}"],
        1,
        "Remove one",
        delete,
    ),
    ApiRoute::new(
        "POST",
        &["trivet", "images", "{image}", "fill"],
        1,
        "Fetch one into the cache",
        fill,
    )
    .response(ResponseSchema::Empty(202)),
    ApiRoute::new(
        "PUT",
        &["trivet", "images", "{image}", "data"],
        1,
        "Upload one; Content-Range resumes an interrupted upload",
        data,
    )
    .body(BodySchema::Bytes)
    .response(ResponseSchema::Any(200)),
    ApiRoute::new(
        "PUT",
        &["trivet", "images", "{image}", "pin"],
        1,
        "Pin one: it is never evicted from the cache",
        pin,
    ),
    ApiRoute::new(
        "DELETE",
        &["trivet", "images", "{image}", "pin"],
        1,
        "Unpin one: it can be evicted from the cache",
        unpin,
    ),
];

fn list(call: &ApiCall<'_>) -> Result<ApiOutcome, ApiFault> {
    let own = call.facts.images.iter().map(shown);
    let stored = call.view.resources_of(ResourceKind::Image);
    let stored: Vec<&Resource> = stored.map(AsRef::as_ref).collect();
    let passing = passing(call).map(|news| cached(news));
    let stored = stored.iter().map(|resource| catalogued(call, resource));
    let images: Vec<Value> = own.chain(stored).chain(passing).collect();
    reply(&json!({ "images": images }))
}

/// The images of the cache that are not those of a catalogue entry, under whatever name they were
/// requested.
fn passing<'a>(call: &ApiCall<'a>) -> impl Iterator<Item = &'a std::sync::Arc<ImageStatus>> {
    let stored = call.view.resources_of(ResourceKind::Image);
    let keys: Vec<String> = stored.filter_map(|one| key(one)).collect();
    let images = call.view.images.values();
    images.filter(move |news| !keys.contains(&news.key))
}

fn show(call: &ApiCall<'_>) -> Result<ApiOutcome, ApiFault> {
    let named = |image: &&LocalImage| image.name == call.last();
    if let Some(image) = call.facts.images.iter().find(named) {
        return reply(&shown(image));
    }
    if let Some(resource) = call.view.resource(ResourceKind::Image, call.last()) {
        return reply(&catalogued(call, resource));
    }
    let mut images = passing(call);
    let news = images.find(|news| news.key == call.last() || news.name == call.last());
    reply(&cached(news.ok_or_else(|| missing(call.last()))?))
}

fn missing(name: &str) -> ApiFault {
    ApiFault::not_found(ResourceKind::Image.missing(name))
}

/// The record in the path.
fn this<'a>(call: &ApiCall<'a>) -> Result<&'a Resource, ApiFault> {
    let name = call.word(2);
    let resource = call.view.resource(ResourceKind::Image, name);
    resource.map(AsRef::as_ref).ok_or_else(|| missing(name))
}

fn create(call: &ApiCall<'_>) -> Result<ApiOutcome, ApiFault> {
    let mut fields = body::args(call, NEW)?;
    let name = body::text(&fields, "name")?.unwrap_or_default().to_owned();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    if name.is_empty() || name.starts_with('.') || !name.bytes().all(plain) {
        return Err(ApiFault::bad(
            "name must be letters, digits, dots, dashes or underscores and not begin with a dot.",
        ));
    }
    if name.ends_with(".chunks") {
        return Err(ApiFault::bad(
            "name must not end in .chunks: that is the name of a chunk list.",
        ));
    }
    check_sources(&fields)?;
    let is_lookup = check_checksum(&fields)?;
    // What the registry has decides on the format where none is given.
    if !is_lookup || fields.get("format").is_some_and(|format| !format.is_null()) {
        let format = format(&fields, &name)?;
        fields.insert("format".to_owned(), json!(format.name()));
    } else {
        fields.remove("format");
    }
    let mode = body::text(&fields, "boot_mode")?;
    if mode.is_some_and(|mode| !BOOT_MODES.contains(&mode)) {
        return Err(ApiFault::bad(
            "boot_mode must be bios or uefi, or left out.",
        ));
    }
    fields.remove("name");
    let id = ResourceId(call.new_id());
    let mut resource = Resource::new(id, ResourceKind::Image, call.now);
    resource.name = Some(name.clone());
    resource.fields = fields;
    let order = RackOrder::CreateResource(Box::new(resource));
    call::order(order, ResponsePlan::Image { name })
}

/// Whether the digest is to be looked up in the registry of the first source.
fn check_checksum(fields: &trivet_model::node::JsonObject) -> Result<bool, ApiFault> {
    let first = fields.get("sources").and_then(|sources| sources.get(0));
    let is_oci = first
        .and_then(Value::as_str)
        .is_some_and(OciReference::is_oci);
    let Some(checksum) = body::text(fields, "checksum")? else {
        return if is_oci {
            Ok(true)
        } else {
            Err(ApiFault::bad(
                "checksum is missing; only an image whose first source is in a registry (oci://) \
                 needs none.",
            ))
        };
    };
    let sums = ["http://", "https://"];
    let is_file = checksum.len() <= SOURCE_BYTES_MAX
        && !is_oci
        && sums.iter().any(|scheme| checksum.starts_with(scheme));
    if !is_file && checksum.parse::<Digest>().is_err() {
        return Err(ApiFault::bad(
            "checksum must be 64 (SHA-256) or 128 (SHA-512) hexadecimal digits, or the URL of a \
             checksum file.",
        ));
    }
    Ok(false)
}

fn check_sources(fields: &trivet_model::node::JsonObject) -> Result<(), ApiFault> {
    let sources = fields.get("sources").and_then(Value::as_array);
    let sources = sources.map_or(&[][..], Vec::as_slice);
    let fits = |source: &Value| {
        let source = source.as_str().unwrap_or_default();
        let known = ["http://", "https://", "file:///"];
        let is_known = known.iter().any(|scheme| source.starts_with(scheme));
        source.len() <= SOURCE_BYTES_MAX && (is_known || OciReference::is_oci(source))
    };
    if sources.len() > SOURCES_MAX || !sources.iter().all(fits) {
        return Err(ApiFault::bad(format!(
            "sources must be at most {SOURCES_MAX} URLs that begin with http://, https://, \
             oci:// or file:///; without any the image is uploaded."
        )));
    }
    let mut references = sources.iter().filter_map(Value::as_str);
    let wrong = references.find_map(|source| {
        let is_oci = OciReference::is_oci(source);
        let why = source.parse::<OciReference>().err().filter(|_| is_oci)?;
        let masked = secret::without_url_credentials(source);
        Some(format!("{} {why}.", masked.as_deref().unwrap_or(source)))
    });
    wrong.map_or(Ok(()), |why| Err(ApiFault::bad(why)))
}

/// The format of the image: as given, else by the extension of its source or of its name.
fn format(fields: &trivet_model::node::JsonObject, name: &str) -> Result<ImageFormat, ApiFault> {
    if let Some(message) = body::text(fields, "format")? {
        return ImageFormat::parse(message).ok_or_else(|| {
            let all = ImageFormat::ALL.map(ImageFormat::name).join(", ");
            ApiFault::bad(format!("format must be one of: {all}."))
        });
    }
    let sources = fields.get("sources").and_then(Value::as_array);
    let source = sources.and_then(|all| all.first()?.as_str());
    Ok(
        match ImageFormat::of_file_name(source.unwrap_or_default()) {
            ImageFormat::Raw => ImageFormat::of_file_name(name),
            format => format,
        },
    )
}

/// By name, or by key where the image is not in the catalogue: that of a URL has no other name
/// that is certainly its own.
fn delete(call: &ApiCall<'_>) -> Result<ApiOutcome, ApiFault> {
    let name = call.word(2);
    if call.facts.images.iter().any(|image| image.name == name) {
        return Err(ApiFault::conflict(format!(
            "Image {name} is a file in the image directory of this box; delete it there."
        )));
    }
    let order = match this(call) {
        Ok(resource) => RackOrder::DeleteResource(ResourceKind::Image, resource.id),
        Err(missing) => {
            let mut digests: Vec<Digest> = passing(call)
                .filter(|news| news.key == name || news.name == name)
                .map(|news| news.digest)
                .collect();
            digests.sort_unstable();
            digests.dedup();
            match digests.as_slice() {
                [] => return Err(missing),
                [digest] => RackOrder::DropImage(*digest),
                _ => {
                    return Err(ApiFault::conflict(format!(
                        "Several images of the cache have the name {name}; remove one by its key, \
                         such as sha256-..., which the list of images shows."
                    )));
                }
            }
        }
    };
    call::order(order, call::empty(204, None))
}

fn fill(call: &ApiCall<'_>) -> Result<ApiOutcome, ApiFault> {
    let order = RackOrder::FetchImage(this(call)?.id);
    call::order(order, call::empty(202, None))
}

/// The bytes are not handled here: the daemon stores them before and after this call.
fn data(call: &ApiCall<'_>) -> Result<ApiOutcome, ApiFault> {
    reply(&catalogued(call, this(call)?))
}

/// The image whose bytes a request uploads, if it is an upload.
pub fn upload_target(method: &str, path: &str) -> Option<String> {
    let segments = crate::table::percent::segments(path).ok()?;
    match segments.as_slice() {
        [first, second, name, last]
            if method == "PUT" && first == "trivet" && second == "images" && last == "data" =>
        {
            Some(name.clone())
        }
        _ => None,
    }
}

/// The range of an upload, from its headers: the first byte, the length, and the total size.
/// Otherwise a status and an error message.
pub fn upload_range(
    range: Option<&str>,
    length: Option<u64>,
) -> Result<[u64; 3], (u16, &'static str)> {
    let Some(length) = length else {
        let sentence = "An upload needs its length: send it with Content-Length.";
        return Err((411, sentence));
    };
    if length == 0 {
        return Err((400, "The upload is empty: an image has at least one byte."));
    }
    let Some(range) = range else {
        if length > IMAGE_BYTES_MAX {
            return Err((413, "An image has at most 16 TiB."));
        }
        return Ok([0, length, length]);
    };
    let parsed = range.trim().strip_prefix("bytes ").and_then(|rest| {
        let (part, size) = rest.split_once('/')?;
        let (from, last) = part.split_once('-')?;
        let number = |text: &str| text.parse::<u64>().ok();
        Some((number(from)?, number(last)?, number(size)?))
    });
    if parsed.is_some_and(|(_, _, size)| size > IMAGE_BYTES_MAX) {
        return Err((413, "An image has at most 16 TiB."));
    }
    match parsed {
        Some((from, last, size))
            if from <= last && last < size && last - from == length.wrapping_sub(1) =>
        {
            Ok([from, length, size])
        }
        _ => Err((
            400,
            "Content-Range must be `bytes FIRST-LAST/SIZE` and fit Content-Length.",
        )),
    }
}

fn pin(call: &ApiCall<'_>) -> Result<ApiOutcome, ApiFault> {
    pinned(call, true)
}

fn unpin(call: &ApiCall<'_>) -> Result<ApiOutcome, ApiFault> {
    pinned(call, false)
}

fn pinned(call: &ApiCall<'_>, on: bool) -> Result<ApiOutcome, ApiFault> {
    let mut resource = this(call)?.clone();
    let based_on = resource.revision;
    resource.fields.insert("pinned".to_owned(), on.into());
    let resource = Box::new(resource);
    let order = RackOrder::ReplaceResource { resource, based_on };
    call::order(order, call::empty(204, None))
}

/// The response to a new image.
pub(crate) fn whole(call: &ApiCall<'_>, name: &str) -> Result<Response, ApiFault> {
    let resource = call.view.resource(ResourceKind::Image, name);
    let resource = resource.ok_or_else(|| missing(name))?;
    Ok(Response::json(201, &catalogued(call, resource)))
}

fn key(resource: &Resource) -> Option<String> {
    let digest: Digest = resource.text("checksum")?.parse().ok()?;
    Some(format!("{}-{digest}", digest.algorithm()))
}

/// An image of the catalogue, and its progress.
fn catalogued(call: &ApiCall<'_>, resource: &Resource) -> Value {
    let digest: Option<Digest> = resource.text("checksum").and_then(|text| text.parse().ok());
    let format = resource.text("format").and_then(ImageFormat::parse);
    let news = key(resource).and_then(|key| {
        let in_view = ImageStatus::view_key(&key, format.unwrap_or_default());
        call.view.images.get(&in_view)
    });
    // Several entries can need the same bytes; a failure belongs to one of them.
    let own = |news: &&std::sync::Arc<ImageStatus>| {
        news.state.failure().is_none() || Some(news.name.as_str()) == resource.name.as_deref()
    };
    let news = news.filter(own);
    let mut value = match news {
        Some(news) => cached(news),
        None => json!({"size": null, "here": 0, "state": "not_cached", "fault": null, "raw": null}),
    };
    value["format"] = json!(resource.text("format").unwrap_or("raw"));
    value["name"] = json!(resource.name);
    value["sources"] = json!(resource.fields.get("sources"));
    value["checksum_url"] = json!(resource.fields.get("checksum_url").or_else(|| {
        let sum = resource.fields.get("checksum");
        sum.filter(|_| digest.is_none())
    }));
    value["manifest"] = json!(resource.fields.get("manifest"));
    value["boot_mode"] = json!(resource.fields.get("boot_mode"));
    value["pinned"] = json!(resource.fields.get("pinned") == Some(&Value::Bool(true)));
    if let Some(digest) = digest {
        value[digest.algorithm()] = json!(digest.to_string());
    }
    if let Some(why) = fault_of(call, resource, digest) {
        value["state"] = json!("failed");
        value["fault"] = json!(why);
    }
    // Sources and their errors can contain credentials.
    match value {
        Value::Object(object) => Value::Object(secret::masked(&object)),
        other => other,
    }
}

/// The fault of this entry: its bytes could not be fetched, or are wrong, or its checksum file
/// could not be read.
fn fault_of(call: &ApiCall<'_>, resource: &Resource, digest: Option<Digest>) -> Option<String> {
    let name = resource.name.as_deref()?;
    let digest = digest.map(|digest| digest.to_string());
    let mut faults = call.view.faults.keys();
    faults.find_map(|fault| match fault {
        trivet_model::BoxFault::ImageFailed {
            image,
            digest: of,
            why,
        } if image == name && *of == digest => Some(why.clone()),
        _ => None,
    })
}

/// An image that is not in the catalogue, and its progress.
fn cached(news: &ImageStatus) -> Value {
    let why = news.state.failure();
    // For a packed image: the unpacked disk, which nodes read.
    let raw = news
        .raw
        .map(|raw| json!({"size": raw.size, raw.digest.algorithm(): raw.digest.to_string()}));
    json!({
        "raw": raw,
        "name": news.name,
        "key": news.key,
        "size": news.size,
        "here": news.present_bytes,
        "state": news.state.to_string(),
        "fault": why,
        "format": news.format.name(),
        news.digest.algorithm(): news.digest.to_string(),
    })
}

fn shown(image: &LocalImage) -> Value {
    json!({
        "name": image.name,
        "size": image.size,
        "here": image.size,
        "state": "complete",
        "format": ImageFormat::of_file_name(&image.name).name(),
        image.digest.algorithm(): image.digest.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{ApiBench, get, send};
    use trivet_model::image::ImageState;

    #[test]
    fn images_are_listed_and_shown_by_name() {
        let mut bench = ApiBench::new();
        let none = bench.reply(&get("/trivet/images")).value();
        assert_eq!(none, json!({"images": []}));
        bench.facts.images.push(LocalImage {
            name: "debian.raw".into(),
            size: 7,
            digest: Digest::Sha256([0xab; 32]),
        });
        let one = bench.reply(&get("/trivet/images/debian.raw")).value();
        assert_eq!(one["sha256"], "ab".repeat(32));
        let all = bench.reply(&get("/trivet/images")).value();
        assert_eq!(all["images"], json!([one]));
        bench.refuses(&get("/trivet/images/other"), 404);
    }

    #[test]
    fn an_image_that_is_not_in_the_catalogue_is_removed_by_name_or_key() {
        let mut bench = ApiBench::new();
        let add = |bench: &mut ApiBench, byte: u8| {
            let digest = Digest::Sha256([byte; 32]);
            let news = ImageStatus {
                key: format!("sha256-{digest}"),
                name: "far.raw".into(),
                digest,
                format: ImageFormat::Raw,
                size: Some(100),
                present_bytes: 100,
                state: ImageState::Complete,
                raw: None,
            };
            let in_view = ImageStatus::view_key(&news.key, news.format);
            bench.view.images.insert(in_view, news.into());
            digest
        };
        let first = add(&mut bench, 0xab);
        let order = bench.order(&send("DELETE", "/trivet/images/far.raw", ""));
        assert_eq!(order.0, RackOrder::DropImage(first));
        let second = add(&mut bench, 0xcd);
        bench.refuses(&send("DELETE", "/trivet/images/far.raw", ""), 409);
        let path = format!("/trivet/images/sha256-{second}");
        let order = bench.order(&send("DELETE", &path, ""));
        assert_eq!(order.0, RackOrder::DropImage(second));
        bench.refuses(&send("DELETE", "/trivet/images/other", ""), 404);
    }

    #[test]
    fn images_from_elsewhere_show_their_progress() {
        let mut bench = ApiBench::new();
        let news = ImageStatus {
            key: "sha256-ab".into(),
            name: "far.raw".into(),
            digest: Digest::Sha256([0xab; 32]),
            format: ImageFormat::Raw,
            size: Some(100),
            present_bytes: 40,
            state: ImageState::Failed("it is wrong".into()),
            raw: None,
        };
        let in_view = ImageStatus::view_key(&news.key, news.format);
        bench.view.images.insert(in_view, news.into());
        for ident in ["far.raw", "sha256-ab"] {
            let one = bench
                .reply(&get(&format!("/trivet/images/{ident}")))
                .value();
            assert_eq!((&one["here"], &one["size"]), (&json!(40), &json!(100)));
            assert_eq!(
                (&one["state"], &one["fault"]),
                (&json!("failed"), &json!("it is wrong"))
            );
        }
        let all = bench.reply(&get("/trivet/images")).value();
        assert_eq!(all["images"][0]["name"], "far.raw");
    }

    /// A removed entry was found by the name in the status of its bytes, and could not be made
    /// again.
    #[test]
    fn a_name_that_was_removed_is_not_found_while_another_entry_has_its_bytes() {
        let mut bench = ApiBench::new();
        let message = new("disk.raw", json!(["http://h/disk.raw"]), &"ab".repeat(32));
        let (order, _) = bench.order(&send("POST", NEW_IMAGE, &message.to_string()));
        let RackOrder::CreateResource(resource) = order else {
            panic!("a record");
        };
        bench.add_resource(*resource);
        for (name, format, state) in [
            ("disk.raw", ImageFormat::Raw, ImageState::Complete),
            (
                "z.qcow2",
                ImageFormat::Qcow2,
                ImageState::Wrong("bad".into()),
            ),
        ] {
            let digest = Digest::Sha256([0xab; 32]);
            let news = ImageStatus {
                key: format!("sha256-{digest}"),
                name: name.into(),
                digest,
                format,
                size: Some(100),
                present_bytes: 100,
                state,
                raw: None,
            };
            let in_view = ImageStatus::view_key(&news.key, format);
            bench.view.images.insert(in_view, news.into());
        }
        bench.refuses(&get("/trivet/images/z.qcow2"), 404);
        let one = bench.reply(&get("/trivet/images/disk.raw")).value();
        assert_eq!(
            (&one["state"], &one["here"]),
            (&json!("complete"), &json!(100))
        );
        let all = bench.reply(&get("/trivet/images")).value();
        assert_eq!(all["images"].as_array().unwrap().len(), 1);
    }

    const NEW_IMAGE: &str = "/trivet/images";

    fn new(name: &str, sources: Value, checksum: &str) -> Value {
        json!({"name": name, "sources": sources, "checksum": checksum})
    }

    #[test]
    fn an_image_is_put_into_the_catalogue_filled_pinned_and_removed() {
        let mut bench = ApiBench::new();
        let sum = "ab".repeat(32);
        let requested = new("far.raw", json!(["http://h/far.raw"]), &sum).to_string();
        let (order, then) = bench.order(&send("POST", NEW_IMAGE, &requested));
        let name = "far.raw".to_owned();
        assert_eq!(then, ResponsePlan::Image { name });
        let RackOrder::CreateResource(resource) = order else {
            panic!("a record");
        };
        assert_eq!(resource.kind, ResourceKind::Image);
        let id = resource.id;
        bench.add_resource(*resource);
        let one = bench.reply(&get("/trivet/images/far.raw")).value();
        assert_eq!(
            (&one["state"], &one["sha256"]),
            (&json!("not_cached"), &json!(sum))
        );
        let order = |method, path| bench.order(&send(method, path, "")).0;
        let filled = order("POST", "/trivet/images/far.raw/fill");
        assert_eq!(filled, RackOrder::FetchImage(id));
        let pinned = order("PUT", "/trivet/images/far.raw/pin");
        assert!(matches!(pinned, RackOrder::ReplaceResource { resource, .. }
            if resource.fields["pinned"] == json!(true)));
        let removed = order("DELETE", "/trivet/images/far.raw");
        assert_eq!(removed, RackOrder::DeleteResource(ResourceKind::Image, id));
        bench.refuses(&send("DELETE", "/trivet/images/other", ""), 404);
    }

    #[test]
    fn the_format_is_given_or_known_by_the_name() {
        let mut bench = ApiBench::new();
        let sum = "ab".repeat(32);
        let stored = |body: &Value| {
            let (order, _) = bench.order(&send("POST", NEW_IMAGE, &body.to_string()));
            let RackOrder::CreateResource(resource) = order else {
                panic!("a record");
            };
            resource
        };
        for (name, source, format) in [
            ("debian", "http://h/debian.qcow2?x=1", "qcow2"),
            ("debian.xz", "http://h/latest", "xz"),
            ("debian.raw", "http://h/debian.raw", "raw"),
            ("live", "file:///srv/live.iso", "iso"),
        ] {
            let resource = stored(&new(name, json!([source]), &sum));
            assert_eq!(resource.fields["format"], format, "{source}");
        }
        let mut message = new("disk.raw", json!(["http://h/disk.raw"]), &sum);
        message["format"] = json!("zstd");
        let resource = stored(&message);
        assert_eq!(resource.fields["format"], "zstd");
        message["format"] = json!("vmdk");
        bench.refuses(&send("POST", NEW_IMAGE, &message.to_string()), 400);
        bench.add_resource(*resource);
        let one = bench.reply(&get("/trivet/images/disk.raw")).value();
        assert_eq!(
            (&one["format"], &one["raw"]),
            (&json!("zstd"), &json!(null))
        );
        let news = ImageStatus {
            key: format!("sha256-{sum}"),
            name: "disk.raw".into(),
            digest: Digest::Sha256([0xab; 32]),
            format: ImageFormat::Zstd,
            size: Some(100),
            present_bytes: 100,
            state: ImageState::Complete,
            raw: Some(trivet_model::image::UnpackedImage {
                digest: Digest::Sha256([0xcd; 32]),
                size: 400,
            }),
        };
        let in_view = ImageStatus::view_key(&news.key, news.format);
        bench.view.images.insert(in_view, news.into());
        let one = bench.reply(&get("/trivet/images/disk.raw")).value();
        assert_eq!(one["raw"], json!({"size": 400, "sha256": "cd".repeat(32)}));
        assert_eq!(one["format"], "zstd");
    }

    #[test]
    fn an_image_that_cannot_be_fetched_or_checked_is_refused() {
        let bench = ApiBench::new();
        let sum = "ab".repeat(32);
        let good = json!(["http://h/x"]);
        for body in [
            new("a/b", good.clone(), &sum),
            new("", good.clone(), &sum),
            json!({"name": "x", "checksum": sum, "boot_mode": "coreboot"}),
            new("x", json!(["ftp://h/x"]), &sum),
            new("x", json!([7]), &sum),
            new("x", json!(vec!["http://h/x"; SOURCES_MAX + 1]), &sum),
            new("x", good.clone(), "d41d8cd98f00b204e9800998ecf8427e"),
            json!({"name": "x", "sources": good}),
        ] {
            bench.refuses(&send("POST", NEW_IMAGE, &body.to_string()), 400);
        }
    }

    #[test]
    fn an_image_of_a_registry_needs_no_digest_and_no_format() {
        let mut bench = ApiBench::new();
        let stored = |bench: &ApiBench, body: &Value| {
            let (order, _) = bench.order(&send("POST", NEW_IMAGE, &body.to_string()));
            let RackOrder::CreateResource(resource) = order else {
                panic!("a record");
            };
            resource
        };
        let source = "oci://h:5000/team/debian:12";
        let mut body = json!({"name": "debian", "sources": [source, "http://h/debian.raw"]});
        let mut resource = stored(&bench, &body);
        assert_eq!(resource.text("checksum"), None);
        assert_eq!(resource.text("format"), None);
        let manifest = format!("sha256:{}", "cd".repeat(32));
        resource.fields.insert("manifest".into(), json!(manifest));
        bench.add_resource(*resource);
        let one = bench.reply(&get("/trivet/images/debian")).value();
        assert_eq!(
            (&one["sources"][0], &one["manifest"]),
            (&json!(source), &json!(manifest))
        );
        assert_eq!(one.get("sha256"), None);
        body["format"] = json!("zstd");
        assert_eq!(stored(&bench, &body).text("format"), Some("zstd"));
        body["checksum"] = json!("ab".repeat(32));
        assert_eq!(
            stored(&bench, &body).text("checksum"),
            Some(&*"ab".repeat(32))
        );
        for (sources, checksum) in [
            (json!(["http://h/debian.raw", source]), Value::Null),
            (json!([source]), json!("https://h/SHA256SUMS")),
            (json!(["oci://h/Team"]), Value::Null),
            (json!(["oci://ann:pw@h/team"]), Value::Null),
        ] {
            let mut body = json!({"name": "debian", "sources": sources});
            if !checksum.is_null() {
                body["checksum"] = checksum;
            }
            bench.refuses(&send("POST", NEW_IMAGE, &body.to_string()), 400);
        }
    }

    #[test]
    fn an_image_without_a_source_is_uploaded() {
        let mut bench = ApiBench::new();
        let sum = "cd".repeat(32);
        let body = json!({"name": "up.raw", "checksum": sum, "boot_mode": "uefi"}).to_string();
        let RackOrder::CreateResource(resource) = bench.order(&send("POST", NEW_IMAGE, &body)).0
        else {
            panic!("a record");
        };
        bench.add_resource(*resource);
        let empty = new("too.raw", json!([]), &sum).to_string();
        bench.order(&send("POST", NEW_IMAGE, &empty));
        let shown = bench
            .reply(&send("PUT", "/trivet/images/up.raw/data", ""))
            .value();
        assert_eq!(
            (&shown["name"], &shown["boot_mode"], &shown["here"]),
            (&json!("up.raw"), &json!("uefi"), &json!(0))
        );
        bench.refuses(&send("PUT", "/trivet/images/other/data", ""), 404);
        assert_eq!(
            upload_target("PUT", "/trivet/images/up.raw/data"),
            Some("up.raw".to_owned())
        );
        for (method, path) in [
            ("GET", "/trivet/images/up.raw/data"),
            ("PUT", "/trivet/images/up.raw/pin"),
            ("PUT", "/trivet/images/up.raw"),
            ("PUT", "/trivet/images/%zz/data"),
        ] {
            assert_eq!(upload_target(method, path), None, "{method} {path}");
        }
    }

    #[test]
    fn the_headers_of_an_upload_have_its_range() {
        assert_eq!(upload_range(None, Some(7)), Ok([0, 7, 7]));
        assert_eq!(upload_range(Some("bytes 3-6/7"), Some(4)), Ok([3, 4, 7]));
        assert_eq!(upload_range(None, None).unwrap_err().0, 411);
        let (status, sentence) = upload_range(None, Some(0)).unwrap_err();
        assert_eq!(status, 400);
        assert!(sentence.contains("empty"), "{sentence}");
        for (range, length) in [
            ("bytes 3-6/7", 5),
            ("bytes 3-6/6", 4),
            ("bytes 6-3/7", 4),
            ("bytes 3-6/*", 4),
            ("bytes */7", 0),
            ("3-6/7", 4),
            ("bytes 0-0/1", 0),
            ("bytes 0-18446744073709551615/7", 0),
            ("", 0),
        ] {
            assert_eq!(
                upload_range(Some(range), Some(length)).unwrap_err().0,
                400,
                "{range}"
            );
        }
    }
}
