//! The stories of nodes: what is stored of a job, and when a stage is late.

use trivet_model::NoteKind;
use trivet_model::story::{
    AUDIT_ENTRIES_MAX, FAILED_JOB_NOTES_MAX, JOB_NOTES_MAX, JobOutcome, NodeStoryView, Stage,
    StageState,
};

use super::*;

fn story(bench: &RackBench, node: NodeId) -> NodeStoryView {
    bench.rack.view().nodes.get(&node).unwrap().story.clone()
}

fn advance(bench: &mut RackBench, ms: u64) {
    bench.now.wall.0 += ms;
    bench.advance(ms);
}

fn warn(bench: &mut RackBench, node: NodeId, number: usize) {
    let why = format!("warning {number}: {}", "x".repeat(60));
    let now = bench.now;
    bench.rack.note(now, Some(node), NoteKind::Warning { why });
    bench.handle(RackInput::Tick);
}

#[test]
fn a_stage_becomes_late_once_and_says_so() {
    let (mut bench, node) = RackBench::inspecting();
    let running = story(&bench, node).running.unwrap();
    let post = running.story.current().unwrap();
    assert_eq!((post.stage, post.state), (Stage::Post, StageState::Running));
    let late = |bench: &RackBench| {
        let mut notes = bench.notes();
        notes.retain(|note| note.starts_with("stage "));
        notes
    };
    advance(&mut bench, 419_000);
    assert!(late(&bench).is_empty(), "{:?}", bench.notes());
    advance(&mut bench, 1_000);
    let notes = late(&bench);
    assert_eq!(notes.len(), 1);
    let text = "stage POST is late: 420 s. The BMC at 192.0.2.1 has not answered";
    assert!(notes[0].starts_with(text), "{notes:?}");
    let running = story(&bench, node).running.unwrap();
    assert_eq!(running.story.deviation().unwrap().stage, Stage::Post);
    assert_eq!(running.notes.last().unwrap().kind, "stage_late");
    advance(&mut bench, 60_000);
    assert!(late(&bench).is_empty(), "once: {:?}", bench.notes());
}

#[test]
fn nothing_is_late_while_a_machine_waits_for_its_turn() {
    let (mut bench, node) = RackBench::inspecting();
    let now = bench.now;
    bench
        .rack
        .note(now, Some(node), NoteKind::BootQueued { ahead: 7 });
    advance(&mut bench, 500_000);
    assert!(bench.notes().iter().all(|note| !note.contains("late")));
    let order = NoteKind::PowerOrdered { order: "power on" };
    let now = bench.now;
    bench.rack.note(now, Some(node), order);
    advance(&mut bench, 420_000);
    assert!(
        bench
            .notes()
            .iter()
            .any(|note| note.starts_with("stage POST is late"))
    );
}

#[test]
fn a_running_job_continues_its_story_after_a_restart() {
    let (mut bench, node) = RackBench::inspecting();
    advance(&mut bench, 420_000);
    let before = story(&bench, node);
    let timeline: Vec<_> = bench.rack.view().nodes[&node]
        .timeline
        .iter()
        .cloned()
        .collect();
    let audit = bench.rack.view().audit;
    let bench = bench.restarted();
    let after = story(&bench, node);
    assert_eq!(before.finished, after.finished);
    let (before, after) = (before.running.unwrap(), after.running.unwrap());
    let count = before.notes.len();
    assert_eq!(after.notes[..count], before.notes);
    assert_eq!(after.notes[count].kind, "box_restarted");
    assert_eq!(after.story.begin, before.story.begin);
    let mut late = after.story.deviation().unwrap().clone();
    late.last_note -= 1;
    assert_eq!(Some(&late), before.story.deviation(), "one note more");
    let view = bench.rack.view();
    let restored = view.nodes[&node].timeline.iter();
    let shown = |note: &trivet_model::Note| (note.at, note.kind.to_string());
    let restored: Vec<_> = restored.take(count).map(shown).collect();
    let first = timeline.len() - count;
    let timeline: Vec<_> = timeline[first..].iter().map(shown).collect();
    assert_eq!(restored, timeline);
    assert_eq!(view.audit, audit);
}

#[test]
fn a_failed_job_is_kept_with_its_last_notes_until_the_next_one() {
    let (mut bench, node) = RackBench::inspecting();
    for number in 0..2 * JOB_NOTES_MAX {
        warn(&mut bench, node, number);
    }
    let running = story(&bench, node).running.unwrap();
    assert_eq!(running.notes.len(), JOB_NOTES_MAX);
    assert!(running.dropped as usize >= JOB_NOTES_MAX);
    bench.handle(RackInput::RecordTooLarge(node));
    let after = story(&bench, node);
    let stories = after.finished.unwrap();
    assert_eq!(stories.jobs.len(), 1);
    let job = &stories.jobs[0];
    assert_eq!(
        (job.outcome, job.end),
        (JobOutcome::Failed, Some(bench.now.wall))
    );
    assert_eq!(job.deviation().unwrap().stage, Stage::Post);
    // The job has its beginning, the failure all of it.
    let shown = job.last_error.as_ref().unwrap().trim_end_matches("...");
    let error = bench.node(node).last_error.unwrap();
    assert!(error.starts_with(shown) && shown.len() > 100, "{shown}");
    let failure = &stories.failures[0];
    assert_eq!(Some(&failure.why), bench.node(node).last_error.as_ref());
    assert_eq!(failure.state, Some(ProvisionState::InspectFail));
    assert_eq!(failure.user.as_deref(), Some("ann"));
    let stored = after.running.unwrap();
    assert_eq!(stored.notes.len(), FAILED_JOB_NOTES_MAX);
    let timers = bench.rack.records.next_lateness();
    assert_eq!(timers, None, "a job that has ended is never late");

    let mut bench = bench.restarted();
    let restored = story(&bench, node);
    assert_eq!(restored.finished.as_deref(), Some(&*stories));
    assert_eq!(restored.running.as_deref(), Some(&*stored));
    bench.verb(node, Verb::Inspect).unwrap();
    let next = story(&bench, node).running.unwrap();
    assert_eq!((next.story.number, next.story.end), (2, None));
    assert!(next.notes.len() < 10, "{:?}", next.notes);
    assert!(
        next.notes[0].text.contains("requested by ann"),
        "{:?}",
        next.notes
    );
}

#[test]
fn a_good_job_is_kept_without_its_notes_and_counts_for_the_usual_durations() {
    let (mut bench, node) = RackBench::inspecting();
    advance(&mut bench, 71_000);
    bench.force(node, |node| {
        node.job = None;
        node.provision_state = ProvisionState::Manageable;
    });
    let after = story(&bench, node);
    assert_eq!(after.running, None);
    let job = after.finished.unwrap().jobs[0].clone();
    assert_eq!(job.outcome, JobOutcome::Done);
    assert_eq!(bench.store.records().unwrap().jobs.len(), 0);
    let mut bench = bench.restarted();
    bench.verb(node, Verb::Inspect).unwrap();
    bench.force(node, |node| {
        node.job.as_mut().unwrap().phase = trivet_model::JobPhase::AwaitAgent;
    });
    let running = story(&bench, node).running.unwrap();
    let post = running.story.current().unwrap();
    assert_eq!((post.stage, post.usual_ms), (Stage::Post, Some(71_000)));
}

#[test]
fn notes_outside_a_job_write_nothing() {
    let mut bench = RackBench::new();
    let node = bench.with_node(1);
    let before = bench.store.flash().counts();
    for number in 0..100 {
        warn(&mut bench, node, number);
    }
    assert_eq!(bench.store.flash().counts(), before);
    assert_eq!(bench.rack.view().nodes[&node].timeline.len(), 102);
}

#[test]
fn a_deleted_node_takes_its_stories_along() {
    let (mut bench, node) = RackBench::inspecting();
    bench.handle(RackInput::RecordTooLarge(node));
    let records = bench.store.records().unwrap();
    assert_eq!((records.stories.len(), records.jobs.len()), (1, 1));
    bench.force(node, |node| node.maintenance = true);
    bench.order(RackOrder::DeleteNode(node)).unwrap();
    let records = bench.store.records().unwrap();
    assert_eq!((records.stories.len(), records.jobs.len()), (0, 0));
    let last = records.audit.values().next_back().unwrap();
    assert_eq!(
        (last.node, last.order.as_str()),
        (Some(node), "delete node")
    );
}

#[test]
fn stories_of_nodes_that_an_older_release_deleted_are_deleted() {
    let (mut bench, node) = RackBench::inspecting();
    bench.handle(RackInput::RecordTooLarge(node));
    let gone = [trivet_store::StoreChange::DeleteNode(node)];
    bench.store.commit(&gone).unwrap();
    let bench = bench.restarted();
    let records = bench.store.records().unwrap();
    assert_eq!((records.stories.len(), records.jobs.len()), (0, 0));
}

#[test]
fn the_audit_is_a_ring_that_survives_a_restart() {
    let mut bench = RackBench::new();
    let id = bench.with_node(1);
    for number in 0..AUDIT_ENTRIES_MAX as u64 + 20 {
        let mut node = bench.node(id);
        node.extra.insert("count".into(), number.into());
        let based_on = node.revision;
        let node = Box::new(node);
        bench
            .order(RackOrder::ReplaceNode { node, based_on })
            .unwrap();
    }
    let audit = bench.rack.view().audit;
    assert_eq!(audit.len(), AUDIT_ENTRIES_MAX);
    let (newest, entry) = audit.get_max().unwrap();
    assert_eq!(*newest, AUDIT_ENTRIES_MAX as u64 + 22);
    assert_eq!(entry.caller, "ann");
    assert_eq!(entry.node_name.as_deref(), Some("node-1"));
    assert_eq!(
        bench.store.records().unwrap().audit.len(),
        AUDIT_ENTRIES_MAX
    );
    let bench = bench.restarted();
    assert_eq!(bench.rack.view().audit, audit);
}

#[test]
fn work_goes_on_when_the_store_has_no_space_for_its_story() {
    let (mut bench, node) = RackBench::inspecting();
    warn(&mut bench, node, 1);
    let running = story(&bench, node).running.unwrap();
    let mut huge = (*running).clone();
    huge.notes[0].text = "x".repeat(4 << 20);
    let changes = [
        trivet_store::StoreChange::PutJob(Arc::new(huge)),
        trivet_store::StoreChange::PutSerial(77),
    ];
    assert!(bench.store.commit(&changes).is_err());
    make_durable(&mut bench.store, &changes).unwrap();
    let records = bench.store.records().unwrap();
    assert_eq!(
        (records.serial, records.jobs.len()),
        (77, 1),
        "the earlier story stays"
    );
}

#[test]
fn a_small_store_keeps_fewer_jobs() {
    let (mut bench, node) = RackBench::inspecting();
    bench.rack.limit_stories(2 * 3 * 600);
    for _ in 0..5 {
        bench.handle(RackInput::RecordTooLarge(node));
        bench.now.wall.0 += 1000;
        bench.verb(node, Verb::Inspect).unwrap();
    }
    let stories = story(&bench, node).finished.unwrap();
    let numbers: Vec<u32> = stories.jobs.iter().map(|job| job.number).collect();
    assert_eq!(numbers, [3, 4, 5]);
    let stored = bench.store.records().unwrap().stories;
    assert_eq!(stored[&node], *stories);
}

/// A request of this user that never became an order.
fn refused_request(user: &str, node: Option<NodeId>, why: &str) -> RackInput {
    let caller = ApiCaller {
        identity: trivet_model::CallerIdentity::user(user),
        ..(*caller()).clone()
    };
    RackInput::RequestRefused(crate::RefusedRequest {
        caller: Arc::new(caller),
        node,
        why: why.to_owned(),
    })
}

#[test]
fn a_request_that_never_became_an_order_is_written_with_the_next_commit() {
    let mut bench = RackBench::new();
    let id = bench.with_node(1);
    let before = bench.store.flash().counts();
    bench.handle(refused_request("eve", Some(id), "no such field"));
    assert_eq!(bench.store.flash().counts(), before, "nothing is written");
    let audit = bench.rack.view().audit;
    let (number, entry) = audit.get_max().unwrap();
    assert_eq!((entry.order.as_str(), entry.node), ("request", Some(id)));
    assert_eq!(entry.node_name.as_deref(), Some("node-1"));
    assert_eq!(entry.refused.as_deref(), Some("no such field"));
    assert!(!bench.store.records().unwrap().audit.contains_key(number));
    bench.with_node(2);
    assert!(bench.store.records().unwrap().audit.contains_key(number));
    let audit = bench.rack.view().audit;
    let bench = bench.restarted();
    assert_eq!(bench.rack.view().audit, audit);
}

#[test]
fn a_request_that_never_became_an_order_is_written_when_the_engine_stops() {
    let mut bench = RackBench::new();
    bench.handle(refused_request("eve", None, "no such field"));
    assert_eq!(bench.store.records().unwrap().audit.len(), 0);
    bench.handle(RackInput::Stopping);
    assert_eq!(bench.store.records().unwrap().audit.len(), 1);
    let before = bench.store.flash().counts();
    bench.handle(RackInput::Stopping);
    assert_eq!(bench.store.flash().counts(), before);
}

#[test]
fn wrong_requests_of_one_caller_do_not_displace_others() {
    let mut bench = RackBench::new();
    bench.with_node(1);
    let count = bench.rack.view().audit.len();
    for number in 0..100 {
        bench.handle(refused_request("eve", None, &format!("mistake {number}")));
    }
    assert_eq!(bench.rack.view().audit.len(), count + 30);
    bench.handle(refused_request("bob", None, "mistake 1"));
    assert_eq!(bench.rack.view().audit.len(), count + 31);
    bench.handle(refused_request("bob", None, "mistake 1"));
    assert_eq!(bench.rack.view().audit.len(), count + 31, "a repetition");
    advance(&mut bench, 3_600_000);
    bench.handle(refused_request("eve", None, "mistake 100"));
    assert_eq!(bench.rack.view().audit.len(), count + 32);
}
