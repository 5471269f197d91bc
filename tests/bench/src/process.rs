//! Programs under test, each in its own process on its own core.
//!
//! Time on the processor and memory come from the kernel's account of the process.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

/// The core of the server; whoever measures takes the next one.
const SERVER_CORE: usize = 0;

/// Where a program may run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CoreSet {
    /// On the servers' core.
    Servers,
    /// On that and the next one.
    Both,
}

impl CoreSet {
    /// As `taskset` takes them.
    fn list(self) -> String {
        match self {
            Self::Servers => SERVER_CORE.to_string(),
            Self::Both => format!("{SERVER_CORE},{}", SERVER_CORE + 1),
        }
    }
}

/// Ticks of `/proc` in a second: `USER_HZ`, the same on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// Whoever measures, and all servers, go before other work: the least of sched(7) that does.
const PRIORITY: &str = "1";

/// A program at work. It ends with the value.
#[derive(Debug)]
pub struct BenchProcess {
    child: Child,
    log: PathBuf,
}

impl BenchProcess {
    /// Starts a program on the servers' core; what it says goes to `log`.
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
        let said = File::create(log)?;
        let mut command = pinned(program, cores);
        let child = command
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(said.try_clone()?)
            .stderr(said)
            .spawn()?;
        let log = log.to_owned();
        Ok(Self { child, log })
    }

    /// An error with all it said, if it has ended.
    pub fn check(&mut self) -> io::Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => {
                let said = fs::read_to_string(&self.log)?;
                Err(io::Error::other(format!("{status}: {said}")))
            }
        }
    }

    /// How it ended, once it has.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Seconds it was on the processor so far, in user space and in the kernel.
    pub fn processor_seconds(&self) -> io::Result<f64> {
        stat_seconds(&format!("/proc/{}/stat", self.child.id()), [14, 15])
    }

    /// Memory it holds, in MiB.
    pub fn resident_mib(&self) -> io::Result<f64> {
        self.status_mib("VmRSS")
    }

    /// Memory it held at most, in MiB.
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

/// Seconds that this process was on the processor so far.
///
/// # Errors
///
/// When the kernel does not tell.
pub fn own_seconds() -> io::Result<f64> {
    stat_seconds("/proc/self/stat", [14, 15])
}

/// Seconds that processes were on the processor which this one started and which ended.
///
/// # Errors
///
/// When the kernel does not tell.
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

/// Puts this process on the core beside the server's, so that neither takes time
/// from the other. Without `taskset` or a second core it stays where it is.
pub fn leave_server_core() {
    let (core, process) = (SERVER_CORE + 1, std::process::id());
    // Servers inherit it: other work on this machine comes after all of them alike. Only
    // root may; without it figures are of a machine that does other things as well.
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
        eprintln!("no core of its own for each: rates by the clock mean little");
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
    // It becomes the program, so its process is the program's.
    let mut command = Command::new("taskset");
    command.args(["--cpu-list", &cores.list()]).arg(program);
    command
}
