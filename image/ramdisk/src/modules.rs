//! Selects the module files of a kernel by its index files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path};

/// The name of a module, without directories and suffixes; dashes become underscores.
pub(crate) fn module_name(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.split('.').next().unwrap_or(file).replace('-', "_")
}

/// The files for these modules and their dependencies, and the modules that the kernel does not
/// have as files (they may be built in). `list` is a `modules.dep`: `file: file file ...` on
/// each line.
pub(crate) fn closure(list: &str, wanted: &BTreeSet<String>) -> (BTreeSet<String>, Vec<String>) {
    let mut needs: BTreeMap<String, (&str, Vec<&str>)> = BTreeMap::new();
    for line in list.lines() {
        if let Some((file, others)) = line.split_once(':') {
            let others = others.split_whitespace().collect();
            needs.insert(module_name(file), (file, others));
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
            None => missing.push(module.clone()),
        }
    }
    (files, missing)
}

/// The lines of an index file that are about these modules. Formats: `modules.dep` begins with
/// `FILE:`, `modules.order` is a list of files, `modules.alias` is `alias PATTERN NAME`,
/// `modules.softdep` is `softdep NAME ...`.
pub(crate) fn lines_of_modules(index: &str, text: &str, names: &BTreeSet<String>) -> String {
    let module = |line: &str| {
        let word = match index {
            "modules.alias" => line.split_whitespace().last()?,
            "modules.softdep" => line.split_whitespace().nth(1)?,
            _ => line.split(':').next()?,
        };
        Some(module_name(word))
    };
    let mut remaining = String::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if module(line).is_some_and(|name| names.contains(&name)) {
            remaining.push_str(line);
            remaining.push('\n');
        }
    }
    remaining
}

/// The blobs that a module names in its section `.modinfo`: texts `firmware=PATH` that end with
/// a zero byte. Paths that lead elsewhere are left out.
pub(crate) fn firmware_names(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"firmware=";
    let texts = module.split(|&byte| byte == 0);
    let names = texts.filter_map(|text| core::str::from_utf8(text.strip_prefix(KEY)?).ok());
    let stays_below = |name: &&str| {
        let mut parts = Path::new(name).components();
        !name.is_empty() && parts.all(|part| matches!(part, Component::Normal(_)))
    };
    names.filter(stays_below).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "kernel/net/virtio_net.ko: kernel/net/failover.ko kernel/virtio.ko\n\
                        kernel/virtio.ko:\nkernel/net/failover.ko:\nkernel/md/dm-mod.ko.xz:\n";

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_module_includes_its_dependencies() {
        let (files, missing) = closure(LIST, &set(&["virtio_net", "dm-mod"]));
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
        let (files, missing) = closure(LIST, &set(&["nvme"]));
        assert!(files.is_empty());
        assert_eq!(missing, ["nvme"]);
    }

    #[test]
    fn an_empty_list_and_invalid_lines_are_accepted() {
        assert_eq!(closure("", &set(&["a"])).1, ["a"]);
        assert!(closure("no colon\n:\n", &set(&[])).0.is_empty());
    }

    #[test]
    fn index_files_keep_only_the_lines_of_these_modules() {
        let names = set(&["virtio_net", "libcrc32c"]);
        let dependencies = "kernel/net/virtio_net.ko: kernel/net/failover.ko kernel/virtio.ko\n";
        for (index, text, want) in [
            ("modules.dep", LIST, dependencies),
            (
                "modules.order",
                "kernel/virtio.ko\nkernel/net/virtio-net.ko\n",
                "kernel/net/virtio-net.ko\n",
            ),
            (
                "modules.alias",
                "# Aliases\nalias virtio:d1v* virtio_net\nalias pci:v* e1000\nalias\n",
                "alias virtio:d1v* virtio_net\n",
            ),
            (
                "modules.softdep",
                "softdep libcrc32c pre: crc32c\nsoftdep other pre: x\nsoftdep\n",
                "softdep libcrc32c pre: crc32c\n",
            ),
        ] {
            assert_eq!(lines_of_modules(index, text, &names), want, "{index}");
        }
    }

    #[test]
    fn blobs_that_a_module_names_are_found() {
        let module = b"\x7fELF\0firmware=bnx2/a-1.fw\0license=GPL\0firmware=../x\0firmware=/y\0\
                       firmware=\0firmware=b.bin\0";
        assert_eq!(firmware_names(module), ["bnx2/a-1.fw", "b.bin"]);
        assert!(firmware_names(b"").is_empty());
    }
}
