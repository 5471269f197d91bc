//! Damage to every byte of a region.
//!
//! Goal: a store never opens with wrong records. A flipped byte is refused, or
//! harmless because it stands where nothing counts, or it hits the last commit,
//! which then cannot be distinguished from one that a power cut tore, and is dropped whole.
//! Method: a small region that was gone round, each byte flipped in turn.

use std::collections::BTreeMap;

use trivet_board_hal::{Flash, FlashError};
use trivet_board_sim::SimFlash;
use trivet_model::{Entropy, SeededRandom};
use trivet_store::{OpenError, RecordKey, StoreLog};

const SEGMENT_BYTES: u32 = 16 * 1024;
const REGION: usize = 8192 + 16 * SEGMENT_BYTES as usize;

type DamagedLogContents = BTreeMap<RecordKey, Vec<u8>>;

fn contents(log: &StoreLog<SimFlash>) -> DamagedLogContents {
    log.iter()
        .map(|(key, value)| (*key, value.to_vec()))
        .collect()
}

fn open(bytes: &[u8]) -> Result<StoreLog<SimFlash>, OpenError> {
    StoreLog::open(SimFlash::with_bytes(bytes.to_vec()), SEGMENT_BYTES)
}

struct AgedLog {
    image: Vec<u8>,
    before_last: DamagedLogContents,
    last: DamagedLogContents,
}

/// A region after `commits` commits to five records and one that stays.
fn aged(commits: u64, seed: u64) -> AgedLog {
    let mut chance = SeededRandom::new(seed);
    let mut log = StoreLog::open(SimFlash::new(REGION), SEGMENT_BYTES).expect("blank");
    // Too large for spare bytes, never changed: it keeps the tail far behind.
    let cold = RecordKey {
        kind: 2,
        id: [9; 16],
    };
    log.commit([(cold, Some(vec![3; 4000]))].into())
        .expect("room");
    let mut before_last = DamagedLogContents::new();
    for number in 0..commits {
        before_last = contents(&log);
        let key = RecordKey {
            kind: 1,
            id: [chance.below(5) as u8; 16],
        };
        let mut value = log.value(&key).unwrap_or_default().to_vec();
        if value.is_empty() || number % 8 != 0 {
            value = vec![0; 2500 + chance.below(500) as usize];
            chance.fill(&mut value);
        }
        value[number as usize % 500] ^= 0x55;
        log.commit([(key, Some(value))].into()).expect("room");
    }
    AgedLog {
        image: log.flash().bytes().to_vec(),
        before_last,
        last: contents(&log),
    }
}

#[test]
fn no_flipped_byte_gives_wrong_records() {
    let AgedLog {
        mut image,
        before_last,
        last,
    } = aged(190, 1);
    let (mut refused, mut harmless, mut dropped) = (0, 0, 0);
    // Superblocks and page headers byte by byte, payloads at a stride that meets
    // every residue.
    let headers = (0..REGION).filter(|at| at % 4096 < 64);
    let payloads = (0..REGION).step_by(61);
    let mut chance = SeededRandom::new(2);
    for at in headers.chain(payloads) {
        let flip = 1 << chance.below(8);
        image[at] ^= flip;
        match open(&image) {
            Ok(log) if contents(&log) == last => harmless += 1,
            Ok(log) => {
                assert_eq!(contents(&log), before_last, "byte {at} bit {flip:#x}");
                dropped += 1;
            }
            Err(OpenError::Damaged { .. }) => refused += 1,
            Err(error) => panic!("byte {at}: {error}"),
        }
        image[at] ^= flip;
    }
    assert!(refused > 100, "{refused} {harmless} {dropped}");
    assert!(harmless > 100, "{refused} {harmless} {dropped}");
    // Only bytes of one page, the last commit, may drop it.
    assert!(
        dropped <= 64 + 4096 / 61 + 1,
        "{refused} {harmless} {dropped}"
    );
}

#[test]
fn a_lost_page_in_the_middle_is_refused() {
    let AgedLog {
        image,
        before_last,
        last,
    } = aged(195, 3);
    let mut refused = 0;
    for page in 2..REGION / 4096 {
        let mut image = image.clone();
        image[page * 4096..][..4096].fill(0);
        match open(&image) {
            Ok(log) => {
                let found = contents(&log);
                assert!(found == last || found == before_last, "page {page}");
            }
            Err(error) => {
                let text = error.to_string();
                assert!(text.contains("damaged at commit"), "{text}");
                assert!(text.contains("backup"), "{text}");
                refused += 1;
            }
        }
    }
    assert!(refused > 10, "{refused}");
}

#[test]
fn a_refused_region_is_left_as_it_is() {
    let AgedLog { mut image, .. } = aged(180, 4);
    let mut page = 2;
    let error = loop {
        image[page * 4096 + 100] ^= 1;
        match StoreLog::open(SimFlash::with_bytes(image.clone()), SEGMENT_BYTES) {
            Err(error) => break error,
            Ok(_) => page += 1,
        }
    };
    assert!(matches!(error, OpenError::Damaged { .. }));
    let mut flash = SimFlash::with_bytes(image.clone());
    assert!(StoreLog::open(&mut BorrowedFlash(&mut flash), SEGMENT_BYTES).is_err());
    assert_eq!(flash.counts().writes, 0);
    assert_eq!(flash.bytes(), image);
}

/// Lets the test keep the flash that a refused open would swallow.
struct BorrowedFlash<'a>(&'a mut SimFlash);

impl Flash for &mut BorrowedFlash<'_> {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn read(&mut self, at: u64, out: &mut [u8]) -> Result<(), FlashError> {
        self.0.read(at, out)
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), FlashError> {
        self.0.write(at, bytes)
    }

    fn flush(&mut self) -> Result<(), FlashError> {
        self.0.flush()
    }
}

#[test]
fn random_regions_are_refused_without_panic() {
    let mut chance = SeededRandom::new(5);
    for _ in 0..50 {
        let mut bytes = vec![0; REGION];
        chance.fill(&mut bytes);
        assert!(matches!(open(&bytes), Err(OpenError::Foreign)));
    }
}

#[test]
fn a_log_of_garbage_behind_a_sound_superblock_is_empty_or_refused() {
    let blank = StoreLog::open(SimFlash::new(REGION), SEGMENT_BYTES).unwrap();
    let mut bytes = blank.into_flash().bytes().to_vec();
    SeededRandom::new(6).fill(&mut bytes[8192..]);
    assert!(contents(&open(&bytes).unwrap()).is_empty());
}
