//! Commands to drives, through `board/linux`.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use trivet_board_linux::{BlockFile, ScsiTransfer};

use super::{DriveFacts, EraseDevice, SANITIZE_POLL};
use crate::{
    ATA_SECTOR_BYTES, AtaCommand, AtaErasePlan, AtaSecurity, NVME_FORMAT_TIMEOUT,
    NVME_IDENTIFY_BYTES, NVME_SANITIZE_LOG_BYTES, NVME_SANITIZE_TIMEOUT, NvmeController,
    NvmeFormatErase, NvmeSanitizeAction, NvmeSanitizeStatus, TargetDisk, format_nvme,
    identify_nvme_controller, identify_nvme_namespace, nvme_current_format, nvme_sanitize_log,
    parse_nvme_sanitize_log, sanitize_nvme, security_data,
};

/// How long a drive may take for a command that does not erase. Ours.
const SHORT_TIMEOUT: Duration = Duration::from_mins(1);

/// A block device whose drive takes commands.
#[derive(Debug)]
pub struct BlockEraseDevice(pub BlockFile);

impl TargetDisk for BlockEraseDevice {
    fn bytes(&self) -> u64 {
        TargetDisk::bytes(&self.0)
    }

    fn sector_bytes(&self) -> u64 {
        TargetDisk::sector_bytes(&self.0)
    }

    fn is_read_only(&self) -> bool {
        TargetDisk::is_read_only(&self.0)
    }

    fn read_at(&mut self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        TargetDisk::read_at(&mut self.0, buffer, at)
    }

    fn write_at(&mut self, bytes: &[u8], at: u64) -> io::Result<()> {
        TargetDisk::write_at(&mut self.0, bytes, at)
    }

    fn write_zeroes(&mut self, at: u64, bytes: u64) -> io::Result<()> {
        TargetDisk::write_zeroes(&mut self.0, at, bytes)
    }

    fn discard(&mut self, at: u64, bytes: u64) -> io::Result<()> {
        TargetDisk::discard(&mut self.0, at, bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        TargetDisk::flush(&mut self.0)
    }

    fn reread_partitions(&mut self) -> io::Result<()> {
        TargetDisk::reread_partitions(&mut self.0)
    }

    fn is_present(&self) -> bool {
        TargetDisk::is_present(&self.0)
    }
}

/// Asks a drive what it can. `name` is that of its block device, such as `sda`; `root` is `/`.
pub fn drive_facts(device: &BlockFile, root: &Path, name: &str) -> DriveFacts {
    let queue = root
        .join("sys/block")
        .join(name)
        .join("queue/discard_max_bytes");
    let discard = std::fs::read_to_string(queue).unwrap_or_default();
    let mut identify = vec![0; NVME_IDENTIFY_BYTES];
    let nvme = device.nvme_admin(identify_nvme_controller(), &mut identify, SHORT_TIMEOUT);
    let nvme = matches!(nvme, Ok((0, _))).then(|| NvmeController::parse(&identify));
    let mut identify = [0; ATA_SECTOR_BYTES];
    let transfer = ScsiTransfer::In(&mut identify);
    let command = AtaCommand::Identify.scsi_command();
    let ata = device.scsi_command(&command, transfer, SHORT_TIMEOUT);
    let is_ata = ata.is_ok_and(|reply| reply.status == 0 && reply.transport_error == 0);
    DriveFacts {
        nvme: nvme.flatten(),
        ata: is_ata.then(|| AtaSecurity::parse(&identify)).flatten(),
        can_discard: discard.trim().parse::<u64>().is_ok_and(|bytes| bytes > 0),
    }
}

impl EraseDevice for BlockEraseDevice {
    fn nvme_format(&mut self, erase: NvmeFormatErase) -> Result<(), String> {
        let namespace = self.0.nvme_namespace().map_err(|error| error.to_string())?;
        let mut identify = vec![0; NVME_IDENTIFY_BYTES];
        self.nvme(
            identify_nvme_namespace(namespace),
            &mut identify,
            SHORT_TIMEOUT,
        )?;
        let format = nvme_current_format(&identify).ok_or("its identify data are short")?;
        let command = format_nvme(namespace, format, erase);
        self.nvme(command, &mut [], NVME_FORMAT_TIMEOUT)
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the shell reads the clock to end its wait for the drive"
    )]
    fn nvme_sanitize(
        &mut self,
        action: NvmeSanitizeAction,
        progress: &mut dyn FnMut(u16),
    ) -> Result<(), String> {
        self.nvme(sanitize_nvme(action), &mut [], SHORT_TIMEOUT)?;
        let start = Instant::now();
        while start.elapsed() < NVME_SANITIZE_TIMEOUT {
            let mut log = vec![0; NVME_SANITIZE_LOG_BYTES];
            self.nvme(nvme_sanitize_log(), &mut log, SHORT_TIMEOUT)?;
            match parse_nvme_sanitize_log(&log) {
                Some(NvmeSanitizeStatus::Done) => return Ok(()),
                Some(NvmeSanitizeStatus::Running(part)) => progress(part),
                Some(NvmeSanitizeStatus::Failed) => {
                    return Err("the drive reports that it failed".to_owned());
                }
                Some(NvmeSanitizeStatus::Never) | None => {
                    return Err("the drive did not start".to_owned());
                }
            }
            std::thread::park_timeout(SANITIZE_POLL);
        }
        Err("the drive did not end in time".to_owned())
    }

    fn ata_secure_erase(&mut self, plan: AtaErasePlan) -> Result<(), String> {
        for command in plan.commands() {
            let data = security_data(plan.is_enhanced && command == AtaCommand::EraseUnit);
            let is_erasure = command == AtaCommand::EraseUnit;
            let timeout = if is_erasure {
                plan.timeout
            } else {
                SHORT_TIMEOUT
            };
            let outcome = self.ata(command, &data, timeout);
            if let Err(reason) = outcome {
                if is_erasure {
                    // Otherwise the drive stays locked after its next power cycle.
                    let _ = self.ata(AtaCommand::DisablePassword, &data, SHORT_TIMEOUT);
                }
                return Err(reason);
            }
        }
        Ok(())
    }
}

impl BlockEraseDevice {
    fn nvme(
        &self,
        command: trivet_board_linux::NvmeAdminCommand,
        buffer: &mut [u8],
        timeout: Duration,
    ) -> Result<(), String> {
        match self.0.nvme_admin(command, buffer, timeout) {
            Ok((0, _)) => Ok(()),
            Ok((status, _)) => Err(format!("the drive replied with status {status:#06x}")),
            Err(error) => Err(error.to_string()),
        }
    }

    fn ata(
        &self,
        command: AtaCommand,
        data: &[u8; ATA_SECTOR_BYTES],
        timeout: Duration,
    ) -> Result<(), String> {
        let transfer = if command.has_data() {
            ScsiTransfer::Out(data)
        } else {
            ScsiTransfer::None
        };
        let reply = self
            .0
            .scsi_command(&command.scsi_command(), transfer, timeout);
        let reply = reply.map_err(|error| error.to_string())?;
        if reply.transport_error != 0 {
            return Err(format!(
                "the adapter reports error {:#06x}",
                reply.transport_error
            ));
        }
        // A command that reports its registers ends with CHECK CONDITION: the status register is
        // in the descriptor (SAT-3, section 12.2.6), and its bit 0 is an error.
        let register = reply.sense.get(8 + 13).copied();
        let is_reported = reply.sense.get(8) == Some(&0x09);
        match (reply.status, register) {
            (0, _) => Ok(()),
            (2, Some(register)) if is_reported && register & 1 == 0 => Ok(()),
            _ => Err(format!("the drive aborted {command:?}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EraseSettings;
    use trivet_board_linux::BlockAccess;

    #[test]
    fn a_file_has_no_drive_and_is_overwritten() {
        let name = format!("trivet-erase-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, vec![7; 3 << 20]).unwrap();
        let file = BlockFile::open(&path, BlockAccess::Write).unwrap();
        let facts = drive_facts(&file, Path::new("/nowhere"), "sda");
        assert_eq!(facts, DriveFacts::default());
        let mut device = BlockEraseDevice(file);
        assert!(device.nvme_format(NvmeFormatErase::UserData).is_err());
        let action = NvmeSanitizeAction::BlockErase;
        assert!(device.nvme_sanitize(action, &mut |_| ()).is_err());
        let plan = AtaErasePlan {
            is_enhanced: false,
            unlocks: false,
            timeout: SHORT_TIMEOUT,
        };
        assert!(device.ata_secure_erase(plan).is_err());
        let settings = EraseSettings::default();
        let evidence = crate::erase_disk(&mut device, &facts, &settings, 5, &mut |_| ()).unwrap();
        assert_eq!(evidence.method, "overwrite");
        let bytes = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(bytes, vec![0; 3 << 20]);
    }
}
