//! Images: from arguments to requests.

use serde_json::json;

use super::{Plan, Then};
use crate::arguments::ImageCommand;
use crate::request::{Request, encoded};
use crate::show::View;

/// What `trivet image ...` asks for.
pub(crate) fn image(command: &ImageCommand) -> Plan {
    match command {
        ImageCommand::List => listed("images".to_owned(), View::Images),
        ImageCommand::Show { image } => {
            listed(format!("image {image}"), View::Image(image.clone()))
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
                checksum,
                format: format.as_deref(),
                boot_mode: boot_mode.as_deref(),
                pin: *pin,
            });
            of_image(image, request, "is in the catalogue")
        }
        ImageCommand::Fill { image, waiting } if waiting.no_wait => {
            let what = format!("comes; see trivet image show {image}");
            of_image(image, below(image, "POST", "/fill"), &what)
        }
        ImageCommand::Fill { image, waiting } => Plan {
            then: Then::WaitImage {
                image: image.clone(),
                limit_ms: u64::from(waiting.timeout) * 1000,
            },
            ..of_image(image, below(image, "POST", "/fill"), "")
        },
        // The shell begins with this look, and goes on by itself.
        ImageCommand::Upload { image, .. } => of_image(image, look_image(image), ""),
        ImageCommand::Pin { image } => of_image(image, below(image, "PUT", "/pin"), "is pinned"),
        ImageCommand::Unpin { image } => {
            of_image(image, below(image, "DELETE", "/pin"), "is no longer pinned")
        }
        ImageCommand::Remove { image } => of_image(image, below(image, "DELETE", ""), "is removed"),
    }
}

fn listed(subject: String, view: View) -> Plan {
    Plan {
        subject,
        requests: vec![Request::get("/trivet/images")],
        then: Then::Show(view),
    }
}

fn below(image: &str, method: &'static str, rest: &str) -> Request {
    Request::new(method, format!("/trivet/images/{}{rest}", encoded(image)))
}

fn of_image(image: &str, request: Request, what: &str) -> Plan {
    Plan {
        subject: format!("image {image}"),
        requests: vec![request],
        then: Then::Say(format!("image {image}: {what}")),
    }
}

/// A new record of the catalogue.
pub(crate) struct NewImage<'a> {
    pub(crate) image: &'a str,
    pub(crate) sources: &'a [String],
    pub(crate) checksum: &'a str,
    pub(crate) format: Option<&'a str>,
    pub(crate) boot_mode: Option<&'a str>,
    pub(crate) pin: bool,
}

pub(crate) fn new_image(new: &NewImage<'_>) -> Request {
    let mut body = json!({
        "name": new.image, "sources": new.sources, "checksum": new.checksum, "pinned": new.pin,
    });
    for (field, said) in [("format", new.format), ("boot_mode", new.boot_mode)] {
        if let Some(said) = said {
            body[field] = said.into();
        }
    }
    Request::new("POST", "/trivet/images").with(body)
}

/// One look at an image.
pub(crate) fn look_image(image: &str) -> Request {
    below(image, "GET", "")
}

/// The request that an image's bytes go with.
pub(crate) fn put_image(image: &str) -> Request {
    below(image, "PUT", "/data")
}
