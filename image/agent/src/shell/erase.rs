//! Erases the disks of this machine, one after the other, with `trivet-image-disks`.
//!
//! A disk that fails does not stop the others: each that was not erased is in the error. The
//! result has for each disk what was tried, as evidence.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use trivet_board_linux::{BlockAccess, BlockFile};
use trivet_image_disks::{
    AtaEraseRefusal, BlockEraseDevice, DiskEraseError, DriveFacts, EraseProgress, EraseSettings,
    RootDiskCandidate, drive_facts, erase_disk, erase_metadata, is_frozen, refuse_shared,
};

use crate::state_machine::{AgentEraseOrder, AgentWorkError};

/// A disk, and why it is not erased.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct EraseTarget {
    pub(super) path: PathBuf,
    pub(super) skip_reason: Option<&'static str>,
}

/// Which disks are erased: not those of the running system (`system`, by the name of the
/// device), virtual media and those that the node excludes.
pub(super) fn erase_targets(
    disks: &[RootDiskCandidate],
    system: &[String],
    media: &[PathBuf],
    order: &AgentEraseOrder,
) -> Vec<EraseTarget> {
    let targets = disks.iter().filter_map(|candidate| {
        let path = PathBuf::from(candidate.disk.name.as_deref()?);
        let name = device_name(&path);
        let skip_reason = if system.contains(&name) {
            Some("the running system is on it")
        } else if media.contains(&path) {
            Some("it is a virtual medium")
        } else if order.skipped.iter().any(|hints| hints.matches(candidate)) {
            Some("skip_block_devices of the node names it")
        } else {
            None
        };
        Some(EraseTarget { path, skip_reason })
    });
    targets.collect()
}

fn device_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// Erases disks. `note` gets the path of a disk and a line for the log.
pub(super) fn erase_disks(
    targets: &[EraseTarget],
    order: &AgentEraseOrder,
    seed: u64,
    note: &mut dyn FnMut(String, String),
) -> Result<Value, AgentWorkError> {
    let mut evidence = Map::new();
    let mut failures = Vec::new();
    for target in targets {
        let device = target.path.display().to_string();
        let mut note = |words: String| note(device.clone(), words);
        let erased = match target.skip_reason {
            Some(reason) => Ok(Err(reason)),
            None => erase_one(&target.path, order, seed, &mut note),
        };
        let found = match erased {
            Ok(Ok(found)) => {
                let method = found.get("method").and_then(Value::as_str);
                note(format!("erased by {}", method.unwrap_or_default()));
                found
            }
            Ok(Err(reason)) => {
                note(format!("not erased: {reason}"));
                json!({ "skipped": reason })
            }
            Err(reason) => {
                note(format!("not erased: {reason}"));
                failures.push(format!("{device}: {reason}"));
                continue;
            }
        };
        evidence.insert(device, found);
    }
    if failures.is_empty() {
        Ok(evidence.into())
    } else {
        Err(AgentWorkError::Erase(failures.join("; ")))
    }
}

/// Erases one disk. The inner error is why it is skipped.
fn erase_one(
    path: &Path,
    order: &AgentEraseOrder,
    seed: u64,
    note: &mut dyn FnMut(String),
) -> Result<Result<Value, &'static str>, String> {
    // The kernel refuses to open a read-only disk for writing with an error of its own.
    let facts = BlockFile::open(path, BlockAccess::Read).map_err(open_error)?;
    if facts.geometry().is_read_only {
        if order.settings.skips_read_only {
            return Ok(Err("the disk is read-only"));
        }
        return Err(DiskEraseError::ReadOnly.to_string());
    }
    drop(facts);
    let mut disk = BlockFile::open(path, BlockAccess::Write).map_err(open_error)?;
    let named = |error: DiskEraseError| error.to_string();
    if !order.whole {
        let evidence = erase_metadata(&mut disk, order.guards_shared).map_err(named)?;
        return Ok(Ok(evidence.document()));
    }
    if order.guards_shared {
        refuse_shared(&mut disk).map_err(named)?;
    }
    let facts = drive_facts(&disk, Path::new("/"), &device_name(path));
    if let Some(refusal) = refusal(&facts, &order.settings) {
        return Err(refusal.to_string());
    }
    let mut disk = BlockEraseDevice(disk);
    let mut last = None;
    let mut report = |now: EraseProgress| {
        let tenth = tenth(&now);
        if last != Some((now.method, tenth)) {
            last = Some((now.method, tenth));
            note(format!("{}, {} %", now.method, tenth * 10));
        }
    };
    let evidence = erase_disk(&mut disk, &facts, &order.settings, seed, &mut report);
    let evidence = evidence.map_err(named)?;
    // Nothing has the old partitions open; if the kernel refuses, the next boot reads them.
    let _ = disk.0.reread_partitions();
    Ok(Ok(evidence.document()))
}

fn open_error(error: io::Error) -> String {
    if error.kind() == io::ErrorKind::ResourceBusy {
        "the disk is in use".to_owned()
    } else {
        error.to_string()
    }
}

/// A drive that cannot erase itself because it is frozen may do so after a power cycle. As for
/// the stock agent, that is a failure unless the settings allow other methods then.
fn refusal(facts: &DriveFacts, settings: &EraseSettings) -> Option<AtaEraseRefusal> {
    let is_refused = settings.ata && !settings.continues_after_failure && is_frozen(facts);
    is_refused.then_some(AtaEraseRefusal::Frozen)
}

/// How many tenths are done.
fn tenth(progress: &EraseProgress) -> u64 {
    let tenths = u128::from(progress.done_bytes) * 10;
    let tenths = tenths.checked_div(progress.total_bytes.into());
    tenths.map_or(0, |tenths| tenths.min(10) as u64)
}

#[cfg(test)]
mod tests;
