//! Reads values from the parsed document without stopping at the first mistake.
//!
//! Knows TOML's types and the position of each value; knows none of our keys. Every
//! read returns `None` both for an absent and for an invalid value: an invalid one is
//! in the list of mistakes, and settings are only built when that list is empty.

use std::ops::RangeInclusive;

use toml::Spanned;
use toml::de::{DeTable, DeValue};
use trivet_model::edit_distance;

use crate::mistake::SettingsMistakes;

/// Longest text value. Ours: no path, address or kernel line needs more.
pub const TEXT_BYTES_MAX: usize = 4096;

/// Longest key that is compared to known ones for a suggestion.
const SUGGESTION_BYTES_MAX: usize = 40;

/// A value and the byte of the file where it starts.
#[derive(Clone, Debug)]
pub(crate) struct LocatedValue<T> {
    pub(crate) value: T,
    pub(crate) at: usize,
}

/// One table of the document under its full name.
pub(crate) struct SettingsSection<'doc> {
    name: String,
    table: &'doc DeTable<'doc>,
    at: usize,
}

impl<'doc> SettingsSection<'doc> {
    pub(crate) fn root(table: &'doc DeTable<'doc>) -> Self {
        SettingsSection {
            name: String::new(),
            table,
            at: 0,
        }
    }

    /// Where the section starts: mistakes about missing keys point there.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// Whether the key is present, valid or not.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.value(key).is_some()
    }

    /// Whether the key's value is a string.
    pub(crate) fn is_text(&self, key: &str) -> bool {
        let value = self.value(key);
        value.is_some_and(|value| matches!(value.get_ref(), DeValue::String(_)))
    }

    /// Where a key's value starts; where the section starts if there is none.
    pub(crate) fn at_key(&self, key: &str) -> usize {
        self.value(key).map_or(self.at, |value| value.span().start)
    }

    /// Full name of a key of this section.
    pub(crate) fn key(&self, key: &str) -> String {
        if self.name.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.name)
        }
    }

    /// Refuses every key that is not in `known`.
    pub(crate) fn allow_only(&self, known: &[&str], mistakes: &mut SettingsMistakes) {
        for key in self.table.keys() {
            let text: &str = key.get_ref();
            if known.contains(&text) {
                continue;
            }
            let sentence = match nearest(text, known) {
                Some(near) => format!("unknown key; did you mean `{}`?", self.key(near)),
                None => format!("unknown key; known here: {}", known.join(", ")),
            };
            // Hostile keys may be long or contain control characters.
            let shown: String = text.escape_debug().take(SUGGESTION_BYTES_MAX).collect();
            mistakes.add(key.span().start, &self.key(&shown), sentence);
        }
    }

    fn value(&self, key: &str) -> Option<&'doc Spanned<DeValue<'doc>>> {
        self.table.get(key)
    }

    fn wrong_type(
        &self,
        key: &str,
        want: &str,
        value: &Spanned<DeValue<'_>>,
        mistakes: &mut SettingsMistakes,
    ) {
        let sentence = format!("must be {want}, not {}", type_name(value.get_ref()));
        mistakes.add(value.span().start, &self.key(key), sentence);
    }

    /// A table `[key]` of this one.
    pub(crate) fn section(
        &self,
        key: &str,
        mistakes: &mut SettingsMistakes,
    ) -> Option<SettingsSection<'doc>> {
        let value = self.value(key)?;
        if let DeValue::Table(table) = value.get_ref() {
            return Some(SettingsSection {
                name: self.key(key),
                table,
                at: value.span().start,
            });
        }
        self.wrong_type(
            key,
            &format!("a section `[{}]`", self.key(key)),
            value,
            mistakes,
        );
        None
    }

    /// The tables of `[[key]]`, at most `most` of them.
    pub(crate) fn sections(
        &self,
        key: &str,
        most: usize,
        mistakes: &mut SettingsMistakes,
    ) -> Vec<SettingsSection<'doc>> {
        let Some(value) = self.value(key) else {
            return Vec::new();
        };
        let name = self.key(key);
        let DeValue::Array(array) = value.get_ref() else {
            self.wrong_type(key, &format!("sections `[[{name}]]`"), value, mistakes);
            return Vec::new();
        };
        if array.len() > most {
            let at = array
                .get(most)
                .map_or(value.span().start, |entry| entry.span().start);
            mistakes.add(at, &name, format!("at most {most} sections of this kind"));
        }
        let mut sections = Vec::new();
        for entry in array.iter().take(most) {
            if let DeValue::Table(table) = entry.get_ref() {
                sections.push(SettingsSection {
                    name: name.clone(),
                    table,
                    at: entry.span().start,
                });
            } else {
                self.wrong_type(key, &format!("sections `[[{name}]]`"), entry, mistakes);
            }
        }
        sections
    }

    /// A string that is neither empty nor too long and has no control characters.
    pub(crate) fn text(
        &self,
        key: &str,
        mistakes: &mut SettingsMistakes,
    ) -> Option<LocatedValue<&'doc str>> {
        let value = self.value(key)?;
        let found = self.text_of(key, value, mistakes)?;
        if found.value.is_empty() {
            mistakes.add(
                found.at,
                &self.key(key),
                "is empty: write a value or remove the line",
            );
            return None;
        }
        Some(found)
    }

    /// As `text`, but may be empty.
    pub(crate) fn text_or_empty(
        &self,
        key: &str,
        mistakes: &mut SettingsMistakes,
    ) -> Option<LocatedValue<&'doc str>> {
        self.text_of(key, self.value(key)?, mistakes)
    }

    fn text_of(
        &self,
        key: &str,
        value: &'doc Spanned<DeValue<'doc>>,
        mistakes: &mut SettingsMistakes,
    ) -> Option<LocatedValue<&'doc str>> {
        let at = value.span().start;
        let Some(text) = value.get_ref().as_str() else {
            self.wrong_type(key, "a text in quotes", value, mistakes);
            return None;
        };
        if text.len() > TEXT_BYTES_MAX {
            mistakes.add(
                at,
                &self.key(key),
                format!("is longer than {TEXT_BYTES_MAX} bytes"),
            );
            return None;
        }
        if text.chars().any(char::is_control) {
            mistakes.add(
                at,
                &self.key(key),
                "holds a control character: write plain text",
            );
            return None;
        }
        Some(LocatedValue { value: text, at })
    }

    /// One string, or a list of at most `most` strings.
    pub(crate) fn texts(
        &self,
        key: &str,
        most: usize,
        mistakes: &mut SettingsMistakes,
    ) -> Option<Vec<LocatedValue<&'doc str>>> {
        let value = self.value(key)?;
        let DeValue::Array(array) = value.get_ref() else {
            return self.text(key, mistakes).map(|found| vec![found]);
        };
        if array.len() > most {
            let sentence = format!("lists {} values, at most {most} are allowed", array.len());
            mistakes.add(value.span().start, &self.key(key), sentence);
            return None;
        }
        if array.is_empty() {
            let sentence = "is an empty list: write a value or remove the line";
            mistakes.add(value.span().start, &self.key(key), sentence);
            return None;
        }
        // Check every entry first, so that all invalid ones are reported.
        let entries: Vec<Option<LocatedValue<&'doc str>>> = array
            .iter()
            .map(|entry| self.text_of(key, entry, mistakes))
            .collect();
        entries.into_iter().collect()
    }

    /// `true` or `false`.
    pub(crate) fn flag(
        &self,
        key: &str,
        mistakes: &mut SettingsMistakes,
    ) -> Option<LocatedValue<bool>> {
        let value = self.value(key)?;
        if let Some(flag) = value.get_ref().as_bool() {
            return Some(LocatedValue {
                value: flag,
                at: value.span().start,
            });
        }
        self.wrong_type(key, "true or false", value, mistakes);
        None
    }

    /// A whole number within `range`.
    pub(crate) fn number(
        &self,
        key: &str,
        range: RangeInclusive<u32>,
        mistakes: &mut SettingsMistakes,
    ) -> Option<u32> {
        let value = self.value(key)?;
        let DeValue::Integer(integer) = value.get_ref() else {
            self.wrong_type(key, "a whole number", value, mistakes);
            return None;
        };
        let number = u32::from_str_radix(integer.as_str(), integer.radix()).ok();
        let within = number.filter(|number| range.contains(number));
        if within.is_none() {
            let sentence = format!("must lie between {} and {}", range.start(), range.end());
            mistakes.add(value.span().start, &self.key(key), sentence);
        }
        within
    }
}

fn type_name(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number with a point",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a section",
    }
}

/// The known word closest to `word`, if it is close enough to be a typing error.
pub(crate) fn nearest<'known>(word: &str, known: &[&'known str]) -> Option<&'known str> {
    if word.len() > SUGGESTION_BYTES_MAX {
        return None;
    }
    let lower = word.to_ascii_lowercase();
    let (distance, near) = known
        .iter()
        .map(|known| (edit_distance(&lower, known), *known))
        .min_by_key(|pair| pair.0)?;
    // Two typing errors in a long word, one in a short one.
    let allowed = if word.chars().count() > 4 { 2 } else { 1 };
    (distance <= allowed).then_some(near)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_a_near_word_only() {
        let known = ["listen", "auth", "users"];
        assert_eq!(nearest("lisetn", &known), Some("listen"));
        assert_eq!(nearest("Listen", &known), Some("listen"));
        assert_eq!(nearest("user", &known), Some("users"));
        assert_eq!(nearest("colour", &known), None);
        assert_eq!(nearest(&"l".repeat(10_000), &known), None);
    }
}
