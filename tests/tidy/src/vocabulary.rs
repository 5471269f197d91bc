//! Words that are never right here: the field has another word for the thing.
//!
//! Words of the first list are checked in identifiers (also as a part of one) and in texts, in
//! every file of the tree. They are written in two halves, so that this file passes its own check.
//! Words of the second list are normal English, but say nothing as the name of a variable, a field,
//! a function or a type: they are checked as whole identifiers of Rust files.

use crate::mask::{is_word, mask};
use crate::{Finding, SourceFile};

/// A word that must not occur, and what to write instead.
const NEVER: [(&str, &str); 16] = [
    (concat!("err", "and"), "BMC request"),
    (concat!("lod", "ger"), "DHCP client"),
    (concat!("blo", "tted"), "redacted"),
    (concat!("fresh", "ness"), "power sync"),
    (concat!("freshe", "n"), "power sync"),
    (concat!("who", "ever"), "the name of the caller"),
    (concat!("an", "ew"), "again"),
    (concat!("over", "grown"), "too large"),
    (concat!("look", "out"), "poller"),
    (concat!("theat", "re"), "the plain word"),
    (concat!("am", "bush"), "fault point"),
    (concat!("bl", "ot"), "redact"),
    (concat!("cl", "erk"), "the name of the part"),
    (concat!("riv", "al"), "BMC address conflict"),
    (concat!("rot", "ten"), "corrupt"),
    (concat!("ru", "ng"), "escalation"),
];

/// A word that must not be the whole name of anything, and what to write instead.
const NEVER_NAMES: [(&str, &str); 43] = [
    ("ask", "request"),
    ("asked", "requested, wanted"),
    ("asker", "client, caller"),
    ("asking", "request"),
    ("asks", "requests"),
    ("book", "index, records"),
    ("brain", "state"),
    ("deed", "action"),
    ("deeds", "actions"),
    ("desk", "operator"),
    ("desks", "operators"),
    ("dice", "random"),
    ("door", "listener"),
    ("doors", "listeners"),
    ("drawer", "vault"),
    ("ear", "receiver"),
    ("ears", "receivers"),
    ("gate", "queue, permits"),
    ("heard", "received"),
    ("judged", "checked"),
    ("kept", "stored, remaining"),
    ("lent", "allocated"),
    ("letter", "character"),
    ("letters", "characters"),
    ("lie", "mismatch"),
    ("manners", "behaviour"),
    ("mouth", "sender"),
    ("owed", "pending"),
    ("patience", "timeout"),
    ("room", "space"),
    ("said", "message, text, reply"),
    ("seat", "permit"),
    ("seats", "permits"),
    ("shelf", "bench"),
    ("stranger", "unknown machine"),
    ("strangers", "unknown machines"),
    ("talk", "exchange"),
    ("told", "reported"),
    ("turning", "transition"),
    ("twin", "other, duplicate"),
    ("voice", "sender"),
    ("vouched", "verified"),
    ("wish", "request"),
];

/// Files whose text is not ours.
const FOREIGN: [&str; 3] = ["Cargo.lock", "LICENSE", "firmware/tftp/LICENSE"];

/// Lines with such a word.
pub fn words(source: &SourceFile) -> Vec<Finding> {
    if FOREIGN.contains(&source.path.as_str()) {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (index, line) in source.text.lines().enumerate() {
        let parts = parts(line);
        for (word, instead) in NEVER {
            let plural = format!("{word}s");
            if parts.iter().any(|part| part == word || *part == plural) {
                let message = format!("`{word}` is not the field's word: write {instead}");
                findings.push(Finding::at_line(&source.path, index + 1, message));
            }
        }
    }
    findings
}

/// Names of a Rust file that are such a word.
pub fn names(source: &SourceFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in mask(&source.text).lines().enumerate() {
        let identifiers = line.split(|character: char| !u8::try_from(character).is_ok_and(is_word));
        for name in identifiers {
            let lower = name.to_ascii_lowercase();
            let Ok(at) = NEVER_NAMES.binary_search_by_key(&lower.as_str(), |(word, _)| word) else {
                continue;
            };
            let message = format!(
                "`{name}` names nothing of the field: write {}",
                NEVER_NAMES[at].1
            );
            findings.push(Finding::at_line(&source.path, index + 1, message));
        }
    }
    findings
}

/// The words of a line in lower case; identifiers are divided at underscores and capitals.
fn parts(line: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut before_is_lower = false;
    for character in line.chars() {
        let starts =
            !character.is_ascii_alphabetic() || (character.is_ascii_uppercase() && before_is_lower);
        if starts {
            parts.push(String::new());
        }
        if character.is_ascii_alphabetic()
            && let Some(last) = parts.last_mut()
        {
            last.push(character.to_ascii_lowercase());
        }
        before_is_lower = character.is_ascii_lowercase();
    }
    parts
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

    fn found(text: &str) -> usize {
        words(&source(text)).len()
    }

    fn found_names(text: &str) -> Vec<String> {
        let findings = names(&source(text)).into_iter();
        findings.map(|finding| finding.to_string()).collect()
    }

    #[test]
    fn a_word_is_caught_alone_and_within_identifiers() {
        let word = NEVER[0].0;
        assert_eq!(found(&format!("// an {word} for the BMC")), 1);
        assert_eq!(found(&format!("fn run_{word}s() {{}}")), 1);
        let (first, rest) = word.split_at(1);
        let camel = format!("struct Bmc{}{rest};", first.to_uppercase());
        assert_eq!(found(&camel), 1);
    }

    #[test]
    fn a_longer_word_is_another_word() {
        assert_eq!(found(&format!("un{}ing", NEVER[0].0)), 0);
        assert_eq!(found("a new file"), 0);
    }

    #[test]
    fn a_name_is_caught_as_variable_field_function_and_type() {
        for text in [
            "let said = reply(1);",
            "struct A { told: bool }",
            "fn asked() {}",
            "enum Told { One }",
            "const PATIENCE: u64 = 1;",
            "call(|kept| kept + 1)",
        ] {
            assert!(!found_names(text).is_empty(), "{text}");
        }
        let [finding] = &found_names("fn a() {}\nlet door = 1;\n")[..] else {
            panic!("one finding");
        };
        assert!(finding.contains("b.rs:2"), "{finding}");
        assert!(finding.contains("listener"), "{finding}");
    }

    #[test]
    fn texts_comments_and_longer_names_are_no_names() {
        for text in [
            "// what the BMC said",
            "let text = \"the letters that were kept\";",
            "fn a_connection_is_kept() {}",
            "let strangers_max = 1;",
        ] {
            assert_eq!(found_names(text), [""; 0], "{text}");
        }
    }

    #[test]
    fn the_names_are_in_order() {
        assert!(NEVER_NAMES.is_sorted_by_key(|(word, _)| *word));
    }
}
