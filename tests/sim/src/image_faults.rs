//! The simulated source of the image, and its faults by seed.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use trivet_images::ImageKey;
use trivet_images::simulated::{SimImageDisk, SimImageShell, SimImageSource, sim_pack, sim_sha256};
use trivet_model::{Digest, SeededRandom, Tick};

use crate::faults::Incident;

/// Where the image comes from.
const RAW_URL: &str = "http://images.example/disk.raw";
/// The name of the image in the catalogue.
pub(crate) const AHEAD_IMAGE: &str = "popular";
const PACKED_URL: &str = "http://images.example/disk.raw.gz";

/// The most faults of the image in one seed.
const IMAGE_FAULTS_MAX: u64 = 4;

/// They happen within this time after the start, while nodes are deployed.
const IMAGE_FAULTS_MS: u64 = 300_000;

/// Bytes of the disk of the cache without faults.
const DISK_BYTES: u64 = 1 << 24;

/// Bytes of the disk of the cache while it is full: less than one image.
const FULL_DISK_BYTES: u64 = 2000;

/// A fault of the source, or of the disk of the cache.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ImageFault {
    /// The source disconnects after so many bytes.
    Cut { after: usize },
    /// The source sends slowly.
    Slow { gap_ms: u64 },
    /// The source does not answer.
    Gone,
    /// The source has another file.
    Changed,
    /// One byte of the file at the source is wrong, and nothing else shows it.
    WrongByte { at: usize },
    /// The disk of the cache is full.
    DiskFull,
    /// A byte of the stored image changes, of the raw or the packed one.
    BitRot { at: usize, of_raw: bool },
    /// The faults of the source and the full disk end.
    None,
}

impl ImageFault {
    /// Its name in observations.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Cut { .. } => "image source cut",
            Self::Slow { .. } => "image source slow",
            Self::Gone => "image source gone",
            Self::Changed => "image source changed",
            Self::WrongByte { .. } => "image byte wrong",
            Self::DiskFull => "image disk full",
            Self::BitRot { .. } => "image bit rot",
            Self::None => "image faults ended",
        }
    }
}

/// The image of all nodes, at its source.
pub(crate) struct SimImage {
    /// The bytes that must be on a disk in the end.
    pub(crate) raw: Vec<u8>,
    /// The file at the source.
    bytes: Vec<u8>,
    url: &'static str,
    source: SimImageSource,
    capacity: u64,
    /// Some bytes of a stored file were changed.
    pub(crate) has_rotted: bool,
}

impl SimImage {
    /// Every third seed has a packed image.
    pub(crate) fn new(seed: u64, raw: Vec<u8>) -> Self {
        let (url, bytes) = if seed % 3 == 2 {
            (PACKED_URL, sim_pack(&raw))
        } else {
            (RAW_URL, raw.clone())
        };
        Self {
            raw,
            source: SimImageSource::new(bytes.clone()),
            bytes,
            url,
            capacity: DISK_BYTES,
            has_rotted: false,
        }
    }

    fn digest(bytes: &[u8]) -> Digest {
        sim_sha256(bytes)
    }

    /// What the operator writes into the record of a node.
    pub(crate) fn instance_info(&self) -> Value {
        let sum = Self::digest(&self.bytes).to_string();
        json!({ "image_source": self.url, "image_checksum": sum })
    }

    /// The entry of the catalogue for the same image.
    pub(crate) fn catalogue_entry(&self) -> Value {
        let sum = Self::digest(&self.bytes).to_string();
        let format = if self.url == PACKED_URL {
            "gzip"
        } else {
            "raw"
        };
        json!({"name": AHEAD_IMAGE, "sources": [self.url], "checksum": sum, "format": format})
    }

    pub(crate) fn empty_disk() -> SimImageDisk {
        SimImageDisk::new(DISK_BYTES)
    }

    /// Gives the shell of a box the source and the disk as they are now.
    pub(crate) fn apply(&self, shell: &mut SimImageShell) {
        let sources = [(self.url.to_owned(), self.source.clone())];
        shell.sources = BTreeMap::from(sources);
        shell.disk.capacity = self.capacity;
    }

    /// A fault begins; false if it changes nothing.
    pub(crate) fn inject(&mut self, fault: ImageFault, disk: &mut SimImageDisk) -> bool {
        match fault {
            ImageFault::Cut { after } => self.source.cut_after = Some(after),
            ImageFault::Slow { gap_ms } => self.source.gap_ms = gap_ms,
            ImageFault::Gone => self.source.is_gone = true,
            ImageFault::Changed => {
                for byte in &mut self.source.content {
                    *byte ^= 0x55;
                }
                self.source.validator = Some("\"two\"".to_owned());
            }
            ImageFault::WrongByte { at } => {
                let at = at % self.source.content.len();
                self.source.content[at] ^= 1;
            }
            ImageFault::DiskFull => self.capacity = FULL_DISK_BYTES,
            ImageFault::BitRot { at, of_raw } => {
                let bytes = if of_raw { &self.raw } else { &self.bytes };
                let key = ImageKey(Self::digest(bytes));
                let done = disk.rot(key, at % bytes.len());
                self.has_rotted |= done;
                return done;
            }
            ImageFault::None => {
                self.source = SimImageSource::new(self.bytes.clone());
                self.capacity = DISK_BYTES;
            }
        }
        true
    }
}

/// The faults of the image in one seed, from a random stream of their own, so that everything
/// else is as without them.
pub(crate) fn image_faults(seed: u64) -> Vec<(Tick, Incident)> {
    let mut chance = SeededRandom::new(seed.rotate_left(23) ^ 0x001a_6e5f);
    let mut all = Vec::new();
    for _ in 0..chance.below(IMAGE_FAULTS_MAX + 1) {
        let at = 1000 + chance.below(IMAGE_FAULTS_MS);
        let (place, of_raw) = (chance.below(3000) as usize, chance.chance(500));
        let fault = match chance.below(8) {
            0 => ImageFault::Cut {
                after: place.max(1),
            },
            1 => ImageFault::Slow {
                gap_ms: 500 + chance.below(5000),
            },
            2 => ImageFault::Gone,
            3 => ImageFault::Changed,
            4 => ImageFault::WrongByte { at: place },
            5 => ImageFault::DiskFull,
            _ => ImageFault::BitRot { at: place, of_raw },
        };
        all.push((Tick(at), Incident::Image(fault)));
        let end = at + 1000 + chance.below(90_000);
        all.push((Tick(end), Incident::Image(ImageFault::None)));
    }
    all.sort_by_key(|(at, _)| *at);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_faults_are_of_every_kind_and_end() {
        let mut names = std::collections::BTreeSet::new();
        for seed in 0..400 {
            let faults = image_faults(seed);
            assert!(faults.is_sorted_by_key(|(at, _)| *at));
            for (_, incident) in &faults {
                if let Incident::Image(fault) = incident {
                    names.insert(fault.name());
                }
            }
            let last = faults.last().map(|(_, incident)| *incident);
            assert!(last.is_none_or(|last| last == Incident::Image(ImageFault::None)));
        }
        assert_eq!(names.len(), 8, "{names:?}");
    }

    #[test]
    fn bit_rot_needs_a_stored_image() {
        let mut image = SimImage::new(0, vec![7; 3000]);
        let rot = ImageFault::BitRot {
            at: 1,
            of_raw: true,
        };
        assert!(!image.inject(rot, &mut SimImage::empty_disk()));
        assert!(!image.has_rotted);
    }
}
