//! How many files and sockets this process may have open.

use std::io;

/// Raises the bound to what the system lets us have, and tells it.
#[expect(unsafe_code, reason = "the system calls have no safe wrapper in std")]
pub fn raise_open_files() -> io::Result<u64> {
    let mut bound = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the kernel writes into `bound`, which lives through the call.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut bound) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let before = bound.rlim_cur;
    bound.rlim_cur = bound.rlim_max;
    // SAFETY: the kernel reads `bound`, which lives through the call.
    let raised = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const bound) } == 0;
    Ok(if raised { bound.rlim_max } else { before })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_raised_once_and_stays() {
        let bound = raise_open_files().unwrap();
        assert!(bound > 64);
        assert_eq!(raise_open_files().unwrap(), bound);
    }
}
