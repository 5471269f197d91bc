//! Puts images into states without the work that leads there, for tests of what follows.

use trivet_model::Now;
use trivet_model::image::{ImageState, ImageStatus};

use crate::library::{FetchedFile, ImageLibrary};

impl ImageLibrary {
    /// The work on an image ends in this state.
    pub fn simulate_state(&mut self, now: Now, status: &ImageStatus) {
        let spec = crate::ImageSpec {
            name: status.name.clone(),
            digest: status.digest,
            sources: Vec::new(),
            format: status.format,
        };
        match &status.state {
            ImageState::Complete => {
                let size = status.size.unwrap_or(status.present_bytes);
                self.simulate_whole(now, &spec, size, status.raw);
            }
            ImageState::Failed(why) | ImageState::Wrong(why) => {
                let is_wrong = matches!(status.state, ImageState::Wrong(_));
                self.simulate_failure(now, &spec, why, is_wrong);
            }
            ImageState::Evicted => {
                self.drop_image(now, status.digest);
                return self.report_evicted(&spec);
            }
            ImageState::Fetching | ImageState::Unpacking | ImageState::Corrupt(_) => {}
        }
        let state = status.state.clone();
        self.report(&spec, status.size, status.present_bytes, state);
    }

    /// The fetch of a URL ends so.
    pub fn simulate_url_answer(&mut self, url: &str, result: Result<FetchedFile, String>) {
        self.end_url(url, result);
    }
}
