//! Limits, carrying and failures of the log, without power cuts: those are in
//! `tests/power_cut.rs`.

use trivet_board_sim::SimFlash;
use trivet_model::SeededRandom;

use super::*;
use crate::layout::RECORD_BYTES_MAX;

const SEGMENT_BYTES: u32 = 32 * 1024;

type LogBatch = BTreeMap<RecordKey, Option<Vec<u8>>>;

fn key(number: u64) -> RecordKey {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&number.to_be_bytes());
    RecordKey { kind: 1, id }
}

fn log(segments: usize) -> StoreLog<SimFlash> {
    let size = 2 * PAGE_BYTES + segments * SEGMENT_BYTES as usize;
    StoreLog::open(SimFlash::new(size), SEGMENT_BYTES).unwrap()
}

fn put(number: u64, value: Vec<u8>) -> LogBatch {
    [(key(number), Some(value))].into()
}

fn delete(number: u64) -> LogBatch {
    [(key(number), None)].into()
}

fn noise(chance: &mut SeededRandom, bytes: usize) -> Vec<u8> {
    let mut value = vec![0; bytes];
    trivet_model::Entropy::fill(chance, &mut value);
    value
}

fn contents(log: &StoreLog<SimFlash>) -> BTreeMap<RecordKey, Vec<u8>> {
    log.iter()
        .map(|(key, value)| (*key, value.to_vec()))
        .collect()
}

#[track_caller]
fn reopens_equal(log: &StoreLog<SimFlash>) {
    let flash = SimFlash::with_bytes(log.flash().bytes().to_vec());
    let again = StoreLog::open(flash, SEGMENT_BYTES).unwrap();
    assert_eq!(contents(&again), contents(log));
    assert_eq!(again.head, log.head);
    assert_eq!(again.next_commit, log.next_commit);
    assert_eq!(again.free_pages(), log.free_pages());
    assert_eq!(again.table.live_bytes(), log.table.live_bytes());
}

#[test]
fn a_blank_region_is_read_once_before_it_is_formatted() {
    let log = log(64);
    // Both copies of the superblock, then all of the region in pieces of 64 KiB.
    assert_eq!(log.flash().counts().reads, 2 + 1 + 32);
    reopens_equal(&log);
}

#[test]
fn a_record_that_is_written_whole_needs_no_earlier_value() {
    let mut log = log(64);
    let mut value = noise(&mut SeededRandom::new(1), 20_000);
    log.commit(put(1, value.clone())).unwrap();
    value[7] ^= 1;
    let before = log.stats().written_bytes;
    log.commit_whole(put(1, value)).unwrap();
    assert!(log.stats().written_bytes - before >= 20_000);
    reopens_equal(&log);
}

#[test]
fn a_small_change_of_a_large_record_takes_one_page() {
    let mut log = log(64);
    let mut value = noise(&mut SeededRandom::new(1), 20_000);
    log.commit(put(1, value.clone())).unwrap();
    value[10_000] ^= 1;
    let before = log.stats().written_bytes;
    log.commit(put(1, value)).unwrap();
    assert_eq!(log.stats().written_bytes - before, PAGE_BYTES as u64);
    reopens_equal(&log);
}

#[test]
fn the_largest_record_is_taken_and_one_byte_more_is_refused() {
    let mut log = log(8 * 64);
    let limit = log.layout().record_bytes_max();
    assert_eq!(limit, RECORD_BYTES_MAX);
    log.commit(put(1, vec![7; limit])).unwrap();
    let error = log.commit(put(2, vec![7; limit + 1])).unwrap_err();
    assert!(matches!(error, CommitError::RecordTooLarge { bytes, .. } if bytes == limit + 1));
    assert_eq!(log.stats().records, 1);
    reopens_equal(&log);
}

#[test]
fn a_batch_over_the_limit_is_refused_whole() {
    let mut log = log(8 * 64);
    let each = 8 * 1024;
    let fits = log.layout().batch_bytes_max() / (each + PUT_OVERHEAD_BYTES);
    let batch = |count: usize| -> LogBatch {
        (0..count as u64)
            .map(|number| (key(number), Some(vec![number as u8; each])))
            .collect()
    };
    let error = log.commit(batch(fits + 1)).unwrap_err();
    assert!(matches!(error, CommitError::BatchTooLarge { .. }));
    assert_eq!(log.stats().commits, 0);
    log.commit(batch(fits)).unwrap();
    reopens_equal(&log);
}

#[test]
fn too_many_changes_are_refused() {
    let mut log = log(64);
    let batch: LogBatch = (0..=BATCH_CHANGES_MAX as u64)
        .map(|number| (key(number), None))
        .collect();
    assert!(matches!(
        log.commit(batch),
        Err(CommitError::TooManyChanges { .. })
    ));
}

#[test]
fn a_full_store_says_so_changes_nothing_and_still_deletes() {
    let mut log = log(16);
    let mut chance = SeededRandom::new(2);
    let mut number = 0;
    let error = loop {
        match log.commit(put(number, noise(&mut chance, 1000))) {
            Ok(()) => number += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, CommitError::Full { .. }), "{error}");
    assert!(log.stats().live_bytes > log.stats().live_bytes_max - 1100);
    let before = (contents(&log), log.flash().counts());
    assert!(log.commit(put(number, noise(&mut chance, 1000))).is_err());
    assert_eq!((contents(&log), log.flash().counts()), before);
    for number in 0..number {
        log.commit(delete(number)).unwrap();
    }
    assert_eq!(log.stats().live_bytes, 0);
    log.commit(put(0, noise(&mut chance, 1000))).unwrap();
    reopens_equal(&log);
}

/// Fills the store to its limit with records of one size, then changes them in an
/// order that is bad for a ring: always in the newest half, so that the older
/// half must be carried round again and again. No batch may be refused.
fn churn_at_the_limit(segments: usize, record_bytes: usize, rounds: u64, seed: u64) {
    let mut log = log(segments);
    let mut chance = SeededRandom::new(seed);
    let mut count = 0;
    while log
        .commit(put(count, noise(&mut chance, record_bytes)))
        .is_ok()
    {
        count += 1;
    }
    assert!(count > 1);
    let commit_pages_max = log.layout().commit_pages_max();
    for round in 0..rounds {
        let number = count / 2 + chance.below(count - count / 2);
        let before = log.stats();
        log.commit(put(number, noise(&mut chance, record_bytes)))
            .unwrap_or_else(|error| panic!("round {round}: {error}"));
        let after = log.stats();
        let pages = (after.written_bytes - before.written_bytes) / PAGE_BYTES as u64;
        assert!(pages <= commit_pages_max, "round {round}: {pages} pages");
        assert!(after.free_segments >= 1, "round {round}");
    }
    assert!(log.head > 3 * log.layout.pages(), "went round three times");
    reopens_equal(&log);
}

#[test]
fn no_batch_is_refused_at_the_limit_with_small_records() {
    churn_at_the_limit(16, 100, 3000, 3);
    churn_at_the_limit(8, 700, 3000, 4);
}

#[test]
fn no_batch_is_refused_at_the_limit_with_records_of_about_a_page() {
    churn_at_the_limit(16, 2048, 2000, 5);
    churn_at_the_limit(16, 4026, 2000, 6);
    churn_at_the_limit(32, 4030, 2000, 7);
}

#[test]
fn no_batch_is_refused_at_the_limit_with_the_largest_records() {
    let limit = log(16).layout().record_bytes_max();
    churn_at_the_limit(16, limit, 1000, 8);
    churn_at_the_limit(256, RECORD_BYTES_MAX, 500, 9);
}

#[test]
fn one_hot_byte_among_full_records_never_fills_the_store() {
    let mut log = log(16);
    let mut chance = SeededRandom::new(10);
    let mut count = 1;
    log.commit(put(0, vec![0])).unwrap();
    while log.commit(put(count, noise(&mut chance, 3000))).is_ok() {
        count += 1;
    }
    for round in 0..3000_u32 {
        log.commit(put(0, vec![round as u8])).unwrap();
    }
    reopens_equal(&log);
}

#[test]
fn spare_bytes_relocate_old_records_at_no_cost() {
    let mut log = log(16);
    let mut chance = SeededRandom::new(11);
    for number in 0..20 {
        log.commit(put(number, noise(&mut chance, 1000))).unwrap();
    }
    let before = log.stats();
    for round in 0..500_u32 {
        log.commit(put(99, round.to_be_bytes().to_vec())).unwrap();
    }
    let after = log.stats();
    assert_eq!(
        after.written_bytes - before.written_bytes,
        500 * PAGE_BYTES as u64
    );
    assert!(after.relocated > 20);
    assert!(after.free_segments >= 14);
    reopens_equal(&log);
}

#[test]
fn the_cost_of_a_commit_does_not_grow_with_the_number_of_records() {
    let cost = |records: u64| {
        let mut log = log(512);
        for number in 0..records {
            let value = noise(&mut SeededRandom::new(number), 500);
            log.commit(put(number, value)).unwrap();
        }
        let before = log.stats().written_bytes;
        for round in 0..100 {
            log.commit(put(round % records, vec![round as u8; 500]))
                .unwrap();
        }
        log.stats().written_bytes - before
    };
    assert_eq!(cost(50), cost(5000));
}

#[test]
fn a_deleted_record_stays_deleted_while_its_segments_are_used_again() {
    let mut log = log(8);
    let mut chance = SeededRandom::new(12);
    log.commit(put(1, noise(&mut chance, 2000))).unwrap();
    for _ in 0..3 {
        let mut value = log.value(&key(1)).unwrap().to_vec();
        value[7] ^= 1;
        log.commit(put(1, value)).unwrap();
    }
    log.commit(delete(1)).unwrap();
    for round in 0..400 {
        log.commit(put(2, noise(&mut chance, 1500))).unwrap();
        assert_eq!(log.value(&key(1)), None);
        if round % 7 == 0 {
            reopens_equal(&log);
        }
    }
}

#[test]
fn a_patched_record_outlives_the_segment_of_its_first_image() {
    let mut log = log(8);
    let mut chance = SeededRandom::new(13);
    let mut value = noise(&mut chance, 3900);
    log.commit(put(1, value.clone())).unwrap();
    for round in 0..600 {
        value[round % 3900] = value[round % 3900].wrapping_add(1);
        log.commit(put(1, value.clone())).unwrap();
        log.commit(put(2, noise(&mut chance, 3000))).unwrap();
        if round % 11 == 0 {
            reopens_equal(&log);
        }
    }
    assert_eq!(log.value(&key(1)), Some(value.as_slice()));
}

#[test]
fn after_a_failed_write_or_flush_nothing_more_is_taken() {
    for operations in 0..2 {
        let mut log = log(8);
        log.commit(put(1, vec![1])).unwrap();
        log.flash_mut().cut_after(operations);
        let error = log.commit(put(1, vec![2])).unwrap_err();
        assert!(matches!(error, CommitError::Flash(FlashError::PowerCut)));
        assert_eq!(log.value(&key(1)), Some([1].as_slice()));
        let error = log.commit(put(1, vec![3])).unwrap_err();
        assert!(matches!(error, CommitError::Poisoned));
        assert!(error.to_string().contains("restart"), "{error}");
    }
}

#[test]
fn opening_makes_what_was_found_durable() {
    let mut log = log(8);
    log.commit(put(1, vec![1])).unwrap();
    // The write gets through, its flush does not: as when the program is killed.
    let mut killed = log.clone();
    killed.flash_mut().cut_after(1);
    killed.commit(put(1, vec![2])).unwrap_err();
    let survivor = SimFlash::with_bytes(killed.flash().bytes().to_vec());
    let again = StoreLog::open(survivor, SEGMENT_BYTES).unwrap();
    assert_eq!(again.value(&key(1)), Some([2].as_slice()));
    assert_eq!(again.flash().counts().flushes, 1);
}

/// A commit was cut off with the first half of its page written, and reported as absent.
/// The next one was cut off with only the second half written, zeros in both: the
/// page was whole again, and the first commit back from the dead.
#[test]
fn two_torn_halves_do_not_bring_a_lost_commit_back() {
    let mut log = log(8);
    log.commit(put(1, vec![1])).unwrap();
    let at = log.layout.offset_of(log.head) as usize;
    let half = at + PAGE_BYTES / 2;
    let page_after = |log: &StoreLog<SimFlash>, value: u8| {
        let mut log = log.clone();
        log.commit(put(1, vec![value])).unwrap();
        log.flash().bytes().to_vec()
    };

    let mut torn = log.flash().bytes().to_vec();
    torn[at..half].copy_from_slice(&page_after(&log, 2)[at..half]);
    torn[half..at + PAGE_BYTES].fill(0xee);
    let reported = StoreLog::open(SimFlash::with_bytes(torn), SEGMENT_BYTES).unwrap();
    assert_eq!(reported.value(&key(1)), Some([1].as_slice()));

    let mut torn = reported.flash().bytes().to_vec();
    let end = at + PAGE_BYTES;
    torn[half..end].copy_from_slice(&page_after(&reported, 3)[half..end]);
    let again = StoreLog::open(SimFlash::with_bytes(torn), SEGMENT_BYTES).unwrap();
    assert_eq!(again.value(&key(1)), Some([1].as_slice()));
}
