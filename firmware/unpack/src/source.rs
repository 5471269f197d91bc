//! Where a packed image is read from.

use std::io::{self, BufRead, Read};

use crate::UnpackRefusal;

/// So much is read at once for a stream.
const READ_BYTES: usize = 64 * 1024;

/// A packed image, of which any part can be read.
pub trait ReadAt {
    /// How many bytes it has.
    fn length(&self) -> u64;

    /// Fills the buffer with the bytes from this offset on; fewer are an error.
    fn read_exact_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()>;

    /// The same, with our own error.
    #[doc(hidden)]
    fn read(&self, buffer: &mut [u8], at: u64) -> Result<(), UnpackRefusal> {
        let read = self.read_exact_at(buffer, at);
        read.map_err(|error| UnpackRefusal::Unreadable(error.to_string()))
    }
}

impl ReadAt for Vec<u8> {
    fn length(&self) -> u64 {
        self.len() as u64
    }

    fn read_exact_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        let bytes = usize::try_from(at)
            .ok()
            .and_then(|at| self.get(at..)?.get(..buffer.len()));
        buffer.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// The source itself could not be read; goes through decoders as it is.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct PackedSourceUnreadable(String);

/// A source from its first byte to its last.
pub(crate) struct PackedSourceCursor<S> {
    source: S,
    /// Where the bytes after those in the buffer are.
    at: u64,
    buffer: Box<[u8]>,
    /// What of the buffer was not taken yet.
    from: usize,
    to: usize,
}

impl<S: ReadAt> PackedSourceCursor<S> {
    pub(crate) fn new(source: S) -> Self {
        Self {
            source,
            at: 0,
            buffer: vec![0; READ_BYTES].into(),
            from: 0,
            to: 0,
        }
    }
}

impl<S: ReadAt> BufRead for PackedSourceCursor<S> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.from == self.to {
            let left = self.source.length().saturating_sub(self.at);
            let bytes = left.min(self.buffer.len() as u64) as usize;
            let read = self
                .source
                .read_exact_at(&mut self.buffer[..bytes], self.at);
            read.map_err(|error| io::Error::other(PackedSourceUnreadable(error.to_string())))?;
            self.at += bytes as u64;
            (self.from, self.to) = (0, bytes);
        }
        Ok(&self.buffer[self.from..self.to])
    }

    fn consume(&mut self, bytes: usize) {
        self.from = (self.from + bytes).min(self.to);
    }
}

impl<S: ReadAt> Read for PackedSourceCursor<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.fill_buf()?.read(buffer)?;
        self.consume(bytes);
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_reads_all_and_ends() {
        let bytes: Vec<u8> = (0..READ_BYTES + 1000).map(|at| (at % 251) as u8).collect();
        let mut got = Vec::new();
        PackedSourceCursor::new(bytes.clone())
            .read_to_end(&mut got)
            .unwrap();
        assert_eq!(got, bytes);
    }

    #[test]
    fn nothing_is_read_beyond_the_end() {
        let bytes = vec![1, 2, 3];
        let mut two = [0; 2];
        bytes.read_exact_at(&mut two, 1).unwrap();
        assert_eq!(two, [2, 3]);
        for at in [2, 3, 4, u64::MAX] {
            assert!(bytes.read_exact_at(&mut two, at).is_err(), "{at}");
        }
    }
}
