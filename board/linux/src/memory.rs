//! What is in memory stays there: passwords are, in plain, while they are used.

use std::io;

/// Keeps this process out of core dumps, and from debuggers of others than root.
#[expect(unsafe_code, reason = "the system call has no safe wrapper in std")]
pub fn keep_private() -> io::Result<()> {
    // SAFETY: PR_SET_DUMPABLE takes one number and touches no memory of ours.
    match unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(unsafe_code, reason = "asks the kernel what it was told")]
    fn a_process_that_keeps_to_itself_is_not_dumped() {
        keep_private().unwrap();
        // SAFETY: PR_GET_DUMPABLE takes nothing and touches no memory of ours.
        assert_eq!(unsafe { libc::prctl(libc::PR_GET_DUMPABLE) }, 0);
    }
}
