//! Our agent beside the stock Ironic Python Agent, each in its own ramdisk in the same QEMU
//! guest: CPU seconds of QEMU from power-on to the first heartbeat, and for each GiB of an image.
//! The first run builds both ramdisks, which takes some minutes and needs root.
#![expect(clippy::print_stdout, reason = "figures go to standard output")]

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use trivet_tests_bench::agent::{self, AgentBenchResult, AgentBenchScale};
use trivet_tests_bench::claim::{RatioClaim, RatioLimit, RatioSample, check_claims};
use trivet_tests_bench::peers::BenchDirectory;

/// The scale of the goals. The stock agent needs the memory.
const SCALE: AgentBenchScale = AgentBenchScale {
    image_mib: 512,
    zero_chunks: 32,
    memory_mib: 3072,
    timeout: Duration::from_mins(20),
};

/// The goals.
const CLAIMS: [RatioClaim; 3] = [
    RatioClaim {
        name: "CPU seconds to the first heartbeat",
        limit: RatioLimit::AtMost(1.0 / 6.0),
    },
    RatioClaim {
        name: "CPU seconds per GiB of random bytes",
        limit: RatioLimit::AtMost(0.5),
    },
    RatioClaim {
        name: "CPU seconds per GiB of zeros",
        limit: RatioLimit::AtMost(0.5),
    },
];

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let (ours, stock) = (
        agent::build_ramdisk("trivet")?,
        agent::build_ramdisk("ipa")?,
    );
    let run = || {
        let measured = [&ours, &stock].map(|ramdisk| {
            let scratch = BenchDirectory::new("agent")?;
            agent::measure(ramdisk, scratch.path(), SCALE)
        });
        let [ours, stock] = measured;
        Ok(samples(ours?, stock?))
    };
    let holds = check_claims(&CLAIMS, run, &mut |line| println!("{line}"))?;
    Ok(if holds {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// In the order of the claims.
fn samples(ours: AgentBenchResult, stock: AgentBenchResult) -> Vec<RatioSample> {
    let both = [
        (ours.boot_s, stock.boot_s),
        (ours.random_s_per_gib, stock.random_s_per_gib),
        (ours.zeros_s_per_gib, stock.zeros_s_per_gib),
    ];
    let sample = |(ours, peer)| RatioSample {
        ours,
        peer,
        peer_name: "stock",
    };
    both.map(sample).to_vec()
}
