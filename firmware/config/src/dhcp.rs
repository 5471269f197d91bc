//! `[[dhcp]]`: where DHCP is received, what the box does there, and which addresses it
//! assigns.
//!
//! A section that is off is checked and left out of the settings. Address keys in a
//! mode that assigns no addresses are checked too, so that changing `mode` alone gives
//! valid settings.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use crate::contradiction::SettingsClaims;
use crate::mistake::SettingsMistakes;
use crate::reader::{LocatedValue, SettingsSection};
use crate::settings::{DhcpMode, DhcpPoolSettings, DhcpSettings, DhcpSource, Ipv4Network};
use crate::value;

/// Most `[[dhcp]]` sections. Ours.
pub const DHCP_MAX: usize = 32;

/// Most addresses in one range. Ours: a rack has fewer, and the lease table is in memory.
pub const RANGE_ADDRESSES_MAX: u32 = 65_536;

/// Most name servers. Ours: clients use three.
pub const DNS_MAX: usize = 4;

/// Port of a DHCP server: RFC 2131, section 4.1.
const DHCP_PORT: u16 = 67;

const LEASE_S_DEFAULT: u32 = 3600;

const KNOWN: [&str; 12] = [
    "interface",
    "listen",
    "mode",
    "network",
    "first",
    "last",
    "server",
    "router",
    "dns",
    "lease_s",
    "discovery",
    "router_advertisements",
];

const WORDS: &str = "write \"off\", \"listen\", \"proxy\", \"reservations\" or \"server\"";

pub(crate) fn entries(
    root: &SettingsSection<'_>,
    claims: &mut SettingsClaims,
    mistakes: &mut SettingsMistakes,
) -> Vec<DhcpSettings> {
    let sections = root.sections("dhcp", DHCP_MAX, mistakes);
    sections
        .iter()
        .filter_map(|section| entry(section, claims, mistakes))
        .collect()
}

/// The mode of a section, or that it is off.
#[derive(Clone, Copy, Eq, PartialEq)]
enum DhcpSectionMode {
    Off,
    On(DhcpMode),
}

fn entry(
    section: &SettingsSection<'_>,
    claims: &mut SettingsClaims,
    mistakes: &mut SettingsMistakes,
) -> Option<DhcpSettings> {
    section.allow_only(&KNOWN, mistakes);
    let wanted = mode(section, mistakes);
    let link = source(section, claims, mistakes);
    let addresses = addresses(section, mistakes);
    let lease_s = section.number("lease_s", 60..=31_536_000, mistakes);
    let discovery = section.flag("discovery", mistakes);
    let advertisements = section.flag("router_advertisements", mistakes);
    if wanted == Some(DhcpSectionMode::Off) {
        return None;
    }
    let mode = wanted.and_then(|wanted| match wanted {
        DhcpSectionMode::On(mode) => Some(mode),
        DhcpSectionMode::Off => None,
    });
    let gives = mode.is_none_or(DhcpMode::gives_addresses);
    // Without one of these keys, a mode that cannot be read may have been meant as one that
    // assigns no addresses: that is one mistake, not one for each key.
    let names_one = ["network", "first", "last", "server"]
        .iter()
        .any(|key| section.has(key));
    if gives && (mode.is_some() || names_one) {
        needs_addresses(section, mistakes);
    }
    if gives && let (Some(first), Some(last)) = (&addresses.first, &addresses.last) {
        claims.range(section.key("first"), first.value, last.value, first.at);
    }
    let (mode, link) = (mode?, link?);
    let discovery = discovers(section, mode, discovery, mistakes);
    let router_advertisements = advertises(section, mode, &link, advertisements, mistakes);
    let server = server(section, mode, &link, addresses.server.as_ref(), mistakes);
    if let (DhcpSource::Interface(_), Some(server)) = (&link, server)
        && mode != DhcpMode::Listen
    {
        let address = SocketAddrV4::new(server, DHCP_PORT);
        claims.dhcp(
            section.key("interface"),
            address,
            section.at_key("interface"),
        );
    }
    let pool = if gives { Some(addresses.pool()?) } else { None };
    Some(DhcpSettings {
        server: if gives { Some(server?) } else { server },
        source: link,
        mode,
        pool,
        discovery,
        router_advertisements,
        lease_s: lease_s.unwrap_or(LEASE_S_DEFAULT),
    })
}

/// The addresses of a section, as far as they are present and valid.
struct DhcpAddressKeys {
    network: Option<LocatedValue<Ipv4Network>>,
    first: Option<LocatedValue<Ipv4Addr>>,
    last: Option<LocatedValue<Ipv4Addr>>,
    server: Option<LocatedValue<Ipv4Addr>>,
    router: Option<LocatedValue<Ipv4Addr>>,
    dns: Vec<Ipv4Addr>,
}

impl DhcpAddressKeys {
    fn pool(self) -> Option<DhcpPoolSettings> {
        Some(DhcpPoolSettings {
            network: self.network?.value,
            first: self.first?.value,
            last: self.last?.value,
            router: self.router.map(|router| router.value),
            dns: self.dns,
        })
    }
}

fn addresses(section: &SettingsSection<'_>, mistakes: &mut SettingsMistakes) -> DhcpAddressKeys {
    let network = value::network(section, "network", mistakes);
    let within = network.as_ref().map(|network| network.value);
    // An address outside the network says nothing about the range: one mistake is
    // enough.
    let mut address = |key: &str| {
        let found = value::ipv4(section, key, mistakes)?;
        match within {
            Some(network) => member(section, key, found, network, mistakes),
            None => Some(found),
        }
    };
    let (first, last) = (address("first"), address("last"));
    let router = address("router");
    let server = if section.has("listen") {
        // Behind a relay the box is on another network than the machines.
        value::ipv4(section, "server", mistakes)
    } else {
        address("server")
    };
    if let (Some(first), Some(last)) = (&first, &last) {
        check_range(section, first, last, mistakes);
        let range = (first.value, last.value);
        for (key, found) in [("server", &server), ("router", &router)] {
            check_outside(section, key, found.as_ref(), range, mistakes);
        }
    }
    DhcpAddressKeys {
        network,
        first,
        last,
        server,
        router,
        dns: dns(section, mistakes),
    }
}

fn needs_addresses(section: &SettingsSection<'_>, mistakes: &mut SettingsMistakes) {
    for key in ["network", "first", "last", "server"] {
        if !section.has(key) {
            let sentence = "is missing: a section that gives addresses (\"reservations\" or \
                            \"server\") needs network, first, last and server";
            mistakes.missing(section.at(), &section.key(key), sentence);
        }
    }
}

/// The section's mode. The default only listens: the box sends nothing on a network
/// that the operator has not configured.
fn mode(section: &SettingsSection<'_>, mistakes: &mut SettingsMistakes) -> Option<DhcpSectionMode> {
    if !section.has("mode") {
        return Some(DhcpSectionMode::On(DhcpMode::Listen));
    }
    let text = section.text("mode", mistakes)?;
    if text.value == "off" {
        return Some(DhcpSectionMode::Off);
    }
    let known = DhcpMode::ALL
        .into_iter()
        .find(|mode| mode.name() == text.value);
    if known.is_none() {
        let sentence = format!("`{}` is unknown: {WORDS}", text.value);
        mistakes.add(text.at, &section.key("mode"), sentence);
    }
    known.map(DhcpSectionMode::On)
}

/// Whether machines that are not enrolled get replies.
fn discovers(
    section: &SettingsSection<'_>,
    mode: DhcpMode,
    configured: Option<LocatedValue<bool>>,
    mistakes: &mut SettingsMistakes,
) -> bool {
    let wanted = configured.as_ref().map(|configured| configured.value);
    let sentence = match mode {
        DhcpMode::Listen if wanted.is_some() => {
            "means nothing in mode \"listen\", which sends no replies: remove the line"
        }
        DhcpMode::Reservations if wanted == Some(true) => {
            "contradicts mode \"reservations\", which answers known machines only: write mode = \
             \"server\", or remove the line"
        }
        _ => return wanted.unwrap_or(mode == DhcpMode::Server),
    };
    if let Some(configured) = configured {
        mistakes.add(configured.at, &section.key("discovery"), sentence);
    }
    false
}

/// Whether router advertisements are sent.
fn advertises(
    section: &SettingsSection<'_>,
    mode: DhcpMode,
    source: &DhcpSource,
    configured: Option<LocatedValue<bool>>,
    mistakes: &mut SettingsMistakes,
) -> bool {
    let wired = matches!(source, DhcpSource::Interface(_));
    let Some(configured) = configured else {
        return wired && mode.gives_addresses();
    };
    let sentence = match (configured.value, wired, mode) {
        (false, _, _) => return false,
        (true, true, DhcpMode::Listen) => {
            "contradicts mode \"listen\", in which the box sends nothing"
        }
        (true, false, _) => "needs an interface: they do not pass a relay",
        (true, true, _) => return true,
    };
    mistakes.add(
        configured.at,
        &section.key("router_advertisements"),
        sentence,
    );
    false
}

/// Our own address, if it is given or can be derived from other keys.
fn server(
    section: &SettingsSection<'_>,
    mode: DhcpMode,
    source: &DhcpSource,
    configured: Option<&LocatedValue<Ipv4Addr>>,
    mistakes: &mut SettingsMistakes,
) -> Option<Ipv4Addr> {
    if let (DhcpSource::Relayed(_), DhcpMode::Listen) = (source, mode) {
        let sentence = "relays forward requests that need a reply, and mode \"listen\" sends none: \
                        name an interface, or write another mode";
        mistakes.add(section.at_key("listen"), &section.key("listen"), sentence);
    }
    if let Some(configured) = configured {
        return Some(configured.value);
    }
    match (source, mode) {
        (DhcpSource::Relayed(address), DhcpMode::Proxy) if !address.ip().is_unspecified() => {
            Some(*address.ip())
        }
        (DhcpSource::Relayed(_), DhcpMode::Proxy) => {
            if !section.has("server") {
                let sentence = "is missing: listen is not an address that can be sent to nodes";
                mistakes.missing(section.at(), &section.key("server"), sentence);
            }
            None
        }
        _ => None,
    }
}

fn source(
    section: &SettingsSection<'_>,
    claims: &mut SettingsClaims,
    mistakes: &mut SettingsMistakes,
) -> Option<DhcpSource> {
    match (section.has("interface"), section.has("listen")) {
        (true, false) => {
            let name = value::interface(section, "interface", mistakes)?;
            claims.interface(section.key("interface"), name.value.clone(), name.at);
            Some(DhcpSource::Interface(name.value))
        }
        (false, true) => relayed(section, claims, mistakes),
        (true, true) => {
            let sentence = "contradicts listen: an entry serves an interface or relays, not both";
            mistakes.add(
                section.at_key("interface"),
                &section.key("interface"),
                sentence,
            );
            None
        }
        (false, false) => {
            let sentence = "is missing: name the interface, or give listen for relayed requests";
            mistakes.missing(section.at(), &section.key("interface"), sentence);
            None
        }
    }
}

fn relayed(
    section: &SettingsSection<'_>,
    claims: &mut SettingsClaims,
    mistakes: &mut SettingsMistakes,
) -> Option<DhcpSource> {
    let text = section.text("listen", mistakes)?;
    let address = match value::socket_address(text.value, DHCP_PORT) {
        Ok(SocketAddr::V4(address)) => address,
        Ok(SocketAddr::V6(_)) => {
            let sentence = "DHCP is served over IPv4 only: write an IPv4 address";
            mistakes.add(text.at, &section.key("listen"), sentence);
            return None;
        }
        Err(sentence) => {
            mistakes.add(text.at, &section.key("listen"), sentence);
            return None;
        }
    };
    claims.dhcp(section.key("listen"), address, text.at);
    Some(DhcpSource::Relayed(address))
}

fn dns(section: &SettingsSection<'_>, mistakes: &mut SettingsMistakes) -> Vec<Ipv4Addr> {
    let mut servers = Vec::new();
    for text in section.texts("dns", DNS_MAX, mistakes).unwrap_or_default() {
        match text.value.parse() {
            Ok(server) => servers.push(server),
            Err(_) => mistakes.add(text.at, &section.key("dns"), value::not_ipv4(text.value)),
        }
    }
    servers
}

/// Returns the address if a host of the network may have it.
fn member(
    section: &SettingsSection<'_>,
    key: &str,
    found: LocatedValue<Ipv4Addr>,
    network: Ipv4Network,
    mistakes: &mut SettingsMistakes,
) -> Option<LocatedValue<Ipv4Addr>> {
    let address = found.value;
    let sentence = if !network.contains(address) {
        format!("{address} is not in {}/{}", network.address, network.prefix)
    } else if address == network.address || address == network.broadcast() {
        format!("{address} is the network or broadcast address, not a host's")
    } else {
        return Some(found);
    };
    mistakes.add(found.at, &section.key(key), sentence);
    None
}

fn check_range(
    section: &SettingsSection<'_>,
    first: &LocatedValue<Ipv4Addr>,
    last: &LocatedValue<Ipv4Addr>,
    mistakes: &mut SettingsMistakes,
) {
    let sentence = match u32::from(last.value).checked_sub(u32::from(first.value)) {
        None => format!("{} comes before first = {}", last.value, first.value),
        Some(step) if step >= RANGE_ADDRESSES_MAX => {
            format!("the range holds more than {RANGE_ADDRESSES_MAX} addresses")
        }
        Some(_) => return,
    };
    mistakes.add(last.at, &section.key("last"), sentence);
}

fn check_outside(
    section: &SettingsSection<'_>,
    key: &str,
    found: Option<&LocatedValue<Ipv4Addr>>,
    (first, last): (Ipv4Addr, Ipv4Addr),
    mistakes: &mut SettingsMistakes,
) {
    if let Some(found) = found
        && (first..=last).contains(&found.value)
    {
        let sentence = format!(
            "{} lies in the range {first} to {last} that is assigned to nodes",
            found.value
        );
        mistakes.add(found.at, &section.key(key), sentence);
    }
}
