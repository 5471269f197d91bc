//! What a client was granted, and for how long that holds for further parts of the file.
//!
//! A BMC that shows an ISO image to its machine reads it in thousands of small parts. To ask
//! the rack for each of them would cost more than the bytes.

use std::time::Duration;

use tokio::time::Instant;
use trivet_httpboot::Request;

use super::found::Found;

/// How long a grant holds for later parts. Ours: so long may a client go on with a file that
/// it would be refused now. A transfer that has begun is not ended by that either.
pub(super) const GRANT_LASTS: Duration = Duration::from_secs(1);

pub(super) struct Granted {
    path: String,
    found: Found,
    /// When the rack has to be asked again.
    until: Instant,
}

impl Granted {
    /// What was granted now.
    pub(super) fn now(path: String, found: Found) -> Self {
        Self {
            path,
            found,
            until: Instant::now() + GRANT_LASTS,
        }
    }

    /// Whether this request is for a further part of it.
    pub(super) fn serves(&self, request: &Request) -> bool {
        request.asks_for_part()
            && request.path == self.path
            && Instant::now() < self.until
            && self.found.is_whole_file()
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn found(&mut self) -> &mut Found {
        &mut self.found
    }
}
