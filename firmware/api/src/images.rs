//! The box's own images. Ironic has no such thing, so this stands outside `/v1`.

use serde_json::{Value, json};
use trivet_model::Digest;
use trivet_model::image::{ImageNews, ImageState};

use crate::Outcome;
use crate::call::{Call, reply};
use crate::error::Fault;
use crate::route::Route;

/// An image of the box.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Image {
    /// What `image_source` may call it.
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// What it hashes to.
    pub digest: Digest,
}

pub(crate) const ROUTES: &[Route] = &[
    Route::get(&["trivet", "images"], 1, "List the box's images", list),
    Route::get(&["trivet", "images", "{image}"], 1, "Show one", show),
];

fn list(call: &Call<'_>) -> Result<Outcome, Fault> {
    let own = call.facts.images.iter().map(shown);
    let cached = call.view.images.values().map(|news| cached(news));
    let images: Vec<Value> = own.chain(cached).collect();
    reply(&json!({ "images": images }))
}

fn show(call: &Call<'_>) -> Result<Outcome, Fault> {
    let named = |image: &&Image| image.name == call.last();
    if let Some(image) = call.facts.images.iter().find(named) {
        return reply(&shown(image));
    }
    let mut images = call.view.images.values();
    let news = images.find(|news| news.key == call.last() || news.name == call.last());
    let news = news.ok_or_else(|| {
        let name = call.last().escape_debug();
        Fault::not_found(format!("Image {name} could not be found."))
    })?;
    reply(&cached(news))
}

/// An image from elsewhere, and how far it has come.
fn cached(news: &ImageNews) -> Value {
    let why = match &news.state {
        ImageState::Failed(why) => Some(why),
        _ => None,
    };
    json!({
        "name": news.name,
        "key": news.key,
        "size": news.size,
        "here": news.have,
        "state": news.state.to_string(),
        "fault": why,
        "format": "raw",
        news.digest.algorithm(): news.digest.to_string(),
    })
}

fn shown(image: &Image) -> Value {
    json!({
        "name": image.name,
        "size": image.size,
        "here": image.size,
        "state": "whole",
        "format": "raw",
        image.digest.algorithm(): image.digest.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Bench, get};

    #[test]
    fn images_are_listed_and_shown_by_name() {
        let mut bench = Bench::new();
        let none = bench.reply(&get("/trivet/images")).value();
        assert_eq!(none, json!({"images": []}));
        bench.facts.images.push(Image {
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
    fn images_from_elsewhere_say_how_far_they_have_come() {
        let mut bench = Bench::new();
        let news = ImageNews {
            key: "sha256-ab".into(),
            name: "far.raw".into(),
            digest: Digest::Sha256([0xab; 32]),
            size: Some(100),
            have: 40,
            state: ImageState::Failed("it is wrong".into()),
        };
        bench.view.images.insert(news.key.clone(), news.into());
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
}
