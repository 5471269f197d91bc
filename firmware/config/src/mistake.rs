//! Mistakes: where in the file, under which key, and what to do about it.
//!
//! A check continues after the first mistake, so the list is collected while the
//! sections are read and sorted once at the end. Only this module converts offsets into
//! the text to line and column.

use std::fmt;

/// Most mistakes that are reported for one file. Ours: a file with more is probably the
/// wrong file, and a hostile one must not grow the list without bound.
pub const MISTAKES_MAX: usize = 100;

/// One mistake in a settings file.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct SettingsMistake {
    /// Line of the file, from 1.
    pub line: usize,
    /// Column of the line in characters, from 1.
    pub column: usize,
    /// Full name of the key (`api.listen`); empty when the text is not TOML there.
    pub key: String,
    /// What is wrong and what to write instead.
    pub sentence: String,
}

impl fmt::Display for SettingsMistake {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "line {}, column {}: ", self.line, self.column)?;
        if !self.key.is_empty() {
            write!(formatter, "{}: ", self.key)?;
        }
        formatter.write_str(&self.sentence)
    }
}

impl std::error::Error for SettingsMistake {}

/// The list while it is collected.
pub(crate) struct SettingsMistakes<'text> {
    text: &'text str,
    list: Vec<SettingsMistake>,
    /// Lines that the TOML parser could not read. What it recovered from them is a
    /// guess, so no further mistake is reported for such a line.
    broken_lines: Vec<usize>,
}

impl<'text> SettingsMistakes<'text> {
    pub(crate) fn of(text: &'text str) -> Self {
        SettingsMistakes {
            text,
            list: Vec::new(),
            broken_lines: Vec::new(),
        }
    }

    /// Records a syntax error of the TOML parser at byte `at`.
    pub(crate) fn not_toml(&mut self, at: usize, message: &str) {
        if self.is_full() {
            return;
        }
        let (line, _) = position(self.text, at);
        self.broken_lines.push(line);
        self.push(at, "", format!("this is not TOML: {message}"));
    }

    /// Records a mistake of the value or key at byte `at`.
    pub(crate) fn add(&mut self, at: usize, key: &str, sentence: impl Into<String>) {
        if self.is_full() {
            return;
        }
        let (line, _) = position(self.text, at);
        if !self.broken_lines.contains(&line) {
            self.push(at, key, sentence.into());
        }
    }

    /// Records that a key is missing, unless a line that could not be read may contain
    /// it.
    pub(crate) fn missing(&mut self, at: usize, key: &str, sentence: impl Into<String>) {
        if self.broken_lines.is_empty() {
            self.add(at, key, sentence);
        }
    }

    /// One mistake more than the limit is kept, to detect that there were more.
    fn is_full(&self) -> bool {
        self.list.len() > MISTAKES_MAX
    }

    fn push(&mut self, at: usize, key: &str, sentence: String) {
        if !self.is_full() {
            let (line, column) = position(self.text, at);
            self.list.push(SettingsMistake {
                line,
                column,
                key: key.to_owned(),
                sentence,
            });
        }
    }

    /// All mistakes in the order of the file.
    pub(crate) fn sorted(mut self) -> Vec<SettingsMistake> {
        let more = self.list.len() > MISTAKES_MAX;
        self.list.truncate(MISTAKES_MAX);
        self.list.sort();
        self.list.dedup();
        if more && let Some(last) = self.list.last() {
            let sentence = format!("more than {MISTAKES_MAX} mistakes: correct these first");
            let (line, column) = (last.line, last.column);
            self.list.push(SettingsMistake {
                line,
                column,
                key: String::new(),
                sentence,
            });
        }
        self.list
    }
}

/// Line and column of a byte offset, both from 1. An offset past the end or inside
/// a character counts as the nearest position before it.
fn position(text: &str, at: usize) -> (usize, usize) {
    let mut end = at.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let before = &text[..end];
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let line = before.bytes().filter(|&byte| byte == b'\n').count() + 1;
    (line, before[line_start..].chars().count() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_lines_and_columns_from_one() {
        assert_eq!(position("ab\ncd", 0), (1, 1));
        assert_eq!(position("ab\ncd", 2), (1, 3));
        assert_eq!(position("ab\ncd", 3), (2, 1));
        assert_eq!(position("ab\ncd", 99), (2, 3));
        assert_eq!(position("", 7), (1, 1));
    }

    #[test]
    fn counts_characters_and_survives_offsets_inside_one() {
        let text = "k = \"\u{fc}\u{fc}\" x";
        assert_eq!(position(text, text.len()), (1, 11));
        assert_eq!(position(text, 6), (1, 6));
    }

    #[test]
    fn prints_place_key_and_sentence() {
        let mut mistakes = SettingsMistakes::of("a\nbc");
        mistakes.add(3, "box.data", "is missing");
        let list = mistakes.sorted();
        assert_eq!(
            list[0].to_string(),
            "line 2, column 2: box.data: is missing"
        );
    }

    #[test]
    fn prints_no_empty_key() {
        let mut mistakes = SettingsMistakes::of("a");
        mistakes.not_toml(0, "odd");
        assert_eq!(
            mistakes.sorted()[0].to_string(),
            "line 1, column 1: this is not TOML: odd"
        );
    }

    #[test]
    fn reports_one_mistake_for_a_line_that_is_not_toml() {
        let mut mistakes = SettingsMistakes::of("a\nb");
        mistakes.not_toml(0, "odd");
        mistakes.add(0, "box", "a guess");
        mistakes.missing(2, "box.data", "is missing");
        mistakes.add(2, "box.name", "wrong for sure");
        let list = mistakes.sorted();
        assert_eq!(list.len(), 2);
        assert_eq!(list[1].key, "box.name");
    }

    #[test]
    fn sorts_by_line_and_drops_duplicates() {
        let mut mistakes = SettingsMistakes::of("a\nb\nc");
        mistakes.add(4, "z", "late");
        mistakes.add(0, "y", "early");
        mistakes.add(4, "z", "late");
        let lines: Vec<usize> = mistakes
            .sorted()
            .iter()
            .map(|mistake| mistake.line)
            .collect();
        assert_eq!(lines, [1, 3]);
    }

    #[test]
    fn stops_at_the_most_and_says_so() {
        let mut mistakes = SettingsMistakes::of("a");
        for index in 0..MISTAKES_MAX * 2 {
            mistakes.add(0, &format!("k{index}"), "wrong");
        }
        let list = mistakes.sorted();
        assert_eq!(list.len(), MISTAKES_MAX + 1);
        assert!(list[MISTAKES_MAX].sentence.contains("correct these first"));
    }
}
