//! Loads kernel modules for the devices of the machine.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::system::{finit_module, uname};

use super::modules_list::{MODULE_LIST_BYTES_MAX, ModuleList, module_name};

/// The file is compressed, and the kernel unpacks it (MODULE_INIT_COMPRESSED_FILE).
const COMPRESSED_FILE: i32 = 4;

/// How deep the tree of devices is searched. Ours; a disk behind bridges and expanders has 20.
const DEVICE_DEPTH_MAX: usize = 40;

/// How many times the tree of devices is searched: a driver of a bus adds devices. Ours.
const SEARCHES_MAX: usize = 8;

/// Modules that no device asks for. `ipmi_si` finds its device through ACPI or SMBIOS.
const ALWAYS: [&str; 6] = [
    "ipmi_si",
    "ipmi_devintf",
    "efivarfs",
    "vfat",
    "isofs",
    "virtio_rng",
];

/// Loads modules, each once.
#[derive(Debug)]
pub struct ModuleLoader {
    home: PathBuf,
    list: ModuleList,
    tried: BTreeSet<String>,
    aliases: BTreeSet<String>,
}

impl ModuleLoader {
    /// The modules of the kernel that runs. Without lists nothing is loaded.
    pub fn of_this_kernel() -> Self {
        let release = uname().release().to_string_lossy().into_owned();
        let home = Path::new("/lib/modules").join(release);
        let list = ModuleList::new(
            &text(&home.join("modules.alias")),
            &text(&home.join("modules.dep")),
        );
        Self {
            home,
            list,
            tried: BTreeSet::new(),
            aliases: BTreeSet::new(),
        }
    }

    /// Loads the modules for all devices that the kernel has found. Returns the names of those
    /// that were loaded.
    pub fn load_for_devices(&mut self) -> Vec<String> {
        let mut loaded = Vec::new();
        for name in ALWAYS {
            self.load(name, &mut loaded);
        }
        for name in text(Path::new("/etc/modules")).lines() {
            if !name.trim().is_empty() && !name.starts_with('#') {
                self.load(name.trim(), &mut loaded);
            }
        }
        for _ in 0..SEARCHES_MAX {
            let mut found = Vec::new();
            find_aliases(Path::new("/sys/devices"), DEVICE_DEPTH_MAX, &mut found);
            let before = loaded.len();
            for alias in found {
                self.load_for_alias(&alias, &mut loaded);
            }
            if loaded.len() == before {
                break;
            }
        }
        loaded
    }

    /// Loads the modules for one device.
    pub fn load_for_alias(&mut self, alias: &str, loaded: &mut Vec<String>) {
        if !self.aliases.insert(alias.to_owned()) {
            return;
        }
        let modules = self.list.modules_for(alias);
        let modules: Vec<String> = modules.into_iter().map(str::to_owned).collect();
        for module in modules {
            self.load(&module, loaded);
        }
    }

    /// Loads a module and those that it needs.
    fn load(&mut self, module: &str, loaded: &mut Vec<String>) {
        for file in self.list.files_for(module) {
            let name = module_name(file);
            if !self.tried.insert(name.clone()) {
                continue;
            }
            match insert(&self.home.join(file)) {
                Ok(true) => loaded.push(name),
                Ok(false) => {}
                // Many drivers find no device of theirs; only the technician can tell.
                Err(error) => super::init::log(&format!("module {name}: {error}")),
            }
        }
    }
}

/// Loads a module file; false if the kernel has the module, or the module has no device.
fn insert(path: &Path) -> io::Result<bool> {
    let file = File::open(path)?;
    let plain = path.extension().is_some_and(|end| end == "ko");
    let flags = if plain { 0 } else { COMPRESSED_FILE };
    match finit_module(file, c"", flags) {
        Ok(()) => Ok(true),
        Err(Errno::EXIST | Errno::NODEV) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The text of a file, empty if it cannot be read or is too long.
fn text(path: &Path) -> String {
    let length = fs::metadata(path).map_or(0, |facts| facts.len());
    if length > MODULE_LIST_BYTES_MAX as u64 {
        return String::new();
    }
    fs::read_to_string(path).unwrap_or_default()
}

/// Collects the aliases of all devices below a directory of sysfs.
fn find_aliases(directory: &Path, depth: usize, found: &mut Vec<String>) {
    let Ok(entries) = fs::read_dir(directory) else {
        return;
    };
    for entry in entries.flatten() {
        let Ok(kind) = entry.file_type() else {
            continue;
        };
        if kind.is_dir() && depth > 0 {
            find_aliases(&entry.path(), depth - 1, found);
        } else if kind.is_file() && entry.file_name() == "modalias" {
            found.push(text(&entry.path()).trim().to_owned());
        }
    }
}

/// Does the work of `modprobe` for the kernel, which asks for file systems and algorithms by
/// their aliases: `modprobe -q -- fs-vfat`.
pub fn run_as_modprobe(arguments: &[String]) {
    let mut loader = ModuleLoader::of_this_kernel();
    let mut loaded = Vec::new();
    for name in arguments.iter().filter(|word| !word.starts_with('-')) {
        loader.load_for_alias(name, &mut loaded);
        loader.load(name, &mut loaded);
    }
}
