//! The measurements behind `benches/deploy.rs`, at any scale.
//!
//! The appliance is the real program with a settings file. The rack is the program's own demo
//! in another process, against that appliance: machines with BMCs, firmware and agents, and an
//! operator that enrols, inspects, cleans and deploys them through the REST API.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::Path;
use std::time::Duration;

use trivet_model::Entropy as _;

use crate::bmcs::BenchEntropy;
use crate::http_load::now;
use crate::process::{self, BenchProcess, CoreSet};
use crate::server::BenchServer;

/// Sizes of the measurements.
#[derive(Clone, Copy, Debug)]
pub struct DeployBenchScale {
    /// Machines in the rack.
    pub nodes: u16,
    /// Size of the image.
    pub image_bytes: usize,
    /// Timeout of the whole rack.
    pub timeout: Duration,
}

/// The result of a rack whose nodes are all active, each disk with the image's digest.
#[derive(Clone, Copy, Debug)]
pub struct DeployBenchResult {
    /// From the first enrolment until the last machine runs its image.
    pub took: Duration,
    /// Peak memory of the appliance, in MiB.
    pub peak_mib: f64,
    /// CPU time of the appliance in seconds.
    pub box_seconds: f64,
    /// CPU time of the simulated rack and its operator in seconds.
    pub rack_seconds: f64,
}

/// The network of the simulated machines, all on loopback.
const NET: &str = "127.94.0.0/16";
const FIRST: &str = "127.94.1.1";
const LAST: &str = "127.94.8.254";
const BOX: Ipv4Addr = Ipv4Addr::new(127, 94, 0, 1);
const RELAY: &str = "127.94.0.2";

/// The image.
const IMAGE: &str = "tiny.raw";

/// Sizes of the boot files. Ours: as in the demo, small compared with real ones, because the
/// network is not measured.
const LOADER_BYTES: usize = 256 << 10;
const KERNEL_BYTES: usize = 1 << 20;
const RAMDISK_BYTES: usize = 2 << 20;

/// Polling interval of a running rack.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// How many lines of a log are shown if the rack failed.
const LINES_SHOWN: usize = 20;

/// Deploys a rack of so many nodes, with all its files in this directory.
///
/// # Errors
///
/// When a node does not become active, or a disk does not hold the image.
pub async fn deploy_rack(
    program: &Path,
    directory: &Path,
    scale: DeployBenchScale,
) -> io::Result<DeployBenchResult> {
    let data = directory.join("box");
    write_boot_files(&data, directory, scale)?;
    let ports = DeployBenchPorts::free()?;
    let mut server = BenchServer::on(CoreSet::Both, program, &data, &ports.sections(directory))?;
    let log = directory.join("rack.log");
    let before = process::children_seconds()?;
    let start = now();
    let arguments = ports.arguments(server.address(), &directory.join("machines"), scale);
    let mut rack = BenchProcess::on(CoreSet::Both, program, arguments, &log)?;
    let status = loop {
        if let Some(status) = rack.ended()? {
            break status;
        }
        if start.elapsed() > scale.timeout {
            return Err(failed("the rack did not finish in time", &log));
        }
        server.check()?;
        tokio::time::sleep(POLL_INTERVAL).await;
    };
    let took = start.elapsed();
    let text = fs::read_to_string(&log)?;
    let all = format!("{0} of {0} nodes active", scale.nodes);
    if !status.success() || text.lines().last() != Some(&all) {
        return Err(failed("not every node is active", &log));
    }
    Ok(DeployBenchResult {
        took,
        peak_mib: server.process().peak_mib()?,
        box_seconds: server.process().processor_seconds()?,
        rack_seconds: process::children_seconds()? - before,
    })
}

/// An error with the end of the rack's output.
fn failed(why: &str, log: &Path) -> io::Error {
    let text = fs::read_to_string(log).unwrap_or_default();
    let mut lines: Vec<&str> = text.lines().rev().take(LINES_SHOWN).collect();
    lines.reverse();
    io::Error::other(format!("{why}:\n{}", lines.join("\n")))
}

/// Boot files of any content, and the image.
fn write_boot_files(data: &Path, directory: &Path, scale: DeployBenchScale) -> io::Result<()> {
    let (images, boot) = (data.join("images"), directory.join("boot"));
    fs::create_dir_all(&images)?;
    fs::create_dir(&boot)?;
    let files = [
        (images.join(IMAGE), scale.image_bytes),
        (boot.join("snponly.efi"), LOADER_BYTES),
        (boot.join("undionly.kpxe"), LOADER_BYTES),
        (boot.join("kernel"), KERNEL_BYTES),
        (boot.join("ramdisk"), RAMDISK_BYTES),
    ];
    for (path, bytes) in files {
        let mut content = vec![0; bytes];
        BenchEntropy::default().fill(&mut content);
        fs::write(path, content)?;
    }
    Ok(())
}

/// The ports of the box's other services.
struct DeployBenchPorts {
    http: u16,
    tftp: u16,
    dhcp: u16,
}

impl DeployBenchPorts {
    /// Ports that are free now.
    fn free() -> io::Result<Self> {
        let http = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let (tftp, dhcp) = (UdpSocket::bind((BOX, 0))?, UdpSocket::bind((BOX, 0))?);
        Ok(Self {
            http: http.local_addr()?.port(),
            tftp: tftp.local_addr()?.port(),
            dhcp: dhcp.local_addr()?.port(),
        })
    }

    /// The settings of the box in addition to its API: those without a default, and plain HTTP
    /// for agents, which ours use.
    fn sections(&self, directory: &Path) -> String {
        let Self { http, tftp, dhcp } = self;
        let boot = directory.join("boot");
        let boot = boot.display();
        format!(
            "[http]\nlisten = \"127.0.0.1:{http}\"\n[tftp]\nlisten = \"{BOX}:{tftp}\"\n\
             [boot]\nloaders = \"{boot}\"\nkernel = \"{boot}/kernel\"\n\
             ramdisk = \"{boot}/ramdisk\"\n\
             [[dhcp]]\nlisten = \"{BOX}:{dhcp}\"\nmode = \"reservations\"\nnetwork = \"{NET}\"\n\
             first = \"{FIRST}\"\nlast = \"{LAST}\"\nserver = \"{BOX}\"\n\
             [agent]\nplain_http = true\naddress_check = \"off\"\n"
        )
    }

    /// The demo's arguments for this box.
    fn arguments(&self, api: SocketAddr, machines: &Path, scale: DeployBenchScale) -> Vec<String> {
        let Self { tftp, dhcp, .. } = self;
        let mut arguments = vec!["demo".to_owned(), "--once".to_owned()];
        for (option, value) in [
            ("--nodes", scale.nodes.to_string()),
            ("--data", machines.display().to_string()),
            ("--against", format!("http://{api}")),
            ("--dhcp", format!("{BOX}:{dhcp}")),
            ("--tftp", tftp.to_string()),
            ("--relay", RELAY.to_owned()),
            ("--image", IMAGE.to_owned()),
        ] {
            arguments.extend([option.to_owned(), value]);
        }
        arguments
    }
}
