//! Builds a ramdisk, or finds the result of the same build in the cache.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use clap::Args;

use crate::additions::{AdditionOptions, RamdiskAdditions};
use crate::fingerprint::BuildKey;
use crate::iso::{IsoOptions, make_iso};
use crate::program::{clear, remove, require};
use crate::{RamdiskAgent, debian, iso, kernel, own, stock};

/// The options of `trivet-image ramdisk`.
#[derive(Args)]
pub(crate) struct RamdiskOptions {
    /// The agent to include.
    #[arg(long)]
    agent: RamdiskAgent,
    /// Our agent: the static program, if it is not the one beside this program.
    #[arg(long, value_name = "PATH")]
    agent_binary: Option<PathBuf>,
    /// Directory for AGENT.kernel, AGENT.initramfs and AGENT.iso.
    #[arg(long, default_value = ".")]
    output: PathBuf,
    /// Directory of the build cache: the same ramdisk is not built twice.
    #[arg(long, default_value = "/var/cache/trivet-image")]
    cache: PathBuf,
    #[command(flatten)]
    additions: AdditionOptions,
    /// Also make an ISO image, as `trivet-image iso` does.
    #[arg(long)]
    iso: bool,
    /// Kernel arguments of the ISO image, such as ipa-api-url=http://192.0.2.1:6385.
    #[arg(
        long,
        default_value = "console=tty0 console=ttyS0 boot_method=vmedia",
        requires = "iso"
    )]
    kernel_args: String,
}

/// The built files, and whether they were cached.
pub(crate) struct RamdiskBuild {
    pub(crate) files: Vec<PathBuf>,
    pub(crate) reused: bool,
}

/// Builds. `say` is called for each step.
pub(crate) fn build(wanted: &RamdiskOptions, say: &mut dyn FnMut(&str)) -> Result<RamdiskBuild> {
    let of_agent = match wanted.agent {
        RamdiskAgent::Ipa => stock::PROGRAMS,
        RamdiskAgent::Trivet => own::PROGRAMS,
    };
    let of_iso = if wanted.iso { iso::PROGRAMS } else { &[] };
    require(&[of_agent, debian::PROGRAMS, kernel::PROGRAMS, of_iso])?;
    let agent = match wanted.agent {
        RamdiskAgent::Trivet => Some(own::agent_binary(wanted.agent_binary.as_deref())?),
        RamdiskAgent::Ipa => {
            let none = wanted.agent_binary.is_none();
            ensure!(none, "--agent-binary is for --agent trivet");
            None
        }
    };
    let package = debian::kernel_package()?;
    let added = RamdiskAdditions::read(wanted.agent, &wanted.additions)?;
    let mut key = BuildKey::default();
    match &agent {
        Some(agent) => own::add_to_key(&mut key, agent)?,
        None => stock::add_to_key(&mut key),
    }
    key.add(&package);
    key.add_all(
        debian::look_up([&package])?
            .iter()
            .map(|found| &found.digest),
    );
    added.add_to_key(&mut key)?;
    let key = key.finish();
    // Steps run in other directories.
    let cache = std::path::absolute(&wanted.cache)?;
    let cached = cache.join(&key);
    let is_reused = cached.join("ramdisk").is_file() && cached.join("kernel").is_file();
    if !is_reused {
        let place = cache.join(format!("{key}.new"));
        clear(&place)?;
        match &agent {
            Some(agent) => own::make(&place, &cache, &package, (agent, &added), say)?,
            None => stock::make(&place, &cache, &package, &added, say)?,
        }
        remove(&cached)?;
        fs::rename(&place, &cached)?;
    }
    fs::create_dir_all(&wanted.output)?;
    let name = wanted.agent.word();
    let mut files = Vec::new();
    for (from, suffix) in [("kernel", "kernel"), ("ramdisk", "initramfs")] {
        let to = wanted.output.join(format!("{name}.{suffix}"));
        fs::copy(cached.join(from), &to)
            .with_context(|| format!("cannot write {}", to.display()))?;
        files.push(to);
    }
    if wanted.iso {
        say("packing the ISO image");
        let output = wanted.output.join(format!("{name}.iso"));
        make_iso(&IsoOptions {
            output: output.clone(),
            initrd: cached.join("ramdisk"),
            kernel: cached.join("kernel"),
            kernel_args: wanted.kernel_args.clone(),
            cache,
        })?;
        files.push(output);
    }
    Ok(RamdiskBuild {
        files,
        reused: is_reused,
    })
}
