//! Random damage to a store, and whether repair reports what was lost.
//!
//! Goal: a record that is missing after a repair, or older than it was, is named, or a line
//! says which commits are damaged and how many changes of unknown records stood there.
//! Method: stores of nodes, ports, images and leases, each grown by its own seed; bytes,
//! sectors and runs of pages are damaged; the records before and after are compared.

use std::sync::Arc;

use trivet_board_sim::{SimFlash, box_key};
use trivet_model::{
    Entropy as _, Lease, MacAddr, Node, NodeId, Port, PortId, PowerState, Resource, ResourceId,
    ResourceKind, SeededRandom, UnixMs,
};
use trivet_store::{RecordKey, RecordKind, Salvage, SalvageOutcome, Store, StoreChange, rebuild};
use uuid::Uuid;

const PAGE: usize = 4096;
const SEGMENT_BYTES: u32 = 16 * 1024;
/// Small, so that longer histories go round.
const REGION: usize = 2 * PAGE + 24 * SEGMENT_BYTES as usize;

/// The records of a box while a history is made up.
struct History {
    chance: SeededRandom,
    store: Store<SimFlash>,
    nodes: Vec<Node>,
    ports: Vec<Port>,
    images: u64,
    serial: u64,
}

impl History {
    fn new(seed: u64) -> Self {
        let flash = SimFlash::new(REGION);
        Self {
            chance: SeededRandom::new(seed),
            store: Store::open_with(flash, box_key(), SEGMENT_BYTES).expect("blank"),
            nodes: Vec::new(),
            ports: Vec::new(),
            images: 0,
            serial: 0,
        }
    }

    fn uuid(&mut self) -> Uuid {
        let mut bytes = [0; 16];
        self.chance.fill(&mut bytes);
        Uuid::from_bytes(bytes)
    }

    fn next(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    fn text(&mut self, most: u64) -> String {
        let length = self.chance.below(most) as usize;
        let is_allowed = |_| char::from(b'a' + self.chance.below(26) as u8);
        (0..length).map(is_allowed).collect()
    }

    fn enrol(&mut self) -> Vec<StoreChange> {
        let mut node = Node::new(NodeId(self.uuid()), "ipmi", UnixMs(1));
        node.serial = self.next();
        node.name = Some(format!("node-{}", node.serial));
        let text = self.text(1500);
        node.extra.insert("text".to_owned(), text.into());
        let port = Port {
            id: PortId(self.uuid()),
            revision: 0,
            serial: self.next(),
            node: node.id,
            address: MacAddr([2, 0, 0, 0, 0, self.serial as u8]),
            pxe_enabled: true,
            extra: serde_json::Map::new(),
            attributes: trivet_model::attributes::PortAttributes::default(),
            created_at: UnixMs(1),
            updated_at: None,
        };
        self.nodes.push(node.clone());
        self.ports.push(port.clone());
        vec![
            StoreChange::PutSerial(self.serial),
            StoreChange::PutNode(Arc::new(node)),
            StoreChange::PutPort(Arc::new(port)),
        ]
    }

    fn image(&mut self) -> Vec<StoreChange> {
        self.images += 1;
        let id = ResourceId(self.uuid());
        let mut image = Resource::new(id, ResourceKind::Image, UnixMs(1));
        image.serial = self.next();
        image.name = Some(format!("image-{}", image.serial));
        let text = self.text(600);
        image.fields.insert("note".to_owned(), text.into());
        vec![
            StoreChange::PutSerial(self.serial),
            StoreChange::PutResource(Arc::new(image)),
        ]
    }

    fn lease(&mut self) -> Vec<StoreChange> {
        let number = self.chance.below(40) as u8;
        vec![StoreChange::PutLease(Lease {
            mac: MacAddr([2, 0, 0, 0, 0, number]),
            address: [10, 0, self.chance.below(200) as u8, number].into(),
        })]
    }

    fn change(&mut self) -> Vec<StoreChange> {
        let Some(at) = self
            .chance
            .below(self.nodes.len() as u64 + 1)
            .checked_sub(1)
        else {
            return self.enrol();
        };
        let text = self.text(300);
        let node = &mut self.nodes[at as usize];
        node.revision += 1;
        node.power_state = Some(PowerState::On);
        node.extra.insert("more".to_owned(), text.into());
        vec![StoreChange::PutNode(Arc::new(node.clone()))]
    }

    fn delete(&mut self) -> Vec<StoreChange> {
        if self.nodes.len() < 3 {
            return self.enrol();
        }
        let at = self.chance.below(self.nodes.len() as u64) as usize;
        let (node, port) = (self.nodes.remove(at), self.ports.remove(at));
        vec![
            StoreChange::DeletePort(port.id),
            StoreChange::DeleteNode(node.id),
        ]
    }

    fn step(&mut self) {
        let mut changes = Vec::new();
        for _ in 0..=self.chance.below(3) {
            let more = match self.chance.below(20) {
                0..=2 if self.nodes.len() < 20 => self.enrol(),
                3..=4 if self.images < 20 => self.image(),
                5..=7 => self.lease(),
                8 => self.delete(),
                _ => self.change(),
            };
            changes.extend(more);
        }
        // The box writes each record once in a batch.
        self.store.commit(&changes).expect("room");
    }
}

/// A region with the records of one seed.
fn grown(seed: u64) -> Vec<u8> {
    let mut history = History::new(seed);
    let most = if seed.is_multiple_of(4) { 400 } else { 80 };
    let steps = 5 + history.chance.below(most);
    for _ in 0..steps {
        history.step();
    }
    history.store.flash().bytes().to_vec()
}

fn reviewed(image: &[u8]) -> (Salvage, SalvageOutcome) {
    let mut flash = SimFlash::with_bytes(image.to_vec());
    let salvage = Salvage::read(&mut flash, SEGMENT_BYTES).expect("a store");
    let outcome = salvage.review(Some(&box_key())).expect("its key");
    (salvage, outcome)
}

/// Damages what was written, in one to three places.
fn damage(image: &mut [u8], chance: &mut SeededRandom) {
    let written = image
        .chunks(PAGE)
        .rposition(|page| page.iter().any(|&byte| byte != 0));
    let pages = written.unwrap_or_default() as u64 - 1;
    for _ in 0..=chance.below(3) {
        let page = (2 + chance.below(pages)) as usize;
        let way = chance.below(4);
        let (at, length) = match way {
            0 => (page * PAGE + chance.below(PAGE as u64) as usize, 1),
            1 => (page * PAGE + 512 * chance.below(8) as usize, 512),
            _ => (page * PAGE, PAGE * (1 + chance.below(4) as usize)),
        };
        let end = (at + length).min(image.len());
        let place = &mut image[at..end];
        match way {
            0 => place[0] ^= 1 << chance.below(8),
            3 => place.fill(0),
            _ => chance.fill(place),
        }
    }
}

/// The page of the last commit: the one with the highest number.
fn last_page(image: &[u8]) -> usize {
    let commit = |page: &[u8]| u64::from_le_bytes(page[16..24].try_into().expect("8 bytes"));
    let pages = image.chunks(PAGE).skip(2);
    let pages = pages.map(commit).zip(2..);
    pages.max_by_key(|(commit, _)| *commit).expect("pages").1
}

/// The number in a sentence that follows these words.
fn number_after(sentence: &str, words: &str) -> Option<usize> {
    let (_, rest) = sentence.split_once(words)?;
    let end = rest.find(|character: char| !character.is_ascii_digit());
    rest[..end.unwrap_or(rest.len())].parse().ok()
}

/// How a damage was reported.
#[derive(Debug, Eq, PartialEq)]
enum LossReport {
    /// Nothing is missing or older.
    Nothing,
    /// By the record.
    Named,
    /// By the commits and the number of records that they may have held.
    Counted,
    /// By what stands at the end of the log.
    AtTheEnd,
    /// The last commit is zeros: nothing is left that could be reported.
    Erased,
}

fn loss_report(whole: &[u8], image: &[u8], story: &str) -> LossReport {
    let (_, before) = reviewed(whole);
    let (salvage, after) = reviewed(image);
    rebuild(SimFlash::new(REGION), SEGMENT_BYTES, &after.records).expect("room");
    let is_counter = |key: &RecordKey| key.kind == RecordKind::Box as u8;
    let mut worse: Vec<RecordKey> = before.records.keys().copied().collect();
    worse.retain(|key| !is_counter(key) && after.records.get(key) != before.records.get(key));
    if worse.is_empty() {
        return LossReport::Nothing;
    }
    worse.retain(|key| {
        !after
            .damaged_records
            .iter()
            .any(|finding| finding.key == *key)
    });
    let end = salvage.unfinished.as_ref();
    worse.retain(|key| !end.is_some_and(|end| end.hit.contains(key)));
    if worse.is_empty() {
        return LossReport::Named;
    }
    let last = last_page(whole);
    let is_erased = image[last * PAGE..][..PAGE].iter().all(|&byte| byte == 0);
    if let Some(sentence) = &after.unnamed {
        // What the end of the log cost comes on top.
        let is_more = end.is_some() || is_erased;
        let (older, lost): (Vec<RecordKey>, Vec<RecordKey>) = worse
            .iter()
            .partition(|key| after.records.contains_key(key));
        let created = lost
            .iter()
            .filter(|key| key.kind != RecordKind::Lease as u8);
        let bound = number_after(sentence, "only version of at most ");
        let is_within = is_more || bound.is_none_or(|bound| created.count() <= bound);
        assert!(is_within, "{story}: {lost:?}: {sentence}");
        for kind in [RecordKind::Node, RecordKind::Port, RecordKind::Lease] {
            let count = older.iter().filter(|key| key.kind == kind as u8).count();
            let number = number_after(sentence, &format!(" {} ", kind.name()));
            let is_within = is_more || count <= number.unwrap_or_default();
            assert!(is_within, "{story}: {count} of {kind:?}: {sentence}");
        }
        return LossReport::Counted;
    }
    if after.unfinished.is_some() {
        return LossReport::AtTheEnd;
    }
    assert!(is_erased, "{story}: {worse:?} lost in silence: {after:?}");
    LossReport::Erased
}

#[test]
fn whatever_is_damaged_no_record_is_lost_or_older_in_silence() {
    let stores: Vec<Vec<u8>> = (0..50).map(grown).collect();
    let mut all = Vec::new();
    for seed in 0..600_u64 {
        let whole = &stores[seed as usize % stores.len()];
        let mut image = whole.clone();
        damage(&mut image, &mut SeededRandom::new(1000 + seed));
        all.push(loss_report(whole, &image, &format!("seed {seed}")));
    }
    let count = |reported: &LossReport| all.iter().filter(|one| *one == reported).count();
    for reported in [
        LossReport::Nothing,
        LossReport::Named,
        LossReport::Counted,
        LossReport::AtTheEnd,
    ] {
        assert!(count(&reported) > 5, "{reported:?}: {}", count(&reported));
    }
    assert!(
        count(&LossReport::Erased) < 30,
        "{}",
        count(&LossReport::Erased)
    );
}

#[test]
fn a_flipped_byte_anywhere_in_the_log_names_the_records_that_it_costs() {
    let mut chance = SeededRandom::new(7);
    for seed in 0..8 {
        let whole = grown(seed);
        for page in 2..whole.len() / PAGE {
            let mut image = whole.clone();
            image[page * PAGE + 100 + chance.below(3900) as usize] ^= 0x10;
            let reported = loss_report(&whole, &image, &format!("store {seed}, page {page}"));
            let is_well = matches!(
                reported,
                LossReport::Nothing | LossReport::Named | LossReport::Counted
            );
            assert!(is_well, "store {seed}, page {page}: {reported:?}");
        }
    }
}
