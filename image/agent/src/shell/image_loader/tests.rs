//! An image in a directory. Mounts and real programs are tested by tests/long/partition.

use super::*;
use crate::shell::mounted::tests::ScratchDirectory;
use std::os::unix::fs::symlink;

fn image(files: &[(&str, &str)]) -> (ScratchDirectory, ImageSystem) {
    let directory = ScratchDirectory::new();
    for (path, text) in files {
        let path = directory.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let system = ImageSystem::new(&directory.0).unwrap();
    (directory, system)
}

#[test]
fn places_outside_the_image_are_refused() {
    let (directory, system) = image(&[("a/b", "")]);
    symlink("/etc", directory.0.join("etc")).unwrap();
    symlink("a", directory.0.join("c")).unwrap();
    assert_eq!(system.inside("c/b"), Some(system.root.join("a/b")));
    assert_eq!(system.inside("etc/passwd"), None);
    assert_eq!(system.inside("gone"), None);
    assert!(system.make_inside("etc/x").is_err());
    assert!(system.make_inside("a/b").is_err(), "a file");
    let made = system.make_inside("c/d/e").unwrap();
    assert_eq!(made, system.root.join("a/d/e"));
    assert_eq!(system.make_inside("c/d/e").unwrap(), made);
}

#[test]
fn the_programs_of_grub_are_found_by_both_names() {
    let (_directory, system) = image(&[("bin/sh", "")]);
    assert_eq!(system.grub(), None);
    let error = system.install_grub(&[]).unwrap_err().to_string();
    assert!(error.contains("neither grub-install"), "{error}");
    let (directory, system) = image(&[("usr/sbin/grub-install", "")]);
    assert_eq!(system.grub(), Some("grub"));
    let error = system.configure_grub().unwrap_err().to_string();
    assert!(error.contains("no program grub-mkconfig"), "{error}");
    assert!(directory.0.join("boot/grub").is_dir());
    symlink("/gone", directory.0.join("usr/sbin/grub2-install")).unwrap();
    assert_eq!(system.grub(), Some("grub2"));
    let program = system.program("grub2-install");
    assert_eq!(program.as_deref(), Some("/usr/sbin/grub2-install"));
}

#[test]
fn the_system_mounts_its_efi_system_partition_once() {
    let (directory, system) = image(&[("etc/fstab", "LABEL=root / ext4 defaults 0 1")]);
    for _ in 0..2 {
        system.add_to_fstab("1234-ABCD").unwrap();
    }
    let table = fs::read_to_string(directory.0.join("etc/fstab")).unwrap();
    assert_eq!(
        table,
        "LABEL=root / ext4 defaults 0 1\nUUID=1234-ABCD\t/boot/efi\tvfat\tumask=0077\t0\t1\n"
    );
    let (directory, system) = image(&[("bin/sh", "")]);
    system.add_to_fstab("1234-ABCD").unwrap();
    assert!(!directory.0.join("etc").exists());
}

#[test]
fn loaders_and_their_configuration_are_copied() {
    let (directory, system) = image(&[
        ("boot/efi/EFI/BOOT/BOOTX64.EFI", "loader"),
        ("boot/efi/EFI/debian/grub.cfg", "own"),
        ("boot/grub2/grub.cfg", "of the image"),
        ("etc/fstab", ""),
    ]);
    symlink("/etc/passwd", directory.0.join("boot/efi/EFI/link")).unwrap();
    let to = directory.0.join("copy");
    let from = system.inside("boot/efi/EFI").unwrap();
    copy_files(&from, &to, DEPTH_MAX).unwrap();
    system.copy_grub_files(&to).unwrap();
    let text = |path: &str| fs::read_to_string(to.join(path)).ok();
    assert_eq!(text("BOOT/BOOTX64.EFI").as_deref(), Some("loader"));
    assert_eq!(text("BOOT/grub.cfg").as_deref(), Some("of the image"));
    assert_eq!(text("debian/grub.cfg").as_deref(), Some("own"));
    assert_eq!(text("link"), None);
    copy_files(&from, &directory.0.join("flat"), 0).unwrap();
    assert_eq!(fs::read_dir(directory.0.join("flat")).unwrap().count(), 0);
}

#[test]
fn a_root_that_cannot_be_mounted_is_named() {
    let gone = Path::new("/nonexistent-root");
    let partitions = ImagePartitions {
        disk: Path::new("/nonexistent-disk"),
        root: gone,
        efi_system: None,
    };
    let error = install_image_loader(&partitions).unwrap_err().to_string();
    assert!(
        error.contains("/nonexistent-root") && error.contains("ext4"),
        "{error}"
    );
}
