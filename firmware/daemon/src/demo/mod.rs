//! `trivet demo`: a simulated rack, deployed over real protocols on loopback.
//!
//! The appliance is the same as under `trivet serve`. The machines are those of the
//! simulation, driven over sockets: DHCP as through a relay, TFTP, HTTP, RMCP+ and the
//! agent protocol. An operator drives them through the REST API.

mod machine;
mod node_poller;
mod rest_client;
mod scenario;
mod setup;
mod terminal;

use std::fs::DirBuilder;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use trivet_model::NodeId;
use trivet_sim::{BMC_PASSWORD, BMC_USER, SimHardware};

use machine::{DemoEndpoints, DemoMachine};
use node_poller::NodePoller;
use setup::DemoAppliance;
use terminal::DemoTerminal;

use crate::clock::DaemonEntropy;

/// The most machines of a demo. Ours: each takes an address and some sockets.
const NODES_MAX: u16 = 2000;

/// The options of `trivet demo`.
#[derive(Debug, clap::Args)]
pub(crate) struct DemoOptions {
    /// How many machines the rack has
    #[arg(long, value_name = "N", default_value_t = 8,
          value_parser = clap::value_parser!(u16).range(1..=i64::from(NODES_MAX)))]
    nodes: u16,
    /// Exit when every node is active: exit code 0, or 1 with the reason
    #[arg(long)]
    once: bool,
    /// Store everything in this directory instead of a temporary one
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Use a box that already runs: the URL of its API
    #[arg(
        long,
        value_name = "URL",
        requires = "dhcp",
        requires = "tftp",
        requires = "relay"
    )]
    against: Option<String>,
    /// With --against: the address where that box receives relayed DHCP
    #[arg(long, value_name = "IP:PORT", requires = "against")]
    dhcp: Option<SocketAddrV4>,
    /// With --against: the TFTP port of that box
    #[arg(long, value_name = "PORT", requires = "against")]
    tftp: Option<u16>,
    /// With --against: a loopback address in that box's DHCP network, for the relay
    #[arg(long, value_name = "IP", requires = "against")]
    relay: Option<Ipv4Addr>,
    /// With --against: name of an image of that box
    #[arg(long, value_name = "NAME", requires = "against", default_value = setup::IMAGE)]
    image: String,
}

/// Runs the demo.
pub(crate) async fn run(options: DemoOptions) -> anyhow::Result<()> {
    let data = DemoDirectory::new(options.data.clone())?;
    let (wiring, stage) = match &options.against {
        Some(api) => (external_endpoints(&options, api)?, None),
        None => {
            data.check_empty()?;
            let stage = DemoAppliance::start(&data.path).await?;
            (stage.endpoints.clone(), Some(stage))
        }
    };
    let screen = Arc::new(DemoTerminal::new(options.nodes));
    if let Some(stage) = &stage {
        screen.print(&format!("web page   {}", stage.page_url));
    }
    screen.print(&format!("Ironic API {}", wiring.api_url));
    if let Some(stage) = &stage {
        screen.print(&format!("inspector  {}", stage.inspector_url));
    }
    screen.print(&format!(
        "BMCs       user {BMC_USER}, password {BMC_PASSWORD}; addresses in each node's driver_info"
    ));
    let machines = machines(&options, &data.path, &wiring).await?;
    let image = options.image.clone();
    let work = run_scenarios(&wiring.api_url, &image, &machines, &screen, stage.as_ref());
    let work = async {
        let reports = work.await?;
        screen.summary(&reports);
        if let Some(bad) = reports
            .iter()
            .find_map(scenario::DemoNodeReport::failure_reason)
        {
            anyhow::bail!("{bad}");
        }
        if !options.once {
            screen.print("every node is active; the rack runs until Ctrl-C");
            std::future::pending::<()>().await;
        }
        anyhow::Ok(())
    };
    let mut terminate = signal(SignalKind::terminate())?;
    let outcome = tokio::select! {
        outcome = work => outcome,
        _ = tokio::signal::ctrl_c() => stopped(&screen, options.once),
        _ = terminate.recv() => stopped(&screen, options.once),
    };
    if let Some(stage) = stage {
        stage.shut_down().await?;
    }
    outcome
}

/// Stopping an endless demo is a success; stopping one with --once is a failure.
fn stopped(screen: &DemoTerminal, once: bool) -> anyhow::Result<()> {
    anyhow::ensure!(!once, "stopped before every node was active");
    screen.print("stopped");
    Ok(())
}

fn external_endpoints(options: &DemoOptions, api: &str) -> anyhow::Result<DemoEndpoints> {
    let missing = "--against needs --dhcp, --tftp and --relay";
    let relay = options.relay.context(missing)?;
    anyhow::ensure!(
        relay.is_loopback(),
        "--relay must be an address of 127.0.0.0/8"
    );
    Ok(DemoEndpoints {
        api_url: api.trim_end_matches('/').to_owned(),
        dhcp: options.dhcp.context(missing)?,
        tftp_port: options.tftp.context(missing)?,
        relay,
    })
}

async fn machines(
    options: &DemoOptions,
    data: &std::path::Path,
    wiring: &DemoEndpoints,
) -> anyhow::Result<Vec<Arc<DemoMachine>>> {
    let disks = data.join("disks");
    crate::private::directory(&disks)?;
    // Each machine has a socket for its BMC, and some more while it boots.
    trivet_board_linux::raise_open_files();
    let mut machines = Vec::new();
    for number in 1..=options.nodes {
        let hardware = SimHardware::new(number);
        machines.push(DemoMachine::start(hardware, &disks, wiring.clone()).await?);
    }
    Ok(machines)
}

async fn run_scenarios(
    api_url: &str,
    image: &str,
    machines: &[Arc<DemoMachine>],
    screen: &Arc<DemoTerminal>,
    stage: Option<&DemoAppliance>,
) -> anyhow::Result<Vec<scenario::DemoNodeReport>> {
    let poller = Arc::new(NodePoller::new());
    let mut stories = JoinSet::new();
    for machine in machines {
        let machine = Arc::clone(machine);
        let (api_url, image) = (api_url.to_owned(), image.to_owned());
        let (screen, poller) = (Arc::clone(screen), Arc::clone(&poller));
        stories.spawn(async move {
            scenario::run_scenario((&api_url, &image), &machine, &screen, &poller).await
        });
    }
    let watch = async {
        match stage {
            Some(stage) => screen.watch(stage.view()).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        reports = stories.join_all() => {
            let mut reports = reports;
            reports.sort_by_key(|report| report.number);
            Ok(reports)
        }
        () = watch => anyhow::bail!("the box stopped"),
        never = poller.run(api_url) => match never {},
    }
}

/// The demo's directory; a temporary one is removed with the demo.
struct DemoDirectory {
    path: PathBuf,
    temporary: bool,
}

impl DemoDirectory {
    fn new(given: Option<PathBuf>) -> anyhow::Result<Self> {
        let temporary = given.is_none();
        let path = given.unwrap_or_else(|| {
            // A unique name that cannot be guessed: files in the system's temporary
            // directory may be left over, or created by other users.
            let name = NodeId::random(&mut DaemonEntropy::new());
            std::env::temp_dir().join(format!("trivet-demo-{name}"))
        });
        let made = DirBuilder::new()
            .recursive(!temporary)
            .mode(0o700)
            .create(&path);
        made.with_context(|| format!("the directory {} cannot be created", path.display()))?;
        Ok(Self { path, temporary })
    }

    /// The simulated machines start in factory state, so they do not match the nodes of
    /// an earlier demo.
    fn check_empty(&self) -> anyhow::Result<()> {
        anyhow::ensure!(
            !self.path.join("store").exists(),
            "{} holds an earlier demo; remove it or choose another directory",
            self.path.display()
        );
        Ok(())
    }
}

impl Drop for DemoDirectory {
    fn drop(&mut self) {
        if self.temporary {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

/// A loopback address with a port that the system chooses.
fn any_port(ip: Ipv4Addr) -> SocketAddr {
    SocketAddr::from((ip, 0))
}
