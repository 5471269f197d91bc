//! The server's side of one read request.
//!
//! Decides what to send next and when to send it again. It refuses to know
//! where the bytes come from: [`FileSource`] supplies them again each time a
//! block leaves, so a window costs no memory. Blocks are counted without
//! wrapping; only the wire sees the low 16 bits. All times are in microseconds.

use alloc::vec::Vec;

use crate::netascii::{self, NetasciiPosition};
use crate::packet::{self, ErrorCode, Packet, ReadRequest, TransferMode, TransferOptions};
use crate::timing::{RetransmitTimer, TransferLimits};
use crate::{TransferFailure, TransferState};

/// Largest window whatever the limits say. Ours: far below half the block
/// numbers, so that an old acknowledgement can never be taken for a new one.
pub const WINDOW_BLOCKS_MAX: u16 = 1024;

/// Bytes of a DATA packet before its contents.
const HEAD_BYTES: usize = 4;

/// Where the bytes of the file are.
pub trait FileSource {
    /// Fills all of `out` from `offset` on. Never read past the size given to
    /// [`Sender::new`].
    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), ReadError>;
}

/// Why there are no bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ReadError {
    /// The file cannot be read; the client gets an ERROR and the transfer ends.
    Failed,
    /// They are being fetched. Nothing is sent now; the owner of the source requests them
    /// the sender again once they are there.
    NotYet,
}

impl FileSource for &[u8] {
    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), ReadError> {
        let start = usize::try_from(offset).map_err(|_| ReadError::Failed)?;
        let end = start.checked_add(out.len()).ok_or(ReadError::Failed)?;
        out.copy_from_slice(self.get(start..end).ok_or(ReadError::Failed)?);
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum SenderPhase {
    /// The OACK waits for ACK 0.
    Agreeing,
    Sending,
    Done,
    Failed(TransferFailure),
}

/// One file on its way to one client.
#[derive(Clone, Debug)]
pub struct Sender {
    mode: TransferMode,
    file_bytes: u64,
    block_bytes: u16,
    window: u64,
    agreed: TransferOptions,
    phase: SenderPhase,
    option_ack_due: bool,
    /// The highest block the client has confirmed.
    acked: u64,
    /// The block to send next, when the window is open for it.
    next: u64,
    /// The highest block that was ever sent, and the same before the present
    /// window: what is confirmed beyond that one was sent once.
    sent: u64,
    sent_before: u64,
    /// The final block; in netascii known only once it was encoded.
    last: Option<u64>,
    /// Something after `acked` was sent more than once.
    repeated: bool,
    /// The same of the window before: its acknowledgement may come twice.
    repeated_before: bool,
    /// Where block `acked + 1` begins, and where the one after it does.
    position: NetasciiPosition,
    position_after: NetasciiPosition,
    timing: RetransmitTimer,
}

impl Sender {
    /// Begins to answer `request` for a file of `file_bytes` bytes.
    pub fn new(
        request: &ReadRequest<'_>,
        file_bytes: u64,
        limits: TransferLimits,
        now_us: u64,
    ) -> Self {
        let agreed = agree(request, file_bytes, &limits);
        let block_bytes = agreed.block_bytes.unwrap_or(packet::BLOCK_BYTES_DEFAULT);
        let agreeing = agreed != TransferOptions::default();
        Self {
            mode: request.mode,
            file_bytes,
            block_bytes,
            window: u64::from(agreed.window_blocks.unwrap_or(1)),
            agreed,
            phase: if agreeing {
                SenderPhase::Agreeing
            } else {
                SenderPhase::Sending
            },
            option_ack_due: agreeing,
            acked: 0,
            next: 1,
            sent: 0,
            sent_before: 0,
            last: match request.mode {
                // The final block is the first that is not full, so a file of
                // whole blocks ends with an empty one (RFC 1350 section 6).
                TransferMode::Octet => Some(file_bytes / u64::from(block_bytes) + 1),
                TransferMode::Netascii => None,
            },
            repeated: false,
            repeated_before: false,
            position: NetasciiPosition::default(),
            position_after: NetasciiPosition::default(),
            timing: RetransmitTimer::new(limits, agreed.timeout_s, now_us),
        }
    }

    /// Handles a datagram from the client's port. Nonsense is ignored.
    pub fn datagram(&mut self, now_us: u64, packet: &[u8]) {
        if !self.is_running() {
            return;
        }
        match packet::parse(packet) {
            Ok(Packet::Ack { block }) => self.acknowledged(now_us, block),
            Ok(Packet::Error { code, .. }) => {
                self.phase = SenderPhase::Failed(TransferFailure::Peer { code });
            }
            // The client did not receive our first answer and repeats its request. So soon after
            // the answer it is the wire that doubled the request: saying it twice would make
            // atftp give up, and if it was lost, it is about to be sent again anyway.
            Ok(Packet::Read(_)) if self.acked == 0 && !self.timing.is_soon(now_us) => {
                match self.phase {
                    SenderPhase::Agreeing => {
                        self.option_ack_due = true;
                        self.repeated = true;
                    }
                    _ if self.agreed == TransferOptions::default() => self.go_back(),
                    _ => {}
                }
            }
            _ => {}
        }
    }

    /// Sends again or gives up, if it is time.
    pub fn tick(&mut self, now_us: u64) {
        if !self.is_running() || now_us < self.timing.deadline() {
            return;
        }
        if !self.timing.retry(now_us) {
            self.phase = SenderPhase::Failed(if self.is_all_sent() {
                TransferFailure::LastAckLost
            } else {
                TransferFailure::TimedOut
            });
            return;
        }
        self.go_back();
        self.option_ack_due = self.phase == SenderPhase::Agreeing;
    }

    /// When to call [`Sender::tick`] next.
    pub fn deadline(&self) -> Option<u64> {
        self.is_running().then(|| self.timing.deadline())
    }

    /// Replaces `out` by the next datagram to send and returns its length, or
    /// `None` when nothing is to be sent now. Call until `None`.
    pub fn transmit(&mut self, source: &mut dyn FileSource, out: &mut Vec<u8>) -> Option<usize> {
        self.burst(source, 1, usize::MAX, out)
    }

    /// Replaces `out` by the next datagrams to send, back to back, and returns
    /// the length of each; the last may be shorter. At least one, and beyond it
    /// at most `segments_max` and `bytes_max` in all. Call until `None`.
    ///
    /// This is the shape that segmentation offload takes: one buffer, one size.
    pub fn burst(
        &mut self,
        source: &mut dyn FileSource,
        segments_max: usize,
        bytes_max: usize,
        out: &mut Vec<u8>,
    ) -> Option<usize> {
        match self.phase {
            SenderPhase::Agreeing if core::mem::take(&mut self.option_ack_due) => {
                packet::write_option_ack(&self.agreed, out);
                return Some(out.len());
            }
            SenderPhase::Sending if self.is_open() => {}
            _ => return None,
        }
        let sent = match self.mode {
            TransferMode::Octet => {
                let fit = bytes_max / (HEAD_BYTES + usize::from(self.block_bytes));
                self.blocks(source, segments_max.min(fit).max(1), out)
            }
            TransferMode::Netascii => self.encoded_block(source, out),
        };
        match sent {
            Ok(()) => {}
            Err(ReadError::NotYet) => return None,
            Err(ReadError::Failed) => {
                self.phase = SenderPhase::Failed(TransferFailure::Local);
                packet::write_error(ErrorCode::Other, "the file cannot be read", out);
                return Some(out.len());
            }
        }
        Some(out.len().min(HEAD_BYTES + usize::from(self.block_bytes)))
    }

    /// How far it is.
    pub fn state(&self) -> TransferState {
        let bytes = self.bytes();
        match self.phase {
            SenderPhase::Agreeing | SenderPhase::Sending => TransferState::Running,
            SenderPhase::Done => TransferState::Done { bytes },
            SenderPhase::Failed(reason) => TransferState::Failed { bytes, reason },
        }
    }

    /// Bytes of the file that the client has confirmed.
    pub fn bytes(&self) -> u64 {
        match self.mode {
            TransferMode::Octet => {
                (self.acked.saturating_mul(u64::from(self.block_bytes))).min(self.file_bytes)
            }
            TransferMode::Netascii => self.position.offset,
        }
    }

    /// Whether every block has left at least once.
    pub fn is_all_sent(&self) -> bool {
        self.last.is_some_and(|last| self.sent >= last)
    }

    fn is_running(&self) -> bool {
        matches!(self.phase, SenderPhase::Agreeing | SenderPhase::Sending)
    }

    fn is_open(&self) -> bool {
        self.next <= self.acked + self.window && self.last.is_none_or(|last| self.next <= last)
    }

    fn acknowledged(&mut self, now_us: u64, block: u16) {
        if self.phase == SenderPhase::Agreeing {
            if block == 0 {
                self.phase = SenderPhase::Sending;
                // An offer made twice is confirmed twice, which says nothing
                // about the first window.
                self.timing.progress(now_us, !self.repeated);
                self.repeated_before = self.repeated;
                self.repeated = false;
            }
            return;
        }
        // `block` wraps; the distance from what is confirmed does not.
        let ahead = u64::from(block.wrapping_sub(self.acked as u16));
        let confirmed = self.acked + ahead;
        if confirmed > self.sent {
            // curl 7.88 confirms the options again when a late OACK comes after its first
            // block, and then takes no block but the first. It must not get that one: it has
            // written it already, would write it twice and call that a success. So it fails.
            return;
        }
        if ahead == 0 {
            self.acknowledged_again();
            return;
        }
        let measured = confirmed > self.sent_before || !self.repeated;
        self.timing.progress(now_us, measured);
        self.sent_before = self.sent;
        self.acked = confirmed;
        self.position = self.position_after;
        self.repeated_before = self.repeated;
        // Confirming less than was sent says that the rest is lost: go back at
        // once (RFC 7440 section 4).
        self.repeated = confirmed < self.sent;
        self.next = confirmed + 1;
        if Some(confirmed) == self.last {
            self.phase = SenderPhase::Done;
        }
    }

    /// The same acknowledgement once more. With one block in flight it is never
    /// answered: that would double every later block (RFC 1123 section
    /// 4.2.3.1). In a window it may say that the window's first block is lost,
    /// so it is answered once, and only if nothing was sent twice lately, which
    /// alone would explain it.
    fn acknowledged_again(&mut self) {
        if self.window > 1 && self.sent > self.acked && !self.repeated && !self.repeated_before {
            self.go_back();
        }
    }

    /// What is outstanding is sent once more, so nothing of it can be measured.
    fn go_back(&mut self) {
        self.next = self.acked + 1;
        self.sent_before = self.sent;
        self.repeated = true;
    }

    /// Writes up to `count` blocks with one read: the bytes go to the end of
    /// the space that all blocks need, and each then moves up behind its head.
    fn blocks(
        &mut self,
        source: &mut dyn FileSource,
        count: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), ReadError> {
        let mut end = self.acked + self.window;
        if let Some(last) = self.last {
            end = end.min(last);
        }
        let count = count.min((end + 1 - self.next) as usize);
        let block = usize::from(self.block_bytes);
        let offset = (self.next - 1) * u64::from(self.block_bytes);
        let rest = self.file_bytes - offset.min(self.file_bytes);
        let len = rest.min((count * block) as u64) as usize;
        let heads = count * HEAD_BYTES;
        // What was in there before is overwritten, so it is not cleared first.
        out.resize(heads + len, 0);
        source.read(offset, &mut out[heads..])?;
        for index in 0..count {
            let at = index * (HEAD_BYTES + block);
            let from = heads + index * block;
            let to = (from + block).min(heads + len);
            // The last one is where it belongs.
            if from != at + HEAD_BYTES {
                out.copy_within(from..to, at + HEAD_BYTES);
            }
            let head = packet::data_head((self.next + index as u64) as u16);
            out[at..at + HEAD_BYTES].copy_from_slice(&head);
        }
        self.next += count as u64;
        self.sent = self.sent.max(self.next - 1);
        Ok(())
    }

    fn encoded_block(
        &mut self,
        source: &mut dyn FileSource,
        out: &mut Vec<u8>,
    ) -> Result<(), ReadError> {
        let mut place = self.position;
        let mut raw = alloc::vec![0; self.space(place.offset)];
        source.read(place.offset, &mut raw)?;
        out.clear();
        out.extend(packet::data_head(self.next as u16));
        netascii::encode(&mut place, &raw, usize::from(self.block_bytes), out);
        self.position_after = place;
        if out.len() < HEAD_BYTES + usize::from(self.block_bytes) {
            self.last = Some(self.next);
        }
        self.sent = self.sent.max(self.next);
        self.next += 1;
        Ok(())
    }

    /// How much of the file one block from `offset` on can hold.
    fn space(&self, offset: u64) -> usize {
        (self.file_bytes - offset.min(self.file_bytes)).min(u64::from(self.block_bytes)) as usize
    }
}

/// The accepted options: never more than was requested, never what was not requested.
fn agree(request: &ReadRequest<'_>, file_bytes: u64, limits: &TransferLimits) -> TransferOptions {
    let requested = &request.options;
    let octet = request.mode == TransferMode::Octet;
    let block_max = limits.block_bytes_max.max(packet::BLOCK_BYTES_MIN);
    let window_max = limits.window_blocks_max.clamp(1, WINDOW_BLOCKS_MAX);
    TransferOptions {
        block_bytes: requested.block_bytes.map(|bytes| bytes.min(block_max)),
        // Where a netascii block begins depends on all bytes before it, and its
        // encoded size is not known: one block at a time and no size.
        window_blocks: requested
            .window_blocks
            .filter(|_| octet)
            .map(|blocks| blocks.min(window_max)),
        file_bytes: requested.file_bytes.filter(|_| octet).map(|_| file_bytes),
        timeout_s: requested.timeout_s,
    }
}

#[cfg(test)]
mod tests;
