//! One datagram.

use embedded_tftp::{ErrorCode, FILE_NAME_BYTES_MAX, Packet, REQUEST_BYTES_MAX, parse};

use crate::FuzzTarget;

pub(crate) const TARGET: FuzzTarget = FuzzTarget {
    name: "tftp_packet",
    run,
    seeds: super::packets,
    regressions: &[],
};

fn run(bytes: &[u8]) {
    match parse(bytes) {
        Ok(Packet::Read(request)) => {
            assert!(bytes.len() <= REQUEST_BYTES_MAX);
            assert!((1..=FILE_NAME_BYTES_MAX).contains(&request.file.len()));
            assert!(!request.file.contains('\0'), "a name with an end inside");
            assert!(bytes[2..].starts_with(request.file.as_bytes()));
            super::check_options(&request.options);
        }
        Ok(Packet::OptionAck(options)) => super::check_options(&options),
        Ok(Packet::Data { data, .. }) => assert_eq!(data.len(), bytes.len() - 4),
        Ok(Packet::Error { message, .. }) => {
            assert!(!message.contains(&0) && message.len() < bytes.len());
        }
        Ok(Packet::Write | Packet::Ack { .. }) => assert!(bytes.len() >= 2),
        Err(error) => check_refusal(&error.to_string()),
    }
}

/// The error can be sent to the peer.
fn check_refusal(sentence: &str) {
    let mut out = vec![1, 2, 3];
    embedded_tftp::write_error(ErrorCode::IllegalOperation, sentence, &mut out);
    match parse(&out) {
        Ok(Packet::Error { code: 4, message }) => assert_eq!(message, sentence.as_bytes()),
        other => panic!("{other:?}"),
    }
}
