//! Decodes all records of a table. This takes most of the time of opening a store, so a second
//! thread decodes a part of them.

use std::thread::{self, Builder};

use crate::RecordKey;
use crate::error::RecordError;
use crate::schema::{self, StoredRecord};
use crate::seal::Sealer;
use crate::store::StoreRecords;

/// With fewer records, starting a second thread takes longer than decoding. The limit is ours.
const SHARED_RECORDS_MIN: usize = 500;

/// Time that decoding a record takes independent of its size, as a number of bytes.
const RECORD_COST_BYTES: usize = 64;

type EncodedRecord<'a> = (&'a RecordKey, &'a [u8]);

/// Decodes records that are in the order of their keys; records of unknown kinds are left out.
/// The error is the one of the first record that cannot be read, in both threads. Without a
/// sealer, sealed values cannot be read.
pub(crate) fn decode_all<'a>(
    sealer: Option<&Sealer>,
    records: impl Iterator<Item = EncodedRecord<'a>>,
) -> Result<StoreRecords, RecordError> {
    let records = records.filter(|(key, _)| schema::is_known(key));
    let encoded: Vec<EncodedRecord<'a>> = records.collect();
    let (first, second) = encoded.split_at(middle(&encoded));
    let mut decoded = StoreRecords::default();
    thread::scope(|scope| {
        let helper = (!second.is_empty()).then(|| {
            let decode = move || decode_share(sealer, second);
            Builder::new()
                .name("decode".to_owned())
                .spawn_scoped(scope, decode)
        });
        for (key, value) in first {
            decoded.add(schema::decode(sealer, key, value)?);
        }
        let rest = match helper {
            Some(Ok(helper)) => helper
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            // The system has no thread left: this thread decodes everything.
            Some(Err(_)) => decode_share(sealer, second),
            None => Ok(Vec::new()),
        };
        rest?.into_iter().for_each(|record| decoded.add(record));
        Ok(decoded)
    })
}

fn decode_share(
    sealer: Option<&Sealer>,
    share: &[EncodedRecord<'_>],
) -> Result<Vec<StoredRecord>, RecordError> {
    share
        .iter()
        .map(|(key, value)| schema::decode(sealer, key, value))
        .collect()
}

/// The index at which the second share begins. Both shares take about the same time.
fn middle(encoded: &[EncodedRecord<'_>]) -> usize {
    if encoded.len() < SHARED_RECORDS_MIN {
        return encoded.len();
    }
    let cost = |(_, value): &EncodedRecord<'_>| value.len() + RECORD_COST_BYTES;
    let half = encoded.iter().map(cost).sum::<usize>() / 2;
    let mut sum = 0;
    encoded
        .iter()
        .position(|record| {
            sum += cost(record);
            sum > half
        })
        .unwrap_or(encoded.len())
}

#[cfg(test)]
mod tests {
    use trivet_board_sim::box_key;
    use trivet_model::{Node, NodeId, UnixMs};
    use uuid::Uuid;

    use super::*;

    fn encoded(sealer: &Sealer, count: usize) -> Vec<(RecordKey, Vec<u8>)> {
        (0..count as u128)
            .map(|number| {
                let id = NodeId(Uuid::from_u128(number));
                let mut node = Node::new(id, "ipmi", UnixMs(1));
                node.driver_info
                    .insert("ipmi_password".into(), "hunter2".into());
                let bytes = schema::encode_node(sealer, &node).unwrap();
                (schema::node_key(id), bytes)
            })
            .collect()
    }

    fn sealer() -> Sealer {
        Sealer::new(&box_key())
    }

    fn decode(
        sealer: &Sealer,
        records: &[(RecordKey, Vec<u8>)],
    ) -> Result<StoreRecords, RecordError> {
        let records = records.iter().map(|(key, value)| (key, value.as_slice()));
        decode_all(Some(sealer), records)
    }

    #[test]
    fn many_records_are_decoded_by_two_threads_and_few_by_one() {
        let sealer = sealer();
        for (count, here) in [
            (SHARED_RECORDS_MIN - 1, SHARED_RECORDS_MIN - 1),
            (SHARED_RECORDS_MIN, SHARED_RECORDS_MIN / 2),
        ] {
            let records = encoded(&sealer, count);
            schema::DECODED.set(0);
            let decoded = decode(&sealer, &records).unwrap();
            assert_eq!(decoded.nodes.len(), count);
            assert!(
                schema::DECODED.get().abs_diff(here) <= 1,
                "this thread decodes its share"
            );
            let password = |node: &Node| node.driver_info["ipmi_password"] == "hunter2";
            assert!(decoded.nodes.values().all(password));
        }
    }

    #[test]
    fn the_first_record_that_cannot_be_read_is_the_error_whichever_thread_finds_it() {
        let sealer = sealer();
        let sound = encoded(&sealer, 2 * SHARED_RECORDS_MIN);
        let last = sound.len() - 1;
        for (first, second) in [(0, last), (last - 1, last), (1, 2)] {
            let mut records = sound.clone();
            // A newer version at the first place, an envelope of another kind at the second.
            records[first].1[1..3].fill(0xff);
            records[second].1[0] = 9;
            let error = decode(&sealer, &records).unwrap_err();
            assert!(
                matches!(error, RecordError::NewerVersion { .. }),
                "{first}: {error}"
            );
        }
    }
}
