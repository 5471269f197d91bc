//! What a client was granted, and for how long that holds for further parts of the file.
//!
//! A BMC that shows an ISO image to its machine reads it in thousands of small parts. To ask
//! the rack for each of them would cost more than the bytes.

use std::time::Duration;

use tokio::time::Instant;
use trivet_bootfiles::BootHttpRequest;

use super::content::BootContent;

/// How long a grant holds for later parts. Ours: so long may a client go on with a file that
/// it would be refused now. A transfer that has begun is not ended by that either.
pub(super) const GRANT_DURATION: Duration = Duration::from_secs(1);

pub(super) struct GrantedBootFile {
    path: String,
    content: BootContent,
    /// When the rack has to be asked again.
    until: Instant,
}

impl GrantedBootFile {
    /// What was granted now.
    pub(super) fn now(path: String, found: BootContent) -> Self {
        Self {
            path,
            content: found,
            until: Instant::now() + GRANT_DURATION,
        }
    }

    /// Whether this request is for a further part of it.
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
