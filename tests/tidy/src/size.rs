//! Sizes: files, functions, lines.
//!
//! Test modules do not count. A function's lines are those between its braces that
//! hold code, as clippy's `too_many_lines` counts them.

use std::ops::Range;

use crate::mask::{blank, block_end, line_of, mask, words};
use crate::{Finding, SourceFile};

/// Longest file, net of its test modules.
pub const FILE_LINES_MAX: usize = 600;

/// Longest function.
pub const FUNCTION_LINES_MAX: usize = 70;

/// Longest line.
pub const LINE_COLUMNS_MAX: usize = 100;

const EXEMPTION_LINT: &str = "clippy::too_many_lines";

/// Whether the whole file is tests: `tests.rs`, or below a package's `tests` or `benches`.
pub fn is_test_file(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    let (name, folders) = parts.split_last().unwrap_or((&"", &[]));
    // The first folder `tests` is where the test crates live.
    *name == "tests.rs"
        // Counterparts that only tests use, also those of other crates.
        || *name == "simulated.rs"
        || folders.contains(&"simulated")
        || folders
            .iter()
            .skip(1)
            .any(|part| ["tests", "benches"].contains(part))
}

/// Where the items under `#[cfg(test)]` stand in masked text.
fn test_spans(masked: &str) -> Vec<Range<usize>> {
    let mut spans = Vec::new();
    let mut from = 0;
    while let Some(found) = masked[from..].find("#[cfg(test)]") {
        let start = from + found;
        let item = &masked[start..];
        let end = match (item.find('{'), item.find(';')) {
            (Some(open), Some(semicolon)) if semicolon < open => start + semicolon + 1,
            (Some(open), _) => block_end(masked, start + open),
            (None, Some(semicolon)) => start + semicolon + 1,
            (None, None) => masked.len(),
        };
        spans.push(start..end);
        from = end;
    }
    spans
}

/// Masked text with its test modules blanked too.
pub(crate) fn code_of(text: &str) -> String {
    without_tests(&mask(text))
}

/// The text with its test modules blanked, comments and literals kept.
pub(crate) fn without_tests(text: &str) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for span in test_spans(&mask(text)) {
        blank(&mut bytes[span]);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Files over the limit, net of test modules.
pub fn files(source: &SourceFile) -> Vec<Finding> {
    if is_test_file(&source.path) {
        return Vec::new();
    }
    let masked = mask(&source.text);
    let tests: usize = test_spans(&masked)
        .into_iter()
        .map(|span| masked[span].lines().count())
        .sum();
    let net = source.text.lines().count().saturating_sub(tests);
    if net <= FILE_LINES_MAX {
        return Vec::new();
    }
    let sentence =
        format!("{net} lines without its tests, at most {FILE_LINES_MAX}: split it by subject");
    vec![Finding::in_file(&source.path, sentence)]
}

/// Functions over the limit, unless excused; and more than one excuse in a file.
pub fn functions(source: &SourceFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    if is_test_file(&source.path) {
        return findings;
    }
    let code = code_of(&source.text);
    for (index, at) in words(&code, EXEMPTION_LINT).into_iter().enumerate().skip(1) {
        let sentence = format!("excuse {} in one file: cut the function instead", index + 1);
        findings.push(Finding::at_line(&source.path, line_of(&code, at), sentence));
    }
    for at in words(&code, "fn") {
        let Some(open) = body_start(&code, at) else {
            continue;
        };
        let body = &code[open + 1..block_end(&code, open).saturating_sub(1).max(open + 1)];
        let lines = body.lines().filter(|line| !line.trim().is_empty()).count();
        if lines > FUNCTION_LINES_MAX && !is_exempt(&code[..at]) {
            let sentence = format!(
                "function of {lines} lines, at most {FUNCTION_LINES_MAX}: \
                 give its parts names of their own"
            );
            findings.push(Finding::at_line(&source.path, line_of(&code, at), sentence));
        }
    }
    findings
}

/// Where a function's body opens; `None` for a type or a declaration.
fn body_start(code: &str, at: usize) -> Option<usize> {
    let mut depth = 0_usize;
    let after = code[at + 2..].trim_start();
    // A pointer type `fn(u8)` has no name.
    if after.starts_with('(') {
        return None;
    }
    for (index, byte) in code.bytes().enumerate().skip(at) {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth = depth.saturating_sub(1),
            b';' if depth == 0 => return None,
            b'{' if depth == 0 => return Some(index),
            _ => {}
        }
    }
    None
}

/// Whether the attributes right before a function excuse its length.
fn is_exempt(before: &str) -> bool {
    let start = before.rfind(['{', '}', ';']).map_or(0, |end| end + 1);
    before[start..].contains(EXEMPTION_LINT)
}

/// Lines that are too wide.
pub fn lines(source: &SourceFile) -> Vec<Finding> {
    let numbered = source.text.lines().enumerate();
    let wide = numbered.filter(|(_, line)| line.chars().count() > LINE_COLUMNS_MAX);
    wide.map(|(index, line)| {
        let columns = line.chars().count();
        let sentence = format!("{columns} columns, at most {LINE_COLUMNS_MAX}: break the line");
        Finding::at_line(&source.path, index + 1, sentence)
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: impl Into<String>) -> SourceFile {
        SourceFile {
            path: path.to_owned(),
            text: text.into(),
        }
    }

    fn function(head: &str, lines: usize) -> String {
        format!("{head} {{\n{}}}\n", "    work();\n".repeat(lines))
    }

    #[test]
    fn a_long_file_is_caught_and_its_tests_do_not_count() {
        let long = "const A: u8 = 1;\n".repeat(FILE_LINES_MAX);
        assert!(files(&source("a/src/b.rs", long.clone())).is_empty());
        assert_eq!(files(&source("a/src/b.rs", format!("{long}x\n"))).len(), 1);
        let tests = format!(
            "{long}#[cfg(test)]\nmod tests {{\n{}}}\n",
            "// x\n a();\n".repeat(99)
        );
        assert!(files(&source("a/src/b.rs", tests)).is_empty());
        assert!(files(&source("a/src/tests.rs", "x\n".repeat(2000))).is_empty());
    }

    #[test]
    fn test_files_are_known_by_their_place() {
        assert!(is_test_file("firmware/store/src/tests.rs"));
        assert!(is_test_file("firmware/store/tests/cut.rs"));
        assert!(is_test_file("tests/tidy/tests/workspace.rs"));
        assert!(is_test_file("tests/bench/benches/store.rs"));
        assert!(!is_test_file("tests/tidy/src/size.rs"));
        assert!(!is_test_file("firmware/store/src/log.rs"));
    }

    #[test]
    fn a_long_function_is_caught_with_its_line() {
        let good = function("fn f(x: [u8; 3]) -> u8", FUNCTION_LINES_MAX);
        assert!(functions(&source("a.rs", good)).is_empty());
        let bad = format!("\n\n{}", function("pub fn f()", FUNCTION_LINES_MAX + 1));
        let found = functions(&source("a.rs", bad));
        assert_eq!((found.len(), found[0].line), (1, 3));
    }

    #[test]
    fn comments_and_blank_lines_do_not_lengthen_a_function() {
        let text = format!(
            "fn f() {{\n{}}}\n",
            "\n    // why\n    work();\n".repeat(70)
        );
        assert!(functions(&source("a.rs", text)).is_empty());
    }

    #[test]
    fn one_exemption_is_accepted_a_second_is_not() {
        let excuse = "#[expect(clippy::too_many_lines, reason = \"a table; really\")]\n";
        let long = function("fn f()", 90);
        assert!(functions(&source("a.rs", format!("{excuse}{long}"))).is_empty());
        let next = format!("{excuse}{long}{long}");
        assert_eq!(functions(&source("a.rs", next)).len(), 1);
        let twice = format!("{excuse}{long}{excuse}{long}");
        let found = functions(&source("a.rs", twice));
        assert_eq!((found.len(), found[0].line), (1, 94));
    }

    #[test]
    fn long_tests_and_declarations_are_left_alone() {
        let text = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", function("fn f()", 90));
        assert!(functions(&source("a.rs", text)).is_empty());
        let text = format!(
            "type F = fn(u8);\ntrait T {{ fn f();\n{}}}\n",
            "x!();\n".repeat(90)
        );
        assert!(functions(&source("a.rs", text)).is_empty());
    }

    #[test]
    fn code_after_a_test_only_import_still_counts() {
        let text = format!("#[cfg(test)]\nmod tests;\n{}", function("fn f()", 90));
        assert_eq!(functions(&source("a.rs", text)).len(), 1);
    }

    #[test]
    fn a_wide_line_is_caught() {
        let text = format!("{}\n{}\n", "x".repeat(100), "x".repeat(101));
        let found = lines(&source("a.rs", text));
        assert_eq!((found.len(), found[0].line), (1, 2));
    }
}
