//! The log beside a plain map.
//!
//! Goal: after any sequence of batches and reopenings the log holds what a map
//! holds. Method: proptest chooses the sequence; the region is the smallest there
//! is, so that refusals and carrying happen all the time.

use std::collections::BTreeMap;

use proptest::prelude::*;
use trivet_board_sim::SimFlash;
use trivet_store::{CommitError, RecordKey, StoreLog};

const SEGMENT_BYTES: u32 = 16 * 1024;
const REGION: usize = 8192 + 8 * SEGMENT_BYTES as usize;

#[derive(Clone, Debug)]
enum LogAction {
    Batch(BTreeMap<RecordKey, Option<Vec<u8>>>),
    Reopen,
}

fn key() -> impl Strategy<Value = RecordKey> {
    (1..3_u8, 0..6_u8).prop_map(|(kind, id)| RecordKey { kind, id: [id; 16] })
}

fn value() -> impl Strategy<Value = Option<Vec<u8>>> {
    prop_oneof![
        1 => Just(None),
        3 => (any::<u8>(), 0..3000_usize).prop_map(|(byte, length)| Some(vec![byte; length])),
        2 => proptest::collection::vec(any::<u8>(), 0..200).prop_map(Some),
    ]
}

fn act() -> impl Strategy<Value = LogAction> {
    prop_oneof![
        8 => proptest::collection::btree_map(key(), value(), 0..4).prop_map(LogAction::Batch),
        1 => Just(LogAction::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn the_log_holds_what_a_map_holds(acts in proptest::collection::vec(act(), 1..150)) {
        let mut log = StoreLog::open(SimFlash::new(REGION), SEGMENT_BYTES).unwrap();
        let mut map: BTreeMap<RecordKey, Vec<u8>> = BTreeMap::new();
        for act in acts {
            match act {
                LogAction::Reopen => log = StoreLog::open(log.into_flash(), SEGMENT_BYTES).unwrap(),
                LogAction::Batch(batch) => match log.commit(batch.clone()) {
                    Ok(()) => {
                        for (key, value) in batch {
                            match value {
                                Some(value) => map.insert(key, value),
                                None => map.remove(&key),
                            };
                        }
                    }
                    Err(CommitError::Full { bytes, limit }) => prop_assert!(bytes > limit),
                    Err(CommitError::BatchTooLarge { .. }) => {}
                    Err(error) => panic!("{error}"),
                },
            }
            let same = log.iter().eq(map.iter().map(|(key, value)| (key, value.as_slice())));
            prop_assert!(same);
        }
    }
}
