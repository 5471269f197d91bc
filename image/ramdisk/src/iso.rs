//! An ISO image that starts a kernel with a ramdisk: on BIOS with isolinux, on UEFI with GRUB,
//! from a CD, as virtual media or from a USB stick.
//!
//! Both loaders read kernel and ramdisk from the ISO 9660 file system, so they are in it once.
//! Their menus have the kernel arguments in an area of fixed size, filled with blanks: a server of
//! the image may write others there without another change.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use clap::Args;

use crate::debian::{self, unpack};
use crate::program::{ProgramList, clear, program, remove, run};

pub(crate) const PROGRAMS: ProgramList = &[
    ("mcopy", "mtools"),
    ("mkfs.fat", "dosfstools"),
    ("mmd", "mtools"),
    ("xorriso", "xorriso"),
];

/// Bytes for kernel arguments in each menu. Ours: the kernel for x86 reads 2048.
pub(crate) const ARGUMENTS_BYTES_MAX: usize = 1536;

/// What begins the line before the arguments in both menus. Its number is the size of the area.
const ARGUMENTS_MARK: &str = "# trivet-kernel-arguments";

/// The volume name. The agents look for a medium with this name.
const VOLUME: &str = "VMEDIA_BOOT_ISO";

/// Packages with the loaders.
const LOADERS: [&str; 3] = ["grub-efi-amd64-bin", "isolinux", "syslinux-common"];

/// Times in the image: the same inputs give the same bytes.
const EPOCH: &str = "0";
const IMAGE_TIME: &str = "1980010100000000";

/// What `trivet-image iso` makes.
#[derive(Args)]
pub(crate) struct IsoOptions {
    /// The ISO image to write.
    #[arg(short, long)]
    pub(crate) output: PathBuf,
    /// The ramdisk.
    #[arg(short, long)]
    pub(crate) initrd: PathBuf,
    /// The kernel.
    #[arg(short, long)]
    pub(crate) kernel: PathBuf,
    /// Kernel arguments, such as ipa-api-url=http://192.0.2.1:6385.
    #[arg(long, default_value = "console=tty0 console=ttyS0 boot_method=vmedia")]
    pub(crate) kernel_args: String,
    /// Directory of the cache for downloads.
    #[arg(long, default_value = "/var/cache/trivet-image")]
    pub(crate) cache: PathBuf,
}

/// Makes an ISO image.
pub(crate) fn make_iso(options: &IsoOptions) -> Result<()> {
    crate::program::require(&[PROGRAMS, debian::PROGRAMS])?;
    let cache = std::path::absolute(&options.cache)?;
    let place = cache.join(format!("iso-{}", std::process::id()));
    clear(&place)?;
    let made = assemble(options, &cache, &place);
    remove(&place)?;
    made
}

fn assemble(options: &IsoOptions, cache: &Path, place: &Path) -> Result<()> {
    let (tree, loaders) = (place.join("tree"), place.join("loaders"));
    for package in LOADERS {
        unpack(cache, package, &loaders)?;
    }
    let copy = |from: &Path, to: &str| -> Result<()> {
        let to = tree.join(to);
        if let Some(directory) = to.parent() {
            fs::create_dir_all(directory)?;
        }
        fs::copy(from, &to).with_context(|| format!("cannot copy {}", from.display()))?;
        Ok(())
    };
    copy(&options.kernel, "boot/kernel")?;
    copy(&options.initrd, "boot/ramdisk")?;
    let loader = |path: &str| loaders.join(path);
    copy(
        &loader("usr/lib/ISOLINUX/isolinux.bin"),
        "isolinux/isolinux.bin",
    )?;
    let library = "usr/lib/syslinux/modules/bios/ldlinux.c32";
    copy(&loader(library), "isolinux/ldlinux.c32")?;
    let menu = tree.join("isolinux/isolinux.cfg");
    fs::write(menu, isolinux_menu(&options.kernel_args)?)?;
    fs::create_dir_all(tree.join("boot/grub"))?;
    fs::write(
        tree.join("boot/grub/grub.cfg"),
        grub_menu(&options.kernel_args)?,
    )?;
    // Debian's GRUB for CDs takes the medium with this file as its own.
    fs::create_dir_all(tree.join(".disk"))?;
    fs::write(tree.join(".disk/info"), "Trivet\n")?;
    let grub = loader("usr/lib/grub/x86_64-efi/monolithic/gcdx64.efi");
    efi_image(&grub, &tree.join("boot/efi.img"))?;
    let boot_record = loader("usr/lib/ISOLINUX/isohdpfx.bin");
    let output = std::path::absolute(&options.output)?;
    run(program("xorriso")
        .env("SOURCE_DATE_EPOCH", EPOCH)
        .args(["-as", "mkisofs", "-quiet", "-V", VOLUME, "-J", "-R"])
        .args(["--set_all_file_dates", IMAGE_TIME])
        .arg("-isohybrid-mbr")
        .arg(boot_record)
        .args(["-b", "isolinux/isolinux.bin", "-c", "isolinux/boot.cat"])
        .args(["-no-emul-boot", "-boot-load-size", "4", "-boot-info-table"])
        .args(["-eltorito-alt-boot", "-e", "boot/efi.img", "-no-emul-boot"])
        .args(["-isohybrid-gpt-basdat", "-o"])
        .arg(output)
        .arg(&tree))
}

/// The arguments, followed by blanks up to the size of the area.
fn padded(arguments: &str) -> Result<String> {
    let printable = arguments.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    ensure!(
        printable && arguments.len() <= ARGUMENTS_BYTES_MAX,
        "kernel arguments must be at most {ARGUMENTS_BYTES_MAX} printable ASCII characters"
    );
    Ok(format!("{arguments:<ARGUMENTS_BYTES_MAX$}"))
}

fn isolinux_menu(arguments: &str) -> Result<String> {
    let arguments = padded(arguments)?;
    Ok(format!(
        "SERIAL 0\nDEFAULT trivet\nLABEL trivet\n  KERNEL /boot/kernel\n  INITRD /boot/ramdisk\n\
         {ARGUMENTS_MARK} {ARGUMENTS_BYTES_MAX}\n  APPEND {arguments}\n"
    ))
}

fn grub_menu(arguments: &str) -> Result<String> {
    // GRUB would take these as its own syntax.
    let syntax = |character| "$\\'\"`;&|<>(){}#".contains(character);
    ensure!(
        !arguments.contains(syntax),
        "kernel arguments must not contain quotes, braces or shell syntax"
    );
    let arguments = padded(arguments)?;
    Ok(format!(
        "set timeout=0\nset default=0\nmenuentry trivet {{\n\
         {ARGUMENTS_MARK} {ARGUMENTS_BYTES_MAX}\n  linux /boot/kernel {arguments}\n  \
         initrd /boot/ramdisk\n}}\n"
    ))
}

/// The EFI system partition: a FAT file system with the loader at the path for removable media
/// (UEFI 2.10, section 3.5.1.1).
fn efi_image(loader: &Path, image: &Path) -> Result<()> {
    const KIB: u64 = 1024;
    let loader_size = fs::metadata(loader)
        .with_context(|| format!("cannot read {}", loader.display()))?
        .len();
    // Room for the tables of the file system.
    let blocks = (loader_size.div_ceil(KIB) + 512).next_multiple_of(64);
    fs::File::create(image)?.set_len(blocks * KIB)?;
    let mtools = |name: &str| {
        let mut command = program(name);
        command.env("SOURCE_DATE_EPOCH", EPOCH).arg("-i").arg(image);
        command
    };
    run(program("mkfs.fat")
        .args(["--invariant", "-n", "TRIVET-EFI"])
        .arg(image))?;
    run(mtools("mmd").args(["::EFI", "::EFI/BOOT"]))?;
    run(mtools("mcopy").arg(loader).arg("::EFI/BOOT/BOOTX64.EFI"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn menus_have_an_area_of_fixed_size_for_arguments() {
        for menu in [isolinux_menu, grub_menu] {
            let (short, long) = (menu("a=1 b").unwrap(), menu(&"x".repeat(1536)).unwrap());
            assert_eq!(short.len(), long.len());
            assert!(short.contains("a=1 b "));
            let mark = format!("{ARGUMENTS_MARK} {ARGUMENTS_BYTES_MAX}\n");
            let (_, area) = short.split_once(&mark).unwrap();
            assert!(area.lines().next().unwrap().ends_with("  "), "{area}");
        }
    }

    #[test]
    fn arguments_that_a_loader_would_misread_are_refused() {
        assert!(isolinux_menu(&"x".repeat(1537)).is_err());
        assert!(isolinux_menu("a\nKERNEL x").is_err());
        for bad in ["a;b", "$x", "a'b", "{", "a\n"] {
            assert!(grub_menu(bad).is_err(), "{bad}");
        }
    }
}
