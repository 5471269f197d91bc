//! Config drives, read back by an independent reader.

use std::collections::BTreeMap;
use std::io::Read as _;

use serde_json::json;

use super::*;
use crate::iso::SECTOR_BYTES;

fn map(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        other => panic!("{other} is not an object"),
    }
}

fn number(bytes: &[u8], at: usize) -> usize {
    let little: [u8; 4] = bytes[at..at + 4].try_into().unwrap();
    let big: [u8; 4] = bytes[at + 4..at + 8].try_into().unwrap();
    assert_eq!(u32::from_le_bytes(little), u32::from_be_bytes(big));
    u32::from_le_bytes(little) as usize
}

/// Walks the tree whose root record is in the descriptor at this sector.
fn walk(disc: &[u8], descriptor: usize) -> BTreeMap<String, Vec<u8>> {
    let wide = disc[descriptor * SECTOR_BYTES] == 2;
    let mut found = BTreeMap::new();
    let mut open = vec![(String::new(), number(disc, descriptor * SECTOR_BYTES + 158))];
    while let Some((path, sector)) = open.pop() {
        let directory = &disc[sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES];
        let mut at = 0;
        let mut before = Vec::new();
        while directory[at] != 0 {
            let record = &directory[at..at + usize::from(directory[at])];
            at += record.len();
            let identifier = &record[33..33 + usize::from(record[32])];
            if identifier.len() == 1 && identifier[0] < 2 {
                continue;
            }
            assert!(before < identifier.to_vec(), "records are in order");
            before = identifier.to_vec();
            let name = if wide {
                let units = identifier.chunks(2);
                let units = units.map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
                String::from_utf16(&units.collect::<Vec<_>>()).unwrap()
            } else {
                String::from_utf8(identifier.to_vec()).unwrap()
            };
            let (start, bytes) = (number(record, 2) * SECTOR_BYTES, number(record, 10));
            let path = format!("{path}/{name}");
            if record[25] & 2 != 0 {
                open.push((path, start / SECTOR_BYTES));
            } else {
                found.insert(path, disc[start..start + bytes].to_vec());
            }
        }
    }
    found
}

fn parts() -> Map<String, Value> {
    map(json!({
        "meta_data": {"hostname": "web-1"},
        "user_data": "#cloud-config\n",
        "network_data": {"links": []},
        "vendor_data": {"a": 1},
    }))
}

fn facts() -> Map<String, Value> {
    map(json!({"uuid": "u-1", "name": "n1", "hostname": "n1"}))
}

#[test]
fn both_trees_hold_every_file_in_both_layouts() {
    let disc = iso_image(&parts(), &facts()).unwrap();
    let files = walk(&disc, 17);
    let names: Vec<_> = files.keys().map(String::as_str).collect();
    let mut want = Vec::new();
    for version in VERSIONS {
        for file in [
            "meta_data.json",
            "network_data.json",
            "user_data",
            "vendor_data2.json",
        ] {
            want.push(format!("/openstack/{version}/{file}"));
        }
    }
    assert_eq!(names, want);
    assert_eq!(files["/openstack/latest/user_data"], b"#cloud-config\n");
    let plain = walk(&disc, 16);
    assert_eq!(plain.len(), files.len());
    assert_eq!(plain["/OPENSTACK/LATEST/USER_DATA.;1"], b"#cloud-config\n");
    assert!(plain.contains_key("/OPENSTACK/2012_08_10/META_DATA.JSON;1"));
}

#[test]
fn facts_do_not_replace_given_values() {
    let disc = iso_image(&parts(), &facts()).unwrap();
    let meta: Value =
        serde_json::from_slice(&walk(&disc, 17)["/openstack/latest/meta_data.json"]).unwrap();
    assert_eq!(
        meta,
        json!({"hostname": "web-1", "name": "n1", "uuid": "u-1"})
    );
}

#[test]
fn an_empty_object_gives_a_drive_with_facts_only() {
    let disc = iso_image(&Map::new(), &facts()).unwrap();
    let files = walk(&disc, 17);
    assert_eq!(files.len(), 2);
    assert_eq!(
        &disc[16 * SECTOR_BYTES + 40..16 * SECTOR_BYTES + 48],
        b"config-2"
    );
    assert_eq!(disc.len() % SECTOR_BYTES, 0);
    assert_eq!(
        number(&disc, 16 * SECTOR_BYTES + 80),
        disc.len() / SECTOR_BYTES
    );
}

#[test]
fn user_data_may_be_an_object_a_list_or_empty() {
    for (data, want) in [
        (json!({"a": 1}), &br#"{"a":1}"#[..]),
        (json!([1]), b"[1]"),
        (json!(""), b""),
    ] {
        let parts = map(json!({ "user_data": data }));
        let disc = iso_image(&parts, &Map::new()).unwrap();
        assert_eq!(walk(&disc, 17)["/openstack/latest/user_data"], want);
    }
}

#[test]
fn the_same_parts_make_the_same_drive() {
    let one = encoded_drive(&parts(), &facts()).unwrap();
    assert_eq!(encoded_drive(&parts(), &facts()).unwrap(), one);
    let gzipped = STANDARD.decode(&one).unwrap();
    let mut disc = Vec::new();
    flate2::read::GzDecoder::new(&gzipped[..])
        .read_to_end(&mut disc)
        .unwrap();
    assert_eq!(disc, super::iso_image(&parts(), &facts()).unwrap());
    assert!(one.len() < 4000, "{} characters", one.len());
}

#[track_caller]
fn refuses(parts: Value, want: &str) {
    let text = encoded_drive(&map(parts), &Map::new())
        .unwrap_err()
        .to_string();
    assert!(text.contains(want), "{text}");
}

#[test]
fn an_invalid_part_is_named_in_the_error() {
    refuses(json!({"meta_data": []}), "meta_data must be an object");
    refuses(
        json!({"network_data": "x"}),
        "network_data must be an object",
    );
    refuses(json!({"vendor_data": 1}), "vendor_data must be an object");
    refuses(json!({"user_data": 7}), "user_data must be text");
    refuses(json!({"userdata": "x"}), "\"userdata\" is not known");
    let long = "x".repeat(CONTENT_BYTES_MAX);
    refuses(json!({ "user_data": long }), "give a URL");
}

#[test]
fn files_of_many_sectors_do_not_overlap() {
    let text = "0123456789".repeat(3000);
    let parts = map(json!({"user_data": text, "network_data": {"x": text}}));
    let files = walk(&iso_image(&parts, &facts()).unwrap(), 17);
    assert_eq!(files["/openstack/latest/user_data"], text.as_bytes());
    let network: Value =
        serde_json::from_slice(&files["/openstack/2012-08-10/network_data.json"]).unwrap();
    assert_eq!(network, json!({ "x": text }));
}
