//! Machines that boot from virtual media or from a URL of their BMC.

use trivet_model::interface::BootInterface;

use super::*;
use crate::{AgentIso, FileGrant, FileServerProtocol, RackFilePaths};

fn bench(with_iso: bool) -> RedfishTestBench {
    let settings = iso_settings(with_iso);
    RedfishTestBench::with(RackBench::with(settings), RedfishSimulatorSetup::default())
}

fn iso_settings(with_iso: bool) -> Settings {
    let iso = AgentIso {
        file: "/boot/agent.iso".into(),
        areas: vec![(10, 200), (1000, 300)],
    };
    Settings {
        kernel_args: "console=ttyS0".into(),
        files: RackFilePaths {
            ramdisk: Some("/boot/ramdisk".into()),
            iso: with_iso.then_some(iso),
            ..settings().files
        },
        ..settings()
    }
}

/// Inspects a node until its machine is on.
fn inspect(bench: &mut RedfishTestBench, interface: BootInterface) -> NodeId {
    let id = bench.node(1, json!({}));
    bench
        .bench
        .force(id, |node| node.attributes.interfaces.boot = Some(interface));
    bench.bench.verb(id, Verb::Inspect).unwrap();
    bench.gather();
    let until = bench.bench.now.tick.after_ms(120_000);
    while bench.bench.node(id).power_state != Some(PowerState::On) {
        assert!(bench.step(until), "the machine is not switched on");
    }
    id
}

fn iso_url(id: NodeId) -> String {
    format!("http://10.0.0.1:8080/nodes/{id}/boot/agent.iso")
}

fn grant(bench: &mut RedfishTestBench, id: NodeId) -> Option<FileGrant> {
    bench.bench.handle(RackInput::FileRequested {
        certificate: None,
        ticket: 9,
        protocol: FileServerProtocol::Http,
        peer: "192.0.2.7".parse().unwrap(),
        path: format!("/nodes/{id}/boot/agent.iso"),
    });
    let grant = bench.bench.outputs.iter().find_map(|output| match output {
        RackOutput::File { grant, .. } => Some(grant.clone()),
        _ => None,
    });
    bench.gather();
    grant.unwrap()
}

#[test]
fn the_agent_boots_from_a_virtual_cd_once_and_the_cd_is_ejected_at_the_end() {
    let mut bench = bench(true);
    let id = inspect(&mut bench, BootInterface::RedfishVirtualMedia);
    let machine = bench.service().machine(0).unwrap();
    assert_eq!(machine.media, Some(iso_url(id)));
    assert_eq!(machine.boot[..2], ["Cd", "Once"]);
    bench.bench.verb(id, Verb::Abort).unwrap();
    bench.gather();
    bench.pass(60_000);
    assert_eq!(bench.service().machine(0).unwrap().media, None);
}

#[test]
fn the_image_has_the_kernel_arguments_of_the_node_while_its_job_boots_the_agent() {
    let mut bench = bench(true);
    let id = inspect(&mut bench, BootInterface::RedfishVirtualMedia);
    let Some(FileGrant::PatchedFile { file, patches, .. }) = grant(&mut bench, id) else {
        panic!("no image");
    };
    assert_eq!(file.to_str(), Some("/boot/agent.iso"));
    let places: Vec<_> = patches.iter().map(|(at, area)| (*at, area.len())).collect();
    assert_eq!(places, [(10, 200), (1000, 300)]);
    let text = String::from_utf8(patches[0].1.clone()).unwrap();
    for part in [
        "BOOTIF=01-",
        " ipa-api-url=http://10.0.0.1:6385 ",
        "/v1/continue_inspection",
        " console=ttyS0 ",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    bench.bench.verb(id, Verb::Abort).unwrap();
    bench.gather();
    assert_eq!(grant(&mut bench, id), None);
}

#[test]
fn the_agent_gets_the_address_of_the_box_in_the_network_of_its_last_lease() {
    let mut settings = iso_settings(true);
    let dhcp = settings.dhcp.as_mut().unwrap();
    let mut second = dhcp.subnets[0].clone();
    second.network = [10, 51, 0, 0].into();
    second.prefix = 24;
    second.server = [10, 51, 0, 1].into();
    dhcp.subnets.push(second);
    settings.wildcard_listeners.api = Some(("http", 6385));
    let bench = RackBench::with(settings);
    let mut bench = RedfishTestBench::with(bench, RedfishSimulatorSetup::default());
    let id = inspect(&mut bench, BootInterface::RedfishVirtualMedia);
    for (leased, want) in [(None, "10.0.0.1"), (Some([10, 51, 0, 9]), "10.51.0.1")] {
        if let Some(address) = leased {
            let mac = bench.bench.rack.records.ports_of(id)[0].address;
            let address = address.into();
            bench
                .bench
                .rack
                .records
                .put_lease(trivet_model::Lease { mac, address });
        }
        let Some(FileGrant::PatchedFile { patches, .. }) = grant(&mut bench, id) else {
            panic!("no image");
        };
        let text = String::from_utf8(patches[0].1.clone()).unwrap();
        let url = format!(" ipa-api-url=http://{want}:6385 ");
        assert!(text.contains(&url), "{url} is not in {text}");
    }
}

#[test]
fn arguments_that_do_not_fit_are_named_and_no_image_is_sent() {
    let mut bench = bench(true);
    let id = inspect(&mut bench, BootInterface::RedfishVirtualMedia);
    let long = "x".repeat(250);
    for (arguments, want) in [(&*long, "do not fit"), ("a={b}", "the character '{'")] {
        bench.bench.force(id, |node| {
            node.driver_info
                .insert("kernel_append_params".into(), arguments.into());
        });
        let refused = grant(&mut bench, id);
        assert!(matches!(refused, Some(FileGrant::Unavailable(why)) if why.contains(want)));
    }
}

#[test]
fn the_firmware_gets_the_url_for_one_boot() {
    let mut bench = bench(true);
    let id = inspect(&mut bench, BootInterface::RedfishHttps);
    let machine = bench.service().machine(0).unwrap();
    assert_eq!(machine.media, None);
    assert_eq!(machine.boot, ["UefiHttp", "Once", "UEFI", &iso_url(id)]);
}

#[test]
fn a_box_with_only_the_image_boots_the_agent_on_nodes_that_use_a_medium() {
    for (with_iso, interface, want) in [
        (true, BootInterface::RedfishVirtualMedia, None),
        (true, BootInterface::RedfishHttps, None),
        (true, BootInterface::Ipxe, Some("neither are boot.kernel")),
        (false, BootInterface::RedfishHttps, Some("boot.iso is not")),
    ] {
        let mut settings = iso_settings(with_iso);
        settings.files.kernel = None;
        settings.files.ramdisk = None;
        let bench = RackBench::with(settings);
        let mut bench = RedfishTestBench::with(bench, RedfishSimulatorSetup::default());
        let id = bench.node(1, json!({}));
        bench
            .bench
            .force(id, |node| node.attributes.interfaces.boot = Some(interface));
        let refused = bench.bench.verb(id, Verb::Inspect).err();
        let sentence = refused.map(|refused| refused.sentence);
        assert_eq!(sentence.is_some(), want.is_some(), "{sentence:?}");
        if let (Some(sentence), Some(want)) = (sentence, want) {
            assert!(sentence.contains(want), "{sentence}");
        }
    }
}

#[test]
fn without_an_image_the_machine_boots_from_the_network_and_the_note_says_what_to_do() {
    let mut bench = bench(false);
    let id = inspect(&mut bench, BootInterface::RedfishVirtualMedia);
    let machine = bench.service().machine(0).unwrap();
    assert_eq!((&machine.media, &*machine.boot[0]), (&None, "Pxe"));
    let noted = bench.notes.iter().any(|note| {
        matches!(note, NoteKind::Warning { why }
            if why.contains("trivet-image iso") && why.contains("from the network"))
    });
    assert!(noted, "{:?}", bench.notes);
    assert_eq!(grant(&mut bench, id), None);
}

#[test]
fn an_agent_of_the_nodes_own_boots_from_the_network() {
    let mut bench = bench(true);
    let id = bench.node(1, json!({}));
    bench.bench.force(id, |node| {
        let interface = BootInterface::RedfishVirtualMedia;
        node.attributes.interfaces.boot = Some(interface);
        for key in ["deploy_kernel", "deploy_ramdisk"] {
            node.driver_info
                .insert(key.into(), "http://10.0.0.1:8080/files/x".into());
        }
    });
    bench.bench.verb(id, Verb::Inspect).unwrap();
    bench.gather();
    bench.pass(30_000);
    let machine = bench.service().machine(0).unwrap();
    assert_eq!((&machine.media, &*machine.boot[0]), (&None, "Pxe"));
}

const LIVE_URL: &str = "http://10.0.0.1:8080/files/live.iso";

/// Deploys an instance that is an ISO image.
fn deploy_live(bench: &mut RedfishTestBench, interface: BootInterface) -> NodeId {
    let id = bench.node(1, json!({}));
    bench.bench.force(id, |node| {
        let chosen = &mut node.attributes.interfaces;
        chosen.boot = Some(interface);
        chosen.deploy = Some(trivet_model::interface::DeployInterface::Ramdisk);
        node.provision_state = ProvisionState::Available;
        node.instance_info
            .insert("boot_iso".into(), LIVE_URL.into());
    });
    bench.bench.verb(id, Verb::Active).unwrap();
    bench.gather();
    bench.pass(120_000);
    assert_eq!(bench.bench.node(id).provision_state, ProvisionState::Active);
    id
}

#[test]
fn the_image_of_an_instance_is_inserted_for_every_boot() {
    let mut bench = bench(true);
    deploy_live(&mut bench, BootInterface::RedfishVirtualMedia);
    let machine = bench.service().machine(0).unwrap();
    assert_eq!(machine.media.as_deref(), Some(LIVE_URL));
    assert_eq!(machine.boot[..2], ["Cd", "Continuous"]);
}

#[test]
fn the_firmware_gets_the_url_of_an_instance_for_every_boot() {
    let mut bench = bench(true);
    deploy_live(&mut bench, BootInterface::RedfishHttps);
    let machine = bench.service().machine(0).unwrap();
    assert_eq!(machine.boot, ["UefiHttp", "Continuous", "UEFI", LIVE_URL]);
}
