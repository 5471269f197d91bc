//! Addresses and files.

use std::net::SocketAddrV4;

use trivet_dhcp::client::DhcpClient;
use trivet_model::{BoxFault, NoteKind};

use super::*;
use crate::{FileGrant, FileServerProtocol};

const RELAY: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 200);

/// Runs a client through DHCP; returns its lease.
pub(super) fn lease(bench: &mut RackBench, mac: MacAddr) -> Option<Ipv4Addr> {
    let mut client = DhcpClient::new(mac, Some(7), true, None, Some(RELAY));
    client.start(bench.now.tick);
    while let Some(bytes) = client.transmit() {
        let source = SocketAddrV4::new(RELAY, 67);
        let arrival = trivet_dhcp::DhcpArrival::datagram(Ipv4Addr::new(10, 0, 0, 1), source);
        bench.handle(RackInput::Dhcp { arrival, bytes });
        for output in &bench.outputs {
            if let RackOutput::Dhcp { bytes, .. } = output {
                client.datagram(bench.now.tick, bytes);
            }
        }
    }
    client.bound().map(|bound| bound.address)
}

fn request_file(
    bench: &mut RackBench,
    protocol: FileServerProtocol,
    path: &str,
) -> Option<FileGrant> {
    bench.handle(RackInput::FileRequested {
        certificate: None,
        ticket: 3,
        protocol,
        peer: Ipv4Addr::new(10, 0, 0, 100).into(),
        path: path.to_owned(),
    });
    bench.outputs.iter().find_map(|output| match output {
        RackOutput::File { ticket: 3, grant } => grant.clone(),
        _ => None,
    })
}

pub(super) fn script(bench: &mut RackBench) -> String {
    match request_file(
        bench,
        FileServerProtocol::Http,
        &format!("/boot/{MAC}/script"),
    ) {
        Some(FileGrant::Bytes(bytes)) => String::from_utf8(bytes).unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_lease_is_on_flash_before_the_reply_is_sent_and_survives() {
    let mut bench = RackBench::new();
    let address = lease(&mut bench, MAC).unwrap();
    let stored = bench.store.records().unwrap().leases;
    assert_eq!(stored.get(&MAC).map(|lease| lease.address), Some(address));
    let mut bench = bench.restarted();
    let other = lease(&mut bench, MacAddr([2; 6])).unwrap();
    assert_ne!(other, address);
    assert_eq!(lease(&mut bench, MAC), Some(address));
    assert_eq!(lease(&mut bench, MacAddr([3; 6])), None, "the pool has two");
}

#[test]
fn an_address_is_free_again_when_its_time_is_over() {
    let mut bench = RackBench::new();
    lease(&mut bench, MAC).unwrap();
    while let Some(at) = bench.rack.deadline() {
        bench.now.tick = at;
        bench.handle(RackInput::Tick);
    }
    assert!(bench.store.records().unwrap().leases.is_empty());
}

#[test]
fn an_unknown_machine_is_shown_until_it_becomes_a_port() {
    let mut bench = RackBench::new();
    lease(&mut bench, MAC);
    assert!(bench.rack.view().unknown_machines.contains_key(&MAC));
    bench.with_node(1);
    assert!(bench.rack.view().unknown_machines.is_empty());
}

#[test]
fn the_script_follows_the_nodes_state() {
    let (mut bench, id) = RackBench::inspecting();
    let text = script(&mut bench);
    assert!(text.contains("ipa-inspection-callback-url="), "{text}");
    bench.verb(id, Verb::Abort).unwrap();
    let text = script(&mut bench);
    assert!(text.contains("exit 1"), "no job makes it wait: {text}");
    bench.force(id, |node| node.provision_state = ProvisionState::Active);
    assert!(script(&mut bench).contains("exit"));
}

#[test]
fn files_are_granted_below_their_directories_only() {
    let mut bench = RackBench::new();
    let mut granted = |protocol, path: &str| request_file(&mut bench, protocol, path).is_some();
    assert!(granted(FileServerProtocol::Tftp, "snponly.efi"));
    assert!(granted(FileServerProtocol::Http, "/boot/kernel"));
    assert!(granted(FileServerProtocol::Http, "/images/disk.raw"));
    assert!(
        !granted(FileServerProtocol::Http, "/boot/ramdisk"),
        "it is not named"
    );
    assert!(!granted(FileServerProtocol::Http, "/images/other.raw"));
    assert!(granted(
        FileServerProtocol::Http,
        "/boot/loaders/snponly.efi"
    ));
    assert!(!granted(FileServerProtocol::Http, "/files/snponly.efi"));
    assert!(!granted(FileServerProtocol::Tftp, "../etc/passwd"));
}

#[test]
fn a_file_on_its_way_is_shown_and_then_noted() {
    let (mut bench, id) = RackBench::inspecting();
    let peer = lease(&mut bench, MAC).unwrap().into();
    let sent = |sent, ended| RackInput::FileSent {
        peer,
        protocol: FileServerProtocol::Http,
        path: "/boot/kernel".into(),
        sent,
        requested: 10,
        took_ms: 1500,
        ended,
    };
    bench.handle(sent(4, false));
    let live = |bench: &RackBench| bench.rack.view().nodes.get(&id).unwrap().live.clone();
    assert_eq!(live(&bench).transfer, Some((4, 10)));
    bench.handle(sent(10, true));
    assert_eq!(live(&bench).transfer, None);
    assert_eq!(
        bench.notes(),
        ["HTTP sent /boot/kernel, 10 bytes in 1.500 s"]
    );
}

#[test]
fn faults_of_the_shell_exist_from_the_start_and_are_noted_once() {
    let mut bench = RackBench::new();
    let fault = BoxFault::LoaderMissing {
        path: "/loaders/undionly.kpxe".into(),
        firmware: "BIOS firmware",
    };
    let settings = Settings {
        faults: vec![fault.clone()],
        ..settings()
    };
    let records = bench.store.records().unwrap();
    bench.rack = Rack::new(settings, Box::new(SeededRandom::new(3)), records);
    bench.handle(RackInput::Started);
    let notes: Vec<_> = bench
        .outputs
        .iter()
        .filter(|output| {
            matches!(output, RackOutput::Note { note, .. }
                if note.kind == NoteKind::FaultRaised(fault.clone()))
        })
        .collect();
    assert_eq!(notes.len(), 1);
    let standing = bench.rack.view().faults[&fault];
    assert_eq!(standing.since, bench.now.wall);
}

#[test]
fn an_unknown_machine_continues_with_its_next_boot_device_at_once() {
    let mut bench = RackBench::new();
    let text = script(&mut bench);
    assert!(
        text.contains("sanboot --no-describe --drive 0x80"),
        "{text}"
    );
    assert!(text.contains("exit 1"), "{text}");
    assert!(!text.contains("sleep"), "{text}");
}

#[test]
fn an_enrolled_node_without_a_job_continues_with_its_next_boot_device_at_once() {
    let mut bench = RackBench::new();
    let id = bench.with_node(1);
    for state in [ProvisionState::Enroll, ProvisionState::Available] {
        bench.force(id, |node| node.provision_state = state);
        let text = script(&mut bench);
        assert!(text.contains("exit 1") && !text.contains("sleep"), "{text}");
    }
}

#[test]
fn a_file_that_a_node_is_refused_is_a_note_on_that_node() {
    let (mut bench, id) = RackBench::inspecting();
    let peer = lease(&mut bench, MAC).unwrap().into();
    let refused = |path: &str| RackInput::FileRefused {
        peer,
        protocol: FileServerProtocol::Http,
        path: path.to_owned(),
        answer: "404 Not Found",
        why: "there is no such file on this box".to_owned(),
    };
    bench.handle(refused("/boot/ramdisk"));
    let message = "HTTP request for /boot/ramdisk refused with 404 Not Found: there is no such \
                file on this box";
    assert_eq!(bench.notes(), [message]);
    let view = bench.rack.view();
    let timeline = &view.nodes.get(&id).unwrap().timeline;
    assert_eq!(timeline.last().unwrap().kind.to_string(), message);
    bench.handle(refused("/boot/ramdisk"));
    assert!(bench.notes().is_empty(), "a repeated request is noted once");
    bench.handle(refused("/boot/other"));
    assert_eq!(bench.notes().len(), 1);
    let secret = "0123456789abcdef0123456789abcdef";
    bench.handle(refused(&format!("/nodes/{id}/{secret}/image/a.raw")));
    let message = bench.notes().join("\n");
    assert!(
        message.contains("refused") && !message.contains(secret),
        "{message}"
    );
}

/// A box without boot.kernel and boot.ramdisk.
fn without_agent() -> RackBench {
    let files = RackFilePaths {
        kernel: None,
        ..settings().files
    };
    RackBench::with(Settings {
        files,
        ..settings()
    })
}

#[test]
fn a_verb_that_boots_the_agent_is_refused_where_there_is_none() {
    let mut bench = without_agent();
    let id = bench.with_node(1);
    bench.force(id, |node| node.provision_state = ProvisionState::Manageable);
    for verb in [Verb::Inspect, Verb::Provide] {
        let refused = bench.verb(id, verb).unwrap_err();
        assert_eq!(refused.kind, RefusalKind::Invalid);
        let message = refused.sentence;
        assert!(
            message.contains("boot.kernel") && message.contains("trivet-image"),
            "{message}"
        );
    }
    let node = bench.node(id);
    assert_eq!(node.provision_state, ProvisionState::Manageable);
    assert!(node.job.is_none());
    bench.force(id, |node| {
        node.provision_state = ProvisionState::Available;
        let info = &mut node.instance_info;
        info.insert("image_source".into(), json!("disk.raw"));
    });
    assert!(bench.verb(id, Verb::Active).is_err());
    let Ok(OrderOutcome::Checked(Some(message))) = bench.order(RackOrder::CheckDeploy(id)) else {
        panic!("validate reports it too")
    };
    assert!(message.contains("boot.kernel"), "{message}");
}

#[test]
fn a_node_with_its_own_agent_needs_none_of_the_box() {
    let mut bench = without_agent();
    let id = bench.with_node(1);
    bench.force(id, |node| {
        node.provision_state = ProvisionState::Manageable;
        let info = &mut node.driver_info;
        info.insert("deploy_kernel".into(), json!("http://far/kernel"));
        info.insert("deploy_ramdisk".into(), json!("http://far/ramdisk"));
    });
    bench.verb(id, Verb::Inspect).unwrap();
}

#[test]
fn a_box_whose_agent_is_booted_by_another_server_refuses_nothing() {
    let mut bench = without_agent();
    bench.rack.settings.files.agent_from_other_server = true;
    let id = bench.with_node(1);
    bench.force(id, |node| node.provision_state = ProvisionState::Manageable);
    bench.verb(id, Verb::Inspect).unwrap();
}
