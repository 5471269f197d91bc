//! Nodes without a BMC: fake, switched by hand, or switched by their SSH host.

use trivet_model::interface::PowerInterface;
use trivet_model::node::JsonObject;
use trivet_model::order::PowerWanted;
use trivet_model::secret::SecretText;
use trivet_model::{JobStep, PowerState};

use super::*;

impl RackBench {
    /// A node of this hardware type, whether or not the settings enable it.
    fn with_driver(&mut self, driver: &str) -> NodeId {
        let id = self.with_node(1);
        self.force(id, |node| {
            node.driver = driver.into();
            node.driver_info = JsonObject::new();
        });
        id
    }

    fn power(&mut self, node: NodeId, want: PowerWanted) -> Result<OrderOutcome, OrderRefusal> {
        self.order(RackOrder::Power {
            node,
            want,
            timeout_s: None,
        })
    }

    fn state(&self, id: NodeId) -> ProvisionState {
        self.node(id).provision_state
    }
}

#[test]
fn a_fake_node_finishes_within_the_batch_of_the_order() {
    let mut bench = RackBench::new();
    let id = bench.with_driver("fake-hardware");
    for (verb, state, power) in [
        (Verb::Manage, ProvisionState::Manageable, PowerState::Off),
        (Verb::Inspect, ProvisionState::Manageable, PowerState::Off),
        (Verb::Provide, ProvisionState::Available, PowerState::Off),
        (Verb::Active, ProvisionState::Active, PowerState::On),
        (Verb::Rebuild, ProvisionState::Active, PowerState::On),
        (Verb::Deleted, ProvisionState::Available, PowerState::Off),
    ] {
        bench.verb(id, verb).unwrap();
        assert_eq!(bench.state(id), state, "{verb}");
        assert_eq!(bench.node(id).power_state, Some(power), "{verb}");
        let notes = bench.notes().join("\n");
        assert!(notes.contains(state.as_str()), "{verb}: {notes}");
    }
    let restarted = bench.restarted();
    assert_eq!(restarted.state(id), ProvisionState::Available);
}

#[test]
fn a_fake_node_carries_out_every_power_order_at_once() {
    let mut bench = RackBench::new();
    let id = bench.with_driver("fake-hardware");
    for (want, state) in [
        (PowerWanted::State(PowerState::On), PowerState::On),
        (PowerWanted::SoftReboot, PowerState::On),
        (PowerWanted::SoftOff, PowerState::Off),
        (PowerWanted::SoftReboot, PowerState::On),
        (PowerWanted::Reboot, PowerState::On),
        (PowerWanted::State(PowerState::Off), PowerState::Off),
    ] {
        bench.power(id, want).unwrap();
        let node = bench.node(id);
        assert_eq!(node.power_state, Some(state), "{want:?}");
        assert_eq!((node.target_power_state, node.last_error), (None, None));
    }
}

#[test]
fn a_boot_device_that_was_set_is_remembered() {
    let mut bench = RackBench::new();
    let node = bench.with_driver("fake-hardware");
    let order = RackOrder::SetBoot {
        node,
        device: trivet_model::BootDevice::Pxe,
        persistent: true,
    };
    bench.order(order).unwrap();
    let info = bench.node(node).driver_internal_info;
    assert_eq!(info["boot_device"], "pxe");
    assert_eq!(info["boot_device_persistent"], true);
}

#[test]
fn a_rescue_password_is_kept_hashed_and_only_where_it_is_needed() {
    let rescue = |node| RackOrder::Provision {
        node,
        verb: Verb::Rescue,
        args: VerbArgs {
            rescue_password: Some(SecretText::new("hunter2")),
            ..VerbArgs::default()
        },
        based_on: None,
    };
    let mut bench = RackBench::new();
    let id = bench.with_node(1);
    bench.force(id, |node| node.provision_state = ProvisionState::Active);
    bench.order(rescue(id)).unwrap();
    let stored = bench.node(id).instance_info["hashed_rescue_password"].clone();
    assert!(stored.as_str().unwrap().starts_with("$6$"), "{stored}");
    assert!(!bench.notes().join("\n").contains("hunter2"));
    bench.force(id, |node| {
        node.driver = "fake-hardware".into();
        node.provision_state = ProvisionState::Active;
        node.job = None;
        node.instance_info = JsonObject::new();
    });
    bench.order(rescue(id)).unwrap();
    assert_eq!(bench.state(id), ProvisionState::Rescue);
    assert!(bench.node(id).instance_info.is_empty());
    bench.force(id, |node| node.provision_state = ProvisionState::Active);
    let long = RackOrder::Provision {
        node: id,
        verb: Verb::Rescue,
        args: VerbArgs {
            rescue_password: Some(SecretText::new("x".repeat(300))),
            ..VerbArgs::default()
        },
        based_on: None,
    };
    bench.refused(long, RefusalKind::Invalid);
}

#[test]
fn a_hold_outlives_a_restart() {
    let mut bench = RackBench::new();
    let node = bench.with_driver("fake-hardware");
    bench.force(node, |node| {
        node.provision_state = ProvisionState::Manageable;
    });
    let hold = JobStep {
        step: "hold".into(),
        interface: "power".into(),
        priority: 0,
        args: json!({}),
        reboot_requested: false,
        abortable: true,
    };
    let args = VerbArgs {
        steps: vec![hold],
        ..VerbArgs::default()
    };
    let order = RackOrder::Provision {
        node,
        verb: Verb::Clean,
        args,
        based_on: None,
    };
    bench.order(order).unwrap();
    assert_eq!(bench.state(node), ProvisionState::CleanHold);
    let mut bench = bench.restarted();
    assert_eq!(bench.state(node), ProvisionState::CleanHold);
    bench.verb(node, Verb::Unhold).unwrap();
    assert_eq!(bench.state(node), ProvisionState::Manageable);
}

#[test]
fn a_note_requests_to_switch_a_node_by_hand_and_the_agent_is_waited_for() {
    let mut bench = RackBench::new();
    let id = bench.with_driver("manual-management");
    bench.verb(id, Verb::Manage).unwrap();
    assert_eq!(bench.state(id), ProvisionState::Manageable);
    bench.verb(id, Verb::Inspect).unwrap();
    let notes = bench.notes().join("\n");
    assert!(notes.contains("switch node-1 off now"), "{notes}");
    assert!(notes.contains("switch node-1 on now"), "{notes}");
    assert_eq!(bench.state(id), ProvisionState::InspectWait);
    assert!(bench.lookup().is_ok());
}

const LISTED: &str = "domain 6a5e2c1a-90a7-4d17-9e5f-aa0f6f3a1b2c\nshut off\n\n\
                      - network default virtio 52:54:00:00:00:01\n";

impl RackBench {
    fn with_host(&mut self) -> NodeId {
        let id = self.with_driver("ssh");
        let info = json!({
            "ssh_address": "192.0.2.9", "ssh_username": "virt", "ssh_key_filename": "/k",
        });
        self.force(id, |node| {
            node.driver_info = info.as_object().unwrap().clone();
        });
        id
    }

    /// The last command that was sent, and its number.
    fn run(&self) -> Option<(u64, String)> {
        self.outputs.iter().find_map(|output| match output {
            RackOutput::Bmc(BmcTransmit::Ssh(ssh)) => Some((ssh.run, ssh.command.clone())),
            _ => None,
        })
    }

    fn ran(&mut self, node: NodeId, run: u64, printed: &str) {
        let ran = trivet_bmc::ssh_host::SshCommandOutput {
            status: 0,
            stdout: printed.into(),
            stderr: Vec::new(),
        };
        self.handle(RackInput::Bmc(BmcMessage::SshAnswered {
            node,
            run,
            result: Ok(ran),
        }));
    }
}

#[test]
fn a_virtual_machine_is_switched_by_its_host() {
    let mut bench = RackBench::new();
    let id = bench.with_host();
    bench.power(id, PowerWanted::State(PowerState::On)).unwrap();
    let (run, _) = bench.run().unwrap();
    bench.ran(id, run, LISTED);
    let (start, line) = bench.run().unwrap();
    assert!(
        line.ends_with("start 6a5e2c1a-90a7-4d17-9e5f-aa0f6f3a1b2c"),
        "{line}"
    );
    bench.ran(id, run, "an answer that came twice");
    assert_eq!(bench.node(id).target_power_state, Some(PowerState::On));
    bench.ran(id, start, "");
    let node = bench.node(id);
    assert_eq!(node.power_state, Some(PowerState::On));
    assert_eq!((node.target_power_state, node.last_error), (None, None));
}

#[test]
fn a_host_that_cannot_be_used_is_named_in_the_error() {
    let mut bench = RackBench::new();
    let id = bench.with_host();
    bench.verb(id, Verb::Manage).unwrap();
    let (run, _) = bench.run().unwrap();
    let refused = trivet_bmc::ssh_host::SshCommandOutput {
        status: 255,
        stdout: Vec::new(),
        stderr: b"virt@192.0.2.9: Permission denied (publickey).".to_vec(),
    };
    bench.handle(RackInput::Bmc(BmcMessage::SshAnswered {
        node: id,
        run,
        result: Ok(refused),
    }));
    assert_eq!(bench.state(id), ProvisionState::Enroll);
    let message = bench.node(id).last_error.unwrap();
    assert!(message.contains("ssh_username"), "{message}");
}

#[test]
fn orders_to_a_host_queue_up_to_a_bound() {
    let mut bench = RackBench::new();
    let id = bench.with_host();
    for _ in 0..20 {
        let off = PowerWanted::State(PowerState::Off);
        bench.power(id, off).unwrap();
        // As if it had been given up, so that the next one is not refused because of it.
        bench.force(id, |node| node.target_power_state = None);
    }
    let reported = super::power::notes_of(&bench, id);
    let many = reported.iter().any(|note| note.contains("too many orders"));
    assert!(many, "{reported:#?}");
}

#[test]
fn one_order_goes_to_a_host_at_a_time_and_goes_with_the_node() {
    let mut bench = RackBench::new();
    let id = bench.with_host();
    let off = PowerWanted::State(PowerState::Off);
    bench.power(id, off).unwrap();
    let refusal = bench.power(id, off).unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::Conflict, "{refusal}");
    bench.order(RackOrder::DeleteNode(id)).unwrap();
    bench.ran(id, 1, LISTED);
    assert_eq!(bench.run(), None);
}

impl RackBench {
    /// A node with Wake-on-LAN and these keys in `driver_info`.
    fn with_wake_on_lan(&mut self, info: serde_json::Value) -> NodeId {
        let id = self.with_driver("manual-management");
        self.force(id, |node| {
            node.attributes.interfaces.power = Some(PowerInterface::WakeOnLan);
            node.driver_info = info.as_object().unwrap().clone();
        });
        id
    }
}

#[test]
fn wake_on_lan_sends_magic_packets_to_the_ports_of_the_node() {
    let mut bench = RackBench::new();
    let id = bench.with_wake_on_lan(json!({"wol_address": "192.0.2.255"}));
    bench.power(id, PowerWanted::State(PowerState::On)).unwrap();
    let sent = bench.outputs.iter().filter_map(|output| match output {
        RackOutput::Bmc(BmcTransmit::Datagram { to, bytes }) => {
            Some((to.to_string(), bytes.clone()))
        }
        _ => None,
    });
    let sent: Vec<_> = sent.collect();
    assert!(!sent.is_empty());
    for (to, bytes) in sent {
        assert_eq!(to, "192.0.2.255:9");
        assert_eq!(bytes.len(), 102);
        assert!(bytes[6..].chunks(6).all(|part| part == MAC.0));
    }
    let node = bench.node(id);
    assert_eq!(node.power_state, Some(PowerState::On));
    assert_eq!((node.target_power_state, node.last_error), (None, None));
}

#[test]
fn wake_on_lan_refuses_to_switch_off_unless_a_host_can() {
    let mut bench = RackBench::new();
    let id = bench.with_wake_on_lan(json!({}));
    bench.force(id, |node| node.power_state = Some(PowerState::On));
    let off = PowerWanted::State(PowerState::Off);
    bench.power(id, off).unwrap();
    let node = bench.node(id);
    assert_eq!(node.power_state, Some(PowerState::On));
    assert_eq!(node.target_power_state, None);
    let message = node.last_error.unwrap();
    assert!(message.contains("shut it down by hand"), "{message}");
    let host = json!({
        "ssh_address": "192.0.2.9", "ssh_username": "root", "ssh_key_filename": "/k",
    });
    bench.force(id, |node| {
        node.driver_info = host.as_object().unwrap().clone();
    });
    bench.power(id, off).unwrap();
    assert!(bench.run().is_some());
}

#[test]
fn a_machine_with_wake_on_lan_that_is_seen_is_on() {
    let mut bench = RackBench::new();
    let id = bench.with_wake_on_lan(json!({}));
    bench.force(id, |node| node.power_state = Some(PowerState::Off));
    bench.rack.sync_power_of_seen_machine(bench.now, id);
    assert_eq!(bench.node(id).power_state, Some(PowerState::On));
}
