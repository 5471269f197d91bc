//! FRU inventory devices (section 34): reads the size of one, then reads or writes it in chunks.
//! Written bytes are read back and compared.

use trivet_model::PowerError;

use super::chunk::IpmiChunkSize;
use super::{IpmiOperationNext, IpmiReply, invalid_response, refused, unsupported};
use crate::command::{IpmiRequest, completion, storage};

/// Most bytes of a FRU device that are read or written. Ours: real ones have 256
/// to 8192.
pub const FRU_BYTES_MAX: usize = 16 * 1024;
/// Length of the first chunk. Ours; a usual size of BMC buffers.
const READ_BYTES: usize = 32;
const WRITE_BYTES: usize = 16;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum FruStep {
    Info,
    Write,
    Read,
}

/// A read of a whole device, or a write of a part of it.
#[derive(Clone, Debug)]
pub(super) struct FruScript {
    device: u8,
    step: FruStep,
    /// The offset and the bytes to write.
    to_write: Option<(usize, Vec<u8>)>,
    /// Two if the BMC counts in words.
    unit: usize,
    chunk_size: IpmiChunkSize,
    /// Begin and end of the present part, in bytes.
    at: usize,
    end: usize,
    bytes: Vec<u8>,
}

impl FruScript {
    pub(super) fn read(device: u8) -> (Self, IpmiRequest) {
        let script = Self {
            device,
            step: FruStep::Info,
            to_write: None,
            unit: 1,
            chunk_size: IpmiChunkSize::new(READ_BYTES, 1),
            at: 0,
            end: 0,
            bytes: Vec::new(),
        };
        (script, IpmiRequest::storage(storage::FRU_INFO, &[device]))
    }

    pub(super) fn write(
        device: u8,
        offset: u16,
        bytes: Vec<u8>,
    ) -> Result<(Self, IpmiRequest), PowerError> {
        let offset = usize::from(offset);
        if bytes.is_empty() || offset + bytes.len() > FRU_BYTES_MAX {
            return Err(unsupported("1 to 16384 bytes can be written to a FRU"));
        }
        let (mut script, request) = Self::read(device);
        script.to_write = Some((offset, bytes));
        Ok((script, request))
    }

    pub(super) fn handle_response(&mut self, code: u8, data: &[u8]) -> IpmiOperationNext {
        if code != completion::OK {
            if self.step != FruStep::Info && self.chunk_size.shrink(code) {
                return self.chunk_request();
            }
            return refused(code);
        }
        match self.step {
            FruStep::Info => self.handle_info(data),
            FruStep::Write => self.handle_write(data),
            FruStep::Read => self.handle_read(data),
        }
    }

    fn handle_info(&mut self, data: &[u8]) -> IpmiOperationNext {
        let &[low, high, access, ..] = data else {
            return invalid_response("a FRU size cut short");
        };
        self.unit = if access & 1 == 0 { 1 } else { 2 };
        let size = usize::from(u16::from_le_bytes([low, high]));
        match &self.to_write {
            None => {
                self.end = size.min(FRU_BYTES_MAX);
                self.begin_reading(0)
            }
            Some((offset, bytes)) => {
                (self.at, self.end) = (*offset, offset + bytes.len());
                if self.end > size {
                    return IpmiOperationNext::Done(Err(unsupported(
                        "the FRU is smaller than that",
                    )));
                }
                if !(self.at.is_multiple_of(self.unit) && self.end.is_multiple_of(self.unit)) {
                    return IpmiOperationNext::Done(Err(unsupported(
                        "the FRU is written in whole words",
                    )));
                }
                self.step = FruStep::Write;
                self.chunk_size = IpmiChunkSize::new(WRITE_BYTES, self.unit);
                self.chunk_request()
            }
        }
    }

    fn begin_reading(&mut self, at: usize) -> IpmiOperationNext {
        self.step = FruStep::Read;
        self.at = at;
        // A device with word access ends with a whole word.
        self.end -= self.end % self.unit;
        self.chunk_size = IpmiChunkSize::new(READ_BYTES, self.unit);
        if self.at < self.end {
            return self.chunk_request();
        }
        IpmiOperationNext::Done(Ok(IpmiReply::Fru(Vec::new())))
    }

    /// The request for the present chunk. Offsets and counts are in the BMC's unit.
    fn chunk_request(&self) -> IpmiOperationNext {
        let count = self.chunk_size.next_len(self.end - self.at);
        let place = (self.at / self.unit) as u16;
        let [low, high] = place.to_le_bytes();
        let mut data = vec![self.device, low, high];
        let command = match (&self.to_write, self.step) {
            (Some((offset, bytes)), FruStep::Write) => {
                let from = self.at - offset;
                data.extend(bytes.get(from..from + count).unwrap_or_default());
                storage::WRITE_FRU
            }
            _ => {
                data.push((count / self.unit) as u8);
                storage::READ_FRU
            }
        };
        IpmiOperationNext::Send(IpmiRequest::storage(command, &data))
    }

    fn handle_write(&mut self, data: &[u8]) -> IpmiOperationNext {
        let requested = self.chunk_size.next_len(self.end - self.at);
        let written = usize::from(data.first().copied().unwrap_or_default()) * self.unit;
        if written == 0 || written > requested {
            return invalid_response("it wrote none of a FRU piece, or more than that");
        }
        self.at += written;
        if self.at < self.end {
            return self.chunk_request();
        }
        let at = self.to_write.as_ref().map_or(0, |(offset, _)| *offset);
        self.begin_reading(at)
    }

    fn handle_read(&mut self, data: &[u8]) -> IpmiOperationNext {
        let requested = self.chunk_size.next_len(self.end - self.at);
        let Some((&count, bytes)) = data.split_first() else {
            return invalid_response("a FRU piece without a count");
        };
        let count = usize::from(count) * self.unit;
        if count == 0 || count > requested || count != bytes.len() {
            return invalid_response("a FRU piece of another length than it says");
        }
        self.bytes.extend(bytes);
        self.at += count;
        if self.at < self.end {
            return self.chunk_request();
        }
        let bytes = core::mem::take(&mut self.bytes);
        match &self.to_write {
            None => IpmiOperationNext::Done(Ok(IpmiReply::Fru(bytes))),
            Some((_, wanted)) if *wanted == bytes => IpmiOperationNext::Done(Ok(IpmiReply::Done)),
            Some(_) => invalid_response("a FRU that is not what was written to it"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{is_invalid_response, run_script};
    use super::super::{IpmiOperation, IpmiOperationResult, IpmiOperationScript};
    use super::*;

    /// A device that accepts chunks of this many bytes, in words or bytes.
    struct FakeFruDevice {
        bytes: Vec<u8>,
        piece: usize,
        unit: usize,
    }

    impl FakeFruDevice {
        fn answer(&mut self, request: &IpmiRequest) -> Vec<u8> {
            assert_eq!((request.netfn, request.data[0]), (0x0a, 3));
            let place = |data: &[u8]| usize::from(u16::from_le_bytes([data[1], data[2]]));
            let at = (request.data.len() > 2).then(|| place(&request.data) * self.unit);
            match (request.command, at) {
                (storage::FRU_INFO, _) => {
                    let [low, high] = (self.bytes.len() as u16).to_le_bytes();
                    vec![0, low, high, self.unit as u8 - 1]
                }
                (storage::READ_FRU, Some(at)) => {
                    let count = usize::from(request.data[3]) * self.unit;
                    if count > self.piece {
                        return vec![0xca];
                    }
                    let mut body = vec![0, request.data[3]];
                    body.extend(&self.bytes[at..at + count]);
                    body
                }
                (storage::WRITE_FRU, Some(at)) => {
                    let bytes = &request.data[3..];
                    if bytes.len() > self.piece {
                        return vec![0xc7];
                    }
                    self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
                    vec![0, (bytes.len() / self.unit) as u8]
                }
                other => panic!("unexpected request {other:?}"),
            }
        }
    }

    fn write(offset: u16, bytes: &[u8]) -> IpmiOperation {
        IpmiOperation::WriteFru {
            device: 3,
            offset,
            bytes: bytes.to_vec(),
        }
    }

    #[test]
    fn reads_and_writes_in_pieces_of_any_length_and_in_words() {
        for (piece, unit) in [(255, 1), (32, 1), (5, 1), (1, 1), (255, 2), (3, 2)] {
            let bytes: Vec<u8> = (0..=255).chain(0..44).collect();
            let mut device = FakeFruDevice {
                bytes: bytes.clone(),
                piece,
                unit,
            };
            let (_, outcome) =
                run_script(IpmiOperation::ReadFru { device: 3 }, |it| device.answer(it));
            assert_eq!(outcome, Ok(IpmiReply::Fru(bytes)), "{piece} {unit}");
            let operation = write(40, &[9; 50]);
            let (_, outcome) = run_script(operation, |it| device.answer(it));
            assert_eq!(outcome, Ok(IpmiReply::Done), "{piece} {unit}");
            assert_eq!(device.bytes[39..=40], [39, 9]);
            assert_eq!(device.bytes[89..=90], [9, 90]);
        }
    }

    #[test]
    fn an_empty_device_reads_as_nothing() {
        for size in [[0, 0, 0], [1, 0, 1]] {
            let (requests, outcome) = run_script(IpmiOperation::ReadFru { device: 3 }, |_| {
                [&[0][..], &size].concat()
            });
            assert_eq!(
                (requests.len(), outcome),
                (1, Ok(IpmiReply::Fru(Vec::new())))
            );
        }
    }

    fn reads_as(info: &[u8], piece: &[u8]) -> IpmiOperationResult {
        let answer = |request: &IpmiRequest| match request.command {
            storage::FRU_INFO => info.to_vec(),
            _ => piece.to_vec(),
        };
        run_script(IpmiOperation::ReadFru { device: 3 }, answer).1
    }

    #[test]
    fn answers_that_cannot_be_are_refused() {
        let info = [0, 64, 0, 0];
        for (info, piece) in [
            (&[0][..], &[0, 1, 7][..]),
            (&[0, 64, 0], &[0, 1, 7]),
            (&info, &[0]),
            (&info, &[0, 0]),
            (&info, &[0, 2, 7]),
            (&info, &[0, 1, 7, 7]),
            (&info, &[0; 100]),
        ] {
            let outcome = reads_as(info, piece);
            assert!(
                is_invalid_response(&outcome),
                "{info:?} {piece:?}: {outcome:?}"
            );
        }
        let refused = |code| Err(PowerError::Refused { code });
        assert_eq!(reads_as(&[0xcb], &[0]), refused(0xcb));
        assert_eq!(reads_as(&info, &[0xca]), refused(0xca), "not even one byte");
        assert_eq!(reads_as(&info, &[0x81]), refused(0x81), "busy with itself");
    }

    #[test]
    fn a_wrong_write_is_reported() {
        for count in [0, 17, 255] {
            let (_, outcome) = run_script(write(0, &[1; 16]), |it| match it.command {
                storage::FRU_INFO => vec![0, 64, 0, 0],
                _ => vec![0, count],
            });
            assert!(is_invalid_response(&outcome));
        }
        let (_, outcome) = run_script(write(0, &[1; 2]), |it| match it.command {
            storage::FRU_INFO => vec![0, 64, 0, 0],
            storage::READ_FRU => vec![0, 2, 1, 2],
            _ => vec![0, 2],
        });
        assert!(is_invalid_response(&outcome), "reads back otherwise");
        let (_, outcome) = run_script(write(0, &[1; 2]), |it| match it.command {
            storage::FRU_INFO => vec![0, 64, 0, 0],
            _ => vec![0x80],
        });
        assert_eq!(outcome, Err(PowerError::Refused { code: 0x80 }));
    }

    #[test]
    fn what_does_not_fit_is_not_begun() {
        for (offset, length) in [(0, 0), (0, FRU_BYTES_MAX + 1), (1, FRU_BYTES_MAX)] {
            assert!(IpmiOperationScript::start(write(offset, &vec![0; length])).is_err());
        }
        for (offset, info) in [(60, [0, 64, 0, 0]), (1, [0, 64, 0, 1])] {
            let (requests, outcome) = run_script(write(offset, &[1; 5]), |_| info.to_vec());
            assert_eq!(requests.len(), 1);
            assert!(matches!(outcome, Err(PowerError::Unsupported { .. })));
        }
    }
}
