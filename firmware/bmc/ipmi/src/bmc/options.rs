//! Boot options (sections 28.12 and 28.13): the parameters a BMC stores for the machine's firmware.
//! The flags are stored in the chassis, the other parameters here.

use std::collections::BTreeMap;

use crate::boot::BootFlags;
use crate::command::{completion, option};

use super::IpmiChassis;
use crate::operation::{MAILBOX_BLOCK_BYTES, MAILBOX_BLOCKS_MAX};

/// The stored parameters.
#[derive(Clone, Debug, Default)]
pub(super) struct BootOptions {
    /// Whether parameters can be set only between "set in progress" and "set complete".
    pub(super) set_in_progress_required: bool,
    in_progress: u8,
    clearing: u8,
    acknowledge: [u8; 2],
    mailbox: BTreeMap<u8, [u8; MAILBOX_BLOCK_BYTES]>,
    /// Whether there is no mailbox: the parameter is optional.
    pub(super) lacks_mailbox: bool,
}

impl BootOptions {
    pub(super) fn mailbox(&self, block: u8) -> Option<[u8; MAILBOX_BLOCK_BYTES]> {
        self.mailbox.get(&block).copied()
    }

    /// All blocks are zeros.
    pub(super) fn clear_mailbox(&mut self) {
        self.mailbox.values_mut().for_each(|block| block.fill(0));
    }

    /// Set System Boot Options; the body of the response.
    pub(super) fn set(&mut self, data: &[u8], chassis: &mut dyn IpmiChassis) -> Vec<u8> {
        let Some((&selector, data)) = data.split_first() else {
            return vec![completion::BAD_LENGTH];
        };
        let parameter = selector & 0x7f;
        if let Some(code) = self.outside_set_in_progress(parameter, data) {
            return vec![code];
        }
        if parameter == option::MAILBOX && self.lacks_mailbox {
            return vec![completion::NO_PARAMETER];
        }
        // The top bit would lock the parameter; locks are not implemented.
        let code = match (parameter, data) {
            (option::SET_IN_PROGRESS, &[state, ..]) => {
                self.in_progress = state & 0x03;
                completion::OK
            }
            (option::VALID_BIT_CLEARING, &[bits, ..]) => {
                self.clearing = bits & 0x1f;
                completion::OK
            }
            (option::INFO_ACKNOWLEDGE, &[mask, bits, ..]) => {
                let stored = self.acknowledge[1] & !mask;
                self.acknowledge = [0, stored | bits & mask];
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

    /// The completion code for a write outside "set in progress", if the BMC requires it.
    fn outside_set_in_progress(&self, parameter: u8, data: &[u8]) -> Option<u8> {
        let open = self.in_progress == 1;
        match (parameter, data.first()) {
            _ if !self.set_in_progress_required => None,
            (option::SET_IN_PROGRESS, Some(1)) => open.then_some(completion::IN_PROGRESS),
            (option::SET_IN_PROGRESS, _) => None,
            _ => (!open).then_some(completion::NOT_IN_THIS_STATE),
        }
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
    pub(super) fn read(&self, data: &[u8], chassis: &dyn IpmiChassis) -> Vec<u8> {
        let &[selector, set, _, ..] = data else {
            return vec![completion::BAD_LENGTH];
        };
        let parameter = selector & 0x7f;
        let mut body = vec![completion::OK, 1, parameter];
        match parameter {
            option::MAILBOX if self.lacks_mailbox => return vec![completion::NO_PARAMETER],
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

#[cfg(test)]
mod tests {
    use super::*;
    use trivet_model::{BootDevice, PowerOrder, PowerState};

    #[derive(Default)]
    struct FlagsOnlyChassis(BootFlags);

    impl IpmiChassis for FlagsOnlyChassis {
        fn power(&self) -> PowerState {
            PowerState::Off
        }

        fn control(&mut self, _order: PowerOrder) {}

        fn boot(&self) -> BootFlags {
            self.0
        }

        fn set_boot(&mut self, flags: BootFlags) {
            self.0 = flags;
        }
    }

    #[test]
    fn keeps_each_parameter_it_knows() {
        let (mut options, mut chassis) = (BootOptions::default(), FlagsOnlyChassis::default());
        for (set, read) in [
            (&[0, 1][..], &[0, 1, 0, 1][..]),
            (&[3, 0x08], &[0, 1, 3, 8]),
            (&[4, 0xff, 0x01], &[0, 1, 4, 0, 1]),
            (&[4, 0x01, 0x00], &[0, 1, 4, 0, 0]),
            (&[5, 0xe0, 4, 0, 0, 0], &[0, 1, 5, 0xe0, 4, 0, 0, 0]),
        ] {
            assert_eq!(options.set(set, &mut chassis), [0]);
            assert_eq!(options.read(&[set[0], 0, 0], &chassis), read);
        }
        assert_eq!(chassis.0.device, Some(BootDevice::Pxe));
    }

    #[test]
    fn a_strict_bmc_accepts_parameters_only_in_set_in_progress() {
        let mut options = BootOptions {
            set_in_progress_required: true,
            ..BootOptions::default()
        };
        let mut chassis = FlagsOnlyChassis::default();
        for (data, code) in [
            (&[7, 0, 1][..], 0xd5),
            (&[5, 0x80, 4, 0, 0, 0], 0xd5),
            (&[0, 1], 0),
            (&[0, 1], 0x81),
            (&[7, 0, 1], 0),
            (&[0, 0], 0),
            (&[7, 0, 2], 0xd5),
        ] {
            assert_eq!(options.set(data, &mut chassis), [code], "{data:?}");
        }
        assert_eq!(options.mailbox(0).map(|block| block[0]), Some(1));
    }

    #[test]
    fn refuses_parameters_it_does_not_know_and_short_ones() {
        let (mut options, mut chassis) = (BootOptions::default(), FlagsOnlyChassis::default());
        assert_eq!(
            options.set(&[6, 1], &mut chassis),
            [completion::NO_PARAMETER]
        );
        assert_eq!(
            options.read(&[6, 0, 0], &chassis),
            [completion::NO_PARAMETER]
        );
        for short in [&[][..], &[0], &[3], &[4, 1], &[5, 0x80, 4], &[7], &[7, 0]] {
            assert_eq!(options.set(short, &mut chassis), [completion::BAD_LENGTH]);
        }
        assert_eq!(options.read(&[5, 0], &chassis), [completion::BAD_LENGTH]);
    }

    #[test]
    fn a_bmc_can_lack_the_mailbox_and_a_machine_can_clear_it() {
        let mut chassis = FlagsOnlyChassis::default();
        let mut options = BootOptions::default();
        let written = [&[option::MAILBOX, 2][..], &[9; 16]].concat();
        assert_eq!(options.set(&written, &mut chassis), [completion::OK]);
        options.clear_mailbox();
        assert_eq!(options.mailbox(2), Some([0; 16]));
        options.lacks_mailbox = true;
        let refused = [completion::NO_PARAMETER];
        assert_eq!(options.set(&written, &mut chassis), refused);
        assert_eq!(options.read(&[option::MAILBOX, 2, 0], &chassis), refused);
    }

    #[test]
    fn the_mailbox_is_bounded_in_blocks_and_bytes() {
        let (mut options, mut chassis) = (BootOptions::default(), FlagsOnlyChassis::default());
        let mut write = |block, bytes: &[u8]| {
            let mut data = vec![option::MAILBOX, block];
            data.extend(bytes);
            options.set(&data, &mut chassis)
        };
        assert_eq!(write(MAILBOX_BLOCKS_MAX - 1, &[7; 16]), [0]);
        assert_eq!(
            write(MAILBOX_BLOCKS_MAX, &[7; 16]),
            [completion::OUT_OF_RANGE]
        );
        assert_eq!(write(0, &[7; 17]), [completion::BAD_LENGTH]);
        assert_eq!(write(0, &[7; 3]), [0]);
        let read = options.read(&[7, 0, 0], &chassis);
        assert_eq!(read[..8], [0, 1, 7, 0, 7, 7, 7, 0]);
        assert_eq!(options.mailbox(MAILBOX_BLOCKS_MAX - 1), Some([7; 16]));
        assert_eq!(options.mailbox(1), None);
        let far = options.read(&[7, MAILBOX_BLOCKS_MAX, 0], &chassis);
        assert_eq!(far, [completion::OUT_OF_RANGE]);
    }
}
