//! The client's side of one read request.
//!
//! Mirrors the sender: requests, confirms, repeats. Blocks are taken in order
//! only; a block out of order makes it confirm the last good one once, so that
//! the sender goes back. After the end it still confirms the final block when
//! that comes again, because the confirmation may have been lost.

use alloc::string::String;
use alloc::vec::Vec;

use crate::netascii::NetasciiDecoder;
use crate::packet::{self, ErrorCode, Packet, TransferMode, TransferOptions};
use crate::timing::{RetransmitTimer, TransferLimits};
use crate::{TransferFailure, TransferState};

/// Where the bytes go, in order.
pub trait FileSink {
    /// Takes the bytes at `offset`, which is where the last call ended.
    fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), WriteFailed>;
}

/// The bytes cannot be stored; the server gets an ERROR and the transfer ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct WriteFailed;

impl FileSink for Vec<u8> {
    fn write(&mut self, _offset: u64, data: &[u8]) -> Result<(), WriteFailed> {
        self.extend_from_slice(data);
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum ReceiverPhase {
    Requesting,
    Receiving,
    Done,
    Failed(TransferFailure),
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum PendingPacket {
    Nothing,
    Request,
    Ack,
    Error(ErrorCode, &'static str),
}

/// One file on its way to us.
#[derive(Clone, Debug)]
pub struct Receiver {
    file: String,
    mode: TransferMode,
    requested: TransferOptions,
    limits: TransferLimits,
    block_bytes: u16,
    window: u64,
    announced: Option<u64>,
    phase: ReceiverPhase,
    pending: PendingPacket,
    /// The last block taken, and the last one confirmed.
    received: u64,
    confirmed: u64,
    /// The present gap has been reported to the sender.
    gap_acked: bool,
    bytes: u64,
    decoder: NetasciiDecoder,
    timing: RetransmitTimer,
}

impl Receiver {
    /// Requests `file` with `options` (`file_bytes` zero requests the size).
    pub fn new(
        file: &str,
        mode: TransferMode,
        options: TransferOptions,
        limits: TransferLimits,
        now_us: u64,
    ) -> Self {
        Self {
            file: file.into(),
            mode,
            requested: options,
            limits,
            block_bytes: packet::BLOCK_BYTES_DEFAULT,
            window: 1,
            announced: None,
            phase: ReceiverPhase::Requesting,
            pending: PendingPacket::Request,
            received: 0,
            confirmed: 0,
            gap_acked: false,
            bytes: 0,
            decoder: NetasciiDecoder::default(),
            timing: RetransmitTimer::new(limits, options.timeout_s, now_us),
        }
    }

    /// Handles a datagram from the server's port. Nonsense is ignored.
    pub fn datagram(&mut self, now_us: u64, packet: &[u8], sink: &mut dyn FileSink) {
        if matches!(self.phase, ReceiverPhase::Failed(_)) {
            return;
        }
        match packet::parse(packet) {
            Ok(Packet::OptionAck(options)) => self.agreed(now_us, &options),
            Ok(Packet::Data { block, data }) => self.data(now_us, block, data, sink),
            Ok(Packet::Error { code, .. }) if self.phase != ReceiverPhase::Done => {
                self.phase = ReceiverPhase::Failed(TransferFailure::Peer { code });
                self.pending = PendingPacket::Nothing;
            }
            _ => {}
        }
    }

    /// Sends again or gives up, if it is time.
    pub fn tick(&mut self, now_us: u64) {
        if self.deadline().is_none_or(|at| now_us < at) {
            return;
        }
        if !self.timing.retry(now_us) {
            self.phase = ReceiverPhase::Failed(TransferFailure::TimedOut);
            self.pending = PendingPacket::Nothing;
        } else if self.phase == ReceiverPhase::Requesting {
            self.pending = PendingPacket::Request;
        } else {
            self.confirm();
            self.gap_acked = false;
        }
    }

    /// When to call [`Receiver::tick`] next.
    pub fn deadline(&self) -> Option<u64> {
        let running = matches!(
            self.phase,
            ReceiverPhase::Requesting | ReceiverPhase::Receiving
        );
        running.then(|| self.timing.deadline())
    }

    /// Replaces `out` by the next datagram to send and returns its length.
    pub fn transmit(&mut self, out: &mut Vec<u8>) -> Option<usize> {
        match core::mem::replace(&mut self.pending, PendingPacket::Nothing) {
            PendingPacket::Nothing => return None,
            PendingPacket::Request => {
                packet::write_read_request(&self.file, self.mode, &self.requested, out);
            }
            PendingPacket::Ack => packet::write_ack(self.received as u16, out),
            PendingPacket::Error(code, message) => packet::write_error(code, message, out),
        }
        Some(out.len())
    }

    /// How far it is.
    pub fn state(&self) -> TransferState {
        let bytes = self.bytes;
        match self.phase {
            ReceiverPhase::Requesting | ReceiverPhase::Receiving => TransferState::Running,
            ReceiverPhase::Done => TransferState::Done { bytes },
            ReceiverPhase::Failed(reason) => TransferState::Failed { bytes, reason },
        }
    }

    /// The size the server has announced, if it was requested.
    pub fn announced_bytes(&self) -> Option<u64> {
        self.announced
    }

    fn confirm(&mut self) {
        self.pending = PendingPacket::Ack;
        self.confirmed = self.received;
    }

    fn fail(&mut self, reason: TransferFailure, code: ErrorCode, message: &'static str) {
        self.phase = ReceiverPhase::Failed(reason);
        self.pending = PendingPacket::Error(code, message);
    }

    fn agreed(&mut self, now_us: u64, options: &TransferOptions) {
        match self.phase {
            ReceiverPhase::Requesting => {}
            // Our first confirmation was lost.
            ReceiverPhase::Receiving if self.received == 0 => return self.confirm(),
            _ => return,
        }
        let within = |got: Option<u64>, requested: Option<u64>| match (got, requested) {
            (Some(got), Some(requested)) => got <= requested,
            (got, _) => got.is_none(),
        };
        let wide = |narrow: Option<u16>| narrow.map(u64::from);
        if !within(wide(options.block_bytes), wide(self.requested.block_bytes))
            || !within(
                wide(options.window_blocks),
                wide(self.requested.window_blocks),
            )
            || (options.timeout_s.is_some() && options.timeout_s != self.requested.timeout_s)
            || (options.file_bytes.is_some() && self.requested.file_bytes.is_none())
        {
            let refused = "that is more than was requested";
            return self.fail(
                TransferFailure::Protocol,
                ErrorCode::OptionsRefused,
                refused,
            );
        }
        if options.file_bytes > Some(self.limits.file_bytes_max) {
            return self.fail(TransferFailure::TooLarge, ErrorCode::DiskFull, "too large");
        }
        self.block_bytes = options.block_bytes.unwrap_or(self.block_bytes);
        self.window = u64::from(options.window_blocks.unwrap_or(1));
        self.announced = options.file_bytes;
        self.timing.set_requested(options.timeout_s);
        self.timing.restart(now_us);
        self.phase = ReceiverPhase::Receiving;
        self.confirm();
    }

    fn data(&mut self, now_us: u64, block: u16, data: &[u8], sink: &mut dyn FileSink) {
        let ahead = block.wrapping_sub(self.received as u16);
        if self.phase == ReceiverPhase::Requesting {
            if block != 1 {
                return;
            }
            // The server agreed to no option.
            self.timing.set_requested(None);
            self.phase = ReceiverPhase::Receiving;
        }
        if self.phase == ReceiverPhase::Done {
            if ahead == 0 {
                self.pending = PendingPacket::Ack;
            }
            return;
        }
        match ahead {
            1 => self.take(now_us, data, sink),
            // It came again although it is confirmed: the confirmation was lost.
            0 if self.received > 0 && self.confirmed == self.received => self.confirm(),
            2..0x8000 if !self.gap_acked => {
                self.gap_acked = true;
                self.confirm();
            }
            _ => {}
        }
    }

    fn take(&mut self, now_us: u64, data: &[u8], sink: &mut dyn FileSink) {
        if data.len() > usize::from(self.block_bytes) {
            let long = "the block is longer than agreed";
            return self.fail(TransferFailure::Protocol, ErrorCode::IllegalOperation, long);
        }
        if self.bytes + data.len() as u64 > self.limits.file_bytes_max {
            return self.fail(TransferFailure::TooLarge, ErrorCode::DiskFull, "too large");
        }
        let last = data.len() < usize::from(self.block_bytes);
        if self.keep(data, last, sink).is_err() {
            return self.fail(
                TransferFailure::Local,
                ErrorCode::DiskFull,
                "cannot be written",
            );
        }
        if last && self.announced.is_some_and(|size| size != self.bytes) {
            let other = "the file is not of the announced size";
            return self.fail(TransferFailure::Protocol, ErrorCode::Other, other);
        }
        self.received += 1;
        self.gap_acked = false;
        self.timing.restart(now_us);
        if last {
            self.phase = ReceiverPhase::Done;
        }
        if last || self.received - self.confirmed >= self.window {
            self.confirm();
        }
    }

    fn keep(
        &mut self,
        data: &[u8],
        last: bool,
        sink: &mut dyn FileSink,
    ) -> Result<(), WriteFailed> {
        let mut decoded = Vec::new();
        let data = match self.mode {
            TransferMode::Octet => data,
            TransferMode::Netascii => {
                self.decoder.decode(data, &mut decoded);
                if last {
                    self.decoder.finish(&mut decoded);
                }
                &decoded
            }
        };
        sink.write(self.bytes, data)?;
        self.bytes += data.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
