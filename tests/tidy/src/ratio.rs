//! Lines of tests for each line of code, per crate, against the recorded ratio.
//!
//! Lines that are neither blank nor comment count. A ratio may rise and is then recorded by hand;
//! one that falls fails.

use crate::mask::mask;
use crate::size::{code_of, is_test_file};
use crate::{Finding, Package, SourceFile};

fn lines(text: &str) -> usize {
    text.lines().filter(|line| !line.trim().is_empty()).count()
}

/// Lines of code and of tests in one package.
fn measure(package: &Package, packages: &[Package], sources: &[SourceFile]) -> (usize, usize) {
    let own = format!("{}/", package.path);
    let nested = |path: &str| {
        packages.iter().any(|other| {
            other.path.starts_with(&own) && path.starts_with(&format!("{}/", other.path))
        })
    };
    let mut total = (0, 0);
    for source in sources {
        let is_rust = source.path.rsplit('.').next() == Some("rs");
        if !is_rust || !source.path.starts_with(&own) || nested(&source.path) {
            continue;
        }
        let all = lines(&mask(&source.text));
        let code = if is_test_file(&source.path) {
            0
        } else {
            lines(&code_of(&source.text))
        };
        total.0 += code;
        total.1 += all - code;
    }
    total
}

/// Crates whose ratio is below the one in the record, in which each line is a path and the
/// ratio in percent, and lines of the record that name no crate.
pub fn below_record(
    packages: &[Package],
    sources: &[SourceFile],
    record_path: &str,
    record: &str,
) -> Vec<Finding> {
    let entries = record
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.starts_with('#') && !line.trim().is_empty());
    entries
        .filter_map(|(index, line)| {
            let on = |message: String| Some(Finding::at_line(record_path, index + 1, message));
            let mut words = line.split_whitespace();
            let (Some(path), Some(Ok(wanted))) =
                (words.next(), words.next().map(str::parse::<usize>))
            else {
                return on("is not a path and a ratio in percent".to_owned());
            };
            let Some(package) = packages.iter().find(|package| package.path == path) else {
                return on(format!("{path} is not a crate: remove the line"));
            };
            let (code, tests) = measure(package, packages, sources);
            let percent = tests * 100 / code.max(1);
            if percent >= wanted {
                return None;
            }
            on(format!(
                "{path} has {tests} lines of tests for {code} of code, {percent} %; {wanted} % are \
                 recorded: test what was added"
            ))
        })
        .collect()
}

/// Crates of `firmware` that the record does not name. Those that only carry what others decide
/// have no ratio.
pub fn missing_from_record(
    packages: &[Package],
    carriers: &[&str],
    record_path: &str,
    record: &str,
) -> Vec<Finding> {
    let recorded = |path: &str| {
        let mut firsts = record
            .lines()
            .filter_map(|line| line.split_whitespace().next());
        firsts.any(|first| first == path)
    };
    packages
        .iter()
        .map(|package| package.path.as_str())
        .filter(|path| path.starts_with("firmware/") && !carriers.contains(path))
        .filter(|path| !recorded(path))
        .map(|path| {
            let message = format!("{path} has no line: record its ratio");
            Finding::in_file(record_path, message)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(record: &str) -> Vec<Finding> {
        let package = Package {
            name: "trivet-a".to_owned(),
            path: "firmware/a".to_owned(),
            dependencies: Vec::new(),
        };
        let source = SourceFile {
            path: "firmware/a/src/lib.rs".to_owned(),
            text: "fn a() {}\nfn b() {}\n#[cfg(test)]\nmod tests {\n// why\nfn c() {}\n}\n"
                .to_owned(),
        };
        below_record(&[package], &[source], "record", record)
    }

    #[test]
    fn a_ratio_that_fell_is_caught() {
        // Two lines of code, four of tests.
        assert!(check("# comment\nfirmware/a 200\n").is_empty());
        let found = check("firmware/a 201\n");
        assert_eq!((found.len(), found[0].line), (1, 1));
        assert!(found[0].message.contains("200 %"), "{found:?}");
    }

    #[test]
    fn a_crate_without_a_line_is_caught() {
        let package = |path: &str| Package {
            name: path.replace('/', "-"),
            path: path.to_owned(),
            dependencies: Vec::new(),
        };
        let packages = ["firmware/a", "firmware/b", "firmware/c", "image/d"].map(package);
        let record = "# firmware/b\nfirmware/a 100\n";
        let found = missing_from_record(&packages, &["firmware/c"], "record", record);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].message.contains("firmware/b"), "{found:?}");
    }

    #[test]
    fn lines_that_cannot_be_read_are_caught() {
        assert_eq!(check("firmware/gone 10\nfirmware/a much\n").len(), 2);
    }
}
