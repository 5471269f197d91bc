use std::sync::Arc;

use trivet_model::story::{JobOutcome, NodeStories, NodeStoryView, RunningJobStory};
use trivet_model::{JobKind, ProvisionState, UnixMs};

use super::*;
use crate::testing::{ApiBench, NOW, get, node, node_id};

fn stage(stage: Stage, state: StageState) -> StageStory {
    let runs = matches!(state, StageState::Running | StageState::Late);
    StageStory {
        stage,
        state,
        begin: UnixMs(NOW.0 - 30_000),
        since: runs.then_some(UnixMs(NOW.0 - 30_000)),
        duration_ms: if runs { 0 } else { 2_000 },
        usual_ms: Some(400),
        tries: 1,
        bytes: if stage == Stage::Loader { 1_000_000 } else { 0 },
        transfer_ms: 500,
        first_note: 1,
        last_note: 2,
        evidence: None,
    }
}

fn job(number: u32, outcome: JobOutcome, stages: Vec<StageStory>) -> JobStory {
    JobStory {
        number,
        kind: JobKind::Deploy,
        begin: UnixMs(NOW.0 - 60_000),
        end: (outcome != JobOutcome::Running).then_some(NOW),
        outcome,
        model: "Acme R1".to_owned(),
        stages,
        last_error: (outcome == JobOutcome::Failed).then(|| "no sign".to_owned()),
        diagnosis: None,
    }
}

fn with_story(bench: &mut ApiBench, finished: Vec<JobStory>, running: Option<JobStory>) {
    let id = node_id(1);
    let mut stories = NodeStories::new(id);
    for job in finished {
        stories.add(job);
    }
    let note = |number: u64| StoredNote {
        at: UnixMs(number),
        kind: "power".to_owned(),
        text: format!("note {number}"),
        fields: Vec::new(),
    };
    let running = running.map(|story| {
        Arc::new(RunningJobStory {
            node: id,
            story,
            evidence: Value::Null,
            dropped: 40,
            notes: (1..3).map(note).collect(),
        })
    });
    bench.view.nodes.change(id, |view| {
        view.story = NodeStoryView {
            finished: Some(Arc::new(stories)),
            running,
        };
    });
}

#[test]
fn the_story_has_the_running_job_with_its_stages_and_notes() {
    let mut bench = ApiBench::with(ProvisionState::DeployWait);
    let stages = vec![
        stage(Stage::Power, StageState::Done),
        stage(Stage::Loader, StageState::Late),
    ];
    let good = job(
        1,
        JobOutcome::Done,
        vec![stage(Stage::Steps, StageState::Done)],
    );
    with_story(
        &mut bench,
        vec![good],
        Some(job(2, JobOutcome::Running, stages)),
    );
    let shown = bench.reply(&get("/trivet/nodes/node-1/story")).value();
    assert_eq!(shown["why"]["condition"], "late");
    assert_eq!(shown["why"]["stage"], "loader");
    assert_eq!(shown["job"]["outcome"], "running");
    let states: Vec<&Value> = shown["job"]["stages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|stage| &stage["state"])
        .collect();
    assert_eq!(states, ["done", "skipped", "skipped", "late"]);
    let loader = &shown["job"]["stages"][3];
    assert_eq!(
        (&loader["elapsed_ms"], &loader["usual_ms"]),
        (&json!(30_000), &json!(400))
    );
    assert_eq!(
        (&loader["bytes"], &loader["bytes_per_s"]),
        (&json!(1_000_000), &json!(2_000_000))
    );
    assert_eq!(loader["duration_ms"], Value::Null);
    assert_eq!(
        shown["notes"][1],
        json!({
            "number": 42, "at": UnixMs(2).to_string(), "kind": "power", "text": "note 2",
        })
    );
    assert_eq!(shown["jobs"][0]["number"], 1);

    let good = bench
        .reply(&get("/trivet/nodes/node-1/story?last_good=true"))
        .value();
    assert_eq!(good["job"]["number"], 1);
    assert_eq!(good["notes"], json!([]), "they are of the other job");
    bench.refuses(&get("/trivet/nodes/node-1/story?last_good=perhaps"), 400);
    bench.refuses(&get("/trivet/nodes/nobody/story"), 404);
}

#[test]
fn a_node_without_a_story_says_that_nothing_is_wrong() {
    let bench = ApiBench::with(ProvisionState::Active);
    let shown = bench.reply(&get("/trivet/nodes/node-1/story")).value();
    assert_eq!(shown["why"]["condition"], "fine");
    assert_eq!(
        shown["why"]["sentence"],
        "Nothing is wrong. Running its instance (active)."
    );
    assert_eq!((&shown["job"], &shown["jobs"]), (&Value::Null, &json!([])));
    bench.refuses(&get("/trivet/nodes/node-1/story?last_good=true"), 404);
}

#[test]
fn the_status_counts_nodes_and_names_what_needs_attention() {
    let mut bench = ApiBench::with(ProvisionState::DeployFail);
    bench.change(|node| node.last_error = Some("no sign of the agent".to_owned()));
    let mut active = node(2);
    active.provision_state = ProvisionState::Active;
    bench.add(active);
    let failed = job(
        1,
        JobOutcome::Failed,
        vec![stage(Stage::Post, StageState::Failed)],
    );
    with_story(&mut bench, vec![failed], None);
    let shown = bench.reply(&get("/trivet/status")).value();
    assert_eq!(shown["nodes"]["failed"], 1);
    assert_eq!(shown["nodes"]["idle"], 1);
    assert_eq!(shown["attention_count"], 1);
    assert_eq!(shown["attention"][0]["node"], "node-1");
    assert_eq!(shown["attention"][0]["sentence"], "no sign of the agent");
    assert_eq!(shown["nodes"]["maintenance"], 0);
    bench.change(|node| node.maintenance = true);
    let shown = bench.reply(&get("/trivet/status")).value();
    assert_eq!(shown["nodes"]["failed"], 1);
    assert_eq!(shown["nodes"]["maintenance"], 1);
    let calm = ApiBench::with(ProvisionState::Active);
    let shown = calm.reply(&get("/trivet/status")).value();
    assert_eq!(
        (&shown["attention_count"], &shown["attention"]),
        (&json!(0), &json!([]))
    );
}

#[test]
fn the_audit_lists_requests_oldest_first() {
    let mut bench = ApiBench::new();
    for number in 1..3 {
        let entry = AuditEntry {
            number,
            at: NOW,
            caller: "token ci".to_owned(),
            user: Some("ci".to_owned()),
            from: "192.0.2.1".to_owned(),
            request_line: "PUT /v1/nodes/node-1/states/provision".to_owned(),
            request: "req-1".to_owned(),
            order: "deploy".to_owned(),
            node: Some(node_id(1)),
            node_name: Some("node-1".to_owned()),
            refused: (number == 2).then(|| "not now".to_owned()),
        };
        bench.view.audit.insert(number, Arc::new(entry));
    }
    let shown = bench.reply(&get("/trivet/audit")).value();
    assert_eq!(shown["audit"][0]["number"], 1);
    assert_eq!(shown["audit"][0]["caller"], "token ci");
    assert_eq!(shown["audit"][1]["refused"], "not now");
    assert_eq!(shown["audit"][1]["node"], node_id(1).to_string());
}
