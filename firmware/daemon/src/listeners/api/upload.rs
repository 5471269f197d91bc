//! Uploaded images: the one request body that is not read into memory.

use std::sync::Arc;
use std::time::Duration;

use hyper::HeaderMap;
use hyper::body::{Body as _, Incoming};
use trivet_images::{ImageSpec, ImageUploadError, ImageUploadRange};
use trivet_model::image::{ImageState, ImageStatus};
use trivet_model::{ApiCaller, ResourceKind};

use super::ApiService;
use crate::auth::Role;
use crate::listeners::http;

/// How long the response waits until the records show the new state of the image.
const SHOWN_WAIT: Duration = Duration::from_secs(5);
const SHOWN_POLL_GAP: Duration = Duration::from_millis(10);

impl ApiService {
    pub(super) async fn upload(
        &self,
        caller: &Arc<ApiCaller>,
        request: &trivet_api::Request<'_>,
        image: &str,
        headers: &HeaderMap,
        body: Incoming,
    ) -> trivet_api::Response {
        let (wanted, offer) = match self.wanted(caller, request, image, headers, &body).await {
            Ok(both) => both,
            Err(answer) => {
                // A client that waits for "100 Continue" gets no "100 Continue".
                if !headers.contains_key("expect") {
                    http::drain_in_background(body);
                }
                return *answer;
            }
        };
        let cache = self.cache.clone();
        let in_view = ImageStatus::view_key(&wanted.key().to_string(), wanted.format);
        // The upload continues to its end even if the client no longer waits for the
        // response.
        let waits = headers.contains_key("expect");
        let taking = tokio::spawn(async move {
            let mut body = body;
            let outcome = cache.upload(&wanted, offer, &mut body).await;
            let unread = matches!(
                outcome,
                Err(ImageUploadError::Conflict(_) | ImageUploadError::NoSpace(_))
            );
            if outcome.is_err() && !(unread && waits) {
                http::drain_in_background(body);
            }
            outcome
        });
        match taking.await {
            Ok(Ok(have)) => {
                self.wait_until_shown(in_view, have == offer.size).await;
                self.execute(caller, Role::Reader, request).await
            }
            Ok(Err(refused)) => {
                let (status, sentence) = match &refused {
                    ImageUploadError::Conflict(sentence) => (409, sentence),
                    ImageUploadError::NoSpace(sentence) => (413, sentence),
                    ImageUploadError::Disk(sentence) => (507, sentence),
                    ImageUploadError::Mismatch(sentence) => (422, sentence),
                    ImageUploadError::Interrupted(sentence) => (400, sentence),
                };
                trivet_api::refuse(request, status, sentence)
            }
            Err(_) => trivet_api::refuse(request, 500, "The upload was aborted."),
        }
    }

    /// The image in the catalogue and the range of bytes in the body; otherwise the
    /// response.
    async fn wanted(
        &self,
        caller: &Arc<ApiCaller>,
        request: &trivet_api::Request<'_>,
        image: &str,
        headers: &HeaderMap,
        body: &Incoming,
    ) -> Result<(ImageSpec, ImageUploadRange), Box<trivet_api::Response>> {
        let shown = self.execute(caller, Role::Reader, request).await;
        if shown.status != 200 {
            return Err(Box::new(shown));
        }
        let range = headers.get("content-range");
        let range = range.map(|range| range.to_str().unwrap_or_default());
        let offered = trivet_api::upload_range(range, body.size_hint().exact());
        let [from, bytes, size] =
            offered.map_err(|(status, sentence)| trivet_api::refuse(request, status, sentence))?;
        let view = self.engine.view();
        let resource = view.resource(ResourceKind::Image, image);
        let wanted = resource.and_then(|record| ImageSpec::of_record(record));
        let sentence = format!("Image {image} has no digest yet; wait until it has one.");
        let wanted = wanted.ok_or_else(|| trivet_api::refuse(request, 409, &sentence))?;
        Ok((wanted, ImageUploadRange { from, bytes, size }))
    }

    /// A client that reads the image after its upload must find it.
    async fn wait_until_shown(&self, in_view: String, whole: bool) {
        let shown = async {
            loop {
                let view = self.engine.view();
                let state = view.images.get(&in_view).map(|news| &news.state);
                if !whole || state == Some(&ImageState::Complete) {
                    return;
                }
                tokio::time::sleep(SHOWN_POLL_GAP).await;
            }
        };
        let _ = tokio::time::timeout(SHOWN_WAIT, shown).await;
    }
}
