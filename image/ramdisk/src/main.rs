//! `trivet-image`: builds what machines boot. `trivet-image ramdisk --agent ipa` makes a
//! kernel and a ramdisk with the stock Ironic Python Agent, on a Debian machine with root.

mod build;
mod modules;
mod recipe;

use std::io::Write as _;
use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

use build::{RamdiskOptions, build};

#[derive(Parser)]
#[command(version, about = "Builds what machines boot")]
struct RamdiskArguments {
    #[command(subcommand)]
    what: RamdiskCommand,
}

#[derive(Subcommand)]
enum RamdiskCommand {
    /// Kernel and ramdisk with an agent, for `boot.kernel` and `boot.ramdisk`.
    Ramdisk {
        /// Which agent.
        #[arg(long)]
        agent: RamdiskAgent,
        /// Where to put ipa.kernel, ipa.initramfs and ipa.iso.
        #[arg(long, default_value = ".")]
        output: PathBuf,
        /// Where to keep what was built: the same recipe is not built twice.
        #[arg(long, default_value = "/var/cache/trivet-image")]
        cache: PathBuf,
        /// A disc too, for machines that cannot boot from the network (BIOS).
        #[arg(long)]
        iso: bool,
        /// Words on the disc's kernel line, such as ipa-api-url=http://192.0.2.1:6385.
        #[arg(long, default_value = "console=tty0 console=ttyS0", requires = "iso")]
        kernel_args: String,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum RamdiskAgent {
    /// The stock Ironic Python Agent.
    Ipa,
}

fn main() -> anyhow::Result<()> {
    let RamdiskCommand::Ramdisk {
        agent: RamdiskAgent::Ipa,
        output,
        cache,
        iso,
        kernel_args,
    } = RamdiskArguments::parse().what;
    let mut out = std::io::stderr();
    let wanted = RamdiskOptions {
        output,
        cache,
        disc: iso,
        kernel_args,
    };
    let built = build(&wanted, &mut |step| {
        // Who does not read along misses nothing but that.
        let _unread = writeln!(out, "trivet-image: {step}");
    })?;
    let how = if built.reused {
        "as built before"
    } else {
        "built"
    };
    for file in built.files {
        writeln!(std::io::stdout(), "{} ({how})", file.display())?;
    }
    Ok(())
}
