//! Converts arguments about images to requests.

use serde_json::{Value, json};
use trivet_net::percent::encode;

use super::{CommandPlan, FinalAction};
use crate::arguments::ImageCommand;
use crate::request::CliRequest;
use crate::show::OutputView;

/// The requests of `trivet image ...`.
pub(crate) fn image(command: &ImageCommand) -> CommandPlan {
    match command {
        ImageCommand::List => listed("images".to_owned(), OutputView::Images),
        ImageCommand::Show { image } => {
            listed(format!("image {image}"), OutputView::Image(image.clone()))
        }
        ImageCommand::Add {
            image,
            sources,
            checksum,
            format,
            boot_mode,
            pin,
        } => {
            let request = new_image(&NewImage {
                image,
                sources,
                checksum: checksum.as_deref(),
                format: format.as_deref(),
                boot_mode: boot_mode.as_deref(),
                pin: *pin,
            });
            of_image(image, request, "is in the catalogue")
        }
        ImageCommand::Fill { image, waiting } if waiting.no_wait => {
            let what = format!("is being fetched; see trivet image show {image}");
            of_image(image, image_request(image, "POST", "/fill"), &what)
        }
        ImageCommand::Fill { image, waiting } => CommandPlan {
            then: FinalAction::WaitImage {
                image: image.clone(),
                limit_ms: u64::from(waiting.timeout) * 1000,
            },
            ..of_image(image, image_request(image, "POST", "/fill"), "")
        },
        // The shell starts with this poll, and continues by itself.
        ImageCommand::Upload { image, .. } => of_image(image, look_image(image), ""),
        ImageCommand::Pin { image } => {
            of_image(image, image_request(image, "PUT", "/pin"), "is pinned")
        }
        ImageCommand::Unpin { image } => of_image(
            image,
            image_request(image, "DELETE", "/pin"),
            "is no longer pinned",
        ),
        ImageCommand::Remove { image } => {
            of_image(image, image_request(image, "DELETE", ""), "is removed")
        }
    }
}

fn listed(subject: String, view: OutputView) -> CommandPlan {
    CommandPlan {
        subject,
        requests: vec![CliRequest::get("/trivet/images")],
        then: FinalAction::Show(view),
    }
}

fn image_request(image: &str, method: &'static str, rest: &str) -> CliRequest {
    CliRequest::new(method, format!("/trivet/images/{}{rest}", encode(image)))
}

fn of_image(image: &str, request: CliRequest, what: &str) -> CommandPlan {
    CommandPlan {
        subject: format!("image {image}"),
        requests: vec![request],
        then: FinalAction::Print(format!("image {image}: {what}")),
    }
}

/// A new record of the catalogue.
pub(crate) struct NewImage<'a> {
    pub(crate) image: &'a str,
    pub(crate) sources: &'a [String],
    pub(crate) checksum: Option<&'a str>,
    pub(crate) format: Option<&'a str>,
    pub(crate) boot_mode: Option<&'a str>,
    pub(crate) pin: bool,
}

pub(crate) fn new_image(new: &NewImage<'_>) -> CliRequest {
    let mut body = json!({
        "name": new.image, "sources": new.sources, "pinned": new.pin,
    });
    for (field, message) in [
        ("checksum", new.checksum),
        ("format", new.format),
        ("boot_mode", new.boot_mode),
    ] {
        if let Some(message) = message {
            body[field] = message.into();
        }
    }
    CliRequest::new("POST", "/trivet/images").with(body)
}

/// Polls one image.
pub(crate) fn look_image(image: &str) -> CliRequest {
    image_request(image, "GET", "")
}

/// The request that carries an image's bytes as its body.
pub(crate) fn put_image(image: &str) -> CliRequest {
    image_request(image, "PUT", "/data")
}

/// What `instance_info` says about an image besides its source. It belongs to the former image,
/// so a new one drops it. `image_pull_secret` stays: it is the login at a registry.
const IMAGE_FIELDS: [&str; 8] = [
    "image_os_hash_algo",
    "image_os_hash_value",
    "image_checksum",
    "image_disk_format",
    "image_container_format",
    "image_type",
    "kernel",
    "ramdisk",
];

/// The changes of `instance_info` when an image is chosen; null removes a key.
pub(crate) fn image_info(image: &str, sha256: Option<&str>) -> Value {
    let mut info = json!({ "image_source": image });
    for field in IMAGE_FIELDS {
        info[field] = Value::Null;
    }
    if let Some(digest) = sha256 {
        info["image_os_hash_algo"] = json!("sha256");
        info["image_os_hash_value"] = json!(digest);
    }
    info
}
