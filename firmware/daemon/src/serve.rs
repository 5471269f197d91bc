//! `trivet serve`: runs the appliance on real interfaces, as the settings file says.

mod agents;
mod dhcp_links;

pub(crate) use dhcp_links::{missing_loaders, plan};

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use tokio::net::{TcpListener, UdpSocket};
use tokio::signal::unix::{SignalKind, signal};
use tracing::{info, warn};
use trivet_config::{self as config, Settings};
use trivet_images::ImageLibraryOptions;
use trivet_images::rate_limit::ImageFillWindow;
use trivet_model::BoxFault;
use trivet_rack::{BootLimitRule, RackFilePaths, WildcardListeners};

use crate::appliance::{
    self, ApplianceResources, NodeTrust, RunningAppliance, TcpService, open_store,
};
use crate::auth::Authenticator;
use crate::cache::{ImageCacheOptions, Origin};
use crate::clock::DaemonClock;
use crate::listeners::browser::HostNames;
use crate::reload::Reload;
use crate::tls_identity::ServerCertificate;
use crate::webhooks::Webhook;
use crate::{
    agent_iso, check, image_directory, images_ahead, listeners, log, sockets, tls_identity,
};

/// Runs until SIGINT or SIGTERM. `file` is read again at SIGHUP.
pub(crate) async fn run(file: &Path, settings: Settings) -> anyhow::Result<()> {
    // From here on SIGHUP does not end the process, however long the start takes.
    let hangup = signal(SignalKind::hangup()).context("SIGHUP cannot be handled")?;
    let clock = DaemonClock::start();
    let data = settings.appliance.data.clone();
    private_directory(&data)?;
    check_not_served(&data, &settings.boot)?;
    let name = settings.appliance.name.clone().unwrap_or_else(host_name);
    let (certificate, fingerprint) = certificate(&settings, &name, clock)?;
    let tls = |wanted: bool| wanted.then(|| certificate.tls());
    let api_has_tls = settings.api.as_ref().is_some_and(|api| api.tls);
    let api = settings.api.as_ref();
    let panel = settings.panel.as_ref();
    let http = settings.http.as_ref();
    let inspector = settings.inspector.as_ref();
    let plain = |sockets| TcpService { sockets, tls: None };
    let connections_max = connections_max(&settings);
    let here = trivet_board_linux::interfaces().context("the interfaces cannot be listed")?;
    let missing = check::interfaces_missing(&settings, &here);
    let awaited = check::awaited(&settings, &here);
    let (links, dhcp) = dhcp_links::open(&settings, &here, clock).await?;
    let mut parts = ApplianceResources {
        api: TcpService {
            sockets: listen("API", api.map(|api| &api.listen), &awaited).await?,
            tls: api_has_tls.then(|| certificate.mutual_tls()),
        },
        inspector: plain(listen("inspector", inspector.map(|one| &one.listen), &awaited).await?),
        http: plain(listen("HTTP", http.map(|http| &http.listen), &awaited).await?),
        https: https(http, &certificate, api_has_tls, &awaited).await?,
        panel: TcpService {
            sockets: listen("panel", panel.map(|panel| &panel.listen), &awaited).await?,
            tls: tls(panel.is_some_and(|panel| panel.tls)),
        },
        tftp: tftp(&settings, &awaited).await?,
        dhcp,
        bmc: sockets::udp("BMC", SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))).await?,
        ssh: listeners::ssh::SshCommandRunner::new(&data, settings.hardware.ssh_keys.as_deref()),
        redfish: listeners::redfish::RedfishHttpClient::new(
            settings.hardware.redfish_ca.as_deref(),
        )?,
        auth: auth(api, clock),
        hosts: host_names(&settings, &name),
        facts: facts(&settings, name, clock),
        trust: api_has_tls.then(|| certificate.node_trust()),
        connections_max,
        transfers_max: listeners::tftp::transfers_max(
            settings.limits.transfers_max,
            connections_max,
        ),
        logs: data.join("logs"),
        cache: (data.join("cache"), cache_settings(&settings, clock)?),
        notes: appliance::note_logger(clock),
        open_metrics: settings.metrics.allow_open,
        webhooks: webhooks(&settings)?,
    };
    let mut rack = rack_settings(&settings, &links, &parts)?;
    rack.faults.extend(missing.iter().cloned());
    parts.facts.agent_iso = rack.files.iso.is_some();
    let store = open_store(&data, settings.appliance.store_mib)?;
    log_addresses(&parts, &fingerprint);
    log_warnings(&settings);
    let reload = Reload::new((file, settings.clone()), &parts.auth, certificate, clock);
    let appliance = RunningAppliance::start(clock, parts, rack, store)?;
    let reloading = tokio::spawn(reload.run(hangup));
    let ended = run_to_end(appliance, settings, missing).await;
    reloading.abort();
    ended
}

/// The listener of files over TLS. Where agents get certificates it asks clients for them.
async fn https(
    http: Option<&config::HttpSettings>,
    certificate: &ServerCertificate,
    has_agents: bool,
    awaited: &check::AwaitedInterfaces,
) -> anyhow::Result<TcpService> {
    let sockets = listen("HTTPS", http.map(|http| &http.tls_listen), awaited).await?;
    let tls = match (sockets.is_empty(), has_agents) {
        (true, _) => None,
        (false, true) => Some(certificate.mutual_tls()),
        (false, false) => Some(certificate.tls()),
    };
    Ok(TcpService { sockets, tls })
}

fn log_warnings(settings: &Settings) {
    let warnings = check::services_off(settings).into_iter();
    for line in warnings.chain(check::unreadable(settings)) {
        warn!("{line}");
    }
}

/// The URLs that receive events.
fn webhooks(settings: &Settings) -> anyhow::Result<Vec<Webhook>> {
    settings.webhooks.iter().map(Webhook::open).collect()
}

/// The facts about the box that the API shows.
fn facts(settings: &Settings, hostname: String, clock: DaemonClock) -> trivet_api::ApiFacts {
    let api = settings.api.as_ref();
    trivet_api::ApiFacts {
        hostname,
        drivers: hardware(settings),
        public_endpoint: api.and_then(|api| api.public_url.clone()),
        // Filled in when the listeners open.
        inspector: false,
        agent_http_allowed: settings.agent.plain_http,
        agent_missing: check::agent_missing(settings),
        // Filled in when the image is read.
        agent_iso: false,
        // Filled in when the images are listed.
        images: Vec::new(),
        started_at: clock.now().wall,
    }
}

async fn run_to_end(
    appliance: RunningAppliance,
    settings: Settings,
    missing: Vec<BoxFault>,
) -> anyhow::Result<()> {
    let arrived = Arc::new(AtomicBool::new(false));
    let end = wait_for_end(stop_signal()?, settings, missing, Arc::clone(&arrived));
    appliance.run(end).await?;
    if arrived.load(Ordering::Relaxed) {
        return Err(restart());
    }
    info!("stopped; all acknowledged changes are on flash");
    Ok(())
}

/// How often the box checks for missing interfaces.
const INTERFACE_CHECK_GAP: Duration = Duration::from_secs(2);

/// Resolves when the box must stop, or when an interface that was missing at the start
/// can be used. Sets `came` in the second case.
async fn wait_for_end(
    stop: impl Future<Output = ()>,
    settings: Settings,
    missing: Vec<BoxFault>,
    arrived: Arc<AtomicBool>,
) {
    if missing.is_empty() {
        return stop.await;
    }
    let look = async {
        loop {
            tokio::time::sleep(INTERFACE_CHECK_GAP).await;
            let here = trivet_board_linux::interfaces().unwrap_or_default();
            if check::interfaces_missing(&settings, &here) != missing {
                return;
            }
        }
    };
    tokio::select! {
        () = stop => {}
        () = look => arrived.store(true, Ordering::Relaxed),
    }
}

/// Replaces this process by a new one with the same arguments. Links are fixed when the
/// rack is built, so only a restart can add one.
fn restart() -> anyhow::Error {
    info!("an interface of the settings has changed; restarting");
    log::flush();
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    // By its path, which names the process; the file may have been replaced or removed.
    let program = std::env::current_exe().ok().filter(|path| path.is_file());
    let error = std::process::Command::new(program.unwrap_or_else(|| "/proc/self/exe".into()))
        .arg0(name)
        .args(arguments)
        .exec();
    anyhow::Error::new(error).context("the box cannot restart itself; start it by hand")
}

/// The server certificate, and the fingerprint of the authority that signed it.
fn certificate(
    settings: &Settings,
    name: &str,
    clock: DaemonClock,
) -> anyhow::Result<(ServerCertificate, String)> {
    let authority = tls_identity::authority(&settings.appliance.data, name, clock)?;
    let fingerprint = authority.fingerprint();
    let names = vec![name.to_owned(), "localhost".to_owned()];
    let made = ServerCertificate::new(authority, names, addresses(settings), clock.now())?;
    Ok((made, fingerprint))
}

/// The connection limit. Logs a line if it is lower than the settings request.
fn connections_max(settings: &Settings) -> usize {
    let open_files = trivet_board_linux::raise_open_files();
    let wanted = settings.limits.connections_max as usize;
    let (connections_max, lowered) = listeners::http::connections_max(wanted, open_files);
    if let Some(line) = lowered {
        warn!("{line}");
    }
    connections_max
}

/// The options for fetching images.
fn cache_settings(settings: &Settings, clock: DaemonClock) -> anyhow::Result<ImageCacheOptions> {
    let images = &settings.images;
    Ok(ImageCacheOptions {
        origin: Origin::new(
            images.ca.as_deref(),
            images.proxy.clone(),
            &settings.registries,
        )?,
        bytes_per_s: images.rate_kib_s.map(|rate| u64::from(rate) << 10),
        clock,
    })
}

/// How images are fetched and kept.
fn image_library(images: &config::ImageCacheSettings) -> ImageLibraryOptions {
    ImageLibraryOptions {
        window: images.window.map(|hours| ImageFillWindow {
            from_minute: hours.from_minute,
            to_minute: hours.to_minute,
        }),
        quota_bytes: images.quota_gib.map(|quota| u64::from(quota) << 30),
        reserve_bytes: u64::from(images.reserve_mib) << 20,
        retry_delay_ms: trivet_images::RETRY_DELAY_MS,
        scrub_ms: Some(u64::from(images.scrub_s) * 1000),
    }
}

/// Resolves at SIGINT or SIGTERM.
fn stop_signal() -> anyhow::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = terminate.recv() => {}
        }
    })
}

/// Creates the data directory with access for this user only. An existing directory
/// keeps its mode: the operator may keep other files in it, and our secret files have
/// private modes of their own.
fn private_directory(data: &Path) -> anyhow::Result<()> {
    crate::private::directory(data)
        .with_context(|| format!("box.data: the directory {} cannot be used", data.display()))
}

/// The paths in `[boot]` are served to every machine, and `box.data` holds the keys:
/// neither may lead into the other, not even through symbolic links.
pub(crate) fn check_not_served(data: &Path, boot: &config::BootSettings) -> anyhow::Result<()> {
    // The directory is created at the first start.
    let Ok(data) = data.canonicalize() else {
        return Ok(());
    };
    let pair = boot.ramdisk.as_ref();
    let served = [
        ("boot.files", boot.files.as_deref()),
        ("boot.loaders", Some(boot.loaders.as_path())),
        ("boot.kernel", pair.map(|pair| pair.kernel.as_path())),
        ("boot.ramdisk", pair.map(|pair| pair.ramdisk.as_path())),
        ("boot.iso", boot.iso.as_deref()),
    ];
    for (key, path) in served {
        let Some(Ok(path)) = path.map(Path::canonicalize) else {
            continue;
        };
        // Images are served in any case, so a single file may be one of them.
        let image = path.is_file() && path.starts_with(data.join("images"));
        anyhow::ensure!(
            image || (!path.starts_with(&data) && !data.starts_with(&path)),
            "{key}: {} is served to every machine and leads into box.data ({}), which holds the \
             store and the keys; choose another place",
            path.display(),
            data.display()
        );
    }
    Ok(())
}

fn auth(api: Option<&config::ApiSettings>, clock: DaemonClock) -> Authenticator {
    match api.map(|api| &api.auth) {
        None | Some(config::ApiAuthSettings::None) => Authenticator::Open,
        Some(auth) => Authenticator::from_files(auth.users(), auth.tokens(), clock),
    }
}

fn host_name() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() {
        "trivet".to_owned()
    } else {
        name.to_owned()
    }
}

/// The host names under which clients may call this box.
fn host_names(settings: &Settings, name: &str) -> HostNames {
    let api = settings.api.iter();
    let given = api.clone().flat_map(|api| api.host_names.iter().cloned());
    let http = settings.http.iter();
    let public = api
        .filter_map(|api| api.public_url.as_deref())
        .chain(http.filter_map(|http| http.public_url.as_deref()));
    let public = public.filter_map(|url| {
        let uri: hyper::Uri = url.parse().ok()?;
        uri.host().map(str::to_owned)
    });
    let own = [name.to_owned(), host_name()];
    HostNames::new(own.into_iter().chain(given).chain(public))
}

fn hardware(settings: &Settings) -> Vec<String> {
    settings
        .hardware
        .types
        .iter()
        .map(|kind| kind.name().to_owned())
        .collect()
}

/// The addresses in the server certificate.
fn addresses(settings: &Settings) -> Vec<IpAddr> {
    let api = settings.api.iter().flat_map(|api| &api.listen);
    let panel = settings.panel.iter().flat_map(|panel| &panel.listen);
    let https = settings.http.iter().flat_map(|http| &http.tls_listen);
    let mut all: Vec<IpAddr> = api
        .chain(panel)
        .chain(https)
        .map(SocketAddr::ip)
        .filter(|ip| !ip.is_unspecified())
        .collect();
    let servers = settings.dhcp.iter().filter_map(|dhcp| dhcp.server);
    all.extend(servers.map(IpAddr::V4));
    all.push(Ipv4Addr::LOCALHOST.into());
    all.sort_unstable();
    all.dedup();
    all
}

async fn listen(
    service: &'static str,
    addresses: Option<&Vec<SocketAddr>>,
    awaited: &check::AwaitedInterfaces,
) -> anyhow::Result<Vec<TcpListener>> {
    let mut sockets = Vec::new();
    for address in addresses.into_iter().flatten() {
        if is_awaited(service, *address, awaited) {
            continue;
        }
        match sockets::tcp(service, *address).await {
            Err(error) if error.is_absent() && awaited.any => {
                warn!("{error}; it is retried when its interface appears");
            }
            opened => sockets.push(opened?),
        }
    }
    Ok(sockets)
}

/// Whether the address belongs to a missing interface; it is opened when the interface
/// appears.
fn is_awaited(service: &str, address: SocketAddr, awaited: &check::AwaitedInterfaces) -> bool {
    let waits = awaited.addresses.contains(&address.ip());
    if waits {
        warn!(
            service,
            %address,
            "{service}: nothing listens on {address} until its interface can be used"
        );
    }
    waits
}

async fn tftp(
    settings: &Settings,
    awaited: &check::AwaitedInterfaces,
) -> anyhow::Result<Vec<UdpSocket>> {
    let mut open = Vec::new();
    for address in settings.tftp.iter().flat_map(|tftp| &tftp.listen) {
        if is_awaited("TFTP", *address, awaited) {
            continue;
        }
        open.push(sockets::udp("TFTP", *address).await?);
    }
    Ok(open)
}

/// The URL at which nodes reach a service: the one from the settings, or else its port
/// on the first network that the box serves.
fn url_for_nodes(
    links: &[dhcp_links::DhcpLinkPlan],
    public: Option<&String>,
    scheme: &str,
    sockets: &[TcpListener],
) -> anyhow::Result<String> {
    if let Some(url) = public {
        return Ok(url.trim_end_matches('/').to_owned());
    }
    let Some(socket) = sockets.first() else {
        return Ok(String::new());
    };
    let address = socket.local_addr()?;
    let ours = links
        .iter()
        .find_map(dhcp_links::DhcpLinkPlan::server_address);
    let ip = match ours {
        Some(server) if address.ip().is_unspecified() => server.into(),
        _ if address.ip().is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        _ => address.ip(),
    };
    Ok(format!(
        "{scheme}://{}",
        SocketAddr::new(ip, address.port())
    ))
}

/// The port of a service that listens on every address and has no public URL in the
/// settings.
fn wildcard_port(public: Option<&String>, sockets: &[TcpListener]) -> Option<u16> {
    let address = sockets.first()?.local_addr().ok()?;
    (public.is_none() && address.ip().is_unspecified()).then_some(address.port())
}

fn rack_settings(
    settings: &Settings,
    links: &[dhcp_links::DhcpLinkPlan],
    parts: &ApplianceResources,
) -> anyhow::Result<trivet_rack::Settings> {
    let api = settings.api.as_ref();
    let scheme = if api.is_some_and(|api| api.tls) {
        "https"
    } else {
        "http"
    };
    let api_public = api.and_then(|api| api.public_url.as_ref());
    let http_public = settings
        .http
        .as_ref()
        .and_then(|http| http.public_url.as_ref());
    let api_url = url_for_nodes(links, api_public, scheme, &parts.api.sockets)?;
    let http_everywhere = wildcard_port(http_public, &parts.http.sockets);
    let http_url = url_for_nodes(links, http_public, "http", &parts.http.sockets)?;
    // A certificate comes only from an API with TLS.
    let https = match (&parts.trust, http_public) {
        (Some(_), None) => &parts.https.sockets[..],
        _ => &[],
    };
    let https_url = url_for_nodes(links, None, "https", https)?;
    let images = settings.appliance.data.join("images");
    let ramdisk = settings.boot.ramdisk.as_ref();
    let mut faults = faults(settings);
    let iso = agent_iso::of(&settings.boot).unwrap_or_else(|fault| {
        faults.push(fault);
        None
    });
    Ok(trivet_rack::Settings {
        dhcp: (!links.is_empty())
            .then(|| dhcp_links::dhcp_settings(links, &settings.boot, &http_url, http_everywhere)),
        images: image_directory::catalogue(&images, |line| info!("{line}"))?,
        cache: true,
        image_library: image_library(&settings.images),
        files: RackFilePaths {
            kernel: ramdisk.map(|pair| pair.kernel.clone()),
            ramdisk: ramdisk.map(|pair| pair.ramdisk.clone()),
            iso,
            agent_from_other_server: settings.boot.agent_elsewhere,
            images: Some(images),
            loaders: Some(settings.boot.loaders.clone()),
            operator: settings.boot.files.clone(),
            data: Some(settings.appliance.data.clone()),
        },
        api_url,
        http_url,
        https_url,
        wildcard_listeners: WildcardListeners {
            api: wildcard_port(api_public, &parts.api.sockets).map(|port| (scheme, port)),
            http: http_everywhere,
            https: wildcard_port(None, https),
        },
        kernel_args: settings.boot.kernel_args.clone(),
        heartbeat_timeout_s: settings.agent.heartbeat_timeout_s.into(),
        ca_key: parts.trust.as_ref().map(NodeTrust::ca_key),
        agent_requirement: agents::requirement(settings),
        agent_addresses: agents::addresses(settings),
        limits: agents::node_limits(settings, parts.trust.is_some()),
        pace: trivet_rack::IpmiTiming::default(),
        power_sync_interval_ms: Some(u64::from(settings.limits.power_fresh_s) * 1000)
            .filter(|every_ms| *every_ms > 0),
        boots_at_once: boots_at_once(settings),
        images_ahead: images_ahead::rules(settings),
        hardware: hardware(settings),
        faults,
    })
}

/// The faults that exist from the start.
pub(crate) fn faults(settings: &Settings) -> Vec<BoxFault> {
    let mut faults = dhcp_links::missing_loaders(settings);
    if check::agent_missing(settings) && settings.boot.iso.is_none() {
        faults.push(BoxFault::AgentMissing);
    }
    faults.extend(check::agent_files_missing(settings));
    faults.extend(check::loopback_addresses(settings));
    faults.extend(check::plain_tokens(settings));
    faults
}

fn boots_at_once(settings: &Settings) -> BootLimitRule {
    let many = settings.limits.boots_at_once;
    many.map_or(BootLimitRule::Auto, |many| {
        BootLimitRule::Fixed(many as usize)
    })
}

fn log_addresses(parts: &ApplianceResources, fingerprint: &str) {
    let services = [
        ("Ironic API", &parts.api),
        ("inspector", &parts.inspector),
        ("boot files and images", &parts.http),
        ("boot files and images", &parts.https),
        ("web page", &parts.panel),
    ];
    for (name, listening) in services {
        let scheme = if listening.tls.is_some() {
            "https"
        } else {
            "http"
        };
        for socket in &listening.sockets {
            if let Ok(address) = socket.local_addr() {
                info!(service = name, %address, "{name} at {scheme}://{address}/");
            }
        }
    }
    for socket in &parts.tftp {
        if let Ok(address) = socket.local_addr() {
            info!(service = "TFTP", %address, "TFTP at {address}");
        }
    }
    for place in &parts.dhcp {
        info!(service = "DHCP", "DHCP {place}");
    }
    info!(
        fingerprint,
        "this box's CA has SHA-256 fingerprint {fingerprint}"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testbed::TestbedDirectory;
    use std::os::unix::fs::PermissionsExt as _;

    fn settings(scratch: &TestbedDirectory, more: &str) -> Settings {
        let data = scratch.0.join("data");
        let text = format!("[box]\ndata = \"{}\"\n{more}", data.display());
        trivet_config::parse(&text).unwrap()
    }

    /// `[boot]` with one setting that names this path.
    fn boot(key: &str, path: &Path) -> config::BootSettings {
        let mut boot = config::BootSettings {
            loaders: "/absent".into(),
            ..config::BootSettings::default()
        };
        let mut pair = config::AgentRamdiskSettings {
            kernel: "/absent".into(),
            ramdisk: "/absent".into(),
        };
        let path = path.to_owned();
        match key {
            "boot.files" => boot.files = Some(path),
            "boot.loaders" => boot.loaders = path,
            "boot.kernel" => pair.kernel = path,
            _ => pair.ramdisk = path,
        }
        boot.ramdisk = Some(pair);
        boot
    }

    #[test]
    fn boot_directories_that_lead_into_the_data_directory_are_refused_through_links_too() {
        let scratch = TestbedDirectory::new();
        let data = scratch.0.join("data");
        fs::create_dir_all(data.join("images")).unwrap();
        fs::create_dir(scratch.0.join("files")).unwrap();
        let link = |name: &str, to: &Path| {
            let link = scratch.0.join(name);
            std::os::unix::fs::symlink(to, &link).unwrap();
            link
        };
        let refused = [
            link("to-data", &data),
            link("to-images", &data.join("images")),
            link("above", &scratch.0),
            data.clone(),
        ];
        let fine = [scratch.0.join("files"), scratch.0.join("absent")];
        for key in ["boot.files", "boot.loaders"] {
            for path in &refused {
                let message = check_not_served(&data, &boot(key, path)).unwrap_err();
                assert!(message.to_string().starts_with(key), "{message}");
            }
            for path in &fine {
                check_not_served(&data, &boot(key, path)).unwrap();
            }
        }
    }

    #[test]
    fn a_kernel_or_ramdisk_in_the_data_directory_is_refused_unless_it_is_an_image() {
        let scratch = TestbedDirectory::new();
        let data = scratch.0.join("data");
        fs::create_dir_all(data.join("images")).unwrap();
        let store = data.join("store");
        let image = data.join("images/kernel");
        let elsewhere = scratch.file("kernel", b"");
        fs::write(&store, b"").unwrap();
        fs::write(&image, b"").unwrap();
        let link = scratch.0.join("link");
        std::os::unix::fs::symlink(&store, &link).unwrap();
        for key in ["boot.kernel", "boot.ramdisk"] {
            for path in [&store, &link] {
                let message = check_not_served(&data, &boot(key, path)).unwrap_err();
                assert!(message.to_string().starts_with(key), "{message}");
            }
            for path in [&image, &elsewhere] {
                check_not_served(&data, &boot(key, path)).unwrap();
            }
        }
    }

    #[test]
    fn every_hardware_type_of_the_settings_is_built() {
        let names = hardware(&settings(&TestbedDirectory::new(), ""));
        let built: Vec<_> = trivet_drivers::ALL.iter().map(|one| one.name).collect();
        assert_eq!(names, built);
    }

    #[test]
    fn a_fresh_directory_is_private_and_an_old_one_is_left_alone() {
        let scratch = TestbedDirectory::new();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let fresh = scratch.0.join("deep/data");
        private_directory(&fresh).unwrap();
        assert_eq!(mode(&fresh), 0o700);
        fs::set_permissions(&fresh, fs::Permissions::from_mode(0o755)).unwrap();
        private_directory(&fresh).unwrap();
        assert_eq!(mode(&fresh), 0o755);
        let file = scratch.file("file", b"");
        let text = private_directory(&file).unwrap_err().to_string();
        assert!(text.contains("box.data"), "{text}");
    }
}
