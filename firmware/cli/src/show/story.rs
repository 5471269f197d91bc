//! Shows what happened to a node, what is wrong with it, and what needs attention.

use std::fmt::Write as _;

use serde_json::Value;

use super::{cell, items, size};
use crate::exit::Exit;
use crate::table::TextTable;

/// The assumed width where the output is no terminal.
const COLUMNS: usize = 100;

/// The exit code of `trivet node why`.
pub(super) fn why_exit(body: &Value) -> Exit {
    match body["why"]["condition"].as_str() {
        Some("fine") => Exit::Fine,
        _ => Exit::Failed,
    }
}

/// The exit code of `trivet status`.
pub(super) fn status_exit(body: &Value) -> Exit {
    match body["attention_count"].as_u64() {
        Some(0) => Exit::Fine,
        _ => Exit::Failed,
    }
}

/// What is wrong with a node.
pub(super) fn why(body: &Value, width: Option<usize>) -> Vec<String> {
    let why = &body["why"];
    let mut table = TextTable::default();
    for (name, key) in [
        ("what", "sentence"),
        ("cause", "cause"),
        ("next", "next_action"),
        ("command", "command"),
    ] {
        add_wrapped(&mut table, name, &cell(&why[key]), width);
    }
    table.lines(None)
}

/// The present or last job of a node: what is wrong, and its stages.
pub(super) fn story(body: &Value, width: Option<usize>) -> Vec<String> {
    let mut lines = why(body, width);
    let job = &body["job"];
    if job.is_null() {
        lines.push("It has not had a job yet.".to_owned());
        return lines;
    }
    lines.push(String::new());
    let mut head = TextTable::default();
    let mut summary = format!(
        "job {}: {}, {}, began {}",
        cell(&job["number"]),
        cell(&job["kind"]),
        cell(&job["outcome"]),
        cell(&job["begin"]),
    );
    if let Some(boots) = job["boots"].as_u64().filter(|boots| *boots > 1) {
        let _ = write!(summary, ", {boots} boots");
    }
    head.row([summary]);
    lines.extend(head.lines(width));
    let mut table = TextTable::new(&["STAGE", "STATE", "TIME", "USUAL", "TRIES", "SENT", "REMARK"]);
    let mut deviates = false;
    for stage in items(job, "stages") {
        let state = cell(&stage["state"]);
        let first = !deviates && matches!(state.as_str(), "late" | "failed");
        deviates |= first;
        let remark = cell(&stage["evidence"]);
        let remark = match (first, remark.is_empty()) {
            (true, true) => "<- first deviation".to_owned(),
            (true, false) => format!("<- first deviation: {remark}"),
            (false, _) => remark,
        };
        let lasted = stage["duration_ms"]
            .as_u64()
            .or(stage["elapsed_ms"].as_u64());
        let sent = stage["bytes"].as_u64().map(|bytes| {
            let rate = stage["bytes_per_s"].as_u64();
            let rate = rate.map_or(String::new(), |rate| format!(", {}/s", size(rate)));
            format!("{}{rate}", size(bytes))
        });
        table.row([
            cell(&stage["stage"]),
            state,
            lasted.map(seconds).unwrap_or_default(),
            stage["usual_ms"].as_u64().map(seconds).unwrap_or_default(),
            stage["tries"]
                .as_u64()
                .filter(|tries| *tries > 1)
                .map(|tries| tries.to_string())
                .unwrap_or_default(),
            sent.unwrap_or_default(),
            remark,
        ]);
    }
    table.spare = &[4, 5];
    lines.extend(table.lines(width));
    let notes = items(body, "notes");
    if !notes.is_empty() {
        lines.push(String::new());
        let mut table = TextTable::new(&["NOTE", "AT", "WHAT"]);
        for note in notes {
            table.row(["number", "at", "text"].map(|key| cell(&note[key])));
        }
        table.spare = &[0];
        lines.extend(table.lines(width));
    }
    lines
}

/// How many nodes are in which condition, and what needs attention.
pub(super) fn status(body: &Value, width: Option<usize>) -> Vec<String> {
    let nodes = &body["nodes"];
    let count = |key: &str| nodes[key].as_u64().unwrap_or(0);
    let mut lines = vec![format!(
        "nodes: {} idle, {} working, {} late, {} failed, {} in maintenance",
        count("idle"),
        count("working"),
        count("late"),
        count("failed"),
        count("maintenance"),
    )];
    let boots = &body["boots"];
    lines.push(format!(
        "boots: {} of {} at once, {} waiting; unknown machines: {}",
        cell(&boots["booting"]),
        cell(&boots["limit"]),
        cell(&boots["waiting"]),
        cell(&body["unknown_machines"]),
    ));
    let attention = items(body, "attention");
    if attention.is_empty() {
        lines.push("Nothing needs attention.".to_owned());
        return lines;
    }
    lines.push(String::new());
    lines.push(format!(
        "needs attention: {}",
        cell(&body["attention_count"])
    ));
    let mut table = TextTable::default();
    for problem in attention {
        let name = match problem["node"].as_str() {
            Some(name) => name.to_owned(),
            None => cell(&problem["kind"]),
        };
        add_wrapped(&mut table, &name, &cell(&problem["sentence"]), width);
    }
    lines.extend(table.lines(None));
    if attention.iter().any(|problem| problem["node"].is_string()) {
        lines.push("What to do about a node: trivet node why NODE".to_owned());
    }
    lines
}

fn seconds(ms: u64) -> String {
    match ms {
        0..10_000 => format!("{}.{} s", ms / 1000, ms % 1000 / 100),
        _ => format!("{} s", ms / 1000),
    }
}

/// Adds a name and a text in as many lines as it needs.
fn add_wrapped(table: &mut TextTable, name: &str, text: &str, width: Option<usize>) {
    let columns = width
        .unwrap_or(COLUMNS)
        .saturating_sub(name.chars().count().max(9) + 2);
    let mut name = name.to_owned();
    for line in wrapped(text, columns.max(20)) {
        table.row([std::mem::take(&mut name), line]);
    }
}

/// The words of a text in lines of at most this width; a longer word has a line of its own.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn late() -> Value {
        json!({
            "why": {
                "condition": "late",
                "sentence": "It has its address and never asked for snponly.efi.",
                "cause": "The firmware ignores the offer, or UDP 69 is blocked.",
                "next_action": "Try HTTP boot once.",
                "command": null,
            },
            "job": {
                "number": 2, "kind": "deploy", "outcome": "running", "boots": 4,
                "begin": "2026-11-19T02:16:00.000000+00:00",
                "stages": [
                    {"stage": "power", "state": "done", "duration_ms": 200, "usual_ms": 200,
                     "tries": 4, "evidence": null},
                    {"stage": "POST", "state": "done", "duration_ms": 74_000, "usual_ms": 71_000,
                     "tries": 4, "evidence": null},
                    {"stage": "address", "state": "skipped"},
                    {"stage": "loader", "state": "late", "elapsed_ms": 240_000, "usual_ms": 400,
                     "tries": 1, "evidence": "stopped", "bytes": 114_688, "bytes_per_s": 57_344},
                ],
            },
            "notes": [{"number": 7, "at": "t", "kind": "power", "text": "power on\u{1b}[2J"}],
        })
    }

    #[test]
    fn a_story_shows_the_first_deviation() {
        let lines = story(&late(), None);
        assert_eq!(
            lines[0],
            "what   It has its address and never asked for snponly.efi."
        );
        assert_eq!(lines[2], "next   Try HTTP boot once.");
        assert!(
            lines[4].starts_with("job 2: deploy, running, began 2026"),
            "{lines:?}"
        );
        assert!(lines[4].ends_with(", 4 boots"), "{lines:?}");
        assert_eq!(
            lines[5],
            "STAGE    STATE    TIME   USUAL  TRIES  SENT                   REMARK"
        );
        assert_eq!(lines[7], "POST     done     74 s   71 s   4");
        assert_eq!(lines[8], "address  skipped");
        assert!(
            lines[9].starts_with("loader   late     240 s  0.4 s"),
            "{lines:?}"
        );
        assert!(
            lines[9].ends_with("<- first deviation: stopped"),
            "{lines:?}"
        );
        assert!(
            lines.iter().all(|line| !line.contains('\u{1b}')),
            "{lines:?}"
        );
        let narrow = story(&late(), Some(80));
        assert!(
            narrow.iter().all(|line| line.chars().count() <= 80),
            "{narrow:?}"
        );
    }

    #[test]
    fn a_node_without_a_job_has_one_line_more() {
        let body = json!({"why": {"condition": "fine", "sentence": "Nothing is wrong."}});
        assert_eq!(
            story(&body, None),
            ["what  Nothing is wrong.", "It has not had a job yet."]
        );
        assert_eq!(why_exit(&body), Exit::Fine);
        assert_eq!(why_exit(&late()), Exit::Failed);
        assert_eq!(
            why_exit(&json!({})),
            Exit::Failed,
            "an answer that is not understood"
        );
    }

    #[test]
    fn long_sentences_are_wrapped() {
        let mut body = late();
        body["why"]["sentence"] = "word ".repeat(60).into();
        let lines = why(&body, Some(60));
        assert!(
            lines.len() > 6 && lines.iter().all(|line| line.chars().count() <= 60),
            "{lines:?}"
        );
    }

    #[test]
    fn the_status_fits_one_screen_and_says_what_needs_attention() {
        let mut body = json!({
            "nodes": {"idle": 46, "working": 1, "late": 0, "failed": 1, "maintenance": 0},
            "boots": {"limit": 8, "booting": 1, "waiting": 0},
            "unknown_machines": 2,
            "attention_count": 1,
            "attention": [
                {"kind": "failed", "node": "node-17", "sentence": "no sign of the agent"},
            ],
        });
        let lines = status(&body, None);
        assert_eq!(
            lines,
            [
                "nodes: 46 idle, 1 working, 0 late, 1 failed, 0 in maintenance",
                "boots: 1 of 8 at once, 0 waiting; unknown machines: 2",
                "",
                "needs attention: 1",
                "node-17  no sign of the agent",
                "What to do about a node: trivet node why NODE",
            ]
        );
        assert_eq!(status_exit(&body), Exit::Failed);
        body["attention_count"] = json!(0);
        body["attention"] = json!([]);
        assert_eq!(status(&body, None)[2], "Nothing needs attention.");
        assert_eq!(status_exit(&body), Exit::Fine);
    }
}
