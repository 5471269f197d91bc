//! Remembers the content that a client may read, for further ranges of the same file.
//!
//! A BMC that presents an ISO image to its machine reads it in thousands of small
//! ranges. A request to the rack for each of them would cost more than the bytes.

use std::time::Duration;

use tokio::time::Instant;
use trivet_bootfiles::BootHttpRequest;

use super::content::BootContent;

/// How long a grant is valid for further ranges. Ours: for this time a client may
/// continue with a file that the rack would now refuse. A running transfer is not ended
/// by that either.
pub(super) const GRANT_DURATION: Duration = Duration::from_secs(1);

pub(super) struct GrantedBootFile {
    path: String,
    content: BootContent,
    /// When the rack must be consulted again.
    until: Instant,
}

impl GrantedBootFile {
    /// A grant that starts now.
    pub(super) fn now(path: String, found: BootContent) -> Self {
        Self {
            path,
            content: found,
            until: Instant::now() + GRANT_DURATION,
        }
    }

    /// Whether this request is for a further range of the same file.
    pub(super) fn covers(&self, request: &BootHttpRequest) -> bool {
        request.has_range()
            && request.path == self.path
            && Instant::now() < self.until
            && self.content.is_whole_file()
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn content(&mut self) -> &mut BootContent {
        &mut self.content
    }
}
