//! What the tree holds: asked of `git` (files) and `cargo` (packages).

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::Finding;

/// One text file.
#[derive(Clone, Debug)]
pub struct SourceFile {
    /// Path from the root, with slashes.
    pub path: String,
    /// Its text.
    pub text: String,
}

/// One dependency in a manifest.
#[derive(Clone, Debug)]
pub struct Dependency {
    /// Name of the package.
    pub name: String,
    /// Path from the root, for a package of this tree.
    pub path: Option<String>,
    /// Whether only tests use it.
    pub is_dev: bool,
}

/// One package of the workspace.
#[derive(Clone, Debug)]
pub struct Package {
    /// Name in the manifest.
    pub name: String,
    /// Path of its directory from the root.
    pub path: String,
    /// What it depends on.
    pub dependencies: Vec<Dependency>,
}

impl Package {
    /// Path of its manifest from the root.
    pub fn manifest(&self) -> String {
        format!("{}/Cargo.toml", self.path)
    }
}

/// All of it.
#[derive(Debug)]
pub struct RepositoryTree {
    /// Every file that is in git or about to be, sorted.
    pub paths: Vec<String>,
    /// Those that are text.
    pub sources: Vec<SourceFile>,
    /// Those that are not.
    pub binaries: Vec<Finding>,
    /// The workspace's packages.
    pub packages: Vec<Package>,
}

impl RepositoryTree {
    /// Reads the tree this crate stands in. Panics with what to do when it cannot:
    /// a check that did not run must not look like one that passed.
    pub fn read() -> RepositoryTree {
        let root: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let listed = run(Command::new("git")
            // The clone may belong to another user, as in a container.
            .args(["-c", "safe.directory=*", "ls-files", "-z"])
            .args(["--cached", "--others", "--exclude-standard"])
            .current_dir(&root));
        let mut paths: Vec<String> = listed
            .split('\0')
            .filter(|path| !path.is_empty())
            .map(str::to_owned)
            .collect();
        // A file that was removed but not yet committed is still listed.
        paths.retain(|path| root.join(path).is_file());
        paths.sort();
        paths.dedup();
        let (mut sources, mut binaries) = (Vec::new(), Vec::new());
        for path in &paths {
            let bytes = std::fs::read(root.join(path)).expect("git lists files that are there");
            if is_picture(path, &bytes) {
                continue;
            }
            match text_of(path, bytes) {
                Ok(source) => sources.push(source),
                Err(finding) => binaries.push(finding),
            }
        }
        let metadata = run(Command::new(env!("CARGO"))
            .args([
                "metadata",
                "--no-deps",
                "--offline",
                "--format-version",
                "1",
            ])
            .current_dir(&root));
        let metadata = serde_json::from_str(&metadata).expect("cargo metadata prints JSON");
        RepositoryTree {
            paths,
            sources,
            binaries,
            packages: packages(&metadata),
        }
    }

    /// The text of one file.
    pub fn text(&self, path: &str) -> &str {
        let found = self.sources.iter().find(|source| source.path == path);
        found.map_or("", |source| &source.text)
    }

    /// The Rust sources.
    pub fn rust(&self) -> impl Iterator<Item = &SourceFile> {
        self.sources.iter().filter(|source| {
            Path::new(&source.path)
                .extension()
                .is_some_and(|extension| extension == "rs")
        })
    }
}

fn run(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{command:?} failed, mend that first: {complaint}"
    );
    String::from_utf8(output.stdout).expect("paths of this tree are UTF-8")
}

/// The pictures of the README and the manual, and how large one may be.
const PICTURES: &str = "firmware/guide/pictures/";
const PICTURE_BYTES_MAX: usize = 100 * 1024;

/// Whether it is a picture that may be in the tree.
fn is_picture(path: &str, bytes: &[u8]) -> bool {
    let extension = Path::new(path).extension();
    path.starts_with(PICTURES)
        && extension.is_some_and(|extension| extension == "png")
        && bytes.len() <= PICTURE_BYTES_MAX
}

/// A file as text, or the finding that it is none.
fn text_of(path: &str, bytes: Vec<u8>) -> Result<SourceFile, Finding> {
    let binary = || Finding::in_file(path, "is not text: make it from text when it is needed");
    if bytes.contains(&0) {
        return Err(binary());
    }
    let text = String::from_utf8(bytes).map_err(|_| binary())?;
    Ok(SourceFile {
        path: path.to_owned(),
        text,
    })
}

/// The packages in the answer of `cargo metadata`.
fn packages(metadata: &Value) -> Vec<Package> {
    let root = metadata["workspace_root"].as_str().unwrap_or_default();
    let below = |path: &str| Some(path.strip_prefix(root)?.trim_matches('/').to_owned());
    let list = metadata["packages"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    list.iter()
        .filter_map(|package| {
            let manifest = below(package["manifest_path"].as_str()?)?;
            let dependencies = package["dependencies"].as_array()?.iter();
            Some(Package {
                name: package["name"].as_str()?.to_owned(),
                path: manifest.strip_suffix("/Cargo.toml")?.to_owned(),
                dependencies: dependencies
                    .map(|dependency| Dependency {
                        name: dependency["name"].as_str().unwrap_or_default().to_owned(),
                        path: dependency["path"].as_str().and_then(below),
                        is_dev: dependency["kind"] == "dev",
                    })
                    .collect(),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn binaries_are_distinguished_from_text() {
        assert!(text_of("a", b"plain\n".to_vec()).is_ok());
        assert!(text_of("a", b"nul\0".to_vec()).is_err());
        assert!(text_of("a", vec![0xff, 0xfe]).is_err());
    }

    #[test]
    fn only_small_pictures_of_the_manual_may_be_in_the_tree() {
        let path = format!("{PICTURES}active.png");
        assert!(is_picture(&path, &[0; 10]));
        assert!(!is_picture(&path, &vec![0; PICTURE_BYTES_MAX + 1]));
        assert!(!is_picture("firmware/web/active.png", &[0; 10]));
    }

    #[test]
    fn packages_come_with_paths_below_the_root() {
        let found = packages(&json!({
            "workspace_root": "/x",
            "packages": [{
                "name": "trivet-dhcp",
                "manifest_path": "/x/firmware/dhcp/Cargo.toml",
                "dependencies": [
                    {"name": "trivet-model", "path": "/x/firmware/model", "kind": null},
                    {"name": "proptest", "kind": "dev"},
                ],
            }],
        }));
        assert_eq!(found[0].path, "firmware/dhcp");
        assert_eq!(found[0].manifest(), "firmware/dhcp/Cargo.toml");
        let [model, proptest] = &found[0].dependencies[..] else {
            panic!("{found:?}")
        };
        assert_eq!(
            (model.path.as_deref(), model.is_dev),
            (Some("firmware/model"), false)
        );
        assert_eq!((proptest.path.as_deref(), proptest.is_dev), (None, true));
    }
}
