//! The log of the program: lines at the console, in the kernel's log where the agent is in its
//! own ramdisk, and the last ones in memory, for log collection.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, Write as _};
use std::sync::{Mutex, PoisonError};

/// Most lines in memory. Ours.
pub(super) const JOURNAL_LINES_MAX: usize = 2000;

static LINES: Mutex<VecDeque<String>> = Mutex::new(VecDeque::new());

/// Writes a line.
pub fn log(line: &str) {
    if rustix::process::getppid().is_some_and(rustix::process::Pid::is_init)
        && let Ok(mut kernel_log) = fs::OpenOptions::new().write(true).open("/dev/kmsg")
    {
        // Level 7 is not shown on the console, which gets the line from below.
        let _ = writeln!(kernel_log, "<7>trivet-agent: {line}");
    }
    let _ = writeln!(io::stderr(), "trivet-agent: {line}");
    let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    if lines.len() >= JOURNAL_LINES_MAX {
        lines.pop_front();
    }
    lines.push_back(format!("{} {line}", super::clock::unix_s()));
}

/// The lines in memory, oldest first. The first number is the time in seconds since 1970.
pub(super) fn lines() -> Vec<String> {
    let lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    lines.iter().cloned().collect()
}
