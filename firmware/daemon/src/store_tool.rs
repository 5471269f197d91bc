//! `trivet store`: checks, exports, imports and repairs the store of a box that is
//! stopped. The crate `trivet-store` decides what is damaged and how it is repaired;
//! this module handles the files.

mod swap;

pub(crate) use swap::remove_leftovers;

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use tracing::{error, info};
use trivet_board_hal::{BoxKey, Flash as _, KeyVault as _};
use trivet_board_linux::{BoxKeyFile, FileFlash};
use trivet_store::layout::{PAGE_BYTES, SEGMENT_BYTES};
use trivet_store::{Export, OpenError, Salvage, SalvageOutcome};

use self::swap::{RealDisk, SwapDisk};
use crate::{exit, log, print};

/// Largest export that is read.
const EXPORT_BYTES_MAX: u64 = 4 << 30;

/// The location of the store.
#[derive(clap::Args)]
#[group(required = true, multiple = false)]
pub(crate) struct StoreLocation {
    /// The settings file that names the data directory
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The data directory of the box
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

/// What to do with the store. The box must be stopped.
#[derive(clap::Subcommand)]
pub(crate) enum StoreCommand {
    /// Read the whole store, write nothing, and name every damaged place; exit code 1
    /// if there is one
    Check {
        #[command(flatten)]
        place: StoreLocation,
    },
    /// Write all readable records as JSON lines, with their secrets sealed; exit code 1 if
    /// something is damaged and left out
    Export {
        #[command(flatten)]
        place: StoreLocation,
        /// Write to this new file, readable by its owner only, instead of standard output
        #[arg(long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Also write the key of the store: a full backup, as secret as the passwords
        /// in it
        #[arg(long)]
        with_secrets: bool,
    },
    /// Create a store from an export; without --with-secrets it needs the store.key of
    /// that time
    Import {
        #[command(flatten)]
        place: StoreLocation,
        /// The export
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Replace the existing store; it is kept as store.replaced-N
        #[arg(long)]
        replace: bool,
    },
    /// Make a damaged store usable: loses only what is damaged, names it, and keeps the
    /// damaged file as store.damaged-N
    Repair {
        #[command(flatten)]
        place: StoreLocation,
    },
}

/// The text to print, and whether there was no damage.
struct StoreToolReport {
    text: String,
    is_whole: bool,
}

impl StoreCommand {
    /// Runs the command and prints its result.
    pub(crate) fn run(self) -> ExitCode {
        // If this fails, a core dump could show the key; the command still works.
        let _ = trivet_board_linux::disable_core_dumps();
        let (Self::Check { place }
        | Self::Export { place, .. }
        | Self::Import { place, .. }
        | Self::Repair { place }) = &self;
        let data = match place.data() {
            Ok(data) => data,
            Err(code) => return code,
        };
        let done = match self {
            Self::Check { .. } => check(&data),
            Self::Export {
                output,
                with_secrets,
                ..
            } => export(&data, output.as_deref(), with_secrets),
            Self::Import { file, replace, .. } => import(&mut RealDisk, &data, &file, replace),
            Self::Repair { .. } => repair(&mut RealDisk, &data),
        };
        let code = match done {
            Ok(report) => match (print(&report.text), report.is_whole) {
                (code, true) => code,
                (_, false) => ExitCode::from(exit::FAILED),
            },
            Err(error) => {
                error!("{error:#}");
                ExitCode::from(exit::FAILED)
            }
        };
        log::flush();
        code
    }
}

impl StoreLocation {
    fn data(&self) -> Result<PathBuf, ExitCode> {
        match (&self.data, &self.config) {
            (Some(data), _) => Ok(data.clone()),
            (None, Some(config)) => Ok(crate::settings(config)?.appliance.data),
            (None, None) => Err(ExitCode::from(exit::MISTAKEN)),
        }
    }
}

/// Opens the store's file; the box must not run.
fn open(data: &Path) -> anyhow::Result<FileFlash> {
    let store = data.join("store");
    FileFlash::open_read_only(&store).with_context(|| {
        format!(
            "the store {} cannot be read: is this the data directory, and is the box stopped?",
            store.display()
        )
    })
}

fn key_file(data: &Path) -> BoxKeyFile {
    BoxKeyFile::at(data.join("store.key"))
}

/// Reads the store with its key, which must exist if any value is encrypted.
fn read(data: &Path) -> anyhow::Result<(FileFlash, Salvage, SalvageOutcome, Option<BoxKey>)> {
    let mut flash = open(data)?;
    let key = key_file(data).key().map_err(OpenError::Key)?;
    let salvage = Salvage::read(&mut flash, SEGMENT_BYTES)?;
    let outcome = salvage.review(key.as_ref())?;
    if outcome.needs_key {
        let key = data.join("store.key");
        return Err(anyhow::Error::new(OpenError::KeyMissing)
            .context(format!("{} does not exist", key.display())));
    }
    Ok((flash, salvage, outcome, key))
}

fn check(data: &Path) -> anyhow::Result<StoreToolReport> {
    let mut flash = open(data)?;
    let mut text = String::new();
    let key = match key_file(data).key() {
        Ok(key) => key,
        Err(error) => {
            let why = OpenError::Key(error);
            let why = anyhow::Error::new(why);
            let _ = writeln!(text, "warning: names of nodes are not shown: {why:#}");
            None
        }
    };
    let salvage = Salvage::read(&mut flash, SEGMENT_BYTES)?;
    let outcome = salvage.review(key.as_ref())?;
    describe(&mut text, data, flash.size(), &salvage, &outcome);
    for leftover in swap::leftovers(data) {
        let _ = writeln!(text, "note:     {}", leftover.explain());
    }
    let is_whole = salvage.is_whole() && outcome.damaged_records.is_empty();
    let data = data.display();
    let verdict = if is_whole {
        format!("the store is whole{}\n", up_to(&outcome))
    } else {
        format!(
            "the store is damaged: `trivet store repair --data {data}` continues with what is \
             readable; a copy or an export of the store from before loses less\n"
        )
    };
    text.push_str(&verdict);
    Ok(StoreToolReport { text, is_whole })
}

/// Which part of the store is intact, if there are bytes after its last commit.
fn up_to(outcome: &SalvageOutcome) -> &'static str {
    match outcome.unfinished {
        Some(_) => " up to its last complete commit",
        None => "",
    }
}

/// The content of the store, and what is damaged.
fn describe(
    text: &mut String,
    data: &Path,
    size: u64,
    salvage: &Salvage,
    outcome: &SalvageOutcome,
) {
    let store = data.join("store");
    let counts = outcome.counts.iter();
    let counts: Vec<String> = counts
        .map(|(kind, count)| format!("{kind} {count}"))
        .collect();
    let records = if counts.is_empty() {
        "none".to_owned()
    } else {
        counts.join(", ")
    };
    let layout = &salvage.layout;
    let _ = writeln!(text, "store:    {}, {} KiB", store.display(), size >> 10);
    let _ = writeln!(text, "records:  {records}");
    if let Some((first, last)) = salvage.commits {
        let _ = writeln!(text, "commits:  {first} to {last}");
    }
    let free = salvage.free_segments * layout.segment_pages * (PAGE_BYTES as u64 >> 10);
    let _ = writeln!(text, "free:     {free} KiB");
    if let Some(unfinished) = &outcome.unfinished {
        let _ = writeln!(text, "note:     {unfinished}");
    }
    for damage in &outcome.damages {
        let _ = writeln!(text, "damaged:  {damage}");
    }
    if let Some(unnamed) = &outcome.unnamed {
        let _ = writeln!(text, "unnamed:  {unnamed}");
    }
    for finding in &outcome.damaged_records {
        let _ = writeln!(text, "record:   {finding}");
    }
}

fn export(
    data: &Path,
    output: Option<&Path>,
    with_secrets: bool,
) -> anyhow::Result<StoreToolReport> {
    let (flash, salvage, outcome, key) = read(data)?;
    let key = key.filter(|_| with_secrets);
    let lines = outcome.export(flash.size(), key.as_ref());
    let is_whole = salvage.is_whole() && outcome.damaged_records.is_empty();
    for damage in &outcome.damages {
        error!("damaged: {damage}");
    }
    for note in outcome.unnamed.iter().chain(&outcome.unfinished) {
        info!("{note}");
    }
    for finding in &outcome.damaged_records {
        info!("{finding}");
    }
    if key.is_some() {
        info!("the export holds the key of the store: it reveals every password in it");
    } else {
        info!(
            "secrets are sealed: to import this export, keep store.key as well, or export with \
             --with-secrets"
        );
    }
    let Some(output) = output else {
        let text = lines;
        return Ok(StoreToolReport { text, is_whole });
    };
    write_new(output, lines.as_bytes())
        .with_context(|| format!("the export {} cannot be written", output.display()))?;
    let count = outcome.records.len();
    let text = format!("{count} records written to {}\n", output.display());
    Ok(StoreToolReport { text, is_whole })
}

/// Writes a new file, readable by its owner only.
fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    if written.is_err() {
        // Half an export is useless.
        let _ = fs::remove_file(path);
    }
    written
}

fn import(
    disk: &mut dyn SwapDisk,
    data: &Path,
    file: &Path,
    replace: bool,
) -> anyhow::Result<StoreToolReport> {
    let shown = file.display();
    let cannot = || format!("the export {shown} cannot be read");
    let size = fs::metadata(file).with_context(cannot)?.len();
    if size > EXPORT_BYTES_MAX {
        bail!("the export {shown} has {size} bytes, over the limit of {EXPORT_BYTES_MAX}");
    }
    let text = fs::read_to_string(file).with_context(cannot)?;
    let export = Export::parse(&text).with_context(cannot)?;
    crate::private::directory(data)
        .with_context(|| format!("the directory {} cannot be created", data.display()))?;
    let store = data.join("store");
    let is_there = store
        .try_exists()
        .with_context(|| format!("{} cannot be accessed", store.display()))?;
    if is_there && !replace {
        bail!(
            "{} already exists and was left as it is: move it away, or use --replace",
            store.display()
        );
    }
    // Held until the new store is in place, so that no box starts on the old one.
    let held = is_there.then(|| open(data)).transpose()?;
    restore_key(data, export.key.as_ref())?;
    let (size, records) = (export.region_bytes, &export.records);
    let new = swap::write_store(disk, data, swap::IMPORTED, size, records)?;
    let retained = if held.is_some() {
        Some(swap::replace(disk, data, &new, swap::REPLACED)?)
    } else {
        swap::put_in_place(disk, data, &new)?;
        None
    };
    let mut text = format!(
        "{} records imported into {}\n",
        export.records.len(),
        store.display()
    );
    if let Some(retained) = retained {
        let _ = writeln!(text, "the former store is kept as {}", retained.display());
    }
    if export.damaged > 0 {
        let _ = writeln!(
            text,
            "warning: the store was damaged when this export was made: {} lines with \
             \"damaged\" say what is lost, older than it was or unknown",
            export.damaged
        );
    }
    Ok(StoreToolReport {
        text,
        is_whole: true,
    })
}

/// Writes the key of a full backup to the path where the box reads it.
fn restore_key(data: &Path, key: Option<&BoxKey>) -> anyhow::Result<()> {
    let Some(key) = key else {
        return Ok(());
    };
    match key_file(data).key().map_err(OpenError::Key)? {
        Some(here) if here.expose() != key.expose() => bail!(
            "{} is not the key of this export and was left as it is: move it away first",
            data.join("store.key").display()
        ),
        Some(_) => Ok(()),
        None => Ok(key_file(data).keep(key)?),
    }
}

fn repair(disk: &mut dyn SwapDisk, data: &Path) -> anyhow::Result<StoreToolReport> {
    let (flash, salvage, outcome, _) = read(data)?;
    let mut text = String::new();
    describe(&mut text, data, flash.size(), &salvage, &outcome);
    if salvage.is_whole() && outcome.damaged_records.is_empty() {
        let up_to = up_to(&outcome);
        let _ = writeln!(
            text,
            "the store is whole{up_to}: there is nothing to repair"
        );
        let is_whole = true;
        return Ok(StoreToolReport { text, is_whole });
    }
    let size = flash.size().max(salvage.layout.region_bytes());
    let new = swap::write_store(disk, data, swap::REPAIRED, size, &outcome.records)?;
    let retained = swap::replace(disk, data, &new, swap::DAMAGED)?;
    let _ = writeln!(
        text,
        "the store is repaired with {} records; the damaged file is kept as {}",
        outcome.records.len(),
        retained.display()
    );
    Ok(StoreToolReport {
        text,
        is_whole: true,
    })
}

#[cfg(test)]
mod tests;
