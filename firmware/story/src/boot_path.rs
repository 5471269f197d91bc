//! Which stage a file belongs to.

use trivet_model::story::Stage;

/// The stage in which a machine fetches the file with this path. The paths are those of
/// `firmware/bootfiles`; a file of the operator's own is taken by its name.
pub(crate) fn stage_of_path(path: &str) -> Option<Stage> {
    let path = path.split(['?', '#']).next().unwrap_or(path);
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    match parts.as_slice() {
        ["boot", "kernel"] => Some(Stage::Kernel),
        ["boot", "ramdisk"] => Some(Stage::Ramdisk),
        ["boot", "loaders", ..] => Some(Stage::Loader),
        ["boot", _, "script"] => Some(Stage::Script),
        ["nodes", _, "boot", key] => stage_of_name(key),
        ["nodes", _, _, name] => (!is_optional(name)).then_some(Stage::Image),
        [] | ["drives", ..] => None,
        ["images", _] => Some(Stage::Image),
        [.., name] => stage_of_name(name),
    }
}

/// Whether a machine does without the file with this path: the chunk list of an image.
pub(crate) fn is_optional(path: &str) -> bool {
    path.ends_with(".chunks")
}

fn stage_of_name(name: &str) -> Option<Stage> {
    let name = name.to_ascii_lowercase();
    let ends = |ends: &[&str]| ends.iter().any(|end| name.ends_with(end));
    if ends(&[".efi", ".kpxe", ".pxe", ".0", ".kkpxe"]) {
        Some(Stage::Loader)
    } else if name.contains("kernel") || name.contains("vmlinuz") {
        Some(Stage::Kernel)
    } else if ["ramdisk", "initrd", "initramfs"]
        .iter()
        .any(|word| name.contains(word))
    {
        Some(Stage::Ramdisk)
    } else if ends(&[".ipxe"]) {
        Some(Stage::Script)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stage_of_a_file_follows_from_its_path() {
        for (path, want) in [
            ("snponly.efi", Some(Stage::Loader)),
            ("undionly.kpxe", Some(Stage::Loader)),
            ("/boot/loaders/arm64/ipxe.efi", Some(Stage::Loader)),
            ("/boot/52:54:00:00:00:01/script", Some(Stage::Script)),
            ("/files/own.ipxe", Some(Stage::Script)),
            ("/boot/kernel", Some(Stage::Kernel)),
            ("/files/vmlinuz-6.1", Some(Stage::Kernel)),
            ("/nodes/1-2/boot/deploy_kernel", Some(Stage::Kernel)),
            ("/boot/ramdisk", Some(Stage::Ramdisk)),
            ("/nodes/1-2/boot/deploy_ramdisk", Some(Stage::Ramdisk)),
            ("/nodes/1-2/***/debian.raw", Some(Stage::Image)),
            ("/nodes/1-2/***/debian.raw.chunks", None),
            ("/images/debian.raw", Some(Stage::Image)),
            ("/drives/1-2/***", None),
            ("/files/notes.txt", None),
            ("", None),
            ("///", None),
        ] {
            assert_eq!(stage_of_path(path), want, "{path}");
        }
    }
}
