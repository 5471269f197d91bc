//! Power cuts at every operation of a long scripted workload.
//!
//! Goal: whatever a cut leaves of the writes since the last flush, the store opens
//! with exactly the acknowledged records; the batch under way is wholly there or
//! wholly absent; and it goes on working, into the next cut.
//! Method: a region so small that the ring is gone round many times. Before each
//! commit the store is copied, and for each write and flush of that commit the
//! power is cut there, with several ways of tearing what was under way.

use std::collections::BTreeMap;

use trivet_board_hal::{Flash, FlashError};
use trivet_board_sim::SimFlash;
use trivet_model::{Entropy, SeededRandom};
use trivet_store::{CommitError, OpenError, RecordKey, StoreLog};

const SEGMENT_BYTES: u32 = 16 * 1024;
const SEGMENTS: usize = 16;
const REGION: usize = 8192 + SEGMENTS * SEGMENT_BYTES as usize;
const KEYS: u64 = 16;

type PowerCutBatch = BTreeMap<RecordKey, Option<Vec<u8>>>;
type PowerCutContents = BTreeMap<RecordKey, Vec<u8>>;

fn key(number: u64) -> RecordKey {
    let mut id = [0; 16];
    id[15] = number as u8;
    RecordKey { kind: 1, id }
}

fn contents(log: &StoreLog<SimFlash>) -> PowerCutContents {
    log.iter()
        .map(|(key, value)| (*key, value.to_vec()))
        .collect()
}

fn open(flash: SimFlash) -> Result<StoreLog<SimFlash>, OpenError> {
    StoreLog::open(flash, SEGMENT_BYTES)
}

/// A batch of one to four changes: deletions, small edits, growth, new values.
fn batch(chance: &mut SeededRandom, present: &PowerCutContents) -> PowerCutBatch {
    let mut batch = PowerCutBatch::new();
    for _ in 0..=chance.below(4) {
        let key = key(chance.below(KEYS));
        let old = present.get(&key);
        let new = match (chance.below(10), old) {
            (0, _) => None,
            (1..=5, Some(old)) if !old.is_empty() => {
                let mut new = old.clone();
                let at = chance.below(new.len() as u64) as usize;
                new[at] = new[at].wrapping_add(1);
                Some(new)
            }
            (6, Some(old)) if old.len() < 6000 => Some([old.as_slice(), b"more"].concat()),
            _ => {
                let longest = [50, 900, 2500, 6000][chance.below(4) as usize];
                let mut new = vec![0; chance.below(longest) as usize];
                chance.fill(&mut new);
                Some(new)
            }
        };
        batch.insert(key, new);
    }
    batch
}

fn after(before: &PowerCutContents, batch: &PowerCutBatch) -> PowerCutContents {
    let mut after = before.clone();
    for (key, value) in batch {
        match value {
            Some(value) => after.insert(*key, value.clone()),
            None => after.remove(key),
        };
    }
    after
}

/// Cuts the power after `operations` operations of the commit; the flash as it is
/// then, or none if the commit ended before or was refused.
fn cut_in(log: &StoreLog<SimFlash>, batch: &PowerCutBatch, operations: u64) -> Option<SimFlash> {
    let mut log = log.clone();
    log.flash_mut().cut_after(operations);
    match log.commit(batch.clone()) {
        Ok(()) | Err(CommitError::Full { .. } | CommitError::BatchTooLarge { .. }) => None,
        Err(CommitError::Flash(_)) => {
            assert!(matches!(
                log.commit(batch.clone()),
                Err(CommitError::Poisoned)
            ));
            Some(log.into_flash())
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn every_cut_leaves_exactly_the_acknowledged_records() {
    let mut chance = SeededRandom::new(1);
    let mut log = open(SimFlash::new(REGION)).unwrap();
    let (mut cut_points, mut survived, mut lost, mut refused) = (0, 0, 0, 0);
    while cut_points < 4000 {
        let before = contents(&log);
        let batch = batch(&mut chance, &before);
        let wanted = after(&before, &batch);
        for operations in 0.. {
            let Some(flash) = cut_in(&log, &batch, operations) else {
                break;
            };
            cut_points += 1;
            for variant in 0..6 {
                let seed = match variant {
                    0 | 1 => variant,
                    _ => chance.number(),
                };
                let story = format!("cut {cut_points}, operation {operations}, seed {seed}");
                let flash = recovery_cut_short(flash.clone().power_on(seed), &mut chance);
                let recovered = open(flash).expect(&story);
                let found = contents(&recovered);
                if found == wanted {
                    survived += 1;
                } else {
                    assert_eq!(found, before, "{story}");
                    lost += 1;
                }
                continue_after_recovery(recovered, &mut chance, &story);
            }
        }
        match log.commit(batch) {
            Ok(()) => assert_eq!(contents(&log), wanted),
            Err(CommitError::Full { .. } | CommitError::BatchTooLarge { .. }) => {
                refused += 1;
                assert_eq!(contents(&log), before);
                let largest = before.iter().max_by_key(|(_, value)| value.len());
                let delete = [(*largest.unwrap().0, None)].into();
                log.commit(delete).unwrap();
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(survived > 1000 && lost > 1000, "{survived} {lost}");
    let stats = log.stats();
    let region_bytes = (SEGMENTS * SEGMENT_BYTES as usize) as u64;
    assert!(stats.written_bytes > 10 * region_bytes, "{stats:?}");
    assert!(stats.relocated > 500, "{stats:?}");
    assert!(refused < stats.commits / 4, "{refused} {stats:?}");
}

/// Cuts the power again while the store is being opened, in half of the cases.
fn recovery_cut_short(flash: SimFlash, chance: &mut SeededRandom) -> SimFlash {
    if chance.chance(500) {
        return flash;
    }
    let mut stored = RetainedFlash(flash);
    stored.0.cut_after(chance.below(3));
    match StoreLog::open(&mut stored, SEGMENT_BYTES) {
        Ok(_) | Err(OpenError::Flash(_)) => stored.0.power_on(chance.number()),
        Err(error) => panic!("{error}"),
    }
}

/// Keeps the flash that a failed open would swallow.
struct RetainedFlash(SimFlash);

impl Flash for &mut RetainedFlash {
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

/// After a recovery: a commit that is cut again, and one that is not.
fn continue_after_recovery(mut log: StoreLog<SimFlash>, chance: &mut SeededRandom, story: &str) {
    let before = contents(&log);
    let again = batch(chance, &before);
    let wanted = after(&before, &again);
    if let Some(flash) = cut_in(&log, &again, chance.below(2)) {
        let mut second = open(flash.power_on(chance.number())).expect(story);
        let found = contents(&second);
        assert!(found == wanted || found == before, "again, {story}");
        commit_and_reopen(&mut second, chance, story);
    }
    commit_and_reopen(&mut log, chance, story);
}

fn commit_and_reopen(log: &mut StoreLog<SimFlash>, chance: &mut SeededRandom, story: &str) {
    let before = contents(log);
    let batch = batch(chance, &before);
    let wanted = match log.commit(batch.clone()) {
        Ok(()) => after(&before, &batch),
        Err(CommitError::Full { .. } | CommitError::BatchTooLarge { .. }) => before,
        Err(error) => panic!("{error}, {story}"),
    };
    let bytes = log.flash().bytes().to_vec();
    let again = open(SimFlash::with_bytes(bytes)).expect(story);
    assert_eq!(contents(&again), wanted, "{story}");
}
