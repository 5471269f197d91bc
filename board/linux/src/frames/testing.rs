//! A private network: a veth pair in a network namespace that ends with its thread.

use std::io;
use std::process::Command;

/// Runs `ip` with these arguments.
#[track_caller]
pub(crate) fn ip(arguments: &str) {
    let done = Command::new("ip").args(arguments.split(' ')).status();
    assert!(done.is_ok_and(|code| code.success()), "ip {arguments}");
}

/// Runs a test where `left` and `right` are the two ends of a veth pair. Without network
/// namespaces it prints a message and skips the test.
#[expect(unsafe_code, reason = "the system call has no safe wrapper in std")]
pub(crate) fn wire(test: impl FnOnce() + Send + 'static) {
    if Command::new("ip").arg("-V").output().is_err() {
        eprintln!("skipped: the program `ip` is missing");
        return;
    }
    let thread = std::thread::spawn(|| {
        // SAFETY: the call takes a number and changes only this thread, which is ours.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            let error = io::Error::last_os_error();
            eprintln!("skipped: no network namespaces: {error}");
            return;
        }
        ip("link add left type veth peer name right");
        for end in ["left", "right"] {
            // Otherwise the kernel sends router solicitations by itself.
            ip(&format!("link set {end} addrgenmode none"));
            ip(&format!("link set {end} up"));
        }
        test();
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}
