//! Pages and lists that must agree with the code: settings reference, outputs that the
//! simulator ignores, dependencies that are used.

use std::collections::BTreeSet;

use crate::mask::{block_end, mask, words};
use crate::{Finding, Package, SourceFile};

/// Sections of the settings file that the reference page does not show as they are.
pub fn settings(defaults: &str, page_path: &str, page: &str) -> Vec<Finding> {
    let page_lines: BTreeSet<&str> = page.lines().map(str::trim_end).collect();
    let lines = defaults.lines().enumerate();
    lines
        .filter(|(_, line)| {
            let setting = line.trim_start_matches("# ");
            (setting.contains(" = ") || setting.starts_with('['))
                && !page_lines.contains(line.trim_end())
        })
        .map(|(index, line)| {
            let message = format!("lacks line {} of the default settings: {line}", index + 1);
            Finding::in_file(page_path, message)
        })
        .collect()
}

/// The variants of an enum, from the text of its file.
pub(crate) fn variants(text: &str, name: &str) -> Vec<String> {
    let masked = mask(text);
    let Some(at) = masked.find(&format!("enum {name} {{")) else {
        return Vec::new();
    };
    let open = at + masked[at..].find('{').unwrap_or_default();
    let body = &masked[open + 1..block_end(&masked, open) - 1];
    let lines = body.lines().filter(|line| {
        let indented = line.strip_prefix("    ").unwrap_or_default();
        indented.starts_with(|character: char| character.is_ascii_uppercase())
    });
    lines
        .map(|line| {
            let name = line.trim_start();
            let end = name.find(|character: char| !character.is_ascii_alphanumeric());
            name[..end.unwrap_or(name.len())].to_owned()
        })
        .collect()
}

/// Outputs of the rack that the simulator neither carries out nor lists with a reason, and
/// listed ones that do not exist. The outputs are the variants of these enums, each given by the
/// text of its file and its name. A reason is a line `Variant: sentence`.
pub fn ignored_outputs(
    enums: &[(&str, &str)],
    simulator: &str,
    list_path: &str,
    list: &str,
) -> Vec<Finding> {
    let listed: Vec<&str> = list
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once(": "))
        .filter(|(_, reason)| reason.split_whitespace().count() >= 3)
        .map(|(variant, _)| variant)
        .collect();
    let ignored_of = |name: &str| {
        let of_name = ignored_variants(simulator, name).into_iter();
        let of_name = of_name.map(|variant| (name.to_owned(), variant));
        of_name.collect::<Vec<_>>()
    };
    let ignored: Vec<_> = enums
        .iter()
        .flat_map(|(_, name)| ignored_of(name))
        .collect();
    let missing = ignored
        .iter()
        .filter(|(_, variant)| !listed.contains(&variant.as_str()));
    let missing = missing.map(|(name, variant)| {
        let message = format!("the simulator ignores {name}::{variant}: carry it out, or say why");
        Finding::in_file(list_path, message)
    });
    let stale = listed
        .iter()
        .filter(|variant| !ignored.iter().any(|(_, found)| found == *variant));
    let stale = stale.map(|variant| {
        let message = format!("{variant} is not ignored by the simulator: remove the line");
        Finding::in_file(list_path, message)
    });
    let unread = enums
        .iter()
        .filter(|(outputs, name)| variants(outputs, name).is_empty());
    let unread = unread.map(|(_, name)| {
        let message = format!("no enum {name} was found: the check reads nothing");
        Finding::in_file(list_path, message)
    });
    missing.chain(stale).chain(unread).collect()
}

/// Variants in match arms whose body is empty. rustfmt writes the alternatives of a pattern on
/// lines of their own that begin with a bar, or on one line, which may leave no space for the
/// closing brace.
fn ignored_variants(simulator: &str, name: &str) -> Vec<String> {
    let masked = mask(simulator);
    let prefix = format!("{name}::");
    let lines: Vec<&str> = masked.lines().collect();
    let mut ignored = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let closed = lines.get(index + 1).is_some_and(|next| next.trim() == "}");
        let is_empty = line.ends_with("=> {}") || (line.ends_with("=> {") && closed);
        if !is_empty {
            continue;
        }
        let mut first = index;
        while first > 0 && lines[first].trim_start().starts_with('|') {
            first -= 1;
        }
        for line in &lines[first..=index] {
            ignored.extend(line.match_indices(&prefix).map(|(at, _)| {
                let rest = &line[at + prefix.len()..];
                let end = rest.find(|character: char| !character.is_ascii_alphanumeric());
                rest[..end.unwrap_or(rest.len())].to_owned()
            }));
        }
    }
    ignored
}

/// Kinds of records that the table of the format page lacks, in the form `| 1 | node |`.
pub fn record_kinds(code: &str, page_path: &str, page: &str) -> Vec<Finding> {
    let rows: BTreeSet<(&str, &str)> = page
        .lines()
        .filter_map(|line| {
            let mut cells = line.strip_prefix('|')?.split('|').map(str::trim);
            Some((cells.next()?, cells.next()?))
        })
        .collect();
    let body = code.split_once("pub enum RecordKind {");
    let body = body.and_then(|(_, rest)| rest.split_once('}'));
    let body = body.map_or("", |(body, _)| body);
    let kinds: Vec<_> = body
        .lines()
        .filter_map(|line| line.trim().trim_end_matches(',').split_once(" = "))
        .map(|(name, number)| (number, name.to_lowercase()))
        .collect();
    let unread = kinds.is_empty().then(|| {
        let message = "no enum RecordKind was found: the check reads nothing".to_owned();
        Finding::in_file(page_path, message)
    });
    let missing = kinds
        .iter()
        .filter(|(number, name)| !rows.contains(&(*number, name.as_str())))
        .map(|(number, name)| {
            let message = format!("the table of kinds lacks {number}, {name}");
            Finding::in_file(page_path, message)
        });
    missing.chain(unread).collect()
}

/// Crates whose name in code differs from the package's.
const LIBRARY_NAMES: [(&str, &str); 2] = [("md-5", "md5"), ("rustls-webpki", "webpki")];

/// Dependencies that no source of the package names.
pub fn unused(packages: &[Package], sources: &[SourceFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in packages {
        let own = format!("{}/", package.path);
        let inner = packages
            .iter()
            .filter(|other| other.path.starts_with(&own))
            .map(|other| format!("{}/", other.path));
        let inner: Vec<String> = inner.collect();
        let texts: Vec<&str> = sources
            .iter()
            .filter(|source| source.path.starts_with(&own))
            .filter(|source| !inner.iter().any(|path| source.path.starts_with(path)))
            .filter(|source| source.path.rsplit('.').next() == Some("rs"))
            .map(|source| source.text.as_str())
            .collect();
        for dependency in &package.dependencies {
            let renamed = LIBRARY_NAMES
                .iter()
                .find(|(name, _)| *name == dependency.name);
            let library = renamed.map_or_else(
                || dependency.name.replace('-', "_"),
                |(_, library)| (*library).to_owned(),
            );
            if !texts.iter().any(|text| !words(text, &library).is_empty()) {
                let message = format!("{} is not used: remove the line", dependency.name);
                findings.push(Finding::in_file(&package.manifest(), message));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dependency;

    #[test]
    fn a_setting_that_the_reference_lacks_is_caught() {
        let defaults = "# Text.\n[api]\nlisten = \"x\"\n# auth = \"none\"\n";
        let page = "```toml\n[api]\nlisten = \"x\"\n```\n";
        let found = settings(defaults, "settings.md", page);
        assert_eq!(found.len(), 1);
        assert!(found[0].message.contains("# auth"));
        assert!(settings(defaults, "settings.md", defaults).is_empty());
    }

    const OUTPUTS: &str = "pub enum RackOutput {
    /// A.
    Reply {
        ticket: u64,
    },
    Note(u8),
    Probe,
}
";
    const SIMULATOR: &str = "match output {
            RackOutput::Reply { ticket } => {
                a(ticket);
            }
            RackOutput::Note(_)
            | RackOutput::Probe => {}
        }
";

    #[test]
    fn an_output_that_is_ignored_without_a_reason_is_caught() {
        assert_eq!(variants(OUTPUTS, "RackOutput"), ["Reply", "Note", "Probe"]);
        let enums = [(OUTPUTS, "RackOutput")];
        let check = |list: &str| ignored_outputs(&enums, SIMULATOR, "list", list);
        let found = check("Note: the log is not read\n");
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].message.contains("Probe"));
        let reasons = "Note: the log is not read\nProbe: no machine answers ARP here\n";
        assert!(check(reasons).is_empty());
        let stale = format!("{reasons}Reply: is carried out here\n");
        assert_eq!(check(&stale).len(), 1);
        assert_eq!(check("Note: why\nProbe: no machine answers\n").len(), 1);
        let one_line = "            RackOutput::Note(_) | RackOutput::Probe => {\n            }\n";
        assert_eq!(ignored_variants(one_line, "RackOutput"), ["Note", "Probe"]);
        let absent = [(OUTPUTS, "RackOutput"), (OUTPUTS, "OtherOutput")];
        let found = ignored_outputs(&absent, SIMULATOR, "list", reasons);
        assert!(found[0].message.contains("OtherOutput"), "{found:?}");
    }

    #[test]
    fn a_record_kind_that_the_page_lacks_is_caught() {
        let code = "pub enum RecordKind {\n    /// A node.\n    Node = 1,\n    Port = 2,\n}\n";
        let page = "| kind | record |\n|---|---|\n| 1 | node | UUID |\n";
        let found = record_kinds(code, "page", page);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].message.contains("2, port"));
        let whole = format!("{page}| 2 | port | UUID |\n");
        assert!(record_kinds(code, "page", &whole).is_empty());
        assert_eq!(record_kinds("", "page", &whole).len(), 1);
    }

    #[test]
    fn a_dependency_that_no_source_names_is_caught() {
        let package = Package {
            name: "trivet-a".to_owned(),
            path: "firmware/a".to_owned(),
            dependencies: ["serde-json", "md-5", "uuid"]
                .map(|name| Dependency {
                    name: name.to_owned(),
                    path: None,
                    is_dev: false,
                })
                .to_vec(),
        };
        let source = SourceFile {
            path: "firmware/a/src/lib.rs".to_owned(),
            text: "use md5::Md5;\nuse serde_json::json;\n".to_owned(),
        };
        let found = unused(&[package], &[source]);
        assert_eq!(found.len(), 1);
        assert!(found[0].message.starts_with("uuid"));
    }
}
