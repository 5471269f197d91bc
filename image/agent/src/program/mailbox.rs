//! The boot mailbox of this machine's BMC (IPMI 2.0, section 28.13, parameter 7): read once and
//! cleared, so that nothing that boots later finds the token.

use std::io;

use trivet_certs_enrol::{MAILBOX_BYTES, MailboxContent, MailboxError};

/// Network function and commands.
const CHASSIS: u8 = 0x00;
const SET_BOOT_OPTIONS: u8 = 0x08;
const GET_BOOT_OPTIONS: u8 = 0x09;

/// Parameters.
const SET_IN_PROGRESS: u8 = 0;
const MAILBOX: u8 = 7;

const BLOCK_BYTES: usize = 16;
const BLOCKS: u8 = (MAILBOX_BYTES / BLOCK_BYTES) as u8;

/// A request to the BMC: network function, command and data. The reply is the completion code
/// and the data after it.
pub(super) type BmcRequests<'a> = &'a mut dyn FnMut(u8, u8, &[u8]) -> io::Result<Vec<u8>>;

/// Reads the token and clears the mailbox. `None` if there is none for this boot, with the reason
/// if that is unusual.
pub(super) fn take(bmc: BmcRequests<'_>) -> Result<Option<MailboxContent>, String> {
    let Some(bytes) = read(bmc) else {
        return Ok(None);
    };
    match MailboxContent::decode(&bytes) {
        Ok(content) => {
            if !clear(bmc) {
                return Err("the boot mailbox of the BMC cannot be cleared".to_owned());
            }
            Ok(Some(content))
        }
        Err(MailboxError::Empty | MailboxError::Foreign) => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

/// All blocks, if the BMC has a mailbox. A BMC may leave out zeros at the end of a block.
fn read(bmc: BmcRequests<'_>) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(MAILBOX_BYTES);
    for block in 0..BLOCKS {
        let reply = bmc(CHASSIS, GET_BOOT_OPTIONS, &[MAILBOX, block, 0]).ok()?;
        let [0, _version, parameter, number, data @ ..] = reply.as_slice() else {
            return None;
        };
        if parameter & 0x7f != MAILBOX || *number != block || data.len() > BLOCK_BYTES {
            return None;
        }
        bytes.extend(data);
        bytes.resize(BLOCK_BYTES * (usize::from(block) + 1), 0);
    }
    Some(bytes)
}

/// Writes zeros; whether the mailbox has them then.
fn clear(bmc: BmcRequests<'_>) -> bool {
    // Some BMCs require this, and others do not support it.
    let _ = bmc(CHASSIS, SET_BOOT_OPTIONS, &[SET_IN_PROGRESS, 1]);
    for block in 0..BLOCKS {
        let mut data = [0; 2 + BLOCK_BYTES];
        (data[0], data[1]) = (MAILBOX, block);
        let _ = bmc(CHASSIS, SET_BOOT_OPTIONS, &data);
    }
    let _ = bmc(CHASSIS, SET_BOOT_OPTIONS, &[SET_IN_PROGRESS, 0]);
    read(bmc).is_some_and(|bytes| bytes.iter().all(|byte| *byte == 0))
}

#[cfg(test)]
mod tests {
    use trivet_certs_enrol::EnrolmentToken;

    use super::*;

    /// The mailbox of a BMC.
    struct FakeBmc {
        blocks: [[u8; BLOCK_BYTES]; 5],
        is_read_only: bool,
        has_mailbox: bool,
    }

    impl FakeBmc {
        fn with(bytes: &[u8; MAILBOX_BYTES]) -> Self {
            let mut blocks = [[0; BLOCK_BYTES]; 5];
            let chunks = blocks.iter_mut().zip(bytes.chunks(BLOCK_BYTES));
            chunks.for_each(|(block, chunk)| block.copy_from_slice(chunk));
            Self {
                blocks,
                is_read_only: false,
                has_mailbox: true,
            }
        }

        fn answer(&mut self, function: u8, command: u8, data: &[u8]) -> Vec<u8> {
            assert_eq!(function, CHASSIS);
            match (command, data) {
                _ if !self.has_mailbox => vec![0x80],
                (SET_BOOT_OPTIONS, [SET_IN_PROGRESS, _]) => vec![0x80],
                (SET_BOOT_OPTIONS, [MAILBOX, _, ..]) if self.is_read_only => vec![0xcc],
                (SET_BOOT_OPTIONS, [MAILBOX, block, bytes @ ..]) => {
                    self.blocks[usize::from(*block)].copy_from_slice(bytes);
                    vec![0]
                }
                (GET_BOOT_OPTIONS, [MAILBOX, block, 0]) => {
                    let mut bytes = self.blocks[usize::from(*block)].to_vec();
                    while bytes.last() == Some(&0) {
                        bytes.pop();
                    }
                    [&[0, 1, MAILBOX, *block][..], &bytes].concat()
                }
                other => panic!("unexpected request {other:?}"),
            }
        }

        fn take(&mut self) -> Result<Option<MailboxContent>, String> {
            take(&mut |function, command, data| Ok(self.answer(function, command, data)))
        }
    }

    fn content() -> MailboxContent {
        MailboxContent {
            token: EnrolmentToken::from([7; 24]),
            unix_s: 1_802_000_000,
            ca_key: [0; 32],
        }
    }

    #[test]
    fn the_token_is_read_once() {
        let mut bmc = FakeBmc::with(&content().encode());
        assert_eq!(bmc.take(), Ok(Some(content())));
        assert_eq!(bmc.blocks, [[0; 16]; 5]);
        assert_eq!(bmc.take(), Ok(None));
    }

    #[test]
    fn data_of_other_software_stay() {
        let mut bmc = FakeBmc::with(&[9; MAILBOX_BYTES]);
        assert_eq!(bmc.take(), Ok(None));
        assert_eq!(bmc.blocks, [[9; 16]; 5]);
    }

    #[test]
    fn a_mailbox_that_keeps_the_token_is_not_used() {
        let mut bmc = FakeBmc::with(&content().encode());
        bmc.is_read_only = true;
        assert!(bmc.take().unwrap_err().contains("cleared"));
    }

    #[test]
    fn a_part_of_a_token_is_an_error_and_no_mailbox_is_none() {
        let mut bmc = FakeBmc::with(&content().encode());
        bmc.blocks[1] = [0; 16];
        assert!(bmc.take().unwrap_err().contains("in part"));
        bmc.has_mailbox = false;
        assert_eq!(bmc.take(), Ok(None));
        let failed = take(&mut |_, _, _| Err(io::ErrorKind::NotFound.into()));
        assert_eq!(failed, Ok(None));
    }

    #[test]
    fn replies_for_another_block_or_too_long_are_no_mailbox() {
        for wrong in [
            &[0, 1, 5, 0, 7][..],
            &[0, 1, 7, 3, 7],
            &[0, 1],
            &[],
            &[[0, 1, 7, 0].as_slice(), &[1; 17]].concat(),
        ] {
            assert_eq!(take(&mut |_, _, _| Ok(wrong.to_vec())), Ok(None));
        }
    }
}
