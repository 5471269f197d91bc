//! The content of a boot mailbox, which any software of the machine or its BMC can write.

use trivet_certs_enrol::{EnrolmentToken, MAILBOX_BYTES, MailboxContent};

use crate::FuzzTarget;

pub(crate) const MAILBOX: FuzzTarget = FuzzTarget {
    name: "enrol_mailbox",
    run: mailbox,
    seeds: mailbox_seeds,
    regressions: &[],
};

/// What is decoded is encoded to the same bytes.
fn mailbox(bytes: &[u8]) {
    if let Ok(content) = MailboxContent::decode(bytes) {
        assert_eq!(content.encode(), bytes[..MAILBOX_BYTES]);
    }
}

fn mailbox_seeds() -> Vec<Vec<u8>> {
    let content = MailboxContent {
        token: EnrolmentToken::from([7; 24]),
        unix_s: 1_802_000_000,
        ca_key: [0xca; 32],
    };
    let whole = content.encode().to_vec();
    let longer = [&whole[..], &[0; 176]].concat();
    vec![whole[..64].to_vec(), vec![0; MAILBOX_BYTES], whole, longer]
}
