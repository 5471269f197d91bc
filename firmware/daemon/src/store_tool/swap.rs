//! Replaces a store by a new one: the steps with files, and the leftovers of steps that
//! a power cut interrupted.
//!
//! The new store is written under another name and is durable before the old file gets
//! a second name, which is durable before the new file is renamed. So at every moment
//! the name `store` refers to the complete old store or to the complete new one.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use tracing::{info, warn};
use trivet_board_linux::FileFlash;
use trivet_store::layout::SEGMENT_BYTES;
use trivet_store::{RecordKey, Store, rebuild};

use super::key_file;

/// Most files of former stores that are kept in the data directory.
const FORMER_STORES_MAX: u32 = 99;

/// The name of a new store until it is in place.
pub(super) const REPAIRED: &str = "store.repaired";
pub(super) const IMPORTED: &str = "store.imported";

/// The name of a former store, before its number.
pub(super) const DAMAGED: &str = "store.damaged";
pub(super) const REPLACED: &str = "store.replaced";

/// One step with the files of a data directory.
pub(super) enum SwapStep<'a> {
    /// Create this file and write it.
    Write(&'a Path, &'a mut dyn FnMut(&Path) -> anyhow::Result<()>),
    /// Remove this file, if it is there.
    Remove(&'a Path),
    /// Change the owner of this file to a user and a group.
    GiveTo(&'a Path, (u32, u32)),
    /// Make this file durable.
    SyncFile(&'a Path),
    /// Add the second name to the first file.
    Link(&'a Path, &'a Path),
    /// Rename the first file to the second name.
    Rename(&'a Path, &'a Path),
    /// Make the names in this directory durable.
    SyncDirectory(&'a Path),
}

/// Executes the steps.
pub(super) trait SwapDisk {
    fn apply(&mut self, step: SwapStep<'_>) -> anyhow::Result<()>;
}

/// The file system.
pub(super) struct RealDisk;

impl SwapDisk for RealDisk {
    fn apply(&mut self, step: SwapStep<'_>) -> anyhow::Result<()> {
        match step {
            SwapStep::Write(path, write) => return write(path),
            SwapStep::Remove(path) => match fs::remove_file(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                done => done?,
            },
            SwapStep::GiveTo(path, (user, group)) => chown(path, Some(user), Some(group))?,
            SwapStep::SyncFile(path) | SwapStep::SyncDirectory(path) => {
                File::open(path)?.sync_all()?;
            }
            SwapStep::Link(from, to) => fs::hard_link(from, to)?,
            SwapStep::Rename(from, to) => fs::rename(from, to)?,
        }
        Ok(())
    }
}

/// A new store that is not yet in place. It is locked until it is.
pub(super) struct NewStore {
    path: PathBuf,
    _held: Store<FileFlash>,
}

/// Writes a store under another name, durably, and opens it as the box will.
pub(super) fn write_store(
    disk: &mut dyn SwapDisk,
    data: &Path,
    name: &str,
    size: u64,
    records: &BTreeMap<RecordKey, Vec<u8>>,
) -> anyhow::Result<NewStore> {
    let path = data.join(name);
    let cannot = || format!("the new store {} cannot be written", path.display());
    // A file that a power cut left behind is incomplete.
    for old in [&path, &unfilled(&path)] {
        disk.apply(SwapStep::Remove(old)).with_context(cannot)?;
    }
    match write_file(disk, data, &path, size, records).with_context(cannot) {
        Ok(held) => Ok(NewStore { path, _held: held }),
        Err(error) => {
            let _ = disk.apply(SwapStep::Remove(&path));
            Err(error)
        }
    }
}

fn write_file(
    disk: &mut dyn SwapDisk,
    data: &Path,
    path: &Path,
    size: u64,
    records: &BTreeMap<RecordKey, Vec<u8>>,
) -> anyhow::Result<Store<FileFlash>> {
    let mut held = None;
    let mut write = |path: &Path| -> anyhow::Result<()> {
        let flash = FileFlash::open(path, size)?;
        let flash = rebuild(flash, SEGMENT_BYTES, records)?;
        let store = Store::open(flash, key_file(data))?;
        store.records()?;
        held = Some(store);
        Ok(())
    };
    disk.apply(SwapStep::Write(path, &mut write))?;
    // If run by root, the new store gets the owner of the old one.
    let old = fs::metadata(data.join("store")).or_else(|_| fs::metadata(data))?;
    let new = fs::metadata(path)?;
    let owner = (old.uid(), old.gid());
    if owner != (new.uid(), new.gid()) {
        disk.apply(SwapStep::GiveTo(path, owner))?;
    }
    // Its content is durable already; its owner is not yet.
    disk.apply(SwapStep::SyncFile(path))?;
    held.context("the new store was not opened")
}

/// Replaces the old store by the new one, and keeps the old one under another name.
pub(super) fn replace(
    disk: &mut dyn SwapDisk,
    data: &Path,
    new: &NewStore,
    name: &str,
) -> anyhow::Result<PathBuf> {
    let retained = keep_former(disk, data, name)?;
    put_in_place(disk, data, new)?;
    Ok(retained)
}

/// Renames the new store to its final name.
pub(super) fn put_in_place(
    disk: &mut dyn SwapDisk,
    data: &Path,
    new: &NewStore,
) -> anyhow::Result<()> {
    let store = data.join("store");
    disk.apply(SwapStep::Rename(&new.path, &store))
        .and_then(|()| disk.apply(SwapStep::SyncDirectory(data)))
        .with_context(|| format!("{} cannot be replaced", store.display()))
}

/// Adds a second name to the store's file; uses the one of an interrupted run, if any.
fn keep_former(disk: &mut dyn SwapDisk, data: &Path, name: &str) -> anyhow::Result<PathBuf> {
    let store = data.join("store");
    let cannot = || format!("{} cannot get a second name", store.display());
    let about = fs::metadata(&store).with_context(cannot)?;
    for path in former_names(data, name) {
        match path.symlink_metadata() {
            Ok(there) if !is_same(&there, &about) => continue,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let link = SwapStep::Link(&store, &path);
                disk.apply(link).with_context(cannot)?;
            }
            Err(error) => return Err(error).with_context(cannot),
        }
        disk.apply(SwapStep::SyncDirectory(data))
            .with_context(cannot)?;
        return Ok(path);
    }
    bail!(
        "there are {FORMER_STORES_MAX} files {name}-N in {} already: remove those that are not \
         needed",
        data.display()
    )
}

fn former_names(data: &Path, name: &str) -> impl Iterator<Item = PathBuf> {
    (1..=FORMER_STORES_MAX).map(move |number| data.join(format!("{name}-{number}")))
}

fn is_same(one: &fs::Metadata, other: &fs::Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// The name of a store's file while it is being filled with zeros.
fn unfilled(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".new");
    PathBuf::from(name)
}

/// A file that an interrupted repair or import left behind.
#[derive(Debug)]
pub(super) struct Leftover {
    pub(super) path: PathBuf,
    /// Whether it is the store itself under a second name.
    is_store: bool,
}

impl Leftover {
    /// What the file is, and what happens to it.
    pub(super) fn explain(&self) -> String {
        let path = self.path.display();
        if self.is_store {
            format!(
                "{path} is the store itself: an interrupted repair or import gave it this second \
                 name; the next start of the box removes the name, and a repair keeps the damaged \
                 file under it"
            )
        } else {
            format!(
                "{path} is a new store that an interrupted repair or import did not finish; it is \
                 not used, and the next start of the box removes it"
            )
        }
    }
}

/// The leftovers of interrupted repairs and imports in the data directory.
pub(super) fn leftovers(data: &Path) -> Vec<Leftover> {
    let new = [REPAIRED, IMPORTED].map(|name| data.join(name));
    let new = new.into_iter().flat_map(|path| [unfilled(&path), path]);
    let new = new.filter(|path| path.symlink_metadata().is_ok());
    let mut found: Vec<Leftover> = new
        .map(|path| Leftover {
            path,
            is_store: false,
        })
        .collect();
    let Ok(store) = fs::metadata(data.join("store")) else {
        return found;
    };
    if store.nlink() > 1 {
        let former = [DAMAGED, REPLACED].into_iter();
        let former = former.flat_map(|name| former_names(data, name));
        let same = former.filter(|path| {
            let about = path.symlink_metadata();
            about.is_ok_and(|about| is_same(&about, &store))
        });
        found.extend(same.map(|path| Leftover {
            path,
            is_store: true,
        }));
    }
    found
}

/// Removes the leftovers of interrupted repairs and imports, and logs that. The store
/// must be open and intact: then no data is lost. A file that another process is
/// writing stays.
pub(crate) fn remove_leftovers(data: &Path) {
    for leftover in leftovers(data) {
        let path = &leftover.path;
        let shown = path.display();
        let held = if leftover.is_store {
            None
        } else {
            match FileFlash::open_read_only(path) {
                Ok(held) => Some(held),
                Err(_) => continue,
            }
        };
        match fs::remove_file(path) {
            Ok(()) => info!("{shown} was removed: an interrupted repair or import left it"),
            Err(error) => warn!(
                "{shown} cannot be removed, which an interrupted repair or import left: {error}; \
                 remove it by hand"
            ),
        }
        drop(held);
    }
}

#[cfg(test)]
mod tests;
