//! Tests only: both sides over a wire that loses, doubles and reorders.

extern crate std;

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use crate::{
    Packet, Receiver, Sender, TransferLimits, TransferMode, TransferOptions, TransferState, parse,
};

/// SplitMix64: replayable and small.
struct WireRandom(u64);

impl WireRandom {
    fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.number() % bound
    }

    fn bytes(&mut self, len: u64) -> Vec<u8> {
        (0..len).map(|_| self.number() as u8).collect()
    }
}

#[derive(Clone, Copy, Default)]
struct WireFaults {
    lost_permille: u64,
    doubled_permille: u64,
    /// So many frames come up to this much later than they should, so that
    /// others overtake them.
    late_permille: u64,
    late_us: u64,
}

/// How long every frame is under way.
const DELAY_US: u64 = 100;

/// Frames under way, by time of arrival and order of sending.
struct LossyWire {
    fault: WireFaults,
    random: WireRandom,
    under_way: BTreeMap<(u64, u64), (bool, Vec<u8>)>,
    frames: u64,
    /// Frames that were lost, doubled or late.
    faulted_frames: u64,
}

impl LossyWire {
    fn send(&mut self, now: u64, to_sender: bool, frame: &[u8]) {
        let mut happens = |permille| self.random.below(1000) < permille;
        let doubled = happens(self.fault.doubled_permille);
        self.faulted_frames += u64::from(doubled);
        for _ in 0..=u64::from(doubled) {
            self.frames += 1;
            let mut happens = |permille| self.random.below(1000) < permille;
            let (lost, late) = (
                happens(self.fault.lost_permille),
                happens(self.fault.late_permille),
            );
            self.faulted_frames += u64::from(lost || late);
            if !lost {
                let late_us = u64::from(late) * self.random.below(self.fault.late_us + 1);
                self.under_way.insert(
                    (now + DELAY_US + late_us, self.frames),
                    (to_sender, frame.to_vec()),
                );
            }
        }
    }
}

struct TransferResult {
    sender: Option<TransferState>,
    receiver: TransferState,
    got: Vec<u8>,
    frames: u64,
    /// Blocks that the sender sent, before the wire doubled or lost any.
    blocks: u64,
    faulted_frames: u64,
    took_us: u64,
}

/// Runs one transfer to its end in virtual time.
fn transfer(
    seed: u64,
    file: &[u8],
    mode: TransferMode,
    options: TransferOptions,
    fault: WireFaults,
) -> TransferResult {
    let limits = TransferLimits {
        window_blocks_max: 64,
        tries_max: 30,
        ..TransferLimits::default()
    };
    let mut wire = LossyWire {
        fault,
        random: WireRandom(seed),
        under_way: BTreeMap::new(),
        frames: 0,
        faulted_frames: 0,
    };
    let (mut now, mut got, mut out, mut blocks) = (0, vec![], vec![], 0);
    let mut receiver = Receiver::new("file", mode, options, limits, now);
    let mut sender: Option<Sender> = None;
    loop {
        while receiver.transmit(&mut out).is_some() {
            wire.send(now, true, &out);
        }
        if let Some(sender) = &mut sender {
            while let Some(piece) = sender.burst(&mut &*file, 20, 65_507, &mut out) {
                for frame in out.chunks(piece) {
                    blocks += u64::from(frame.starts_with(b"\0\x03"));
                    wire.send(now, false, frame);
                }
            }
        }
        let arrival = wire.under_way.first_key_value().map(|(&(at, _), _)| at);
        let deadlines = [
            arrival,
            receiver.deadline(),
            sender.as_ref().and_then(Sender::deadline),
        ];
        let Some(next) = deadlines.into_iter().flatten().min() else {
            break;
        };
        now = now.max(next);
        if arrival == Some(next) {
            let (_, (to_sender, frame)) = wire.under_way.pop_first().unwrap();
            if !to_sender {
                receiver.datagram(now, &frame, &mut got);
            } else if let Some(sender) = &mut sender {
                sender.datagram(now, &frame);
            } else if let Ok(Packet::Read(request)) = parse(&frame) {
                sender = Some(Sender::new(&request, file.len() as u64, limits, now));
            }
        }
        receiver.tick(now);
        if let Some(sender) = &mut sender {
            sender.tick(now);
        }
        assert!(wire.frames < 1_000_000, "seed {seed}: a storm");
    }
    TransferResult {
        sender: sender.map(|sender| sender.state()),
        receiver: receiver.state(),
        got,
        frames: wire.frames,
        blocks,
        faulted_frames: wire.faulted_frames,
        took_us: now,
    }
}

fn options(random: &mut WireRandom) -> TransferOptions {
    let block = [None, Some(8), Some(512), Some(1468), Some(65_464)][random.below(5) as usize];
    let window = [None, Some(1), Some(2), Some(7), Some(64)][random.below(5) as usize];
    TransferOptions {
        block_bytes: block,
        window_blocks: window,
        timeout_s: (random.below(4) == 0).then_some(1),
        file_bytes: (random.below(2) == 0).then_some(0),
    }
}

#[test]
fn every_file_arrives_whole_over_a_bad_wire() {
    for seed in 0..600 {
        let mut random = WireRandom(seed);
        let requested = options(&mut random);
        let blocks = random.below(80);
        let block = u64::from(requested.block_bytes.unwrap_or(512)).min(1468);
        let tail = [0, 1, block - 1][random.below(3) as usize];
        let size = blocks * block + tail;
        let file = random.bytes(size);
        let mode = [TransferMode::Octet, TransferMode::Netascii][usize::from(random.below(4) == 0)];
        let fault = WireFaults {
            lost_permille: random.below(250),
            doubled_permille: random.below(250),
            late_permille: [0, 50, 1000][random.below(3) as usize],
            late_us: random.below(60_000),
        };
        let ended = transfer(seed, &file, mode, requested, fault);
        assert_eq!(
            ended.receiver,
            TransferState::Done {
                bytes: file.len() as u64
            },
            "seed {seed} {requested:?}"
        );
        assert!(ended.got == file, "seed {seed}: bytes differ");
    }
}

#[test]
fn a_good_wire_carries_each_block_once() {
    let file = WireRandom(1).bytes(100_000);
    for window in [1, 2, 16, 64] {
        let options = TransferOptions {
            block_bytes: Some(1000),
            window_blocks: Some(window),
            ..TransferOptions::default()
        };
        let fault = WireFaults::default();
        let ended = transfer(1, &file, TransferMode::Octet, options, fault);
        assert_eq!(ended.sender, Some(TransferState::Done { bytes: 100_000 }));
        let acks = 101_u64.div_ceil(u64::from(window));
        assert_eq!(ended.frames, 101 + acks + 3, "window {window}");
        assert!(
            ended.took_us <= 2 * DELAY_US * (acks + 3),
            "window {window}"
        );
    }
}

#[test]
fn a_wire_that_doubles_everything_does_not_raise_a_storm() {
    let file = WireRandom(2).bytes(100_000);
    for window in [1, 4, 32] {
        let options = TransferOptions {
            block_bytes: Some(1000),
            window_blocks: Some(window),
            ..TransferOptions::default()
        };
        let fault = WireFaults {
            doubled_permille: 1000,
            ..WireFaults::default()
        };
        let ended = transfer(2, &file, TransferMode::Octet, options, fault);
        assert!(ended.got == file);
        // 101 blocks and at most as many confirmations, each doubled by the
        // wire; resent windows add at most the same again.
        assert!(
            ended.frames < 101 * 8,
            "window {window}: {} frames",
            ended.frames
        );
    }
}

#[test]
fn a_lost_block_costs_no_timeout_inside_a_window() {
    let file = WireRandom(3).bytes(1_000_000);
    let options = TransferOptions {
        block_bytes: Some(1000),
        window_blocks: Some(32),
        ..TransferOptions::default()
    };
    let fault = WireFaults {
        lost_permille: 10,
        ..WireFaults::default()
    };
    let ended = transfer(3, &file, TransferMode::Octet, options, fault);
    assert!(ended.got == file);
    assert!(ended.took_us < 300_000, "{} us", ended.took_us);
}

/// The box's promise: 1 MiB, one block at a time, 1 % lost each way, under 1.8 s.
#[test]
fn a_lost_block_costs_little_one_at_a_time() {
    for seed in 0..20 {
        let file = WireRandom(seed).bytes(1 << 20);
        for block_bytes in [None, Some(1468)] {
            let options = TransferOptions {
                block_bytes,
                ..TransferOptions::default()
            };
            let fault = WireFaults {
                lost_permille: 10,
                ..WireFaults::default()
            };
            let ended = transfer(seed, &file, TransferMode::Octet, options, fault);
            assert!(ended.got == file);
            // The request or the offer may be lost as well.
            assert!(ended.took_us < 1_700_000, "{} us", ended.took_us);
        }
    }
}

/// One lost, doubled or late frame costs at most one window that is sent again,
/// and never a doubling that goes on (the Sorcerer's Apprentice).
#[test]
fn trouble_on_the_wire_does_not_multiply_what_is_sent() {
    let file = WireRandom(6).bytes(400_000);
    let faults = [
        (10, 0, 0),
        (50, 0, 0),
        (0, 200, 0),
        (0, 0, 50),
        (10, 10, 20),
        (50, 50, 50),
    ];
    for (lost_permille, doubled_permille, late_permille) in faults {
        for window in [1, 2, 4, 16, 64] {
            let options = TransferOptions {
                block_bytes: Some(1000),
                window_blocks: Some(window),
                ..TransferOptions::default()
            };
            let fault = WireFaults {
                lost_permille,
                doubled_permille,
                late_permille,
                late_us: 3000,
            };
            for seed in 0..20 {
                let ended = transfer(seed, &file, TransferMode::Octet, options, fault);
                assert!(ended.got == file);
                let bound = 401 + ended.faulted_frames * u64::from(window);
                assert!(
                    ended.blocks <= bound,
                    "seed {seed}, {} blocks of at most {bound}: {lost_permille} \
                     {doubled_permille} {late_permille} window {window}",
                    ended.blocks,
                );
            }
        }
    }
}

/// Nothing is lost, but each answer takes 40 ms where it took 200 us: the sender
/// must not send everything twice from then on.
#[test]
fn a_peer_that_is_slow_is_waited_for() {
    let file = WireRandom(8).bytes(100_000);
    let fault = WireFaults {
        late_permille: 1000,
        late_us: 40_000,
        ..WireFaults::default()
    };
    let ended = transfer(
        8,
        &file,
        TransferMode::Octet,
        TransferOptions::default(),
        fault,
    );
    assert!(ended.got == file);
    assert!(ended.blocks < 196 + 40, "{} blocks", ended.blocks);
}

#[test]
fn the_same_seed_gives_the_same_transfer() {
    let file = WireRandom(4).bytes(20_000);
    let run = || {
        let fault = WireFaults {
            lost_permille: 200,
            doubled_permille: 200,
            late_permille: 500,
            late_us: 20_000,
        };
        let requested = options(&mut WireRandom(9));
        let ended = transfer(4, &file, TransferMode::Octet, requested, fault);
        (ended.frames, ended.took_us, ended.sender, ended.receiver)
    };
    assert_eq!(run(), run());
}

#[test]
fn hostile_packets_neither_panic_nor_break_the_bounds() {
    let mut random = WireRandom(5);
    let seeds: [&[u8]; 6] = [
        b"\0\x01file\0octet\0blksize\x001468\0windowsize\x0064\0tsize\x000\0",
        b"\0\x03\0\x01data",
        b"\0\x04\0\x01",
        b"\0\x05\0\x01text\0",
        b"\0\x06blksize\x00512\0",
        b"\0\x02",
    ];
    for round in 0..20_000 {
        let mut packet = seeds[random.below(6) as usize].to_vec();
        for _ in 0..random.below(4) {
            let at = random.below(packet.len() as u64) as usize;
            packet[at] = random.number() as u8;
        }
        packet.truncate(random.below(packet.len() as u64 + 1) as usize);
        let Ok(Packet::Read(request)) =
            parse(b"\0\x01f\0octet\0blksize\x0016\0windowsize\x008\0tsize\x000\0")
        else {
            panic!()
        };
        let file = [3; 333];
        let mut sender = Sender::new(&request, 333, TransferLimits::default(), 0);
        let mut receiver = Receiver::new(
            "f",
            TransferMode::Netascii,
            request.options,
            TransferLimits::default(),
            0,
        );
        let (mut out, mut sink) = (vec![], vec![]);
        for step in 0..4 {
            sender.datagram(step, &packet);
            receiver.datagram(step, &packet, &mut sink);
            let mut sent = 0;
            while sender.transmit(&mut file.as_slice(), &mut out).is_some() {
                sent += 1;
            }
            assert!(sent <= 8, "round {round}: more than a window");
            while receiver.transmit(&mut out).is_some() {}
            sender.datagram(step, b"\0\x04\0\0");
        }
    }
}
