//! `[metrics]` and `[[webhook]]`: what other programs may read of the box, and what it sends them.

use std::path::PathBuf;

use trivet_model::EventTopic;

use crate::mistake::SettingsMistakes;
use crate::reader::SettingsSection;
use crate::value;

/// Most `[[webhook]]` sections. Ours.
pub const WEBHOOKS_MAX: usize = 8;

/// Who may read `/metrics`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct MetricsSettings {
    /// Everybody who reaches the API; otherwise callers with the role reader.
    pub allow_open: bool,
}

/// A URL that receives events.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct WebhookSettings {
    /// Where events are sent by POST.
    pub url: String,
    /// The subjects of the events that it receives.
    pub topics: Vec<EventTopic>,
    /// The file with the secret that signs the bodies.
    pub secret_file: Option<PathBuf>,
    /// Certificate authorities for an https URL, in addition to those of the system.
    pub ca: Option<PathBuf>,
}

/// The subjects that a webhook receives where none are named.
const TOPICS_DEFAULT: [EventTopic; 2] = [EventTopic::State, EventTopic::Fault];

pub(crate) fn metrics(
    root: &SettingsSection<'_>,
    mistakes: &mut SettingsMistakes,
) -> MetricsSettings {
    let Some(section) = root.section("metrics", mistakes) else {
        return MetricsSettings::default();
    };
    section.allow_only(&["allow_open"], mistakes);
    let allow_open = section.flag("allow_open", mistakes);
    MetricsSettings {
        allow_open: allow_open.is_some_and(|open| open.value),
    }
}

pub(crate) fn webhooks(
    root: &SettingsSection<'_>,
    mistakes: &mut SettingsMistakes,
) -> Vec<WebhookSettings> {
    let sections = root.sections("webhook", WEBHOOKS_MAX, mistakes);
    let read = |section| webhook(section, mistakes);
    sections.iter().filter_map(read).collect()
}

fn webhook(
    section: &SettingsSection<'_>,
    mistakes: &mut SettingsMistakes,
) -> Option<WebhookSettings> {
    section.allow_only(&["url", "topics", "secret_file", "ca"], mistakes);
    if !section.has("url") {
        let sentence = "is missing: write url = \"https://HOST/PATH\"";
        mistakes.missing(section.at(), &section.key("url"), sentence);
    }
    let url = value::url(section, "url", mistakes);
    let topics = topics(section, mistakes);
    let secret_file = value::path(section, "secret_file", mistakes);
    let ca = value::path(section, "ca", mistakes);
    Some(WebhookSettings {
        url: url?,
        topics,
        secret_file,
        ca,
    })
}

fn topics(section: &SettingsSection<'_>, mistakes: &mut SettingsMistakes) -> Vec<EventTopic> {
    if !section.has("topics") {
        return TOPICS_DEFAULT.to_vec();
    }
    let most = EventTopic::ALL.len();
    let named = section.texts("topics", most, mistakes).unwrap_or_default();
    let mut topics = Vec::new();
    for text in named {
        if let Ok(topic) = text.value.parse() {
            topics.push(topic);
            continue;
        }
        let all: Vec<_> = EventTopic::ALL.iter().map(|one| one.as_str()).collect();
        let all = all.join("\", \"");
        let sentence = format!("`{}` is unknown: write some of \"{all}\"", text.value);
        mistakes.add(text.at, &section.key("topics"), sentence);
    }
    topics
}
