//! A wire of one's own: a pair of interfaces in a network namespace that goes with the
//! thread it was made for.

use std::io;
use std::process::Command;

/// Runs `ip` with these arguments.
#[track_caller]
pub(crate) fn ip(arguments: &str) {
    let done = Command::new("ip").args(arguments.split(' ')).status();
    assert!(done.is_ok_and(|code| code.success()), "ip {arguments}");
}

/// Runs a test where `left` and `right` are two ends of a wire. Says so and does
/// nothing where namespaces are not to be had.
#[expect(unsafe_code, reason = "the system call has no safe wrapper in std")]
pub(crate) fn wire(test: impl FnOnce() + Send + 'static) {
    if Command::new("ip").arg("-V").output().is_err() {
        eprintln!("skipped: there is no program `ip` here");
        return;
    }
    let thread = std::thread::spawn(|| {
        // SAFETY: the call takes a number and changes this thread alone, which is ours.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            let error = io::Error::last_os_error();
            eprintln!("skipped: no network namespace is to be had here: {error}");
            return;
        }
        ip("link add left type veth peer name right");
        for end in ["left", "right"] {
            // Or the kernel would ask for IPv6 routers by itself.
            ip(&format!("link set {end} addrgenmode none"));
            ip(&format!("link set {end} up"));
        }
        test();
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}
