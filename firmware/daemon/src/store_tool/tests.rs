//! Tests of the store's files when the store is damaged.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use trivet_model::{Node, NodeId, SeededRandom, UnixMs};
use trivet_store::StoreChange;

use super::*;
use crate::testbed::{self, TestbedDirectory};

const PASSWORD: &str = "tool-hunter2-4711";

/// A data directory with three nodes, each in a commit of its own.
pub(super) fn data() -> TestbedDirectory {
    let scratch = TestbedDirectory::new();
    let mut store = testbed::store(&scratch.0, 4096, SEGMENT_BYTES);
    for number in 1..=3 {
        let id = NodeId::random(&mut SeededRandom::new(number));
        let mut node = Node::new(id, "ipmi", UnixMs(1));
        node.name = Some(format!("name-{number}"));
        node.driver_info
            .insert("ipmi_password".to_owned(), PASSWORD.into());
        store
            .commit(&[StoreChange::PutNode(Arc::new(node))])
            .unwrap();
    }
    scratch
}

/// Overwrites the sector that contains the text with garbage.
pub(super) fn damage_sector(data: &Path, text: &str) {
    let path = data.join("store");
    let mut bytes = fs::read(&path).unwrap();
    let mut windows = bytes.windows(text.len());
    let at = windows.position(|window| window == text.as_bytes());
    let sector = at.unwrap() / 512 * 512;
    bytes[sector..sector + 512].fill(0xa5);
    fs::write(&path, bytes).unwrap();
}

pub(super) fn names(data: &Path) -> Vec<String> {
    let store = testbed::store(data, 4096, SEGMENT_BYTES);
    let nodes = store.records().unwrap().nodes;
    let mut names: Vec<String> = nodes.into_values().filter_map(|node| node.name).collect();
    names.sort();
    names
}

#[test]
fn a_whole_store_is_left_as_it_is() {
    let scratch = data();
    let before = fs::read(scratch.0.join("store")).unwrap();
    let report = check(&scratch.0).unwrap();
    assert!(report.is_whole, "{}", report.text);
    assert!(report.text.contains("node 3"), "{}", report.text);
    assert!(
        repair(&mut RealDisk, &scratch.0)
            .unwrap()
            .text
            .contains("nothing to repair")
    );
    assert_eq!(fs::read(scratch.0.join("store")).unwrap(), before);
    assert!(!scratch.0.join("store.damaged-1").exists());
}

#[test]
fn a_damaged_sector_is_named_by_check_and_left_out_by_repair() {
    let scratch = data();
    damage_sector(&scratch.0, "name-2");
    let before = fs::read(scratch.0.join("store")).unwrap();
    let report = check(&scratch.0).unwrap();
    assert!(!report.is_whole);
    assert!(report.text.contains("damaged:"), "{}", report.text);
    assert!(
        report.text.contains("trivet store repair"),
        "{}",
        report.text
    );
    assert_eq!(fs::read(scratch.0.join("store")).unwrap(), before);

    let refused = crate::appliance::open_store(&scratch.0, 4).unwrap_err();
    let text = format!("{refused:#}");
    assert!(text.contains("trivet store repair --data"), "{text}");

    // The leftover of an interrupted repair does not matter.
    fs::write(scratch.0.join("store.repaired"), b"half").unwrap();
    let report = repair(&mut RealDisk, &scratch.0).unwrap();
    assert!(report.text.contains("store.damaged-1"), "{}", report.text);
    assert_eq!(names(&scratch.0), ["name-1", "name-3"]);
    assert_eq!(fs::read(scratch.0.join("store.damaged-1")).unwrap(), before);
    assert!(!scratch.0.join("store.repaired").exists());
    assert!(check(&scratch.0).unwrap().is_whole);
}

/// Changes one character of the text in the file.
fn flip(data: &Path, text: &str) {
    let path = data.join("store");
    let mut bytes = fs::read(&path).unwrap();
    let mut windows = bytes.windows(text.len());
    let at = windows.position(|window| window == text.as_bytes());
    bytes[at.unwrap()] ^= 1;
    fs::write(&path, bytes).unwrap();
}

#[test]
fn an_incomplete_last_commit_is_reported_with_its_records() {
    let scratch = data();
    flip(&scratch.0, "name-3");
    let node = NodeId::random(&mut SeededRandom::new(3)).to_string();
    for report in [
        check(&scratch.0).unwrap(),
        repair(&mut RealDisk, &scratch.0).unwrap(),
    ] {
        let text = report.text;
        let note = text.lines().find(|line| line.starts_with("note:"));
        assert!(note.is_some_and(|note| note.contains(&node)), "{text}");
        assert!(
            text.contains("whole up to its last complete commit"),
            "{text}"
        );
    }
}

#[test]
fn what_a_damaged_commit_may_have_held_is_counted_where_it_cannot_be_named() {
    let scratch = data();
    damage_sector(&scratch.0, "name-2");
    for report in [
        check(&scratch.0).unwrap(),
        repair(&mut RealDisk, &scratch.0).unwrap(),
    ] {
        let text = report.text;
        let unnamed = text.lines().find(|line| line.starts_with("unnamed:"));
        let is_reported = unnamed.is_some_and(|line| line.contains("nodes, ports, resources"));
        assert!(is_reported, "{text}");
    }
}

#[test]
fn an_interrupted_repair_continues_under_the_same_name() {
    let scratch = data();
    damage_sector(&scratch.0, "name-2");
    let (store, retained) = (scratch.0.join("store"), scratch.0.join("store.damaged-1"));
    fs::hard_link(&store, &retained).unwrap();
    repair(&mut RealDisk, &scratch.0).unwrap();
    assert!(retained.exists() && !scratch.0.join("store.damaged-2").exists());
    damage_sector(&scratch.0, "name-1");
    repair(&mut RealDisk, &scratch.0).unwrap();
    assert!(scratch.0.join("store.damaged-2").exists());
}

#[test]
fn a_store_that_a_box_runs_on_is_not_touched() {
    let scratch = data();
    let held = testbed::store(&scratch.0, 4096, SEGMENT_BYTES);
    for done in [check(&scratch.0), repair(&mut RealDisk, &scratch.0)] {
        let text = format!("{:#}", done.err().unwrap());
        assert!(text.contains("in use by another process"), "{text}");
    }
    drop(held);
    assert!(check(&scratch.0).is_ok());
    let missing = scratch.0.join("none");
    let text = format!("{:#}", check(&missing).err().unwrap());
    assert!(text.contains("is this the data directory"), "{text}");
}

#[test]
fn an_export_is_for_its_owner_only_and_is_imported_with_the_key_file() {
    let scratch = data();
    let file = scratch.0.join("export");
    assert!(export(&scratch.0, Some(&file), false).unwrap().is_whole);
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(!fs::read_to_string(&file).unwrap().contains(PASSWORD));
    assert!(
        export(&scratch.0, Some(&file), false).is_err(),
        "it is there"
    );

    let other = TestbedDirectory::new();
    let text = format!(
        "{:#}",
        import(&mut RealDisk, &other.0, &file, false).err().unwrap()
    );
    assert!(text.contains("its key is missing"), "{text}");
    assert!(!other.0.join("store").exists());
    fs::copy(scratch.0.join("store.key"), other.0.join("store.key")).unwrap();
    import(&mut RealDisk, &other.0, &file, false).unwrap();
    assert_eq!(names(&other.0), ["name-1", "name-2", "name-3"]);
    let text = format!(
        "{:#}",
        import(&mut RealDisk, &other.0, &file, false).err().unwrap()
    );
    assert!(text.contains("--replace"), "{text}");
    import(&mut RealDisk, &other.0, &file, true).unwrap();
    assert!(other.0.join("store.replaced-1").exists());
}

#[test]
fn a_full_backup_restores_a_box_from_nothing() {
    let scratch = data();
    let file = scratch.0.join("export");
    export(&scratch.0, Some(&file), true).unwrap();
    let other = TestbedDirectory::new();
    import(&mut RealDisk, &other.0, &file, false).unwrap();
    let store = testbed::store(&other.0, 4096, SEGMENT_BYTES);
    let nodes = store.records().unwrap().nodes;
    assert!(
        nodes
            .values()
            .all(|node| node.driver_info["ipmi_password"] == PASSWORD)
    );
    drop(store);
    // The key of another box is never replaced.
    let third = data();
    fs::remove_file(third.0.join("store.key")).unwrap();
    key_file(&third.0).keep(&BoxKey::new([9; 32])).unwrap();
    let text = format!(
        "{:#}",
        import(&mut RealDisk, &third.0, &file, true).err().unwrap()
    );
    assert!(text.contains("not the key of this export"), "{text}");
}

#[test]
fn an_export_of_a_damaged_store_names_what_it_lacks() {
    let scratch = data();
    damage_sector(&scratch.0, "name-2");
    let file = scratch.0.join("export");
    assert!(!export(&scratch.0, Some(&file), true).unwrap().is_whole);
    // The export names the same damage as repair, in the same words.
    let checked = check(&scratch.0).unwrap().text;
    let lines = checked.lines().filter_map(|line| {
        let words = ["damaged:  ", "unnamed:  ", "record:   "];
        words.iter().find_map(|word| line.strip_prefix(word))
    });
    let exported = fs::read_to_string(&file).unwrap();
    let mut count = 0;
    for line in lines {
        count += 1;
        assert!(exported.contains(line), "{line}: {exported}");
    }
    assert!(count >= 1, "{checked}");
    assert!(
        exported.contains(&format!("\"damaged\":{count}")),
        "{exported}"
    );
    let other = TestbedDirectory::new();
    let imported = import(&mut RealDisk, &other.0, &file, false).unwrap().text;
    assert!(
        imported.contains(&format!("{count} lines with")),
        "{imported}"
    );
    assert_eq!(names(&other.0), ["name-1", "name-3"]);
}
