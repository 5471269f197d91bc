//! Switches the machine off, and restarts it.

use std::process::Command;

use rustix::fs::sync;
use rustix::system::{RebootCommand, reboot};

/// Switches the machine off. In a ramdisk there is nothing to stop before; elsewhere the
/// service manager does it.
pub fn power_off(in_ramdisk: bool) {
    leave(in_ramdisk, RebootCommand::PowerOff, "poweroff");
}

/// Restarts the machine.
pub fn restart(in_ramdisk: bool) {
    leave(in_ramdisk, RebootCommand::Restart, "reboot");
}

fn leave(in_ramdisk: bool, order: RebootCommand, program: &str) {
    sync();
    let done = if in_ramdisk {
        reboot(order).map_err(std::io::Error::from)
    } else {
        Command::new(program).status().map(|_| ())
    };
    if let Err(error) = done {
        super::init::log(&format!("{program}: {error}"));
    }
}
