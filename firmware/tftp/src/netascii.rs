//! Netascii (RFC 764 by way of RFC 1350): a line feed travels as CR LF, a
//! carriage return as CR NUL. Both directions keep the half of a pair that did
//! not fit between two calls.

use alloc::vec::Vec;

/// Where an encoder stands: the next byte of the file, and the second half of
/// a pair whose first half is already out. Copying it remembers the place.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct NetasciiPosition {
    pub(crate) offset: u64,
    pub(crate) pending: Option<u8>,
}

/// Appends encoded bytes of `raw`, which stands at `place`, until `space` bytes
/// were appended or `raw` is used up.
pub(crate) fn encode(place: &mut NetasciiPosition, raw: &[u8], space: usize, out: &mut Vec<u8>) {
    let end = out.len() + space;
    let mut bytes = raw.iter();
    while out.len() < end {
        if let Some(second) = place.pending.take() {
            out.push(second);
            continue;
        }
        let Some(&byte) = bytes.next() else { return };
        place.offset += 1;
        match byte {
            b'\n' => {
                out.push(b'\r');
                place.pending = Some(b'\n');
            }
            b'\r' => {
                out.push(b'\r');
                place.pending = Some(0);
            }
            other => out.push(other),
        }
    }
}

/// The receiving half.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NetasciiDecoder {
    after_return: bool,
}

impl NetasciiDecoder {
    /// Appends the decoded bytes of `wire`. A carriage return followed by
    /// anything but LF or NUL is kept as it is: some senders do not encode it.
    pub(crate) fn decode(&mut self, wire: &[u8], out: &mut Vec<u8>) {
        for &byte in wire {
            match (self.after_return, byte) {
                (true, b'\n') => out.push(b'\n'),
                (true, 0) => out.push(b'\r'),
                (true, b'\r') => {
                    out.push(b'\r');
                    continue;
                }
                (true, other) => out.extend([b'\r', other]),
                (false, b'\r') => {}
                (false, other) => out.push(other),
            }
            self.after_return = !self.after_return && byte == b'\r';
        }
    }

    /// Appends what was held back, at the end of the file.
    pub(crate) fn finish(&mut self, out: &mut Vec<u8>) {
        if core::mem::take(&mut self.after_return) {
            out.push(b'\r');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn encoded(raw: &[u8], block: usize) -> Vec<Vec<u8>> {
        let mut place = NetasciiPosition::default();
        let mut blocks = vec![];
        loop {
            let mut out = vec![];
            let rest = &raw[place.offset as usize..];
            encode(&mut place, rest, block, &mut out);
            let last = out.len() < block;
            blocks.push(out);
            if last {
                return blocks;
            }
        }
    }

    #[test]
    fn line_feeds_and_returns_become_pairs() {
        assert_eq!(encoded(b"a\nb\rc", 100), [b"a\r\nb\r\0c"]);
    }

    #[test]
    fn a_pair_may_be_cut_by_the_end_of_a_block() {
        assert_eq!(
            encoded(b"a\nb", 2),
            [b"a\r".to_vec(), b"\nb".to_vec(), vec![]]
        );
    }

    #[test]
    fn reads_back_what_it_writes_whatever_the_block() {
        let raw = b"one\ntwo\r\nthree\r\r\n\n\r";
        for block in 1..30 {
            let mut decoder = NetasciiDecoder::default();
            let mut back = vec![];
            for wire in encoded(raw, block) {
                decoder.decode(&wire, &mut back);
            }
            decoder.finish(&mut back);
            assert_eq!(back, raw, "blocks of {block}");
        }
    }

    #[test]
    fn a_bare_return_is_kept() {
        let mut decoder = NetasciiDecoder::default();
        let mut back = vec![];
        decoder.decode(b"a\rb\r", &mut back);
        decoder.finish(&mut back);
        assert_eq!(back, b"a\rb\r");
    }
}
