//! ATA drives behind SCSI: IDENTIFY DEVICE, and the security commands that erase a drive
//! (ACS-3, section 4.20; SAT-3, section 12.2).

use std::time::Duration;

/// Bytes of IDENTIFY DEVICE and of the data of security commands.
pub const ATA_SECTOR_BYTES: usize = 512;

/// The operation code of ATA PASS-THROUGH (16).
const PASS_THROUGH_16: u8 = 0x85;

/// Protocols of the pass-through command, in its byte 1.
const NO_DATA: u8 = 3 << 1;
const PIO_IN: u8 = 4 << 1;
const PIO_OUT: u8 = 5 << 1;

/// Byte 2: the length is in the sector count, in blocks; the direction; report the registers.
const LENGTH_IN_COUNT: u8 = 0x06;
const FROM_DEVICE: u8 = 0x08;
const REPORT_REGISTERS: u8 = 0x20;

/// Longest time that a drive is given to erase itself. Ours: a drive that reports no time may
/// need as long.
const ERASE_TIMEOUT_MAX: Duration = Duration::from_hours(48);

/// The password that is set for the time of the erasure; the stock agent's.
const PASSWORD: &[u8] = b"NULL";

/// An ATA command.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AtaCommand {
    /// IDENTIFY DEVICE.
    Identify,
    /// SECURITY SET PASSWORD.
    SetPassword,
    /// SECURITY UNLOCK.
    Unlock,
    /// SECURITY ERASE PREPARE.
    ErasePrepare,
    /// SECURITY ERASE UNIT.
    EraseUnit,
    /// SECURITY DISABLE PASSWORD.
    DisablePassword,
}

impl AtaCommand {
    /// The SCSI command that carries it.
    pub fn scsi_command(self) -> [u8; 16] {
        let (command, protocol, flags) = match self {
            Self::Identify => (0xec, PIO_IN, LENGTH_IN_COUNT | FROM_DEVICE),
            Self::SetPassword => (0xf1, PIO_OUT, LENGTH_IN_COUNT),
            Self::Unlock => (0xf2, PIO_OUT, LENGTH_IN_COUNT),
            Self::ErasePrepare => (0xf3, NO_DATA, REPORT_REGISTERS),
            Self::EraseUnit => (0xf4, PIO_OUT, LENGTH_IN_COUNT),
            Self::DisablePassword => (0xf6, PIO_OUT, LENGTH_IN_COUNT),
        };
        let mut bytes = [0; 16];
        bytes[0] = PASS_THROUGH_16;
        bytes[1] = protocol;
        bytes[2] = flags;
        bytes[6] = u8::from(protocol != NO_DATA);
        bytes[14] = command;
        bytes
    }

    /// Whether a sector of data goes to the drive.
    pub fn has_data(self) -> bool {
        !matches!(self, Self::Identify | Self::ErasePrepare)
    }
}

/// The data of a security command: the password, and whether the erasure is enhanced.
pub fn security_data(is_enhanced: bool) -> [u8; ATA_SECTOR_BYTES] {
    let mut data = [0; ATA_SECTOR_BYTES];
    // Word 0: bit 0 is the user password, bit 1 the enhanced erasure.
    data[0] = if is_enhanced { 2 } else { 0 };
    data[2..2 + PASSWORD.len()].copy_from_slice(PASSWORD);
    data
}

/// The security state of a drive.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "they are the bits of the standard"
)]
pub struct AtaSecurity {
    /// The drive has security commands.
    pub is_supported: bool,
    /// A password is set.
    pub is_enabled: bool,
    /// The drive wants the password.
    pub is_locked: bool,
    /// The drive refuses security commands until it is switched off; firmware does this.
    pub is_frozen: bool,
    /// Too many passwords were wrong.
    pub is_expired: bool,
    /// It can erase itself with a pattern, and reallocated sectors too.
    pub has_enhanced_erase: bool,
    /// How long an erasure takes.
    pub erase_time: Duration,
    /// How long an enhanced erasure takes.
    pub enhanced_erase_time: Duration,
}

/// Why a drive does not erase itself.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum AtaEraseRefusal {
    /// It has no security commands.
    #[error("the drive does not support ATA secure erase")]
    Unsupported,
    /// It is frozen.
    #[error(
        "the drive is frozen: its firmware refuses ATA secure erase until the drive was switched \
         off"
    )]
    Frozen,
    /// It is locked with a password that is not ours.
    #[error("the drive is locked with an unknown password")]
    Locked,
    /// Too many passwords were wrong.
    #[error("the drive had too many wrong passwords and must be switched off")]
    Expired,
}

impl AtaSecurity {
    /// Parses IDENTIFY DEVICE. `None` if it is short.
    pub fn parse(identify: &[u8]) -> Option<Self> {
        let identify: &[u8; ATA_SECTOR_BYTES] = identify.first_chunk()?;
        let word =
            |number: usize| u16::from_le_bytes([identify[2 * number], identify[2 * number + 1]]);
        let bit = |number, bit: u16| word(number) & 1 << bit != 0;
        Some(Self {
            is_supported: bit(82, 1) && bit(128, 0),
            is_enabled: bit(128, 1),
            is_locked: bit(128, 2),
            is_frozen: bit(128, 3),
            is_expired: bit(128, 4),
            has_enhanced_erase: bit(128, 5),
            erase_time: erase_time(word(89)),
            enhanced_erase_time: erase_time(word(90)),
        })
    }

    /// What an erasure does: enhanced if the drive can, and how long it may take. A drive that
    /// is locked with our own password, because an earlier erasure was cut off, is unlocked.
    pub fn plan(&self) -> Result<AtaErasePlan, AtaEraseRefusal> {
        if !self.is_supported {
            return Err(AtaEraseRefusal::Unsupported);
        }
        if self.is_frozen {
            return Err(AtaEraseRefusal::Frozen);
        }
        if self.is_expired {
            return Err(AtaEraseRefusal::Expired);
        }
        let is_enhanced = self.has_enhanced_erase;
        let time = if is_enhanced {
            self.enhanced_erase_time
        } else {
            self.erase_time
        };
        Ok(AtaErasePlan {
            is_enhanced,
            unlocks: self.is_locked,
            // The time of the drive is an estimate.
            timeout: (time * 2).clamp(Duration::from_hours(1), ERASE_TIMEOUT_MAX),
        })
    }
}

/// How a drive is erased.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct AtaErasePlan {
    /// The erasure is enhanced.
    pub is_enhanced: bool,
    /// The drive is unlocked first.
    pub unlocks: bool,
    /// How long it may take.
    pub timeout: Duration,
}

impl AtaErasePlan {
    /// The commands, in order. The drive removes the password itself when it has erased
    /// everything.
    pub fn commands(&self) -> Vec<AtaCommand> {
        let first = if self.unlocks {
            AtaCommand::Unlock
        } else {
            AtaCommand::SetPassword
        };
        vec![first, AtaCommand::ErasePrepare, AtaCommand::EraseUnit]
    }
}

/// Words 89 and 90: units of two minutes; in the extended format bit 15 is set and 15 bits count.
fn erase_time(word: u16) -> Duration {
    let units = if word & 0x8000 != 0 {
        word & 0x7fff
    } else {
        word & 0x00ff
    };
    Duration::from_mins(2 * u64::from(units))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identify(words: &[(usize, u16)]) -> Vec<u8> {
        let mut bytes = vec![0; ATA_SECTOR_BYTES];
        for (number, word) in words {
            bytes[2 * number..2 * number + 2].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn commands_are_those_of_the_standard() {
        let identify = AtaCommand::Identify.scsi_command();
        assert_eq!(identify[..3], [0x85, 0x08, 0x0e]);
        assert_eq!((identify[6], identify[14]), (1, 0xec));
        let prepare = AtaCommand::ErasePrepare.scsi_command();
        assert_eq!(prepare[..3], [0x85, 0x06, 0x20]);
        assert_eq!((prepare[6], prepare[14]), (0, 0xf3));
        let erase = AtaCommand::EraseUnit.scsi_command();
        assert_eq!(erase[..3], [0x85, 0x0a, 0x06]);
        assert_eq!(erase[14], 0xf4);
        assert!(AtaCommand::EraseUnit.has_data() && !AtaCommand::Identify.has_data());
        for (command, code) in [
            (AtaCommand::SetPassword, 0xf1),
            (AtaCommand::Unlock, 0xf2),
            (AtaCommand::DisablePassword, 0xf6),
        ] {
            assert_eq!(command.scsi_command()[14], code);
        }
    }

    #[test]
    fn the_data_have_the_password_and_the_kind_of_erasure() {
        let data = security_data(true);
        assert_eq!(data[..6], *b"\x02\x00NULL");
        assert_eq!(security_data(false)[0], 0);
    }

    #[test]
    fn a_drive_that_can_is_erased_enhanced_within_twice_its_time() {
        let security =
            AtaSecurity::parse(&identify(&[(82, 2), (128, 0x21), (89, 60), (90, 0x8258)])).unwrap();
        assert_eq!(security.erase_time, Duration::from_hours(2));
        let plan = security.plan().unwrap();
        assert!(plan.is_enhanced && !plan.unlocks);
        assert_eq!(plan.timeout, Duration::from_hours(40));
        assert_eq!(
            plan.commands(),
            [
                AtaCommand::SetPassword,
                AtaCommand::ErasePrepare,
                AtaCommand::EraseUnit
            ]
        );
        let plain = AtaSecurity::parse(&identify(&[(82, 2), (128, 1)])).unwrap();
        assert!(!plain.plan().unwrap().is_enhanced);
        assert_eq!(plain.plan().unwrap().timeout, Duration::from_hours(1));
    }

    #[test]
    fn a_drive_of_an_erasure_that_was_cut_off_is_unlocked() {
        let security = AtaSecurity::parse(&identify(&[(82, 2), (128, 0x07)])).unwrap();
        assert!(security.is_enabled && security.is_locked);
        assert_eq!(security.plan().unwrap().commands()[0], AtaCommand::Unlock);
    }

    #[test]
    fn drives_that_cannot_are_named() {
        for (word, refusal) in [
            (0, AtaEraseRefusal::Unsupported),
            (0x09, AtaEraseRefusal::Frozen),
            (0x11, AtaEraseRefusal::Expired),
        ] {
            let security = AtaSecurity::parse(&identify(&[(82, 2), (128, word)])).unwrap();
            assert_eq!(security.plan(), Err(refusal));
        }
        let text = AtaEraseRefusal::Frozen.to_string();
        assert!(text.contains("frozen"), "{text}");
        assert_eq!(AtaSecurity::parse(&[0; 511]), None);
    }
}
