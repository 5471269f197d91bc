//! `[log]`: the format of log lines, and which are written.

use crate::mistake::SettingsMistakes;
use crate::reader::SettingsSection;

/// How the log is written to standard error.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct LogSettings {
    /// The form of a line.
    pub format: LogFormat,
    /// The least important lines that are written.
    pub level: LogLevel,
}

/// The form of a log line.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum LogFormat {
    /// A sentence.
    #[default]
    Text,
    /// A JSON object with the sentence and its fields.
    Json,
}

/// How important a log line is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum LogLevel {
    /// Trivet cannot do what it should.
    Error,
    /// Something needs attention.
    Warn,
    /// What happens on nodes and networks.
    #[default]
    Info,
    /// Also each request to the API.
    Debug,
}

pub(crate) fn log(root: &SettingsSection<'_>, mistakes: &mut SettingsMistakes) -> LogSettings {
    let default = LogSettings::default();
    let Some(section) = root.section("log", mistakes) else {
        return default;
    };
    section.allow_only(&["format", "level"], mistakes);
    let formats = [("text", LogFormat::Text), ("json", LogFormat::Json)];
    let levels = [
        ("error", LogLevel::Error),
        ("warn", LogLevel::Warn),
        ("info", LogLevel::Info),
        ("debug", LogLevel::Debug),
    ];
    LogSettings {
        format: choice(&section, "format", &formats, mistakes).unwrap_or(default.format),
        level: choice(&section, "level", &levels, mistakes).unwrap_or(default.level),
    }
}

/// The value of a key that has one of these words.
fn choice<T: Copy>(
    section: &SettingsSection<'_>,
    key: &str,
    words: &[(&str, T)],
    mistakes: &mut SettingsMistakes,
) -> Option<T> {
    let text = section.text(key, mistakes)?;
    let found = words.iter().find(|(word, _)| *word == text.value);
    if found.is_none() {
        let words: Vec<_> = words
            .iter()
            .map(|(word, _)| format!("\"{word}\""))
            .collect();
        let sentence = format!("`{}` is unknown: write {}", text.value, words.join(" or "));
        mistakes.add(text.at, &section.key(key), sentence);
    }
    found.map(|(_, value)| *value)
}
