//! Random requests, faults and restarts from a seed.

use trivet_model::{Entropy as _, SeededRandom};

use super::*;

/// Images of one run: two raw ones and two packed ones.
fn images() -> Vec<(ImageSpec, Vec<u8>, Vec<u8>)> {
    let mut all = Vec::new();
    for seed in 0..4 {
        let raw = content(seed);
        let name = format!("{seed}.raw");
        if seed < 2 {
            all.push((spec(&name, &raw), raw.clone(), raw));
        } else {
            let bytes = sim_pack(&raw);
            let spec = ImageSpec {
                format: ImageFormat::Zstd,
                ..spec(&name, &bytes)
            };
            all.push((spec, bytes, raw));
        }
    }
    all
}

/// A reader may never get the whole of other bytes, except where a stored file rotted since it was
/// verified: then verifying again must find that.
fn check_reads(
    bench: &mut LibraryBench,
    all: &[(ImageSpec, Vec<u8>, Vec<u8>)],
    corrupt: bool,
    seed: u64,
) {
    for (spec, _, raw) in all {
        let Ok(grant) = bench.read(spec) else {
            continue;
        };
        if let SimImageRead::Whole(bytes) = bench.shell.read(grant.entry) {
            assert!(
                corrupt || bytes == *raw,
                "seed {seed}: {} is wrong",
                spec.name
            );
        }
    }
}

fn run_seed(seed: u64) {
    let mut chance = SeededRandom::new(seed);
    let all = images();
    let size = all[2].1.len() as u64 * SIM_SCALE;
    let limited = ImageLibraryOptions {
        quota_bytes: chance.chance(300).then_some(size * (3 + chance.below(6))),
        scrub_ms: chance.chance(300).then_some(60_000),
        retry_delay_ms: chance.below(3) * 2000,
        ..options()
    };
    let mut bench = LibraryBench::new(limited.clone());
    for (spec, bytes, _) in &all {
        bench.serve(spec, bytes);
    }
    let mut corrupt = false;
    for _ in 0..(20 + chance.below(60)) {
        let (spec, bytes, raw) = &all[chance.below(4) as usize];
        match chance.below(14) {
            0..=2 => bench.want(spec, chance.chance(500)),
            3 => drop(bench.read(spec)),
            4 => {
                bench.library.verify_again(bench.now, spec);
                bench.pump();
            }
            5 => bench.source(spec).is_gone = chance.chance(500),
            6 => {
                let after = chance.below(bytes.len() as u64) as usize;
                bench.source(spec).cut_after = chance.chance(700).then_some(after.max(1));
            }
            7 => {
                let source = bench.source(spec);
                let at = chance.below(source.content.len() as u64) as usize;
                source.content[at] ^= 1;
                source.validator = Some(format!("\"{}\"", chance.number()));
            }
            8 => bench.serve(spec, bytes),
            9 => {
                bench.library.drop_image(bench.now, spec.digest);
                bench.pump();
            }
            10 => {
                let at = chance.below(raw.len() as u64) as usize;
                corrupt |= bench.shell.disk.rot(ImageKey(sha256(raw)), at);
            }
            11 => {
                let free = bench.shell.disk.free_bytes();
                let shrinks = chance.chance(500);
                bench.shell.disk.capacity = if shrinks { 3000 } else { free + (1 << 20) };
            }
            12 => {
                let stored = chance.below(1001);
                bench.shell.disk.cut_power(stored, chance.chance(500));
                let sources = std::mem::take(&mut bench.shell.sources);
                bench = LibraryBench::with_disk(limited.clone(), bench.shell.disk);
                bench.shell.sources = sources;
                corrupt = false;
            }
            _ => {}
        }
        for _ in 0..chance.below(12) {
            bench.step();
        }
        check_reads(&mut bench, &all, corrupt, seed);
    }
    check_end(bench, &all, seed);
}

/// The faults have ended, and every image can be had.
fn check_end(mut bench: LibraryBench, all: &[(ImageSpec, Vec<u8>, Vec<u8>)], seed: u64) {
    bench.shell.disk.capacity = 1 << 30;
    bench.library.options.quota_bytes = None;
    for (spec, bytes, _) in all {
        bench.serve(spec, bytes);
    }
    // An image that is being repaired now is not verified again before that has ended.
    for _ in 0..2 {
        for (spec, _, _) in all {
            bench.library.verify_again(bench.now, spec);
            bench.pump();
        }
        bench.run();
    }
    for (spec, _, raw) in all {
        bench.want(spec, true);
        bench.run();
        let state = bench.state(spec);
        assert_eq!(
            state,
            Some(ImageState::Complete),
            "seed {seed}: {}",
            spec.name
        );
        let is_right = bench.read_all(spec).as_ref() == Ok(raw);
        assert!(is_right, "seed {seed}: {}", spec.name);
    }
    let keys = bench.shell.disk.whole_images();
    assert!(keys.len() <= 6, "seed {seed}: {keys:?}");
}

#[test]
fn whatever_happens_every_image_is_right_in_the_end() {
    for seed in 0..2000 {
        run_seed(seed);
    }
}
