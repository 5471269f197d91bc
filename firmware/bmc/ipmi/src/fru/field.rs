//! Fields of an area: a byte with encoding and length, and the text. There are four encodings, one
//! of them for English only.

use super::{END, ENGLISH, FIELDS_MAX};

const LENGTH_MASK: u8 = 0x3f;
const BINARY: u8 = 0;
const BCD: u8 = 1;
const SIX_BITS: u8 = 2;

/// Decodes a text in one of the four encodings.
pub(crate) fn text(kind: u8, bytes: &[u8], english: bool) -> String {
    match kind {
        BINARY => bytes
            .iter()
            .flat_map(|byte| [byte >> 4, byte & 15])
            .map(|digit| char::from(b"0123456789abcdef"[usize::from(digit)]))
            .collect(),
        BCD => bytes
            .iter()
            .flat_map(|byte| [byte >> 4, byte & 15])
            .map(|digit| char::from(b"0123456789 -.:,_"[usize::from(digit)]))
            .collect(),
        SIX_BITS => six_bits(bytes),
        _ if english => bytes.iter().copied().map(char::from).collect(),
        _ => {
            let pairs = bytes.chunks_exact(2);
            let words: Vec<u16> = pairs
                .map(|pair| u16::from_le_bytes([pair[0], pair[1]]))
                .collect();
            String::from_utf16_lossy(&words)
        }
    }
}

/// Decodes four characters in three bytes, the first in the lowest bits.
fn six_bits(bytes: &[u8]) -> String {
    let bits = |at: usize| {
        let low = u16::from(bytes[at / 8]);
        let high = u16::from(bytes.get(at / 8 + 1).copied().unwrap_or_default());
        ((low | high << 8) >> (at % 8)) as u8 & 0x3f
    };
    (0..bytes.len() * 8 / 6)
        .map(|at| char::from(0x20 + bits(at * 6)))
        .collect()
}

/// Removes characters that cannot be printed, and trailing blanks.
fn clean(text: &str) -> String {
    let printable = text.chars().filter(|character| !character.is_control());
    printable.collect::<String>().trim().to_owned()
}

/// The remaining fields of an area.
pub(super) struct FruFields<'a> {
    bytes: &'a [u8],
    english: bool,
    ended: bool,
}

impl<'a> FruFields<'a> {
    pub(super) fn new(bytes: &'a [u8], language: u8) -> Self {
        Self {
            bytes,
            english: matches!(language, 0 | ENGLISH),
            ended: false,
        }
    }

    /// The next field, empty after the last one; `None` if it is truncated.
    pub(super) fn text(&mut self) -> Option<String> {
        if self.ended {
            return Some(String::new());
        }
        let (&head, rest) = self.bytes.split_first()?;
        if head == END {
            self.ended = true;
            return Some(String::new());
        }
        let (bytes, rest) = rest.split_at_checked(usize::from(head & LENGTH_MASK))?;
        self.bytes = rest;
        Some(clean(&text(head >> 6, bytes, self.english)))
    }

    /// All further fields; `None` if one is truncated or there are too many.
    pub(super) fn rest(&mut self) -> Option<Vec<String>> {
        let mut texts = Vec::new();
        loop {
            let text = self.text()?;
            if self.ended {
                return Some(texts);
            }
            if texts.len() >= FIELDS_MAX {
                return None;
            }
            texts.push(text);
        }
    }
}

/// Appends a field in eight-bit text. A single character would read as the end of all fields, so a
/// blank is added.
pub(super) fn push(out: &mut Vec<u8>, text: &str) {
    let characters = text
        .chars()
        .map(|character| u8::try_from(character).unwrap_or(b'?'));
    let mut bytes: Vec<u8> = characters.take(usize::from(LENGTH_MASK)).collect();
    if bytes.len() == 1 {
        bytes.push(b' ');
    }
    out.push(0xc0 | bytes.len() as u8);
    out.extend(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_text_in_all_its_ways() {
        for (kind, bytes, english, want) in [
            (0, &[0x0a, 0xff][..], true, "0aff"),
            (1, &[0x12, 0xab, 0xcd], true, "12 -.:"),
            // The example of the storage definition, section 13.2: "IPMI".
            (2, &[0x29, 0xdc, 0xa6], true, "IPMI"),
            (3, &[b'a', 0xe4], true, "a\u{e4}"),
            (3, &[b'a', 0, 0xe4, 0, 9], false, "a\u{e4}"),
            (3, &[0, 0xd8], false, "\u{fffd}"),
            (2, &[0x29], true, "I"),
        ] {
            assert_eq!(text(kind, bytes, english), want);
        }
        for kind in 0..4 {
            assert_eq!(text(kind, &[], true), "");
        }
    }

    #[test]
    fn fields_end_at_the_mark_and_nowhere_else() {
        let mut fields = FruFields::new(&[0xc2, b'a', b'b', 0xc0, 0xc1, 0xc1], ENGLISH);
        let texts: Vec<_> = (0..4).map(|_| fields.text()).collect();
        let want = ["ab", "", "", ""].map(|text| Some(text.to_owned()));
        assert_eq!(texts, want);
        assert_eq!(FruFields::new(&[0xc2, b'a'], 0).text(), None);
        assert_eq!(FruFields::new(&[0xc2, b'a', b'b'], 0).rest(), None);
        let many = [0xc0; FIELDS_MAX + 1];
        assert_eq!(
            FruFields::new(&[&many[..], &[END]].concat(), 0).rest(),
            None
        );
        let most = [&many[1..], &[END]].concat();
        let texts = FruFields::new(&most, 0).rest().unwrap();
        assert_eq!(texts.len(), FIELDS_MAX);
    }

    #[test]
    fn what_cannot_be_printed_is_left_out() {
        assert_eq!(clean(" a\u{1b}[31m\0b \n"), "a[31mb");
    }

    #[test]
    fn writes_what_it_reads() {
        for text in ["", "x", "two words", &"n".repeat(63)] {
            let mut bytes = Vec::new();
            push(&mut bytes, text);
            bytes.push(END);
            let read = FruFields::new(&bytes, ENGLISH).rest();
            assert_eq!(read, Some(vec![text.to_owned()]));
        }
        let mut bytes = Vec::new();
        push(&mut bytes, &"\u{2603}".repeat(70));
        assert_eq!((bytes.len(), bytes[1]), (64, b'?'));
    }
}
