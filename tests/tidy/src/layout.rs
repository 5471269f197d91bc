//! The top level, and whether every folder is named in a README.

use std::collections::BTreeSet;

use crate::{Finding, Package};

/// All that stands at the top, beside files that begin with a dot.
const TOP: [&str; 9] = [
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "README.md",
    "board",
    "certs",
    "firmware",
    "image",
    "tests",
];

/// What is missing from the top level, or too much there.
pub fn top(paths: &[String]) -> Vec<Finding> {
    let heads: BTreeSet<&str> = paths
        .iter()
        .filter_map(|path| path.split('/').next())
        .collect();
    let extra = heads
        .iter()
        .filter(|head| !head.starts_with('.') && !TOP.contains(head));
    let extra = extra.map(|head| {
        let sentence = format!(
            "does not belong at the top level: only {} do",
            TOP.join(", ")
        );
        Finding::in_file(head, sentence)
    });
    let missing = TOP.iter().filter(|name| !heads.contains(*name));
    let missing = missing.map(|name| Finding::in_file(name, "is missing from the top level"));
    extra.chain(missing).collect()
}

/// Packages and folders of tests that no README names by their path.
pub fn unlisted_packages(packages: &[Package], paths: &[String], readmes: &[&str]) -> Vec<Finding> {
    let mut folders: BTreeSet<&str> = packages
        .iter()
        .map(|package| package.path.as_str())
        .collect();
    // Second-level folders without a package, such as tests/interop.
    for path in paths {
        let mut slashes = path.match_indices('/').map(|(at, _)| at);
        if let (Some(_), Some(second)) = (slashes.next(), slashes.next())
            && !path.starts_with('.')
        {
            folders.insert(&path[..second]);
        }
    }
    let named = |folder: &&str| readmes.iter().any(|readme| is_named(readme, folder));
    folders
        .into_iter()
        .filter(|folder| !named(folder))
        .map(|folder| {
            Finding::in_file(
                "README.md",
                format!("does not name {folder}: say in a sentence what it is"),
            )
        })
        .collect()
}

/// Whether the path stands in the text and is not just the beginning of another.
fn is_named(readme: &str, folder: &str) -> bool {
    readme.match_indices(folder).any(|(at, _)| {
        let after = readme[at + folder.len()..].chars().next();
        after.is_none_or(|sign| !sign.is_alphanumeric() && sign != '-' && sign != '_')
    })
}

/// Manifests of packages that the workspace does not list.
pub fn members(packages: &[Package], paths: &[String]) -> Vec<Finding> {
    let known: BTreeSet<String> = packages.iter().map(Package::manifest).collect();
    paths
        .iter()
        .filter(|path| path.ends_with("/Cargo.toml") && !known.contains(*path))
        .map(|path| {
            Finding::in_file(
                path,
                "is not a member of the workspace: list it in Cargo.toml",
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(list: &[&str]) -> Vec<String> {
        list.iter().map(|path| (*path).to_owned()).collect()
    }

    fn package(path: &str) -> Package {
        Package {
            name: String::new(),
            path: path.to_owned(),
            dependencies: Vec::new(),
        }
    }

    #[test]
    fn the_top_level_is_exactly_so() {
        let mut list = paths(&TOP);
        list.push(".ci/run".to_owned());
        assert!(top(&list).is_empty());
        list.push("docs/a.md".to_owned());
        list.retain(|path| path != "LICENSE");
        let found = top(&list);
        assert_eq!(found.len(), 2);
        assert!(found[0].to_string().starts_with("docs: does not belong"));
        assert_eq!(
            found[1].to_string(),
            "LICENSE: is missing from the top level"
        );
    }

    #[test]
    fn unlisted_packages_are_caught() {
        let packages = [package("firmware/dhcp"), package("firmware/bmc/ipmi")];
        let list = paths(&[
            "firmware/dhcp/src/lib.rs",
            "tests/interop/a/run",
            "tests/run",
        ]);
        let found = unlisted_packages(
            &packages,
            &list,
            &["firmware/dhcp hands out", "tests/interop/"],
        );
        let names: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(names.len(), 1, "{names:?}");
        assert!(names[0].contains("firmware/bmc/ipmi"));
    }

    #[test]
    fn the_beginning_of_a_longer_name_does_not_count() {
        assert!(!is_named("firmware/agents", "firmware/agent"));
        assert!(is_named("`firmware/agent`", "firmware/agent"));
        assert!(is_named("firmware/agent", "firmware/agent"));
    }

    #[test]
    fn a_package_outside_the_workspace_is_caught() {
        let list = paths(&["Cargo.toml", "firmware/a/Cargo.toml"]);
        assert_eq!(members(&[], &list).len(), 1);
        assert!(members(&[package("firmware/a")], &list).is_empty());
    }
}
