//! What happened: the stories of nodes, the requests of callers, and what needs attention. Ironic
//! does not have these, so the paths are outside `/v1`.

use serde_json::{Value, json};
use trivet_model::story::{
    AuditEntry, JobStory, Stage, StageState, StageStory, StoredNote, StoryDiagnosis,
};
use trivet_model::view::NodeView;
use trivet_web::{NodeCondition, NodeWhy};

use crate::ApiOutcome;
use crate::table::call::{ApiCall, reply};
use crate::table::error::ApiFault;
use crate::table::field::{ValueShape, timestamp};
use crate::table::route::{ApiArg, ApiRoute, arg};

/// Most entries of one answer of `/trivet/status`.
const ATTENTION_MAX: usize = 100;

const STORY_ARGS: &[ApiArg] = &[arg("last_good", 1, ValueShape::Flag)];

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get(
        &["trivet", "nodes", "{node}", "story"],
        1,
        "Show what happened to a node: its present or last job with stages, what is wrong, notes",
        story,
    )
    .query_args(&[STORY_ARGS]),
    ApiRoute::get(
        &["trivet", "audit"],
        1,
        "List the last requests of callers, oldest first",
        audit,
    ),
    ApiRoute::get(
        &["trivet", "status"],
        1,
        "Show how many nodes are in which condition, and what needs attention",
        status,
    ),
];

fn story(call: &ApiCall<'_>) -> Result<ApiOutcome, ApiFault> {
    let view = call.this()?;
    let node = &view.node;
    let wants_good = call.query.flag("last_good")?.unwrap_or(false);
    let finished = view.story.finished.as_ref();
    let job = if wants_good {
        let good = finished.and_then(|stories| stories.last_good());
        let missing = || {
            let name = node.label();
            ApiFault::not_found(format!(
                "Node {name} has no job that ended well; without last_good its last job is shown."
            ))
        };
        Some(good.ok_or_else(missing)?)
    } else {
        view.story.latest()
    };
    let running = view.story.running.as_ref();
    let noted = running.filter(|running| job.is_some_and(|job| running.story.number == job.number));
    let jobs = finished.map_or(&[][..], |stories| stories.jobs.as_slice());
    let why = trivet_web::why(call.view, view, call.now);
    reply(&json!({
        "uuid": node.id.to_string(),
        "name": node.name,
        "provision_state": node.provision_state,
        "why": why_json(&why),
        "job": job.map(|job| job_json(call, job)),
        "notes": noted.map_or_else(Vec::new, |running| {
            let numbers = running.dropped + 1..;
            let numbered = numbers.zip(&running.notes);
            numbered.map(|(number, note)| note_json(number, note)).collect()
        }),
        "jobs": jobs.iter().map(summary).collect::<Vec<Value>>(),
    }))
}

fn summary(job: &JobStory) -> Value {
    json!({
        "number": job.number,
        "kind": job.kind,
        "begin": timestamp(Some(job.begin)),
        "end": timestamp(job.end),
        "outcome": job.outcome,
        "boots": job.boots(),
        "last_error": job.last_error,
        "stage": job.deviation().map(|stage| stage.stage),
    })
}

fn job_json(call: &ApiCall<'_>, job: &JobStory) -> Value {
    let mut shown = summary(job);
    shown["model"] = json!(job.model);
    shown["stages"] = stages(call, job).into();
    shown["diagnosis"] = job.diagnosis.as_ref().map_or(Value::Null, diagnosis_json);
    shown
}

/// The stages up to the last one that has begun. One that the job passed over was skipped.
fn stages(call: &ApiCall<'_>, job: &JobStory) -> Vec<Value> {
    let Some(last) = job.stages.last() else {
        return Vec::new();
    };
    let passed = Stage::ALL.iter().filter(|stage| **stage <= last.stage);
    let shown = passed.map(|stage| {
        let begun = job.stages.iter().find(|begun| begun.stage == *stage);
        match begun {
            Some(begun) => stage_json(call, begun),
            None => json!({"stage": stage, "state": StageState::Skipped}),
        }
    });
    shown.collect()
}

fn stage_json(call: &ApiCall<'_>, stage: &StageStory) -> Value {
    let runs = stage.since.is_some();
    json!({
        "stage": stage.stage,
        "state": stage.state,
        "begin": timestamp(Some(stage.begin)),
        "duration_ms": (!runs).then_some(stage.duration_ms),
        "elapsed_ms": runs.then(|| stage.lasted_ms(call.now)),
        "usual_ms": stage.usual_ms,
        "tries": stage.tries,
        "bytes": (stage.bytes > 0).then_some(stage.bytes),
        "bytes_per_s": stage.rate(),
        "first_note": stage.first_note,
        "last_note": stage.last_note,
        "evidence": stage.evidence,
    })
}

fn diagnosis_json(diagnosis: &StoryDiagnosis) -> Value {
    json!({
        "rule": diagnosis.rule,
        "sentence": diagnosis.sentence,
        "cause": diagnosis.cause,
        "next_action": diagnosis.next_action,
        "action": diagnosis.action,
        "command": diagnosis.command,
    })
}

fn why_json(why: &NodeWhy) -> Value {
    json!({
        "condition": why.condition.name(),
        "sentence": why.sentence,
        "cause": why.cause,
        "next_action": why.next_action,
        "rule": why.rule,
        "action": why.action,
        "command": why.command,
        "stage": why.stage,
    })
}

fn note_json(number: u32, note: &StoredNote) -> Value {
    json!({
        "number": number,
        "at": timestamp(Some(note.at)),
        "kind": note.kind,
        "text": note.text,
    })
}

fn audit(call: &ApiCall<'_>) -> Result<ApiOutcome, ApiFault> {
    let entries = call.view.audit.values().map(|entry| entry_json(entry));
    reply(&json!({ "audit": entries.collect::<Vec<Value>>() }))
}

fn entry_json(entry: &AuditEntry) -> Value {
    json!({
        "number": entry.number,
        "at": timestamp(Some(entry.at)),
        "caller": entry.caller,
        "from": entry.from,
        "request": entry.request_line,
        "request_id": entry.request,
        "order": entry.order,
        "node": entry.node.map(|node| node.to_string()),
        "node_name": entry.node_name,
        "refused": entry.refused,
    })
}

fn status(call: &ApiCall<'_>) -> Result<ApiOutcome, ApiFault> {
    let view = call.view;
    let mut counts = [0_usize; 4];
    let mut maintenance = 0_usize;
    let mut attention = Vec::new();
    for fault in view.faults.keys() {
        attention.push(json!({"kind": "fault", "sentence": fault.to_string()}));
    }
    for node in view.nodes_by_age() {
        let why = trivet_web::why(view, node, call.now);
        let slot = match why.condition {
            NodeCondition::Fine | NodeCondition::Problem if node.node.job.is_some() => Some(1),
            NodeCondition::Fine | NodeCondition::Problem => Some(0),
            NodeCondition::Late => Some(2),
            NodeCondition::Failed => Some(3),
            NodeCondition::Maintenance => None,
        };
        if let Some(slot) = slot {
            counts[slot] += 1;
        }
        // A node that is late or failed can be in maintenance mode too.
        maintenance += usize::from(node.node.maintenance);
        // Maintenance mode of an operator is no problem; that of the box is a failure's.
        let is_problem = match why.condition {
            NodeCondition::Late | NodeCondition::Failed | NodeCondition::Problem => true,
            NodeCondition::Fine | NodeCondition::Maintenance => {
                node.node.maintenance && node.node.fault.is_some()
            }
        };
        if is_problem {
            attention.push(problem(node, &why));
        }
    }
    let total = attention.len();
    attention.truncate(ATTENTION_MAX);
    reply(&json!({
        "nodes": {
            "idle": counts[0],
            "working": counts[1],
            "late": counts[2],
            "failed": counts[3],
            "maintenance": maintenance,
        },
        "boots": {
            "limit": view.boot_queue.limit,
            "booting": view.boot_queue.booting,
            "waiting": view.boot_queue.waiting,
        },
        "unknown_machines": view.unknown_machines.len(),
        "attention_count": total,
        "attention": attention,
    }))
}

fn problem(node: &NodeView, why: &NodeWhy) -> Value {
    json!({
        "kind": why.condition.name(),
        "node": node.node.label(),
        "uuid": node.node.id.to_string(),
        "sentence": why.sentence,
        "next_action": why.next_action,
    })
}

#[cfg(test)]
mod tests;
