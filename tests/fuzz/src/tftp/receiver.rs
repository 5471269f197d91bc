//! The client's side, with a server that sends anything.

use embedded_tftp::{
    FileSink, Packet, Receiver, TransferLimits, TransferMode, TransferOptions, TransferState,
    WriteFailed, parse,
};

use crate::FuzzTarget;
use crate::input::FuzzInput;

pub(crate) const TARGET: FuzzTarget = FuzzTarget {
    name: "tftp_receiver",
    run,
    seeds,
    regressions: &[],
};

const STEPS_MAX: usize = 64;

/// The largest file it accepts.
const FILE_BYTES_MAX: u64 = 3000;

/// Receives the bytes: in order, without a gap.
struct FuzzSink {
    bytes: u64,
}

impl FileSink for FuzzSink {
    fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), WriteFailed> {
        assert_eq!(offset, self.bytes, "a gap, or the same twice");
        self.bytes += data.len() as u64;
        assert!(self.bytes <= FILE_BYTES_MAX, "more than was allowed");
        if data.first() == Some(&0xee) {
            return Err(WriteFailed);
        }
        Ok(())
    }
}

fn run(bytes: &[u8]) {
    let mut input = FuzzInput::new(bytes);
    let first = input.byte();
    let mode = if first & 1 == 0 {
        TransferMode::Octet
    } else {
        TransferMode::Netascii
    };
    let options = TransferOptions {
        block_bytes: (first & 2 != 0).then_some(16),
        window_blocks: (first & 4 != 0).then_some(4),
        timeout_s: (first & 8 != 0).then_some(3),
        file_bytes: (first & 16 != 0).then_some(0),
    };
    let limits = TransferLimits {
        file_bytes_max: FILE_BYTES_MAX,
        ..TransferLimits::default()
    };
    let mut receiver = Receiver::new("file", mode, options, limits, 0);
    let mut sink = FuzzSink { bytes: 0 };
    let (mut now, mut confirmed) = (0, 0);
    for _ in 0..STEPS_MAX {
        confirmed = drain(&mut receiver).unwrap_or(confirmed);
        if input.is_empty() {
            break;
        }
        step(&mut receiver, &mut sink, &mut now, confirmed, &mut input);
    }
    end(receiver, &sink, now);
}

/// Sends at most one packet; returns the block it has acknowledged.
fn drain(receiver: &mut Receiver) -> Option<u16> {
    let mut out = Vec::new();
    let mut confirmed = None;
    let mut count = 0;
    while receiver.transmit(&mut out).is_some() {
        count += 1;
        assert!(count <= 1, "it sends two packets at once");
        match parse(&out) {
            Ok(Packet::Ack { block }) => confirmed = Some(block),
            Ok(Packet::Read(request)) => assert_eq!(request.file, "file"),
            Ok(Packet::Error { .. }) => {}
            other => panic!("sent {other:?}"),
        }
    }
    confirmed
}

fn step(
    receiver: &mut Receiver,
    sink: &mut FuzzSink,
    now: &mut u64,
    confirmed: u16,
    input: &mut FuzzInput<'_>,
) {
    match input.byte() % 8 {
        // The next block, or one near it.
        0..=3 => {
            let ahead = i16::from(input.byte().cast_signed());
            let block = confirmed.wrapping_add(1).wrapping_add_signed(ahead);
            let filled = usize::from(input.choose(&[16_u16, 512, 0, 15, 511, 17]));
            let head = [&[0, 3][..], &block.to_be_bytes()].concat();
            let body = vec![input.byte(); filled];
            receiver.datagram(*now, &[head, body].concat(), sink);
        }
        4 | 5 => receiver.datagram(*now, input.counted_long(), sink),
        6 => {
            *now = receiver.deadline().unwrap_or(*now).max(*now);
            receiver.tick(*now);
        }
        _ => {
            *now += u64::from(input.word());
            receiver.tick(*now);
        }
    }
}

/// A server that is silent from now on causes a timeout.
fn end(mut receiver: Receiver, sink: &FuzzSink, mut now: u64) {
    for _ in 0..1000 {
        let Some(deadline) = receiver.deadline() else {
            break;
        };
        now = deadline.max(now);
        receiver.tick(now);
        drain(&mut receiver);
    }
    match receiver.state() {
        TransferState::Running => panic!("it never ends"),
        TransferState::Done { bytes } => {
            assert_eq!(bytes, sink.bytes);
            let announced = receiver.announced_bytes();
            assert!(announced.is_none_or(|size| size == bytes));
        }
        TransferState::Failed { bytes, .. } => assert!(bytes <= sink.bytes),
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let counted = |packet: &[u8]| [&[4, 0, packet.len() as u8][..], packet].concat();
    let agreed = counted(b"\0\x06blksize\x0016\0windowsize\x004\0tsize\x0035\0");
    let next = |filled: u8| [0, 0, filled, 65];
    vec![
        [&[0][..], &next(1), &next(1), &next(4)].concat(),
        [
            &[22][..],
            &agreed,
            &next(0),
            &[0, 1, 0, 65],
            &next(0),
            &[0, 254, 0, 66],
        ]
        .concat(),
        [&[1][..], &next(1), &[0, 5, 1, 13], &[6; 9]].concat(),
        [&[30][..], &agreed, &counted(b"\0\x05\0\x01no\0")].concat(),
        [&[0][..], &[0, 0, 1, 0xee], &[7, 255, 255]].concat(),
    ]
}
