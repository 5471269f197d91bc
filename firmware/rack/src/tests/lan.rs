//! Networks: modes, other servers, reservations, addresses that are in use, and floods of
//! unknown machines.

use std::net::SocketAddrV4;

use trivet_dhcp::client::DhcpClient;
use trivet_dhcp::{DhcpArrival, DhcpLinkSettings, OFFER_HOLD_MS};
use trivet_model::fault::FAULTS_OF_KIND_MAX;
use trivet_model::view::TIMELINE_NOTES_MAX;
use trivet_model::{BoxFault, LinkId, LinkMode, NoteKind};

use super::*;
use crate::faults::FAULT_QUIET_MS;
use crate::lan::{UNKNOWN_MACHINES_NOTED_MAX, UNKNOWN_MACHINES_NOTED_MS};

const BOX: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const OTHER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const OTHER_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xee]);
const LINK: LinkId = LinkId(0);

/// A rack with one link in this mode.
fn bench(mode: LinkMode) -> RackBench {
    let mut settings = settings();
    let dhcp = settings.dhcp.as_mut().unwrap();
    dhcp.links = vec![DhcpLinkSettings {
        name: "eth1".into(),
        mode,
        discovery: true,
        server: BOX,
        boot: dhcp.subnets[0].boot.clone(),
        relayed: false,
        network: None,
    }];
    RackBench::with(settings)
}

fn receive(bench: &mut RackBench, port: u16, from: Option<MacAddr>, bytes: Vec<u8>) {
    let source = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 68);
    let arrival = DhcpArrival {
        port,
        from,
        ..DhcpArrival::datagram(BOX, source)
    };
    bench.handle(RackInput::Dhcp { arrival, bytes });
}

/// Runs a client on the link itself through DHCP, as far as it gets.
fn lease(bench: &mut RackBench, mac: MacAddr, arch: Option<u16>) -> Option<Ipv4Addr> {
    let mut client = DhcpClient::new(mac, arch, false, None, None);
    client.start(bench.now.tick);
    while let Some(bytes) = client.transmit() {
        receive(bench, 67, Some(mac), bytes);
        for output in &bench.outputs {
            if let RackOutput::Dhcp { bytes, .. } = output {
                client.datagram(bench.now.tick, bytes);
            }
        }
    }
    client.bound().map(|bound| bound.address)
}

fn discover(bench: &mut RackBench, mac: MacAddr) {
    let mut client = DhcpClient::new(mac, None, false, None, None);
    client.start(bench.now.tick);
    let bytes = client.transmit().unwrap();
    receive(bench, 67, Some(mac), bytes);
}

/// A frame with these options, from or for a machine.
fn frame(operation: u8, mac: MacAddr, yiaddr: Ipv4Addr, options: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 236];
    bytes[..3].copy_from_slice(&[operation, 1, 6]);
    bytes[16..20].copy_from_slice(&yiaddr.octets());
    bytes[28..34].copy_from_slice(&mac.0);
    bytes.extend([99, 130, 83, 99]);
    bytes.extend(options);
    bytes.push(255);
    bytes
}

/// An OFFER of another server.
fn foreign_offer(bench: &mut RackBench, server: Ipv4Addr) {
    let [a, b, c, d] = server.octets();
    let given = Ipv4Addr::new(10, 0, 0, 50);
    let bytes = frame(2, MAC, given, &[53, 1, 2, 54, 4, a, b, c, d]);
    receive(bench, 68, Some(OTHER_MAC), bytes);
}

/// A client accepts the offer of another server.
fn foreign_request(bench: &mut RackBench, mac: MacAddr) {
    let options = [53, 1, 3, 54, 4, 10, 0, 0, 2, 50, 4, 10, 0, 0, 50];
    let bytes = frame(1, mac, Ipv4Addr::UNSPECIFIED, &options);
    receive(bench, 67, Some(mac), bytes);
}

fn sent(bench: &RackBench) -> usize {
    let sends =
        |output: &&RackOutput| matches!(output, RackOutput::Dhcp { .. } | RackOutput::Probe { .. });
    bench.outputs.iter().filter(sends).count()
}

fn probes(bench: &RackBench) -> Vec<Ipv4Addr> {
    let probes = bench.outputs.iter().filter_map(|output| match output {
        RackOutput::Probe {
            link: LINK,
            address,
        } => Some(*address),
        _ => None,
    });
    probes.collect()
}

fn faults(bench: &RackBench) -> Vec<BoxFault> {
    bench.rack.view().faults.keys().cloned().collect()
}

fn foreign_fault(mac: Option<MacAddr>) -> BoxFault {
    BoxFault::ForeignServer {
        link: "eth1".into(),
        address: OTHER,
        mac,
    }
}

fn claimed(bench: &mut RackBench, address: Ipv4Addr, mac: MacAddr) {
    bench.handle(RackInput::ArpClaimed {
        link: LINK,
        address,
        mac,
    });
}

fn unknown_machine(number: u32) -> MacAddr {
    let [a, b, c, d] = number.to_be_bytes();
    MacAddr([2, 1, a, b, c, d])
}

#[test]
fn listen_mode_sends_nothing_and_shows_other_servers() {
    let mut bench = bench(LinkMode::Listen);
    bench.with_node(1);
    discover(&mut bench, MAC);
    assert_eq!(sent(&bench), 0);
    foreign_offer(&mut bench, OTHER);
    let note = "another DHCP server, 10.0.0.2 (02:00:00:00:00:ee), was seen on eth1";
    assert_eq!(bench.notes(), [note]);
    assert_eq!(sent(&bench), 0);
    let view = bench.rack.view();
    let link = &view.links[&LINK];
    assert_eq!((link.name.as_str(), link.mode), ("eth1", LinkMode::Listen));
    let server = &link.foreign[0];
    assert_eq!((server.address, server.mac), (OTHER, Some(OTHER_MAC)));
    assert!(!server.proxy);
    assert_eq!(faults(&bench), []);
    foreign_offer(&mut bench, OTHER);
    assert_eq!(bench.notes(), [""; 0], "once");
    foreign_request(&mut bench, MacAddr([2; 6]));
    assert_eq!(
        sent(&bench),
        0,
        "it sends no probe for the hardware address"
    );
}

#[test]
fn a_foreign_server_is_a_fault_where_we_serve() {
    for mode in [LinkMode::Server, LinkMode::Reservations] {
        let mut bench = bench(mode);
        foreign_offer(&mut bench, OTHER);
        assert_eq!(faults(&bench), [foreign_fault(Some(OTHER_MAC))]);
        let notes = bench.notes();
        assert!(
            notes[0].contains("10.0.0.2 (02:00:00:00:00:ee)"),
            "{notes:?}"
        );
        bench.advance(FAULT_QUIET_MS / 2);
        foreign_offer(&mut bench, OTHER);
        assert_eq!(bench.notes(), [""; 0], "the fault exists already");
        bench.advance(FAULT_QUIET_MS - 1);
        assert_eq!(faults(&bench).len(), 1);
        bench.advance(1);
        assert_eq!(faults(&bench), []);
        assert!(bench.notes()[0].starts_with("fault cleared"));
    }
}

#[test]
fn a_foreign_server_is_not_a_fault_in_proxy_mode() {
    let mut bench = bench(LinkMode::Proxy);
    foreign_offer(&mut bench, OTHER);
    assert_eq!(faults(&bench), []);
    assert_eq!(bench.rack.view().links[&LINK].foreign.len(), 1);
    bench.with_node(1);
    assert_eq!(
        lease(&mut bench, MAC, Some(0)),
        None,
        "no address is ours to give"
    );
    assert_eq!(sent(&bench), 1, "but what to boot");
    assert_eq!(bench.store.records().unwrap().leases.len(), 0);
}

#[test]
fn a_server_known_from_its_clients_is_probed_for_its_hardware_address() {
    let mut bench = bench(LinkMode::Server);
    foreign_request(&mut bench, MAC);
    assert_eq!(faults(&bench), [foreign_fault(None)]);
    assert_eq!(probes(&bench), [OTHER]);
    foreign_request(&mut bench, MAC);
    assert!(probes(&bench).is_empty(), "once");
    claimed(&mut bench, OTHER, OTHER_MAC);
    assert_eq!(faults(&bench), [foreign_fault(Some(OTHER_MAC))]);
    assert_eq!(bench.notes().len(), 1, "{:?}", bench.notes());
    foreign_request(&mut bench, MAC);
    assert_eq!(faults(&bench), [foreign_fault(Some(OTHER_MAC))]);
    bench.advance(FAULT_QUIET_MS);
    assert_eq!(faults(&bench), []);
}

#[test]
fn foreign_servers_have_a_bound_and_the_newest_stay() {
    let mut bench = bench(LinkMode::Listen);
    for last in 10..40 {
        bench.now.wall.0 += 1;
        foreign_offer(&mut bench, Ipv4Addr::new(10, 0, 0, last));
    }
    let view = bench.rack.view();
    let stored = &view.links[&LINK].foreign;
    let addresses: Vec<_> = stored
        .iter()
        .map(|server| server.address.octets()[3])
        .collect();
    assert_eq!(addresses, (24..40).collect::<Vec<_>>());
}

#[test]
fn a_node_with_an_address_of_another_server_is_known_by_it() {
    let mut bench = bench(LinkMode::Proxy);
    let id = bench.with_node(1);
    foreign_request(&mut bench, MAC);
    bench.handle(RackInput::FileSent {
        peer: Ipv4Addr::new(10, 0, 0, 50).into(),
        protocol: crate::FileServerProtocol::Tftp,
        path: "undionly.kpxe".into(),
        sent: 1,
        requested: 1,
        took_ms: 1,
        ended: true,
    });
    let view = bench.rack.view();
    let newest = view.nodes[&id].timeline.last().unwrap();
    assert!(
        matches!(newest.kind, NoteKind::FileSent { .. }),
        "{newest:?}"
    );
}

fn reserve(port: &mut Port, address: &str) {
    port.extra.insert("ipv4_address".into(), json!(address));
}

#[test]
fn a_port_has_the_address_that_is_kept_for_it() {
    let mut bench = bench(LinkMode::Server);
    let id = bench.with_node(1);
    let mut second = port(2, id);
    reserve(&mut second, "10.0.0.7");
    bench
        .order(RackOrder::CreatePort(Box::new(second.clone())))
        .unwrap();
    let mut third = port(3, id);
    reserve(&mut third, "10.0.0.100");
    bench
        .order(RackOrder::CreatePort(Box::new(third.clone())))
        .unwrap();
    assert_eq!(
        lease(&mut bench, MAC, None),
        Some(Ipv4Addr::new(10, 0, 0, 101))
    );
    assert_eq!(
        lease(&mut bench, MacAddr([2; 6]), None),
        None,
        "the rest is kept"
    );
    assert_eq!(
        lease(&mut bench, second.address, None),
        Some(Ipv4Addr::new(10, 0, 0, 7))
    );
    assert_eq!(
        lease(&mut bench, third.address, None),
        Some(Ipv4Addr::new(10, 0, 0, 100))
    );
    let mut bench = bench.restarted();
    assert_eq!(
        lease(&mut bench, second.address, None),
        Some(Ipv4Addr::new(10, 0, 0, 7))
    );
}

#[test]
fn a_reservation_is_unique_and_one_that_could_be_given() {
    let mut bench = bench(LinkMode::Server);
    let id = bench.with_node(1);
    let mut second = port(2, id);
    for wrong in ["10.0.0.1", "10.0.0.255", "10.9.9.9"] {
        reserve(&mut second, wrong);
        let order = RackOrder::CreatePort(Box::new(second.clone()));
        let sentence = bench.refused(order, RefusalKind::Invalid);
        assert!(sentence.contains(wrong), "{sentence}");
    }
    reserve(&mut second, "10.0.0.7");
    bench
        .order(RackOrder::CreatePort(Box::new(second.clone())))
        .unwrap();
    let mut third = port(3, id);
    reserve(&mut third, "10.0.0.7");
    let sentence = bench.refused(
        RackOrder::CreatePort(Box::new(third.clone())),
        RefusalKind::Conflict,
    );
    assert!(sentence.contains("10.0.0.7"), "{sentence}");
    bench.order(RackOrder::DeletePort(second.id)).unwrap();
    bench.order(RackOrder::CreatePort(Box::new(third))).unwrap();
}

#[test]
fn a_lease_whose_reservation_is_gone_is_forgotten_at_the_start() {
    let mut bench = bench(LinkMode::Server);
    let id = bench.with_node(1);
    let mut second = port(2, id);
    reserve(&mut second, "10.0.0.7");
    bench
        .order(RackOrder::CreatePort(Box::new(second.clone())))
        .unwrap();
    lease(&mut bench, second.address, None).unwrap();
    bench.order(RackOrder::DeletePort(second.id)).unwrap();
    assert_eq!(bench.store.records().unwrap().leases.len(), 1);
    let bench = bench.restarted();
    assert_eq!(bench.store.records().unwrap().leases.len(), 0);
}

#[test]
fn an_offered_address_is_probed_at_once_and_not_given_if_it_answers() {
    let mut bench = bench(LinkMode::Server);
    discover(&mut bench, MAC);
    let first = Ipv4Addr::new(10, 0, 0, 100);
    assert_eq!(probes(&bench), [first]);
    assert_eq!(sent(&bench), 2, "the offer does not wait");
    claimed(&mut bench, first, MAC);
    assert_eq!(faults(&bench), [], "its own");
    claimed(&mut bench, first, OTHER_MAC);
    let taken = BoxFault::AddressTaken {
        address: first,
        by: OTHER_MAC,
    };
    assert_eq!(faults(&bench), [taken]);
    assert_eq!(
        lease(&mut bench, MAC, None),
        Some(Ipv4Addr::new(10, 0, 0, 101))
    );
    bench.advance(FAULT_QUIET_MS);
    assert_eq!(faults(&bench), []);
}

#[test]
fn a_leased_address_used_by_another_is_a_fault_and_stays_leased() {
    let mut bench = bench(LinkMode::Server);
    let address = lease(&mut bench, MAC, None).unwrap();
    claimed(&mut bench, address, OTHER_MAC);
    assert_eq!(faults(&bench).len(), 1);
    assert!(bench.store.records().unwrap().leases.contains_key(&MAC));
}

#[test]
fn many_faults_of_one_kind_do_not_hide_the_others() {
    let mut bench = bench(LinkMode::Server);
    let address = lease(&mut bench, MAC, None).unwrap();
    for number in 0..600 {
        claimed(&mut bench, address, unknown_machine(number));
    }
    assert_eq!(faults(&bench).len(), FAULTS_OF_KIND_MAX);
    lease(&mut bench, unknown_machine(1), None).unwrap();
    discover(&mut bench, unknown_machine(2));
    let full = |fault: &BoxFault| matches!(fault, BoxFault::PoolExhausted { .. });
    assert!(faults(&bench).iter().any(full));
}

#[test]
fn a_full_pool_is_a_fault_until_an_address_is_free() {
    let mut bench = bench(LinkMode::Server);
    lease(&mut bench, unknown_machine(1), None).unwrap();
    lease(&mut bench, unknown_machine(2), None).unwrap();
    assert_eq!(faults(&bench), []);
    discover(&mut bench, unknown_machine(3));
    let full = BoxFault::PoolExhausted {
        first: Ipv4Addr::new(10, 0, 0, 100),
        last: Ipv4Addr::new(10, 0, 0, 101),
    };
    assert_eq!(faults(&bench), [full]);
    discover(&mut bench, unknown_machine(4));
    let raised = |notes: Vec<String>| notes.iter().any(|note| note.starts_with("fault"));
    assert!(!raised(bench.notes()), "it is noted once");
    bench.advance(60_000 + trivet_dhcp::GRACE_MS);
    assert_eq!(faults(&bench), []);
    assert!(raised(bench.notes()));
    assert!(lease(&mut bench, unknown_machine(3), None).is_some());
}

#[test]
fn a_flood_of_unknown_machines_is_a_few_notes_and_keeps_no_node_from_its_address() {
    let mut bench = bench(LinkMode::Server);
    bench.with_node(1);
    let mut notes = 0;
    for number in 0..20_000 {
        discover(&mut bench, unknown_machine(number));
        notes += bench.notes().len();
    }
    assert!(
        notes <= UNKNOWN_MACHINES_NOTED_MAX as usize + 1,
        "{notes} notes"
    );
    let unknown_machines = bench.rack.view().unknown_machines;
    assert_eq!(
        unknown_machines.len(),
        trivet_model::view::UNKNOWN_MACHINES_MAX
    );
    assert!(unknown_machines.contains_key(&unknown_machine(19_999)));
    assert!(!unknown_machines.contains_key(&unknown_machine(0)));
    assert!(lease(&mut bench, MAC, Some(0)).is_some());
    bench.advance(UNKNOWN_MACHINES_NOTED_MS);
    let more = format!("and {} more unknown", 20_000 - UNKNOWN_MACHINES_NOTED_MAX);
    let reported = bench.notes();
    assert!(
        reported.iter().any(|note| note.starts_with(&more)),
        "{reported:?}"
    );
    discover(&mut bench, unknown_machine(30_000));
    assert!(bench.notes()[0].starts_with("unknown machine"));
}

#[test]
fn a_flood_ends_with_its_offers() {
    let mut bench = bench(LinkMode::Server);
    for number in 0..10 {
        discover(&mut bench, unknown_machine(number));
    }
    assert_eq!(faults(&bench).len(), 1);
    bench.advance(OFFER_HOLD_MS);
    assert_eq!(faults(&bench), []);
}

fn timeline(bench: &RackBench, id: NodeId) -> Vec<String> {
    let view = bench.rack.view();
    let notes = view.nodes[&id].timeline.iter();
    notes
        .filter(|note| matches!(note.kind, NoteKind::Dhcp { .. }))
        .map(|note| note.kind.to_string())
        .collect()
}

#[test]
fn each_exchange_is_on_the_nodes_timeline() {
    let mut bench = bench(LinkMode::Server);
    let id = bench.with_node(1);
    lease(&mut bench, MAC, Some(0)).unwrap();
    assert_eq!(
        timeline(&bench, id),
        [
            "52:54:00:00:00:01 (BIOS PXE): DISCOVER, OFFER 10.0.0.100, boot undionly.kpxe",
            "52:54:00:00:00:01 (BIOS PXE): REQUEST, ACK 10.0.0.100, boot undionly.kpxe",
        ]
    );
}

#[test]
fn repeated_exchanges_are_one_note_on_the_timeline() {
    let mut bench = bench(LinkMode::Server);
    let id = bench.with_node(1);
    let before = bench.rack.view().nodes[&id].timeline.len();
    for _ in 0..TIMELINE_NOTES_MAX {
        bench.now.wall.0 += 1;
        lease(&mut bench, MAC, None).unwrap();
    }
    let view = bench.rack.view();
    let notes = &view.nodes[&id].timeline;
    assert_eq!(notes.len(), before + 2);
    assert_eq!(notes.last().unwrap().at, bench.now.wall);
    assert_eq!(bench.notes(), [""; 0], "nor is it logged again");
}
