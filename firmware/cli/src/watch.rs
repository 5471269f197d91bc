//! Many nodes at once: what changed since the last poll, and whether all have reached
//! the goal.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::activity::{Activities, Activity};
use crate::exit::Exit;
use crate::fault::CliFault;
use crate::progress::{ProgressLine, duration};
use crate::wait::NodeSnapshot;

/// Follows nodes.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeWatcher {
    /// Names or UUIDs; all nodes if empty.
    pub(crate) nodes: Vec<String>,
    pub(crate) until: Option<String>,
    pub(crate) json: bool,
    /// The activities at the current poll.
    pub(crate) activities: Activities,
    /// By UUID.
    seen: BTreeMap<String, NodeSnapshot>,
}

/// The result of one poll.
#[derive(Debug, Default)]
pub(crate) struct WatchUpdate {
    pub(crate) lines: Vec<String>,
    pub(crate) progress: Option<ProgressLine>,
    /// Set when the watch has ended.
    pub(crate) end: Option<Result<(), CliFault>>,
}

impl NodeWatcher {
    pub(crate) fn new(nodes: Vec<String>, until: Option<String>, json: bool) -> Self {
        Self {
            nodes,
            until,
            json,
            activities: Activities::new(),
            seen: BTreeMap::new(),
        }
    }

    fn wants(&self, node: &Value) -> bool {
        let is = |key: &str, name: &String| node[key].as_str() == Some(name);
        self.nodes.is_empty()
            || self
                .nodes
                .iter()
                .any(|name| is("name", name) || is("uuid", name))
    }

    /// Handles all nodes of the box, or the requested one.
    pub(crate) fn look(&mut self, nodes: &[Value], elapsed_ms: u64) -> WatchUpdate {
        let mut looked = WatchUpdate::default();
        let mut now = BTreeMap::new();
        for node in nodes.iter().filter(|node| self.wants(node)) {
            let uuid = node["uuid"].as_str().unwrap_or_default().to_owned();
            let news = self.activities.get(&uuid).map(Activity::news);
            let snapshot = NodeSnapshot {
                news,
                ..NodeSnapshot::of(node)
            };
            if self.seen.get(&uuid) != Some(&snapshot) {
                looked.lines.push(self.line(&uuid, &snapshot, elapsed_ms));
            }
            now.insert(uuid, snapshot);
        }
        for (uuid, snapshot) in &self.seen {
            if !now.contains_key(uuid) {
                looked.lines.push(self.gone(uuid, snapshot, elapsed_ms));
            }
        }
        let missing = self.nodes.iter().find(|name| {
            let named = |(uuid, snapshot): (&String, &NodeSnapshot)| {
                uuid == *name || snapshot.name == **name
            };
            !now.iter().any(named) && !self.seen.iter().any(named)
        });
        if let Some(name) = missing {
            looked.end = Some(Err(CliFault::new(
                Exit::NotFound,
                format!("node {name}: there is no such node. `trivet node list` lists all nodes."),
            )));
        }
        self.seen = now;
        looked.progress = Some(self.progress(elapsed_ms));
        if looked.end.is_none() {
            looked.end = self.end();
        }
        looked
    }

    fn line(&self, uuid: &str, snapshot: &NodeSnapshot, elapsed_ms: u64) -> String {
        let activity = self.activities.get(uuid);
        if self.json {
            let attempt = activity.and_then(|activity| activity.attempt);
            return json!({
                "elapsed_ms": elapsed_ms, "uuid": uuid, "name": snapshot.name,
                "provision_state": snapshot.state, "target_provision_state": snapshot.target,
                "power_state": snapshot.power, "target_power_state": snapshot.target_power,
                "step": snapshot.step, "step_index": snapshot.done.map(|done| done.0),
                "steps": snapshot.done.map(|done| done.1),
                "maintenance": snapshot.maintenance, "last_error": snapshot.error,
                "phase": activity.map(Activity::phase),
                "percent": activity.and_then(|activity| activity.percent),
                "try": attempt.map(|(number, _)| number),
                "tries_max": attempt.map(|(_, most)| most),
                "work_ms": activity.and_then(|activity| activity.elapsed_ms),
            })
            .to_string();
        }
        let mut line = format!(
            "{:>6}  {}: {}",
            duration(elapsed_ms),
            snapshot.name,
            snapshot.words()
        );
        let _ = write!(line, ", {}", snapshot.power);
        if let Some(target) = &snapshot.target_power {
            let _ = write!(line, " -> {target}");
        }
        if snapshot.maintenance {
            line.push_str(", in maintenance");
        }
        if let Some(activity) = activity {
            let _ = write!(line, "; {}", activity.words());
        }
        if let Some(error) = &snapshot.error {
            let _ = write!(line, ": {error}");
        }
        line
    }

    fn gone(&self, uuid: &str, snapshot: &NodeSnapshot, elapsed_ms: u64) -> String {
        if self.json {
            let name = &snapshot.name;
            return json!({"elapsed_ms": elapsed_ms, "uuid": uuid, "name": name, "gone": true})
                .to_string();
        }
        format!("{:>6}  {}: gone", duration(elapsed_ms), snapshot.name)
    }

    fn is_there(&self, snapshot: &NodeSnapshot) -> bool {
        self.until.as_ref() == Some(&snapshot.state)
    }

    fn progress(&self, elapsed_ms: u64) -> ProgressLine {
        if let (1, Some((uuid, snapshot))) = (self.seen.len(), self.seen.iter().next()) {
            return match self.activities.get(uuid) {
                Some(activity) => ProgressLine::working(snapshot, activity, elapsed_ms),
                None => ProgressLine::of(snapshot, elapsed_ms),
            };
        }
        let mut states: BTreeMap<&str, u64> = BTreeMap::new();
        for snapshot in self.seen.values() {
            *states.entry(&snapshot.state).or_default() += 1;
        }
        let states: Vec<String> = states
            .iter()
            .map(|(state, count)| format!("{count} {state}"))
            .collect();
        let there = self
            .seen
            .values()
            .filter(|snapshot| self.is_there(snapshot));
        let done = self
            .until
            .is_some()
            .then_some((there.count() as u64, self.seen.len() as u64));
        let words = format!("{} nodes: {}", self.seen.len(), states.join(", "));
        ProgressLine::many(words, done, elapsed_ms)
    }

    /// Ended when every node has reached the goal or has failed.
    fn end(&self) -> Option<Result<(), CliFault>> {
        let until = self.until.as_ref()?;
        if self.seen.is_empty() {
            let sentence = "there is no node to wait for";
            return Some(Err(CliFault::new(Exit::NotFound, sentence)));
        }
        let mut failed = Vec::new();
        for snapshot in self
            .seen
            .values()
            .filter(|snapshot| !self.is_there(snapshot))
        {
            if !snapshot.has_failed() {
                return None;
            }
            let why = snapshot.error.as_deref().unwrap_or("no reason given");
            failed.push(format!("{}: {}: {why}", snapshot.name, snapshot.state));
        }
        if failed.is_empty() {
            return Some(Ok(()));
        }
        let sentence = format!("not every node is {until}; {}", failed.join("; "));
        Some(Err(CliFault::new(Exit::Failed, sentence)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::node;

    fn watcher(nodes: &[&str], until: Option<&str>) -> NodeWatcher {
        let nodes = nodes.iter().map(|name| (*name).to_owned()).collect();
        NodeWatcher::new(nodes, until.map(str::to_owned), false)
    }

    #[test]
    fn only_changes_are_reported() {
        let mut watcher = watcher(&[], None);
        let rack = [
            node("n1", "deploying", Some("active")),
            node("n2", "active", None),
        ];
        let looked = watcher.look(&rack, 0);
        assert_eq!(
            looked.lines,
            [
                "   0 s  n1: deploying, power on",
                "   0 s  n2: active, power on"
            ]
        );
        assert!(watcher.look(&rack, 1_000).lines.is_empty());
        let rack = [node("n1", "wait call-back", Some("active"))];
        let looked = watcher.look(&rack, 2_000);
        assert_eq!(
            looked.lines,
            ["   2 s  n1: wait call-back, power on", "   2 s  n2: gone"]
        );
        assert!(looked.end.is_none());
    }

    #[test]
    fn work_in_progress_is_reported_with_phase_percent_attempt_and_time() {
        let mut watcher = watcher(&["n1"], None);
        let rack = [node("n1", "wait call-back", Some("active"))];
        let mut look = |phase: &str, percent: u64, elapsed_ms: u64| {
            watcher.activities = crate::activity::read(&json!({
                "uuid": "uuid-n1", "doing": format!("Deploying: {phase}"), "percent": percent,
                "try": 1, "tries_max": 4, "since": "t", "elapsed_ms": elapsed_ms,
            }));
            watcher.look(&rack, 0)
        };
        let looked = look("loading initrd, 43 %", 61, 65_000);
        let now = "61 %, try 1 of 4, 1 min 05 s: loading initrd, 43 %";
        let want = format!("   0 s  n1: wait call-back, power on; {now}");
        assert_eq!(looked.lines, [want]);
        let line = looked.progress.unwrap().line(120);
        assert!(line.contains("loading initrd, 43 %  try 1 of 4"), "{line}");
        assert!(line.ends_with(" 61/100  1 min 05 s"), "{line}");
        assert!(
            look("loading initrd, 44 %", 62, 66_000).lines.is_empty(),
            "numbers alone are no change"
        );
        let lines = look("waiting for the agent to report", 63, 67_000).lines;
        assert_eq!(lines.len(), 1, "{lines:?}");
    }

    #[test]
    fn all_must_reach_the_goal() {
        let mut watcher = watcher(&[], Some("active"));
        let half = [
            node("n1", "deploying", Some("active")),
            node("n2", "active", None),
        ];
        let looked = watcher.look(&half, 0);
        assert!(looked.end.is_none());
        let line = looked.progress.unwrap().line(80);
        assert!(line.starts_with("2 nodes: 1 active, 1 deploying") && line.contains("1/2"));
        let whole = [node("n1", "active", None), node("n2", "active", None)];
        assert_eq!(watcher.look(&whole, 1).end, Some(Ok(())));
    }

    #[test]
    fn one_that_failed_is_named_when_the_others_are_done() {
        let mut watcher = watcher(&[], Some("active"));
        let mut bad = node("n1", "deploy failed", Some("active"));
        bad["last_error"] = json!("no disk");
        let rack = [bad.clone(), node("n2", "deploying", Some("active"))];
        assert!(
            watcher.look(&rack, 0).end.is_none(),
            "the other may still come"
        );
        let fault = watcher.look(&[bad, node("n2", "active", None)], 1).end;
        let fault = fault.unwrap().unwrap_err();
        assert_eq!(fault.exit, Exit::Failed);
        assert!(
            fault.sentence.contains("n1: deploy failed: no disk"),
            "{}",
            fault.sentence
        );
    }

    #[test]
    fn a_failure_state_can_be_waited_for() {
        let mut watcher = watcher(&["n1"], Some("clean failed"));
        let rack = [node("n1", "clean failed", None), node("n2", "active", None)];
        assert_eq!(watcher.look(&rack, 0).end, Some(Ok(())));
    }

    #[test]
    fn unknown_names_are_reported() {
        let mut some = watcher(&["n1", "uuid-n2", "n3"], None);
        let rack = [node("n1", "active", None), node("n2", "active", None)];
        let fault = some.look(&rack, 0).end.unwrap().unwrap_err();
        assert_eq!(fault.exit, Exit::NotFound);
        assert!(fault.sentence.contains("n3"), "{}", fault.sentence);
        let fault = watcher(&[], Some("active")).look(&[], 0).end;
        assert_eq!(fault.unwrap().unwrap_err().exit, Exit::NotFound);
    }

    #[test]
    fn scripts_get_one_object_per_change() {
        let mut watcher = NodeWatcher::new(Vec::new(), None, true);
        let lines = watcher.look(&[node("n1", "active", None)], 7).lines;
        let reported: Value = serde_json::from_str(&lines[0]).unwrap();
        assert_eq!(reported["provision_state"], "active");
        assert_eq!(reported["elapsed_ms"], 7);
        let lines = watcher.look(&[], 8).lines;
        let reported: Value = serde_json::from_str(&lines[0]).unwrap();
        assert_eq!(reported["gone"], true);
    }
}
