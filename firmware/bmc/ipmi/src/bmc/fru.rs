//! The FRU device of the simulated BMC: bytes that are read and written in chunks of limited
//! length.

use crate::command::{completion, storage};
use crate::operation::FRU_BYTES_MAX;

/// Longest chunk by default. Ours; a usual size of BMC buffers.
const CHUNK_BYTES: usize = 32;

/// One FRU device, number zero.
#[derive(Clone, Debug)]
pub(super) struct SimulatedFru {
    pub(super) bytes: Vec<u8>,
    pub(super) chunk_bytes: usize,
}

impl Default for SimulatedFru {
    fn default() -> Self {
        Self {
            bytes: vec![0; 256],
            chunk_bytes: CHUNK_BYTES,
        }
    }
}

impl SimulatedFru {
    /// Replaces the content; zeros fill it up to the device's size.
    pub(super) fn fill(&mut self, bytes: &[u8]) {
        let bytes = &bytes[..bytes.len().min(FRU_BYTES_MAX)];
        self.bytes = bytes.to_vec();
        self.bytes.resize(bytes.len().max(256), 0);
    }

    /// The body of the response to a command about FRU devices.
    pub(super) fn answer(&mut self, command: u8, data: &[u8]) -> Vec<u8> {
        match data {
            [] => vec![completion::BAD_LENGTH],
            [0, rest @ ..] => match command {
                storage::FRU_INFO => {
                    let [low, high] = (self.bytes.len() as u16).to_le_bytes();
                    vec![completion::OK, low, high, 0]
                }
                storage::READ_FRU => self.read(rest),
                _ => self.write(rest),
            },
            _ => vec![completion::NOT_PRESENT],
        }
    }

    fn read(&self, data: &[u8]) -> Vec<u8> {
        let &[low, high, count, ..] = data else {
            return vec![completion::BAD_LENGTH];
        };
        let at = usize::from(u16::from_le_bytes([low, high]));
        if usize::from(count) > self.chunk_bytes {
            return vec![completion::TOO_MUCH];
        }
        let Some(rest) = self.bytes.get(at..).filter(|rest| !rest.is_empty()) else {
            return vec![completion::OUT_OF_RANGE];
        };
        let bytes = &rest[..usize::from(count).min(rest.len())];
        [&[completion::OK, bytes.len() as u8][..], bytes].concat()
    }

    fn write(&mut self, data: &[u8]) -> Vec<u8> {
        let [low, high, bytes @ ..] = data else {
            return vec![completion::BAD_LENGTH];
        };
        let at = usize::from(u16::from_le_bytes([*low, *high]));
        if bytes.is_empty() || bytes.len() > self.chunk_bytes {
            return vec![completion::BAD_LENGTH];
        }
        match self.bytes.get_mut(at..at + bytes.len()) {
            Some(place) => {
                place.copy_from_slice(bytes);
                vec![completion::OK, bytes.len() as u8]
            }
            None => vec![completion::OUT_OF_RANGE],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes_chunks_up_to_its_limit() {
        let mut fru = SimulatedFru::default();
        assert_eq!(fru.answer(storage::FRU_INFO, &[0]), [0, 0, 1, 0]);
        let write = [0, 2, 0, 7, 8];
        assert_eq!(fru.answer(storage::WRITE_FRU, &write), [0, 2]);
        let read = fru.answer(storage::READ_FRU, &[0, 1, 0, 4]);
        assert_eq!(read, [0, 4, 0, 7, 8, 0]);
        let end = fru.answer(storage::READ_FRU, &[0, 254, 0, 4]);
        assert_eq!(end, [0, 2, 0, 0]);
    }

    #[test]
    fn refuses_what_is_too_long_too_far_or_elsewhere() {
        let mut fru = SimulatedFru::default();
        for (command, data, code) in [
            (storage::FRU_INFO, &[][..], 0xc7),
            (storage::FRU_INFO, &[1], 0xcb),
            (storage::READ_FRU, &[0, 0, 0], 0xc7),
            (storage::READ_FRU, &[0, 0, 0, 33], 0xca),
            (storage::READ_FRU, &[0, 0, 1, 1], 0xc9),
            (storage::READ_FRU, &[0, 255, 255, 1], 0xc9),
            (storage::WRITE_FRU, &[0, 0], 0xc7),
            (storage::WRITE_FRU, &[0, 0, 0], 0xc7),
            (storage::WRITE_FRU, &[0, 255, 0, 1, 2], 0xc9),
            (storage::WRITE_FRU, &[0, 255, 255, 1, 2], 0xc9),
        ] {
            assert_eq!(fru.answer(command, data), [code], "{data:?}");
        }
        fru.fill(&vec![1; FRU_BYTES_MAX + 1]);
        assert_eq!(fru.bytes.len(), FRU_BYTES_MAX);
        fru.fill(&[1]);
        assert_eq!((fru.bytes.len(), fru.bytes[1]), (256, 0));
    }
}
