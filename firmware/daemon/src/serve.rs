//! `trivet serve`: the appliance on real interfaces, by the settings file.

mod lan;

pub(crate) use lan::plan;

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use tokio::net::{TcpListener, UdpSocket};
use tokio::signal::unix::{SignalKind, signal};
use trivet_config::{self as config, Settings};
use trivet_images::pace::Window;
use trivet_rack::{AtOnce, Everywhere, Files, Limits};

use crate::appliance::{self, Appliance, Ground, Listening, open_store};
use crate::auth::{Auth, unusable_tokens, unusable_users};
use crate::cache::{FAILED_REST, Origin, Ways};
use crate::clock::Clock;
use crate::{doors, identity, library, say, sockets};

/// Runs until SIGINT or SIGTERM.
pub(crate) async fn run(settings: Settings) -> anyhow::Result<()> {
    let clock = Clock::start();
    let data = settings.appliance.data.clone();
    private_directory(&data)?;
    let name = settings.appliance.name.clone().unwrap_or_else(host_name);
    let authority = identity::authority(&data, &name, clock)?;
    let tls = |wanted: bool| -> anyhow::Result<_> {
        let names = [name.clone(), "localhost".to_owned()];
        let acceptor = || identity::acceptor(&authority, &names, &addresses(&settings), clock);
        wanted.then(acceptor).transpose()
    };
    let api = settings.api.as_ref();
    let panel = settings.panel.as_ref();
    let http = settings.http.as_ref();
    let inspector = settings.inspector.as_ref();
    let plain = |sockets| Listening { sockets, tls: None };
    let (links, dhcp) = lan::open(&settings, clock).await?;
    let ground = Ground {
        api: Listening {
            sockets: listen("API", api.map(|api| &api.listen)).await?,
            tls: tls(api.is_some_and(|api| api.tls))?,
        },
        inspector: plain(listen("inspector", inspector.map(|one| &one.listen)).await?),
        http: plain(listen("HTTP", http.map(|http| &http.listen)).await?),
        https: Listening {
            sockets: listen("HTTPS", http.map(|http| &http.tls_listen)).await?,
            tls: tls(http.is_some_and(|http| !http.tls_listen.is_empty()))?,
        },
        panel: Listening {
            sockets: listen("panel", panel.map(|panel| &panel.listen)).await?,
            tls: tls(panel.is_some_and(|panel| panel.tls))?,
        },
        tftp: tftp(&settings).await?,
        dhcp,
        bmc: sockets::udp("BMC", SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))).await?,
        ssh: doors::ssh::Door::new(&data),
        redfish: doors::redfish::Door::new(settings.hardware.redfish_ca.as_deref())?,
        auth: auth(api, clock),
        facts: trivet_api::Facts {
            hostname: name,
            drivers: hardware(&settings),
            public_endpoint: api.and_then(|api| api.public_url.clone()),
            // Filled in when the doors open.
            inspector: false,
            agent_http_allowed: settings.agent.plain_http,
            // Filled in when the images are listed.
            images: Vec::new(),
            started_at: clock.now().wall,
        },
        connections_max: settings.limits.connections_max as usize,
        transfers_max: doors::tftp::transfers_max(
            settings.limits.transfers_max,
            settings.limits.connections_max as usize,
        ),
        logs: data.join("logs"),
        cache: (data.join("cache"), ways(&settings.images, clock)?),
        notes: appliance::log(clock),
    };
    let rack = rack_settings(&settings, &links, &ground)?;
    let store = open_store(&data, settings.appliance.store_mib)?;
    say_where(&ground, &authority.fingerprint());
    for line in missing(&settings, &rack.files, [&rack.api_url, &rack.http_url]) {
        say::line(&format!("trivet: warning: {line}"));
    }
    let appliance = Appliance::start(clock, ground, rack, store)?;
    appliance.run(told_to_stop()?).await?;
    say::line("trivet: stopped; all that was acknowledged is on flash");
    Ok(())
}

/// How images from elsewhere are fetched.
fn ways(images: &config::Images, clock: Clock) -> anyhow::Result<Ways> {
    Ok(Ways {
        origin: Origin::new(images.ca.as_deref(), images.proxy.clone())?,
        bytes_per_s: images.rate_kib_s.map(|rate| u64::from(rate) << 10),
        window: images.window.map(|hours| Window {
            from_minute: hours.from_minute,
            to_minute: hours.to_minute,
        }),
        quota_bytes: images.quota_gib.map(|quota| u64::from(quota) << 30),
        reserve_bytes: u64::from(images.reserve_mib) << 20,
        failed_rest: FAILED_REST,
        scrub: Some(Duration::from_secs(images.scrub_s.into())),
        clock,
    })
}

/// Comes with SIGINT or SIGTERM.
fn told_to_stop() -> anyhow::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = terminate.recv() => {}
        }
    })
}

/// Makes the data directory for ourselves alone. One that exists keeps its mode: it
/// may be a directory of the operator's with more in it, and what is secret in ours
/// has its own.
fn private_directory(data: &Path) -> anyhow::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(data)
        .with_context(|| format!("box.data: the directory {} cannot be used", data.display()))
}

/// What the settings name and nodes will miss. The box serves all the same: files
/// may come later. Loaders are not among it: one that is missing is a fault.
fn missing(settings: &Settings, files: &Files, urls: [&str; 2]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut look = |key: &str, path: &Path| {
        if let Err(error) = fs::File::open(path) {
            let path = path.display();
            lines.push(format!("{key}: {path} cannot be read: {error}"));
        }
    };
    for (key, path) in [
        ("boot.kernel", &files.kernel),
        ("boot.ramdisk", &files.ramdisk),
        ("boot.files", &files.operator),
    ] {
        if let Some(path) = path {
            look(key, path);
        }
    }
    if let Some(auth) = settings.api.as_ref().map(|api| &api.auth) {
        let users = auth.users().and_then(unusable_users);
        lines.extend(users.map(|why| format!("api.users: {why}")));
        let tokens = auth.tokens().and_then(unusable_tokens);
        lines.extend(tokens.map(|why| format!("api.tokens: {why}")));
    }
    let store = settings.appliance.data.join("store");
    lines.extend(other_size(&store, settings.appliance.store_mib));
    if files.ramdisk.is_some() && !settings.agent.plain_http {
        lines.push(
            "agent.plain_http: is false, so agents have to use TLS; Trivet's own agent does not \
             yet"
            .to_owned(),
        );
    }
    let beyond = !settings.dhcp.is_empty();
    for (key, url) in ["api.public_url", "http.public_url"].iter().zip(urls) {
        if beyond && (url.contains("://127.") || url.contains("://[::1]")) {
            lines.push(format!(
                "{key}: nodes are told {url}, where they reach nothing"
            ));
        }
    }
    lines
}

fn auth(api: Option<&config::Api>, clock: Clock) -> Auth {
    match api.map(|api| &api.auth) {
        None | Some(config::Auth::None) => Auth::Open,
        Some(auth) => Auth::gate(auth.users(), auth.tokens(), clock),
    }
}

/// A store keeps the size it was made with.
fn other_size(store: &Path, wanted_mib: u32) -> Option<String> {
    let bytes = fs::metadata(store).ok()?.len();
    (bytes != u64::from(wanted_mib) << 20).then(|| {
        format!(
            "box.store_mib: {wanted_mib} MiB are asked for, but {} was made with {} MiB and \
             keeps its size",
            store.display(),
            bytes >> 20
        )
    })
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

fn hardware(settings: &Settings) -> Vec<String> {
    settings
        .hardware
        .types
        .iter()
        .map(|kind| kind.name().to_owned())
        .collect()
}

/// The addresses a server certificate is for.
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
) -> anyhow::Result<Vec<TcpListener>> {
    let mut sockets = Vec::new();
    for address in addresses.into_iter().flatten() {
        sockets.push(sockets::tcp(service, *address).await?);
    }
    Ok(sockets)
}

async fn tftp(settings: &Settings) -> anyhow::Result<Vec<UdpSocket>> {
    let mut open = Vec::new();
    for address in settings.tftp.iter().flat_map(|tftp| &tftp.listen) {
        open.push(sockets::udp("TFTP", *address).await?);
    }
    Ok(open)
}

/// Where nodes reach a service: what the settings say, or else its port on the
/// first network that the box serves.
fn url_for_nodes(
    links: &[lan::Entry],
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
    let ours = links.iter().find_map(lan::Entry::speaks_as);
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

/// The port of a service that listens on every address, and is not said to be elsewhere.
fn everywhere(public: Option<&String>, sockets: &[TcpListener]) -> Option<u16> {
    let address = sockets.first()?.local_addr().ok()?;
    (public.is_none() && address.ip().is_unspecified()).then_some(address.port())
}

fn rack_settings(
    settings: &Settings,
    links: &[lan::Entry],
    ground: &Ground,
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
    let api_url = url_for_nodes(links, api_public, scheme, &ground.api.sockets)?;
    let http_everywhere = everywhere(http_public, &ground.http.sockets);
    let http_url = url_for_nodes(links, http_public, "http", &ground.http.sockets)?;
    let images = settings.appliance.data.join("images");
    let ramdisk = settings.boot.ramdisk.as_ref();
    Ok(trivet_rack::Settings {
        dhcp: (!links.is_empty())
            .then(|| lan::room(links, &settings.boot, &http_url, http_everywhere)),
        images: library::catalogue(&images, |line| say::line(&format!("trivet: {line}")))?,
        cache: true,
        files: Files {
            kernel: ramdisk.map(|pair| pair.kernel.clone()),
            ramdisk: ramdisk.map(|pair| pair.ramdisk.clone()),
            images: Some(images),
            loaders: Some(settings.boot.loaders.clone()),
            operator: settings.boot.files.clone(),
        },
        api_url,
        http_url,
        everywhere: Everywhere {
            api: everywhere(api_public, &ground.api.sockets).map(|port| (scheme, port)),
            http: http_everywhere,
        },
        kernel_args: settings.boot.kernel_args.clone(),
        heartbeat_timeout_s: settings.agent.heartbeat_timeout_s.into(),
        limits: Limits {
            boot_ms: u64::from(settings.agent.boot_wait_s) * 1000,
            agent_wait_ms: u64::from(settings.agent.wait_s) * 1000,
            silence_ms: u64::from(settings.agent.heartbeat_timeout_s) * 1000,
            fast_track: settings.agent.fast_track,
            erase: match settings.agent.erase {
                trivet_config::Erase::Metadata => trivet_rack::Erase::Metadata,
                trivet_config::Erase::Full => trivet_rack::Erase::Full,
                trivet_config::Erase::None => trivet_rack::Erase::None,
            },
            ..Limits::default()
        },
        pace: trivet_rack::Pace::default(),
        power_fresh_ms: Some(u64::from(settings.limits.power_fresh_s) * 1000)
            .filter(|every_ms| *every_ms > 0),
        boots_at_once: boots_at_once(settings),
        hardware: hardware(settings),
        faults: lan::missing_loaders(settings),
    })
}

fn boots_at_once(settings: &Settings) -> AtOnce {
    let many = settings.limits.boots_at_once;
    many.map_or(AtOnce::Auto, |many| AtOnce::Fixed(many as usize))
}

fn say_where(ground: &Ground, fingerprint: &str) {
    let services = [
        ("Ironic API", &ground.api),
        ("inspector", &ground.inspector),
        ("boot files and images", &ground.http),
        ("boot files and images", &ground.https),
        ("web page", &ground.panel),
    ];
    for (name, listening) in services {
        let scheme = if listening.tls.is_some() {
            "https"
        } else {
            "http"
        };
        for socket in &listening.sockets {
            if let Ok(address) = socket.local_addr() {
                say::line(&format!("trivet: {name} at {scheme}://{address}/"));
            }
        }
    }
    for socket in &ground.tftp {
        if let Ok(address) = socket.local_addr() {
            say::line(&format!("trivet: TFTP at {address}"));
        }
    }
    for place in &ground.dhcp {
        say::line(&format!("trivet: DHCP {place}"));
    }
    say::line(&format!(
        "trivet: this box's CA has SHA-256 fingerprint {fingerprint}"
    ));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testbed::Scratch;
    use std::os::unix::fs::PermissionsExt as _;

    fn settings(scratch: &Scratch, more: &str) -> Settings {
        let data = scratch.0.join("data");
        let text = format!("[box]\ndata = \"{}\"\n{more}", data.display());
        trivet_config::parse(&text).unwrap()
    }

    #[test]
    fn every_hardware_type_of_the_settings_is_built() {
        let names = hardware(&settings(&Scratch::new(), ""));
        let built: Vec<_> = trivet_hardware::ALL.iter().map(|one| one.name).collect();
        assert_eq!(names, built);
    }

    #[test]
    fn what_nodes_would_miss_is_named() {
        let scratch = Scratch::new();
        let kernel = scratch.file("kernel", b"k");
        let more = format!(
            "[boot]\nkernel = \"{}\"\nramdisk = \"/nowhere/ramdisk\"\n\
             [agent]\nplain_http = true\n",
            kernel.display()
        );
        let settings = settings(&scratch, &more);
        let pair = settings.boot.ramdisk.as_ref();
        let files = Files {
            kernel: pair.map(|pair| pair.kernel.clone()),
            ramdisk: pair.map(|pair| pair.ramdisk.clone()),
            ..Files::default()
        };
        let urls = ["http://127.0.0.1:1", ""];
        let lines = missing(&settings, &files, urls);
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].starts_with("boot.ramdisk: /nowhere/ramdisk"));
        let strict = Settings {
            agent: config::Agent::default(),
            ..settings
        };
        let lines = missing(&strict, &files, urls);
        assert!(lines[1].starts_with("agent.plain_http: "), "{lines:?}");
    }

    #[test]
    fn who_cannot_come_in_is_named_with_the_key() {
        let scratch = Scratch::new();
        let users = scratch.file("users", b"ann:plain\n");
        let more = format!(
            "[api]\nauth = \"basic\"\nusers = \"{}\"\ntokens = \"/nowhere/tokens\"\n",
            users.display()
        );
        let lines = missing(&settings(&scratch, &more), &Files::default(), ["", ""]);
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].starts_with("api.users: ") && lines[0].contains("ann"));
        assert!(!lines[0].contains("plain"), "a password may stand there");
        assert!(lines[1].starts_with("api.tokens: /nowhere/tokens cannot be read"));
    }

    #[test]
    fn a_store_of_another_size_is_told() {
        let scratch = Scratch::new();
        let store = scratch.0.join("store");
        assert_eq!(other_size(&store, 4), None, "it is made with this size");
        fs::File::create(&store).unwrap().set_len(4 << 20).unwrap();
        assert_eq!(other_size(&store, 4), None);
        let said = other_size(&store, 8).unwrap();
        assert!(said.contains("8 MiB are asked for"), "{said}");
        assert!(said.contains("made with 4 MiB"), "{said}");
    }

    #[test]
    fn a_fresh_directory_is_private_and_an_old_one_is_left_alone() {
        let scratch = Scratch::new();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let fresh = scratch.0.join("deep/data");
        private_directory(&fresh).unwrap();
        assert_eq!(mode(&fresh), 0o700);
        fs::set_permissions(&fresh, fs::Permissions::from_mode(0o755)).unwrap();
        private_directory(&fresh).unwrap();
        assert_eq!(mode(&fresh), 0o755);
        let file = scratch.file("file", b"");
        let said = private_directory(&file).unwrap_err().to_string();
        assert!(said.contains("box.data"), "{said}");
    }
}
