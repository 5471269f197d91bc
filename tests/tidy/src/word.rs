//! Words and characters: what no source or document of ours holds.
//!
//! The words are written in two halves here, so that this file passes its own check.

use crate::mask::{is_word, line_of, mask, words};
use crate::{Finding, SourceFile};

/// Words that mark unfinished work.
const UNFINISHED: [&str; 3] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
];

/// Places outside the tree that mean nothing to its readers.
const OUTSIDE: [&str; 2] = [concat!("/wo", "rk/"), concat!("sha", "red/")];

/// Names that say nothing about what is inside.
const EMPTY_NAMES: [&str; 8] = [
    "util", "utils", "common", "helper", "helpers", "manager", "managers", "misc",
];

/// Files whose text is not ours.
const FOREIGN: [&str; 2] = ["Cargo.lock", "LICENSE"];

/// Words of unfinished work, places outside the tree, numbers of issues.
pub fn banned(source: &SourceFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    if FOREIGN.contains(&source.path.as_str()) {
        return findings;
    }
    for (index, line) in source.text.lines().enumerate() {
        let mut found = |sentence: String| {
            findings.push(Finding::at_line(&source.path, index + 1, sentence));
        };
        for word in UNFINISHED {
            if !words(line, word).is_empty() {
                found(format!(
                    "`{word}`: finish it, or say in a sentence what is missing"
                ));
            }
        }
        for place in OUTSIDE {
            if line.contains(place) {
                found(format!("`{place}` is outside the tree: say what is meant"));
            }
        }
        if names_an_issue(line) {
            found("an issue number: say what it said".to_owned());
        }
    }
    findings
}

/// The word and a number behind it, with or without a hash.
fn names_an_issue(line: &str) -> bool {
    let lower = line.to_ascii_lowercase();
    words(&lower, "issue").into_iter().any(|at| {
        let rest = lower[at + "issue".len()..].trim_start();
        let number = rest.strip_prefix('#').unwrap_or(rest);
        number.starts_with(|sign: char| sign.is_ascii_digit())
    })
}

/// Files and folders with names that say nothing.
pub fn names(path: &str) -> Vec<Finding> {
    let stem = |part: &str| part.split('.').next().unwrap_or_default().to_owned();
    let empty = path
        .split('/')
        .map(stem)
        .find(|part| EMPTY_NAMES.contains(&part.as_str()));
    empty
        .map(|name| Finding::in_file(path, format!("`{name}` says nothing: name what is inside")))
        .into_iter()
        .collect()
}

/// Characters beyond ASCII.
pub fn ascii(source: &SourceFile) -> Vec<Finding> {
    let numbered = source.text.lines().enumerate();
    let odd = numbered.filter_map(|(index, line)| {
        let sign = line.chars().find(|sign| !sign.is_ascii())?;
        let sentence = format!("`{}` is not ASCII: write an escape", sign.escape_unicode());
        Some(Finding::at_line(&source.path, index + 1, sentence))
    });
    odd.collect()
}

/// Unsafe code outside `board/linux`.
pub fn unsafety(source: &SourceFile) -> Vec<Finding> {
    if source.path.starts_with("board/linux/") {
        return Vec::new();
    }
    let masked = mask(&source.text);
    let sentence = "unsafe code lives in board/linux only: put it behind a safe call there";
    words(&masked, "unsafe")
        .into_iter()
        .map(|at| Finding::at_line(&source.path, line_of(&masked, at), sentence))
        .collect()
}

/// Names that begin with `get_`.
pub fn getters(source: &SourceFile) -> Vec<Finding> {
    let masked = mask(&source.text);
    let bytes = masked.as_bytes();
    let getter = |at: &usize| masked[at + 2..].trim_start().starts_with("get_");
    words(&masked, "fn")
        .into_iter()
        .filter(|at| bytes.get(at + 2).is_some_and(|&byte| !is_word(byte)))
        .filter(getter)
        .map(|at| {
            let sentence = "a name that begins with `get_`: name what it answers";
            Finding::at_line(&source.path, line_of(&masked, at), sentence)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> SourceFile {
        SourceFile {
            path: "firmware/a/src/b.rs".to_owned(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn unfinished_work_is_caught() {
        for word in UNFINISHED {
            let found = banned(&source(&format!("a\n// {word}: later\n")));
            assert_eq!((found.len(), found[0].line), (1, 2), "{word}");
        }
        // A template of mktemp is not the word.
        assert!(banned(&source(&format!("mktemp a.{0}{0}", UNFINISHED[2]))).is_empty());
    }

    #[test]
    fn places_outside_the_tree_are_caught() {
        for place in OUTSIDE {
            assert_eq!(
                banned(&source(&format!("see {place}notes.md"))).len(),
                1,
                "{place}"
            );
        }
        assert!(banned(&source("see firmware/work.rs")).is_empty());
    }

    #[test]
    fn issue_numbers_are_caught() {
        let word = "issue";
        for text in [
            format!("see {word} 12"),
            format!("{word} #3"),
            format!("(Issue{}9)", ' '),
        ] {
            assert_eq!(banned(&source(&text)).len(), 1, "{text}");
        }
        assert!(banned(&source("issue a certificate; issued 3 of them")).is_empty());
    }

    #[test]
    fn foreign_texts_may_hold_anything() {
        let lock = SourceFile {
            path: "Cargo.lock".to_owned(),
            text: UNFINISHED[0].to_owned(),
        };
        assert!(banned(&lock).is_empty());
    }

    #[test]
    fn names_that_say_nothing_are_caught() {
        for path in [
            "firmware/a/src/util.rs",
            "tests/common/mod.rs",
            "a/helpers.py",
            "misc",
        ] {
            assert_eq!(names(path).len(), 1, "{path}");
        }
        assert!(names("firmware/utility/src/lib.rs").is_empty());
    }

    #[test]
    fn characters_beyond_ascii_are_caught() {
        let found = ascii(&source("ok\nna\u{ef}ve\n"));
        assert_eq!((found.len(), found[0].line), (1, 2));
        assert!(found[0].message.contains("\\u{ef}"));
    }

    #[test]
    fn unsafe_code_is_caught_outside_its_crate() {
        let text = "// unsafe here is a comment\nlet a = \"unsafe\";\nunsafe { b() }\n";
        let found = unsafety(&source(text));
        assert_eq!((found.len(), found[0].line), (1, 3));
        let linux = SourceFile {
            path: "board/linux/src/lib.rs".to_owned(),
            text: "unsafe {}".to_owned(),
        };
        assert!(unsafety(&linux).is_empty());
        assert!(unsafety(&source("#![forbid(unsafe_code)]")).is_empty());
    }

    #[test]
    fn getters_are_caught() {
        assert_eq!(
            getters(&source("impl A { pub fn get_name(&self) {} }")).len(),
            1
        );
        assert!(getters(&source("// fn get_name\nfn name() { self.get_mut(); }")).is_empty());
    }
}
