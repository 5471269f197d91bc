//! Where the parameters come from, in the order in which they win: kernel command line, virtual
//! media, files of settings, command line of the program.

use std::fs;
use std::path::{Path, PathBuf};

use crate::parameters::{AgentParameters, ArgumentError, PARAMETERS_BYTES_MAX};
use crate::ramdisk::read_virtual_media;

/// Where files of settings are. The stock agent's.
const SETTINGS: &str = "/etc/ironic-python-agent.d";

/// Reads all parameters.
pub(super) async fn read(
    arguments: &[&str],
    in_ramdisk: bool,
) -> Result<AgentParameters, ArgumentError> {
    // A mistake is reported before anything happens.
    AgentParameters::default().read_arguments(arguments.iter().copied())?;
    let mut parameters = AgentParameters::default();
    parameters.read_kernel_line(&text(Path::new("/proc/cmdline")));
    if in_ramdisk && parameters.virtual_media {
        read_virtual_media(&mut parameters).await;
    }
    for file in files(Path::new(SETTINGS)) {
        parameters.read_settings_file(&text(&file));
    }
    parameters.read_arguments(arguments.iter().copied())?;
    Ok(parameters)
}

/// The files of settings, in the order of their names.
fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut files: Vec<_> = entries.map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|end| end == "conf"));
    files.sort();
    files
}

/// The text of a file, empty if it cannot be read or is too long.
fn text(path: &Path) -> String {
    let bytes = fs::read(path).unwrap_or_default();
    if bytes.len() > PARAMETERS_BYTES_MAX {
        return String::new();
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
