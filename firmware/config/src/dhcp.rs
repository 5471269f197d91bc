//! `[[dhcp]]`: where addresses are handed out, which ones, and to whom.
//!
//! An entry that is off is checked as far as it goes and left out of the settings.
//! The modes `listen` and `proxy` are words of the plan that no room acts on yet,
//! so they are refused by name rather than as unknown.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use crate::contradiction::{Claims, Transport};
use crate::mistake::Mistakes;
use crate::reader::{Found, Section};
use crate::settings::{Dhcp, DhcpDoor, DhcpMode, Network};
use crate::value;

/// Most `[[dhcp]]` sections. Ours.
pub const DHCP_MAX: usize = 32;

/// Most addresses in one range. Ours: a rack has fewer, and the lease table is in memory.
pub const RANGE_ADDRESSES_MAX: u32 = 65_536;

/// Most name servers. Ours: clients look at three.
pub const DNS_MAX: usize = 4;

/// Port of a DHCP server: RFC 2131, section 4.1.
const DHCP_PORT: u16 = 67;

const LEASE_S_DEFAULT: u32 = 3600;

const KNOWN: [&str; 10] = [
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
];

pub(crate) fn entries(
    root: &Section<'_>,
    claims: &mut Claims,
    mistakes: &mut Mistakes,
) -> Vec<Dhcp> {
    let sections = root.sections("dhcp", DHCP_MAX, mistakes);
    sections
        .iter()
        .filter_map(|section| entry(section, claims, mistakes))
        .collect()
}

/// The mode of an entry, or that it is off.
enum Wanted {
    Off,
    On(DhcpMode),
}

fn entry(section: &Section<'_>, claims: &mut Claims, mistakes: &mut Mistakes) -> Option<Dhcp> {
    section.allow_only(&KNOWN, mistakes);
    let wanted = mode(section, mistakes);
    let door = door(section, claims, mistakes);
    let network = value::network(section, "network", mistakes);
    let first = value::ipv4(section, "first", mistakes);
    let last = value::ipv4(section, "last", mistakes);
    let server = value::ipv4(section, "server", mistakes);
    let router = value::ipv4(section, "router", mistakes);
    let dns = dns(section, mistakes);
    let lease_s = section.number("lease_s", 60..=31_536_000, mistakes);
    let member = |key: &str, found: Option<Found<Ipv4Addr>>, mistakes: &mut Mistakes| match &network
    {
        Some(network) => member(section, key, found?, network.value, mistakes),
        None => found,
    };
    // An address outside the network says nothing about the range: one mistake is enough.
    let first = member("first", first, mistakes);
    let last = member("last", last, mistakes);
    let server = member("server", server, mistakes);
    let router = member("router", router, mistakes);
    if let (Some(first), Some(last)) = (&first, &last) {
        check_range(section, first, last, mistakes);
        for (key, found) in [("server", &server), ("router", &router)] {
            check_outside(
                section,
                key,
                found.as_ref(),
                (first.value, last.value),
                mistakes,
            );
        }
    }
    if matches!(wanted, Some(Wanted::Off)) {
        return None;
    }
    for key in ["network", "first", "last", "server"] {
        if !section.has(key) {
            let sentence =
                "is missing: a section that is not off needs network, first, last and server";
            mistakes.missing(section.at(), &section.key(key), sentence);
        }
    }
    let (first, last) = (first?, last?);
    claims.range(section.key("first"), first.value, last.value, first.at);
    let Some(Wanted::On(mode)) = wanted else {
        return None;
    };
    Some(Dhcp {
        door: door?,
        mode,
        network: network?.value,
        first: first.value,
        last: last.value,
        server: server?.value,
        router: router.map(|router| router.value),
        dns,
        lease_s: lease_s.unwrap_or(LEASE_S_DEFAULT),
    })
}

fn mode(section: &Section<'_>, mistakes: &mut Mistakes) -> Option<Wanted> {
    const WORDS: &str = "write \"off\", \"reservations\" or \"server\"";
    if !section.has("mode") {
        mistakes.missing(
            section.at(),
            &section.key("mode"),
            format!("is missing: {WORDS}"),
        );
    }
    let text = section.text("mode", mistakes)?;
    let sentence = match text.value {
        "off" => return Some(Wanted::Off),
        "reservations" => return Some(Wanted::On(DhcpMode::Reservations)),
        "server" => return Some(Wanted::On(DhcpMode::Server)),
        later @ ("listen" | "proxy") => format!("`{later}` is not built yet: {WORDS}"),
        other => format!("`{other}` is unknown: {WORDS}"),
    };
    mistakes.add(text.at, &section.key("mode"), sentence);
    None
}

fn door(section: &Section<'_>, claims: &mut Claims, mistakes: &mut Mistakes) -> Option<DhcpDoor> {
    match (section.has("interface"), section.has("listen")) {
        (true, false) => {
            let name = value::interface(section, "interface", mistakes)?;
            claims.interface(section.key("interface"), name.value.clone(), name.at);
            Some(DhcpDoor::Interface(name.value))
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
    section: &Section<'_>,
    claims: &mut Claims,
    mistakes: &mut Mistakes,
) -> Option<DhcpDoor> {
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
    claim_relayed(section, address, text.at, claims);
    Some(DhcpDoor::Relayed(address))
}

fn claim_relayed(section: &Section<'_>, address: SocketAddrV4, at: usize, claims: &mut Claims) {
    claims.listener(
        section.key("listen"),
        Transport::Udp,
        SocketAddr::V4(address),
        at,
    );
}

fn dns(section: &Section<'_>, mistakes: &mut Mistakes) -> Vec<Ipv4Addr> {
    let mut servers = Vec::new();
    for text in section.texts("dns", DNS_MAX, mistakes).unwrap_or_default() {
        match text.value.parse() {
            Ok(server) => servers.push(server),
            Err(_) => mistakes.add(text.at, &section.key("dns"), value::not_ipv4(text.value)),
        }
    }
    servers
}

/// Passes an address on if it is one a host of the network may have.
fn member(
    section: &Section<'_>,
    key: &str,
    found: Found<Ipv4Addr>,
    network: Network,
    mistakes: &mut Mistakes,
) -> Option<Found<Ipv4Addr>> {
    let address = found.value;
    let sentence = if !network.contains(address) {
        format!("{address} is not in {}/{}", network.address, network.prefix)
    } else if address == network.address || address == network.broadcast() {
        format!("{address} stands for the whole network and is no host's")
    } else {
        return Some(found);
    };
    mistakes.add(found.at, &section.key(key), sentence);
    None
}

fn check_range(
    section: &Section<'_>,
    first: &Found<Ipv4Addr>,
    last: &Found<Ipv4Addr>,
    mistakes: &mut Mistakes,
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
    section: &Section<'_>,
    key: &str,
    found: Option<&Found<Ipv4Addr>>,
    (first, last): (Ipv4Addr, Ipv4Addr),
    mistakes: &mut Mistakes,
) {
    if let Some(found) = found
        && (first..=last).contains(&found.value)
    {
        let sentence = format!(
            "{} lies in the range {first} to {last} that is handed out",
            found.value
        );
        mistakes.add(found.at, &section.key(key), sentence);
    }
}
