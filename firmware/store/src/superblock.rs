//! The superblock: identifies a region as a store and contains its layout.
//!
//! It is written when a region is formatted and never changes. There are two copies in the first
//! two pages. The second one is written first, so that a power cut during formatting leaves a
//! region that is blank except for its second page, or a complete copy.

use trivet_board_hal::Flash;

use crate::error::OpenError;
use crate::layout::{PAGE_BYTES, SUPERBLOCK_PAGES, StoreLayout};

/// Version of the format in the README.
pub const FORMAT_VERSION: u32 = 1;

const MAGIC: [u8; 8] = *b"TRIVETST";
/// Offset of the checksum in all versions, so that a newer superblock can be distinguished
/// from a damaged one.
const CRC_AT: usize = 60;
/// The region is compared with zeros in pieces of this size.
const PIECE_BYTES: usize = 64 * 1024;

/// The state of one copy.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum SuperblockCopy {
    Sound(StoreLayout),
    Newer(u32),
    Damaged,
    Foreign,
}

/// The layout of a region, and the copies of its superblock that are to be written.
#[derive(Debug)]
pub(crate) struct RegionShape {
    pub(crate) layout: StoreLayout,
    /// The whole region was read and the log is empty.
    pub(crate) is_blank: bool,
    lacking: Vec<u64>,
}

/// Finds the layout of the region, or chooses one if it is blank. Writes nothing.
pub(crate) fn find<F: Flash>(flash: &mut F, segment_bytes: u32) -> Result<RegionShape, OpenError> {
    let size = flash.size();
    let too_small = OpenError::TooSmall {
        bytes: size,
        segment_bytes,
    };
    if size < SUPERBLOCK_PAGES * PAGE_BYTES as u64 {
        return Err(too_small);
    }
    let mut page = [0; PAGE_BYTES];
    let mut copies = [SuperblockCopy::Foreign; SUPERBLOCK_PAGES as usize];
    for (copy, at) in copies.iter_mut().zip(0..) {
        flash.read(at * PAGE_BYTES as u64, &mut page)?;
        *copy = decode(&page);
    }
    let layout = match copies {
        [SuperblockCopy::Newer(found), _] | [_, SuperblockCopy::Newer(found)] => {
            return Err(OpenError::NewerFormat { found });
        }
        [SuperblockCopy::Sound(first), SuperblockCopy::Sound(second)] if first != second => {
            return Err(OpenError::SuperblockDamaged);
        }
        [SuperblockCopy::Sound(layout), _] | [_, SuperblockCopy::Sound(layout)] => layout,
        _ if is_blank(flash)? => {
            let layout = StoreLayout::fresh(size, segment_bytes).ok_or(too_small)?;
            return Ok(RegionShape {
                layout,
                is_blank: true,
                lacking: vec![1, 0],
            });
        }
        [SuperblockCopy::Foreign, SuperblockCopy::Foreign] => return Err(OpenError::Foreign),
        _ => return Err(OpenError::SuperblockDamaged),
    };
    if layout.region_bytes() > size {
        return Err(OpenError::Shrunk {
            bytes: size,
            expected: layout.region_bytes(),
        });
    }
    let lacking = (0..).zip(copies);
    let lacking = lacking.filter(|(_, copy)| !matches!(copy, SuperblockCopy::Sound(_)));
    Ok(RegionShape {
        layout,
        is_blank: false,
        lacking: lacking.map(|(at, _)| at).collect(),
    })
}

/// Both copies, for a reader that continues where [`find`] refuses.
#[derive(Debug)]
pub(crate) struct SuperblockCopies {
    /// The layouts in valid copies.
    pub(crate) layouts: Vec<StoreLayout>,
    /// The copies that are not valid or cannot be read.
    pub(crate) damaged: Vec<u64>,
}

/// Reads both copies. Only a region of a newer format or without space for two copies
/// is refused.
pub(crate) fn copies<F: Flash>(
    flash: &mut F,
    segment_bytes: u32,
) -> Result<SuperblockCopies, OpenError> {
    let bytes = flash.size();
    if bytes < SUPERBLOCK_PAGES * PAGE_BYTES as u64 {
        return Err(OpenError::TooSmall {
            bytes,
            segment_bytes,
        });
    }
    let mut copies = SuperblockCopies {
        layouts: Vec::new(),
        damaged: Vec::new(),
    };
    for at in 0..SUPERBLOCK_PAGES {
        let mut page = [0; PAGE_BYTES];
        let read = flash.read(at * PAGE_BYTES as u64, &mut page);
        match read.map_or(SuperblockCopy::Damaged, |()| decode(&page)) {
            SuperblockCopy::Sound(layout) => copies.layouts.push(layout),
            SuperblockCopy::Newer(found) => return Err(OpenError::NewerFormat { found }),
            SuperblockCopy::Damaged | SuperblockCopy::Foreign => copies.damaged.push(at),
        }
    }
    Ok(copies)
}

/// Formats a blank region, or restores a copy of the superblock from the other one
/// if only one is valid.
pub(crate) fn complete<F: Flash>(flash: &mut F, shape: &RegionShape) -> Result<(), OpenError> {
    for &at in &shape.lacking {
        write_copy(flash, at, &shape.layout)?;
    }
    Ok(())
}

fn write_copy<F: Flash>(flash: &mut F, at: u64, layout: &StoreLayout) -> Result<(), OpenError> {
    flash.write(at * PAGE_BYTES as u64, &encode(layout))?;
    flash.flush()?;
    Ok(())
}

fn encode(layout: &StoreLayout) -> [u8; PAGE_BYTES] {
    let mut page = [0; PAGE_BYTES];
    page[..8].copy_from_slice(&MAGIC);
    page[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    page[12..16].copy_from_slice(&(PAGE_BYTES as u32).to_le_bytes());
    let segment_bytes = layout.segment_pages as u32 * PAGE_BYTES as u32;
    page[16..20].copy_from_slice(&segment_bytes.to_le_bytes());
    page[20..24].copy_from_slice(&(layout.segments as u32).to_le_bytes());
    let crc = crc32c::crc32c(&page[..CRC_AT]);
    page[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
    page
}

fn decode(page: &[u8; PAGE_BYTES]) -> SuperblockCopy {
    let word = |at: usize| u32::from_le_bytes([page[at], page[at + 1], page[at + 2], page[at + 3]]);
    if page[..8] != MAGIC {
        return SuperblockCopy::Foreign;
    }
    if word(CRC_AT) != crc32c::crc32c(&page[..CRC_AT]) {
        return SuperblockCopy::Damaged;
    }
    if word(8) > FORMAT_VERSION {
        return SuperblockCopy::Newer(word(8));
    }
    match StoreLayout::checked(word(16), word(20)) {
        Some(layout) if word(8) == FORMAT_VERSION && word(12) == PAGE_BYTES as u32 => {
            SuperblockCopy::Sound(layout)
        }
        _ => SuperblockCopy::Damaged,
    }
}

/// Whether all bytes are zero except the second page, which a power cut during formatting may
/// have torn.
pub(crate) fn is_blank<F: Flash>(flash: &mut F) -> Result<bool, OpenError> {
    let (mut piece, zeros) = (vec![0_u8; PIECE_BYTES], vec![0_u8; PIECE_BYTES]);
    let torn = PAGE_BYTES as u64..SUPERBLOCK_PAGES * PAGE_BYTES as u64;
    for whole in [0..torn.start, torn.end..flash.size()] {
        let mut at = whole.start;
        while at < whole.end {
            let length = (whole.end - at).min(PIECE_BYTES as u64) as usize;
            flash.read(at, &mut piece[..length])?;
            // Slices are compared as memory, many bytes at once.
            if piece[..length] != zeros[..length] {
                return Ok(false);
            }
            at += length as u64;
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use trivet_board_sim::SimFlash;

    use super::*;

    const REGION: usize = 8192 + 8 * 16384;

    fn open(flash: &mut SimFlash, segment_bytes: u32) -> Result<StoreLayout, OpenError> {
        let shape = find(flash, segment_bytes)?;
        complete(flash, &shape)?;
        Ok(shape.layout)
    }

    fn formatted() -> Vec<u8> {
        let mut flash = SimFlash::new(REGION);
        open(&mut flash, 16384).unwrap();
        flash.bytes().to_vec()
    }

    fn reopen(bytes: Vec<u8>) -> (Result<StoreLayout, OpenError>, Vec<u8>) {
        let mut flash = SimFlash::with_bytes(bytes);
        let layout = open(&mut flash, 4096 * 64);
        (layout, flash.bytes().to_vec())
    }

    #[test]
    fn the_bytes_of_version_one_are_pinned() {
        let page = &formatted()[..64];
        assert_eq!(
            page[..24],
            *b"TRIVETST\x01\0\0\0\0\x10\0\0\0\x40\0\0\x08\0\0\0"
        );
        assert_eq!(page[24..60], [0; 36]);
        assert_eq!(page[60..64], crc32c::crc32c(&page[..60]).to_le_bytes());
    }

    #[test]
    fn a_region_keeps_the_segment_size_it_was_formatted_with() {
        let (layout, _) = reopen(formatted());
        assert_eq!(layout.unwrap(), StoreLayout::checked(16384, 8).unwrap());
    }

    #[test]
    fn either_copy_restores_the_other() {
        for at in [0, PAGE_BYTES] {
            let sound = formatted();
            let mut bytes = sound.clone();
            bytes[at..at + 64].fill(0xa5);
            let (layout, healed) = reopen(bytes);
            assert!(layout.is_ok());
            assert_eq!(healed, sound);
        }
    }

    #[test]
    fn refuses_when_both_copies_are_damaged() {
        let mut bytes = formatted();
        bytes[20] ^= 1;
        bytes[PAGE_BYTES + 20] ^= 1;
        let (layout, after) = reopen(bytes.clone());
        assert!(matches!(layout, Err(OpenError::SuperblockDamaged)));
        assert_eq!(after, bytes);
    }

    #[test]
    fn refuses_copies_that_disagree() {
        let mut bytes = formatted();
        let other = encode(&StoreLayout::checked(32768, 8).unwrap());
        bytes[..PAGE_BYTES].copy_from_slice(&other);
        let (layout, _) = reopen(bytes);
        assert!(matches!(layout, Err(OpenError::SuperblockDamaged)));
    }

    #[test]
    fn refuses_a_newer_format_even_beside_an_older_copy() {
        for at in [0, PAGE_BYTES] {
            let mut bytes = formatted();
            bytes[at + 8] = 2;
            let crc = crc32c::crc32c(&bytes[at..at + 60]).to_le_bytes();
            bytes[at + 60..at + 64].copy_from_slice(&crc);
            let (layout, after) = reopen(bytes.clone());
            assert!(matches!(layout, Err(OpenError::NewerFormat { found: 2 })));
            assert_eq!(after, bytes);
        }
    }

    #[test]
    fn refuses_a_region_that_is_neither_blank_nor_ours() {
        for at in [0, 511, 4095, 8192, REGION - 1] {
            let mut bytes = vec![0; REGION];
            bytes[at] = 1;
            let (layout, after) = reopen(bytes.clone());
            assert!(matches!(layout, Err(OpenError::Foreign)), "byte {at}");
            assert_eq!(after, bytes);
        }
    }

    #[test]
    fn refuses_a_region_that_lost_its_end() {
        let mut bytes = formatted();
        bytes.truncate(REGION - 1);
        let (layout, _) = reopen(bytes);
        assert!(matches!(layout, Err(OpenError::Shrunk { .. })));
    }

    #[test]
    fn refuses_a_region_too_small_for_its_segments() {
        for size in [0, 4096, 8192, 8192 + 7 * 16384] {
            let layout = open(&mut SimFlash::new(size), 16384);
            assert!(matches!(layout, Err(OpenError::TooSmall { .. })), "{size}");
        }
    }

    #[test]
    fn a_power_cut_while_formatting_never_bricks_the_region() {
        for cut in 0..4 {
            for seed in 0..64 {
                let mut flash = SimFlash::new(REGION);
                flash.cut_after(cut);
                assert!(open(&mut flash, 16384).is_err());
                let mut flash = flash.power_on(seed);
                let layout = open(&mut flash, 16384).unwrap();
                assert_eq!(layout.segments, 8, "cut {cut} seed {seed}");
            }
        }
    }
}
