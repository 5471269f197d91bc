//! Programs under test, each in its own process on its own core.
//!
//! CPU time and memory come from the kernel's statistics of the process.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

/// The core of the server; the measuring process uses the next one.
const SERVER_CORE: usize = 0;

/// The cores of a program.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CoreSet {
    /// The servers' core.
    Servers,
    /// That and the next one.
    Both,
}

impl CoreSet {
    /// In the format of `taskset`.
    fn list(self) -> String {
        match self {
            Self::Servers => SERVER_CORE.to_string(),
            Self::Both => format!("{SERVER_CORE},{}", SERVER_CORE + 1),
        }
    }
}

/// Ticks of `/proc` per second: `USER_HZ`, the same on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// The measuring process and all servers have priority over other work: the lowest real-time
/// priority of sched(7).
const PRIORITY: &str = "1";

/// A running program. It is ended when the value is dropped.
#[derive(Debug)]
pub struct BenchProcess {
    child: Child,
    log: PathBuf,
}

impl BenchProcess {
    /// Starts a program on the servers' core; its output goes to `log`.
    pub fn start(
        program: &Path,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
        log: &Path,
    ) -> io::Result<Self> {
        Self::on(CoreSet::Servers, program, arguments, log)
    }

    /// The same, on these cores.
    pub fn on(
        cores: CoreSet,
        program: &Path,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
        log: &Path,
    ) -> io::Result<Self> {
        let log_file = File::create(log)?;
        let mut command = pinned(program, cores);
        let child = command
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(log_file.try_clone()?)
            .stderr(log_file)
            .spawn()?;
        let log = log.to_owned();
        Ok(Self { child, log })
    }

    /// An error with all its output, if it has ended.
    pub fn check(&mut self) -> io::Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => {
                let text = fs::read_to_string(&self.log)?;
                Err(io::Error::other(format!("{status}: {text}")))
            }
        }
    }

    /// Its exit status, once it has ended.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// CPU time so far in seconds, in user space and in the kernel.
    pub fn processor_seconds(&self) -> io::Result<f64> {
        stat_seconds(&format!("/proc/{}/stat", self.child.id()), [14, 15])
    }

    /// Resident memory, in MiB.
    pub fn resident_mib(&self) -> io::Result<f64> {
        self.status_mib("VmRSS")
    }

    /// Peak resident memory, in MiB.
    pub fn peak_mib(&self) -> io::Result<f64> {
        self.status_mib("VmHWM")
    }

    /// A size of `proc_pid_status(5)`.
    fn status_mib(&self, name: &str) -> io::Result<f64> {
        let text = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let kib = text.lines().find_map(|line| {
            let value = line.strip_prefix(name)?.strip_prefix(':')?;
            value.trim().trim_end_matches(" kB").parse::<f64>().ok()
        });
        kib.map(|kib| kib / 1024.0)
            .ok_or_else(|| io::Error::other(format!("no {name}")))
    }
}

impl Drop for BenchProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// CPU time of this process so far in seconds.
///
/// # Errors
///
/// When `/proc` cannot be read.
pub fn own_seconds() -> io::Result<f64> {
    stat_seconds("/proc/self/stat", [14, 15])
}

/// CPU time in seconds of the ended child processes of this one.
///
/// # Errors
///
/// When `/proc` cannot be read.
pub fn children_seconds() -> io::Result<f64> {
    stat_seconds("/proc/self/stat", [16, 17])
}

/// The sum of two times of `proc_pid_stat(5)`: 14 and 15 of its fields are the times of the
/// process in user space and in the kernel, 16 and 17 those of its children.
fn stat_seconds(path: &str, fields: [usize; 2]) -> io::Result<f64> {
    let text = fs::read_to_string(path)?;
    // The name in parentheses is the second field.
    let after = text.rsplit(')').next().unwrap_or_default();
    let field = |at: usize| after.split_whitespace().nth(at - 3)?.parse::<f64>().ok();
    let [user, kernel] = fields.map(field);
    user.zip(kernel)
        .map(|(user, kernel)| (user + kernel) / TICKS_PER_SECOND)
        .ok_or_else(|| io::Error::other(format!("no times in {text:?}")))
}

/// Moves this process to the core next to the server's, so that they do not compete. Without
/// `taskset` or a second core it stays where it is.
pub fn leave_server_core() {
    let (core, process) = (SERVER_CORE + 1, std::process::id());
    // Servers inherit it: all of them have the same priority over other work on this machine.
    // Needs root; without it, other work affects the figures.
    let _ = Command::new("chrt")
        .args(["--rr", "--pid", PRIORITY, &process.to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let moved = Command::new("taskset")
        .args(["--all-tasks", "--cpu-list", "--pid"])
        .args([core.to_string(), process.to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if !moved.is_ok_and(|status| status.success()) {
        eprintln!("no separate cores: rates by the clock mean little");
    }
}

fn pinned(program: &Path, cores: CoreSet) -> Command {
    let there = Command::new("taskset")
        .arg("--version")
        .stdout(Stdio::null())
        .status();
    if !there.is_ok_and(|status| status.success()) {
        return Command::new(program);
    }
    // taskset executes the program, so its process is the program's.
    let mut command = Command::new("taskset");
    command.args(["--cpu-list", &cores.list()]).arg(program);
    command
}
