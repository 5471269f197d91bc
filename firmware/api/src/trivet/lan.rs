//! The box's networks: other DHCP servers, unknown machines, and faults. Ironic does not have
//! these, so the paths are outside `/v1`.

use core::cmp::Reverse;

use serde_json::{Value, json};
use trivet_model::link::{ForeignServer, LinkView};
use trivet_model::vendor::vendor;
use trivet_model::view::UnknownMachine;
use trivet_model::{LinkId, MacAddr};
use uuid::Uuid;

use crate::ApiOutcome;
use crate::table::call::{ApiCall, reply};
use crate::table::error::ApiFault;
use crate::table::route::ApiRoute;

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get(
        &["trivet", "networks"],
        1,
        "List networks and other servers",
        networks,
    ),
    ApiRoute::get(
        &["trivet", "faults"],
        1,
        "List present faults, newest first",
        faults,
    ),
    ApiRoute::get(
        &["trivet", "strangers"],
        1,
        "List unknown machines, last seen first",
        unknown_machines,
    ),
];

fn networks(call: &ApiCall<'_>) -> Result<ApiOutcome, ApiFault> {
    let links = call.view.links.values();
    let networks: Vec<_> = links.map(|link| network(link)).collect();
    reply(&json!({ "networks": networks }))
}

fn network(link: &LinkView) -> Value {
    let server = |server: &ForeignServer| {
        json!({
            "address": server.address.to_string(),
            "mac": server.mac.map(|mac| mac.to_string()),
            "vendor": server.mac.and_then(vendor),
            "boot_only": server.proxy,
            "seen_at": server.seen_at.to_string(),
        })
    };
    let servers: Vec<_> = link.foreign.iter().map(server).collect();
    json!({ "name": link.name, "mode": link.mode.as_str(), "other_servers": servers })
}

fn faults(call: &ApiCall<'_>) -> Result<ApiOutcome, ApiFault> {
    let mut standing: Vec<_> = call.view.faults.iter().collect();
    standing.sort_by_key(|(_, standing)| Reverse(standing.since));
    let shown = standing.into_iter().map(|(fault, standing)| {
        json!({
            "fault": fault.to_string(),
            "since": standing.since.to_string(),
            "seen_at": standing.seen_at.to_string(),
        })
    });
    reply(&json!({ "faults": shown.collect::<Vec<_>>() }))
}

fn unknown_machines(call: &ApiCall<'_>) -> Result<ApiOutcome, ApiFault> {
    let mut seen: Vec<_> = call.view.unknown_machines.iter().collect();
    seen.sort_by_key(|(mac, unknown)| (Reverse(unknown.seen_at), **mac));
    let shown = seen.into_iter().map(|(mac, unknown)| {
        let network = link_name(call, unknown.client.link);
        shown(*mac, unknown, network)
    });
    reply(&json!({ "strangers": shown.collect::<Vec<_>>() }))
}

fn link_name<'a>(call: &'a ApiCall<'_>, link: LinkId) -> Option<&'a str> {
    let link = call.view.links.get(&link)?;
    Some(&link.name)
}

fn shown(mac: MacAddr, machine: &UnknownMachine, network: Option<&str>) -> Value {
    let client = &machine.client;
    json!({
        "mac": mac.to_string(),
        "vendor": vendor(mac),
        // The number of DHCP option 93 (RFC 4578).
        "architecture": client.arch,
        "uuid": client.uuid.map(|uuid| Uuid::from_bytes(uuid).to_string()),
        "ipxe": client.ipxe,
        "vendor_class": client.vendor_class,
        "address": client.address.map(|address| address.to_string()),
        "network": network,
        "seen_at": machine.seen_at.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{ApiBench, NOW, get};
    use core::net::Ipv4Addr;
    use std::sync::Arc;
    use trivet_model::boot::ClientSeen;
    use trivet_model::fault::FaultTimes;
    use trivet_model::{LinkMode, UnixMs};

    const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 254);

    fn bench() -> ApiBench {
        let mut bench = ApiBench::new();
        let link = LinkView {
            name: "eth1".into(),
            mode: LinkMode::Listen,
            foreign: vec![ForeignServer {
                address: SERVER,
                mac: Some(MacAddr([0x00, 0x14, 0x22, 0, 0, 9])),
                proxy: false,
                seen_at: NOW,
            }],
        };
        bench.view.links.insert(LinkId(0), Arc::new(link));
        bench
    }

    #[test]
    fn networks_show_other_servers_with_their_makers() {
        let shown = bench().reply(&get("/trivet/networks")).value();
        let network = &shown["networks"][0];
        assert_eq!(
            (&network["name"], &network["mode"]),
            (&json!("eth1"), &json!("listen"))
        );
        let server = &network["other_servers"][0];
        assert_eq!(server["address"], "192.0.2.254");
        assert_eq!(
            (&server["mac"], &server["vendor"]),
            (&json!("00:14:22:00:00:09"), &json!("Dell"))
        );
    }

    #[test]
    fn faults_are_listed_newest_first() {
        let mut bench = bench();
        assert_eq!(
            bench.reply(&get("/trivet/faults")).value(),
            json!({"faults": []})
        );
        for (last, since) in [(9, 1000), (19, 2000)] {
            let fault = trivet_model::BoxFault::PoolExhausted {
                first: Ipv4Addr::new(10, 0, 0, 1),
                last: Ipv4Addr::new(10, 0, 0, last),
            };
            let since = UnixMs(since);
            let seen_at = since;
            bench
                .view
                .faults
                .insert(fault, FaultTimes { since, seen_at });
        }
        let shown = bench.reply(&get("/trivet/faults")).value();
        let message = shown["faults"][0]["fault"].as_str().unwrap().to_owned();
        assert!(
            message.contains("10.0.0.1 to 10.0.0.19 is left"),
            "{message}"
        );
        assert_eq!(shown["faults"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn unknown_machines_have_a_maker_an_architecture_and_a_uuid() {
        let mut bench = bench();
        for (last, seen) in [(1, 5), (2, 9)] {
            let mac = MacAddr([0xac, 0x1f, 0x6b, 0, 0, last]);
            let client = ClientSeen {
                mac,
                link: LinkId(0),
                arch: Some(7),
                uuid: Some([0x11; 16]),
                ipxe: false,
                vendor_class: None,
                address: None,
            };
            let seen_at = UnixMs(seen);
            bench
                .view
                .unknown_machines
                .insert(mac, UnknownMachine { seen_at, client });
        }
        let shown = bench.reply(&get("/trivet/strangers")).value();
        let last = &shown["strangers"][0];
        assert_eq!(last["mac"], "ac:1f:6b:00:00:02", "seen last");
        assert_eq!(
            (&last["vendor"], &last["architecture"]),
            (&json!("Supermicro"), &json!(7))
        );
        assert_eq!(last["uuid"], "11111111-1111-1111-1111-111111111111");
        assert_eq!(last["network"], "eth1");
    }
}
