//! Words that are never right here: the field has another word for the thing.
//!
//! Checked in identifiers (also as a part of one) and in texts, in every file of the tree.
//! The words are written in two halves, so that this file passes its own check.

use crate::{Finding, SourceFile};

/// A word that must not occur, and what to write instead.
const NEVER: [(&str, &str); 11] = [
    (concat!("err", "and"), "BMC request"),
    (concat!("lod", "ger"), "DHCP client"),
    (concat!("blot", "ted"), "redacted"),
    (concat!("fresh", "ness"), "power sync"),
    (concat!("freshe", "n"), "power sync"),
    (concat!("who", "ever"), "the name of the caller"),
    (concat!("an", "ew"), "again"),
    (concat!("over", "grown"), "too large"),
    (concat!("look", "out"), "poller"),
    (concat!("theat", "re"), "the plain word"),
    (concat!("am", "bush"), "fault point"),
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

    fn found(text: &str) -> usize {
        let source = SourceFile {
            path: "firmware/a/src/b.rs".to_owned(),
            text: text.to_owned(),
        };
        words(&source).len()
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
}
