//! NVMe drives: what a controller and a namespace say about erasing, and the admin commands that
//! erase (NVM Express base specification 2.0, sections 5.14, 5.16, 5.17 and 5.24).

use std::time::Duration;

use trivet_board_linux::NvmeAdminCommand;

/// Bytes of an identify structure.
pub const NVME_IDENTIFY_BYTES: usize = 4096;

/// Bytes of the sanitize status log.
pub const NVME_SANITIZE_LOG_BYTES: usize = 512;

/// All namespaces.
pub const NVME_ALL_NAMESPACES: u32 = u32::MAX;

/// How long a format may take. The stock agent has no limit; ours is that of the slowest drives.
pub const NVME_FORMAT_TIMEOUT: Duration = Duration::from_hours(12);

/// How long a drive may sanitize itself. Ours.
pub const NVME_SANITIZE_TIMEOUT: Duration = Duration::from_hours(48);

/// Admin opcodes.
const GET_LOG_PAGE: u8 = 0x02;
const IDENTIFY: u8 = 0x06;
const FORMAT_NVM: u8 = 0x80;
const SANITIZE: u8 = 0x84;

/// The identifier of the sanitize status log.
const LOG_SANITIZE: u32 = 0x81;

/// Secure erase settings of Format NVM.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NvmeFormatErase {
    /// All data are overwritten or deallocated.
    UserData,
    /// The key of the data is deleted.
    Cryptographic,
}

/// Actions of Sanitize.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NvmeSanitizeAction {
    /// Blocks are erased by the medium.
    BlockErase,
    /// Blocks are overwritten.
    Overwrite,
    /// The key of the data is deleted.
    CryptoErase,
}

/// What a controller can do.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "they are the bits of the specification"
)]
pub struct NvmeController {
    /// It has Format NVM.
    pub can_format: bool,
    /// Format NVM can delete the key.
    pub can_format_cryptographic: bool,
    /// Format NVM with an erasure is for all namespaces.
    pub erases_all_namespaces: bool,
    /// Sanitize can delete the key.
    pub can_sanitize_crypto: bool,
    /// Sanitize can erase blocks.
    pub can_sanitize_block: bool,
    /// Sanitize can overwrite.
    pub can_sanitize_overwrite: bool,
    /// Namespaces that it has at most.
    pub namespaces: u32,
}

/// How far a sanitize operation is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NvmeSanitizeStatus {
    /// None was started.
    Never,
    /// It has ended.
    Done,
    /// It runs; the part of 65536 that is done.
    Running(u16),
    /// It has failed.
    Failed,
}

impl NvmeController {
    /// Parses the identify structure of the controller. `None` if it is short.
    pub fn parse(identify: &[u8]) -> Option<Self> {
        let identify: &[u8; NVME_IDENTIFY_BYTES] = identify.first_chunk()?;
        let number32 = |at: usize| {
            u32::from_le_bytes([
                identify[at],
                identify[at + 1],
                identify[at + 2],
                identify[at + 3],
            ])
        };
        let (optional, sanitize) = (identify[256], number32(328));
        let format = identify[524];
        Some(Self {
            can_format: optional & 2 != 0,
            can_format_cryptographic: format & 4 != 0,
            erases_all_namespaces: format & 2 != 0,
            can_sanitize_crypto: sanitize & 1 != 0,
            can_sanitize_block: sanitize & 2 != 0,
            can_sanitize_overwrite: sanitize & 4 != 0,
            namespaces: number32(516),
        })
    }

    /// The erasure by Format NVM; `None` without that command. Deleting the key is preferred, as
    /// by the stock agent.
    pub fn format_erase(&self) -> Option<NvmeFormatErase> {
        let erase = if self.can_format_cryptographic {
            NvmeFormatErase::Cryptographic
        } else {
            NvmeFormatErase::UserData
        };
        self.can_format.then_some(erase)
    }

    /// The best sanitize action; `None` without that command. Overwriting wears the medium out.
    pub fn sanitize_action(&self) -> Option<NvmeSanitizeAction> {
        [
            (self.can_sanitize_crypto, NvmeSanitizeAction::CryptoErase),
            (self.can_sanitize_block, NvmeSanitizeAction::BlockErase),
            (self.can_sanitize_overwrite, NvmeSanitizeAction::Overwrite),
        ]
        .into_iter()
        .find_map(|(can, action)| can.then_some(action))
    }
}

/// The format of a namespace's blocks: which it has now. `None` if the structure is short.
pub fn nvme_current_format(identify_namespace: &[u8]) -> Option<u8> {
    let identify: &[u8; NVME_IDENTIFY_BYTES] = identify_namespace.first_chunk()?;
    let formatted = identify[26];
    // Bits 5 and 6 are the upper part where there are more than 16 formats.
    Some(formatted & 0x0f | (formatted >> 5 & 3) << 4)
}

/// Identify of the controller.
pub fn identify_nvme_controller() -> NvmeAdminCommand {
    command(IDENTIFY, 0, [1, 0, 0, 0, 0, 0])
}

/// Identify of a namespace.
pub fn identify_nvme_namespace(namespace: u32) -> NvmeAdminCommand {
    command(IDENTIFY, namespace, [0; 6])
}

/// Format NVM with an erasure. The blocks keep their format.
pub fn format_nvme(namespace: u32, format: u8, erase: NvmeFormatErase) -> NvmeAdminCommand {
    let erase = match erase {
        NvmeFormatErase::UserData => 1,
        NvmeFormatErase::Cryptographic => 2,
    };
    let format = u32::from(format & 0x0f) | u32::from(format >> 4 & 3) << 12;
    command(FORMAT_NVM, namespace, [format | erase << 9, 0, 0, 0, 0, 0])
}

/// Sanitize. It goes on after a reset, and the drive refuses everything else until it has ended.
pub fn sanitize_nvme(action: NvmeSanitizeAction) -> NvmeAdminCommand {
    let action = match action {
        NvmeSanitizeAction::BlockErase => 2,
        // One pass.
        NvmeSanitizeAction::Overwrite => 3 | 1 << 4,
        NvmeSanitizeAction::CryptoErase => 4,
    };
    command(SANITIZE, 0, [action, 0, 0, 0, 0, 0])
}

/// Get Log Page of the sanitize status.
pub fn nvme_sanitize_log() -> NvmeAdminCommand {
    let dwords = NVME_SANITIZE_LOG_BYTES as u32 / 4 - 1;
    command(
        GET_LOG_PAGE,
        NVME_ALL_NAMESPACES,
        [LOG_SANITIZE | dwords << 16, 0, 0, 0, 0, 0],
    )
}

/// Parses the sanitize status log. `None` if it is short.
pub fn parse_nvme_sanitize_log(log: &[u8]) -> Option<NvmeSanitizeStatus> {
    let &[low, high, status, ..] = log else {
        return None;
    };
    Some(match status & 7 {
        0 => NvmeSanitizeStatus::Never,
        2 => NvmeSanitizeStatus::Running(u16::from_le_bytes([low, high])),
        1 | 4 => NvmeSanitizeStatus::Done,
        _ => NvmeSanitizeStatus::Failed,
    })
}

fn command(opcode: u8, namespace: u32, dwords: [u32; 6]) -> NvmeAdminCommand {
    NvmeAdminCommand {
        opcode,
        namespace,
        dwords,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn controller(values: &[(usize, u8)]) -> NvmeController {
        let mut identify = [0; NVME_IDENTIFY_BYTES];
        for &(at, value) in values {
            identify[at] = value;
        }
        NvmeController::parse(&identify).unwrap()
    }

    #[test]
    fn a_controller_says_what_it_can() {
        let all = controller(&[(256, 2), (524, 6), (328, 7), (516, 4)]);
        assert_eq!(all.format_erase(), Some(NvmeFormatErase::Cryptographic));
        assert_eq!(all.sanitize_action(), Some(NvmeSanitizeAction::CryptoErase));
        assert!(all.erases_all_namespaces);
        assert_eq!(all.namespaces, 4);
        let some = controller(&[(256, 2), (328, 6)]);
        assert_eq!(some.format_erase(), Some(NvmeFormatErase::UserData));
        assert_eq!(some.sanitize_action(), Some(NvmeSanitizeAction::BlockErase));
        let last = controller(&[(328, 4)]);
        assert_eq!(last.sanitize_action(), Some(NvmeSanitizeAction::Overwrite));
        assert_eq!(controller(&[]).format_erase(), None);
        assert_eq!(controller(&[]).sanitize_action(), None);
        assert_eq!(NvmeController::parse(&[0; 4095]), None);
    }

    #[test]
    fn commands_are_those_of_the_specification() {
        let format = format_nvme(1, 3, NvmeFormatErase::UserData);
        assert_eq!((format.opcode, format.namespace), (0x80, 1));
        assert_eq!(format.dwords[0], 3 | 1 << 9);
        let format = format_nvme(NVME_ALL_NAMESPACES, 0x11, NvmeFormatErase::Cryptographic);
        assert_eq!(format.dwords[0], 1 | 1 << 12 | 2 << 9);
        for (action, dword) in [
            (NvmeSanitizeAction::BlockErase, 2),
            (NvmeSanitizeAction::Overwrite, 0x13),
            (NvmeSanitizeAction::CryptoErase, 4),
        ] {
            assert_eq!(sanitize_nvme(action).dwords[0], dword);
            assert_eq!(sanitize_nvme(action).opcode, 0x84);
        }
        assert_eq!(nvme_sanitize_log().dwords[0], 0x81 | 127 << 16);
        assert_eq!(identify_nvme_controller().dwords[0], 1);
        assert_eq!(identify_nvme_namespace(2).namespace, 2);
    }

    #[test]
    fn the_format_of_the_blocks_is_kept() {
        let mut identify = [0; NVME_IDENTIFY_BYTES];
        identify[26] = 0x25;
        assert_eq!(nvme_current_format(&identify), Some(0x15));
        assert_eq!(nvme_current_format(&[]), None);
    }

    #[test]
    fn the_status_of_a_sanitize_operation_is_read() {
        let log = |progress: u16, status: u8| {
            let [low, high] = progress.to_le_bytes();
            parse_nvme_sanitize_log(&[low, high, status, 1]).unwrap()
        };
        assert_eq!(log(0xffff, 0), NvmeSanitizeStatus::Never);
        assert_eq!(log(0xffff, 1), NvmeSanitizeStatus::Done);
        assert_eq!(log(0x8000, 2), NvmeSanitizeStatus::Running(0x8000));
        assert_eq!(log(0, 3), NvmeSanitizeStatus::Failed);
        assert_eq!(log(0, 4), NvmeSanitizeStatus::Done);
        assert_eq!(parse_nvme_sanitize_log(&[0, 0]), None);
    }
}
