//! What clients such as Metal3's operator need beyond the usual: deployments by steps alone, nodes
//! that are registered without ports, an address of the box for one node.

use std::net::IpAddr;

use trivet_model::interface::DeployInterface;
use trivet_model::{JobPhase, JobStep, Lease};

use super::*;
use crate::{AgentAddresses, FileServerProtocol};

const OTHER_MAC: MacAddr = MacAddr([0x52, 0x54, 0, 0, 0, 9]);

/// The address that the box leased to a machine without a node.
const LEASED: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 101);

fn available(bench: &mut RackBench, info: Value, change: impl FnOnce(&mut Node)) -> NodeId {
    let id = bench.with_node(1);
    bench.force(id, |node| {
        node.provision_state = ProvisionState::Available;
        node.instance_info = info.as_object().cloned().unwrap();
        change(node);
    });
    id
}

fn deploy_with(
    bench: &mut RackBench,
    node: NodeId,
    steps: &[&str],
) -> Result<OrderOutcome, OrderRefusal> {
    let step = |name: &&str| JobStep {
        step: (*name).to_owned(),
        interface: "deploy".to_owned(),
        priority: 80,
        args: json!({}),
        reboot_requested: false,
        abortable: false,
    };
    let args = VerbArgs {
        steps: steps.iter().map(step).collect(),
        configdrive: Some(json!({"meta_data": {"uuid": "1"}})),
        ..VerbArgs::default()
    };
    bench.order(RackOrder::Provision {
        node,
        verb: Verb::Active,
        args,
        based_on: None,
    })
}

fn steps(bench: &RackBench, id: NodeId) -> Vec<String> {
    let job = bench.node(id).job.unwrap();
    job.steps.into_iter().map(|step| step.step).collect()
}

#[test]
fn a_custom_agent_runs_the_steps_of_the_operator_and_no_others() {
    let mut bench = RackBench::new();
    let id = available(&mut bench, json!({}), |node| {
        node.attributes.interfaces.deploy = Some(DeployInterface::CustomAgent);
    });
    let checked = bench.order(RackOrder::CheckDeploy(id));
    assert_eq!(
        checked,
        Ok(OrderOutcome::Checked(None)),
        "no image is needed"
    );
    deploy_with(&mut bench, id, &["install_coreos"]).unwrap();
    assert_eq!(steps(&bench, id), ["install_coreos"]);
    let node = bench.node(id);
    let job = node.job.clone().unwrap();
    assert!(job.boots.is_some(), "the agent is booted");
    let drive = node.instance_info["configdrive"].as_str().unwrap();
    assert!(drive.starts_with("H4sI"), "the steps find the packed drive");
}

#[test]
fn the_default_writes_an_image_unless_the_instance_is_a_ramdisk() {
    let mut bench = RackBench::new();
    let id = available(&mut bench, json!({"image_source": "disk.raw"}), |_| {});
    deploy_with(&mut bench, id, &[]).unwrap();
    assert_eq!(steps(&bench, id), ["write_image"]);
    let mut bench = RackBench::new();
    let info = json!({"boot_iso": "http://far/a.iso"});
    let id = available(&mut bench, info.clone(), |_| {});
    assert!(
        deploy_with(&mut bench, id, &[]).is_err(),
        "an ISO alone is no choice"
    );
    let mut bench = RackBench::new();
    let mut info = info;
    info["ironic_ramdisk_deploy"] = true.into();
    let id = available(&mut bench, info, |_| {});
    bench.verb(id, Verb::Active).unwrap();
    let job = bench.node(id).job.unwrap();
    assert!(job.boots.is_none() && job.steps.is_empty());
}

#[test]
fn images_and_drives_are_fetched_at_the_address_that_the_record_names() {
    let mut bench = RackBench::new();
    let info = json!({"image_source": "http://far/a.raw", "image_checksum": "0a".repeat(32)});
    let id = available(&mut bench, info, |node| {
        let url = "http://192.0.2.200:8000/".into();
        node.driver_info.insert("external_http_url".into(), url);
    });
    deploy_with(&mut bench, id, &[]).unwrap();
    let args = bench.write_args(id);
    let base = "http://192.0.2.200:8000";
    let image = args["image_info"]["urls"][0].as_str().unwrap().to_owned();
    let drive = args["configdrive"].as_str().unwrap().to_owned();
    let own = |url: &str| url.strip_prefix(base).unwrap().to_owned();
    assert!(own(&image).starts_with("/nodes/") && own(&drive).starts_with("/drives/"));
    assert_eq!(bench.fills().len(), 1, "the image is fetched early");
    let request = |bench: &mut RackBench, path: String| {
        bench.handle(RackInput::FileRequested {
            certificate: None,
            ticket: 3,
            peer: IpAddr::from([10, 0, 0, 100]),
            protocol: FileServerProtocol::Http,
            path,
        });
        bench.outputs.iter().any(|output| {
            matches!(
                output,
                RackOutput::File {
                    ticket: 3,
                    grant: Some(_)
                }
            )
        })
    };
    assert!(request(&mut bench, own(&drive)));
    // The URLs of a deployment stay valid when the record changes.
    bench.force(id, |node| node.driver_info["external_http_url"] = "".into());
    assert!(!request(&mut bench, format!("{}x", own(&drive))));
    // An image of the box's own directory is at the same address.
    let mut bench = RackBench::new();
    let id = available(&mut bench, json!({"image_source": "disk.raw"}), |node| {
        node.driver_info
            .insert("external_http_url".into(), base.into());
    });
    bench.verb(id, Verb::Active).unwrap();
    let args = bench.write_args(id);
    assert_eq!(
        args["image_info"]["urls"][0],
        format!("{base}/images/disk.raw")
    );
    bench.force(id, |node| {
        node.job = None;
        node.provision_state = ProvisionState::Available;
        node.driver_info["external_http_url"] = "http://h/path".into();
    });
    let refusal = bench.verb(id, Verb::Active).unwrap_err();
    assert!(refusal.sentence.contains("external_http_url"), "{refusal}");
}

/// Nodes without ports, each with its own BMC, whose machines boot the agent to be inspected.
fn inspecting(count: u8) -> (RackBench, Vec<NodeId>) {
    let mut bench = RackBench::with(Settings {
        ca_key: None,
        agent_requirement: crate::CertificateRequirement::None,
        agent_addresses: AgentAddresses::default(),
        ..settings()
    });
    let ids = (1..=count).map(|number| {
        let node = node(number);
        let id = node.id;
        bench.order(RackOrder::CreateNode(Box::new(node))).unwrap();
        bench.force(id, |node| node.provision_state = ProvisionState::Manageable);
        bench.verb(id, Verb::Inspect).unwrap();
        bench.force(id, |node| {
            node.provision_state = ProvisionState::InspectWait;
            node.job.as_mut().unwrap().phase = JobPhase::AwaitAgent;
        });
        id
    });
    let ids = ids.collect();
    (bench, ids)
}

fn lease(bench: &mut RackBench, mac: MacAddr, address: Ipv4Addr) {
    bench.rack.records.put_lease(Lease { mac, address });
    bench.handle(RackInput::Tick);
}

fn inspected(
    bench: &mut RackBench,
    from: impl Into<IpAddr>,
    bmc: &str,
) -> Result<OrderOutcome, OrderRefusal> {
    let document = json!({"inventory": {
        "interfaces": [{"name": "eth0", "mac_address": OTHER_MAC.to_string()}],
        "cpu": {"count": 4, "architecture": "x86_64"}, "memory": {"physical_mb": 2048},
        "disks": [], "bmc_address": bmc,
    }});
    let caller = Arc::new(ApiCaller::agent(from.into()));
    bench.order_of(caller, RackOrder::Inventory { document })
}

#[test]
fn a_node_without_ports_is_inspected_and_found_by_its_bmc() {
    let (mut bench, ids) = inspecting(1);
    let id = ids[0];
    let script = bench.rack.script(OTHER_MAC, IpAddr::from(LEASED));
    assert!(script.contains("ipa-inspection-callback-url"), "{script}");
    lease(&mut bench, OTHER_MAC, LEASED);
    let refusal = inspected(&mut bench, LEASED, "192.0.2.99").unwrap_err();
    assert_eq!(refusal, Rack::nothing_found());
    assert!(inspected(&mut bench, Ipv4Addr::new(10, 0, 0, 77), "192.0.2.1").is_err());
    let found = inspected(&mut bench, LEASED, "192.0.2.1");
    assert_eq!(found, Ok(OrderOutcome::Inspected(id)));
    let view = bench.rack.view();
    assert_eq!(view.port_by_mac(OTHER_MAC).unwrap().node, id);
    assert!(bench.node(id).is_weakly_authenticated());
    // From now on the machine is the node's.
    let script = bench.rack.script(MAC, IpAddr::from(LEASED));
    assert!(!script.contains("ipa-inspection-callback-url"), "{script}");
}

#[test]
fn a_machine_without_a_node_boots_its_disk_while_no_node_without_ports_is_inspected() {
    let (bench, _) = RackBench::inspecting();
    let script = bench.rack.script(OTHER_MAC, IpAddr::from(LEASED));
    assert!(!script.contains("ipa-inspection-callback-url"), "{script}");
}

#[test]
fn two_nodes_without_ports_are_told_apart_by_their_bmcs_or_not_at_all() {
    let (mut bench, ids) = inspecting(2);
    for id in &ids {
        bench.force(*id, |node| {
            let kernel = format!("http://far/{}", node.id);
            node.driver_info
                .insert("deploy_kernel".into(), kernel.clone().into());
            node.driver_info
                .insert("deploy_ramdisk".into(), kernel.into());
        });
    }
    lease(&mut bench, OTHER_MAC, LEASED);
    let script = bench.rack.script(OTHER_MAC, IpAddr::from(LEASED));
    assert!(script.contains("ipa-inspection-callback-url"), "{script}");
    assert!(
        !script.contains("far"),
        "it is not known whose agent it must boot"
    );
    for id in &ids {
        bench.force(*id, |node| {
            node.driver_info["ipmi_address"] = "192.0.2.50".into();
        });
    }
    assert!(inspected(&mut bench, LEASED, "192.0.2.50").is_err());
    let notes = bench.notes().join("\n");
    assert!(notes.contains("several nodes without ports"), "{notes}");
    bench.force(ids[1], |node| {
        node.driver_info["ipmi_address"] = "192.0.2.51".into();
    });
    let found = inspected(&mut bench, LEASED, "192.0.2.51");
    assert_eq!(found, Ok(OrderOutcome::Inspected(ids[1])));
}
