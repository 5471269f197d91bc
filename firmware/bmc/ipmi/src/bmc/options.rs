//! Boot options (sections 28.12 and 28.13): the parameters a BMC stores for the
//! machine's firmware. Flags live in the chassis, the rest here.

use std::collections::BTreeMap;

use crate::boot::BootFlags;
use crate::command::{completion, option};

use super::Chassis;

/// Bytes of one block of the boot initiator mailbox.
pub const MAILBOX_BLOCK_BYTES: usize = 16;
/// Blocks the mailbox has. Ours; the specification asks for at least five.
pub const MAILBOX_BLOCKS_MAX: u8 = 16;

/// The stored parameters.
#[derive(Clone, Debug, Default)]
pub(super) struct BootOptions {
    in_progress: u8,
    clearing: u8,
    acknowledge: [u8; 2],
    mailbox: BTreeMap<u8, [u8; MAILBOX_BLOCK_BYTES]>,
}

impl BootOptions {
    pub(super) fn mailbox(&self, block: u8) -> Option<[u8; MAILBOX_BLOCK_BYTES]> {
        self.mailbox.get(&block).copied()
    }

    /// Set System Boot Options; the body of the response.
    pub(super) fn set(&mut self, data: &[u8], chassis: &mut dyn Chassis) -> Vec<u8> {
        let Some((&selector, data)) = data.split_first() else {
            return vec![completion::BAD_LENGTH];
        };
        // The top bit would lock the parameter; locks are not kept.
        let code = match (selector & 0x7f, data) {
            (option::SET_IN_PROGRESS, &[state, ..]) => {
                self.in_progress = state & 0x03;
                completion::OK
            }
            (option::VALID_BIT_CLEARING, &[bits, ..]) => {
                self.clearing = bits & 0x1f;
                completion::OK
            }
            (option::INFO_ACKNOWLEDGE, &[mask, bits, ..]) => {
                let kept = self.acknowledge[1] & !mask;
                self.acknowledge = [0, kept | bits & mask];
                completion::OK
            }
            (option::FLAGS, data) => match BootFlags::parse(data) {
                Some(flags) => {
                    chassis.set_boot(flags);
                    completion::OK
                }
                None => completion::BAD_LENGTH,
            },
            (option::MAILBOX, &[block, ref bytes @ ..]) => self.write_mailbox(block, bytes),
            (
                option::SET_IN_PROGRESS
                | option::VALID_BIT_CLEARING
                | option::INFO_ACKNOWLEDGE
                | option::MAILBOX,
                _,
            ) => completion::BAD_LENGTH,
            _ => completion::NO_PARAMETER,
        };
        vec![code]
    }

    fn write_mailbox(&mut self, block: u8, bytes: &[u8]) -> u8 {
        if block >= MAILBOX_BLOCKS_MAX {
            return completion::OUT_OF_RANGE;
        }
        if bytes.is_empty() || bytes.len() > MAILBOX_BLOCK_BYTES {
            return completion::BAD_LENGTH;
        }
        let mut whole = [0; MAILBOX_BLOCK_BYTES];
        whole[..bytes.len()].copy_from_slice(bytes);
        self.mailbox.insert(block, whole);
        completion::OK
    }

    /// Get System Boot Options; the body of the response.
    pub(super) fn read(&self, data: &[u8], chassis: &dyn Chassis) -> Vec<u8> {
        let &[selector, set, _, ..] = data else {
            return vec![completion::BAD_LENGTH];
        };
        let parameter = selector & 0x7f;
        let mut body = vec![completion::OK, 1, parameter];
        match parameter {
            option::SET_IN_PROGRESS => body.push(self.in_progress),
            option::VALID_BIT_CLEARING => body.push(self.clearing),
            option::INFO_ACKNOWLEDGE => body.extend(self.acknowledge),
            option::FLAGS => body.extend(chassis.boot().emit()),
            option::MAILBOX if set >= MAILBOX_BLOCKS_MAX => return vec![completion::OUT_OF_RANGE],
            option::MAILBOX => {
                body.push(set);
                body.extend(self.mailbox(set).unwrap_or_default());
            }
            _ => return vec![completion::NO_PARAMETER],
        }
        body
    }
}
