//! Reads a fuzzer's bytes as small choices. Missing bytes at the end read as zero, so every
//! input is valid and truncating one keeps its start.

use core::net::Ipv4Addr;

/// The remaining bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FuzzInput<'a>(&'a [u8]);

impl<'a> FuzzInput<'a> {
    /// A whole input.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Whether no bytes remain.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next byte, or zero.
    pub(crate) fn byte(&mut self) -> u8 {
        let [first, rest @ ..] = self.0 else { return 0 };
        self.0 = rest;
        *first
    }

    /// The next two bytes as a number.
    pub(crate) fn word(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }

    /// The next `count` bytes, or all that remain.
    pub(crate) fn take(&mut self, count: usize) -> &'a [u8] {
        let (head, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        head
    }

    /// Bytes with a length byte before them.
    pub(crate) fn counted(&mut self) -> &'a [u8] {
        let count = self.byte();
        self.take(usize::from(count))
    }

    /// The same with a length of two bytes.
    pub(crate) fn counted_long(&mut self) -> &'a [u8] {
        let count = self.word();
        self.take(usize::from(count))
    }

    /// One of these; the slice must not be empty.
    pub(crate) fn choose<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::from(self.byte()) % from.len()]
    }

    /// An address: one of these, or any address if the byte is 255.
    pub(crate) fn address(&mut self, usual: &[Ipv4Addr]) -> Ipv4Addr {
        match self.byte() {
            u8::MAX => {
                let bytes = [self.byte(), self.byte(), self.byte(), self.byte()];
                Ipv4Addr::from(bytes)
            }
            chosen => usual[usize::from(chosen) % usual.len()],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_in_order_and_then_zeros() {
        let mut input = FuzzInput::new(&[7, 1, 2, 2, 8, 9, 0, 1, 5]);
        assert_eq!(input.byte(), 7);
        assert_eq!(input.word(), 0x0102);
        assert_eq!(input.counted(), [8, 9]);
        assert_eq!(input.counted_long(), [5]);
        assert!(input.is_empty());
        assert_eq!((input.byte(), input.word()), (0, 0));
        assert!(input.take(9).is_empty());
    }

    #[test]
    fn a_count_beyond_the_end_takes_what_is_left() {
        assert_eq!(FuzzInput::new(&[200, 1, 2]).counted(), [1, 2]);
    }

    #[test]
    fn an_address_is_usual_or_any() {
        let usual = [Ipv4Addr::LOCALHOST, Ipv4Addr::BROADCAST];
        assert_eq!(FuzzInput::new(&[3]).address(&usual), Ipv4Addr::BROADCAST);
        let any = FuzzInput::new(&[255, 10, 0, 0, 9]).address(&usual);
        assert_eq!(any, Ipv4Addr::new(10, 0, 0, 9));
    }
}
