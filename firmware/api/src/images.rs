//! The box's own images. Ironic has no such thing, so this stands outside `/v1`.

use serde_json::{Value, json};
use trivet_model::Digest;

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
    let images: Vec<Value> = call.facts.images.iter().map(shown).collect();
    reply(&json!({ "images": images }))
}

fn show(call: &Call<'_>) -> Result<Outcome, Fault> {
    let named = |image: &&Image| image.name == call.last();
    let image = call.facts.images.iter().find(named).ok_or_else(|| {
        let name = call.last().escape_debug();
        Fault::not_found(format!("Image {name} could not be found."))
    })?;
    reply(&shown(image))
}

fn shown(image: &Image) -> Value {
    json!({
        "name": image.name,
        "size": image.size,
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
}
