use super::*;
use alloc::vec;
use alloc::vec::Vec;

fn request(tail: &[u8]) -> Vec<u8> {
    [b"\0\x01".as_slice(), tail].concat()
}

#[track_caller]
fn options_of(tail: &[u8]) -> TransferOptions {
    let packet = request(&[b"f\0octet\0".as_slice(), tail].concat());
    match parse(&packet) {
        Ok(Packet::Read(read)) => read.options,
        other => panic!("{other:?}"),
    }
}

#[test]
fn reads_the_size_probe_of_uefi() {
    let packet = request(b"snponly.efi\0octet\0tsize\x000\0blksize\x001468\0windowsize\x004\0");
    let want = ReadRequest {
        file: "snponly.efi",
        mode: TransferMode::Octet,
        options: TransferOptions {
            block_bytes: Some(1468),
            window_blocks: Some(4),
            timeout_s: None,
            file_bytes: Some(0),
        },
    };
    assert_eq!(parse(&packet), Ok(Packet::Read(want)));
}

#[test]
fn modes_and_option_names_know_no_case() {
    let packet = request(b"f\0NetASCII\0BlkSize\x0016\0");
    let Ok(Packet::Read(read)) = parse(&packet) else {
        panic!()
    };
    assert_eq!(read.mode, TransferMode::Netascii);
    assert_eq!(read.options.block_bytes, Some(16));
}

#[test]
fn an_option_out_of_range_counts_as_not_requested() {
    for tail in [
        b"blksize\x007\0".as_slice(),
        b"blksize\x0065465\0",
        b"blksize\x00+512\0",
        b"blksize\0\0",
        b"windowsize\x000\0",
        b"windowsize\x0065536\0",
        b"timeout\x000\0",
        b"timeout\x00256\0",
        b"tsize\x00-1\0",
        b"tsize\x0018446744073709551616\0",
        b"multicast\x001\0",
    ] {
        assert_eq!(options_of(tail), TransferOptions::default(), "{tail:?}");
    }
}

#[test]
fn an_unknown_option_does_not_hide_the_next() {
    let options = options_of(b"rollover\x000\0blksize\x008\0blksize\x009\0");
    assert_eq!(options.block_bytes, Some(8), "and the first of two counts");
}

#[test]
fn an_option_without_value_ends_the_list() {
    assert_eq!(
        options_of(b"timeout\x005\0blksize\x001024").timeout_s,
        Some(5)
    );
    assert_eq!(options_of(b"blksize\x001024").block_bytes, None);
}

#[test]
fn options_past_the_bound_are_ignored() {
    let mut tail = b"x\x001\0".repeat(OPTIONS_MAX);
    tail.extend(b"blksize\x001024\0");
    assert_eq!(options_of(&tail), TransferOptions::default());
}

#[test]
fn refuses_requests_that_are_none() {
    let long = [b"f".repeat(256), b"\0octet\0".to_vec()].concat();
    let huge = [b"f\0octet\0".to_vec(), vec![b'x'; 512]].concat();
    for (tail, want) in [
        (b"".as_slice(), PacketError::Truncated),
        (b"file", PacketError::Truncated),
        (b"file\0octet", PacketError::Truncated),
        (b"\0octet\0", PacketError::FileNameEmpty),
        (b"f\0mail\0", PacketError::UnknownMode),
        (b"\xff\0octet\0", PacketError::FileNameNotText),
        (&long, PacketError::FileNameTooLong),
        (&huge, PacketError::RequestTooLong),
    ] {
        assert_eq!(parse(&request(tail)), Err(want), "{want}");
    }
}

#[test]
fn refuses_packets_without_operation() {
    assert_eq!(parse(b""), Err(PacketError::Truncated));
    assert_eq!(parse(b"\0"), Err(PacketError::Truncated));
    assert_eq!(parse(b"\0\x09"), Err(PacketError::UnknownOperation(9)));
    assert_eq!(parse(b"\0\x04\0"), Err(PacketError::Truncated));
}

#[test]
fn writing_is_recognised_and_not_looked_into() {
    assert_eq!(parse(b"\0\x02\xff"), Ok(Packet::Write));
}

#[test]
fn an_error_keeps_its_code_and_a_bounded_text() {
    let mut out = vec![];
    write_error(ErrorCode::NotFound, &"x".repeat(1000), &mut out);
    let Ok(Packet::Error { code: 1, message }) = parse(&out) else {
        panic!()
    };
    assert_eq!(message.len(), MESSAGE_BYTES_MAX);
    assert_eq!(
        parse(b"\0\x05\0\x08no zero"),
        Ok(Packet::Error {
            code: 8,
            message: b"no zero"
        })
    );
}

#[test]
fn every_written_packet_reads_back() {
    let options = TransferOptions {
        block_bytes: Some(1024),
        window_blocks: Some(7),
        timeout_s: Some(255),
        file_bytes: Some(u64::MAX),
    };
    let mut out = vec![];
    write_option_ack(&options, &mut out);
    assert_eq!(parse(&out), Ok(Packet::OptionAck(options)));
    write_read_request("a/b", TransferMode::Netascii, &options, &mut out);
    let read = ReadRequest {
        file: "a/b",
        mode: TransferMode::Netascii,
        options,
    };
    assert_eq!(parse(&out), Ok(Packet::Read(read)));
    write_ack(65_535, &mut out);
    assert_eq!(parse(&out), Ok(Packet::Ack { block: 65_535 }));
    out = data_head(3).to_vec();
    out.extend(b"xyz");
    assert_eq!(
        parse(&out),
        Ok(Packet::Data {
            block: 3,
            data: b"xyz"
        })
    );
}

#[test]
fn requests_are_distinguished_from_packets_without_a_waiting_client() {
    for request in [&b"\0\x01"[..], b"\0\x02f\0octet\0", b"\0\x01\xff\0mail\0"] {
        assert!(is_request(request), "{request:?}");
    }
    for other in [
        &b""[..],
        b"\0",
        b"\0\x03\0\x01",
        b"\0\x04\0\x01",
        b"\0\x05\0\0x\0",
        b"\0\x06",
        b"\x01\0",
    ] {
        assert!(!is_request(other), "{other:?}");
    }
}
