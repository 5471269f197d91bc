//! Converts acknowledged bytes of a TLS connection to bytes of the response.
//!
//! TLS adds some bytes to each record, and a client cannot use a record that arrived
//! only in part. Each write is remembered until all of it was acknowledged.

use std::collections::VecDeque;

/// Most bytes of one record: RFC 8446, section 5.1.
pub(super) const RECORD_BYTES: u64 = 16 * 1024;

pub(super) struct TlsRecordTracker {
    /// Overhead of each record in bytes.
    added_bytes: u64,
    /// Plaintext bytes that were encrypted so far.
    written: u64,
    /// The writes that are not fully acknowledged; the kernel's send buffer bounds
    /// them.
    writes: VecDeque<TlsWrite>,
}

/// One write: full records, and a last one that may be shorter.
#[derive(Clone, Copy)]
struct TlsWrite {
    /// Bytes on the wire before it.
    wire_from: u64,
    /// Plaintext bytes before it.
    from: u64,
    bytes: u64,
}

impl TlsRecordTracker {
    pub(super) fn new(added_bytes: u64) -> Self {
        Self {
            added_bytes,
            written: 0,
            writes: VecDeque::new(),
        }
    }

    /// Plaintext bytes that were encrypted so far.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// Adds a write of this many plaintext bytes, which starts on the wire after
    /// `line_from` others.
    pub(super) fn add(&mut self, line_from: u64, bytes: u64) {
        self.writes.push_back(TlsWrite {
            wire_from: line_from,
            from: self.written,
            bytes,
        });
        self.written += bytes;
    }

    /// Removes writes that were fully acknowledged.
    pub(super) fn discard_acknowledged(&mut self, line_acknowledged: u64) {
        while let Some(piece) = self.writes.front()
            && self.wire_end(piece) <= line_acknowledged
        {
            self.writes.pop_front();
        }
    }

    /// Plaintext bytes in fully acknowledged records.
    pub(super) fn acknowledged(&self, line_acknowledged: u64) -> u64 {
        let begun = |piece: &&TlsWrite| piece.wire_from <= line_acknowledged;
        let Some(piece) = self.writes.iter().rev().find(begun) else {
            return self.writes.front().map_or(self.written, |piece| piece.from);
        };
        if self.wire_end(piece) <= line_acknowledged {
            return piece.from + piece.bytes;
        }
        let whole = (line_acknowledged - piece.wire_from) / (RECORD_BYTES + self.added_bytes);
        piece.from + whole * RECORD_BYTES
    }

    fn wire_end(&self, piece: &TlsWrite) -> u64 {
        let records = piece.bytes.div_ceil(RECORD_BYTES);
        piece.wire_from + piece.bytes + records * self.added_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: u64 = RECORD_BYTES + 22;

    #[test]
    fn a_record_counts_when_its_last_byte_has_come() {
        let mut records = TlsRecordTracker::new(22);
        records.add(0, 100);
        records.add(122, 2 * RECORD_BYTES + 5);
        let end = 122 + 2 * FULL + 27;
        for (line, want) in [
            (0, 0),
            (121, 0),
            (122, 100),
            (122 + FULL - 1, 100),
            (122 + FULL, 100 + RECORD_BYTES),
            (122 + 2 * FULL + 26, 100 + 2 * RECORD_BYTES),
            (end, 105 + 2 * RECORD_BYTES),
        ] {
            assert_eq!(records.acknowledged(line), want, "{line}");
            let mut later = TlsRecordTracker::new(22);
            later.add(0, 100);
            later.add(122, 2 * RECORD_BYTES + 5);
            later.discard_acknowledged(line);
            assert_eq!(later.acknowledged(line), want, "{line}, some forgotten");
        }
    }

    #[test]
    fn what_tls_says_by_itself_is_between_the_pieces() {
        let mut records = TlsRecordTracker::new(29);
        records.add(50, 1);
        assert_eq!(records.acknowledged(40), 0);
        assert_eq!(records.acknowledged(79), 0);
        assert_eq!(records.acknowledged(80), 1);
        records.add(110, 1);
        assert_eq!(records.acknowledged(109), 1);
        assert_eq!((records.acknowledged(140), records.written()), (2, 2));
    }

    #[test]
    fn only_what_is_on_its_way_is_remembered() {
        let mut records = TlsRecordTracker::new(22);
        for at in 0..1000 {
            records.discard_acknowledged(at * 122);
            records.add(at * 122, 100);
        }
        assert_eq!(records.writes.len(), 1);
        assert_eq!(records.acknowledged(1000 * 122), 100_000);
    }
}
