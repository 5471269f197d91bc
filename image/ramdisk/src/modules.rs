//! Selects the module files of a kernel by its dependency list.

use std::collections::{BTreeMap, BTreeSet};

/// The name of a module, without directories and suffixes; dashes become underscores.
fn name(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.split('.').next().unwrap_or(file).replace('-', "_")
}

/// The files for these modules and their dependencies, and the modules that the kernel does not
/// have as files (they may be built in). `list` is a `modules.dep`: `file: file file ...` on
/// each line.
pub(crate) fn closure(list: &str, wanted: &[&str]) -> (BTreeSet<String>, Vec<String>) {
    let mut needs: BTreeMap<String, (&str, Vec<&str>)> = BTreeMap::new();
    for line in list.lines() {
        if let Some((file, others)) = line.split_once(':') {
            let others = others.split_whitespace().collect();
            needs.insert(name(file), (file, others));
        }
    }
    let mut files = BTreeSet::new();
    let mut missing = Vec::new();
    for module in wanted {
        match needs.get(&module.replace('-', "_")) {
            // The list has all dependencies, also indirect ones.
            Some((file, others)) => {
                files.insert((*file).to_owned());
                files.extend(others.iter().map(|other| (*other).to_owned()));
            }
            None => missing.push((*module).to_owned()),
        }
    }
    (files, missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "kernel/net/virtio_net.ko: kernel/net/failover.ko kernel/virtio.ko\n\
                        kernel/virtio.ko:\nkernel/net/failover.ko:\nkernel/md/dm-mod.ko.xz:\n";

    #[test]
    fn a_module_includes_its_dependencies() {
        let (files, missing) = closure(LIST, &["virtio_net", "dm_mod"]);
        let files: Vec<_> = files.iter().map(String::as_str).collect();
        let want = [
            "kernel/md/dm-mod.ko.xz",
            "kernel/net/failover.ko",
            "kernel/net/virtio_net.ko",
            "kernel/virtio.ko",
        ];
        assert_eq!((&files[..], missing.len()), (&want[..], 0));
    }

    #[test]
    fn missing_modules_are_named() {
        let (files, missing) = closure(LIST, &["nvme"]);
        assert!(files.is_empty());
        assert_eq!(missing, ["nvme"]);
    }

    #[test]
    fn an_empty_list_and_invalid_lines_are_accepted() {
        assert_eq!(closure("", &["a"]).1, ["a"]);
        assert!(closure("no colon\n:\n", &[]).0.is_empty());
    }
}
