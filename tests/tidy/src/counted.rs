//! Whether each kind of note and each typed reason is counted by the metrics, or listed with the
//! reason why it is not.

use crate::mask::{mask, words};
use crate::references::variants;
use crate::{Finding, SourceFile};

/// The variants with a reason, in lines `Variant: sentence`.
fn exempt(list: &str) -> Vec<&str> {
    list.lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once(": "))
        .filter(|(_, reason)| reason.split_whitespace().count() >= 3)
        .map(|(variant, _)| variant)
        .collect()
}

/// Kinds of notes that the code of the metrics does not name outside comments and tests, and that
/// are not listed with a reason; and listed ones that are counted or do not exist.
pub fn notes(note_file: &str, metrics: &str, list_path: &str, list: &str) -> Vec<Finding> {
    let masked = mask(metrics);
    let is_counted = |variant: &str| !words(&masked, &format!("NoteKind::{variant}")).is_empty();
    let kinds = variants(note_file, "NoteKind");
    let listed = exempt(list);
    let mut findings = Vec::new();
    if kinds.is_empty() {
        findings.push(Finding::in_file(
            list_path,
            "no enum NoteKind was found: the check reads nothing".to_owned(),
        ));
    }
    for kind in &kinds {
        match (is_counted(kind), listed.contains(&kind.as_str())) {
            (false, false) => findings.push(Finding::in_file(
                list_path,
                format!(
                    "NoteKind::{kind} is not counted: count it in firmware/metrics/src/notes.rs, \
                     or say here why not"
                ),
            )),
            (true, true) => findings.push(Finding::in_file(
                list_path,
                format!("NoteKind::{kind} is counted: remove the line"),
            )),
            _ => {}
        }
    }
    let unknown = listed
        .iter()
        .filter(|one| !kinds.iter().any(|kind| kind == *one));
    let unknown = unknown.map(|one| {
        Finding::in_file(
            list_path,
            format!("there is no NoteKind::{one}: remove the line"),
        )
    });
    findings.extend(unknown);
    findings
}

/// Ends of names of enums that say why something was dropped or failed. An enum with the name
/// `Reason` is one too.
const ENDINGS: [&str; 3] = ["DropReason", "FrameError", "FailureCause"];

/// Enums of reasons whose names reach a counter, each with the file and the method that gives the
/// value of the label.
pub const COUNTED_REASONS: [(&str, &str, &str); 3] = [
    ("Reason", "firmware/dhcp/src/reason.rs", "name"),
    ("FrameError", "firmware/link/src/receive.rs", "name"),
    ("BmcFailureCause", "firmware/model/src/power.rs", "word"),
];

/// Enums of reasons in the product that are not counted.
pub fn reasons<'a>(sources: impl Iterator<Item = &'a SourceFile>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut found = Vec::new();
    for source in sources.filter(|source| source.path.starts_with("firmware/")) {
        let masked = mask(&source.text);
        for line in masked.lines() {
            let Some(name) = declared_enum(line) else {
                continue;
            };
            if name != "Reason" && !ENDINGS.iter().any(|ending| name.ends_with(ending)) {
                continue;
            }
            let counted = COUNTED_REASONS
                .iter()
                .find(|(counted, path, _)| *counted == name && *path == source.path);
            let Some((_, _, method)) = counted else {
                let sentence = format!(
                    "{name} is a reason that no metric counts: give its name to a counter of \
                     firmware/metrics and add it to tests/tidy/src/counted.rs"
                );
                findings.push(Finding::in_file(&source.path, sentence));
                continue;
            };
            found.push(name.to_owned());
            findings.extend(without_label(&source.path, &masked, name, method));
        }
    }
    let missing = COUNTED_REASONS
        .iter()
        .filter(|(name, ..)| !found.iter().any(|one| one == name));
    findings.extend(missing.map(|(name, path, _)| {
        Finding::in_file(
            path,
            format!("no enum {name} was found: the check reads nothing"),
        )
    }));
    findings
}

/// The method that gives the label must be a match that names each variant, so that a new one
/// does not compile without a label.
fn without_label(path: &str, masked: &str, name: &str, method: &str) -> Option<Finding> {
    let at = masked.find(&format!("const fn {method}(self)"));
    let body = at.map(|at| &masked[at..]);
    let body = body.and_then(|body| body.split_once("\n    }").map(|(body, _)| body));
    let is_closed = body.is_some_and(|body| body.contains("match self") && !body.contains("_ =>"));
    (!is_closed).then(|| {
        let sentence = format!("{name}::{method} must be a match over all variants");
        Finding::in_file(path, sentence)
    })
}

/// The name of the enum that a line declares.
fn declared_enum(line: &str) -> Option<&str> {
    let (before, rest) = line.split_once("enum ")?;
    let is_start = before.trim().is_empty() || before.trim_start().starts_with("pub");
    let end = rest.find(|character: char| !character.is_ascii_alphanumeric());
    let name = &rest[..end.unwrap_or(rest.len())];
    (is_start && !name.is_empty()).then_some(name)
}

/// Metrics that the manual page lacks, and listed ones that do not exist. The page has a table
/// row that begins with the name for each.
pub fn manual_page(code: &str, page_path: &str, page: &str) -> Vec<Finding> {
    let names: Vec<&str> = code
        .split('"')
        .filter(|text| text.starts_with("trivet_") || text.starts_with("process_"))
        .filter(|text| text.chars().all(|c| c.is_ascii_lowercase() || c == '_'))
        .collect();
    let rows: Vec<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .filter(|name| name.starts_with("trivet_") || name.starts_with("process_"))
        .collect();
    let mut findings = Vec::new();
    if names.is_empty() {
        let sentence = "no metric was found in the code: the check reads nothing".to_owned();
        findings.push(Finding::in_file(page_path, sentence));
    }
    let missing = names.iter().filter(|name| !rows.contains(name));
    findings.extend(
        missing.map(|name| Finding::in_file(page_path, format!("lacks the metric {name}"))),
    );
    let stale = rows.iter().filter(|name| !names.contains(name));
    findings.extend(
        stale.map(|name| {
            Finding::in_file(page_path, format!("{name} is no metric: remove the row"))
        }),
    );
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTES: &str =
        "/// X\npub enum NoteKind {\n    One,\n    Two { a: u8 },\n    Three(u8),\n}\n";

    fn source(path: &str, text: &str) -> SourceFile {
        SourceFile {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn a_note_that_is_neither_counted_nor_listed_is_caught() {
        let code = "match k { NoteKind::One => 1, NoteKind::Two { .. } => 2, _ => 0 }";
        let listed = "Three: nothing can be counted\n";
        assert!(notes(NOTES, code, "l", listed).is_empty());
        assert_eq!(notes(NOTES, code, "l", "").len(), 1);
        assert_eq!(notes(NOTES, code, "l", "Three: no\n").len(), 1, "no reason");
        let comment = "// NoteKind::Three\nNoteKind::One NoteKind::Two";
        assert_eq!(
            notes(NOTES, comment, "l", "").len(),
            1,
            "a comment counts nothing"
        );
        let both = format!("{listed}One: it is counted anyway\nFour: there is none such\n");
        assert_eq!(notes(NOTES, code, "l", &both).len(), 2);
        assert_eq!(
            notes("", code, "l", "").len(),
            1,
            "an empty enum is no enum"
        );
    }

    #[test]
    fn a_new_enum_of_reasons_must_be_counted() {
        let label = "const fn name(self) {\n        match self { A => 1 }\n    }\n";
        let word = label.replace("name", "word");
        let all = [
            source(
                "firmware/dhcp/src/reason.rs",
                &format!("pub enum Reason {{\n{label}"),
            ),
            source(
                "firmware/link/src/receive.rs",
                &format!("pub enum FrameError {{\n{label}"),
            ),
            source(
                "firmware/model/src/power.rs",
                &format!("pub enum BmcFailureCause {{\n{word}"),
            ),
        ];
        assert!(reasons(all.iter()).is_empty(), "{:?}", reasons(all.iter()));
        assert_eq!(reasons(all[..2].iter()).len(), 1, "one is gone");
        let new = source(
            "firmware/tftp/src/x.rs",
            "pub(crate) enum TftpDropReason {\n",
        );
        assert_eq!(reasons(all.iter().chain([&new])).len(), 1);
        let open = source(
            "firmware/dhcp/src/reason.rs",
            &format!(
                "pub enum Reason {{\n{}",
                label.replace("A => 1", "A => 1, _ => 2")
            ),
        );
        assert_eq!(reasons([&open, &all[1], &all[2]].into_iter()).len(), 1);
    }

    #[test]
    fn page_and_code_list_the_same_metrics() {
        let code = "A Counter \"trivet_a_total\" [\"kind\"] \"Help.\"";
        let page = "| `trivet_a_total` | counter | Help. |\n";
        assert!(manual_page(code, "p", page).is_empty());
        assert_eq!(manual_page(code, "p", "").len(), 1);
        let more = format!("{page}| `trivet_b` | gauge | x |\n");
        assert_eq!(manual_page(code, "p", &more).len(), 1);
        assert_eq!(manual_page("", "p", "").len(), 1);
    }
}
