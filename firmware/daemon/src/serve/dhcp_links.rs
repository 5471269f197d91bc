//! Converts `[[dhcp]]` and `[boot]` to the rack's settings: links, subnets, loaders.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;

use tracing::warn;
use trivet_board_linux::EthernetInterface;
use trivet_config::{self as config, DhcpMode, DhcpSource, Settings};
use trivet_link::SERVER_PORT;
use trivet_model::{BoxFault, LinkMode};
use trivet_rack::dhcp;

use crate::clock::DaemonClock;
use crate::listeners::dhcp::{
    DhcpInterfaceConfig, DhcpRelaySocket, OpenedDhcpInterface, OpenedDhcpListener,
};
use crate::{check, sockets};

/// One DHCP link, with defaults filled in for everything that the settings leave open.
pub(super) struct DhcpLinkPlan {
    listener: DhcpSource,
    mode: DhcpMode,
    /// Our address there; unspecified where we only listen.
    server: Ipv4Addr,
    discovery: bool,
    pool: Option<config::DhcpPoolSettings>,
    lease_s: u32,
    advertises: bool,
    /// True if the settings do not name this interface.
    by_default: bool,
}

impl DhcpLinkPlan {
    /// Our address there, if we send replies.
    pub(super) fn server_address(&self) -> Option<Ipv4Addr> {
        (self.mode != DhcpMode::Listen).then_some(self.server)
    }

    fn of(
        dhcp: &config::DhcpSettings,
        interfaces: &[EthernetInterface],
    ) -> Result<Self, DhcpLinkPlanError> {
        let listens = dhcp.mode == DhcpMode::Listen;
        let found = match (&dhcp.source, dhcp.server) {
            (_, Some(server)) => server,
            (DhcpSource::Interface(name), None) if !listens => first_address(name, interfaces)?,
            (_, None) => Ipv4Addr::UNSPECIFIED,
        };
        Ok(Self {
            listener: dhcp.source.clone(),
            mode: dhcp.mode,
            server: found,
            discovery: dhcp.discovery,
            pool: dhcp.pool.clone(),
            lease_s: dhcp.lease_s,
            advertises: dhcp.router_advertisements,
            by_default: false,
        })
    }

    /// An interface that the settings do not mention.
    fn unknown(interface: &EthernetInterface) -> Self {
        Self {
            listener: DhcpSource::Interface(interface.name.clone()),
            mode: DhcpMode::Listen,
            server: Ipv4Addr::UNSPECIFIED,
            discovery: false,
            pool: None,
            lease_s: 0,
            advertises: false,
            by_default: true,
        }
    }

    async fn open(&self, clock: DaemonClock) -> anyhow::Result<OpenedDhcpListener> {
        Ok(match &self.listener {
            DhcpSource::Relayed(address) => OpenedDhcpListener::Relayed(DhcpRelaySocket {
                socket: sockets::udp("DHCP", (*address).into()).await?,
                local: self.server,
            }),
            DhcpSource::Interface(name) => {
                let wants = DhcpInterfaceConfig {
                    name: name.clone(),
                    local_address: self.server_address(),
                    range: self.pool.as_ref().map(|pool| (pool.first, pool.last)),
                    advertises: self.advertises,
                };
                OpenedDhcpListener::Interface(Box::new(OpenedDhcpInterface::new(wants, clock)?))
            }
        })
    }
}

/// Why a `[[dhcp]]` section cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum DhcpLinkPlanError {
    #[error("dhcp: interface {name} has no IPv4 address; assign one, or set `server`")]
    NoAddress { name: String },
    #[error("dhcp: there is no Ethernet interface {name}; `ip link` lists them")]
    Absent { name: String },
}

fn first_address(
    name: &str,
    interfaces: &[EthernetInterface],
) -> Result<Ipv4Addr, DhcpLinkPlanError> {
    let found = interfaces.iter().find(|interface| interface.name == name);
    let name = name.to_owned();
    match found {
        None => Err(DhcpLinkPlanError::Absent { name }),
        Some(found) => match found.addresses.first() {
            None => Err(DhcpLinkPlanError::NoAddress { name }),
            Some(address) => Ok(*address),
        },
    }
}

/// All links, in the order in which a [`LinkId`](trivet_model::LinkId) counts them:
/// those of the settings, or else every wired interface.
fn entries(
    settings: &Settings,
    interfaces: &[EthernetInterface],
) -> Result<Vec<DhcpLinkPlan>, DhcpLinkPlanError> {
    if settings.listens_on_all_interfaces {
        let wired = interfaces
            .iter()
            .filter(|one| !one.is_member && !one.is_wireless);
        return Ok(wired
            .take(dhcp::LINKS_MAX)
            .map(DhcpLinkPlan::unknown)
            .collect());
    }
    let entry = |dhcp| DhcpLinkPlan::of(dhcp, interfaces);
    settings.dhcp.iter().map(entry).collect()
}

/// Relay addresses that need no socket of their own, because an interface or an earlier
/// section already receives what is sent there.
fn shared_relay_addresses(entries: &[DhcpLinkPlan]) -> Vec<Option<SocketAddrV4>> {
    let wires = entries.iter().filter_map(|entry| match &entry.listener {
        DhcpSource::Interface(_) => Some(SocketAddrV4::new(entry.server_address()?, SERVER_PORT)),
        DhcpSource::Relayed(_) => None,
    });
    let mut received: BTreeSet<_> = wires.collect();
    let shared = entries.iter().map(|entry| match &entry.listener {
        DhcpSource::Relayed(address) if !received.insert(*address) => Some(*address),
        _ => None,
    });
    shared.collect()
}

/// The settings without the interfaces that cannot be used now.
fn usable(settings: &Settings, interfaces: &[EthernetInterface]) -> Settings {
    let mut settings = settings.clone();
    settings.dhcp.retain(|dhcp| match &dhcp.source {
        DhcpSource::Interface(name) => {
            let found = interfaces.iter().find(|one| one.name == *name);
            check::unusable_reason(dhcp, found).is_none()
        }
        DhcpSource::Relayed(_) => true,
    });
    settings
}

/// Opens all links that can be used. A link that the settings do not name is left out
/// if it cannot be opened.
pub(super) async fn open(
    settings: &Settings,
    interfaces: &[EthernetInterface],
    clock: DaemonClock,
) -> anyhow::Result<(Vec<DhcpLinkPlan>, Vec<OpenedDhcpListener>)> {
    let (mut open, mut places) = (Vec::new(), Vec::new());
    let entries = entries(&usable(settings, interfaces), interfaces)?;
    let received = shared_relay_addresses(&entries);
    for (entry, received) in entries.into_iter().zip(received) {
        if let Some(address) = received {
            places.push(OpenedDhcpListener::Shared(address));
            open.push(entry);
            continue;
        }
        match entry.open(clock).await {
            Ok(place) => {
                places.push(place);
                open.push(entry);
            }
            Err(error) if entry.by_default => {
                warn!("{error}; DHCP servers on that interface will not be detected");
            }
            Err(error) => return Err(error),
        }
    }
    Ok((open, places))
}

/// What the box would do about DHCP: one line for each link.
pub(crate) fn plan(settings: &Settings) -> String {
    if settings.listens_on_all_interfaces {
        return "dhcp: no section, so every wired interface is listened to and nothing is sent\n"
            .to_owned();
    }
    if settings.dhcp.is_empty() {
        return "dhcp: off\n".to_owned();
    }
    settings.dhcp.iter().map(plan_of).collect()
}

fn plan_of(dhcp: &config::DhcpSettings) -> String {
    let place = describe(&dhcp.source);
    let mut does = match (dhcp.mode, &dhcp.pool) {
        (DhcpMode::Listen, _) => "listens for other servers and sends nothing".to_owned(),
        (DhcpMode::Proxy, _) => "sends boot information, assigns no addresses".to_owned(),
        (_, Some(pool)) => format!("gives {} to {}", pool.first, pool.last),
        (_, None) => String::new(),
    };
    if dhcp.mode != DhcpMode::Listen {
        does.push_str(if dhcp.discovery {
            ", to all machines"
        } else {
            ", to known machines only"
        });
    }
    if dhcp.router_advertisements {
        does.push_str("; router advertisements");
    }
    format!("dhcp: {place}: {}: {does}\n", dhcp.mode.name())
}

fn describe(source: &DhcpSource) -> String {
    match source {
        DhcpSource::Interface(name) => name.clone(),
        DhcpSource::Relayed(address) => address.to_string(),
    }
}

/// The settings of the DHCP crate. HTTP is at `http_url`, or else on this port of each
/// of our addresses.
pub(super) fn dhcp_settings(
    entries: &[DhcpLinkPlan],
    boot: &config::BootSettings,
    http_url: &str,
    everywhere: Option<u16>,
) -> dhcp::DhcpServerSettings {
    let url = |entry: &DhcpLinkPlan| match everywhere {
        Some(port) if !entry.server.is_unspecified() => {
            format!("http://{}:{port}", entry.server)
        }
        _ => http_url.to_owned(),
    };
    let links = entries.iter().map(|entry| dhcp::DhcpLinkSettings {
        name: describe(&entry.listener),
        mode: mode(entry.mode),
        discovery: entry.discovery,
        server: entry.server,
        boot: boot_server(entry.server, boot, &url(entry)),
        relayed: matches!(entry.listener, DhcpSource::Relayed(_)),
        network: entry
            .pool
            .as_ref()
            .map(|pool| (pool.network.address, pool.network.prefix)),
    });
    let subnets = entries.iter().filter_map(|entry| {
        let pool = entry.pool.as_ref()?;
        Some(dhcp::Subnet {
            network: pool.network.address,
            prefix: pool.network.prefix,
            first: pool.first,
            last: pool.last,
            server: entry.server,
            router: pool.router,
            dns: pool.dns.clone(),
            boot: boot_server(entry.server, boot, &url(entry)),
            known_only: !entry.discovery,
            lease_s: entry.lease_s,
        })
    });
    dhcp::DhcpServerSettings {
        links: links.collect(),
        subnets: subnets.collect(),
    }
}

fn mode(mode: DhcpMode) -> LinkMode {
    match mode {
        DhcpMode::Listen => LinkMode::Listen,
        DhcpMode::Proxy => LinkMode::Proxy,
        DhcpMode::Reservations => LinkMode::Reservations,
        DhcpMode::Server => LinkMode::Server,
    }
}

fn boot_server(tftp: Ipv4Addr, boot: &config::BootSettings, http_url: &str) -> dhcp::BootServer {
    let config::BootLoaderSettings {
        bios,
        x64,
        ia32,
        arm64,
    } = boot.loader.clone();
    dhcp::BootServer {
        tftp,
        loaders: dhcp::LoaderFileNames {
            bios,
            x64,
            ia32,
            arm64,
        },
        script_url: format!("{http_url}/boot/{{mac}}/script"),
        loaders_url: (!http_url.is_empty()).then(|| format!("{http_url}/boot/loaders")),
    }
}

/// The configured loaders that do not exist. Not a fault where DHCP serves no links.
pub(crate) fn missing_loaders(settings: &Settings) -> Vec<BoxFault> {
    if settings.tftp.is_none() && settings.http.is_none() {
        return Vec::new();
    }
    let config::BootLoaderSettings {
        bios,
        x64,
        ia32,
        arm64,
    } = &settings.boot.loader;
    let named = [
        (bios, "BIOS firmware"),
        (x64, "64-bit UEFI firmware"),
        (ia32, "32-bit UEFI firmware"),
        (arm64, "ARM UEFI firmware"),
    ];
    let named = named
        .into_iter()
        .filter_map(|(name, firmware)| Some((name.as_ref()?, firmware)));
    let absent = named.filter_map(|(name, firmware)| {
        let path = settings.boot.loaders.join(name);
        // Opened as the services open it: a symbolic link out of the directory is not
        // followed.
        let opened = trivet_board_linux::open_beneath(&settings.boot.loaders, Path::new(name));
        let readable = opened.and_then(|file| file.metadata());
        let there = readable.is_ok_and(|facts| facts.is_file());
        (!there).then(|| BoxFault::LoaderMissing {
            path: path.display().to_string(),
            firmware,
        })
    });
    absent.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testbed::TestbedDirectory;

    const ALL: &str = "[box]\ndata = \"/d\"\n[[dhcp]]\ninterface = \"eth0\"\n\
        [[dhcp]]\ninterface = \"eth1\"\nmode = \"off\"\n\
        [[dhcp]]\ninterface = \"eth2\"\nmode = \"proxy\"\nserver = \"192.0.2.1\"\n\
        [[dhcp]]\nlisten = \"198.51.100.1\"\nmode = \"reservations\"\n\
        network = \"198.51.100.0/24\"\nfirst = \"198.51.100.10\"\nlast = \"198.51.100.20\"\n\
        server = \"198.51.100.1\"\nlease_s = 600\n";

    fn dhcp_settings_of(text: &str, http_url: &str) -> dhcp::DhcpServerSettings {
        let settings = trivet_config::parse(text).unwrap();
        dhcp_settings(
            &entries(&settings, &[]).unwrap(),
            &settings.boot,
            http_url,
            None,
        )
    }

    #[test]
    fn every_place_is_a_link_and_only_a_pool_is_a_subnet() {
        let settings_text = dhcp_settings_of(ALL, "http://192.0.2.1:8080");
        let links: Vec<_> = settings_text
            .links
            .iter()
            .map(|link| (link.name.as_str(), link.mode.as_str(), link.discovery))
            .collect();
        assert_eq!(
            links,
            [
                ("eth0", "listen", false),
                ("eth2", "proxy", false),
                ("198.51.100.1:67", "reservations", false)
            ]
        );
        assert_eq!(settings_text.subnets.len(), 1);
        assert!(settings_text.subnets[0].known_only);
        assert_eq!(settings_text.subnets[0].lease_s, 600);
        assert_eq!(settings_text.mistakes(), []);
    }

    #[test]
    fn the_plan_has_a_line_for_each_place() {
        let message_of = |text: &str| plan(&trivet_config::parse(text).unwrap());
        assert_eq!(
            message_of(ALL),
            "dhcp: eth0: listen: listens for other servers and sends nothing\n\
             dhcp: eth2: proxy: sends boot information, assigns no addresses, to known \
             machines only\n\
             dhcp: 198.51.100.1:67: reservations: gives 198.51.100.10 to 198.51.100.20, to known \
             machines only\n"
        );
        let server = ALL.replace("listen = \"198.51.100.1\"", "interface = \"eth3\"");
        let server_text = message_of(&server.replace("reservations", "server"));
        assert!(server_text.ends_with(", to all machines; router advertisements\n"));
        assert!(message_of("[box]\ndata = \"/d\"\n").contains("every wired interface"));
        let off = "[box]\ndata = \"/d\"\n[[dhcp]]\ninterface = \"e\"\nmode = \"off\"\n";
        assert_eq!(message_of(off), "dhcp: off\n");
    }

    #[test]
    fn a_box_that_only_listens_is_reported_without_mistakes() {
        let settings_text =
            dhcp_settings_of("[box]\ndata = \"/d\"\n[[dhcp]]\ninterface = \"e\"\n", "");
        assert_eq!(
            (settings_text.links.len(), settings_text.subnets.len()),
            (1, 0)
        );
        assert_eq!(settings_text.mistakes(), []);
    }

    fn wired(name: &str, address: Option<Ipv4Addr>) -> EthernetInterface {
        EthernetInterface {
            name: name.to_owned(),
            addresses: address.into_iter().collect(),
            ..EthernetInterface::default()
        }
    }

    #[test]
    fn every_network_gets_the_address_the_box_has_there() {
        let settings = trivet_config::parse(ALL).unwrap();
        let entries = entries(&settings, &[]).unwrap();
        let settings_text = dhcp_settings(
            &entries,
            &settings.boot,
            "http://192.0.2.1:8080",
            Some(8080),
        );
        let url = |boot: &dhcp::BootServer| boot.loaders_url.clone().unwrap();
        assert_eq!(
            url(&settings_text.links[1].boot),
            "http://192.0.2.1:8080/boot/loaders"
        );
        assert_eq!(
            url(&settings_text.subnets[0].boot),
            "http://198.51.100.1:8080/boot/loaders"
        );
    }

    #[test]
    fn relays_that_send_to_an_address_that_is_served_already_need_no_socket() {
        let relayed = |third: u8, listen: &str| {
            format!(
                "[[dhcp]]\nlisten = \"{listen}\"\nmode = \"reservations\"\n\
                 network = \"10.0.{third}.0/24\"\nfirst = \"10.0.{third}.10\"\n\
                 last = \"10.0.{third}.20\"\nserver = \"10.0.{third}.1\"\n"
            )
        };
        let text = format!(
            "{}{}{}{}",
            ALL.replace("198.51.100.1\"\nmode", "192.0.2.1:67\"\nmode"),
            relayed(1, "192.0.2.7"),
            relayed(2, "192.0.2.7"),
            relayed(3, "192.0.2.1:6767"),
        );
        let settings = trivet_config::parse(&text).unwrap();
        let received = shared_relay_addresses(&entries(&settings, &[]).unwrap());
        let at = |text: &str| Some(text.parse().unwrap());
        let want = [
            None,
            None,
            at("192.0.2.1:67"),
            None,
            at("192.0.2.7:67"),
            None,
        ];
        assert_eq!(received, want);
    }

    #[test]
    fn without_a_section_every_wired_interface_is_listened_to() {
        let settings = trivet_config::parse("[box]\ndata = \"/d\"\n").unwrap();
        let radio = EthernetInterface {
            is_wireless: true,
            ..wired("wlan0", None)
        };
        let part = EthernetInterface {
            is_member: true,
            ..wired("eth1", None)
        };
        let all = [wired("br0", None), radio, part, wired("eth0", None)];
        let entries = entries(&settings, &all).unwrap();
        let settings_text = dhcp_settings(&entries, &settings.boot, "", None);
        let names: Vec<_> = settings_text
            .links
            .iter()
            .map(|link| link.name.as_str())
            .collect();
        assert_eq!(names, ["br0", "eth0"]);
        assert!(
            settings_text
                .links
                .iter()
                .all(|link| link.mode == LinkMode::Listen)
        );
        assert!(entries.iter().all(|entry| entry.server_address().is_none()));
    }

    #[test]
    fn a_proxy_is_known_by_the_first_address_of_its_interface() {
        let text = "[box]\ndata = \"/d\"\n[[dhcp]]\ninterface = \"e\"\nmode = \"proxy\"\n";
        let settings = trivet_config::parse(text).unwrap();
        let address = Ipv4Addr::new(192, 0, 2, 9);
        let found = entries(&settings, &[wired("e", Some(address))]).unwrap();
        assert_eq!(found[0].server_address(), Some(address));
        let message_of =
            |all: &[EthernetInterface]| entries(&settings, all).err().unwrap().to_string();
        assert!(message_of(&[wired("e", None)]).contains("e has no IPv4 address"));
        assert!(message_of(&[]).contains("no Ethernet interface e"));
    }

    #[test]
    fn loaders_are_distinguished_by_firmware_and_by_address() {
        let text = format!("{ALL}[boot]\nloader_bios = \"\"\nloader_x64 = \"shimx64.efi\"\n");
        let boot = &dhcp_settings_of(&text, "http://192.0.2.1:8080").links[1].boot;
        assert_eq!(boot.tftp, Ipv4Addr::new(192, 0, 2, 1));
        assert_eq!(boot.loaders.bios, None);
        assert_eq!(boot.loaders.x64.as_deref(), Some("shimx64.efi"));
        assert_eq!(
            boot.loaders_url.as_deref(),
            Some("http://192.0.2.1:8080/boot/loaders")
        );
        let without_http = &dhcp_settings_of(&text, "").links[1].boot;
        assert_eq!(without_http.loaders_url, None);
    }

    #[test]
    fn a_loader_that_is_not_there_or_a_link_out_of_its_directory_is_a_fault_that_says_for_whom() {
        let scratch = TestbedDirectory::new();
        scratch.file("loaders/snponly.efi", b"x");
        let outside = scratch.file("outside.kpxe", b"x");
        let link = scratch.0.join("loaders/undionly.kpxe");
        std::os::unix::fs::symlink(outside, link).unwrap();
        std::fs::create_dir(scratch.0.join("loaders/directory")).unwrap();
        let text = format!(
            "[box]\ndata = \"/d\"\n[tftp]\nlisten = \"127.0.0.1\"\n[boot]\nloaders = \"{}\"\n\
             loader_ia32 = \"directory\"\nloader_arm64 = \"absent.efi\"\n",
            scratch.0.join("loaders").display()
        );
        let settings = trivet_config::parse(&text).unwrap();
        let lines: Vec<_> = missing_loaders(&settings)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert!(lines[0].contains("undionly.kpxe is missing, so BIOS firmware"));
        assert!(lines[0].contains("a link out of boot.loaders is not followed"));
        assert!(lines[1].contains("directory is missing, so 32-bit UEFI"));
        assert!(lines[2].contains("absent.efi is missing, so ARM UEFI"));
        let silent = Settings {
            tftp: None,
            ..settings
        };
        assert_eq!(missing_loaders(&silent), []);
    }
}
