//! When a node has arrived, when it never will, and how often to look.

use std::fmt::Write as _;

use serde_json::Value;

use crate::table::harmless;

/// Where a wait ends.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Goal {
    /// In this provision state, with nothing under way.
    State(String),
    /// Wherever it comes to rest: after an abort that is a failure state.
    Rest,
    /// In this power state, with no other wanted.
    Power(String),
}

/// What one look says about a wait.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Verdict {
    /// Look again.
    Going,
    /// It is there.
    There,
    /// It will not come there; why.
    Failed(String),
}

/// What matters of a node while it changes.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Sight {
    pub(crate) name: String,
    pub(crate) state: String,
    /// The provision state it is on its way to.
    pub(crate) target: Option<String>,
    pub(crate) power: String,
    pub(crate) target_power: Option<String>,
    /// The step under way, such as `deploy.write_image`.
    pub(crate) step: Option<String>,
    /// Which step that is and how many there are, where the box tells.
    pub(crate) done: Option<(u64, u64)>,
    pub(crate) error: Option<String>,
    pub(crate) maintenance: bool,
    /// Phase and try of the work under way, where the box tells.
    pub(crate) news: Option<String>,
}

impl Sight {
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

    /// Whether somebody has to do something.
    pub(crate) fn has_failed(&self) -> bool {
        self.state.ends_with(" failed") || self.state == "error"
    }

    /// Whether it stays as it is until somebody asks for more.
    fn rests(&self) -> bool {
        const STABLE: [&str; 5] = ["enroll", "manageable", "available", "active", "rescue"];
        self.has_failed() || STABLE.contains(&self.state.as_str()) && self.target.is_none()
    }

    /// State and step in words.
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

/// The step under way, and its place among all where the box tells that.
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

/// Whether the wait for this goal goes on.
pub(crate) fn judge(goal: &Goal, sight: &Sight) -> Verdict {
    let state = &sight.state;
    match goal {
        Goal::State(end) if state == end && sight.target.is_none() => Verdict::There,
        Goal::State(end) if sight.rests() => Verdict::Failed(format!(
            "ended in `{state}` instead of `{end}`: {}",
            sight.why()
        )),
        Goal::Rest if sight.rests() => Verdict::There,
        Goal::Power(_) if sight.target_power.is_some() => Verdict::Going,
        // Before the power state: the box clears last_error when it accepts a power request, and
        // a request that failed leaves the state that the node already had.
        Goal::Power(_) if sight.error.is_some() => Verdict::Failed(format!(
            "has `{}`; the power request failed: {}",
            sight.power,
            sight.why()
        )),
        Goal::Power(end) if &sight.power == end => Verdict::There,
        Goal::State(_) | Goal::Rest | Goal::Power(_) => Verdict::Going,
    }
}

/// How long until the next look: often while people watch, less when it takes long.
pub(crate) const fn look_gap_ms(elapsed_ms: u64) -> u64 {
    match elapsed_ms {
        0..10_000 => 300,
        10_000..120_000 => 1_000,
        _ => 2_000,
    }
}

/// How far an image is.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct ImageSight {
    pub(crate) state: String,
    pub(crate) here: u64,
    pub(crate) size: Option<u64>,
    fault: Option<String>,
}

impl ImageSight {
    pub(crate) fn of(image: &Value) -> Self {
        let text = |key: &str| image[key].as_str().map(harmless);
        Self {
            state: text("state").unwrap_or_default(),
            here: image["here"].as_u64().unwrap_or(0),
            size: image["size"].as_u64(),
            fault: text("fault"),
        }
    }

    /// MiB that are here, of how many.
    pub(crate) fn mib(&self) -> Option<(u64, u64)> {
        self.size
            .map(|size| (self.here >> 20, size.div_ceil(1 << 20)))
    }

    pub(crate) fn verdict(&self) -> Verdict {
        match self.state.as_str() {
            "whole" => Verdict::There,
            "failed" => {
                let why = self.fault.as_deref().unwrap_or("is not to be had");
                Verdict::Failed(format!("failed: {why}"))
            }
            _ => Verdict::Going,
        }
    }

    /// From which byte an upload of a file of this size goes on.
    pub(crate) fn goes_on_from(&self, file_bytes: u64) -> u64 {
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

    fn at(state: &str, target: Option<&str>) -> Sight {
        Sight::of(&node("n1", state, target))
    }

    fn active() -> Goal {
        Goal::State("active".to_owned())
    }

    #[test]
    fn a_node_is_there_when_nothing_is_under_way() {
        assert_eq!(judge(&active(), &at("active", None)), Verdict::There);
        // A rebuild begins where it ends.
        assert_eq!(
            judge(&active(), &at("active", Some("active"))),
            Verdict::Going
        );
        for state in ["deploying", "wait call-back", "deploy hold"] {
            assert_eq!(judge(&active(), &at(state, Some("active"))), Verdict::Going);
        }
    }

    #[test]
    fn failures_and_other_ends_are_told_with_their_reason() {
        let mut failed = at("deploy failed", Some("active"));
        failed.error = Some("the disk is too small".to_owned());
        let Verdict::Failed(why) = judge(&active(), &failed) else {
            panic!("a failed node has failed");
        };
        assert!(
            why.contains("`deploy failed`") && why.contains("too small"),
            "{why}"
        );
        for state in ["error", "clean failed", "available", "enroll"] {
            let verdict = judge(&active(), &at(state, None));
            assert!(matches!(verdict, Verdict::Failed(_)), "{state}");
        }
    }

    #[test]
    fn an_abort_ends_wherever_the_node_rests() {
        for state in ["clean failed", "deploy failed", "active"] {
            assert_eq!(judge(&Goal::Rest, &at(state, None)), Verdict::There);
        }
        assert_eq!(
            judge(&Goal::Rest, &at("clean wait", Some("available"))),
            Verdict::Going
        );
    }

    /// Every state of the box either rests or goes on, and the model agrees which.
    #[test]
    fn resting_is_what_the_box_calls_so() {
        for state in ProvisionState::ALL {
            assert_eq!(
                at(state.as_str(), None).rests(),
                state.is_resting(),
                "{state}"
            );
        }
    }

    #[test]
    fn power_is_there_when_no_other_is_wanted() {
        let on = Goal::Power("power on".to_owned());
        let mut sight = at("active", None);
        assert_eq!(judge(&on, &sight), Verdict::There);
        sight.target_power = Some("rebooting".to_owned());
        assert_eq!(judge(&on, &sight), Verdict::Going);
        sight.target_power = None;
        sight.power = "power off".to_owned();
        assert_eq!(judge(&on, &sight), Verdict::Going);
        sight.error = Some("no answer".to_owned());
        assert!(matches!(judge(&on, &sight), Verdict::Failed(_)));
    }

    #[test]
    fn a_failed_power_request_fails_also_where_the_node_had_that_power_state_before() {
        for goal in ["power on", "power off"] {
            let mut sight = at("active", None);
            sight.power = goal.to_owned();
            sight.error = Some("the BMC refused the login".to_owned());
            let Verdict::Failed(why) = judge(&Goal::Power(goal.to_owned()), &sight) else {
                panic!("{goal}: the request failed");
            };
            assert!(why.contains("the BMC refused the login"), "{why}");
            // While the request is under way its error is not final.
            sight.target_power = Some(goal.to_owned());
            assert_eq!(judge(&Goal::Power(goal.to_owned()), &sight), Verdict::Going);
        }
    }

    #[test]
    fn steps_are_counted_where_the_box_tells_them() {
        let mut node = node("n1", "wait call-back", Some("active"));
        node["deploy_step"] = json!({"interface": "deploy", "step": "write_image"});
        let sight = Sight::of(&node);
        assert_eq!(sight.words(), "wait call-back, step deploy.write_image");
        node["driver_internal_info"] = json!({"deploy_steps": [1, 2, 3], "deploy_step_index": 1});
        let sight = Sight::of(&node);
        assert_eq!(sight.done, Some((2, 3)));
        assert!(sight.words().ends_with(" (2 of 3)"));
        for wrong in [
            json!({"deploy_steps": 3, "deploy_step_index": 1}),
            json!(7),
            json!({"deploy_steps": [1], "deploy_step_index": u64::MAX}),
        ] {
            node["driver_internal_info"] = wrong;
            assert_eq!(Sight::of(&node).done, None);
        }
    }

    #[test]
    fn anything_may_come_in_an_answer() {
        for odd in [
            json!(null),
            json!([]),
            json!("x"),
            json!({"name": 5, "clean_step": []}),
        ] {
            let sight = Sight::of(&odd);
            assert_eq!(judge(&active(), &sight), Verdict::Going);
        }
        assert_eq!(Sight::of(&json!({"uuid": "u\n"})).name, "u ");
    }

    #[test]
    fn an_image_is_there_when_it_is_whole_and_never_when_it_failed() {
        let look = |state: &str| {
            ImageSight::of(&json!({
                "state": state, "here": 5 << 20, "size": (9 << 20) + 1, "fault": "it is wrong",
            }))
        };
        assert_eq!(look("whole").verdict(), Verdict::There);
        assert_eq!(look("filling").verdict(), Verdict::Going);
        assert_eq!(look("absent").verdict(), Verdict::Going);
        let failed = Verdict::Failed("failed: it is wrong".to_owned());
        assert_eq!(look("failed").verdict(), failed);
        assert_eq!(look("filling").mib(), Some((5, 10)));
    }

    #[test]
    fn an_upload_goes_on_only_with_a_file_of_the_same_size() {
        let sight = ImageSight::of(&json!({"state": "failed", "here": 3, "size": 9}));
        assert_eq!(sight.goes_on_from(9), 3);
        assert_eq!(sight.goes_on_from(8), 0);
        assert_eq!(
            ImageSight::of(&json!({"here": 0, "size": null})).goes_on_from(9),
            0
        );
        assert_eq!(
            ImageSight::of(&json!({"here": 9, "size": 9})).goes_on_from(9),
            0
        );
    }
}
