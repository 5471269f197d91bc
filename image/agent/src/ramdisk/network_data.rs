//! Static addresses from `network_data.json` of OpenStack, which Ironic puts on virtual media.
//!
//! Only IPv4 networks of physical links are taken. Text goes in and addresses come out.

use std::net::Ipv4Addr;

use serde::Deserialize;

use crate::parameters::StaticAddress;

/// Most addresses. Ours.
pub const ADDRESSES_MAX: usize = 64;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NetworkData {
    links: Vec<NetworkLink>,
    networks: Vec<NetworkEntry>,
    services: Vec<NetworkService>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NetworkLink {
    id: String,
    ethernet_mac_address: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NetworkEntry {
    link: String,
    #[serde(rename = "type")]
    kind: String,
    ip_address: String,
    netmask: String,
    gateway: Option<String>,
    routes: Vec<NetworkRoute>,
    services: Vec<NetworkService>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NetworkRoute {
    network: String,
    netmask: String,
    gateway: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NetworkService {
    #[serde(rename = "type")]
    kind: String,
    address: String,
}

/// The addresses of a `network_data.json`; none if it is not valid.
pub fn static_addresses(text: &str) -> Vec<StaticAddress> {
    let data: NetworkData = serde_json::from_str(text).unwrap_or_default();
    let found = data.networks.iter().filter(|entry| entry.kind == "ipv4");
    let found = found.filter_map(|entry| static_address(&data, entry));
    found.take(ADDRESSES_MAX).collect()
}

fn static_address(data: &NetworkData, entry: &NetworkEntry) -> Option<StaticAddress> {
    let link = data.links.iter().find(|link| link.id == entry.link)?;
    let (address, prefix) = match entry.ip_address.split_once('/') {
        Some((address, prefix)) => (address, prefix.parse().ok()),
        None => (entry.ip_address.as_str(), None),
    };
    let mask = entry.netmask.parse::<Ipv4Addr>().ok();
    let mask = mask.map(|mask| mask.to_bits().leading_ones() as u8);
    let default = entry.routes.iter().find(|route| {
        route.network == "0.0.0.0/0" || route.network == "0.0.0.0" && route.netmask == "0.0.0.0"
    });
    let gateway = default
        .map(|route| &route.gateway)
        .or(entry.gateway.as_ref());
    let services = entry.services.iter().chain(&data.services);
    let servers = services.filter(|service| service.kind == "dns");
    Some(StaticAddress {
        address: address.parse().ok()?,
        prefix: prefix.or(mask).filter(|prefix| *prefix <= 32)?,
        gateway: gateway.and_then(|gateway| gateway.parse().ok()),
        host_name: None,
        device: Some(link.ethernet_mac_address.to_ascii_lowercase()),
        name_servers: servers
            .filter_map(|server| server.address.parse().ok())
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_addresses_of_physical_links() {
        let text = r#"{"links": [{"id": "e0", "type": "phy",
              "ethernet_mac_address": "52:54:00:AA:00:01", "mtu": 1500}],
            "networks": [
              {"id": "n0", "link": "e0", "type": "ipv4", "ip_address": "192.0.2.5",
               "netmask": "255.255.255.128",
               "routes": [{"network": "10.0.0.0", "netmask": "255.0.0.0", "gateway": "192.0.2.2"},
                          {"network": "0.0.0.0", "netmask": "0.0.0.0", "gateway": "192.0.2.1"}]},
              {"id": "n1", "link": "e0", "type": "ipv4", "ip_address": "192.0.2.6/26"},
              {"id": "n2", "link": "e0", "type": "ipv4_dhcp"},
              {"id": "n3", "link": "absent", "type": "ipv4", "ip_address": "192.0.2.7/26"},
              {"id": "n4", "link": "e0", "type": "ipv4", "ip_address": "192.0.2.8"}],
            "services": [{"type": "dns", "address": "192.0.2.3"}, {"type": "ntp"}]}"#;
        let found = static_addresses(text);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].address, Ipv4Addr::new(192, 0, 2, 5));
        assert_eq!((found[0].prefix, found[1].prefix), (25, 26));
        assert_eq!(found[0].gateway, Some(Ipv4Addr::new(192, 0, 2, 1)));
        assert_eq!(found[1].gateway, None);
        assert_eq!(found[0].device.as_deref(), Some("52:54:00:aa:00:01"));
        assert_eq!(found[0].name_servers, [Ipv4Addr::new(192, 0, 2, 3)]);
    }

    #[test]
    fn other_texts_have_no_addresses() {
        for text in [
            "",
            "[]",
            "{}",
            r#"{"networks": 7}"#,
            r#"{"networks": [{}]}"#,
        ] {
            assert_eq!(static_addresses(text), []);
        }
    }
}
