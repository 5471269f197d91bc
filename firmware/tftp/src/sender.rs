//! The server's side of one read request.
//!
//! Decides what to send next and when to send it again. It refuses to know
//! where the bytes come from: [`Source`] is asked for them anew each time a
//! block leaves, so a window costs no memory. Blocks are counted without
//! wrapping; only the wire sees the low 16 bits.

use alloc::vec::Vec;

use crate::netascii::{self, Place};
use crate::packet::{self, ErrorCode, Mode, Options, Packet, ReadRequest};
use crate::timing::{Limits, Timing};
use crate::{Failure, State};

/// Largest window whatever the limits say. Ours: far below half the block
/// numbers, so that an old acknowledgement can never be taken for a new one.
pub const WINDOW_BLOCKS_MAX: u16 = 1024;

/// Where the bytes of the file are.
pub trait Source {
    /// Fills all of `out` from `offset` on. Never asked past the size given to
    /// [`Sender::new`].
    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), ReadFailed>;
}

/// The file cannot be read; the client is told and the transfer ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ReadFailed;

impl Source for &[u8] {
    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), ReadFailed> {
        let start = usize::try_from(offset).map_err(|_| ReadFailed)?;
        let end = start.checked_add(out.len()).ok_or(ReadFailed)?;
        out.copy_from_slice(self.get(start..end).ok_or(ReadFailed)?);
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Phase {
    /// The OACK waits for ACK 0.
    Agreeing,
    Sending,
    Done,
    Failed(Failure),
}

/// One file on its way to one client.
#[derive(Clone, Debug)]
pub struct Sender {
    mode: Mode,
    file_bytes: u64,
    block_bytes: u16,
    window: u64,
    agreed: Options,
    phase: Phase,
    option_ack_due: bool,
    /// The highest block the client has confirmed.
    acked: u64,
    /// The block to send next, when the window is open for it.
    next: u64,
    /// The highest block that was ever sent.
    sent: u64,
    /// The final block; in netascii known only once it was encoded.
    last: Option<u64>,
    /// Something after `acked` was sent more than once.
    repeated: bool,
    /// The same of the window before: its acknowledgement may come twice.
    repeated_before: bool,
    /// Where block `acked + 1` begins, and where the one after it does.
    place: Place,
    place_after: Place,
    timing: Timing,
}

impl Sender {
    /// Begins to answer `request` for a file of `file_bytes` bytes.
    pub fn new(request: &ReadRequest<'_>, file_bytes: u64, limits: Limits, now_ms: u64) -> Self {
        let agreed = agree(request, file_bytes, &limits);
        let block_bytes = agreed.block_bytes.unwrap_or(packet::BLOCK_BYTES_DEFAULT);
        let agreeing = agreed != Options::default();
        Self {
            mode: request.mode,
            file_bytes,
            block_bytes,
            window: u64::from(agreed.window_blocks.unwrap_or(1)),
            agreed,
            phase: if agreeing {
                Phase::Agreeing
            } else {
                Phase::Sending
            },
            option_ack_due: agreeing,
            acked: 0,
            next: 1,
            sent: 0,
            last: match request.mode {
                // The final block is the first that is not full, so a file of
                // whole blocks ends with an empty one (RFC 1350 section 6).
                Mode::Octet => Some(file_bytes / u64::from(block_bytes) + 1),
                Mode::Netascii => None,
            },
            repeated: false,
            repeated_before: false,
            place: Place::default(),
            place_after: Place::default(),
            timing: Timing::new(limits, agreed.timeout_s, now_ms),
        }
    }

    /// Hears a datagram from the client's port. Nonsense is ignored.
    pub fn datagram(&mut self, now_ms: u64, packet: &[u8]) {
        if !self.is_running() {
            return;
        }
        match packet::parse(packet) {
            Ok(Packet::Ack { block }) => self.acknowledged(now_ms, block),
            Ok(Packet::Error { code, .. }) => self.phase = Phase::Failed(Failure::Peer { code }),
            // The client did not hear our first answer and asks again.
            Ok(Packet::Read(_)) if self.acked == 0 => match self.phase {
                Phase::Agreeing => self.option_ack_due = true,
                _ if self.agreed == Options::default() => {
                    self.next = 1;
                    self.repeated = true;
                }
                _ => {}
            },
            _ => {}
        }
    }

    /// Sends again or gives up, if it is time.
    pub fn tick(&mut self, now_ms: u64) {
        if !self.is_running() || now_ms < self.timing.deadline() {
            return;
        }
        if !self.timing.again(now_ms) {
            let all_sent = self.last.is_some_and(|last| self.sent >= last);
            self.phase = Phase::Failed(if all_sent {
                Failure::LastAckLost
            } else {
                Failure::Silent
            });
            return;
        }
        self.repeated = true;
        self.next = self.acked + 1;
        self.option_ack_due = self.phase == Phase::Agreeing;
    }

    /// When to call [`Sender::tick`] next.
    pub fn deadline(&self) -> Option<u64> {
        self.is_running().then(|| self.timing.deadline())
    }

    /// Replaces `out` by the next datagram to send and returns its length, or
    /// `None` when nothing is to be sent now. Call until `None`.
    pub fn transmit(&mut self, source: &mut dyn Source, out: &mut Vec<u8>) -> Option<usize> {
        match self.phase {
            Phase::Agreeing if core::mem::take(&mut self.option_ack_due) => {
                packet::write_option_ack(&self.agreed, out);
            }
            Phase::Sending if self.is_open() => {
                if self.block(source, out).is_err() {
                    self.phase = Phase::Failed(Failure::Local);
                    packet::write_error(ErrorCode::Other, "the file cannot be read", out);
                }
            }
            _ => return None,
        }
        Some(out.len())
    }

    /// How far it is.
    pub fn state(&self) -> State {
        let bytes = self.bytes();
        match self.phase {
            Phase::Agreeing | Phase::Sending => State::Running,
            Phase::Done => State::Done { bytes },
            Phase::Failed(reason) => State::Failed { bytes, reason },
        }
    }

    /// Bytes of the file that the client has confirmed.
    pub fn bytes(&self) -> u64 {
        match self.mode {
            Mode::Octet => {
                (self.acked.saturating_mul(u64::from(self.block_bytes))).min(self.file_bytes)
            }
            Mode::Netascii => self.place.offset,
        }
    }

    fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Agreeing | Phase::Sending)
    }

    fn is_open(&self) -> bool {
        self.next <= self.acked + self.window && self.last.is_none_or(|last| self.next <= last)
    }

    fn acknowledged(&mut self, now_ms: u64, block: u16) {
        if self.phase == Phase::Agreeing {
            if block == 0 {
                self.phase = Phase::Sending;
                self.timing.progress(now_ms, self.timing.is_first_try());
            }
            return;
        }
        // `block` wraps; the distance from what is confirmed does not.
        let ahead = u64::from(block.wrapping_sub(self.acked as u16));
        let confirmed = self.acked + ahead;
        if confirmed > self.sent {
            return;
        }
        if ahead == 0 {
            self.acknowledged_again();
            return;
        }
        self.timing.progress(now_ms, !self.repeated);
        self.acked = confirmed;
        self.place = self.place_after;
        self.repeated_before = self.repeated;
        // Confirming less than was sent says that the rest is lost: go back at
        // once (RFC 7440 section 4).
        self.repeated = confirmed < self.sent;
        self.next = confirmed + 1;
        if Some(confirmed) == self.last {
            self.phase = Phase::Done;
        }
    }

    /// The same acknowledgement once more. With one block in flight it is never
    /// answered: that would double every later block (RFC 1123 section
    /// 4.2.3.1). In a window it may say that the window's first block is lost,
    /// so it is answered once, and only if nothing was sent twice lately, which
    /// alone would explain it.
    fn acknowledged_again(&mut self) {
        if self.window > 1 && self.sent > self.acked && !self.repeated && !self.repeated_before {
            self.next = self.acked + 1;
            self.repeated = true;
        }
    }

    fn block(&mut self, source: &mut dyn Source, out: &mut Vec<u8>) -> Result<(), ReadFailed> {
        packet::begin_data(self.next as u16, out);
        match self.mode {
            Mode::Octet => {
                let offset = (self.next - 1) * u64::from(self.block_bytes);
                read_into(source, offset, self.room(offset), out)?;
            }
            Mode::Netascii => {
                let mut raw = Vec::new();
                let mut place = self.place;
                read_into(source, place.offset, self.room(place.offset), &mut raw)?;
                netascii::encode(&mut place, &raw, usize::from(self.block_bytes), out);
                self.place_after = place;
                if out.len() < 4 + usize::from(self.block_bytes) {
                    self.last = Some(self.next);
                }
            }
        }
        self.sent = self.sent.max(self.next);
        self.next += 1;
        Ok(())
    }

    /// How much of the file one block from `offset` on can hold.
    fn room(&self, offset: u64) -> usize {
        (self.file_bytes - offset.min(self.file_bytes)).min(u64::from(self.block_bytes)) as usize
    }
}

fn read_into(
    source: &mut dyn Source,
    offset: u64,
    len: usize,
    out: &mut Vec<u8>,
) -> Result<(), ReadFailed> {
    let start = out.len();
    out.resize(start + len, 0);
    source.read(offset, &mut out[start..])
}

/// What we agree to: never more than was asked, never what was not asked.
fn agree(request: &ReadRequest<'_>, file_bytes: u64, limits: &Limits) -> Options {
    let asked = &request.options;
    let octet = request.mode == Mode::Octet;
    let block_max = limits.block_bytes_max.max(packet::BLOCK_BYTES_MIN);
    let window_max = limits.window_blocks_max.clamp(1, WINDOW_BLOCKS_MAX);
    Options {
        block_bytes: asked.block_bytes.map(|bytes| bytes.min(block_max)),
        // Where a netascii block begins depends on all bytes before it, and its
        // encoded size is not known: one block at a time and no size.
        window_blocks: asked
            .window_blocks
            .filter(|_| octet)
            .map(|blocks| blocks.min(window_max)),
        file_bytes: asked.file_bytes.filter(|_| octet).map(|_| file_bytes),
        // A timeout can only be taken or left (RFC 2349). Longer than our own
        // longest wait is left, so that a silent client is not kept for hours.
        timeout_s: asked
            .timeout_s
            .filter(|&seconds| u64::from(seconds) * 1000 <= limits.retry_ms_max),
    }
}

#[cfg(test)]
mod tests;
