//! What the options add to a ramdisk, for both agents: files, packages, modules, blobs.
//!
//! The paths are those where both ramdisks look. Programs of `--on-boot` run in the order of
//! their names. Our agent runs executables as hardware managers; those of the stock agent are
//! Python packages.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;

use crate::cpio::{ArchiveContent, CpioArchive};
use crate::debian::{look_up, with_dependencies};
use crate::fingerprint::BuildKey;
use crate::recipe::{MODULES, STOCK_MODULES};
use crate::{RamdiskAgent, python};

/// Where both ramdisks have the programs of `--on-boot`.
const ON_BOOT: &str = "etc/trivet-agent/on-boot.d";

/// Where our agent finds executables that are hardware managers.
const HARDWARE_MANAGERS: &str = "usr/lib/trivet-agent/managers";

/// Programs for a shell and for SSH, which our agent does without.
const SHELL_PACKAGE: &str = "busybox-static";
const SSH_PACKAGE: &str = "dropbear-bin";

/// A file of this machine and its path in the ramdisk.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct AddedFile {
    source: PathBuf,
    target: String,
}

impl core::str::FromStr for AddedFile {
    type Err = &'static str;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        let (source, target) = word.split_once(':').ok_or("must be SOURCE:TARGET")?;
        let mut parts = Path::new(target).components().skip(1);
        let stays_below =
            parts.all(|part| matches!(part, std::path::Component::Normal(_))) && target != "/";
        if source.is_empty() || !target.starts_with('/') || !stays_below {
            return Err("TARGET must be an absolute path of a file, without ..");
        }
        Ok(Self {
            source: source.into(),
            target: target.to_owned(),
        })
    }
}

/// The options that add to a ramdisk. Each can be given several times.
#[derive(Args, Clone, Default)]
pub(crate) struct AdditionOptions {
    /// A public SSH key: root logs in with it while the agent runs.
    #[arg(long, value_name = "FILE")]
    ssh_key: Vec<PathBuf>,
    /// A hardware manager. Stock agent: a Python file, or what pip installs (a directory, an
    /// archive, a name). Our agent: an executable.
    #[arg(long, value_name = "FILE|PACKAGE")]
    hardware_manager: Vec<String>,
    /// A Debian package. With our agent it is unpacked with its dependencies, and its scripts do
    /// not run.
    #[arg(long, value_name = "NAME")]
    package: Vec<String>,
    /// A file or directory of this machine and its path in the ramdisk.
    #[arg(long, value_name = "SOURCE:TARGET")]
    file: Vec<AddedFile>,
    /// A program that runs once, when the network is up: before the stock agent starts, and
    /// beside our agent.
    #[arg(long, value_name = "SCRIPT")]
    on_boot: Vec<PathBuf>,
    /// One more kernel module, with its dependencies. It is loaded at boot.
    #[arg(long, value_name = "NAME")]
    module: Vec<String>,
    /// Firmware: a directory, which is copied, or a Debian package, of which the files that
    /// included modules request are copied.
    #[arg(long, value_name = "PACKAGE|DIRECTORY")]
    firmware: Vec<String>,
}

/// What is added.
#[derive(Default)]
pub(crate) struct RamdiskAdditions {
    pub(crate) files: CpioArchive,
    /// Debian packages; for our agent with all dependencies.
    pub(crate) packages: BTreeSet<String>,
    /// What pip installs beside the stock agent.
    pub(crate) python: Vec<String>,
    pub(crate) modules: BTreeSet<String>,
    pub(crate) firmware: Vec<String>,
    /// Whether programs run at boot.
    pub(crate) runs_on_boot: bool,
}

impl RamdiskAdditions {
    /// Reads all files that the options name, and asks apt for the packages.
    pub(crate) fn read(agent: RamdiskAgent, options: &AdditionOptions) -> Result<Self> {
        let mut added = Self {
            packages: options.package.iter().cloned().collect(),
            modules: MODULES.map(str::to_owned).into(),
            firmware: options.firmware.clone(),
            runs_on_boot: !(options.on_boot.is_empty() && options.ssh_key.is_empty()),
            ..Self::default()
        };
        added.modules.extend(options.module.iter().cloned());
        if agent == RamdiskAgent::Ipa {
            added.modules.extend(STOCK_MODULES.map(str::to_owned));
        }
        for (number, script) in options.on_boot.iter().enumerate() {
            let name = file_name(script)?;
            added.executable(script, &format!("{ON_BOOT}/{:02}-{name}", number + 10))?;
        }
        for manager in &options.hardware_manager {
            added.hardware_manager(agent, manager)?;
        }
        if !options.module.is_empty() {
            let lines = options.module.join("\n") + "\n";
            added.files.add_file("etc/modules", 0o644, lines);
        }
        added.ssh_keys(agent, &options.ssh_key)?;
        for AddedFile { source, target } in &options.file {
            if source.is_dir() {
                let target = target.trim_start_matches('/');
                added.files.add_tree(source, target, &|_| false)?;
            } else {
                let mode = fs::metadata(source).map(|file| file.permissions().mode() & 0o777);
                let mode = mode.with_context(|| format!("cannot read {}", source.display()))?;
                added.files.add_file(target, mode, fs::read(source)?);
            }
        }
        if agent == RamdiskAgent::Trivet {
            if added.runs_on_boot {
                added.packages.insert(SHELL_PACKAGE.to_owned());
            }
            if added.packages.contains(SHELL_PACKAGE) {
                let shell = ArchiveContent::Link("busybox".into());
                added.files.add("bin/sh", 0o777, shell);
            }
            added.packages = with_dependencies(&added.packages)?;
        }
        Ok(added)
    }

    /// Adds an executable. Our ramdisk has a shell only if one of them needs it.
    fn executable(&mut self, source: &Path, target: &str) -> Result<()> {
        let bytes =
            fs::read(source).with_context(|| format!("cannot read {}", source.display()))?;
        if bytes.starts_with(b"#!") {
            self.packages.insert(SHELL_PACKAGE.to_owned());
        }
        self.files.add_file(target, 0o755, bytes);
        Ok(())
    }

    fn hardware_manager(&mut self, agent: RamdiskAgent, manager: &str) -> Result<()> {
        let path = Path::new(manager);
        match agent {
            RamdiskAgent::Trivet => {
                ensure!(
                    path.is_file(),
                    "{manager} is not a file: a hardware manager of our agent is an executable"
                );
                let name = file_name(path)?;
                self.executable(path, &format!("{HARDWARE_MANAGERS}/{name}"))
            }
            RamdiskAgent::Ipa if path.extension().is_some_and(|suffix| suffix == "py") => {
                self.files.extend(python::hardware_manager(path)?);
                Ok(())
            }
            RamdiskAgent::Ipa => {
                // Steps run in other directories.
                let there = path
                    .exists()
                    .then(|| std::path::absolute(path))
                    .transpose()?;
                let source = there.map(|path| path.to_string_lossy().into_owned());
                self.python
                    .push(source.unwrap_or_else(|| manager.to_owned()));
                Ok(())
            }
        }
    }

    fn ssh_keys(&mut self, agent: RamdiskAgent, keys: &[PathBuf]) -> Result<()> {
        if keys.is_empty() {
            return Ok(());
        }
        let mut text = String::new();
        for key in keys {
            let key = fs::read_to_string(key)
                .with_context(|| format!("cannot read {}", key.display()))?;
            if key.contains("PRIVATE KEY") {
                bail!("--ssh-key takes a public key; a private one must not be in a ramdisk");
            }
            text.push_str(key.trim_end());
            text.push('\n');
        }
        let directory = ArchiveContent::Directory;
        self.files.add("root", 0o700, directory.clone());
        self.files.add("root/.ssh", 0o700, directory);
        let keys = "root/.ssh/authorized_keys";
        self.files.add_file(keys, 0o600, text);
        let start = include_bytes!("../files/ssh");
        let script = format!("{ON_BOOT}/00-ssh");
        self.files.add_file(&script, 0o755, start.as_slice());
        if agent == RamdiskAgent::Trivet {
            let programs = [SHELL_PACKAGE, SSH_PACKAGE].map(str::to_owned);
            self.packages.extend(programs);
            let users = "root::0:0:root:/root:/bin/sh\n";
            self.files.add_file("etc/passwd", 0o644, users);
        }
        Ok(())
    }

    /// Adds all that determines the result to the key of the build.
    pub(crate) fn add_to_key(&self, key: &mut BuildKey) -> Result<()> {
        key.add(self.files.encode()?);
        key.add_all(&self.packages);
        key.add_all(look_up(&self.packages)?.iter().map(|found| &found.digest));
        key.add_all(&self.python);
        key.add_all(&self.modules);
        for source in self.python.iter().chain(&self.firmware) {
            if Path::new(source).exists() {
                key.add_path(Path::new(source))?;
            }
        }
        let (directories, packages): (Vec<_>, Vec<_>) =
            (self.firmware.iter()).partition(|source| Path::new(source).is_dir());
        key.add_all(&directories);
        key.add_all(look_up(packages)?.iter().map(|found| &found.digest));
        Ok(())
    }
}

fn file_name(path: &Path) -> Result<&str> {
    let name = path.file_name().and_then(|name| name.to_str());
    name.with_context(|| format!("{} names no file", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_absolute_and_stay_in_the_ramdisk() {
        let file: AddedFile = "a/b:/etc/c".parse().unwrap();
        assert_eq!((file.source, file.target), ("a/b".into(), "/etc/c".into()));
        for word in ["a", "a:b", ":/b", "a:/", "a:/../b", "a:/b/../c", "a:"] {
            assert!(word.parse::<AddedFile>().is_err(), "{word}");
        }
    }

    fn scratch(name: &str, content: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("{}-{name}", std::process::id()));
        fs::write(&path, content).unwrap();
        path
    }

    #[test]
    fn scripts_bring_a_shell_and_are_executable() {
        let script = scratch("boot", "#!/bin/sh\n");
        let mut added = RamdiskAdditions::default();
        added.executable(&script, "etc/x").unwrap();
        added
            .hardware_manager(RamdiskAgent::Trivet, script.to_str().unwrap())
            .unwrap();
        fs::remove_file(&script).unwrap();
        assert!(added.packages.contains(SHELL_PACKAGE));
        let mut want = CpioArchive::default();
        want.add_file("etc/x", 0o755, *b"#!/bin/sh\n");
        let name = file_name(&script).unwrap();
        want.add_file(
            &format!("{HARDWARE_MANAGERS}/{name}"),
            0o755,
            *b"#!/bin/sh\n",
        );
        assert_eq!(added.files, want);
    }

    #[test]
    fn a_manager_that_is_not_a_file_is_a_python_package_only_for_the_stock_agent() {
        let mut added = RamdiskAdditions::default();
        assert!(
            added
                .hardware_manager(RamdiskAgent::Trivet, "no-such-file")
                .is_err()
        );
        added
            .hardware_manager(RamdiskAgent::Ipa, "some-package")
            .unwrap();
        assert_eq!(added.python, ["some-package"]);
    }

    #[test]
    fn a_private_key_is_refused() {
        let key = scratch("key", "-----BEGIN OPENSSH PRIVATE KEY-----\n");
        let mut added = RamdiskAdditions::default();
        let refused = added.ssh_keys(RamdiskAgent::Ipa, std::slice::from_ref(&key));
        fs::remove_file(key).unwrap();
        assert!(refused.unwrap_err().to_string().contains("public key"));
    }

    #[test]
    fn each_addition_changes_the_key() {
        let key = |change: &dyn Fn(&mut RamdiskAdditions)| {
            let mut added = RamdiskAdditions::default();
            change(&mut added);
            let mut key = BuildKey::default();
            added.add_to_key(&mut key).unwrap();
            key.finish()
        };
        let keys = [
            key(&|_| {}),
            key(&|added| added.files.add_file("x", 0o644, *b"1")),
            key(&|added| added.files.add_file("x", 0o755, *b"1")),
            key(&|added| added.python.push("a".into())),
            key(&|added| added.modules.extend(["a".to_owned()])),
        ];
        let distinct: BTreeSet<_> = keys.iter().collect();
        assert_eq!(distinct.len(), keys.len());
    }
}
