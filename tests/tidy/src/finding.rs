//! What a check found: where, and what to do about it.

use std::fmt;

/// One place that breaks a rule.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Finding {
    /// Path from the root of the tree.
    pub file: String,
    /// Line from 1; 0 when it is about the whole file.
    pub line: usize,
    /// What is wrong and what to do.
    pub message: String,
}

impl Finding {
    /// A finding on one line.
    pub fn at_line(file: &str, line: usize, sentence: impl Into<String>) -> Self {
        Finding {
            file: file.to_owned(),
            line,
            message: sentence.into(),
        }
    }

    /// A finding about a whole file.
    pub fn in_file(file: &str, sentence: impl Into<String>) -> Self {
        Finding::at_line(file, 0, sentence)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 {
            write!(formatter, "{}: {}", self.file, self.message)
        } else {
            write!(formatter, "{}:{}: {}", self.file, self.line, self.message)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_as_editors_jump_to_it() {
        assert_eq!(
            Finding::at_line("a.rs", 3, "cut it").to_string(),
            "a.rs:3: cut it"
        );
        assert_eq!(
            Finding::in_file("a.rs", "cut it").to_string(),
            "a.rs: cut it"
        );
    }
}
