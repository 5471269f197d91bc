//! Rules that hold for every key, with the keys of the commented default file.

use super::*;

/// Section and key of each line that sets a value or shows a default.
fn keys() -> Vec<(String, String)> {
    let mut section = String::new();
    let mut keys = Vec::new();
    for line in default_file().lines() {
        let line = line.strip_prefix('#').unwrap_or(line);
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_matches(['[', ']']).to_owned();
        } else if let Some((key, _)) = line.split_once(" = ")
            && key.chars().all(|c| c.is_ascii_lowercase() || c == '_')
        {
            keys.push((section.clone(), key.to_owned()));
        }
    }
    keys
}

/// A file with the required keys of all sections except `section`, which has only `rest`.
fn file(section: &str, rest: &str) -> String {
    let head = match section {
        "dhcp" | "registry" | "webhook" | "images.ahead" => format!("[[{section}]]"),
        "boot.loaders" => "[boot.loaders]".to_owned(),
        other => format!("[{other}]"),
    };
    let appliance = if section == "box" { "" } else { BOX };
    format!("{appliance}{head}\n{rest}\n")
}

#[track_caller]
fn named(section: &str, rest: &str) -> Vec<String> {
    let list = parse(&file(section, rest)).unwrap_err();
    list.into_iter().map(|mistake| mistake.key).collect()
}

#[test]
fn the_default_file_shows_keys_of_every_section() {
    let keys = keys();
    assert!(keys.len() > 60, "{keys:?}");
    for section in SECTIONS {
        let found = keys.iter().any(|(of, _)| of == section);
        assert!(found, "{section}");
    }
}

#[test]
fn a_value_of_the_wrong_type_is_named_by_its_key() {
    for (section, key) in keys() {
        // No key has a date.
        let found = named(&section, &format!("{key} = 2026-11-18"));
        let is_named = |name: &String| {
            *name == format!("{section}.{key}") || name.ends_with(&format!("].{key}"))
        };
        assert!(found.iter().any(is_named), "{section}.{key}: {found:?}");
    }
}

#[test]
fn a_key_that_is_misspelt_in_one_character_is_refused_with_the_right_one() {
    for (section, key) in keys() {
        let wrong = format!("{key}x");
        let list = parse(&file(&section, &format!("{wrong} = 1"))).unwrap_err();
        let mistake = list.iter().find(|mistake| mistake.key.ends_with(&wrong));
        let sentence = &mistake
            .unwrap_or_else(|| panic!("{section}.{wrong}"))
            .sentence;
        assert!(sentence.contains("did you mean"), "{section}: {sentence}");
        assert!(
            sentence.contains(&format!("{key}`")),
            "{section}: {sentence}"
        );
    }
}

#[test]
fn a_key_that_is_given_twice_is_a_mistake() {
    for (section, key) in keys() {
        let twice = format!("{key} = 1\n{key} = 1");
        assert!(parse(&file(&section, &twice)).is_err(), "{section}.{key}");
    }
}
