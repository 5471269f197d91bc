//! What the simulated shell does with bytes: verify, fetch, receive and unpack them.

use trivet_chunks::{DigestAlgorithm, chunk_count};
use trivet_model::Tick;

use super::{
    REPORT_BYTES, SIM_SCALE, SimImageEvent, SimImageShell, SimUnpack, sim_digest, sim_sha256,
    sim_unpack, sources,
};
use crate::{
    ChunkFetchResult, FileChecksum, ImageBodyEnd, ImageEntryId, ImageFillResult, ImageUnpackError,
    ImageWorkReport, StoredImageCheck,
};

impl SimImageShell {
    /// Verifies a file as the daemon does: against its chunk list, and against the digest.
    pub(super) fn verify(
        &mut self,
        entry: ImageEntryId,
        size: Option<u64>,
        whole: bool,
    ) -> Option<StoredImageCheck> {
        let key = self.entries.get(&entry)?.key;
        let file = self.file_mut(entry)?;
        let is_right = || sim_digest(DigestAlgorithm::of(&key.0), &file.bytes) == key.0;
        let here = file.bytes.len() as u64 * SIM_SCALE;
        if !whole || size != Some(here) {
            let chunks = file.right_chunks() as u64;
            return Some(StoredImageCheck::Partial { chunks });
        }
        if is_right() {
            file.list_all();
            return Some(StoredImageCheck::Valid);
        }
        let bad = file.bad_chunks();
        let is_listed = file.listed() as u64 == chunk_count(here);
        Some(if bad.is_empty() || !is_listed {
            StoredImageCheck::Partial { chunks: 0 }
        } else {
            StoredImageCheck::Corrupt { bad }
        })
    }

    pub(super) fn fetch_chunk(
        &mut self,
        entry: ImageEntryId,
        chunk: u64,
        request: &crate::ImageSourceRequest,
    ) -> ChunkFetchResult {
        let source = self.source(&request.url);
        let (head, response) = match sources::respond(source, request).1 {
            Err(why) => return ChunkFetchResult::Unreachable(why),
            Ok(both) => both,
        };
        if head.status != 206 {
            return ChunkFetchResult::NotServed;
        }
        let Some(bytes) = response.rest().filter(|_| !response.is_cut()) else {
            return ChunkFetchResult::Unreachable("disconnected".to_owned());
        };
        let chunk = usize::try_from(chunk).unwrap_or(usize::MAX);
        let written = self
            .file_mut(entry)
            .is_some_and(|file| file.replace_chunk(chunk, bytes));
        if written {
            ChunkFetchResult::Written
        } else {
            ChunkFetchResult::NotServed
        }
    }

    /// The source at this URL is a checksum file.
    pub(super) fn find_checksum(&mut self, now: Tick, url: String, name: String) {
        let source = self.sources.get(&url).filter(|source| !source.is_gone);
        let text = source.and_then(|source| core::str::from_utf8(&source.content).ok());
        let result = match text {
            Some(text) => {
                crate::checksums::find(text, &name).map_err(|why| format!("{url}: {why}"))
            }
            None => Err(format!("{url} does not answer")),
        };
        let found = Box::new(FileChecksum { url, name, result });
        self.report(now, ImageWorkReport::ChecksumFound(found));
    }

    /// A source sends a piece of the body.
    pub(super) fn receive(
        &mut self,
        now: Tick,
        entry: ImageEntryId,
        (mut skip, bytes_max, mut since): (u64, Option<u64>, u64),
        reports: &mut Vec<ImageWorkReport>,
    ) {
        let Some(open) = self.entries.get_mut(&entry) else {
            return;
        };
        let Some(response) = open.response.as_mut() else {
            return;
        };
        let (piece, end) = response.next_piece(REPORT_BYTES);
        let gap_ms = response.gap_ms();
        let over = usize::try_from(skip).unwrap_or(usize::MAX).min(piece.len());
        skip -= over as u64;
        let piece = piece[over..].to_vec();
        let mut left = bytes_max;
        let mut ended = |bytes: u64, end: ImageBodyEnd| {
            let bytes = bytes * SIM_SCALE;
            let result = Ok(ImageFillResult::BodyEnded { bytes, end });
            reports.push(ImageWorkReport::File { entry, result });
        };
        if left.is_some_and(|most| piece.len() as u64 > most) {
            return ended(since, ImageBodyEnd::TooLong);
        }
        left = left.map(|most| most - piece.len() as u64);
        if let Err(error) = self.append(entry, &piece) {
            let result = Err(error);
            reports.push(ImageWorkReport::File { entry, result });
            return;
        }
        since += piece.len() as u64;
        if let Some(end) = end {
            return ended(since, end);
        }
        let bytes = since * SIM_SCALE;
        let event = |since| SimImageEvent::Receive {
            entry,
            skip,
            bytes_max: left,
            since,
        };
        if bytes_max.is_none() && bytes >= crate::REPORT_BYTES {
            reports.push(ImageWorkReport::Received { entry, bytes });
            self.held.insert(entry, event(0));
        } else if bytes_max.is_some() && since > 0 {
            reports.push(ImageWorkReport::Received { entry, bytes });
            self.later(now.after_ms(gap_ms), event(0));
        } else {
            self.later(now.after_ms(gap_ms), event(since));
        }
    }

    pub(super) fn unpack(
        &mut self,
        now: Tick,
        from: ImageEntryId,
        into: ImageEntryId,
        only: Option<Vec<u64>>,
    ) {
        let check = self.entries.get(&from).map(|open| open.key.0);
        let packed = self.file_mut(from).map(|file| file.bytes.clone());
        let packed = packed.unwrap_or_default();
        let is_right =
            check.is_some_and(|digest| sim_digest(DigestAlgorithm::of(&digest), &packed) == digest);
        let raw = match (is_right, sim_unpack(&packed)) {
            (false, _) => Err(ImageUnpackError::Corrupt),
            (true, None) => Err(ImageUnpackError::Refused("is not packed".to_owned())),
            (true, Some(raw)) => Ok(raw),
        };
        match raw {
            Err(error) => {
                let result = Err(error);
                self.report(now, ImageWorkReport::Unpacked { into, result });
            }
            Ok(raw) => {
                let bytes = raw.len() as u64 * SIM_SCALE;
                let is_requested = only.is_none();
                if let Some(open) = self.entries.get_mut(&into) {
                    open.unpack = Some(SimUnpack { raw, only });
                }
                if is_requested {
                    self.report(now, ImageWorkReport::UnpackNeedsSpace { into, bytes });
                } else {
                    self.write_disk(now, into, Ok(()));
                }
            }
        }
    }

    /// There is space for the disk, or not.
    pub(super) fn write_disk(&mut self, now: Tick, into: ImageEntryId, space: Result<(), String>) {
        let unpack = self.entries.get_mut(&into).and_then(|it| it.unpack.take());
        let Some(SimUnpack { raw, only }) = unpack else {
            return;
        };
        let size = raw.len() as u64 * SIM_SCALE;
        let result = match (space, self.file_mut(into)) {
            (Err(why), _) => Err(ImageUnpackError::NoSpace { bytes: size, why }),
            (Ok(()), None) => Err(ImageUnpackError::Closed),
            (Ok(()), Some(file)) => {
                match only {
                    Some(only) => file.write_chunks(&raw, &only),
                    None => file.bytes.clone_from(&raw),
                }
                file.list_as(&raw);
                file.sync();
                Ok((sim_sha256(&raw), size))
            }
        };
        self.report(now, ImageWorkReport::Unpacked { into, result });
    }
}
