//! Process 1: mounts, modules, the agent as a child, and ended processes.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use rustix::mount::{MountFlags, mount};
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SocketType, bind, recv, socket};
use rustix::process::{Pid, WaitOptions, wait};

use super::RAMDISK_ARGUMENT;
use super::modules::ModuleLoader;
use super::uevent::added_alias;

/// Pause before an agent that ended is started again. That of the stock agent's unit.
const RESTART_PAUSE: Duration = Duration::from_secs(30);

/// Longest message of the kernel about a device. The kernel's UEVENT_BUFFER_SIZE is 2048.
const UEVENT_BYTES_MAX: usize = 8 * 1024;

/// The group of the kernel's own messages about devices.
const UEVENT_GROUP: u32 = 1;

/// File systems: kind, place, options. Later ones may need earlier ones.
const MOUNTS: [(&str, &str, &str); 6] = [
    ("devtmpfs", "/dev", "mode=755"),
    ("proc", "/proc", ""),
    ("sysfs", "/sys", ""),
    ("tmpfs", "/run", "mode=755"),
    ("tmpfs", "/tmp", "mode=1777"),
    ("devpts", "/dev/pts", "mode=620"),
];

/// Where programs are.
const PROGRAM_PATH: &str = "/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Mounted after the modules are loaded, where the firmware is UEFI.
const EFI_VARIABLES: &str = "/sys/firmware/efi/efivars";

/// Writes a line for the technician at the console, and for the log of the kernel, which the
/// agent collects.
pub(crate) fn log(line: &str) {
    if let Ok(mut kernel_log) = fs::OpenOptions::new().write(true).open("/dev/kmsg") {
        // Level 7: not shown on the console, which gets the line from below.
        let _ = writeln!(kernel_log, "<7>trivet-agent: {line}");
    }
    let _ = writeln!(io::stderr(), "trivet-agent: {line}");
}

/// Runs until the machine is switched off.
pub fn run_as_init() -> ! {
    for (kind, place, options) in MOUNTS {
        mount_one(kind, place, options);
    }
    // Programs of others look for their standard streams here.
    for (name, target) in [
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
    ] {
        let _ = symlink(target, Path::new("/dev").join(name));
    }
    // Without a name from DHCP the kernel's is `(none)`.
    let _ = rustix::system::sethostname(b"localhost");
    log("started as process 1");
    let events = listen_to_kernel();
    let mut loader = ModuleLoader::of_this_kernel();
    let loaded = loader.load_for_devices();
    log(&format!("modules: {}", loaded.join(" ")));
    if Path::new(EFI_VARIABLES).exists() {
        mount_one("efivarfs", EFI_VARIABLES, "");
    }
    if let Some(events) = events {
        thread::spawn(move || load_later(&mut loader, &events));
    }
    loop {
        match start_agent() {
            Ok(child) => log(&format!("the agent ended: {}", wait_for(&child))),
            Err(error) => log(&format!("the agent cannot be started: {error}")),
        }
        pause(RESTART_PAUSE);
    }
}

fn mount_one(kind: &str, place: &str, options: &str) {
    let _ = fs::create_dir_all(place);
    let flags = MountFlags::NOSUID;
    let options = std::ffi::CString::new(options).ok();
    match mount(kind, place, kind, flags, options.as_deref()) {
        // The kernel may have mounted /dev by itself.
        Ok(()) | Err(rustix::io::Errno::BUSY) => {}
        Err(error) => log(&format!("{place}: {error}")),
    }
}

fn start_agent() -> io::Result<Child> {
    Command::new("/proc/self/exe")
        .arg(RAMDISK_ARGUMENT)
        .env("PATH", PROGRAM_PATH)
        .env("HOME", "/root")
        .spawn()
}

/// Waits for the agent, and collects the orphans that end meanwhile.
fn wait_for(child: &Child) -> ExitStatus {
    loop {
        if let Ok(Some((ended, status))) = wait(WaitOptions::empty())
            && ended.as_raw_nonzero().get() == child.id().cast_signed()
        {
            return ExitStatus::from_raw(status.as_raw());
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "process 1 has nothing else to do and no runtime"
)]
fn pause(time: Duration) {
    thread::sleep(time);
}

/// Receives the messages of the kernel about devices; opened before the first search, so that
/// none is lost.
fn listen_to_kernel() -> Option<Receiver<Vec<u8>>> {
    let family = AddressFamily::NETLINK;
    let socket = socket(family, SocketType::DGRAM, Some(netlink::KOBJECT_UEVENT)).ok()?;
    bind(&socket, &SocketAddrNetlink::new(0, UEVENT_GROUP)).ok()?;
    let (sender, receiver) = mpsc::sync_channel(1024);
    thread::spawn(move || {
        let mut buffer = vec![0; UEVENT_BYTES_MAX];
        loop {
            // ENOBUFS: messages were lost. The devices of later ones are still found.
            let Ok((length, _)) = recv(&socket, &mut buffer[..], RecvFlags::empty()) else {
                continue;
            };
            let message = buffer[..length.min(UEVENT_BYTES_MAX)].to_vec();
            if sender.send(message).is_err() {
                return;
            }
        }
    });
    Some(receiver)
}

/// Loads modules for devices that appear later.
fn load_later(loader: &mut ModuleLoader, events: &Receiver<Vec<u8>>) {
    while let Ok(message) = events.recv() {
        let mut loaded = Vec::new();
        if let Some(alias) = added_alias(&message) {
            loader.load_for_alias(alias, &mut loaded);
        }
        if !loaded.is_empty() {
            log(&format!("modules: {}", loaded.join(" ")));
        }
    }
}

/// Whether this is process 1, the first program of a ramdisk.
pub fn is_init() -> bool {
    rustix::process::getpid() == Pid::INIT
}
