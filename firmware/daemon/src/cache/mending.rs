//! A disk that was made before we started, or that has changed, is looked at, and mended
//! from an image that it was in: only chunks that are bad are written.

use trivet_chunks::chunks;
use trivet_images::Failure;
use trivet_model::image::ImageState;

use super::checking::{self, Checked};
use super::entry::Kept;
use super::filling::Task;
use super::link::Link;
use super::unpacking::Why;
use super::{Asked, Left};

impl Task {
    /// Looks at a disk, and tells what became of the images that it was in.
    pub(super) async fn run_disk(self, kept: Kept) {
        let links = self.cache.links_to(&self.key);
        let went = self.mend_disk(&kept, &links).await;
        let state = match &went {
            Ok(()) => ImageState::Whole,
            Err(failure) => failure.image_state(),
        };
        let left = match went {
            Ok(()) => Left::Whole,
            Err(failure) => Left::Failed {
                why: failure.to_string(),
                keeps: true,
            },
        };
        self.cache.settle(&self.key, &self.entry, left);
        for link in links {
            let state = state.clone();
            let (size, have) = (Some(link.size), link.size);
            self.cache.tell(&link.wanted, size, have, state);
        }
    }

    async fn mend_disk(&self, kept: &Kept, links: &[Link]) -> Result<(), Failure> {
        let wanted = &kept.wanted;
        let looked = checking::look(&self.cache, &self.key, &self.entry, kept).await;
        let bad = match looked.map_err(|error| self.disk(wanted, &error))? {
            Checked::Right => return Ok(()),
            Checked::Rotten { bad, .. } => bad,
            Checked::Part { .. } => (0..chunks(kept.size.unwrap_or(0))).collect(),
        };
        let image = wanted.name.clone();
        let mut last = Failure::NoSource { image };
        for link in links {
            let count = bad.len() as u64;
            self.cache
                .tell(&link.wanted, None, 0, ImageState::Rotten(count));
            match self.mend_from(kept, link, bad.clone()).await {
                Ok(()) => return Ok(()),
                Err(failure) => last = failure,
            }
        }
        Err(last)
    }

    async fn mend_from(&self, kept: &Kept, link: &Link, bad: Vec<u64>) -> Result<(), Failure> {
        let image = link.wanted.name.clone();
        let key = link.key();
        let original = self.cache.original(&key, &link.wanted, Asked::Order).await;
        let (size, reader) = original.map_err(|why| match why {
            Why::Told(why) => Failure::Disk { image, why },
            Why::New(failure) => failure,
        })?;
        if let Some(bytes) = kept.size.filter(|_| !kept.whole) {
            let image = link.wanted.name.clone();
            let room = self.cache.make_room(&self.key, bytes);
            room.map_err(|why| Failure::NoRoom { image, bytes, why })?;
        }
        let made = self
            .cache
            .unpack(&key, &link.wanted, (size, &reader), &self.entry, Some(bad))
            .await?;
        if made.digest != kept.wanted.digest {
            return Err(Failure::Disk {
                image: link.wanted.name.clone(),
                why: format!(
                    "another disk came out of it than before: {} in place of {}",
                    made.digest, kept.wanted.digest
                ),
            });
        }
        let keep = || {
            let path = self.cache.path(&self.key, "chunks");
            std::fs::write(&path, made.list.bytes())?;
            std::fs::File::open(path)?.sync_all()?;
            if !kept.whole {
                let part = self.cache.path(&self.key, "part");
                std::fs::rename(part, self.cache.path(&self.key, "whole"))?;
            }
            std::fs::File::open(&self.cache.0.root)?.sync_all()
        };
        keep().map_err(|error| self.disk(&link.wanted, &error))?;
        self.entry.size_is(made.size);
        self.entry.hashed_is(made.size);
        Ok(())
    }
}
