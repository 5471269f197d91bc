use super::*;
use alloc::vec;

fn requested_options() -> TransferOptions {
    TransferOptions {
        block_bytes: Some(8),
        window_blocks: Some(4),
        timeout_s: None,
        file_bytes: Some(0),
    }
}

fn receiver() -> (Receiver, Vec<u8>) {
    let limits = TransferLimits {
        file_bytes_max: 100,
        ..TransferLimits::default()
    };
    let mut receiver = Receiver::new("f", TransferMode::Octet, requested_options(), limits, 0);
    let mut out = vec![];
    receiver.transmit(&mut out);
    assert!(matches!(packet::parse(&out), Ok(Packet::Read(_))));
    (receiver, vec![])
}

/// A receiver that has agreed on blocks of 8 in windows of 4.
fn agreed() -> (Receiver, Vec<u8>) {
    let (mut receiver, mut sink) = receiver();
    let options = TransferOptions {
        file_bytes: None,
        ..requested_options()
    };
    offer(&mut receiver, &mut sink, options);
    assert_eq!(confirmed(&mut receiver), Some(0));
    (receiver, sink)
}

fn offer(receiver: &mut Receiver, sink: &mut Vec<u8>, options: TransferOptions) {
    let mut out = vec![];
    packet::write_option_ack(&options, &mut out);
    receiver.datagram(1, &out, sink);
}

fn data(receiver: &mut Receiver, sink: &mut Vec<u8>, block: u16, len: usize) {
    let mut out = packet::data_head(block).to_vec();
    out.resize(4 + len, block as u8);
    receiver.datagram(2, &out, sink);
}

fn confirmed(receiver: &mut Receiver) -> Option<u16> {
    let mut out = vec![];
    receiver.transmit(&mut out)?;
    match packet::parse(&out) {
        Ok(Packet::Ack { block }) => Some(block),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn failed_with(receiver: &mut Receiver, want: TransferFailure, want_code: u16) {
    let mut out = vec![];
    receiver.transmit(&mut out);
    assert!(matches!(packet::parse(&out), Ok(Packet::Error { code, .. }) if code == want_code));
    assert!(matches!(receiver.state(), TransferState::Failed { reason, .. } if reason == want));
}

#[test]
fn confirms_a_whole_window_once() {
    let (mut receiver, mut sink) = agreed();
    for block in 1..=3 {
        data(&mut receiver, &mut sink, block, 8);
        assert_eq!(confirmed(&mut receiver), None);
    }
    data(&mut receiver, &mut sink, 4, 8);
    assert_eq!(confirmed(&mut receiver), Some(4));
    data(&mut receiver, &mut sink, 5, 3);
    assert_eq!(confirmed(&mut receiver), Some(5));
    assert_eq!(receiver.state(), TransferState::Done { bytes: 35 });
    assert_eq!(sink.len(), 35);
}

#[test]
fn reports_a_gap_once() {
    let (mut receiver, mut sink) = agreed();
    data(&mut receiver, &mut sink, 1, 8);
    data(&mut receiver, &mut sink, 3, 8);
    assert_eq!(confirmed(&mut receiver), Some(1));
    data(&mut receiver, &mut sink, 4, 8);
    assert_eq!(confirmed(&mut receiver), None);
    assert_eq!(sink.len(), 8);
}

#[test]
fn confirms_the_final_block_again_after_the_end() {
    let (mut receiver, mut sink) = agreed();
    data(&mut receiver, &mut sink, 1, 0);
    assert_eq!(confirmed(&mut receiver), Some(1));
    data(&mut receiver, &mut sink, 1, 0);
    assert_eq!(confirmed(&mut receiver), Some(1));
    assert_eq!(receiver.deadline(), None);
}

#[test]
fn takes_data_from_a_server_that_knows_no_options() {
    let (mut receiver, mut sink) = receiver();
    let mut out = packet::data_head(1).to_vec();
    out.extend([9; 90]);
    receiver.datagram(1, &out, &mut sink);
    assert_eq!(confirmed(&mut receiver), Some(1));
    assert_eq!(receiver.state(), TransferState::Done { bytes: 90 });
}

#[test]
fn refuses_more_than_was_requested() {
    let more = |change: fn(&mut TransferOptions)| {
        let (mut receiver, mut sink) = receiver();
        let mut options = requested_options();
        change(&mut options);
        offer(&mut receiver, &mut sink, options);
        failed_with(&mut receiver, TransferFailure::Protocol, 8);
    };
    more(|options| options.block_bytes = Some(9));
    more(|options| options.window_blocks = Some(5));
    more(|options| options.timeout_s = Some(1));
}

#[test]
fn refuses_a_file_past_the_bound_when_announced_and_when_not() {
    let (mut receiver, mut sink) = receiver();
    let options = TransferOptions {
        file_bytes: Some(101),
        ..requested_options()
    };
    offer(&mut receiver, &mut sink, options);
    failed_with(&mut receiver, TransferFailure::TooLarge, 3);

    let (mut receiver, mut sink) = agreed();
    for block in 1..=13 {
        data(&mut receiver, &mut sink, block, 8);
    }
    failed_with(&mut receiver, TransferFailure::TooLarge, 3);
    assert_eq!(sink.len(), 96);
}

#[test]
fn refuses_a_block_longer_than_agreed() {
    let (mut receiver, mut sink) = agreed();
    data(&mut receiver, &mut sink, 1, 9);
    failed_with(&mut receiver, TransferFailure::Protocol, 4);
}

#[test]
fn refuses_a_file_that_ends_before_its_announced_size() {
    let (mut receiver, mut sink) = receiver();
    let options = TransferOptions {
        file_bytes: Some(20),
        ..requested_options()
    };
    offer(&mut receiver, &mut sink, options);
    assert_eq!(receiver.announced_bytes(), Some(20));
    data(&mut receiver, &mut sink, 1, 3);
    failed_with(&mut receiver, TransferFailure::Protocol, 0);
}

#[test]
fn reports_to_the_server_that_the_bytes_cannot_be_stored() {
    struct Full;
    impl FileSink for Full {
        fn write(&mut self, _offset: u64, _data: &[u8]) -> Result<(), WriteFailed> {
            Err(WriteFailed)
        }
    }
    let (mut receiver, _) = agreed();
    receiver.datagram(2, b"\0\x03\0\x01x", &mut Full);
    failed_with(&mut receiver, TransferFailure::Local, 3);
}

#[test]
fn repeats_the_request_and_gives_up_in_the_end() {
    let (mut receiver, _) = receiver();
    let mut requests = 1;
    let mut out = vec![];
    while let Some(at) = receiver.deadline() {
        receiver.tick(at);
        requests += usize::from(receiver.transmit(&mut out).is_some());
    }
    assert_eq!(requests, 7);
}

#[test]
fn an_error_of_the_server_ends_it() {
    let (mut receiver, mut sink) = receiver();
    receiver.datagram(1, b"\0\x05\0\x01no such file\0", &mut sink);
    let want = TransferState::Failed {
        bytes: 0,
        reason: TransferFailure::Peer { code: 1 },
    };
    assert_eq!(receiver.state(), want);
}
