//! `trivet-image`: builds boot files. `trivet-image ramdisk` makes a kernel and a ramdisk with
//! our agent or with the stock Ironic Python Agent, on a Debian machine; `trivet-image iso` makes
//! an ISO image of any kernel and ramdisk.

mod additions;
mod build;
mod cpio;
mod debian;
mod fingerprint;
mod iso;
mod kernel;
mod modules;
mod own;
mod program;
mod python;
mod recipe;
mod stock;

use std::io::Write as _;

use clap::{Parser, Subcommand, ValueEnum};

use build::{RamdiskOptions, build};
use iso::{IsoOptions, make_iso};

#[derive(Parser)]
#[command(version, about = "Builds what machines boot")]
struct RamdiskArguments {
    #[command(subcommand)]
    what: RamdiskCommand,
}

#[derive(Subcommand)]
enum RamdiskCommand {
    /// Build a kernel and a ramdisk with an agent, for `boot.kernel` and `boot.ramdisk`.
    Ramdisk(Box<RamdiskOptions>),
    /// Make an ISO image that BIOS and UEFI boot, of any kernel and ramdisk.
    Iso(IsoOptions),
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum RamdiskAgent {
    /// The stock Ironic Python Agent: a ramdisk of about 100 MB; needs root and mmdebstrap.
    Ipa,
    /// Our own agent: a ramdisk of about 10 MB.
    Trivet,
}

impl RamdiskAgent {
    /// The name of its files.
    const fn word(self) -> &'static str {
        match self {
            Self::Ipa => "ipa",
            Self::Trivet => "trivet",
        }
    }
}

fn main() -> anyhow::Result<()> {
    let options = match RamdiskArguments::parse().what {
        RamdiskCommand::Ramdisk(options) => options,
        RamdiskCommand::Iso(options) => {
            make_iso(&options)?;
            writeln!(std::io::stdout(), "{}", options.output.display())?;
            return Ok(());
        }
    };
    let mut out = std::io::stderr();
    let built = build(&options, &mut |step| {
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
