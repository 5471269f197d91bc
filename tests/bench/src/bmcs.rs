//! Simulated BMCs on the loopback interface, in processes of their own, so that their cost is
//! not counted for the client.

use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use std::{fs, thread};

use ring::rand::{SecureRandom as _, SystemRandom};
use trivet_bmc_ipmi::bmc::{
    IpmiChassis, IpmiPrivilege, IpmiSimulator, IpmiSimulatorSetup, IpmiSimulatorUser,
};
use trivet_bmc_ipmi::{BootFlags, IpmiCipherSuite, PACKET_BYTES_MAX};
use trivet_model::{Entropy, PowerOrder, PowerState};

use crate::http_load::now;
use crate::process::BenchProcess;

/// The user name.
pub const USER: &str = "admin";
/// The password.
pub const PASSWORD: &str = "a bench password";

/// Most BMCs of one process: each has a socket, and a process may have 1,024 files.
const PROCESS_BMCS_MAX: usize = 250;

/// Timeout for processes to start, and to report their counts.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Randomness of the operating system.
#[derive(Debug)]
pub struct BenchEntropy(SystemRandom);

impl Default for BenchEntropy {
    fn default() -> Self {
        Self(SystemRandom::new())
    }
}

impl Entropy for BenchEntropy {
    fn fill(&mut self, out: &mut [u8]) {
        self.0
            .fill(out)
            .expect("the kernel's random source does not end");
    }
}

/// A machine that is on. It counts the power queries.
struct CountingChassis(Arc<AtomicU64>);

impl IpmiChassis for CountingChassis {
    fn power(&self) -> PowerState {
        self.0.fetch_add(1, Ordering::Relaxed);
        PowerState::On
    }

    fn control(&mut self, _: PowerOrder) {}

    fn boot(&self) -> BootFlags {
        BootFlags::default()
    }

    fn set_boot(&mut self, _: BootFlags) {}
}

/// BMCs with their ports, and a port that reports how often each was queried.
#[derive(Debug)]
pub struct BoundBmcs {
    bmcs: Vec<UdpSocket>,
    counts: UdpSocket,
}

impl BoundBmcs {
    /// Binds so many BMCs to free ports.
    ///
    /// # Errors
    ///
    /// When there are none.
    pub fn new(count: usize) -> io::Result<Self> {
        let free = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0));
        Ok(Self {
            bmcs: (0..count).map(|_| free()).collect::<io::Result<_>>()?,
            counts: free()?,
        })
    }

    /// The port of the counts, then those of the BMCs, in one line.
    fn ports(&self) -> io::Result<String> {
        let mut line = String::from("ports");
        for socket in [&self.counts].into_iter().chain(&self.bmcs) {
            line.push(' ');
            line += &socket.local_addr()?.port().to_string();
        }
        Ok(line + "\n")
    }

    /// Prints the ports and replies until the process ends.
    ///
    /// # Errors
    ///
    /// When a socket fails.
    pub fn serve(self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(self.ports()?.as_bytes())?;
        out.flush()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(async move {
            let mut looks = Vec::new();
            for socket in self.bmcs {
                let looked = Arc::new(AtomicU64::new(0));
                looks.push(Arc::clone(&looked));
                tokio::spawn(serve_bmc(asynchronous(socket)?, looked));
            }
            let counts = asynchronous(self.counts)?;
            loop {
                let (_, from) = counts.recv_from(&mut [0; 8]).await?;
                let count = |looked: &Arc<AtomicU64>| looked.load(Ordering::Relaxed).to_be_bytes();
                let bytes: Vec<u8> = looks.iter().flat_map(count).collect();
                counts.send_to(&bytes, from).await?;
            }
        })
    }
}

fn asynchronous(socket: UdpSocket) -> io::Result<tokio::net::UdpSocket> {
    socket.set_nonblocking(true)?;
    tokio::net::UdpSocket::from_std(socket)
}

async fn serve_bmc(socket: tokio::net::UdpSocket, looked: Arc<AtomicU64>) -> io::Result<()> {
    let mut bmc = IpmiSimulator::new(IpmiSimulatorSetup {
        users: vec![IpmiSimulatorUser {
            name: USER.into(),
            password: PASSWORD.into(),
            limit: IpmiPrivilege::Administrator,
        }],
        guid: *b"trivet benchmark",
        kg: None,
        suites: vec![IpmiCipherSuite::Sha1, IpmiCipherSuite::Sha256],
    });
    let (mut machine, mut entropy) = (CountingChassis(looked), BenchEntropy::default());
    let mut buffer = [0; PACKET_BYTES_MAX + 1];
    loop {
        let (length, from) = socket.recv_from(&mut buffer).await?;
        let peer = u64::from(from.port());
        let bytes = bmc.datagram(peer, &buffer[..length], &mut machine, &mut entropy);
        if let Some(bytes) = bytes {
            socket.send_to(&bytes, from).await?;
        }
    }
}

/// BMCs in other processes, which end when the value is dropped.
#[derive(Debug)]
pub struct BenchBmcs {
    ports: Vec<u16>,
    counts: Vec<u16>,
    socket: UdpSocket,
    processes: Vec<BenchProcess>,
}

impl BenchBmcs {
    /// Starts so many. `program` gets the number in the variable and must call
    /// [`BoundBmcs::serve`].
    ///
    /// # Errors
    ///
    /// When they do not start.
    pub fn start(program: &Path, variable: &str, count: usize, logs: &Path) -> io::Result<Self> {
        let mut all = Self::none()?;
        let mut left = count;
        while left > 0 {
            let some = left.min(PROCESS_BMCS_MAX);
            left -= some;
            let log = logs.join(format!("bmcs-{left}"));
            let arguments = [format!("{variable}={some}"), program.display().to_string()];
            let mut process = BenchProcess::start(Path::new("/usr/bin/env"), arguments, &log)?;
            let (line, started) = (|| fs::read_to_string(&log), now());
            while !line()?.ends_with('\n') {
                process.check()?;
                if started.elapsed() > START_TIMEOUT {
                    return Err(io::Error::other("the BMCs did not start"));
                }
                thread::yield_now();
            }
            all.add(&line()?)?;
            all.processes.push(process);
        }
        Ok(all)
    }

    /// Runs so many in a thread of this process, until the process ends.
    ///
    /// # Errors
    ///
    /// When there are no ports.
    pub fn in_this_process(count: usize) -> io::Result<Self> {
        let bound = BoundBmcs::new(count)?;
        let mut all = Self::none()?;
        all.add(&bound.ports()?)?;
        thread::spawn(|| bound.serve(&mut io::sink()));
        Ok(all)
    }

    fn none() -> io::Result<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.set_read_timeout(Some(START_TIMEOUT))?;
        Ok(Self {
            ports: Vec::new(),
            counts: Vec::new(),
            socket,
            processes: Vec::new(),
        })
    }

    fn add(&mut self, line: &str) -> io::Result<()> {
        let words = line.strip_prefix("ports").unwrap_or_default();
        let numbers: Result<Vec<u16>, _> = words.split_whitespace().map(str::parse).collect();
        let numbers = numbers.map_err(io::Error::other)?;
        let (counts, ports) = numbers
            .split_first()
            .ok_or_else(|| io::Error::other(format!("no ports in {line:?}")))?;
        self.counts.push(*counts);
        self.ports.extend(ports);
        Ok(())
    }

    /// Their ports.
    #[must_use]
    pub fn ports(&self) -> &[u16] {
        &self.ports
    }

    /// How often the power of each was queried, in the order of the ports.
    ///
    /// # Errors
    ///
    /// When they do not report.
    pub fn query_counts(&self) -> io::Result<Vec<u64>> {
        let mut all = Vec::new();
        let mut buffer = [0; 8 * PROCESS_BMCS_MAX];
        for port in &self.counts {
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, *port));
            self.socket.send_to(b"?", address)?;
            let length = self.socket.recv(&mut buffer)?;
            let (counts, _) = buffer[..length].as_chunks();
            all.extend(counts.iter().map(|count| u64::from_be_bytes(*count)));
        }
        Ok(all)
    }
}
