//! Exports: all records of a store as lines of JSON.
//!
//! The records are written as they are on flash, so their secrets are sealed with the key of
//! the store and cannot be read without it. A full backup has that key in its first line. The
//! last line contains the number of records, so an export that was cut short is refused.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Value, json};
use trivet_board_hal::{BOX_KEY_BYTES, BoxKey};

use crate::RecordKey;
use crate::layout::{PAGE_BYTES, RECORD_BYTES_MAX, REGION_PAGES_MAX};
use crate::outcome::SalvageOutcome;
use crate::schema::RecordKind;

/// Version of the export format in the README.
pub const EXPORT_VERSION: u64 = 1;

/// The value of `format` in the first line.
const FORMAT: &str = "trivet-store-export";

/// A parsed export.
#[derive(Clone, Debug)]
pub struct Export {
    /// Size of the region that the records come from.
    pub region_bytes: u64,
    /// The key of the store, in a full backup.
    pub key: Option<BoxKey>,
    /// The records, by key.
    pub records: BTreeMap<RecordKey, Vec<u8>>,
    /// Number of lines with `damaged`: places of the store, and records.
    pub damaged: u64,
}

/// A text is not an export that this program can read.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ImportError {
    /// The first line is not the one of an export.
    #[error("the file is not an export of a store: its first line does not say so")]
    Foreign,
    /// A newer program wrote the export.
    #[error(
        "the export has version {found}, this program knows version {EXPORT_VERSION}: run the \
         newer program"
    )]
    Version {
        /// Version of the export.
        found: u64,
    },
    /// A line cannot be used.
    #[error("line {line} of the export cannot be used: {what}")]
    Line {
        /// Number of the line, from 1.
        line: usize,
        /// The reason.
        what: &'static str,
    },
    /// The last line is missing.
    #[error("the export is cut short: its last line is missing or counts other records")]
    CutShort,
}

impl SalvageOutcome {
    /// The lines of an export. The key is written only if it is passed here.
    pub fn export(&self, region_bytes: u64, key: Option<&BoxKey>) -> String {
        let mut text = String::new();
        let mut line = |value: Value| {
            let _ = writeln!(text, "{value}");
        };
        let mut first = json!({
            "format": FORMAT,
            "version": EXPORT_VERSION,
            "region_bytes": region_bytes,
            "secrets": if key.is_some() { "sealed, with key" } else { "sealed, without key" },
        });
        if let Some(key) = key {
            first["key"] = hex(key.expose()).into();
        }
        line(first);
        for (key, value) in &self.records {
            line(json!({
                "kind": kind_text(key.kind),
                "id": hex(&key.id),
                "label": self.label(key),
                "crc32c": crc32c::crc32c(value),
                "record": hex(value),
            }));
        }
        let places = self.damages.iter().chain(&self.unnamed);
        for place in places.clone() {
            line(json!({"damaged": place}));
        }
        for finding in &self.damaged_records {
            line(json!({"damaged": finding.to_string()}));
        }
        let damaged = places.count() + self.damaged_records.len();
        line(json!({"end": true, "records": self.records.len(), "damaged": damaged}));
        text
    }
}

impl Export {
    /// Reads the lines of an export, all of them or none.
    pub fn parse(text: &str) -> Result<Self, ImportError> {
        let mut lines = text.lines().enumerate();
        let first = lines.next().and_then(|(_, line)| json_line(line));
        let first = first.ok_or(ImportError::Foreign)?;
        if first["format"] != FORMAT {
            return Err(ImportError::Foreign);
        }
        match first["version"].as_u64() {
            Some(EXPORT_VERSION) => {}
            found => {
                let found = found.unwrap_or_default();
                return Err(ImportError::Version { found });
            }
        }
        let wrong = |line: usize, what| ImportError::Line { line, what };
        let region_max = REGION_PAGES_MAX * PAGE_BYTES as u64;
        let region_bytes = first["region_bytes"].as_u64();
        let region_bytes = region_bytes.filter(|&bytes| bytes <= region_max);
        let mut export = Self {
            region_bytes: region_bytes.ok_or(wrong(1, "it names no size of a region"))?,
            key: match first.get("key") {
                Some(text) => Some(box_key(text).ok_or(wrong(1, "its key cannot be read"))?),
                None => None,
            },
            records: BTreeMap::new(),
            damaged: 0,
        };
        while let Some((index, text)) = lines.next() {
            let number = index + 1;
            let line = json_line(text).ok_or(wrong(number, "it is no JSON object"))?;
            if line.get("end").is_some() {
                export.damaged = line["damaged"].as_u64().unwrap_or_default();
                let is_whole = line["records"].as_u64() == Some(export.records.len() as u64);
                let is_last = lines.next().is_none();
                return (is_whole && is_last)
                    .then_some(export)
                    .ok_or(ImportError::CutShort);
            }
            if line.get("damaged").is_some() {
                continue;
            }
            let (key, value) = record(&line).map_err(|what| wrong(number, what))?;
            if export.records.insert(key, value).is_some() {
                return Err(wrong(number, "there are two records of this kind and id"));
            }
        }
        Err(ImportError::CutShort)
    }
}

fn json_line(line: &str) -> Option<Value> {
    let value: Value = serde_json::from_str(line).ok()?;
    value.is_object().then_some(value)
}

fn record(line: &Value) -> Result<(RecordKey, Vec<u8>), &'static str> {
    let kind = line["kind"].as_str().and_then(kind_number);
    let kind = kind.ok_or("its kind of record is unknown")?;
    let id = line["id"].as_str().and_then(bytes_of);
    let id = id.and_then(|id| <[u8; 16]>::try_from(id).ok());
    let id = id.ok_or("its id is not 32 hexadecimal digits")?;
    let value = line["record"].as_str().and_then(bytes_of);
    let value = value.ok_or("its record is not made of hexadecimal digits")?;
    if value.len() > RECORD_BYTES_MAX {
        return Err("its record is over the limit");
    }
    if line["crc32c"].as_u64() != Some(u64::from(crc32c::crc32c(&value))) {
        return Err("its record does not match its checksum");
    }
    Ok((RecordKey { kind, id }, value))
}

/// The name of a kind of records; of a kind that a newer program wrote, its number.
fn kind_text(number: u8) -> String {
    match RecordKind::from_number(number) {
        Some(kind) => kind.name().to_owned(),
        None => number.to_string(),
    }
}

fn kind_number(text: &str) -> Option<u8> {
    let known = RecordKind::from_name(text).map(|kind| kind as u8);
    known.or_else(|| text.parse().ok())
}

fn box_key(text: &Value) -> Option<BoxKey> {
    let bytes = <[u8; BOX_KEY_BYTES]>::try_from(bytes_of(text.as_str()?)?);
    bytes.ok().map(BoxKey::new)
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn bytes_of(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let pairs = (0..text.len()).step_by(2);
    pairs
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok())
        .collect()
}

#[cfg(test)]
mod tests;
