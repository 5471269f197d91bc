//! Exports, whole and spoilt.

use std::sync::Arc;

use serde_json::json;
use trivet_board_sim::{SimFlash, box_key};
use trivet_model::{Lease, MacAddr, Node, NodeId, UnixMs};
use uuid::Uuid;

use super::*;
use crate::{OpenError, Salvage, Store, StoreChange, StoreRecords, rebuild};

const SEGMENT_BYTES: u32 = 32 * 1024;
const REGION: usize = 8192 + 16 * SEGMENT_BYTES as usize;
const PASSWORD: &str = "export-hunter2-4711";

fn store() -> Store<SimFlash> {
    let flash = SimFlash::new(REGION);
    let mut store = Store::open_with(flash, box_key(), SEGMENT_BYTES).unwrap();
    let mut node = Node::new(NodeId(Uuid::from_u128(1)), "ipmi", UnixMs(1));
    node.name = Some("n1".to_owned());
    let password = json!(PASSWORD);
    node.driver_info
        .insert("ipmi_password".to_owned(), password);
    store
        .commit(&[StoreChange::PutNode(Arc::new(node))])
        .unwrap();
    store
}

fn export(key: Option<&BoxKey>) -> (String, StoreRecords) {
    let store = store();
    let records = store.records().unwrap();
    let mut flash = store.into_flash();
    let salvage = Salvage::read(&mut flash, SEGMENT_BYTES).unwrap();
    let outcome = salvage.review(Some(&box_key())).unwrap();
    (outcome.export(REGION as u64, key), records)
}

fn imported(text: &str, key: BoxKey) -> Result<StoreRecords, OpenError> {
    let export = Export::parse(text).unwrap();
    assert_eq!(export.region_bytes, REGION as u64);
    let flash = SimFlash::new(REGION);
    let flash = rebuild(flash, SEGMENT_BYTES, &export.records).unwrap();
    let store = Store::open_with(flash, key, SEGMENT_BYTES)?;
    Ok(store.records().unwrap())
}

#[test]
fn an_export_holds_no_secret_in_plain_and_gives_all_records_back_with_the_key() {
    let (text, records) = export(None);
    assert!(!text.contains(PASSWORD));
    assert!(!text.contains(&hex(PASSWORD.as_bytes())));
    assert!(!text.contains(&hex(box_key().expose())));
    assert!(text.contains("(n1)"), "{text}");
    assert_eq!(imported(&text, box_key()).unwrap(), records);
    assert!(Export::parse(&text).unwrap().key.is_none());
    assert!(matches!(
        imported(&text, BoxKey::new([1; 32])),
        Err(OpenError::WrongKey)
    ));
}

#[test]
fn a_full_backup_carries_the_key() {
    let (text, records) = export(Some(&box_key()));
    let key = Export::parse(&text).unwrap().key.unwrap();
    assert_eq!(key.expose(), box_key().expose());
    assert_eq!(imported(&text, key).unwrap(), records);
}

fn lease(number: u8) -> Lease {
    Lease {
        mac: MacAddr([2, 0, 0, 0, 0, number]),
        address: [10, 0, 0, number].into(),
    }
}

#[test]
fn an_export_names_and_counts_every_damage_with_a_live_record_and_without_one() {
    // Commit 1 is the box's own record, 2 the node.
    let mut store = store();
    store.commit(&[StoreChange::PutLease(lease(7))]).unwrap();
    store
        .commit(&[StoreChange::DeleteLease(lease(7).mac)])
        .unwrap();
    store.commit(&[StoreChange::PutLease(lease(8))]).unwrap();
    let sound = store.flash().bytes();
    // Which commit's page is damaged, and which record is lost with it.
    for (commit, lost) in [(2, Some("node")), (3, None)] {
        let at = (1 + commit) * PAGE_BYTES;
        let mut bytes = sound.to_vec();
        bytes[at + 512..at + 1024].fill(0xa5);
        let mut flash = SimFlash::with_bytes(bytes);
        let salvage = Salvage::read(&mut flash, SEGMENT_BYTES).unwrap();
        let outcome = salvage.review(Some(&box_key())).unwrap();
        let found: Vec<String> = outcome
            .damaged_records
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(found.len(), usize::from(lost.is_some()), "{found:?}");
        assert!(lost.is_none_or(|lost| found[0].contains(lost)), "{found:?}");
        let place = format!(
            "4096 bytes at offset {at} (segment 0, page {}), commit {commit}: ",
            commit - 1
        );
        assert!(
            outcome.damages[0].starts_with(&place),
            "{:?}",
            outcome.damages
        );

        let text = outcome.export(REGION as u64, None);
        let lines = text.lines().filter_map(json_line);
        let texts: Vec<String> = lines
            .filter_map(|line| line["damaged"].as_str().map(str::to_owned))
            .collect();
        let unnamed = outcome.unnamed.as_slice();
        assert_eq!(texts, [&outcome.damages[..], unnamed, &found[..]].concat());
        let export = Export::parse(&text).unwrap();
        assert_eq!(export.damaged, texts.len() as u64);
    }
}

#[test]
fn an_export_that_is_cut_short_or_changed_is_refused_whole() {
    let (text, _) = export(None);
    let lines: Vec<&str> = text.lines().collect();
    for count in 1..lines.len() {
        let short = lines[..count].join("\n");
        assert_eq!(Export::parse(&short).unwrap_err(), ImportError::CutShort);
    }
    let twice = [&lines[..2], &lines[1..]].concat().join("\n");
    assert!(matches!(
        Export::parse(&twice),
        Err(ImportError::Line { line: 3, .. })
    ));
    let more = format!("{text}{{}}\n");
    assert_eq!(Export::parse(&more).unwrap_err(), ImportError::CutShort);
    let without: Vec<&str> = [&lines[..1], &lines[2..]].concat();
    assert_eq!(
        Export::parse(&without.join("\n")).unwrap_err(),
        ImportError::CutShort
    );
}

#[test]
fn a_record_that_does_not_match_its_checksum_is_named_by_its_line() {
    let (text, _) = export(None);
    let at = text.find("\"record\":\"").unwrap() + 10;
    let mut damaged = text.clone().into_bytes();
    damaged[at + 9] = if damaged[at + 9] == b'0' { b'1' } else { b'0' };
    let damaged = String::from_utf8(damaged).unwrap();
    let error = Export::parse(&damaged).unwrap_err();
    assert!(error.to_string().contains("line 2"), "{error}");
    assert!(error.to_string().contains("checksum"), "{error}");
}

#[test]
fn foreign_and_newer_texts_are_refused() {
    for text in [
        "",
        "{}",
        "[]",
        "hello",
        r#"{"format": "other", "version": 1}"#,
    ] {
        assert_eq!(Export::parse(text).unwrap_err(), ImportError::Foreign);
    }
    let newer = r#"{"format": "trivet-store-export", "version": 2}"#;
    assert_eq!(
        Export::parse(newer).unwrap_err(),
        ImportError::Version { found: 2 }
    );
    let first = r#"{"format": "trivet-store-export", "version": 1, "region_bytes": 1}"#;
    for line in [
        r#"{"kind": "moon", "id": "00", "record": "", "crc32c": 0}"#,
        r#"{"kind": "node", "id": "00", "record": "", "crc32c": 0}"#,
        r#"{"kind": "node", "id": "00000000000000000000000000000001", "record": "0g"}"#,
        "5",
    ] {
        let error = Export::parse(&format!("{first}\n{line}\n")).unwrap_err();
        assert!(
            matches!(error, ImportError::Line { line: 2, .. }),
            "{error}"
        );
    }
}
