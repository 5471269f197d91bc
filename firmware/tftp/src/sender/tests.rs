use super::*;
use alloc::vec;

const FILE: &[u8] = &[7; 5000];

fn request(options: TransferOptions) -> ReadRequest<'static> {
    ReadRequest {
        file: "f",
        mode: TransferMode::Octet,
        options,
    }
}

fn windowed(window: u16) -> TransferOptions {
    TransferOptions {
        block_bytes: Some(100),
        window_blocks: Some(window),
        ..TransferOptions::default()
    }
}

fn sender(options: TransferOptions) -> Sender {
    Sender::new(
        &request(options),
        FILE.len() as u64,
        TransferLimits::default(),
        0,
    )
}

/// A sender past its OACK.
fn agreed(options: TransferOptions) -> Sender {
    let mut sender = sender(options);
    assert!(matches!(drain(&mut sender)[..], [SentPacket::OptionAck(_)]));
    ack(&mut sender, 1, 0);
    sender
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum SentPacket {
    OptionAck(TransferOptions),
    Block(u16, usize),
    Error(u16),
}

fn drain(sender: &mut Sender) -> Vec<SentPacket> {
    let mut all = vec![];
    let mut out = vec![];
    while sender.transmit(&mut &*FILE, &mut out).is_some() {
        all.push(match packet::parse(&out) {
            Ok(Packet::OptionAck(options)) => SentPacket::OptionAck(options),
            Ok(Packet::Data { block, data }) => SentPacket::Block(block, data.len()),
            Ok(Packet::Error { code, .. }) => SentPacket::Error(code),
            other => panic!("{other:?}"),
        });
    }
    all
}

fn ack(sender: &mut Sender, now: u64, block: u16) {
    let mut out = vec![];
    packet::write_ack(block, &mut out);
    sender.datagram(now, &out);
}

fn blocks(range: core::ops::RangeInclusive<u16>) -> Vec<SentPacket> {
    range.map(|block| SentPacket::Block(block, 100)).collect()
}

/// The box once gave it the first block again, and curl wrote that twice and ended well.
#[test]
fn a_client_that_starts_again_does_not_get_what_it_has_confirmed() {
    let mut sender = agreed(windowed(1));
    assert_eq!(drain(&mut sender), blocks(1..=1));
    ack(&mut sender, 2, 1);
    assert_eq!(drain(&mut sender), blocks(2..=2));
    ack(&mut sender, 3, 0);
    assert_eq!(drain(&mut sender), [], "not at once");
    let due = sender.deadline().unwrap();
    sender.tick(due);
    assert_eq!(drain(&mut sender), blocks(2..=2), "nor when it is time");
}

#[test]
fn a_late_copy_of_the_first_acknowledgement_costs_nothing() {
    let mut sender = agreed(windowed(1));
    drain(&mut sender);
    ack(&mut sender, 2, 1);
    drain(&mut sender);
    ack(&mut sender, 3, 0);
    ack(&mut sender, 4, 2);
    assert_eq!(drain(&mut sender), blocks(3..=3));
    sender.tick(sender.deadline().unwrap());
    assert_eq!(drain(&mut sender), blocks(3..=3), "it goes on where it is");
    ack(&mut sender, 1 << 40, 0);
    sender.tick(sender.deadline().unwrap());
    assert_eq!(
        drain(&mut sender),
        blocks(3..=3),
        "long past the first window"
    );
}

#[test]
fn without_options_the_first_answer_is_data() {
    let mut sender = sender(TransferOptions::default());
    assert_eq!(drain(&mut sender), [SentPacket::Block(1, 512)]);
    ack(&mut sender, 1, 1);
    assert_eq!(drain(&mut sender), [SentPacket::Block(2, 512)]);
}

#[test]
fn accepts_requested_options_within_the_limits_and_no_others() {
    let options = TransferOptions {
        block_bytes: Some(60_000),
        window_blocks: Some(60_000),
        timeout_s: None,
        file_bytes: Some(0),
    };
    let want = TransferOptions {
        block_bytes: Some(1468),
        window_blocks: Some(64),
        timeout_s: None,
        file_bytes: Some(5000),
    };
    assert_eq!(drain(&mut sender(options)), [SentPacket::OptionAck(want)]);
}

#[test]
fn the_window_has_a_bound_whatever_the_limits_say() {
    let limits = TransferLimits {
        window_blocks_max: u16::MAX,
        ..TransferLimits::default()
    };
    let sender = Sender::new(&request(windowed(u16::MAX)), 5000, limits, 0);
    assert_eq!(sender.agreed.window_blocks, Some(WINDOW_BLOCKS_MAX));
}

#[test]
fn a_timeout_is_agreed_to_exactly_and_is_the_longest_wait() {
    for seconds in [1, 9, 255] {
        let options = TransferOptions {
            timeout_s: Some(seconds),
            ..TransferOptions::default()
        };
        let mut sender = sender(options);
        assert_eq!(drain(&mut sender), [SentPacket::OptionAck(options)]);
        let mut longest = 0;
        let mut before = 0;
        while let Some(at) = sender.deadline() {
            longest = longest.max(at - before);
            before = at;
            sender.tick(at);
            assert!(drain(&mut sender).len() <= 1);
        }
        assert!(longest <= u64::from(seconds) * 1_000_000);
    }
}

#[test]
fn the_size_probe_of_uefi_ends_at_once() {
    let mut sender = sender(TransferOptions {
        file_bytes: Some(0),
        ..TransferOptions::default()
    });
    assert_eq!(drain(&mut sender).len(), 1);
    sender.datagram(5, b"\0\x05\0\x08User aborted the transfer\0");
    let want = TransferState::Failed {
        bytes: 0,
        reason: TransferFailure::Peer { code: 8 },
    };
    assert_eq!(sender.state(), want);
    assert_eq!(sender.deadline(), None);
    assert_eq!(drain(&mut sender), []);
}

#[test]
fn a_doubled_acknowledgement_is_not_answered() {
    let mut sender = sender(TransferOptions::default());
    drain(&mut sender);
    ack(&mut sender, 1, 1);
    assert_eq!(drain(&mut sender).len(), 1);
    for _ in 0..5 {
        ack(&mut sender, 2, 1);
        assert_eq!(drain(&mut sender), []);
    }
}

#[test]
fn a_partly_confirmed_window_goes_back_at_once() {
    let mut sender = agreed(windowed(4));
    assert_eq!(drain(&mut sender), blocks(1..=4));
    ack(&mut sender, 2, 2);
    assert_eq!(drain(&mut sender), blocks(3..=6));
}

#[test]
fn a_late_confirmation_of_more_skips_what_was_to_be_repeated() {
    let mut sender = agreed(windowed(4));
    drain(&mut sender);
    ack(&mut sender, 2, 1);
    ack(&mut sender, 3, 4);
    assert_eq!(drain(&mut sender), blocks(5..=8));
}

#[test]
fn a_repeated_acknowledgement_in_a_window_goes_back_only_once() {
    let mut sender = agreed(windowed(4));
    drain(&mut sender);
    ack(&mut sender, 2, 4);
    assert_eq!(drain(&mut sender), blocks(5..=8));
    ack(&mut sender, 3, 4);
    assert_eq!(drain(&mut sender), blocks(5..=8));
    ack(&mut sender, 4, 4);
    assert_eq!(drain(&mut sender), []);
    // The doubled window is confirmed twice; the next one is not doubled.
    ack(&mut sender, 5, 8);
    assert_eq!(drain(&mut sender), blocks(9..=12));
    ack(&mut sender, 6, 8);
    assert_eq!(drain(&mut sender), []);
}

#[test]
fn confirmations_of_blocks_never_sent_are_ignored() {
    let mut sender = agreed(windowed(4));
    drain(&mut sender);
    ack(&mut sender, 2, 5);
    ack(&mut sender, 2, 65_535);
    assert_eq!(drain(&mut sender), []);
    assert_eq!(sender.bytes(), 0);
}

#[test]
fn a_file_of_whole_blocks_ends_with_an_empty_one() {
    let mut sender = agreed(windowed(64));
    let tail = drain(&mut sender);
    assert_eq!(tail.last(), Some(&SentPacket::Block(51, 0)));
    ack(&mut sender, 3, 51);
    assert_eq!(sender.state(), TransferState::Done { bytes: 5000 });
}

#[test]
fn an_empty_file_is_one_empty_block() {
    let mut sender = Sender::new(
        &request(TransferOptions::default()),
        0,
        TransferLimits::default(),
        0,
    );
    assert_eq!(drain(&mut sender), [SentPacket::Block(1, 0)]);
    ack(&mut sender, 1, 1);
    assert_eq!(sender.state(), TransferState::Done { bytes: 0 });
}

#[test]
fn sends_again_after_the_deadline_and_gives_up_after_the_last_try() {
    let mut sender = sender(TransferOptions::default());
    assert_eq!(drain(&mut sender).len(), 1);
    let mut repeated = 0;
    while let Some(at) = sender.deadline() {
        sender.tick(at - 1);
        assert_eq!(drain(&mut sender), []);
        sender.tick(at);
        repeated += drain(&mut sender).len();
    }
    assert_eq!(repeated, 6);
    let want = TransferState::Failed {
        bytes: 0,
        reason: TransferFailure::TimedOut,
    };
    assert_eq!(sender.state(), want);
}

#[test]
fn a_client_that_leaves_before_the_last_message_is_distinguished() {
    let mut sender = Sender::new(
        &request(TransferOptions::default()),
        10,
        TransferLimits::default(),
        0,
    );
    assert!(!sender.is_all_sent());
    while let Some(at) = sender.deadline() {
        drain(&mut sender);
        assert!(sender.is_all_sent());
        sender.tick(at);
    }
    let want = TransferState::Failed {
        bytes: 0,
        reason: TransferFailure::LastAckLost,
    };
    assert_eq!(sender.state(), want);
}

#[test]
fn a_request_received_again_later_repeats_the_first_answer() {
    let request = b"\0\x01f\0octet\0";
    let first = TransferLimits::default().retry_us_first;
    let mut plain = sender(TransferOptions::default());
    drain(&mut plain);
    plain.datagram(first, request);
    assert_eq!(drain(&mut plain), [SentPacket::Block(1, 512)]);
    ack(&mut plain, first + 2, 1);
    drain(&mut plain);
    plain.datagram(3 * first, request);
    assert_eq!(drain(&mut plain), [], "the transfer is under way");

    let mut optioned = sender(windowed(4));
    drain(&mut optioned);
    optioned.datagram(first, request);
    assert!(matches!(
        drain(&mut optioned)[..],
        [SentPacket::OptionAck(_)]
    ));
}

/// atftp 0.8 gives up when it receives an OACK twice.
#[test]
fn a_request_doubled_by_the_wire_is_answered_once() {
    let request = b"\0\x01f\0octet\0";
    for options in [TransferOptions::default(), windowed(4)] {
        let mut sender = sender(options);
        assert_eq!(drain(&mut sender).len(), 1);
        sender.datagram(4000, request);
        assert_eq!(drain(&mut sender), []);
    }
}

#[test]
fn block_numbers_wrap_to_zero() {
    let size = 8 * 70_000;
    let options = TransferOptions {
        block_bytes: Some(8),
        ..TransferOptions::default()
    };
    let file = vec![1; size];
    let mut sender = Sender::new(&request(options), size as u64, TransferLimits::default(), 0);
    let mut out = vec![];
    let mut wrapped = vec![];
    sender.transmit(&mut &*file, &mut out);
    ack(&mut sender, 0, 0);
    while sender.transmit(&mut &*file, &mut out).is_some() {
        let block = u16::from_be_bytes([out[2], out[3]]);
        if sender.sent > 65_534 && sender.sent < 65_538 {
            wrapped.push(block);
        }
        ack(&mut sender, 1, block);
    }
    assert_eq!(wrapped, [65_535, 0, 1]);
    assert_eq!(sender.state(), TransferState::Done { bytes: size as u64 });
}

#[test]
fn a_source_that_fails_is_reported_to_the_client() {
    let mut sender = Sender::new(
        &request(TransferOptions::default()),
        6000,
        TransferLimits::default(),
        0,
    );
    let mut sent = vec![];
    for block in 1.. {
        match drain(&mut sender).pop() {
            Some(packet) => sent.push(packet),
            None => break,
        }
        ack(&mut sender, 1, block);
    }
    assert_eq!(sent.last(), Some(&SentPacket::Error(0)));
    assert!(matches!(
        sender.state(),
        TransferState::Failed {
            reason: TransferFailure::Local,
            ..
        }
    ));
}

#[test]
fn netascii_agrees_to_neither_window_nor_size() {
    let request = ReadRequest {
        mode: TransferMode::Netascii,
        ..request(TransferOptions {
            file_bytes: Some(0),
            ..windowed(4)
        })
    };
    let sender = Sender::new(&request, 5000, TransferLimits::default(), 0);
    let want = TransferOptions {
        block_bytes: Some(100),
        ..TransferOptions::default()
    };
    assert_eq!(sender.agreed, want);
}

#[test]
fn an_offer_confirmed_twice_does_not_double_the_first_window() {
    let mut sender = sender(windowed(4));
    drain(&mut sender);
    sender.tick(sender.deadline().unwrap());
    assert!(matches!(drain(&mut sender)[..], [SentPacket::OptionAck(_)]));
    ack(&mut sender, 300_000, 0);
    assert_eq!(drain(&mut sender), blocks(1..=4));
    ack(&mut sender, 300_001, 0);
    assert_eq!(drain(&mut sender), []);
}

#[test]
fn a_window_is_one_buffer_of_equal_pieces() {
    let file: Vec<u8> = (0..1050_u32).map(|n| n as u8).collect();
    let request = request(windowed(16));
    let mut sender = Sender::new(&request, 1050, TransferLimits::default(), 0);
    let mut out = vec![];
    sender.burst(&mut &*file, 64, 65_507, &mut out);
    ack(&mut sender, 1, 0);
    assert_eq!(sender.burst(&mut &*file, 64, 65_507, &mut out), Some(104));
    assert_eq!(out.len(), 10 * 104 + 54);
    let mut content: Vec<u8> = vec![];
    for (piece, block) in out.chunks(104).zip(1_u16..) {
        assert_eq!(piece[..4], packet::data_head(block));
        content.extend(&piece[4..]);
    }
    assert_eq!(content, file);
    assert_eq!(sender.burst(&mut &*file, 64, 65_507, &mut out), None);
}

#[test]
fn a_burst_keeps_to_its_bounds_and_goes_on_where_it_ended() {
    let mut sender = agreed(windowed(16));
    let mut out = vec![];
    let mut sizes = vec![];
    for (segments, bytes) in [(3, 65_507), (64, 520), (0, 0), (64, 65_507)] {
        assert_eq!(
            sender.burst(&mut &*FILE, segments, bytes, &mut out),
            Some(104)
        );
        sizes.push(out.len() / 104);
    }
    assert_eq!(sizes, [3, 5, 1, 7]);
    assert_eq!(sender.burst(&mut &*FILE, 64, 65_507, &mut out), None);
}

#[test]
fn bytes_that_are_not_there_yet_are_requested_again() {
    struct Slow(bool);
    impl FileSource for Slow {
        fn read(&mut self, _offset: u64, out: &mut [u8]) -> Result<(), ReadError> {
            out.fill(1);
            if self.0 {
                Ok(())
            } else {
                Err(ReadError::NotYet)
            }
        }
    }
    for mode in [TransferMode::Octet, TransferMode::Netascii] {
        let request = ReadRequest {
            mode,
            ..request(TransferOptions::default())
        };
        let mut sender = Sender::new(&request, 1000, TransferLimits::default(), 0);
        let mut out = vec![];
        assert_eq!(sender.transmit(&mut Slow(false), &mut out), None);
        assert_eq!(sender.state(), TransferState::Running);
        assert_eq!(sender.transmit(&mut Slow(true), &mut out), Some(516));
        assert_eq!(out[..4], packet::data_head(1));
    }
}

#[test]
fn blocks_sent_for_the_first_time_are_measured_among_repeated_ones() {
    let mut sender = agreed(windowed(4));
    drain(&mut sender);
    // Block 3 is lost: 3 and 4 are repeated, 5 and 6 are new.
    ack(&mut sender, 1000, 2);
    assert_eq!(drain(&mut sender), blocks(3..=6));
    ack(&mut sender, 100_000, 4);
    let repeated_only = sender.deadline().unwrap() - 100_000;
    drain(&mut sender);
    ack(&mut sender, 200_000, 8);
    let with_new = sender.deadline().unwrap() - 200_000;
    assert!(repeated_only < 100_000, "{repeated_only}");
    assert!(with_new >= 100_000, "{with_new}");
}
