//! Memory of this process: protects it from core dumps, because passwords are in it in clear
//! text while they are used, and returns freed memory to the system.

use std::io;

use rustix::process::{DumpableBehavior, set_dumpable_behavior};

/// Disables core dumps, and debuggers of users other than root.
pub fn disable_core_dumps() -> io::Result<()> {
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// Returns freed memory to the system. glibc keeps it otherwise, as long as memory at a higher
/// address is in use.
#[cfg(target_env = "gnu")]
#[expect(unsafe_code, reason = "the call has no safe wrapper in std")]
pub fn give_memory_back() {
    // SAFETY: malloc_trim takes a number, and returns only unused pages.
    unsafe { libc::malloc_trim(0) };
}

/// Other C libraries return freed memory by themselves.
#[cfg(not(target_env = "gnu"))]
pub fn give_memory_back() {}

/// The size of a page of memory.
pub fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

/// The unit of CPU times in `/proc`, as a number in one second.
pub fn clock_ticks_per_s() -> u64 {
    rustix::param::clock_ticks_per_second()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Resident memory of this process, in KiB.
    #[cfg(target_env = "gnu")]
    fn resident_kib() -> usize {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let word = line.unwrap().split_whitespace().next().unwrap();
        word.parse().unwrap()
    }

    #[test]
    #[cfg(target_env = "gnu")]
    fn freed_memory_below_used_memory_is_returned_to_the_system() {
        let mut blocks: Vec<Vec<u8>> = (0..64 << 10).map(|_| vec![1; 1 << 10]).collect();
        let last = blocks.pop();
        drop(blocks);
        let before = resident_kib();
        give_memory_back();
        let after = resident_kib();
        assert!(after + (32 << 10) <= before, "{before} KiB, then {after}");
        drop(last);
    }

    #[test]
    fn a_protected_process_is_not_dumped() {
        disable_core_dumps().unwrap();
        let behavior = rustix::process::dumpable_behavior().unwrap();
        assert_eq!(behavior, DumpableBehavior::NotDumpable);
    }
}
