//! The rules of the diagnosis, one file each, in the order in which they are evaluated.
//!
//! A rule is a function of the evidence of a job and of the facts of the box. A more specific
//! rule comes before a more general one: a BMC that refuses the login explains why no packet
//! arrived, and an unknown machine that appeared explains it better than its absence. Rules
//! about something that has not happened match only where the stage is late or has failed
//! (`DiagnosisContext::stage`), because in a normal boot everything has not happened at first.

mod address_from_other_server;
mod agent_missing;
mod agent_not_callable;
mod agent_silent;
mod api_address;
mod bmc_login;
mod bmc_shared;
mod bmc_silent;
mod boot_file_refused;
mod dhcp_not_served;
mod disk_not_found;
mod image_unusable;
mod loader_incomplete;
mod loader_not_requested;
mod loader_without_network;
mod lookup_unmatched;
mod network_boot_again;
mod no_packet;
mod port_of_other_node;
mod slow_link;
#[cfg(test)]
mod testing;
mod unknown_machine;

use trivet_model::{Diagnosis, SuggestedAction, UnixMs};

use crate::{DiagnosisContext, JobEvidence};

/// A rule.
#[derive(Clone, Copy, Debug)]
pub struct DiagnosisRule {
    /// Its name, as in [`Diagnosis::rule`].
    pub name: &'static str,
    /// The diagnosis, if the evidence matches.
    pub diagnose: fn(&JobEvidence, &DiagnosisContext) -> Option<Diagnosis>,
}

/// All rules, the most specific first.
pub const ALL: [DiagnosisRule; 21] = [
    bmc_shared::RULE,
    bmc_login::RULE,
    bmc_silent::RULE,
    agent_missing::RULE,
    image_unusable::RULE,
    disk_not_found::RULE,
    agent_not_callable::RULE,
    lookup_unmatched::RULE,
    api_address::RULE,
    boot_file_refused::RULE,
    agent_silent::RULE,
    loader_incomplete::RULE,
    loader_without_network::RULE,
    address_from_other_server::RULE,
    dhcp_not_served::RULE,
    loader_not_requested::RULE,
    port_of_other_node::RULE,
    unknown_machine::RULE,
    no_packet::RULE,
    network_boot_again::RULE,
    slow_link::RULE,
];

/// Whether the diagnosis of this rule is about a state of the box or of a BMC that may end during
/// the job: it is asked again at each note. All others are about a boot or a step that failed.
pub fn ends_with_its_cause(rule: &str) -> bool {
    [
        bmc_shared::RULE,
        bmc_login::RULE,
        bmc_silent::RULE,
        agent_missing::RULE,
    ]
    .iter()
    .any(|of_state| of_state.name == rule)
}

/// Whether the diagnosis of this rule is about the settings of the box, which a restart may have
/// changed.
pub fn is_about_settings(rule: &str) -> bool {
    rule == agent_missing::RULE.name
}

/// Whether the diagnosis of this rule is of interest after the job has ended well.
pub fn outlasts_success(rule: &str) -> bool {
    let later = [network_boot_again::RULE, slow_link::RULE];
    ends_with_its_cause(rule) || later.iter().any(|later| later.name == rule)
}

/// The texts of a diagnosis.
struct DiagnosisText {
    sentence: String,
    cause: String,
    next_action: String,
    action: Option<SuggestedAction>,
}

impl DiagnosisText {
    fn of(self, rule: &DiagnosisRule) -> Diagnosis {
        Diagnosis {
            rule: rule.name.to_owned(),
            sentence: self.sentence,
            cause: self.cause,
            next_action: self.next_action,
            action: self.action,
        }
    }
}

/// An action for programs, with its command.
#[expect(clippy::unnecessary_wraps, reason = "the field is optional")]
fn action(kind: &str, command: String) -> Option<SuggestedAction> {
    Some(SuggestedAction {
        kind: kind.to_owned(),
        command,
    })
}

/// The action that shows where the machine is: its light where it has a BMC, else its record.
fn find_machine(context: &DiagnosisContext) -> Option<SuggestedAction> {
    let node = &context.node_name;
    if context.site.bmc_keys.is_empty() {
        action("show-node", format!("trivet node show {node}"))
    } else {
        action("light-on", format!("trivet bmc light {node} on"))
    }
}

/// Whether the job boots its machine and its agent has not come up.
fn awaits_agent(evidence: &JobEvidence) -> bool {
    let boot = &evidence.boot;
    boot.switched_on_at.is_some() && boot.agent_ready_at.is_none() && evidence.deployed_at.is_none()
}

/// Whether the job boots its machine, whose agent is late or was given up. A job that an operator
/// has aborted was not late.
fn lacks_agent(evidence: &JobEvidence, context: &DiagnosisContext) -> bool {
    context.stage.is_some() && awaits_agent(evidence) && !evidence.is_aborted
}

/// A duration for people, such as `4 min 2 s`.
fn duration(ms: u64) -> String {
    match (ms / 60_000, ms / 1000 % 60) {
        (0, s) => format!("{s} s"),
        (min, 0) => format!("{min} min"),
        (min, s) => format!("{min} min {s} s"),
    }
}

/// The time from one event to another, for people.
fn between(from: UnixMs, to: UnixMs) -> String {
    duration(to.0.saturating_sub(from.0))
}

/// A number of bytes for people, such as `262 KB`.
fn size(bytes: u64) -> String {
    match bytes {
        0..1000 => format!("{bytes} bytes"),
        1000..1_000_000 => format!("{} KB", bytes / 1000),
        _ => format!("{} MB", bytes / 1_000_000),
    }
}

/// The last part of a path.
fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// How many boots the job has tried, as the end of a sentence.
fn boots(evidence: &JobEvidence) -> String {
    match evidence.boots {
        0 | 1 => String::new(),
        boots => format!(" (boot {boots})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_rules_are_unique_and_are_words_with_hyphens() {
        let names: std::collections::BTreeSet<_> = ALL.iter().map(|rule| rule.name).collect();
        assert_eq!(names.len(), ALL.len());
        let is_plain = |name: &&str| name.bytes().all(|c| c.is_ascii_lowercase() || c == b'-');
        assert!(names.iter().all(is_plain), "{names:?}");
        let fits = |name: &&str| name.len() <= trivet_model::diagnosis::RULE_BYTES_MAX;
        assert!(names.iter().all(fits), "{names:?}");
    }

    #[test]
    fn each_rule_has_its_section_in_the_manual() {
        let manual = include_str!("../../guide/src/why.md");
        let sections = manual.lines().filter_map(|line| line.strip_prefix("## `"));
        let sections: Vec<_> = sections
            .filter_map(|line| line.split_once('`'))
            .map(|(name, _)| name)
            .collect();
        let names = ALL.map(|rule| rule.name);
        for name in names {
            let count = sections.iter().filter(|section| **section == name).count();
            assert_eq!(count, 1, "{name}");
        }
        assert_eq!(sections.len(), names.len(), "{sections:?}");
    }

    #[test]
    fn a_job_without_evidence_has_no_diagnosis() {
        for stage in [None, Some(crate::Stage::Post)] {
            let context = DiagnosisContext {
                stage,
                ..DiagnosisContext::default()
            };
            let found = crate::diagnose(&JobEvidence::default(), &context);
            assert_eq!(found, None);
        }
    }

    #[test]
    fn durations_and_sizes_are_short() {
        assert_eq!(duration(242_000), "4 min 2 s");
        assert_eq!(
            (duration(900), duration(120_000)),
            ("0 s".into(), "2 min".into())
        );
        assert_eq!(
            (size(999), size(262_144)),
            ("999 bytes".into(), "262 KB".into())
        );
        assert_eq!(size(88_000_000), "88 MB");
    }
}
