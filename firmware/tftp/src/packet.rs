//! The packets of RFC 1350 and the option list of RFC 2347.
//!
//! Parsing borrows from the datagram and never fails because of an option: an
//! unknown name, a value out of range or a value that is no number counts as
//! not requested, so it is never accepted.

use alloc::vec::Vec;
use core::fmt;

/// Longest file name we accept. RFC 1350 sets no limit; this one is ours.
pub const FILE_NAME_BYTES_MAX: usize = 255;

/// Longest request we accept (RFC 2347 section 2).
pub const REQUEST_BYTES_MAX: usize = 512;

/// Options read from one packet; later ones are ignored. Ours.
pub const OPTIONS_MAX: usize = 16;

/// Block size without the option (RFC 1350).
pub const BLOCK_BYTES_DEFAULT: u16 = 512;

/// Smallest block size that may be requested (RFC 2348).
pub const BLOCK_BYTES_MIN: u16 = 8;

/// Largest block size that may be requested (RFC 2348).
pub const BLOCK_BYTES_MAX: u16 = 65_464;

/// Longest text of an ERROR that we keep. Ours.
const MESSAGE_BYTES_MAX: usize = 128;

/// How the bytes of the file travel.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TransferMode {
    /// As they are.
    Octet,
    /// With line ends as in Telnet.
    Netascii,
}

/// Options of a request or of its acknowledgement, valid values only.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct TransferOptions {
    /// `blksize` (RFC 2348), 8 to 65464.
    pub block_bytes: Option<u16>,
    /// `windowsize` (RFC 7440), at least 1.
    pub window_blocks: Option<u16>,
    /// `timeout` (RFC 2349), in seconds, at least 1.
    pub timeout_s: Option<u8>,
    /// `tsize` (RFC 2349): zero in a read request, the size in the answer.
    pub file_bytes: Option<u64>,
}

/// A request to read a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ReadRequest<'a> {
    /// The name, exactly as requested: it may hold `..` and backslashes.
    pub file: &'a str,
    /// How to send it.
    pub mode: TransferMode,
    /// What else the client wishes.
    pub options: TransferOptions,
}

/// One datagram.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Packet<'a> {
    /// RRQ.
    Read(ReadRequest<'a>),
    /// WRQ. We refuse it, so its contents are not looked at.
    Write,
    /// DATA.
    Data {
        /// Block number, which wraps.
        block: u16,
        /// Contents.
        data: &'a [u8],
    },
    /// ACK.
    Ack {
        /// Block number, which wraps.
        block: u16,
    },
    /// ERROR.
    Error {
        /// Error code of RFC 1350 or 2347.
        code: u16,
        /// Text for people, cut to a bound, not necessarily text at all.
        message: &'a [u8],
    },
    /// OACK.
    OptionAck(TransferOptions),
}

/// Error codes of RFC 1350 and, for 8, RFC 2347.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ErrorCode {
    /// See the text.
    Other = 0,
    /// No such file.
    NotFound = 1,
    /// The file may not be read, or writing is refused.
    AccessViolation = 2,
    /// The receiver has no space.
    DiskFull = 3,
    /// The packet makes no sense here.
    IllegalOperation = 4,
    /// No transfer is known for this port.
    UnknownTransfer = 5,
    /// The options were refused.
    OptionsRefused = 8,
}

/// Why a datagram is not TFTP.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PacketError {
    /// It ends too early.
    Truncated,
    /// It is longer than a request may be.
    RequestTooLong,
    /// Unknown operation.
    UnknownOperation(u16),
    /// The file name is empty.
    FileNameEmpty,
    /// The file name is longer than [`FILE_NAME_BYTES_MAX`].
    FileNameTooLong,
    /// The file name is not UTF-8.
    FileNameNotText,
    /// The mode is neither `octet` nor `netascii`.
    UnknownMode,
}

impl fmt::Display for PacketError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => out.write_str("the packet is cut short"),
            Self::RequestTooLong => {
                write!(out, "the request is longer than {REQUEST_BYTES_MAX} bytes")
            }
            Self::UnknownOperation(code) => write!(out, "operation {code} is unknown"),
            Self::FileNameEmpty => out.write_str("the file name is empty"),
            Self::FileNameTooLong => {
                write!(
                    out,
                    "the file name is longer than {FILE_NAME_BYTES_MAX} bytes"
                )
            }
            Self::FileNameNotText => out.write_str("the file name is not UTF-8"),
            Self::UnknownMode => out.write_str("the mode is neither octet nor netascii"),
        }
    }
}

impl core::error::Error for PacketError {}

const READ: u16 = 1;
const WRITE: u16 = 2;
const DATA: u16 = 3;
const ACK: u16 = 4;
const ERROR: u16 = 5;
const OPTION_ACK: u16 = 6;

/// Reads one datagram.
pub fn parse(packet: &[u8]) -> Result<Packet<'_>, PacketError> {
    let (operation, body) = word(packet)?;
    match operation {
        READ if packet.len() > REQUEST_BYTES_MAX => Err(PacketError::RequestTooLong),
        READ => read_request(body).map(Packet::Read),
        WRITE => Ok(Packet::Write),
        DATA => word(body).map(|(block, data)| Packet::Data { block, data }),
        ACK => word(body).map(|(block, _)| Packet::Ack { block }),
        ERROR => word(body).map(|(code, text)| {
            let end = text.iter().position(|&byte| byte == 0);
            let end = end.unwrap_or(text.len()).min(MESSAGE_BYTES_MAX);
            Packet::Error {
                code,
                message: &text[..end],
            }
        }),
        OPTION_ACK => Ok(Packet::OptionAck(options(body))),
        other => Err(PacketError::UnknownOperation(other)),
    }
}

/// Whether a datagram requests to read or to write, even if malformed: its sender waits
/// for an answer, so one that makes no sense is refused. Anything else that
/// comes unasked is never answered, so that two servers cannot keep each other
/// busy with errors.
pub fn is_request(packet: &[u8]) -> bool {
    matches!(word(packet), Ok((READ | WRITE, _)))
}

fn word(bytes: &[u8]) -> Result<(u16, &[u8]), PacketError> {
    let (head, rest) = bytes.split_first_chunk().ok_or(PacketError::Truncated)?;
    Ok((u16::from_be_bytes(*head), rest))
}

/// Splits zero-terminated text off the front.
fn text(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|&byte| byte == 0)?;
    Some((&bytes[..end], &bytes[end + 1..]))
}

fn read_request(body: &[u8]) -> Result<ReadRequest<'_>, PacketError> {
    let (file, rest) = text(body).ok_or(PacketError::Truncated)?;
    if file.is_empty() {
        return Err(PacketError::FileNameEmpty);
    }
    if file.len() > FILE_NAME_BYTES_MAX {
        return Err(PacketError::FileNameTooLong);
    }
    let file = core::str::from_utf8(file).map_err(|_| PacketError::FileNameNotText)?;
    let (mode, rest) = text(rest).ok_or(PacketError::Truncated)?;
    let mode = if mode.eq_ignore_ascii_case(b"octet") {
        TransferMode::Octet
    } else if mode.eq_ignore_ascii_case(b"netascii") {
        TransferMode::Netascii
    } else {
        return Err(PacketError::UnknownMode);
    };
    Ok(ReadRequest {
        file,
        mode,
        options: options(rest),
    })
}

/// Reads name and value pairs. The first of two equal names counts.
fn options(mut bytes: &[u8]) -> TransferOptions {
    let mut options = TransferOptions::default();
    for _ in 0..OPTIONS_MAX {
        let Some((name, rest)) = text(bytes) else {
            break;
        };
        let Some((value, rest)) = text(rest) else {
            break;
        };
        bytes = rest;
        let Some(value) = number(value) else { continue };
        let narrow = u16::try_from(value).ok();
        if name.eq_ignore_ascii_case(b"blksize") {
            let valid = narrow.filter(|bytes| (BLOCK_BYTES_MIN..=BLOCK_BYTES_MAX).contains(bytes));
            options.block_bytes = options.block_bytes.or(valid);
        } else if name.eq_ignore_ascii_case(b"windowsize") {
            options.window_blocks = options
                .window_blocks
                .or(narrow.filter(|&blocks| blocks > 0));
        } else if name.eq_ignore_ascii_case(b"timeout") {
            let valid = u8::try_from(value).ok().filter(|&seconds| seconds > 0);
            options.timeout_s = options.timeout_s.or(valid);
        } else if name.eq_ignore_ascii_case(b"tsize") {
            options.file_bytes = options.file_bytes.or(Some(value));
        }
    }
    options
}

/// A decimal number without sign.
fn number(text: &[u8]) -> Option<u64> {
    if !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    core::str::from_utf8(text).ok()?.parse().ok()
}

/// Replaces `out` by an ERROR packet, also for those who only refuse.
pub fn write_error(code: ErrorCode, message: &str, out: &mut Vec<u8>) {
    begin(ERROR, out);
    out.extend((code as u16).to_be_bytes());
    let text = message.as_bytes();
    let text = &text[..text.len().min(MESSAGE_BYTES_MAX)];
    out.extend(text.iter().filter(|&&byte| byte != 0));
    out.push(0);
}

pub(crate) fn write_ack(block: u16, out: &mut Vec<u8>) {
    begin(ACK, out);
    out.extend(block.to_be_bytes());
}

/// What stands before the contents of a DATA packet.
pub(crate) fn data_head(block: u16) -> [u8; 4] {
    let ([zero, operation], [high, low]) = (DATA.to_be_bytes(), block.to_be_bytes());
    [zero, operation, high, low]
}

pub(crate) fn write_option_ack(options: &TransferOptions, out: &mut Vec<u8>) {
    begin(OPTION_ACK, out);
    write_options(options, out);
}

pub(crate) fn write_read_request(
    file: &str,
    mode: TransferMode,
    options: &TransferOptions,
    out: &mut Vec<u8>,
) {
    begin(READ, out);
    out.extend(file.bytes().filter(|&byte| byte != 0));
    out.push(0);
    let mode: &[u8] = match mode {
        TransferMode::Octet => b"octet\0",
        TransferMode::Netascii => b"netascii\0",
    };
    out.extend(mode);
    write_options(options, out);
}

fn begin(operation: u16, out: &mut Vec<u8>) {
    out.clear();
    out.extend(operation.to_be_bytes());
}

fn write_options(options: &TransferOptions, out: &mut Vec<u8>) {
    let mut pair = |name: &str, value: Option<u64>| {
        if let Some(value) = value {
            out.extend(alloc::format!("{name}\0{value}\0").bytes());
        }
    };
    pair("tsize", options.file_bytes);
    pair("blksize", options.block_bytes.map(u64::from));
    pair("timeout", options.timeout_s.map(u64::from));
    pair("windowsize", options.window_blocks.map(u64::from));
}

#[cfg(test)]
mod tests;
