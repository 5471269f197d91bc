//! A Python file as a hardware manager of the stock agent: the agent finds managers by the entry
//! points of installed packages, so the file gets the metadata of one.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::cpio::CpioArchive;

/// Where the stock agent and its Python packages are.
pub(crate) const PACKAGES: &str = "opt/ipa";

/// The file and its metadata (Python Packaging User Guide, "Recording installed projects").
pub(crate) fn hardware_manager(path: &Path) -> Result<CpioArchive> {
    let module = path.file_stem().and_then(|stem| stem.to_str());
    let module = module.filter(|name| is_identifier(name));
    let module =
        module.with_context(|| format!("{} is not the name of a Python module", path.display()))?;
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let class = manager_class(&text).with_context(|| {
        format!(
            "{} has no class that extends a HardwareManager",
            path.display()
        )
    })?;
    let metadata = format!("{PACKAGES}/{module}-0.dist-info");
    let mut archive = CpioArchive::default();
    archive.add_file(&format!("{PACKAGES}/{module}.py"), 0o644, text.as_str());
    archive.add_file(
        &format!("{metadata}/METADATA"),
        0o644,
        format!("Metadata-Version: 2.1\nName: {module}\nVersion: 0\n"),
    );
    archive.add_file(
        &format!("{metadata}/entry_points.txt"),
        0o644,
        format!("[ironic_python_agent.hardware_managers]\n{module} = {module}:{class}\n"),
    );
    Ok(archive)
}

fn is_identifier(name: &str) -> bool {
    let word = |character: char| character.is_ascii_alphanumeric() || character == '_';
    !name.is_empty()
        && name.chars().all(word)
        && !name.starts_with(|first: char| first.is_ascii_digit())
}

/// The first class at the left margin whose bases contain the name of a hardware manager.
fn manager_class(text: &str) -> Option<&str> {
    text.lines().find_map(|line| {
        let (name, bases) = line.strip_prefix("class ")?.split_once('(')?;
        let name = name.trim();
        (bases.contains("HardwareManager") && is_identifier(name)).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANAGER: &str = "from ironic_python_agent import hardware\n\nclass Other(object):\n\
                           \n    pass\nclass Vendor(hardware.HardwareManager):\n    pass\n";

    #[test]
    fn the_class_that_extends_a_manager_is_found() {
        assert_eq!(manager_class(MANAGER), Some("Vendor"));
        assert_eq!(
            manager_class("class A:\n  class B(HardwareManager):\n"),
            None
        );
        assert_eq!(manager_class("class 1(HardwareManager):\n"), None);
    }

    #[test]
    fn a_file_becomes_a_package_with_an_entry_point() {
        let name = format!("vendor_{}.py", std::process::id());
        let path = std::env::temp_dir().join(&name);
        fs::write(&path, MANAGER).unwrap();
        let archive = hardware_manager(&path);
        fs::remove_file(&path).unwrap();
        let module = name.trim_end_matches(".py");
        let points =
            format!("[ironic_python_agent.hardware_managers]\n{module} = {module}:Vendor\n");
        let archive = archive.unwrap();
        assert!(archive.files().any(|bytes| bytes == points.as_bytes()));
        assert!(archive.files().any(|bytes| bytes == MANAGER.as_bytes()));
    }

    #[test]
    fn names_that_python_cannot_import_are_refused() {
        for name in ["a-b.py", "1.py", ".py"] {
            assert!(hardware_manager(Path::new(name)).is_err(), "{name}");
        }
    }
}
