//! Builds the ramdisk: Debian's packages by mmdebstrap, the agent by pip, a kernel by apt,
//! packed by cpio and zstd. Every step runs a program of the system; if one fails, the end of
//! its output is shown.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::modules::closure;
use crate::recipe::{IPA_VERSION, MODULES, PACKAGES, RAMDISK_FILES, RELEASE, key};

/// Programs that the build needs, and their Debian packages.
const PROGRAMS: [(&str, &str); 9] = [
    ("apt-get", "apt"),
    ("cpio", "cpio"),
    ("depmod", "kmod"),
    ("dpkg-deb", "dpkg"),
    ("mmdebstrap", "mmdebstrap"),
    ("pip3", "python3-pip"),
    ("python3", "python3"),
    ("tar", "tar"),
    ("zstd", "zstd"),
];

/// Programs for the ISO image.
const DISC_PROGRAMS: [(&str, &str); 1] = [("xorriso", "xorriso")];

/// The BIOS boot loader of Debian's isolinux package.
const ISOLINUX: &str = "/usr/lib/ISOLINUX/isolinux.bin";
const LDLINUX: &str = "/usr/lib/syslinux/modules/bios/ldlinux.c32";

/// The options of the program.
pub(crate) struct RamdiskOptions {
    pub(crate) output: PathBuf,
    pub(crate) cache: PathBuf,
    pub(crate) disc: bool,
    pub(crate) kernel_args: String,
}

/// The built files, and whether they were cached.
pub(crate) struct RamdiskBuild {
    pub(crate) files: Vec<PathBuf>,
    pub(crate) reused: bool,
}

/// Builds, or finds the result of the same recipe in the cache. `say` is called for each step.
pub(crate) fn build(wanted: &RamdiskOptions, say: &mut dyn FnMut(&str)) -> Result<RamdiskBuild> {
    check_programs(wanted.disc)?;
    let package = kernel_package()?;
    // Steps run in other directories.
    let cache = std::path::absolute(&wanted.cache)?;
    let cached = cache.join(key(&package));
    let is_reused = cached.join("ramdisk").is_file() && cached.join("kernel").is_file();
    if !is_reused {
        let place = cache.join(format!("{}.new", key(&package)));
        remove(&place)?;
        fs::create_dir_all(&place).with_context(|| format!("cannot make {}", place.display()))?;
        make(&place, &package, say)?;
        remove(&cached)?;
        fs::rename(&place, &cached)?;
    }
    fs::create_dir_all(&wanted.output)?;
    let mut files = Vec::new();
    for (from, to) in [("kernel", "ipa.kernel"), ("ramdisk", "ipa.initramfs")] {
        let to = wanted.output.join(to);
        fs::copy(cached.join(from), &to)
            .with_context(|| format!("cannot write {}", to.display()))?;
        files.push(to);
    }
    if wanted.disc {
        say("packing the disc");
        files.push(disc(wanted, &cached)?);
    }
    Ok(RamdiskBuild {
        files,
        reused: is_reused,
    })
}

fn check_programs(disc: bool) -> Result<()> {
    let wanted = PROGRAMS.iter().chain(DISC_PROGRAMS.iter().filter(|_| disc));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = std::env::split_paths(&path).collect();
    places.extend(["/usr/sbin".into(), "/sbin".into()]);
    let lacks = |program: &str| !places.iter().any(|place| place.join(program).is_file());
    let mut missing: Vec<&str> = wanted
        .filter(|(program, _)| lacks(program))
        .map(|(_, package)| *package)
        .collect();
    if disc && !(Path::new(ISOLINUX).is_file() && Path::new(LDLINUX).is_file()) {
        missing.extend(["isolinux", "syslinux-common"]);
    }
    if !missing.is_empty() {
        bail!(
            "programs are missing: on Debian {RELEASE}, apt-get install {}",
            missing.join(" ")
        );
    }
    Ok(())
}

/// The current package of the kernel for real machines.
fn kernel_package() -> Result<String> {
    let listed = output(Command::new("apt-cache").args(["depends", "linux-image-amd64"]))?;
    let mut lines = listed.lines().map(str::trim);
    let package = lines.find_map(|line| line.strip_prefix("Depends: "));
    let package = package.filter(|name| name.starts_with("linux-image-"));
    package
        .map(str::to_owned)
        .context("apt knows no linux-image-amd64; run apt-get update")
}

fn make(place: &Path, package: &str, say: &mut dyn FnMut(&str)) -> Result<()> {
    let (root, tar) = (place.join("root"), place.join("root.tar"));
    fs::create_dir(&root)?;
    say("Debian's packages (some minutes)");
    let mut debian = Command::new("mmdebstrap");
    debian.args(["--quiet", "--variant=minbase"]);
    debian.arg(format!("--include={}", PACKAGES.join(",")));
    for unread in ["man", "doc", "locale", "info"] {
        debian.arg(format!("--dpkgopt=path-exclude=/usr/share/{unread}/*"));
    }
    run(debian.arg(RELEASE).arg(&tar))?;
    run(Command::new("tar")
        .arg("-C")
        .arg(&root)
        .arg("-xf")
        .arg(&tar))?;
    fs::remove_file(&tar)?;
    say("the agent and what it is made of");
    run(Command::new("pip3")
        .args([
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-compile",
        ])
        .args(["--root-user-action=ignore", "--target"])
        .arg(root.join("opt/ipa"))
        .arg(format!("ironic-python-agent=={IPA_VERSION}")))?;
    // Compiled in advance: a machine would compile the code at each boot, because it stores
    // nothing.
    run(Command::new("python3")
        .args(["-m", "compileall", "-q", "--invalidation-mode"])
        .args(["unchecked-hash", "-p", "/", "-s"])
        .args([&root, &root.join("opt/ipa")]))?;
    say("the kernel and its modules");
    kernel(place, &root, package, say)?;
    for own in RAMDISK_FILES {
        let path = root.join(own.path);
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        fs::write(&path, own.text)?;
        let mode = if own.executable { 0o755 } else { 0o644 };
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
    }
    for unused in ["var/cache/apt", "var/lib/apt/lists", "boot"] {
        remove(&root.join(unused))?;
    }
    say("packing the ramdisk");
    let packing = "cd \"$1\" && find . -print0 | LC_ALL=C sort -z | \
                   cpio --quiet -0 -o -H newc | zstd -q -10 -T0 -o \"$2\"";
    run(Command::new("bash")
        .args(["-o", "pipefail", "-c", packing, "pack"])
        .arg(&root)
        .arg(place.join("ramdisk")))?;
    remove(&root)
}

fn kernel(place: &Path, root: &Path, package: &str, say: &mut dyn FnMut(&str)) -> Result<()> {
    let all = place.join("kernel-package");
    fs::create_dir(&all)?;
    run(Command::new("apt-get")
        .args(["-qq", "-o", "APT::Sandbox::User=root", "download", package])
        .current_dir(&all))?;
    let file = first(&all)?;
    run(Command::new("dpkg-deb")
        .arg("-x")
        .arg(&file)
        .arg(all.join("x")))?;
    let modules = first(&all.join("x/lib/modules"))?;
    let version = modules.file_name().context("a kernel has a version")?;
    let image = format!("x/boot/vmlinuz-{}", version.to_string_lossy());
    fs::copy(all.join(image), place.join("kernel"))?;
    run(Command::new("depmod")
        .arg("-b")
        .arg(all.join("x"))
        .arg(version))?;
    let list = fs::read_to_string(modules.join("modules.dep"))?;
    let (files, missing) = closure(&list, &MODULES);
    if !missing.is_empty() {
        say(&format!(
            "not in this kernel, or built in: {}",
            missing.join(" ")
        ));
    }
    let into = root.join("lib/modules").join(version);
    for name in files
        .iter()
        .map(String::as_str)
        .chain(["modules.order", "modules.builtin"])
    {
        let to = into.join(name);
        if let Some(directory) = to.parent() {
            fs::create_dir_all(directory)?;
        }
        fs::copy(modules.join(name), to)?;
    }
    run(Command::new("depmod").arg("-b").arg(root).arg(version))?;
    remove(&all)
}

/// An ISO image that a BIOS boots, for machines without network boot.
fn disc(wanted: &RamdiskOptions, cache: &Path) -> Result<PathBuf> {
    let (tree, iso) = (wanted.cache.join("disc.new"), wanted.output.join("ipa.iso"));
    remove(&tree)?;
    fs::create_dir_all(tree.join("isolinux"))?;
    fs::copy(cache.join("kernel"), tree.join("isolinux/kernel"))?;
    fs::copy(cache.join("ramdisk"), tree.join("isolinux/ramdisk"))?;
    fs::copy(ISOLINUX, tree.join("isolinux/isolinux.bin"))?;
    fs::copy(LDLINUX, tree.join("isolinux/ldlinux.c32"))?;
    let words = &wanted.kernel_args;
    let menu = format!(
        "SERIAL 0\nDEFAULT agent\nLABEL agent\n  KERNEL kernel\n  INITRD ramdisk\n  \
         APPEND {words}\n"
    );
    fs::write(tree.join("isolinux/isolinux.cfg"), menu)?;
    run(Command::new("xorriso")
        .args(["-as", "mkisofs", "-quiet", "-V", "trivet-agent", "-J", "-R"])
        .args(["-b", "isolinux/isolinux.bin", "-c", "isolinux/boot.cat"])
        .args([
            "-no-emul-boot",
            "-boot-load-size",
            "4",
            "-boot-info-table",
            "-o",
        ])
        .arg(&iso)
        .arg(&tree))?;
    remove(&tree)?;
    Ok(iso)
}

fn first(directory: &Path) -> Result<PathBuf> {
    let mut entries: Vec<_> = fs::read_dir(directory)?.collect::<Result<_, _>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    let entry = entries.first();
    let entry = entry.with_context(|| format!("nothing in {}", directory.display()))?;
    Ok(entry.path())
}

fn remove(path: &Path) -> Result<()> {
    if path.exists() {
        fs::remove_dir_all(path).with_context(|| format!("cannot remove {}", path.display()))?;
    }
    Ok(())
}

/// Runs a step; its output is shown if it fails.
fn run(command: &mut Command) -> Result<()> {
    output(command).map(|_| ())
}

fn output(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let ran = command.stdin(Stdio::null()).output();
    let ran = ran.with_context(|| format!("{program} cannot be run"))?;
    if !ran.status.success() {
        let text = String::from_utf8_lossy(&ran.stderr);
        let last: Vec<&str> = text.lines().rev().take(10).collect();
        let last: Vec<&str> = last.into_iter().rev().collect();
        bail!("{program} failed ({}):\n{}", ran.status, last.join("\n"));
    }
    Ok(String::from_utf8_lossy(&ran.stdout).into_owned())
}
