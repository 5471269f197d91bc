//! Brings the network up: every link with a carrier gets an address by DHCP, or one link gets
//! the static address of the parameters.
//!
//! One task for each link, for as long as the agent runs: it waits for the carrier, requests an
//! address again and again, renews it at half of its time (RFC 2131, section 4.4.5), and starts
//! again when the carrier was gone. The client of `firmware/dhcp` decides; this module has the
//! sockets.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::Path;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use trivet_board_linux::{
    EthernetInterface, add_default_route, interfaces, set_link_address, set_link_up,
};
use trivet_dhcp::client::{BoundLease, DhcpClient};
use trivet_model::{MacAddr, Tick};

use super::init::log;
use super::lease_timer::{LeaseStep, LeaseTimer};
use crate::parameters::StaticAddress;

/// Ports of DHCP (RFC 2131, section 4.1).
const SERVER_PORT: u16 = 67;
const CLIENT_PORT: u16 = 68;

/// How often new links and carriers are searched. Ours: there is no message of the kernel for a
/// carrier that needs no socket.
const SEARCH_PERIOD: Duration = Duration::from_millis(250);

/// How long other links may take after the first has an address. Ours.
const OTHERS_WAIT: Duration = Duration::from_secs(1);

/// Pause after a client gave up.
const GIVEN_UP_PAUSE: Duration = Duration::from_secs(10);

/// Longest datagram that is received. An Ethernet frame has no more.
const DATAGRAM_BYTES_MAX: usize = 2048;

/// Most links. Ours.
const LINKS_MAX: usize = 64;

/// Which link is awaited, and which addresses are given.
#[derive(Clone, Debug)]
pub struct LinkPlan {
    /// The link that booted the machine.
    pub boot_mac: Option<MacAddr>,
    /// How long it is awaited, before any other link will do.
    pub boot_wait: Duration,
    /// Static addresses, in the place of DHCP on their links.
    pub static_addresses: Vec<StaticAddress>,
}

/// Addresses of the links, and the tasks that hold them.
#[derive(Debug)]
pub struct RamdiskLinks {
    /// Each link's address, by hardware address.
    pub addresses: watch::Receiver<BTreeMap<MacAddr, Ipv4Addr>>,
    _tasks: JoinSet<()>,
}

/// Starts a task for each link that there is and that appears, and returns when the network is
/// up.
pub async fn wait_for_links(plan: LinkPlan) -> RamdiskLinks {
    let (bound, mut addresses) = watch::channel(BTreeMap::new());
    let mut tasks = JoinSet::new();
    let _ = set_link_up("lo");
    let wait = plan.boot_wait;
    let boot_mac = plan.boot_mac;
    tasks.spawn(start_links(plan, bound));
    let has_boot_link = |all: &BTreeMap<MacAddr, Ipv4Addr>| match boot_mac {
        Some(mac) => all.contains_key(&mac),
        None => !all.is_empty(),
    };
    let booted = timeout(wait, addresses.wait_for(has_boot_link)).await;
    let is_up = booted.is_ok();
    drop(booted);
    if !is_up {
        log("the link that booted the machine has no address yet; any other will do");
        let _ = addresses.wait_for(|all| !all.is_empty()).await;
    }
    if boot_mac.is_none() {
        sleep(OTHERS_WAIT).await;
    }
    RamdiskLinks {
        addresses,
        _tasks: tasks,
    }
}

/// Searches for links, and starts a task for each.
async fn start_links(plan: LinkPlan, bound: watch::Sender<BTreeMap<MacAddr, Ipv4Addr>>) {
    let mut tasks = JoinSet::new();
    let mut known = Vec::new();
    loop {
        for link in interfaces().unwrap_or_default() {
            let physical = Path::new("/sys/class/net").join(&link.name).join("device");
            if known.contains(&link.name) || known.len() >= LINKS_MAX || !physical.exists() {
                continue;
            }
            known.push(link.name.clone());
            if let Err(error) = set_link_up(&link.name) {
                log(&format!("{}: cannot be set up: {error}", link.name));
            }
            tasks.spawn(run_link(plan.clone(), link, bound.clone()));
        }
        sleep(SEARCH_PERIOD).await;
    }
}

async fn run_link(
    plan: LinkPlan,
    link: EthernetInterface,
    bound: watch::Sender<BTreeMap<MacAddr, Ipv4Addr>>,
) {
    let mac = MacAddr(link.mac);
    loop {
        wait_for_carrier(&link.name, true).await;
        let given = plan.static_addresses.iter().find(|given| {
            let wanted = given.device.as_deref();
            match (wanted, plan.boot_mac) {
                (Some(name), _) => name == link.name || name.parse() == Ok(mac),
                (None, Some(boot)) => boot == mac,
                (None, None) => true,
            }
        });
        if let Some(given) = given {
            set_static(&link, given);
            bound.send_modify(|all| {
                all.insert(mac, given.address);
            });
            return;
        }
        tokio::select! {
            () = run_dhcp(&link, &bound) => {}
            () = wait_for_carrier(&link.name, false) => {
                log(&format!("{}: no carrier", link.name));
            }
        }
    }
}

fn set_static(link: &EthernetInterface, given: &StaticAddress) {
    let lease = BoundLease {
        address: given.address,
        server: Ipv4Addr::UNSPECIFIED,
        boot_file: None,
        next_server: Ipv4Addr::UNSPECIFIED,
        lease_s: u32::MAX,
        netmask: Some(Ipv4Addr::from_bits(
            u32::MAX
                .checked_shl(32 - u32::from(given.prefix))
                .unwrap_or(0),
        )),
        router: given.gateway,
        name_servers: given.name_servers.clone(),
        host_name: given.host_name.clone(),
    };
    apply(link, &lease);
}

async fn wait_for_carrier(name: &str, wanted: bool) {
    let path = Path::new("/sys/class/net").join(name).join("carrier");
    loop {
        // Reading fails while the link is down.
        let has = fs::read_to_string(&path).is_ok_and(|text| text.trim() == "1");
        if has == wanted {
            return;
        }
        sleep(SEARCH_PERIOD).await;
    }
}

/// Requests an address and keeps it.
async fn run_dhcp(link: &EthernetInterface, bound: &watch::Sender<BTreeMap<MacAddr, Ipv4Addr>>) {
    loop {
        match dhcp_socket(&link.name) {
            Ok(socket) => {
                if let Err(error) = lease_addresses(link, &socket, bound).await {
                    log(&format!("{}: DHCP: {error}", link.name));
                }
            }
            Err(error) => log(&format!("{}: no socket for DHCP: {error}", link.name)),
        }
        sleep(GIVEN_UP_PAUSE).await;
    }
}

fn dhcp_socket(name: &str) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_reuse_address(true)?;
    socket.set_broadcast(true)?;
    socket.bind_device(Some(name.as_bytes()))?;
    let local = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, CLIENT_PORT);
    socket.bind(&SocketAddr::V4(local).into())?;
    socket.set_nonblocking(true)?;
    UdpSocket::from_std(socket.into())
}

async fn lease_addresses(
    link: &EthernetInterface,
    socket: &UdpSocket,
    bound: &watch::Sender<BTreeMap<MacAddr, Ipv4Addr>>,
) -> io::Result<()> {
    let started = Instant::now();
    let now = || Tick(u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX));
    let mac = MacAddr(link.mac);
    let mut client = DhcpClient::for_agent(mac);
    let mut timer = LeaseTimer::default();
    let mut buffer = [0; DATAGRAM_BYTES_MAX];
    client.start(now());
    while !client.has_given_up() {
        match timer.poll(now(), &client) {
            Some(LeaseStep::Apply(lease)) => {
                apply(link, &lease);
                bound.send_modify(|all| {
                    all.insert(mac, lease.address);
                });
            }
            Some(LeaseStep::Renew) => client.renew(now()),
            Some(LeaseStep::Restart) => client.start(now()),
            None => {}
        }
        while let Some(bytes) = client.transmit() {
            // A renewal goes to the server that granted the lease.
            let server = client
                .bound()
                .map_or(Ipv4Addr::BROADCAST, |lease| lease.server);
            let _ = socket.send_to(&bytes, (server, SERVER_PORT)).await;
        }
        let due = [client.deadline(), timer.due()].into_iter().flatten().min();
        let due = due.map(|tick| started + Duration::from_millis(tick.0));
        tokio::select! {
            received = socket.recv_from(&mut buffer) => {
                let (length, _) = received?;
                client.datagram(now(), &buffer[..length]);
            }
            () = sleep_until(due.unwrap_or(started)), if due.is_some() => client.tick(now()),
        }
    }
    Err(io::Error::new(io::ErrorKind::TimedOut, "no server replied"))
}

/// Gives a link what the lease says.
fn apply(link: &EthernetInterface, lease: &BoundLease) {
    let mask = lease
        .netmask
        .map_or(24, |mask| mask.to_bits().leading_ones());
    let prefix = mask as u8;
    let BoundLease {
        address, router, ..
    } = lease;
    log(&format!(
        "{} {}: address {address}/{prefix}, router {}",
        link.name,
        MacAddr(link.mac),
        router.map_or("none".to_owned(), |router| router.to_string())
    ));
    if let Err(error) = set_link_address(&link.name, *address, prefix) {
        log(&format!("{}: {error}", link.name));
    }
    if let Some(router) = router
        && let Err(error) = add_default_route(&link.name, *router, link.index as u16)
    {
        log(&format!("{}: router {router}: {error}", link.name));
    }
    if !lease.name_servers.is_empty() {
        let mut lines = String::new();
        for server in &lease.name_servers {
            lines.push_str("nameserver ");
            lines.push_str(&server.to_string());
            lines.push('\n');
        }
        let _ = fs::write("/etc/resolv.conf", lines);
    }
    if let Some(name) = &lease.host_name {
        let _ = rustix::system::sethostname(name.as_bytes());
    }
}
