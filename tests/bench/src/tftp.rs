//! The measurements behind `benches/tftp.rs`: our box and three peers, each with the same
//! files, clients and core.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::claim::{self, RatioClaim, RatioLimit, RatioSample};
use crate::peers;
use crate::process::BenchProcess;
use crate::server::BenchServer;
use crate::tftp_load::{self, TftpLoad};

/// Sizes of the measurements.
#[derive(Clone, Copy, Debug)]
pub struct TftpBenchScale {
    /// Bytes of the file.
    pub file_bytes: usize,
    /// Rounds of one run; every server is measured in each.
    pub rounds: usize,
    /// Transfers of a round one after the other, one block at a time.
    pub alone: usize,
    /// Concurrent transfers.
    pub at_once: usize,
    /// Transfers of a round one after the other with a window.
    pub windowed: usize,
}

/// Blocks that fill an Ethernet frame, as firmware requests them.
const BLOCK_BYTES: u16 = 1468;

/// dnsmasq has no setting for its port, so it gets an address of its own.
const DNSMASQ: Ipv4Addr = Ipv4Addr::new(127, 69, 0, 1);
const TFTP_PORT: u16 = 69;

const FILE: &str = "ramdisk";

const GIB: f64 = 1024.0 * 1024.0 * 1024.0;

/// One running server.
struct TftpBenchServer {
    name: &'static str,
    running: TftpServerProcess,
    address: SocketAddr,
}

enum TftpServerProcess {
    Ours(BenchServer),
    Theirs(BenchProcess),
}

/// The result of one run of transfers.
#[derive(Clone, Copy, Debug)]
struct TftpBenchRate {
    mib_per_second: f64,
    processor_seconds_per_gib: f64,
}

impl TftpBenchServer {
    fn process(&self) -> &BenchProcess {
        match &self.running {
            TftpServerProcess::Ours(server) => server.process(),
            TftpServerProcess::Theirs(process) => process,
        }
    }

    fn fetch(&self, want: &[u8], shape: TftpLoad) -> io::Result<Duration> {
        tftp_load::fetch(self.address, FILE, want, shape)
            .map_err(|error| io::Error::other(format!("{}: {error}", self.name)))
    }
}

/// The claims, and how they are measured.
struct TftpBenchScenario {
    claims: &'static [RatioClaim],
    window_blocks: u16,
    mode: TftpBenchMode,
}

enum TftpBenchMode {
    /// One transfer compared with the best of all peers.
    Alone,
    /// Many at once compared with dnsmasq, which also serves all of them in one thread.
    AtOnce,
    /// One transfer with a window compared with atftpd, the only peer that supports it.
    Windowed,
}

const SCENARIOS: [TftpBenchScenario; 4] = [
    TftpBenchScenario {
        claims: &[RatioClaim {
            name: "one transfer, window 1, MiB/s",
            limit: RatioLimit::AtLeast(1.0),
        }],
        window_blocks: 1,
        mode: TftpBenchMode::Alone,
    },
    TftpBenchScenario {
        // UDP sockets do not allow more: over 90 % of the time is spent in the kernel's send
        // and recv, and a server in C that does nothing else is no faster, neither with
        // sendmmsg(2) on one socket for all nor with io_uring.
        claims: &[
            RatioClaim {
                name: "48 transfers at once, window 1, MiB/s",
                limit: RatioLimit::AtLeast(1.25),
            },
            RatioClaim {
                name: "48 transfers at once, window 1, processor s/GiB",
                limit: RatioLimit::AtMost(0.85),
            },
        ],
        window_blocks: 1,
        mode: TftpBenchMode::AtOnce,
    },
    TftpBenchScenario {
        claims: &[
            RatioClaim {
                name: "one transfer, window 16, MiB/s",
                limit: RatioLimit::AtLeast(2.0),
            },
            RatioClaim {
                name: "one transfer, window 16, processor s/GiB",
                limit: RatioLimit::AtMost(0.5),
            },
        ],
        window_blocks: 16,
        mode: TftpBenchMode::Windowed,
    },
    TftpBenchScenario {
        claims: &[
            RatioClaim {
                name: "one transfer, window 64, MiB/s",
                limit: RatioLimit::AtLeast(2.0),
            },
            RatioClaim {
                name: "one transfer, window 64, processor s/GiB",
                limit: RatioLimit::AtMost(0.5),
            },
        ],
        window_blocks: 64,
        mode: TftpBenchMode::Windowed,
    },
];

/// All servers with the same file.
struct TftpBench {
    scale: TftpBenchScale,
    want: Vec<u8>,
    ours: TftpBenchServer,
    hpa: TftpBenchServer,
    dnsmasq: TftpBenchServer,
    atftpd: TftpBenchServer,
    _directory: peers::BenchDirectory,
}

/// Measures a program and its peers; true if every claim holds.
///
/// # Errors
///
/// When a server does not start or a transfer fails.
pub fn measure(
    program: &Path,
    scale: TftpBenchScale,
    say: &mut dyn FnMut(&str),
) -> io::Result<bool> {
    let bench = TftpBench::start(program, scale)?;
    let mut within_limits = true;
    for scenario in &SCENARIOS {
        within_limits &= claim::check_claims(scenario.claims, || bench.run(scenario), say)?;
    }
    Ok(within_limits)
}

impl TftpBench {
    fn start(program: &Path, scale: TftpBenchScale) -> io::Result<Self> {
        let scratch = peers::BenchDirectory::new("tftp")?;
        let directory = scratch.path();
        let root = directory.join("root");
        fs::create_dir(&root)?;
        // No two blocks are equal, so that a wrong order is detected.
        let want: Vec<u8> = (0..scale.file_bytes as u64)
            .map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8)
            .collect();
        fs::write(root.join(FILE), &want)?;
        Ok(Self {
            scale,
            want,
            ours: ours(program, directory, &root)?,
            hpa: hpa(directory, &root)?,
            dnsmasq: dnsmasq(directory, &root, scale.at_once)?,
            atftpd: atftpd(directory, &root)?,
            _directory: scratch,
        })
    }

    fn run(&self, scenario: &TftpBenchScenario) -> io::Result<Vec<RatioSample>> {
        let scale = self.scale;
        let (transfers, at_once) = match scenario.mode {
            TftpBenchMode::Alone => (scale.alone, 1),
            TftpBenchMode::AtOnce => (scale.at_once, scale.at_once),
            TftpBenchMode::Windowed => (scale.windowed, 1),
        };
        let shape = TftpLoad {
            block_bytes: BLOCK_BYTES,
            window_blocks: scenario.window_blocks,
            transfers,
            at_once,
        };
        let servers: &[&TftpBenchServer] = match scenario.mode {
            TftpBenchMode::Alone => &[&self.ours, &self.hpa, &self.dnsmasq, &self.atftpd],
            TftpBenchMode::AtOnce => &[&self.ours, &self.dnsmasq],
            TftpBenchMode::Windowed => &[&self.ours, &self.atftpd],
        };
        let rates = self.rates(servers, shape)?;
        let ours = rates[0];
        let best = servers.iter().zip(rates).skip(1);
        let best =
            best.max_by(|(_, one), (_, other)| one.mib_per_second.total_cmp(&other.mib_per_second));
        let Some((peer, theirs)) = best else {
            return Ok(Vec::new());
        };
        let seen = |ours, theirs| RatioSample {
            ours,
            peer: theirs,
            peer_name: peer.name,
        };
        Ok(vec![
            seen(ours.mib_per_second, theirs.mib_per_second),
            seen(
                ours.processor_seconds_per_gib,
                theirs.processor_seconds_per_gib,
            ),
        ])
    }

    /// Alternates in short rounds, so that other work on the machine affects all alike.
    #[expect(clippy::cast_precision_loss, reason = "bytes of one run")]
    fn rates(
        &self,
        servers: &[&TftpBenchServer],
        shape: TftpLoad,
    ) -> io::Result<Vec<TftpBenchRate>> {
        let spent = |peer: &&TftpBenchServer| peer.process().processor_seconds();
        let before = servers.iter().map(spent).collect::<io::Result<Vec<_>>>()?;
        let mut took = vec![Duration::ZERO; servers.len()];
        for _ in 0..self.scale.rounds {
            for (server, took) in servers.iter().zip(&mut took) {
                *took += server.fetch(&self.want, shape)?;
            }
        }
        let gib = (self.want.len() * shape.transfers * self.scale.rounds) as f64 / GIB;
        let mut rates = Vec::new();
        for ((server, took), before) in servers.iter().zip(took).zip(before) {
            let rate = TftpBenchRate {
                mib_per_second: gib * 1024.0 / took.as_secs_f64(),
                processor_seconds_per_gib: (spent(server)? - before) / gib,
            };
            eprintln!(
                "  {:9} window {:2}, {:2} at once: {:7.1} MiB/s, {:.2} s of the processor per GiB",
                server.name,
                shape.window_blocks,
                shape.at_once,
                rate.mib_per_second,
                rate.processor_seconds_per_gib
            );
            rates.push(rate);
        }
        Ok(rates)
    }
}

fn ours(program: &Path, directory: &Path, root: &Path) -> io::Result<TftpBenchServer> {
    let data = directory.join("box");
    fs::create_dir(&data)?;
    let address = free_address()?;
    let sections = format!(
        "[tftp]\nlisten = \"{address}\"\n[boot]\nfiles = \"{}\"\n\
         loader_bios = \"\"\nloader_x64 = \"\"\n",
        root.display()
    );
    Ok(TftpBenchServer {
        name: "trivet",
        running: TftpServerProcess::Ours(BenchServer::with(program, &data, &sections)?),
        address,
    })
}

/// tftpd-hpa.
fn hpa(directory: &Path, root: &Path) -> io::Result<TftpBenchServer> {
    let program = peers::unpacked("tftpd-hpa", "usr/sbin/in.tftpd")?;
    let address = free_address()?;
    let arguments = [
        "--listen",
        "--foreground",
        "--secure",
        "--user",
        "root",
        "--address",
    ];
    let arguments = arguments
        .iter()
        .map(PathBuf::from)
        .chain([address.to_string().into(), root.to_owned()]);
    theirs("tftpd-hpa", &program, arguments, directory, address)
}

fn dnsmasq(directory: &Path, root: &Path, at_once: usize) -> io::Result<TftpBenchServer> {
    let arguments = [
        "--keep-in-foreground".to_owned(),
        "--conf-file=/dev/null".to_owned(),
        "--port=0".to_owned(),
        "--bind-interfaces".to_owned(),
        "--user=root".to_owned(),
        "--enable-tftp".to_owned(),
        // It needs file descriptors of its own in addition to those of transfers.
        format!("--tftp-max={}", at_once + 16),
        format!("--listen-address={DNSMASQ}"),
        format!("--tftp-root={}", root.display()),
    ];
    let program = peers::installed("dnsmasq")?;
    let address = SocketAddr::from((DNSMASQ, TFTP_PORT));
    theirs("dnsmasq", &program, arguments, directory, address)
}

fn atftpd(directory: &Path, root: &Path) -> io::Result<TftpBenchServer> {
    let program = peers::unpacked("atftpd", "usr/sbin/atftpd")?;
    let address = free_address()?;
    let port = address.port().to_string();
    let arguments = ["--daemon", "--no-fork", "--user", "root", "--group", "root"];
    let place = [
        "--bind-address",
        "127.0.0.1",
        "--logfile",
        "-",
        "--port",
        &port,
    ];
    let arguments = arguments
        .iter()
        .chain(&place)
        .map(PathBuf::from)
        .chain([root.to_owned()]);
    theirs("atftpd", &program, arguments, directory, address)
}

fn theirs(
    name: &'static str,
    program: &Path,
    arguments: impl IntoIterator<Item = impl AsRef<std::ffi::OsStr>>,
    directory: &Path,
    address: SocketAddr,
) -> io::Result<TftpBenchServer> {
    let log = directory.join(name).with_extension("log");
    let mut process = BenchProcess::start(program, arguments, &log)?;
    wait_until_ready(&mut process, address)?;
    Ok(TftpBenchServer {
        name,
        running: TftpServerProcess::Theirs(process),
        address,
    })
}

/// Requests a missing file until the server replies with the error.
fn wait_until_ready(process: &mut BenchProcess, address: SocketAddr) -> io::Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.set_read_timeout(Some(Duration::from_millis(100)))?;
    let mut answer = [0; 512];
    loop {
        process.check()?;
        socket.send_to(b"\0\x01absent\0octet\0", address)?;
        if socket.recv_from(&mut answer).is_ok() {
            return Ok(());
        }
    }
}

fn free_address() -> io::Result<SocketAddr> {
    UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}
