//! The server's side: a request, then anything from the client.
//!
//! The source panics on a read past the file's end, and every sent block must contain the
//! file's bytes at its position: at most a window of them at once.

use embedded_tftp::{
    BLOCK_BYTES_DEFAULT, FileSource, Packet, ReadError, ReadRequest, Sender, TransferLimits,
    TransferMode, TransferOptions, TransferState, parse,
};

use crate::FuzzTarget;
use crate::input::FuzzInput;

pub(crate) const TARGET: FuzzTarget = FuzzTarget {
    name: "tftp_sender",
    run,
    seeds,
    regressions: &[],
};

const STEPS_MAX: usize = 64;

/// Fewer bytes than all block numbers of the smallest blocks, so that the numbers do not wrap.
const FILE_BYTES_MAX: u64 = 60_000;

/// Most bytes that the kernel accepts at once.
const BURST_BYTES_MAX: usize = 65_000;

/// A file whose bytes depend on their position.
struct FuzzPatternSource {
    bytes: u64,
    /// Why a read fails now.
    fails: Option<ReadError>,
}

fn pattern_byte(offset: u64) -> u8 {
    (offset ^ offset >> 8).wrapping_mul(0x9d) as u8
}

impl FileSource for FuzzPatternSource {
    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), ReadError> {
        assert!(offset + out.len() as u64 <= self.bytes, "read past the end");
        if let Some(error) = self.fails {
            return Err(error);
        }
        for (place, byte) in out.iter_mut().enumerate() {
            *byte = pattern_byte(offset + place as u64);
        }
        Ok(())
    }
}

struct FuzzedTftpSender {
    sender: Sender,
    source: FuzzPatternSource,
    request: FuzzTransferRequest,
    limits: TransferLimits,
    now: u64,
    agreed: TransferOptions,
    sent: u16,
    /// Datagrams in one buffer.
    at_once: usize,
}

#[derive(Clone, Copy)]
struct FuzzTransferRequest {
    mode: TransferMode,
    options: TransferOptions,
}

fn run(bytes: &[u8]) {
    let mut input = FuzzInput::new(bytes);
    let request = input.counted();
    let Ok(Packet::Read(request)) = parse(request) else {
        return;
    };
    let file_bytes = u64::from(input.word()) % FILE_BYTES_MAX;
    let limits = TransferLimits {
        window_blocks_max: input.choose(&[16, 1, 64, 1024, 0]),
        block_bytes_max: input.choose(&[1468, 512, 8, 0, u16::MAX]),
        ..TransferLimits::default()
    };
    let mut sender = FuzzedTftpSender::new(&request, file_bytes, limits);
    sender.drain();
    for _ in 0..STEPS_MAX {
        if input.is_empty() {
            break;
        }
        sender.step(&mut input);
        sender.drain();
    }
    sender.end();
}

impl FuzzedTftpSender {
    fn new(request: &ReadRequest<'_>, bytes: u64, limits: TransferLimits) -> Self {
        Self {
            sender: Sender::new(request, bytes, limits, 0),
            source: FuzzPatternSource { bytes, fails: None },
            at_once: 1,
            request: FuzzTransferRequest {
                mode: request.mode,
                options: request.options,
            },
            limits,
            now: 0,
            agreed: TransferOptions::default(),
            sent: 0,
        }
    }

    fn step(&mut self, input: &mut FuzzInput<'_>) {
        match input.byte() % 8 {
            // The last block is acknowledged, or one near it.
            0..=3 => {
                let block = self
                    .sent
                    .wrapping_add_signed(i16::from(input.byte().cast_signed()));
                self.acknowledge(block);
            }
            4 => self.acknowledge(input.word()),
            5 => self.sender.datagram(self.now, input.counted_long()),
            6 => {
                self.now = self.sender.deadline().unwrap_or(self.now).max(self.now);
                self.sender.tick(self.now);
            }
            _ => {
                self.source.fails = match input.byte() {
                    0..160 => None,
                    160..250 => Some(ReadError::NotYet),
                    _ => Some(ReadError::Failed),
                };
                self.at_once = usize::from(input.choose(&[1_u8, 4, 64, 0]));
                self.now += u64::from(input.word()) * 1000;
                self.sender.tick(self.now);
            }
        }
    }

    fn acknowledge(&mut self, block: u16) {
        let [high, low] = block.to_be_bytes();
        self.sender.datagram(self.now, &[0, 4, high, low]);
    }

    /// Sends everything that is ready.
    fn drain(&mut self) {
        let window = self.agreed.window_blocks.unwrap_or(1);
        let mut out = Vec::new();
        let mut count = 0;
        while let Some(each) =
            self.sender
                .burst(&mut self.source, self.at_once, BURST_BYTES_MAX, &mut out)
        {
            assert!(each > 0 && (out.len() <= BURST_BYTES_MAX || out.len() == each));
            assert!(out.len().div_ceil(each) <= self.at_once.max(1));
            for datagram in out.chunks(each) {
                count += 1;
                assert!(count <= window.max(1), "more than a window at once");
                self.datagram(datagram);
            }
        }
    }

    fn datagram(&mut self, bytes: &[u8]) {
        match parse(bytes) {
            Ok(Packet::Data { block, data }) => self.block(block, data),
            Ok(Packet::OptionAck(agreed)) => self.agree(agreed),
            Ok(Packet::Error { .. }) => {
                assert_eq!(self.source.fails, Some(ReadError::Failed));
            }
            other => panic!("sent {other:?}"),
        }
    }

    fn agree(&mut self, agreed: TransferOptions) {
        super::check_options(&agreed);
        let requested = self.request.options;
        // Never more than requested, never an option that was not requested.
        let within = |got: Option<u16>, requested: Option<u16>, most: u16| {
            got.is_none_or(|got| requested.is_some_and(|requested| got <= requested && got <= most))
        };
        let window_max = self.limits.window_blocks_max.max(1);
        let block_max = self.limits.block_bytes_max.max(8);
        assert!(within(
            agreed.window_blocks,
            requested.window_blocks,
            window_max
        ));
        assert!(within(agreed.block_bytes, requested.block_bytes, block_max));
        assert!(agreed.timeout_s.is_none() || agreed.timeout_s == requested.timeout_s);
        assert!(
            agreed
                .file_bytes
                .is_none_or(|size| size == self.source.bytes)
        );
        self.agreed = agreed;
    }

    fn block(&mut self, block: u16, data: &[u8]) {
        let size = self.agreed.block_bytes.unwrap_or(BLOCK_BYTES_DEFAULT);
        assert!(data.len() <= usize::from(size), "a block of {}", data.len());
        assert_ne!(block, 0, "blocks count from one");
        self.sent = block;
        if self.request.mode == TransferMode::Netascii {
            return;
        }
        let from = u64::from(block - 1) * u64::from(size);
        let left = self
            .source
            .bytes
            .checked_sub(from)
            .expect("no block behind the end");
        assert_eq!(data.len() as u64, left.min(u64::from(size)));
        for (place, byte) in data.iter().enumerate() {
            assert_eq!(*byte, pattern_byte(from + place as u64), "block {block}");
        }
    }

    /// A client that is silent from now on causes a timeout.
    fn end(&mut self) {
        self.source.fails = None;
        for _ in 0..1000 {
            let Some(deadline) = self.sender.deadline() else {
                break;
            };
            self.now = deadline.max(self.now);
            self.sender.tick(self.now);
            self.drain();
        }
        match self.sender.state() {
            TransferState::Running => panic!("it never ends"),
            TransferState::Done { bytes } => assert_eq!(bytes, self.source.bytes),
            TransferState::Failed { bytes, .. } => assert!(bytes <= self.source.bytes),
        }
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let begin = |request: &[u8], size: u16| {
        let [high, low] = size.to_be_bytes();
        [&[request.len() as u8][..], request, &[high, low, 0, 0]].concat()
    };
    let window = b"\0\x01f\0octet\0blksize\x0016\0windowsize\x004\0tsize\x000\0";
    let plain = b"\0\x01f\0octet\0";
    let text = b"\0\x01f\0netascii\0blksize\x0064\0";
    let acks = [0, 0].repeat(20);
    let error = [5, 0, 5, 0, 5, 0, 8, 0];
    vec![
        [&begin(plain, 2000)[..], &acks].concat(),
        [&begin(window, 333)[..], &[4, 0, 0], &acks, &[0, 254], &acks].concat(),
        [&begin(window, 0)[..], &error].concat(),
        [&begin(text, 500)[..], &[4, 0, 0], &acks, &[6, 6, 6]].concat(),
        [&begin(plain, 512)[..], &[6, 6, 0, 0, 7, 251, 1, 0, 0, 0, 0]].concat(),
    ]
}
