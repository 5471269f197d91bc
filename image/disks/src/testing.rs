//! A disk in memory with faults.

use std::io;

use crate::TargetDisk;

pub(crate) struct MemoryDisk {
    pub(crate) data: Vec<u8>,
    pub(crate) sector_bytes: u64,
    /// Writes to this byte are errors.
    pub(crate) fails_at: Option<u64>,
    /// Writes to this byte store another value.
    pub(crate) rots_at: Option<u64>,
    pub(crate) is_removed: bool,
    pub(crate) is_read_only: bool,
    /// Discarding does nothing.
    pub(crate) ignores_discard: bool,
    /// Bytes that were written as data, and as zeros.
    pub(crate) written: u64,
    pub(crate) zeroed: u64,
    pub(crate) rereads: usize,
    pub(crate) flushes: usize,
}

impl MemoryDisk {
    pub(crate) fn filled(bytes: usize, byte: u8) -> Self {
        Self {
            data: vec![byte; bytes],
            sector_bytes: 512,
            fails_at: None,
            rots_at: None,
            is_removed: false,
            is_read_only: false,
            ignores_discard: false,
            written: 0,
            zeroed: 0,
            rereads: 0,
            flushes: 0,
        }
    }

    fn range(&self, at: u64, bytes: u64) -> io::Result<std::ops::Range<usize>> {
        if self.is_removed {
            return Err(io::Error::from_raw_os_error(5));
        }
        assert!(at.is_multiple_of(self.sector_bytes), "offset {at}");
        assert!(bytes.is_multiple_of(self.sector_bytes), "length {bytes}");
        if at + bytes > self.data.len() as u64 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(at as usize..(at + bytes) as usize)
    }

    fn writable(&self, at: u64, bytes: u64) -> io::Result<std::ops::Range<usize>> {
        let range = self.range(at, bytes)?;
        if self.is_read_only
            || self
                .fails_at
                .is_some_and(|bad| (at..at + bytes).contains(&bad))
        {
            return Err(io::Error::from_raw_os_error(5));
        }
        Ok(range)
    }
}

impl TargetDisk for MemoryDisk {
    fn bytes(&self) -> u64 {
        self.data.len() as u64
    }

    fn sector_bytes(&self) -> u64 {
        self.sector_bytes
    }

    fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    fn read_at(&mut self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        let range = self.range(at, buffer.len() as u64)?;
        buffer.copy_from_slice(&self.data[range]);
        Ok(())
    }

    fn write_at(&mut self, bytes: &[u8], at: u64) -> io::Result<()> {
        let range = self.writable(at, bytes.len() as u64)?;
        self.data[range.clone()].copy_from_slice(bytes);
        if let Some(rot) = self.rots_at.filter(|&rot| range.contains(&(rot as usize))) {
            self.data[rot as usize] ^= 1;
        }
        self.written += bytes.len() as u64;
        Ok(())
    }

    fn write_zeroes(&mut self, at: u64, bytes: u64) -> io::Result<()> {
        let range = self.writable(at, bytes)?;
        self.data[range].fill(0);
        self.zeroed += bytes;
        Ok(())
    }

    fn discard(&mut self, at: u64, bytes: u64) -> io::Result<()> {
        let range = self.writable(at, bytes)?;
        if !self.ignores_discard {
            self.data[range].fill(0);
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.range(0, 0)?;
        self.flushes += 1;
        Ok(())
    }

    fn reread_partitions(&mut self) -> io::Result<()> {
        self.rereads += 1;
        Ok(())
    }

    fn is_present(&self) -> bool {
        !self.is_removed
    }
}
