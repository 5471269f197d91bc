//! The program `trivet-agent`: from its parameters to a running agent, and what happens to the
//! machine when the agent ends.

mod appliance;
mod clock;
mod enrolment;
mod journal;
mod logs;
mod machine;
mod mailbox;
mod settings;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use trivet_agent_wire::INSPECTION_PATH;
use trivet_model::MacAddr;

pub(crate) use clock::unix_s;
pub use journal::log;

use crate::hardware_manager::{HardwareManager, ManagerFacts};
use crate::parameters::{AgentParameters, ArgumentError};
use crate::ramdisk::{
    LinkPlan, RamdiskLinks, power_off, rescue_file, restart, start_rescue, wait_for_links,
};
use crate::shell::{
    self, AgentExit, AgentHttpClient, AgentOptions, AgentShellEvent, AgentTarget, AgentTlsError,
    AgentTlsIdentity, ShellError, load_programs,
};
use crate::state_machine::{
    AGENT_VERIFY_CA_MINOR, AgentIntervals, AgentMachineIdentity, own_manager,
};
use appliance::ApplianceFacts;
use clock::KernelEntropy;
use enrolment::AgentEnrolment;

/// How long disks are awaited: the kernel finds them while the network comes up. The stock
/// agent waits in steps of 3 s.
const DISK_SEARCH_PERIOD: Duration = Duration::from_millis(500);
const DISK_SEARCHES_MAX: usize = 20;

/// How many bytes of an image are between two lines. Ours.
const PROGRESS_BYTES: u64 = 256 << 20;

const PLAIN_URL: &str = "the BMC has a token of a box whose API has TLS, and ipa-api-url is not \
                         https: another machine may have answered the boot request";

/// Events of the agent that wait to be logged.
const EVENTS_MAX: usize = 64;

/// Why the program ended with an error.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// A mistake on the command line.
    #[error(transparent)]
    Argument(#[from] ArgumentError),
    /// The URL of the appliance cannot be used.
    #[error("{0}")]
    Appliance(String),
    /// There is no certificate for the agent's own API.
    #[error(transparent)]
    Tls(#[from] AgentTlsError),
    /// The agent could not run.
    #[error(transparent)]
    Shell(#[from] ShellError),
    /// `listen_host` is not an address.
    #[error("{0} is not an address to listen on")]
    ListenHost(String),
}

/// Runs the agent until it ends. In a ramdisk it brings the network up before, and switches the
/// machine off or restarts it.
pub async fn run(arguments: &[&str], in_ramdisk: bool) -> Result<AgentExit, ProgramError> {
    let parameters = settings::read(arguments, in_ramdisk).await?;
    let mut links = None;
    if in_ramdisk {
        links = Some(bring_up(&parameters).await);
    }
    let listen = listening_address(&parameters)?;
    let (client, facts, enrolled) = reach_appliance(&parameters, in_ramdisk).await?;
    let mut options = options(&parameters, (client, enrolled), listen, facts).await?;
    options.rescue = in_ramdisk.then(rescue_file).flatten();
    let exit = run_shell(options, parameters.debug).await?;
    match exit {
        AgentExit::PowerOff => power_off(in_ramdisk),
        AgentExit::Reboot => restart(in_ramdisk),
        AgentExit::Lockdown => lock_down(in_ramdisk).await,
        AgentExit::Rescued if in_ramdisk => {
            // The machine may be in another network by now.
            drop(links);
            let _links = bring_up(&parameters).await;
            match start_rescue() {
                Ok(()) => log("user rescue may log in"),
                Err(error) => log(&format!("no rescue: {error}")),
            }
            std::future::pending::<()>().await;
        }
        AgentExit::PowerCut | AgentExit::GaveUp | AgentExit::Rescued => {}
    }
    Ok(exit)
}

/// Sets all links down, and waits until the machine is switched off.
async fn lock_down(in_ramdisk: bool) {
    for link in trivet_board_linux::interfaces().unwrap_or_default() {
        if in_ramdisk && let Err(error) = trivet_board_linux::set_link_down(&link.name) {
            log(&format!("{}: {error}", link.name));
        }
    }
    std::future::pending::<()>().await;
}

async fn bring_up(parameters: &AgentParameters) -> RamdiskLinks {
    let links = wait_for_links(LinkPlan {
        boot_mac: parameters.boot_mac(),
        boot_wait: parameters.dhcp_wait,
        static_addresses: parameters.static_addresses.clone(),
    })
    .await;
    for _ in 0..DISK_SEARCHES_MAX {
        if machine::has_disk() {
            break;
        }
        sleep(DISK_SEARCH_PERIOD).await;
    }
    links
}

fn listening_address(parameters: &AgentParameters) -> Result<SocketAddr, ProgramError> {
    let host = match parameters.listen_host.as_deref() {
        Some(host) => {
            let host = host.trim_start_matches('[').trim_end_matches(']');
            let wrong = |_| ProgramError::ListenHost(host.to_owned());
            host.parse().map_err(wrong)?
        }
        // Without IPv6 the wildcard is that of IPv4.
        None if Path::new("/proc/sys/net/ipv6").exists() => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        None => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    };
    Ok(SocketAddr::new(host, parameters.listen_port))
}

/// Finds the appliance, and enrols if the BMC has a token for this boot.
async fn reach_appliance(
    parameters: &AgentParameters,
    in_ramdisk: bool,
) -> Result<
    (
        AgentHttpClient,
        Option<ApplianceFacts>,
        Option<AgentEnrolment>,
    ),
    ProgramError,
> {
    let has_url = !parameters.standalone && !parameters.api_urls.is_empty();
    let wanted = in_ramdisk && has_url;
    let token = if wanted {
        spawn_blocking(enrolment::take_token).await.ok().flatten()
    } else {
        None
    };
    let trust = match &token {
        None => appliance::trust(parameters).map_err(ProgramError::Appliance)?,
        Some(token) => {
            clock::correct(token.unix_s.cast_signed());
            Some(enrolment::pinned(token).map_err(ProgramError::Appliance)?)
        }
    };
    let mut client = AgentHttpClient {
        own: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        trust,
    };
    let facts = find_appliance(parameters, &client, in_ramdisk).await;
    let (Some(token), Some(found)) = (token, &facts) else {
        return Ok((client, facts, None));
    };
    if !found.url.starts_with("https://") {
        return Err(ProgramError::Appliance(PLAIN_URL.to_owned()));
    }
    let bundle = appliance::bundle(parameters);
    let enrolled = enrolment::enrol(&found.url, &client, &token.token, link_macs(), bundle).await;
    let enrolled = enrolled.map_err(ProgramError::Appliance)?;
    log("enrolled: requests have a certificate, and only the appliance is answered");
    client.trust = Some(Arc::clone(&enrolled.client));
    Ok((client, facts, Some(enrolled)))
}

/// The hardware addresses of all links.
fn link_macs() -> Vec<String> {
    let links = trivet_board_linux::interfaces().unwrap_or_default();
    links
        .iter()
        .map(|link| MacAddr(link.mac).to_string())
        .collect()
}

/// What the appliance says about itself. Without a URL there is none.
async fn find_appliance(
    parameters: &AgentParameters,
    client: &AgentHttpClient,
    in_ramdisk: bool,
) -> Option<ApplianceFacts> {
    if parameters.standalone || parameters.api_urls.is_empty() {
        return None;
    }
    let facts = appliance::find(&parameters.api_urls, client).await;
    if let (true, Some(unix_s)) = (in_ramdisk, facts.date_unix_s) {
        clock::correct(unix_s);
    }
    log(&format!(
        "the appliance is {}, API 1.{}",
        facts.url, facts.minor
    ));
    Some(facts)
}

async fn options(
    parameters: &AgentParameters,
    (client, enrolled): (AgentHttpClient, Option<AgentEnrolment>),
    listen: SocketAddr,
    facts: Option<ApplianceFacts>,
) -> Result<AgentOptions, ProgramError> {
    let target = facts.as_ref().map(|facts| facts.url.as_str());
    let target = target.or(parameters.inspection_callback_url.as_deref());
    let advertise = match (&parameters.advertise_host, target) {
        (Some(host), _) => Some(host.clone()),
        (None, Some(url)) => appliance::own_address(url).await.map(host_of_address),
        (None, None) => None,
    };
    let api_minor = facts.as_ref().map_or(0, |facts| facts.minor);
    let tls = match &advertise {
        Some(host) if api_minor >= AGENT_VERIFY_CA_MINOR => {
            let ca = enrolled.as_ref().map(|enrolled| enrolled.ca.as_str());
            Some(AgentTlsIdentity::create(host, clock::unix_s(), ca)?)
        }
        _ => None,
    };
    let managers = spawn_blocking({
        let directory = parameters.hardware_managers.clone();
        move || load_programs(Path::new(&directory))
    })
    .await;
    let managers = managers.unwrap_or_default();
    let api_url = facts.map(|facts| facts.url);
    let by_collectors = api_url
        .as_ref()
        .filter(|_| !parameters.inspection_collectors.is_empty());
    let by_collectors = by_collectors.map(|url| format!("{url}{INSPECTION_PATH}"));
    let inspection_url = parameters.inspection_callback_url.clone().or(by_collectors);
    let inspection_url = inspection_url.filter(|_| !parameters.standalone);
    let added: Vec<_> = managers.iter().map(|one| facts_of(one.as_ref())).collect();
    let (inventory, inspection) =
        collect(parameters.clone(), added.clone(), inspection_url.is_some()).await;
    Ok(AgentOptions {
        inspection_url,
        api_url,
        listen,
        advertise,
        advertise_port: parameters.advertise_port,
        client,
        tls,
        api_minor,
        identity: AgentMachineIdentity {
            macs: macs(&inventory),
            inventory,
            node: None,
            token: parameters.agent_token.clone(),
            inspection,
            managers: added,
        },
        target: AgentTarget::Machine,
        rescue: None,
        ignores_bootloader_failure: parameters.ignore_bootloader_failure,
        intervals: AgentIntervals::STOCK,
        managers,
        logs: machine::log_archive,
    })
}

/// An address as the host of a URL.
fn host_of_address(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    }
}

/// The inventory, and the inspection data if they are wanted. They hold the inventory too, which
/// is not collected twice: a BMC takes seconds.
async fn collect(
    parameters: AgentParameters,
    added: Vec<ManagerFacts>,
    inspects: bool,
) -> (Value, Option<Value>) {
    let collected = spawn_blocking(move || {
        if !inspects {
            return (machine::inventory(&parameters), None);
        }
        let managers = [&[own_manager()][..], &added].concat();
        let data = machine::inspection(&parameters, &managers);
        match data
            .get("inventory")
            .filter(|inventory| inventory.is_object())
        {
            Some(inventory) => (inventory.clone(), Some(data)),
            None => (machine::inventory(&parameters), Some(data)),
        }
    });
    collected.await.unwrap_or_default()
}

fn facts_of(manager: &dyn HardwareManager) -> ManagerFacts {
    ManagerFacts {
        name: manager.name().to_owned(),
        version: manager.version().to_owned(),
        support: manager.evaluate_hardware_support(),
    }
}

/// The hardware addresses of an inventory.
fn macs(inventory: &Value) -> Vec<MacAddr> {
    let interfaces = inventory.get("interfaces").and_then(Value::as_array);
    let macs = interfaces.into_iter().flatten().filter_map(|interface| {
        let mac = interface.get("mac_address").and_then(Value::as_str);
        mac?.parse().ok()
    });
    macs.collect()
}

async fn run_shell(options: AgentOptions, debug: bool) -> Result<AgentExit, ProgramError> {
    // The machine has power as long as this program runs.
    let (_power, has_power) = watch::channel(true);
    let (events, mut reports) = mpsc::channel(EVENTS_MAX);
    let entropy = Box::new(KernelEntropy);
    let agent = shell::run(options, has_power, events, entropy);
    tokio::pin!(agent);
    let mut logged_bytes = 0;
    loop {
        tokio::select! {
            end = &mut agent => return Ok(end?),
            Some(event) = reports.recv() => {
                if debug || is_worth_a_line(&event, &mut logged_bytes) {
                    log_event(&event);
                }
            }
        }
    }
}

/// Whether an event is for the console without `debug`: progress is, at intervals, and each
/// heartbeat that was not accepted.
fn is_worth_a_line(event: &AgentShellEvent, logged_bytes: &mut u64) -> bool {
    match event {
        AgentShellEvent::Writing { bytes } => {
            let is_due = *bytes < *logged_bytes || *bytes >= *logged_bytes + PROGRESS_BYTES;
            if is_due {
                *logged_bytes = *bytes;
            }
            is_due
        }
        AgentShellEvent::Heartbeat(status) => *status != 202,
        _ => true,
    }
}

fn log_event(event: &AgentShellEvent) {
    let line = match event {
        AgentShellEvent::Listening(address) => format!("listening on {address}"),
        AgentShellEvent::Inspected(status) => format!("inspection data: status {status}"),
        AgentShellEvent::LookedUp(node) => format!("this machine is node {node}"),
        AgentShellEvent::Stuck => {
            "the token was issued before, and is lost: only a power cycle helps".to_owned()
        }
        AgentShellEvent::Heartbeat(status) => format!("heartbeat: status {status}"),
        AgentShellEvent::Writing { bytes } => format!("image: {} MiB received", bytes >> 20),
        AgentShellEvent::Wrote { bytes, digest } => {
            format!("image: {bytes} bytes written and verified, {digest}")
        }
        AgentShellEvent::Erasing { device, note } => format!("{device}: {note}"),
        AgentShellEvent::Bootloader(note) => note.clone(),
        AgentShellEvent::Erased => "disks erased".to_owned(),
        AgentShellEvent::Failed(reason) => format!("failed: {reason}"),
        AgentShellEvent::PowerOff => "power off".to_owned(),
        AgentShellEvent::Reboot => "reboot".to_owned(),
        AgentShellEvent::Rescued => "rescue".to_owned(),
        AgentShellEvent::Lockdown => "locked down: nothing happens until power-off".to_owned(),
    };
    log(&line);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_and_accepted_heartbeats_do_not_fill_the_console() {
        let mut logged = 0;
        let steps = [1_u64 << 20, 256 << 20, 260 << 20, 512 << 20, 1 << 20];
        let lines =
            steps.map(|bytes| is_worth_a_line(&AgentShellEvent::Writing { bytes }, &mut logged));
        // The last is the start of another image.
        assert_eq!(lines, [false, true, false, true, true]);
        assert!(!is_worth_a_line(
            &AgentShellEvent::Heartbeat(202),
            &mut logged
        ));
        assert!(is_worth_a_line(&AgentShellEvent::Heartbeat(0), &mut logged));
    }

    #[test]
    fn addresses_and_macs_have_their_forms() {
        assert_eq!(host_of_address("192.0.2.1".parse().unwrap()), "192.0.2.1");
        assert_eq!(
            host_of_address("2001:db8::1".parse().unwrap()),
            "[2001:db8::1]"
        );
        let inventory = serde_json::json!({"interfaces": [
            {"mac_address": "52:54:00:00:00:01"}, {"mac_address": null}, {}]});
        assert_eq!(macs(&inventory), ["52:54:00:00:00:01".parse().unwrap()]);
        let mut parameters = AgentParameters {
            listen_host: Some("[::1]".to_owned()),
            ..AgentParameters::default()
        };
        let listen = listening_address(&parameters).unwrap();
        assert_eq!(listen.to_string(), "[::1]:9999");
        parameters.listen_host = Some("here".to_owned());
        assert!(listening_address(&parameters).is_err());
    }
}
