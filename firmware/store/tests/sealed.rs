//! A store with secrets, and somebody with its flash or with another key in hand.
//!
//! Goal: nothing secret stands on flash in any plain form; only the right key opens
//! a store; a store of an earlier program is sealed at its first opening, whatever
//! cut that short; and a refused store is left as it is, byte by byte.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;

use serde_json::{Value, json};
use trivet_board_hal::{BoxKey, Flash, FlashError, KeyError, KeyVault};
use trivet_board_sim::{SimFlash, box_key};
use trivet_model::deployment::{ImageChecksum, ImageLocation};
use trivet_model::{
    AgentSession, Digest, ImageAhead, ImageAheadPhase, ImageDeployment, Job, JobKind, JobPhase,
    JobStep, Node, NodeId, Resource, ResourceId, ResourceKind, UnixMs,
};
use trivet_store::{OpenError, RecordKey, Store, StoreChange, StoreLog, StoreRecords};

const SEGMENT_BYTES: u32 = 16 * 1024;
const REGION: usize = 8192 + 32 * SEGMENT_BYTES as usize;

/// What must not be found, with a length at which chance finds nothing.
const SECRETS: [&str; 9] = [
    "ipmi-password-hunter2-1",
    "redfish-password-hunter2-2",
    "nested-snmp-priv-key-3",
    "configdrive-user-data-4",
    "image-url-signature-5",
    "step-argument-secret-6",
    "agent-token-7-of-this-boot",
    "agent-token-8-of-the-boot-before",
    "internal-rescue-password-9",
];

fn object(value: Value) -> serde_json::Map<String, Value> {
    match value {
        Value::Object(object) => object,
        other => panic!("{other} is no object"),
    }
}

fn node(number: u8) -> Node {
    let id = NodeId::random(&mut trivet_model::SeededRandom::new(number.into()));
    let step = JobStep {
        step: "apply".to_owned(),
        interface: "raid".to_owned(),
        priority: 1,
        args: json!({"target": [{"encrypted_key": SECRETS[5]}]}),
        reboot_requested: false,
        abortable: true,
    };
    Node {
        driver_info: object(json!({
            "ipmi_address": "a-plain-address", "ipmi_password": SECRETS[0],
            "redfish_password": {"now": SECRETS[1]}, "deep": [[{"snmp_priv_key": SECRETS[2]}]],
        })),
        instance_info: object(json!({
            "configdrive": {"user_data": SECRETS[3]},
            "image_url": format!("http://images/?sig={}", SECRETS[4]),
        })),
        driver_internal_info: object(json!({"rescue_password": SECRETS[8]})),
        job: Some(Job {
            kind: JobKind::Clean,
            phase: JobPhase::AwaitStep,
            step_kind: None,
            manual: true,
            steps: vec![step],
            at: 0,
            versions: [].into(),
            tries: 0,
            boots: None,
            heartbeat_lost_at: None,
            abort_after: None,
            deployment: None,
            has_inspection_data: false,
            awaits_source: false,
            agent_query: None,
        }),
        agent: Some(AgentSession {
            token: SECRETS[6].to_owned(),
            former_token: Some(SECRETS[7].to_owned()),
            url: None,
            verify_ca: None,
            version: None,
            is_clean: true,
            ahead: Some(ahead()),
        }),
        ..Node::new(id, "ipmi", UnixMs(1))
    }
}

/// An image that is written ahead, with the secret in its path.
fn ahead() -> ImageAhead {
    ImageAhead {
        name: "debian".to_owned(),
        deployment: ImageDeployment {
            file_name: "debian".to_owned(),
            image: ImageLocation::Cache {
                base: "http://192.0.2.1".to_owned(),
                token: SECRETS[6].to_owned(),
                name: "debian".to_owned(),
            },
            checksum: ImageChecksum::Digest(Digest::Sha256([1; 32])),
            format: None,
            is_streamed: true,
            partitions: None,
            drive: None,
        },
        digest: Digest::Sha256([2; 32]),
        root_device: json!({"serial": "A"}),
        phase: ImageAheadPhase::Writing,
        tries: 2,
        started_at: UnixMs(5),
    }
}

fn put(node: &Node) -> StoreChange {
    StoreChange::PutNode(Arc::new(node.clone()))
}

fn open(flash: SimFlash) -> Result<Store<SimFlash>, OpenError> {
    Store::open_with(flash, box_key(), SEGMENT_BYTES)
}

/// A region with two nodes, one of them changed a few times.
fn full() -> (SimFlash, StoreRecords) {
    let mut store = open(SimFlash::new(REGION)).unwrap();
    let mut one = node(1);
    store.commit(&[put(&one), put(&node(2))]).unwrap();
    for change in 0..5_u8 {
        let length = SECRETS[0].len() - usize::from(change);
        let changed = &SECRETS[0][..length];
        let info = [("ipmi_password", changed.into()), ("port", change.into())];
        one.driver_info
            .extend(info.map(|(key, value)| (key.to_owned(), value)));
        store.commit(&[put(&one)]).unwrap();
    }
    let records = store.records().unwrap();
    (store.into_flash(), records)
}

/// The text in Base64, without the characters that depend on its neighbours, for
/// each of the three ways it may fall into the groups.
fn base64(text: &str) -> Vec<Vec<u8>> {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let encode = |bytes: &[u8]| -> Vec<u8> {
        let groups = bytes.chunks_exact(3);
        let bits = groups.map(|group| {
            u32::from(group[0]) << 16 | u32::from(group[1]) << 8 | u32::from(group[2])
        });
        bits.flat_map(|bits| [18, 12, 6, 0].map(|shift| ALPHABET[(bits >> shift & 63) as usize]))
            .collect()
    };
    let bytes = text.as_bytes();
    (0..3).map(|skip| encode(&bytes[skip..])).collect()
}

fn finds(region: &[u8], part: &[u8]) -> bool {
    region.windows(part.len()).any(|window| window == part)
}

fn forms(secret: &str) -> Vec<Vec<u8>> {
    let bytes = secret.as_bytes();
    let hex: Vec<_> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let hex = hex.concat();
    let mut forms = base64(secret);
    forms.push(bytes[..12].to_vec());
    forms.push(hex.to_ascii_uppercase().into_bytes());
    forms.push(hex.into_bytes());
    forms.push(bytes.iter().rev().copied().collect());
    forms
}

#[test]
fn no_secret_stands_on_flash_in_a_plain_form() {
    let (flash, records) = full();
    let region = flash.bytes();
    assert!(finds(region, b"a-plain-address"), "the search finds things");
    for secret in SECRETS {
        for form in forms(secret) {
            assert!(!finds(region, &form), "{secret} stands on flash");
        }
    }
    assert!(!finds(region, box_key().expose()));
    let read = open(SimFlash::with_bytes(region.to_vec())).unwrap();
    assert_eq!(read.records().unwrap(), records);
    let token = &records.nodes[&node(2).id].agent.as_ref().unwrap().token;
    assert_eq!(token, SECRETS[6]);
}

#[test]
fn the_search_knows_base64() {
    let region = b"..QUJDREVGR0g=..";
    assert!(base64("ABCDEFGH").iter().any(|form| finds(region, form)));
    assert!(base64("BCDEFGHI").iter().all(|form| !form.is_empty()));
}

/// Lets a test look at the flash that a refused open would swallow.
#[derive(Debug)]
struct ObservedFlash<'a>(&'a mut SimFlash);

impl Flash for ObservedFlash<'_> {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn read(&mut self, at: u64, out: &mut [u8]) -> Result<(), FlashError> {
        self.0.read(at, out)
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), FlashError> {
        self.0.write(at, bytes)
    }

    fn flush(&mut self) -> Result<(), FlashError> {
        self.0.flush()
    }
}

/// A vault as a board has it: with a key or without, and counting.
struct TestVault {
    key: Option<BoxKey>,
    made: u32,
}

impl KeyVault for &mut TestVault {
    fn key(&mut self) -> Result<Option<BoxKey>, KeyError> {
        Ok(self.key.clone())
    }

    fn make_key(&mut self) -> Result<BoxKey, KeyError> {
        self.made += 1;
        let key = BoxKey::new([self.made as u8; 32]);
        self.key = Some(key.clone());
        Ok(key)
    }
}

fn touched(flash: &SimFlash) -> (u64, u64) {
    let counts = flash.counts();
    (counts.writes, counts.flushes)
}

fn refused(flash: &mut SimFlash, vault: &mut TestVault) -> OpenError {
    let (before, touched) = (flash.bytes().to_vec(), touched(flash));
    let error = Store::open_with(ObservedFlash(flash), &mut *vault, SEGMENT_BYTES).unwrap_err();
    assert_eq!(
        self::touched(flash),
        touched,
        "nothing was written or flushed"
    );
    assert_eq!(flash.bytes(), before);
    assert_eq!(vault.made, 0, "no key was made");
    error
}

#[test]
fn a_wrong_and_a_lost_key_are_distinguished_and_change_nothing() {
    let (mut flash, records) = full();
    // A torn page at the head and a lost superblock would be mended otherwise.
    let mut bytes = flash.bytes().to_vec();
    bytes[4096..8192].fill(0);
    let mut pages = bytes[8192..].chunks_exact_mut(4096);
    let head = pages.find(|page| page.iter().all(|&byte| byte == 0));
    head.unwrap().fill(0xa5);
    flash = SimFlash::with_bytes(bytes);
    let mut wrong = TestVault {
        key: Some(BoxKey::new([9; 32])),
        made: 0,
    };
    let error = refused(&mut flash, &mut wrong);
    assert!(matches!(error, OpenError::WrongKey), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("does not belong to this store"), "{text}");
    assert!(text.contains("restore the key file"), "{text}");
    let mut lost = TestVault { key: None, made: 0 };
    let error = refused(&mut flash, &mut lost);
    assert!(matches!(error, OpenError::KeyMissing), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("restore the key file"), "{text}");
    let store = open(flash).unwrap();
    assert_eq!(store.records().unwrap(), records);
    assert_eq!(store.flash().counts().writes, 2, "both were mended");
}

#[test]
fn a_wrong_key_is_noticed_before_anything_secret_was_written() {
    let store = open(SimFlash::new(REGION)).unwrap();
    let mut flash = store.into_flash();
    let mut wrong = TestVault {
        key: Some(BoxKey::new([9; 32])),
        made: 0,
    };
    let error = refused(&mut flash, &mut wrong);
    assert!(matches!(error, OpenError::WrongKey), "{error:?}");
}

#[test]
fn a_key_is_made_once_for_a_fresh_store() {
    let mut vault = TestVault { key: None, made: 0 };
    let flash = SimFlash::new(REGION);
    let mut store = Store::open_with(flash, &mut vault, SEGMENT_BYTES).unwrap();
    store.commit(&[put(&node(1))]).unwrap();
    let flash = store.into_flash();
    let store = Store::open_with(flash, &mut vault, SEGMENT_BYTES).unwrap();
    assert_eq!(store.records().unwrap().nodes[&node(1).id], node(1));
    assert_eq!(vault.made, 1);
}

/// A vault whose board fails.
struct BrokenVault;

impl KeyVault for BrokenVault {
    fn key(&mut self) -> Result<Option<BoxKey>, KeyError> {
        Ok(None)
    }

    fn make_key(&mut self) -> Result<BoxKey, KeyError> {
        Err(KeyError("the disk is full".into()))
    }
}

#[test]
fn a_key_that_cannot_be_kept_keeps_a_fresh_store_from_being_made() {
    let mut flash = SimFlash::new(REGION);
    let error =
        Store::open_with(ObservedFlash(&mut flash), BrokenVault, SEGMENT_BYTES).unwrap_err();
    assert!(matches!(error, OpenError::Key(_)), "{error:?}");
    assert_eq!(touched(&flash), (0, 0));
}

/// The bytes of a record, wherever it stands.
fn value(store: &Store<SimFlash>, key: &RecordKey) -> Vec<u8> {
    let flash = SimFlash::with_bytes(store.flash().bytes().to_vec());
    let log = StoreLog::open(flash, SEGMENT_BYTES).unwrap();
    log.value(key).unwrap().to_vec()
}

fn key(node: &Node) -> RecordKey {
    RecordKey {
        kind: 1,
        id: *node.id.0.as_bytes(),
    }
}

#[test]
fn a_sealed_value_moved_to_another_node_keeps_the_store_from_opening() {
    let mut store = open(SimFlash::new(REGION)).unwrap();
    store.commit(&[put(&node(1)), put(&node(2))]).unwrap();
    // The whole record of the first under the id of the second: all but its sealed
    // values would pass for the second's own.
    let mut moved = value(&store, &key(&node(1)));
    // Envelope, number of fields, tag and length come before the id.
    moved[6..22].copy_from_slice(&key(&node(2)).id);
    let mut log = StoreLog::open(store.into_flash(), SEGMENT_BYTES).unwrap();
    log.commit([(key(&node(2)), Some(moved))].into()).unwrap();
    let error = open(log.into_flash()).unwrap_err();
    let OpenError::Record(error) = error else {
        panic!("{error:?}")
    };
    assert!(error.to_string().contains("moved there"), "{error}");
}

#[test]
fn a_change_that_changes_nothing_still_writes_nothing() {
    let mut store = open(SimFlash::new(REGION)).unwrap();
    store.commit(&[put(&node(1))]).unwrap();
    let before = store.flash().counts();
    store.commit(&[put(&node(1))]).unwrap();
    let mut store = open(store.into_flash()).unwrap();
    store.commit(&[put(&node(1))]).unwrap();
    assert_eq!(store.flash().counts().writes, before.writes);
}

/// A node of version 1 with a plain password, as an earlier program wrote it.
fn old_node(number: u8) -> (RecordKey, Vec<u8>) {
    let id = [number; 16];
    let mut bytes = b"\x01\x01\0".to_vec();
    bytes.extend(id);
    bytes.extend(b"\x01\x01\0\x04ipmi");
    let info = json!({"ipmi_password": SECRETS[0]}).to_string();
    bytes.push(info.len() as u8);
    bytes.extend(info.as_bytes());
    bytes.extend(b"\x02{}\x02{}\x02{}\x02{}\x06enroll");
    // No target, no times, no power, no error, no maintenance.
    bytes.extend([0; 6]);
    bytes.extend([0; 6]);
    bytes.extend(b"\x01\0\0\0\0\x02{}\0\0");
    (RecordKey { kind: 1, id }, bytes)
}

/// A region as an earlier program left it: nodes and a counter.
fn old_region(nodes: u8) -> SimFlash {
    let mut log = StoreLog::open(SimFlash::new(REGION), SEGMENT_BYTES).unwrap();
    for number in 0..nodes {
        let (key, bytes) = old_node(number);
        log.commit([(key, Some(bytes))].into()).unwrap();
    }
    let counter = RecordKey {
        kind: 4,
        id: [0; 16],
    };
    log.commit([(counter, Some(vec![4, 1, 0, 40]))].into())
        .unwrap();
    let bytes = log.flash().bytes().to_vec();
    SimFlash::with_bytes(bytes)
}

fn versions(flash: &SimFlash) -> Vec<u8> {
    let flash = SimFlash::with_bytes(flash.bytes().to_vec());
    let log = StoreLog::open(flash, SEGMENT_BYTES).unwrap();
    log.iter().map(|(_, value)| value[1]).collect()
}

/// The versions of so many nodes and of the box's own record.
fn newest(nodes: usize) -> Vec<u8> {
    let mut versions = vec![3; nodes];
    versions.push(4);
    versions
}

#[track_caller]
fn all_there(records: &StoreRecords, nodes: usize) {
    assert_eq!(records.nodes.len(), nodes);
    assert_eq!(records.serial, 40);
    for node in records.nodes.values() {
        assert_eq!(node.driver_info["ipmi_password"], SECRETS[0]);
    }
}

#[test]
fn a_store_of_an_earlier_program_is_sealed_at_its_first_opening() {
    let store = open(old_region(30)).unwrap();
    all_there(&store.records().unwrap(), 30);
    assert_eq!(versions(store.flash()), newest(30));
    let writes = store.flash().counts().writes;
    let store = open(store.into_flash()).unwrap();
    assert_eq!(store.flash().counts().writes, writes, "once");
    all_there(&store.records().unwrap(), 30);
}

#[test]
fn a_cut_while_old_records_are_sealed_loses_nothing() {
    let mut cuts = 0;
    for operations in 0..200 {
        let mut flash = old_region(12);
        flash.cut_after(operations);
        let opened = Store::open_with(ObservedFlash(&mut flash), box_key(), SEGMENT_BYTES);
        let ended = opened.is_ok();
        drop(opened);
        for seed in 0..8 {
            let again = open(flash.clone().power_on(seed)).unwrap();
            all_there(&again.records().unwrap(), 12);
            assert_eq!(versions(again.flash()), newest(12));
        }
        if ended {
            break;
        }
        cuts += 1;
    }
    assert!((2..200).contains(&cuts), "{cuts}");
}

#[test]
fn a_cut_while_a_fresh_store_is_made_leaves_one_that_opens() {
    let mut cuts = 0;
    for operations in 0..200 {
        let mut flash = SimFlash::new(REGION);
        let mut vault = TestVault { key: None, made: 0 };
        flash.cut_after(operations);
        let opened = Store::open_with(ObservedFlash(&mut flash), &mut vault, SEGMENT_BYTES);
        let ended = opened.is_ok();
        drop(opened);
        for seed in 0..8 {
            let flash = flash.clone().power_on(seed);
            let again = Store::open_with(flash, &mut vault, SEGMENT_BYTES).unwrap();
            assert_eq!(again.records().unwrap(), StoreRecords::default());
        }
        assert!(vault.made <= 1);
        if ended {
            break;
        }
        cuts += 1;
    }
    assert!((4..200).contains(&cuts), "{cuts}");
}

const IN_URL: &str = "password-in-a-url-hunter2-10";

fn url(user_ends: char, host_begins: char) -> String {
    format!("http://ann{user_ends}{IN_URL}{host_begins}images/disk.raw")
}

/// Version 2 of the record of the box, with a counter of 40 and the key of simulated boxes.
const BOX_V2_OF_40: &[u8] = b"\x04\x02\0\x28\x22\
    \xb2\x3f\xc1\x83\x49\x3b\xb1\x7d\x92\x21\xe5\xe3\xdd\x9a\xdc\x5b\xda\x69\x96\xcf\xe6\x12\x50\
    \x92\x1f\x8d\xb8\xee\x54\x34\x81\x4e\x98\xfc";

/// A region of a program that did not seal credentials in URLs yet: a node and a resource
/// that have some, and a node that has none.
fn region_with_open_urls() -> SimFlash {
    let mut store = open(SimFlash::new(REGION)).unwrap();
    let plain = url('.', '.');
    let mut one = node(1);
    for object in [&mut one.instance_info, &mut one.driver_info] {
        object.insert("image_source".to_owned(), plain.clone().into());
    }
    let mut template = Resource::new(
        ResourceId::random(&mut trivet_model::SeededRandom::new(7)),
        ResourceKind::DeployTemplate,
        UnixMs(1),
    );
    template.fields = object(json!({"steps": [{"args": {"from": plain}}]}));
    let changes = [
        put(&one),
        put(&node(2)),
        StoreChange::PutResource(Arc::new(template)),
        StoreChange::PutSerial(40),
    ];
    store.commit(&changes).unwrap();
    let mut log = StoreLog::open(store.into_flash(), SEGMENT_BYTES).unwrap();
    let changed = log.iter().map(|(key, value)| {
        let mut value = value.to_vec();
        // The same length, so that nothing else changes.
        let with = url(':', '@');
        for at in 0..value.len().saturating_sub(plain.len()) {
            if value[at..].starts_with(plain.as_bytes()) {
                value[at..at + with.len()].copy_from_slice(with.as_bytes());
            }
        }
        if key.kind == 4 {
            value = BOX_V2_OF_40.to_vec();
        }
        (*key, Some(value))
    });
    let changed = changed.collect();
    log.commit(changed).unwrap();
    SimFlash::with_bytes(log.flash().bytes().to_vec())
}

/// Whether a record that counts holds the password.
fn is_open(flash: &SimFlash) -> bool {
    let flash = SimFlash::with_bytes(flash.bytes().to_vec());
    let log = StoreLog::open(flash, SEGMENT_BYTES).unwrap();
    log.iter().any(|(_, value)| finds(value, IN_URL.as_bytes()))
}

#[track_caller]
fn urls_are_there(store: &Store<SimFlash>) {
    let records = store.records().unwrap();
    let one = &records.nodes[&node(1).id];
    assert_eq!(one.instance_info["image_source"], url(':', '@'));
    assert_eq!(one.driver_info["image_source"], url(':', '@'));
    assert_eq!(records.nodes[&node(2).id], node(2));
    let template = records.resources.values().next().unwrap();
    let from = &template.fields["steps"][0]["args"]["from"];
    assert_eq!(*from, url(':', '@'));
    assert_eq!(records.serial, 40);
}

#[test]
fn credentials_in_urls_of_earlier_records_are_sealed_at_the_first_start_and_only_then() {
    let flash = region_with_open_urls();
    assert!(is_open(&flash));
    let store = open(flash).unwrap();
    urls_are_there(&store);
    assert!(!is_open(store.flash()));
    let writes = store.flash().counts().writes;
    let store = open(store.into_flash()).unwrap();
    assert_eq!(store.flash().counts().writes, writes, "once");
    urls_are_there(&store);
}

#[test]
fn a_cut_while_credentials_in_urls_are_sealed_loses_nothing() {
    let mut cuts = 0;
    for operations in 0..200 {
        let mut flash = region_with_open_urls();
        flash.cut_after(operations);
        let opened = Store::open_with(ObservedFlash(&mut flash), box_key(), SEGMENT_BYTES);
        let ended = opened.is_ok();
        drop(opened);
        for seed in 0..8 {
            let again = open(flash.clone().power_on(seed)).unwrap();
            urls_are_there(&again);
            assert!(!is_open(again.flash()));
        }
        if ended {
            break;
        }
        cuts += 1;
    }
    assert!((2..200).contains(&cuts), "{cuts}");
}
