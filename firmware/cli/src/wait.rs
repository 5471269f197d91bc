//! Decides when a node has reached its goal, when it has failed, and how often to poll.

use std::fmt::Write as _;

use serde_json::Value;

use crate::table::harmless;

/// The goal of a wait.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum WaitGoal {
    /// In this provision state, with no work in progress.
    State(String),
    /// In any stable state: after an abort that is a failure state.
    Rest,
    /// In this power state, with no other requested.
    Power(String),
}

/// The result of one poll for a wait.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum WaitVerdict {
    /// Poll again.
    Pending,
    /// The goal is reached.
    Reached,
    /// The goal will not be reached; the reason.
    Failed(String),
}

/// The fields of a node that a wait needs.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct NodeSnapshot {
    pub(crate) name: String,
    pub(crate) state: String,
    /// The target provision state.
    pub(crate) target: Option<String>,
    pub(crate) power: String,
    pub(crate) target_power: Option<String>,
    /// The current step, such as `deploy.write_image`.
    pub(crate) step: Option<String>,
    /// The number of the current step and of all, where the box reports them.
    pub(crate) done: Option<(u64, u64)>,
    pub(crate) error: Option<String>,
    pub(crate) maintenance: bool,
    /// Phase and attempt of the work in progress, where the box reports them.
    pub(crate) news: Option<String>,
}

impl NodeSnapshot {
    pub(crate) fn of(node: &Value) -> Self {
        let text = |key: &str| node[key].as_str().map(harmless);
        let (step, done) = step(node);
        Self {
            name: text("name").or_else(|| text("uuid")).unwrap_or_default(),
            state: text("provision_state").unwrap_or_default(),
            target: text("target_provision_state"),
            power: text("power_state").unwrap_or_else(|| "unknown".to_owned()),
            target_power: text("target_power_state"),
            step,
            done,
            error: text("last_error"),
            maintenance: node["maintenance"] == true,
            news: None,
        }
    }

    /// Whether an operator must act.
    pub(crate) fn has_failed(&self) -> bool {
        self.state.ends_with(" failed") || self.state == "error"
    }

    /// Whether it stays in this state until the next request.
    fn rests(&self) -> bool {
        const STABLE: [&str; 5] = ["enroll", "manageable", "available", "active", "rescue"];
        self.has_failed() || STABLE.contains(&self.state.as_str()) && self.target.is_none()
    }

    /// State and step as text.
    pub(crate) fn words(&self) -> String {
        let mut words = self.state.clone();
        if let Some(step) = &self.step {
            words.push_str(", step ");
            words.push_str(step);
        }
        if let Some((at, count)) = self.done {
            let _ = write!(words, " ({at} of {count})");
        }
        words
    }

    fn why(&self) -> &str {
        self.error.as_deref().unwrap_or("no reason given")
    }
}

/// The current step, and its number among all where the box reports that.
fn step(node: &Value) -> (Option<String>, Option<(u64, u64)>) {
    for kind in ["clean", "deploy", "service"] {
        let step = &node[format!("{kind}_step")];
        let Some(name) = step["step"].as_str() else {
            continue;
        };
        let interface = step["interface"].as_str().unwrap_or("?");
        let info = &node["driver_internal_info"];
        let index = info[format!("{kind}_step_index")].as_u64();
        let count = info[format!("{kind}_steps")].as_array().map(Vec::len);
        let done = index
            .zip(count)
            .map(|(index, count)| (index.saturating_add(1), count as u64))
            .filter(|(at, count)| at <= count);
        return (Some(harmless(&format!("{interface}.{name}"))), done);
    }
    (None, None)
}

/// Whether the goal is reached, has failed, or the wait continues.
pub(crate) fn wait_verdict(goal: &WaitGoal, snapshot: &NodeSnapshot) -> WaitVerdict {
    let state = &snapshot.state;
    match goal {
        WaitGoal::State(end) if state == end && snapshot.target.is_none() => WaitVerdict::Reached,
        WaitGoal::State(end) if snapshot.rests() => WaitVerdict::Failed(format!(
            "ended in `{state}` instead of `{end}`: {}",
            snapshot.why()
        )),
        WaitGoal::Rest if snapshot.rests() => WaitVerdict::Reached,
        WaitGoal::Power(_) if snapshot.target_power.is_some() => WaitVerdict::Pending,
        // Before the power state: the box clears last_error when it accepts a power
        // request, and a request that failed leaves the state that the node already
        // had.
        WaitGoal::Power(_) if snapshot.error.is_some() => WaitVerdict::Failed(format!(
            "has `{}`; the power request failed: {}",
            snapshot.power,
            snapshot.why()
        )),
        WaitGoal::Power(end) if &snapshot.power == end => WaitVerdict::Reached,
        WaitGoal::State(_) | WaitGoal::Rest | WaitGoal::Power(_) => WaitVerdict::Pending,
    }
}

/// The delay until the next poll: short at first, longer when it takes long.
pub(crate) const fn look_gap_ms(elapsed_ms: u64) -> u64 {
    match elapsed_ms {
        0..10_000 => 300,
        10_000..120_000 => 1_000,
        _ => 2_000,
    }
}

/// The progress of an image.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct ImageSnapshot {
    pub(crate) state: String,
    pub(crate) here: u64,
    pub(crate) size: Option<u64>,
    fault: Option<String>,
}

impl ImageSnapshot {
    pub(crate) fn of(image: &Value) -> Self {
        let text = |key: &str| image[key].as_str().map(harmless);
        Self {
            state: text("state").unwrap_or_default(),
            here: image["here"].as_u64().unwrap_or(0),
            size: image["size"].as_u64(),
            fault: text("fault"),
        }
    }

    /// MiB in the box, and of the whole image.
    pub(crate) fn mib(&self) -> Option<(u64, u64)> {
        self.size
            .map(|size| (self.here >> 20, size.div_ceil(1 << 20)))
    }

    pub(crate) fn verdict(&self) -> WaitVerdict {
        match self.state.as_str() {
            "complete" => WaitVerdict::Reached,
            "failed" => {
                let why = self.fault.as_deref().unwrap_or("is not available");
                WaitVerdict::Failed(format!("failed: {why}"))
            }
            _ => WaitVerdict::Pending,
        }
    }

    /// The byte from which an upload of a file of this size continues.
    pub(crate) fn resume_offset(&self, file_bytes: u64) -> u64 {
        let fits = self.size == Some(file_bytes) && self.here < file_bytes;
        if fits { self.here } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use trivet_model::ProvisionState;

    use super::*;
    use crate::testing::node;

    fn at(state: &str, target: Option<&str>) -> NodeSnapshot {
        NodeSnapshot::of(&node("n1", state, target))
    }

    fn active() -> WaitGoal {
        WaitGoal::State("active".to_owned())
    }

    #[test]
    fn a_goal_is_reached_when_no_work_is_in_progress() {
        assert_eq!(
            wait_verdict(&active(), &at("active", None)),
            WaitVerdict::Reached
        );
        // A rebuild starts in the state in which it ends.
        assert_eq!(
            wait_verdict(&active(), &at("active", Some("active"))),
            WaitVerdict::Pending
        );
        for state in ["deploying", "wait call-back", "deploy hold"] {
            assert_eq!(
                wait_verdict(&active(), &at(state, Some("active"))),
                WaitVerdict::Pending
            );
        }
    }

    #[test]
    fn failures_and_other_ends_are_reported_with_their_reason() {
        let mut failed = at("deploy failed", Some("active"));
        failed.error = Some("the disk is too small".to_owned());
        let WaitVerdict::Failed(why) = wait_verdict(&active(), &failed) else {
            panic!("a failed node has failed");
        };
        assert!(
            why.contains("`deploy failed`") && why.contains("too small"),
            "{why}"
        );
        for state in ["error", "clean failed", "available", "enroll"] {
            let verdict = wait_verdict(&active(), &at(state, None));
            assert!(matches!(verdict, WaitVerdict::Failed(_)), "{state}");
        }
    }

    #[test]
    fn an_abort_ends_wherever_the_node_rests() {
        for state in ["clean failed", "deploy failed", "active"] {
            assert_eq!(
                wait_verdict(&WaitGoal::Rest, &at(state, None)),
                WaitVerdict::Reached
            );
        }
        assert_eq!(
            wait_verdict(&WaitGoal::Rest, &at("clean wait", Some("available"))),
            WaitVerdict::Pending
        );
    }

    /// Every state of the box is stable or transient, and the model agrees which.
    #[test]
    fn stable_states_are_those_of_the_model() {
        for state in ProvisionState::ALL {
            assert_eq!(
                at(state.as_str(), None).rests(),
                state.is_resting(),
                "{state}"
            );
        }
    }

    #[test]
    fn power_is_reached_when_no_other_is_requested() {
        let on = WaitGoal::Power("power on".to_owned());
        let mut snapshot = at("active", None);
        assert_eq!(wait_verdict(&on, &snapshot), WaitVerdict::Reached);
        snapshot.target_power = Some("rebooting".to_owned());
        assert_eq!(wait_verdict(&on, &snapshot), WaitVerdict::Pending);
        snapshot.target_power = None;
        snapshot.power = "power off".to_owned();
        assert_eq!(wait_verdict(&on, &snapshot), WaitVerdict::Pending);
        snapshot.error = Some("no answer".to_owned());
        assert!(matches!(
            wait_verdict(&on, &snapshot),
            WaitVerdict::Failed(_)
        ));
    }

    #[test]
    fn a_failed_power_request_fails_also_where_the_node_had_that_power_state_before() {
        for goal in ["power on", "power off"] {
            let mut snapshot = at("active", None);
            snapshot.power = goal.to_owned();
            snapshot.error = Some("the BMC refused the login".to_owned());
            let WaitVerdict::Failed(why) =
                wait_verdict(&WaitGoal::Power(goal.to_owned()), &snapshot)
            else {
                panic!("{goal}: the request failed");
            };
            assert!(why.contains("the BMC refused the login"), "{why}");
            // While the request is in progress its error is not final.
            snapshot.target_power = Some(goal.to_owned());
            assert_eq!(
                wait_verdict(&WaitGoal::Power(goal.to_owned()), &snapshot),
                WaitVerdict::Pending
            );
        }
    }

    #[test]
    fn steps_are_counted_where_the_box_reports_them() {
        let mut node = node("n1", "wait call-back", Some("active"));
        node["deploy_step"] = json!({"interface": "deploy", "step": "write_image"});
        let snapshot = NodeSnapshot::of(&node);
        assert_eq!(snapshot.words(), "wait call-back, step deploy.write_image");
        node["driver_internal_info"] = json!({"deploy_steps": [1, 2, 3], "deploy_step_index": 1});
        let snapshot = NodeSnapshot::of(&node);
        assert_eq!(snapshot.done, Some((2, 3)));
        assert!(snapshot.words().ends_with(" (2 of 3)"));
        for wrong in [
            json!({"deploy_steps": 3, "deploy_step_index": 1}),
            json!(7),
            json!({"deploy_steps": [1], "deploy_step_index": u64::MAX}),
        ] {
            node["driver_internal_info"] = wrong;
            assert_eq!(NodeSnapshot::of(&node).done, None);
        }
    }

    #[test]
    fn any_response_is_handled() {
        for odd in [
            json!(null),
            json!([]),
            json!("x"),
            json!({"name": 5, "clean_step": []}),
        ] {
            let snapshot = NodeSnapshot::of(&odd);
            assert_eq!(wait_verdict(&active(), &snapshot), WaitVerdict::Pending);
        }
        assert_eq!(NodeSnapshot::of(&json!({"uuid": "u\n"})).name, "u ");
    }

    #[test]
    fn an_image_wait_ends_when_it_is_complete_or_failed() {
        let look = |state: &str| {
            ImageSnapshot::of(&json!({
                "state": state, "here": 5 << 20, "size": (9 << 20) + 1, "fault": "it is wrong",
            }))
        };
        assert_eq!(look("complete").verdict(), WaitVerdict::Reached);
        assert_eq!(look("fetching").verdict(), WaitVerdict::Pending);
        assert_eq!(look("not_cached").verdict(), WaitVerdict::Pending);
        let failed = WaitVerdict::Failed("failed: it is wrong".to_owned());
        assert_eq!(look("failed").verdict(), failed);
        assert_eq!(look("fetching").mib(), Some((5, 10)));
    }

    #[test]
    fn an_upload_continues_only_with_a_file_of_the_same_size() {
        let snapshot = ImageSnapshot::of(&json!({"state": "failed", "here": 3, "size": 9}));
        assert_eq!(snapshot.resume_offset(9), 3);
        assert_eq!(snapshot.resume_offset(8), 0);
        assert_eq!(
            ImageSnapshot::of(&json!({"here": 0, "size": null})).resume_offset(9),
            0
        );
        assert_eq!(
            ImageSnapshot::of(&json!({"here": 9, "size": 9})).resume_offset(9),
            0
        );
    }
}
