//! TFTP: packets, and both sides of a transfer with a peer that sends anything.

pub(crate) mod packet;
pub(crate) mod receiver;
pub(crate) mod sender;

use embedded_tftp::TransferOptions;

/// Every packet type, as a real client or server sends it.
fn packets() -> Vec<Vec<u8>> {
    let samples: [&[u8]; 10] = [
        b"\0\x01snponly.efi\0octet\0",
        b"\0\x01a/b\0OCTET\0tsize\x000\0blksize\x001468\0windowsize\x0016\0timeout\x002\0",
        b"\0\x01f\0netascii\0blksize\x008\0",
        b"\0\x01..\\..\0mail\0",
        b"\0\x02file\0octet\0",
        b"\0\x03\0\x01data",
        b"\0\x04\0\x01",
        b"\0\x05\0\x08no\0",
        b"\0\x06tsize\x00512\0blksize\x0016\0windowsize\x004\0",
        b"\0\x07",
    ];
    samples.map(<[u8]>::to_vec).to_vec()
}

/// Decoded options are within the limits of the protocol.
fn check_options(options: &TransferOptions) {
    if let Some(bytes) = options.block_bytes {
        let range = embedded_tftp::BLOCK_BYTES_MIN..=embedded_tftp::BLOCK_BYTES_MAX;
        assert!(range.contains(&bytes), "blocks of {bytes}");
    }
    assert_ne!(options.window_blocks, Some(0));
    assert_ne!(options.timeout_s, Some(0));
}
