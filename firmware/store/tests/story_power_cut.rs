//! Power cuts while stories change.
//!
//! Goal: a node, the job that its notes tell of, its finished jobs and the entry of the audit
//! change in one batch, and are all old or all new after a cut at any operation. Method: a
//! region that is gone round many times; each commit is cut at each of its operations.

use std::sync::Arc;

use serde_json::json;
use trivet_board_sim::{SimFlash, box_key};
use trivet_model::story::{
    AuditEntry, JobOutcome, JobStory, NodeStories, RunningJobStory, Stage, StageState, StageStory,
    StoredNote,
};
use trivet_model::{Entropy, JobKind, Node, NodeId, SeededRandom, UnixMs};
use trivet_store::{CommitError, Store, StoreChange, StoreRecords};

const SEGMENT_BYTES: u32 = 16 * 1024;
const REGION: usize = 8192 + 32 * SEGMENT_BYTES as usize;
const NODES: u64 = 3;
const BATCHES: u64 = 250;

fn open(flash: SimFlash) -> Store<SimFlash> {
    Store::open_with(flash, box_key(), SEGMENT_BYTES).expect("the store opens")
}

fn id(number: u64) -> NodeId {
    NodeId::random(&mut SeededRandom::new(number))
}

fn job(number: u32, at: u64) -> JobStory {
    let stage = StageStory {
        stage: Stage::Post,
        state: StageState::Late,
        begin: UnixMs(at),
        since: Some(UnixMs(at)),
        duration_ms: 5,
        usual_ms: Some(7),
        tries: 2,
        bytes: 0,
        transfer_ms: 0,
        first_note: 1,
        last_note: 9,
        evidence: Some("no packet".to_owned()),
    };
    JobStory {
        number,
        kind: JobKind::Deploy,
        begin: UnixMs(at),
        end: None,
        outcome: JobOutcome::Running,
        model: "Acme R1".to_owned(),
        stages: vec![stage],
        last_error: None,
        diagnosis: None,
    }
}

/// One note of the job of a node; every twentieth ends the job.
fn batch(records: &StoreRecords, number: u64) -> Vec<StoreChange> {
    let node = id(number % NODES);
    let mut record = records.nodes.get(&node).cloned();
    let record = record.get_or_insert_with(|| Node::new(node, "ipmi", UnixMs(1)));
    record.revision = number;
    let running = records.jobs.get(&node).cloned();
    let mut running = running.unwrap_or_else(|| RunningJobStory {
        node,
        story: job(number as u32, number),
        evidence: json!({}),
        dropped: 0,
        notes: Vec::new(),
    });
    running.evidence = json!({"revision": number});
    running.notes.push(StoredNote {
        at: UnixMs(number),
        kind: "power".to_owned(),
        text: format!("note {number}: {}", "x".repeat((number % 90) as usize)),
        fields: Vec::new(),
    });
    let entry = AuditEntry {
        number,
        at: UnixMs(number),
        caller: "ann".to_owned(),
        user: None,
        from: "192.0.2.1".to_owned(),
        request_line: String::new(),
        request: String::new(),
        order: "power".to_owned(),
        node: Some(node),
        node_name: None,
        refused: None,
    };
    let mut changes = vec![
        StoreChange::PutNode(Arc::new(record.clone())),
        StoreChange::PutAudit(Arc::new(entry)),
    ];
    if running.notes.len() < 20 {
        changes.push(StoreChange::PutJob(Arc::new(running)));
        return changes;
    }
    let finished = records.stories.get(&node).cloned();
    let mut finished = finished.unwrap_or_else(|| NodeStories::new(node));
    finished.jobs_count += 1;
    finished.add(running.story);
    changes.push(StoreChange::DeleteJob(node));
    changes.push(StoreChange::PutStories(Arc::new(finished)));
    changes
}

#[test]
fn a_cut_leaves_the_node_and_its_story_both_old_or_both_new() {
    let mut store = open(SimFlash::new(REGION));
    let mut chance = SeededRandom::new(7);
    let (mut old, mut new) = (0, 0);
    for number in 1..=BATCHES {
        let before = store.records().unwrap();
        let changes = batch(&before, number);
        let mut whole = store.clone();
        whole.commit(&changes).unwrap();
        let after = whole.records().unwrap();
        for operations in 0.. {
            let mut cut = store.clone();
            cut.flash_mut().cut_after(operations);
            match cut.commit(&changes) {
                Ok(()) => break,
                Err(CommitError::Flash(_)) => {}
                Err(error) => panic!("{error}"),
            }
            let found = open(cut.into_flash().power_on(chance.number()));
            let found = found.records().unwrap();
            if found == after {
                new += 1;
            } else {
                assert!(found == before, "batch {number}, operation {operations}");
                old += 1;
            }
        }
        store = whole;
    }
    assert!(old > 100 && new > 20, "{old} old, {new} new");
    let finished = store.records().unwrap().stories;
    assert_eq!(finished.len() as u64, NODES);
    assert!(finished.values().all(|stories| stories.jobs_count >= 3));
    assert!(
        store.stats().written_bytes > REGION as u64,
        "the ring went round"
    );
}
