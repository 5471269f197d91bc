//! The typed store over a flash in memory.

use serde_json::json;
use trivet_board_sim::{SimFlash, box_key};
use trivet_model::{PowerState, UnixMs};
use uuid::Uuid;

use super::*;
use crate::layout::PAGE_BYTES;

const REGION: usize = 2 * PAGE_BYTES + 64 * 32768;

fn open(flash: SimFlash) -> Store<SimFlash> {
    Store::open_with(flash, box_key(), 32768).unwrap()
}

fn node(number: u128) -> Node {
    Node::new(NodeId(Uuid::from_u128(number)), "ipmi", UnixMs(1))
}

fn put(node: &Node) -> StoreChange {
    StoreChange::PutNode(Arc::new(node.clone()))
}

fn port(number: u128, node: &Node) -> Port {
    Port {
        id: PortId(Uuid::from_u128(number)),
        revision: 0,
        serial: 0,
        node: node.id,
        address: MacAddr([2, 0, 0, 0, 0, number as u8]),
        pxe_enabled: true,
        extra: serde_json::Map::new(),
        attributes: trivet_model::attributes::PortAttributes::default(),
        created_at: UnixMs(1),
        updated_at: None,
    }
}

fn lease(number: u8) -> Lease {
    Lease {
        mac: MacAddr([2, 0, 0, 0, 0, number]),
        address: [10, 0, 0, number].into(),
    }
}

#[test]
fn opens_a_blank_region_of_default_shape() {
    let store = Store::open(SimFlash::new(4 << 20), box_key()).unwrap();
    assert_eq!(store.records().unwrap(), StoreRecords::default());
    assert_eq!(store.stats().segments, 15);
    // The box's own record stands in one.
    assert_eq!(store.stats().free_segments, 14);
    assert_eq!(store.stats().commits, 0);
    assert_eq!(store.layout().segment_pages, 64);
}

#[test]
fn a_start_decodes_each_record_once() {
    let mut store = open(SimFlash::new(REGION));
    let nodes: Vec<Node> = (1..=20).map(node).collect();
    let changes: Vec<StoreChange> = nodes.iter().map(put).collect();
    store.commit(&changes).unwrap();
    let flash = store.into_flash();
    schema::DECODED.set(0);
    let mut store = open(flash);
    let records = store.take_records().unwrap();
    assert_eq!(records.nodes.len(), 20);
    // The record of the box itself is decoded a second time: it proves the key.
    assert_eq!(schema::DECODED.get(), 20 + 2);
    assert_eq!(store.take_records().unwrap(), records);
}

#[test]
fn records_taken_after_a_commit_have_what_it_wrote() {
    let mut store = open(SimFlash::new(REGION));
    store.commit(&[put(&node(1))]).unwrap();
    let mut store = open(store.into_flash());
    store.commit(&[put(&node(2))]).unwrap();
    assert_eq!(store.take_records().unwrap().nodes.len(), 2);
}

#[test]
fn a_store_shows_no_secrets_of_its_records() {
    let mut store = open(SimFlash::new(REGION));
    let mut secret = node(1);
    let password = json!("hunter2");
    secret.driver_info.insert("ipmi_password".into(), password);
    store.commit(&[put(&secret)]).unwrap();
    let shown = format!("{:?}", open(store.into_flash()));
    assert!(!shown.contains("hunter2"));
}

#[test]
fn every_kind_of_record_is_there_after_reopening_and_can_be_deleted() {
    let mut store = open(SimFlash::new(REGION));
    let (one, two) = (node(1), node(2));
    let changes = [
        put(&one),
        put(&two),
        StoreChange::PutPort(Arc::new(port(3, &one))),
        StoreChange::PutLease(lease(4)),
        StoreChange::PutSerial(5),
    ];
    store.commit(&changes).unwrap();
    let want = store.records().unwrap();
    assert_eq!(want.nodes.len(), 2);
    assert_eq!(want.nodes[&one.id], one);
    assert_eq!(want.ports.len(), 1);
    assert_eq!(want.leases[&lease(4).mac], lease(4));
    assert_eq!(want.serial, 5);

    let mut store = open(store.into_flash());
    assert_eq!(store.records().unwrap(), want);
    let changes = [
        StoreChange::DeleteNode(one.id),
        StoreChange::DeletePort(PortId(Uuid::from_u128(3))),
        StoreChange::DeleteLease(lease(4).mac),
    ];
    store.commit(&changes).unwrap();
    let left = open(store.into_flash()).records().unwrap();
    assert_eq!(left.nodes.keys().collect::<Vec<_>>(), [&two.id]);
    assert!(left.ports.is_empty() && left.leases.is_empty());
}

#[test]
fn one_batch_is_one_write_and_one_flush() {
    let mut store = open(SimFlash::new(REGION));
    let before = store.flash().counts();
    let changes: Vec<_> = (0..20).map(|number| put(&node(number))).collect();
    store.commit(&changes).unwrap();
    let after = store.flash().counts();
    assert_eq!(after.writes - before.writes, 1);
    assert_eq!(after.flushes - before.flushes, 1);
    let stats = store.stats();
    assert_eq!((stats.commits, stats.flushes), (1, 1));
    assert_eq!(
        stats.written_bytes,
        after.written_bytes - before.written_bytes
    );
}

#[test]
fn what_changes_nothing_writes_nothing() {
    let mut store = open(SimFlash::new(REGION));
    store.commit(&[put(&node(1))]).unwrap();
    let before = store.flash().counts();
    store.commit(&[]).unwrap();
    store.commit(&[put(&node(1))]).unwrap();
    store
        .commit(&[StoreChange::DeleteNode(NodeId(Uuid::from_u128(9)))])
        .unwrap();
    let mut other = node(1);
    other.power_state = Some(PowerState::On);
    store.commit(&[put(&other), put(&node(1))]).unwrap();
    assert_eq!(store.flash().counts(), before);
    assert_eq!(store.stats().commits, 1);
}

#[test]
fn of_two_changes_of_one_record_the_last_counts() {
    let mut store = open(SimFlash::new(REGION));
    let mut later = node(1);
    later.power_state = Some(PowerState::Off);
    store.commit(&[put(&node(1)), put(&later)]).unwrap();
    assert_eq!(store.records().unwrap().nodes[&later.id], later);
    let changes = [put(&node(1)), StoreChange::DeleteNode(later.id)];
    store.commit(&changes).unwrap();
    assert!(store.records().unwrap().nodes.is_empty());
}

#[test]
fn refuses_too_many_changes() {
    let mut store = open(SimFlash::new(REGION));
    let changes = vec![StoreChange::PutSerial(1); BATCH_CHANGES_MAX + 1];
    assert!(matches!(
        store.commit(&changes),
        Err(CommitError::TooManyChanges { .. })
    ));
    store.commit(&changes[1..]).unwrap();
    assert_eq!(store.records().unwrap().serial, 1);
}

#[test]
fn a_record_that_could_not_be_read_back_is_refused_and_changes_nothing() {
    let mut store = open(SimFlash::new(REGION));
    let mut deep = node(1);
    deep.inventory = Some((0..500).fold(json!(1), |inner, _| json!([inner])));
    let error = store.commit(&[StoreChange::PutSerial(3), put(&deep)]);
    assert!(matches!(error, Err(CommitError::Record(_))));
    assert_eq!(store.records().unwrap(), StoreRecords::default());
}

#[test]
fn a_record_of_a_newer_version_keeps_the_store_from_opening() {
    let mut log = StoreLog::open(SimFlash::new(REGION), 32768).unwrap();
    let key = schema::unit_key();
    log.commit([(key, Some(vec![4, 5, 0, 1]))].into()).unwrap();
    let error = Store::open_with(log.into_flash(), box_key(), 32768).unwrap_err();
    let OpenError::Record(error) = error else {
        panic!("{error}");
    };
    let text = error.to_string();
    assert!(text.contains("box") && text.contains("version 5"), "{text}");
}

#[test]
fn a_record_of_an_unknown_kind_is_kept() {
    let mut log = StoreLog::open(SimFlash::new(REGION), 32768).unwrap();
    let key = RecordKey {
        kind: 77,
        id: [0; 16],
    };
    log.commit([(key, Some(vec![77, 1, 0]))].into()).unwrap();
    let mut store = open(log.into_flash());
    assert_eq!(store.records().unwrap(), StoreRecords::default());
    store.commit(&[put(&node(1))]).unwrap();
    let store = open(store.into_flash());
    assert_eq!(store.log.value(&key), Some([77, 1, 0].as_slice()));
    let mut flash = store.into_flash();
    let salvage = crate::Salvage::read(&mut flash, 32768).unwrap();
    let outcome = salvage.review(Some(&box_key())).unwrap();
    assert_eq!(outcome.records[&key], [77, 1, 0]);
    let text = outcome.export(REGION as u64, None);
    let export = crate::Export::parse(&text).unwrap();
    assert_eq!(export.records[&key], [77, 1, 0], "also in an export");
}

/// A lease with a field of a newer program, tag 900.
fn newer_lease() -> (RecordKey, Vec<u8>) {
    let mut bytes = schema::encode_lease(&lease(4)).unwrap();
    // Envelope, then the number of fields.
    bytes[3] += 1;
    bytes.extend(b"\x84\x07\x02hi");
    (schema::lease_key(lease(4).mac), bytes)
}

fn moved(lease: Lease) -> StoreChange {
    StoreChange::PutLease(Lease {
        address: [10, 0, 0, 99].into(),
        ..lease
    })
}

fn has_newer_field(store: &Store<SimFlash>) -> bool {
    let (key, _) = newer_lease();
    store.log.value(&key).unwrap().ends_with(b"\x84\x07\x02hi")
}

/// A store with that lease.
fn newer_store() -> Store<SimFlash> {
    let mut log = open(SimFlash::new(REGION)).log;
    let (key, bytes) = newer_lease();
    log.commit([(key, Some(bytes))].into()).unwrap();
    open(log.into_flash())
}

#[test]
fn a_field_of_a_newer_program_stays_when_its_record_changes() {
    let mut store = newer_store();
    let writes = store.flash().counts().writes;
    store.commit(&[StoreChange::PutLease(lease(4))]).unwrap();
    assert_eq!(store.flash().counts().writes, writes, "nothing changed");
    store.commit(&[moved(lease(4)), moved(lease(4))]).unwrap();
    assert!(has_newer_field(&store));
    let store = open(store.into_flash());
    assert!(has_newer_field(&store));
    let address = store.records().unwrap().leases[&lease(4).mac].address;
    assert_eq!(address, core::net::Ipv4Addr::new(10, 0, 0, 99));
}

#[test]
fn a_field_of_a_newer_program_goes_when_its_record_is_deleted() {
    let mut store = newer_store();
    let delete = StoreChange::DeleteLease(lease(4).mac);
    store.commit(&[delete.clone(), moved(lease(4))]).unwrap();
    assert!(!has_newer_field(&store));
    let mut store = newer_store();
    store.commit(&[delete]).unwrap();
    store.commit(&[moved(lease(4))]).unwrap();
    assert!(!has_newer_field(&store));
}

#[test]
fn a_field_of_a_newer_program_stays_when_a_store_is_repaired() {
    let mut flash = newer_store().into_flash();
    let salvage = crate::Salvage::read(&mut flash, 32768).unwrap();
    let outcome = salvage.review(Some(&box_key())).unwrap();
    let (key, bytes) = newer_lease();
    assert_eq!(outcome.records[&key], bytes);
}

/// The stories of a node with as many and as large values as there may be.
fn largest_stories(node: &Node) -> NodeStories {
    use trivet_model::diagnosis::{COMMAND_BYTES_MAX, RULE_BYTES_MAX, TEXT_BYTES_MAX};
    use trivet_model::story::{
        FINISHED_JOBS_MAX, JobOutcome, JobStory, Stage, StageState, StageStory, StoryDiagnosis,
    };
    let text = |bytes| "x".repeat(bytes);
    let stage = |stage: &Stage| StageStory {
        stage: *stage,
        state: StageState::Failed,
        begin: UnixMs(1_794_796_610_746),
        since: None,
        duration_ms: 3_600_000,
        usual_ms: Some(600_000),
        tries: 200,
        bytes: 200_000_000_000,
        transfer_ms: 3_600_000,
        first_note: 100_000,
        last_note: 100_000,
        // Only the first stage with a problem keeps it.
        evidence: (*stage == Stage::Power).then(|| text(100)),
    };
    let job = JobStory {
        number: 100_000,
        kind: trivet_model::JobKind::Deploy,
        begin: UnixMs(1_794_796_610_746),
        end: Some(UnixMs(1_794_796_610_746)),
        outcome: JobOutcome::Failed,
        model: text(64),
        stages: Stage::ALL.iter().map(stage).collect(),
        last_error: Some(text(160)),
        diagnosis: Some(StoryDiagnosis {
            rule: text(RULE_BYTES_MAX),
            sentence: String::new(),
            // All three together have a bound.
            cause: text(TEXT_BYTES_MAX),
            next_action: String::new(),
            action: Some(text(RULE_BYTES_MAX)),
            command: Some(text(COMMAND_BYTES_MAX)),
        }),
    };
    let mut stories = NodeStories::new(node.id);
    for _ in 0..FINISHED_JOBS_MAX {
        stories.add(job.clone());
    }
    stories
}

#[test]
fn a_finished_job_has_at_most_two_kibibytes() {
    let stories = largest_stories(&node(1));
    let all = schema::encode_stories(&stories).unwrap().len();
    let each = all / stories.jobs.len();
    assert!(each <= 2048, "{each} bytes");
}

#[test]
fn stories_and_requests_of_callers_are_there_after_reopening() {
    use trivet_model::story::{AUDIT_ENTRIES_MAX, StoredNote};
    let mut store = open(SimFlash::new(REGION));
    let stories = Arc::new(largest_stories(&node(1)));
    let note = StoredNote {
        at: UnixMs(7),
        kind: "state_changed".to_owned(),
        text: "a -> b".to_owned(),
        fields: vec!["a".to_owned(), "b".to_owned()],
    };
    let job = Arc::new(RunningJobStory {
        node: node(1).id,
        story: stories.jobs[0].clone(),
        evidence: json!({"last_note_at": 7}),
        dropped: 3,
        notes: vec![note; 3],
    });
    let entry = |number: u64| AuditEntry {
        number,
        at: UnixMs(9),
        caller: "token ci".to_owned(),
        user: Some("ci".to_owned()),
        from: "192.0.2.1".to_owned(),
        request_line: "PUT /v1/x".to_owned(),
        request: "req-1".to_owned(),
        order: "deploy".to_owned(),
        node: Some(node(1).id),
        node_name: None,
        refused: None,
    };
    let round = AUDIT_ENTRIES_MAX as u64;
    let changes = [
        put(&node(1)),
        StoreChange::PutStories(Arc::clone(&stories)),
        StoreChange::PutJob(Arc::clone(&job)),
        StoreChange::PutAudit(Arc::new(entry(1))),
        StoreChange::PutAudit(Arc::new(entry(2))),
        StoreChange::PutAudit(Arc::new(entry(round + 1))),
    ];
    store.commit(&changes).unwrap();
    let mut store = open(store.into_flash());
    let records = store.records().unwrap();
    assert_eq!(records.stories[&node(1).id], *stories);
    assert_eq!(records.jobs[&node(1).id], *job);
    let numbers: Vec<u64> = records.audit.keys().copied().collect();
    assert_eq!(
        numbers,
        [2, round + 1],
        "the older one of the same place is replaced"
    );
    store
        .commit(&[
            StoreChange::DeleteStories(node(1).id),
            StoreChange::DeleteJob(node(1).id),
        ])
        .unwrap();
    let records = open(store.into_flash()).records().unwrap();
    assert!(records.stories.is_empty() && records.jobs.is_empty());
}
