//! The event log of the simulated BMC: bounded, with reservations; its erasure takes a configurable
//! number of polls.

use crate::command::{completion, storage};
use crate::sel::{RECORD_BYTES, SelEvent, SelRecord};

/// Most records it stores; later ones are lost. Ours.
pub const SEL_RECORDS_MAX: usize = 256;

/// The log.
#[derive(Clone, Debug, Default)]
pub(super) struct SimulatedSel {
    records: Vec<SelRecord>,
    overflowed: bool,
    reservation: u16,
    /// The number of polls until an erasure is complete.
    pub(super) erase_polls: u8,
    erasing: u8,
    added: u16,
}

impl SimulatedSel {
    pub(super) fn records(&self) -> &[SelRecord] {
        &self.records
    }

    pub(super) fn add(&mut self, time_s: u32, event: SelEvent) {
        if self.records.len() >= SEL_RECORDS_MAX {
            self.overflowed = true;
            return;
        }
        // Zero and the highest number mean the first and the last record.
        self.added = self.added % 0xfffe + 1;
        self.records.push(SelRecord::new(self.added, time_s, event));
    }

    /// The body of the response to a command about the log.
    pub(super) fn answer(&mut self, command: u8, data: &[u8]) -> Vec<u8> {
        match command {
            storage::SEL_INFO => self.info(),
            storage::RESERVE_SEL => {
                self.reservation = self.reservation.wrapping_add(1).max(1);
                let [low, high] = self.reservation.to_le_bytes();
                vec![completion::OK, low, high]
            }
            storage::SEL_TIME => vec![completion::OK, 0, 0, 0, 0],
            storage::SEL_ENTRY => self.entry(data),
            _ => self.clear(data),
        }
    }

    fn info(&self) -> Vec<u8> {
        let count = (self.records.len() as u16).to_le_bytes();
        let free = ((SEL_RECORDS_MAX - self.records.len()) * RECORD_BYTES) as u16;
        let mut body = vec![completion::OK, 0x51];
        body.extend(count);
        body.extend(free.to_le_bytes());
        body.extend([0; 8]);
        // Reservations are supported.
        body.push(0x02 | if self.overflowed { 0x80 } else { 0 });
        body
    }

    fn stale(&self, low: u8, high: u8) -> bool {
        self.reservation == 0 || u16::from_le_bytes([low, high]) != self.reservation
    }

    fn entry(&self, data: &[u8]) -> Vec<u8> {
        let &[low, high, id_low, id_high, offset, count, ..] = data else {
            return vec![completion::BAD_LENGTH];
        };
        // A reservation is needed only for parts of a record (section 31.5).
        if offset != 0 && self.stale(low, high) {
            return vec![completion::CANCELLED];
        }
        let at = match u16::from_le_bytes([id_low, id_high]) {
            0 => Some(0),
            0xffff => self.records.len().checked_sub(1),
            id => self.records.iter().position(|record| record.id == id),
        };
        let Some((at, record)) = at.and_then(|at| Some((at, self.records.get(at)?))) else {
            return vec![completion::NOT_PRESENT];
        };
        let next = self.records.get(at + 1).map_or(0xffff, |next| next.id);
        let Some(bytes) = record.bytes.get(usize::from(offset)..) else {
            return vec![completion::OUT_OF_RANGE];
        };
        let mut body = vec![completion::OK];
        body.extend(next.to_le_bytes());
        body.extend(&bytes[..usize::from(count).min(bytes.len())]);
        body
    }

    fn clear(&mut self, data: &[u8]) -> Vec<u8> {
        let &[low, high, b'C', b'L', b'R', what, ..] = data else {
            return vec![completion::BAD_FIELD];
        };
        if self.stale(low, high) {
            return vec![completion::CANCELLED];
        }
        match what {
            0xaa => {
                self.records.clear();
                self.overflowed = false;
                self.erasing = self.erase_polls;
            }
            0 => self.erasing = self.erasing.saturating_sub(1),
            _ => return vec![completion::BAD_FIELD],
        }
        vec![completion::OK, u8::from(self.erasing == 0)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENT: SelEvent = SelEvent {
        generator: 0x20,
        sensor_type: 1,
        sensor: 1,
        asserted: true,
        kind: 1,
        data: [0; 3],
    };

    #[test]
    fn gives_each_record_its_successor() {
        let mut log = SimulatedSel::default();
        let empty = log.answer(storage::SEL_ENTRY, &[0, 0, 0, 0, 0, 0xff]);
        assert_eq!(empty, [completion::NOT_PRESENT]);
        log.add(5, EVENT);
        log.add(6, EVENT);
        let first = log.answer(storage::SEL_ENTRY, &[0, 0, 0, 0, 0, 0xff]);
        assert_eq!((first.len(), &first[..5]), (19, &[0, 2, 0, 1, 0][..]));
        let last = log.answer(storage::SEL_ENTRY, &[0, 0, 0xff, 0xff, 0, 0xff]);
        assert_eq!(last[..5], [0, 0xff, 0xff, 2, 0]);
    }

    #[test]
    fn drops_records_beyond_the_limit_and_reports_overflow() {
        let mut log = SimulatedSel::default();
        for _ in 0..=SEL_RECORDS_MAX {
            log.add(0, EVENT);
        }
        assert_eq!(log.records().len(), SEL_RECORDS_MAX);
        let info = log.answer(storage::SEL_INFO, &[]);
        assert_eq!((&info[2..6], info[14]), (&[0, 1, 0, 0][..], 0x82));
    }

    #[test]
    fn parts_and_erasure_need_the_newest_reservation() {
        let mut log = SimulatedSel::default();
        log.add(0, EVENT);
        let erase = [1, 0, b'C', b'L', b'R', 0xaa];
        assert_eq!(log.answer(storage::CLEAR_SEL, &erase), [0xc5]);
        assert_eq!(log.answer(storage::RESERVE_SEL, &[]), [0, 1, 0]);
        let part = log.answer(storage::SEL_ENTRY, &[1, 0, 0, 0, 14, 2]);
        assert_eq!(part, [0, 0xff, 0xff, 0, 0]);
        assert_eq!(log.answer(storage::RESERVE_SEL, &[]), [0, 2, 0]);
        assert_eq!(log.answer(storage::CLEAR_SEL, &erase), [0xc5]);
        for (data, code) in [
            (&[2, 0, 0, 0, 17, 2][..], 0xc9),
            (&[1, 0, 0, 0, 14, 2], 0xc5),
            (&[1, 0, 0, 0, 14], 0xc7),
            (&[0, 0, 9, 0, 0, 255], 0xcb),
        ] {
            assert_eq!(log.answer(storage::SEL_ENTRY, data), [code]);
        }
        for data in [&[2, 0, b'C', b'L'][..], &[2, 0, b'C', b'L', b'R', 7]] {
            assert_eq!(log.answer(storage::CLEAR_SEL, data), [0xcc]);
        }
        assert_eq!(log.records().len(), 1);
    }
}
