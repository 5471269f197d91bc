//! Damage at every kind of place of a region, and what is read past it.

use std::io;
use std::sync::Arc;

use trivet_board_hal::FlashError;
use trivet_board_sim::{SimFlash, box_key};
use trivet_model::{
    Entropy as _, Lease, MacAddr, Node, NodeId, Port, PortId, PowerState, SeededRandom, UnixMs,
};
use uuid::Uuid;

use super::scan::SECTOR_BYTES;
use super::*;
use crate::outcome::{RecordDamage, SalvageOutcome};
use crate::{Store, StoreChange, StoreLog, StoreRecords, rebuild, schema};

const SEGMENT_BYTES: u32 = 32 * 1024;
const REGION: usize = 2 * PAGE_BYTES + 64 * SEGMENT_BYTES as usize;

fn open(bytes: &[u8]) -> Result<Store<SimFlash>, OpenError> {
    let flash = SimFlash::with_bytes(bytes.to_vec());
    Store::open_with(flash, box_key(), SEGMENT_BYTES)
}

fn node(number: u128) -> Node {
    Node {
        name: Some(format!("name-{number}")),
        ..Node::new(NodeId(Uuid::from_u128(number)), "ipmi", UnixMs(1))
    }
}

fn put(node: &Node) -> StoreChange {
    StoreChange::PutNode(Arc::new(node.clone()))
}

fn node_key(number: u128) -> RecordKey {
    schema::node_key(NodeId(Uuid::from_u128(number)))
}

fn port(number: u128, node: u128) -> StoreChange {
    StoreChange::PutPort(Arc::new(Port {
        id: PortId(Uuid::from_u128(number)),
        revision: 0,
        serial: 0,
        node: NodeId(Uuid::from_u128(node)),
        address: MacAddr([2, 0, 0, 0, 0, number as u8]),
        pxe_enabled: true,
        extra: serde_json::Map::new(),
        attributes: trivet_model::attributes::PortAttributes::default(),
        created_at: UnixMs(1),
        updated_at: None,
    }))
}

fn lease(number: u8) -> StoreChange {
    StoreChange::PutLease(Lease {
        mac: MacAddr([2, 0, 0, 0, 0, number]),
        address: [10, 0, 0, number].into(),
    })
}

/// A store of one page for each commit: commit 1 is the box's own record, 2 to 4 are
/// nodes 1 to 3, 5 is a port of node 2, 6 a lease; then come `more`.
fn store(more: &[StoreChange]) -> Store<SimFlash> {
    let mut store = open(&vec![0; REGION]).unwrap();
    let changes = [
        put(&node(1)),
        put(&node(2)),
        put(&node(3)),
        port(9, 2),
        lease(7),
    ];
    for change in changes.iter().chain(more) {
        store.commit(std::slice::from_ref(change)).unwrap();
    }
    store
}

fn image(more: &[StoreChange]) -> Vec<u8> {
    store(more).flash().bytes().to_vec()
}

/// Where the page of a commit stands, in stores of one page for each.
fn page_of(commit: usize) -> usize {
    (1 + commit) * PAGE_BYTES
}

/// Fills one sector of the page of a commit with garbage.
fn damage_sector(image: &mut [u8], commit: usize, sector: usize) {
    image[page_of(commit) + sector * SECTOR_BYTES..][..SECTOR_BYTES].fill(0xa5);
}

fn salvage(image: &[u8]) -> Salvage {
    let mut flash = SimFlash::with_bytes(image.to_vec());
    let salvage = Salvage::read(&mut flash, SEGMENT_BYTES).unwrap();
    assert_eq!(flash.counts().writes, 0, "reading writes nothing");
    assert_eq!(flash.bytes(), image);
    salvage
}

/// The store that repair makes, and what it says.
fn repaired(image: &[u8]) -> (StoreRecords, SalvageOutcome) {
    let outcome = salvage(image).review(Some(&box_key())).unwrap();
    let flash = SimFlash::new(REGION);
    let flash = rebuild(flash, SEGMENT_BYTES, &outcome.records).unwrap();
    let store = Store::open_with(flash, box_key(), SEGMENT_BYTES).unwrap();
    (store.records().unwrap(), outcome)
}

fn names(records: &StoreRecords) -> Vec<&str> {
    let nodes = records.nodes.values();
    nodes.filter_map(|node| node.name.as_deref()).collect()
}

#[test]
fn a_whole_store_is_read_as_it_opens() {
    let image = image(&[]);
    let found = salvage(&image);
    assert!(found.is_whole());
    assert_eq!((found.commits, &found.unfinished), (Some((1, 6)), &None));
    assert_eq!(
        found.free_segments,
        open(&image).unwrap().stats().free_segments
    );
    let (records, outcome) = repaired(&image);
    assert!(
        outcome.damaged_records.is_empty(),
        "{:?}",
        outcome.damaged_records
    );
    assert_eq!(records, open(&image).unwrap().records().unwrap());
    assert_eq!(outcome.counts["node"], 3);
    assert_eq!(outcome.counts["lease"], 1);
}

#[test]
fn a_blank_region_is_whole_and_empty_and_a_foreign_one_is_refused() {
    assert!(salvage(&vec![0; REGION]).is_whole());
    let mut foreign = SimFlash::with_bytes(vec![7; REGION]);
    assert!(matches!(
        Salvage::read(&mut foreign, SEGMENT_BYTES),
        Err(OpenError::Foreign)
    ));
    let mut tiny = SimFlash::new(100);
    assert!(Salvage::read(&mut tiny, SEGMENT_BYTES).is_err());
}

#[test]
fn a_damaged_commit_loses_its_node_alone_and_names_it() {
    let mut image = image(&[]);
    damage_sector(&mut image, 3, 1);
    assert!(matches!(open(&image), Err(OpenError::Damaged { .. })));
    let found = salvage(&image);
    let [damage] = &found.damages[..] else {
        panic!("{:?}", found.damages);
    };
    assert_eq!(damage.at, Some(page_of(3) as u64));
    assert_eq!((damage.bytes, damage.commits), (4096, Some((3, 3))));
    assert_eq!(damage.hit, [node_key(2)]);
    let (records, outcome) = repaired(&image);
    assert_eq!(names(&records), ["name-1", "name-3"]);
    assert_eq!((records.ports.len(), records.leases.len()), (1, 1));
    let lines: Vec<String> = outcome
        .damaged_records
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(outcome.damaged_records.len(), 2, "{lines:?}");
    assert_eq!(outcome.damaged_records[0].key, node_key(2));
    assert_eq!(outcome.damaged_records[0].damage, RecordDamage::Lost);
    assert!(
        lines[0].contains("node 00000000-0000-0000-0000-000000000002"),
        "{lines:?}"
    );
    // Its port is whole, and has no node any more.
    assert_eq!(outcome.damaged_records[1].damage, RecordDamage::WithoutNode);
    assert!(lines[1].contains("02:00:00:00:00:09"), "{lines:?}");
}

#[test]
fn a_commit_of_which_nothing_is_readable_is_named_by_its_number_and_place() {
    let mut image = image(&[]);
    damage_sector(&mut image, 3, 0);
    let found = salvage(&image);
    assert_eq!(found.damages.len(), 1);
    assert!(found.damages[0].unknown && found.damages[0].hit.is_empty());
    assert_eq!(found.damages[0].at, Some(page_of(3) as u64));
    let (records, _) = repaired(&image);
    assert_eq!(names(&records), ["name-1", "name-3"]);
}

#[test]
fn a_later_patch_names_the_record_of_a_damaged_commit() {
    let mut changed = node(2);
    changed.power_state = Some(PowerState::On);
    let mut image = image(&[put(&changed), lease(8)]);
    damage_sector(&mut image, 3, 0);
    let (records, outcome) = repaired(&image);
    assert_eq!(names(&records), ["name-1", "name-3"]);
    assert_eq!(outcome.damaged_records[0].key, node_key(2));
    assert_eq!(outcome.damaged_records[0].damage, RecordDamage::Lost);
    assert_eq!(records.leases.len(), 2);
}

#[test]
fn an_older_version_of_a_node_is_kept_and_reported_as_older() {
    let mut changed = node(3);
    changed.power_state = Some(PowerState::On);
    let mut image = image(&[put(&changed), lease(8)]);
    damage_sector(&mut image, 7, 1);
    assert!(open(&image).is_err());
    let (records, outcome) = repaired(&image);
    assert_eq!(names(&records), ["name-1", "name-2", "name-3"]);
    assert_eq!(records.nodes[&changed.id], node(3));
    let [finding] = &outcome.damaged_records[..] else {
        panic!("{:?}", outcome.damaged_records);
    };
    assert_eq!(
        (finding.key, finding.damage),
        (node_key(3), RecordDamage::Older)
    );
    let text = finding.to_string();
    assert!(text.contains("older version of node"), "{text}");
    assert!(text.contains("name-3"), "{text}");
}

#[test]
fn damage_to_a_version_that_was_replaced_or_deleted_loses_nothing() {
    let gone = StoreChange::DeleteNode(NodeId(Uuid::from_u128(2)));
    let whole = image(&[gone, lease(8)]);
    let mut image = whole.clone();
    damage_sector(&mut image, 3, 1);
    assert!(open(&image).is_err());
    let (records, outcome) = repaired(&image);
    assert_eq!(records, open(&whole).unwrap().records().unwrap());
    let lost = outcome.damaged_records.iter();
    let lost = lost.filter(|finding| finding.damage != RecordDamage::WithoutNode);
    assert_eq!(lost.count(), 0, "{:?}", outcome.damaged_records);
}

#[test]
fn the_counter_of_the_box_is_never_set_back() {
    let third = Node {
        serial: 3,
        ..node(4)
    };
    let mut image = image(&[put(&third), StoreChange::PutSerial(3), lease(8)]);
    damage_sector(&mut image, 1, 1);
    damage_sector(&mut image, 8, 1);
    let (records, outcome) = repaired(&image);
    assert_eq!(records.serial, 3, "the nodes say how far it was");
    assert!(
        outcome.damaged_records.is_empty(),
        "{:?}",
        outcome.damaged_records
    );
}

#[test]
fn damaged_copies_of_the_superblock_cost_no_record() {
    let whole = image(&[]);
    let want = open(&whole).unwrap().records().unwrap();
    for copies in [&[0_usize][..], &[1], &[0, 1]] {
        let mut image = whole.clone();
        for copy in copies {
            image[copy * PAGE_BYTES..][..SECTOR_BYTES].fill(0xa5);
        }
        let found = salvage(&image);
        assert_eq!(found.damages.len(), copies.len());
        assert!(found.damages[0].what.contains("superblock"));
        assert_eq!(repaired(&image).0, want);
    }
}

#[test]
fn a_damaged_last_commit_is_taken_for_an_unfinished_one() {
    let mut image = image(&[put(&node(4))]);
    damage_sector(&mut image, 7, 7);
    let found = salvage(&image);
    assert!(found.is_whole(), "{:?}", found.damages);
    assert_eq!(found.commits, Some((1, 6)));
    let unfinished = found.unfinished.unwrap();
    assert_eq!(unfinished.commits, Some((7, 7)));
    assert_eq!(unfinished.hit, [node_key(4)]);
    let (records, outcome) = repaired(&image);
    assert_eq!(names(&records).len(), 3);
    let message = outcome.unfinished.unwrap();
    assert!(message.contains("commit 7, at the end"), "{message}");
    assert!(
        message.contains("node 00000000-0000-0000-0000-000000000004"),
        "{message}"
    );
}

#[test]
fn two_damaged_commits_at_the_end_are_no_unfinished_one() {
    let mut image = image(&[put(&node(4)), lease(8)]);
    damage_sector(&mut image, 7, 7);
    damage_sector(&mut image, 8, 7);
    assert!(matches!(
        open(&image),
        Err(OpenError::Damaged { commit: 7, .. })
    ));
    let found = salvage(&image);
    let [damage] = &found.damages[..] else {
        panic!("{:?}", found.damages);
    };
    assert_eq!(damage.at, Some(page_of(7) as u64));
    assert_eq!((damage.commits, damage.changes), (Some((7, 7)), Some(1)));
    assert_eq!(damage.hit, [node_key(4)]);
    let unfinished = found.unfinished.unwrap();
    assert_eq!(unfinished.commits, Some((8, 8)));
    let (_, outcome) = repaired(&image);
    let lost = outcome.damaged_records.iter();
    let lost: Vec<(RecordKey, RecordDamage)> =
        lost.map(|finding| (finding.key, finding.damage)).collect();
    assert_eq!(lost, [(node_key(4), RecordDamage::Lost)]);
}

#[test]
fn a_commit_that_cannot_be_read_is_reported_with_the_number_of_records_it_may_have_held() {
    let counted = |number: u64| {
        let node = Node {
            serial: number,
            ..node(u128::from(number))
        };
        [put(&node), StoreChange::PutSerial(number)]
    };
    let mut store = open(&vec![0; REGION]).unwrap();
    for number in 1..=4 {
        store.commit(&counted(number)).unwrap();
    }
    store.commit(&[lease(7)]).unwrap();
    let whole = store.flash().bytes().to_vec();
    // Zeros in place of commit 3 with node 2, whose number is missing.
    let mut image = whole.clone();
    image[page_of(3)..][..PAGE_BYTES].fill(0);
    let (_, outcome) = repaired(&image);
    let message = outcome.unnamed.unwrap();
    assert!(message.starts_with("commit 3 may have held "), "{message}");
    assert!(
        message.contains("at most 1 of the 4 nodes, ports and"),
        "{message}"
    );
    assert!(message.ends_with("or were deleted: node 1"), "{message}");
    // Nothing that is left says how many commit 5 created.
    let mut image = whole.clone();
    image[page_of(5)..][..PAGE_BYTES].fill(0);
    let message = repaired(&image).1.unnamed.unwrap();
    assert!(message.contains("how many is not known"), "{message}");
    assert_eq!(repaired(&whole).1.unnamed, None);
}

#[test]
fn a_damaged_page_in_the_middle_of_a_commit_loses_the_records_on_it_alone() {
    let batch: Vec<Node> = (10..40)
        .map(|number| {
            let mut node = node(number);
            let text = "text of this node ".repeat(50);
            node.extra.insert("text".to_owned(), text.into());
            node
        })
        .collect();
    let mut store = store(&[]);
    let changes: Vec<StoreChange> = batch.iter().map(put).collect();
    store.commit(&changes).unwrap();
    store.commit(&[lease(8)]).unwrap();
    let whole = store.flash().bytes().to_vec();
    for page in [7, 10, 12] {
        let mut image = whole.clone();
        damage_sector(&mut image, page, 2);
        let (records, outcome) = repaired(&image);
        let lost: Vec<RecordKey> = outcome
            .damaged_records
            .iter()
            .map(|finding| finding.key)
            .collect();
        let is_there = |node: &&Node| records.nodes.contains_key(&node.id);
        let (stored, gone): (Vec<&Node>, Vec<&Node>) = batch.iter().partition(is_there);
        assert!(
            (24..30).contains(&stored.len()),
            "page {page}: {}",
            stored.len()
        );
        for node in stored {
            assert_eq!(records.nodes[&node.id], *node);
        }
        // One whose key stood in the damaged sector cannot be named.
        let is_named = |node: &&&Node| lost.contains(&schema::node_key(node.id));
        let named = gone.iter().filter(is_named).count();
        assert!(named + 2 >= gone.len(), "page {page}: {lost:?}");
        assert_eq!(records.leases.len(), 2);
    }
}

/// A device with a sector that it does not read.
struct WornFlash {
    flash: SimFlash,
    sector: u64,
}

impl Flash for WornFlash {
    fn size(&self) -> u64 {
        self.flash.size()
    }

    fn read(&mut self, at: u64, out: &mut [u8]) -> Result<(), FlashError> {
        let end = at + out.len() as u64;
        if at < self.sector + SECTOR_BYTES as u64 && self.sector < end {
            return Err(FlashError::Io {
                operation: "read",
                at,
                source: io::Error::other("a worn sector"),
            });
        }
        self.flash.read(at, out)
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), FlashError> {
        self.flash.write(at, bytes)
    }

    fn flush(&mut self) -> Result<(), FlashError> {
        self.flash.flush()
    }
}

#[test]
fn a_sector_that_the_device_does_not_read_is_damage_like_any_other() {
    let flash = SimFlash::with_bytes(image(&[]));
    let sector = (page_of(3) + 3 * SECTOR_BYTES) as u64;
    let mut worn = WornFlash { flash, sector };
    let found = Salvage::read(&mut worn, SEGMENT_BYTES).unwrap();
    assert_eq!(found.damages.len(), 1, "{:?}", found.damages);
    assert_eq!(found.damages[0].hit, [node_key(2)]);
    // Where nothing stands it costs nothing, but keeps the store from opening.
    worn.sector = (REGION - SECTOR_BYTES) as u64;
    let found = Salvage::read(&mut worn, SEGMENT_BYTES).unwrap();
    assert_eq!(found.damages.len(), 1, "{:?}", found.damages);
    assert_eq!(found.damages[0].at, Some((REGION - PAGE_BYTES) as u64));
    let outcome = found.review(Some(&box_key())).unwrap();
    assert!(
        outcome.damaged_records.is_empty(),
        "{:?}",
        outcome.damaged_records
    );
    assert_eq!(outcome.counts["node"], 3);
}

#[test]
fn another_key_is_refused_and_no_key_leaves_what_is_sealed_alone() {
    let found = salvage(&image(&[]));
    let other = trivet_board_hal::BoxKey::new([1; 32]);
    assert!(matches!(
        found.review(Some(&other)),
        Err(OpenError::WrongKey)
    ));
    let outcome = found.review(None).unwrap();
    assert!(outcome.needs_key);
    assert_eq!(outcome.counts["node"], 3);
}

type CommittedValues = BTreeMap<RecordKey, BTreeSet<Vec<u8>>>;

/// A region that was gone round several times, all values that each record ever had,
/// and its last ones.
fn aged() -> (Vec<u8>, CommittedValues, BTreeMap<RecordKey, Vec<u8>>) {
    const SMALL: usize = 2 * PAGE_BYTES + 16 * 16384;
    let mut chance = SeededRandom::new(1);
    let mut log = StoreLog::open(SimFlash::new(SMALL), 16384).unwrap();
    let mut ever = CommittedValues::new();
    // Too large for spare bytes, never changed: it keeps the tail far behind.
    let id = [9; 16];
    let (cold, value) = (RecordKey { kind: 2, id }, vec![3; 4000]);
    ever.entry(cold).or_default().insert(value.clone());
    log.commit([(cold, Some(value))].into()).unwrap();
    for number in 0..400_usize {
        let id = [chance.below(6) as u8; 16];
        let key = RecordKey { kind: 1, id };
        let mut value = log.value(&key).unwrap_or_default().to_vec();
        if value.is_empty() || number.is_multiple_of(5) {
            value = vec![0; 1500];
            chance.fill(&mut value);
            value[..3].copy_from_slice(&[1, 2, 0]);
        }
        value[3 + number % 1000] ^= 0x55;
        ever.entry(key).or_default().insert(value.clone());
        log.commit([(key, Some(value))].into()).unwrap();
    }
    let last = log.iter().map(|(key, value)| (*key, value.to_vec()));
    let last = last.collect();
    (log.into_flash().bytes().to_vec(), ever, last)
}

#[test]
fn whatever_page_is_damaged_only_values_that_were_committed_are_kept() {
    let (whole, ever, last) = aged();
    let (mut damaged, mut exact) = (0, 0);
    for page in 2..whole.len() / PAGE_BYTES {
        for sector in [0, 5] {
            let mut image = whole.clone();
            image[page * PAGE_BYTES + sector * SECTOR_BYTES..][..SECTOR_BYTES].fill(0xa5);
            let mut flash = SimFlash::with_bytes(image);
            let found = Salvage::read(&mut flash, 16384).unwrap();
            let story = format!("page {page}, sector {sector}: {:?}", found.damages);
            for (key, stored) in &found.records {
                assert!(ever[key].contains(&stored.value), "{story}");
            }
            if found.is_whole() {
                continue;
            }
            damaged += 1;
            let wrong = last.iter().filter(|(key, value)| {
                found
                    .records
                    .get(key)
                    .is_none_or(|stored| stored.value != **value)
            });
            let wrong: Vec<&RecordKey> = wrong.map(|(key, _)| key).collect();
            assert!(wrong.len() <= 3, "{story}: {wrong:?}");
            exact += usize::from(wrong.is_empty());
            for key in wrong {
                let is_reported = found.lost.contains_key(key)
                    || found
                        .records
                        .get(key)
                        .is_some_and(|stored| stored.older.is_some())
                    || found.damages.iter().any(|damage| damage.unknown);
                assert!(is_reported, "{story}: {key:?}");
            }
        }
    }
    assert!(damaged > 10, "{damaged}");
    assert!(exact > 2, "{exact} of {damaged}");
}
