//! From which addresses agents may call, and where they are called back.

use std::net::IpAddr;

use trivet_model::boot::ClientSeen;
use trivet_model::view::UnknownMachine;
use trivet_model::{JobPhase, Lease};

use super::*;
use crate::{AgentAddresses, FileServerProtocol};

/// The address that the box leased to the node.
const LEASED: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 100);

/// In the network whose addresses the box leases, but not leased.
const UNLEASED: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 66);

/// Outside all networks of the box.
const FAR: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 66);

const OTHER_MAC: MacAddr = MacAddr([0x52, 0x54, 0, 0, 0, 9]);

fn strict(agent_addresses: AgentAddresses) -> (RackBench, NodeId) {
    let settings = Settings {
        agent_addresses,
        ..settings()
    };
    RackBench::inspecting_with(settings)
}

/// A node under inspection with a lease from this box, or without any.
fn awaited(leased: bool) -> (RackBench, NodeId) {
    let (mut bench, id) = strict(AgentAddresses::default());
    if leased {
        lease(&mut bench, MAC, LEASED);
    }
    (bench, id)
}

fn lease(bench: &mut RackBench, mac: MacAddr, address: Ipv4Addr) {
    bench.rack.records.put_lease(Lease { mac, address });
    bench.handle(RackInput::Tick);
}

fn from(
    bench: &mut RackBench,
    address: impl Into<IpAddr>,
    order: RackOrder,
) -> Result<OrderOutcome, OrderRefusal> {
    bench.order_of(Arc::new(ApiCaller::agent(address.into())), order)
}

fn lookup(bench: &mut RackBench, address: impl Into<IpAddr>) -> Result<LookupResult, OrderRefusal> {
    let order = RackOrder::Lookup {
        addresses: vec![MAC],
        node: None,
    };
    from(bench, address, order).map(|done| match done {
        OrderOutcome::Found(found) => *found,
        other => panic!("{other:?}"),
    })
}

fn heartbeat_at(node: NodeId, token: &str, url: &str) -> RackOrder {
    let heartbeat = AgentHeartbeat {
        callback_url: url.to_owned(),
        ..heartbeat_with(token)
    };
    RackOrder::Heartbeat { node, heartbeat }
}

fn inventory(macs: &[MacAddr]) -> RackOrder {
    let interfaces: Vec<Value> = macs
        .iter()
        .map(|mac| json!({"name": "eth0", "mac_address": mac.to_string()}))
        .collect();
    let document = json!({"inventory": {
        "interfaces": interfaces, "cpu": {"count": 4, "architecture": "x86_64"},
        "memory": {"physical_mb": 2048}, "disks": [],
    }});
    RackOrder::Inventory { document }
}

#[test]
fn only_the_leased_address_receives_the_token() {
    let (mut bench, id) = awaited(true);
    for unknown in [UNLEASED.into(), FAR.into(), IpAddr::from([127, 0, 0, 1])] {
        let refusal = lookup(&mut bench, unknown).unwrap_err();
        assert_eq!(refusal, Rack::nothing_found());
    }
    let v6: IpAddr = "2001:db8::66".parse().unwrap();
    assert!(lookup(&mut bench, v6).is_err());
    assert!(bench.node(id).agent.is_none());
    // The same address, as a socket for both families shows it.
    let mapped: IpAddr = "::ffff:10.0.0.100".parse().unwrap();
    let found = lookup(&mut bench, mapped).unwrap();
    assert_eq!(found.node, id);
    let notes = bench.notes().join("\n");
    assert!(
        notes.contains("the token was sent to 10.0.0.100"),
        "{notes}"
    );
    let node = bench.node(id);
    assert_eq!(node.agent_address(), Some(LEASED.into()));
    assert!(!node.is_weakly_authenticated());
}

#[test]
fn a_refused_lookup_names_the_address_on_the_timeline() {
    let (mut bench, _) = awaited(true);
    assert!(lookup(&mut bench, UNLEASED).is_err());
    let notes = bench.notes().join("\n");
    assert!(
        notes.contains("10.0.0.66") && notes.contains("leased"),
        "{notes}"
    );
}

#[test]
fn a_lookup_by_uuid_alone_is_refused_where_the_lease_is_ours() {
    let (mut bench, id) = awaited(true);
    for addresses in [vec![], vec![OTHER_MAC]] {
        let order = RackOrder::Lookup {
            addresses,
            node: Some(id),
        };
        assert!(from(&mut bench, LEASED, order).is_err());
    }
    let order = RackOrder::Lookup {
        addresses: vec![MAC],
        node: Some(id),
    };
    assert!(from(&mut bench, LEASED, order).is_ok());
}

#[test]
fn a_node_without_a_lease_is_weakly_authenticated() {
    let (mut bench, id) = awaited(false);
    // An address of a served network that was not leased is not one of our machines.
    assert!(lookup(&mut bench, UNLEASED).is_err());
    assert!(lookup(&mut bench, FAR).is_ok());
    let node = bench.node(id);
    assert!(node.is_weakly_authenticated());
    assert_eq!(node.agent_address(), Some(FAR.into()));
    let notes = bench.notes().join("\n");
    assert!(notes.contains("weakly authenticated"), "{notes}");
}

#[test]
fn a_lease_to_an_interface_that_is_not_a_port_of_the_node_is_refused() {
    let (mut bench, id) = awaited(false);
    lease(&mut bench, OTHER_MAC, UNLEASED);
    assert!(lookup(&mut bench, UNLEASED).is_err());
    let notes = bench.notes().join("\n");
    assert!(notes.contains("not a port of this node"), "{notes}");
    assert!(bench.node(id).agent.is_none());
}

#[test]
fn a_strict_box_refuses_nodes_without_a_lease() {
    let (mut bench, _) = strict(AgentAddresses {
        require_lease: true,
        ..AgentAddresses::default()
    });
    assert!(lookup(&mut bench, FAR).is_err());
    lease(&mut bench, MAC, LEASED);
    assert!(lookup(&mut bench, LEASED).is_ok());
}

#[test]
fn heartbeats_come_from_the_address_that_received_the_token() {
    for leased in [true, false] {
        let (mut bench, id) = awaited(leased);
        let own = if leased { LEASED } else { FAR };
        let token = lookup(&mut bench, own).unwrap().agent_token;
        let url = format!("http://{own}:9999");
        for unknown in [UNLEASED, Ipv4Addr::new(192, 0, 2, 67)] {
            let url = format!("http://{unknown}:9999");
            let heartbeat = from(&mut bench, unknown, heartbeat_at(id, &token, &url));
            assert!(heartbeat.unwrap_err().sentence.contains("another address"));
        }
        assert!(from(&mut bench, own, heartbeat_at(id, &token, &url)).is_ok());
        // An agent at work stays accepted after its lease expired.
        bench.rack.records.remove_lease(MAC);
        assert!(from(&mut bench, own, heartbeat_at(id, &token, &url)).is_ok());
    }
}

#[test]
fn an_agent_is_called_back_at_the_address_it_calls_from_and_never_at_a_bmc() {
    let rules = AgentAddresses {
        bmc_networks: vec![(Ipv4Addr::new(198, 51, 100, 0), 24)],
        ..AgentAddresses::default()
    };
    let (mut bench, id) = strict(rules);
    let token = lookup(&mut bench, FAR).unwrap().agent_token;
    for url in [
        "http://10.0.0.1:6385",
        "http://127.0.0.1:6385",
        "http://agent:9999",
        "http://192.0.2.67:9999",
    ] {
        let refusal = from(&mut bench, FAR, heartbeat_at(id, &token, url)).unwrap_err();
        let message = refusal.sentence;
        assert!(
            message.contains("not at the address the agent calls from"),
            "{message}"
        );
    }
    assert!(
        from(
            &mut bench,
            FAR,
            heartbeat_at(id, &token, "http://192.0.2.66:9999")
        )
        .is_ok()
    );
    // 192.0.2.1 is the ipmi_address of the node.
    for bmc in ["192.0.2.1", "198.51.100.7"] {
        let url = format!("http://{bmc}:9999");
        let why = bench.rack.check_callback(&url, bmc.parse().unwrap());
        assert!(why.unwrap_err().contains("BMC"));
    }
    let other = "192.0.2.10";
    let url = format!("http://{other}:9999");
    assert_eq!(
        bench.rack.check_callback(&url, other.parse().unwrap()),
        Ok(())
    );
}

#[test]
fn a_second_lookup_from_another_address_is_a_fault_and_stops_the_job() {
    let (mut bench, id) = awaited(false);
    let token = lookup(&mut bench, FAR).unwrap().agent_token;
    // The agent itself may repeat its lookup.
    assert!(lookup(&mut bench, FAR).is_ok());
    let second = Ipv4Addr::new(192, 0, 2, 67);
    assert!(lookup(&mut bench, second).is_err());
    let node = bench.node(id);
    assert_eq!(node.provision_state, ProvisionState::InspectFail);
    assert!(node.job.is_none() && node.agent.is_none());
    let why = node.last_error.unwrap();
    assert!(
        why.contains("192.0.2.66") && why.contains("192.0.2.67"),
        "{why}"
    );
    let faults = bench.rack.view().faults;
    let faults: Vec<String> = faults.keys().map(ToString::to_string).collect();
    assert!(
        faults.iter().any(|fault| fault.contains("192.0.2.67")),
        "{faults:?}"
    );
    let url = "http://192.0.2.66:9999";
    assert!(from(&mut bench, FAR, heartbeat_at(id, &token, url)).is_err());
}

#[test]
fn a_lookup_from_a_wrong_address_does_not_stop_a_job_whose_agent_has_the_lease() {
    let (mut bench, id) = awaited(true);
    lookup(&mut bench, LEASED).unwrap();
    assert!(lookup(&mut bench, FAR).is_err());
    assert!(bench.node(id).job.is_some());
}

#[test]
fn a_machine_with_two_leased_ports_may_call_from_both() {
    let (mut bench, id) = awaited(true);
    let second = Ipv4Addr::new(10, 0, 0, 101);
    let port = RackOrder::CreatePort(Box::new(port(2, id)));
    bench.order(port).unwrap();
    lease(&mut bench, MacAddr([0x52, 0x54, 0, 0, 0, 2]), second);
    let token = lookup(&mut bench, LEASED).unwrap().agent_token;
    assert!(lookup(&mut bench, second).is_ok());
    let url = format!("http://{second}:9999");
    assert!(from(&mut bench, second, heartbeat_at(id, &token, &url)).is_ok());
    assert!(bench.node(id).job.is_some());
}

#[test]
fn the_leased_address_contradicts_a_weakly_authenticated_agent() {
    let (mut bench, id) = awaited(false);
    lookup(&mut bench, FAR).unwrap();
    lease(&mut bench, MAC, LEASED);
    assert!(lookup(&mut bench, LEASED).is_err());
    assert!(bench.node(id).job.is_none());
}

#[test]
fn inspection_data_come_from_the_leased_address_only() {
    let (mut bench, id) = awaited(true);
    let before = bench.node(id);
    assert!(from(&mut bench, UNLEASED, inventory(&[MAC])).is_err());
    let nonsense =
        json!({"inventory": {"interfaces": vec![json!({"mac_address": MAC.to_string()}); 300]}});
    let nonsense = RackOrder::Inventory { document: nonsense };
    assert!(from(&mut bench, FAR, nonsense).is_err());
    assert_eq!(bench.node(id), before);
    assert_eq!(
        from(&mut bench, LEASED, inventory(&[MAC])),
        Ok(OrderOutcome::Inspected(id))
    );
}

#[test]
fn no_port_is_created_for_a_hardware_address_that_was_never_seen() {
    let (mut bench, id) = awaited(true);
    let received = MacAddr([0x52, 0x54, 0, 0, 0, 8]);
    bench.rack.records.add_unknown_machine(UnknownMachine {
        seen_at: UnixMs(1),
        client: ClientSeen {
            mac: received,
            link: trivet_model::LinkId(0),
            arch: None,
            uuid: None,
            ipxe: false,
            vendor_class: None,
            address: None,
        },
    });
    from(&mut bench, LEASED, inventory(&[MAC, received, OTHER_MAC])).unwrap();
    let notes = bench.notes().join("\n");
    assert!(notes.contains("52:54:00:00:00:08 was found"), "{notes}");
    assert!(notes.contains("52:54:00:00:00:09 was reported"), "{notes}");
    let view = bench.rack.view();
    assert_eq!(view.nodes[&id].ports.len(), 2);
    assert!(!view.macs.contains_key(&OTHER_MAC));
}

/// A deployment whose agent is about to write.
fn deploying() -> (RackBench, NodeId, String) {
    let (mut bench, id) = awaited(true);
    bench.force(id, |node| {
        node.job = None;
        node.provision_state = ProvisionState::Available;
        let info = json!({"image_source": "disk.raw", "configdrive": "H4sIdrive"});
        node.instance_info = info.as_object().unwrap().clone();
    });
    bench.verb(id, Verb::Active).unwrap();
    bench.force(id, |node| {
        node.provision_state = ProvisionState::DeployWait;
        node.job.as_mut().unwrap().phase = JobPhase::AwaitAgent;
    });
    let args = bench.write_args(id);
    let url = args["configdrive"].as_str().unwrap();
    let path = url.strip_prefix("http://10.0.0.1:8080").unwrap();
    let path = path.to_owned();
    (bench, id, path)
}

fn granted(bench: &mut RackBench, peer: Ipv4Addr, path: &str) -> bool {
    bench.handle(RackInput::FileRequested {
        certificate: None,
        ticket: 1,
        protocol: FileServerProtocol::Http,
        peer: peer.into(),
        path: path.to_owned(),
    });
    let is_file = |output: &RackOutput| matches!(output, RackOutput::File { grant: Some(_), .. });
    bench.outputs.iter().any(is_file)
}

#[test]
fn a_config_drive_is_served_to_the_nodes_own_address_only() {
    let (mut bench, _, path) = deploying();
    assert!(!granted(&mut bench, FAR, &path));
    assert!(!granted(&mut bench, UNLEASED, &path));
    assert!(granted(&mut bench, LEASED, &path));
    // Without a lease it is the address that received the token.
    bench.rack.records.remove_lease(MAC);
    assert!(!granted(&mut bench, FAR, &path));
    lookup(&mut bench, FAR).unwrap();
    assert!(granted(&mut bench, FAR, &path));
    assert!(!granted(&mut bench, LEASED, &path));
}

#[test]
fn the_secret_address_of_a_config_drive_is_masked_in_notes_and_on_the_page() {
    let (mut bench, id, path) = deploying();
    let secret = path.rsplit('/').next().unwrap().to_owned();
    for ended in [false, true] {
        bench.handle(RackInput::FileSent {
            peer: LEASED.into(),
            protocol: FileServerProtocol::Http,
            path: path.clone(),
            sent: 9,
            requested: 9,
            took_ms: 1,
            ended,
        });
        let live = bench.rack.view().nodes[&id].live.clone();
        let notes = bench.notes().join("\n");
        assert_eq!(notes.contains(&format!("/drives/{id}/******")), ended);
        assert!(!notes.contains(&secret), "{notes}");
        let shown = live.transfer_path.unwrap_or_default();
        assert!(
            !shown.contains(&secret) && shown.is_empty() == ended,
            "{shown}"
        );
    }
}

#[test]
fn the_secret_address_of_a_config_drive_is_masked_in_texts_of_the_agent() {
    let (mut bench, id, path) = deploying();
    let token = lookup(&mut bench, LEASED).unwrap().agent_token;
    let url = "http://10.0.0.100:9999";
    from(&mut bench, LEASED, heartbeat_at(id, &token, url)).unwrap();
    let call = bench.outputs.iter().find_map(|output| match output {
        RackOutput::CallAgent { call, .. } => Some(*call),
        _ => None,
    });
    let text = format!("no answer of http://10.0.0.1:8080{path}");
    let body = json!({"command_status": "FAILED", "command_error": {"message": text},
        "faultstring": text});
    bench.handle(RackInput::AgentAnswered {
        node: id,
        call: call.unwrap(),
        result: Ok((500, body.to_string().into_bytes())),
    });
    let secret = path.rsplit('/').next().unwrap();
    let notes = bench.notes().join("\n");
    assert!(notes.contains("/drives/"), "{notes}");
    assert!(!notes.contains(secret), "{notes}");
}

#[test]
fn a_call_that_ends_after_its_session_is_no_evidence_of_an_unreachable_agent() {
    for gone in [false, true] {
        let (mut bench, id, _) = deploying();
        let token = lookup(&mut bench, LEASED).unwrap().agent_token;
        let url = "http://10.0.0.100:9999";
        from(&mut bench, LEASED, heartbeat_at(id, &token, url)).unwrap();
        let call = bench.outputs.iter().find_map(|output| match output {
            RackOutput::CallAgent { call, .. } => Some(*call),
            _ => None,
        });
        if gone {
            bench.force(id, |node| node.agent = None);
        }
        bench.handle(RackInput::AgentAnswered {
            node: id,
            call: call.unwrap(),
            result: Err("connection refused".into()),
        });
        let notes = bench.notes().join("\n");
        assert_eq!(notes.contains("cannot be called"), !gone, "{notes}");
    }
}

#[test]
fn a_heartbeat_without_the_token_learns_nothing_of_the_node() {
    let (mut bench, id) = awaited(true);
    let unknown = AgentHeartbeat {
        callback_refused: Some("callback_url is a loopback address"),
        ..heartbeat_with("guess")
    };
    let nobody = NodeId::random(&mut SeededRandom::new(99));
    let mut reported = Vec::new();
    for step in 0..2 {
        for node in [id, nobody] {
            let heartbeat = unknown.clone();
            reported
                .push(from(&mut bench, FAR, RackOrder::Heartbeat { node, heartbeat }).unwrap_err());
        }
        if step == 0 {
            lookup(&mut bench, LEASED).unwrap();
        }
    }
    assert!(
        reported
            .iter()
            .all(|one| *one == OrderRefusal::of_heartbeat()),
        "{reported:?}"
    );
    // A caller with the token gets the reason.
    bench.force(id, |node| {
        node.agent.as_mut().unwrap().token = "right".into();
    });
    let heartbeat = AgentHeartbeat {
        callback_refused: Some("callback_url is a loopback address"),
        ..heartbeat_with("right")
    };
    let reported = from(
        &mut bench,
        LEASED,
        RackOrder::Heartbeat {
            node: id,
            heartbeat,
        },
    )
    .unwrap_err();
    assert!(reported.sentence.contains("loopback"), "{reported}");
}

#[test]
fn a_node_without_a_lease_is_refused_where_this_box_gives_all_addresses() {
    let (mut bench, id) = awaited(false);
    let server = Ipv4Addr::new(10, 0, 0, 1);
    let link = trivet_dhcp::DhcpLinkSettings {
        name: "eth1".to_owned(),
        mode: trivet_model::LinkMode::Reservations,
        discovery: false,
        server,
        boot: BootServer::new(server, "http://10.0.0.1:8080/boot/{mac}/script"),
        relayed: false,
        network: Some((Ipv4Addr::new(10, 0, 0, 0), 24)),
    };
    let dhcp = bench.rack.settings.dhcp.as_mut().unwrap();
    dhcp.links = vec![link];
    assert!(lookup(&mut bench, FAR).is_err());
    let v6: IpAddr = "2001:db8::66".parse().unwrap();
    assert!(lookup(&mut bench, v6).is_err());
    assert!(bench.node(id).agent.is_none());
}

#[test]
fn boot_files_are_served_to_a_machine_whose_address_another_server_gave() {
    let (mut bench, id) = awaited(false);
    bench.force(id, |node| {
        let info = &mut node.driver_info;
        info.insert("deploy_kernel".into(), json!("http://far/kernel"));
        info.insert("deploy_ramdisk".into(), json!("http://far/ramdisk"));
        node.job.as_mut().unwrap().phase = trivet_model::JobPhase::AwaitAgent;
    });
    bench.handle(RackInput::FileRequested {
        certificate: None,
        ticket: 3,
        protocol: crate::FileServerProtocol::Http,
        peer: FAR.into(),
        path: trivet_bootfiles::node_boot_path(id, "deploy_kernel"),
    });
    let answered = bench.outputs.iter().any(|output| {
        matches!(
            output,
            RackOutput::File {
                ticket: 3,
                grant: Some(crate::FileGrant::Unavailable(_))
            }
        )
    });
    assert!(answered, "it is fetched, not refused");
}

#[test]
fn inspection_data_that_come_before_the_power_on_is_confirmed_are_sent_again() {
    let (mut bench, id) = awaited(true);
    bench.force(id, |node| {
        node.provision_state = ProvisionState::Inspecting;
        node.job.as_mut().unwrap().phase = trivet_model::JobPhase::PowerOn;
    });
    let refused = from(&mut bench, LEASED, inventory(&[MAC])).unwrap_err();
    assert_eq!(refused.kind, RefusalKind::Conflict);
    bench.force(id, |node| {
        node.provision_state = ProvisionState::InspectWait;
        node.job.as_mut().unwrap().phase = trivet_model::JobPhase::AwaitAgent;
    });
    from(&mut bench, LEASED, inventory(&[MAC])).unwrap();
}

/// Notes of the last batch about refused callers.
fn refusals(bench: &RackBench) -> Vec<String> {
    let mut notes = bench.notes();
    notes.retain(|note| note.contains("refused"));
    notes
}

#[test]
fn a_lookup_that_names_no_node_is_a_note_on_the_node_that_has_the_address() {
    let (mut bench, id) = awaited(true);
    let unknown = NodeId::random(&mut SeededRandom::new(77));
    let by_mac = RackOrder::Lookup {
        addresses: vec![OTHER_MAC],
        node: None,
    };
    let by_uuid = RackOrder::Lookup {
        addresses: vec![MAC],
        node: Some(unknown),
    };
    for (order, words) in [(by_mac, "no hardware address"), (by_uuid, "does not exist")] {
        assert!(from(&mut bench, LEASED, order.clone()).is_err());
        let notes = refusals(&bench);
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert!(notes[0].contains(words), "{notes:?}");
        let view = bench.rack.view();
        let timeline = &view.nodes.get(&id).unwrap().timeline;
        assert!(
            timeline
                .iter()
                .any(|note| note.kind.to_string() == notes[0])
        );
        assert!(from(&mut bench, LEASED, order.clone()).is_err());
        assert!(refusals(&bench).is_empty(), "noted once a minute");
        assert!(from(&mut bench, FAR, order).is_err());
        assert!(refusals(&bench).is_empty(), "no node has this address");
    }
}

#[test]
fn an_unexpected_lookup_and_unexpected_inspection_data_are_notes() {
    let (mut bench, id) = awaited(true);
    bench.force(id, |node| {
        node.provision_state = ProvisionState::Available;
        node.job = None;
    });
    assert!(lookup(&mut bench, LEASED).is_err());
    let notes = refusals(&bench).join("\n");
    assert!(notes.contains("no agent is expected"), "{notes}");
    assert!(from(&mut bench, LEASED, inventory(&[MAC])).is_err());
    let notes = refusals(&bench).join("\n");
    assert!(notes.contains("not being inspected"), "{notes}");
    let document = json!({"inventory": 5});
    assert!(from(&mut bench, LEASED, RackOrder::Inventory { document }).is_err());
    let notes = refusals(&bench).join("\n");
    assert!(
        notes.contains("inspection data of an agent refused"),
        "{notes}"
    );
}

#[test]
fn a_request_that_the_api_refuses_is_a_note_on_the_node_it_comes_from_or_names() {
    let (mut bench, id) = awaited(true);
    let other = bench.with_node(2);
    let refused = |from: Ipv4Addr, node, why: &str| {
        RackInput::AgentRefused(crate::RefusedAgent {
            from: from.into(),
            node,
            request: "heartbeat",
            why: why.to_owned(),
        })
    };
    let noted = |bench: &RackBench, id| {
        let view = bench.rack.view();
        let timeline = &view.nodes.get(&id).unwrap().timeline;
        let kinds = timeline.iter().map(|note| note.kind.to_string());
        let refusals = kinds.filter(|note| note.contains("heartbeat of an agent refused"));
        refusals.collect::<Vec<String>>()
    };
    // The address identifies the caller better than the request does.
    bench.handle(refused(LEASED, Some(other), "http://a:hunter2@x/ is wrong"));
    let notes = noted(&bench, id);
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].contains("10.0.0.100"), "{notes:?}");
    assert!(!notes[0].contains("hunter2"), "{notes:?}");
    assert!(noted(&bench, other).is_empty());
    bench.handle(refused(FAR, Some(other), &"long ".repeat(1000)));
    let notes = noted(&bench, other);
    assert_eq!(notes.len(), 1);
    assert!(notes[0].len() < 1000);
    for number in 0..20 {
        bench.handle(refused(LEASED, None, &format!("another reason {number}")));
    }
    assert_eq!(noted(&bench, id).len(), 1, "one for each kind of request");
    bench.advance(60_001);
    bench.handle(refused(LEASED, None, "The box has too much to do."));
    assert_eq!(noted(&bench, id).len(), 2);
    bench.handle(refused(FAR, None, "nobody"));
    assert!(bench.notes().is_empty());
}

#[test]
fn refused_requests_of_a_neighbour_do_not_hide_those_of_the_nodes_own_machine() {
    let (mut bench, id) = awaited(true);
    let refused = |from: Ipv4Addr, request: &'static str| {
        RackInput::AgentRefused(crate::RefusedAgent {
            from: from.into(),
            node: Some(id),
            request,
            why: "The body is no JSON.".to_owned(),
        })
    };
    bench.handle(refused(UNLEASED, "heartbeat"));
    assert_eq!(refusals(&bench).len(), 1);
    bench.handle(refused(LEASED, "heartbeat"));
    let notes = refusals(&bench);
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].contains("10.0.0.100"), "{notes:?}");
    for again in [UNLEASED, LEASED, FAR] {
        bench.handle(refused(again, "heartbeat"));
        assert!(refusals(&bench).is_empty(), "{again}: noted once a minute");
    }
    let mut noted = 0;
    for number in 0..100 {
        bench.handle(refused(FAR, format!("request {number}").leak()));
        noted += refusals(&bench).len();
    }
    assert_eq!(noted, 31, "reasons have a bound");
    bench.handle(refused(LEASED, "lookup"));
    assert_eq!(refusals(&bench).len(), 1, "the machine's own has its own");
    bench.advance(60_001);
    bench.handle(refused(FAR, "lookup"));
    assert_eq!(refusals(&bench).len(), 1, "below the bound again");
}
