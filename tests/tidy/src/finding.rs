//! What a check found: where, and what to do about it.

use std::fmt;

/// One place that breaks a house rule.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Finding {
    /// Path from the root of the tree.
    pub file: String,
    /// Line from 1; 0 when it is about the whole file.
    pub line: usize,
    /// What is wrong and what to do.
    pub sentence: String,
}

impl Finding {
    /// A finding on one line.
    pub fn on(file: &str, line: usize, sentence: impl Into<String>) -> Self {
        Finding {
            file: file.to_owned(),
            line,
            sentence: sentence.into(),
        }
    }

    /// A finding about a whole file.
    pub fn of(file: &str, sentence: impl Into<String>) -> Self {
        Finding::on(file, 0, sentence)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 {
            write!(formatter, "{}: {}", self.file, self.sentence)
        } else {
            write!(formatter, "{}:{}: {}", self.file, self.line, self.sentence)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_as_editors_jump_to_it() {
        assert_eq!(
            Finding::on("a.rs", 3, "cut it").to_string(),
            "a.rs:3: cut it"
        );
        assert_eq!(Finding::of("a.rs", "cut it").to_string(), "a.rs: cut it");
    }
}
