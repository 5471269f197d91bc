//! Every target over its seeds, over mutated seeds, and over inputs that once failed.

use trivet_model::{Entropy as _, SeededRandom};
use trivet_tests_fuzz::{TARGETS, find, from_hex};

/// Mutated seeds for each target; the fuzzer runs a thousand times as many.
const ROUNDS: u64 = 3000;

/// Longest input, the same as the fuzzer's limit.
const INPUT_BYTES_MAX: usize = 4096;

#[test]
fn seeds_pass() {
    for target in TARGETS {
        let seeds = (target.seeds)();
        assert!(!seeds.is_empty(), "{} has no seeds", target.name);
        (target.run)(&[]);
        for seed in seeds {
            assert!(seed.len() <= INPUT_BYTES_MAX, "{}", target.name);
            (target.run)(&seed);
        }
    }
}

#[test]
fn changed_seeds_pass() {
    for target in TARGETS {
        let seeds = (target.seeds)();
        let mut random = SeededRandom::new(7);
        for _ in 0..ROUNDS {
            let mut input = seeds[random.below(seeds.len() as u64) as usize].clone();
            let other = &seeds[random.below(seeds.len() as u64) as usize];
            for _ in 0..random.below(5) {
                let at = random.below(input.len() as u64 + 1) as usize;
                match random.below(5) {
                    0 => input.truncate(at),
                    1 => input.extend_from_slice(&other[..at.min(other.len())]),
                    2 => input.insert(at, random.number() as u8),
                    _ if at < input.len() => input[at] = random.number() as u8,
                    _ => {}
                }
            }
            input.truncate(INPUT_BYTES_MAX);
            (target.run)(&input);
        }
    }
}

#[test]
fn regressions_pass() {
    for target in TARGETS {
        for text in target.regressions {
            let bytes = from_hex(text);
            let bytes = bytes.unwrap_or_else(|| panic!("{}: {text} is not hex", target.name));
            (target.run)(&bytes);
        }
    }
}

#[test]
fn targets_are_found_by_their_own_names() {
    for target in TARGETS {
        assert!(find(target.name).is_some_and(|found| found.name == target.name));
    }
    assert!(find("").is_none());
    assert_eq!(from_hex("00ff"), Some(vec![0, 255]));
    assert_eq!(from_hex("0"), None);
    assert_eq!(from_hex("0g"), None);
}
