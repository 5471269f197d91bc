//! The source of a packed image.

use std::io::{self, BufRead, Read};

use crate::UnpackRefusal;

/// How much of a stream is read at once.
const READ_BYTES: usize = 64 * 1024;

/// A packed image with random access.
pub trait ReadAt {
    /// Its size in bytes.
    fn length(&self) -> u64;

    /// Fills the buffer with the bytes at this offset; fewer are an error.
    fn read_exact_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()>;

    /// The same, with [`UnpackRefusal`] as error.
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

/// The source could not be read; decoders pass this error on unchanged.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct PackedSourceUnreadable(String);

/// Reads a source from its first byte to its last.
pub(crate) struct PackedSourceCursor<S> {
    source: S,
    /// Offset of the bytes after those in the buffer.
    at: u64,
    buffer: Box<[u8]>,
    /// The part of the buffer that was not read yet.
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
