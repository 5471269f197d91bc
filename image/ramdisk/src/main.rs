//! `trivet-image`: builds boot files. `trivet-image ramdisk --agent ipa` makes a kernel and a
//! ramdisk with the stock Ironic Python Agent, on a Debian machine with root.

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
    /// Build a kernel and a ramdisk with an agent, for `boot.kernel` and `boot.ramdisk`.
    Ramdisk {
        /// The agent to include.
        #[arg(long)]
        agent: RamdiskAgent,
        /// Directory for ipa.kernel, ipa.initramfs and ipa.iso.
        #[arg(long, default_value = ".")]
        output: PathBuf,
        /// Directory of the build cache: the same recipe is not built twice.
        #[arg(long, default_value = "/var/cache/trivet-image")]
        cache: PathBuf,
        /// Also make an ISO image, for machines that cannot boot from the network (BIOS).
        #[arg(long)]
        iso: bool,
        /// Kernel arguments of the ISO image, such as ipa-api-url=http://192.0.2.1:6385.
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
        // Without a reader only this progress text is lost.
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
