//! Machines that wait in the boot queue.

use trivet_model::interface::DeployInterface;
use trivet_model::order::PowerWanted;
use trivet_model::{JobPhase, PowerState};

use super::boot::lease;
use super::*;
use crate::FileServerProtocol;

/// This many nodes without a BMC whose inspection is requested at once, of which two may boot
/// at a time.
fn booting_nodes(nodes: u8) -> (RackBench, Vec<NodeId>) {
    let mut bench = RackBench::with(Settings {
        boots_at_once: BootLimitRule::Fixed(2),
        ..settings()
    });
    let ids: Vec<_> = (1..=nodes).map(|number| bench.with_node(number)).collect();
    for id in &ids {
        bench.force(*id, |node| {
            node.driver = "manual-management".into();
            node.provision_state = ProvisionState::Manageable;
        });
    }
    for id in &ids {
        bench.verb(*id, Verb::Inspect).unwrap();
    }
    (bench, ids)
}

impl RackBench {
    fn phase(&self, id: NodeId) -> Option<JobPhase> {
        self.node(id).job.map(|job| job.phase)
    }

    fn ahead(&self, id: NodeId) -> Option<u64> {
        let view = self.rack.view();
        view.ahead(view.nodes.get(&id).unwrap())
    }

    /// How many machines boot and how many wait.
    fn boot_counts(&self) -> (usize, usize) {
        let boots = self.rack.view().boot_queue;
        (boots.booting, boots.waiting)
    }

    fn looks_itself_up(&mut self, number: u8) {
        let order = RackOrder::Lookup {
            addresses: vec![MacAddr([0x52, 0x54, 0, 0, 0, number])],
            node: None,
        };
        self.order(order).unwrap();
    }
}

#[test]
fn a_queued_node_keeps_its_state_and_has_a_note() {
    let (mut bench, ids) = booting_nodes(4);
    assert_eq!(bench.phase(ids[1]), Some(JobPhase::AwaitAgent));
    assert_eq!(bench.phase(ids[2]), Some(JobPhase::PowerOn));
    assert_eq!(
        bench.node(ids[2]).provision_state,
        ProvisionState::Inspecting
    );
    assert_eq!((bench.ahead(ids[1]), bench.ahead(ids[2])), (None, Some(0)));
    assert_eq!(bench.ahead(ids[3]), Some(1));
    let notes = bench.notes();
    let want = "waits for its turn to boot, 1 ahead".to_owned();
    assert!(notes.contains(&want), "{notes:?}");
    assert_eq!(bench.boot_counts(), (2, 2));
    // It does not time out: none of its timers runs.
    bench.advance(170_000);
    assert_eq!(bench.phase(ids[3]), Some(JobPhase::PowerOn));
    assert_eq!(bench.node(ids[3]).last_error, None);
}

#[test]
fn an_agent_that_looks_itself_up_lets_the_next_one_boot() {
    let (mut bench, ids) = booting_nodes(4);
    bench.looks_itself_up(1);
    assert_eq!(bench.phase(ids[2]), Some(JobPhase::AwaitAgent));
    assert_eq!((bench.ahead(ids[2]), bench.ahead(ids[3])), (None, Some(0)));
    let notes = bench.notes();
    assert!(
        notes.iter().any(|note| note.contains("switch node-3 on")),
        "{notes:?}"
    );
}

#[test]
fn a_whole_ramdisk_lets_the_next_one_boot_and_nothing_less() {
    let (mut bench, _) = booting_nodes(3);
    let peer = lease(&mut bench, MAC).unwrap().into();
    let mut sent = |path: &str, sent, ended| {
        bench.handle(RackInput::FileSent {
            peer,
            protocol: FileServerProtocol::Http,
            path: path.into(),
            sent,
            requested: 900,
            took_ms: 10,
            ended,
        });
        bench.boot_counts()
    };
    assert_eq!(sent("/boot/kernel", 900, true), (2, 1));
    assert_eq!(sent("/boot/ramdisk", 900, false), (2, 1));
    assert_eq!(sent("/boot/ramdisk", 899, true), (2, 1));
    assert_eq!(sent("/boot/ramdisk", 900, true), (2, 0));
}

#[test]
fn an_aborted_boot_leaves_the_queue() {
    let (mut bench, ids) = booting_nodes(5);
    bench.force(ids[2], |node| {
        node.provision_state = ProvisionState::InspectWait;
    });
    bench.verb(ids[2], Verb::Abort).unwrap();
    assert_eq!(bench.ahead(ids[2]), None);
    assert_eq!(
        (bench.ahead(ids[3]), bench.ahead(ids[4])),
        (Some(0), Some(1))
    );
    bench.verb(ids[0], Verb::Abort).unwrap();
    assert_eq!(bench.phase(ids[3]), Some(JobPhase::AwaitAgent));
    assert_eq!(bench.boot_counts(), (2, 1));
    bench.order(RackOrder::DeleteNode(ids[4])).unwrap_err();
    bench.force(ids[4], |node| node.job = None);
    bench.force(ids[4], |node| {
        node.provision_state = ProvisionState::Manageable;
    });
    bench.order(RackOrder::DeleteNode(ids[4])).unwrap();
    assert_eq!(bench.boot_counts(), (2, 0));
}

#[test]
fn a_machine_that_is_booted_again_goes_to_the_end() {
    let (mut bench, ids) = booting_nodes(4);
    bench.looks_itself_up(1);
    // The second was never seen; the third was admitted just now.
    bench.advance(settings().limits.boot_ms);
    assert_eq!(bench.phase(ids[3]), Some(JobPhase::AwaitAgent));
    let waiting: Vec<_> = ids.iter().filter_map(|id| bench.ahead(*id)).collect();
    assert_eq!(
        waiting,
        [0],
        "the second and third were switched off and on"
    );
    assert_eq!(bench.node(ids[1]).last_error, None);
}

#[test]
fn after_a_restart_boots_under_way_are_counted_and_the_others_queue_again() {
    let (bench, ids) = booting_nodes(5);
    let bench = bench.restarted_with(BootLimitRule::Fixed(1));
    assert_eq!(
        bench.boot_counts(),
        (2, 3),
        "one is allowed, two boot already"
    );
    let ahead: Vec<_> = ids.iter().filter_map(|id| bench.ahead(*id)).collect();
    assert_eq!(ahead.iter().max(), Some(&2));
    let bench = bench.restarted();
    assert_eq!(bench.boot_counts(), (5, 0));
    let booting = |id: &NodeId| bench.phase(*id) == Some(JobPhase::AwaitAgent);
    assert!(ids.iter().all(booting));
}

#[test]
fn a_boot_from_disk_and_a_power_off_pass_at_once() {
    let (mut bench, _) = booting_nodes(4);
    let id = bench.with_node(9);
    bench.force(id, |node| {
        node.driver = "manual-management".into();
        node.provision_state = ProvisionState::Active;
    });
    for want in [PowerState::On, PowerState::Off] {
        let order = RackOrder::Power {
            node: id,
            want: PowerWanted::State(want),
            timeout_s: None,
        };
        bench.order(order).unwrap();
        assert_eq!(bench.node(id).power_state, Some(want));
    }
    assert_eq!(bench.boot_counts(), (2, 2));
}

#[test]
fn an_operators_boot_of_an_installer_waits_and_may_be_taken_back() {
    let (mut bench, ids) = booting_nodes(2);
    let id = bench.with_node(9);
    bench.force(id, |node| {
        node.driver = "manual-management".into();
        node.provision_state = ProvisionState::Active;
        node.attributes.interfaces.deploy = Some(DeployInterface::Ramdisk);
        node.instance_info.insert("boot_iso".into(), "a.iso".into());
    });
    let power = |bench: &mut RackBench, want| {
        let (want, timeout_s) = (PowerWanted::State(want), None);
        let order = RackOrder::Power {
            node: id,
            want,
            timeout_s,
        };
        bench.order(order).unwrap();
    };
    power(&mut bench, PowerState::On);
    assert_eq!(bench.ahead(id), Some(0));
    assert_eq!(bench.node(id).target_power_state, Some(PowerState::On));
    power(&mut bench, PowerState::Off);
    assert_eq!((bench.ahead(id), bench.boot_counts()), (None, (2, 0)));
    power(&mut bench, PowerState::On);
    bench.verb(ids[0], Verb::Abort).unwrap();
    assert_eq!(bench.node(id).power_state, Some(PowerState::On));
    assert_eq!(bench.boot_counts(), (2, 0));
    // Reads of an image are not seen here: after its script the boot is no longer counted.
    bench.handle(RackInput::FileRequested {
        certificate: None,
        ticket: 7,
        protocol: FileServerProtocol::Http,
        peer: Ipv4Addr::LOCALHOST.into(),
        path: "/boot/52:54:00:00:00:09/script".into(),
    });
    assert_eq!(bench.boot_counts(), (1, 0));
}

#[test]
fn orders_to_a_bmc_are_on_the_timeline_when_they_leave_and_when_they_are_taken() {
    let mut bench = RackBench::new();
    let id = bench.with_node(1);
    bench.force(id, |node| {
        node.provision_state = ProvisionState::Active;
    });
    let order = RackOrder::Power {
        node: id,
        want: PowerWanted::Reboot,
        timeout_s: None,
    };
    bench.order(order).unwrap();
    let noted = bench.notes();
    assert!(noted.contains(&"power off ordered".to_owned()), "{noted:?}");
    let mut case = super::power::RackTestChassis::new(true);
    super::power::exchange_datagrams(&mut bench, &mut super::power::bmc(), &mut case);
    let noted = super::power::notes_of(&bench, id);
    let want = "power off accepted by the BMC".to_owned();
    assert!(noted.contains(&want), "{noted:?}");
}

#[test]
fn a_machine_that_was_refused_its_ramdisk_does_not_indicate_congestion() {
    let mut settings = settings();
    settings.files.ramdisk = None;
    let mut bench = RackBench::with(settings);
    let id = bench.with_node(1);
    bench.force(id, |node| {
        node.driver = "manual-management".into();
        node.provision_state = ProvisionState::Manageable;
    });
    let before = bench.rack.view().boot_queue.limit;
    bench.verb(id, Verb::Inspect).unwrap();
    let peer = lease(&mut bench, MAC).unwrap().into();
    for ended in [false, true] {
        bench.handle(RackInput::FileSent {
            peer,
            protocol: FileServerProtocol::Http,
            path: "/boot/kernel".into(),
            sent: 900,
            requested: 900,
            took_ms: 10,
            ended,
        });
    }
    let (ticket, path) = (7, "/boot/ramdisk".to_owned());
    let protocol = FileServerProtocol::Http;
    bench.handle(RackInput::FileRequested {
        certificate: None,
        ticket,
        protocol,
        peer,
        path,
    });
    let refused = bench.outputs.iter().any(|output| {
        matches!(
            output,
            RackOutput::File {
                ticket: 7,
                grant: None
            }
        )
    });
    assert!(refused);
    // The job boots it again several times, and then fails.
    for _ in 0..100 {
        bench.advance(60_000);
    }
    assert!(bench.node(id).job.is_none());
    assert_eq!(bench.rack.view().boot_queue.limit, before);
}
