//! Erasing a disk: which methods, in which order, and what proves it.
//!
//! As in the stock agent, a disk erases itself if it can (NVMe format or sanitize, ATA secure
//! erase), then it is discarded if that really gives zeros, and as a last resort it is
//! overwritten. A method that a disk does not have is skipped with its reason; a method that
//! fails ends the erasure, unless the settings say otherwise. What was tried is returned as
//! evidence.

mod device;
mod overwrite;

use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::signatures::{FoundSignature, HEAD_BYTES, TAIL_BYTES};
use crate::table::DiskTable;
use crate::target::{flush, read, write_zeroes};
use crate::{
    AtaErasePlan, AtaEraseRefusal, AtaSecurity, NvmeController, NvmeFormatErase,
    NvmeSanitizeAction, TargetDisk, TargetDiskError, find_signatures, metadata_ranges,
};

pub use device::{BlockEraseDevice, drive_facts};
use overwrite::{discard_and_check, overwrite};

/// Most passes of an overwrite; the setting is limited to it. Ours.
pub const OVERWRITE_PASSES_MAX: u32 = 35;

/// How a disk is erased.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum EraseMethod {
    /// NVMe Format NVM.
    NvmeFormat(NvmeFormatErase),
    /// NVMe Sanitize.
    NvmeSanitize(NvmeSanitizeAction),
    /// ATA SECURITY ERASE UNIT.
    AtaSecureErase(AtaErasePlan),
    /// Discard, proven by reading zeros.
    Discard,
    /// Random bytes in passes, and zeros at the end if wanted.
    Overwrite {
        /// Passes of random bytes.
        passes: u32,
        /// Zeros follow.
        zeroize: bool,
    },
}

impl EraseMethod {
    /// Its name in evidence.
    pub fn name(self) -> &'static str {
        match self {
            Self::NvmeFormat(NvmeFormatErase::UserData) => "nvme-format-user-data",
            Self::NvmeFormat(NvmeFormatErase::Cryptographic) => "nvme-format-crypto",
            Self::NvmeSanitize(NvmeSanitizeAction::BlockErase) => "nvme-sanitize-block",
            Self::NvmeSanitize(NvmeSanitizeAction::Overwrite) => "nvme-sanitize-overwrite",
            Self::NvmeSanitize(NvmeSanitizeAction::CryptoErase) => "nvme-sanitize-crypto",
            Self::AtaSecureErase(plan) if plan.is_enhanced => "ata-secure-erase-enhanced",
            Self::AtaSecureErase(_) => "ata-secure-erase",
            Self::Discard => "discard",
            Self::Overwrite { .. } => "overwrite",
        }
    }

    /// Whether the drive does it by itself.
    fn is_by_drive(self) -> bool {
        !matches!(self, Self::Discard | Self::Overwrite { .. })
    }
}

/// The settings of an erasure: `driver_internal_info` of the node.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "they are Ironic's settings")]
pub struct EraseSettings {
    /// `agent_enable_nvme_secure_erase`.
    pub nvme: bool,
    /// `agent_enable_ata_secure_erase`.
    pub ata: bool,
    /// `agent_enable_discard_erase`.
    pub discard: bool,
    /// `agent_erase_devices_iterations`.
    pub passes: u32,
    /// `agent_erase_devices_zeroize`.
    pub zeroize: bool,
    /// `agent_continue_if_secure_erase_failed`, or its older name.
    pub continues_after_failure: bool,
    /// `agent_erase_skip_read_only`.
    pub skips_read_only: bool,
}

impl Default for EraseSettings {
    fn default() -> Self {
        Self {
            nvme: true,
            ata: true,
            discard: false,
            passes: 1,
            zeroize: true,
            continues_after_failure: false,
            skips_read_only: false,
        }
    }
}

impl EraseSettings {
    /// Reads the settings; those that are missing or malformed have the stock agent's defaults.
    pub fn parse(info: &Map<String, Value>) -> Self {
        let plain = Self::default();
        let flag = |name: &str, default| info.get(name).and_then(Value::as_bool).unwrap_or(default);
        let passes = info
            .get("agent_erase_devices_iterations")
            .and_then(Value::as_u64);
        let passes = passes.map(|passes| passes.min(OVERWRITE_PASSES_MAX.into()) as u32);
        let older = flag(
            "agent_continue_if_ata_erase_failed",
            plain.continues_after_failure,
        );
        Self {
            nvme: flag("agent_enable_nvme_secure_erase", plain.nvme),
            ata: flag("agent_enable_ata_secure_erase", plain.ata),
            discard: flag("agent_enable_discard_erase", plain.discard),
            passes: passes.unwrap_or(plain.passes),
            zeroize: flag("agent_erase_devices_zeroize", plain.zeroize),
            continues_after_failure: flag("agent_continue_if_secure_erase_failed", older),
            skips_read_only: flag("agent_erase_skip_read_only", plain.skips_read_only),
        }
    }
}

/// What is known about a drive before it is erased.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct DriveFacts {
    /// An NVMe controller.
    pub nvme: Option<NvmeController>,
    /// The security state of an ATA drive.
    pub ata: Option<AtaSecurity>,
    /// The device can discard.
    pub can_discard: bool,
}

/// A method that was tried or skipped.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct EraseAttempt {
    /// The method, by its name.
    pub method: &'static str,
    /// Why it was skipped or has failed; `None` if it has erased the disk.
    pub reason: Option<String>,
}

/// What proves that a disk was erased.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct EraseEvidence {
    /// Its size.
    pub bytes: u64,
    /// The method that erased it.
    pub method: &'static str,
    /// All that was tried, in order.
    pub attempts: Vec<EraseAttempt>,
    /// Parts of the disk that were read afterwards and had no data from before.
    pub checked_samples: usize,
}

impl EraseEvidence {
    /// For the history of a node.
    pub fn document(&self) -> Value {
        let attempts = self
            .attempts
            .iter()
            .map(|attempt| json!({"method": attempt.method, "reason": attempt.reason}));
        json!({
            "bytes": self.bytes,
            "method": self.method,
            "attempts": attempts.collect::<Vec<_>>(),
            "checked_samples": self.checked_samples,
        })
    }
}

/// How far an erasure is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct EraseProgress {
    /// The method.
    pub method: &'static str,
    /// Bytes that are done, of all passes.
    pub done_bytes: u64,
    /// Bytes of all passes; zero if the drive does not say.
    pub total_bytes: u64,
}

/// Why a disk was not erased.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum DiskEraseError {
    /// It refuses writes.
    #[error("the disk is read-only")]
    ReadOnly,
    /// It has a file system that several machines share.
    #[error("the disk has {0}, which other machines may use; it is not erased")]
    Protected(&'static str),
    /// A method has failed.
    #[error("{method} failed: {reason}")]
    Failed {
        /// The method.
        method: &'static str,
        /// The reason.
        reason: String,
    },
    /// No method is left.
    #[error("no method can erase the disk")]
    NoMethod,
    /// The disk still has data.
    #[error("the disk still has data at byte {at}")]
    NotErased {
        /// Where.
        at: u64,
    },
    /// The disk failed.
    #[error(transparent)]
    Disk(#[from] TargetDiskError),
}

/// A disk with the commands of its drive.
pub trait EraseDevice: TargetDisk {
    /// NVMe Format NVM of the namespace of this disk.
    fn nvme_format(&mut self, erase: NvmeFormatErase) -> Result<(), String>;

    /// NVMe Sanitize, until it has ended. `progress` gets the part of 65536 that is done.
    fn nvme_sanitize(
        &mut self,
        action: NvmeSanitizeAction,
        progress: &mut dyn FnMut(u16),
    ) -> Result<(), String>;

    /// The commands of an ATA secure erase, until it has ended.
    fn ata_secure_erase(&mut self, plan: AtaErasePlan) -> Result<(), String>;
}

/// The methods for a drive, in order, and those that it does not have with the reason.
pub fn plan_erase(
    facts: &DriveFacts,
    settings: &EraseSettings,
) -> (Vec<EraseMethod>, Vec<EraseAttempt>) {
    let mut methods = Vec::new();
    let mut skipped = Vec::new();
    let mut skip = |method, reason: String| {
        skipped.push(EraseAttempt {
            method,
            reason: Some(reason),
        });
    };
    if let Some(nvme) = facts.nvme.filter(|_| settings.nvme) {
        match nvme.format_erase() {
            // It would erase the other namespaces of the controller.
            Some(_) if nvme.erases_all_namespaces && nvme.namespaces > 1 => skip(
                "nvme-format",
                "the controller formats all of its namespaces at once".to_owned(),
            ),
            Some(erase) => methods.push(EraseMethod::NvmeFormat(erase)),
            None => skip(
                "nvme-format",
                "the controller does not support it".to_owned(),
            ),
        }
        match nvme.sanitize_action().filter(|_| nvme.namespaces <= 1) {
            Some(action) => methods.push(EraseMethod::NvmeSanitize(action)),
            None => skip(
                "nvme-sanitize",
                "the controller does not support it".to_owned(),
            ),
        }
    }
    if let Some(ata) = facts.ata.filter(|_| settings.ata) {
        match ata.plan() {
            Ok(plan) => methods.push(EraseMethod::AtaSecureErase(plan)),
            Err(refusal) => skip("ata-secure-erase", refusal.to_string()),
        }
    }
    if settings.discard {
        if facts.can_discard {
            methods.push(EraseMethod::Discard);
        } else {
            skip("discard", "the disk does not support it".to_owned());
        }
    }
    if settings.passes > 0 || settings.zeroize {
        methods.push(EraseMethod::Overwrite {
            passes: settings.passes,
            zeroize: settings.zeroize,
        });
    }
    (methods, skipped)
}

/// Whether a frozen drive is the reason that a disk cannot erase itself: after a power cycle it
/// may not be frozen.
pub fn is_frozen(facts: &DriveFacts) -> bool {
    facts
        .ata
        .is_some_and(|ata| ata.plan() == Err(AtaEraseRefusal::Frozen))
}

/// Erases a disk. `seed` makes the random bytes.
pub fn erase_disk(
    disk: &mut dyn EraseDevice,
    facts: &DriveFacts,
    settings: &EraseSettings,
    seed: u64,
    progress: &mut dyn FnMut(EraseProgress),
) -> Result<EraseEvidence, DiskEraseError> {
    if disk.is_read_only() {
        return Err(DiskEraseError::ReadOnly);
    }
    let (methods, mut attempts) = plan_erase(facts, settings);
    for method in methods {
        let name = method.name();
        let reason = match run(disk, method, seed, progress) {
            Ok(checked_samples) => {
                attempts.push(EraseAttempt {
                    method: name,
                    reason: None,
                });
                return Ok(EraseEvidence {
                    bytes: disk.bytes(),
                    method: name,
                    attempts,
                    checked_samples,
                });
            }
            // A disk that fails does not get better by another method.
            Err(DiskEraseError::Disk(error)) => return Err(error.into()),
            Err(DiskEraseError::Failed { reason, .. }) => reason,
            Err(other) => other.to_string(),
        };
        if method.is_by_drive() && !settings.continues_after_failure {
            return Err(DiskEraseError::Failed {
                method: name,
                reason,
            });
        }
        attempts.push(EraseAttempt {
            method: name,
            reason: Some(reason),
        });
    }
    match attempts.pop() {
        Some(EraseAttempt {
            method,
            reason: Some(reason),
        }) => Err(DiskEraseError::Failed { method, reason }),
        _ => Err(DiskEraseError::NoMethod),
    }
}

/// Runs one method, and returns how many parts of the disk were checked.
fn run(
    disk: &mut dyn EraseDevice,
    method: EraseMethod,
    seed: u64,
    progress: &mut dyn FnMut(EraseProgress),
) -> Result<usize, DiskEraseError> {
    let name = method.name();
    let failed = |reason| DiskEraseError::Failed {
        method: name,
        reason,
    };
    let mut report = |done_bytes, total_bytes| {
        progress(EraseProgress {
            method: name,
            done_bytes,
            total_bytes,
        });
    };
    report(0, 0);
    match method {
        EraseMethod::Discard => discard_and_check(disk),
        EraseMethod::Overwrite { passes, zeroize } => {
            overwrite(disk, passes, zeroize, seed, &mut report)
        }
        EraseMethod::NvmeFormat(erase) => {
            let before = overwrite::samples(disk)?;
            disk.nvme_format(erase).map_err(failed)?;
            overwrite::check_changed(disk, &before)
        }
        EraseMethod::NvmeSanitize(action) => {
            let before = overwrite::samples(disk)?;
            let mut part = |part: u16| report(u64::from(part), 1 << 16);
            disk.nvme_sanitize(action, &mut part).map_err(failed)?;
            overwrite::check_changed(disk, &before)
        }
        EraseMethod::AtaSecureErase(plan) => {
            let before = overwrite::samples(disk)?;
            disk.ata_secure_erase(plan).map_err(failed)?;
            overwrite::check_changed(disk, &before)
        }
    }
}

/// File systems that several machines use at once. The stock agent refuses to erase them, too.
const SHARED: [&str; 3] = ["gfs2", "VMFS_volume_member", "ocfs2"];

/// What was found and erased.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MetadataEvidence {
    /// The signatures that the disk and its partitions had.
    pub signatures: Vec<FoundSignature>,
    /// The ranges that were zeroed: offset and length.
    pub ranges: Vec<(u64, u64)>,
}

impl MetadataEvidence {
    /// For the history of a node.
    pub fn document(&self) -> Value {
        let signatures = self.signatures.iter();
        let signatures = signatures.map(|one| json!({"name": one.name, "at": one.at}));
        json!({
            "method": "metadata",
            "signatures": signatures.collect::<Vec<_>>(),
            "zeroed_bytes": self.ranges.iter().map(|(_, bytes)| bytes).sum::<u64>(),
        })
    }
}

/// The signatures of a disk and of its partitions.
pub fn disk_signatures(disk: &mut dyn TargetDisk) -> Result<Vec<FoundSignature>, TargetDiskError> {
    let disk_bytes = disk.bytes();
    let sector_bytes = disk.sector_bytes();
    let mut found = Vec::new();
    let mut places = vec![(0, disk_bytes)];
    places.extend(partition_places(disk)?);
    for (start, bytes) in places {
        let whole = bytes / sector_bytes * sector_bytes;
        let head_bytes = whole.min(HEAD_BYTES as u64);
        let tail_bytes = whole.min(TAIL_BYTES as u64);
        let mut head = vec![0; head_bytes as usize];
        read(disk, &mut head, start)?;
        let mut tail = vec![0; tail_bytes as usize];
        read(disk, &mut tail, start + whole - tail_bytes)?;
        let own = find_signatures(&head, &tail, whole).into_iter();
        found.extend(own.map(|one| FoundSignature {
            at: start + one.at,
            ..one
        }));
    }
    Ok(found)
}

/// Offset and length of the partitions that lie within the disk. A damaged table has none.
fn partition_places(disk: &mut dyn TargetDisk) -> Result<Vec<(u64, u64)>, TargetDiskError> {
    let table = match DiskTable::read(disk) {
        Ok(table) => table,
        Err(crate::DiskTableError::Gpt(_)) => DiskTable::Missing,
        Err(crate::DiskTableError::Disk(error)) => return Err(error),
    };
    let partitions = table.partitions(disk.sector_bytes()).into_iter();
    let within = partitions.filter(|one| {
        let end = one.start.checked_add(one.bytes);
        end.is_some_and(|end| end <= disk.bytes())
    });
    Ok(within.map(|one| (one.start, one.bytes)).collect())
}

fn check_shared(signatures: &[FoundSignature]) -> Result<(), DiskEraseError> {
    let shared = signatures.iter().find(|one| SHARED.contains(&one.name));
    shared.map_or(Ok(()), |shared| Err(DiskEraseError::Protected(shared.name)))
}

/// Refuses a disk with a file system that several machines share.
pub fn refuse_shared(disk: &mut dyn TargetDisk) -> Result<(), DiskEraseError> {
    check_shared(&disk_signatures(disk)?)
}

/// Deletes all partition tables and signatures: those of partitions first, then those of the
/// disk. Data in between remain.
pub fn erase_metadata(
    disk: &mut dyn TargetDisk,
    guards_shared: bool,
) -> Result<MetadataEvidence, DiskEraseError> {
    if disk.is_read_only() {
        return Err(DiskEraseError::ReadOnly);
    }
    let signatures = disk_signatures(disk)?;
    if guards_shared {
        check_shared(&signatures)?;
    }
    let partitions = partition_places(disk)?;
    let ranges = metadata_ranges(&partitions, disk.bytes(), disk.sector_bytes());
    // The table is deleted last: after a power cut the partitions are found again.
    for &(at, bytes) in ranges.iter().rev() {
        write_zeroes(disk, at, bytes)?;
    }
    flush(disk)?;
    if let Some(left) = disk_signatures(disk)?.first() {
        return Err(DiskEraseError::NotErased { at: left.at });
    }
    // A kernel that keeps old partitions would find them in use later.
    let _ = disk.reread_partitions();
    Ok(MetadataEvidence { signatures, ranges })
}

/// How long to wait between two looks at a drive that sanitizes itself.
pub const SANITIZE_POLL: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;
