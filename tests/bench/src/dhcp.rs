//! The measurements behind `benches/dhcp.rs`: our box, kea and dnsmasq, each with the same
//! clients, core and disk. All of them keep leases on that disk: ours are flushed before the
//! ACK is sent, dnsmasq's too, kea's are written and not flushed.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;
use std::process::Command;

use crate::claim::{self, RatioClaim, RatioLimit, RatioSample};
use crate::dhcp_load::{self, DhcpLoad};
use crate::peers::{self, BenchDirectory};
use crate::process::BenchProcess;
use crate::server::BenchServer;

/// Sizes of the measurements.
#[derive(Clone, Copy, Debug)]
pub struct DhcpBenchScale {
    /// Exchanges of one run.
    pub exchanges: u32,
    /// The same for dnsmasq, which writes its whole file for each lease and would take minutes:
    /// fewer exchanges are an advantage for it.
    pub exchanges_dnsmasq: u32,
    /// Concurrent exchanges: two racks.
    pub at_once: u32,
}

/// Addresses on the loopback interface of the namespace.
const SERVER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 77, 0, 1), 67);
const RELAY: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 77, 0, 2), 67);
const FIRST: &str = "10.100.0.1";
const LAST: &str = "10.100.255.254";

const CLAIMS: [RatioClaim; 3] = [
    RatioClaim {
        name: "exchanges/s compared with kea",
        limit: RatioLimit::AtLeast(1.0),
    },
    RatioClaim {
        name: "processor ms per exchange compared with kea",
        limit: RatioLimit::AtMost(0.5),
    },
    RatioClaim {
        name: "exchanges/s compared with dnsmasq",
        limit: RatioLimit::AtLeast(10.0),
    },
];

/// Adds the addresses of both sides to this network namespace, which must be new.
///
/// # Errors
///
/// When `ip` fails.
pub fn add_addresses() -> io::Result<()> {
    let addresses = [SERVER, RELAY].map(|end| format!("{}/8", end.ip()));
    let [server, relay] = &addresses;
    for arguments in [
        vec!["link", "set", "dev", "lo", "up"],
        vec!["addr", "add", server, "dev", "lo"],
        vec!["addr", "add", relay, "dev", "lo"],
    ] {
        let status = Command::new("ip").args(&arguments).status()?;
        if !status.success() {
            return Err(io::Error::other(format!("ip {arguments:?}: {status}")));
        }
    }
    Ok(())
}

/// Measures a program and its peers; true if every claim holds.
///
/// # Errors
///
/// When a server does not start or an exchange fails.
pub fn measure(
    program: &Path,
    scale: DhcpBenchScale,
    say: &mut dyn FnMut(&str),
) -> io::Result<bool> {
    let disk = BenchDirectory::new("dhcp")?;
    say(&format!("leases on {}", disk.file_system()?));
    let mut number = 0;
    let run = || {
        // Every server starts without leases.
        number += 1;
        let directory = disk.path().join(format!("run{number}"));
        fs::create_dir(&directory)?;
        let ours = ours(program, &directory, scale)?;
        let kea = kea(&directory, scale)?;
        let dnsmasq = dnsmasq(&directory, scale)?;
        let seen = |ours, peer, peer_name| RatioSample {
            ours,
            peer,
            peer_name,
        };
        Ok(vec![
            seen(ours.per_second, kea.per_second, "kea"),
            seen(ours.processor_ms_each, kea.processor_ms_each, "kea"),
            seen(ours.per_second, dnsmasq.per_second, "dnsmasq"),
        ])
    };
    claim::check_claims(&CLAIMS, run, say)
}

struct DhcpBenchRate {
    per_second: f64,
    processor_ms_each: f64,
}

fn measured(
    name: &str,
    process: &BenchProcess,
    exchanges: u32,
    at_once: u32,
) -> io::Result<DhcpBenchRate> {
    let load = |exchanges| DhcpLoad {
        server: SERVER,
        relay: RELAY,
        exchanges,
        at_once,
    };
    let before = process.processor_seconds()?;
    let outcome = dhcp_load::run_exchanges(load(exchanges))
        .map_err(|error| io::Error::other(format!("{name}: {error}")))?;
    let spent = process.processor_seconds()? - before;
    let rate = DhcpBenchRate {
        per_second: f64::from(exchanges) / outcome.took.as_secs_f64(),
        processor_ms_each: spent * 1000.0 / f64::from(exchanges),
    };
    eprintln!(
        "  {name:8} {exchanges} exchanges, {at_once} at once: {:.0}/s, {:.4} ms of the processor \
         each, {} messages sent again, {} offers refused",
        rate.per_second, rate.processor_ms_each, outcome.retransmitted, outcome.refused
    );
    Ok(rate)
}

fn ours(program: &Path, directory: &Path, scale: DhcpBenchScale) -> io::Result<DhcpBenchRate> {
    let data = directory.join("box");
    fs::create_dir(&data)?;
    let sections = format!(
        "[[dhcp]]\nlisten = \"{SERVER}\"\nmode = \"server\"\nnetwork = \"10.0.0.0/8\"\n\
         first = \"{FIRST}\"\nlast = \"{LAST}\"\nserver = \"{}\"\nlease_s = 3600\n",
        SERVER.ip()
    );
    let server = BenchServer::with(program, &data, &sections)?;
    measured("trivet", server.process(), scale.exchanges, scale.at_once)
}

fn kea(directory: &Path, scale: DhcpBenchScale) -> io::Result<DhcpBenchRate> {
    let leases = directory.join("kea.csv");
    let settings = directory.join("kea.json");
    let text = serde_json::json!({"Dhcp4": {
        "interfaces-config": {
            "interfaces": [format!("lo/{}", SERVER.ip())],
            "dhcp-socket-type": "udp",
        },
        "lease-database": {"type": "memfile", "persist": true, "name": leases},
        "valid-lifetime": 3600,
        "subnet4": [{
            "subnet": "10.0.0.0/8",
            "pools": [{"pool": format!("{FIRST} - {LAST}")}],
        }],
        // The same log level as ours.
        "loggers": [{
            "name": "kea-dhcp4",
            "severity": "WARN",
            "output_options": [{"output": "stdout"}],
        }],
    }});
    fs::write(&settings, text.to_string())?;
    let program = peers::installed("env")?;
    let server = peers::installed("kea-dhcp4")?;
    let arguments = [
        format!("KEA_PIDFILE_DIR={}", directory.display()),
        format!("KEA_LOCKFILE_DIR={}", directory.display()),
        server.display().to_string(),
        "-c".to_owned(),
        settings.display().to_string(),
    ];
    let process = BenchProcess::start(&program, arguments, &directory.join("kea.log"))?;
    ready(process, "kea", |process| {
        measured("kea", process, scale.exchanges, scale.at_once)
    })
}

fn dnsmasq(directory: &Path, scale: DhcpBenchScale) -> io::Result<DhcpBenchRate> {
    let arguments = [
        "--keep-in-foreground".to_owned(),
        "--conf-file=/dev/null".to_owned(),
        "--port=0".to_owned(),
        "--user=root".to_owned(),
        "--interface=lo".to_owned(),
        // Otherwise no other process can use the port at another address.
        "--bind-interfaces".to_owned(),
        "--quiet-dhcp".to_owned(),
        // It would wait for an ICMP echo before each offer.
        "--no-ping".to_owned(),
        "--dhcp-authoritative".to_owned(),
        "--dhcp-lease-max=100000".to_owned(),
        format!("--dhcp-range={FIRST},{LAST},255.0.0.0,1h"),
        format!(
            "--dhcp-leasefile={}",
            directory.join("dnsmasq.leases").display()
        ),
    ];
    let program = peers::installed("dnsmasq")?;
    let process = BenchProcess::start(&program, arguments, &directory.join("dnsmasq.log"))?;
    ready(process, "dnsmasq", |process| {
        measured("dnsmasq", process, scale.exchanges_dnsmasq, scale.at_once)
    })
}

/// Waits until the server has its socket, and measures it.
fn ready(
    mut process: BenchProcess,
    name: &str,
    measure: impl FnOnce(&BenchProcess) -> io::Result<DhcpBenchRate>,
) -> io::Result<DhcpBenchRate> {
    let port = format!(":{:04X} ", SERVER.port());
    while !fs::read_to_string("/proc/net/udp")?.contains(&port) {
        process
            .check()
            .map_err(|error| io::Error::other(format!("{name}: {error}")))?;
        std::thread::yield_now();
    }
    measure(&process)
}
