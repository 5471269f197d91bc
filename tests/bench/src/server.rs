//! Our own program under test. It is built first, so that no figure is of an old build.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::process::{BenchProcess, CoreSet};

/// Size of the store: enough for ten thousand nodes with agents.
pub(crate) const STORE_MIB: u64 = 256;

/// The build profile of the program.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BenchBuildProfile {
    /// For figures.
    Release,
    /// For the test that a benchmark works.
    Dev,
}

/// Builds the program and returns its path. A test run of the whole workspace has already built
/// the unoptimised one: it is in the directory of the test.
pub fn build(profile: BenchBuildProfile) -> io::Result<PathBuf> {
    let here = std::env::current_exe()?;
    let beside = here.parent().and_then(Path::parent);
    if let Some(program) = beside.map(|beside| beside.join("trivet"))
        && profile == BenchBuildProfile::Dev
        && program.exists()
    {
        return Ok(program);
    }
    match profile {
        BenchBuildProfile::Release => cargo_build(&["--release"], ""),
        BenchBuildProfile::Dev => cargo_build(&[], ""),
    }
}

/// Builds the program for the image of the appliance, static and without the demo, and returns
/// its path. It has a directory of its own, because all crates are built with other flags.
pub fn build_appliance() -> io::Result<PathBuf> {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/appliance");
    cargo_build(
        &[
            "--profile",
            "appliance",
            "--no-default-features",
            "--target",
            &target,
            "--target-dir",
            directory,
        ],
        // A panic ends the program: nothing is unwound.
        "-C target-feature=+crt-static -C force-unwind-tables=no",
    )
}

fn cargo_build(arguments: &[&str], compiler_flags: &str) -> io::Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml");
    let mut command = Command::new(cargo);
    command
        .args(["build", "--quiet", "--locked", "--package", "trivet-daemon"])
        .args(["--message-format", "json", "--manifest-path", manifest])
        .args(arguments);
    if !compiler_flags.is_empty() {
        command.env("RUSTFLAGS", compiler_flags);
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

/// The running program. It is ended when the value is dropped.
#[derive(Debug)]
pub struct BenchServer {
    process: BenchProcess,
    address: SocketAddr,
}

impl BenchServer {
    /// Starts the program with its data in this directory, and waits until it responds.
    pub fn start(program: &Path, data: &Path) -> io::Result<Self> {
        Self::with(program, data, NO_MACHINES)
    }

    /// The same, with more sections in its settings.
    pub fn with(program: &Path, data: &Path, sections: &str) -> io::Result<Self> {
        Self::on(CoreSet::Servers, program, data, sections)
    }

    /// The same, on these cores.
    pub fn on(cores: CoreSet, program: &Path, data: &Path, sections: &str) -> io::Result<Self> {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
            .local_addr()?
            .port();
        let settings = data.with_extension("toml");
        fs::write(&settings, settings_text(data, port) + sections)?;
        let arguments = ["serve".as_ref(), "--config".as_ref(), settings.as_os_str()];
        let process = BenchProcess::on(cores, program, arguments, &data.with_extension("log"))?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut server = Self { process, address };
        server.wait_until_ready()?;
        Ok(server)
    }

    /// The port is open before the records are read, so only a response shows that it is ready.
    fn wait_until_ready(&mut self) -> io::Result<()> {
        loop {
            self.process.check()?;
            if let Ok(mut stream) = TcpStream::connect(self.address) {
                stream
                    .write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
                let mut answer = String::new();
                stream.read_to_string(&mut answer)?;
                return Ok(());
            }
            std::thread::yield_now();
        }
    }

    /// The address of its API.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// An error with all its output, if it has ended.
    pub fn check(&mut self) -> io::Result<()> {
        self.process.check()
    }

    /// Its process.
    pub fn process(&self) -> &BenchProcess {
        &self.process
    }
}

/// No machines boot: records and heartbeats come from this benchmark.
const NO_MACHINES: &str = "[boot]\nagent_elsewhere = true\n[agent]\naddress_check = \"off\"\n";

fn settings_text(data: &Path, port: u16) -> String {
    format!(
        "[box]\ndata = \"{}\"\nname = \"box\"\nstore_mib = {STORE_MIB}\n\
         [api]\nlisten = \"127.0.0.1:{port}\"\nauth = \"none\"\n\
         [hardware]\ntypes = [\"fake-hardware\", \"ipmi\"]\n",
        data.display()
    )
}
