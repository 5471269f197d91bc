//! Memory of this process: what is in it stays there, as passwords are in it in plain while
//! they are used; and what is free goes back to the system.

use std::io;

/// Keeps this process out of core dumps, and from debuggers of others than root.
#[expect(unsafe_code, reason = "the system call has no safe wrapper in std")]
pub fn disable_core_dumps() -> io::Result<()> {
    // SAFETY: PR_SET_DUMPABLE takes one number and touches no memory of ours.
    match unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Gives freed memory back to the system. glibc keeps it otherwise, as long as something in
/// use lies behind it.
#[cfg(target_env = "gnu")]
#[expect(unsafe_code, reason = "the call has no safe wrapper in std")]
pub fn give_memory_back() {
    // SAFETY: malloc_trim takes a number, and gives back only pages that nothing in use is on.
    unsafe { libc::malloc_trim(0) };
}

/// Other C libraries give freed memory back by themselves.
#[cfg(not(target_env = "gnu"))]
pub fn give_memory_back() {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory of this process in the machine, in KiB.
    #[cfg(target_env = "gnu")]
    fn resident_kib() -> usize {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let word = line.unwrap().split_whitespace().next().unwrap();
        word.parse().unwrap()
    }

    #[test]
    #[cfg(target_env = "gnu")]
    fn freed_memory_behind_which_something_is_in_use_goes_back_to_the_system() {
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
    #[expect(unsafe_code, reason = "asks the kernel what it was told")]
    fn a_process_that_keeps_to_itself_is_not_dumped() {
        disable_core_dumps().unwrap();
        // SAFETY: PR_GET_DUMPABLE takes nothing and touches no memory of ours.
        assert_eq!(unsafe { libc::prctl(libc::PR_GET_DUMPABLE) }, 0);
    }
}
