//! The files that the box sends, and the images of its cache.

use trivet_images::simulated::SimImageRead;
use trivet_model::Tick;
use trivet_rack::FileGrant;

use super::{BoxUnderTest, RunningBox, SimBoxOutput};
use crate::file_servers::file_content;
use crate::image_faults::ImageFault;

impl BoxUnderTest {
    /// A fault of the image begins or ends; false if it changes nothing.
    pub(crate) fn inject_image_fault(&mut self, fault: ImageFault) -> bool {
        match &mut self.running {
            Some(on) => {
                let done = self.image.inject(fault, &mut on.images.disk);
                self.image.apply(&mut on.images);
                done
            }
            None => self.image.inject(fault, &mut self.image_disk),
        }
    }

    /// Images that were complete although their bytes were wrong.
    pub(crate) fn wrong_images(&self) -> Vec<String> {
        let running = self.running.as_ref();
        let now = running.map(|on| on.images.wrong_reads.clone());
        let before = self.wrong_images.clone();
        before.into_iter().chain(now.unwrap_or_default()).collect()
    }
}

impl RunningBox {
    /// The rack has granted a file, or there is none.
    pub(super) fn file_granted(
        &mut self,
        own: Tick,
        ticket: u64,
        grant: Option<FileGrant>,
        out: &mut Vec<SimBoxOutput>,
    ) {
        if let Some(FileGrant::Image(grant)) = &grant {
            self.images.count_reader(grant.read.entry, true);
            self.image_requests.push((ticket, grant.read.entry));
            return self.answer_image_requests(own, out);
        }
        let body = grant.and_then(|grant| match grant {
            FileGrant::Bytes(bytes) => Some(bytes),
            // Sizes of images are scaled, so a chunk list is of no use.
            FileGrant::Image(_)
            | FileGrant::ChunkList(_)
            | FileGrant::Unavailable(_)
            | FileGrant::Forbidden(_) => None,
            FileGrant::File(files) => files.iter().find_map(|below| file_content(&below.file)),
            FileGrant::NamedFile { file, .. } | FileGrant::PatchedFile { file, .. } => {
                file_content(&file)
            }
        });
        self.file_servers
            .granted(own, ticket, body, &mut self.inbox, out);
    }

    /// Sends the images that are complete, and closes the connections for those that failed.
    pub(super) fn answer_image_requests(&mut self, own: Tick, out: &mut Vec<SimBoxOutput>) {
        let mut waiting = Vec::new();
        for (ticket, entry) in std::mem::take(&mut self.image_requests) {
            let body = match self.images.read(entry) {
                SimImageRead::Pending => {
                    waiting.push((ticket, entry));
                    continue;
                }
                SimImageRead::Failed(_) => None,
                SimImageRead::Whole(bytes) => Some(bytes),
            };
            self.images.count_reader(entry, false);
            self.file_servers
                .granted(own, ticket, body, &mut self.inbox, out);
        }
        self.image_requests = waiting;
    }
}
