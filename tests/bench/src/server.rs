//! The program under test, as its own process on its own core.
//!
//! It is built first, so that no figure is of an old build. Time on the processor
//! and memory come from the kernel's account of that process.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The core of the server; whoever measures takes the next one.
const SERVER_CORE: usize = 0;

/// Ticks of `/proc` in a second: `USER_HZ`, the same on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// Size of the store: enough for ten thousand nodes with agents.
pub(crate) const STORE_MIB: u64 = 256;

/// Which build of the program.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Profile {
    /// For figures.
    Release,
    /// For the test that a benchmark works.
    Dev,
}

/// Builds the program and tells where it lies. A test run of the whole house has
/// built the unoptimised one already: it lies beside the test.
pub fn build(profile: Profile) -> io::Result<PathBuf> {
    let here = std::env::current_exe()?;
    let beside = here.parent().and_then(Path::parent);
    if let Some(program) = beside.map(|beside| beside.join("trivet"))
        && profile == Profile::Dev
        && program.exists()
    {
        return Ok(program);
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml");
    let mut command = Command::new(cargo);
    command
        .args(["build", "--quiet", "--locked", "--package", "trivet-daemon"])
        .args(["--message-format", "json", "--manifest-path", manifest]);
    if profile == Profile::Release {
        command.arg("--release");
    }
    let output = command.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(io::Error::other("the program cannot be built"));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let mut programs = text.lines().rev().filter_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let file = message["executable"].as_str()?;
        (message["target"]["name"] == "trivet").then(|| PathBuf::from(file))
    });
    programs
        .next()
        .ok_or_else(|| io::Error::other("cargo named no program"))
}

/// The program at work. It ends with the value.
#[derive(Debug)]
pub struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    /// Starts the program with its data in this directory, and waits until it answers.
    pub fn start(program: &Path, data: &Path) -> io::Result<Self> {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
            .local_addr()?
            .port();
        let settings = data.with_extension("toml");
        fs::write(&settings, settings_text(data, port))?;
        let log = data.with_extension("log");
        let mut command = pinned(program, SERVER_CORE);
        let child = command
            .args(["serve", "--config"])
            .arg(&settings)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log)?)
            .spawn()?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut server = Self { child, address };
        server.wait_until_ready(&log)?;
        Ok(server)
    }

    /// The port is open before the records are read, so only an answer tells.
    fn wait_until_ready(&mut self, log: &Path) -> io::Result<()> {
        loop {
            if let Some(status) = self.child.try_wait()? {
                let said = fs::read_to_string(log)?;
                return Err(io::Error::other(format!("{status}: {said}")));
            }
            if let Ok(mut stream) = TcpStream::connect(self.address) {
                stream.write_all(b"GET / HTTP/1.1\r\nHost: box\r\nConnection: close\r\n\r\n")?;
                let mut answer = String::new();
                stream.read_to_string(&mut answer)?;
                return Ok(());
            }
            std::thread::yield_now();
        }
    }

    /// Where its API is.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its process.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Seconds it was on the processor so far, in user space and in the kernel.
    pub fn processor_seconds(&self) -> io::Result<f64> {
        let text = fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        // Fields of proc_pid_stat(5) after the name in parentheses: 14 and 15 of all
        // are utime and stime.
        let after = text.rsplit(')').next().unwrap_or_default();
        let field = |at: usize| after.split_whitespace().nth(at - 3)?.parse::<f64>().ok();
        field(14)
            .zip(field(15))
            .map(|(user, kernel)| (user + kernel) / TICKS_PER_SECOND)
            .ok_or_else(|| io::Error::other(format!("no times in {text:?}")))
    }

    /// Memory it holds, in MiB.
    pub fn resident_mib(&self) -> io::Result<f64> {
        let text = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let kib = text.lines().find_map(|line| {
            let value = line.strip_prefix("VmRSS:")?;
            value.trim().trim_end_matches(" kB").parse::<f64>().ok()
        });
        kib.map(|kib| kib / 1024.0)
            .ok_or_else(|| io::Error::other("no VmRSS"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Puts this process on the core beside the server's, so that neither takes time
/// from the other. Without `taskset` or a second core it stays where it is.
pub fn step_aside() {
    let (core, process) = (SERVER_CORE + 1, std::process::id());
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

fn pinned(program: &Path, core: usize) -> Command {
    let there = Command::new("taskset")
        .arg("--version")
        .stdout(Stdio::null())
        .status();
    if !there.is_ok_and(|status| status.success()) {
        return Command::new(program);
    }
    // It becomes the program, so its process is the program's.
    let mut command = Command::new("taskset");
    command.args(["--cpu-list", &core.to_string()]).arg(program);
    command
}

fn settings_text(data: &Path, port: u16) -> String {
    format!(
        "[box]\ndata = \"{}\"\nname = \"box\"\nstore_mib = {STORE_MIB}\n\
         [api]\nlisten = \"127.0.0.1:{port}\"\nauth = \"none\"\n\
         [hardware]\ntypes = [\"fake-hardware\"]\n",
        data.display()
    )
}
