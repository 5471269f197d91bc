//! Addresses and files.

use std::net::SocketAddrV4;

use trivet_dhcp::client::Client;
use trivet_model::{Fault, NoteKind};

use super::*;
use crate::{Door, Grant};

const RELAY: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 200);

/// Lets a client get an address; what it got.
pub(super) fn lease(bench: &mut Bench, mac: MacAddr) -> Option<Ipv4Addr> {
    let mut client = Client::new(mac, Some(7), true, None, Some(RELAY));
    client.start(bench.now.tick);
    while let Some(bytes) = client.transmit() {
        let source = SocketAddrV4::new(RELAY, 67);
        let arrival = trivet_dhcp::Arrival::datagram(Ipv4Addr::new(10, 0, 0, 1), source);
        bench.tell(Input::Dhcp { arrival, bytes });
        for output in &bench.outputs {
            if let Output::Dhcp { bytes, .. } = output {
                client.datagram(bench.now.tick, bytes);
            }
        }
    }
    client.bound().map(|bound| bound.address)
}

fn asks(bench: &mut Bench, door: Door, path: &str) -> Option<Grant> {
    bench.tell(Input::FileAsked {
        ticket: 3,
        door,
        peer: Ipv4Addr::new(10, 0, 0, 100).into(),
        path: path.to_owned(),
    });
    bench.outputs.iter().find_map(|output| match output {
        Output::File { ticket: 3, grant } => grant.clone(),
        _ => None,
    })
}

pub(super) fn script(bench: &mut Bench) -> String {
    match asks(bench, Door::Http, &format!("/boot/{MAC}/script")) {
        Some(Grant::Bytes(bytes)) => String::from_utf8(bytes).unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_lease_is_on_flash_before_the_client_hears_and_survives() {
    let mut bench = Bench::new();
    let address = lease(&mut bench, MAC).unwrap();
    let kept = bench.store.records().unwrap().leases;
    assert_eq!(kept.get(&MAC).map(|lease| lease.address), Some(address));
    let mut bench = bench.restarted();
    let other = lease(&mut bench, MacAddr([2; 6])).unwrap();
    assert_ne!(other, address);
    assert_eq!(lease(&mut bench, MAC), Some(address));
    assert_eq!(lease(&mut bench, MacAddr([3; 6])), None, "the pool has two");
}

#[test]
fn an_address_is_free_again_when_its_time_is_over() {
    let mut bench = Bench::new();
    lease(&mut bench, MAC).unwrap();
    while let Some(at) = bench.rack.deadline() {
        bench.now.tick = at;
        bench.tell(Input::Tick);
    }
    assert!(bench.store.records().unwrap().leases.is_empty());
}

#[test]
fn a_stranger_is_shown_until_it_becomes_a_port() {
    let mut bench = Bench::new();
    lease(&mut bench, MAC);
    assert!(bench.rack.view().strangers.contains_key(&MAC));
    bench.with_node(1);
    assert!(bench.rack.view().strangers.is_empty());
}

#[test]
fn the_script_follows_the_nodes_life() {
    let (mut bench, id) = Bench::inspecting();
    let text = script(&mut bench);
    assert!(text.contains("ipa-inspection-callback-url="), "{text}");
    bench.verb(id, Verb::Abort).unwrap();
    assert!(script(&mut bench).contains("sleep"));
    bench.force(id, |node| node.provision_state = ProvisionState::Active);
    assert!(script(&mut bench).contains("exit"));
}

#[test]
fn files_are_granted_below_their_directories_only() {
    let mut bench = Bench::new();
    let mut granted = |door, path: &str| asks(&mut bench, door, path).is_some();
    assert!(granted(Door::Tftp, "snponly.efi"));
    assert!(granted(Door::Http, "/boot/kernel"));
    assert!(granted(Door::Http, "/images/disk.raw"));
    assert!(!granted(Door::Http, "/boot/ramdisk"), "it is not named");
    assert!(!granted(Door::Http, "/images/other.raw"));
    assert!(granted(Door::Http, "/boot/loaders/snponly.efi"));
    assert!(!granted(Door::Http, "/files/snponly.efi"));
    assert!(!granted(Door::Tftp, "../etc/passwd"));
}

#[test]
fn a_file_on_its_way_is_shown_and_then_noted() {
    let (mut bench, id) = Bench::inspecting();
    let peer = lease(&mut bench, MAC).unwrap().into();
    let sent = |sent, ended| Input::FileSent {
        peer,
        door: Door::Http,
        path: "/boot/kernel".into(),
        sent,
        asked: 10,
        took_ms: 1500,
        ended,
    };
    bench.tell(sent(4, false));
    let live = |bench: &Bench| bench.rack.view().nodes.get(&id).unwrap().live.clone();
    assert_eq!(live(&bench).transfer, Some((4, 10)));
    bench.tell(sent(10, true));
    assert_eq!(live(&bench).transfer, None);
    assert_eq!(
        bench.notes(),
        ["HTTP sent /boot/kernel, 10 bytes in 1.500 s"]
    );
}

#[test]
fn what_the_shell_found_wrong_stands_from_the_start_and_is_noted_once() {
    let mut bench = Bench::new();
    let fault = Fault::LoaderMissing {
        path: "/loaders/undionly.kpxe".into(),
        firmware: "BIOS firmware",
    };
    let settings = Settings {
        faults: vec![fault.clone()],
        ..settings()
    };
    let records = bench.store.records().unwrap();
    bench.rack = Rack::new(settings, Box::new(Seeded::new(3)), records);
    bench.tell(Input::Started);
    let notes: Vec<_> = bench
        .outputs
        .iter()
        .filter(|output| {
            matches!(output, Output::Note { note, .. }
                if note.kind == NoteKind::FaultRaised(fault.clone()))
        })
        .collect();
    assert_eq!(notes.len(), 1);
    let standing = bench.rack.view().faults[&fault];
    assert_eq!(standing.since, bench.now.wall);
}
