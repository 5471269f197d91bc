//! Which package may depend on which, from the manifests.
//!
//! A package that is not in the table may depend on `model` and on no other package of the
//! workspace, so a new package needs no line here until it depends on more.

use crate::{Dependency, Finding, Package};

/// Packages that may depend on more than `firmware/model`, and on what.
const ALLOWED_DEPENDENCIES: [(&str, &[&str]); 26] = [
    (
        "firmware/agent",
        &["firmware/model", "firmware/agent/wire", "firmware/net"],
    ),
    ("firmware/bootfiles", &["firmware/model", "firmware/net"]),
    (
        "firmware/cli",
        &[
            "firmware/model",
            "firmware/net",
            "firmware/net/http",
            "firmware/net/tls",
        ],
    ),
    ("firmware/net", &[]),
    ("firmware/net/tls", &[]),
    ("firmware/net/http", &[]),
    ("certs/authority", &["firmware/net/tls"]),
    (
        "firmware/agent/inventory",
        &["firmware/model", "firmware/agent/wire"],
    ),
    (
        "firmware/api",
        &[
            "firmware/model",
            // What inspection hooks add is computed from the stored inventory when it is read.
            "firmware/agent/inventory",
            "firmware/agent/wire",
            "firmware/drivers",
            "firmware/net",
            // Ironic checks the provision state before the arguments of a verb.
            "firmware/node",
            "firmware/web",
        ],
    ),
    ("firmware/node", &["firmware/model", "firmware/drivers"]),
    // A node's interfaces choose the protocol of its BMC.
    ("firmware/bmc", &["firmware/model", "firmware/drivers"]),
    // Protocols implement the trait of `firmware/bmc`, which knows none of them.
    ("firmware/bmc/ipmi", &["firmware/model", "firmware/bmc"]),
    ("firmware/bmc/redfish", &["firmware/model", "firmware/bmc"]),
    ("firmware/bmc/ssh", &["firmware/model", "firmware/bmc"]),
    ("firmware/bmc/wol", &["firmware/model", "firmware/bmc"]),
    ("firmware/store", &["firmware/model", "board/hal"]),
    (
        "firmware/oci",
        &["firmware/model", "firmware/chunks", "firmware/net"],
    ),
    // Its orders and reports carry lookups and their results.
    (
        "firmware/images",
        &["firmware/model", "firmware/chunks", "firmware/oci"],
    ),
    (
        "image/agent",
        &[
            "firmware/model",
            "firmware/agent/wire",
            "firmware/chunks",
            // The client that its ramdisk gets an address with.
            "firmware/dhcp",
            "firmware/net",
            "firmware/net/http",
            "firmware/net/tls",
            // What it reads from its BMC and proves to the box.
            "certs/enrol",
            "board/linux",
            "image/disks",
            "image/inventory",
        ],
    ),
    // Block devices are opened by `board/linux`; all that decides is without it.
    (
        "image/disks",
        &[
            "firmware/model",
            "firmware/agent/wire",
            "firmware/chunks",
            "board/linux",
        ],
    ),
    (
        "image/inventory",
        &["firmware/model", "firmware/agent/wire", "board/linux"],
    ),
    ("board/linux", &["board/hal"]),
    ("board/sim", &["board/hal"]),
    ("firmware/model", &[]),
    ("board/hal", &[]),
    ("firmware/tftp", &[]),
];

/// Packages that connect the others, and what even they may not depend on.
const COMPOSERS: [(&str, &[&str]); 4] = [
    (
        "firmware/rack",
        &["firmware/cli", "firmware/daemon", "firmware/sim", "tests/"],
    ),
    ("firmware/sim", &["firmware/daemon", "tests/"]),
    ("firmware/daemon", &["tests/"]),
    ("tests/", &[]),
];

/// Where an async runtime may be.
const ASYNC: [&str; 5] = [
    "firmware/cli",
    "firmware/daemon",
    "firmware/net/http",
    "image/agent",
    "tests/",
];

/// What a package's tests may use beyond what the package may depend on.
const TEST_ONLY: [&str; 3] = ["board/sim", "certs/authority", "firmware/net/tls"];

fn covers(rule: &str, path: &str) -> bool {
    rule == path || rule.ends_with('/') && path.starts_with(rule)
}

/// Dependencies that go the wrong way.
pub fn check_dependencies(packages: &[Package]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in packages {
        let inside = package.dependencies.iter().filter_map(|dependency| {
            let path = dependency.path.as_deref()?;
            (path != package.path).then_some((dependency, path))
        });
        for (dependency, path) in inside {
            if let Some(sentence) = refusal(package, dependency, path) {
                findings.push(Finding::in_file(&package.manifest(), sentence));
            }
        }
    }
    findings
}

fn refusal(package: &Package, dependency: &Dependency, path: &str) -> Option<String> {
    let composer = COMPOSERS
        .iter()
        .find(|(rule, _)| covers(rule, &package.path));
    if let Some((_, refused)) = composer {
        let wrong = refused.iter().any(|rule| covers(rule, path));
        return wrong.then(|| {
            format!(
                "{} must not depend on {path}; the other direction is allowed",
                package.path
            )
        });
    }
    let allowed: &[&str] = ALLOWED_DEPENDENCIES
        .iter()
        .find(|(rule, _)| *rule == package.path)
        .map_or(&["firmware/model"], |(_, allowed)| allowed);
    if allowed.contains(&path) || dependency.is_dev && TEST_ONLY.contains(&path) {
        return None;
    }
    let known = if allowed.is_empty() {
        "nobody".to_owned()
    } else {
        allowed.join(", ")
    };
    Some(format!(
        "{} must not depend on {path}, only on {known}: carry it through firmware/rack in words of \
         firmware/model",
        package.path
    ))
}

/// Runtimes where there should be none.
pub fn runtimes(packages: &[Package]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in packages {
        if ASYNC.iter().any(|rule| covers(rule, &package.path)) {
            continue;
        }
        for dependency in &package.dependencies {
            let name = dependency.name.as_str();
            if name == "tokio" || name.starts_with("tokio-") || name.starts_with("hyper") {
                let sentence = format!("{name} belongs in a shell: let {} decide", package.path);
                findings.push(Finding::in_file(&package.manifest(), sentence));
            }
        }
    }
    findings
}

/// Packages whose name does not follow from their path.
pub fn names(packages: &[Package]) -> Vec<Finding> {
    let wrong = packages
        .iter()
        .filter(|package| package.name != name_of(&package.path));
    wrong
        .map(|package| {
            let sentence = format!(
                "is called {}: call it {}",
                package.name,
                name_of(&package.path)
            );
            Finding::in_file(&package.manifest(), sentence)
        })
        .collect()
}

fn name_of(path: &str) -> String {
    // Published by itself, so it depends on no other package here.
    if path == "firmware/tftp" {
        return "embedded-tftp".to_owned();
    }
    let short = path.strip_prefix("firmware/").unwrap_or(path);
    format!("trivet-{}", short.replace('/', "-"))
}

/// Crates that must not be in the build at all.
pub fn lock(text: &str) -> Vec<Finding> {
    let numbered = text.lines().enumerate();
    let found = numbered.filter(|(_, line)| line.starts_with("name = \"aws-lc"));
    found
        .map(|(index, _)| {
            let sentence = "aws-lc is in the build: find who asks with `cargo tree -i aws-lc-rs` \
                            and switch its default features off";
            Finding::at_line("Cargo.lock", index + 1, sentence)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(path: &str, dependencies: &[(&str, bool)]) -> Package {
        let inside = |(path, is_dev): &(&str, bool)| Dependency {
            name: name_of(path),
            path: Some((*path).to_owned()),
            is_dev: *is_dev,
        };
        Package {
            name: name_of(path),
            path: path.to_owned(),
            dependencies: dependencies.iter().map(inside).collect(),
        }
    }

    #[track_caller]
    fn check(path: &str, knows: &str, is_dev: bool, good: bool) {
        let found = check_dependencies(&[package(path, &[(knows, is_dev)])]);
        assert_eq!(found.is_empty(), good, "{path} -> {knows}: {found:?}");
    }

    #[test]
    fn model_and_hal_depend_on_nothing() {
        check("firmware/model", "firmware/agent/wire", false, false);
        check("board/hal", "firmware/model", false, false);
        check("firmware/model", "board/hal", true, false);
    }

    #[test]
    fn crates_depend_on_model_and_not_on_each_other() {
        check("firmware/dhcp", "firmware/model", false, true);
        check("firmware/dhcp", "firmware/node", false, false);
        check("firmware/dhcp", "firmware/node", true, false);
        check("firmware/bmc/ipmi", "firmware/node", false, false);
        check("firmware/bmc/ipmi", "firmware/bmc", false, true);
        check("firmware/bmc", "firmware/bmc/ipmi", false, false);
        check("firmware/some-new-package", "firmware/dhcp", false, false);
        check("firmware/web", "firmware/agent/wire", false, false);
    }

    /// The commands are a client of the API: nothing behind it is theirs to use.
    #[test]
    fn the_cli_depends_on_no_core() {
        check("firmware/cli", "firmware/model", false, true);
        check("firmware/cli", "firmware/net", false, true);
        check("firmware/net", "firmware/model", false, false);
        for inside in [
            "firmware/api",
            "firmware/rack",
            "firmware/store",
            "firmware/daemon",
        ] {
            check("firmware/cli", inside, false, false);
        }
        check("firmware/rack", "firmware/cli", false, false);
        check("firmware/daemon", "firmware/cli", false, true);
    }

    #[test]
    fn listed_crates_may_depend_on_more() {
        check("firmware/agent", "firmware/agent/wire", false, true);
        check("firmware/api", "firmware/agent/wire", false, true);
        check("firmware/api", "firmware/web", false, true);
        check("firmware/web", "firmware/api", false, false);
        check("firmware/store", "board/hal", false, true);
        check("firmware/store", "board/sim", true, true);
        check("firmware/store", "board/sim", false, false);
        check("image/agent", "firmware/rack", false, false);
    }

    #[test]
    fn composers_depend_on_crates_but_not_upwards() {
        check("firmware/rack", "firmware/dhcp", false, true);
        check("firmware/rack", "firmware/daemon", false, false);
        check("firmware/daemon", "firmware/rack", false, true);
        check("firmware/daemon", "tests/sim", false, false);
        check("tests/sim", "firmware/rack", false, true);
        check("firmware/sim", "firmware/bmc/ipmi", false, true);
    }

    #[test]
    fn runtimes_stay_in_shells() {
        let with = |path: &str, name: &str| {
            let mut package = package(path, &[]);
            package.dependencies.push(Dependency {
                name: name.to_owned(),
                path: None,
                is_dev: false,
            });
            runtimes(&[package]).len()
        };
        assert_eq!(with("firmware/dhcp", "tokio"), 1);
        assert_eq!(with("firmware/rack", "tokio-util"), 1);
        assert_eq!(with("firmware/api", "hyper"), 1);
        assert_eq!(with("firmware/daemon", "tokio"), 0);
        assert_eq!(with("firmware/cli", "hyper"), 0);
        assert_eq!(with("tests/bench", "tokio"), 0);
        assert_eq!(with("firmware/dhcp", "dhcproto"), 0);
    }

    #[test]
    fn names_follow_paths() {
        assert_eq!(name_of("firmware/dhcp"), "trivet-dhcp");
        assert_eq!(name_of("firmware/bmc/ipmi"), "trivet-bmc-ipmi");
        assert_eq!(name_of("board/sim"), "trivet-board-sim");
        assert_eq!(name_of("firmware/tftp"), "embedded-tftp");
        let mut wrong = package("firmware/dhcp", &[]);
        wrong.name = "dhcp".to_owned();
        let found = names(&[wrong]);
        assert!(
            found[0]
                .to_string()
                .starts_with("firmware/dhcp/Cargo.toml: is called dhcp")
        );
    }

    #[test]
    fn a_second_crypto_provider_is_caught() {
        let found = lock("[[package]]\nname = \"aws-lc-rs\"\n");
        assert_eq!((found.len(), found[0].line), (1, 2));
        assert!(lock("name = \"ring\"\n").is_empty());
    }
}
