//! Images that are uploaded: the one body that is not read into memory.

use std::sync::Arc;
use std::time::Duration;

use hyper::HeaderMap;
use hyper::body::{Body as _, Incoming};
use trivet_images::{Key, Wanted};
use trivet_model::image::ImageState;
use trivet_model::{Caller, ResourceKind};

use super::Api;
use crate::auth::Role;
use crate::cache::{Offer, Refused};
use crate::doors::http;

/// How long the answer waits for the records to show what became of the image.
const SHOWN_WAIT: Duration = Duration::from_secs(5);
const SHOWN_LOOK: Duration = Duration::from_millis(10);

impl Api {
    pub(super) async fn upload(
        &self,
        caller: &Arc<Caller>,
        request: &trivet_api::Request<'_>,
        image: &str,
        headers: &HeaderMap,
        body: Incoming,
    ) -> trivet_api::Response {
        let (wanted, offer) = match self.wanted(caller, request, image, headers, &body).await {
            Ok(both) => both,
            Err(answer) => {
                // Who waits for a word before it sends is not told to send.
                if !headers.contains_key("expect") {
                    http::pour_out(body);
                }
                return *answer;
            }
        };
        let cache = self.cache.clone();
        let key = wanted.key();
        // It comes to its end in order even if nobody waits for the answer any more.
        let waits = headers.contains_key("expect");
        let taking = tokio::spawn(async move {
            let mut body = body;
            let went = cache.upload(&wanted, offer, &mut body).await;
            let unread = matches!(went, Err(Refused::Conflict(_) | Refused::NoRoom(_)));
            if went.is_err() && !(unread && waits) {
                http::pour_out(body);
            }
            if went.is_ok() && wanted.format.is_packed() {
                // The disk in it is taken out before anybody waits for that.
                let _ = cache.fill(&wanted);
            }
            went
        });
        match taking.await {
            Ok(Ok(have)) => {
                self.wait_until_shown(key, have == offer.size).await;
                self.carry_out(caller, Role::Reader, request).await
            }
            Ok(Err(refused)) => {
                let (status, sentence) = match &refused {
                    Refused::Conflict(sentence) => (409, sentence),
                    Refused::NoRoom(sentence) => (413, sentence),
                    Refused::Disk(sentence) => (507, sentence),
                    Refused::Wrong(sentence) => (422, sentence),
                    Refused::Broken(sentence) => (400, sentence),
                };
                trivet_api::refuse(request, status, sentence)
            }
            Err(_) => trivet_api::refuse(request, 500, "The upload was given up."),
        }
    }

    /// What the catalogue says of the image, and which of its bytes come; otherwise the
    /// answer.
    async fn wanted(
        &self,
        caller: &Arc<Caller>,
        request: &trivet_api::Request<'_>,
        image: &str,
        headers: &HeaderMap,
        body: &Incoming,
    ) -> Result<(Wanted, Offer), Box<trivet_api::Response>> {
        let shown = self.carry_out(caller, Role::Reader, request).await;
        if shown.status != 200 {
            return Err(Box::new(shown));
        }
        let range = headers.get("content-range");
        let range = range.map(|range| range.to_str().unwrap_or_default());
        let offered = trivet_api::offered(range, body.size_hint().exact());
        let [from, bytes, size] =
            offered.map_err(|(status, sentence)| trivet_api::refuse(request, status, sentence))?;
        let view = self.engine.view();
        let resource = view.resource(ResourceKind::Image, image);
        let wanted = resource.and_then(|record| Wanted::of_record(record));
        let sentence = format!("Image {image} has no digest yet; wait until it has one.");
        let wanted = wanted.ok_or_else(|| trivet_api::refuse(request, 409, &sentence))?;
        Ok((wanted, Offer { from, bytes, size }))
    }

    /// Who uploaded an image and looks at it at once finds it there.
    async fn wait_until_shown(&self, key: Key, whole: bool) {
        let key = key.to_string();
        let shown = async {
            loop {
                let view = self.engine.view();
                let state = view.images.get(&key).map(|news| &news.state);
                if !whole || state == Some(&ImageState::Whole) {
                    return;
                }
                tokio::time::sleep(SHOWN_LOOK).await;
            }
        };
        let _ = tokio::time::timeout(SHOWN_WAIT, shown).await;
    }
}
