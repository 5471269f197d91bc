//! Type names: each exists once in the workspace.
//!
//! A reader finds a type by its name alone. The few names that every protocol has may be
//! shared; they are listed here.

use std::collections::BTreeMap;

use crate::mask::{line_of, mask, words};
use crate::{Finding, SourceFile};

/// Names that more than one crate may have: the same concept, once per protocol.
const SHARED: [&str; 7] = [
    "Settings", "Error", "Request", "Response", "Session", "Target", "Packet",
];

const KEYWORDS: [&str; 4] = ["struct", "enum", "trait", "type"];

/// The types of one file, at its top level or in its modules: line and name.
fn types(source: &SourceFile) -> Vec<(usize, String)> {
    let masked = mask(&source.text);
    let mut found = Vec::new();
    for keyword in KEYWORDS {
        for at in words(&masked, keyword) {
            let line_start = masked[..at].rfind('\n').map_or(0, |end| end + 1);
            let before = &masked[line_start..at];
            let item = before.trim_start();
            // An associated type or a local one is not counted.
            if !is_visibility(item) || !is_in_modules(&masked[..line_start], before) {
                continue;
            }
            let after = masked[at + keyword.len()..].trim_start();
            let name: String = after
                .chars()
                .take_while(|character| character.is_ascii_alphanumeric() || *character == '_')
                .collect();
            found.push((line_of(&masked, at), name));
        }
    }
    found
}

/// Whether only modules are around a line with this start: with the indentation that rustfmt gives,
/// the last line before it that is indented less begins the block around it.
fn is_in_modules(text: &str, start: &str) -> bool {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut depth = indent(start);
    for line in text.lines().rev() {
        if depth == 0 {
            break;
        }
        if line.trim().is_empty() || indent(line) >= depth {
            continue;
        }
        depth = indent(line);
        if !words(line, "mod")
            .iter()
            .any(|&at| is_visibility(line[..at].trim_start()))
        {
            return false;
        }
    }
    true
}

/// Whether the text before the keyword is nothing or a visibility.
fn is_visibility(before: &str) -> bool {
    before.is_empty() || before == "pub " || before.starts_with("pub(") && before.ends_with(") ")
}

/// Types whose name exists before in the workspace.
pub fn repeated<'a>(sources: impl Iterator<Item = &'a SourceFile>) -> Vec<Finding> {
    let mut first: BTreeMap<String, String> = BTreeMap::new();
    let mut findings = Vec::new();
    for source in sources {
        for (line, name) in types(source) {
            let place = format!("{}:{line}", source.path);
            let Some(earlier) = first.get(&name) else {
                first.insert(name, place);
                continue;
            };
            if !SHARED.contains(&name.as_str()) {
                let message =
                    format!("type `{name}` exists in {earlier}: say in the name what this one is");
                findings.push(Finding::at_line(&source.path, line, message));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> SourceFile {
        SourceFile {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn a_second_type_of_the_same_name_is_caught() {
        let first = source("a.rs", "pub struct LeaseTable;\n");
        let second = source("b.rs", "\npub(crate) enum LeaseTable {}\n");
        let found = repeated([&first, &second].into_iter());
        assert_eq!((found.len(), found[0].line), (1, 2));
        assert!(found[0].message.contains("a.rs:1"));
    }

    #[test]
    fn listed_names_may_be_shared() {
        let first = source("a.rs", "pub struct Settings;\n");
        let second = source("b.rs", "pub struct Settings;\n");
        assert!(repeated([&first, &second].into_iter()).is_empty());
    }

    #[test]
    fn types_in_modules_count() {
        let text = "struct A;\nmod b {\n    pub mod c {\n\n        struct A;\n    }\n}\n";
        let found = repeated([&source("a.rs", text)].into_iter());
        assert_eq!((found.len(), found[0].line), (1, 5));
        let local = "struct A;\nmod b {\n    fn c() {\n        struct A;\n    }\n}\n";
        assert!(repeated([&source("a.rs", local)].into_iter()).is_empty());
    }

    #[test]
    fn comments_texts_and_inner_types_do_not_count() {
        let text = "struct A;\n// struct A;\nconst B: &str = \"struct A\";\n\
                    impl C {\n    type A = u8;\n}\n";
        assert!(repeated([&source("a.rs", text)].into_iter()).is_empty());
    }
}
