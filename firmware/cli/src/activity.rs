//! The work in progress on nodes, as the web page shows it: phase, percent, attempt n
//! of m, elapsed time.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Value, json};
use trivet_net::percent::encode;

use crate::progress::duration;
use crate::request::CliRequest;
use crate::table::harmless;

/// By the UUID of the node.
pub(crate) type Activities = BTreeMap<String, Activity>;

/// The work in progress on one node.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Activity {
    /// Such as `Deploying: loading initrd, 43 %`.
    doing: String,
    /// From 0 (just enrolled) to 100 (running its instance).
    pub(crate) percent: Option<u64>,
    /// The number of this boot attempt, and the limit.
    pub(crate) attempt: Option<(u64, u64)>,
    pub(crate) elapsed_ms: Option<u64>,
}

impl Activity {
    fn of(reported: &Value) -> Self {
        let number = |key: &str| reported[key].as_u64();
        Self {
            doing: reported["doing"].as_str().map(harmless).unwrap_or_default(),
            percent: number("percent"),
            attempt: number("try").zip(number("tries_max")),
            elapsed_ms: number("elapsed_ms"),
        }
    }

    /// The current phase, without the word for the whole job: the provision state shows
    /// that.
    pub(crate) fn phase(&self) -> &str {
        let doing = self.doing.as_str();
        doing.split_once(": ").map_or(doing, |(_, phase)| phase)
    }

    /// The whole text, the numbers first: the rest may be cut.
    pub(crate) fn words(&self) -> String {
        let mut words = String::new();
        if let Some(percent) = self.percent {
            let _ = write!(words, "{percent} %, ");
        }
        if let Some(attempt) = self.tries() {
            let _ = write!(words, "{attempt}, ");
        }
        if let Some(elapsed) = self.elapsed_ms {
            let _ = write!(words, "{}, ", duration(elapsed));
        }
        words.truncate(words.trim_end_matches(", ").len());
        if !words.is_empty() {
            words.push_str(": ");
        }
        words.push_str(self.phase());
        words
    }

    /// Such as `try 2 of 4`.
    pub(crate) fn tries(&self) -> Option<String> {
        let (number, most) = self.attempt?;
        Some(format!("try {number} of {most}"))
    }

    /// Phase and attempt without the values that change all the time: a change of this
    /// is reported.
    pub(crate) fn news(&self) -> String {
        let phase = self.phase();
        let steady = match phase.rsplit_once(", ") {
            Some((before, last)) if last.ends_with(" %") => before,
            _ => phase,
        };
        format!("{steady} {:?}", self.attempt)
    }

    /// For `node show`.
    pub(crate) fn fields(&self) -> Value {
        json!({
            "doing": self.doing,
            "percent": self.percent,
            "try": self.attempt.map(|(number, most)| format!("{number} of {most}")),
            "elapsed": self.elapsed_ms.map(duration),
        })
    }
}

/// Requests the progress of one node, or of all with work in progress.
pub(crate) fn progress_request(node: Option<&str>) -> CliRequest {
    match node {
        Some(node) => CliRequest::get(format!("/trivet/nodes/{}/progress", encode(node))),
        None => CliRequest::get("/trivet/progress"),
    }
}

/// Parses the response to either request.
pub(crate) fn read(body: &Value) -> Activities {
    let one = std::slice::from_ref(body);
    let reported = body["progress"].as_array().map_or(one, Vec::as_slice);
    let of = |reported: &Value| {
        Some((
            reported["uuid"].as_str()?.to_owned(),
            Activity::of(reported),
        ))
    };
    reported.iter().filter_map(of).collect()
}

/// Whether a node may have work in progress, by its record.
pub(crate) fn may_work(node: &Value) -> bool {
    let failed = node["provision_state"]
        .as_str()
        .is_some_and(|state| state.ends_with(" failed") || state == "error");
    let targets = ["target_provision_state", "target_power_state"];
    !failed && targets.iter().any(|key| node[*key].is_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress_json() -> Value {
        json!({
            "uuid": "u1", "doing": "Deploying: loading initrd, 43 %", "percent": 61, "try": 2,
            "tries_max": 4, "since": "2026-11-16T02:36:50", "elapsed_ms": 125_000,
        })
    }

    #[test]
    fn the_numbers_come_first() {
        let activity = Activity::of(&progress_json());
        assert_eq!(
            activity.words(),
            "61 %, try 2 of 4, 2 min 05 s: loading initrd, 43 %"
        );
        let bare = Activity::of(&json!({"doing": "Changing power: waiting for power on"}));
        assert_eq!(bare.words(), "waiting for power on");
        assert_eq!(Activity::of(&json!(7)).words(), "");
    }

    #[test]
    fn only_phase_and_try_are_news() {
        let first = Activity::of(&progress_json());
        let mut later = progress_json();
        later["percent"] = json!(62);
        later["elapsed_ms"] = json!(126_000);
        later["doing"] = json!("Deploying: loading initrd, 44 %");
        assert_eq!(Activity::of(&later).news(), first.news());
        later["try"] = json!(3);
        assert_ne!(Activity::of(&later).news(), first.news());
        later["try"] = json!(2);
        later["doing"] = json!("Deploying: waiting for the agent to report");
        assert_ne!(Activity::of(&later).news(), first.news());
    }

    #[test]
    fn one_node_and_many_are_read_alike() {
        let many = read(&json!({"progress": [progress_json(), {"doing": "x"}, 7]}));
        assert_eq!(many.keys().collect::<Vec<_>>(), ["u1"]);
        assert_eq!(read(&progress_json()), many);
        assert!(read(&Value::Null).is_empty());
        assert_eq!(
            progress_request(Some("a/b")).path,
            "/trivet/nodes/a%2Fb/progress"
        );
        assert_eq!(progress_request(None).path, "/trivet/progress");
    }

    #[test]
    fn no_progress_is_requested_for_an_idle_node() {
        let node = |state: &str, target: Option<&str>, power: Option<&str>| {
            json!({"provision_state": state, "target_provision_state": target,
                   "target_power_state": power})
        };
        assert!(may_work(&node("deploying", Some("active"), None)));
        assert!(may_work(&node("active", None, Some("power on"))));
        assert!(!may_work(&node("active", None, None)));
        assert!(!may_work(&node("deploy failed", Some("active"), None)));
        assert!(!may_work(&Value::Null));
    }
}
