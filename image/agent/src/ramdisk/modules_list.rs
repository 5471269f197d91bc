//! Which kernel modules fit a device: `modules.alias`, `modules.dep` and the aliases of devices.
//!
//! A pattern of `modules.alias` has the wildcards of glob(7): `*`, `?` and `[a-z]`. Texts go in
//! and names come out. `modules.dep` lists all dependencies of a module, also indirect ones, and
//! a module comes before those that it needs.

use std::collections::BTreeMap;

/// Most bytes of `modules.alias` and of `modules.dep`. Ours; those of a whole Debian kernel have
/// 1.5 MB.
pub const MODULE_LIST_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The modules of one kernel.
#[derive(Clone, Debug, Default)]
pub struct ModuleList {
    /// Patterns and modules, by the part of the pattern before the first colon, which has no
    /// wildcard: `pci`, `virtio`.
    aliases: BTreeMap<String, Vec<(String, String)>>,
    /// File, and files that must be loaded before it, by name.
    files: BTreeMap<String, ModuleFiles>,
}

#[derive(Clone, Debug)]
struct ModuleFiles {
    path: String,
    needs: Vec<String>,
}

/// The name of a module, from its path or a name with dashes.
pub fn module_name(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    let name = file.split('.').next().unwrap_or(file);
    name.replace('-', "_")
}

impl ModuleList {
    /// Reads the two files of a kernel.
    pub fn new(aliases: &str, dependencies: &str) -> Self {
        let mut list = Self::default();
        for line in aliases.lines() {
            let mut words = line.split_whitespace();
            if let (Some("alias"), Some(pattern), Some(module)) =
                (words.next(), words.next(), words.next())
            {
                let row = (pattern.to_owned(), module_name(module));
                list.aliases.entry(bus(pattern)).or_default().push(row);
            }
        }
        for line in dependencies.lines() {
            if let Some((path, needs)) = line.split_once(':') {
                let files = ModuleFiles {
                    path: path.trim().to_owned(),
                    needs: needs.split_whitespace().map(str::to_owned).collect(),
                };
                list.files.insert(module_name(path.trim()), files);
            }
        }
        list
    }

    /// The names of the modules whose aliases fit a device, in the order of the file.
    pub fn modules_for(&self, alias: &str) -> Vec<&str> {
        let rows = self.aliases.get(&bus(alias)).into_iter().flatten();
        let fitting = rows.filter(|(pattern, _)| matches(pattern.as_bytes(), alias.as_bytes()));
        fitting.map(|(_, module)| module.as_str()).collect()
    }

    /// The files to load for a module, in order; none if the kernel has no such file.
    pub fn files_for(&self, module: &str) -> Vec<&str> {
        let Some(files) = self.files.get(&module_name(module)) else {
            return Vec::new();
        };
        let needs = files.needs.iter().rev().map(String::as_str);
        needs.chain([files.path.as_str()]).collect()
    }
}

fn bus(alias: &str) -> String {
    let end = alias.find([':', '*', '?', '[']).unwrap_or(alias.len());
    alias[..end].to_owned()
}

/// Whether a text fits a pattern with wildcards. Takes at most the product of both lengths.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut seen) = (0, 0);
    // After the last star: where to continue in the pattern, and how much of the text it takes.
    let mut star: Option<(usize, usize)> = None;
    while seen < text.len() {
        let step = match pattern.get(at) {
            Some(b'*') => {
                star = Some((at + 1, seen));
                at += 1;
                continue;
            }
            Some(b'?') => Some(1),
            Some(b'[') => class(&pattern[at..], text[seen]),
            Some(&byte) => (byte == text[seen]).then_some(1),
            None => None,
        };
        match (step, star) {
            (Some(length), _) => (at, seen) = (at + length, seen + 1),
            (None, Some((after, taken))) => {
                star = Some((after, taken + 1));
                (at, seen) = (after, taken + 1);
            }
            (None, None) => return false,
        }
    }
    pattern[at.min(pattern.len())..]
        .iter()
        .all(|&byte| byte == b'*')
}

/// The length of the class that begins here, if it has the byte.
fn class(pattern: &[u8], byte: u8) -> Option<usize> {
    let end = pattern.iter().position(|&byte| byte == b']')?;
    let mut inside = &pattern[1..end];
    while let Some((&first, rest)) = inside.split_first() {
        if let [b'-', last, after @ ..] = rest {
            if (first..=*last).contains(&byte) {
                return Some(end + 1);
            }
            inside = after;
        } else {
            if first == byte {
                return Some(end + 1);
            }
            inside = rest;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALIASES: &str = "# Aliases extracted from modules themselves.\n\
        alias pci:v00001AF4d*sv*sd*bc*sc*i* virtio_pci\n\
        alias virtio:d00000001v* virtio_net\n\
        alias virtio:d00000002v* virtio_blk\n\
        alias pci:v*d*sv*sd*bc01sc08i02* nvme\n\
        alias usb:v05ACp12[9A][0-9A-F]d*dc*dsc*dp*ic*isc*ip*in* odd-name\n\
        alias dmi*:svn*:pvr* laptop\n\
        broken line\n\
        alias only-two\n";

    const DEPENDENCIES: &str = "kernel/drivers/net/virtio_net.ko: \
        kernel/net/core/failover.ko kernel/drivers/virtio/virtio.ko\n\
        kernel/drivers/virtio/virtio.ko:\n\
        kernel/drivers/md/dm-mod.ko.xz:\n\
        no colon\n";

    fn list() -> ModuleList {
        ModuleList::new(ALIASES, DEPENDENCIES)
    }

    #[test]
    fn finds_modules_by_the_alias_of_a_device() {
        let list = list();
        for (alias, want) in [
            (
                "pci:v00001AF4d00001000sv00001AF4sd00000001bc02sc00i00",
                &["virtio_pci"][..],
            ),
            ("virtio:d00000002v00001AF4", &["virtio_blk"]),
            ("pci:v00008086d00005845sv0sd0bc01sc08i02", &["nvme"]),
            ("pci:v00008086d00005845sv0sd0bc01sc08i01", &[]),
            ("usb:v05ACp129Fd1dc1dsc1dp1ic1isc1ip1in1", &["odd_name"]),
            ("usb:v05ACp12BFd1dc1dsc1dp1ic1isc1ip1in1", &[]),
            ("acpi:IPI0001:", &[]),
            ("", &[]),
        ] {
            assert_eq!(list.modules_for(alias), want, "{alias}");
        }
    }

    #[test]
    fn a_module_comes_after_those_that_it_needs() {
        let list = list();
        let want = [
            "kernel/drivers/virtio/virtio.ko",
            "kernel/net/core/failover.ko",
            "kernel/drivers/net/virtio_net.ko",
        ];
        assert_eq!(list.files_for("virtio_net"), want);
        assert_eq!(list.files_for("virtio-net"), want);
        assert_eq!(list.files_for("dm-mod"), ["kernel/drivers/md/dm-mod.ko.xz"]);
        assert!(list.files_for("absent").is_empty());
    }

    #[track_caller]
    fn check(pattern: &str, text: &str, want: bool) {
        assert_eq!(
            matches(pattern.as_bytes(), text.as_bytes()),
            want,
            "{pattern} {text}"
        );
    }

    #[test]
    fn wildcards_fit_as_in_glob() {
        for (pattern, text, want) in [
            ("", "", true),
            ("*", "", true),
            ("", "a", false),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxbyy", false),
            ("*ab", "aab", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("[0-9]*", "7x", true),
            ("[0-9]*", "x7", false),
            ("[a-", "a", false),
            ("[-a]", "-", true),
            ("abc", "ab", false),
            ("ab**", "ab", true),
        ] {
            check(pattern, text, want);
        }
    }

    #[test]
    fn a_pattern_of_many_stars_ends_soon() {
        let pattern = "a*".repeat(2000);
        check(&pattern, &"b".repeat(2000), false);
        check(&format!("{pattern}c"), &"a".repeat(4000), false);
    }
}
