//! Checks the settings against this machine: files, loaders, interfaces, addresses and
//! ports. `trivet check` prints the result, and `trivet serve` logs the same warnings.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use trivet_board_linux::EthernetInterface;
use trivet_config::{DhcpMode, DhcpSource, Settings, WebhookSettings};
use trivet_model::BoxFault;

use crate::agent_iso;
use crate::auth::{unusable_tokens, unusable_users};
use crate::images_ahead;
use crate::serve;
use crate::webhooks::Webhook;

/// The result of `trivet check`.
#[derive(Debug, Default)]
pub(crate) struct SettingsCheckReport {
    /// The box would not work: `trivet check` fails.
    pub(crate) errors: Vec<String>,
    /// The box works, but without some function.
    pub(crate) warnings: Vec<String>,
}

/// Checks the settings and, unless `offline`, this machine.
pub(crate) fn check(settings: &Settings, offline: bool) -> SettingsCheckReport {
    let mut report = SettingsCheckReport::default();
    let errors = loopback_addresses(settings);
    report.errors.extend(errors.iter().map(ToString::to_string));
    report.warnings.extend(services_off(settings));
    report
        .warnings
        .extend(images_ahead::without_effect(settings));
    if agent_missing(settings) && settings.boot.iso.is_none() {
        report.warnings.push(BoxFault::AgentMissing.to_string());
    }
    let plain = plain_tokens(settings);
    report
        .warnings
        .extend(plain.iter().map(ToString::to_string));
    let iso = if offline {
        agent_iso::misread_arguments(&settings.boot)
    } else {
        agent_iso::of(&settings.boot).err()
    };
    report.errors.extend(iso.map(|fault| fault.to_string()));
    if offline {
        return report;
    }
    report.warnings.extend(unreadable(settings));
    let files = agent_files_missing(settings);
    report.errors.extend(files.iter().map(ToString::to_string));
    let loaders = serve::missing_loaders(settings);
    let loaders = loaders.iter().map(ToString::to_string);
    report.warnings.extend(loaders);
    match trivet_board_linux::interfaces() {
        Ok(interfaces) => {
            let missing = interfaces_missing(settings, &interfaces);
            let missing = missing.iter().map(ToString::to_string);
            report.errors.extend(missing);
        }
        Err(error) => report
            .errors
            .push(format!("the interfaces cannot be listed: {error}")),
    }
    for webhook in &settings.webhooks {
        if let Err(error) = Webhook::open(webhook) {
            report.errors.push(format!("{error:#}"));
        }
        report.warnings.extend(readable_secret(webhook));
    }
    match data_unusable(&settings.appliance.data) {
        // The box may run as another user than this check.
        Some((line, true)) => report.warnings.push(line),
        Some((line, false)) => report.errors.push(line),
        None => {}
    }
    if let Err(error) = serve::check_not_served(&settings.appliance.data, &settings.boot) {
        report.errors.push(format!("{error:#}"));
    }
    for (line, in_use) in ports_in_use(settings) {
        // A running box with these settings holds these ports itself.
        if in_use {
            report.warnings.push(line);
        } else {
            report.errors.push(line);
        }
    }
    report
}

/// That other users of this machine can read the secret of a webhook.
fn readable_secret(webhook: &WebhookSettings) -> Option<String> {
    let path = webhook.secret_file.as_ref()?;
    let mode = fs::metadata(path).ok()?.permissions().mode();
    let path = path.display();
    (mode & 0o077 != 0).then(|| {
        format!(
            "webhook.secret_file: other users of this machine can read {path}; run: chmod 600 \
             {path}"
        )
    })
}

/// Why `box.data` cannot be used, or created at the first start, and whether only the
/// permissions of this user prevent it. Writes nothing.
fn data_unusable(data: &Path) -> Option<(String, bool)> {
    let mut above = data.ancestors();
    let here = above.find(|path| fs::symlink_metadata(path).is_ok());
    // The parent of a relative path is the working directory.
    let here = here.unwrap_or(Path::new("."));
    let usable = fs::metadata(here).and_then(|facts| {
        if !facts.is_dir() {
            return Err(std::io::ErrorKind::NotADirectory.into());
        }
        trivet_board_linux::check_writable(here)
    });
    let error = usable.err()?;
    let forbidden = error.kind() == std::io::ErrorKind::PermissionDenied;
    let data = data.display();
    let hint = if forbidden {
        "; this user may not write there, `trivet serve` must run as a user who may"
    } else {
        ""
    };
    let line = format!("box.data: the directory {data} cannot be used: {error}{hint}");
    Some((line, forbidden))
}

/// Services whose section is missing. A box without an API and a web page cannot be
/// used.
pub(crate) fn services_off(settings: &Settings) -> Vec<String> {
    let mut lines = Vec::new();
    let mut off = |has: bool, section: &str, what: &str| {
        if !has {
            lines.push(format!("there is no section [{section}]: {what}"));
        }
    };
    off(
        settings.api.is_some(),
        "api",
        "the Ironic API is off, and neither `trivet node` nor agents can reach the box",
    );
    off(settings.panel.is_some(), "panel", "the web page is off");
    let boots = settings.dhcp.iter().any(|dhcp| sends_replies(dhcp.mode));
    if boots {
        off(
            settings.http.is_some(),
            "http",
            "boot files and images are not served, so nodes cannot boot the agent",
        );
        off(
            settings.tftp.is_some(),
            "tftp",
            "firmware that boots by PXE gets no boot loader",
        );
    }
    lines
}

/// Whether the settings give nodes that boot from the network no agent.
pub(crate) fn agent_missing(settings: &Settings) -> bool {
    settings.boot.ramdisk.is_none() && !settings.boot.agent_elsewhere && settings.api.is_some()
}

/// Kernel and ramdisk files in the settings that cannot be read.
pub(crate) fn agent_files_missing(settings: &Settings) -> Vec<BoxFault> {
    let pair = settings.boot.ramdisk.iter();
    let files = pair.flat_map(|pair| [&pair.kernel, &pair.ramdisk]);
    let missing = files.filter_map(|path| {
        Some(BoxFault::AgentFileMissing {
            path: path.display().to_string(),
            why: agent_file_fault(path)?,
        })
    });
    missing.collect()
}

/// Why a file cannot be served, if so. Directories can be opened but not read.
pub(crate) fn agent_file_fault(path: &Path) -> Option<String> {
    match fs::File::open(path).and_then(|file| file.metadata()) {
        Ok(found) if found.is_file() => None,
        Ok(_) => Some("it is not a file".to_owned()),
        Err(error) => Some(error.to_string()),
    }
}

/// API tokens that are sent over unencrypted HTTP on a network.
pub(crate) fn plain_tokens(settings: &Settings) -> Option<BoxFault> {
    let address = trivet_config::plain_tokens(settings)?;
    Some(BoxFault::PlainTokens { address })
}

/// Loopback addresses that the box would give to nodes although DHCP serves other
/// machines, which cannot reach them.
pub(crate) fn loopback_addresses(settings: &Settings) -> Vec<BoxFault> {
    let answers = |dhcp: &trivet_config::DhcpSettings| {
        let at_home = match &dhcp.source {
            DhcpSource::Relayed(address) => address.ip().is_loopback(),
            DhcpSource::Interface(name) => name == "lo",
        };
        sends_replies(dhcp.mode)
            && !at_home
            && !dhcp.server.is_some_and(|server| server.is_loopback())
    };
    if !settings.dhcp.iter().any(answers) {
        return Vec::new();
    }
    let api = settings.api.as_ref();
    let http = settings.http.as_ref();
    let reported = [
        api.map(|api| {
            let scheme = if api.tls { "https" } else { "http" };
            let public = api.public_url.as_deref();
            ("api.public_url", scheme, public, api.listen.first())
        }),
        http.map(|http| {
            let public = http.public_url.as_deref();
            ("http.public_url", "http", public, http.listen.first())
        }),
    ];
    let reported = reported.into_iter().flatten();
    let loopback = reported.filter_map(|(key, scheme, public, listen)| {
        let url = match public {
            Some(url) => url.to_owned(),
            None => format!("{scheme}://{}", listen?),
        };
        is_loopback(&url).then_some(BoxFault::LoopbackAddress { key, url })
    });
    loopback.collect()
}

fn is_loopback(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if let Ok(address) = authority.parse::<SocketAddr>() {
        return address.ip().is_loopback();
    }
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn sends_replies(mode: DhcpMode) -> bool {
    mode != DhcpMode::Listen
}

/// Interfaces in the settings that do not exist or have no address.
pub(crate) fn interfaces_missing(settings: &Settings, here: &[EthernetInterface]) -> Vec<BoxFault> {
    let missing = settings.dhcp.iter().filter_map(|dhcp| {
        let DhcpSource::Interface(name) = &dhcp.source else {
            return None;
        };
        let why = unusable_reason(dhcp, here.iter().find(|one| one.name == *name))?;
        let name = name.clone();
        Some(BoxFault::InterfaceMissing { name, why })
    });
    missing.collect()
}

/// Interfaces in the settings that cannot be used yet.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct AwaitedInterfaces {
    /// The box's own addresses on them, as far as the settings name them.
    pub(crate) addresses: Vec<IpAddr>,
    /// Whether there is at least one such interface.
    pub(crate) any: bool,
}

/// The box's own addresses on interfaces that cannot be used yet.
pub(crate) fn awaited(settings: &Settings, here: &[EthernetInterface]) -> AwaitedInterfaces {
    let missing = settings.dhcp.iter().filter(|dhcp| match &dhcp.source {
        DhcpSource::Interface(name) => {
            unusable_reason(dhcp, here.iter().find(|one| one.name == *name)).is_some()
        }
        DhcpSource::Relayed(_) => false,
    });
    let missing: Vec<_> = missing.collect();
    let servers = missing.iter().filter_map(|dhcp| dhcp.server);
    AwaitedInterfaces {
        addresses: servers.map(IpAddr::V4).collect(),
        any: !missing.is_empty(),
    }
}

/// Why the interface cannot be used as the settings require.
pub(crate) fn unusable_reason(
    dhcp: &trivet_config::DhcpSettings,
    interface: Option<&EthernetInterface>,
) -> Option<&'static str> {
    let Some(interface) = interface else {
        return Some("does not exist");
    };
    if !sends_replies(dhcp.mode) {
        return None;
    }
    match dhcp.server {
        None if interface.addresses.is_empty() => Some("has no IPv4 address"),
        Some(server) if !interface.addresses.contains(&server) => {
            Some("does not have the address that `server` names")
        }
        _ => None,
    }
}

/// User, token and operator files that cannot be read, and a mismatch of the store's
/// size.
pub(crate) fn unreadable(settings: &Settings) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(path) = &settings.boot.files
        && let Err(error) = fs::File::open(path)
    {
        let path = path.display();
        lines.push(format!("boot.files: {path} cannot be read: {error}"));
    }
    if let Some(auth) = settings.api.as_ref().map(|api| &api.auth) {
        let users = auth.users().and_then(unusable_users);
        lines.extend(users.map(|why| format!("api.users: {why}")));
        let tokens = auth.tokens().and_then(unusable_tokens);
        lines.extend(tokens.map(|why| format!("api.tokens: {why}")));
    }
    for registry in &settings.registries {
        if let Some((_, path)) = &registry.login
            && let Err(error) = fs::File::open(path)
        {
            let path = path.display();
            let line = format!("registry.password_file: {path} cannot be read: {error}");
            lines.push(line);
        }
    }
    let store = settings.appliance.data.join("store");
    lines.extend(other_size(&store, settings.appliance.store_mib));
    if settings.agent.address_check == trivet_config::AgentAddressCheck::Off {
        lines.push(
            "agent.address_check: is \"off\", so any machine that reaches the API can pose as the \
             agent of a node; that is for tests and demonstrations only"
                .to_owned(),
        );
    }
    let has_tls = settings.api.as_ref().is_some_and(|api| api.tls);
    if settings.agent.require != trivet_config::AgentRequirement::None && !has_tls {
        lines.push(
            "agent.require: needs api.tls = true; without it no agent can get a certificate"
                .to_owned(),
        );
    }
    lines
}

/// A store keeps the size it was created with.
fn other_size(store: &Path, wanted_mib: u32) -> Option<String> {
    let bytes = fs::metadata(store).ok()?.len();
    (bytes != u64::from(wanted_mib) << 20).then(|| {
        format!(
            "box.store_mib: the settings say {wanted_mib} MiB, but {} was created with {} MiB and \
             keeps its size",
            store.display(),
            bytes >> 20
        )
    })
}

/// Addresses in the settings that cannot be listened on now. A running box holds its
/// own ports.
fn ports_in_use(settings: &Settings) -> Vec<(String, bool)> {
    let mut lines = Vec::new();
    let api = settings.api.iter().map(|api| ("api.listen", &api.listen));
    let inspector = settings.inspector.iter();
    let inspector = inspector.map(|one| ("inspector.listen", &one.listen));
    let panel = settings.panel.iter();
    let panel = panel.map(|panel| ("panel.listen", &panel.listen));
    let http = settings.http.iter().flat_map(|http| {
        [
            ("http.listen", &http.listen),
            ("http.tls_listen", &http.tls_listen),
        ]
    });
    for (key, addresses) in api.chain(inspector).chain(panel).chain(http) {
        for address in addresses {
            if let Err(error) = std::net::TcpListener::bind(address) {
                lines.push(port_line(key, *address, &error));
            }
        }
    }
    for address in settings.tftp.iter().flat_map(|tftp| &tftp.listen) {
        if let Err(error) = std::net::UdpSocket::bind(address) {
            lines.push(port_line("tftp.listen", *address, &error));
        }
    }
    lines
}

fn port_line(key: &str, address: SocketAddr, error: &std::io::Error) -> (String, bool) {
    let hint = match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            "; another program (or this box, if it runs already) listens there"
        }
        std::io::ErrorKind::AddrNotAvailable => "; no interface of this machine has that address",
        std::io::ErrorKind::PermissionDenied => {
            "; ports below 1024 need root or CAP_NET_BIND_SERVICE"
        }
        _ => "",
    };
    let in_use = error.kind() == std::io::ErrorKind::AddrInUse;
    let line = format!("{key}: cannot listen on {address}: {error}{hint}");
    (line, in_use)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testbed::TestbedDirectory;
    use std::net::Ipv4Addr;

    const RACK: &str = "[[dhcp]]\ninterface = \"eth9\"\nmode = \"server\"\n\
        network = \"192.0.2.0/24\"\nfirst = \"192.0.2.10\"\nlast = \"192.0.2.20\"\n\
        server = \"192.0.2.1\"\n";

    #[test]
    fn a_directory_is_no_ramdisk() {
        let directory = TestbedDirectory::new();
        let path = directory.0.as_path();
        assert_eq!(agent_file_fault(path).as_deref(), Some("it is not a file"));
        let file = path.join("kernel");
        assert!(agent_file_fault(&file).is_some_and(|why| why.contains("No such file")));
        fs::write(&file, "k").unwrap();
        assert_eq!(agent_file_fault(&file), None);
    }

    fn settings(more: &str) -> Settings {
        trivet_config::parse(&format!("[box]\ndata = \"/d\"\n{more}")).unwrap()
    }

    fn errors(more: &str) -> String {
        check(&settings(more), true).errors.join("\n")
    }

    #[test]
    fn a_loopback_address_for_nodes_is_an_error_where_dhcp_is_on() {
        let text = errors(&format!("[api]\n[http]\nlisten = \"0.0.0.0\"\n{RACK}"));
        assert!(
            text.contains("nodes receive http://127.0.0.1:6385"),
            "{text}"
        );
        assert!(text.contains("api.public_url"), "{text}");
        let named = "[api]\npublic_url = \"http://localhost:6385\"\n";
        assert!(errors(&format!("{named}{RACK}")).contains("http://localhost:6385"));
        let public = "[api]\npublic_url = \"http://192.0.2.1:6385\"\n";
        assert_eq!(errors(&format!("{public}{RACK}")), "");
        let open = "[api]\nlisten = \"0.0.0.0\"\nallow_open = true\n";
        assert_eq!(errors(&format!("{open}{RACK}")), "");
        let http = "[http]\nlisten = \"127.0.0.1\"\n";
        let text = errors(&format!("{open}{http}{RACK}"));
        assert!(text.contains("http.public_url"), "{text}");
    }

    #[test]
    fn a_box_that_gives_no_addresses_may_keep_its_api_on_loopback() {
        assert_eq!(errors("[api]\n"), "");
        let listens = "[api]\n[[dhcp]]\ninterface = \"eth9\"\nmode = \"listen\"\n";
        assert_eq!(errors(listens), "");
        let relayed = RACK.replace("interface = \"eth9\"", "listen = \"127.0.0.1\"");
        assert_eq!(errors(&format!("[api]\n{relayed}")), "");
    }

    #[test]
    fn settings_with_only_a_box_say_that_api_and_page_are_off() {
        let message = check(&settings(""), true).warnings.join("\n");
        assert!(message.contains("no section [api]"), "{message}");
        assert!(message.contains("no section [panel]"), "{message}");
        let both = check(&settings("[api]\n[panel]\n"), true);
        let message = both.warnings.join("\n");
        assert!(!message.contains("no section"), "{message}");
    }

    #[test]
    fn a_box_without_an_agent_to_boot_says_so_and_what_to_do() {
        let message = check(&settings("[api]\n"), true).warnings.join("\n");
        assert!(
            message.contains("boot.kernel and boot.ramdisk are not set"),
            "{message}"
        );
        assert!(message.contains("trivet-image ramdisk"), "{message}");
        let elsewhere = settings("[api]\n[boot]\nagent_elsewhere = true\n");
        assert!(!agent_missing(&elsewhere));
        let iso = settings("[api]\n[boot]\niso = \"/x\"\n");
        let message = check(&iso, true).warnings.join("\n");
        assert!(!message.contains("boot.kernel"), "{message}");
        assert!(!serve::faults(&iso).contains(&BoxFault::AgentMissing));
    }

    #[test]
    fn an_iso_image_that_serve_cannot_use_is_an_error() {
        let text = "[api]\n[boot]\niso = \"/proc/self/status\"\n";
        let message = check(&settings(text), false).errors.join("\n");
        let wanted = "boot.iso: /proc/self/status has no area for kernel arguments";
        assert!(message.contains(wanted), "{message}");
    }

    #[test]
    fn kernel_arguments_that_the_iso_image_cannot_have_are_an_error() {
        let text = "[boot]\niso = \"/x\"\nkernel_args = \"a=$b\"\n";
        let message = check(&settings(text), true).errors.join("\n");
        assert!(
            message.contains("boot.kernel_args has the character '$'"),
            "{message}"
        );
        let without = settings("[boot]\nkernel_args = \"a=$b\"\n");
        assert_eq!(check(&without, true).errors, [""; 0]);
    }

    #[test]
    fn tokens_in_plain_http_beyond_loopback_are_a_warning_and_a_fault() {
        let text = "[api]\nlisten = \"192.0.2.1\"\nauth = \"tokens\"\ntokens = \"/t\"\n";
        let message = check(&settings(text), true).warnings.join("\n");
        assert!(
            message.contains("192.0.2.1:6385 travel in plain HTTP"),
            "{message}"
        );
        assert!(message.contains("api.allow_plain_http"), "{message}");
        let address = "192.0.2.1:6385".parse().unwrap();
        let faults = serve::faults(&settings(text));
        assert!(faults.contains(&BoxFault::PlainTokens { address }));
        let allowed = settings(&format!("{text}allow_plain_http = true\n"));
        let message = check(&allowed, true).warnings.join("\n");
        assert!(!message.contains("plain HTTP"), "{message}");
        assert_eq!(plain_tokens(&allowed), None);
    }

    #[test]
    fn check_opens_the_files_that_the_settings_name() {
        let scratch = TestbedDirectory::new();
        let kernel = scratch.file("kernel", b"k");
        let free = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let text = format!(
            "[boot]\nkernel = \"{}\"\nramdisk = \"{}\"\nloaders = \"{}\"\n[http]\n\
             listen = \"{address}\"\n",
            kernel.display(),
            scratch.0.join("absent").display(),
            scratch.0.display(),
        );
        let report = check(&settings(&text), false);
        let message = report.errors.join("\n");
        assert!(message.contains("absent cannot be read"), "{message}");
        assert!(!message.contains("kernel cannot be read"), "{message}");
        let message = report.warnings.join("\n");
        assert!(message.contains("undionly.kpxe is missing"), "{message}");
        let offline = check(&settings(&text), true);
        assert!(offline.errors.is_empty(), "{:?}", offline.errors);
    }

    #[test]
    fn check_names_a_port_that_another_program_holds() {
        let held = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = held.local_addr().unwrap();
        let report = check(
            &settings(&format!("[api]\nlisten = \"{address}\"\n")),
            false,
        );
        let message = report.warnings.join("\n");
        assert!(message.contains(&address.to_string()), "{message}");
    }

    #[test]
    fn an_interface_that_is_not_there_or_has_no_address_is_named() {
        let wanted = settings(RACK);
        let missing = |here: &[EthernetInterface]| {
            let missing = interfaces_missing(&wanted, here);
            let lines: Vec<String> = missing.iter().map(ToString::to_string).collect();
            lines.join("\n")
        };
        assert!(missing(&[]).contains("interface eth9 does not exist"));
        let own: IpAddr = Ipv4Addr::new(192, 0, 2, 1).into();
        assert_eq!(awaited(&wanted, &[]).addresses, [own]);
        let mut eth9 = EthernetInterface {
            name: "eth9".to_owned(),
            index: 7,
            mac: [2, 0, 0, 0, 0, 9],
            addresses: Vec::new(),
            is_up: true,
            is_member: false,
            is_wireless: false,
        };
        assert!(missing(std::slice::from_ref(&eth9)).contains("`server` names"));
        eth9.addresses.push(Ipv4Addr::new(192, 0, 2, 1));
        assert_eq!(missing(&[eth9]), "");
    }

    #[test]
    fn users_that_cannot_log_in_are_named_with_the_key() {
        let scratch = TestbedDirectory::new();
        let users = scratch.file("users", b"ann:plain\n");
        let more = format!(
            "[api]\nauth = \"basic\"\nusers = \"{}\"\ntokens = \"/nowhere/tokens\"\n",
            users.display()
        );
        let lines = unreadable(&settings(&more));
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].starts_with("api.users: ") && lines[0].contains("ann"));
        assert!(!lines[0].contains("plain"), "a password may stand there");
        assert!(lines[1].starts_with("api.tokens: /nowhere/tokens cannot be read"));
    }

    #[test]
    fn check_says_that_the_data_directory_cannot_be_used_and_makes_nothing() {
        let scratch = TestbedDirectory::new();
        let file = scratch.file("file", b"");
        let broken = scratch.0.join("broken");
        std::os::unix::fs::symlink("nowhere", &broken).unwrap();
        for data in [&file, &file.join("data"), &broken] {
            let text = format!("[box]\ndata = \"{}\"\n", data.display());
            let settings = trivet_config::parse(&text).unwrap();
            let message = check(&settings, false).errors.join("\n");
            let wanted = format!("box.data: the directory {} cannot be used", data.display());
            assert!(message.contains(&wanted), "{message}");
            let message = check(&settings, true).errors.join("\n");
            assert!(!message.contains("box.data"), "{message}");
        }
        let fresh = scratch.0.join("deep/data");
        for data in [&scratch.0, &fresh] {
            assert_eq!(data_unusable(data), None);
        }
        assert!(!scratch.0.join("deep").exists());
    }

    #[test]
    fn a_store_of_another_size_is_reported() {
        let scratch = TestbedDirectory::new();
        let store = scratch.0.join("store");
        assert_eq!(other_size(&store, 4), None, "it is made with this size");
        fs::File::create(&store).unwrap().set_len(4 << 20).unwrap();
        assert_eq!(other_size(&store, 4), None);
        let message = other_size(&store, 8).unwrap();
        assert!(message.contains("the settings say 8 MiB"), "{message}");
        assert!(message.contains("created with 4 MiB"), "{message}");
    }
}
