//! The manual pages that `trivet man` writes.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::Path;
use std::process::{Command, Output};

fn write_pages(directory: &Path) -> Output {
    let program = env!("CARGO_BIN_EXE_trivet");
    let mut command = Command::new(program);
    command.args(["man", "--output"]).arg(directory);
    command.output().unwrap()
}

/// What `man` finds wrong with a page; nothing where it is not installed.
fn warnings(page: &Path) -> String {
    let checked = Command::new("man")
        .args(["--warnings=w", "-E", "UTF-8", "-l", "-Tutf8", "-Z"])
        .arg(page)
        .env("LC_ALL", "C.UTF-8")
        .output();
    checked.map_or_else(
        |_| String::new(),
        |output| String::from_utf8(output.stderr).unwrap(),
    )
}

#[test]
fn each_command_has_a_page_without_warnings() {
    let directory = std::env::temp_dir().join(format!("trivet-man-{}", std::process::id()));
    let written = write_pages(&directory.join("man1"));
    assert!(written.status.success(), "{written:?}");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory.join("man1")).unwrap() {
        let path = entry.unwrap().path();
        names.push(path.file_name().unwrap().to_str().unwrap().to_owned());
        assert_eq!(warnings(&path), "", "{}", path.display());
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(".SH NAME"), "{}", path.display());
        assert!(text.contains("Trivet"), "{}", path.display());
    }
    let line = format!("{} manual pages written", names.len());
    assert!(String::from_utf8_lossy(&written.stdout).starts_with(&line));
    for name in [
        "trivet.1",
        "trivet-serve.1",
        "trivet-node-set.1",
        "trivet-bmc-light.1",
    ] {
        assert!(
            names.iter().any(|known| known == name),
            "{name} in {names:?}"
        );
    }
    assert!(!names.iter().any(|name| name.contains("help")), "{names:?}");
    let deploy = std::fs::read_to_string(directory.join("man1/trivet-node-deploy.1")).unwrap();
    assert!(
        deploy.contains("no\\-wait"),
        "options of the command: {deploy}"
    );
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn a_directory_that_cannot_be_made_is_an_error_with_the_remedy() {
    let output = write_pages(Path::new("/dev/null/man1"));
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("/dev/null/man1"), "{error}");
    assert!(error.contains("name a directory"), "{error}");
}
