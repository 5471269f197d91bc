//! The fuzzer. `TRIVET_FUZZ` selects the target; without it, this prints the names of all. The
//! seeds are first written to the directory `TRIVET_FUZZ_SEEDS`.
#![no_main]
#![expect(clippy::print_stdout, reason = "the list of names is the output")]

use std::path::PathBuf;
use std::sync::OnceLock;

use trivet_tests_fuzz::{FuzzTarget, TARGETS, find};

static CHOSEN: OnceLock<FuzzTarget> = OnceLock::new();

libfuzzer_sys::fuzz_target!(
    init: choose(),
    |bytes: &[u8]| {
        if let Some(target) = CHOSEN.get() {
            (target.run)(bytes);
        }
    }
);

/// Runs once, before the fuzzer parses its arguments.
fn choose() {
    let name = std::env::var("TRIVET_FUZZ").unwrap_or_default();
    let Some(target) = find(&name) else {
        for target in TARGETS {
            println!("{}", target.name);
        }
        std::process::exit(i32::from(!name.is_empty()));
    };
    if let Some(directory) = std::env::var_os("TRIVET_FUZZ_SEEDS") {
        let directory = PathBuf::from(directory);
        for (number, seed) in (target.seeds)().iter().enumerate() {
            let file = directory.join(format!("seed-{number:02}"));
            std::fs::write(&file, seed).expect("the directory for seeds can be written");
        }
    }
    CHOSEN.set(target).expect("this runs once");
}
